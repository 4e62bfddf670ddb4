//! The region: a reserved range from which the program's large allocations are served, and the only memory of the program that is
//! borrowed (`loam run --region`; regions-2010, section IV.B: a library that stands in for *malloc* and *free*).
//!
//! [`malloc`] are the functions that the program calls instead of libc's, [`next`] finds libc's own, and [`blocks`] keeps
//! account of the region in memory of its own, so that no bookkeeping ever touches a page that may be away. The lock is
//! held for bookkeeping only: giving memory back makes the kernel wait until the agent has read the event, and copying waits for lenders.

pub(crate) mod blocks;
mod direct;
mod malloc;
mod next;
pub(crate) mod nodes;
mod range;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicUsize};

use loam_hand::{BASE_PAGE_BYTES, RegionFigures, RegionPlan};

use crate::lock::Lock;
use crate::message::{self, Piece};
use crate::sys::map::{self, map_guarded, unmap};
use crate::sys::{self, Result, SignalsBlocked};
use crate::{process, throttle};
use blocks::{Blocks, Contents, GivingBack};
pub(crate) use direct::Files;
pub(crate) use direct::fork::set_token;
use nodes::Node;

/// How often a request that finds the region full looks again while other threads are giving memory back.
const LOOKS_MAX: u32 = 256;

/// Requests from this size on come here. 0 until the first call after the constructor, so that the one comparison that every call makes also
/// tells whether the program calls these functions at all; `usize::MAX` without a region.
static LEAST: AtomicUsize = AtomicUsize::new(0);
/// What `LEAST` becomes; 0 until the constructor has run.
static LEAST_PLANNED: AtomicUsize = AtomicUsize::new(0);
/// One of the functions was called.
static CALLED: AtomicBool = AtomicBool::new(false);
static BASE: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static REGION: Lock<Option<Region>> = Lock::new(None);
static HELD: Lock<Option<SignalsBlocked>> = Lock::new(None);

struct Region {
    blocks: Blocks<'static>,
    /// Where the books are, and their bytes.
    books: (usize, usize),
    /// Of freed memory so much may keep its contents.
    spare_pages: u32,
}

impl Region {
    /// Something has become free: so much of it may keep its contents, if there is more now.
    fn excess(&self) -> Option<u32> {
        (self.blocks.dirty_pages() > self.spare_pages).then_some(self.spare_pages)
    }
}

/// Reserves the region that the agent wants, of memory from `files` if it is direct; its address. A process does so once: a forked child has its
/// parent's.
pub(crate) fn reserve(plan: &RegionPlan, files: Option<Files>) -> Result<usize> {
    let existing = BASE.load(Relaxed);
    if plan.bytes == 0 || existing != 0 {
        return Ok(existing);
    }
    assert!(plan.is_sane(), "the caller has looked");
    let (bytes, least) = (plan.bytes as usize, plan.least_bytes as usize);
    let pages = (bytes / BASE_PAGE_BYTES) as u32;
    let window_pages = least.div_ceil(BASE_PAGE_BYTES) as u32;
    let windows = pages.div_ceil(window_pages);
    let nodes_bytes = (Blocks::nodes_for(windows) * size_of::<Node>()).next_multiple_of(BASE_PAGE_BYTES);
    let begins_bytes = (windows as usize * size_of::<u32>()).next_multiple_of(BASE_PAGE_BYTES);
    let base = match files {
        None => map_guarded(bytes, 0)?,
        Some(files) => direct::reserve(plan, files)?,
    };
    let books = map_guarded(nodes_bytes + begins_bytes, 0).inspect_err(|_| unmap_guarded(base, bytes))?;
    // In base pages, or the first record of a region that is hardly used would take 2 MiB.
    // SAFETY: advice for what was just mapped; a kernel without large pages needs none.
    let _ = unsafe { map::advise(books, nodes_bytes + begins_bytes, map::ADVICE_NOHUGEPAGE) };
    // SAFETY: mapped just now, zeros, for the life of the process, and known to nobody else; a record of zeros is an unused one.
    let (nodes, begins) = unsafe {
        (
            core::slice::from_raw_parts_mut(books as *mut Node, nodes_bytes / size_of::<Node>()),
            core::slice::from_raw_parts_mut((books + nodes_bytes) as *mut u32, windows as usize),
        )
    };
    let spare_pages = (plan.spare_bytes / BASE_PAGE_BYTES as u64).min(u64::from(u32::MAX)) as u32;
    let blocks = Blocks::new(nodes, begins, pages, window_pages, u64::from(spare_pages) * 2);
    *REGION.lock() = Some(Region { blocks, books: (books, nodes_bytes + begins_bytes), spare_pages });
    BASE.store(base, Relaxed);
    BYTES.store(bytes, Relaxed);
    LEAST_PLANNED.store(least, Release);
    Ok(base)
}

