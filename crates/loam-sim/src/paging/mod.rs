//! A kernel whose memory is paged: which size of page is best (aapc-2012), on a described path.
//!
//! The same `Borrower` as live is driven, with base pages of 4 KiB and pages of one size or of many. One lender has room for
//! everything; the path to it is a line of three: the link (with its latency), the borrower's agent, which installs and takes away, and the
//! program, which waits. Each of them does one thing after the other, and they overlap.

mod driver;

use loam_core::page_size::{PageSize, SizeChange};
use loam_core::units::BasePages;
use std::collections::BTreeMap;

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
    /// A page is in the program's way until the agent has it: taken and put cost the link too.
    pub puts_share_link: bool,
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
}

/// What came of it; times are of the simulated machine.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The whole, and what the program computed of that.
    pub wall_ns: u64,
    /// See above.
    pub exec_ns: u64,
    /// By part: the same two, and faults. Part 0 is setting up.
    pub parts: BTreeMap<u32, PartTimes>,
    /// Faults that waited for a lender.
    pub faults: u64,
    /// Base pages that came, and that left with new contents.
    pub fetched: u64,
    /// See above.
    pub put: u64,
    /// Each change of size.
    pub changes: Vec<SizeChange>,
}

/// Of one part, over all its turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartTimes {
    /// The whole.
    pub wall_ns: u64,
    /// What the program computed of it.
    pub exec_ns: u64,
    /// Faults that waited for a lender.
    pub faults: u64,
}

impl Outcome {
    /// How often the time of a machine with enough memory it took, without setting up.
    pub fn relative_time(&self) -> f64 {
        let of = |time: fn(&PartTimes) -> u64| {
            self.parts.iter().filter(|(part, _)| **part > 0).map(|(_, p)| time(p)).sum::<u64>()
        };
        of(|p| p.wall_ns) as f64 / of(|p| p.exec_ns).max(1) as f64
    }
}

pub use driver::run;
