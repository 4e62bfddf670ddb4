//! What is known of how pages are used, and what follows from it.

use super::super::{Left, PageSize, Probed, Seen, SizeReason};
use super::GAIN;
use crate::units::{BasePages, Duration};

/// Seen so often, of so many times; both shrink with time, and at once when what used to be seen is not.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate {
    hits: f64,
    total: f64,
    /// How likely what was seen since the last hit was by this rate.
    misses_chance: f64,
}

/// What counts from now on has at least this share: older evidence is halved when there is more.
const TOTAL_MAX: f64 = 64.0;
/// What is seen has changed if as many misses in a row were no more likely than this. (Not so for hits: that pages are too large costs far more than
/// that they are too small, so they may grow later.)
const CHANCE_LEAST: f64 = 0.001;
/// What was seen before is worth so many observations then.
const WEAK_TOTAL: f64 = 4.0;
/// How many observations of a place what holds for the whole part is worth.
const PRIOR_WEIGHT: f64 = 6.0;
/// And how memory was filled at most, as long as nothing of it has been fetched.
const FILLED_WEIGHT: f64 = 12.0;
/// And what is assumed where nothing at all is known.
const ASSUMED: f64 = 0.5;
const ASSUMED_WEIGHT: f64 = 1.0;
/// Fewest observations on which a page grows.
const GROW_MIN: f64 = 16.0;
/// So far at a time: what small pages show of ever larger ones is ever less certain.
const GROW_DOUBLINGS: u8 = 2;
/// So many more that were not together are assumed.
const GROW_DOUBT: f64 = 2.0;
/// So many probes what made it grow is worth.
const GROWN_WEIGHT: f64 = 4.0;
/// And shrinks.
const SHRINK_MIN: f64 = 6.0;

impl Default for Rate {
    fn default() -> Self {
        Self { hits: 0.0, total: 0.0, misses_chance: 1.0 }
    }
}

impl Rate {
    fn add(&mut self, hit: bool) {
        let likely = 1.0 - self.with_prior(ASSUMED, ASSUMED_WEIGHT);
        self.misses_chance = if hit { 1.0 } else { self.misses_chance * likely };
        if self.misses_chance < CHANCE_LEAST && likely < 0.5 {
            self.misses_chance = 1.0;
            self.weaken();
        }
        self.hits += f64::from(u8::from(hit));
        self.total += 1.0;
        if self.total > TOTAL_MAX {
            self.halve();
        }
    }

    fn weaken(&mut self) {
        *self = self.of_weight(WEAK_TOTAL);
    }

    fn halve(&mut self) {
        self.hits /= 2.0;
        self.total /= 2.0;
    }

    /// What was added as a miss was none.
    fn correct(&mut self) {
        self.hits = (self.hits + 1.0).min(self.total);
        self.misses_chance = 1.0;
    }

    /// The same rate, seen so often at most.
    fn of_weight(self, total: f64) -> Self {
        let share = (total / self.total).min(1.0);
        Self { hits: self.hits * share, total: self.total * share, ..self }
    }

    /// The rate, where `prior` is worth some observations.
    fn with_prior(&self, prior: f64, weight: f64) -> f64 {
        (self.hits + weight * prior) / (self.total + weight)
    }
}

/// What leaves is wanted again (see [`super::returns`]).
#[derive(Clone, Copy, Debug)]
pub(super) struct Back {
    /// This share of it within one turn of local memory.
    pub(super) share: f64,
    /// And each frame so often in that time.
    pub(super) rate: f64,
}

/// For how much of a turn of local memory base pages are here before they are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Early {
    turns: f64,
    total: f64,
}

/// What was seen of larger pages than there are now is forgotten: so much of it stays for an eighth of a turn of memory. (Nothing shows it anew, and large ones would never be tried again; but to see it
/// anew takes a turn.)
const EARLY_STAYS: f64 = 0.7;

impl Early {
    fn forget(&mut self) {
        self.turns *= EARLY_STAYS;
        self.total *= EARLY_STAYS;
    }

    fn add(&mut self, turns: f64) {
        self.turns += turns;
        self.total += 1.0;
        if self.total > TOTAL_MAX {
            self.turns /= 2.0;
            self.total /= 2.0;
        }
    }

    /// The same mean, seen so often at most.
    fn weaken(&mut self) {
        let share = (WEAK_TOTAL / self.total).min(1.0);
        self.turns *= share;
        self.total *= share;
    }

    fn with_prior(&self, prior: f64, weight: f64) -> f64 {
        (self.turns + weight * prior) / (self.total + weight)
    }
}

