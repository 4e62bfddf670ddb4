//! A page size for each place and part of a program, found from what pages are worth there.
//!
//! aapc-2012 compares the pages that a part swaps in with those that fit (section II.B): one size for all memory, changed at the end of a
//! part. Here the question is put to each place: what does a *wanted* base page cost, if pages have this size?
//!
//! ```text
//!             what a fault costs + n × what each base page costs
//! cost(n) = --------------------------------------------------------          n: base pages of a page
//!             wanted(n) − (n − wanted(n)) × returns − early(n) × rate
//! ```
//!
//! - *wanted(n)*: how many base pages of a page are wanted before it leaves. At sizes up to the present one that is seen by leaving a base
//!   page out now and then, at some distance from the fault: it is wanted, or the page leaves without it ([`Probed`]). At larger sizes it
//!   is seen without asking: was the larger page around it here before it left, if it was not when it came ([`Left::together`])? Where
//!   large pages push each other out before they are used (the paper's thrashing), what was left out is not wanted in time, and large
//!   pages are dear.
//!   Memory that fills needs no such probe: what is wanted of its zeros has been written when it leaves ([`Filled`]). (A page that is pushed out while it fills comes
//!   back from a buffer, and nothing is fetched out of which anything could be left.) It decides how large pages of zeros are, and of what is fetched as long as hardly
//!   anything has been: memory that was filled in order may be read in none.
//!   Where memory is large pages leave late. A base page that nobody waits for long before that is told of by then, if many in a row are like it ([`PageSizer::aged`]).
//! - *returns*: how many of the base pages that leave come back within one turn of local memory by wanted ones. Each base page that nobody wanted has pushed
//!   one of them out. In a sweep over much more than fits none comes back, and waste costs no more than its transfer.
//! - *early(n)* × *rate*: what is wanted late has taken a frame until then that something else is wanted in. *early(n)* is for how many turns of local memory the wanted base pages of a page are here
//!   before they are wanted, together, and *rate* how often a frame is wanted back in a turn. Where blocks are used in no order and most of them fit, all of a large page is wanted while it is here, but so
//!   is what it has pushed out: it gains next to nothing. (Which of the two is wanted first is chance.) In a sweep what lies behind is wanted at once, and costs nothing.
//!   (What comes back from a victim buffer costs no fetch: *returns* and *rate* do not count it.)
//! - what a fault and what a base page costs is measured, on this path, as it is now.
//!
//! How much of its page a fault brings back that finds its base page in a victim buffer is asked by the same formula, with what a rescue costs, what is wanted of what has been rescued (of some another base page stays in its buffer, and is
//! watched: [`PageSizer::watched`]), and all that comes back, from buffers, too. Where nearly all fits and is touched in no order most faults are such: of a whole page that comes and goes one base page is touched. Where pages are pushed out
//! before the program has gone through them, all of it is.
//!
//! The first fault of a page of which nothing is here, and to which no stream comes, brings its base page alone, and the second one the rest, where that is cheaper: with *p*, the share of such pages that have a second fault
//! before that base page leaves, where *p × (fault + rest) < rest*. (*wanted(n)* is the same in a program that touches half of each page and in one that touches all of some pages and one base page of each other.) It is seen by what
//! came alone; where all comes at once, of one in some.
//!
//! A place where no size has been found has that of its part, whatever that becomes.
//!
//! A page of zeros has a size of its own, if that is larger than what is fetched there: it is worth what a page is worth, and costs next to nothing beside its fault.
//!
//! Where what is found for each place is wrong for all of them together, the program hardly runs at all. Then the smallest pages are tried everywhere (`trials.rs`).
//!
//! A size grows, up to four times at once (in the paper it doubles: there nothing tells what a larger one is worth before it is tried), and
//! shrinks at once to where it should be, as in the paper, but for the first time; and only for a gain that is worth it, so that it does not swing.

mod evidence;
mod phases;
mod returns;
mod trials;

use super::{
    Brought, Changes, Fill, Filled, Left, PageSize, PageSizer, Place, Probed, Scope, Seen, SizeChange,
    SizeReason,
};
use crate::borrower::SpaceKey;
use crate::draw::Draw;
use crate::units::{BasePages, Duration, Instant};
use alloc::collections::BTreeMap;
use evidence::{Back, Costs, Evidence, Late};
use phases::Phases;
use returns::Returns;
use trials::{Trials, Turn};

