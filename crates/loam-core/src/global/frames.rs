//! The page-frame directory (gms-1995, section 4.1): a record for each page, local or global, that is present on this node.
//!
//! Local pages are in one list by last use. Global pages come with the age that they had, so they are in an ordered set.

use super::ages::AgeSummary;
use crate::ids::{NodeId, PageId, Version};
use crate::replacement::links::{Links, List, NONE};
use crate::replacement::{Numbering, cell};
use crate::units::{Duration, Instant};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// In whose use a page is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// This node's own.
    #[default]
    Local,
    /// Held for another.
    Global,
}

/// What is known of a page that is present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// In whose use it is.
    pub kind: Kind,
    /// Of a file that several nodes may read; its directory entry is where the POD says. Otherwise private, and its owner keeps the entry.
    pub shared: bool,
    /// Whose directory has a private page's entry.
    pub owner: NodeId,
    /// Which contents.
    pub version: Version,
    /// Other nodes have it in local memory too, as far as is known.
    pub duplicate: bool,
    /// Written to since it came: the disk has older contents.
    pub dirty: bool,
    /// Came by a sequential scan and was used once only.
    pub scanned: bool,
    /// How often it may still be forwarded (N-chance).
    pub recirculations: u8,
    /// When it was last used, by whomever.
    pub last_used: Instant,
}

/// Uses closer together than this are one: a program that scans a page touches it many times.
const ONE_USE: Duration = Duration::from_millis(1_000);

/// How well a node knows how old pages are, and how it compares them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ages {
    /// How often it looks which of its own pages were used (section 4.2): their ages are known in so long steps. 0: exactly.
    pub sample: Duration,
    /// A global page counts as so much older, in percent (section 3.1: "boosts the ages of global pages to favor their replacement").
    pub boost_percent: u32,
    /// All pages are in one list, in which one that comes from another node is the youngest (N-chance, section 2): of a global and a local page
    /// that were used in the same step the local one is older.
    pub one_list: bool,
}

impl Ages {
    fn sampled(&self, age: Duration) -> Duration {
        if self.sample.0 == 0 { age } else { Duration(age.0 - age.0 % self.sample.0) }
    }

    fn boosted(&self, age: Duration) -> Duration {
        let boosted = u128::from(age.0) * u128::from(100 + self.boost_percent) / 100;
        Duration(boosted.min(u128::from(u64::MAX)) as u64)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Frames {
    capacity: u32,
    numbers: Numbering<PageId>,
    frames: Vec<Frame>,
    /// Which numbers are pages' that are present.
    present: Vec<bool>,
    links: Links,
    local: List,
    global: BTreeSet<(Instant, u32)>,
    duplicates: usize,
    ages: Ages,
}

impl Frames {
    /// `capacity` empty frames.
    pub fn new(capacity: u32, ages: Ages) -> Self {
        Self {
            capacity,
            numbers: Numbering::default(),
            frames: Vec::new(),
            present: Vec::new(),
            links: Links::default(),
            local: List::default(),
            global: BTreeSet::new(),
            duplicates: 0,
            ages,
        }
    }

    /// How many frames there are.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// More or fewer frames; if pages are too many the caller evicts until [`Self::is_over`] is false.
    pub fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
    }

    /// Frames without a page.
    pub fn free(&self) -> u32 {
        self.capacity.saturating_sub(self.pages())
    }

    /// More pages than frames?
    pub fn is_over(&self) -> bool {
        self.pages() > self.capacity
    }

    /// Pages present.
    pub fn pages(&self) -> u32 {
        (self.local.len + self.global.len()) as u32
    }

    /// Local pages present.
    pub fn local_pages(&self) -> u32 {
        self.local.len as u32
    }

    /// Global pages present.
    pub fn global_pages(&self) -> u32 {
        self.global.len() as u32
    }

    /// A page's record, if it is present.
    pub fn get(&self, page: PageId) -> Option<&Frame> {
        self.numbers.get(page).map(|number| &self.frames[number as usize])
    }

    /// A local page is used. False: it is not local.
    #[inline]
    pub fn touch(&mut self, now: Instant, page: PageId, write: bool) -> bool {
        let Some(number) = self.numbers.get(page) else { return false };
        let frame = &mut self.frames[number as usize];
        if frame.kind != Kind::Local {
            return false;
        }
        frame.scanned &= now - frame.last_used < ONE_USE;
        frame.last_used = now;
        frame.dirty |= write;
        if self.local.first != number {
            self.links.remove(&mut self.local, number);
            self.links.push_first(&mut self.local, number);
        }
        true
    }

    /// A page has come.
    ///
    /// # Panics
    /// If it is present already.
    pub fn insert(&mut self, page: PageId, frame: Frame) {
        let before = self.numbers.len();
        let number = self.numbers.number(page);
        assert!(self.numbers.len() > before, "{page:?} is present twice");
        *cell(&mut self.frames, number) = frame;
        *cell(&mut self.present, number) = true;
        match frame.kind {
            Kind::Local => {
                let newest = self.local.first;
                let in_order = newest == NONE || self.frames[newest as usize].last_used <= frame.last_used;
                assert!(in_order, "a local page comes when it is used");
                self.links.push_first(&mut self.local, number);
            }
            Kind::Global => assert!(self.global.insert((frame.last_used, number))),
        }
        self.duplicates += usize::from(frame.duplicate);
    }

    /// A page leaves.
    pub fn remove(&mut self, page: PageId) -> Option<Frame> {
        let number = self.numbers.get(page)?;
        let frame = self.frames[number as usize];
        match frame.kind {
            Kind::Local => self.links.remove(&mut self.local, number),
            Kind::Global => assert!(self.global.remove(&(frame.last_used, number))),
        }
        self.duplicates -= usize::from(frame.duplicate);
        self.numbers.remove(page);
        self.present[number as usize] = false;
        Some(frame)
    }

    /// Whether other nodes have a page too, as far as is known.
    pub fn set_duplicate(&mut self, page: PageId, duplicate: bool) {
        let Some(number) = self.numbers.get(page) else { return };
        let frame = &mut self.frames[number as usize];
        self.duplicates -= usize::from(frame.duplicate);
        self.duplicates += usize::from(duplicate);
        frame.duplicate = duplicate;
    }

    /// A page's age as replacement sees it.
    pub fn age(&self, now: Instant, frame: &Frame) -> Duration {
        let age = now - frame.last_used;
        match frame.kind {
            Kind::Global if !self.ages.one_list => self.ages.boosted(age),
            Kind::Global | Kind::Local => self.ages.sampled(age),
        }
    }

    /// The page that is oldest, as far as ages are known.
    pub fn oldest(&self, now: Instant) -> Option<(PageId, Frame)> {
        let local = (self.local.last != NONE).then_some(self.local.last);
        let global = self.global.first().map(|&(_, number)| number);
        let older = match (local, global) {
            (Some(local), Some(global)) => {
                let age = |number: u32| self.age(now, &self.frames[number as usize]);
                let (global_age, local_age) = (age(global), age(local));
                let tie_to_global = !self.ages.one_list;
                if global_age > local_age || global_age == local_age && tie_to_global {
                    global
                } else {
                    local
                }
            }
            (one, other) => one.or(other)?,
        };
        Some((self.numbers.key(older), self.frames[older as usize]))
    }

    /// The oldest local page that other nodes have too.
    pub fn oldest_duplicate(&self) -> Option<(PageId, Frame)> {
        if self.duplicates == 0 {
            return None;
        }
        let mut number = self.local.last;
        while number != NONE {
            let frame = self.frames[number as usize];
            if frame.duplicate {
                return Some((self.numbers.key(number), frame));
            }
            number = self.links.newer(number);
        }
        None
    }

    /// The oldest page that is here for another node.
    pub fn oldest_global(&self) -> Option<(PageId, Frame)> {
        let &(_, number) = self.global.first()?;
        Some((self.numbers.key(number), self.frames[number as usize]))
    }

    /// All pages, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (PageId, Frame)> + '_ {
        let local =
            core::iter::successors((self.local.first != NONE).then_some(self.local.first), |&number| {
                // From the newest on, each older neighbour: the list is walked from its end otherwise.
                let older = self.links.older(number);
                (older != NONE).then_some(older)
            });
        let global = self.global.iter().map(|&(_, number)| number);
        local.chain(global).map(|number| (self.numbers.key(number), self.frames[number as usize]))
    }

