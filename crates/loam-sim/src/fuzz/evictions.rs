//! Between the policy's batches and the hands.

use super::hand::{Order, Stage, Step, step};
use super::kernel::Fault;
use super::seat::Seat;
use super::sim::{SeatEvent, Sim};
use loam_core::borrower::{BatchId, PageFate, SpaceKey};
use loam_core::units::Duration;

/// Pages of a finished batch that are taken in between two looks for faults.
const PIECE_PAGES: usize = 32;

type Fates = Option<Vec<(PageFate, u64)>>;

impl Seat {
    pub(crate) fn order_eviction(&mut self, batch: BatchId, sim: &mut Sim) {
        let (space, pages) = self.borrower.batch_pages(batch);
        let pages = pages.to_vec();
        match self.processes.get_mut(&space.0).and_then(|p| p.hand.as_mut()) {
            Some(hand) => {
                let (epoch, stage) = (hand.epoch, Stage::Posted);
                hand.orders.push_back(Order::Evict { batch, pages, results: Vec::new(), epoch, stage });
                self.start_hand(space, sim);
            }
            None => self.cancel_batch(batch, sim),
        }
    }

    pub(crate) fn order_populate(&mut self, space: SpaceKey, base: u64, pages: u32, sim: &mut Sim) {
        if let Some(hand) = self.processes.get_mut(&space.0).and_then(|p| p.hand.as_mut()) {
            hand.orders.push_back(Order::Populate { base, pages, done: 0 });
            self.start_hand(space, sim);
        }
    }

    /// A batch that no hand will take, or go on with: every page that is left stays.
    pub(crate) fn cancel_batch(&mut self, batch: BatchId, sim: &mut Sim) {
        let count = self.borrower.batch_pages(batch).1.len();
        for index in self.borrower.batch_reported(batch)..count {
            self.borrower.handle_fate(batch, index, PageFate::Cancelled);
        }
        self.borrower.handle_batch_done(sim.now, batch);
    }

    /// The hand goes on.
    pub(crate) fn run_hand(&mut self, key: u32, sim: &mut Sim) {
        let Some(process) = self.processes.get_mut(&key) else { return };
        let Some(hand) = process.hand.as_mut().filter(|_| !process.ended) else { return };
        hand.scheduled = false;
        if hand.waits_for.is_some() {
            return;
        }
        let what = step(process, sim.now, &mut sim.hand_dice);
        let again = match what {
            Step::Idle => return,
            // Now and then it loses its core in the middle of a command: changes that were read wait for it meanwhile.
            Step::More => Duration::from_micros(sim.hand_dice.pick(&[1, 1, 1, 1_000])),
            Step::Refused => Duration::from_micros(20),
            Step::Bell => {
                let delay = sim.dice.delay(Duration::from_micros(4));
                self.after(delay, SeatEvent::Bell { process: key }, sim);
                Duration::from_micros(1)
            }
            Step::Faulted { base, writes } => {
                process.faults.push_back(Fault { base, writes, by_hand: true });
                self.ring_agent(SpaceKey(key), sim);
                return;
            }
        };
        let process = self.processes.get_mut(&key).expect("still there");
        process.hand.as_mut().expect("still there").scheduled = true;
        let delay = sim.hand_dice.delay(again);
        self.after(delay, SeatEvent::Hand { process: key }, sim);
    }

    /// Takes in a piece of what a hand has finished, then what waited for that.
    pub(crate) fn take_bell(&mut self, key: u32, sim: &mut Sim) {
        if !self.processes.contains_key(&key) {
            return;
        }
        let left = self.take_finished(key, PIECE_PAGES, sim);
        if left == 0 {
            let delay = sim.dice.delay(Duration::from_micros(4));
            self.after(delay, SeatEvent::Bell { process: key }, sim);
        }
        if self.processes.get(&key).is_some_and(|p| !p.read.is_empty()) {
            self.deal_with_events(key, sim); // they wait for nothing but the hand
        }
    }

    /// Takes in what one hand has finished, `most` pages of it at most. Answers how many more it might have been.
    fn take_finished(&mut self, key: u32, most: usize, sim: &mut Sim) -> usize {
        let mut left = most;
        while left > 0
            && let Some(at) = self.finished(key)
        {
            left = self.take_batch(key, at, left, sim);
        }
        if left < most {
            self.drain(sim);
        }
        left
    }

