//! The region's bookkeeping against a model that has one entry a page.

#[path = "../src/region/blocks.rs"]
mod blocks;
#[path = "../src/region/nodes.rs"]
mod nodes;

use blocks::{Blocks, Contents, GivingBack, Taken};
use nodes::Node;
use proptest::collection::vec;
use proptest::prelude::*;

const PAGES: u32 = 200;
const WINDOW: u32 = 4;
const OLD_AFTER: u64 = 150;

/// What the model knows of one page.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Page {
    /// In use, of the allocation that begins at this page.
    Used(u32),
    Clean,
    Dirty,
    /// Between being asked for and being given back.
    GivingBack,
}

struct Model {
    pages: Vec<Page>,
}

impl Model {
    /// Runs of free pages of one kind, as (first, length).
    fn runs(&self, kind: Page) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (index, page) in self.pages.iter().enumerate() {
            match runs.last_mut() {
                _ if *page != kind => {}
                Some((start, length)) if *start + *length == index as u32 => *length += 1,
                _ => runs.push((index as u32, 1)),
            }
        }
        runs
    }

    /// Where best fit puts an allocation.
    fn place(&self, pages: u32, align: u32, origin: u64, zeros: bool) -> Option<(u32, Page)> {
        let kinds = if zeros { [Page::Clean, Page::Dirty] } else { [Page::Dirty, Page::Clean] };
        let best = |kind| {
            let fits = self.runs(kind).into_iter().filter(|(_, length)| *length >= pages + align - 1);
            fits.min_by_key(|(start, length)| (*length, *start)).map(|(start, _)| (start, kind))
        };
        let (start, kind) = kinds.into_iter().find_map(best)?;
        let first = (start..).find(|page| (origin + u64::from(*page)).is_multiple_of(u64::from(align)))?;
        Some((first, kind))
    }

    fn set(&mut self, start: u32, pages: u32, page: Page) {
        self.pages[start as usize..(start + pages) as usize].fill(page);
    }

    fn length(&self, start: u32) -> u32 {
        self.pages.iter().filter(|page| **page == Page::Used(start)).count() as u32
    }

    fn used(&self) -> Vec<u32> {
        (0..PAGES).filter(|&page| self.pages[page as usize] == Page::Used(page)).collect()
    }

    fn count(&self, what: impl Fn(&Page) -> bool) -> u32 {
        self.pages.iter().filter(|page| what(page)).count() as u32
    }
}

#[derive(Clone, Debug)]
enum Op {
    Allocate {
        pages: u32,
        align_log2: u32,
        zeros: bool,
    },
    Free(usize),
    /// What nobody has, or only in the middle.
    FreeWrong(u32),
    Resize(usize, u32),
    GiveBack {
        done: bool,
    },
    BeginGivingBack,
    EndGivingBack(usize),
    Fork,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (WINDOW..40, prop_oneof![4 => Just(0_u32), 1 => 1..6_u32], any::<bool>())
            .prop_map(|(pages, align_log2, zeros)| Op::Allocate { pages, align_log2, zeros }),
        4 => any::<usize>().prop_map(Op::Free),
        1 => (0..PAGES + 50).prop_map(Op::FreeWrong),
        3 => (any::<usize>(), WINDOW..60).prop_map(|(which, pages)| Op::Resize(which, pages)),
        2 => proptest::bool::weighted(0.8).prop_map(|done| Op::GiveBack { done }),
        1 => Just(Op::BeginGivingBack),
        1 => any::<usize>().prop_map(Op::EndGivingBack),
        1 => Just(Op::Fork),
    ]
}

