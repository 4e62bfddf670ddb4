//! A program's shared memory: arrays that it computes in, and the notes of what it touches there.
//!
//! A program cannot reach an element of a [`Shared`] array but by a [`Recorder`], which notes the touch and hands the
//! element out: what is computed with is what is touched. (What sets up the input and what checks the result is not
//! the program, and has the values for itself.)

#[cfg(test)]
mod tests;

use super::{Touch, TouchKind};
use std::ops::Range;

/// Bytes of a page of the paper's machine (table 1): no touch reaches across the end of one.
pub const PAGE_BYTES: u64 = 4096;

/// Hands out addresses. Each array begins a page, as a mapped file does.
#[derive(Debug, Default)]
pub(super) struct Space {
    end: u64,
}

impl Space {
    /// An array with these values in it, which are on disk before the program begins.
    pub(super) fn array<T: Copy>(&mut self, values: Vec<T>) -> Shared<T> {
        let base = self.end.next_multiple_of(PAGE_BYTES);
        self.end = base + (values.len() * size_of::<T>()) as u64;
        Shared { base, values }
    }

    /// Bytes up to the end of the last array.
    pub(super) fn bytes(&self) -> u64 {
        self.end
    }
}

/// An array in shared memory.
#[derive(Clone, Debug)]
pub(super) struct Shared<T> {
    base: u64,
    values: Vec<T>,
}

impl<T> Shared<T> {
    /// What is in it, for who checks the result.
    pub(super) fn values(&self) -> &[T] {
        &self.values
    }

    /// What is in it before the program begins, instead of what it was made with.
    pub(super) fn set_input(&mut self, values: &[T])
    where
        T: Copy,
    {
        self.values.copy_from_slice(values);
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}

/// Notes one processor's touches in one phase.
pub(super) struct Recorder<'a> {
    into: &'a mut Vec<Touch>,
    /// Touches before it had their instructions told.
    told: usize,
}

impl<'a> Recorder<'a> {
    /// Touches are appended.
    pub(super) fn new(into: &'a mut Vec<Touch>) -> Self {
        let told = into.len();
        Self { into, told }
    }

    /// The elements are read, in order.
    #[inline]
    pub(super) fn read<'s, T>(&mut self, array: &'s Shared<T>, range: Range<usize>) -> &'s [T] {
        self.touch::<T>(array.base, &range, TouchKind::Read);
        &array.values[range]
    }

    /// The elements are written, in order; what they were does not matter.
    #[inline]
    pub(super) fn write<'s, T>(&mut self, array: &'s mut Shared<T>, range: Range<usize>) -> &'s mut [T] {
        self.touch::<T>(array.base, &range, TouchKind::Write);
        &mut array.values[range]
    }

    /// The elements are read and written.
    #[inline]
    pub(super) fn update<'s, T>(&mut self, array: &'s mut Shared<T>, range: Range<usize>) -> &'s mut [T] {
        self.touch::<T>(array.base, &range, TouchKind::Read);
        self.write(array, range)
    }

    /// Some elements are read, and `to`, others of the same array, are read and written.
    ///
    /// # Panics
    /// If what is read is a part of what is written.
    pub(super) fn combine<'s, T, const N: usize>(
        &mut self,
        array: &'s mut Shared<T>,
        from: [Range<usize>; N],
        to: Range<usize>,
    ) -> ([&'s [T]; N], &'s mut [T]) {
        for range in from.iter().chain([&to]) {
            self.touch::<T>(array.base, range, TouchKind::Read);
        }
        self.touch::<T>(array.base, &to, TouchKind::Write);
        let (before, rest) = array.values.split_at_mut(to.start);
        let (target, after) = rest.split_at_mut(to.len());
        let (before, after): (&'s [T], &'s [T]) = (before, after);
        let sources = from.map(|range| {
            assert!(range.end <= to.start || to.end <= range.start, "what is read is written");
            if range.end <= to.start {
                &before[range]
            } else {
                &after[range.start - to.end..range.end - to.end]
            }
        });
        (sources, target)
    }

    /// The processor executes so many instructions with what was touched since this was said last: more with more
    /// bytes.
    ///
    /// # Panics
    /// If nothing was touched since, or instructions and bytes are beyond all programs (2^32 a touch).
    pub(super) fn work(&mut self, instructions: usize) {
        let touches = &mut self.into[self.told..];
        assert!(!touches.is_empty(), "instructions belong to a touch");
        let whole: u64 = touches.iter().map(|touch| u64::from(touch.bytes)).sum();
        let (mut bytes, mut executed) = (0, 0);
        for touch in touches {
            bytes += u64::from(touch.bytes);
            let until = instructions as u64 * bytes / whole;
            touch.busy_cycles =
                u32::try_from(until - executed).expect("fewer than 2^32 instructions a touch");
            executed = until;
        }
        self.told = self.into.len();
    }

    #[inline]
    fn touch<T>(&mut self, base: u64, range: &Range<usize>, kind: TouchKind) {
        let at = |index: usize| base + (index * size_of::<T>()) as u64;
        let (mut address, end) = (at(range.start), at(range.end));
        assert!(address < end, "a touch has a size");
        while address < end {
            let next = end.min((address / PAGE_BYTES + 1) * PAGE_BYTES);
            self.into.push(Touch { address, bytes: (next - address) as u32, kind, busy_cycles: 0 });
            address = next;
        }
    }
}
