//! Against the real thing: this process pages itself. Skipped, with a line, where userfaultfd is not permitted.

use super::*;
use linux_raw_sys::general::{
    UFFD_FEATURE_EVENT_FORK, UFFD_FEATURE_EVENT_REMAP, UFFD_FEATURE_EVENT_REMOVE, UFFD_FEATURE_EVENT_UNMAP,
    UFFD_FEATURE_MOVE, UFFD_FEATURE_POISON, UFFD_FEATURE_THREAD_ID,
};
use std::thread;
use std::time::{Duration, Instant};

const PAGE: usize = BASE_PAGE_BYTES;
const EVENTS: u64 = (UFFD_FEATURE_EVENT_REMAP
    | UFFD_FEATURE_EVENT_REMOVE
    | UFFD_FEATURE_EVENT_UNMAP
    | UFFD_FEATURE_THREAD_ID
    | UFFD_FEATURE_POISON
    | UFFD_FEATURE_MOVE) as u64;

fn open(features: u64) -> Option<Uffd> {
    let made = open_device().and_then(|device| Uffd::from_device(device.as_fd())).and_then(|uffd| {
        uffd.api(features)?;
        Ok(uffd)
    });
    made.inspect_err(|error| println!("skipped: {error}")).ok()
}

/// `pages` base pages of fresh private memory of this process; never unmapped unless the test does.
fn memory(pages: usize) -> u64 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping that overlaps nothing.
    let raw = unsafe {
        libc::mmap(std::ptr::null_mut(), pages * PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    assert_ne!(raw, libc::MAP_FAILED);
    // Huge pages would bring neighbours in at the first touch.
    // SAFETY: the mapping just made.
    assert_eq!(unsafe { libc::madvise(raw, pages * PAGE, libc::MADV_NOHUGEPAGE) }, 0);
    raw.addr() as u64
}

fn span(address: u64, pages: usize) -> Range<u64> {
    address..address + (pages * PAGE) as u64
}

fn read_byte(address: u64) -> u8 {
    // SAFETY: addresses of `memory`, mapped by the tests that call this.
    unsafe { std::ptr::with_exposed_provenance::<u8>(address as usize).read_volatile() }
}

fn write_byte(address: u64, byte: u8) {
    // SAFETY: as `read_byte`; no reference to that memory exists.
    unsafe { std::ptr::with_exposed_provenance_mut::<u8>(address as usize).write_volatile(byte) }
}

fn next_event(uffd: &Uffd) -> Event {
    let (mut raw, mut events) = ([[0; 32]; 1], Vec::new());
    let end = Instant::now() + Duration::from_secs(10);
    while uffd.read_events(&mut raw, &mut events).unwrap() == 0 {
        assert!(Instant::now() < end, "no event came");
        thread::sleep(Duration::from_micros(200));
    }
    events.pop().unwrap()
}

#[test]
fn a_fault_is_answered_with_the_copied_page() {
    let Some(uffd) = open(EVENTS) else { return };
    let address = memory(2);
    uffd.register(span(address, 2), Watch::Missing).unwrap();
    let toucher = thread::spawn(move || {
        // SAFETY: no arguments, no memory.
        let tid = unsafe { libc::gettid() };
        write_byte(address + PAGE as u64 + 5, 9);
        (tid, read_byte(address + PAGE as u64 + 6))
    });
    let Event::Fault { address: fault, tid, .. } = next_event(&uffd) else { panic!("no fault") };
    assert_eq!(fault, address + PAGE as u64);
    let contents = [7u8; PAGE];
    // Installed silently: the thread sleeps on, so a second wake must be what lets it go.
    let outcome = uffd.copy(fault, contents.as_ptr(), PAGE, true);
    assert_eq!(outcome, CopyOutcome { copied_bytes: PAGE, error: None });
    thread::sleep(Duration::from_millis(20));
    assert!(!toucher.is_finished(), "woken by a copy that was told not to");
    uffd.wake(span(fault, 1)).unwrap();
    let (toucher_tid, byte) = toucher.join().unwrap();
    assert_eq!((tid, byte), (toucher_tid as u32, 7));
    assert_eq!(read_byte(fault + 5), 9);
    let (mut raw, mut events) = ([[0; 32]; 4], Vec::new());
    assert_eq!(uffd.read_events(&mut raw, &mut events).unwrap(), 0);
    uffd.unregister(span(address, 2)).unwrap();
    assert_eq!(read_byte(address), 0, "an unregistered missing page reads as zeros");
}

#[test]
fn an_install_that_meets_a_page_tells_how_far_it_came_and_why() {
    let Some(uffd) = open(EVENTS) else { return };
    let address = memory(5);
    write_byte(address + 2 * PAGE as u64, 1);
    uffd.register(span(address, 5), Watch::Missing).unwrap();
    let contents = vec![3u8; 5 * PAGE];
    let outcome = uffd.copy(address, contents.as_ptr(), 5 * PAGE, false);
    assert_eq!(outcome, CopyOutcome { copied_bytes: 2 * PAGE, error: Some(Stop::Exists) });
    assert_eq!((read_byte(address + PAGE as u64), read_byte(address + 2 * PAGE as u64)), (3, 1));
    let outcome = uffd.copy(address, contents.as_ptr(), PAGE, false);
    assert_eq!(outcome, CopyOutcome { copied_bytes: 0, error: Some(Stop::Exists) });
    let bad = uffd.copy(address, std::ptr::without_provenance(4096), PAGE, false);
    assert!(matches!(bad.error, Some(Stop::Other(Errno::FAULT) | Stop::Exists)), "{bad:?}");
}

#[test]
fn memory_that_is_gone_is_said_to_be_gone() {
    let Some(uffd) = open(EVENTS) else { return };
    let contents = [3u8; PAGE];
    let address = memory(1); // never registered
    assert_eq!(uffd.copy(address, contents.as_ptr(), PAGE, false).error, Some(Stop::Gone));
}

#[test]
fn changes_hold_copies_back_until_their_event_is_read() {
    let Some(uffd) = open(EVENTS) else { return };
    let address = memory(4);
    uffd.register(span(address, 4), Watch::Missing).unwrap();
    let contents = [3u8; PAGE];
    assert_eq!(uffd.copy(address, contents.as_ptr(), PAGE, false).error, None);
    let discarder = thread::spawn(move || {
        let raw = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: memory of this test, to which no reference exists.
        unsafe { libc::madvise(raw, 2 * PAGE, libc::MADV_DONTNEED) }
    });
    let end = Instant::now() + Duration::from_secs(10);
    // Until the discarding thread has got into the kernel, copies are answered as ever: first done, then "exists".
    while uffd.copy(address + 3 * PAGE as u64, contents.as_ptr(), PAGE, false).error != Some(Stop::Again) {
        assert!(Instant::now() < end);
        thread::sleep(Duration::from_millis(1));
    }
    let Event::Remove { start, end } = next_event(&uffd) else { panic!("no remove") };
    assert_eq!((start, end), (address, address + 2 * PAGE as u64));
    assert_eq!(discarder.join().unwrap(), 0);
    assert_eq!(uffd.copy(address, contents.as_ptr(), PAGE, false).error, None, "the page was discarded");
}

#[test]
fn remap_and_unmap_are_told_with_their_addresses() {
    let Some(uffd) = open(EVENTS) else { return };
    let (from, to) = (memory(2), memory(2));
    uffd.register(span(from, 2), Watch::Missing).unwrap();
    let changer = thread::spawn(move || {
        let (from, to) = (
            std::ptr::with_exposed_provenance_mut(from as usize),
            std::ptr::with_exposed_provenance_mut(to as usize),
        );
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: memory of this test, to which no reference exists; the target is given up on purpose.
        let moved = unsafe { libc::mremap(from, 2 * PAGE, 2 * PAGE, flags, to) };
        assert_eq!(moved, to);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::munmap(to, PAGE) }, 0);
    });
    let Event::Remap { from: old, to: new, bytes } = next_event(&uffd) else { panic!("no remap") };
    assert_eq!((old, new, bytes), (from, to, 2 * PAGE as u64));
    let mut event = next_event(&uffd);
    if let Event::Unmap { start, .. } = event
        && start == from
    {
        event = next_event(&uffd); // some kernels also tell of the place that was left
    }
    let Event::Unmap { start, end } = event else { panic!("no unmap") };
    assert_eq!((start, end), (to, to + PAGE as u64));
    changer.join().unwrap();
}

