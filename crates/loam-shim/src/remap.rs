//! `mremap(2)`, which adoption can stand in the way of: what the program has as one mapping is several to the kernel where only a part of it is registered, and
//! it refuses to move or resize that (EFAULT).

use core::arch::asm;
use core::ffi::{c_int, c_void};

use loam_hand::{BASE_PAGE_BYTES, Call, call};

use crate::connect::{self, Patience};
use crate::interpose::{answer, release};
use crate::process;
use crate::sys::{self, Errno, Result, SignalsBlocked, map};

const MREMAP_MAYMOVE: c_int = 1;
const MREMAP_FIXED: c_int = 2;
const MOVE_THERE: c_int = MREMAP_MAYMOVE | MREMAP_FIXED;

/// The kernel maps nothing beyond, unless it is asked for addresses of five levels.
const ADDRESSES_END: usize = (1 << 47) - BASE_PAGE_BYTES;
/// Nor anything below, for ordinary users.
const ADDRESSES_FIRST: usize = 64 * 1024;

/// What is refused is tried again so often, a millisecond apart.
const TRIES_MAX: u32 = 50;

/// `mremap(2)`: what is moved to a place of the program's choice, and shrinks, shrinks first. Linux before 6.17 tells the agent of its old length,
/// as if all of it had moved, and what is behind its new place had gone. What it will refuse stays as it is. The last argument is there only with some of the flags.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(
    address: *mut c_void,
    bytes: usize,
    bytes_now: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let (address, to, mut bytes) = (address as usize, to as usize, bytes);
    if flags == MOVE_THERE && shrinks(address, bytes, bytes_now, to) && process::is_under_loam() {
        // SAFETY: the caller's promise, of the part that the kernel would unmap as well.
        let shrunk = unsafe { sys::call(sys::MREMAP, [address, bytes, bytes_now, 0, 0, 0]) };
        // (Refused where it is not one mapping: the move is as well, and tried again below.)
        bytes = shrunk.map_or(bytes, |_| bytes_now);
    }
    if flags & MREMAP_FIXED != 0 && process::is_under_loam() {
        // Linux 6.17 and newer move part after part, up to the first one that is registered behind one that is not. So all of it is registered from here on, or nothing.
        match make_whole(address, bytes) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(_) => drop(release(address as u64, bytes as u64)),
        }
    }
    // SAFETY: the caller's promise; the kernel looks at `to` where the flags say that it was given.
    let remap = || unsafe { sys::call(sys::MREMAP, [address, bytes, bytes_now, flags as usize, to, 0]) };
    let mut result = remap();
    if result == Err(Errno::EFAULT) && process::is_under_loam() {
        // SAFETY: the caller's promise.
        result = unsafe { remap_parts(address, bytes, bytes_now, flags, to, remap) };
    }
    match result {
        Ok(address) => core::ptr::with_exposed_provenance_mut(address),
        Err(errno) => {
            answer(Err(errno));
            core::ptr::without_provenance_mut(usize::MAX) // MAP_FAILED
        }
    }
}

