//! A look at the records from outside: for the simulator and for tests, which compare them with what is really there.

use super::copies::{BufferIndex, CopyIndex, LenderIndex, MIRRORS_MAX, Stored};
use super::table::{BaseRange, BaseState, SpaceKey};
use super::{Borrower, PageRef};
use crate::ids::{ContentHash, Version};
use crate::page_size::PageSize;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;

/// What the owner's record says of one base page's copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyView {
    /// Its index.
    pub index: CopyIndex,
    /// Its version.
    pub version: Version,
    /// What it hashes to.
    pub hash: ContentHash,
    /// The buffer that holds it.
    pub buffer: Option<BufferIndex>,
    /// The slot file has it.
    pub on_disk: bool,
    /// The lender that has it, and is asked for it.
    pub at_lender: Option<LenderIndex>,
    /// Others that have it.
    pub at_others: [Option<LenderIndex>; MIRRORS_MAX],
}

impl Borrower {
    /// The copy that one base page's entry refers to.
    pub fn copy_of(&self, space: SpaceKey, base: u64) -> Option<CopyView> {
        let index = self.entry(space, base).copy?;
        let c = self.copies.get(index);
        Some(CopyView {
            index,
            version: c.version,
            hash: c.hash,
            buffer: c.buffer(),
            on_disk: c.disk == Stored::Yes,
            at_lender: c.at_lender.has().then_some(c.lender),
            at_others: c.mirrors.map(|mirror| mirror.stored.has().then_some(mirror.lender)),
        })
    }

    /// Counts everything again. It looks at every record, so it is for simulations and tests.
    ///
    /// # Panics
    /// If a count is off, or a buffer or a reference is lost or held twice.
    pub fn audit(&self) {
        let mut refs: BTreeMap<CopyIndex, u32> = BTreeMap::new();
        self.leftovers.iter().for_each(|copy| *refs.entry(copy).or_default() += 1);
        let (mut frames, mut leaving, mut taken) = (0, 0, 0_u64);
        for (&key, space) in &self.spaces {
            let (mut own, mut shared) = (0, 0);
            for base in self.used(key, BaseRange::new(0, u64::MAX)) {
                let entry = self.entry(key, base);
                let here = matches!(entry.state, BaseState::Local | BaseState::Leaving | BaseState::Fetching);
                own += u64::from(here && !entry.shared);
                shared += u64::from(entry.shared);
                assert!(here || !entry.shared, "a page that is not here shares a frame");
                leaving += u64::from(entry.state == BaseState::Leaving && !entry.shared);
                taken += u64::from(entry.state == BaseState::Leaving);
                let away = matches!(entry.state, BaseState::Away | BaseState::Fetching);
                assert!(!away || entry.copy.is_some(), "a page is away without a copy");
                if let Some(copy) = entry.copy {
                    *refs.entry(copy).or_default() += 1;
                }
            }
            self.audit_queue(key, space);
            self.audit_ranks(key, space);
            assert_eq!((space.frames, space.shared), (own, shared), "the frames of {key:?} are miscounted");
            frames += own;
        }
        assert_eq!((self.frames, self.leaving), (frames, leaving), "frames or leaving pages are miscounted");
        let unreported = self.batches.values().filter(|b| self.spaces.contains_key(&b.space()));
        assert_eq!(
            unreported.map(super::Batch::unreported).sum::<u64>(),
            taken,
            "a leaving page has no batch"
        );
        let queued = self.spaces.values().map(|space| space.table.queued_pages()).sum::<u64>();
        assert_eq!(self.queued_pages, queued, "pages in the replacement queue are miscounted");
        self.audit_copies(&refs);
        self.audit_buffers();
        self.audit_waiters();
    }