/// Base pages of a place that is judged as one: 8 MiB.
const PLACE_BASE_PAGES: u64 = 2048;
/// Places whose evidence is kept, over all parts.
const PLACES_MAX: usize = 8192;
/// Parts that are told apart; later ones count as the last.
const PARTS_MAX: u32 = u8::MAX as u32 + 1;
/// Pages that come or go between two judgements of a place, and of a part.
const PLACE_REVIEW: u32 = 24;
const PART_REVIEW: u32 = 96;
/// A change must make a wanted base page cheaper: to this share of its cost at most.
const GAIN: f64 = 0.95;
/// What probes may cost: the fault on a base page that was left out, of what the pages cost out of which they are left.
const PROBES_SHARE: f64 = 0.05;
/// One page in so many is probed at most; and while little is known of a place.
const PROBE_ONE_IN: u64 = 2;
const PROBE_SOON: u64 = 3;
/// Of what is rescued from buffers, where much is known.
const WATCH_ONE_IN: u64 = 16;
/// Of first faults that bring their page, one in so many brings its base page alone, to see whether there is a second one.
const ALONE_ONE_IN: u64 = 16;
/// Probes after which much is known.
const PROBES_MANY: f64 = 24.0;
/// Where zeros come pages are no larger than this: 128 KiB. Zeros cost no fetch that a larger page would save, and each takes a frame.
const FRESH_MAX: PageSize = PageSize::from_log2(5);
/// So many pages fit into local memory at least: with fewer, the streams that a loop goes along push each other out at once, and
/// what was seen of smaller pages does not tell of that. Large pages gain little more by being larger: most of their cost is the transfer.
const PAGES_LEAST: u64 = 96;
/// And of pages up to 64 KiB, whose faults cost as much as their transfer, so many.
const SMALL_PAGES_LEAST: u64 = 64;
const SMALL_MAX: PageSize = PageSize::from_log2(4);
/// The size that a place or a part begins with is another's. The first time that it shrinks (after it has grown, too) it does so far at most: of pages that push
/// each other out before they are used nothing is wanted, and nothing would be of smaller ones that leave as soon. They leave later.
const FIRST_HALVINGS: u8 = 2;
/// A page that has grown and shrinks again does not grow for so many judgements, and four times as many each time that it happens.
const HOLD_LEAST: u32 = 4;
const HOLD_MOST: u32 = 1024;
/// After so many eighths of turns nothing of what is forgotten with time is left.
const EIGHTHS_MOST: u64 = 32;
/// A part whose last run turned local memory over so often has been seen by what left while it ran. What it leaves behind is used by the next part,
/// and would count for more than all that, being the newest.
const TURNS_KNOWN: u64 = 2;

/// Nobody is going to wait for what was left out if nobody has waited, after a while, for so many in a row. (Where some are wanted, others may be later.)
const UNWANTED_MIN: u32 = 64;

/// What is known of a place in a part.
#[derive(Clone, Debug)]
struct Known {
    size: PageSize,
    /// The size of a page of zeros, if that is larger.
    fresh: PageSize,
    evidence: Evidence,
    /// Pages that came or went since it was judged.
    events: u32,
    /// The last change was a growth; and how many judgements growing waits, now and the next time.
    grew: bool,
    hold: u32,
    hold_next: u32,
    /// It has shrunk before.
    shrank: bool,
    /// Eighths of turns of memory when it was judged last.
    eighths: u64,
    /// Of a part: wanted base pages that left in its last run.
    left: u64,
    /// Of a part: base pages that were left out, in a row, and nobody had waited for after a while.
    unwanted: u32,
    /// And that somebody has waited for after that.
    late: Late,
    /// How often the part's size has changed; of a place that follows it, when it was looked at last.
    changes: u32,
    /// Of a place: its size has been found there.
    is_own: bool,
}

impl Known {
    fn new(size: PageSize, fresh: PageSize) -> Self {
        let (evidence, hold_next) = (Evidence::default(), HOLD_LEAST);
        Self {
            size,
            fresh,
            evidence,
            events: 0,
            grew: false,
            hold: 0,
            hold_next,
            shrank: false,
            eighths: 0,
            left: 0,
            unwanted: 0,
            late: Late::default(),
            changes: 0,
            is_own: false,
        }
    }

