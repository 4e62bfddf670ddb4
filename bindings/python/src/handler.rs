//! The memory of arrays (NEP 49): large ones in the region, all others from NumPy's ordinary allocator.
//!
//! By its address each piece of memory is known to be of the region or not, so it is freed by whom it came from, whatever size NumPy says, and nothing is
//! written beside the data: freeing touches no page that may be away. There is no lock here, and a fork needs no care.

use crate::numpy::{Allocator, CAPSULE_NAME, Handler, Numpy};
use loam::paged::raw;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyCapsule;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// `--min-alloc`, if nobody says otherwise.
pub(crate) const LEAST_BYTES: usize = 256 << 10;

/// Where the region has no room: the ordinary allocator, as under `loam run`.
const OR_ORDINARY: usize = 0;
/// Where the region has no room: no memory, which NumPy makes a `MemoryError`. For arrays that were asked of Loam by name.
const OR_NOTHING: usize = 1;

static LEAST: AtomicUsize = AtomicUsize::new(LEAST_BYTES);
static ORDINARY: OnceLock<Allocator> = OnceLock::new();

static FALLING_BACK: Handler = Handler::new(c"loam", allocator(OR_ORDINARY));
static STRICT: Handler = Handler::new(c"loam_strict", allocator(OR_NOTHING));

/// What this process's arrays have had.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) allocations: AtomicUsize,
    pub(crate) allocated_bytes: AtomicUsize,
    pub(crate) live_allocations: AtomicUsize,
    pub(crate) live_bytes: AtomicUsize,
    pub(crate) unserved: AtomicUsize,
    pub(crate) unserved_bytes: AtomicUsize,
}

pub(crate) static COUNTS: Counts = Counts {
    allocations: AtomicUsize::new(0),
    allocated_bytes: AtomicUsize::new(0),
    live_allocations: AtomicUsize::new(0),
    live_bytes: AtomicUsize::new(0),
    unserved: AtomicUsize::new(0),
    unserved_bytes: AtomicUsize::new(0),
};

const fn allocator(context: usize) -> Allocator {
    Allocator { context, malloc, calloc, realloc, free }
}

/// A capsule with one of the two handlers, for NumPy.
pub(crate) fn capsule(py: Python<'_>, strict: bool) -> PyResult<&Bound<'_, PyCapsule>> {
    static CAPSULES: [PyOnceLock<Py<PyCapsule>>; 2] = [const { PyOnceLock::new() }; 2];
    let (handler, place) = if strict { (&STRICT, &CAPSULES[1]) } else { (&FALLING_BACK, &CAPSULES[0]) };
    if ORDINARY.get().is_none() {
        let ordinary = Numpy::get(py)?.ordinary(py)?;
        ORDINARY.get_or_init(|| ordinary);
    }
    let made = place.get_or_try_init(py, || {
        // SAFETY: the handler is a constant, so it lives as long as any array that has it.
        unsafe { PyCapsule::new_with_pointer(py, NonNull::from(handler).cast(), CAPSULE_NAME) }
            .map(Bound::unbind)
    });
    made.map(|capsule| capsule.bind(py))
}

/// Arrays of so many bytes and more are borrowed for.
pub(crate) fn set_least(bytes: usize) {
    LEAST.store(bytes, Relaxed);
}

/// Where there is a region its own number holds: a process that `loam run --region` has started has not said any, and what is smaller the region does not serve.
pub(crate) fn learn_least() {
    if let Some(bytes) = raw::least() {
        set_least(bytes);
    }
}

pub(crate) fn least() -> usize {
    LEAST.load(Relaxed)
}

/// Whether this is an address of the region.
pub(crate) fn is_of_region(address: usize) -> bool {
    raw::region().is_some_and(|region| region.contains(&address))
}

fn ordinary() -> &'static Allocator {
    ORDINARY.get().expect("it was looked up before NumPy had a handler of ours")
}

fn is_large(bytes: usize) -> bool {
    bytes >= least() && bytes <= isize::MAX as usize
}

/// Counts what has come, of `bytes` as they were asked for.
fn came(memory: NonNull<u8>, bytes: usize) {
    // SAFETY: just made, so it lives.
    let usable = unsafe { raw::usable(memory) };
    COUNTS.allocations.fetch_add(1, Relaxed);
    COUNTS.allocated_bytes.fetch_add(bytes, Relaxed);
    COUNTS.live_allocations.fetch_add(1, Relaxed);
    COUNTS.live_bytes.fetch_add(usable, Relaxed);
}

/// What NumPy's own functions have given: under `loam run --region` they may be served by the region as well.
fn counted(memory: *mut c_void, bytes: usize) -> *mut c_void {
    if let Some(made) = NonNull::new(memory.cast::<u8>()).filter(|made| is_of_region(made.as_ptr().addr())) {
        came(made, bytes);
    }
    memory
}

fn unserved(bytes: usize) {
    COUNTS.unserved.fetch_add(1, Relaxed);
    COUNTS.unserved_bytes.fetch_add(bytes, Relaxed);
}

/// Memory of the region. None: it has no room, or there is none.
fn borrow(bytes: usize, zeros: bool) -> Option<NonNull<u8>> {
    raw::region()?;
    let made = if zeros { raw::zeros(bytes) } else { raw::allocate(bytes) };
    let made = made.ok().and_then(|memory| {
        if is_of_region(memory.as_ptr().addr()) {
            return Some(memory);
        }
        // SAFETY: just made there, and handed out to nobody.
        unsafe { raw::free(memory) };
        None
    });
    match made {
        Some(memory) => came(memory, bytes),
        None => unserved(bytes),
    }
    made
}

