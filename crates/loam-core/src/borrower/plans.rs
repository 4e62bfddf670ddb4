//! Carrying out fetch plans: from a fault on a page that is missing to what is asked for, what a thread waits for first, the rest of the page
//! behind it.
//!
//! Asking for a page of 256 base pages takes longer than a small page takes to come. So a live driver has plans carried out in pieces
//! ([`Borrower::plan_in_pieces`]): a fault's own message is asked for at once, and while it travels the rest is, a few base pages at a
//! time, with looks for answers in between (subpages-1996, section 2.1: the program goes on as soon as its subpage is there).

use super::copies::{CopyIndex, LenderIndex};
use super::fetch_plan::{PageFault, Step};
use super::table::{BaseRange, BaseState, SpaceKey};
use super::{Borrower, Effect, Incomplete};
use crate::ids::Urgency;
use crate::page_size::PageSize;
use crate::units::Instant;
use alloc::vec::Vec;

/// Plans that may be unfinished at a time; one more is carried out at once.
pub(super) const RESTS_MAX: usize = 64;

/// So many of the pages that a lender has been asked for, and that nobody waits for, come next: about as many as one message brings.
pub(super) const NEXT_PAGES: u64 = 16;

/// What is left of a plan.
#[derive(Debug)]
pub(super) struct Rest {
    key: SpaceKey,
    /// Where the fault was, how large the page is, and what is left out of it.
    base: u64,
    size: PageSize,
    hole: Option<u64>,
    steps: Vec<Step>,
    /// Steps that are done; of the next one, what is left.
    done: usize,
}

/// The base pages of a step in the page that begins at `start`, with subpages of so many.
fn bases_of(step: &Step, start: u64, subpage: u64) -> BaseRange {
    BaseRange::new(start + u64::from(step.subpage) * subpage, start + u64::from(step.end()) * subpage)
}

impl Borrower {
    /// Brings the page around `base` as the fetch plan says, if there are frames for it.
    pub(super) fn serve_missing(&mut self, key: SpaceKey, base: u64) {
        // It may have stood in a queue when it began to be watched.
        self.touch_watched(key, base);
        let fresh = self.entry(key, base).state == BaseState::Empty;
        let size = if fresh { self.fresh_size_at(key, base) } else { self.size_at(key, base) };
        let size = self.rescue_size_at(key, base, size);
        if self.is_urgent(key, base) {
            self.bring_waited(key, base, size);
            return;
        }
        if self.outruns_budget(key, base) {
            self.hold_fault(key, base);
            return;
        }
        let size = if self.comes_alone(key, base, size) { PageSize::SMALLEST } else { size };
        let range = self.page_range(key, base, size);
        let start = size.first(base);
        let subpage = self.subpage.min(size.base_pages());
        let mut steps = core::mem::take(&mut self.steps);
        steps.clear();
        let fault = PageFault {
            subpages: (size.base_pages() / subpage) as u32,
            subpage: ((base - start) / subpage) as u32,
            second_half: (base - start) % subpage * 2 >= subpage,
        };
        self.planner_at(key, base).plan(fault, &mut steps);
        let bases = |step: &Step| {
            let part = bases_of(step, start, subpage).intersect(range);
            part.start..part.end
        };
        // What is watched stays where it is; the fault's base page is not, by now.
        let missing = |s: &Self, b: u64| {
            matches!(s.entry(key, b).state, BaseState::Empty | BaseState::Away) && !s.rescues.has(key, b)
        };
        // Looking at each takes as long as a third of a small fault: not where all of the page has room, and all that is missing of it comes.
        let wanted = if self.in_pieces && self.frames + range.len() <= self.limit {
            let missing = self.spaces.get(&key).map_or(0, |space| space.table.missing_in(range));
            let missing = missing.saturating_sub(self.rescues.watched_in(key, range));
            missing.min(steps.iter().map(|step| u64::from(step.count)).sum::<u64>() * subpage)
        } else {
            steps.iter().flat_map(bases).filter(|&b| missing(self, b)).count() as u64
        };
        if self.frames + wanted <= self.limit {
            let hole = self.note_page(key, base, size, wanted);
            let many = steps.last().is_some_and(|step| step.message > 0);
            let waited = steps.iter().take_while(|step| step.message == 0).count();
            if self.in_pieces && many && self.entry(key, base).state == BaseState::Empty {
                self.bring_zeros(key, range, size);
            }
            self.urgency = Urgency::Waited;
            // Where a thread waits comes last: a message is there as a whole.
            let rest_of_first = steps[..waited].iter().flat_map(bases).filter(|&b| b != base);
            for b in rest_of_first.chain([base]) {
                if missing(self, b) && Some(b) != hole {
                    self.bring(key, b, size);
                }
            }
            self.urgency = Urgency::Behind;
            if !self.put_off(key, base, size, hole, &steps[waited..]) {
                for step in &steps[waited..] {
                    self.message = step.message;
                    for b in bases(step) {
                        if missing(self, b) && Some(b) != hole {
                            self.bring(key, b, size);
                        }
                    }
                }
                self.message = 0;
            }
            let hole = hole.filter(|&hole| range.contains(hole));
            if fault.subpages > 1 && (many || hole.is_some() || wanted < range.len()) {
                self.incomplete.insert((key, start), Incomplete { size, subpage: fault.subpage });
            }
        } else if self.frames < self.limit || !self.frames_will_come() {
            self.bring_waited(key, base, size);
        } else {
            self.enqueue_fault(key, base);
        }
        self.steps = steps;
    }

