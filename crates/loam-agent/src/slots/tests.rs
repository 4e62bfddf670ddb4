//! On real files, through io_uring and through threads, with O_DIRECT and without.

use super::*;
use crate::pool::Pool;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};

const NAMED_BUFFERED: [Kind; 1] = [Kind { nameless: false, direct: false }];

/// A directory that is removed again.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("loam-slots-test-{}-{number}", std::process::id())))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn each_way(test: impl Fn(SlotFile, &Path)) {
    for kinds in [&ATTEMPTS[..], &NAMED_BUFFERED] {
        for choice in [Choice::Best, Choice::Threads] {
            let dir = Dir::new();
            test(SlotFile::create_as(&dir.0, 64, kinds, choice).unwrap(), &dir.0);
        }
    }
}

/// Waits until everything is complete; the outcomes by token.
fn finish(file: &mut SlotFile) -> HashMap<u64, Result<(), SlotsError>> {
    let mut outcomes = HashMap::new();
    while file.in_flight() > 0 {
        file.submit(usize::MAX).unwrap();
        file.wait();
        file.completions(|token, outcome| assert!(outcomes.insert(token, outcome).is_none(), "token twice"))
            .unwrap();
    }
    outcomes
}

fn fill(page: &mut [u8; SLOT_BYTES], seed: u64) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for eight in page.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        eight.copy_from_slice(&state.to_ne_bytes());
    }
}

#[test]
fn what_was_written_is_read_back_in_any_grouping_and_order() {
    each_way(|mut file, _| {
        const SLOTS: usize = 3000;
        file.reserve(SLOTS as u64).unwrap();
        let mut source = Pool::new(SLOTS).unwrap();
        (0..SLOTS).for_each(|slot| fill(source.page_mut(slot), slot as u64));
        // More operations than the engine takes at once, of all lengths, last slots first.
        let (mut end, mut token) = (SLOTS, 0);
        while end > 0 {
            let length = (token as usize * 7 % 13 + 1).min(end);
            let start = end - length;
            let buffers: Vec<_> = (start..end).map(|slot| source.pointer(slot).cast_const()).collect();
            // SAFETY: `source` outlives the completion and is not written.
            unsafe { file.queue_write(token, start as u64, &buffers) }.unwrap();
            (end, token) = (start, token + 1);
        }
        assert!(token as usize > loam_disk::DEPTH);
        let outcomes = finish(&mut file);
        assert_eq!(outcomes.len() as u64, token);
        assert!(outcomes.values().all(Result::is_ok), "{outcomes:?}");

        // Read in whole runs, into buffers in reverse: as many iovecs as pages.
        let target = Pool::new(SLOTS).unwrap();
        for start in (0..SLOTS).step_by(RUN_SLOTS_MAX) {
            let run = start..(start + RUN_SLOTS_MAX).min(SLOTS);
            let buffers: Vec<_> = run.map(|slot| target.pointer(SLOTS - 1 - slot)).collect();
            // SAFETY: `target` outlives the completion; each buffer is named once and not looked at before.
            unsafe { file.queue_read(start as u64, start as u64, &buffers) }.unwrap();
        }
        assert!(finish(&mut file).values().all(Result::is_ok));
        for slot in 0..SLOTS {
            assert!(target.page(SLOTS - 1 - slot) == source.page(slot), "slot {slot} differs");
        }
    });
}

#[test]
fn the_event_descriptor_tells_of_completions() {
    each_way(|mut file, _| {
        let pool = Pool::new(1).unwrap();
        let readable = |file: &SlotFile, seconds: i64| {
            let timeout = rustix::event::Timespec { tv_sec: seconds, tv_nsec: 0 };
            let fd = file.event_fd();
            let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, Some(&timeout)).unwrap() == 1
        };
        assert!(!readable(&file, 0));
        // SAFETY: `pool` outlives the completion and is not written.
        unsafe { file.queue_write(5, 63, &[pool.pointer(0)]) }.unwrap();
        file.submit(usize::MAX).unwrap();
        assert!(readable(&file, 20));
        let mut tokens = Vec::new();
        while file.completions(|token, outcome| tokens.push((token, outcome.is_ok()))).unwrap() == 0 {
            assert!(readable(&file, 20));
        }
        assert_eq!(tokens, [(5, true)]);
        assert_eq!((file.in_flight(), readable(&file, 0)), (0, false));
    });
}

