//! From touches of addresses to references to pages.
//!
//! The recorder yields what a translation buffer of 44 entries misses: a page is not yielded again until [`RECENT`] other references have
//! been, unless it is written for the first time in between. It is yielded again at its next touch after that, so a page that is
//! always in use is never far behind in the order of last uses. The paper's system knew no more than that: its ages come from the misses
//! of the processor's buffer, which has as many entries (section 5.2).

use super::{
    INSTRUCTIONS_PER_FILE_WORD, INSTRUCTIONS_PER_REFERENCE, Object, PS_PER_REFERENCE, Reference, WorkPage,
};
use loam_core::units::Bytes;

/// References that are remembered.
pub(super) const RECENT: usize = 44;
/// Where a page is remembered is found by the last bits of its number. Of two pages that agree in all of them only the later one is found:
/// the other is yielded again too early, which does no harm.
const PLACES: usize = 1024;
/// No page.
const NOWHERE: u64 = u64::MAX;
/// Written, in an entry of the memory.
const WRITTEN: u64 = 1 << 63;
const PS_PER_INSTRUCTION: u64 = PS_PER_REFERENCE / INSTRUCTIONS_PER_REFERENCE;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    page_shift: u32,
    /// The last touch: most touches are of the same page again.
    last: u64,
    recent: [u64; RECENT],
    oldest: usize,
    /// Index in `recent`.
    places: Box<[u8; PLACES]>,
    pending_ps: u64,
    pending_idle_us: u64,
    /// A bit for each page of private memory that the program has used.
    used: Vec<u64>,
    out: Vec<Reference>,
}

/// Object and page as one number, below [`WRITTEN`].
fn key(object: Object, page: u64) -> u64 {
    let object = match object {
        Object::Private => 0,
        Object::File(file) => u64::from(file) + 1,
    };
    object << 32 | page
}

fn place(key: u64) -> usize {
    (key ^ key >> 32) as usize % PLACES
}