fn step(op: &Op, origin: u64, blocks: &mut Blocks<'_>, model: &mut Model, pending: &mut Vec<GivingBack>) {
    match *op {
        Op::Allocate { pages, align_log2, zeros } => {
            let align = 1 << align_log2;
            let expected = model.place(pages, align, origin, zeros);
            let taken = blocks.allocate(pages, align, origin, zeros);
            assert_eq!(taken.map(|t| t.start), expected.map(|(start, _)| start));
            if let (Some(Taken { start, contents }), Some((_, kind))) = (taken, expected) {
                assert_eq!(contents == Contents::Zeros, kind == Page::Clean);
                model.set(start, pages, Page::Used(start));
            } else {
                let free = model.count(|page| !matches!(page, Page::Used(_)));
                let dirty = model.count(|page| matches!(page, Page::Dirty | Page::GivingBack));
                assert_eq!(blocks.could_serve(pages), dirty > 0 && free >= pages);
            }
        }
        Op::Free(which) => {
            let used = model.used();
            if let Some(&start) = used.get(which % used.len().max(1)) {
                let length = model.length(start);
                assert_eq!(blocks.pages_at(start), Some(length));
                assert!(blocks.free(start), "it is in use");
                assert!(!blocks.free(start), "freed twice");
                model.set(start, length, Page::Dirty);
            }
        }
        Op::FreeWrong(page) => {
            if model.pages.get(page as usize) != Some(&Page::Used(page)) {
                assert!(blocks.pages_at(page).is_none() && !blocks.free(page));
            }
        }
        Op::Resize(which, pages) => {
            let used = model.used();
            let Some(&start) = used.get(which % used.len().max(1)) else { return };
            let old = model.length(start);
            let behind = model.pages.get((start + old) as usize..(start + pages.max(old)) as usize);
            let free = behind.is_some_and(|p| p.iter().all(|p| matches!(p, Page::Clean | Page::Dirty)));
            assert_eq!(blocks.resize(start, pages), free);
            if free {
                model.set(start, old, Page::Dirty);
                model.set(start, pages, Page::Used(start));
            }
        }
        Op::GiveBack { done } => {
            if let Some(block) = blocks.give_back_oldest() {
                let run = model.runs(Page::Dirty).into_iter().find(|(start, _)| *start == block.start);
                assert_eq!(run, Some((block.start, block.pages)), "a whole run of dirty pages");
                blocks.given_back(block, done);
                model.set(block.start, block.pages, if done { Page::Clean } else { Page::Dirty });
            }
        }
        Op::BeginGivingBack => {
            if let Some(block) = blocks.give_back_oldest() {
                model.set(block.start, block.pages, Page::GivingBack);
                pending.push(block);
            }
        }
        Op::EndGivingBack(which) => {
            if !pending.is_empty() {
                let block = pending.swap_remove(which % pending.len());
                model.set(block.start, block.pages, Page::Clean);
                blocks.given_back(block, true);
            }
        }
        Op::Fork => {
            blocks.forked();
            pending.clear();
            for page in &mut model.pages {
                *page = if *page == Page::GivingBack { Page::Dirty } else { *page };
            }
        }
    }
}