/// Gives up what [`reserve`] has made, as the process is not served after all. Where nobody can have used it: before [`serve_late`].
pub(crate) fn release() {
    if LEAST.load(Relaxed) != usize::MAX {
        return;
    }
    let Some(region) = REGION.lock().take() else { return };
    LEAST_PLANNED.store(usize::MAX, Release);
    let bytes = BYTES.swap(0, Relaxed);
    unmap_guarded(BASE.swap(0, Relaxed), bytes);
    unmap_guarded(region.books.0, region.books.1);
}

/// Ends what `map_guarded` has made.
fn unmap_guarded(address: usize, bytes: usize) {
    // SAFETY: the callers pass what they have mapped, with its guards, and nobody uses any more.
    unsafe { unmap(address - BASE_PAGE_BYTES, bytes + 2 * BASE_PAGE_BYTES) };
}

/// The end of the constructor: what was not planned by now is not going to be.
pub(crate) fn settle() {
    if LEAST_PLANNED.load(Acquire) == 0 || !process::is_under_loam() {
        LEAST_PLANNED.store(usize::MAX, Release);
        LEAST.store(usize::MAX, Relaxed);
    }
    next::find_all();
}

/// The region was reserved after the constructor: it is served from now on, to whoever asks for these functions by name.
pub(crate) fn serve_late() {
    CALLED.store(true, Relaxed);
    tell_called();
    LEAST.store(LEAST_PLANNED.load(Acquire), Relaxed);
}

/// The process has a new place for its figures, as it has started or is a forked child.
pub(crate) fn tell_called() {
    if CALLED.load(Relaxed) {
        count(|figures| figures.called.store(1, Relaxed));
    }
}

/// Before a fork: the child's books must be whole.
pub(crate) fn fork_begins() {
    let signals = REGION.hold();
    *HELD.lock() = Some(signals);
    direct::fork::prepare();
}

/// After it, in the child, before it joins.
pub(crate) fn child_begins() {
    direct::fork::child_begins();
}

/// And when it has joined.
pub(crate) fn child_joined() {
    direct::fork::child_copies();
}

/// After it, in the parent and in the child.
pub(crate) fn fork_ends(is_child: bool) {
    if !is_child {
        direct::fork::parent();
    }
    direct::fork::let_go();
    let signals = HELD.lock().take();
    if let Some(signals) = signals {
        REGION.let_go(signals);
    }
    if is_child && let Some(region) = &mut *REGION.lock() {
        region.blocks.forked();
    }
}

/// Whether a request of this size comes here: one comparison, for all that do not.
#[inline(always)]
fn is_large(bytes: usize) -> bool {
    bytes >= LEAST.load(Relaxed) && is_large_slow(bytes)
}

/// Each allocation from now on is one that is looked at more closely, until one was.
pub(crate) fn ask_all() {
    LEAST.store(0, Relaxed);
}

#[cold]
fn is_large_slow(bytes: usize) -> bool {
    throttle::ask();
    let planned = LEAST_PLANNED.load(Acquire);
    if LEAST.load(Relaxed) == 0 {
        CALLED.store(true, Relaxed);
        if planned != 0 {
            tell_called();
            LEAST.store(planned, Relaxed);
        }
    }
    planned != 0 && bytes >= planned
}

#[inline(always)]
fn contains(address: usize) -> bool {
    address.wrapping_sub(BASE.load(Relaxed)) < BYTES.load(Relaxed)
}

