//! A vector in a region: it outlives its program, and another one opens it.

use super::{Options, Region, RegionError, Regions};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"LOAMVEC1";

/// What an element may be: plain data, for which any bytes will do.
pub trait Element: Copy + FromBytes + IntoBytes + Immutable + KnownLayout {}
impl<T: Copy + FromBytes + IntoBytes + Immutable + KnownLayout> Element for T {}

/// In front of the elements.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    /// Elements.
    count: U64,
    element_bytes: U32,
    element_align: U32,
    reserved: [u8; 40],
}
const HEAD_BYTES: usize = 64;
const _: () = assert!(size_of::<Head>() == HEAD_BYTES);

/// A vector of plain data in a region of its own. It grows by making the region larger, to twice its size.
#[derive(Debug)]
pub struct RegionVec<T: Element> {
    region: Region,
    count: usize,
    elements: PhantomData<T>,
}

impl<T: Element> RegionVec<T> {
    /// Makes an empty vector with room for so many elements.
    ///
    /// # Errors
    /// [`RegionError`].
    pub fn create(name: &str, capacity: usize, options: &Options) -> Result<Self, RegionError> {
        let region = Region::create_with(name, Self::bytes_for(capacity), options)?;
        let mut this = Self { region, count: 0, elements: PhantomData };
        this.write_head();
        Ok(this)
    }

    /// Opens a vector of the same elements.
    ///
    /// # Errors
    /// [`RegionError::NoVec`] if the region holds something else; or another [`RegionError`].
    pub fn open_on(regions: Regions, name: &str) -> Result<Self, RegionError> {
        let region = Region::open_on(regions, name)?;
        let no = |what| RegionError::NoVec { name: name.to_owned(), what };
        let (head, _) = Head::read_from_prefix(region.as_slice()).map_err(|_| no("it is too small"))?;
        if head.magic != MAGIC {
            return Err(no("it holds no vector"));
        }
        if head.element_bytes.get() as usize != size_of::<T>()
            || head.element_align.get() as usize != align_of::<T>()
        {
            return Err(no("its elements have another size"));
        }
        let count = usize::try_from(head.count.get()).map_err(|_| no("its length is damaged"))?;
        let this = Self { region, count, elements: PhantomData };
        if count > this.capacity() {
            return Err(no("its length is damaged"));
        }
        Ok(this)
    }

    const CHECKED: () = assert!(
        size_of::<T>() > 0 && align_of::<T>() <= HEAD_BYTES,
        "elements of a RegionVec have a size, and are aligned to 64 bytes at most"
    );

    fn bytes_for(capacity: usize) -> u64 {
        let () = Self::CHECKED;
        (capacity as u64).saturating_mul(size_of::<T>() as u64).saturating_add(HEAD_BYTES as u64)
    }

    fn write_head(&mut self) {
        let head = Head {
            magic: MAGIC,
            count: (self.count as u64).into(),
            element_bytes: (size_of::<T>() as u32).into(),
            element_align: (align_of::<T>() as u32).into(),
            reserved: [0; 40],
        };
        self.region.as_mut_slice()[..HEAD_BYTES].copy_from_slice(head.as_bytes());
    }

    /// Elements that there is room for.
    pub fn capacity(&self) -> usize {
        let () = Self::CHECKED;
        (self.region.len() - HEAD_BYTES) / size_of::<T>()
    }

    /// Makes room for so many more.
    ///
    /// # Errors
    /// [`RegionError`]; the vector is as it was.
    pub fn reserve(&mut self, more: usize) -> Result<(), RegionError> {
        let wanted = self.count.saturating_add(more);
        if wanted <= self.capacity() {
            return Ok(());
        }
        let twice = (self.region.len() as u64).saturating_mul(2);
        self.region.resize(Self::bytes_for(wanted).max(twice))
    }

    /// Appends an element.
    ///
    /// # Errors
    /// [`RegionError`] if there is no room, and none can be had; the vector is as it was.
    pub fn push(&mut self, element: T) -> Result<(), RegionError> {
        self.reserve(1)?;
        self.count += 1;
        *self.last_mut().expect("there is one more now") = element;
        self.write_head();
        Ok(())
    }

    /// Takes the last one off.
    pub fn pop(&mut self) -> Option<T> {
        let last = self.last().copied()?;
        self.truncate(self.count - 1);
        Some(last)
    }

    /// Forgets all behind the first `count`.
    pub fn truncate(&mut self, count: usize) {
        self.count = self.count.min(count);
        self.write_head();
    }

    /// The region that it is in.
    pub fn region(&self) -> &Region {
        &self.region
    }
}

impl<T: Element> Deref for RegionVec<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        let elements = &self.region.as_slice()[HEAD_BYTES..];
        let (elements, _) = <[T]>::ref_from_prefix_with_elems(elements, self.count)
            .expect("within the capacity, and aligned");
        elements
    }
}

impl<T: Element> DerefMut for RegionVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let count = self.count;
        let elements = &mut self.region.as_mut_slice()[HEAD_BYTES..];
        let (elements, _) =
            <[T]>::mut_from_prefix_with_elems(elements, count).expect("within the capacity, and aligned");
        elements
    }
}
