//! A program's heap: objects lie one after the other, in the order in which they are made.

/// Bytes before each object that the allocator keeps (its size).
const HEADER_BYTES: u64 = 8;
/// Objects begin at multiples of this, and take multiples of it.
const ALIGN_BYTES: u64 = 8;

/// A heap that only grows. Addresses begin at 0.
#[derive(Clone, Debug, Default)]
pub(super) struct Heap {
    end: u64,
}

impl Heap {
    /// An object of so many bytes: its address.
    pub(super) fn allocate(&mut self, bytes: u64) -> u64 {
        let address = self.end + HEADER_BYTES;
        self.end = address + bytes.next_multiple_of(ALIGN_BYTES);
        address
    }

    /// Bytes up to the end.
    pub(super) fn bytes(&self) -> u64 {
        self.end
    }
}