    /// The largest pages that it gives.
    fn largest(&self) -> PageSize {
        self.size.max(self.fresh_size())
    }

    /// The size of a page of zeros.
    fn fresh_size(&self) -> PageSize {
        self.fresh.max(self.size).min(FRESH_MAX)
    }

    /// Judges it: the size that it had, if that changes, and why.
    fn judge(
        &mut self,
        prior: Option<&Evidence>,
        limits: (PageSize, PageSize),
        path: Path,
    ) -> Option<Verdict> {
        self.events = 0;
        self.hold = self.hold.saturating_sub(1);
        let (least, most) = limits;
        let fresh = self.evidence.fresh(prior, (least, most.min(FRESH_MAX)), path.returns);
        self.fresh = fresh.unwrap_or(self.fresh).min(most);
        let first_least = PageSize::from_log2(self.size.log2().saturating_sub(FIRST_HALVINGS)).min(most);
        let least = if self.shrank { least } else { least.max(first_least) };
        let passed = path.eighths.saturating_sub(core::mem::replace(&mut self.eighths, path.eighths));
        (0..passed.min(EIGHTHS_MOST)).for_each(|_| self.evidence.forget_early(self.size));
        let (to, reason) = self.evidence.judge(prior, self.size, (least, most), path.costs, path.returns)?;
        let grows = to > self.size;
        if grows && self.hold > 0 {
            return None;
        }
        if !grows && self.grew {
            self.hold = self.hold_next;
            self.hold_next = (self.hold_next * 4).min(HOLD_MOST);
        }
        (self.grew, self.is_own) = (grows, true);
        let from = core::mem::replace(&mut self.size, to);
        self.evidence.size_changed(from, to);
        if !grows && !core::mem::replace(&mut self.shrank, true) {
            self.evidence.start_again();
        }
        Some(Verdict { from, to, reason })
    }
}

/// What pages cost and are worth apart from where they are.
#[derive(Clone, Copy, Debug)]
struct Path {
    costs: Costs,
    returns: Back,
    /// Eighths of turns of memory so far.
    eighths: u64,
}

/// A size changes.
#[derive(Debug)]
struct Verdict {
    from: PageSize,
    to: PageSize,
    reason: SizeReason,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Adaptive {
    least: PageSize,
    most: PageSize,
    part: u32,
    /// Wanted base pages that had left when it began.
    began: u64,
    /// The program names its parts; until it does they are found.
    named: bool,
    phases: Phases,
    /// What holds for the whole of a part, and where a place begins.
    parts: BTreeMap<u32, Known>,
    places: BTreeMap<(u32, SpaceKey, u64), Known>,
    /// How many places and parts have each size as their largest.
    in_use: [u32; PageSize::COUNT],
    costs: Costs,
    returns: Returns,
    /// The same of what is rescued as well.
    returns_of_all: Returns,
    trials: Trials,
    draw: Draw,
    /// For what is rescued: where nothing is, all is as it would be without.
    draw_rescues: Draw,
    /// For what comes alone.
    draw_alone: Draw,
    changes: Changes,
    /// Sizes of a part of which nothing is known, of what is fetched and of zeros.
    start: PageSize,
    start_fresh: PageSize,
}

impl Adaptive {
    /// Pages from `least` to `most`, of `start` at first.
    ///
    /// # Panics
    /// If `start` is not between them.
    pub fn new(least: PageSize, start: PageSize, most: PageSize, seed: u64) -> Self {
        assert!(least <= start && start <= most, "a size to start with that is not allowed");
        Self {
            least,
            most,
            part: 0,
            began: 0,
            named: false,
            phases: Phases::default(),
            parts: BTreeMap::new(),
            places: BTreeMap::new(),
            in_use: [0; PageSize::COUNT],
            costs: Costs::default(),
            returns: Returns::default(),
            returns_of_all: Returns::default(),
            trials: Trials::default(),
            draw: Draw::new(seed),
            draw_rescues: Draw::new(!seed),
            draw_alone: Draw::new(seed.rotate_left(32)),
            changes: Changes::default(),
            start,
            start_fresh: start,
        }
    }

    /// What is known of the part that runs.
    fn part_known(&mut self) -> &mut Known {
        self.known_of(self.part)
    }

