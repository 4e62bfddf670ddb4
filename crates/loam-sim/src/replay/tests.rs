//! Counts against libCacheSim's, and against the definition.

use super::*;
use proptest::prelude::*;

#[test]
fn repeats_are_one_entry_and_hits() {
    let stream = Stream::of([1, 1, 1, 2, 2, 2, 2, 2, 3, 1, 4, 4, 2, 5, 1, 1, 1, 1, 6, 2, 7, 1]);
    assert_eq!((stream.references(), stream.distinct(), stream.pages().len()), (22, 7, 12));
    for policy in POLICIES {
        assert_eq!(misses(policy, &stream, 7), Some(7), "{policy}");
        assert_eq!(misses(policy, &stream, 1), Some(12), "{policy}");
    }
    assert_eq!(misses("random", &stream, 7), None);
}

/// Counts that libCacheSim 0.3.5 (PyPI `libcachesim`, default configuration, objects of size 1) gave for two Zipf streams of this
/// generator, which `loam sim replay --export` wrote for it. `bench/replay/compare.py` does the same on long streams and on traces.
#[test]
fn counts_are_those_of_libcachesim() {
    let policies = ["fifo", "lru", "clock", "belady", "sieve"];
    let ask = |stream: &Stream, frames, theirs: [u64; 5]| {
        for (policy, theirs) in policies.into_iter().zip(theirs) {
            assert_eq!(misses(policy, stream, frames), Some(theirs), "{policy} with {frames} frames");
        }
    };
    let steep = Stream::of(Zipf::new(5_000, 0.9, 42).take(200_000));
    ask(&steep, 50, [161_277, 154_532, 151_824, 111_112, 128_204]);
    ask(&steep, 500, [102_301, 92_678, 90_099, 53_757, 75_394]);
    ask(&steep, 2_500, [39_511, 32_733, 31_826, 14_601, 28_789]);
    let flat = Stream::of(Zipf::new(20_000, 0.6, 7).take(150_000));
    ask(&flat, 50, [147_990, 147_909, 147_807, 130_758, 141_030]);
    ask(&flat, 500, [137_196, 135_693, 134_810, 100_893, 125_485]);
    ask(&flat, 2_500, [111_409, 107_657, 106_043, 64_738, 98_129]);
}

/// The optimum by trying every victim.
fn best(stream: &[u64], held: &mut Vec<u64>, frames: usize) -> u64 {
    let Some((&page, rest)) = stream.split_first() else { return 0 };
    if held.contains(&page) {
        return best(rest, held, frames);
    }
    if held.len() < frames {
        held.push(page);
        let misses = 1 + best(rest, &mut held.clone(), frames);
        held.pop();
        return misses;
    }
    (0..frames)
        .map(|victim| {
            let mut held = held.clone();
            held[victim] = page;
            1 + best(rest, &mut held, frames)
        })
        .min()
        .expect("there are frames")
}

proptest! {
    #[test]
    fn belady_is_the_optimum(stream in proptest::collection::vec(0u64..6, 0..14), frames in 1usize..4) {
        let optimum = best(&stream, &mut Vec::new(), frames);
        prop_assert_eq!(belady(&Stream::of(stream), frames), optimum);
    }

    /// Theory: no policy misses less than the optimum, or less than once for each page; with memory for all, exactly that.
    #[test]
    fn limits_hold(stream in proptest::collection::vec(0u64..40, 1..600), frames in 1usize..45) {
        let stream = Stream::of(stream);
        let distinct = u64::from(stream.distinct());
        let optimum = belady(&stream, frames);
        prop_assert!(optimum >= distinct);
        let mut lru_before = u64::MAX;
        for policy in POLICIES {
            let misses_here = misses(policy, &stream, frames).expect("a name of the list");
            prop_assert!(misses_here >= optimum, "{} is better than the optimum", policy);
            prop_assert_eq!(misses(policy, &stream, 40), Some(distinct));
        }
        for frames in 1..45 {
            let lru = misses("lru", &stream, frames).expect("it is a policy");
            prop_assert!(lru <= lru_before, "LRU misses more with {} frames", frames);
            lru_before = lru;
        }
    }

    /// What is folded into an entry makes no difference: the same stream reference by reference.
    #[test]
    fn repeats_change_no_count(
        stream in proptest::collection::vec((0u64..30, 1usize..7), 1..300),
        frames in 1usize..25,
    ) {
        let unfolded: Vec<u64> = stream.iter().flat_map(|&(page, times)| std::iter::repeat_n(page, times)).collect();
        let folded = Stream::of(unfolded.iter().copied());
        prop_assert_eq!(folded.references(), unfolded.len() as u64);
        fn one_by_one<O: Order>(stream: &[u64], frames: usize) -> u64 {
            let (mut order, mut misses) = (O::default(), 0);
            for &page in stream {
                let page = page as u32;
                if order.holds(page) {
                    order.touched(page);
                    continue;
                }
                misses += 1;
                if order.len() >= frames {
                    order.victim();
                }
                order.inserted(page);
            }
            misses
        }
        prop_assert_eq!(replay::<Lru>(&folded, frames), one_by_one::<Lru>(&unfolded, frames));
        prop_assert_eq!(replay::<Fifo>(&folded, frames), one_by_one::<Fifo>(&unfolded, frames));
        prop_assert_eq!(replay::<Clock>(&folded, frames), one_by_one::<Clock>(&unfolded, frames));
        prop_assert_eq!(replay::<Sieve>(&folded, frames), one_by_one::<Sieve>(&unfolded, frames));
        prop_assert_eq!(replay::<S3Fifo>(&folded, frames), one_by_one::<S3Fifo>(&unfolded, frames));
        prop_assert_eq!(replay::<Arc>(&folded, frames), one_by_one::<Arc>(&unfolded, frames));
    }
}
