//! The shim, as this process has it: its functions by name.

use super::{Advice, PagedError, Priority, Terms};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

/// Longest line that the shim says why it cannot join by; more is cut.
const LINE_BYTES: usize = 256;

type Tell = extern "C" fn(usize, usize, c_int) -> c_int;
type SetTerms = extern "C" fn(usize, usize, usize, u32, u64) -> c_int;
type Join = unsafe extern "C" fn(*const c_char, *mut c_char, usize) -> c_int;

/// See the module's documentation. It is never unloaded.
#[derive(Debug)]
pub(super) struct Shim {
    join: Join,
    calloc: extern "C" fn(usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    part: extern "C" fn(u32),
    advise: Tell,
    prioritize: Tell,
    set_terms: SetTerms,
    region_least: extern "C" fn() -> usize,
    malloc: extern "C" fn(usize) -> *mut c_void,
    memalign: extern "C" fn(usize, usize) -> *mut c_void,
    usable: unsafe extern "C" fn(*mut c_void) -> usize,
    region: unsafe extern "C" fn(*mut usize) -> usize,
}

/// The address of a symbol.
fn symbol(handle: *mut c_void, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: looks a string up in an object that is loaded.
    NonNull::new(unsafe { libc::dlsym(handle, name.as_ptr()) })
}

/// The shim's answer to what was told.
fn heard(answer: c_int) -> Result<(), PagedError> {
    match answer {
        0 => Ok(()),
        2 => Err(PagedError::TooMuch),
        3 => Err(PagedError::TooManyBudgets),
        _ => Err(PagedError::Unheard),
    }
}

impl Shim {
    /// The one that `loam run` has preloaded, if an agent serves this process.
    pub(super) fn preloaded() -> Option<Self> {
        let is_served = symbol(libc::RTLD_DEFAULT, c"loam_is_served")?;
        // SAFETY: only the shim defines that name, and with this type.
        let is_served: extern "C" fn() -> c_int = unsafe { std::mem::transmute(is_served) };
        // Then `calloc` and `free` are those of the shim as well, or of the program's own allocator: whose memory is borrowed for.
        (is_served() == 1).then(|| Self::of(libc::RTLD_DEFAULT)).flatten()
    }