/// How often what was not wanted after a while is wanted all the same before its page leaves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Late(Rate);

/// So often makes it likely; and so many that were not are assumed.
const LATE_LIKELY: f64 = 0.1;
const LATE_DOUBT: f64 = 8.0;

impl Late {
    pub(super) fn add(&mut self, wanted: bool) {
        self.0.add(wanted);
    }

    pub(super) fn is_likely(&self) -> bool {
        self.0.with_prior(0.0, LATE_DOUBT) >= LATE_LIKELY
    }
}

/// What a fault and a base page cost on the path as it is.
///
/// A fault costs what the quick ones take. What others take longer, they wait behind pages that come and go: that is what pages cost, in a machine
/// that has no processor to spare for them. (With the median for a fault, small pages seemed dear wherever most had to wait behind large ones, so that what was large
/// stayed so.) Sources of different speed are one to it: what the slower ones take longer counts for pages, too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Costs {
    /// What [`QUICK_SHARE`] of the waits are shorter than; and their mean.
    quick_ns: f64,
    wait_ns: f64,
    /// Base pages that come for a fault, with those that are fetched ahead; and how many of these since the last one.
    fetched: f64,
    ahead: f64,
    /// Between two base pages of one page, and over how many pages.
    gap_ns: f64,
    streams: f64,
}

/// Weight of the newest measurement.
const NEWEST: f64 = 1.0 / 64.0;
/// Waits that nothing stood in the way of: so many of all.
const QUICK_SHARE: f64 = 0.125;
/// A gap is the mean of so many pages. Most are short, and a few, in which somebody else had the processor, a hundred times as long: a mean of few
/// goes up and down tenfold, and sizes with it; leaving those out would make pages look cheaper than they are.
const STREAMS: f64 = 1024.0;
/// A wait that is longer met something else: a lender that was stopped.
const WAIT_MAX_NS: f64 = 5_000_000.0;
/// What a fault takes before it is heard of, and after it has been answered: to be raised, and to wake who waits (DESIGN.md, section 3).
const UNSEEN_NS: f64 = 10_000.0;
/// Each base page that comes makes another one leave.
const WAYS: f64 = 2.0;

impl Default for Costs {
    /// Until something is measured: TCP within a machine, or a good network.
    fn default() -> Self {
        Self {
            quick_ns: 20_000.0,
            wait_ns: 20_000.0,
            fetched: 1.0,
            ahead: 0.0,
            gap_ns: 2_000.0,
            streams: 0.0,
        }
    }
}

impl Costs {
    pub(super) fn waited(&mut self, wait: Duration) {
        let ns = (wait.0 as f64).min(WAIT_MAX_NS);
        self.wait_ns += (ns - self.wait_ns) * NEWEST;
        // So many are shorter that steps down and up cancel out.
        let step = if ns < self.quick_ns { QUICK_SHARE - 1.0 } else { QUICK_SHARE };
        self.quick_ns *= 1.0 + 2.0 * NEWEST * step;
    }

    pub(super) fn brought(&mut self, fetched: BasePages) {
        let pages = fetched.0 as f64 + core::mem::take(&mut self.ahead);
        self.fetched += (pages - self.fetched) * NEWEST;
    }

    /// Who waits, waits behind these as well.
    pub(super) fn fetched_ahead(&mut self, pages: BasePages) {
        self.ahead += pages.0 as f64;
    }

    pub(super) fn streamed(&mut self, pages: BasePages, span: Duration) {
        let ns = (span.0 as f64 / pages.0.max(1) as f64).min(WAIT_MAX_NS);
        self.streams = (self.streams + 1.0).min(STREAMS);
        self.gap_ns += (ns - self.gap_ns) * (1.0 / self.streams).min(NEWEST);
    }

    /// The part of a page's cost that is the fault's.
    pub(super) fn fault_share(&self, size: PageSize) -> f64 {
        self.of(0.0) / self.of(size.base_pages() as f64)
    }

    /// What the rest of a page costs, of that and the fault that would bring it alone.
    pub(super) fn rest_share(&self, size: PageSize) -> f64 {
        let rest = self.of(size.base_pages() as f64) - self.of(1.0);
        rest / (self.of(0.0) + rest)
    }

    /// What a fault costs that is answered from a buffer, of one that is not.
    pub(super) fn rescue_share(&self) -> f64 {
        (RESCUE_NS / self.of(1.0)).min(1.0)
    }