    /// A fault in a page of which only a part is here: tells the planner how far from the last one it is.
    pub(super) fn note_next(&mut self, key: SpaceKey, base: u64) {
        let Some((&at, &page)) = self.incomplete.range(..=(key, base)).next_back() else { return };
        let inside = at.0 == key && base - at.1 < page.size.base_pages();
        let subpage = (base.saturating_sub(at.1) / self.subpage.min(page.size.base_pages())) as u32;
        // A base page that was left out on purpose says nothing: where it is was drawn.
        if inside && page.subpage != subpage && !self.holes.has(key, base) && !self.rescues.has(key, base) {
            self.incomplete.remove(&at);
            let distance = subpage as i32 - page.subpage as i32;
            *self.next_distances.entry(distance).or_default() += 1;
            self.planner_at(key, base).wanted_next(distance);
        }
    }

    /// From now on a fault asks at once only for what its thread waits for. The driver has the rest asked for by
    /// [`Self::handle_plans`] while [`Self::has_plans`], after it has sent what it had.
    pub fn plan_in_pieces(&mut self) {
        self.in_pieces = true;
    }

    /// Plans are unfinished, or a program's advice can be followed further.
    pub fn has_plans(&self) -> bool {
        !self.rests.is_empty() || self.has_advice()
    }

    /// Goes on with unfinished plans, then with advice, by about so many base pages.
    pub fn handle_plans(&mut self, now: Instant, pages: u64) {
        self.waits_clock(now);
        let mut left = pages;
        while left > 0 {
            let Some(rest) = self.rests.front_mut() else { break };
            let (key, base, size, hole) = (rest.key, rest.base, rest.size, rest.hole);
            let subpage = self.subpage.min(size.base_pages());
            let Some(step) = rest.steps.get_mut(rest.done) else {
                self.forget_rest();
                continue;
            };
            let piece = step.take(left.div_ceil(subpage));
            if step.count == 0 {
                rest.done += 1;
            }
            if !self.bring_step(key, base, size, hole, piece) {
                self.forget_rest();
            }
            left = left.saturating_sub(u64::from(piece.count) * subpage);
        }
        while left > 0 && self.has_advice() {
            left = left.saturating_sub(self.follow_advice());
        }
        self.advance(now);
    }

