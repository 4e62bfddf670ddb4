//! How large a page is (aapc-2012): fixed, or found while the program runs.
//!
//! A size is asked for at each fault, and hangs on the page that the fault brings. So pages of several sizes stand side by side in one
//! extent, and a size changes without anything being moved: what is local stays in the pages that it came in, and a larger page that is
//! brought around smaller ones ("an example of a transitional fragmented page", figure 4b) fetches only what is missing.

mod aapc;
mod adaptive;
mod fixed;

pub use aapc::Aapc;
pub use adaptive::Adaptive;
pub use fixed::Fixed;

use crate::borrower::SpaceKey;
use crate::units::{BasePages, Duration, EXTENT_BASE_PAGES, Instant};
use alloc::collections::VecDeque;
use core::fmt;

/// The size of a page: a power of two of base pages, from one to an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageSize(u8);

impl PageSize {
    /// A base page.
    pub const SMALLEST: Self = Self(0);
    /// An extent.
    pub const LARGEST: Self = Self(EXTENT_BASE_PAGES.trailing_zeros() as u8);
    /// How many sizes there are.
    pub const COUNT: usize = Self::LARGEST.0 as usize + 1;

    /// The size of so many base pages; `None` if that is no power of two from one to an extent.
    pub const fn new(pages: BasePages) -> Option<Self> {
        if pages.0.is_power_of_two() && pages.0 <= EXTENT_BASE_PAGES as u64 {
            Some(Self(pages.0.trailing_zeros() as u8))
        } else {
            None
        }
    }

    /// The size of 2^`log2` base pages.
    ///
    /// # Panics
    /// If that is more than an extent.
    pub const fn from_log2(log2: u8) -> Self {
        assert!(log2 <= Self::LARGEST.0, "a page is no larger than an extent");
        Self(log2)
    }

    /// The power of two.
    pub const fn log2(self) -> u8 {
        self.0
    }

    /// In base pages.
    pub const fn base_pages(self) -> u64 {
        1 << self.0
    }

    /// The first base page of the page of this size that has `base`.
    pub const fn first(self, base: u64) -> u64 {
        base & !(self.base_pages() - 1)
    }

    /// Twice the size, or the largest.
    #[must_use]
    pub const fn doubled(self) -> Self {
        if self.0 < Self::LARGEST.0 { Self(self.0 + 1) } else { self }
    }

    /// Half the size, or the smallest.
    #[must_use]
    pub const fn halved(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// All of them, the smallest first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        BasePages(self.base_pages()).bytes().fmt(f)
    }
}

/// A base page of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Whose.
    pub space: SpaceKey,
    /// The base page.
    pub base: u64,
}

/// A page that a fault brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brought {
    /// Where the fault fell.
    pub fault: Place,
    /// The page's size.
    pub size: PageSize,
    /// How much of it was missing, and is fetched.
    pub fetched: BasePages,
}

/// A page that has to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Where it begins.
    pub first: Place,
    /// What [`PageSizer::part`] said when it came.
    pub part: u8,
    /// Its size.
    pub size: PageSize,
    /// How much of it was local.
    pub pages: BasePages,
    /// The largest page around it of which three quarters or more were here when it came, brought in pages as small as it.
    pub came_with: PageSize,
    /// The same at one time at least while it was here.
    pub together: PageSize,
}

/// What became of a base page that was left out of a page on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probed {
    /// Where it is.
    pub place: Place,
    /// What [`PageSizer::part`] said when it was left out.
    pub part: u8,
    /// The size of the page that it was left out of.
    pub size: PageSize,
    /// The smallest page that would have had both it and the fault.
    pub reach: PageSize,
    /// It was wanted while the page was local.
    pub wanted: bool,
    /// How far [`PageSizer::turned_over`] has gone from when the page came first to when that was. 0 if it was not.
    pub after: BasePages,
    /// How that is known.
    pub seen: Seen,
}

