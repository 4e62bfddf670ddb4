//! For programs that want to tell Loam about themselves. Nothing here is needed to run under `loam run`, and all of it is harmless without.
//!
//! C programs include `loam.h` (in `include/`), Python programs import `loam` (in `bindings/python`).
//!
//! ```
//! for _ in 0..2 {
//!     loam::part(1); // from here on the program sweeps along x
//!     loam::part(2); // and from here on along z
//! }
//! ```
//!
//! Programs that want memory of the node by name, [map it as a region](region); programs that want to borrow for some of their arrays without
//! `loam run` [connect](paged).

mod capi;
pub mod paged;
pub mod region;

pub use region::{Region, RegionError, RegionVec, Regions, SharedRegion};

use std::ffi::c_void;
use std::sync::OnceLock;

/// A part of the program begins: a stretch with an access pattern of its own, such as a phase of each iteration. Numbers are the program's,
/// from 1 to 255; the same number is the same part. Loam keeps apart what it learns of page sizes in each (aapc-2012, section II.A).
///
/// Costs a few nanoseconds and a `getpid` under `loam run`, and a load without it. Called by any thread; it holds for the whole program.
pub fn part(number: u32) {
    static CALL: OnceLock<Option<extern "C" fn(u32)>> = OnceLock::new();
    let call = CALL.get_or_init(|| {
        // SAFETY: looks a symbol up by a string that ends with a zero.
        let symbol: *mut c_void = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"loam_part".as_ptr()) };
        // SAFETY: only `libloam_shim.so` and `loam.h` define that name, and with this type.
        (!symbol.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(u32)>(symbol) })
    });
    if paged::part(number) {
        return;
    }
    if let Some(call) = call {
        call(number);
    }
}