    fn finished(&self, key: u32) -> Option<usize> {
        let orders = &self.processes.get(&key)?.hand.as_ref()?.orders;
        orders.iter().position(|o| matches!(o, Order::Evict { stage: Stage::Done, .. }))
    }

    fn take_batch(&mut self, key: u32, at: usize, most: usize, sim: &mut Sim) -> usize {
        let hand = self.processes.get_mut(&key).and_then(|p| p.hand.as_mut()).expect("the caller looked");
        let Order::Evict { batch, results, .. } = &hand.orders[at] else { unreachable!("the caller looked") };
        let (batch, count) = (*batch, results.len());
        let first = self.borrower.batch_reported(batch);
        let end = count.min(first.saturating_add(most));
        let results = results.clone();
        self.take_fates(batch, &results, end, sim);
        if end == count {
            let hand = self.processes.get_mut(&key).and_then(|p| p.hand.as_mut()).expect("still there");
            hand.orders.remove(at);
            self.borrower.handle_batch_done(sim.now, batch);
        }
        most - (end - first)
    }

    fn take_fates(&mut self, batch: BatchId, results: &[(PageFate, u64)], end: usize, sim: &mut Sim) {
        let space = self.borrower.batch_pages(batch).0;
        let first = self.borrower.batch_reported(batch);
        for (index, &(fate, value)) in results.iter().enumerate().take(end).skip(first) {
            if let PageFate::Moved(_) = fate {
                // Judged in our copy, as the live agent does: the buffer is filled before the policy takes it.
                let buffer = self.borrower.batch_buffer(batch);
                self.fill(buffer, value);
            }
            let base = self.borrower.batch_pages(batch).1[index];
            sim.log(|| format!("borrower {}: {}:{base} (value {value}) {}", self.index, space.0, name(fate)));
            self.borrower.handle_fate(batch, index, fate);
            if let PageFate::Moved(_) = fate {
                self.remember_copy(space, base);
            }
        }
    }

    /// Takes every batch out of a hand's books, with what became of its pages as far as it came.
    pub(crate) fn take_batches(&mut self, key: u32) -> Vec<(BatchId, Fates)> {
        let hand = self.processes.get_mut(&key).and_then(|p| p.hand.as_mut());
        let orders = hand.map_or_else(Default::default, |hand| std::mem::take(&mut hand.orders));
        let evict = orders.into_iter().filter_map(|order| match order {
            Order::Evict { batch, results, stage, .. } => {
                Some((batch, (stage != Stage::Posted).then_some(results)))
            }
            Order::Populate { .. } => None,
        });
        evict.collect()
    }

    /// Takes in what the hand of a process that has ended had done, however far it was.
    pub(crate) fn take_last(&mut self, key: u32, sim: &mut Sim) {
        for (batch, results) in self.take_batches(key) {
            if let Some(results) = results {
                self.take_fates(batch, &results, results.len(), sim);
            }
            self.cancel_batch(batch, sim);
        }
        self.drain(sim);
    }

    /// True when no eviction of this process runs or waits, and none begins until it may go on.
    pub(crate) fn put_hand_to_rest(&mut self, key: u32, sim: &mut Sim) -> bool {
        self.borrower.handle_rest(sim.now, SpaceKey(key), true);
        self.drain(sim);
        let Some(hand) = self.processes.get_mut(&key).and_then(|p| p.hand.as_mut()) else { return true };
        if !hand.evicts() {
            return true;
        }
        let mut dropped = Vec::new();
        hand.orders.retain(|order| match order {
            Order::Evict { batch, stage: Stage::Posted, .. } => {
                dropped.push(*batch);
                false
            }
            _ => true,
        });
        for batch in dropped {
            self.cancel_batch(batch, sim);
        }
        self.take_finished(key, usize::MAX, sim);
        self.drain(sim);
        self.processes.get(&key).and_then(|p| p.hand.as_ref()).is_none_or(|hand| !hand.evicts())
    }
}

fn name(fate: PageFate) -> &'static str {
    match fate {
        PageFate::Moved(Some(_)) => "is taken",
        PageFate::Moved(None) => "is taken, all zeros",
        PageFate::Hole => "is not there",
        PageFate::Busy => "is busy",
        PageFate::Denied => "is denied",
        PageFate::Cancelled => "is left",
        PageFate::Unknown => "is in doubt",
    }
}
