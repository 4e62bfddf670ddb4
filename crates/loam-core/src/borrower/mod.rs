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
mod ages;
mod ahead;
mod alone;
mod audit;
mod budgets;
mod changes;
mod config;
mod copies;
mod discards;
mod doubts;
mod effect;
mod evict;
mod faults;
mod fetch_plan;
mod figures;
mod holes;
mod home;
mod homecoming;
mod leftovers;
mod lenders;
mod lines;
mod marks;
mod pinned;
mod placement;
mod plans;
mod prefetch;
mod ranking;
mod ranks;
mod recall;
mod replicas;
mod rescues;
mod seed;
mod sequential;
mod sharing;
mod sizes;
mod space;
mod store;
mod table;
mod terms;
#[cfg(test)]
mod tests;
mod token;
mod waiters;
mod writes;

pub use crate::replacement::{PageRef, Replacement, SecondChanceFifo, TokenOrdered};
pub use advice::Advice;
pub use audit::CopyView;
pub use config::{BUFFERS_LEAST, BUFFERS_LEAST_PAGES, BUFFERS_MIN, BorrowerConfig};
pub use copies::{BufferIndex, CopyIndex, LenderIndex, MIRRORS_MAX};
pub use effect::{BatchId, Effect, InstallSource};
pub use evict::PageFate;
pub use faults::{Arrival, InstallOutcome};
pub use fetch_plan::{
    Eager, FETCH_PLANS, FetchPlan, FetchPlanner, Full, Lazy, Learned, PageFault, Pipelined, Step,
    fetch_planner,
};
pub use figures::{FaultKind, Stats};
pub use homecoming::Homecoming;
pub use lenders::PutAnswer;
pub use marks::{Pattern, Priority};
pub use placement::{LenderChoice, LenderState, PLACEMENTS, Site, lender_choice};
pub use prefetch::{Ahead, Faulted, IsHere, NoPrefetch, Prefetcher, StreamSpace, StridePrefetcher, Touch};
pub use store::Source;
pub use table::{BaseRange, BaseState, SpaceKey};
pub use terms::{Terms, TooMany};

use crate::ids::{Urgency, Version};
use crate::page_size::{Fixed, PageSize, PageSizer, SizeChange};
use crate::staging::Reserve;
use crate::units::{BasePages, Duration, Instant};
use advice::Advised;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use alone::Alone;
use budgets::Budgets;
use copies::Copies;
use discards::Discards;
use doubts::Doubt;
use evict::Batch;
use faults::{Fetch, Wait};
use holes::Holes;
use leftovers::Leftovers;
use plans::Rest;
use ranking::Ranking;
use ranks::Ranks;
use rescues::Rescues;
use sequential::Readers;
use space::{Incomplete, Space, Stream};
use terms::Planners;
use token::Token;
use waiters::Waiters;
use writes::Guarding;

/// The part of the limit that what can leave has at least, and at most so much for that: 32 MiB.
const MOVABLE_SHARE: u64 = 4;
const MOVABLE_MAX: u64 = 32 << 8;
/// With more pages nobody has the token: each time that it is passed on all of them are gone through.
const TOKEN_PAGES_MAX: u64 = 1 << 20;

/// See the module's documentation.
#[derive(Debug)]
pub struct Borrower {
    config: BorrowerConfig,
    spaces: BTreeMap<SpaceKey, Space>,
    copies: Copies,
    leftovers: Leftovers,
    replacement: Box<dyn Replacement>,
    token: Token,
    /// Pages that stand in its queue, or elsewhere by their rank.
    queued_pages: u64,
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
    /// Base pages that were left out of a page on purpose.
    holes: Holes,
    alone: Alone,
    /// Base pages that stayed in their buffers when others were rescued.
    rescues: Rescues,
    /// Base pages that have left so far.
    left: BasePages,
    /// Pages that have left, of which something is to be told.
    doubts: VecDeque<Doubt>,
    /// What has come last of a page that is fetched in parts.
    streams_from: Option<Stream>,
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
    /// What lenders have of pages that are here.
    home: home::Home,
    stores_in_flight: u64,
    /// Copies that their lenders want back, oldest wish first; some entries are out of date.
    recalls: VecDeque<(CopyIndex, Version)>,
    /// Copies that too few lenders have since one was lost, oldest loss first; some entries are out of date.
    mends: VecDeque<(CopyIndex, Version)>,
    /// Who has said that a copy is on its disk while that was on its way to another lender; see `stored_one`.
    stored_late: BTreeMap<CopyIndex, (Version, LenderIndex)>,
    /// Some of them could not be mended: tried again when a lender joins or has room again,
    has_resigned: bool,
    /// and a few now and then, from this one on: a lender that others leave room with need not say so.
    resigned_next: CopyIndex,
    resigned_retry_at: Option<Instant>,
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
    /// When pages that were found pinned are asked for again.
    pinned_until: Option<Instant>,
    /// Pages that leave next: they were made their process's own for that.
    made_own: VecDeque<(PageRef, PageSize)>,
    /// What relatives have of the same frames: to be made their own, and to leave, after those.
    other_side: VecDeque<(PageRef, PageSize)>,
    /// What is protected since a fork.
    guarding: Guarding,
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
    discards: Discards,
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
            leftovers: Leftovers::default(),
            replacement,
            token: Token::default(),
            queued_pages: 0,
            prefetcher,
            sizer: Box::new(Fixed(size)),
            size_least: size,
            fetch_planner: Box::new(Full),
            planners: Planners::default(),
            own_largest: None,
            subpage: page,
            steps: Vec::new(),
            message: 0,
            holes: Holes::default(),
            alone: Alone::default(),
            rescues: Rescues::default(),
            left: BasePages(0),
            doubts: VecDeque::new(),
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
            home: home::Home::default(),
            stores_in_flight: 0,
            recalls: VecDeque::new(),
            mends: VecDeque::new(),
            stored_late: BTreeMap::new(),
            has_resigned: false,
            resigned_next: CopyIndex(0),
            resigned_retry_at: None,
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
            pinned_until: None,
            made_own: VecDeque::new(),
            other_side: VecDeque::new(),
            guarding: Guarding::default(),
            parked_for: sharing::parked_first(),
            fetches: BTreeMap::new(),
            hedges: VecDeque::new(),
            hedges_starve: false,
            waits: BTreeMap::new(),
            waiters: Waiters::default(),
            waits_changed_at: Instant(0),
            surprises: BTreeMap::new(),
            surprises_since: Instant(0),
            discards: Discards::default(),
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

