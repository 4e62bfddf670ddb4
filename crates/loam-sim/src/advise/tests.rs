use super::*;
use crate::model::Model;
use crate::trace::Run;
use proptest::prelude::*;

/// A trace in memory.
struct Runs(Vec<Run>);

impl Source for Runs {
    fn next_runs(&mut self, into: &mut Vec<Run>) -> Result<bool, TraceError> {
        into.append(&mut self.0);
        Ok(!into.is_empty())
    }
}

fn advice(cluster: &Cluster, runs: &[Run], change: impl FnOnce(&mut Options)) -> Result<Advice, AdviseError> {
    let mut options = Options {
        gap_bytes: 64 << 10,
        structures_max: 8,
        named: Vec::new(),
        pages_only: false,
        reference_ns: 2.0,
        threads: 2,
    };
    change(&mut options);
    advise(cluster, &options, &mut || Ok(Box::new(Runs(runs.to_vec()))))
}

fn cluster(local_mib: u64, load_ns: u64) -> Cluster {
    Cluster {
        local_bytes: local_mib << 20,
        paging: Model::load("tcp-25g").expect("built in"),
        direct: Some(Direct { name: "d".into(), load_ns, local_ns: 85 }),
        cache_bytes: 1 << 16,
    }
}

const GRAINS_PER_MIB: u64 = 4096;

/// Reads each byte of so many MiB from an address in MiB on, in order, so many times.
fn sweep(at_mib: u64, mib: u64, times: u64) -> impl Iterator<Item = Run> {
    let first = at_mib * GRAINS_PER_MIB;
    (0..times).flat_map(move |_| {
        (first..first + mib * GRAINS_PER_MIB).map(|grain| Run { grain, references: 32, writes: false })
    })
}

/// Single references to anywhere in so many MiB; the first of them write all pages, so that there is something to fetch.
fn scattered(at_mib: u64, mib: u64, references: u64, seed: u64) -> impl Iterator<Item = Run> {
    let first = at_mib * GRAINS_PER_MIB;
    let filled =
        (0..mib * 256).map(move |page| Run { grain: first + page * 16 + 1, references: 1, writes: true });
    let mut state = seed | 1;
    filled.chain((0..references).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Run { grain: first + (state >> 33) % (mib * GRAINS_PER_MIB), references: 1, writes: false }
    }))
}

fn written(runs: impl Iterator<Item = Run>) -> impl Iterator<Item = Run> {
    runs.map(|run| Run { writes: true, ..run })
}

fn best(advice: &Advice, at: usize) -> Choice {
    let of = &advice.structures[at];
    of.options[of.best]
}

#[test]
fn what_fits_stays_here() {
    let runs: Vec<Run> = written(sweep(16, 4, 2)).collect();
    let advice = advice(&cluster(8, 265), &runs, |_| {}).expect("advice");
    assert_eq!(advice.structures.len(), 1);
    assert_eq!((best(&advice, 0).way, advice.buffers_bytes), (Way::Local, 0));
    assert!(advice.together.is_empty() && advice.faster().is_none());
    assert_eq!(advice.time_ns, 2 * 2 * 4 * GRAINS_PER_MIB * 32);
    // The other ways are told all the same.
    assert!(advice.structures[0].options.iter().any(|choice| matches!(choice.way, Way::Paged { .. })));
}

#[test]
fn a_dense_sweep_is_paged_and_in_large_pages() {
    let runs: Vec<Run> = written(sweep(16, 24, 1)).chain(sweep(16, 24, 3)).collect();
    let advice = advice(&cluster(12, 265), &runs, |_| {}).expect("advice");
    let Way::Paged { page_bytes } = best(&advice, 0).way else { panic!("{:?}", best(&advice, 0)) };
    assert!(page_bytes >= 64 << 10, "{page_bytes}");
    assert!(advice.buffers_bytes > 0 && advice.together.len() == 1);
}

#[test]
fn scattered_loads_are_direct_where_a_load_is_cheap_and_paged_where_it_is_not() {
    let runs: Vec<Run> = scattered(16, 16, 12_000, 7).collect();
    let cheap = advice(&cluster(8, 265), &runs, |_| {}).expect("advice");
    assert_eq!(best(&cheap, 0).way, Way::Direct);
    assert_eq!(best(&cheap, 0).local_bytes, 0);
    // One reference to a grain is one line.
    let of = &cheap.structures[0];
    let lines = of.lines.expect("addresses are known");
    assert!(lines[0] <= lines[1] && lines[1] <= of.references, "{lines:?}");
    let dear = advice(&cluster(8, 1_000_000), &runs, |_| {}).expect("advice");
    assert_eq!(best(&dear, 0).way, Way::Paged { page_bytes: 4096 });
}

#[test]
fn each_structure_has_its_own_way() {
    // Loads go to a table here and there while an array is swept, and a small one is used all the time.
    let table = scattered(100, 16, 16_000, 3);
    let array = written(sweep(16, 24, 1)).chain(sweep(16, 24, 2));
    let runs: Vec<Run> = table.chain(array).chain(written(sweep(200, 2, 20))).collect();
    let name = |name: &str, at: u64, mib: u64| Named { name: name.into(), start: at << 20, bytes: mib << 20 };
    let named = vec![name("array", 16, 24), name("table", 100, 16), name("hot", 200, 2)];
    let advice = advice(&cluster(14, 265), &runs, |options| options.named = named).expect("advice");
    let ways: Vec<(&str, Way)> = advice
        .structures
        .iter()
        .enumerate()
        .map(|(at, of)| (of.name.as_str(), best(&advice, at).way))
        .collect();
    assert!(matches!(ways[0], ("array", Way::Paged { page_bytes }) if page_bytes >= 65_536), "{ways:?}");
    assert_eq!(ways[1..], [("table", Way::Direct), ("hot", Way::Local)]);
    assert!(advice.local_used_bytes + advice.buffers_bytes <= advice.local_bytes);
    for fixed in advice.fixed.iter().filter(|fixed| fixed.local_bytes <= advice.local_bytes) {
        assert!(
            fixed.time_ns.is_none_or(|time| advice.time_ns <= time),
            "{fixed:?}, advised {}",
            advice.time_ns
        );
    }
}