    /// Of a page of `n` base pages.
    fn of(&self, n: f64) -> f64 {
        let queued_ns = (self.wait_ns - self.quick_ns).max(0.0) / self.fetched.max(1.0);
        UNSEEN_NS + self.quick_ns + n * (WAYS * self.gap_ns + queued_ns)
    }
}

/// Base pages that a page of `n` saves, of which the wanted ones come too early by so many turns of local memory together. Where that and waste cost more than the page is worth: next to none, so that it
/// is as bad as can be, and worse the larger the page is.
fn worth(n: f64, wanted: f64, early: f64, returns: Back) -> f64 {
    (wanted - (n - wanted) * returns.share - early * returns.rate).max(0.02)
}

/// Base pages that are wanted of a page of 2^`log2`: the one of the fault, and of each ring around it its share.
fn wanted(log2: u8, ring: impl Fn(usize) -> f64) -> f64 {
    1.0 + (1..=usize::from(log2)).map(|j| (1_u32 << (j - 1)) as f64 * ring(j)).sum::<f64>()
}

/// What a fault in fresh memory costs, and a base page of zeros that comes and leaves again: nothing goes over a network, and many come and go in one call. (Assumed:
/// they are not waited for one by one, so there is little to measure.)
const FRESH_FAULT_NS: f64 = 15_000.0;
const ZEROS_NS: f64 = 1_000.0;

/// What a fault costs that finds its base page in a buffer, and a base page that comes from there and leaves again: copied twice, and looked at for changes. (Assumed, as for zeros.)
const RESCUE_NS: f64 = 20_000.0;
const RESCUED_NS: f64 = 4_000.0;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    /// Of what lies in the other half of a page of this size around the fault: how often it is wanted.
    rings: [Rate; PageSize::COUNT],
    /// The same of memory that fills.
    zeros: [Rate; PageSize::COUNT],
    /// Of what lies there and is wanted: how early it has come.
    early: [Early; PageSize::COUNT],
    /// How often a page of this size was here, by way of smaller ones, before the first of those left.
    together: [Rate; PageSize::COUNT],
    /// What [`Self::rings`] and [`Self::early`] are, of what is rescued from a buffer.
    rescued: [Rate; PageSize::COUNT],
    rescued_early: [Early; PageSize::COUNT],
    /// Of pages of this size whose first base page came alone: how often another one was wanted.
    again: [Rate; PageSize::COUNT],
}

impl Evidence {
    /// `turns`: how early it had come.
    pub(super) fn probed(&mut self, probe: &Probed, turns: f64) {
        let level = usize::from(probe.reach.log2());
        if probe.wanted && probe.seen != Seen::Filled {
            self.early[level].add(turns);
        }
        match probe.seen {
            Seen::Filled => self.zeros[level].add(probe.wanted),
            Seen::LeftOut => self.rings[level].add(probe.wanted),
            Seen::Again if probe.wanted => self.rings[level].correct(),
            Seen::Again | Seen::Alone | Seen::Rescued => {}
        }
    }

    /// The same of a page that came from a buffer.
    pub(super) fn rescued(&mut self, probe: &Probed, turns: f64) {
        let level = usize::from(probe.reach.log2());
        self.rescued[level].add(probe.wanted);
        if probe.wanted {
            self.rescued_early[level].add(turns);
        }
    }

    /// What became of a page whose first base page came alone.
    pub(super) fn alone(&mut self, probe: &Probed) {
        self.again[usize::from(probe.size.log2())].add(probe.wanted);
    }

    /// How often a page of this size is touched a second time: always, as long as nothing is known.
    pub(super) fn again(&self, prior: &Self, size: PageSize) -> f64 {
        let level = usize::from(size.log2());
        let all = prior.again[level].with_prior(1.0, ASSUMED_WEIGHT);
        self.again[level].with_prior(all, PRIOR_WEIGHT)
    }

    /// How much of a page of the size `most` is worth bringing back from buffers for one base page of it, `least` or more.
    pub(super) fn rescue_size(
        &self,
        prior: &Self,
        (least, most): (PageSize, PageSize),
        returns: Back,
    ) -> PageSize {
        if self.rescues() + prior.rescues() < SHRINK_MIN {
            return most;
        }
        let ring = |level: usize| {
            let all = prior.rescued[level].with_prior(ASSUMED, ASSUMED_WEIGHT);
            self.rescued[level].with_prior(all, PRIOR_WEIGHT)
        };
        let early = |level: usize| {
            let all = prior.rescued_early[level].with_prior(0.0, ASSUMED_WEIGHT);
            self.rescued_early[level].with_prior(all, PRIOR_WEIGHT)
        };
        let cost = |size: PageSize| {
            let n = size.base_pages() as f64;
            let early_in =
                (1..=usize::from(size.log2())).map(|j| (1_u32 << (j - 1)) as f64 * ring(j) * early(j)).sum();
            (RESCUE_NS + n * RESCUED_NS) / worth(n, wanted(size.log2(), ring), early_in, returns)
        };
        let sizes = (least.log2()..=most.log2()).map(PageSize::from_log2);
        let costs = sizes.map(|size| (size, cost(size)));
        costs.min_by(|a, b| a.1.total_cmp(&b.1)).expect("there is one at least").0
    }

