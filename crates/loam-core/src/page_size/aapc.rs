//! Automatic adaptive page size control, as aapc-2012 has it.

use super::{Brought, Changes, PageSize, PageSizer, Place, Scope, SizeChange, SizeReason};
use crate::borrower::SpaceKey;
use crate::units::{BasePages, Instant};
use alloc::collections::{BTreeMap, BTreeSet};

/// Pages of a working set that are counted at most, in pages that fit: what is larger gets the smallest size anyway.
const COUNTED_MAX: u64 = 64;
/// And in all, so that the set stays small beside what it counts.
const COUNTED_MOST: u64 = 1 << 18;
/// Where a program names no parts, one ends when so many times what fits has been swapped in.
const UNNAMED_TURNS: u64 = 4;
/// Parts that are told apart; later ones count as the last.
const PARTS_MAX: u32 = 256;

/// One size for all memory, for each part of the program: the part's working set is taken to be the set of pages that it swapped in
/// (section II.A), and compared at its end with the pages that fit (section II.B).
#[derive(Debug)]
pub struct Aapc {
    basic: PageSize,
    most: PageSize,
    start: PageSize,
    limit: u64,
    part: u32,
    parts: BTreeMap<u32, PageSize>,
    named: bool,
    /// Pages that the part has swapped in, each once.
    working_set: BTreeSet<(SpaceKey, u64)>,
    /// And base pages, as often as they came.
    swapped_in: u64,
    changes: Changes,
}

impl Aapc {
    /// Pages from the basic size to `most`, of `start` at first (section III: 16 KiB, 1 MiB and 128 KiB).
    ///
    /// # Panics
    /// If `start` is not between them.
    pub fn new(basic: PageSize, start: PageSize, most: PageSize) -> Self {
        assert!(basic <= start && start <= most, "a size to start with that is not allowed");
        Self {
            basic,
            most,
            start,
            limit: 0,
            part: 0,
            parts: BTreeMap::new(),
            named: false,
            working_set: BTreeSet::new(),
            swapped_in: 0,
            changes: Changes::default(),
        }
    }

    fn now(&self) -> PageSize {
        self.parts.get(&self.part).copied().unwrap_or(self.start)
    }

    /// The part ends: the size that it has next time (section II.B).
    fn judge(&mut self, now: Instant) {
        let size = self.now();
        let working_set = self.working_set.len() as u64;
        self.working_set.clear();
        self.swapped_in = 0;
        let local = self.limit / size.base_pages();
        let (to, reason) = if working_set > local {
            // "Change page size small as closely as the following Target Size. Target Size = Local Memory Size / WS Page count".
            let target = BasePages((self.limit / working_set).max(1));
            let nearest = PageSize::all().min_by_key(|size| {
                let (n, target) = (size.base_pages(), target.0);
                // Nearest by ratio; of two that are equally far the smaller.
                (n.max(target) * 16 / n.min(target), n)
            });
            let nearest = nearest.expect("there are sizes");
            (nearest.min(size), SizeReason::Thrashing { working_set, local })
        } else {
            (size.doubled(), SizeReason::Fits { working_set, local })
        };
        let to = to.clamp(self.basic, self.most);
        self.parts.insert(self.part, to);
        if to != size {
            let part = self.part;
            self.changes.push(SizeChange { at: now, part, scope: Scope::All, from: size, to, reason });
        }
    }
}

impl PageSizer for Aapc {
    fn size(&mut self, _: Place) -> PageSize {
        self.now()
    }

    fn largest(&self) -> PageSize {
        self.parts.values().copied().max().unwrap_or(self.start).max(self.now())
    }

    fn brought(&mut self, now: Instant, page: &Brought) -> Option<u64> {
        let local = self.limit / page.size.base_pages();
        if (self.working_set.len() as u64) < COUNTED_MOST.min(COUNTED_MAX * local.max(1)) {
            self.working_set.insert((page.fault.space, page.size.first(page.fault.base)));
        }
        self.swapped_in += page.fetched.0;
        if !self.named && self.swapped_in >= UNNAMED_TURNS * self.limit {
            self.judge(now);
        }
        None
    }

    fn limited(&mut self, limit: BasePages) {
        self.limit = limit.0;
    }

    fn part_begins(&mut self, now: Instant, part: u32) {
        // What came before the first part is nobody's.
        if core::mem::replace(&mut self.named, true) {
            self.judge(now);
        } else {
            self.working_set.clear();
            self.swapped_in = 0;
        }
        self.part = part.min(PARTS_MAX - 1);
    }

    fn poll_change(&mut self) -> Option<SizeChange> {
        self.changes.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn size(kib: u64) -> PageSize {
        PageSize::new(BasePages(kib / 4)).unwrap()
    }

    /// The paper's: 16 KiB to 1 MiB, 128 KiB at first; `local` MiB.
    fn paper(local: u64) -> Aapc {
        let mut aapc = Aapc::new(size(16), size(128), size(1024));
        aapc.limited(BasePages(local * KIB / 4));
        aapc
    }

    /// A part that swaps in every page of so many MiB, so many times.
    fn part(aapc: &mut Aapc, number: u32, mib: u64, times: u64) -> PageSize {
        aapc.part_begins(Instant(0), number);
        let size = aapc.size(Place { space: SpaceKey(0), base: 0 });
        for _ in 0..times {
            for base in (0..mib * KIB / 4).step_by(size.base_pages() as usize) {
                let fault = Place { space: SpaceKey(0), base };
                let page = Brought { fault, size, fetched: BasePages(size.base_pages()) };
                assert_eq!(aapc.brought(Instant(0), &page), None);
            }
        }
        size
    }

    #[test]
    fn a_part_that_fits_doubles_each_time_up_to_the_largest() {
        let mut aapc = paper(64);
        let sizes: alloc::vec::Vec<u64> =
            (0..6).map(|_| part(&mut aapc, 1, 48, 1).base_pages() * 4).collect();
        assert_eq!(sizes, [128, 256, 512, 1024, 1024, 1024]);
        let change = aapc.poll_change().unwrap();
        assert_eq!(change.reason, SizeReason::Fits { working_set: 384, local: 512 });
    }

    #[test]
    fn a_part_that_thrashes_shrinks_to_the_target_at_once() {
        let mut aapc = paper(64);
        // 512 pages of 128 KiB fit; 4,096 are wanted, so 64 MiB / 4,096 = 16 KiB.
        assert_eq!(part(&mut aapc, 1, 512, 1), size(128));
        assert_eq!(part(&mut aapc, 1, 512, 1), size(16));
        assert_eq!(
            aapc.poll_change().unwrap().reason,
            SizeReason::Thrashing { working_set: 4096, local: 512 }
        );
    }

    #[test]
    fn each_part_has_its_own_size_and_set() {
        let mut aapc = paper(64);
        for _ in 0..4 {
            part(&mut aapc, 1, 32, 1);
            part(&mut aapc, 2, 256, 2);
        }
        assert_eq!(part(&mut aapc, 1, 32, 1), size(1024));
        assert!(part(&mut aapc, 2, 256, 1) < size(128));
    }

    #[test]
    fn without_parts_the_swapped_in_bytes_end_one() {
        let mut aapc = paper(64);
        for n in 0..64 * 4 * 8 {
            let fault = Place { space: SpaceKey(0), base: n % 64 * 32 };
            let page = Brought { fault, size: size(128), fetched: BasePages(32) };
            aapc.brought(Instant(0), &page);
        }
        assert_eq!(
            aapc.size(Place { space: SpaceKey(0), base: 0 }),
            size(256),
            "64 pages are wanted again and again"
        );
    }
}