/// How it is known what became of a base page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It was left out.
    LeftOut,
    /// It was left out, and has been told of before, not wanted then ([`PageSizer::aged`] answered that this counts).
    Again,
    /// It was not left out, but came as zeros ([`PageSizer::filled`]).
    Filled,
    /// It came alone ([`PageSizer::comes_alone`]), and is told of by whether another one of its page was wanted.
    Alone,
    /// It stayed in its victim buffer when another base page of its page was rescued ([`PageSizer::rescued`]).
    Rescued,
}

/// What became of a base page while its page was local.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// It came as zeros, and has been written.
    Written,
    /// It came as zeros, and still is.
    Unwritten,
    /// It came with contents, and they have changed.
    Rewritten,
    /// It came with contents that are the same, or has not left.
    Other,
}

impl Fill {
    /// It came as zeros.
    pub const fn is_of_zeros(self) -> bool {
        matches!(self, Self::Written | Self::Unwritten)
    }
}

/// A page has left that had come as zeros, at least in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled<'a> {
    /// Whose.
    pub space: SpaceKey,
    /// What [`PageSizer::part`] said when it came.
    pub part: u8,
    /// Its size.
    pub size: PageSize,
    /// Its base pages that were local, in order.
    pub bases: &'a [(u64, Fill)],
}

/// Decides how large pages are. The part of the program that runs ([`Self::part_begins`]) is 0 until a first one is named.
pub trait PageSizer: fmt::Debug + Send {
    /// The size of the page that a fault here brings.
    fn size(&mut self, at: Place) -> PageSize;

    /// The size of the page of zeros that a fault in fresh memory brings.
    fn fresh_size(&mut self, at: Place) -> PageSize {
        self.size(at)
    }

    /// How much of a page of `size` a fault brings back whose own base page is still in a victim buffer: no more than that.
    fn rescue_size(&mut self, at: Place, size: PageSize) -> PageSize {
        let _ = at;
        size
    }

    /// A fault is answered from a victim buffer, with a page of `size` where pages are as large as `most`. Answered with another base page of the larger one that is to
    /// stay in its buffer, to see whether it is wanted ([`Self::watched`]).
    fn rescued(&mut self, at: Place, size: PageSize, most: PageSize) -> Option<u64> {
        let _ = (at, size, most);
        None
    }

    /// What became of that base page: a thread has waited for it while what was rescued was local, or not.
    fn watched(&mut self, probe: &Probed) {
        let _ = probe;
    }

    /// The first fault of a page of `size` of which nothing is here, and to which no stream comes: does its base page come alone? (A second fault brings the rest.)
    fn comes_alone(&mut self, at: Place, size: PageSize) -> bool {
        let _ = (at, size);
        false
    }

    /// What became of a page whose first base page came alone: another one was wanted, or that left before.
    fn alone(&mut self, probe: &Probed) {
        let _ = probe;
    }

    /// The largest size that it gives now: what memory is held ready for.
    fn largest(&self) -> PageSize;

    /// A fault brings a page. Answered with a base page of it that is to be left out, to see whether it is wanted: not the fault's.
    fn brought(&mut self, now: Instant, page: &Brought) -> Option<u64> {
        let _ = (now, page);
        None
    }

    /// So many base pages are fetched that no fault has asked for yet.
    fn fetched_ahead(&mut self, pages: BasePages) {
        let _ = pages;
    }

    /// How many base pages have left by now that somebody is believed to have wanted: the time by which turns of local memory are counted.
    fn turned_over(&self) -> BasePages {
        BasePages(0)
    }

    /// It wants to hear of pages that leave ([`Self::left`], [`Self::filled`]): what is together with each has to be kept for that, at each fault.
    fn watches_pages(&self) -> bool {
        false
    }

    /// A page leaves.
    fn left(&mut self, now: Instant, page: &Left) {
        let _ = (now, page);
    }

    /// What became of a base page that was left out.
    fn probed(&mut self, now: Instant, probe: &Probed) {
        let _ = (now, probe);
    }

    /// So far a base page that was left out is wanted, or not, after an eighth of a turn of local memory. Answered with whether it counts that it is not:
    /// [`Self::probed`] says so again, if it comes to that, when the page has left.
    fn aged(&mut self, now: Instant, probe: &Probed) -> bool {
        let _ = (now, probe);
        false
    }

