//! What an epoch is, and how the initiator chooses it (gms-1995, section 3.2).
//!
//! ```text
//! summaries of all nodes ──► M oldest pages of the cluster ──► MinAge: the age of the youngest of them
//!                                                          ──► w_i: how many of them node i has
//! ```
//!
//! The paper names what T and M are chosen from, not how: "(1) the distribution of global page ages, (2) the expected rate at which pages
//! will be discarded from the cluster, and (3) the rate at which the distributed age information is expected to become inaccurate". Ours:
//! - T is the longest, if half of the old pages are more than what would be replaced in it at twice the expected rate; shorter as they fall short
//!   of that, and so short that local growth consumes at most half of them.
//! - M is what would be replaced in T at twice the expected rate, and at most half of the old pages. (Counted for the longest T, M takes in
//!   pages that will not be replaced before the next epoch; and who evicts one as old as these discards it although there is room.)
//! - Hardly any old pages: MinAge is 0, and nothing is forwarded.

use super::ages::{AGE_BUCKETS, AgeSummary, age_min};
use crate::ids::NodeId;
use crate::units::Duration;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Orders epochs: by number, then by who began it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochId {
    /// Grows with each epoch.
    pub number: u64,
    /// Who gathered the summaries for it.
    pub initiator: NodeId,
}

/// How fast pages are replaced, smoothed over the last epochs; handed on from initiator to initiator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Pages replaced a second, in the whole cluster, in thousandths.
    pub replaced_milli: u64,
    /// Old pages that nodes took into their own use a second, in thousandths.
    pub consumed_milli: u64,
}

/// One epoch, as the initiator distributes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// Which one.
    pub id: EpochId,
    /// T: how long it lasts at most.
    pub duration: Duration,
    /// M: how many pages may be replaced in it.
    pub replacements: u64,
    /// A page older than this has no place in global memory. 0: nothing is forwarded.
    pub min_age: Duration,
    /// How many of the M oldest pages each node has; only nodes that have some, ascending.
    pub weights: Vec<(NodeId, u32)>,
    /// Who begins the next epoch: the node with the largest weight.
    pub next_initiator: NodeId,
    /// For the next initiator.
    pub rates: Rates,
}

impl Epoch {
    /// The weight of a node.
    pub fn weight(&self, node: NodeId) -> u32 {
        match self.weights.binary_search_by_key(&node, |&(of, _)| of) {
            Ok(at) => self.weights[at].1,
            Err(_) => 0,
        }
    }
}

/// What the choice of an epoch may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochLimits {
    /// The shortest epoch.
    pub duration_min: Duration,
    /// The longest epoch; "currently, each epoch is on the order of 5-10 seconds".
    pub duration_max: Duration,
    /// A page that its own node did not use for so long is old; see [`AgeSummary`].
    pub old_age: Duration,
    /// The least M, as a part of all frames: 1 of so many. Without it the first burst after a quiet time would end its epoch at once.
    pub replacements_min_part: u64,
    /// With less idle memory than this part of all frames (1 of so many) nothing is forwarded (section 6: "if the idle memory drops below a
    /// certain point, the use of global memory management should be abandoned until it returns").
    pub idle_min_part: u64,
    /// Spare nodes whose processors are busier than others' (section 6): a weight is multiplied with the idle part of the processors, compared with the
    /// idlest node's. Where all are as busy as each other nobody is spared, and where memory is decides alone.
    pub cpu_counts: bool,
}

impl Default for EpochLimits {
    fn default() -> Self {
        Self {
            duration_min: Duration::from_millis(1_000),
            duration_max: Duration::from_millis(10_000),
            old_age: Duration::from_millis(5_000),
            replacements_min_part: 128,
            idle_min_part: 1_024,
            cpu_counts: true,
        }
    }
}

const REPLACEMENTS_MIN_PER_NODE: u64 = 8;
const SECOND_NS: u128 = 1_000_000_000;
/// Of a new rate and the smoothed one before it, each counts half.
const RATE_SHARES: u64 = 2;

fn rate_milli(pages: u64, over: Duration, before: u64) -> u64 {
    if over.0 == 0 {
        return before;
    }
    let now =
        (u128::from(pages) * 1_000 * SECOND_NS / u128::from(over.0)).min(u128::from(u64::MAX / 4)) as u64;
    // Another node told it: it may be anything.
    let before = before.min(u64::MAX / 4);
    // A rate that rises counts at once: too small an M ends the next epoch early.
    if now > before { now } else { (now + before * (RATE_SHARES - 1)) / RATE_SHARES }
}

fn pages_in(rate_milli: u64, span: Duration) -> u64 {
    (u128::from(rate_milli) * u128::from(span.0) / 1_000 / SECOND_NS).min(u128::from(u64::MAX / 4)) as u64
}

