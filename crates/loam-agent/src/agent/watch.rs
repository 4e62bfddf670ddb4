//! Watching the tree's memory: when to adopt, what, and how much may stay.
//!
//! Until the tree nears `--local`, or a large process is about to fork, nothing is adopted and nothing is slowed. Then every large private anonymous mapping is registered
//! whole, its untouched parts too: from there on each page that comes is given by the agent, which is what holds
//! the tree to its budget. (A mapping that was registered only where pages have left would go on growing as fast as the
//! program can write, far past any budget.)

mod forks;
mod tree;

use super::Agent;
use super::copied::{Copied, Counted};
use super::process::Process;
use super::segments::Segments;
use super::throttle::Standing;
use crate::procfs::{self, Statm};
use loam_core::borrower::SpaceKey;
use loam_core::units::{BASE_PAGE_BYTES, BasePages, Duration, Instant};
use rustix::process::Pid;
use std::collections::BTreeMap;
use tree::{StrangerPages, Strangers};

/// Watched at least this often, and at most.
const INTERVAL_MAX: Duration = Duration::from_millis(50);
const INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Base pages of files (programs and libraries: 16 MiB) that a tree has beside `--local`: they are the kernel's cache, which programs
/// share and which it takes back by itself. What is mapped above that counts,
const FILE_PAGES_FREE: u64 = 16 << 8;
/// up to this part of `--local`. Whatever a program maps beyond (a database, a matrix, an index) would take the place of its own memory, which is worth more here: a page
/// of a file comes back from the cache in less than a microsecond.
const FILE_PAGES_SHARE: u64 = 8;
/// Between looks at who belongs to the tree.
const TREE_INTERVAL: Duration = Duration::from_millis(100);
/// What a first look at a process takes while it and others run, about.
const FIRST_LOOK: Duration = Duration::from_millis(4);
/// Growth that is taken to be possible: 2 base pages in a microsecond is 8 GB/s.
const GROWTH_PAGES_PER_MS: u64 = 2_000;
/// Memory that grew by this much without us, or by this part of `--local`, is looked at: there may be a new mapping. The look takes the longer the more is here: the kernel walks all of it.
const GROWN_PAGES_MIN: u64 = 256;
const GROWN_SHARE: u64 = 128;
/// Of many processes each is looked at when it has grown by a part of that, but not by less (256 KiB).
const GROWN_PAGES_EACH: u64 = 64;
/// And less by more than this (16 MiB) than was found when it was looked at: what comes in its place is looked at.
const GONE_PAGES: u64 = 16 << 8;
/// Whatever else the tree needs, adopted memory may keep this much: less would not move forward.
const ADOPTED_PAGES_MIN: u64 = 2_048;
/// The budget counts as not held above this, beyond 5%: the bar that the tests have.
const OVER_PAGES: u64 = 32 << 8;
/// And for this long.
const OVER_LASTS: Duration = Duration::from_millis(500);
/// Memory that is not adopted, beyond this part of `--local`, and for this long: then smaller mappings are adopted as well. (V8 keeps
/// its heap in mappings of 256 KiB.)
const CROWDED_SHARE: u64 = 2;
const CROWDED_LASTS: Duration = Duration::from_millis(20);
/// So much more than at the last try was copied: then what could not leave for being shared is tried again.
const COPIED_PAGES: u64 = 256;
const COPIED_SHARE: u64 = 8;
/// More than children copy that soon run another program, or end (4 MiB).
const COPYING_PAGES: u64 = 4 << 8;
/// The part of the time that looking may take. Where the tree is near `--local`, and a new program may fill memory at full speed, looking costs less than not looking: then it may take half.
const LOOK_SHARE: u64 = 10;

/// See the module's documentation.
pub(super) struct Watch {
    local_pages: u64,
    buffers: u64,
    due: Instant,
    tree_due: Instant,
    /// When the last look at a process's mappings ended, and what it took.
    looked: (Instant, Duration),
    strangers: Strangers,
    pressed: bool,
    copied: Copied,
    segments: Segments,
    /// Base pages that were known to be copied when the policy was told last.
    copied_told: u64,
    /// Since when the memory that is not adopted has been too much, and whether small mappings are adopted for it.
    crowded_since: Option<Instant>,
    crowded: bool,
    /// Since when the budget has not been held.
    over_since: Option<Instant>,
    told_over: bool,
    /// The most that the tree had while it was not held, and why; not told yet.
    burst: Option<(u64, String)>,
    pub resident_pages: u64,
    /// What that was at the last look, and when.
    had: (Instant, u64),
    /// What those have that were forked since that was looked at.
    forked_pages: u64,
    pub peak_pages: u64,
    pub adopted_peak: BasePages,
    pub shared_peak_bytes: u64,
    /// The most of mapped files that did not count.
    pub cached_peak_pages: u64,
    /// `/dev/cpu_dma_latency` may be held.
    pub may_hold_cores: bool,
}