impl Recorder {
    /// # Panics
    /// If a page is not a power of two from 4 KiB to 1 MiB.
    pub(super) fn new(page: Bytes) -> Self {
        assert!(page.0.is_power_of_two() && (4096..=1 << 20).contains(&page.0), "page size out of range");
        Self {
            page_shift: page.0.ilog2(),
            last: NOWHERE,
            recent: [NOWHERE; RECENT],
            oldest: 0,
            places: Box::new([0; PLACES]),
            pending_ps: 0,
            pending_idle_us: 0,
            used: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Pages of so many bytes.
    pub(super) fn pages(&self, bytes: u64) -> u64 {
        bytes.div_ceil(1 << self.page_shift)
    }

    pub(super) fn page_bytes(&self) -> u64 {
        1 << self.page_shift
    }

    /// The program executes so many instructions.
    #[inline]
    pub(super) fn work(&mut self, instructions: u64) {
        self.pending_ps += instructions * PS_PER_INSTRUCTION;
    }

    /// The program makes so many data references, and the instructions between them.
    #[inline]
    pub(super) fn references(&mut self, references: u64) {
        self.pending_ps += references * PS_PER_REFERENCE;
    }

    /// The user thinks.
    pub(super) fn idle(&mut self, us: u64) {
        self.pending_idle_us += us;
    }

    /// A touch of so many bytes (at least one) of private memory.
    #[inline]
    pub(super) fn private(&mut self, address: u64, bytes: u64, write: bool) {
        self.touch(Object::Private, address, bytes, write);
    }

    /// A touch of so many bytes (at least one).
    #[inline]
    pub(super) fn touch(&mut self, object: Object, address: u64, bytes: u64, write: bool) {
        debug_assert!(bytes > 0);
        let (first, last) = (address >> self.page_shift, (address + bytes - 1) >> self.page_shift);
        for page in first..=last {
            self.page(object, page, write);
        }
    }

    /// A touch of one page.
    #[inline]
    pub(super) fn page(&mut self, object: Object, page: u64, write: bool) {
        let key = key(object, page);
        if self.last == key && !write || self.last == key | WRITTEN {
            return;
        }
        self.other(object, page, key, write);
    }

    /// Reads or writes a stretch of a file by system calls: time for copying, and the pages. A file that is `made` is new.
    pub(super) fn file(&mut self, file: u16, begin: u64, bytes: u64, write: bool, made: bool) {
        assert!(bytes > 0, "a transfer has a size");
        let page_bytes = self.page_bytes();
        let (first, last) = (begin >> self.page_shift, (begin + bytes - 1) >> self.page_shift);
        for page in first..=last {
            let (from, to) = (begin.max(page * page_bytes), (begin + bytes).min((page + 1) * page_bytes));
            self.work((to - from).div_ceil(8) * INSTRUCTIONS_PER_FILE_WORD);
            // A page that is new from its beginning on needs no reading.
            if write && made && from == page * page_bytes {
                self.emit(Object::File(file), page, true, true);
            } else {
                self.page(Object::File(file), page, write);
            }
        }
    }

    /// The program ends and another one begins, with memory of its own.
    pub(super) fn next_program(&mut self) {
        self.used.clear();
        self.last = NOWHERE;
        for entry in &mut self.recent {
            if *entry != NOWHERE && (*entry & !WRITTEN) >> 32 == 0 {
                *entry = NOWHERE;
            }
        }
    }

    #[inline(never)]
    fn other(&mut self, object: Object, page: u64, key: u64, write: bool) {
        let entry = self.recent[usize::from(self.places[place(key)])];
        if entry == key | WRITTEN || entry == key && !write {
            self.last = entry;
            return;
        }
        let fresh = object == Object::Private && self.first_use(page);
        self.emit(object, page, write, fresh);
    }

    fn first_use(&mut self, page: u64) -> bool {
        let (word, bit) = ((page / 64) as usize, 1 << (page % 64));
        if self.used.len() <= word {
            self.used.resize(word + 1, 0);
        }
        let first = self.used[word] & bit == 0;
        self.used[word] |= bit;
        first
    }

    fn emit(&mut self, object: Object, page: u64, write: bool, fresh: bool) {
        let key = key(object, page);
        let entry = if write { key | WRITTEN } else { key };
        let at = &mut self.places[place(key)];
        if self.recent[usize::from(*at)] == key {
            // A page that was read and is written now stays where it is.
            self.recent[usize::from(*at)] = entry;
        } else {
            *at = self.oldest as u8;
            self.recent[self.oldest] = entry;
            self.oldest = (self.oldest + 1) % RECENT;
        }
        self.last = entry;
        let page = WorkPage { object, page: u32::try_from(page).expect("less than 2^32 pages") };
        let mut ns = self.pending_ps / 1000;
        self.pending_ps %= 1000;
        let mut idle_us = std::mem::take(&mut self.pending_idle_us);
        // What does not fit into one reference is told by touches of the page that was used last.
        while ns > u64::from(u32::MAX) || idle_us > u64::from(u32::MAX) {
            let before = self.out.last().map_or(page, |reference| reference.page);
            let (cpu_ns, idle) = (ns.min(u64::from(u32::MAX)), idle_us.min(u64::from(u32::MAX)));
            self.out.push(Reference {
                page: before,
                cpu_ns: cpu_ns as u32,
                idle_us: idle as u32,
                write: false,
                fresh: fresh && before == page,
            });
            (ns, idle_us) = (ns - cpu_ns, idle_us - idle);
        }
        self.out.push(Reference { page, cpu_ns: ns as u32, idle_us: idle_us as u32, write, fresh });
    }

    /// References that wait to be taken.
    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// Moves what was recorded to the end of `into`. True if there was something.
    pub(super) fn take(&mut self, into: &mut Vec<Reference>) -> bool {
        let some = !self.out.is_empty();
        into.append(&mut self.out);
        some
    }
}

#[cfg(test)]
mod tests;
