//! The shim's few messages, one line each, and the two ways to end the program.
//!
//! A line is put together in one `writev`, so it is not mixed with the program's own output, and nothing is allocated.

use crate::sharers;
use crate::sys::{self, Errno, Fd};

/// Exit status of a program that Loam cannot start or go on with, as of `env` and `timeout`.
pub(crate) const EXIT_STATUS: u32 = 125;
const PIECES_MAX: usize = 8;
const DIGITS_MAX: usize = 20;

/// A part of a line.
#[derive(Clone, Copy)]
pub(crate) enum Piece<'a> {
    Text(&'a [u8]),
    Number(u64),
    /// In hexadecimal digits, with `0x`.
    Address(usize),
}

impl<'a> Piece<'a> {
    pub(crate) fn errno(errno: Errno) -> Piece<'static> {
        Piece::Number(u64::from(errno.0.unsigned_abs()))
    }

    /// What it says.
    fn text<'b>(&self, digits: &'b mut [u8; DIGITS_MAX]) -> &'b [u8]
    where
        'a: 'b,
    {
        match *self {
            Piece::Text(text) => text,
            Piece::Number(number) => {
                let first = decimal(number, digits);
                &digits[first..]
            }
            Piece::Address(address) => {
                let first = hexadecimal(address, digits);
                &digits[first..]
            }
        }
    }
}

/// Decimal digits of `number` at the end of `digits`; the index of the first.
fn decimal(mut number: u64, digits: &mut [u8; DIGITS_MAX]) -> usize {
    let mut at = DIGITS_MAX;
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return at;
        }
    }
}

/// `0x` and hexadecimal digits at the end of `digits`; the index of the first.
fn hexadecimal(mut number: usize, digits: &mut [u8; DIGITS_MAX]) -> usize {
    let mut at = DIGITS_MAX;
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdef"[number % 16];
        number /= 16;
        if number == 0 {
            digits[at - 2..at].copy_from_slice(b"0x");
            return at - 2;
        }
    }
}

/// Writes `loam: `, the pieces and a line end to `fd`. Nothing can be done about a failure.
fn write_line(fd: Fd, pieces: &[Piece<'_>]) {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Slice {
        address: usize,
        bytes: usize,
    }
    let slice = |text: &[u8]| Slice { address: text.as_ptr() as usize, bytes: text.len() };
    let mut digits = [[0_u8; DIGITS_MAX]; PIECES_MAX];
    let mut slices = [slice(b""); PIECES_MAX + 2];
    let mut count = 1;
    slices[0] = slice(b"loam: ");
    for (piece, digits) in pieces.iter().zip(digits.iter_mut()) {
        slices[count] = slice(piece.text(digits));
        count += 1;
    }
    slices[count] = slice(b"\n");
    count += 1;
    // SAFETY: each slice names live memory of its length; the kernel only reads it.
    let _ = unsafe { sys::call(sys::WRITEV, [fd as usize, slices.as_ptr() as usize, count, 0, 0, 0]) };
}

/// The pieces one after the other into `line`, as far as there is room, and a closing zero.
pub(crate) fn write_into(line: &mut [u8], pieces: &[Piece<'_>]) {
    let Some((last, room)) = line.split_last_mut() else { return };
    *last = 0;
    let mut digits = [0; DIGITS_MAX];
    let mut bytes = room.iter_mut();
    for piece in pieces {
        // In this order: the end of a piece must not take a byte of room.
        piece.text(&mut digits).iter().zip(bytes.by_ref()).for_each(|(byte, into)| *into = *byte);
    }
    bytes.for_each(|rest| *rest = 0);
}

/// Prints the line and ends the program with [`EXIT_STATUS`]. For the program's own threads.
pub(crate) fn exit(pieces: &[Piece<'_>]) -> ! {
    write_line(2, pieces);
    sharers::end();
    sys::exit_group(EXIT_STATUS)
}

/// As [`exit`], for a step that the kernel refused.
pub(crate) fn exit_errno(what: &[u8], errno: Errno) -> ! {
    exit(&[
        Piece::Text(what),
        Piece::Text(b" (error "),
        Piece::errno(errno),
        Piece::Text(b"); the program is ended, run it without Loam or see `loam doctor`"),
    ])
}

/// Prints the line and ends the program by SIGABRT, as libc does when a program misuses its allocator: a debugger or a handler finds the caller.
pub(crate) fn abort(pieces: &[Piece<'_>]) -> ! {
    const SIGABRT: u32 = 6;
    write_line(2, pieces);
    let _ = sys::kill_thread(SIGABRT);
    // A handler has returned, or it is blocked or ignored.
    sys::exit_group(128 + SIGABRT)
}

/// Prints the line on the program's stderr and ends the program by SIGKILL, which nothing in it can catch or delay: its
/// memory cannot be trusted or read any more. From any thread, the hand included.
pub(crate) fn kill_self(pieces: &[Piece<'_>]) -> ! {
    const SIGKILL: u32 = 9;
    write_line(program_stderr().unwrap_or(2), pieces);
    sharers::end();
    let _ = sys::kill(sys::getpid(), SIGKILL);
    // The first process of a PID namespace is spared by its own signals.
    sys::exit_group(128 + SIGKILL)
}

/// The program's descriptor 2 as it is now: the hand has a descriptor table of its own, without it.
fn program_stderr() -> Option<Fd> {
    sys::descriptor_of_process(2).ok()
}

/// The program's name as the kernel knows it, into `name`; the part that is used.
pub(crate) fn program_name(name: &mut [u8; 16]) -> &[u8] {
    const CWD: isize = -100;
    // SAFETY: the path ends with a zero byte, and at most `name.len()` bytes are written to `name`.
    let read = unsafe {
        match sys::call(sys::OPENAT, [CWD as usize, c"/proc/self/comm".as_ptr() as usize, 0, 0, 0, 0]) {
            Ok(fd) => {
                let read = sys::call(sys::READ, [fd, name.as_mut_ptr() as usize, name.len(), 0, 0, 0]);
                sys::close(fd as Fd);
                read.unwrap_or(0)
            }
            Err(_) => 0,
        }
    };
    let text = name.get(..read).unwrap_or(b"");
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    if text.is_empty() { b"the program" } else { text }
}