impl Watch {
    pub(super) fn new(local: BasePages, buffers: u64) -> Self {
        Self {
            local_pages: local.0,
            buffers,
            due: Instant(0),
            tree_due: Instant(0),
            looked: (Instant(0), Duration(0)),
            strangers: Strangers::default(),
            pressed: false,
            copied: Copied::default(),
            segments: Segments::default(),
            copied_told: 0,
            crowded_since: None,
            crowded: false,
            over_since: None,
            told_over: false,
            burst: None,
            resident_pages: 0,
            had: (Instant(0), 0),
            forked_pages: 0,
            peak_pages: 0,
            adopted_peak: BasePages(0),
            shared_peak_bytes: 0,
            cached_peak_pages: 0,
            may_hold_cores: true,
        }
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Memory is adopted, or has been.
    pub(super) fn is_pressed(&self) -> bool {
        self.pressed
    }

    /// Processes that ran without Loam, as far as seen.
    pub(super) fn without_loam(&self) -> u64 {
        self.strangers.without_loam
    }

    /// The programs of some of them.
    pub(super) fn names_without_loam(&self) -> Vec<String> {
        self.strangers.names()
    }

    /// A process that was taken for a stranger is served now; counted as both it would press the tree for nothing.
    /// `inherits`: it may have of its parent's memory what nobody tells of.
    pub(super) fn joined(&mut self, pid: Pid, inherits: bool) {
        self.strangers.joined(pid);
        if inherits {
            self.copied.child_came();
        }
    }

    /// When the tree has so much its memory is adopted.
    fn near_pages(&self) -> u64 {
        self.local_pages - self.margin().min(self.local_pages / 2)
    }

    /// By how much more than [`Self::near_pages`] allows for the tree will grow while so many processes are looked at for the first time, as fast as it has grown since the last look.
    fn grows_meanwhile(&mut self, now: Instant, resident: u64, processes: usize) -> u64 {
        let (at, before) = std::mem::replace(&mut self.had, (now, resident));
        let grown = resident.saturating_sub(before);
        let looks_ns = FIRST_LOOK.0 * processes as u64;
        let pages = grown.saturating_mul(looks_ns) / (now - at).0.max(INTERVAL_MIN.0);
        pages.min(self.local_pages / 2).saturating_sub(self.local_pages - self.near_pages())
    }

    pub(super) fn adopt_bytes_min(&self) -> u64 {
        if self.crowded { procfs::ADOPT_BYTES_LEAST } else { procfs::ADOPT_BYTES_MIN }
    }

    /// Books how much is not adopted. True: from now on smaller mappings are.
    fn crowds(&mut self, now: Instant, others: u64) -> bool {
        if self.crowded || others + self.buffers <= self.local_pages / CROWDED_SHARE {
            self.crowded_since = None;
            return false;
        }
        self.crowded = now - *self.crowded_since.get_or_insert(now) >= CROWDED_LASTS;
        self.crowded
    }

    /// It is time to look at a process's mappings again. What the last look was allowed to take was judged by what the tree had then: by now it may be near its budget.
    fn may_look(&self, now: Instant, is_near: bool) -> bool {
        let (at, took) = self.looked;
        now >= at + Duration(took.0 * if is_near { 1 } else { LOOK_SHARE })
    }

    fn margin(&self) -> u64 {
        (self.local_pages / 8).max(16 << 8)
    }
}

impl Agent<'_> {
    /// Memory is adopted from now on, even if the tree is far below its budget: a part of it has one of its own, or is about to be copied.
    pub(super) fn press(&mut self, now: Instant) {
        self.watch.pressed = true;
        self.watch.due = self.watch.due.min(now);
        self.tell_all_limits();
    }