    /// The share of a page of this size that is wanted once it is back from buffers.
    pub(super) fn rescued_share(&self, size: PageSize) -> f64 {
        let ring = |level: usize| self.rescued[level].with_prior(ASSUMED, ASSUMED_WEIGHT);
        wanted(size.log2(), ring) / size.base_pages() as f64
    }

    /// Base pages that were watched, and still count.
    pub(super) fn rescues(&self) -> f64 {
        self.rescued.iter().map(|ring| ring.total).sum()
    }

    /// A page has left. What was here when it came would not have come with a larger one, and says nothing.
    pub(super) fn left(&mut self, page: &Left) {
        for larger in usize::from(page.came_with.log2()) + 1..PageSize::COUNT {
            self.together[larger].add(usize::from(page.together.log2()) >= larger);
        }
    }

    /// Probes that still count.
    pub(super) fn probes(&self) -> f64 {
        self.rings.iter().chain(&self.zeros).map(|ring| ring.total).sum()
    }

    /// Pages have another size now. What was together is believed to be wanted together, until probes say what is; if they shrink, what
    /// seemed together was not.
    pub(super) fn size_changed(&mut self, from: PageSize, to: PageSize) {
        for level in usize::from(from.log2()) + 1..=usize::from(to.log2()) {
            let share = self.together[level].with_prior(0.0, GROW_DOUBT);
            self.rings[level] = Rate { hits: share * GROWN_WEIGHT, total: GROWN_WEIGHT, ..Rate::default() };
            self.early[level].weaken();
        }
        if to < from {
            self.together = [Rate::default(); PageSize::COUNT];
        }
    }

    /// The same of a place whose size is that of its part: what has been seen there says nothing of what has grown.
    pub(super) fn followed(&mut self, from: PageSize, to: PageSize) {
        for level in usize::from(from.log2()) + 1..=usize::from(to.log2()) {
            self.rings[level] = Rate::default();
            self.early[level] = Early::default();
        }
        if to < from {
            self.together = [Rate::default(); PageSize::COUNT];
        }
    }

    /// Of what is fetched. What a part has seen of that says more than how memory was filled: it is another use.
    fn ring(&self, prior: Option<&Self>, level: usize) -> f64 {
        let ring = &self.rings[level];
        let fetched = prior.map_or(ring.total, |part| part.rings[level].total);
        let zeros = self.zeros[level].of_weight(FILLED_WEIGHT / (1.0 + fetched));
        let (assumed, weight) =
            prior.map_or((ASSUMED, ASSUMED_WEIGHT), |part| (part.ring(None, level), PRIOR_WEIGHT));
        ring.with_prior(zeros.with_prior(assumed, weight), zeros.total + weight)
    }

    /// Of zeros.
    fn ring_of_zeros(&self, prior: Option<&Self>, level: usize) -> f64 {
        match prior {
            None => self.zeros[level].with_prior(ASSUMED, ASSUMED_WEIGHT),
            Some(prior) => self.zeros[level].with_prior(prior.ring_of_zeros(None, level), PRIOR_WEIGHT),
        }
    }

    /// Base pages that are wanted, of a page of 2^`log2`.
    fn wanted(&self, prior: Option<&Self>, log2: u8) -> f64 {
        wanted(log2, |level| self.ring(prior, level))
    }

    /// An eighth of a turn has passed, and how early what lies around pages of this size would come has not been seen.
    pub(super) fn forget_early(&mut self, size: PageSize) {
        self.early[usize::from(size.log2()) + 1..].iter_mut().for_each(Early::forget);
    }

    /// By how many turns what lies in the other half of a page of this size comes too early, where it is wanted. Of what nothing has shown yet: as what lies nearer.
    fn early(&self, prior: Option<&Self>, level: usize) -> f64 {
        match prior {
            Some(part) => self.early[level].with_prior(part.early(None, level), PRIOR_WEIGHT),
            None if level > 1 => self.early[level].with_prior(self.early(None, level - 1), ASSUMED_WEIGHT),
            None => self.early[level].with_prior(0.0, ASSUMED_WEIGHT),
        }
    }

