//! The owner's record: for each base page of contents that left the program, where its copies are, which
//! version they have and what they hash to (DESIGN.md, section 2, rule 1).
//!
//! A copy is immutable. New contents of a page get a copy of their own, so a forked child keeps the old one
//! for as long as it refers to it, and a late answer about old contents cannot be taken for the new. A copy's index
//! names it everywhere: it is its slot in the slot file and its index in [`crate::ids::PageId`] at lenders.

use crate::ids::{ContentHash, Version};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Index of a copy; its slot in the slot file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CopyIndex(pub u32);

/// A page buffer of the driver's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferIndex(pub u32);

/// A lender of this run. The index of one that is lost may be given to the next that joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LenderIndex(pub u8);

/// How far one place has got with a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stored {
    /// It does not have it.
    #[default]
    No,
    /// On its way there.
    Sending,
    /// It has it.
    Yes,
    /// It has it, and may give it up: it says so, sooner or later.
    Spare,
}

impl Stored {
    /// It has it, as far as is known.
    pub(super) fn has(self) -> bool {
        matches!(self, Self::Yes | Self::Spare)
    }
}

/// What a copy has been through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Safety {
    /// It has not been safe yet.
    New,
    /// It has been.
    Reached,
    /// It has lost a lender since, and nobody could take it again: those that still have it have to do.
    Resigned,
}

impl Safety {
    /// It has lost another: who resigned tries again.
    pub(super) fn again(self) -> Self {
        if self == Self::Resigned { Self::Reached } else { self }
    }
}

/// Lenders, beside the first, that may have a copy.
pub const MIRRORS_MAX: usize = 3;

/// What another lender than the first has of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mirror {
    pub lender: LenderIndex,
    pub stored: Stored,
}

impl Mirror {
    pub(super) const NONE: Self = Self { lender: LenderIndex(0), stored: Stored::No };
}

const NO_BUFFER: u32 = u32::MAX;
/// No lender has this index.
pub(super) const NOBODY: LenderIndex = LenderIndex(u8::MAX);

/// One base page of contents. 48 bytes for each base page that ever left, within the 64 of the bar.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub hash: ContentHash,
    /// Table entries that refer to it: pages that are away, and local pages that may still equal it.
    pub refs: u32,
    pub version: Version,
    buffer: u32,
    /// Changed to and from `Yes` by [`Copies::set_on_disk`] and [`Copies::clear_on_disk`], which count.
    pub disk: Stored,
    pub at_lender: Stored,
    pub lender: LenderIndex,
    /// Others that have it; empty unless `at_lender` says that the first one has it, or gets it.
    pub mirrors: [Mirror; MIRRORS_MAX],
    /// The first lender has it on its disk.
    pub drained: bool,
    pub safety: Safety,
    /// Who was told to write it to its disk when it got it last, or [`NOBODY`]. It may have lost it since, or be lost itself.
    pub staged_at: LenderIndex,
    /// Its lender wants it back.
    pub recalled: bool,
    /// That lender, while the copy is on its way to another: it has it until the other has.
    pub old: Option<LenderIndex>,
    /// Lenders that it may still be offered to.
    pub offers: u8,
    /// A getpage or a disk read is under way: the index may not be used for other contents.
    pub fetching: bool,
    /// Its buffer holds what the prefetcher brought, and no fault has asked for it yet.
    pub prefetched: bool,
    /// Its buffer counts as reusable.
    pub reusable: bool,
    /// The index is in use.
    pub live: bool,
}

impl Copy {
    const EMPTY: Copy = Copy {
        hash: ContentHash(0),
        refs: 0,
        version: Version(0),
        buffer: NO_BUFFER,
        disk: Stored::No,
        at_lender: Stored::No,
        lender: LenderIndex(0),
        mirrors: [Mirror::NONE; MIRRORS_MAX],
        drained: false,
        safety: Safety::New,
        staged_at: NOBODY,
        recalled: false,
        old: None,
        offers: 0,
        fetching: false,
        prefetched: false,
        reusable: false,
        live: false,
    };

