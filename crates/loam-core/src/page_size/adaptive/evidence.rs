//! What is known of how pages are used, and what follows from it.

use super::super::{PageSize, SizeReason};
use super::GAIN;
use crate::units::{BasePages, Duration};

/// Seen so often, of so many times; both shrink with time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rate {
    hits: f64,
    total: f64,
}

/// What counts from now on has at least this share: older evidence is halved when there is more.
const TOTAL_MAX: f64 = 64.0;
/// How many observations of a place what holds for the whole part is worth.
const PRIOR_WEIGHT: f64 = 6.0;
/// And what is assumed where nothing at all is known.
const ASSUMED: f64 = 0.5;
const ASSUMED_WEIGHT: f64 = 1.0;
/// Fewest observations on which a page grows.
const GROW_MIN: f64 = 16.0;
/// So many more without a buddy are assumed.
const GROW_DOUBT: f64 = 2.0;
/// And shrinks.
const SHRINK_MIN: f64 = 6.0;

impl Rate {
    fn add(&mut self, hit: bool) {
        self.hits += f64::from(u8::from(hit));
        self.total += 1.0;
        if self.total > TOTAL_MAX {
            self.halve();
        }
    }

    fn halve(&mut self) {
        self.hits /= 2.0;
        self.total /= 2.0;
    }

    /// The rate, where `prior` is worth some observations.
    fn with_prior(&self, prior: f64, weight: f64) -> f64 {
        (self.hits + weight * prior) / (self.total + weight)
    }
}

/// What a fault and a base page cost on the path as it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Costs {
    fault_ns: f64,
    base_page_ns: f64,
}

/// Weight of the newest measurement.
const NEWEST: f64 = 1.0 / 64.0;
/// A wait that is longer met something else: a queue, a lender that was stopped.
const WAIT_MAX_NS: f64 = 5_000_000.0;
/// Each base page that comes makes another one leave.
const WAYS: f64 = 2.0;

impl Default for Costs {
    /// Until something is measured: TCP within a machine, or a good network.
    fn default() -> Self {
        Self { fault_ns: 30_000.0, base_page_ns: 2_000.0 }
    }
}

impl Costs {
    pub(super) fn waited(&mut self, wait: Duration) {
        let ns = (wait.0 as f64).min(WAIT_MAX_NS);
        self.fault_ns += (ns - self.fault_ns) * NEWEST;
    }

    pub(super) fn streamed(&mut self, pages: BasePages, span: Duration) {
        let ns = (span.0 as f64 / pages.0.max(1) as f64).min(WAIT_MAX_NS);
        self.base_page_ns += (ns - self.base_page_ns) * NEWEST;
    }

    /// Of a page of `n` base pages.
    fn of(&self, n: f64) -> f64 {
        self.fault_ns + n * WAYS * self.base_page_ns
    }
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    /// Of what lies in the other half of a page of this size around the fault: how often it is wanted.
    rings: [Rate; PageSize::COUNT],
    /// How often a page's buddy is here at the same time.
    buddies: Rate,
}

impl Evidence {
    pub(super) fn probed(&mut self, reach: PageSize, wanted: bool) {
        self.rings[usize::from(reach.log2())].add(wanted);
    }

    pub(super) fn beside(&mut self, beside: bool) {
        self.buddies.add(beside);
    }

    /// Probes that still count.
    pub(super) fn probes(&self) -> f64 {
        self.rings.iter().map(|ring| ring.total).sum()
    }

    /// Pages have another size now: buddies are others, and how long a page stays is another time.
    pub(super) fn size_changed(&mut self) {
        self.buddies = Rate::default();
        self.rings.iter_mut().for_each(Rate::halve);
    }

    fn ring(&self, prior: Option<&Self>, level: usize) -> f64 {
        match prior {
            None => self.rings[level].with_prior(ASSUMED, ASSUMED_WEIGHT),
            Some(prior) => self.rings[level].with_prior(prior.ring(None, level), PRIOR_WEIGHT),
        }
    }

    /// Base pages that are wanted, of a page of 2^`log2`.
    fn wanted(&self, prior: Option<&Self>, log2: u8) -> f64 {
        1.0 + (1..=usize::from(log2)).map(|j| (1_u32 << (j - 1)) as f64 * self.ring(prior, j)).sum::<f64>()
    }

    /// The share of a page of this size that is wanted.
    pub(super) fn wanted_share(&self, size: PageSize) -> f64 {
        self.wanted(None, size.log2()) / size.base_pages() as f64
    }

    /// The size that pages should have, if it is another one, and why. `returns`: the share of base pages that come back soon after they
    /// have left.
    pub(super) fn judge(
        &self,
        prior: Option<&Self>,
        size: PageSize,
        (least, most): (PageSize, PageSize),
        costs: Costs,
        returns: f64,
    ) -> Option<(PageSize, SizeReason)> {
        let cost = |size: PageSize, wanted: f64| {
            let n = size.base_pages() as f64;
            let worth = wanted - (n - wanted) * returns;
            // Waste that costs more than the page is worth: as bad as can be, and worse the larger the page is.
            costs.of(n) / worth.max(0.02)
        };
        let here = self.wanted(prior, size.log2());
        let now = cost(size, here);
        let mut best = (size, now, here);
        // What is larger than allowed by now shrinks, whatever it is worth.
        let floor = if size > most { Some(most) } else { None };
        if self.probes() + prior.map_or(0.0, Self::probes) >= SHRINK_MIN {
            for smaller in (least.log2()..size.log2()).map(PageSize::from_log2) {
                let wanted = self.wanted(prior, smaller.log2());
                let cost = cost(smaller, wanted);
                if cost < best.1 {
                    best = (smaller, cost, wanted);
                }
            }
        }
        if size < most && self.buddies.total >= GROW_MIN {
            // Chance alone must not make a page grow.
            let share = self.buddies.with_prior(0.0, GROW_DOUBT);
            let larger = size.doubled();
            let wanted = here * (1.0 + share);
            let cost = cost(larger, wanted);
            if cost < best.1 {
                best = (larger, cost, wanted);
            }
        }
        if let Some(most) = floor.filter(|&most| best.0 > most) {
            let wanted = self.wanted(prior, most.log2());
            best = (most, cost(most, wanted), wanted);
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
