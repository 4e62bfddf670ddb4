//! A kernel whose memory is paged: which size of page is best (aapc-2012), on a described path.
//!
//! The same `Borrower` as live is driven, with base pages of 4 KiB and pages of one size or of many. One lender has room for
//! everything; the path to it is a line of three: the link (with its latency), the borrower's agent, which installs and takes away, and the
//! program, which waits. Each of them does one thing after the other, and they overlap.

mod driver;
#[cfg(test)]
mod tests;

use loam_core::page_size::{PageSize, SizeChange};
use loam_core::units::{BasePages, Duration};

/// What the path costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// From the fault to the request's arrival at the lender and of the answer's first byte back, without the link's own time.
    pub latency_ns: u64,
    /// The link's time for a byte.
    pub ps_per_byte: u64,
    /// Bytes of each message beside its pages.
    pub message_bytes: u64,
    /// The agent's time for a message that comes, for each base page that it installs and for each that it takes away.
    pub message_ns: u64,
    /// See above.
    pub install_ns: u64,
    /// See above.
    pub evict_ns: u64,
    /// The agent does the link's work too, one thing after the other, as a library in the program does that sends and receives by itself. Else
    /// the link carries both ways at a time, beside the agent.
    pub serial: bool,
}

/// How pages are sized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizing {
    /// All alike.
    Fixed(PageSize),
    /// aapc-2012's.
    Aapc {
        /// The smallest.
        basic: PageSize,
        /// The first.
        start: PageSize,
        /// The largest.
        most: PageSize,
    },
    /// Loam's own.
    Auto {
        /// The smallest.
        least: PageSize,
        /// The first.
        start: PageSize,
        /// The largest.
        most: PageSize,
    },
}

/// What a run is to be like.
#[derive(Clone, Debug)]
pub struct Config {
    /// The path.
    pub path: Path,
    /// Base pages that may be local.
    pub local: BasePages,
    /// The sizes.
    pub sizing: Sizing,
    /// By its name ([`loam_core::borrower::fetch_planner`]).
    pub fetch_plan: &'static str,
    /// Fetch ahead, at most so much.
    pub prefetch: Option<BasePages>,
    /// By its name ([`loam_core::replacement::by_name`]).
    pub replacement: &'static str,
    /// The parts' marks are heeded.
    pub parts: bool,
    /// Each turn of a part is so many stretches of equal processor time for the policy that sizes pages, which hears the part's mark at the
    /// beginning of each (with [`Self::parts`]).
    pub periods: u32,
    /// What has left may be had back from its buffer while it is there.
    pub rescue: bool,
    /// The agent's page buffers are taken off local memory, as live.
    pub buffers_are_local: bool,
    /// Setting up is replayed as one write to each base page, in the order of first touches: all data are there, and it takes less time.
    pub set_up_once: bool,
    /// So many iterations are replayed, if there are as many.
    pub iterations_max: u32,
    /// A run of which one iteration takes longer than this is ended.
    pub stop_after: Option<Duration>,
}

/// What came of it; times are of the simulated machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The whole, and what the program computed of that.
    pub wall_ns: u64,
    /// See above.
    pub exec_ns: u64,
    /// What each part did each time, in order. Part 0 is setting up.
    pub turns: Vec<Turn>,
    /// Faults that waited for a lender.
    pub faults: u64,
    /// Base pages that came, and that left with new contents.
    pub fetched: u64,
    /// See above.
    pub put: u64,
    /// References replayed.
    pub references: u64,
    /// Each change of size.
    pub changes: Vec<SizeChange>,
    /// It was ended by [`Config::stop_after`].
    pub stopped: bool,
}

/// One part, once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// In which iteration, from 1 on. 0: it was set up.
    pub iteration: u32,
    /// Which part.
    pub part: u32,
    /// The whole time.
    pub wall_ns: u64,
    /// What the program computed of it.
    pub exec_ns: u64,
    /// Faults that waited for a lender.
    pub faults: u64,
    /// Base pages that came.
    pub fetched: u64,
}

impl Outcome {
    /// The turns of iterations from `first` on.
    pub fn turns_from(&self, first: u32) -> impl Iterator<Item = &Turn> {
        self.turns.iter().filter(move |turn| turn.iteration >= first.max(1))
    }

    /// How often the time of a machine with enough memory the iterations from `first` to `last` took. None: there were none, or not to
    /// their end.
    pub fn relative_time(&self, first: u32, last: u32) -> Option<f64> {
        let turns = || self.turns_from(first).filter(|turn| turn.iteration <= last);
        let stopped_in = self.turns.last().filter(|_| self.stopped).map_or(u32::MAX, |turn| turn.iteration);
        let of = |time: fn(&Turn) -> u64| turns().map(time).sum::<u64>() as f64;
        (stopped_in > last || !self.stopped)
            .then(|| of(|turn| turn.wall_ns) / of(|turn| turn.exec_ns))
            .filter(|time| time.is_finite())
    }
}

pub use driver::{LOCAL_LEAST, replay, run};
