use super::*;
use crate::workload::kernels::Recording;
use loam_core::page_size::PageSize;
use loam_core::units::Bytes;
use loam_kernels::{Size, info};
use proptest::prelude::*;

const PATH: Path = Path {
    latency_ns: 10_000,
    ps_per_byte: 800,
    message_bytes: 64,
    message_ns: 1_000,
    install_ns: 500,
    evict_ns: 500,
    serial: false,
};

fn size(kib: u64) -> PageSize {
    PageSize::new(BasePages(kib / 4)).unwrap()
}

fn recording(name: &str, iterations: u32) -> Recording {
    let info = info(name).unwrap();
    Recording::new(info, info.problem(Size::Bytes(6 << 20)).unwrap(), iterations, Bytes(4096), 1 << 24)
        .unwrap()
}

fn config(local: u64, sizing: Sizing) -> Config {
    Config {
        path: PATH,
        local: BasePages(local),
        sizing,
        fetch_plan: "full",
        prefetch: None,
        replacement: "fifo",
        parts: true,
        periods: 1,
        rescue: true,
        buffers_are_local: false,
        set_up_once: false,
        iterations_max: u32::MAX,
        stop_after: None,
    }
}

#[test]
fn a_run_is_a_function_of_its_inputs() {
    let recording = recording("bt", 2);
    let sizing = Sizing::Auto { least: size(4), start: size(32), most: size(1024) };
    let config = config(u64::from(recording.base_pages()) / 4, sizing);
    let outcome = run(&config, &recording);
    assert!(outcome.faults > 0);
    assert_eq!(outcome, run(&config, &recording));
}

#[test]
fn a_program_that_fits_waits_for_nothing() {
    let recording = recording("sp", 2);
    let outcome =
        run(&config(2 * u64::from(recording.base_pages()) + 2048, Sizing::Fixed(size(64))), &recording);
    assert_eq!((outcome.faults, outcome.fetched, outcome.put), (0, 0, 0));
    assert_eq!((outcome.wall_ns, outcome.relative_time(1, u32::MAX)), (outcome.exec_ns, Some(1.0)));
}

#[test]
fn counts_add_up() {
    let recording = recording("sp", 3);
    let quarter = u64::from(recording.base_pages()) / 4;
    let out = run(&config(quarter, Sizing::Fixed(size(32))), &recording);
    let sum = |of: fn(&Turn) -> u64| out.turns.iter().map(of).sum::<u64>();
    assert_eq!((sum(|t| t.wall_ns), sum(|t| t.exec_ns)), (out.wall_ns, out.exec_ns));
    assert_eq!((sum(|t| t.faults), sum(|t| t.fetched)), (out.faults, out.fetched));
    assert!(out.fetched <= out.faults * 8, "a fault brings a page of 8 base pages at most");
    assert_eq!(out.references + 1 + 3 * 6, recording.len(), "all events but marks");
    let parts: Vec<(u32, u32)> = out.turns.iter().map(|turn| (turn.iteration, turn.part)).collect();
    let iterations = (1..=3).flat_map(|iteration| (1..=6).map(move |part| (iteration, part)));
    assert_eq!(parts, [(0, 0)].into_iter().chain(iterations).collect::<Vec<_>>());
    // Fewer iterations are the beginning of more.
    let config = Config { iterations_max: 2, ..config(quarter, Sizing::Fixed(size(32))) };
    assert_eq!(run(&config, &recording).turns, out.turns[..13]);
}

#[test]
fn setting_up_once_leaves_the_data_where_they_are() {
    let recording = recording("bt", 2);
    let quarter = u64::from(recording.base_pages()) / 4;
    let whole = config(quarter, Sizing::Fixed(size(16)));
    let once = Config { set_up_once: true, ..whole.clone() };
    let (whole, once) = (run(&whole, &recording), run(&once, &recording));
    let last = |out: &Outcome| out.relative_time(2, 2).unwrap();
    assert!((last(&whole) / last(&once) - 1.0).abs() < 0.03, "{} {}", last(&whole), last(&once));
    assert!(once.references < whole.references);
}

#[test]
fn a_run_that_takes_too_long_is_stopped_and_has_no_time() {
    let recording = recording("bt", 2);
    let mut config = config(u64::from(recording.base_pages()) / 10, Sizing::Fixed(size(16)));
    let whole = run(&config, &recording);
    assert!(!whole.stopped && whole.relative_time(1, 2).is_some());
    let first: u64 = whole.turns_from(1).filter(|t| t.iteration == 1).map(|t| t.wall_ns).sum();
    config.stop_after = Some(Duration(first / 2));
    let stopped = run(&config, &recording);
    assert!(stopped.stopped && stopped.wall_ns < whole.wall_ns);
    assert_eq!((stopped.relative_time(1, 1), stopped.relative_time(2, 2)), (None, None));
}

/// 1 MiB pages of fresh memory that is written in order, and again: what STREAM does. The link and the agent take turns.
#[test]
fn a_serial_path_adds_up_what_it_does() {
    let recording = recording("himeno", 2);
    let quarter = u64::from(recording.base_pages()) / 4;
    let serial = Config { path: Path { serial: true, ..PATH }, ..config(quarter, Sizing::Fixed(size(64))) };
    let out = run(&serial, &recording);
    let waited = out.turns_from(1).map(|t| t.wall_ns - t.exec_ns).sum::<u64>();
    let came = out.turns_from(1).map(|t| t.fetched).sum::<u64>();
    // Each base page that comes crosses the link and is installed while the program waits.
    let least = came * (4096 * PATH.ps_per_byte / 1000 + PATH.install_ns);
    assert!(waited >= least, "{waited} {least}");
    let both = run(&config(quarter, Sizing::Fixed(size(64))), &recording);
    assert!(both.wall_ns < out.wall_ns, "two at a time are faster than one after the other");
}

#[test]
fn periods_mark_a_part_again() {
    let recording = recording("himeno", 4);
    let quarter = u64::from(recording.base_pages()) / 4;
    let sizing = Sizing::Aapc { basic: size(16), start: size(64), most: size(256) };
    let whole = config(quarter, sizing);
    let sizes = |config: &Config| {
        let changes = run(config, &recording).changes;
        changes.into_iter().filter(|c| c.part == 1).map(|c| c.to).collect::<Vec<_>>()
    };
    // A sweep over everything does not fit; a stretch of it does.
    assert!(sizes(&whole).into_iter().all(|to| to < size(64)));
    assert_eq!(sizes(&Config { periods: 64, ..whole })[..2], [size(128), size(256)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// On average: a single size may be unlucky with a few frames more.
    #[test]
    fn fewer_frames_never_make_it_faster(
        name in proptest::sample::select(&["bt", "sp", "himeno", "cg"][..]),
        few in 8_u64..30, more in 10_u64..40,
    ) {
        let recording = recording(name, 2);
        let time = |percent: u64| {
            let sizes = [4, 16, 64].map(|kib| {
                let local = (u64::from(recording.base_pages()) * percent / 100).max(512);
                let config = Config { set_up_once: true, ..config(local, Sizing::Fixed(size(kib))) };
                run(&config, &recording).relative_time(2, 2).unwrap()
            });
            sizes.into_iter().sum::<f64>()
        };
        let (with_few, with_more) = (time(few), time(few + more));
        prop_assert!(with_more <= with_few * 1.05, "{few}%: {with_few}, {}%: {with_more}", few + more);
    }
}
