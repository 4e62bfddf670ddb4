//! Every policy against a simple model of itself, and what holds for all of them.

use super::*;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use proptest::prelude::*;

fn page(first: u64) -> PageRef {
    PageRef { space: SpaceKey(1), first }
}

/// Misses, and victims in order, of a stream on so many frames.
fn run<O: Order>(order: &mut O, frames: usize, stream: &[u32]) -> (usize, Vec<u32>) {
    let (mut misses, mut victims) = (0, Vec::new());
    for &page in stream {
        if order.holds(page) {
            order.touched(page);
            continue;
        }
        misses += 1;
        if order.len() >= frames {
            victims.extend(order.victim());
        }
        order.inserted(page);
    }
    (misses, victims)
}

/// A policy as its paper tells it: all pages in a vector, oldest first, each with how often it was touched.
type Model = fn(&mut Told, frames: usize, page: u32) -> Option<u32>;

#[derive(Default)]
struct Told {
    pages: Vec<(u32, bool)>,
    hand: usize,
}

fn told(model: Model, frames: usize, stream: &[u32]) -> (usize, Vec<u32>) {
    let (mut told, mut misses, mut victims) = (Told::default(), 0, Vec::new());
    for &page in stream {
        let here = told.pages.iter().any(|&(p, _)| p == page);
        misses += usize::from(!here);
        victims.extend(model(&mut told, frames, page));
        assert!(told.pages.len() <= frames);
    }
    (misses, victims)
}

fn lru_told(told: &mut Told, frames: usize, page: u32) -> Option<u32> {
    let at = told.pages.iter().position(|&(p, _)| p == page);
    let victim = match at {
        Some(at) => {
            told.pages.remove(at);
            None
        }
        None => (told.pages.len() == frames).then(|| told.pages.remove(0).0),
    };
    told.pages.push((page, false));
    victim
}

fn fifo_told(told: &mut Told, frames: usize, page: u32) -> Option<u32> {
    if told.pages.iter().any(|&(p, _)| p == page) {
        return None;
    }
    let victim = (told.pages.len() == frames).then(|| told.pages.remove(0).0);
    told.pages.push((page, false));
    victim
}

/// Frames in a ring, a hand, a bit each: a page takes the frame of the one that left.
fn clock_told(told: &mut Told, frames: usize, page: u32) -> Option<u32> {
    if let Some(held) = told.pages.iter_mut().find(|(p, _)| *p == page) {
        held.1 = true;
        return None;
    }
    if told.pages.len() < frames {
        told.pages.push((page, false));
        return None;
    }
    while core::mem::take(&mut told.pages[told.hand].1) {
        told.hand = (told.hand + 1) % frames;
    }
    let victim = core::mem::replace(&mut told.pages[told.hand], (page, false)).0;
    told.hand = (told.hand + 1) % frames;
    Some(victim)
}

fn sieve_told(told: &mut Told, frames: usize, page: u32) -> Option<u32> {
    if let Some(held) = told.pages.iter_mut().find(|(p, _)| *p == page) {
        held.1 = true;
        return None;
    }
    let mut victim = None;
    if told.pages.len() == frames {
        // The hand is the number of pages that it has passed, from the oldest on.
        told.hand %= frames;
        while core::mem::take(&mut told.pages[told.hand].1) {
            told.hand = (told.hand + 1) % frames;
        }
        victim = Some(told.pages.remove(told.hand).0);
        // The hand now stands at the next newer page; there may be none, and then it begins again at the oldest, even if a page comes.
        if told.hand == told.pages.len() {
            told.hand = 0;
        }
    }
    told.pages.push((page, false));
    victim
}

fn streams() -> impl Strategy<Value = (usize, Vec<u32>)> {
    let pages = prop_oneof![0u32..12, 0u32..60, 4u32..8];
    (1usize..30, proptest::collection::vec(pages, 0..1500))
}