    /// What is known of a part.
    fn known_of(&mut self, part: u32) -> &mut Known {
        self.part_known_or(part, self.start, self.start_fresh)
    }

    /// What is known of a part; one that is new begins with these sizes, of what is fetched and of zeros.
    fn part_known_or(&mut self, part: u32, size: PageSize, fresh: PageSize) -> &mut Known {
        let in_use = &mut self.in_use;
        self.parts.entry(part).or_insert_with(|| {
            let known = Known::new(size, fresh);
            in_use[usize::from(known.largest().log2())] += 1;
            known
        })
    }

    /// Forgets what is known of a part, as a whole and of each place.
    fn forget_part(&mut self, part: u32) {
        if let Some(known) = self.parts.remove(&part) {
            self.in_use[usize::from(known.largest().log2())] -= 1;
        }
        let all = (part, SpaceKey(0), 0)..=(part, SpaceKey(u32::MAX), u64::MAX);
        let gone: alloc::vec::Vec<_> = self.places.range(all).map(|(&key, _)| key).collect();
        gone.into_iter().for_each(|key| self.forget_place(key));
    }

    fn forget_place(&mut self, key: (u32, SpaceKey, u64)) {
        let known = self.places.remove(&key).expect("the caller has it");
        self.in_use[usize::from(known.largest().log2())] -= 1;
    }

    /// The largest size may have changed, of a part or a place.
    fn count_change(&mut self, from: PageSize, to: PageSize) {
        self.in_use[usize::from(from.log2())] -= 1;
        self.in_use[usize::from(to.log2())] += 1;
    }

    /// Another part begins. One that is new begins as the one before it is.
    fn enter(&mut self, part: u32) {
        if part != self.part {
            let left = self.returns.clock() - core::mem::replace(&mut self.began, self.returns.clock());
            let known = self.part_known();
            known.left = left;
            let Known { size, fresh, .. } = *known;
            self.part = part;
            self.part_known_or(part, size, fresh);
        }
    }

    /// Where no parts are named: has another phase begun?
    fn look_for_phase(&mut self, page: &Brought) {
        let Some((phase, new)) = self.phases.fault(page.fault, page.size) else { return };
        if new && phase != self.part {
            // Its number may have been another's.
            self.forget_part(phase);
        }
        self.enter(phase);
    }

    fn key(part: u32, at: Place) -> (u32, SpaceKey, u64) {
        (part, at.space, at.base / PLACE_BASE_PAGES)
    }

    /// What is known of a place in a part; a new one begins as its part is.
    fn place_known(&mut self, part: u32, at: Place) -> &mut Known {
        let key = Self::key(part, at);
        if !self.places.contains_key(&key) {
            if self.places.len() >= PLACES_MAX {
                // Any of them: evidence is found again.
                let from = (self.draw.below(u64::from(PARTS_MAX)) as u32, at.space, self.draw.below(1 << 36));
                let any = self.places.range(from..).next().or(self.places.iter().next());
                let any = *any.expect("there are many").0;
                self.forget_place(any);
            }
            let Known { size, fresh, shrank, changes, .. } = *self.known_of(part);
            let known = Known { shrank, changes, ..Known::new(size, fresh) };
            self.in_use[usize::from(known.largest().log2())] += 1;
            self.places.insert(key, known);
        }
        self.places.get_mut(&key).expect("it is there now")
    }

    /// The part is over, and what was seen while it ran is not to be outnumbered by what it leaves behind.
    fn is_known_without(&mut self, part: u32) -> bool {
        let enough = TURNS_KNOWN * self.returns.limit();
        self.named && part != self.part && self.known_of(part).left >= enough
    }

    /// Lets `see` add to what is known of the place and of the part, and judges both when it is time.
    fn learn(&mut self, now: Instant, part: u32, at: Place, see: impl Fn(&mut Evidence)) {
        if self.trials.are_small() {
            return; // what is seen is of other sizes than those that are judged
        }
        if self.is_known_without(part) {
            return;
        }
        let known = self.known_of(part);
        see(&mut known.evidence);
        known.events += 1;
        let (part_is_due, changes) = (known.events >= PART_REVIEW, known.changes);
        let place = self.place_known(part, at);
        see(&mut place.evidence);
        place.events += 1;
        // Where nothing else has been found what holds everywhere does, and at once, not after so many pages of each place.
        let follows = place.changes != changes && !place.is_own;
        let place_is_due = place.events >= PLACE_REVIEW;
        if part_is_due {
            self.judge_part(now, part);
        }
        if follows {
            self.follow_part(part, at);
        }
        if place_is_due {
            self.judge_place(now, part, at);
        }
    }

