//! The allocator that the program would call without Loam: that of libc, or of a library that is loaded after the shim. Where the program has
//! loaded the shim itself (`dlopen`): the one that the program calls anyway, which knows nothing of us.
//!
//! Found by `dlsym`, which may allocate itself, by the very functions that are being looked for. What is asked for in that time comes from a
//! small place of our own, and is never used again.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicUsize};

use crate::message::{self, Piece};
use crate::start::{dlsym_address, errno_location, is_own};
use crate::sys::Errno;

type Memory = *mut c_void;

/// Calls the next allocator's function, or evaluates to the last expression where there is none.
macro_rules! call {
    ($which:expr, fn($($kind:ty),*) -> $answer:ty, ($($argument:expr),*), $otherwise:expr) => {{
        let address = address($which);
        if address != 0 {
            // SAFETY: the signature that C gives the function; the arguments are the program's own.
            let function: unsafe extern "C" fn($($kind),*) -> $answer = unsafe { core::mem::transmute(address) };
            // SAFETY: as above.
            unsafe { function($($argument),*) }
        } else {
            $otherwise
        }
    }};
}

/// What the dynamic linker asks for while it looks for a few symbols: an error message or two.
const EARLY_BYTES: usize = 32 * 1024;
/// Each early allocation has its size in front of it.
const EARLY_HEADER_BYTES: usize = 16;

#[repr(align(16))]
struct Early(UnsafeCell<[u8; EARLY_BYTES]>);

// SAFETY: each part is handed out once, to one caller.
unsafe impl Sync for Early {}

static EARLY: Early = Early(UnsafeCell::new([0; EARLY_BYTES]));
static EARLY_USED: AtomicUsize = AtomicUsize::new(0);
/// 0: nobody has looked; 1: being looked for; 2: found, or known to be missing.
static STAGE: AtomicUsize = AtomicUsize::new(0);

/// A function of the next allocator.
struct Next {
    name: &'static CStr,
    address: AtomicUsize,
}

const NEXTS: usize = 11;
static NEXT: [Next; NEXTS] = {
    const fn next(name: &'static CStr) -> Next {
        Next { name, address: AtomicUsize::new(0) }
    }
    // In this order: what is allocated by the first ones while the others are looked for can be freed.
    [
        next(c"free"),
        next(c"realloc"),
        next(c"malloc"),
        next(c"calloc"),
        next(c"posix_memalign"),
        next(c"aligned_alloc"),
        next(c"memalign"),
        next(c"malloc_usable_size"),
        next(c"valloc"),
        next(c"pvalloc"),
        next(c"sbrk"),
    ]
};
const FREE: usize = 0;
const REALLOC: usize = 1;
const MALLOC: usize = 2;
const CALLOC: usize = 3;
const POSIX_MEMALIGN: usize = 4;
const ALIGNED_ALLOC: usize = 5;
const MEMALIGN: usize = 6;
const USABLE: usize = 7;
const VALLOC: usize = 8;
const PVALLOC: usize = 9;
const SBRK: usize = 10;

/// Its address; 0: there is none, or not yet.
#[inline(always)]
fn address(which: usize) -> usize {
    let known = NEXT[which].address.load(Relaxed);
    if known != 0 { known } else { look(which) }
}

#[cold]
fn look(which: usize) -> usize {
    find_all();
    NEXT[which].address.load(Relaxed)
}

/// Looks for all of them, once. Returns at once where that is being done: by this very thread, further up, or by another.
pub(crate) fn find_all() {
    if STAGE.compare_exchange(0, 1, AcqRel, Relaxed).is_err() {
        return;
    }
    let dlsym = dlsym_address();
    if dlsym == 0 {
        message::exit(&[Piece::Text(b"this program's libc has no dlsym; run it without Loam")]);
    }
    type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    // SAFETY: the signature of POSIX.
    let find: Find = unsafe { core::mem::transmute(dlsym) };
    const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;
    const RTLD_DEFAULT: *mut c_void = core::ptr::null_mut();
    // SAFETY: the name ends with a zero byte.
    let look = |among: *mut c_void, next: &Next| unsafe { find(among, next.name.as_ptr()) } as usize;
    // Behind a library that `dlopen` has loaded stand only those that it needs, and this one needs none. All from one place: an allocation is
    // freed by the allocator that made it.
    let among = if look(RTLD_NEXT, &NEXT[FREE]) == 0 { RTLD_DEFAULT } else { RTLD_NEXT };
    for next in &NEXT {
        let found = look(among, next);
        // What only this object has would call itself without end.
        next.address.store(if is_own(found) { 0 } else { found }, Relaxed);
    }
    let found = |which: usize, instead: usize| match NEXT[which].address.load(Relaxed) {
        0 => instead,
        address => address,
    };
    QUICK_MALLOC.store(found(MALLOC, early as *const () as usize) as *mut (), Relaxed);
    if EARLY_USED.load(Relaxed) == 0 {
        QUICK_FREE.store(found(FREE, slow_free as *const () as usize) as *mut (), Relaxed);
    }
    STAGE.store(2, Release);
}

/// What most calls end in, as one jump: at first the functions below, which look for all of them; then the next allocator's own. Where early
/// allocations may have to be told from others, `free` stays as it is.
static QUICK_MALLOC: AtomicPtr<()> = AtomicPtr::new(slow_malloc as *mut ());
static QUICK_FREE: AtomicPtr<()> = AtomicPtr::new(slow_free as *mut ());