proptest! {
    #[test]
    fn lru_is_what_it_is_told_to_be((frames, stream) in streams()) {
        prop_assert_eq!(run(&mut Lru::default(), frames, &stream), told(lru_told, frames, &stream));
    }

    #[test]
    fn fifo_is_what_it_is_told_to_be((frames, stream) in streams()) {
        prop_assert_eq!(run(&mut Fifo::default(), frames, &stream), told(fifo_told, frames, &stream));
    }

    #[test]
    fn clock_is_what_it_is_told_to_be((frames, stream) in streams()) {
        prop_assert_eq!(run(&mut Clock::default(), frames, &stream), told(clock_told, frames, &stream));
    }

    #[test]
    fn sieve_is_what_it_is_told_to_be((frames, stream) in streams()) {
        prop_assert_eq!(run(&mut Sieve::default(), frames, &stream), told(sieve_told, frames, &stream));
    }

    /// Pages come out as often as they went in; one that was put back is next; one inserted while it is there is not there twice.
    #[test]
    fn pages_come_out_as_they_went_in(
        name in proptest::sample::select(&NAMES[..]),
        ops in proptest::collection::vec((0u64..80, 0u8..10), 1..800),
    ) {
        let mut policy = by_name(name).expect("a name of the list");
        let mut here: BTreeSet<u64> = BTreeSet::new();
        for (number, op) in ops {
            match op {
                0..=4 => {
                    // The live agent's own keeps no table of what it holds: there the agent sees to it.
                    if here.insert(number) || name != "second-chance" {
                        policy.inserted(page(number));
                    }
                }
                5 | 6 => policy.touched(page(number)),
                _ => match policy.victim() {
                    None => prop_assert!(here.is_empty()),
                    Some(victim) => {
                        if op == 7 {
                            policy.put_back(victim);
                            prop_assert_eq!(policy.victim(), Some(victim));
                        }
                        if op == 8 {
                            policy.put_back(victim);
                        } else {
                            prop_assert!(here.remove(&victim.first), "{} was not here", victim.first);
                        }
                    }
                },
            }
        }
        let mut rest = BTreeSet::new();
        while let Some(victim) = policy.victim() {
            prop_assert!(rest.insert(victim.first));
        }
        prop_assert_eq!(rest, here);
    }

    #[test]
    fn numbers_are_those_of_a_map(ops in proptest::collection::vec((0u64..200, any::<bool>()), 0..2000)) {
        let (mut numbers, mut map) = (Numbering::default(), BTreeMap::new());
        for (key, add) in ops {
            let key = key << 8;
            if add {
                let number = numbers.number(key);
                prop_assert_eq!(*map.entry(key).or_insert(number), number);
                prop_assert_eq!(numbers.key(number), key);
            } else {
                numbers.remove(key);
                map.remove(&key);
            }
            prop_assert_eq!(numbers.get(key), map.get(&key).copied());
            prop_assert_eq!(numbers.len(), map.len());
        }
        for (&key, &number) in &map {
            prop_assert_eq!(numbers.get(key), Some(number));
        }
        let different: BTreeSet<u32> = map.values().copied().collect();
        prop_assert_eq!(different.len(), map.len());
    }

    /// What ARC and S3-FIFO remember stays within the papers' bounds, and a scan many times as long does not make the tables grow.
    #[test]
    fn what_is_remembered_is_bounded((frames, stream) in streams()) {
        let frames = frames.max(2);
        let (mut arc, mut s3) = (Arc::default(), S3Fifo::default());
        for at in 0..stream.len() {
            run(&mut arc, frames, &stream[at..=at]);
            run(&mut s3, frames, &stream[at..=at]);
            prop_assert!(arc.len() <= frames && s3.len() <= frames);
            let known = |order: &dyn Fn(u32) -> bool| (0..60).filter(|&page| order(page)).count();
            prop_assert!(known(&|page| arc.knows(page)) <= 2 * frames);
            prop_assert!(known(&|page| s3.knows(page)) <= 2 * frames);
        }
    }
}