    /// The ages of all pages (section 4.2) that others may replace, boosted as replacement sees them, and the free frames. A local page
    /// younger than `old_age` is in use.
    pub fn summarise(&self, now: Instant, old_age: Duration) -> AgeSummary {
        let mut summary = AgeSummary::default();
        // As they lie in memory: in the order of the list each one is a miss of the processor's caches, and takes thirty times as long.
        let present = self.present.iter().zip(&self.frames).filter(|(present, _)| **present);
        for (_, frame) in present {
            match (frame.kind, self.age(now, frame)) {
                (Kind::Local, age) if age < old_age => summary.add_in_use(1),
                (_, age) => summary.add(age, 1),
            }
        }
        summary.add_free(self.free());
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SpaceId;

    const MINUTE: Duration = Duration::from_millis(60_000);

    fn page(index: u64) -> PageId {
        PageId { space: SpaceId(1), index }
    }

    /// A local page, used `local` seconds ago, and a global one: which is older?
    fn older(ages: Ages, local: u64, global: u64) -> Kind {
        let now = Instant(1_000_000_000_000);
        let mut frames = Frames::new(2, ages);
        for (kind, age) in [(Kind::Local, local), (Kind::Global, global)] {
            let last_used = Instant(now.0 - age * 1_000_000_000);
            frames.insert(page(age), Frame { kind, last_used, ..Frame::default() });
        }
        frames.oldest(now).expect("it has two").1.kind
    }

    #[test]
    fn global_pages_leave_first_among_equals() {
        let exact = Ages { boost_percent: 25, ..Ages::default() };
        assert_eq!(older(exact, 101, 100), Kind::Global, "125 s with its boost");
        assert_eq!(older(exact, 150, 100), Kind::Local);
        assert_eq!(
            older(Ages { sample: MINUTE, ..exact }, 59, 1),
            Kind::Global,
            "the local one may be in use"
        );
        assert_eq!(older(Ages { sample: MINUTE, ..exact }, 61, 1), Kind::Local);
    }

    #[test]
    fn in_one_list_who_came_within_the_last_sample_is_younger_than_all() {
        let ages = Ages { sample: MINUTE, one_list: true, ..Ages::default() };
        assert_eq!(older(ages, 1, 59), Kind::Local);
        assert_eq!(older(ages, 1, 61), Kind::Global);
        assert_eq!(older(ages, 119, 118), Kind::Local);
        assert_eq!(older(Ages { sample: Duration(0), ..ages }, 1, 2), Kind::Global, "exactly known");
    }
}