fn pages(bytes: usize) -> Option<u32> {
    u32::try_from(bytes.div_ceil(BASE_PAGE_BYTES)).ok()
}

fn count(what: impl FnOnce(&RegionFigures)) {
    if let Some(control) = process::control() {
        what(&control.region);
    }
}

/// Memory of the region; `None` where it has no room, which is counted.
fn allocate(bytes: usize, align: usize, zeros: bool) -> Option<usize> {
    assert!(align.is_power_of_two(), "the caller looked");
    let base = BASE.load(Relaxed);
    let found = match (pages(bytes), u32::try_from((align / BASE_PAGE_BYTES).max(1))) {
        (Some(pages), Ok(align)) => find(pages, align, (base / BASE_PAGE_BYTES) as u64, zeros),
        _ => None,
    };
    let found = found.filter(|(taken, _)| !direct::is_on() || provide(taken.start, bytes));
    let Some((taken, used_pages)) = found else {
        count(|figures| {
            figures.full.fetch_add(1, Relaxed);
            figures.full_bytes.fetch_add(bytes as u64, Relaxed);
        });
        return None;
    };
    let address = base + taken.start as usize * BASE_PAGE_BYTES;
    let old = zeros && taken.contents != Contents::Zeros;
    // Direct memory is never away: there is nothing to gain by discarding it.
    let discards = !direct::is_on() && (old || taken.contents == Contents::Stale);
    let kept = !discards || discard(address, bytes.next_multiple_of(BASE_PAGE_BYTES)).is_err();
    if old && kept {
        // SAFETY: just handed out, so nobody else's.
        unsafe { core::ptr::write_bytes(address as *mut u8, 0, bytes) };
    }
    count(|figures| {
        figures.allocations.fetch_add(1, Relaxed);
        figures.allocated_bytes.fetch_add(bytes as u64, Relaxed);
        figures.peak_bytes.fetch_max(u64::from(used_pages) * BASE_PAGE_BYTES as u64, Relaxed);
    });
    Some(address)
}

/// Sees to it that a block of a direct region, just handed out, has memory. False: there is none left, and the block is free again.
fn provide(start: u32, bytes: usize) -> bool {
    let first = start as usize;
    let range = first..first + bytes.div_ceil(BASE_PAGE_BYTES);
    // What this process keeps for its next allocations, and needs now.
    let provided = direct::provide(range.clone()) || give_back(0) && direct::provide(range);
    if !provided && let Some(region) = &mut *REGION.lock() {
        let freed = region.blocks.free(start);
        assert!(freed, "it was just handed out");
    }
    provided
}

fn find(pages: u32, align: u32, origin: u64, zeros: bool) -> Option<(blocks::Taken, u32)> {
    for _ in 0..LOOKS_MAX {
        {
            let mut region = REGION.lock();
            let blocks = &mut region.as_mut().expect("large requests come after the reservation").blocks;
            if let Some(taken) = blocks.allocate(pages, align, origin, zeros) {
                return Some((taken, blocks.used_pages()));
            }
            if !blocks.could_serve(pages) {
                return None;
            }
        }
        // What is dirty and what is clean would do together, or what another thread has not quite given back.
        if !give_back(0) {
            sys::sched_yield();
        }
    }
    None
}

/// Gives back what was freed first until no more than so many pages are dirty. True: something was given back.
fn give_back(pages_max: u32) -> bool {
    let mut gave = false;
    loop {
        let Some(block) = next_to_give_back(pages_max) else { return gave };
        let address = BASE.load(Relaxed) + block.start as usize * BASE_PAGE_BYTES;
        let done = discard(address, block.pages as usize * BASE_PAGE_BYTES).is_ok();
        if let Some(region) = &mut *REGION.lock() {
            region.blocks.given_back(block, done);
        }
        gave |= done;
        if !done {
            return gave; // the program has locked it
        }
    }
}

fn next_to_give_back(pages_max: u32) -> Option<GivingBack> {
    let mut region = REGION.lock();
    let blocks = &mut region.as_mut()?.blocks;
    if blocks.dirty_pages() > pages_max { blocks.give_back_oldest() } else { None }
}