    /// Looks at the tree's memory when it is time.
    pub(super) fn watch_tick(&mut self, now: Instant) {
        if now < self.watch.due {
            return;
        }
        let is_tree_due = now >= self.watch.tree_due;
        if is_tree_due {
            self.watch.tree_due = now + TREE_INTERVAL;
            self.look_at_tree();
            self.look_for_ended();
            self.look_for_left_hands();
            self.look_for_silence();
            self.join_more(now);
        }
        self.look_at_moves();
        let mut resident = 0;
        let mut managed = 0;
        let mut sharing = 0;
        let mut files = 0;
        // Of those that may share something, and nobody says what.
        let (mut unseen, mut unseen_pages) = (Vec::new(), 0);
        let (mut grown, mut shrunk): (Vec<SpaceKey>, Vec<SpaceKey>) = (Vec::new(), Vec::new());
        // Of each so little that all of them together grow by about as much as one may.
        let grown_pages = (self.watch.local_pages / GROWN_SHARE).max(GROWN_PAGES_MIN);
        let grown_pages = (grown_pages / self.processes.len().max(1) as u64).max(GROWN_PAGES_EACH);
        // Of children that have not come yet, or never will (one that was made behind libc's back): which process each of them is nobody knows.
        let (mut nameless, mut nameless_sharing) = (0, 0);
        // Those that have grown since the last look.
        let mut growing = 0;
        for process in self.processes.values_mut() {
            if process.statm.is_none() {
                let shared = self.borrower.shared_in(process.key).0;
                nameless += self.borrower.local_in(process.key).0 - shared;
                nameless_sharing += shared;
                continue;
            }
            let Some(figures) = process.statm.as_ref().and_then(|s| s.read().ok()) else { continue };
            // Direct memory is not this run's to keep within `--local`: the node has handed it out.
            let direct = process.direct_pages(figures.file_pages);
            let pages = figures.resident_pages.saturating_sub(process.before.resident_pages + direct);
            files += figures.file_pages - direct;
            let had = std::mem::replace(&mut process.resident_pages, figures.resident_pages);
            growing += usize::from(figures.resident_pages >= had + GROWN_PAGES_EACH);
            if let Some(pid) = process.pid.filter(|_| self.borrower.is_forked_unseen(process.key)) {
                unseen.push(pid);
                unseen_pages += figures.resident_pages;
            }
            let shared = self.borrower.shared_in(process.key).0;
            let local = self.borrower.local_in(process.key).0;
            sharing += shared;
            // What is shared with a relative is counted there.
            resident += pages.saturating_sub(shared);
            managed += (local - shared).min(pages);
            let unmanaged = figures.may_be_adopted().saturating_sub(local);
            tracing::trace!(pid = ?process.pid, direct, pages, local, shared, limit = self.borrower.limit().0, "watch");
            // What has gone may come again as something else. (What is on its way is counted on one side sooner than on the other.)
            if unmanaged + GONE_PAGES < process.looked_at_pages {
                process.looked_at_pages = unmanaged + GONE_PAGES;
                shrunk.push(process.key);
            }
            if process.hand.is_some() && unmanaged > process.looked_at_pages + grown_pages {
                grown.push(process.key);
            }
        }
        shrunk.into_iter().for_each(|key| self.tell_limits(key));
        let inherited = self.inherited_pages();
        let (mut copied, mut twice) = (0, 0);
        if unseen.len() > 1 && self.watch.pressed {
            twice = self.watch.copied.twice(unseen, unseen_pages).min(resident);
        } else if sharing == 0 && inherited == 0 {
            self.watch.copied.none();
        } else if self.watch.pressed {
            let pids = self.processes.values().filter(|p| p.statm.is_some()).filter_map(|p| p.pid).collect();
            let counted = Counted { pages: resident, shared: sharing };
            let guarded = self.borrower.guarded().filter(|_| !self.put_off.is_behind());
            if inherited > 0 {
                let is_all_heard = sharing == 0 || guarded.is_some();
                copied = self.watch.copied.pages_or_again(pids, counted, is_all_heard).min(sharing);
                twice = self.look_at_inherited(inherited, resident);
            } else {
                copied = self.watch.copied.pages(pids, counted, guarded).min(sharing);
            }
            resident += copied;
        }
        let StrangerPages { pages: strangers, newcomers, files: their_files } = self.count_strangers();
        // They are among these.
        let strangers = strangers.saturating_sub(nameless_sharing);
        resident += strangers;
        managed += nameless.min(strangers);
        let mut newcomers = newcomers.min(strangers);
        // What a child that has only just been made shares with its parent nobody has told yet: it would count twice, and all would have to leave for it.
        if self.processes.values().any(Process::has_unread_changes) {
            resident -= std::mem::take(&mut newcomers);
        }
        let (cached, again) = self.look_at_files(now, files + their_files, is_tree_due);
        let cached = cached.min(resident);
        resident -= cached;
        resident -= again.min(resident);
        twice = twice.min(resident);
        resident -= twice;
        newcomers = newcomers.min(resident);
        // They come by and by.
        let unjoined = self.processes.values().filter(|p| p.statm.is_none()).map(|p| p.inherited_pages).sum();
        // The looks above have their own times.
        let now = self.now();
        let standing = self.standing_pages(now);
        // What a child has of its parent's has not come.
        let come = (resident - newcomers).saturating_sub(self.all_inherited_pages());
        let watch = &mut self.watch;
        watch.resident_pages = resident;
        watch.forked_pages = unjoined;
        watch.peak_pages = watch.peak_pages.max(resident - newcomers);
        watch.cached_peak_pages = watch.cached_peak_pages.max(cached);
        let near = watch.near_pages() - watch.grows_meanwhile(now, come, growing);
        let is_first = resident >= near && !watch.pressed;
        if is_first {
            self.press(now);
        }
        let watch = &mut self.watch;
        if watch.pressed {
            // To the policy each of those that have a page has one.
            let local_pages = watch.local_pages + twice;
            let others = (resident + twice).saturating_sub(managed + copied);
            let counted = others.saturating_sub(files.saturating_sub(cached + again).min(FILE_PAGES_FREE));
            let rest = local_pages.saturating_sub(watch.buffers + counted).max(ADOPTED_PAGES_MIN);
            // The policy takes what was copied for shared: it leaves in its turn, the others make room until then.
            let limit = rest.saturating_sub(copied).max(ADOPTED_PAGES_MIN / 2).max(standing);
            tracing::trace!(resident, managed, sharing, copied, cached, again, twice, limit, "tree");
            let over = (managed + counted + watch.buffers).saturating_sub(local_pages);
            // Before anything that takes long: to look at mappings does.
            if is_first {
                self.throttle_first(now);
            } else {
                self.throttle(now, Standing { over, can_leave: managed > limit });
            }
            let watch = &mut self.watch;
            self.borrower.handle_limit(now, BasePages(limit));
            watch.copied_told = watch.copied_told.min(copied);
            if copied > COPYING_PAGES && self.borrower.wants_copying() {
                self.borrower.handle_copying(now);
            }
            if copied > watch.copied_told + COPIED_PAGES.max(sharing / COPIED_SHARE) {
                watch.copied_told = copied;
                self.borrower.handle_sharing_broken(now);
            }
            self.drain();
            if !grown.is_empty() && self.watch.may_look(now, resident >= near) {
                self.adopt_all(&grown);
                self.set_looked(now);
            }
            if self.watch.crowds(now, others) {
                self.processes.values_mut().for_each(|p| p.looked_at_pages = 0);
            }
            self.tell_if_over(now, resident - newcomers, others - newcomers.min(others));
            self.watch.due = now + INTERVAL_MIN;
        } else {
            self.tell_all_limits();
            let headroom_ms = (near - resident) / GROWTH_PAGES_PER_MS;
            self.watch.due = now + Duration::from_millis(headroom_ms).clamp(INTERVAL_MIN, INTERVAL_MAX);
        }
        self.watch.adopted_peak = self.watch.adopted_peak.max(self.borrower.adopted());
    }

