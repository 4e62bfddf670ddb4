//! The pool's table against a model, and claimed by several threads at once.

use loam_hand::direct::{CHUNK_BYTES_MIN, CHUNKS_MAX, Chunks, DirectPlan, chunk_bytes, table_bytes};
use loam_hand::{REGION_BYTES_MAX, RegionPlan};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const CHUNKS: usize = 12;

fn table() -> Vec<AtomicU64> {
    (0..table_bytes(CHUNKS) / 8).map(|_| AtomicU64::new(0)).collect()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Claim { first: usize, token: u32 },
    Release { index: usize, token: u32 },
    Die { token: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..CHUNKS + 2, 1..5_u32).prop_map(|(first, token)| Step::Claim { first, token }),
        3 => (0..CHUNKS + 2, 1..5_u32).prop_map(|(index, token)| Step::Release { index, token }),
        1 => (1..5_u32).prop_map(|token| Step::Die { token }),
    ]
}

proptest! {
    /// A chunk is one process's at a time, what was somebody's is dirty for the next, and what the dead had can be claimed again.
    #[test]
    fn the_table_does_as_a_model_does(steps in prop::collection::vec(step(), 1..300)) {
        let words = table();
        let chunks = Chunks::new(&words, CHUNKS);
        // Whose, and whether it was anybody's before.
        let mut model = [(None, false); CHUNKS];
        let mut peak = 0;
        for step in steps {
            match step {
                Step::Claim { first, token } => {
                    let from = if first < CHUNKS { first } else { 0 };
                    let expected = (from..CHUNKS).chain(0..from).find(|index| model[*index].0.is_none());
                    let claimed = chunks.claim(first, token);
                    prop_assert_eq!(claimed.map(|claimed| claimed.index), expected);
                    if let Some(claimed) = claimed {
                        prop_assert_eq!(claimed.is_dirty, model[claimed.index].1);
                        model[claimed.index] = (Some(token), true);
                    }
                    peak = peak.max(model.iter().filter(|chunk| chunk.0.is_some()).count());
                }
                Step::Release { index, token } => {
                    let is_its = model.get(index).is_some_and(|chunk| chunk.0 == Some(token));
                    prop_assert_eq!(chunks.release(index, token), is_its);
                    if is_its {
                        model[index].0 = None;
                    }
                }
                Step::Die { token } => {
                    let had = model.iter_mut().filter(|chunk| chunk.0 == Some(token));
                    let count = had.map(|chunk| chunk.0 = None).count();
                    prop_assert_eq!(chunks.release_all(token), count);
                }
            }
            for (index, chunk) in model.iter().enumerate() {
                for token in 1..5 {
                    prop_assert_eq!(chunks.is_owned(index, token), chunk.0 == Some(token));
                }
            }
            prop_assert_eq!(chunks.peak(), peak as u64);
        }
    }

    /// Whatever a program writes there, nothing is claimed twice and no index is beyond the table.
    #[test]
    fn scribbles_do_no_harm(scribbles in prop::collection::vec((0..table_bytes(CHUNKS) / 8, any::<u64>()), 1..100)) {
        let words = table();
        let chunks = Chunks::new(&words, CHUNKS);
        let mut mine = BTreeSet::new();
        for (at, word) in scribbles {
            words[at].store(word, Relaxed);
            if let Some(claimed) = chunks.claim(word as usize, 7) {
                prop_assert!(claimed.index < CHUNKS);
                mine.insert(claimed.index);
            }
            prop_assert!(chunks.peak() <= CHUNKS as u64);
            prop_assert!(!chunks.release(at + CHUNKS, 7) && !chunks.is_owned(at + CHUNKS, 7));
        }
    }
}

#[test]
fn threads_never_have_the_same_chunk() {
    let words = table();
    let holders: Vec<AtomicU64> = (0..CHUNKS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for token in 1..=4_u32 {
            let (words, holders) = (&words, &holders);
            scope.spawn(move || {
                let chunks = Chunks::new(words, CHUNKS);
                for round in 0..20_000 {
                    if let Some(claimed) = chunks.claim(round, token) {
                        assert_eq!(
                            holders[claimed.index].swap(u64::from(token), Relaxed),
                            0,
                            "nobody has it"
                        );
                        assert_eq!(holders[claimed.index].swap(0, Relaxed), u64::from(token));
                        assert!(chunks.release(claimed.index, token));
                    }
                }
            });
        }
    });
    assert!(Chunks::new(&words, CHUNKS).peak() <= 4);
}

#[test]
fn plans_that_cannot_be_are_told() {
    let direct = DirectPlan { chunk_bytes: 2 << 20, offset: 4096, token: 1, chunks: 4 };
    let plan = |direct| RegionPlan { bytes: 8 << 20, least_bytes: 4096, spare_bytes: 0, direct }.is_sane();
    assert!(plan(direct) && plan(DirectPlan::default()));
    for wrong in [
        DirectPlan { chunk_bytes: 1 << 20, chunks: 8, ..direct },
        DirectPlan { chunk_bytes: 3 << 20, ..direct },
        DirectPlan { chunks: 5, ..direct },
        DirectPlan { token: 0, ..direct },
        DirectPlan { offset: 1, ..direct },
        DirectPlan { offset: u64::MAX - 4095, ..direct },
        DirectPlan { chunk_bytes: 0, ..direct },
    ] {
        assert!(!plan(wrong), "{wrong:?}");
    }
    for bytes in [1, CHUNK_BYTES_MIN, 64 << 30, REGION_BYTES_MAX] {
        let chunk = chunk_bytes(bytes);
        assert!(chunk.is_power_of_two() && chunk >= CHUNK_BYTES_MIN && bytes.div_ceil(chunk) <= CHUNKS_MAX);
    }
}
