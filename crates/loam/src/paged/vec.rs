//! A fixed number of plain values in the region.

use super::{PagedError, is_connected};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use zerocopy::{FromBytes, FromZeros};

/// Values whose memory is borrowed: a slice of a fixed length. Its pages are away when they are not used.
pub struct PagedVec<T> {
    values: NonNull<T>,
    len: usize,
}

// SAFETY: it owns its values, as a `Box<[T]>` does.
unsafe impl<T: Send> Send for PagedVec<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for PagedVec<T> {}

impl<T: FromBytes> PagedVec<T> {
    /// So many zeros. They take no memory until they are touched.
    ///
    /// # Errors
    /// [`PagedError::NotConnected`], [`PagedError::Full`].
    ///
    /// # Panics
    /// If `T` asks for a larger alignment than 16 bytes.
    pub fn zeroed(len: usize) -> Result<Self, PagedError>
    where
        T: FromZeros,
    {
        const { assert!(align_of::<T>() <= 16, "aligned to 16 bytes at most") };
        let bytes = size_of::<T>().checked_mul(len).filter(|&bytes| bytes <= isize::MAX as usize);
        let bytes = bytes.ok_or(PagedError::Full { bytes: usize::MAX })?;
        if !is_connected() {
            return Err(PagedError::NotConnected);
        }
        if bytes == 0 {
            return Ok(Self { values: NonNull::dangling(), len });
        }
        Ok(Self { values: super::zeros(bytes)?.cast(), len })
    }
}

impl<T> Deref for PagedVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` values that zeros are valid for, ours alone.
        unsafe { std::slice::from_raw_parts(self.values.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for PagedVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.values.as_ptr(), self.len) }
    }
}

impl<T: fmt::Debug> fmt::Debug for PagedVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PagedVec of {} values", self.len)
    }
}

impl<T> Drop for PagedVec<T> {
    fn drop(&mut self) {
        if size_of::<T>() * self.len > 0 {
            // SAFETY: it came from there, and this was its owner. Plain values have nothing to drop.
            unsafe { super::free(self.values.cast()) };
        }
    }
}
