//! Processes that have this one's memory without being it: children made by `vfork` that have not executed their program yet, and theirs.
//!
//! Where this process is ended because its memory cannot be read or trusted any more, its hand's descriptor of the userfaultfd is closed with it, and the agent's may be already: to whoever still had the
//! memory, what is elsewhere would be zeros from then on. So they are ended first. The kernel lists children where it is built with `CONFIG_PROC_CHILDREN`, as it mostly is; where they cannot be listed
//! or asked about (another user's by now, no `kcmp`, no `/proc`) they stay.

use core::ffi::CStr;

use crate::message::{self, Piece};
use crate::sys::{self, Fd, SignalsBlocked};

/// Generations: a child made by `vfork` may make one.
const GENERATIONS_MAX: u32 = 4;
/// No longer is waited for all of them, and for one of a later generation.
const WAIT_NS: u64 = 300_000_000;
const WAIT_MS: usize = 20;

const SIGKILL: u32 = 9;
const SIGSTOP: u32 = 19;

/// Ends all of them, and waits until they have ended. Whose child has ended goes on, and may end this process, and its hand with it, or make another one. So all are stopped before the first is
/// ended, which lets nobody go on, and it is looked until there is none.
pub(crate) fn end() {
    let _blocked = SignalsBlocked::new();
    let until_ns = sys::now_ns() + WAIT_NS;
    loop {
        let mut found = false;
        each_sharer_of(sys::getpid(), GENERATIONS_MAX, &mut |process, _| {
            found |= sys::pidfd_kill(process, SIGSTOP).is_ok();
        });
        each_sharer_of(sys::getpid(), GENERATIONS_MAX, &mut |process, is_child| {
            let is_sent = sys::pidfd_kill(process, SIGKILL).is_ok();
            // It is in no list of ours any more when its parent has ended.
            if is_sent && !is_child {
                sys::wait_readable(process, WAIT_MS);
            }
        });
        if !found || sys::now_ns() >= until_ns {
            return;
        }
        sys::sleep_ms(1);
    }
}

/// Calls `found` with a descriptor of each process that has descended from `pid` and has our memory, children before their parents, and whether it is a child of our own.
fn each_sharer_of(pid: u32, generations: u32, found: &mut dyn FnMut(Fd, bool)) {
    each_child_of(pid, |child| {
        // First, so that it is this very process that is asked about: whoever has its number later is another one.
        let Ok(process) = sys::pidfd_open(child) else { return };
        // The calling thread has this memory for sure; the first one may have ended.
        if sys::have_one_memory(sys::gettid(), child) {
            if generations > 1 {
                each_sharer_of(child, generations - 1, found);
            }
            found(process, generations == GENERATIONS_MAX);
        }
        sys::close(process);
    });
}

fn each_child_of(pid: u32, mut found: impl FnMut(u32)) {
    let tasks = [Piece::Text(b"/proc/"), Piece::Number(pid.into()), Piece::Text(b"/task")];
    let _ = with_file(&tasks, |tasks_fd| {
        sys::each_entry(tasks_fd, |name| {
            let Some(thread) = number(name) else { return };
            let children = [
                Piece::Text(b"/proc/"),
                Piece::Number(pid.into()),
                Piece::Text(b"/task/"),
                Piece::Number(thread.into()),
                Piece::Text(b"/children"),
            ];
            let _ = with_file(&children, |fd| each_number(fd, &mut found));
        });
    });
}

fn with_file(path: &[Piece<'_>], use_it: impl FnOnce(Fd)) -> sys::Result<()> {
    let mut text = [0; 64];
    message::write_into(&mut text, path);
    let path = CStr::from_bytes_until_nul(&text).map_err(|_| sys::Errno::EINVAL)?;
    let fd = sys::open_to_read(path)?;
    use_it(fd);
    sys::close(fd);
    Ok(())
}

/// Calls `found` with each decimal number of a file, whatever stands between them.
fn each_number(fd: Fd, mut found: impl FnMut(u32)) {
    let mut text = [0; 1024];
    let mut value = None;
    while let Ok(bytes @ 1..) = sys::read(fd, &mut text) {
        for byte in &text[..bytes] {
            if byte.is_ascii_digit() {
                value =
                    Some(value.unwrap_or(0_u32).saturating_mul(10).saturating_add(u32::from(byte - b'0')));
            } else if let Some(value) = value.take() {
                found(value);
            }
        }
    }
    if let Some(value) = value {
        found(value);
    }
}

/// A decimal number and nothing else.
fn number(name: &[u8]) -> Option<u32> {
    core::str::from_utf8(name).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn numbers_across_the_edges_of_what_is_read() {
        let numbers: Vec<u32> = (0..500).map(|n| n * 7919).collect();
        let text: Vec<String> = numbers.iter().map(u32::to_string).collect();
        let path = std::env::temp_dir().join(format!("loam-numbers-{}", std::process::id()));
        for end in [" ", ""] {
            std::fs::write(&path, text.join(" ") + end).unwrap();
            let file = std::fs::File::open(&path).unwrap();
            let mut found = Vec::new();
            each_number(file.as_raw_fd(), |number| found.push(number));
            assert_eq!(found, numbers);
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn entries_of_a_directory() {
        let folder = std::env::temp_dir().join(format!("loam-entries-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        // More than are read at a time.
        let mut names: Vec<Vec<u8>> = (0..200).map(|n| format!("entry-{n}").into_bytes()).collect();
        names.iter().for_each(|name| {
            std::fs::write(folder.join(core::str::from_utf8(name).unwrap()), "").unwrap();
        });
        let opened = std::fs::File::open(&folder).unwrap();
        let mut found: Vec<Vec<u8>> = Vec::new();
        sys::each_entry(opened.as_raw_fd(), |name| found.push(name.to_vec()));
        found.retain(|name| !name.starts_with(b"."));
        found.sort();
        names.sort();
        assert_eq!(found, names);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
