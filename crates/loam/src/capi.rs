//! The C interface, `libloam.so`: [`paged`](crate::paged) for programs that are not written in Rust. `include/loam.h` says what each function does.

use crate::paged::{self, Advice, Options, PagedError, Plan, Priority, Terms};
use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::ptr::NonNull;

/// As `loam.h` numbers them.
const OK: c_int = 0;
const NO_COMMAND: c_int = 1;
const REFUSED: c_int = 2;
const NO_ANSWER: c_int = 3;
const NO_SHIM: c_int = 4;
const NOT_CONNECTED: c_int = 5;
const FULL: c_int = 6;
const INVALID: c_int = 7;
const TOO_MUCH: c_int = 8;

/// More flags than anybody gives.
const FLAGS_MAX: usize = 1024;

thread_local! {
    /// What `loam_error` points at.
    static ERROR: RefCell<CString> = RefCell::default();
}

fn fail(code: c_int, text: &str) -> c_int {
    let text = text.split('\0').next().unwrap_or_default();
    ERROR.with_borrow_mut(|error| *error = CString::new(text).expect("cut at the first zero"));
    code
}

fn code(error: &PagedError) -> c_int {
    let code = match error {
        PagedError::Command { .. } => NO_COMMAND,
        PagedError::Refused(_) => REFUSED,
        PagedError::NoAnswer | PagedError::Unheard | PagedError::Statistics { .. } => NO_ANSWER,
        PagedError::Shim { .. } => NO_SHIM,
        PagedError::NotConnected => NOT_CONNECTED,
        PagedError::TooMuch | PagedError::TooManyBudgets => TOO_MUCH,
        PagedError::PageSize { .. } => INVALID,
        PagedError::Full { .. } => FULL,
    };
    fail(code, &error.to_string())
}

/// See `loam.h`.
///
/// # Safety
/// `flags` is null or a list of strings that ends with a null pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn loam_connect(local_bytes: u64, region_bytes: u64, flags: *const *const c_char) -> c_int {
    let mut words: Vec<&OsStr> = Vec::new();
    if !flags.is_null() {
        for place in 0.. {
            // SAFETY: the caller's promise; the walk ends at the null pointer.
            let word = unsafe { *flags.add(place) };
            if word.is_null() {
                break;
            }
            if place == FLAGS_MAX {
                return fail(INVALID, "too many flags: does the list end with a null pointer?");
            }
            // SAFETY: as above.
            words.push(OsStr::from_bytes(unsafe { CStr::from_ptr(word) }.to_bytes()));
        }
    }
    match paged::connect(&Options::new(local_bytes, region_bytes).flags(words)) {
        Ok(()) => OK,
        Err(error) => code(&error),
    }
}

/// See `loam.h`.
#[unsafe(no_mangle)]
extern "C" fn loam_is_connected() -> c_int {
    c_int::from(paged::is_connected())
}

/// See `loam.h`.
#[unsafe(no_mangle)]
extern "C" fn loam_calloc(count: usize, bytes: usize) -> *mut c_void {
    let all = count.checked_mul(bytes).filter(|&all| all <= isize::MAX as usize);
    let memory = all.ok_or(PagedError::Full { bytes: usize::MAX }).and_then(paged::zeros);
    match memory {
        Ok(memory) => memory.as_ptr().cast(),
        Err(error) => {
            code(&error);
            std::ptr::null_mut()
        }
    }
}

/// See `loam.h`.
///
/// # Safety
/// `memory` is null, or from `loam_calloc` or `loam_realloc`, and not freed; nobody uses it any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn loam_free(memory: *mut c_void) {
    if let Some(memory) = NonNull::new(memory) {
        // SAFETY: the caller's promise.
        unsafe { paged::free(memory.cast()) };
    }
}

/// See `loam.h`.
///
/// # Safety
/// As `loam_free`, unless it answers null.
#[unsafe(no_mangle)]
unsafe extern "C" fn loam_realloc(memory: *mut c_void, bytes: usize) -> *mut c_void {
    if bytes > isize::MAX as usize {
        code(&PagedError::Full { bytes });
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    match unsafe { paged::resize(NonNull::new(memory.cast()), bytes) } {
        Ok(memory) => memory.as_ptr().cast(),
        Err(error) => {
            code(&error);
            std::ptr::null_mut()
        }
    }
}

/// See `loam.h`. It is not looked at what is at `memory`.
#[unsafe(no_mangle)]
extern "C" fn loam_advise(memory: *const c_void, bytes: usize, advice: c_int) -> c_int {
    const ALL: [Advice; 5] =
        [Advice::WillNeed, Advice::WillNotNeed, Advice::Normal, Advice::Sequential, Advice::Random];
    said(memory, bytes, &ALL, advice, paged::raw::advise)
}

/// See `loam.h`. It is not looked at what is at `memory`.
#[unsafe(no_mangle)]
extern "C" fn loam_prioritize(memory: *const c_void, bytes: usize, priority: c_int) -> c_int {
    let all = [Priority::Low, Priority::Normal, Priority::High];
    said(memory, bytes, &all, priority, paged::raw::prioritize)
}

/// `struct loam_terms` of `loam.h`.
#[repr(C)]
struct LoamTerms {
    page_bytes: usize,
    local_bytes: u64,
    plan: c_int,
}

/// See `loam.h`. It is not looked at what is at `memory`.
///
/// # Safety
/// `terms` is null or points to such a structure.
#[unsafe(no_mangle)]
unsafe extern "C" fn loam_set_terms(memory: *const c_void, bytes: usize, terms: *const LoamTerms) -> c_int {
    let mut asked = Terms::new();
    // SAFETY: the caller's promise.
    if let Some(terms) = unsafe { terms.as_ref() } {
        if terms.page_bytes > 0 {
            asked = asked.page_size(terms.page_bytes);
        }
        if terms.local_bytes > 0 {
            asked = asked.local(terms.local_bytes);
        }
        if terms.plan != 0 {
            let number =
                usize::try_from(terms.plan).ok().and_then(|plan| Plan::ALL.get(plan.checked_sub(1)?));
            let Some(&plan) = number else { return fail(INVALID, "there is no such plan") };
            asked = asked.plan(plan);
        }
    }
    let start = memory.addr();
    let Some(end) = start.checked_add(bytes) else { return fail(INVALID, "no such memory") };
    paged::raw::set_terms(start..end, &asked).map_or_else(|error| code(&error), |()| OK)
}

/// Says one of `all`, by its number.
fn said<T: Copy>(
    memory: *const c_void,
    bytes: usize,
    all: &[T],
    number: c_int,
    say: impl FnOnce(Range<usize>, T) -> Result<(), PagedError>,
) -> c_int {
    let start = memory.addr();
    let what = usize::try_from(number).ok().and_then(|number| all.get(number));
    let (Some(end), Some(&what)) = (start.checked_add(bytes), what) else {
        return fail(INVALID, "no such memory, or no such advice or priority");
    };
    say(start..end, what).map_or_else(|error| code(&error), |()| OK)
}

/// See `loam.h`.
#[unsafe(no_mangle)]
extern "C" fn loam_error() -> *const c_char {
    ERROR.with_borrow(|error| error.as_ptr())
}
