//! The system calls of the test agent, each a small function.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use loam_hand::{BASE_PAGE_BYTES, CONTROL_BYTES, Control, SHARED_BYTES, TRANSFER_BYTES};

pub const MODE_MISSING: u64 = 1;
pub const MODE_WRITE_PROTECT: u64 = 2;

fn check(answer: libc::c_int) -> Result<libc::c_int, i32> {
    if answer < 0 { Err(std::io::Error::last_os_error().raw_os_error().unwrap()) } else { Ok(answer) }
}

fn owned(answer: libc::c_int) -> OwnedFd {
    // SAFETY: a descriptor that a call has just made.
    unsafe { OwnedFd::from_raw_fd(check(answer).expect("a descriptor")) }
}

pub fn listen(path: &Path) -> OwnedFd {
    let _ = std::fs::remove_file(path);
    // SAFETY: zero is a valid address; the calls read only what is passed with its size.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = owned(libc::socket(libc::AF_UNIX, kind, 0));
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        for (slot, byte) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
            *slot = *byte as libc::c_char;
        }
        let bytes = size_of_val(&address) as u32;
        check(libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes)).unwrap();
        check(libc::listen(socket.as_raw_fd(), 16)).unwrap();
        socket
    }
}

pub fn accept(listener: &OwnedFd) -> Option<OwnedFd> {
    // SAFETY: null addresses are allowed.
    unsafe {
        let answer = libc::accept4(
            listener.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            libc::SOCK_CLOEXEC,
        );
        (answer >= 0).then(|| OwnedFd::from_raw_fd(answer))
    }
}

pub fn send<T>(socket: &OwnedFd, packet: &T, fds: &[RawFd]) {
    // SAFETY: the header names live memory with its sizes.
    unsafe {
        let mut slice =
            libc::iovec { iov_base: (&raw const *packet).cast_mut().cast(), iov_len: size_of::<T>() };
        let mut control = [0_u64; 8];
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut slice;
        header.msg_iovlen = 1;
        if !fds.is_empty() {
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(size_of_val(fds) as u32) as usize;
            let first = &mut *libc::CMSG_FIRSTHDR(&raw const header);
            first.cmsg_level = libc::SOL_SOCKET;
            first.cmsg_type = libc::SCM_RIGHTS;
            first.cmsg_len = libc::CMSG_LEN(size_of_val(fds) as u32) as usize;
            std::ptr::copy_nonoverlapping(fds.as_ptr(), libc::CMSG_DATA(first).cast(), fds.len());
        }
        libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL);
    }
}

pub fn receive<T: Default>(socket: &OwnedFd) -> Option<(T, Option<OwnedFd>)> {
    let mut packet = T::default();
    // SAFETY: as above; `T` is one of loam-hand's structures of integers.
    unsafe {
        let mut slice = libc::iovec { iov_base: (&raw mut packet).cast(), iov_len: size_of::<T>() };
        let mut control = [0_u64; 8];
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut slice;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control);
        let received = libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC);
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        let fd = (!first.is_null())
            .then(|| OwnedFd::from_raw_fd(std::ptr::read_unaligned(libc::CMSG_DATA(first).cast())));
        (received == size_of::<T>() as isize).then_some((packet, fd))
    }
}

pub fn ring(socket: &OwnedFd) {
    // SAFETY: one byte is read.
    unsafe {
        libc::send(socket.as_raw_fd(), [1_u8].as_ptr().cast(), 1, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    };
}

pub fn memfd(bytes: usize) -> OwnedFd {
    // SAFETY: the name is a string.
    unsafe {
        let memory = owned(libc::memfd_create(c"loam-mini".as_ptr(), libc::MFD_CLOEXEC));
        check(libc::ftruncate(memory.as_raw_fd(), bytes as i64)).unwrap();
        memory
    }
}

pub fn map_control(memory: &OwnedFd) -> &'static Control {
    // SAFETY: a new shared mapping, never unmapped; all zeros is a valid Control.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let address = libc::mmap(
            std::ptr::null_mut(),
            SHARED_BYTES,
            protection,
            libc::MAP_SHARED,
            memory.as_raw_fd(),
            0,
        );
        assert_ne!(address, libc::MAP_FAILED);
        &*address.cast()
    }
}

