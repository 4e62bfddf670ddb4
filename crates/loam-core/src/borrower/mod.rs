//! The borrower: one borrowing process tree, its address spaces, and where each of their pages is.
//!
//! Processes of a tree share one budget, one replacement order and one set of copies, so the state machine is
//! the tree's and address spaces are members of it (a fork is then a reference more, not a message).
//!
//! # How a driver uses it
//! Call `handle_*` with what happened and the time, which never runs backwards. **After every call drain
//! [`Borrower::poll_effect`]** and carry the effects out in order: a buffer that one effect reads may be given to
//! the next. Come back with [`Borrower::handle_timeout`] at [`Borrower::poll_timeout`]. Page contents stay with the driver, in the
//! buffers that it owns and the core numbers.
//!
//! # A base page's way
//! ```text
//!            install zeros                hand takes it          stored: buffer reusable
//!   Empty ------------------> Local ---------------------> Leaving -----> Away -------------> Away
//!     ^  <------------------    ^      busy, denied: back               (buffer)            (copies)
//!     |    discarded, zeros     |                                          | rescue            | getpage, disk
//!     |                         +------------------------------------------+                   v
//!     +--- discarded                                                       +<-------------- Fetching
//! ```

mod advice;
mod audit;
mod budgets;
mod changes;
mod copies;
mod evict;
mod faults;
mod fetch_plan;
mod lenders;
mod lines;
mod marks;
mod placement;
mod plans;
mod prefetch;
mod ranking;
mod ranks;
mod recall;
mod replicas;
mod seed;
mod sequential;
mod sizes;
mod store;
mod table;
mod terms;
#[cfg(test)]
mod tests;
mod waiters;

pub use crate::replacement::{PageRef, Replacement, SecondChanceFifo};
pub use advice::Advice;
pub use audit::CopyView;
pub use copies::{BufferIndex, CopyIndex, LenderIndex, MIRRORS_MAX};
pub use evict::PageFate;
pub use faults::{Arrival, InstallOutcome};
pub use fetch_plan::{
    Eager, FETCH_PLANS, FetchPlan, FetchPlanner, Full, Lazy, Learned, PageFault, Pipelined, Step,
    fetch_planner,
};
pub use lenders::PutAnswer;
pub use marks::{Pattern, Priority};
pub use placement::{LenderChoice, LenderState, PLACEMENTS, Site, lender_choice};
pub use prefetch::{Ahead, NoPrefetch, Prefetcher, StreamSpace, StridePrefetcher, Touch};
pub use store::Source;
pub use table::{BaseRange, BaseState, SpaceKey};
pub use terms::{Terms, TooMany};

use crate::ids::{ContentHash, PutClass, Urgency, Version};
use crate::page_size::{Fixed, PageSize, PageSizer, SizeChange};
use crate::staging::Reserve;
use crate::units::{BasePages, Duration, EXTENT_BASE_PAGES, Instant};
use advice::Advised;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use budgets::Budgets;
use copies::Copies;
use evict::Batch;
use faults::{Fetch, Wait};
use marks::Marks;
use plans::Rest;
use ranking::Ranking;
use ranks::Ranks;
use sequential::Readers;

use table::{Entry, Table};
use terms::Planners;
use waiters::Waiters;

/// What the driver decides once.
#[derive(Clone, Debug)]
pub struct BorrowerConfig {
    /// Base pages of a page: a power of two from 1 to 256.
    pub page: BasePages,
    /// Page buffers that the driver has.
    pub buffers: u32,
    /// Durability `disk`: a copy is safe when the slot file has it. Else it is safe when a lender has it; what lenders want back and no
    /// other takes is written all the same ([`Effect::WriteDisk`]): the driver may then make a slot file, or say that it could not.
    pub disk: bool,
    /// Without `disk`: lenders that must have a copy before it is safe, from 1 to 4. What so many do not take is written to the slot file, if
    /// they are more than one.
    pub replicas: u8,
    /// With more than one: the first lender with a disk writes the copy there (nwcache-1999), and then that is enough.
    pub staged: bool,
    /// A getpage that is not answered by then is asked of the disk too, where the disk has it.
    pub hedge_after: Duration,
    /// A page that has left stays in its buffer, once it is safe, until the buffer is wanted: a fault finds it there.
    pub rescue: bool,
}

