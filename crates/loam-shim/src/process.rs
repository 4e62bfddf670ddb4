//! What the shim remembers of its process. Copied by a fork, as all private memory is.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize};

use loam_hand::{BASE_PAGE_BYTES, Control};

use crate::connect::PATH_BYTES_MAX;
use crate::sys::map::{self, map_guarded};
use crate::sys::{self, Result};

static PATH: [AtomicU8; PATH_BYTES_MAX] = [const { AtomicU8::new(0) }; PATH_BYTES_MAX];
static PATH_BYTES: AtomicUsize = AtomicUsize::new(0);
static UNDER_LOAM: AtomicBool = AtomicBool::new(false);
static FORK_EVENTS: AtomicBool = AtomicBool::new(false);
static PROBE: AtomicUsize = AtomicUsize::new(0);
static WINDOW_BYTES: AtomicUsize = AtomicUsize::new(0);
static PLACES: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

/// Where the part of the program that runs is told. A child has it before it has its own.
static CONTROL: AtomicUsize = AtomicUsize::new(0);
/// Address of a page with the process's id. 0: none yet.
static OWN: AtomicUsize = AtomicUsize::new(0);

/// Memory of the shim's own that a forked child maps anew. The child takes the addresses that its parent had, which are free in
/// it: elsewhere it could stand where the program counts on a hole.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Shared,
    Window,
    Stack,
}

/// Where it was in the parent; 0: no matter where.
pub(crate) fn place(place: Place) -> usize {
    PLACES[place as usize].load(Relaxed)
}

pub(crate) fn set_place(place: Place, address: usize) {
    PLACES[place as usize].store(address, Relaxed);
}

/// The agent's socket: a copy, so that no pointer into the environment is kept.
pub(crate) struct Path {
    bytes: [u8; PATH_BYTES_MAX],
    used: usize,
}

impl Path {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

/// Remembers the agent's socket. False: too long to be one.
pub(crate) fn set_path(path: &[u8]) -> bool {
    if path.is_empty() || path.len() >= PATH_BYTES_MAX {
        return false;
    }
    for (slot, byte) in PATH.iter().zip(path) {
        slot.store(*byte, Relaxed);
    }
    PATH_BYTES.store(path.len(), Relaxed);
    true
}

pub(crate) fn path() -> Path {
    let mut path = Path { bytes: [0; PATH_BYTES_MAX], used: PATH_BYTES.load(Relaxed) };
    for (byte, slot) in path.bytes.iter_mut().zip(&PATH) {
        *byte = slot.load(Relaxed);
    }
    path
}

/// True while an agent serves this process.
pub(crate) fn is_under_loam() -> bool {
    UNDER_LOAM.load(Relaxed)
}

/// Called before the process has threads: by the constructor, or in a forked child.
pub(crate) fn set_under_loam(under_loam: bool) {
    UNDER_LOAM.store(under_loam, Relaxed);
}

/// True where the agent hears of forks from the kernel.
pub(crate) fn has_fork_events() -> bool {
    FORK_EVENTS.load(Relaxed)
}

pub(crate) fn set_fork_events(has: bool) {
    FORK_EVENTS.store(has, Relaxed);
}

/// Address of the probe page; 0: none yet.
pub(crate) fn probe() -> usize {
    PROBE.load(Relaxed)
}

pub(crate) fn set_probe(address: usize) {
    PROBE.store(address, Relaxed);
}

/// Bytes of the window; its place is [`Place::Window`]'s, behind a page without access.
pub(crate) fn window_bytes() -> usize {
    WINDOW_BYTES.load(Relaxed)
}

pub(crate) fn set_window_bytes(bytes: usize) {
    WINDOW_BYTES.store(bytes, Relaxed);
}

/// From now on [`is_own`], in this process.
pub(crate) fn mark_own() -> Result<()> {
    let mut page = OWN.load(Relaxed);
    if page == 0 {
        page = map_guarded(BASE_PAGE_BYTES, 0)?;
        // SAFETY: just mapped, and nobody else's.
        unsafe {
            map::advise(page, BASE_PAGE_BYTES, map::ADVICE_WIPEONFORK)?;
            let _ = map::advise(page, BASE_PAGE_BYTES, map::ADVICE_DONTDUMP);
        }
        OWN.store(page, Relaxed);
    }
    // SAFETY: mapped for the life of the process, aligned, and only ever used so.
    unsafe { AtomicU32::from_ptr(page as *mut u32) }.store(sys::getpid(), Relaxed);
    Ok(())
}

/// What is remembered here is this process's, and not of the one that it was forked from past libc: in the child of a `vfork` the id is another, and any other child finds the page empty. (The id alone
/// does not tell: parent and child may both be the first of a pid namespace.)
pub(crate) fn is_own() -> bool {
    let page = OWN.load(Relaxed) as *mut u32;
    // SAFETY: null, or as above.
    !page.is_null() && unsafe { AtomicU32::from_ptr(page) }.load(Relaxed) == sys::getpid()
}

/// The process shares this memory with its agent from now on, for as long as it lives.
pub(crate) fn set_control(control: &'static Control) {
    CONTROL.store(core::ptr::from_ref(control) as usize, Release);
}

/// A child of this process has it no more: it is not mapped there.
pub(crate) fn forget_control() {
    CONTROL.store(0, Relaxed);
}

/// What it shares with its agent. None in a child that has not joined yet, and after a `vfork`.
pub(crate) fn control() -> Option<&'static Control> {
    let control = CONTROL.load(Acquire) as *const Control;
    // SAFETY: null, or what `set_control` was given, in the process that gave it: there it stays mapped.
    if is_own() { unsafe { control.as_ref() } } else { None }
}