    /// By now the program has run for so long in its own code, all of its threads together, those of processes that have ended among them; and of those that live, so long.
    /// `None`: nobody can tell, of so many processes.
    pub fn handle_progress(&mut self, now: Instant, ran: Option<(Duration, &[(SpaceKey, Duration)])>) {
        let held_by = self.token.holder();
        match ran.filter(|_| self.queued_pages <= TOKEN_PAGES_MAX) {
            Some((_, of_each)) => {
                let process = |&(key, ran): &(SpaceKey, Duration)| {
                    let space = self.spaces.get(&key)?;
                    Some((key, token::Process { ran, fetched: space.fetched, frames: space.frames }))
                };
                let processes = of_each.iter().filter_map(process).collect();
                self.token.progressed(now, self.limit, processes);
            }
            None => self.token.take_back(now),
        }
        if let Some((ran, _)) = ran {
            self.sizer.progressed(now, ran);
        }
        let holder = self.token.holder();
        if holder != held_by {
            self.replacement.give_token(holder);
            self.stats.token_given += u64::from(holder.is_some());
        }
    }

    /// The address space whose pages leave last, as several take memory from one another.
    pub fn token_holder(&self) -> Option<SpaceKey> {
        self.token.holder()
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
        let guard = self.guarding.is_under_way().then_some(self.waits_changed_at);
        let resigned = self.resigned_retry_at;
        let left = (!self.leftovers.is_empty()).then_some(self.waits_changed_at);
        let home = self.home.goes_on.then_some(self.waits_changed_at);
        let aside = [self.evict_pause_until, self.parked_until, self.pinned_until];
        [hedge, self.stuck_retry_at, resigned, guard, left, home].into_iter().chain(aside).flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.hedge(now);
        if self.stuck_retry_at.is_some_and(|t| t <= now) {
            self.stuck_retry_at = None;
            self.waits_clock(now);
            self.retry_stuck();
        }
        if self.resigned_retry_at.is_some_and(|t| t <= now) {
            self.waits_clock(now);
            self.retry_some_resigned();
        }
        if self.evict_pause_until.is_some_and(|t| t <= now) {
            self.evict_pause_until = None;
        }
        self.unpark_in_time(now);
        self.try_pinned_in_time(now);
        self.guard_piece();
        self.advance(now);
    }

    /// How many base pages may be local from now on.
    ///
    /// What can leave keeps a quarter of it, at most 32 MiB, beside what cannot: were there no room but for that, every touch of the rest would wait for a page.
    pub fn handle_limit(&mut self, now: Instant, limit: BasePages) {
        let denied: u64 = self.spaces.values().map(|space| space.denied).sum();
        let movable = (limit.0 / MOVABLE_SHARE).min(MOVABLE_MAX);
        self.limit = if denied == 0 { limit.0 } else { limit.0.max(denied.min(self.frames) + movable) };
        self.sizer.limited(BasePages(self.limit));
        self.advance(now);
    }

    /// Pages that were shared have frames of their own now: what could not be taken for that is tried again.
    pub fn handle_sharing_broken(&mut self, now: Instant) {
        self.parked_for = sharing::parked_first();
        let forked: Vec<SpaceKey> = self.spaces.iter().filter(|(_, s)| s.forked).map(|(&k, _)| k).collect();
        // Somebody has written, and was not counted.
        self.guarding.tries_shared_until = now + sharing::parked_first();
        for key in forked {
            self.unpark(key);
        }
        self.advance(now);
    }

    /// Moves whatever can move now: waiting faults first, then evictions.
    fn advance(&mut self, now: Instant) {
        self.waits_clock(now);
        self.give_back_some();
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
        self.tidy_replacement();
    }
}
