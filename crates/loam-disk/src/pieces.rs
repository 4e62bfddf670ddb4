//! Memory in pieces of one size, taken from the system in large blocks and used again: a cache's contents.
//!
//! A mapping of its own for each piece would be made and taken away each time, with all threads of the process waiting for each other. And pieces of one block
//! lie side by side, so those that were taken together can be given on as one, without copying them together first.

use std::alloc::Layout;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Unused pieces that are looked at for some that lie side by side. Where memory has become that patchy, any will do.
const LOOKS_MAX: usize = 256;
/// Where a block begins: whoever copies pages from or to pieces copies whole ones.
const ALIGN_BYTES: usize = 4096;

/// Where pieces come from and go back to. What it has once taken from the system it keeps until all of it goes, so that is the most that was in use at a
/// time, up to a block.
pub struct Pieces {
    piece_bytes: usize,
    block_pieces: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    blocks: Vec<Block>,
    /// By number: each block's follow those of the block before.
    unused: BTreeSet<u32>,
    /// Nobody has had pieces from this number on.
    fresh: u32,
}

struct Block {
    allocation: NonNull<u8>,
    /// The first aligned address in it.
    start: NonNull<u8>,
}

// SAFETY: a block belongs to the whole process, so it does not matter which thread frees it.
unsafe impl Send for Block {}

/// One piece, with any contents: what was in it before, or zeros.
pub struct Piece {
    start: NonNull<u8>,
    number: u32,
    /// Nobody has touched it.
    fresh: bool,
    home: Arc<Pieces>,
}

// SAFETY: a piece is the only owner of its bytes, like a `Box<[u8]>`.
unsafe impl Send for Piece {}
// SAFETY: `&Piece` gives out `&[u8]` only.
unsafe impl Sync for Piece {}