    /// Each local base page has a page in the replacement queue, or one that rests outside of it: else it would stay for ever.
    fn audit_queue(&self, key: SpaceKey, space: &super::Space) {
        let aside = || space.parked.iter().chain(&space.pinned);
        let is_aside = |base| aside().any(|&(first, size)| size.first(base) == first);
        for base in self.used(key, BaseRange::new(0, u64::MAX)) {
            let rests = || is_aside(base) || self.batches.values().any(|batch| batch.keeps(key, base));
            assert!(
                !space.table.is_stuck(base) || is_aside(base),
                "base page {base} of {key:?} is left alone for ever"
            );
            assert!(
                self.entry(key, base).state != BaseState::Local
                    || space.table.queued_around(base, PageSize::SMALLEST).is_some()
                    || rests(),
                "base page {base} of {key:?} is forgotten by the replacement policy"
            );
        }
    }

    /// What the program has said of priorities is so of each page that stands in the queue, or will be looked at.
    fn audit_ranks(&self, key: SpaceKey, space: &super::Space) {
        for base in self.used(key, BaseRange::new(0, u64::MAX)) {
            let page = PageRef { space: key, first: base };
            let is_due = self.ranking.has(key, base);
            let mark = space.marks.at(base);
            let is_right = self.ranks.of(page) == mark.priority && self.budgets.of(page) == mark.budget;
            assert!(
                space.table.queued(base).is_none() || is_due || is_right,
                "base page {base} of {key:?} stands in another place than is said of it"
            );
            let counted = [self.ranks.frames_of(page), self.budgets.frames_of(page)];
            for (size, frames) in
                counted.into_iter().flatten().filter_map(|n| Some((space.table.queued(base)?, n)))
            {
                assert_eq!(
                    frames,
                    space.table.own_in(base, size),
                    "frames at {base} of {key:?} are miscounted"
                );
            }
        }
    }

    fn audit_copies(&self, refs: &BTreeMap<CopyIndex, u32>) {
        let (mut held, mut lent) = (vec![0_u64; self.lenders.len()], 0);
        let mut wanted_back = held.clone();
        let (mut live, mut sending, mut reusable, mut on_disk) = (0, 0, 0, 0);
        let queued: BTreeSet<(CopyIndex, Version)> = self.recalls.iter().copied().collect();
        let stuck: BTreeSet<(CopyIndex, Version)> = self.unsafe_stuck.iter().copied().collect();
        let mends: BTreeSet<(CopyIndex, Version)> = self.mends.iter().copied().collect();
        for (i, c) in self.copies.iter_live() {
            live += 1;
            assert_eq!(c.refs, refs.get(&i).copied().unwrap_or(0), "copy {} has wrong references", i.0);
            assert!(c.refs > 0 || c.busy(), "copy {} is used by nobody", i.0);
            assert_eq!(c.fetching, self.fetches.contains_key(&i), "the fetch of copy {}", i.0);
            sending += u64::from(c.disk == Stored::Sending) + c.stores_at_lenders();
            lent += c.places().count() as u64;
            on_disk += u32::from(c.disk == Stored::Yes);
            self.audit_places(i, c);
            let waits = [&stuck, &mends].iter().any(|list| list.contains(&(i, c.version)));
            let comes = c.busy() || waits || c.recalled && queued.contains(&(i, c.version));
            assert!(
                c.refs == 0 || c.buffer().is_none() || self.is_safe(i) || comes,
                "copy {} keeps its buffer, and nothing is done about it",
                i.0
            );
            for place in c.places().filter(|place| place.stored.has()) {
                held[usize::from(place.lender.0)] += 1;
            }
            if let Some(old) = c.old {
                assert!(
                    c.at_lender == Stored::Sending && c.buffer().is_some(),
                    "copy {} moves from nowhere",
                    i.0
                );
                assert!(self.lenders[usize::from(old.0)].up, "copy {} moves from a lender that is lost", i.0);
                held[usize::from(old.0)] += 1;
                lent += 1;
            }
            let comes = c.old.is_some()
                || (c.at_lender == Stored::Yes
                    && (c.disk == Stored::Sending
                        || c.stores_at_lenders() > 0
                        || queued.contains(&(i, c.version))
                        || self.fetches.get(&i).is_some_and(|fetch| fetch.recall)));
            assert!(
                !c.recalled || c.refs == 0 || comes,
                "copy {} is wanted back, and nothing is done about it",
                i.0
            );
            if c.recalled {
                wanted_back[usize::from(c.old.unwrap_or(c.lender).0)] += 1;
            }
            reusable += u64::from(c.reusable);
            assert!(!c.reusable || (c.buffer().is_some() && self.is_safe(i)), "copy {} is not reusable", i.0);
        }
        assert_eq!(live, self.copies.in_use(), "copies are miscounted");
        assert_eq!(on_disk, self.copies.on_disk(), "copies on the disk are miscounted");
        assert_eq!(lent, self.lent, "what is lent is miscounted");
        assert_eq!(sending, self.stores_in_flight, "stores under way are miscounted");
        assert!(
            self.reusable.len() <= 2 * self.config.buffers as usize,
            "the list of reusable buffers grows"
        );
        assert_eq!(reusable, self.reusable_count, "reusable copies are miscounted");
        let homing = self.fetches.values().filter(|fetch| fetch.recall).count();
        assert_eq!(homing as u64, self.homing, "copies on their way home are miscounted");
        let counted = self.lenders.iter().map(|lender| lender.wanted_back);
        assert!(
            wanted_back.iter().copied().eq(counted),
            "what lenders want back is miscounted: {wanted_back:?}"
        );
        let counted = self.lenders.iter().map(|lender| lender.held);
        assert!(held.iter().copied().eq(counted), "what lenders hold is miscounted: {held:?}");
    }

