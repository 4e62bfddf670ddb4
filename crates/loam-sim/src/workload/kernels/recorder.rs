//! Memory that notes which base pages are touched.

use super::{Event, PS_PER_OPERATION, QUANTUM, RECENT};
use loam_core::units::Bytes;
use loam_kernels::{Array, Element, Memory};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Events of a part, which are all in memory at a time (12 bytes each).
const PART_EVENTS_MAX: usize = 1 << 27;

/// What is known of a base page.
#[derive(Clone, Copy, Debug, Default)]
struct Noted {
    /// References that had been yielded when it was yielded last, this one too. 0: it never was.
    reference: u32,
    /// Written since it was yielded for something else than writing.
    written: bool,
    /// Operations that had been made then.
    operations: u64,
}

/// See the module. Clones speak of the same memory.
#[derive(Clone, Debug)]
pub struct Recorded {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    page_shift: u32,
    pages: Cell<u32>,
    /// References that were yielded.
    references: Cell<u32>,
    operations: Cell<u64>,
    /// Those of them whose time was told.
    told: Cell<u64>,
    /// Time that is still to be told.
    rest_ps: Cell<u64>,
    /// The program sets its input up: see the module above.
    setting_up: Cell<bool>,
    stopped: Cell<bool>,
    out: RefCell<Vec<Event>>,
}

impl Recorded {
    pub(super) fn new(base_page: Bytes) -> Self {
        let bytes = base_page.0;
        assert!(bytes.is_power_of_two() && (256..=1 << 20).contains(&bytes), "base page size out of range");
        Self {
            shared: Rc::new(Shared {
                page_shift: bytes.ilog2(),
                pages: Cell::new(0),
                references: Cell::new(0),
                operations: Cell::new(0),
                told: Cell::new(0),
                rest_ps: Cell::new(0),
                setting_up: Cell::new(false),
                stopped: Cell::new(false),
                out: RefCell::new(Vec::new()),
            }),
        }
    }

    pub(super) fn base_pages(&self) -> u32 {
        self.shared.pages.get()
    }

    /// Moves what was noted to the end of `into`. True if there was something.
    pub(super) fn take(&self, into: &mut Vec<Event>) -> bool {
        let mut out = self.shared.out.borrow_mut();
        let some = !out.is_empty();
        into.append(&mut out);
        some
    }

    /// Nothing is noted any more: what follows is not the program.
    pub(super) fn stop(&self) {
        self.shared.stopped.set(true);
    }
}

impl Shared {
    /// Nanoseconds of the operations since this was asked last. What does not fit is told the next time.
    fn elapsed_ns(&self) -> u32 {
        let operations = self.operations.get();
        let ps = (operations - self.told.replace(operations)) * PS_PER_OPERATION + self.rest_ps.get();
        let ns = u32::try_from(ps / 1000).unwrap_or(u32::MAX);
        self.rest_ps.set(ps - u64::from(ns) * 1000);
        ns
    }
}

impl Memory for Recorded {
    type Array<T: Element> = RecordedArray<T>;

    fn array<T: Element>(&self, length: usize) -> RecordedArray<T> {
        let bytes = (length * size_of::<T>()) as u64;
        let pages =
            u32::try_from(bytes.div_ceil(1 << self.shared.page_shift)).expect("less than 2^32 base pages");
        let first = self.shared.pages.get();
        self.shared.pages.set(first.checked_add(pages).expect("less than 2^32 base pages"));
        RecordedArray {
            values: vec![T::default(); length].into_boxed_slice(),
            shift: self.shared.page_shift - size_of::<T>().ilog2(),
            first,
            noted: vec![Cell::new(Noted::default()); pages as usize].into_boxed_slice(),
            shared: Rc::clone(&self.shared),
        }
    }

    fn part(&self, part: u32) {
        self.shared.setting_up.set(part == 0);
        if !self.shared.stopped.get() {
            self.shared.out.borrow_mut().push(Event::Part(part));
        }
    }

    fn work(&self, operations: u64) {
        self.shared.operations.set(self.shared.operations.get() + operations);
    }
}

/// An array whose touches are noted.
#[derive(Debug)]
pub struct RecordedArray<T> {
    values: Box<[T]>,
    /// From an element's number to its base page's.
    shift: u32,
    /// The number of the first base page.
    first: u32,
    noted: Box<[Cell<Noted>]>,
    shared: Rc<Shared>,
}

impl<T> RecordedArray<T> {
    #[inline(always)]
    fn touch(&self, index: usize, write: bool) {
        let operations = self.shared.operations.get() + 1;
        self.shared.operations.set(operations);
        let page = index >> self.shift;
        let noted = self.noted[page].get();
        let known = noted.reference != 0
            && self.shared.references.get() - noted.reference < RECENT
            && operations - noted.operations < QUANTUM;
        if !known || write && !noted.written {
            self.yielded(page, noted, write, known);
        }
    }

    #[inline(never)]
    fn yielded(&self, page: usize, noted: Noted, write: bool, known: bool) {
        let shared = &*self.shared;
        if shared.stopped.get() {
            return;
        }
        let fresh = noted.reference == 0;
        let keeps_written = known || shared.setting_up.get();
        let tells_nothing = !fresh && (!write || noted.written);
        if shared.setting_up.get() && tells_nothing {
            // Known again for a while, so that this is not asked at each touch.
            let (reference, operations) = (shared.references.get(), shared.operations.get());
            self.noted[page].set(Noted { reference, operations, ..noted });
            return;
        }
        let references = shared.references.get().checked_add(1).expect("less than 2^32 references");
        shared.references.set(references);
        let written = write || keeps_written && noted.written;
        self.noted[page].set(Noted { reference: references, written, operations: shared.operations.get() });
        let page = self.first + page as u32;
        let cpu_ns = shared.elapsed_ns();
        let mut out = shared.out.borrow_mut();
        assert!(out.len() < PART_EVENTS_MAX, "a part of the program has more than {PART_EVENTS_MAX} events");
        out.push(Event::Reference { page, cpu_ns, write, fresh });
    }
}

impl<T: Element> Array<T> for RecordedArray<T> {
    #[inline(always)]
    fn get(&self, index: usize) -> T {
        self.touch(index, false);
        self.values[index]
    }

    #[inline(always)]
    fn set(&mut self, index: usize, value: T) {
        self.touch(index, true);
        self.values[index] = value;
    }

    fn len(&self) -> usize {
        self.values.len()
    }
}