#[test]
fn a_forked_child_is_served_through_its_own_descriptor() {
    let _alone = FORKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(uffd) = open(EVENTS | u64::from(UFFD_FEATURE_EVENT_FORK)) else { return };
    let address = memory(1);
    uffd.register(span(address, 1), Watch::Missing).unwrap();
    let forker = thread::spawn(move || {
        // SAFETY: the child reads one byte and leaves: nothing that needs the other threads or the allocator.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(i32::from(read_byte(address)));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            libc::WEXITSTATUS(status)
        }
    });
    let Event::Fork { uffd: child } = next_event(&uffd) else { panic!("no fork") };
    let Event::Fault { address: fault, .. } = next_event(&child) else { panic!("no fault") };
    assert_eq!(fault, address);
    let contents = [42u8; PAGE];
    assert_eq!(child.copy(fault, contents.as_ptr(), PAGE, false).error, None);
    assert_eq!(forker.join().unwrap(), 42);
    // The parent's own page is still missing; the child's address space is gone.
    assert_eq!(child.copy(fault, contents.as_ptr(), PAGE, false).error, Some(Stop::Gone));
    assert_eq!(uffd.copy(fault, contents.as_ptr(), PAGE, false).error, None);
}

/// What the policy counts on: the child's copy of a page is protected for itself, a protected page is not written before it is let go, and the other
/// side reads what was there at the fork.
#[test]
fn who_writes_to_a_protected_page_waits_on_both_sides_of_a_fork() {
    let _alone = FORKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(uffd) = open(EVENTS | u64::from(UFFD_FEATURE_EVENT_FORK)) else { return };
    let address = memory(2);
    uffd.register(span(address, 2), Watch::Pages).unwrap();
    let contents = [5u8; PAGE];
    assert_eq!(uffd.copy(address, contents.as_ptr(), PAGE, false).error, None);
    let forker = thread::spawn(move || {
        // SAFETY: the child waits for a page, writes one byte and leaves: nothing that needs the other threads or the allocator.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                read_byte(address + PAGE as u64);
                write_byte(address, 6);
                libc::_exit(i32::from(read_byte(address)) + i32::from(read_byte(address + 1)));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            libc::WEXITSTATUS(status)
        }
    });
    let Event::Fork { uffd: child } = next_event(&uffd) else { panic!("no fork") };
    child.write_protect(span(address, 1), true).unwrap();
    // Not before the forking thread knows that its event was read.
    let end = Instant::now() + Duration::from_secs(10);
    while let Err(stop) = uffd.write_protect(span(address, 2), true) {
        assert_eq!(stop, Stop::Again);
        assert!(Instant::now() < end);
    }
    let Event::Fault { address: fault, writes, .. } = next_event(&child) else { panic!("no fault") };
    assert_eq!((fault, writes), (address + PAGE as u64, false));
    assert_eq!(child.copy(fault, contents.as_ptr(), PAGE, false).error, None);
    let Event::Fault { address: fault, writes, .. } = next_event(&child) else { panic!("no fault") };
    assert_eq!((fault, writes), (address, true));
    child.write_protect(span(address, 1), false).unwrap();
    assert_eq!(forker.join().unwrap(), 6 + 5);
    // And here.
    assert_eq!(read_byte(address), 5, "reading needs nobody's leave");
    let writer = thread::spawn(move || write_byte(address, 7));
    let Event::Fault { address: fault, writes, .. } = next_event(&uffd) else { panic!("no fault") };
    assert_eq!((fault, writes), (address, true));
    assert_eq!(read_byte(address), 5);
    uffd.write_protect(span(address, 1), false).unwrap();
    writer.join().unwrap();
    assert_eq!(read_byte(address), 7);
    // What is let go is written freely, with nobody here to answer.
    uffd.write_protect(span(address, 1), true).unwrap();
    uffd.unregister(span(address, 2)).unwrap();
    let writer = thread::spawn(move || write_byte(address, 8));
    let end = Instant::now() + Duration::from_secs(10);
    while !writer.is_finished() {
        assert!(Instant::now() < end, "the write waits for us");
        thread::yield_now();
    }
    assert_eq!(read_byte(address), 8);
    let elsewhere = memory(1); // never registered
    assert_eq!(uffd.write_protect(span(elsewhere, 1), true), Err(Stop::Gone));
}

