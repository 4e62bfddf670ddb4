//! Packets between the agent and shims: one structure of `loam-hand` each, descriptors beside it.

use loam_hand::{Call, CallReply, Hello, LAYOUT_VERSION, Ready, Welcome};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// A structure that travels as its bytes.
///
/// # Safety
/// `repr(C)`, integers only, no padding, every bit pattern valid.
pub(crate) unsafe trait Packet: Default + Copy {}
// SAFETY: u32 and u64 fields in an order that leaves no padding; the shim asserts the sizes.
unsafe impl Packet for Hello {}
// SAFETY: as above.
unsafe impl Packet for Welcome {}
// SAFETY: as above.
unsafe impl Packet for Ready {}
// SAFETY: as above.
unsafe impl Packet for Call {}
// SAFETY: as above.
unsafe impl Packet for CallReply {}

/// Descriptors that one packet may carry.
const FDS_MAX: usize = 4;

/// What a socket gave.
#[derive(Debug)]
pub(crate) enum Received<T> {
    /// A whole packet.
    Packet(T, Option<OwnedFd>),
    /// Nothing now.
    Nothing,
    /// The other side is gone, or does not speak as it should.
    Closed,
}

/// Sends a packet with `fds`; never waits.
pub(crate) fn send<T: Packet>(
    socket: BorrowedFd<'_>,
    packet: &T,
    fds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    // SAFETY: `Packet` promises plain bytes without padding.
    let bytes =
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(packet).cast::<u8>(), size_of::<T>()) };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)), "so many descriptors at most");
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags).map(drop)
}

/// Receives one packet; never waits.
pub(crate) fn receive<T: Packet>(socket: BorrowedFd<'_>) -> Received<T> {
    match receive_of_any_size(socket) {
        (Received::Packet(..), bytes) if bytes != size_of::<T>() => Received::Closed,
        (received, _) => received,
    }
}

/// The first one of a shim. One of another version may be of another size; all begin with their version.
pub(crate) fn receive_hello(socket: BorrowedFd<'_>) -> Received<Hello> {
    match receive_of_any_size::<Hello>(socket) {
        (Received::Packet(hello, _), bytes)
            if bytes != size_of::<Hello>() && hello.layout_version == LAYOUT_VERSION =>
        {
            Received::Closed
        }
        (received, _) => received,
    }
}

/// As far as it goes, and how many bytes it has, up to those.
fn receive_of_any_size<T: Packet>(socket: BorrowedFd<'_>) -> (Received<T>, usize) {
    let mut packet = T::default();
    // SAFETY: `Packet` promises that any bytes make a valid value.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(std::ptr::from_mut(&mut packet).cast::<u8>(), size_of::<T>())
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags) {
        Err(Errno::AGAIN | Errno::INTR) => return (Received::Nothing, 0),
        Err(_) => return (Received::Closed, 0),
        Ok(got) => got.bytes,
    };
    let mut fd = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            for passed in fds {
                fd.get_or_insert(passed); // a second one is closed
            }
        }
    }
    if got == 0 { (Received::Closed, 0) } else { (Received::Packet(packet, fd), got) }
}

/// Rings the hand's doorbell.
pub(crate) fn ring(socket: BorrowedFd<'_>) {
    // A full socket means that the bell has rung already; a closed one is noticed by the event loop.
    let _ = rustix::net::send(socket, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Takes rung bells off the socket. False: the other side is gone.
pub(crate) fn take_bells(socket: BorrowedFd<'_>) -> bool {
    let mut bell = [0_u8; 16];
    for _ in 0..64 {
        match rustix::net::recv(socket, &mut bell, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return false,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return true,
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn a_hello_of_another_version_may_have_another_size() {
        let hear = |words: &[u32]| {
            let (ours, theirs) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::empty(), None).unwrap();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            rustix::net::send(&theirs, &bytes, SendFlags::empty()).unwrap();
            match receive_hello(ours.as_fd()) {
                Received::Packet(hello, _) => Some((hello.layout_version, hello.role)),
                Received::Nothing => panic!("it was sent"),
                Received::Closed => None,
            }
        };
        let whole = size_of::<Hello>() / 4;
        let of = |version: u32, words: usize| [&[version, 2][..], &vec![0; words - 2]].concat();
        assert_eq!(hear(&of(LAYOUT_VERSION, whole)), Some((LAYOUT_VERSION, 2)));
        assert_eq!(hear(&of(LAYOUT_VERSION, whole - 1)), None);
        for words in [2, whole - 1, whole, whole + 10] {
            assert_eq!(hear(&of(LAYOUT_VERSION + 1, words)), Some((LAYOUT_VERSION + 1, 2)), "{words}");
        }
        assert_eq!(hear(&[]), None, "nothing is the end");
    }
}