    /// Who has a copy is there, is named once, and the first of them is one that has it if anybody has.
    fn audit_places(&self, i: CopyIndex, c: &super::copies::Copy) {
        let mut named = BTreeSet::new();
        for place in c.places() {
            let state = &self.lenders[usize::from(place.lender.0)];
            assert!(state.up || state.away, "copy {} is with a lender that is lost", i.0);
            assert!(named.insert(place.lender), "copy {} is twice with a lender", i.0);
            assert!(state.up || (c.drained && place.lender == c.lender), "copy {} is with who is away", i.0);
        }
        assert!(c.at_lender != Stored::No || named.is_empty(), "copy {} has mirrors of nothing", i.0);
        assert!(!c.drained || c.at_lender == Stored::Yes || c.old.is_some(), "copy {} is on no disk", i.0);
        let asked = self.fetches.get(&i).and_then(|fetch| fetch.at_lender);
        let has = |lender| c.places().any(|place| place.lender == lender && place.stored.has());
        assert!(asked.is_none_or(has), "copy {} is asked of who does not have it", i.0);
        let is_it = |&(at, version): &(CopyIndex, Version)| at == i && version == c.version;
        let queued = self.mends.iter().any(is_it) || (c.recalled && self.recalls.iter().any(is_it));
        let comes = queued || c.busy() || c.buffer().is_some();
        assert!(!self.is_thin(i) || comes, "copy {} has too few lenders, and nothing is done about it", i.0);
    }

    /// Each buffer is in exactly one place.
    fn audit_buffers(&self) {
        let mut places = vec![0_u8; self.config.buffers as usize];
        let copies = self.copies.iter_live().filter_map(|(_, c)| c.buffer());
        let batches = self.batches.values().flat_map(|b| b.buffers().iter().copied());
        let reads = self.fetches.values().filter_map(|f| f.at_disk);
        for buffer in self.free_buffers.iter().copied().chain(copies).chain(batches).chain(reads) {
            places[buffer.0 as usize] += 1;
        }
        let wrong = places.iter().position(|&n| n != 1);
        assert!(wrong.is_none(), "buffer {wrong:?} is in {:?} places", wrong.map(|b| places[b]));
    }
}