impl Pieces {
    /// Pieces of so many bytes, so many of which are taken from the system at a time.
    ///
    /// # Panics
    /// If either is zero, or a block is more than the address space has.
    pub fn new(piece_bytes: usize, block_pieces: u32) -> Arc<Self> {
        assert!(piece_bytes > 0 && block_pieces > 0, "a block of nothing");
        Arc::new(Self { piece_bytes, block_pieces, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of a block and what it takes to align it: memory that is asked for aligned, and zero, is filled with zeros, and so touched, by the allocator.
    fn layout(&self) -> Layout {
        let bytes = self.piece_bytes.checked_mul(self.block_pieces as usize);
        let bytes = bytes.and_then(|bytes| bytes.checked_add(ALIGN_BYTES));
        let layout = bytes.and_then(|bytes| Layout::from_size_align(bytes, 1).ok());
        layout.expect("a block beyond the address space")
    }

    /// Takes one.
    pub fn take(self: &Arc<Self>) -> Piece {
        self.take_row(1).pop().expect("it was asked for one")
    }

    /// Takes so many: side by side in this order, if there are such.
    pub fn take_row(self: &Arc<Self>, count: usize) -> Vec<Piece> {
        let mut state = self.state();
        while state.unused.len() < count {
            self.add_block(&mut state);
        }
        let row = self.row(&state, count);
        let numbers: Vec<u32> = match row {
            Some(first) => (first..).take(count).collect(),
            None => state.unused.iter().copied().take(count).collect(),
        };
        let fresh = state.fresh;
        state.fresh = numbers.last().map_or(fresh, |last| fresh.max(last + 1));
        let taken = numbers.into_iter().map(|number| {
            assert!(state.unused.remove(&number), "piece {number} is in use");
            let block = state.blocks[(number / self.block_pieces) as usize].start;
            let at = (number % self.block_pieces) as usize;
            // SAFETY: behind its start the block has `block_pieces` pieces, and `at` is less.
            let start = unsafe { block.byte_add(at * self.piece_bytes) };
            Piece { start, number, fresh: number >= fresh, home: Arc::clone(self) }
        });
        taken.collect()
    }

    /// The first of so many unused ones that lie side by side.
    fn row(&self, state: &State, count: usize) -> Option<u32> {
        let (mut first, mut length) = (None, 0);
        for &number in state.unused.iter().take(LOOKS_MAX.max(count)) {
            let follows = first.is_some_and(|first| self.is_at(first, length, number));
            (first, length) = if follows { (first, length + 1) } else { (Some(number), 1) };
            if length as usize == count {
                return first;
            }
        }
        None
    }

    /// Whether `number` lies `distance` pieces behind `first`, in the same block.
    fn is_at(&self, first: u32, distance: u32, number: u32) -> bool {
        first.checked_add(distance) == Some(number) && first / self.block_pieces == number / self.block_pieces
    }

    fn add_block(&self, state: &mut State) {
        let layout = self.layout();
        // SAFETY: the layout is of at least one byte. The system has zeros: nothing is touched here.
        let allocation = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(allocation) = NonNull::new(allocation) else { std::alloc::handle_alloc_error(layout) };
        let skip = allocation.as_ptr().addr().wrapping_neg() % ALIGN_BYTES;
        // SAFETY: the layout has that much beyond the pieces.
        let start = unsafe { allocation.byte_add(skip) };
        let first = u32::try_from(state.blocks.len()).ok().and_then(|n| n.checked_mul(self.block_pieces));
        let first = first.expect("fewer than 2^32 pieces");
        state.blocks.push(Block { allocation, start });
        state.unused.extend(first..first + self.block_pieces);
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        let layout = self.layout();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(state.unused.len(), state.blocks.len() * self.block_pieces as usize, "a piece is in use");
        for block in state.blocks.drain(..) {
            // SAFETY: allocated with this layout, and no piece of it is left: each keeps `self`.
            unsafe { std::alloc::dealloc(block.allocation.as_ptr(), layout) };
        }
    }
}

impl Piece {
    /// Takes its pages from the machine by one call, before it is written for the first time. Touched one by one each costs a fault more (1.3 us a page, and 2.1,
    /// measured on a virtual machine). Where the kernel does not know the call (before Linux 5.14) or has no memory left, they are taken as they are touched.
    fn take_pages(&mut self) {
        // SAFETY: the range is the piece's own, and the advice changes no byte of it.
        unsafe {
            libc::madvise(self.start.as_ptr().cast(), self.home.piece_bytes, libc::MADV_POPULATE_WRITE);
        }
        self.fresh = false;
    }

    /// The bytes of pieces that lie side by side in this order, as one. `None`: they do not, or there are none.
    pub fn joined<'a>(pieces: impl IntoIterator<Item = &'a Self>) -> Option<&'a [u8]> {
        let mut pieces = pieces.into_iter();
        let first = pieces.next()?;
        let mut count = 1;
        for piece in pieces {
            if !Arc::ptr_eq(&first.home, &piece.home) || !first.home.is_at(first.number, count, piece.number)
            {
                return None;
            }
            count += 1;
        }
        // SAFETY: `count` pieces of one block, one behind the other, so of one allocation, which `first.start` was made from. All of them are borrowed for
        // `'a`, so nobody writes to them, and they keep the block.
        Some(unsafe {
            std::slice::from_raw_parts(first.start.as_ptr(), count as usize * first.home.piece_bytes)
        })
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the piece has so many bytes of a block that `home` keeps, all initialised (zeros at first), and they are nobody else's: its number is not
        // among the unused ones.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.home.piece_bytes) }
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        if self.fresh {
            self.take_pages();
        }
        // SAFETY: as in `deref`; `&mut self` makes it the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.home.piece_bytes) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        assert!(self.home.state().unused.insert(self.number), "piece {} is given back once", self.number);
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({})", self.number)
    }
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces").field("piece_bytes", &self.piece_bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: usize = 4096;
    const BLOCK: u32 = 4;

    fn is(piece: &[u8], byte: u8) -> bool {
        piece.len() == BYTES && piece.iter().all(|&is| is == byte)
    }

    #[test]
    fn a_row_is_read_as_one_and_only_in_its_order() {
        let pieces = Pieces::new(BYTES, BLOCK);
        let mut row = pieces.take_row(3);
        for (n, piece) in row.iter_mut().enumerate() {
            assert!(is(piece, 0) && piece.as_ptr().addr().is_multiple_of(ALIGN_BYTES));
            piece.fill(n as u8 + 1);
        }
        let joined = Piece::joined(&row).expect("they were taken together");
        assert_eq!(joined.len(), 3 * BYTES);
        assert!(joined.chunks(BYTES).zip(1..).all(|(piece, byte)| is(piece, byte)));
        assert_eq!(Piece::joined(&row[1..2]), Some(&row[1][..]));
        assert_eq!(Piece::joined([&row[1], &row[0]]), None);
        assert_eq!(Piece::joined([&row[0], &row[2]]), None);
        assert_eq!(Piece::joined([&row[0], &row[0]]), None);
        assert_eq!(Piece::joined(std::iter::empty()), None);
    }

    #[test]
    fn blocks_and_homes_are_not_joined() {
        let pieces = Pieces::new(BYTES, BLOCK);
        let row = pieces.take_row(2 * BLOCK as usize);
        let (one, other) = row.split_at(BLOCK as usize);
        assert!(Piece::joined(one).is_some() && Piece::joined(other).is_some());
        assert_eq!(Piece::joined([&one[3], &other[0]]), None);
        let elsewhere = Pieces::new(BYTES, BLOCK).take_row(2);
        assert_eq!(Piece::joined([&one[0], &elsewhere[1]]), None);
    }

    #[test]
    fn memory_that_has_become_patchy_is_used_all_the_same() {
        let pieces = Pieces::new(BYTES, BLOCK);
        let mut all = pieces.take_row(2 * BLOCK as usize);
        let kept: Vec<Piece> = (0..BLOCK as usize).rev().map(|n| all.remove(2 * n)).collect();
        drop(all);
        let row = pieces.take_row(BLOCK as usize);
        assert_eq!((row.len(), pieces.state().blocks.len()), (BLOCK as usize, 2));
        assert_eq!(Piece::joined(&row[..2]), None);
        drop((row, kept));
        let row = pieces.take_row(BLOCK as usize);
        assert!(Piece::joined(&row).is_some(), "it is whole again");
    }

    #[test]
    fn pages_are_taken_by_the_first_who_writes_and_only_then() {
        // A block so large that the allocator maps it for itself, whatever was freed before.
        const PAGES: usize = 4096;
        let pieces = Pieces::new(PAGES * BYTES, BLOCK);
        let resident = |piece: &Piece| {
            let mut pages = vec![0_u8; PAGES];
            // SAFETY: the range is the piece's, and the kernel writes a byte for each of its pages.
            let done =
                unsafe { libc::mincore(piece.start.as_ptr().cast(), PAGES * BYTES, pages.as_mut_ptr()) };
            assert_eq!(done, 0);
            pages.iter().filter(|&&page| page & 1 == 1).count()
        };
        let mut row = pieces.take_row(3);
        row[1][0] = 1;
        assert_eq!(row.iter().map(resident).collect::<Vec<_>>(), [0, PAGES, 0]);
        drop(row);
        let row = pieces.take_row(4);
        assert_eq!(row.iter().map(|piece| piece.fresh).collect::<Vec<_>>(), [false, false, false, true]);
    }

    proptest! {
        /// No two have the same memory, whatever was taken and given back; what is joined is what its pieces are.
        #[test]
        fn nobody_writes_to_anothers(steps in proptest::collection::vec((1..6_usize, any::<prop::sample::Index>()), 1..60)) {
            let pieces = Pieces::new(BYTES, BLOCK);
            let mut rows: Vec<(u8, Vec<Piece>)> = Vec::new();
            for (byte, (count, gone)) in (1..).zip(steps) {
                let mut row = pieces.take_row(count);
                prop_assert_eq!(row.len(), count);
                row.iter_mut().for_each(|piece| piece.fill(byte));
                rows.push((byte, row));
                if gone.index(3) > 0 {
                    let (_, mut row) = rows.swap_remove(gone.index(rows.len()));
                    row.truncate(gone.index(2));
                }
                for (byte, row) in &rows {
                    prop_assert!(row.iter().all(|piece| is(piece, *byte)));
                    if let Some(joined) = Piece::joined(row) {
                        prop_assert!(joined.len() == row.len() * BYTES && joined.iter().all(|is| is == byte));
                    }
                }
            }
            let in_use: usize = rows.iter().map(|(_, row)| row.len()).sum();
            let state = pieces.state();
            prop_assert_eq!(state.unused.len() + in_use, state.blocks.len() * BLOCK as usize);
        }
    }
}