/// The contents of a range go, here and with lenders.
fn discard(address: usize, bytes: usize) -> Result<()> {
    if direct::is_on() {
        let first = (address - BASE.load(Relaxed)) / BASE_PAGE_BYTES;
        return direct::take_back(first..first + bytes / BASE_PAGE_BYTES);
    }
    // SAFETY: the callers pass memory of the region that nobody uses.
    unsafe { map::advise(address, bytes, map::ADVICE_DONTNEED) }
}

/// The program gives advice for memory of its own. True: it was of a direct region, where the kernel would do something else than with the private memory that
/// the program takes it for, and it is done.
pub(crate) fn advised(address: usize, bytes: usize, advice: i32) -> bool {
    const DONTNEED: i32 = 4;
    const FREE: i32 = 8;
    const REMOVE: i32 = 9;
    const DOFORK: i32 = 11;
    let zeroes = matches!(advice, DONTNEED | FREE | REMOVE);
    if !direct::is_on() || !zeroes && advice != DOFORK {
        return false;
    }
    let offset = address.wrapping_sub(BASE.load(Relaxed));
    let last = offset.checked_add(bytes.saturating_sub(1));
    if bytes == 0
        || !address.is_multiple_of(BASE_PAGE_BYTES)
        || last.is_none_or(|last| last >= BYTES.load(Relaxed))
    {
        return false;
    }
    let first = offset / BASE_PAGE_BYTES;
    !zeroes || direct::zero(first..first + bytes.div_ceil(BASE_PAGE_BYTES))
}

/// The page at which an allocation begins.
fn page_of(address: usize) -> Option<u32> {
    let offset = address - BASE.load(Relaxed);
    if offset.is_multiple_of(BASE_PAGE_BYTES) { pages(offset) } else { None }
}

/// Frees an allocation of the region. Usually the lock is taken once, and the kernel asked for nothing.
fn free(address: usize) {
    let freed = {
        let mut region = REGION.lock();
        let region = region.as_mut();
        region
            .zip(page_of(address))
            .and_then(|(region, page)| region.blocks.free(page).then(|| region.excess()))
    };
    match freed {
        Some(Some(spare_pages)) => _ = give_back(spare_pages),
        Some(None) => {}
        None => not_ours(b"free", address),
    }
}

/// Bytes of an allocation of the region.
fn usable(address: usize, who: &[u8]) -> usize {
    let found = page_of(address)
        .and_then(|page| REGION.lock().as_ref().and_then(|region| region.blocks.pages_at(page)));
    match found {
        Some(pages) => pages as usize * BASE_PAGE_BYTES,
        None => not_ours(who, address),
    }
}

/// Gives an allocation, of which `usable` has told the size, another one where it is. False: something is behind it.
fn resize(address: usize, bytes: usize) -> bool {
    let (Some(page), Some(pages)) = (page_of(address), pages(bytes)) else { return false };
    let resized = {
        let mut region = REGION.lock();
        let Some(region) = region.as_mut() else { return false };
        // It may have been freed by another thread since.
        let Some(old_pages) = region.blocks.pages_at(page) else { return false };
        let resized = region.blocks.resize(page, pages);
        resized.then(|| (region.blocks.used_pages(), region.excess(), old_pages))
    };
    let Some((used_pages, excess, old_pages)) = resized else { return false };
    if direct::is_on()
        && pages > old_pages
        // All of it: should the books have no record to take the growth back by, the next try makes it good.
        && !direct::provide(page as usize..(page + pages) as usize)
    {
        if let Some(region) = &mut *REGION.lock() {
            region.blocks.resize(page, old_pages);
        }
        return false;
    }
    count(|figures| {
        figures.peak_bytes.fetch_max(u64::from(used_pages) * BASE_PAGE_BYTES as u64, Relaxed);
    });
    if let Some(spare_pages) = excess {
        give_back(spare_pages);
    }
    true
}

/// The program frees what it has not, or no longer: nothing in its heap can be trusted.
fn not_ours(who: &[u8], address: usize) -> ! {
    message::abort(&[
        Piece::Text(who),
        Piece::Text(b"("),
        Piece::Address(address),
        Piece::Text(b"): no allocation of the region begins there, or it was freed before; the program has an error and is ended"),
    ])
}
