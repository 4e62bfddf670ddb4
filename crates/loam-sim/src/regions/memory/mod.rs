//! What a program's touches cost: in local memory, in remote memory, and over remote swap.
//!
//! One pass gives all three. The processor's cache is the same in each, since remote ranges are write-back (section IV); only what misses in it goes to a memory.
//! Local memory answers eight loads at a time where a touch spans several lines, remote memory one.

mod cache;
mod swap;

pub use cache::Cache;
pub use swap::{LINE_BYTES, PAGE_BYTES, Swap};

use loam_core::units::Duration;

/// What the three memories take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A load from local memory.
    pub local: Duration,
    /// Loads that local memory answers at a time.
    pub local_loads: u64,
    /// A load from remote memory.
    pub remote: Duration,
    /// What a line that is written back keeps the client's controller from the load behind it. (It is posted: nobody waits for an answer.)
    pub posted: Duration,
    /// A page over remote swap.
    pub swap: Duration,
    /// What a dirty page that leaves keeps the link from the page that comes.
    pub swap_out: Duration,
}

/// The program so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Computing, the same in each memory.
    pub compute_ns: f64,
    /// Lines that the cache did not have: A_total.
    pub accesses: u64,
    /// Lines that were written back.
    pub written: u64,
    /// Waiting for local memory.
    pub local_ns: f64,
    /// For remote memory.
    pub remote_ns: f64,
    /// For local memory and remote swap.
    pub swap_ns: f64,
    /// Pages that were fetched over remote swap.
    pub faults: u64,
}

impl Spent {
    /// Accesses to a page from its arrival to its leaving: A_page.
    pub fn accesses_per_page(&self) -> f64 {
        self.accesses as f64 / self.faults.max(1) as f64
    }

    /// Equation 1, without computing, in ns.
    pub fn equation_1(&self, times: &Times) -> f64 {
        let pages = if self.faults == 0 { 0.0 } else { self.accesses as f64 / self.accesses_per_page() };
        self.accesses as f64 * times.local.0 as f64 + pages * times.swap.0 as f64
    }

    /// Equation 2, without computing, in ns.
    pub fn equation_2(&self, times: &Times) -> f64 {
        self.accesses as f64 * times.remote.0 as f64
    }
}

/// Cache and memories of the node that runs the program.
#[derive(Debug)]
pub struct Memory {
    times: Times,
    cache: Cache,
    swap: Swap,
    spent: Spent,
}

impl Memory {
    /// Memories with nothing of the program in them; so many local page frames under remote swap.
    pub fn new(times: Times, cache_bytes: u64, frames: usize) -> Self {
        Self { times, cache: Cache::new(cache_bytes), swap: Swap::new(frames), spent: Spent::default() }
    }

    /// What sets the program up has written so many bytes from address 0, in order: what fits last is in local memory.
    pub fn set_up(&mut self, bytes: u64) {
        for page in 0..bytes.div_ceil(PAGE_BYTES) {
            self.swap.touch(page, true);
        }
    }

    /// What was spent so far is forgotten; what is where, not.
    pub fn begin(&mut self) {
        self.spent = Spent::default();
    }

    /// The program reads or writes a range.
    #[inline]
    pub fn touch(&mut self, address: u64, bytes: u64, write: bool) {
        let (first, last) = (address / LINE_BYTES, (address + bytes.max(1) - 1) / LINE_BYTES);
        let mut missed = 0_u64;
        for line in first..=last {
            let outcome = self.cache.touch(line, write);
            if outcome.written_back {
                self.spent.written += 1;
                self.spent.remote_ns += self.times.posted.0 as f64;
            }
            if outcome.miss {
                missed += 1;
                self.miss(line, write);
            } else if write {
                self.swap.written(line * LINE_BYTES / PAGE_BYTES);
            }
        }
        if missed > 0 {
            let local = missed.div_ceil(self.times.local_loads) * self.times.local.0;
            self.spent.local_ns += local as f64;
            self.spent.swap_ns += local as f64;
        }
    }

    /// The program computes.
    #[inline]
    pub fn compute(&mut self, ns: f64) {
        self.spent.compute_ns += ns;
    }

    /// What it came to since it began.
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// What memory takes.
    pub fn times(&self) -> &Times {
        &self.times
    }

    fn miss(&mut self, line: u64, write: bool) {
        self.spent.accesses += 1;
        self.spent.remote_ns += self.times.remote.0 as f64;
        let paged = self.swap.touch(line * LINE_BYTES / PAGE_BYTES, write);
        if paged.fetched {
            self.spent.faults += 1;
            self.spent.swap_ns += self.times.swap.0 as f64;
        }
        if paged.sent {
            self.spent.swap_ns += self.times.swap_out.0 as f64;
        }
    }
}