    fn path(&self) -> Path {
        let returns = self.returns.back(1.0, 0.0);
        Path { costs: self.costs, returns, eighths: self.returns.eighths() }
    }

    /// The sizes that are allowed now.
    fn limits(&self) -> (PageSize, PageSize) {
        let limit = self.returns.limit();
        let fits = (limit / PAGES_LEAST).max((limit / SMALL_PAGES_LEAST).min(SMALL_MAX.base_pages()));
        let fits = fits.max(1).ilog2().min(u32::from(PageSize::LARGEST.log2()));
        (self.least, self.most.min(PageSize::from_log2(fits as u8)).max(self.least))
    }

    fn judge_part(&mut self, now: Instant, part: u32) {
        let (limits, path) = (self.limits(), self.path());
        let known = self.known_of(part);
        let (before, verdict) = (known.largest(), known.judge(None, limits, path));
        let after = known.largest();
        self.count_change(before, after);
        let Some(Verdict { from, to, reason }) = verdict else { return };
        self.known_of(part).changes += 1;
        self.changes.push(SizeChange { at: now, part, scope: Scope::All, from, to, reason });
    }

    /// The place has no size of its own, and takes that of its part: else each of thousands of places would have to find by itself what is known of all.
    fn follow_part(&mut self, part: u32, at: Place) {
        let Known { size, shrank, changes, .. } = *self.known_of(part);
        let known = self.place_known(part, at);
        let before = known.largest();
        let from = core::mem::replace(&mut known.size, size);
        (known.shrank, known.changes) = (shrank, changes);
        known.evidence.followed(from, size);
        let after = known.largest();
        self.count_change(before, after);
    }

    fn judge_place(&mut self, now: Instant, part: u32, at: Place) {
        let (limits, path) = (self.limits(), self.path());
        let prior = self.known_of(part).evidence.clone();
        let known = self.place_known(part, at);
        let (before, verdict) = (known.largest(), known.judge(Some(&prior), limits, path));
        let after = known.largest();
        self.count_change(before, after);
        let Some(Verdict { from, to, reason }) = verdict else { return };
        let first = Place { base: at.base / PLACE_BASE_PAGES * PLACE_BASE_PAGES, ..at };
        let scope = Scope::Range(first, BasePages(PLACE_BASE_PAGES));
        self.changes.push(SizeChange { at: now, part, scope, from, to, reason });
    }

    /// A base page of the page to be left out: in one half of a page of some size around the fault, the half without the fault.
    fn hole(&mut self, page: &Brought) -> Option<u64> {
        let levels = page.size.log2();
        if levels == 0 || page.fetched.0 * 2 < page.size.base_pages() {
            return None;
        }
        let affordable = (self.costs.fault_share(page.size) / PROBES_SHARE) as u64;
        let is_known = self.place_known(self.part, page.fault).evidence.probes() >= PROBES_MANY;
        let one_in = if is_known { affordable } else { affordable.min(PROBE_SOON) };
        if self.draw.below(one_in.max(PROBE_ONE_IN)) > 0 {
            return None;
        }
        let reach = PageSize::from_log2(self.draw.below(u64::from(levels)) as u8);
        let other_half = reach.first(page.fault.base) ^ reach.base_pages();
        Some(other_half + self.draw.below(reach.base_pages()))
    }