    /// Brings what is missing of one step behind a fault. False: nothing more of this plan should be asked for.
    fn bring_step(
        &mut self,
        key: SpaceKey,
        base: u64,
        size: PageSize,
        hole: Option<u64>,
        step: Step,
    ) -> bool {
        // The fault's mapping may have changed since.
        if !self.is_adopted(key, base) {
            return false;
        }
        let subpage = self.subpage.min(size.base_pages());
        let part = bases_of(&step, size.first(base), subpage).intersect(self.page_range(key, base, size));
        self.message = step.message;
        let mut goes_on = true;
        for b in part.start..part.end {
            let is_missing = matches!(self.entry(key, b).state, BaseState::Empty | BaseState::Away);
            if Some(b) == hole || !is_missing || self.rescues.has(key, b) {
                continue;
            }
            // Nobody waits for it: it never makes anybody wait for a frame.
            goes_on = self.frames < self.limit;
            if !goes_on {
                break;
            }
            self.bring(key, b, size);
        }
        self.message = 0;
        goes_on
    }

    /// Leaves the steps behind a fault's own message for later. False: they are to be carried out now.
    pub(super) fn put_off(
        &mut self,
        key: SpaceKey,
        base: u64,
        size: PageSize,
        hole: Option<u64>,
        steps: &[Step],
    ) -> bool {
        if steps.is_empty() {
            return true;
        }
        if !self.in_pieces || self.rests.len() >= RESTS_MAX {
            return false;
        }
        let mut list = self.spare_steps.pop().unwrap_or_default();
        list.extend_from_slice(steps);
        self.rests.push_back(Rest { key, base, size, hole, steps: list, done: 0 });
        true
    }

    /// The oldest plan is done, or not worth going on with.
    fn forget_rest(&mut self) {
        let mut rest = self.rests.pop_front().expect("the caller has looked at it");
        rest.steps.clear();
        self.spare_steps.push(rest.steps);
        assert!(self.spare_steps.len() <= RESTS_MAX, "as many lists as there were plans at a time");
    }

    /// Fills what was never touched of a page, in one run: zeros are not worth a plan.
    pub(super) fn bring_zeros(&mut self, key: SpaceKey, range: BaseRange, size: PageSize) {
        for b in range.start..range.end {
            if self.entry(key, b).state == BaseState::Empty {
                self.bring(key, b, size);
            }
        }
    }

    /// Brings a base page that a thread waits for.
    pub(super) fn bring_waited(&mut self, key: SpaceKey, base: u64, size: PageSize) {
        self.urgency = Urgency::Waited;
        self.bring(key, base, size);
        self.urgency = Urgency::Behind;
    }

    /// A thread waits for a copy that is being fetched.
    pub fn is_awaited(&self, copy: CopyIndex) -> bool {
        let targets = self.fetches.get(&copy).map(|fetch| &fetch.targets);
        targets.is_some_and(|targets| targets.iter().any(|target| self.waits.contains_key(target)))
    }

    /// One more is asked of a lender that nobody waits for: its number.
    pub(super) fn number_behind(&mut self, lender: LenderIndex) -> u64 {
        let state = &mut self.lenders[usize::from(lender.0)];
        state.asked_behind += 1;
        state.asked_behind
    }

    /// A thread waits by now for what is being fetched: it is moved forward, once, if its lender may have it behind other things. What comes
    /// next anyway is left in its place: whoever reads in order, as fast as pages come, would ask for each page twice and get it in two pieces.
    pub(super) fn hasten(&mut self, copy: CopyIndex) {
        // None: an answer has come, and whoever it is for is being served.
        let Some(fetch) = self.fetches.get_mut(&copy) else { return };
        if let Some(lender) = fetch.at_lender
            && fetch.urgency == Urgency::Behind
            && fetch.number > self.lenders[usize::from(lender.0)].answered_behind + NEXT_PAGES
        {
            fetch.urgency = Urgency::Waited;
            let version = fetch.version;
            self.effects.push_back(Effect::Hurry { lender, copy, version });
        }
    }
}
