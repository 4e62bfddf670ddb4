//! What a kernel computes in: arrays that it reads and writes element by element.
//!
//! A kernel is written once, for any [`Memory`]. In [`Plain`] an array is a slice, and the compiler makes of the kernel what it would have
//! made of indexing. The simulator has another one that notes which page each element is in (`loam_sim::workload::kernels`).

/// What an array is made of. `Default` is zero, as fresh memory is.
pub trait Element: Copy + Default + 'static {
    /// Its bits, for checksums.
    fn bits(self) -> u64;
}

impl Element for f64 {
    fn bits(self) -> u64 {
        self.to_bits()
    }
}

impl Element for f32 {
    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Element for u32 {
    fn bits(self) -> u64 {
        u64::from(self)
    }
}

impl Element for u64 {
    fn bits(self) -> u64 {
        self
    }
}

/// An array of a fixed length, an allocation of its own.
pub trait Array<T> {
    /// Reads an element.
    ///
    /// # Panics
    /// If there is none of this number, as in `set`.
    fn get(&self, index: usize) -> T;

    /// Writes an element.
    fn set(&mut self, index: usize, value: T);

    /// How many there are.
    fn len(&self) -> usize;

    /// There are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where a kernel's arrays are. Clones speak of the same memory.
pub trait Memory: Clone + 'static {
    /// An array in this memory.
    type Array<T: Element>: Array<T>;

    /// A new array of zeros.
    fn array<T: Element>(&self, length: usize) -> Self::Array<T>;

    /// A part of the program begins (aapc-2012, section II.A). 0 is what belongs to no part: setting up.
    fn part(&self, part: u32);

    /// The program computes: so many operations on what it has in registers, beside the reading and writing of elements.
    fn work(&self, operations: u64);
}

/// The process's own memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain {
    on_part: Option<fn(u32)>,
}

impl Plain {
    /// Memory of a program whose parts are told to a function, or to nobody. This is the one place where a live program's marks leave the
    /// kernel.
    pub fn new(on_part: Option<fn(u32)>) -> Self {
        Self { on_part }
    }
}

impl Memory for Plain {
    type Array<T: Element> = Box<[T]>;

    fn array<T: Element>(&self, length: usize) -> Box<[T]> {
        vec![T::default(); length].into_boxed_slice()
    }

    fn part(&self, part: u32) {
        if let Some(on_part) = self.on_part {
            on_part(part);
        }
    }

    #[inline(always)]
    fn work(&self, _operations: u64) {}
}

impl<T: Element> Array<T> for Box<[T]> {
    #[inline(always)]
    fn get(&self, index: usize) -> T {
        self[index]
    }

    #[inline(always)]
    fn set(&mut self, index: usize, value: T) {
        self[index] = value;
    }

    fn len(&self) -> usize {
        <[T]>::len(self)
    }
}