pub fn transfer_page(control: &'static Control, slot: usize, page: usize) -> Box<[u8]> {
    let offset = CONTROL_BYTES + slot * TRANSFER_BYTES + page * BASE_PAGE_BYTES;
    // SAFETY: inside the mapping of SHARED_BYTES; the command is DONE, so nobody writes there.
    unsafe { std::slice::from_raw_parts((&raw const *control).cast::<u8>().add(offset), BASE_PAGE_BYTES) }
        .into()
}

/// Binds a thread (0: the calling one) to a core.
pub fn pin(thread: u32, core: usize) {
    // SAFETY: zero is a valid set, and the call reads one.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        check(libc::sched_setaffinity(thread as i32, size_of_val(&set), &raw const set)).unwrap();
    }
}

pub fn set_nonblocking(fd: RawFd) {
    // SAFETY: plain numbers.
    unsafe { check(libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK)).unwrap() };
}

pub fn read_available(fd: RawFd, into: &mut Vec<u8>) {
    let mut buffer = [0_u8; 4096];
    // SAFETY: at most the buffer's length is written to it.
    let read = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
    into.extend_from_slice(&buffer[..read.max(0) as usize]);
}

pub fn is_readable(fd: &OwnedFd) -> bool {
    let mut polled = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, and it lives.
    unsafe { libc::poll(&raw mut polled, 1, 0) > 0 }
}

fn request<T>(fd: &OwnedFd, code: u64, argument: &mut T) -> Result<(), i32> {
    // SAFETY: each caller passes the kernel's structure for the code.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), code, &raw mut *argument) }).map(drop)
}

pub fn userfault_api(fd: &OwnedFd, fork_events: bool) {
    // REMAP, REMOVE, UNMAP, THREAD_ID, MOVE; FORK if wanted.
    let features = 1 << 2 | 1 << 3 | 1 << 6 | 1 << 8 | 1 << 16 | u64::from(fork_events) << 1;
    request(fd, 0xc018_aa3f, &mut [0xaa_u64, features, 0])
        .expect("UFFDIO_API with the features that Loam needs");
}

pub fn register(fd: &OwnedFd, start: u64, bytes: u64, mode: u64) -> Result<(), i32> {
    request(fd, 0xc020_aa00, &mut [start, bytes, mode, 0])
}

pub fn unregister(fd: &OwnedFd, start: u64, bytes: u64) -> Result<(), i32> {
    request(fd, 0x8010_aa01, &mut [start, bytes])
}

pub fn wake(fd: &OwnedFd, page: u64) {
    let _ = request(fd, 0x8010_aa02, &mut [page, BASE_PAGE_BYTES as u64]);
}

pub fn copy(fd: &OwnedFd, address: u64, page: &[u8]) -> Result<(), i32> {
    assert_eq!(page.len(), BASE_PAGE_BYTES);
    request(fd, 0xc028_aa03, &mut [address, page.as_ptr() as u64, page.len() as u64, 0, 0])
}

/// A `uffd_msg`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Message {
    words: [u64; 4],
}

pub enum Event {
    Fault { address: u64 },
    Fork(RawFd),
    Remove { start: u64, end: u64 },
    Other,
}

impl Message {
    pub fn event(&self) -> Event {
        match self.words[0] as u8 {
            0x12 => Event::Fault { address: self.words[2] },
            0x13 => Event::Fork(self.words[1] as RawFd),
            0x15 | 0x16 => Event::Remove { start: self.words[1], end: self.words[2] },
            _ => Event::Other,
        }
    }

    pub fn changes_mappings(&self) -> bool {
        self.words[0] as u8 != 0x12
    }
}

/// What can be read now; `None`: the program has gone.
pub fn read_messages(fd: &OwnedFd) -> Option<Vec<Message>> {
    let mut messages = [Message { words: [0; 4] }; 16];
    // SAFETY: at most the array's size is written to it.
    let read = unsafe { libc::read(fd.as_raw_fd(), messages.as_mut_ptr().cast(), size_of_val(&messages)) };
    if read <= 0 {
        let errno = std::io::Error::last_os_error().raw_os_error();
        return (read < 0 && errno == Some(libc::EAGAIN)).then(Vec::new);
    }
    Some(messages[..read as usize / size_of::<Message>()].to_vec())
}