    /// Fresh memory needs no base page left out of it: what of it is wanted while it fills is written. Of a base page that has been, and one in the other
    /// half of a page of some size around it that came as zeros, too: as if that one had been left out.
    fn seen_of_zeros(&mut self, page: &Filled<'_>) -> Option<Probed> {
        let levels = page.size.log2();
        let written =
            || page.bases.iter().filter(|&&(_, fill)| matches!(fill, Fill::Written | Fill::Rewritten));
        let count = written().count();
        if levels == 0 || count == 0 {
            return None; // it does not fill: its zeros may be read
        }
        let &(near, _) = written().nth(self.draw.below(count as u64) as usize).expect("one of them");
        let half = PageSize::from_log2(self.draw.below(u64::from(levels)) as u8);
        let base = (half.first(near) ^ half.base_pages()) + self.draw.below(half.base_pages());
        let index = page.bases.binary_search_by_key(&base, |&(base, _)| base).ok()?;
        let wanted = match page.bases[index].1 {
            Fill::Other | Fill::Rewritten => return None,
            Fill::Written => true,
            Fill::Unwritten => false,
        };
        let place = Place { space: page.space, base };
        Some(Probed {
            place,
            part: page.part,
            size: page.size,
            reach: half.doubled(),
            wanted,
            after: BasePages(0),
            seen: Seen::Filled,
        })
    }
}

impl PageSizer for Adaptive {
    fn size(&mut self, at: Place) -> PageSize {
        if self.trials.are_small() {
            return self.least;
        }
        match self.places.get(&Self::key(self.part, at)) {
            Some(known) => known.size,
            None => self.part_known().size,
        }
    }

    fn fresh_size(&mut self, at: Place) -> PageSize {
        if self.trials.are_small() {
            return self.least;
        }
        match self.places.get(&Self::key(self.part, at)) {
            Some(known) => known.fresh_size(),
            None => self.part_known().fresh_size(),
        }
    }

    fn rescue_size(&mut self, at: Place, size: PageSize) -> PageSize {
        let returns = self.returns_of_all.back(1.0 / self.costs.rescue_share(), 1.0);
        let least = self.least.min(size);
        let (part, key) = (self.part, Self::key(self.part, at));
        let Some(prior) = self.parts.get(&part) else { return size };
        let place = self.places.get(&key).unwrap_or(prior);
        place.evidence.rescue_size(&prior.evidence, (least, size), returns)
    }

    fn rescued(&mut self, at: Place, size: PageSize, most: PageSize) -> Option<u64> {
        let wanted = self.part_known().evidence.rescued_share(size);
        self.returns_of_all.brought(at, size, wanted, true);
        if most == PageSize::SMALLEST || self.trials.are_small() {
            return None;
        }
        let half = PageSize::from_log2(self.draw_rescues.below(u64::from(most.log2())) as u8);
        let is_known = self.place_known(self.part, at).evidence.rescues() >= PROBES_MANY;
        // What would not come anyway costs nothing to be watched.
        let one_in = match (half < size, is_known) {
            (false, _) => 1,
            (true, true) => WATCH_ONE_IN,
            (true, false) => PROBE_SOON,
        };
        if self.draw_rescues.below(one_in) > 0 {
            return None;
        }
        Some((half.first(at.base) ^ half.base_pages()) + self.draw_rescues.below(half.base_pages()))
    }

    fn watched(&mut self, probe: &Probed) {
        let (turns, part) = (self.returns.turns(probe.after), u32::from(probe.part));
        if self.trials.are_small() || self.is_known_without(part) {
            return;
        }
        self.known_of(part).evidence.rescued(probe, turns);
        self.place_known(part, probe.place).evidence.rescued(probe, turns);
    }

    fn comes_alone(&mut self, at: Place, size: PageSize) -> bool {
        if self.trials.are_small() {
            return false;
        }
        let rest = self.costs.rest_share(size);
        let (part, key) = (self.part, Self::key(self.part, at));
        let Some(prior) = self.parts.get(&part) else { return false };
        let place = self.places.get(&key).unwrap_or(prior);
        // Of pages that come as a whole it is not seen how many are touched again.
        place.evidence.again(&prior.evidence, size) < rest || self.draw_alone.below(ALONE_ONE_IN) == 0
    }

    fn alone(&mut self, probe: &Probed) {
        let part = u32::from(probe.part);
        if self.trials.are_small() || self.is_known_without(part) {
            return;
        }
        self.known_of(part).evidence.alone(probe);
        self.place_known(part, probe.place).evidence.alone(probe);
    }

    fn largest(&self) -> PageSize {
        let used = self.in_use.iter().rposition(|&count| count > 0);
        used.map_or(self.start, |log2| PageSize::from_log2(log2 as u8))
    }

