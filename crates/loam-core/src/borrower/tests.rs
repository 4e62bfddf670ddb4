//! The borrower against a simple model: a program whose memory must always read what it last wrote, whatever
//! order answers come in and whichever lender dies.

mod advice;
mod ahead;
mod alone;
mod budgets;
mod cases;
mod holes;
mod home;
mod homecoming;
mod leftovers;
mod lenders;
mod marks;
mod ops;
mod pinned;
mod plans;
mod queue;
mod recalls;
mod replicas;
mod rescues;
mod sharing;
mod sizes;
mod terms;
mod waiters;
mod world;
mod writes;

use super::*;
use crate::ids::{ContentHash, PutClass};
use alloc::boxed::Box;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::vec;

use ops::{Op, op, ops};
use world::{FAR, PAGES, Pending, World};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn memory_reads_what_was_written_under_disk(
        ops in ops(true), page in 0u32..8, subpage in 0u32..=8, lenders in 0usize..3,
        plan in proptest::sample::select(&FETCH_PLANS[..]), rescue: bool,
        place in proptest::sample::select(&PLACEMENTS[..]), guard: bool, share in 0u64..900, pieces: bool, wild: bool,
    ) {
        let mut w = World::new(1 << page, true, 600, lenders);
        w.b.in_pieces = pieces;
        if wild {
            w.b.size_pages(Box::new(sizes::Wild::new(share)), PageSize::SMALLEST);
        }
        w.b.place_pages(lender_choice(place, share).unwrap());
        w.b.guard_from_scans(guard);
        w.b.limit_lending(BasePages(share));
        w.b.plan_fetches(BasePages(1 << (page * subpage / 8)), fetch_planner(plan).unwrap());
        w.b.config.rescue = rescue;
        for op in &ops { w.step(op); }
        w.read_all();
    }

    #[test]
    fn memory_reads_what_was_written_under_none(
        ops in ops(false), page in 0u32..8, subpage in 0u32..=8,
        plan in proptest::sample::select(&FETCH_PLANS[..]), rescue: bool,
        place in proptest::sample::select(&PLACEMENTS[..4]), writes_fail: bool, pieces: bool, wild: bool,
        lender_pages in proptest::option::of(300usize..1500),
    ) {
        let mut w = World::new(1 << page, false, 600, 2);
        w.limit_lenders(lender_pages);
        w.b.in_pieces = pieces;
        if wild {
            w.b.size_pages(Box::new(sizes::Wild::new(u64::from(page))), PageSize::SMALLEST);
        }
        w.writes_fail = writes_fail;
        w.b.place_pages(lender_choice(place, 3).unwrap());
        w.b.plan_fetches(BasePages(1 << (page * subpage / 8)), fetch_planner(plan).unwrap());
        w.b.config.rescue = rescue;
        for op in &ops { w.step(op); }
        w.read_all();
        // Whatever lenders wanted, both sides agree in the end; and where all is wanted back nobody is needed any more.
        w.finish();
        w.agree();
        w.full.extend(0..w.lenders.len());
        for n in (0..w.lenders.len()).chain(0..w.lenders.len()) {
            w.recall_all(n);
            w.read_all();
            w.finish();
        }
        w.agree();
        if !writes_fail {
            for n in 0..w.lenders.len() {
                prop_assert_eq!(w.stored_at(n), 0, "lender {}", n);
                w.step(&Op::LoseLender);
            }
        }
        w.read_all();
    }

    #[test]
    fn the_same_inputs_give_the_same_run(ops in ops(true), place in proptest::sample::select(&PLACEMENTS[..])) {
        let run = || {
            let mut w = World::new(16, true, 600, 2);
            w.b.place_pages(lender_choice(place, 3).unwrap());
            for op in &ops { w.step(op); }
            (std::format!("{:?}", w.pending), w.b.stats(), w.now)
        };
        prop_assert_eq!(run(), run());
    }
}