#[test]
fn a_scan_leaves_no_numbers_behind() {
    let mut policy = Numbered::<S3Fifo>::default();
    for n in 0..100_000 {
        if policy.order().len() == 100 {
            policy.victim();
        }
        policy.inserted(page(n));
    }
    assert!(policy.numbers() < 4 * 1024, "{} numbers for 100 pages", policy.numbers());
}

/// Algorithm 1 by hand. The queue is A to G, G the oldest; A, B and G were visited. H comes: the hand passes G and takes F. A and D are
/// used; I takes E. B is used; J finds D visited and takes C.
#[test]
fn sieve_sifts() {
    let letters = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    let mut sieve = Sieve::default();
    run(&mut sieve, 7, &letters("GFEDCBAABG"));
    let (misses, victims) = run(&mut sieve, 7, &letters("HADIBJ"));
    assert_eq!((misses, victims), (3, letters("FEC")));
}

/// Ten frames, a small queue of one.
#[test]
fn s3_fifo_keeps_what_is_used_twice_and_takes_ghosts_back() {
    let mut s3 = S3Fifo::default();
    let (_, victims) = run(&mut s3, 10, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0, 1, 10, 11]);
    // Page 0 was touched three times and goes on; 1 once, which does not save it.
    assert_eq!(victims, [1, 2]);
    let (misses, victims) = run(&mut s3, 10, &[0, 1, 12]);
    // 0 is still there; 1 comes back as a ghost, straight into the main queue.
    assert_eq!((misses, victims), (2, vec![3, 4]));
    let scan: Vec<u32> = (20..60).collect();
    run(&mut s3, 10, &scan);
    assert!(s3.holds(0) && s3.holds(1) && !s3.holds(2));
}

/// Four frames, figure 4 of the paper by hand.
#[test]
fn arc_learns_from_what_left_too_early() {
    let mut arc = Arc::default();
    // 1 and 2 are used twice: T2 = [2, 1], T1 = [4, 3]. p = 0, so T1 pays: 3, then 4.
    let (_, victims) = run(&mut arc, 4, &[1, 2, 1, 2, 3, 4, 5, 6]);
    assert_eq!(victims, [3, 4]);
    // 3 was remembered: it comes to T2, and p is 1. The victim was chosen before that: T1's oldest, 5.
    let (_, victims) = run(&mut arc, 4, &[3]);
    assert_eq!(victims, [5]);
    // T1 = [6] is at its target, so T2 pays: 1.
    let (_, victims) = run(&mut arc, 4, &[7]);
    assert_eq!(victims, [1]);
}

#[test]
fn arc_and_s3_fifo_are_not_washed_out_by_a_scan() {
    let stream: Vec<u32> = (0..20_000).flat_map(|n| [n * 7 % 50, 1_000 + n]).collect();
    for misses in [
        run(&mut Arc::default(), 100, &stream).0,
        run(&mut S3Fifo::default(), 100, &stream).0,
        run(&mut Sieve::default(), 100, &stream).0,
    ] {
        assert!(misses < 20_000 + 1_000, "{} misses on 50 pages in use", misses - 20_000);
    }
}

#[test]
fn the_agents_policy_runs_by_number_as_by_page() {
    let stream: Vec<u32> = (0..5_000u32).map(|n| n * n % 97).collect();
    let (misses, victims) = run(&mut Unnumbered::<SecondChanceFifo>::default(), 40, &stream);
    let (mut policy, mut here, mut left) =
        (SecondChanceFifo::default(), BTreeSet::new(), VecDeque::from(victims));
    for &number in &stream {
        if here.insert(number) {
            if here.len() > 40 {
                let victim = policy.victim().expect("pages are here").first as u32;
                assert_eq!(Some(victim), left.pop_front());
                here.remove(&victim);
            }
            policy.inserted(page(u64::from(number)));
        }
    }
    assert!(left.is_empty() && misses > 40);
}

#[test]
fn names_are_complete() {
    assert!(NAMES.iter().all(|name| by_name(name).is_some()) && by_name("belady").is_none());
}