/// What the kernel has found to be several mappings: is that adoption's doing, they become one again. Parts that were first touched while they were two do not, nor
/// do a forked child's (to the kernel, their pages have come from different places): their contents are copied, if they are of a kind that a new mapping is of.
///
/// # Safety
/// As `mremap(2)`.
unsafe fn remap_parts(
    address: usize,
    bytes: usize,
    bytes_now: usize,
    flags: c_int,
    to: usize,
    remap: impl Fn() -> Result<usize>,
) -> Result<usize> {
    for nth in 0..TRIES_MAX {
        match make_whole(address, bytes) {
            Ok(()) => {}
            // A part of it was let go, the rest was not. All of it moves as it does without Loam.
            Err(Errno::EPERM) if release(address as u64, bytes as u64).is_ok() => return remap(),
            Err(_) => return Err(Errno::EFAULT),
        }
        if nth > 0 {
            sys::sleep_ms(1);
        }
        match remap() {
            Err(Errno::EFAULT) => {}
            result => return result,
        }
    }
    if ask(call::MAY_COPY, address, bytes).is_err() {
        // Since Linux 6.17 mappings that are not registered move together, if they keep their length. (By now this one may have shrunk for it, so it had better move.)
        if bytes == bytes_now && release(address as u64, bytes as u64).is_ok() {
            return remap();
        }
        return Err(Errno::EFAULT);
    }
    match flags {
        // SAFETY: the caller's promise; the agent has seen that all of it is private memory, to be read and written, and nothing else.
        MREMAP_MAYMOVE => unsafe { move_copy(address, bytes, bytes_now, None) },
        // SAFETY: the same, and the caller's own is what is at `to`: the kernel has looked whether the two overlap.
        MOVE_THERE => unsafe { move_copy(address, bytes, bytes_now, Some(to)) },
        _ => Err(Errno::EFAULT),
    }
}

/// That it was adoption's doing that there are several mappings, and will be so no more; or why not, see [`call::MAKE_WHOLE`].
fn make_whole(address: usize, bytes: usize) -> Result<()> {
    ask(call::MAKE_WHOLE, address, bytes)
}

/// Asks the agent something of a range.
fn ask(what: u32, address: usize, bytes: usize) -> Result<()> {
    let _blocked = SignalsBlocked::new();
    let path = process::path();
    let (address, bytes) = (address as u64, bytes as u64);
    let request = Call { what, address, bytes, ..Call::default() };
    connect::call_agent(path.bytes(), &request, Patience::Limited)
}

/// It becomes smaller on the way, and the kernel will not refuse it for where it is or goes.
fn shrinks(address: usize, bytes: usize, bytes_now: usize, to: usize) -> bool {
    let (Some(end), Some(end_there)) = (address.checked_add(bytes), to.checked_add(bytes_now)) else {
        return false;
    };
    let pages = |bytes: usize| bytes.div_ceil(BASE_PAGE_BYTES);
    0 < bytes_now
        && pages(bytes_now) < pages(bytes)
        && address.is_multiple_of(BASE_PAGE_BYTES)
        && to.is_multiple_of(BASE_PAGE_BYTES)
        && ADDRESSES_FIRST <= to
        && end_there <= ADDRESSES_END
        && (end <= to || end_there <= address)
}

