//! The curve itself.

/// From this size on there are so many misses, up to the next step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Page frames.
    pub pages: u64,
    /// Misses; a whole number unless sampled.
    pub misses: f64,
}

/// Misses under LRU for every number of page frames.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    references: u64,
    sampled: u64,
    steps: Vec<Step>,
}

impl Curve {
    /// Of counts of hits by stack distance, in ascending order of distance. A page that was used at distance d hits with more than d
    /// frames.
    pub(super) fn new(
        references: u64,
        sampled: u64,
        first_uses: f64,
        hits: impl DoubleEndedIterator<Item = (u64, f64)>,
    ) -> Self {
        let mut misses = first_uses;
        let mut steps = Vec::new();
        // From the largest size, where only first uses miss, down.
        for (distance, count) in hits.rev().filter(|&(_, count)| count > 0.0) {
            // A sample may hold more than its share of the references.
            steps.push(Step { pages: distance + 1, misses: misses.min(references as f64) });
            misses += count;
        }
        steps.push(Step { pages: 0, misses: references as f64 });
        steps.reverse();
        Self { references, sampled, steps }
    }

    /// References that it tells of.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// References whose stack distance was computed: repeats are not among them, and when sampled most are not.
    pub fn sampled(&self) -> u64 {
        self.sampled
    }

    /// Where misses become fewer, in ascending order of size.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Misses with so many page frames.
    pub fn misses(&self, pages: u64) -> f64 {
        let after = self.steps.partition_point(|step| step.pages <= pages);
        self.steps[after - 1].misses
    }

    /// Misses with memory for everything: each page's first use.
    pub fn first_uses(&self) -> f64 {
        self.steps[self.steps.len() - 1].misses
    }

    /// The smallest number of page frames from which on more memory saves nothing.
    pub fn footprint(&self) -> u64 {
        self.steps[self.steps.len() - 1].pages
    }

    /// The smallest number of page frames with which a page comes back once on average, or less often: misses are at most twice the
    /// first uses. Below it the same pages go and come all the time. This is the answer to "how much memory does it need?": it has no
    /// parameter, and does not depend on how long the trace is as long as it shows what the program does.
    pub fn need(&self) -> u64 {
        let most = 2.0 * self.first_uses();
        let at = self.steps.partition_point(|step| step.misses > most);
        self.steps[at].pages
    }
}