#[test]
fn the_file_has_no_name_and_the_directory_is_private() {
    each_way(|file, dir| {
        assert_eq!(std::fs::metadata(dir).unwrap().mode() & 0o777, 0o700);
        assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0, "a file is left");
        assert_eq!(rustix::fs::fstat(&**file.backing.fd()).unwrap().st_nlink, 0);
    });
}

#[test]
fn space_is_reserved_in_steps() {
    each_way(|mut file, _| {
        assert_eq!(file.backing.slots, file::STEP_SLOTS);
        file.reserve(file::STEP_SLOTS + 1).unwrap();
        assert_eq!(file.backing.slots, 2 * file::STEP_SLOTS);
        if !file.backing.reserves {
            println!("skipped: this file system cannot reserve");
            return;
        }
        let blocks = rustix::fs::fstat(&**file.backing.fd()).unwrap().st_blocks as u64;
        assert!(blocks * 512 >= 2 * file::STEP_SLOTS * SLOT_BYTES as u64);
    });
}

#[test]
fn a_place_that_works_less_well_is_told() {
    let dir = Dir::new();
    let best = SlotFile::create(&dir.0, 1).unwrap();
    assert_eq!(best.queue.is_ring(), io_uring::IoUring::new(2).is_ok());
    let worst = SlotFile::create_as(&dir.0, 1, &NAMED_BUFFERED, Choice::Threads).unwrap();
    let notes = worst.notes();
    assert!(notes[0].contains("O_DIRECT") && notes.last().unwrap().contains("threads"), "{notes:?}");
    assert!(best.notes().len() < notes.len());
}

#[test]
fn slots_that_are_not_there_fail_alone_and_are_named() {
    each_way(|mut file, _| {
        let pool = Pool::new(4).unwrap();
        rustix::fs::ftruncate(&**file.backing.fd(), 10 * SLOT_BYTES as u64).unwrap();
        let buffers: Vec<_> = (0..4).map(|index| pool.pointer(index)).collect();
        // SAFETY: `pool` outlives the completions; no buffer is named twice.
        unsafe {
            file.queue_read(1, 8, &buffers[..3]).unwrap();
            file.queue_read(2, 0, &buffers[3..]).unwrap();
        }
        let mut outcomes = finish(&mut file);
        outcomes.remove(&2).unwrap().unwrap();
        let error = outcomes.remove(&1).unwrap().unwrap_err();
        assert!(
            matches!(error, SlotsError::Io { what: "read", first_slot: 8, slots: 3, errno: Errno::IO, .. }),
            "{error:?}"
        );
        assert!(!error.to_string().contains('\n'));
    });
}

