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
/// So many of each are followed: one that waits for its child to execute has no other.
const CHILDREN_MAX: usize = 16;
/// No longer is waited for all of them, and for one that is not in the list any more.
const WAIT_NS: u64 = 300_000_000;
const WAIT_MS: usize = 20;

/// Ends all of them, and waits until they have ended. Whose child has ended goes on, and may make another one: so it is looked until there is none.
pub(crate) fn end() {
    let _blocked = SignalsBlocked::new();
    let until_ns = sys::now_ns() + WAIT_NS;
    loop {
        let mut found = false;
        each_child_of(sys::getpid(), |pid| {
            if let Some(process) = sharer(pid) {
                found = true;
                end_one(process, pid, GENERATIONS_MAX);
                sys::close(process);
            }
        });
        if !found || sys::now_ns() >= until_ns {
            return;
        }
        sys::sleep_ms(1);
    }
}

/// A descriptor of it, if it has this memory.
fn sharer(pid: u32) -> Option<Fd> {
    // First, so that it is this very process that is asked about: whoever has its number later is another one.
    let process = sys::pidfd_open(pid).ok()?;
    // The calling thread has this memory for sure; the first one may have ended.
    if sys::have_one_memory(sys::gettid(), pid) {
        return Some(process);
    }
    sys::close(process);
    None
}

/// Ends it, and then those that it has made: another's children by then, but it waits for them until it is ended.
fn end_one(process: Fd, pid: u32, generations: u32) {
    const SIGKILL: u32 = 9;
    let mut children = [None; CHILDREN_MAX];
    if generations > 1 {
        let mut free = children.iter_mut();
        each_child_of(pid, |child| {
            if let Some(process) = sharer(child) {
                match free.next() {
                    Some(place) => *place = Some((process, child)),
                    None => sys::close(process),
                }
            }
        });
    }
    let _ = sys::pidfd_kill(process, SIGKILL);
    for (process, child) in children.into_iter().flatten() {
        end_one(process, child, generations - 1);
        sys::wait_readable(process, WAIT_MS);
        sys::close(process);
    }
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
