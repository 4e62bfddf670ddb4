//! What every workload must do.

use super::*;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

const SEED: u64 = 5;

fn traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces")
}

fn small(name: &str, seed: u64, page: Bytes) -> Box<dyn Workload> {
    by_name(name, Scale::Small, page, seed, &traces()).expect("traces are there").expect("it is a name")
}

/// Everything that it yields.
pub(super) fn run_whole(workload: &mut dyn Workload) -> Vec<Reference> {
    let mut all = Vec::new();
    loop {
        let before = all.len();
        let more = workload.next_references(&mut all);
        assert_eq!(more, all.len() > before, "it tells whether it appended");
        if !more {
            assert!(!workload.next_references(&mut all) && all.len() == before, "the end is the end");
            return all;
        }
    }
}

/// A hash with a fixed key.
fn hash(references: &[Reference]) -> u64 {
    let mut hasher = DefaultHasher::new();
    references.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn results_are_right() {
    for name in NAMES {
        let mut workload = small(name, SEED, PAGE_BYTES);
        run_whole(&mut *workload);
        let lines = workload.check().unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
        assert!(!lines.is_empty(), "{name} says nothing");
    }
}

#[test]
fn a_seed_is_a_stream_and_it_can_be_restarted() {
    for name in NAMES {
        let mut workload = small(name, SEED, PAGE_BYTES);
        let first = hash(&run_whole(&mut *workload));
        workload.restart();
        assert_eq!(hash(&run_whole(&mut *workload)), first, "{name} restarted");
        // In the middle, too.
        workload.restart();
        workload.next_references(&mut Vec::new());
        workload.restart();
        assert_eq!(hash(&run_whole(&mut *workload)), first, "{name} restarted in its middle");
        assert_eq!(hash(&run_whole(&mut *small(name, SEED, PAGE_BYTES))), first, "{name} again");
        assert_ne!(hash(&run_whole(&mut *small(name, SEED + 1, PAGE_BYTES))), first, "{name}, another seed");
    }
}

/// Every page is one of the footprint, most of the footprint is used, and what has no contents yet is not read.
#[test]
fn footprints_hold() {
    for (name, page) in NAMES.into_iter().flat_map(|name| [(name, PAGE_BYTES), (name, Bytes(4096))]) {
        let mut workload = small(name, SEED, page);
        let footprint = workload.footprint().clone();
        let all = run_whole(&mut *workload);
        assert!(!all.is_empty(), "{name}");
        let mut used = vec![false; footprint.pages() as usize];
        for reference in &all {
            let number = footprint.number(reference.page) as usize;
            let made = match reference.page.object {
                Object::Private => true,
                Object::File(file) => footprint.files[usize::from(file)].made,
            };
            assert!(
                used[number] || reference.fresh || !made,
                "{name}: {reference:?} reads what is not there"
            );
            used[number] = true;
        }
        let share = used.iter().filter(|&&used| used).count() as f64 / used.len() as f64;
        assert!(share > LEAST_USED, "{name} uses {share:.2} of its {} pages", used.len());
    }
}

/// A small CAD session opens a few of the parts only.
const LEAST_USED: f64 = 0.2;

#[test]
fn a_page_outside_of_the_footprint_is_refused() {
    let footprint = Footprint {
        private_pages: 2,
        files: vec![
            WorkFile { name: "a".into(), pages: 3, made: false },
            WorkFile { name: "b".into(), pages: 1, made: true },
        ],
    };
    let number = |object, page| footprint.number(WorkPage { object, page });
    assert_eq!(
        [number(Object::Private, 1), number(Object::File(0), 2), number(Object::File(1), 0)],
        [1, 4, 5]
    );
    let outside = std::panic::catch_unwind(|| number(Object::File(0), 3));
    assert!(outside.is_err(), "the fourth page of three");
}

#[test]
fn no_workload_has_another_name() {
    let none = by_name("oo8", Scale::Small, PAGE_BYTES, 1, &traces()).expect("it reads nothing");
    assert!(none.is_none());
    for name in NAMES {
        assert_eq!(small(name, 1, PAGE_BYTES).name(), name);
    }
}
