//! The hand: takes pages away on order, and makes shared ones the process's own.

use super::dice::Dice;
use super::kernel::Process;
use loam_core::borrower::{BatchId, PageFate};
use loam_core::ids::ContentHash;
use loam_core::units::Instant;
use std::collections::VecDeque;

/// Pages that are taken while events cannot be read.
const GATE_PAGES: u64 = 64;

/// What a page's contents hash to.
pub(crate) fn hash_of(value: u64) -> ContentHash {
    // Any function without collisions will do; the factor spreads it over all bits.
    ContentHash(u128::from(value).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Posted,
    Running,
    Done,
}

/// A command in the hand's ring.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    Evict { batch: BatchId, pages: Vec<u64>, results: Vec<(PageFate, u64)>, epoch: u32, stage: Stage },
    Populate { base: u64, pages: u32, done: u32 },
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Hand {
    pub orders: VecDeque<Order>,
    /// Grows with each read change of mappings: what was posted before is void.
    pub epoch: u32,
    pub scheduled: bool,
    /// It waits for a page itself.
    pub waits_for: Option<u64>,
    pub stalled_until: Instant,
}

/// What a step of the hand came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Idle,
    /// There is more to do.
    More,
    /// A batch is done: the agent's bell rings.
    Bell,
    /// The kernel refuses while an event is unread.
    Refused,
    /// It has touched a page that is not there, or written to one that is protected.
    Faulted {
        base: u64,
        writes: bool,
    },
}

impl Hand {
    pub(crate) fn evicts(&self) -> bool {
        self.orders.iter().any(|o| matches!(o, Order::Evict { .. }))
    }

    /// The contents that a command has taken from `base`, if the agent was not told of them.
    pub(crate) fn taken(&self, base: u64) -> Option<u64> {
        // The newest command that names it: an older one may still be taken in for its other pages.
        let newest = self.orders.iter().rev().find_map(|order| match order {
            Order::Evict { pages, results, .. } => {
                let at = pages.iter().position(|&p| p == base)?;
                Some(results.get(at).copied())
            }
            Order::Populate { .. } => None,
        });
        match newest.flatten() {
            Some((PageFate::Moved(_), value)) => Some(value),
            _ => None,
        }
    }
}

/// Goes on with the first command that is not done.
pub(crate) fn step(process: &mut Process, now: Instant, dice: &mut Dice) -> Step {
    let Some(mut hand) = process.hand.take() else { return Step::Idle };
    let step = work(process, &mut hand, now, dice);
    process.hand = Some(hand);
    step
}

fn work(process: &mut Process, hand: &mut Hand, now: Instant, dice: &mut Dice) -> Step {
    let open = |o: &Order| !matches!(o, Order::Evict { stage: Stage::Done, .. });
    let Some(at) = hand.orders.iter().position(open) else { return Step::Idle };
    let epoch_now = hand.epoch;
    match &mut hand.orders[at] {
        Order::Evict { pages, results, epoch, stage, .. } => {
            *stage = Stage::Running;
            if *epoch != epoch_now {
                results.resize(pages.len(), (PageFate::Cancelled, 0));
            } else if !process.raised.is_empty() {
                return Step::Refused;
            }
            let end = pages.len().min(results.len() + dice.between(1, GATE_PAGES) as usize);
            for &base in &pages[results.len()..end] {
                results.push(take(process, base, now, dice));
            }
            if results.len() < pages.len() {
                return Step::More;
            }
            *stage = Stage::Done;
            Step::Bell
        }
        Order::Populate { base, pages, done } => {
            while *done < *pages {
                let at = *base + u64::from(*done);
                let Some(page) = process.page(at).filter(|p| p.mapped && p.denied_until <= now) else {
                    *done = *pages; // the advice ends with an error here
                    break;
                };
                match page.present {
                    Some(_) if !page.protected => page.exclusive = true,
                    None if !page.registered => page.install(0),
                    present => {
                        hand.waits_for = Some(at);
                        return Step::Faulted { base: at, writes: present.is_some() };
                    }
                }
                *done += 1;
            }
            hand.orders.remove(at);
            Step::More
        }
    }
}

/// `UFFDIO_MOVE` of one page.
fn take(process: &mut Process, base: u64, now: Instant, dice: &mut Dice) -> (PageFate, u64) {
    let Some(page) = process.page(base).filter(|p| p.mapped) else { return (PageFate::Hole, 0) };
    let Some(value) = page.present else { return (PageFate::Hole, 0) };
    if page.denied_until > now {
        return (PageFate::Denied, 0);
    }
    if page.pinned_until > now || !page.exclusive || dice.once_in(200) {
        return (PageFate::Busy, 0);
    }
    (page.present, page.protected) = (None, false);
    (PageFate::Moved((value != 0).then(|| hash_of(value))), value)
}