/// Buffers that evictions leave for reads from the disk and for the prefetcher's markers, at most; half of all where there are few.
const BUFFERS_FOR_READS_MAX: u32 = 2 * EXTENT_BASE_PAGES as u32;
/// Fewest buffers that a live borrower works well with: one full eviction and the reads' share.
pub const BUFFERS_MIN: u32 = BUFFERS_FOR_READS_MAX + 2 * EXTENT_BASE_PAGES as u32;
/// Fewest buffers that a borrower can work with at all, in pages: the simulator has so few that they run out.
pub const BUFFERS_LEAST_PAGES: u32 = 4;
/// And so many where pages are small.
pub const BUFFERS_LEAST: u32 = 16;

/// Names a batch of pages on their way out; see [`Borrower::batch_pages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// Where the contents of an install come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallSource {
    /// Zeros.
    Zero,
    /// A page buffer.
    Buffer(BufferIndex),
    /// The page that the driver just reported with this tag ([`Borrower::handle_arrival`]).
    Arrived(u32),
}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Have the hand take the batch's pages; answer with [`Borrower::handle_fate`] for each, then
    /// [`Borrower::handle_batch_done`].
    Evict(BatchId),
    /// Have the hand make these base pages the program's own (break copy-on-write sharing) without changing
    /// them. No answer.
    Populate {
        /// Whose.
        space: SpaceKey,
        /// First base page.
        base: u64,
        /// How many.
        pages: u32,
    },
    /// Put contents in place and wake who waits there; answer with [`Borrower::handle_installed`].
    Install {
        /// Whose.
        space: SpaceKey,
        /// First base page.
        base: u64,
        /// How many; more than one only for zeros.
        pages: u32,
        /// From where.
        source: InstallSource,
    },
    /// Wake who waits at these base pages: the page is there, or the mapping is gone.
    Wake {
        /// Whose.
        space: SpaceKey,
        /// First base page.
        base: u64,
        /// How many.
        pages: u32,
    },
    /// Ask a lender for a copy; answer with [`Borrower::handle_arrival`] or [`Borrower::handle_missed`].
    Get {
        /// Whom.
        lender: LenderIndex,
        /// What.
        copy: CopyIndex,
        /// Which contents.
        version: Version,
        /// In which message of the fetch plan it travels; see [`Step::message`].
        message: u32,
        /// A thread waits for it, or for the message that it is in.
        urgency: Urgency,
    },
    /// A thread waits by now for what was asked for as [`Urgency::Behind`]: move it forward where it is not sent yet. At most once for each
    /// [`Effect::Get`]. No answer of its own.
    Hurry {
        /// Whom.
        lender: LenderIndex,
        /// What.
        copy: CopyIndex,
        /// Which contents.
        version: Version,
    },
    /// Read a copy's slot into a buffer; answer with [`Borrower::handle_arrival`] or [`Borrower::handle_missed`].
    ReadDisk {
        /// What.
        copy: CopyIndex,
        /// Which contents.
        version: Version,
        /// Where to.
        buffer: BufferIndex,
    },
    /// Keep the page that just arrived with this tag in a buffer.
    Hold {
        /// See [`Borrower::handle_arrival`].
        tag: u32,
        /// Where to.
        buffer: BufferIndex,
    },
    /// Send a buffer to a lender; answer with [`Borrower::handle_put_answer`].
    Put {
        /// Whom.
        lender: LenderIndex,
        /// As what.
        copy: CopyIndex,
        /// Which contents.
        version: Version,
        /// Their hash.
        hash: ContentHash,
        /// From where.
        buffer: BufferIndex,
        /// What the lender shall do with it.
        class: PutClass,
    },
    /// Tell a lender that it may give a copy up from now on: another one has it on its disk. No answer.
    Spare {
        /// Whom.
        lender: LenderIndex,
        /// What.
        copy: CopyIndex,
        /// Which contents.
        version: Version,
    },
    /// Write a buffer to the copy's slot; answer with [`Borrower::handle_written`].
    WriteDisk {
        /// As what.
        copy: CopyIndex,
        /// From where.
        buffer: BufferIndex,
    },
    /// Tell a lender that a copy is not needed any more. No answer.
    Drop {
        /// Whom.
        lender: LenderIndex,
        /// What.
        copy: CopyIndex,
        /// Which contents.
        version: Version,
    },
    /// A thread touched a page of which no good copy is left: poison it and end the program.
    Lost {
        /// Whose.
        space: SpaceKey,
        /// The base page.
        base: u64,
    },
}

