//! The three entries of NumPy's C interface that are needed, by their places in its table. Places never change: NumPy promises it for the table of a
//! major version, and those of NEP 49 are the same in 1.22 and in 2.

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyCapsule;
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::ptr::NonNull;

const FEATURE_VERSION: usize = 211;
const SET_HANDLER: usize = 304;
const DEFAULT_HANDLER: usize = 306;
/// That of NumPy 1.22, the first with NEP 49.
const FEATURE_VERSION_MIN: c_uint = 0xf;
/// What a capsule with a handler is called.
pub(crate) const CAPSULE_NAME: &CStr = c"mem_handler";
/// The version of [`Handler`] that every NumPy since 1.22 has.
const HANDLER_VERSION: u8 = 1;

/// NumPy's `PyDataMemAllocator`. The context is any number of the allocator's own.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocator {
    pub(crate) context: usize,
    pub(crate) malloc: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    pub(crate) calloc: unsafe extern "C" fn(usize, usize, usize) -> *mut c_void,
    pub(crate) realloc: unsafe extern "C" fn(usize, *mut c_void, usize) -> *mut c_void,
    pub(crate) free: unsafe extern "C" fn(usize, *mut c_void, usize),
}

/// NumPy's `PyDataMem_Handler`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Handler {
    name: [c_char; 127],
    version: u8,
    pub(crate) allocator: Allocator,
}

impl Handler {
    /// One with a name of at most 126 letters.
    pub(crate) const fn new(name: &CStr, allocator: Allocator) -> Self {
        let bytes = name.to_bytes();
        assert!(bytes.len() < 127, "NumPy's limit");
        let mut copy = [0; 127];
        let mut at = 0;
        while at < bytes.len() {
            copy[at] = bytes[at] as c_char;
            at += 1;
        }
        Self { name: copy, version: HANDLER_VERSION, allocator }
    }
}

/// The table of a NumPy that is loaded.
#[derive(Clone, Copy)]
pub(crate) struct Numpy(NonNull<*const c_void>);

// SAFETY: NumPy's table is constant, and NumPy is never unloaded.
unsafe impl Send for Numpy {}
// SAFETY: as above.
unsafe impl Sync for Numpy {}

impl Numpy {
    /// Imports NumPy.
    pub(crate) fn get(py: Python<'_>) -> PyResult<Self> {
        static NUMPY: PyOnceLock<Numpy> = PyOnceLock::new();
        NUMPY.get_or_try_init(py, || Self::import(py)).copied()
    }

    fn import(py: Python<'_>) -> PyResult<Self> {
        // NumPy 2 has moved it.
        let module = py
            .import("numpy._core._multiarray_umath")
            .or_else(|_| py.import("numpy.core._multiarray_umath"))?;
        let capsule = module.getattr("_ARRAY_API")?;
        let table = capsule.cast::<PyCapsule>()?.pointer_checked(None)?;
        let numpy = Self(table.cast());
        // SAFETY: the signature of the table's entry, which every NumPy 1 and 2 has.
        let version: extern "C" fn() -> c_uint = unsafe { std::mem::transmute(numpy.entry(FEATURE_VERSION)) };
        if version() < FEATURE_VERSION_MIN {
            return Err(PyImportError::new_err(
                "loam needs NumPy 1.22 or newer: pip install --upgrade numpy",
            ));
        }
        Ok(numpy)
    }

    /// # Safety
    /// The table has such a place.
    unsafe fn entry(self, place: usize) -> *const c_void {
        // SAFETY: the caller's promise.
        unsafe { *self.0.as_ptr().add(place) }
    }

    /// The allocator that arrays have if nobody asks for another.
    pub(crate) fn ordinary(self, py: Python<'_>) -> PyResult<Allocator> {
        // SAFETY: the place is that of a variable with a reference to a capsule, which lives as long as NumPy.
        let capsule = unsafe {
            let variable: *const *mut pyo3::ffi::PyObject = self.entry(DEFAULT_HANDLER).cast();
            Bound::from_borrowed_ptr_or_err(py, *variable)?
        };
        let handler = capsule.cast::<PyCapsule>()?.pointer_checked(Some(CAPSULE_NAME))?;
        // SAFETY: a capsule of that name has a handler, of version 1 at least, whose fields these are.
        Ok(unsafe { handler.cast::<Handler>().as_ref() }.allocator)
    }

    /// Arrays that are made in this context (of `contextvars`) have that handler from now on; the one before.
    pub(crate) fn set_handler<'py>(self, handler: &Bound<'py, PyCapsule>) -> PyResult<Bound<'py, PyAny>> {
        type Set = unsafe extern "C" fn(*mut pyo3::ffi::PyObject) -> *mut pyo3::ffi::PyObject;
        // SAFETY: the signature of the table's entry.
        let set: Set = unsafe { std::mem::transmute(self.entry(SET_HANDLER)) };
        // SAFETY: this thread is attached to the interpreter; NumPy takes a reference of its own to the capsule, and gives us one to the
        // capsule before, or null and an exception.
        unsafe { Bound::from_owned_ptr_or_err(handler.py(), set(handler.as_ptr())) }
    }
}
