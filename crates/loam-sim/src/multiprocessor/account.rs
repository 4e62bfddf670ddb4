//! Where each processor's time went (figures 3 and 4), and what else a run came to.

use loam_core::units::{Duration, Instant};

/// Parts of a processor's time, from top to bottom of the paper's bars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// It faulted, and its node had no free frame.
    NoFree,
    /// It waited for another node to finish bringing a page into memory.
    Transit,
    /// It waited for a page that it had asked for itself.
    Fault,
    /// TLB misses and shootdowns.
    Tlb,
    /// Everything else: work, cache misses, barriers.
    Others,
}

impl Part {
    /// All of them, in the paper's order.
    pub const ALL: [Self; 5] = [Self::NoFree, Self::Transit, Self::Fault, Self::Tlb, Self::Others];

    /// The paper's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoFree => "NoFree",
            Self::Transit => "Transit",
            Self::Fault => "Fault",
            Self::Tlb => "TLB",
            Self::Others => "Others",
        }
    }
}

/// A processor's time by parts: without a gap from the beginning to [`Account::until`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    parts: [u64; 5],
    /// Up to here everything is accounted for.
    pub until: Instant,
}

impl Account {
    /// The time up to `to` went there.
    ///
    /// # Panics
    /// If that was accounted for already.
    pub fn pass(&mut self, to: Instant, part: Part) {
        assert!(to >= self.until, "{to:?} was accounted for: {:?}", self.until);
        self.parts[part as usize] += (to - self.until).0;
        self.until = to;
    }

    /// What went there.
    pub fn part(&self, part: Part) -> Duration {
        Duration(self.parts[part as usize])
    }

    /// All of it.
    pub fn total(&self) -> Duration {
        Duration(self.parts.iter().sum())
    }
}

/// A sum of times, and of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mean {
    /// All together.
    pub sum: Duration,
    /// How many.
    pub count: u64,
}

impl Mean {
    /// One more.
    pub fn add(&mut self, time: Duration) {
        self.sum.0 += time.0;
        self.count += 1;
    }

    /// The mean in nanoseconds; 0 of none.
    pub fn ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum.0 as f64 / self.count as f64 }
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// From the beginning to the last barrier.
    pub run: Duration,
    /// Each processor's time; each is the run's.
    pub processors: Vec<Account>,
    /// From the decision that a dirty page leaves until its frame is free.
    pub swap_outs: Mean,
    /// From a fault that has a frame to its page, where the disk's cache had it.
    pub cache_hits: Mean,
    /// The same, where the disk was reading the page ahead.
    pub read_ahead: Mean,
    /// The same, where the disk's arm had to go for it.
    pub disk_reads: Mean,
    /// The same, where it was on the ring.
    pub ring_hits: Mean,
    /// The same, of all pages that were asked for.
    pub reads: Mean,
    /// Writes to disks, and pages in them.
    pub disk_writes: u64,
    /// See above.
    pub pages_written: u64,
    /// NACKs.
    pub refused: u64,
    /// Pages taken back before their controller had asked for them again.
    pub reclaimed: u64,
    /// Frames that were freed without a swap-out.
    pub clean: u64,
    /// TLB misses.
    pub tlb_misses: u64,
    /// Cache lines that were asked for.
    pub lines: u64,
    /// Touches of the program.
    pub touches: u64,
    /// Messages, pages and lines waited so long for network, memory buses and I/O buses.
    pub waited: [Duration; 3],
}

impl Outcome {
    /// Swap-outs in a disk write, on average.
    pub fn combined(&self) -> f64 {
        if self.disk_writes == 0 { 0.0 } else { self.pages_written as f64 / self.disk_writes as f64 }
    }

    /// Which part of page reads came from the ring.
    pub fn ring_share(&self) -> f64 {
        if self.reads.count == 0 { 0.0 } else { self.ring_hits.count as f64 / self.reads.count as f64 }
    }

    /// Which part of page reads the disks' caches had.
    pub fn cache_share(&self) -> f64 {
        if self.reads.count == 0 { 0.0 } else { self.cache_hits.count as f64 / self.reads.count as f64 }
    }

    /// The mean of the processors' time in a part, in nanoseconds.
    pub fn part_ns(&self, part: Part) -> f64 {
        let sum: u64 = self.processors.iter().map(|account| account.part(part).0).sum();
        sum as f64 / self.processors.len().max(1) as f64
    }

    /// By how much less time it took than another run, as a share of that.
    pub fn gain_over(&self, other: &Self) -> f64 {
        1.0 - self.run.0 as f64 / other.run.0.max(1) as f64
    }
}