#[test]
fn structures_that_are_used_one_after_the_other_are_better_together() {
    // Each fits by itself, and no part of it does.
    let one = |at| written(sweep(at, 7, 1)).chain(sweep(at, 7, 6));
    let runs: Vec<Run> = one(16).chain(one(100)).collect();
    let without = Cluster { direct: None, ..cluster(13, 0) };
    let advice = advice(&without, &runs, |_| {}).expect("advice");
    let faster = advice.faster().expect("one local memory for both");
    assert!(faster.name.contains("loam run"), "{faster:?}");
}

/// Two structures of which each would fit with buffers of its own: both are paged where there is memory for both, and what is used is told whole.
#[test]
fn each_paged_structure_pays_for_its_buffers() {
    let one = |at| written(sweep(at, 12, 1)).chain(sweep(at, 12, 2));
    let runs: Vec<Run> = one(16).chain(one(100)).collect();
    let paged = |advice: &Advice| {
        let ways = (0..2).map(|at| best(advice, at).way);
        ways.filter(|way| matches!(way, Way::Paged { .. })).count() as u64
    };
    let without = |local_mib| Cluster { direct: None, ..cluster(local_mib, 0) };
    let buffers = u64::from(loam_core::borrower::BUFFERS_MIN) * structures::BASE_BYTES;
    let enough = advice(&without(11), &runs, |_| {}).expect("advice");
    assert_eq!((paged(&enough), enough.buffers_bytes, enough.buffers_shared), (2, 2 * buffers, false));
    assert!(enough.local_used_bytes + enough.buffers_bytes <= enough.local_bytes);
    // Less: advice all the same, and it is said that the time is too short.
    let little = advice(&without(8), &runs, |_| {}).expect("advice");
    assert_eq!((paged(&little), little.buffers_bytes, little.buffers_shared), (2, buffers, true));
    assert!(!little.together.is_empty(), "what is replayed as live stands beside it");
}

#[test]
fn pages_alone_do_not_tell_what_direct_takes() {
    let runs: Vec<Run> =
        scattered(16, 12, 2_000, 7).map(|run| Run { grain: run.grain / 16 * 16, ..run }).collect();
    let from_pages = advice(&cluster(12, 265), &runs, |_| {}).expect("advice");
    assert_eq!(from_pages.structures[0].lines, None);
    assert!(from_pages.structures[0].options.iter().all(|choice| choice.way != Way::Direct));
    let runs: Vec<Run> = scattered(16, 12, 2_000, 7).collect();
    let told = advice(&cluster(12, 265), &runs, |options| options.pages_only = true).expect("advice");
    assert_eq!(told.structures[0].lines, None);
}

#[test]
fn too_little_memory_is_told_with_what_is_needed() {
    let runs: Vec<Run> = written(sweep(16, 24, 1)).collect();
    let without = Cluster { direct: None, ..cluster(2, 0) };
    let error = advice(&without, &runs, |_| {}).expect_err("nothing fits");
    let AdviseError::TooLittle { have, least } = error else { panic!("{error}") };
    assert!(have < least && least < 24 << 20, "{have} {least}");
    assert!(matches!(advice(&without, &[], |_| {}), Err(AdviseError::Empty)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    /// Whatever the program: the advice fits, is as fast as any one way for all that fits, and the same each time and on any number of threads.
    #[test]
    fn advice_is_no_worse_than_one_way_for_all(
        parts in proptest::collection::vec((2_u64..5, 1_u64..3, 0_u64..2_000), 1..4), local_mib in 7_u64..12, load_ns in 85_u64..3_000
    ) {
        let mut runs: Vec<Run> = Vec::new();
        for (at, &(mib, times, loads)) in parts.iter().enumerate() {
            runs.extend(written(sweep(16 + 32 * at as u64, mib, times)));
            runs.extend(scattered(16 + 32 * at as u64, mib, loads, loads));
        }
        let cluster = cluster(local_mib, load_ns);
        let found = advice(&cluster, &runs, |_| {}).expect("advice");
        prop_assert_eq!(&found, &advice(&cluster, &runs, |options| options.threads = 1).expect("advice"));
        prop_assert_eq!(found.structures.len(), parts.len());
        prop_assert!(found.local_used_bytes + found.buffers_bytes <= found.local_bytes);
        let fitting = found.fixed.iter().filter(|fixed| fixed.local_bytes <= found.local_bytes);
        for fixed in fitting {
            prop_assert!(fixed.time_ns.is_none_or(|time| found.time_ns <= time), "{:?}", fixed);
        }
        let data: u64 = found.structures.iter().map(|of| of.bytes).sum();
        if data <= found.local_bytes {
            prop_assert!((0..found.structures.len()).all(|at| best(&found, at).way == Way::Local));
        }
        prop_assert_eq!(!found.together.is_empty(), data > found.local_bytes);
    }
}