extern "C" fn slow_malloc(bytes: usize) -> Memory {
    call!(MALLOC, fn(usize) -> Memory, (bytes), early(bytes))
}

unsafe extern "C" fn slow_free(memory: Memory) {
    if !is_early(memory as usize) {
        call!(FREE, fn(Memory) -> (), (memory), ());
    }
}

fn early_start() -> usize {
    EARLY.0.get() as usize
}

#[inline(always)]
pub(super) fn is_early(address: usize) -> bool {
    address.wrapping_sub(early_start()) < EARLY_BYTES
}

/// Zeroed memory while the allocator is being looked for.
extern "C" fn early(bytes: usize) -> *mut c_void {
    if STAGE.load(Acquire) == 2 {
        return out_of_memory(); // this libc has no such function
    }
    let all = bytes.min(EARLY_BYTES).next_multiple_of(16) + EARLY_HEADER_BYTES;
    let at = EARLY_USED.fetch_add(all, Relaxed);
    if at.saturating_add(all) > EARLY_BYTES {
        message::exit(&[Piece::Text(
            b"the dynamic linker allocates more than expected; run the program without Loam",
        )]);
    }
    let header = (early_start() + at) as *mut usize;
    // SAFETY: inside the place, aligned, and handed out to nobody else.
    unsafe { header.write(bytes) };
    (header as usize + EARLY_HEADER_BYTES) as *mut c_void
}

/// Bytes of an early allocation.
fn early_bytes(address: usize) -> usize {
    // SAFETY: `early` has put it in front.
    unsafe { ((address - EARLY_HEADER_BYTES) as *const usize).read() }
}

/// Null, and why.
pub(super) fn out_of_memory() -> *mut c_void {
    // SAFETY: libc's own location for the calling thread.
    unsafe { *errno_location() = Errno::ENOMEM.0 };
    core::ptr::null_mut()
}

#[inline(always)]
pub(super) fn malloc(bytes: usize) -> Memory {
    // SAFETY: it holds functions of this signature only.
    let quick: extern "C" fn(usize) -> Memory = unsafe { core::mem::transmute(QUICK_MALLOC.load(Relaxed)) };
    quick(bytes)
}

#[inline(always)]
pub(super) fn calloc(count: usize, bytes: usize) -> Memory {
    call!(CALLOC, fn(usize, usize) -> Memory, (count, bytes), early(count.saturating_mul(bytes)))
}

/// # Safety
/// `memory` is null or an allocation of the next allocator's or an early one, and not used afterwards unless the answer is null.
#[inline(always)]
pub(super) unsafe fn realloc(memory: Memory, bytes: usize) -> Memory {
    if !is_early(memory as usize) {
        return call!(REALLOC, fn(Memory, usize) -> Memory, (memory, bytes), early(bytes));
    }
    let new = malloc(bytes);
    if !new.is_null() {
        // SAFETY: two allocations of at least that size each.
        unsafe { core::ptr::copy_nonoverlapping(memory, new, early_bytes(memory as usize).min(bytes)) };
    }
    new
}

/// # Safety
/// As [`realloc`].
#[inline(always)]
pub(super) unsafe fn free(memory: Memory) {
    // SAFETY: it holds functions of this signature only; the caller's promise.
    unsafe {
        let quick: unsafe extern "C" fn(Memory) = core::mem::transmute(QUICK_FREE.load(Relaxed));
        quick(memory);
    }
}

/// # Safety
/// `memory` is an allocation of the next allocator's or an early one.
pub(super) unsafe fn usable(memory: Memory) -> usize {
    if is_early(memory as usize) {
        return early_bytes(memory as usize);
    }
    call!(USABLE, fn(Memory) -> usize, (memory), 0)
}

/// Whether sizes of the next allocator's allocations are to be had.
pub(super) fn has_usable() -> bool {
    address(USABLE) != 0
}

pub(super) fn memalign(align: usize, bytes: usize) -> Memory {
    call!(MEMALIGN, fn(usize, usize) -> Memory, (align, bytes), out_of_memory())
}

pub(super) fn aligned_alloc(align: usize, bytes: usize) -> Memory {
    call!(ALIGNED_ALLOC, fn(usize, usize) -> Memory, (align, bytes), out_of_memory())
}

/// # Safety
/// As the C function: `into` can be written.
pub(super) unsafe fn posix_memalign(into: *mut Memory, align: usize, bytes: usize) -> c_int {
    call!(POSIX_MEMALIGN, fn(*mut Memory, usize, usize) -> c_int, (into, align, bytes), Errno::ENOMEM.0)
}

pub(super) fn valloc(bytes: usize) -> Memory {
    call!(VALLOC, fn(usize) -> Memory, (bytes), out_of_memory())
}

pub(super) fn pvalloc(bytes: usize) -> Memory {
    call!(PVALLOC, fn(usize) -> Memory, (bytes), out_of_memory())
}

/// Not an allocator's, but it gives memory as those do.
pub(super) fn sbrk(bytes: isize) -> Memory {
    let refused = || out_of_memory().wrapping_byte_sub(1);
    call!(SBRK, fn(isize) -> Memory, (bytes), refused())
}