    /// Base pages of mapped files that do not count: the kernel takes them back when it needs the room. And of shared memory, those that count once more than they are there
    /// ([`super::segments`]) or are not any more. Both at most `files`; what is which is asked only where it matters.
    fn look_at_files(&mut self, now: Instant, files: u64, is_tree_due: bool) -> (u64, u64) {
        let counted_max = FILE_PAGES_FREE + self.watch.local_pages / FILE_PAGES_SHARE;
        if files <= counted_max && !is_tree_due {
            return (0, 0);
        }
        let (mut mapped, mut shared, mut here) = (0, Vec::new(), 0);
        let mut count = |pid: Pid, statm: &Statm, before: u64, direct: u64| {
            let file_pages = statm.read().map_or(0, |figures| figures.file_pages);
            here += file_pages - direct.min(file_pages);
            let pages = statm.files(file_pages);
            mapped += pages.mapped.saturating_sub(before);
            shared.push((pid, pages.shared.saturating_sub(direct)));
        };
        for process in self.processes.values() {
            if let (Some(pid), Some(statm)) = (process.pid, &process.statm) {
                count(pid, statm, process.before.file_pages, process.direct_pages(u64::MAX >> 12));
            }
        }
        for (pid, statm) in self.watch.strangers.statms().filter(|(pid, _)| !self.is_ending(*pid)) {
            count(pid, statm, 0, 0);
        }
        let sum: u64 = shared.iter().map(|one| one.1).sum();
        // Of an attached program only what has come since counts, and direct memory is in all figures.
        let is_plain = !self.program.is_attached() && self.direct.is_none();
        let once =
            if is_plain && files > counted_max { self.watch.segments.pages(now, &shared) } else { sum };
        // Our own transfer areas are no memory of the program's.
        let ours = (self.processes.len() * loam_hand::SHARED_BYTES) as u64;
        let watch = &mut self.watch;
        watch.shared_peak_bytes =
            watch.shared_peak_bytes.max((once * BASE_PAGE_BYTES as u64).saturating_sub(ours));
        let cached = if files > counted_max { mapped.saturating_sub(counted_max) } else { 0 };
        // Who has ended since `files` was counted has nothing any more.
        (cached, sum - once + files.saturating_sub(here))
    }