    pub(super) fn buffer(&self) -> Option<BufferIndex> {
        (self.buffer != NO_BUFFER).then_some(BufferIndex(self.buffer))
    }

    pub(super) fn set_buffer(&mut self, buffer: Option<BufferIndex>) {
        self.buffer = buffer.map_or(NO_BUFFER, |b| b.0);
    }

    /// Something outside still works on it.
    pub(super) fn busy(&self) -> bool {
        self.disk == Stored::Sending || self.stores_at_lenders() > 0 || self.fetching
    }

    /// Lenders that it is on its way to.
    pub(super) fn stores_at_lenders(&self) -> u64 {
        self.count(|stored| stored == Stored::Sending)
    }

    /// The first lender and the others, as far as they have it or get it.
    pub(super) fn places(&self) -> impl Iterator<Item = Mirror> + core::clone::Clone {
        let first = Mirror { lender: self.lender, stored: self.at_lender };
        core::iter::once(first).chain(self.mirrors).filter(|place| place.stored != Stored::No)
    }

    /// Lenders of which this holds.
    pub(super) fn count(&self, holds: impl Fn(Stored) -> bool) -> u64 {
        self.places().filter(|place| holds(place.stored)).count() as u64
    }

    /// This lender has it, or gets it, or has it until another does.
    pub(super) fn is_at(&self, lender: LenderIndex) -> bool {
        self.old == Some(lender) || self.places().any(|place| place.lender == lender)
    }
}

const CHUNK: usize = 4096;
/// So many words of 64 indices ahead are looked at for one that is wholly free: as many indices as two chunks have.
const LOOKED_AHEAD: usize = 128;

/// All copies of a borrower, and which indices are free.
#[derive(Debug)]
pub(super) struct Copies {
    chunks: Vec<Box<[Copy]>>,
    /// One bit an index; 1: free.
    free_bits: Vec<u64>,
    free_count: u32,
    on_disk: u32,
    cursor: u32,
    limit: u32,
}

impl Copies {
    /// At most `limit` copies at a time.
    pub(super) fn new(limit: u32) -> Self {
        Self { chunks: Vec::new(), free_bits: Vec::new(), free_count: 0, on_disk: 0, cursor: 0, limit }
    }

    pub(super) fn in_use(&self) -> u32 {
        self.len() - self.free_count
    }

    /// Those of them that the disk has.
    pub(super) fn on_disk(&self) -> u32 {
        self.on_disk
    }

    /// The disk has it.
    pub(super) fn set_on_disk(&mut self, i: CopyIndex) {
        let before = core::mem::replace(&mut self.get_mut(i).disk, Stored::Yes);
        self.on_disk += u32::from(before != Stored::Yes);
    }

    /// The disk does not have it, or not any more.
    pub(super) fn clear_on_disk(&mut self, i: CopyIndex) {
        let before = core::mem::replace(&mut self.get_mut(i).disk, Stored::No);
        self.on_disk -= u32::from(before == Stored::Yes);
    }

    /// Indices ever used are below this.
    pub(super) fn len(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32
    }

    pub(super) fn get(&self, i: CopyIndex) -> &Copy {
        let copy = &self.chunks[i.0 as usize / CHUNK][i.0 as usize % CHUNK];
        assert!(copy.live, "copy {} is not in use", i.0);
        copy
    }

    pub(super) fn get_mut(&mut self, i: CopyIndex) -> &mut Copy {
        let copy = &mut self.chunks[i.0 as usize / CHUNK][i.0 as usize % CHUNK];
        assert!(copy.live, "copy {} is not in use", i.0);
        copy
    }

    /// A copy that may have been freed since.
    pub(super) fn find_mut(&mut self, i: CopyIndex) -> Option<&mut Copy> {
        let copy = self.chunks.get_mut(i.0 as usize / CHUNK)?.get_mut(i.0 as usize % CHUNK)?;
        copy.live.then_some(copy)
    }