    fn brought(&mut self, now: Instant, page: &Brought) -> Option<u64> {
        // What has come alone is a fault of its page's size, and says nothing of how many base pages faults bring.
        let size = self.size(page.fault).max(page.size);
        let alone = size > page.size;
        if !self.named && page.fetched.0 * 2 >= page.size.base_pages() {
            self.look_for_phase(&Brought { size, ..*page });
        }
        if !alone {
            self.costs.brought(page.fetched);
        }
        let wanted = self.part_known().evidence.wanted_share(None, page.size);
        self.returns.brought(page.fault, page.size, wanted, false);
        self.returns_of_all.brought(page.fault, page.size, wanted, false);
        self.learn(now, self.part, page.fault, |_| ());
        self.hole(page)
    }

    fn fetched_ahead(&mut self, pages: BasePages) {
        self.costs.fetched_ahead(pages);
    }

    fn turned_over(&self) -> BasePages {
        BasePages(self.returns.clock())
    }

    fn watches_pages(&self) -> bool {
        true
    }

    fn left(&mut self, now: Instant, page: &Left) {
        self.trials.left(page.pages);
        let part = u32::from(page.part);
        self.known_of(part);
        let prior = &self.parts[&part].evidence;
        let known = self.places.get(&Self::key(part, page.first));
        let wanted = known.map_or(prior, |known| &known.evidence).wanted_share(Some(prior), page.size);
        // Pages smaller than those of the place say nothing of how those should grow: parts that were rescued, or what came before it grew.
        let is_part = known.is_some_and(|known| page.size < known.size);
        self.returns.left(page, wanted, &mut self.draw);
        self.returns_of_all.left(page, wanted, &mut self.draw_rescues);
        let page = *page;
        self.learn(now, part, page.first, |evidence| {
            if !is_part {
                evidence.left(&page);
            }
        });
    }

    fn aged(&mut self, now: Instant, probe: &Probed) -> bool {
        let known = self.known_of(probe.part.into());
        known.unwanted = if probe.wanted { 0 } else { known.unwanted.saturating_add(1) };
        let counts = known.unwanted > UNWANTED_MIN && !known.late.is_likely();
        if counts {
            // Nobody has wanted it.
            self.learn(now, probe.part.into(), probe.place, |evidence| evidence.probed(probe, 0.0));
        }
        counts
    }

    fn probed(&mut self, now: Instant, probe: &Probed) {
        if probe.seen == Seen::Again {
            self.known_of(probe.part.into()).late.add(probe.wanted);
        }
        let turns = self.returns.turns(probe.after);
        self.learn(now, probe.part.into(), probe.place, |evidence| evidence.probed(probe, turns));
    }

    fn filled(&mut self, page: &Filled<'_>) -> Option<Probed> {
        self.seen_of_zeros(page)
    }

    fn limited(&mut self, limit: BasePages) {
        self.returns.limited(limit);
        self.returns_of_all.limited(limit);
    }

    fn waited(&mut self, wait: Duration) {
        self.costs.waited(wait);
    }

    fn streamed(&mut self, pages: BasePages, span: Duration) {
        self.costs.streamed(pages, span);
    }

    fn progressed(&mut self, now: Instant, ran: Duration) {
        let Some(turn) = self.trials.progressed(now, ran, self.returns.limit()) else { return };
        let found = self.part_known().size;
        let (from, to, was, is) = match turn {
            Turn::Kept { was, is } => (found, self.least, was, is),
            Turn::Over { was, is } => (self.least, found, was, is),
        };
        let permille = |share: f64| (share * 1000.0) as u32;
        let reason = SizeReason::Progress { was_permille: permille(was), is_permille: permille(is) };
        self.changes.push(SizeChange { at: now, part: self.part, scope: Scope::All, from, to, reason });
    }

    fn part(&self) -> u8 {
        u8::try_from(self.part).expect("parts are told apart up to a number")
    }

    fn part_begins(&mut self, _: Instant, part: u32) {
        if !core::mem::replace(&mut self.named, true) {
            // Numbers of phases that were found mean nothing to the program. The size stays.
            let Known { size, fresh, .. } = *self.part_known();
            (self.start, self.start_fresh) = (size, fresh);
            let found: alloc::vec::Vec<u32> = self.parts.keys().copied().collect();
            found.into_iter().for_each(|phase| self.forget_part(phase));
        }
        self.enter(part.min(PARTS_MAX - 1));
    }

    fn poll_change(&mut self) -> Option<SizeChange> {
        self.changes.pop()
    }
}

#[cfg(test)]
mod tests;
