//! On a real file, through io_uring and through threads.

use super::*;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::sync::Arc;

const BLOCK: usize = 4096;

fn each_way(test: impl Fn(Owned, &Arc<OwnedFd>)) {
    for choice in [Choice::Best, Choice::Threads] {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let file = rustix::fs::open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR).unwrap();
        let file = Arc::new(file);
        test(Owned::new(&file, BLOCK, 8, choice).unwrap(), &file);
    }
}

fn finish(owned: &mut Owned) -> Vec<Finished> {
    let mut all = Vec::new();
    while owned.in_flight() > 0 {
        owned.submit().unwrap();
        owned.wait();
        owned.finished(&mut all).unwrap();
    }
    all.sort_by_key(|finished| finished.token);
    all
}

fn filled(byte: u8, blocks: usize) -> Buffer {
    let mut buffer = Buffer::new(blocks * BLOCK);
    buffer.fill(byte);
    buffer
}

#[test]
fn buffers_go_in_with_an_operation_and_come_out_with_its_end() {
    each_way(|mut owned, _| {
        owned.write(7, 0, filled(1, 2), 2 * BLOCK).unwrap();
        owned.write(8, 2 * BLOCK as u64, filled(2, 4), BLOCK).unwrap();
        let written = finish(&mut owned);
        assert_eq!(written.iter().map(|f| f.token).collect::<Vec<_>>(), [7, 8]);
        assert!(written.iter().all(|f| f.outcome.is_ok() && f.buffer.is_some()));
        owned.sync(9).unwrap();
        let synced = finish(&mut owned);
        assert!(matches!(synced[..], [Finished { token: 9, buffer: None, outcome: Ok(()) }]));
        owned.read(1, 0, Buffer::new(4 * BLOCK), 3 * BLOCK).unwrap();
        let read = finish(&mut owned).remove(0).buffer.unwrap();
        assert!(
            read[..2 * BLOCK].iter().all(|&b| b == 1) && read[2 * BLOCK..3 * BLOCK].iter().all(|&b| b == 2)
        );
        assert!(read[3 * BLOCK..].iter().all(|&b| b == 0), "more was read than asked for");
    });
}

#[test]
fn a_full_queue_gives_the_buffer_back_and_loses_nothing() {
    each_way(|mut owned, _| {
        for token in 0..8 {
            owned.write(token, token * BLOCK as u64, filled(token as u8, 1), BLOCK).unwrap();
        }
        let (_, back) = owned.write(8, 0, filled(99, 1), BLOCK).unwrap_err();
        assert_eq!(back[0], 99);
        assert_eq!(owned.sync(8), Err(QueueFull));
        assert_eq!(finish(&mut owned).len(), 8);
        owned.sync(8).unwrap();
        assert_eq!(finish(&mut owned).len(), 1);
    });
}

#[test]
fn what_is_not_there_is_an_error_of_that_operation_alone() {
    each_way(|mut owned, _| {
        owned.write(0, 0, filled(5, 1), BLOCK).unwrap();
        finish(&mut owned);
        owned.read(1, 1 << 20, Buffer::new(BLOCK), BLOCK).unwrap();
        owned.read(2, 0, Buffer::new(BLOCK), BLOCK).unwrap();
        let ended = finish(&mut owned);
        assert_eq!((ended[0].outcome, ended[1].outcome), (Err(Errno::IO), Ok(())));
    });
}

#[test]
fn the_event_descriptor_tells_of_the_end() {
    each_way(|mut owned, _| {
        let readable = |owned: &Owned, seconds: i64| {
            let timeout = rustix::event::Timespec { tv_sec: seconds, tv_nsec: 0 };
            let fd = owned.event_fd();
            let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, Some(&timeout)).unwrap() == 1
        };
        assert!(!readable(&owned, 0));
        owned.sync(1).unwrap();
        owned.submit().unwrap();
        assert!(readable(&owned, 20));
        while owned.in_flight() > 0 {
            owned.finished(&mut Vec::new()).unwrap();
        }
        assert!(!readable(&owned, 0));
    });
}

#[test]
fn dropping_waits_for_the_kernel() {
    each_way(|mut owned, file| {
        for token in 0..8 {
            owned.write(token, token << 20, filled(token as u8 + 1, 256), 1 << 20).unwrap();
        }
        owned.submit().unwrap();
        drop(owned);
        for token in 0..8_u64 {
            let mut last = [0; 1];
            rustix::io::pread(&**file, &mut last, (token << 20) + (1 << 20) - 1).unwrap();
            assert_eq!(u64::from(last[0]), token + 1, "a write was not waited for");
        }
    });
}

#[test]
fn space_that_is_reserved_is_there_and_a_file_never_shrinks_by_it() {
    each_way(|_, file| {
        if !reserve(file.as_fd(), 0, 1 << 20).unwrap() {
            println!("skipped: this file system cannot reserve");
            return;
        }
        reserve(file.as_fd(), 0, 1 << 16).unwrap();
        let stat = rustix::fs::fstat(&**file).unwrap();
        assert_eq!(stat.st_size, 1 << 20);
        assert!(stat.st_blocks * 512 >= 1 << 20);
        assert!(direct_align_bytes(file.as_fd()).is_none_or(|align| align.is_power_of_two()));
    });
}