/// # Safety
/// It is of the region, and nobody uses it any more.
unsafe fn give_back(memory: NonNull<u8>) {
    // SAFETY: the caller's promise.
    let usable = unsafe { raw::usable(memory) };
    COUNTS.live_allocations.fetch_sub(1, Relaxed);
    COUNTS.live_bytes.fetch_sub(usable, Relaxed);
    // SAFETY: the caller's promise.
    unsafe { raw::free(memory) };
}

/// What was said of so many bytes at least of ordinary memory holds no longer: under `loam run` without a region that is borrowed for, too.
fn forget(memory: NonNull<u8>, bytes: usize) {
    let start = memory.as_ptr().addr();
    raw::forget(start..start.saturating_add(bytes));
}

/// Whether a request that the region has no room for is refused. A `loam run` without a region borrows for all memory alike.
fn is_refused(context: usize) -> bool {
    context == OR_NOTHING && raw::region().is_some()
}

/// # Safety
/// NumPy calls it, as the handler's.
unsafe extern "C" fn malloc(context: usize, bytes: usize) -> *mut c_void {
    if is_large(bytes) {
        match borrow(bytes, false) {
            Some(memory) => return memory.as_ptr().cast(),
            None if is_refused(context) => return null_mut(),
            None => {}
        }
    }
    let ordinary = ordinary();
    // SAFETY: the caller's promise, handed on.
    counted(unsafe { (ordinary.malloc)(ordinary.context, bytes) }, bytes)
}

/// # Safety
/// As [`malloc`].
unsafe extern "C" fn calloc(context: usize, count: usize, bytes: usize) -> *mut c_void {
    if let Some(all) = count.checked_mul(bytes).filter(|&all| is_large(all)) {
        match borrow(all, true) {
            Some(memory) => return memory.as_ptr().cast(),
            None if is_refused(context) => return null_mut(),
            None => {}
        }
    }
    let ordinary = ordinary();
    // SAFETY: the caller's promise, handed on.
    counted(unsafe { (ordinary.calloc)(ordinary.context, count, bytes) }, count.saturating_mul(bytes))
}

/// # Safety
/// As [`malloc`]; `old` is from one of these functions and not freed.
unsafe extern "C" fn realloc(context: usize, old: *mut c_void, bytes: usize) -> *mut c_void {
    let Some(memory) = NonNull::new(old.cast::<u8>()) else {
        // SAFETY: the caller's promise.
        return unsafe { malloc(context, bytes) };
    };
    // SAFETY: the caller's promise, and its address says whose it is.
    unsafe {
        match (is_of_region(old.addr()), is_large(bytes)) {
            (true, true) => resize(context, memory, bytes),
            (true, false) => move_to(context, memory, raw::usable(memory), bytes),
            (false, true) => move_to(context, memory, libc::malloc_usable_size(old), bytes),
            (false, false) => {
                forget(memory, libc::malloc_usable_size(old));
                counted((ordinary().realloc)(ordinary().context, old, bytes), bytes)
            }
        }
    }
}

/// What is in the region becomes larger or smaller and stays large.
///
/// # Safety
/// As [`realloc`], of memory of the region.
unsafe fn resize(context: usize, old: NonNull<u8>, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    let old_bytes = unsafe { raw::usable(old) };
    // SAFETY: as above.
    let Ok(new) = (unsafe { raw::resize(old, bytes) }) else {
        // SAFETY: as above: nothing has changed.
        return unsafe { move_to(context, old, old_bytes, bytes) };
    };
    COUNTS.live_allocations.fetch_sub(1, Relaxed);
    COUNTS.live_bytes.fetch_sub(old_bytes, Relaxed);
    if is_of_region(new.as_ptr().addr()) {
        came(new, bytes);
    } else {
        // The region was full. The shim has asked the allocator that the program has without it, which is the one that NumPy's ordinary functions
        // ask, too: so these may free it.
        unserved(bytes);
    }
    new.as_ptr().cast()
}

/// Contents of `old_bytes` at most move to where `bytes` belong: into the region or out of it. Null: no memory, and they are where they were.
///
/// # Safety
/// As [`realloc`]; `old` has `old_bytes`.
unsafe fn move_to(context: usize, old: NonNull<u8>, old_bytes: usize, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise: two pieces of memory, each as large as is said, and the first one is freed by whom it came from.
    unsafe {
        let new = malloc(context, bytes);
        if !new.is_null() {
            old.as_ptr().cast::<c_void>().copy_to_nonoverlapping(new, old_bytes.min(bytes));
            free(context, old.as_ptr().cast(), old_bytes);
        }
        new
    }
}

/// # Safety
/// As [`realloc`]; nobody uses `memory` any more.
unsafe extern "C" fn free(_: usize, memory: *mut c_void, bytes: usize) {
    match NonNull::new(memory.cast::<u8>()) {
        // SAFETY: the caller's promise, and its address says whose it is.
        Some(memory) if is_of_region(memory.as_ptr().addr()) => unsafe { give_back(memory) },
        ordinary_memory => {
            ordinary_memory.inspect(|&memory| forget(memory, bytes));
            // SAFETY: as above.
            unsafe { (ordinary().free)(ordinary().context, memory, bytes) }
        }
    }
}
