//! Descriptors for a moment: a pair that tells the one process of the other's end, and small files of /proc.

use core::ffi::CStr;

use super::{
    Errno, Fd, GETDENTS64, OPENAT, READ, READLINKAT, RECVFROM, Result, SENDTO, SOCKETPAIR, call, close,
    duplicate_from,
};

const AF_UNIX: usize = 1;
const SOCK_STREAM_CLOEXEC: usize = 1 | 0o2000000;
const MSG_NOSIGNAL: usize = 0x4000;
const CWD: isize = -100;
const O_CLOEXEC: usize = 0o2000000;

/// The same descriptor under a number above 2, so that it never takes the place of a standard stream that the program was started without.
pub(crate) fn above_standard(fd: Fd) -> Result<Fd> {
    if fd > 2 {
        return Ok(fd);
    }
    let high = duplicate_from(fd, 3);
    close(fd);
    high
}

/// Two ends of one connection. (No pipe: who writes to that when the other has ended gets a signal.)
pub(crate) fn pair() -> Result<(Fd, Fd)> {
    let mut fds = [-1 as Fd; 2];
    // SAFETY: the kernel writes two descriptors to `fds`.
    unsafe { call(SOCKETPAIR, [AF_UNIX, SOCK_STREAM_CLOEXEC, 0, fds.as_mut_ptr() as usize, 0, 0]) }?;
    let [a, b] = fds.map(above_standard);
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (a, b) => {
            [a, b].into_iter().flatten().for_each(close);
            Err(a.err().or(b.err()).unwrap_or(Errno::EPROTO))
        }
    }
}

/// Waits until the other end has written a byte, or is gone.
pub(crate) fn wait_for_byte(fd: Fd) -> Result<()> {
    let mut byte = [0_u8];
    loop {
        // SAFETY: at most the one byte is written to.
        match unsafe { call(RECVFROM, [fd as usize, byte.as_mut_ptr() as usize, 1, 0, 0, 0]) } {
            Err(Errno::EINTR) => {}
            answer => return answer.map(drop),
        }
    }
}

/// Writes a byte; nobody there to read it is no error.
pub(crate) fn send_byte(fd: Fd) -> Result<()> {
    let byte = [1_u8];
    loop {
        // SAFETY: the one byte is read.
        match unsafe { call(SENDTO, [fd as usize, byte.as_ptr() as usize, 1, MSG_NOSIGNAL, 0, 0]) } {
            Err(Errno::EINTR) => {}
            Err(Errno::EPIPE | Errno::ECONNRESET) => return Ok(()),
            answer => return answer.map(drop),
        }
    }
}

/// Opens a file to be read.
pub(crate) fn open_to_read(path: &CStr) -> Result<Fd> {
    // SAFETY: the path ends with a zero byte.
    unsafe { call(OPENAT, [CWD as usize, path.as_ptr() as usize, O_CLOEXEC, 0, 0, 0]) }.map(|fd| fd as Fd)
}

/// What comes next of a file; how many bytes, 0 at its end.
pub(crate) fn read(fd: Fd, into: &mut [u8]) -> Result<usize> {
    // SAFETY: at most `into.len()` bytes are written to `into`.
    unsafe { call(READ, [fd as usize, into.as_mut_ptr() as usize, into.len(), 0, 0, 0]) }
}

/// Calls `found` with the name of each entry of an open directory.
pub(crate) fn each_entry(fd: Fd, mut found: impl FnMut(&[u8])) {
    /// `d_reclen` and `d_name` in `struct linux_dirent64`.
    const LENGTH_AT: usize = 16;
    const NAME_AT: usize = 19;
    let mut entries = [0_u8; 1024];
    loop {
        let arguments = [fd as usize, entries.as_mut_ptr() as usize, entries.len(), 0, 0, 0];
        // SAFETY: at most `entries.len()` bytes are written to `entries`.
        let Ok(bytes @ 1..) = (unsafe { call(GETDENTS64, arguments) }) else { return };
        let mut rest = &entries[..bytes];
        while let [_, ..] = rest {
            let length = match rest.get(LENGTH_AT..LENGTH_AT + 2) {
                Some(&[low, high]) => usize::from(u16::from_le_bytes([low, high])),
                _ => return,
            };
            let Some(name) = rest.get(NAME_AT..length) else { return };
            found(name.split(|byte| *byte == 0).next().unwrap_or_default());
            rest = &rest[length..];
        }
    }
}

/// What a symbolic link of /proc says; how many bytes, as far as there is room.
pub(crate) fn read_link(path: &CStr, into: &mut [u8]) -> Result<usize> {
    let arguments = [CWD as usize, path.as_ptr() as usize, into.as_mut_ptr() as usize, into.len(), 0, 0];
    // SAFETY: the path ends with a zero byte, and at most `into.len()` bytes are written to `into`.
    unsafe { call(READLINKAT, arguments) }
}

/// The beginning of a file; how many bytes.
pub(crate) fn read_beginning(path: &CStr, into: &mut [u8]) -> Result<usize> {
    let fd = open_to_read(path)?;
    let read = read(fd, into);
    close(fd);
    read
}