/// A move by hand: to `to`, or where the kernel finds room. Pages of zeros are left out.
///
/// # Safety
/// Both ranges are the caller's own, the first one private, to be read and written; they do not overlap.
unsafe fn move_copy(address: usize, bytes: usize, bytes_now: usize, to: Option<usize>) -> Result<usize> {
    let flags = map::PRIVATE | map::ANONYMOUS | if to.is_some() { map::FIXED } else { 0 };
    // SAFETY: the caller's promise of what is at `to`; else the kernel finds room.
    let there = unsafe { map::map(to.unwrap_or(0), bytes_now, map::PROTECTION_READ_WRITE, flags, -1) }?;
    let pages = |bytes: usize| bytes.div_ceil(BASE_PAGE_BYTES);
    for page in 0..pages(bytes).min(pages(bytes_now)) {
        let from = address + page * BASE_PAGE_BYTES;
        // SAFETY: a page of the first range, to be read. No other thread may use it while it is moved, or it would fault.
        let mut words =
            unsafe { core::slice::from_raw_parts(from as *const u64, BASE_PAGE_BYTES / 8) }.iter();
        if words.all(|word| *word == 0) {
            continue;
        }
        // SAFETY: a page of each range, which do not overlap; the direction flag is clear, as the calling convention has it. (An
        // instruction, not `memcpy`: the program may have one of its own.)
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") BASE_PAGE_BYTES => _,
                inout("rsi") from => _,
                inout("rdi") there + page * BASE_PAGE_BYTES => _,
                options(nostack, preserves_flags),
            );
        }
    }
    // SAFETY: the caller's own, which has moved.
    unsafe { map::unmap(address, bytes) };
    Ok(there)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn it_shrinks_where_the_kernel_would_shrink_it() {
        assert!(shrinks(16 * MIB, 2 * MIB, MIB, 32 * MIB));
        assert!(shrinks(16 * MIB, 2 * MIB, MIB, 15 * MIB), "up to its beginning");
        assert!(!shrinks(16 * MIB, 2 * MIB, MIB, 17 * MIB), "it would cover itself");
        assert!(!shrinks(16 * MIB, 2 * MIB, MIB, 16 * MIB - BASE_PAGE_BYTES));
        assert!(!shrinks(16 * MIB, MIB, MIB, 32 * MIB) && !shrinks(16 * MIB, MIB, 2 * MIB, 32 * MIB));
        assert!(!shrinks(16 * MIB, MIB, MIB - 1, 32 * MIB), "by less than a page");
        assert!(!shrinks(16 * MIB, MIB, 0, 32 * MIB) && !shrinks(16 * MIB, 2 * MIB, MIB, 32 * MIB + 1));
        assert!(!shrinks(16 * MIB + 8, 2 * MIB, MIB, 32 * MIB), "it is at no page");
        assert!(shrinks(16 * MIB, 2 * MIB, MIB, ADDRESSES_END - MIB));
        assert!(!shrinks(16 * MIB, 2 * MIB, MIB, ADDRESSES_END - MIB + BASE_PAGE_BYTES));
        assert!(!shrinks(16 * MIB, 2 * MIB, MIB, 0) && !shrinks(16 * MIB, 2 * MIB, MIB, BASE_PAGE_BYTES));
        assert!(!shrinks(usize::MAX - 10, 2 * MIB, MIB, 32 * MIB) && !shrinks(MIB, 2 * MIB, MIB, usize::MAX));
    }

    const PAGE_WORDS: usize = BASE_PAGE_BYTES / 8;

    /// A move of memory of the test's own, that nothing refers to.
    fn moved(from: usize, pages: usize, pages_now: usize, to: Option<usize>) -> usize {
        // SAFETY: both are mapped for the test alone, the first one private, to be read and written.
        unsafe { move_copy(from, pages * BASE_PAGE_BYTES, pages_now * BASE_PAGE_BYTES, to) }.unwrap()
    }

    /// What is there now.
    fn words(at: usize, pages: usize) -> Vec<u64> {
        // SAFETY: mapped for the test alone, to be read, by `moved`.
        unsafe { core::slice::from_raw_parts(at as *const u64, pages * PAGE_WORDS) }.to_vec()
    }

    #[test]
    fn a_copy_has_what_was_there_and_zeros_behind() {
        let new = |pages: usize| {
            let flags = map::PRIVATE | map::ANONYMOUS;
            // SAFETY: a new mapping where the kernel finds room.
            unsafe { map::map(0, pages * BASE_PAGE_BYTES, map::PROTECTION_READ_WRITE, flags, -1) }.unwrap()
        };
        // A page of zeros, and one with its last word only.
        let mut expected = vec![0_u64; 12 * PAGE_WORDS];
        for at in [0, PAGE_WORDS + 5, 3 * PAGE_WORDS, 6 * PAGE_WORDS - 1] {
            expected[at] = at as u64 + 100;
        }
        let first = new(8);
        // SAFETY: just mapped, 8 pages, and nobody else's.
        unsafe { core::ptr::copy_nonoverlapping(expected.as_ptr(), first as *mut u64, 8 * PAGE_WORDS) };
        let second = moved(first, 8, 12, None);
        assert_eq!(words(second, 12), expected);
        let place = new(64);
        assert_eq!(moved(second, 12, 2, Some(place)), place);
        assert_eq!(words(place, 2), expected[..2 * PAGE_WORDS]);
        // SAFETY: mapped above, and nothing refers to it.
        unsafe { map::unmap(place, 64 * BASE_PAGE_BYTES) };
    }
}