#[test]
fn dropping_waits_for_the_kernel() {
    each_way(|mut file, _| {
        let mut source = Pool::new(RUN_SLOTS_MAX).unwrap();
        (0..RUN_SLOTS_MAX).for_each(|slot| fill(source.page_mut(slot), 7));
        file.reserve(64 * RUN_SLOTS_MAX as u64).unwrap();
        let fd = file.backing.fd().clone();
        let buffers: Vec<_> = (0..RUN_SLOTS_MAX).map(|slot| source.pointer(slot).cast_const()).collect();
        for run in 0..64 {
            // SAFETY: `source` outlives the file.
            unsafe { file.queue_write(run, run * RUN_SLOTS_MAX as u64, &buffers) }.unwrap();
        }
        file.submit(usize::MAX).unwrap();
        drop(file);
        let mut last = Pool::new(1).unwrap();
        let slot = 64 * RUN_SLOTS_MAX as u64 - 1;
        rustix::io::pread(&*fd, last.page_mut(0), slot * SLOT_BYTES as u64).unwrap();
        assert!(last.page(0) == source.page(0), "the last write was not waited for");
    });
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let dir = Dir::new();
    std::fs::create_dir(&dir.0).unwrap();
    if std::os::unix::fs::chown(&dir.0, Some(12345), None).is_err() {
        println!("skipped: only root can give a directory away");
        return;
    }
    let link = Dir::new();
    std::os::unix::fs::symlink(&dir.0, &link.0).unwrap();
    for place in [&dir.0, &link.0] {
        let error = SlotFile::create(place, 1).err().expect("a foreign directory was taken");
        assert!(matches!(error, SlotsError::ForeignDir { owner_uid: 12345, .. }), "{error}");
    }
    std::fs::remove_file(&link.0).unwrap();
}

#[test]
fn a_place_that_cannot_be_a_directory_is_one_clear_line() {
    let error = SlotFile::create(Path::new("/dev/null/slots"), 1).err().expect("no directory there");
    assert!(matches!(error, SlotsError::Dir { errno: Errno::NOTDIR, .. }), "{error:?}");
    assert!(error.to_string().contains("--disk") && !error.to_string().contains('\n'));
}

/// Runs `test` in a thread with mounts of its own and a tmpfs of 1 MiB on `dir`.
fn on_a_small_disk(test: impl FnOnce(&Path) + Send + 'static) {
    let worker = std::thread::spawn(move || {
        let dir = Dir::new();
        std::fs::create_dir(&dir.0).unwrap();
        let path = std::ffi::CString::new(dir.0.to_str().unwrap()).unwrap();
        // SAFETY: concerns this thread's view of the file system only; the strings live through the calls.
        let mounted = unsafe {
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(
                    std::ptr::null(),
                    c"/".as_ptr(),
                    std::ptr::null(),
                    libc::MS_REC | libc::MS_PRIVATE,
                    std::ptr::null(),
                ) == 0
                && libc::mount(
                    c"none".as_ptr(),
                    path.as_ptr(),
                    c"tmpfs".as_ptr(),
                    0,
                    c"size=1m,mode=0700".as_ptr().cast(),
                ) == 0
        };
        if mounted {
            test(&dir.0);
            // SAFETY: as above.
            unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        } else {
            println!("skipped: mounts are not permitted");
        }
    });
    worker.join().unwrap();
}

#[test]
fn a_full_disk_says_how_much_is_free_and_keeps_what_was_reserved() {
    on_a_small_disk(|dir| {
        let mut file = SlotFile::create(dir, 100).unwrap();
        assert_eq!(file.backing.slots, 100, "a step does not fit, what was asked for does");
        file.reserve(200).unwrap();
        let error = file.reserve(300).unwrap_err();
        let SlotsError::Space { wanted, free, .. } = &error else { panic!("{error:?}") };
        assert_eq!((*wanted, *free), (Bytes(100 * 4096), Bytes(56 * 4096)));
        assert_eq!(file.backing.slots, 200);
        let pool = Pool::new(1).unwrap();
        // SAFETY: `pool` outlives the completion and is not written.
        unsafe { file.queue_write(1, 199, &[pool.pointer(0)]) }.unwrap();
        finish(&mut file).remove(&1).unwrap().unwrap();
        assert!(matches!(SlotFile::create(dir, 100).err(), Some(SlotsError::Space { .. })));
    });
}

#[test]
#[should_panic(expected = "beyond the")]
fn slots_that_were_not_reserved_are_a_bug() {
    let dir = Dir::new();
    let mut file = SlotFile::create(&dir.0, 1).unwrap();
    let pool = Pool::new(1).unwrap();
    // SAFETY: nothing is queued.
    let _ = unsafe { file.queue_write(0, file.backing.slots, &[pool.pointer(0)]) };
}