    /// What became of the zeros of a page that has left: what that tells ([`Self::probed`]), unless the page comes back at once.
    fn filled(&mut self, page: &Filled<'_>) -> Option<Probed> {
        let _ = page;
        None
    }

    /// So many base pages may be local.
    fn limited(&mut self, limit: BasePages) {
        let _ = limit;
    }

    /// A thread waited so long for the base page that it touched, which a lender or the disk had.
    fn waited(&mut self, wait: Duration) {
        let _ = wait;
    }

    /// So many base pages that were asked for together came within this time of each other. Not told of a page's second base page where that comes as late as
    /// it is asked for, behind the first: so never of pages of two there.
    fn streamed(&mut self, pages: BasePages, span: Duration) {
        let _ = (pages, span);
    }

    /// By now the program has run for so long in its own code, all of its threads together.
    fn progressed(&mut self, now: Instant, ran: Duration) {
        let _ = (now, ran);
    }

    /// A number for the part that runs, where parts are told apart: what is seen of a page later is told with that of the part that
    /// brought it.
    fn part(&self) -> u8 {
        0
    }

    /// A part of the program begins.
    fn part_begins(&mut self, now: Instant, part: u32) {
        let _ = (now, part);
    }

    /// A change of size that nobody has been told of, oldest first.
    fn poll_change(&mut self) -> Option<SizeChange> {
        None
    }
}

/// Changes that nobody has been told of, the latest of them.
#[derive(Debug, Default)]
struct Changes(VecDeque<SizeChange>);

impl Changes {
    const MOST: usize = 1024;

    fn push(&mut self, change: SizeChange) {
        if self.0.len() >= Self::MOST {
            self.0.pop_front();
        }
        self.0.push_back(change);
    }

    fn pop(&mut self) -> Option<SizeChange> {
        self.0.pop_front()
    }
}

/// A size has changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeChange {
    /// When.
    pub at: Instant,
    /// In which part of the program.
    pub part: u32,
    /// Where.
    pub scope: Scope,
    /// What it was.
    pub from: PageSize,
    /// What it is.
    pub to: PageSize,
    /// Why.
    pub reason: SizeReason,
}

/// Where a size holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everywhere.
    All,
    /// In so many base pages from there on.
    Range(Place, BasePages),
}

/// Why a size has changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SizeReason {
    /// The part has swapped in more pages than local memory has room for (aapc-2012, section II.B, criterion 1).
    Thrashing {
        /// Pages that it has swapped in, each counted once.
        working_set: u64,
        /// Pages that are local at most.
        local: u64,
    },
    /// It has not (criterion 2).
    Fits {
        /// Pages that it has swapped in, each counted once.
        working_set: u64,
        /// Pages that are local at most.
        local: u64,
    },
    /// A useful base page is expected to cost less this way.
    Cheaper {
        /// What it cost, in nanoseconds.
        was_ns: u64,
        /// What it is expected to cost.
        is_ns: u64,
        /// Base pages of a page that are wanted, in hundredths of the page, at the new size.
        wanted_percent: u32,
    },
    /// The program hardly ran, and so all sizes were tried together; or it runs again.
    Progress {
        /// Thousandths of a processor that it ran before.
        was_permille: u32,
        /// And runs now.
        is_permille: u32,
    },
}

impl fmt::Display for SizeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thrashing { working_set, local } => {
                write!(f, "{working_set} pages were swapped in, and {local} fit: they push each other out")
            }
            Self::Fits { working_set, local } => {
                write!(
                    f,
                    "{working_set} pages were swapped in, and {local} fit: fewer, larger fetches cost less"
                )
            }
            Self::Cheaper { was_ns, is_ns, wanted_percent } => write!(
                f,
                "{wanted_percent}% of a page is wanted while it is here: {}.{} us for 4 KiB instead of {}.{}",
                is_ns / 1000,
                is_ns / 100 % 10,
                was_ns / 1000,
                was_ns / 100 % 10
            ),
            Self::Progress { was_permille, is_permille } => write!(
                f,
                "the program runs {}.{}% of the time instead of {}.{}%",
                is_permille / 10,
                is_permille % 10,
                was_permille / 10,
                was_permille % 10
            ),
        }
    }
}