/// How a fault was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// With zeros.
    Zero,
    /// From the victim buffer.
    Rescued,
    /// From a buffer that the prefetcher had filled.
    PrefetchedHit,
    /// By a lender.
    Remote,
    /// By the disk.
    Disk,
}

/// Figures of a borrower so far; all in base pages or events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Faults read.
    pub faults: u64,
    /// Faults answered, by [`FaultKind`] in its order.
    pub answered: [u64; 5],
    /// Pages that the hand took.
    pub moved: u64,
    /// Of those unchanged.
    pub clean: u64,
    /// Of those zero.
    pub zero: u64,
    /// Pages that could not be taken.
    pub busy: u64,
    /// Pages that were sent to a lender, once for each.
    pub sent: u64,
    /// Pages that a lender has on its disk.
    pub drained: u64,
    /// Pages that lost a lender and were brought to another, or to the slot file.
    pub mended: u64,
    /// Pages that were asked for because the program had said that it will need them ([`Advice`]).
    pub advised_in: u64,
    /// Pages that were told to leave because it had said that it will not, or that it goes through them in order, and has.
    pub advised_out: u64,
    /// Time in which a thread waited for the page that it touched.
    pub first_wait: Duration,
    /// Time in which threads waited only because there was no room: for a frame, or a buffer to read into.
    pub queued_wait: Duration,
    /// Time in which threads waited only for what another fault had asked for.
    pub joined_wait: Duration,
}

/// A page of which a part is on its way or away.
#[derive(Clone, Copy, Debug)]
struct Incomplete {
    size: PageSize,
    /// The subpage that was wanted first.
    subpage: u32,
}

/// A base page that was left out of a page on purpose.
#[derive(Clone, Copy, Debug)]
struct Hole {
    base: u64,
    /// In which part of the program the page came.
    part: u8,
    size: PageSize,
    reach: PageSize,
}

#[derive(Debug)]
struct Space {
    table: Table,
    /// Its hand has come.
    has_hand: bool,
    /// No pages may be taken from it for now.
    closed: bool,
    /// No eviction begins here now.
    at_rest: bool,
    /// Forked from, or forked, a space that still lives: its frames may be shared with it.
    relatives: Vec<SpaceKey>,
    /// Pages of it may still be mapped as shared though no relative lives.
    forked: bool,
    /// Base pages that are local, leaving or being fetched, frames of its own.
    frames: u64,
    /// Base pages that are local in frames of a relative.
    shared: u64,
    /// What the program has said of its memory and holds.
    marks: Marks,
    /// Pages that could not be taken, out of the replacement order for a while.
    parked: Vec<(u64, PageSize)>,
}