    /// The same of all that is wanted of a page of 2^`log2`, together.
    fn early_in(&self, prior: Option<&Self>, log2: u8) -> f64 {
        let ring =
            |level: usize| (1_u32 << (level - 1)) as f64 * self.ring(prior, level) * self.early(prior, level);
        (1..=usize::from(log2)).map(ring).sum()
    }

    /// The share of a page of this size that is wanted.
    pub(super) fn wanted_share(&self, prior: Option<&Self>, size: PageSize) -> f64 {
        self.wanted(prior, size.log2()) / size.base_pages() as f64
    }

    /// The size that pages of zeros should have, if enough is known: what nobody writes of one costs no transfer, only its frame. No larger than `most`.
    pub(super) fn fresh(
        &self,
        prior: Option<&Self>,
        (least, most): (PageSize, PageSize),
        returns: Back,
    ) -> Option<PageSize> {
        if self.probes() + prior.map_or(0.0, Self::probes) < SHRINK_MIN {
            return None;
        }
        let cost = |size: PageSize| {
            let n = size.base_pages() as f64;
            let wanted = wanted(size.log2(), |level| self.ring_of_zeros(prior, level));
            (FRESH_FAULT_NS + n * ZEROS_NS) / worth(n, wanted, 0.0, returns)
        };
        let sizes = (least.log2()..=most.log2()).map(PageSize::from_log2);
        sizes.min_by(|&a, &b| cost(a).total_cmp(&cost(b)))
    }

    /// The size is given up for a smaller one for the first time: what was seen of it says little of that.
    pub(super) fn start_again(&mut self) {
        self.rings.iter_mut().for_each(Rate::weaken);
        self.early.iter_mut().for_each(Early::weaken);
    }

    /// The size that pages should have, if it is another one, and why. `returns`: the share of base pages that come back soon after they
    /// have left.
    pub(super) fn judge(
        &self,
        prior: Option<&Self>,
        size: PageSize,
        (least, most): (PageSize, PageSize),
        costs: Costs,
        returns: Back,
    ) -> Option<(PageSize, SizeReason)> {
        let cost = |size: PageSize, wanted: f64, early: f64| {
            let n = size.base_pages() as f64;
            costs.of(n) / worth(n, wanted, early, returns)
        };
        let here = self.wanted(prior, size.log2());
        let early_here = self.early_in(prior, size.log2());
        let now = cost(size, here, early_here);
        let mut best = (size, now, here);
        // What is larger than allowed by now shrinks, whatever it is worth.
        let floor = if size > most { Some(most) } else { None };
        if self.probes() + prior.map_or(0.0, Self::probes) >= SHRINK_MIN {
            for smaller in (least.log2()..size.log2()).map(PageSize::from_log2) {
                let wanted = self.wanted(prior, smaller.log2());
                let cost = cost(smaller, wanted, self.early_in(prior, smaller.log2()));
                if cost < best.1 {
                    best = (smaller, cost, wanted);
                }
            }
        }
        let (mut wanted, mut early) = (here, early_here);
        let up = (size.log2() + GROW_DOUBLINGS).min(most.log2());
        for larger in (size.log2() + 1..=up).map(PageSize::from_log2) {
            let together = &self.together[usize::from(larger.log2())];
            if together.total < GROW_MIN {
                break;
            }
            // Chance alone must not make a page grow.
            let other_half = here * (larger.base_pages() / size.base_pages() / 2) as f64;
            let more = other_half * together.with_prior(0.0, GROW_DOUBT);
            wanted += more;
            early += more * self.early(prior, usize::from(larger.log2()));
            let cost = cost(larger, wanted, early);
            if cost < best.1 {
                best = (larger, cost, wanted);
            }
        }
        if let Some(most) = floor.filter(|&most| best.0 > most) {
            let wanted = self.wanted(prior, most.log2());
            best = (most, cost(most, wanted, self.early_in(prior, most.log2())), wanted);
        }
        let (to, cost, wanted) = best;
        if to == size || (cost > now * GAIN && floor.is_none()) {
            return None;
        }
        let percent = (wanted * 100.0 / to.base_pages() as f64) as u32;
        let reason = SizeReason::Cheaper { was_ns: now as u64, is_ns: cost as u64, wanted_percent: percent };
        Some((to, reason))
    }
}