    /// Loads it.
    pub(super) fn load(path: &Path) -> Result<Self, PagedError> {
        let failed = |why: String| PagedError::Shim { path: path.to_owned(), why };
        let name =
            CString::new(path.as_os_str().as_bytes()).map_err(|_| failed("a zero in its path".into()))?;
        // SAFETY: its constructor does nothing without `LOAM_SOCKET`, and what it defines hides nothing of the program's (RTLD_LOCAL).
        let handle =
            unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE) };
        if handle.is_null() {
            // SAFETY: after a failure it is a string, or null.
            let why = unsafe { libc::dlerror() };
            let why = NonNull::new(why).map_or_else(String::new, |why| {
                // SAFETY: as above; it is copied before anybody calls the loader again.
                unsafe { CStr::from_ptr(why.as_ptr()) }.to_string_lossy().into_owned()
            });
            return Err(failed(why));
        }
        Self::of(handle).ok_or_else(|| failed("it is of another version".into()))
    }

    fn of(handle: *mut c_void) -> Option<Self> {
        let [malloc, usable, region] =
            [c"malloc", c"malloc_usable_size", c"loam_region"].map(|name| symbol(handle, name));
        let [realloc, memalign, advise] =
            [c"realloc", c"memalign", c"loam_advise_range"].map(|name| symbol(handle, name));
        let [prioritize, set_terms, region_least] =
            [c"loam_prioritize_range", c"loam_set_terms_range", c"loam_region_least"]
                .map(|name| symbol(handle, name));
        let [join, calloc, free, part] =
            [c"loam_join_at", c"calloc", c"free", c"loam_part"].map(|name| symbol(handle, name));
        // SAFETY: that is how the shim, and every libc, declares them.
        unsafe {
            Some(Self {
                join: std::mem::transmute::<NonNull<c_void>, Join>(join?),
                calloc: std::mem::transmute::<NonNull<c_void>, extern "C" fn(usize, usize) -> *mut c_void>(
                    calloc?,
                ),
                realloc: std::mem::transmute::<
                    NonNull<c_void>,
                    unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
                >(realloc?),
                free: std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut c_void)>(free?),
                part: std::mem::transmute::<NonNull<c_void>, extern "C" fn(u32)>(part?),
                memalign: std::mem::transmute::<NonNull<c_void>, extern "C" fn(usize, usize) -> *mut c_void>(
                    memalign?,
                ),
                advise: std::mem::transmute::<NonNull<c_void>, Tell>(advise?),
                prioritize: std::mem::transmute::<NonNull<c_void>, Tell>(prioritize?),
                set_terms: std::mem::transmute::<NonNull<c_void>, SetTerms>(set_terms?),
                region_least: std::mem::transmute::<NonNull<c_void>, extern "C" fn() -> usize>(region_least?),
                malloc: std::mem::transmute::<NonNull<c_void>, extern "C" fn(usize) -> *mut c_void>(malloc?),
                usable: std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut c_void) -> usize>(
                    usable?,
                ),
                region: std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut usize) -> usize>(
                    region?,
                ),
            })
        }
    }

    /// A part of the program begins.
    pub(super) fn part(&self, number: u32) {
        (self.part)(number);
    }

    /// What will be done with a range.
    pub(super) fn advise(&self, range: Range<usize>, advice: Advice) -> Result<(), PagedError> {
        let number = match advice {
            Advice::WillNeed => 0,
            Advice::WillNotNeed => 1,
            Advice::Normal => 2,
            Advice::Sequential => 3,
            Advice::Random => 4,
        };
        heard((self.advise)(range.start, range.len(), number))
    }

    /// What a range is worth.
    pub(super) fn prioritize(&self, range: Range<usize>, priority: Priority) -> Result<(), PagedError> {
        let number = match priority {
            Priority::Low => 0,
            Priority::Normal => 1,
            Priority::High => 2,
        };
        heard((self.prioritize)(range.start, range.len(), number))
    }

    /// On what terms a range is paged.
    pub(super) fn set_terms(&self, range: Range<usize>, terms: &Terms) -> Result<(), PagedError> {
        let plan = terms.plan.map_or(0, |plan| 1 + plan as u32);
        let (page_bytes, local_bytes) = (terms.page_bytes.unwrap_or(0), terms.local_bytes.unwrap_or(0));
        heard((self.set_terms)(range.start, range.len(), page_bytes, plan, local_bytes))
    }

    /// What was said of a range holds no longer.
    pub(super) fn forget(&self, range: Range<usize>) -> Result<(), PagedError> {
        heard((self.advise)(range.start, range.len(), 5))
    }

    /// Bytes from which on a request is the region's; none if there is no region.
    pub(super) fn region_least(&self) -> Option<usize> {
        Some((self.region_least)()).filter(|&bytes| bytes != 0)
    }

    /// Joins the agent at `socket`.
    pub(super) fn join(&self, socket: &Path) -> Result<(), PagedError> {
        let socket = CString::new(socket.as_os_str().as_bytes()).map_err(|_| PagedError::NoAnswer)?;
        let mut line = [0_u8; LINE_BYTES];
        // SAFETY: a string and room for one, and the caller sees to it that one thread joins at a time.
        let answer = unsafe { (self.join)(socket.as_ptr(), line.as_mut_ptr().cast(), line.len()) };
        if answer == 0 {
            return Ok(());
        }
        let why = CStr::from_bytes_until_nul(&line).unwrap_or_default().to_string_lossy();
        Err(if why.is_empty() { PagedError::NoAnswer } else { PagedError::Refused(why.into_owned()) })
    }

    /// Zeros, aligned for everything; of the region if they are many. `None`: no memory.
    pub(super) fn zeros(&self, bytes: usize) -> Option<NonNull<u8>> {
        NonNull::new((self.calloc)(1, bytes).cast())
    }

    /// `realloc`.
    ///
    /// # Safety
    /// As [`free`](Self::free), unless it answers `None`.
    pub(super) unsafe fn resize(&self, memory: Option<NonNull<u8>>, bytes: usize) -> Option<NonNull<u8>> {
        let memory = memory.map_or(std::ptr::null_mut(), |memory| memory.as_ptr().cast());
        // SAFETY: the caller's promise.
        NonNull::new(unsafe { (self.realloc)(memory, bytes) }.cast())
    }

    /// Frees what [`zeros`](Self::zeros) has given.
    ///
    /// # Safety
    /// It was not freed before, and nobody uses it any more.
    pub(super) unsafe fn free(&self, memory: NonNull<u8>) {
        // SAFETY: the caller's promise.
        unsafe { (self.free)(memory.as_ptr().cast()) };
    }

    /// `malloc`: as [`zeros`](Self::zeros), with any contents.
    pub(super) fn allocate(&self, bytes: usize) -> Option<NonNull<u8>> {
        NonNull::new((self.malloc)(bytes).cast())
    }

    /// `memalign`: as [`allocate`](Self::allocate), aligned to a power of two.
    pub(super) fn aligned(&self, align: usize, bytes: usize) -> Option<NonNull<u8>> {
        NonNull::new((self.memalign)(align, bytes).cast())
    }

    /// The room that it has: of the region's, whole base pages.
    ///
    /// # Safety
    /// `memory` is from here, and not freed.
    pub(super) unsafe fn usable(&self, memory: NonNull<u8>) -> usize {
        // SAFETY: the caller's promise.
        unsafe { (self.usable)(memory.as_ptr().cast()) }
    }

    /// The addresses of the region; none if there is no region.
    pub(super) fn region(&self) -> Option<Range<usize>> {
        let mut start = 0;
        // SAFETY: it writes an integer, which lives.
        let bytes = unsafe { (self.region)(&raw mut start) };
        (bytes != 0).then(|| start..start + bytes)
    }
}