impl Space {
    /// Pages can be taken from it.
    fn gives(&self) -> bool {
        self.has_hand && !self.closed
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Borrower {
    config: BorrowerConfig,
    spaces: BTreeMap<SpaceKey, Space>,
    copies: Copies,
    replacement: Box<dyn Replacement>,
    prefetcher: Box<dyn Prefetcher>,
    sizer: Box<dyn PageSizer>,
    /// No page is smaller: where the search for the page around a base page begins.
    size_least: PageSize,
    fetch_planner: Box<dyn FetchPlanner>,
    /// Of ranges that have plans of their own, and the largest page size that any range has of its own.
    planners: Planners,
    own_largest: Option<PageSize>,
    /// Base pages of a subpage.
    subpage: u64,
    /// The plan that is being carried out, and the message of it that getpages go into now.
    steps: Vec<Step>,
    message: u32,
    /// And how urgent they are.
    urgency: Urgency,
    /// Of a plan only what the thread waits for is asked for at once; see [`Self::plan_in_pieces`].
    in_pieces: bool,
    /// What is left of such plans, oldest first, and lists to use again.
    rests: VecDeque<Rest>,
    spare_steps: Vec<Vec<Step>>,
    /// What the program has said of its memory and is not carried out yet, oldest first; and pages that leave for it.
    advised: VecDeque<Advised>,
    given: VecDeque<(PageRef, PageSize)>,
    /// Who goes through memory in order, and what is behind them.
    readers: Readers,
    /// Pages that do not stand with the policy, and where pages that are here have to be looked at for that.
    ranks: Ranks,
    ranking: Ranking,
    /// Pages of ranges that have budgets of their own, and faults that wait for these to have room, oldest first.
    budgets: Budgets,
    outrun: VecDeque<(SpaceKey, u64)>,
    /// It is their turn, if there is advice besides.
    ranks_turn: bool,
    /// Base pages that were left out of a page on purpose, by the page's first.
    holes: BTreeMap<(SpaceKey, u64), Hole>,
    /// What has come last of a page that is fetched in parts.
    streams_from: Option<(Instant, SpaceKey, u64)>,
    /// Pages of which a part is on its way or away, by their first base pages.
    incomplete: BTreeMap<(SpaceKey, u64), Incomplete>,
    /// How far from there the next one was that was wanted, and how often: 511 distances at most.
    next_distances: BTreeMap<i32, u64>,
    effects: VecDeque<Effect>,
    lenders: Vec<LenderState>,
    choice: Box<dyn LenderChoice>,
    /// Where pages that leave go now.
    target: Option<LenderIndex>,
    /// Base pages with lenders, and on their way there; and at most, where there is a disk.
    lent: u64,
    lent_max: u64,
    /// What a long stream passes over goes to the disk alone, the first time.
    guards_from_scans: bool,

    /// Base pages that may be local.
    limit: u64,
    /// Frames that are kept free.
    reserve: Reserve,
    /// Base pages that are local, leaving or being fetched.
    frames: u64,
    leaving: u64,
    /// Base pages whose install the driver has not answered yet.
    installs_pending: u64,
    /// Faults that wait for frames or buffers, oldest first.
    queue: VecDeque<(SpaceKey, u64)>,

    free_buffers: Vec<BufferIndex>,
    /// Copies whose buffer could be reused, oldest first; some entries are out of date.
    reusable: VecDeque<(CopyIndex, Version)>,
    reusable_count: u64,
    /// Copies that nobody could take yet.
    unsafe_stuck: Vec<(CopyIndex, Version)>,
    stuck_retry_at: Option<Instant>,
    stores_in_flight: u64,
    /// Copies that their lenders want back, oldest wish first; some entries are out of date.
    recalls: VecDeque<(CopyIndex, Version)>,
    /// Copies that too few lenders have since one was lost, oldest loss first; some entries are out of date.
    mends: VecDeque<(CopyIndex, Version)>,
    /// Who has said that a copy is on its disk while that was on its way to another lender; see `stored_one`.
    stored_late: BTreeMap<CopyIndex, (Version, LenderIndex)>,
    /// Some of them could not be mended: tried again when a lender joins.
    has_resigned: bool,
    /// Where the last mirror went: the next of its batch goes there too.
    mirror_last: Option<LenderIndex>,
    /// Fetches that bring such copies home.
    homing: u64,
    /// Where what comes home goes on to, and how many more pages go there before the choice is made again.
    moves_to: Option<(LenderIndex, u32)>,
    /// What no lender takes is written, though there was no disk to begin with: there are to be several replicas, or a lender has wanted pages back.
    writes_late: bool,

    batches: BTreeMap<BatchId, Batch>,
    batch_next: u64,
    evict_pause_until: Option<Instant>,
    /// Since when no batch has freed a frame.
    vain_since: Option<Instant>,
    /// That has lasted too long for anybody to wait on.
    in_vain: bool,
    /// Whose sharing was broken last.
    sharing_turn: Option<SpaceKey>,
    parked_until: Option<Instant>,
    /// How long pages that could not be taken are left alone next time.
    parked_for: Duration,
    fetches: BTreeMap<CopyIndex, Fetch>,
    hedges: VecDeque<(Instant, CopyIndex, Version)>,
    /// The first of them is due and has no buffer: it is tried when something has happened, and not all the time.
    hedges_starve: bool,
    waits: BTreeMap<(SpaceKey, u64), Wait>,
    waiters: Waiters,
    waits_changed_at: Instant,
    /// Faults on pages that should be there, to notice one that is not.
    surprises: BTreeMap<(SpaceKey, u64), u32>,
    /// Since when they are counted.
    surprises_since: Instant,
    /// Ranges that were discarded lately.
    discards: VecDeque<(Instant, SpaceKey, BaseRange)>,
    latencies: VecDeque<(FaultKind, Duration)>,
    /// Of each batch the last copy that is not safe yet, and since when it is on its way.
    swapping: BTreeMap<CopyIndex, (Version, Instant)>,
    swap_outs: VecDeque<Duration>,
    stats: Stats,
}

impl Borrower {
    /// A borrower without address spaces, lenders or frames.
    ///
    /// # Panics
    /// If the page size is not a power of two from 1 to 256 base pages, or there are fewer buffers than
    /// [`BUFFERS_LEAST`] or [`BUFFERS_LEAST_PAGES`] pages have.
    pub fn new(
        config: BorrowerConfig,
        replacement: Box<dyn Replacement>,
        prefetcher: Box<dyn Prefetcher>,
    ) -> Self {
        let page = config.page.0;
        let size = PageSize::new(config.page).expect("a page size");
        let least = BUFFERS_LEAST.max(BUFFERS_LEAST_PAGES * page as u32);
        assert!(config.buffers >= least, "too few buffers");
        assert!((1..=1 + MIRRORS_MAX).contains(&usize::from(config.replicas)), "replicas out of range");
        assert!(!config.staged || config.replicas == 2, "a staged page is at two lenders");
        let writes_late = config.replicas > 1;
        let free_buffers = (0..config.buffers).rev().map(BufferIndex).collect();
        Self {
            config,
            spaces: BTreeMap::new(),
            copies: Copies::new(1 << 31),
            replacement,
            prefetcher,
            sizer: Box::new(Fixed(size)),
            size_least: size,
            fetch_planner: Box::new(Full),
            planners: Planners::default(),
            own_largest: None,
            subpage: page,
            steps: Vec::new(),
            message: 0,
            holes: BTreeMap::new(),
            streams_from: None,
            urgency: Urgency::Behind,
            in_pieces: false,
            rests: VecDeque::new(),
            spare_steps: Vec::new(),
            advised: VecDeque::new(),
            given: VecDeque::new(),
            readers: Readers::default(),
            ranks: Ranks::default(),
            ranking: Ranking::default(),
            budgets: Budgets::default(),
            outrun: VecDeque::new(),
            ranks_turn: false,
            incomplete: BTreeMap::new(),
            next_distances: BTreeMap::new(),
            effects: VecDeque::new(),
            lenders: Vec::new(),
            choice: Box::new(placement::RoundRobin::default()),
            target: None,
            lent: 0,
            lent_max: u64::MAX,
            guards_from_scans: false,
            limit: 0,
            reserve: Self::new_reserve(),
            frames: 0,
            leaving: 0,
            installs_pending: 0,
            queue: VecDeque::new(),
            free_buffers,
            reusable: VecDeque::new(),
            reusable_count: 0,
            unsafe_stuck: Vec::new(),
            stuck_retry_at: None,
            stores_in_flight: 0,
            recalls: VecDeque::new(),
            mends: VecDeque::new(),
            stored_late: BTreeMap::new(),
            has_resigned: false,
            mirror_last: None,
            homing: 0,
            moves_to: None,
            writes_late,
            batches: BTreeMap::new(),
            batch_next: 0,
            evict_pause_until: None,
            vain_since: None,
            in_vain: false,
            sharing_turn: None,
            parked_until: None,
            parked_for: evict::parked_first(),
            fetches: BTreeMap::new(),
            hedges: VecDeque::new(),
            hedges_starve: false,
            waits: BTreeMap::new(),
            waiters: Waiters::default(),
            waits_changed_at: Instant(0),
            surprises: BTreeMap::new(),
            surprises_since: Instant(0),
            discards: VecDeque::new(),
            latencies: VecDeque::new(),
            swapping: BTreeMap::new(),
            swap_outs: VecDeque::new(),
            stats: Stats::default(),
        }
    }

    /// Pages are fetched in subpages of `subpage`, in the order that `planner` says (at first: whole).
    ///
    /// # Panics
    /// If the size is not one that a page may have. Smaller pages than that have one subpage.
    pub fn plan_fetches(&mut self, subpage: BasePages, planner: Box<dyn FetchPlanner>) {
        assert!(PageSize::new(subpage).is_some(), "subpage size out of range");
        self.subpage = subpage.0;
        self.fetch_planner = planner;
    }

    /// Pages are as large as `sizer` says (at first: as the configuration has it). None is smaller than `least`.
    pub fn size_pages(&mut self, sizer: Box<dyn PageSizer>, least: PageSize) {
        self.sizer = sizer;
        self.sizer.limited(BasePages(self.limit));
        self.size_least = least;
    }

    /// A part of the program begins ([`PageSizer`]).
    pub fn handle_part(&mut self, now: Instant, part: u32) {
        self.sizer.part_begins(now, part);
    }

    /// The next change of page size that nobody has been told of.
    pub fn poll_size_change(&mut self) -> Option<SizeChange> {
        self.sizer.poll_change()
    }

    /// Pages that leave go to lenders as `choice` says (at first: to one after the other).
    pub fn place_pages(&mut self, choice: Box<dyn LenderChoice>) {
        self.choice = choice;
        self.target = None;
    }

    /// At most so many base pages are with lenders at a time, so that one program leaves room for others; what is above has the disk alone.
    /// Without a disk it holds nobody back: pages would have nowhere to go.
    pub fn limit_lending(&mut self, most: BasePages) {
        self.lent_max = most.0;
    }

    /// Pages that a long stream passes over go to the disk alone when they leave for the first time; one that comes back was not
    /// read once, and goes to a lender the next time. A scan then takes no room in global memory from what is used
    /// again and again (gms-1995, section 6), at the price that the second pass of a repeated scan still reads the disk.
    pub fn guard_from_scans(&mut self, guard: bool) {
        self.guards_from_scans = guard;
    }

    /// A local page was used, where the driver can see that (a simulator; live there are no access bits to read).
    pub fn handle_touched(&mut self, key: SpaceKey, base: u64) {
        let Some(space) = self.spaces.get(&key) else { return };
        if let Some((first, _)) = space.table.queued_around(base, self.size_least) {
            let page = PageRef { space: key, first };
            if self.ranks.of(page) == Priority::Normal {
                self.replacement.touched(page);
            }
        }
    }

    /// The next thing to do, in order.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`Self::handle_timeout`] is wanted next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let hedge = self.hedges.front().filter(|_| !self.hedges_starve).map(|h| h.0);
        [hedge, self.stuck_retry_at, self.evict_pause_until, self.parked_until].into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.hedge(now);
        if self.stuck_retry_at.is_some_and(|t| t <= now) {
            self.stuck_retry_at = None;
            self.waits_clock(now);
            self.retry_stuck();
        }
        if self.evict_pause_until.is_some_and(|t| t <= now) {
            self.evict_pause_until = None;
        }
        if self.parked_until.is_some_and(|t| t <= now) {
            self.parked_until = None;
            let keys: Vec<SpaceKey> = self.spaces.keys().copied().collect();
            for key in keys {
                self.unpark(key);
            }
        }
        self.advance(now);
    }

    /// How many base pages may be local from now on.
    pub fn handle_limit(&mut self, now: Instant, limit: BasePages) {
        self.limit = limit.0;
        self.sizer.limited(limit);
        self.advance(now);
    }

    /// Pages that were shared have frames of their own now: what could not be taken for that is tried again.
    pub fn handle_sharing_broken(&mut self, now: Instant) {
        self.parked_for = evict::parked_first();
        let forked: Vec<SpaceKey> = self.spaces.iter().filter(|(_, s)| s.forked).map(|(&k, _)| k).collect();
        for key in forked {
            self.unpark(key);
        }
        self.advance(now);
    }

    /// The limit as it is.
    pub fn limit(&self) -> BasePages {
        BasePages(self.limit)
    }

    /// Base pages that are local or have a frame reserved, over all spaces.
    pub fn frames(&self) -> BasePages {
        BasePages(self.frames)
    }

    /// Base pages of `space` that are local, with those that share a relative's frame.
    pub fn local_in(&self, space: SpaceKey) -> BasePages {
        self.spaces.get(&space).map_or(BasePages(0), |s| BasePages(s.frames + s.shared))
    }

    /// Base pages of `space` that are local in a relative's frame.
    pub fn shared_in(&self, space: SpaceKey) -> BasePages {
        self.spaces.get(&space).map_or(BasePages(0), |s| BasePages(s.shared))
    }

    /// Base pages adopted, over all spaces.
    pub fn adopted(&self) -> BasePages {
        BasePages(self.spaces.values().map(|s| s.table.adopted()).sum())
    }

    /// Base pages with lenders, and on their way there.
    pub fn lent(&self) -> BasePages {
        BasePages(self.lent)
    }

    /// Copies in use.
    pub fn copies_in_use(&self) -> BasePages {
        BasePages(u64::from(self.copies.in_use()))
    }

    /// Slots that the slot file needs room for: every index ever used is below this.
    pub fn slots(&self) -> u32 {
        self.copies.len()
    }

    /// `base` of `space` is adopted.
    pub fn is_adopted(&self, space: SpaceKey, base: u64) -> bool {
        self.spaces.get(&space).is_some_and(|s| s.table.range_of(base).is_some())
    }

    /// The state of one base page.
    pub fn state(&self, space: SpaceKey, base: u64) -> BaseState {
        self.spaces.get(&space).map_or(BaseState::Empty, |s| s.table.get(base).state)
    }

    /// The adopted ranges of a space.
    pub fn ranges(&self, space: SpaceKey) -> Vec<BaseRange> {
        self.spaces.get(&space).map_or_else(Vec::new, |s| s.table.ranges().collect())
    }

    /// Something is under way that will bring frames or pages: worth polling for.
    pub fn waits_for_something(&self) -> bool {
        !self.waits.is_empty() || !self.batches.is_empty()
    }

    /// Fetches that are not answered yet.
    pub fn fetches_in_flight(&self) -> usize {
        self.fetches.len()
    }

    /// Figures so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Latencies of answered faults since the last call, oldest first.
    pub fn poll_latency(&mut self) -> Option<(FaultKind, Duration)> {
        self.latencies.pop_front()
    }

    /// How long it took until pages that left were safe, one for each batch, oldest first: the time of a swap-out (nwcache-1999, tables 3 and 4).
    pub fn poll_swap_out(&mut self) -> Option<Duration> {
        self.swap_outs.pop_front()
    }

    /// Bytes of the borrower's own records (not page contents).
    pub fn record_bytes(&self) -> u64 {
        let tables: u64 = self.spaces.values().map(|s| s.table.table_bytes()).sum();
        tables + u64::from(self.copies.len()) * size_of::<copies::Copy>() as u64
    }

    /// Sets one entry and keeps the counts. References of copies are the caller's.
    fn set_entry(&mut self, key: SpaceKey, base: u64, new: Entry) {
        let space = self.spaces.get_mut(&key).expect("the space lives");
        let old = space.table.get(base);
        let has_frame = |e: &Entry| {
            matches!(e.state, BaseState::Local | BaseState::Leaving | BaseState::Fetching) && !e.shared
        };
        match (has_frame(&old), has_frame(&new)) {
            (false, true) => {
                space.frames += 1;
                self.frames += 1;
                self.reserve.handle_taken(self.waits_changed_at, 1);
            }
            (true, false) => {
                space.frames -= 1;
                self.frames -= 1;
            }
            _ => {}
        }
        match (old.shared, new.shared) {
            (false, true) => space.shared += 1,
            (true, false) => space.shared -= 1,
            _ => {}
        }
        let leaves = |e: &Entry| e.state == BaseState::Leaving && !e.shared;
        match (leaves(&old), leaves(&new)) {
            (false, true) => self.leaving += 1,
            (true, false) => self.leaving -= 1,
            _ => {}
        }
        space.table.set(base, new);
        let is_own = |e: &Entry| e.state == BaseState::Local && !e.shared;
        if is_own(&old) != is_own(&new) && !(self.ranks.is_empty() && self.budgets.is_empty()) {
            for first in space.table.all_queued_around(base) {
                let recount = |frames| if is_own(&new) { frames + 1 } else { frames - 1 };
                self.ranks.recount(PageRef { space: key, first }, recount);
                self.budgets.recount(PageRef { space: key, first }, recount);
            }
        }
    }

    fn entry(&self, key: SpaceKey, base: u64) -> Entry {
        self.spaces.get(&key).map_or_else(Entry::default, |s| s.table.get(base))
    }

    /// The adopted base pages of the page of this size around `base`.
    fn page_range(&self, key: SpaceKey, base: u64, size: PageSize) -> BaseRange {
        let start = size.first(base);
        let page = BaseRange::new(start, start + size.base_pages());
        let range = self.spaces.get(&key).and_then(|s| s.table.range_of(base));
        range.map_or(BaseRange::new(base, base + 1), |r| r.intersect(page))
    }

    /// Tells the replacement policy of a page that has become local, with `base` or more of it.
    ///
    /// Each local base page is in at least one page that stands in the queue. It may be in several, of different sizes: the first
    /// of them to leave takes along what is not in a smaller one (see `start_batch`).
    fn enqueue(&mut self, key: SpaceKey, base: u64, size: PageSize) {
        let first = size.first(base);
        let space = self.spaces.get_mut(&key).expect("the space lives");
        // The size hangs on the faulted base page's extent, which exists as it has contents.
        let queued = space.table.queued(first);
        if queued.is_none_or(|queued| queued < size) {
            space.table.set_queued(first, Some(size));
        }
        let page = PageRef { space: key, first };
        if queued.is_none() {
            if self.sizer.watches_pages() {
                space.table.note_part(first, self.sizer.part());
            }
            self.line_up(page, size);
        } else if queued.is_some_and(|queued| queued < size)
            && !(self.ranks.is_empty() && self.budgets.is_empty())
        {
            let frames = space.table.own_in(first, size);
            self.ranks.recount(page, |_| frames);
            self.budgets.recount(page, |_| frames);
        }
    }

    /// Moves whatever can move now: waiting faults first, then evictions.
    fn advance(&mut self, now: Instant) {
        self.waits_clock(now);
        if self.hedges_starve {
            self.hedge(now);
        }
        self.evict(now);
        self.serve_queue(now);
        if !self.outrun.is_empty() {
            self.serve_held(now);
        }
        self.mend();
        self.take_home();
    }
}