    /// An index for new contents with one reference; consecutive calls give consecutive indices where they can,
    /// so that pages that leave together lie together on disk and travel together. `None`: the limit is reached.
    pub(super) fn allocate(&mut self, hash: ContentHash) -> Option<CopyIndex> {
        // Growing while an eighth is free keeps runs long; reusing then keeps the file small.
        if self.free_count == 0 || (self.free_count < self.len() / 8 && !self.is_free(self.cursor)) {
            self.grow();
        }
        if self.free_count == 0 {
            return None;
        }
        let index = self.next_free();
        self.free_bits[index as usize / 64] &= !(1 << (index % 64));
        self.free_count -= 1;
        self.cursor = if index + 1 < self.len() { index + 1 } else { 0 };
        let slot = &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK];
        assert!(!slot.live && slot.refs == 0, "a free index is in use");
        let version = Version(slot.version.0.wrapping_add(1));
        *slot = Copy { hash, refs: 1, version, live: true, ..Copy::EMPTY };
        Some(CopyIndex(index))
    }

    /// Gives the index back.
    ///
    /// # Panics
    /// If it is referred to, busy, or still has a buffer.
    pub(super) fn release(&mut self, i: CopyIndex) {
        let copy = self.get_mut(i);
        assert!(copy.refs == 0 && !copy.busy() && copy.buffer().is_none(), "copy {} is not done", i.0);
        copy.live = false;
        let on_disk = copy.disk == Stored::Yes;
        self.on_disk -= u32::from(on_disk);
        self.free_bits[i.0 as usize / 64] |= 1 << (i.0 % 64);
        self.free_count += 1;
    }

    pub(super) fn iter_live(&self) -> impl Iterator<Item = (CopyIndex, &Copy)> {
        self.chunks
            .iter()
            .flat_map(|c| c.iter())
            .enumerate()
            .filter(|(_, c)| c.live)
            .map(|(i, c)| (CopyIndex(i as u32), c))
    }

    fn is_free(&self, index: u32) -> bool {
        self.free_bits.get(index as usize / 64).is_some_and(|w| w >> (index % 64) & 1 == 1)
    }

    fn grow(&mut self) {
        if self.len().saturating_add(CHUNK as u32) > self.limit {
            return;
        }
        if !self.is_free(self.cursor) {
            self.cursor = self.len();
        }
        self.chunks.push(vec![Copy::EMPTY; CHUNK].into_boxed_slice());
        self.free_bits.extend(core::iter::repeat_n(u64::MAX, CHUNK / 64));
        self.free_count += CHUNK as u32;
    }

    fn next_free(&self) -> u32 {
        next_free(self.free_bits.len(), self.cursor, |w| self.free_bits[w])
    }
}