#[test]
fn a_poisoned_page_is_an_error_and_never_zeros() {
    let Some(uffd) = open(EVENTS) else { return };
    let address = memory(2);
    uffd.register(span(address, 2), Watch::Missing).unwrap();
    let outcome = uffd.poison(address, 2 * PAGE);
    assert_eq!(outcome, CopyOutcome { copied_bytes: 2 * PAGE, error: None });
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    // SAFETY: the kernel reads the page for us and answers instead of a signal.
    let result =
        unsafe { libc::write(writer.as_raw_fd(), std::ptr::with_exposed_provenance(address as usize), 8) };
    assert_eq!((result, last_errno()), (-1, Errno::FAULT));
    drop(reader);
}

#[test]
fn only_a_userfaultfd_passes_for_one() {
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let file = std::fs::File::open("/dev/null").unwrap().into();
    for fd in [reader, file] {
        assert_eq!(Uffd::from_fd(fd).unwrap_err().errno, Errno::INVAL);
    }
    let Some(uffd) = open(EVENTS) else { return };
    let flags = rustix::fs::fcntl_getfl(&uffd.fd).unwrap();
    rustix::fs::fcntl_setfl(&uffd.fd, flags - OFlags::NONBLOCK).unwrap();
    let uffd = Uffd::from_fd(uffd.fd).unwrap();
    assert_eq!(uffd.read_events(&mut [[0; 32]], &mut Vec::new()).unwrap(), 0, "it would have waited");
}

#[test]
fn refusals_are_typed_and_one_line() {
    let Some(uffd) = open(0) else { return };
    let error = uffd.api(0).expect_err("a second API call");
    assert!(!error.to_string().contains('\n'), "{error}");
    let error = uffd.register(span(1 << 46, 1), Watch::Missing).expect_err("nothing is mapped there");
    assert_eq!((error.call, error.errno), ("UFFDIO_REGISTER", Errno::INVAL));
}

#[test]
fn partial_progress_is_summed_over_rounds() {
    let mut steps = vec![(Ok(()), 4096), (Err(Errno::AGAIN), 8192), (Err(Errno::AGAIN), 4096)];
    let mut asked = Vec::new();
    let outcome = install(16384, |done_bytes| {
        asked.push(done_bytes);
        steps.pop().unwrap()
    });
    assert_eq!(outcome, CopyOutcome { copied_bytes: 16384, error: None });
    assert_eq!(asked, [0, 4096, 12288]);
    let stopped = install(8192, |_| (Err(Errno::AGAIN), -i64::from(libc::EAGAIN)));
    assert_eq!(stopped, CopyOutcome { copied_bytes: 0, error: Some(Stop::Again) });
}
