//! The format against itself, and against damage.

use super::*;
use crate::trace::summary::{Counter, all_runs};
use crate::trace::{Run, TraceError};
use proptest::prelude::*;

fn header() -> Header {
    let command = vec!["sort".into(), "-n".into()];
    Header { command, ns_per_reference: Some(12.5), instructions: true, ..Header::new("sort") }
}

fn write(runs: &[Run]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).expect("memory");
    for some in runs.chunks(1000) {
        writer.add(some).expect("memory");
    }
    writer.finish().expect("memory").1
}

fn read(file: &[u8]) -> Result<Vec<Run>, TraceError> {
    all_runs(&mut Reader::new(file, "t")?)
}

/// A program that walks an array, with a stack and a few far places.
fn program(runs: u64) -> Vec<Run> {
    let run = |at: u64| {
        let grain = match at % 5 {
            0 | 2 => 0x1fff_0007,
            1 => 0x4000 + at / 10,
            3 => at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40,
            _ => 0x1fff_0006 - at % 3,
        };
        Run { grain, references: (at % 7 + 1) as u32, writes: at.is_multiple_of(3) }
    };
    (0..runs).map(run).collect()
}

fn grains() -> impl Strategy<Value = u64> {
    prop_oneof![0..100_u64, (1_u64 << 40)..(1_u64 << 40) + 1000, any::<u64>()]
}

fn references() -> impl Strategy<Value = u32> {
    prop_oneof![1..4_u32, 120..140_u32, 1..=u32::MAX]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_is_written_is_read(runs in prop::collection::vec((grains(), references(), any::<bool>()), 0..3000)) {
        let run = |&(grain, references, writes): &(u64, u32, bool)| Run { grain, references, writes };
        let runs: Vec<Run> = runs.iter().map(run).collect();
        let file = write(&runs);
        prop_assert_eq!(read(&file).expect("whole"), runs.clone());
        prop_assert_eq!(file, write(&runs));
    }

    #[test]
    fn damage_is_noticed(at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let runs = program(3000);
        let mut file = write(&runs);
        let at = at.index(file.len());
        file[at] ^= 1 << bit;
        // The header's length may be told in a longer way; whatever is read must be what was written.
        if let Ok(got) = read(&file) {
            prop_assert_eq!(got, runs);
        }
    }

    #[test]
    fn a_cut_is_noticed_wherever_it_is(at in any::<prop::sample::Index>()) {
        let file = write(&program(3000));
        let error = read(&file[..at.index(file.len())]).expect_err("cut").to_string();
        prop_assert!(error.starts_with("t: byte ") && error.contains("cut"), "{}", error);
    }
}

#[test]
fn many_blocks_and_no_run_at_all() {
    let runs = program(200_000);
    let file = write(&runs);
    assert_eq!(read(&file).expect("whole"), runs);
    assert_eq!(read(&write(&[])).expect("whole"), []);
    let reader = Reader::new(file.as_slice(), "t").expect("whole");
    assert_eq!(*reader.header(), header());
}

#[test]
fn peeking_finds_header_and_totals() {
    let runs = program(5000);
    let path = std::env::temp_dir().join(format!("loam-trace-peek-{}", std::process::id()));
    let mut counter = Counter::default();
    counter.add(&runs).expect("small");
    let file = write(&runs);
    std::fs::write(&path, &file).expect("temporary folder");
    let peeked = peek(&path);
    std::fs::write(&path, &file[..file.len() - 1]).expect("temporary folder");
    let cut = peek(&path);
    std::fs::remove_file(&path).expect("temporary folder");
    assert_eq!(peeked.expect("whole"), (header(), counter.totals()));
    assert!(cut.expect_err("cut").what.contains("expected the footer here"));
}

#[test]
fn other_versions_and_other_files_are_told() {
    let mut file = write(&program(10));
    file.push(0);
    assert!(read(&file).expect_err("longer").what.contains("expected the file's end"));
    file[7] = 2;
    assert!(read(&file).expect_err("newer").what.starts_with("version 2 of the format"));
    assert!(read(b"something else").expect_err("other").what.starts_with("not a trace in Loam's format"));
    assert!(read(b"LOAM").expect_err("short").what.contains("cut"));
}