/// The next free index at the cursor or, around the end, behind it; `word` tells which are in each word of 64. One at least is.
fn next_free(words: usize, cursor: u32, mut word: impl FnMut(usize) -> u64) -> u32 {
    let start = cursor as usize / 64;
    let at = |w: usize, free: u64| w as u32 * 64 + free.trailing_zeros();
    let first = word(start) & (u64::MAX << (cursor % 64));
    if first != 0 {
        return at(start, first);
    }
    // A long run is worth more than a near hole, but not a search through all of them: where free indices are scattered there is none, and a word is used up after a few.
    let mut near = None;
    for (n, w) in (start + 1..words).chain(0..=start).enumerate() {
        let free = word(w);
        if free == u64::MAX {
            return at(w, free);
        }
        near = near.or((free != 0).then_some((w, free)));
        if let Some((w, free)) = near.filter(|_| n >= LOOKED_AHEAD) {
            return at(w, free);
        }
    }
    let (w, free) = near.expect("one is free");
    at(w, free)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn neighbours_get_consecutive_indices() {
        let mut copies = Copies::new(1 << 20);
        let got: Vec<u32> = (0..300).map(|i| copies.allocate(ContentHash(i)).unwrap().0).collect();
        assert_eq!(got, (0..300).collect::<Vec<_>>());
    }

    #[test]
    fn the_limit_holds() {
        let mut copies = Copies::new(CHUNK as u32);
        for i in 0..CHUNK {
            assert!(copies.allocate(ContentHash(i as u128)).is_some());
        }
        assert_eq!(copies.allocate(ContentHash(1)), None);
    }

    /// Allocates one index after the other; returns the words looked at, and how often the next one was not the neighbour.
    fn use_up(bits: &mut [u64], cursor: &mut u32, count: u64) -> (u64, u64) {
        let (mut looked_at, mut jumps) = (0, 0);
        for _ in 0..count {
            let index = next_free(bits.len(), *cursor, |w| {
                looked_at += 1;
                bits[w]
            });
            jumps += u64::from(index != *cursor);
            bits[index as usize / 64] &= !(1 << (index % 64));
            *cursor = (index + 1) % (bits.len() as u32 * 64);
        }
        (looked_at, jumps)
    }

    /// The usual state after much was written anew, for 16 GiB: in each word an eighth is free, and no word wholly.
    #[test]
    fn scattered_indices_are_found_nearby() {
        let words = (16 << 30) / 4096 / 64;
        for free in [0x0101_0101_0101_0101_u64, 0x8000_0000_0000_0000, 0x0000_00ff_0000_0000] {
            let (mut bits, mut cursor) = (vec![free; words], 0);
            let count = words as u64 * u64::from(free.count_ones());
            let (looked_at, _) = use_up(&mut bits, &mut cursor, count);
            assert!(looked_at <= count * 130, "{looked_at} words for {count} indices");
            assert!(bits.iter().all(|&bits| bits == 0));
        }
    }

    /// All that is free is at one end: what is in use is passed over once.
    #[test]
    fn what_is_in_use_is_passed_over_once_each_time_around() {
        let (words, free) = (65_536, 8_192);
        let mut bits = vec![0; words - free];
        bits.resize(words, 1);
        let (looked_at, _) = use_up(&mut bits, &mut 0, free as u64);
        assert!(looked_at <= (words + free * 130) as u64, "{looked_at}");
    }

    /// Words that are wholly free are used first as far as they are near: what leaves together has neighbouring indices.
    #[test]
    fn runs_are_used_first() {
        let mut bits: Vec<u64> = (0..4_096).map(|w| if w % 100 == 99 { u64::MAX } else { 1 << 7 }).collect();
        let (_, jumps) = use_up(&mut bits, &mut 0, 40 * 64);
        assert_eq!(jumps, 2 * 40, "one for each run, and one for the hole behind it");
    }

    #[test]
    fn a_record_stays_small() {
        assert!(size_of::<Copy>() <= 48);
    }

    proptest! {
        /// No index is handed out twice, and versions of an index only grow.
        #[test]
        fn indices_are_unique(ops in proptest::collection::vec((any::<bool>(), 0usize..10_000), 1..6_000)) {
            let mut copies = Copies::new(2 * CHUNK as u32);
            let mut live: Vec<CopyIndex> = Vec::new();
            let mut set = BTreeSet::new();
            let mut versions = std::collections::BTreeMap::new();
            for (add, pick) in ops {
                if add || live.is_empty() {
                    if let Some(i) = copies.allocate(ContentHash(7)) {
                        prop_assert!(set.insert(i));
                        let version = copies.get(i).version;
                        if let Some(old) = versions.insert(i, version) {
                            prop_assert!(version > old);
                        }
                        live.push(i);
                    } else {
                        prop_assert_eq!(live.len(), 2 * CHUNK);
                    }
                } else {
                    let i = live.swap_remove(pick % live.len());
                    copies.get_mut(i).refs = 0;
                    copies.release(i);
                    set.remove(&i);
                }
                prop_assert_eq!(copies.in_use() as usize, live.len());
            }
        }
    }
}