fn books() -> (Vec<Node>, Vec<u32>) {
    let windows = PAGES.div_ceil(WINDOW);
    (vec![Node::default(); Blocks::nodes_for(windows)], vec![0; windows as usize])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_page_is_where_the_model_has_it(ops in vec(op(), 1..300), origin in 0..64_u64) {
        let (mut nodes, mut begins) = books();
        let mut blocks = Blocks::new(&mut nodes, &mut begins, PAGES, WINDOW, OLD_AFTER);
        let mut model = Model { pages: vec![Page::Clean; PAGES as usize] };
        let mut pending = Vec::new();
        for op in &ops {
            step(op, origin, &mut blocks, &mut model, &mut pending);
            blocks.audit();
            prop_assert_eq!(blocks.dirty_pages(), model.count(|page| *page == Page::Dirty));
            prop_assert_eq!(blocks.used_pages(), model.count(|page| matches!(page, Page::Used(_))));
        }
        // Nothing is lost for good: with everything freed and given back one allocation can have all of it.
        pending.into_iter().for_each(|block| blocks.given_back(block, true));
        model.used().into_iter().for_each(|start| assert!(blocks.free(start)));
        while let Some(block) = blocks.give_back_oldest() {
            blocks.given_back(block, true);
        }
        prop_assert_eq!(blocks.allocate(PAGES, 1, 0, true), Some(Taken { start: 0, contents: Contents::Zeros }));
    }

    /// With hardly any records requests are refused, and nothing breaks.
    #[test]
    fn a_few_records_are_enough_to_go_on(ops in vec(op(), 1..200), records in 2..12_usize) {
        let (_, mut begins) = books();
        let mut nodes = vec![Node::default(); records];
        let mut blocks = Blocks::new(&mut nodes, &mut begins, PAGES, WINDOW, OLD_AFTER);
        let mut used = Vec::new();
        for op in &ops {
            match *op {
                Op::Allocate { pages, align_log2, zeros } => {
                    used.extend(blocks.allocate(pages, 1 << align_log2, 0, zeros).map(|taken| taken.start));
                }
                Op::Free(which) if !used.is_empty() => {
                    assert!(blocks.free(used.swap_remove(which % used.len())));
                }
                Op::Resize(which, pages) if !used.is_empty() => {
                    let start = used[which % used.len()];
                    let old = blocks.pages_at(start).expect("in use");
                    let resized = blocks.resize(start, pages);
                    assert!(resized || pages > old, "what becomes smaller can stay");
                    let now = blocks.pages_at(start).expect("in use");
                    assert!(if resized { now >= pages } else { now == old });
                }
                Op::GiveBack { done } => {
                    if let Some(block) = blocks.give_back_oldest() {
                        blocks.given_back(block, done);
                    }
                }
                _ => {}
            }
            blocks.audit();
        }
    }
}

fn with_blocks(test: impl FnOnce(&mut Blocks<'_>)) {
    let (mut nodes, mut begins) = books();
    test(&mut Blocks::new(&mut nodes, &mut begins, PAGES, WINDOW, OLD_AFTER));
}

#[test]
fn what_was_freed_just_now_is_used_again_and_what_was_freed_long_ago_is_stale() {
    with_blocks(|blocks| {
        let first = blocks.allocate(10, 1, 0, false).expect("room");
        assert_eq!(first, Taken { start: 0, contents: Contents::Zeros });
        assert!(blocks.free(0));
        let again = blocks.allocate(10, 1, 0, false).expect("room");
        assert_eq!(again, Taken { start: 0, contents: Contents::Recent });
        assert!(blocks.free(0));
        // Zeros come from what is clean, and many others were handed out meanwhile.
        for _ in 0..4 {
            let other = blocks.allocate(40, 1, 0, true).expect("room");
            assert_eq!(other.contents, Contents::Zeros);
        }
        let old = blocks.allocate(10, 1, 0, false).expect("room");
        assert_eq!(old, Taken { start: 0, contents: Contents::Stale });
    });
}

#[test]
fn what_was_freed_first_is_given_back_first() {
    with_blocks(|blocks| {
        let starts: Vec<u32> =
            (0..6).map(|_| blocks.allocate(20, 1, 0, false).expect("room").start).collect();
        for at in [4, 0, 2] {
            assert!(blocks.free(starts[at]));
        }
        for at in [4, 0, 2] {
            let block = blocks.give_back_oldest().expect("dirty");
            assert_eq!(block.start, starts[at]);
            blocks.given_back(block, true);
        }
        assert!(blocks.give_back_oldest().is_none());
    });
}

#[test]
fn what_cannot_be_is_refused() {
    with_blocks(|blocks| {
        assert!(blocks.allocate(PAGES + 1, 1, 0, false).is_none());
        assert!(blocks.allocate(u32::MAX, 1 << 31, 0, false).is_none());
        assert!(blocks.allocate(WINDOW, 1 << 31, 0, false).is_none());
        assert!(!blocks.free(0) && !blocks.free(u32::MAX) && blocks.pages_at(PAGES).is_none());
        assert!(blocks.allocate(PAGES, 1, 0, false).is_some());
        assert!(blocks.allocate(WINDOW, 1, 0, false).is_none() && !blocks.could_serve(WINDOW));
    });
}