    /// What processes have from which nothing can be taken, as they stand still or have no hand, and the least that the others need; 0: there are none.
    fn standing_pages(&self, now: Instant) -> u64 {
        // Of a family the one that shares most with its relatives: they mostly share the same.
        let (mut pages, mut shared) = (0, BTreeMap::<SpaceKey, u64>::new());
        for process in self.processes.values() {
            let local = self.borrower.local_in(process.key).0;
            if process.stands_still() {
                pages += local;
            } else if process.stays_without_hand(now) {
                let of_it = self.borrower.shared_in(process.key).0;
                pages += local - of_it;
                let most = shared.entry(process.family).or_default();
                *most = of_it.max(*most);
            }
        }
        pages += shared.values().sum::<u64>();
        if pages > 0 { pages + ADOPTED_PAGES_MIN } else { 0 }
    }

    /// Tells once when the budget is not held for longer than a burst lasts.
    fn tell_if_over(&mut self, now: Instant, resident: u64, others: u64) {
        let watch = &mut self.watch;
        let over = resident > watch.local_pages + watch.local_pages / 20 + OVER_PAGES;
        if !over {
            watch.over_since = None;
            return;
        }
        let since = *watch.over_since.get_or_insert(now);
        if watch.told_over {
            return;
        }
        let lasts = now - since >= OVER_LASTS;
        if !lasts && watch.burst.as_ref().is_some_and(|burst| burst.0 >= resident) {
            return; // it was worse before
        }
        let has_region = self.config.region.is_some();
        let stands = self.processes.values().any(Process::stands_still);
        let why = if self.direct.is_some() {
            format!(
                "{} MiB of it are outside of its direct region, and nothing of that is borrowed",
                others >> 8
            )
        } else if has_region && others + watch.buffers + ADOPTED_PAGES_MIN > watch.local_pages {
            format!("{} MiB of it are outside of its region, and only the region is borrowed", others >> 8)
        } else if others + watch.buffers + ADOPTED_PAGES_MIN > watch.local_pages {
            format!(
                "{} MiB of the program is memory that cannot be lent (files, libraries, stacks, shared memory)",
                others >> 8
            )
        } else if stands {
            "a process of it is stopped, and what that has cannot leave".to_owned()
        } else if self.borrower.stuck() > 0 {
            "neither the disk nor a lender takes what should leave".to_owned()
        } else if self.throttle.is_on() {
            "it takes memory faster than that can leave".to_owned()
        } else {
            "pages are locked, pinned, write-protected or shared with a forked child, and cannot leave"
                .to_owned()
        };
        watch.burst = Some((resident, why));
        if lasts {
            self.tell_burst("has");
        }
    }

    /// At the end: tells of a burst that was too short to be told of at once, and counts who has ended and never came.
    pub(super) fn end_watch(&mut self) {
        self.watch.strangers.end();
        self.tell_burst("had, for a moment,");
    }

    fn tell_burst(&mut self, had: &str) {
        let Some((resident, why)) = self.watch.burst.take() else { return };
        self.watch.told_over = true;
        self.report.warn(&format!(
            "--local {} cannot be held, the program {had} {} MiB here: {why}; give --local more",
            self.config.local,
            resident >> 8
        ));
    }

    /// Adopts what can be adopted of a process ([`Self::adopt`]), if looking has not taken its share of the time yet.
    pub(super) fn adopt_in_time(&mut self, key: SpaceKey) -> bool {
        let now = self.now();
        if !self.watch.may_look(now, false) {
            return false;
        }
        let is_adopted = self.adopt(key);
        self.set_looked(now);
        is_adopted
    }

    fn set_looked(&mut self, from: Instant) {
        let now = self.now();
        self.watch.looked = (now, now - from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_look_does_not_hold_up_the_next_one_once_the_tree_is_near_its_budget() {
        let mut watch = Watch::new(BasePages(32 << 8), 0);
        watch.looked = (Instant(1_000), Duration(100));
        let may = |at, is_near| watch.may_look(Instant(at), is_near);
        assert_eq!([may(1_099, true), may(1_100, true)], [false, true]);
        assert_eq!([may(1_999, false), may(2_000, false)], [false, true]);
    }
}