impl EpochLimits {
    /// The epoch that follows on `last`, which has gone on for `elapsed`, from the summaries of the nodes.
    ///
    /// # Panics
    /// Without summaries.
    pub fn next(
        &self,
        id: EpochId,
        last: &Epoch,
        elapsed: Duration,
        summaries: &BTreeMap<NodeId, AgeSummary>,
    ) -> Epoch {
        assert!(!summaries.is_empty(), "an epoch is chosen from at least one summary");
        let sum = |of: fn(&AgeSummary) -> u32| summaries.values().map(|summary| u64::from(of(summary))).sum();
        let rates = Rates {
            replaced_milli: rate_milli(sum(|summary| summary.replaced), elapsed, last.rates.replaced_milli),
            consumed_milli: rate_milli(sum(|summary| summary.consumed), elapsed, last.rates.consumed_milli),
        };
        let frames: u64 = summaries.values().map(AgeSummary::total).sum();
        let old: u64 = summaries.values().map(AgeSummary::idle).sum();
        let demand = (2 * pages_in(rates.replaced_milli, self.duration_max))
            .max(frames / self.replacements_min_part)
            .max(summaries.len() as u64 * REPLACEMENTS_MIN_PER_NODE);
        // Not all of them: MinAge would be that of the youngest, and a page just evicted is hardly younger.
        let wanted = demand.min(old.div_ceil(2));
        // Never by the rate: what is discarded because nothing is forwarded would keep it so.
        let too_few = old == 0 || old < frames / self.idle_min_part;
        let lowest = *summaries.keys().next().expect("there is a summary");
        let mut epoch =
            Epoch { id, duration: self.duration_min, next_initiator: lowest, rates, ..Epoch::default() };
        if too_few {
            return epoch;
        }
        epoch.duration = self.duration(wanted, demand, rates);
        // What drift makes shorter replaces less.
        let least =
            (frames / self.replacements_min_part).max(summaries.len() as u64 * REPLACEMENTS_MIN_PER_NODE);
        let wanted = wanted.min((2 * pages_in(rates.replaced_milli, epoch.duration)).max(least));
        epoch.replacements = wanted;
        let (boundary, part, of) = boundary(summaries, wanted);
        epoch.min_age = age_at(boundary, part, of);
        let mut before = 0;
        let idlest = summaries.values().map(cpu_idle).max().expect("there is a summary");
        for (&node, summary) in summaries {
            let counts = summary.counts();
            let older: u64 = counts[boundary + 1..].iter().map(|&count| u64::from(count)).sum();
            // Rounded so that all nodes together have exactly `part`.
            let here = u64::from(counts[boundary]);
            let inside = share(before + here, part, of) - share(before, part, of);
            before += here;
            let weight = self.spared(older + inside, cpu_idle(summary), idlest);
            if weight > 0 {
                epoch.weights.push((node, u32::try_from(weight).unwrap_or(u32::MAX)));
            }
        }
        let heaviest = epoch.weights.iter().max_by_key(|&&(node, weight)| (weight, core::cmp::Reverse(node)));
        epoch.next_initiator = heaviest.map_or(lowest, |&(node, _)| node);
        epoch
    }

    fn duration(&self, wanted: u64, demand: u64, rates: Rates) -> Duration {
        let by_supply = (u128::from(self.duration_max.0) * u128::from(wanted) / u128::from(demand)) as u64;
        let by_drift = match rates.consumed_milli {
            0 => u64::MAX,
            rate => (u128::from(wanted) * 1_000 * SECOND_NS / 2 / u128::from(rate)).min(u128::from(u64::MAX))
                as u64,
        };
        Duration(by_supply.min(by_drift).clamp(self.duration_min.0, self.duration_max.0))
    }

    fn spared(&self, weight: u64, cpu_idle: u64, idlest: u64) -> u64 {
        if !self.cpu_counts || weight == 0 {
            return weight;
        }
        // Never to nothing: memory that nobody else has is worth a slow answer.
        (weight * cpu_idle / idlest).max(1)
    }
}

/// `part` of `of` of the pages. (A product of two counts of pages of a large cluster is more than 64 bits.)
fn share(pages: u64, part: u64, of: u64) -> u64 {
    (u128::from(pages) * u128::from(part) / u128::from(of)) as u64
}

/// How idle a node's processors are, in thousandths, and a little more: nodes that are all busy differ by chance only.
fn cpu_idle(summary: &AgeSummary) -> u64 {
    100 + u64::from(1_000 - summary.cpu_busy_permille.min(1_000))
}

/// The bucket in which the `wanted` oldest pages end, and which part of its pages belongs to them: `part` of `of`.
fn boundary(summaries: &BTreeMap<NodeId, AgeSummary>, wanted: u64) -> (usize, u64, u64) {
    let mut older = 0;
    for bucket in (1..AGE_BUCKETS).rev() {
        let here: u64 = summaries.values().map(|summary| u64::from(summary.counts()[bucket])).sum();
        if older + here >= wanted && here > 0 {
            return (bucket, wanted - older, here);
        }
        older += here;
    }
    unreachable!("no more is wanted than there is")
}

/// The age above which `part` of the `of` pages of a bucket are, if they are spread evenly over it.
fn age_at(bucket: usize, part: u64, of: u64) -> Duration {
    let from = age_min(bucket);
    if bucket + 1 >= AGE_BUCKETS {
        return from;
    }
    let to = age_min(bucket + 1);
    if to.0 == u64::MAX {
        return from;
    }
    let below = u128::from(to.0 - from.0) * u128::from(of - part) / u128::from(of);
    Duration(from.0 + below as u64)
}
