//! What this machine's kernel knows of the way out to a peer, asked of it by netlink (sock_diag(7)): whether the peer's kernel still acknowledges
//! anything, though its program takes nothing.

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

/// `nlmsghdr`, `inet_diag_req_v2` (with its `inet_diag_sockid`), `inet_diag_msg`.
const HEAD_BYTES: usize = 16;
const QUESTION_BYTES: usize = HEAD_BYTES + 56;
const ANSWER_BYTES: usize = HEAD_BYTES + 72;
/// `SOCK_DIAG_BY_FAMILY`, and what `NLMSG_ERROR` says in its place.
const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `INET_DIAG_INFO`: a `tcp_info`.
const INFO: u16 = 2;
/// `idiag_wqueue` of an answer; `tcpi_last_ack_recv` and `tcpi_bytes_acked` of a `tcp_info`.
const WAITING_AT: usize = HEAD_BYTES + 60;
const LAST_ACK_AT: usize = 56;
const ACKNOWLEDGED_AT: usize = 120;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendState {
    /// Bytes that the peer's kernel has not acknowledged, sent or not.
    pub(crate) waiting_bytes: u32,
    /// Bytes that it has acknowledged since the beginning.
    pub(crate) acknowledged_bytes: u64,
    /// How long it has acknowledged nothing, not even that it was asked whether there is room.
    pub(crate) silent: Duration,
}

/// Asks the kernel about connections.
#[derive(Debug)]
pub(crate) struct SockDiag {
    netlink: OwnedFd,
    number: u32,
}

impl SockDiag {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let netlink =
            socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG))?;
        Ok(Self { netlink, number: 0 })
    }

    /// # Errors
    /// The kernel's: it has no such connection any more, or cannot be asked.
    pub(crate) fn ask(&mut self, socket: &TcpStream) -> io::Result<SendState> {
        self.number = self.number.wrapping_add(1);
        let question = question(self.number, socket.local_addr()?, socket.peer_addr()?);
        send(&self.netlink, &question, SendFlags::empty())?;
        // The answer is there when the question has been sent. Those of questions that failed may stand before it.
        loop {
            let mut answer = [0; 4096];
            let (bytes, _) = recv(&self.netlink, &mut answer[..], RecvFlags::empty())?;
            if let Some(way) = way_of(self.number, &answer[..bytes]) {
                return way;
            }
        }
    }
}

fn question(number: u32, from: SocketAddr, to: SocketAddr) -> [u8; QUESTION_BYTES] {
    let (family, device) = match from {
        SocketAddr::V4(_) => (AddressFamily::INET, 0),
        SocketAddr::V6(from) => (AddressFamily::INET6, from.scope_id()),
    };
    let mut question = Vec::with_capacity(QUESTION_BYTES);
    let bytes = u32::try_from(QUESTION_BYTES).expect("it is small");
    question.extend(bytes.to_ne_bytes());
    question.extend(BY_FAMILY.to_ne_bytes());
    question.extend(REQUEST.to_ne_bytes());
    question.extend(number.to_ne_bytes());
    // To the kernel; any state will do.
    question.extend(0_u32.to_ne_bytes());
    let family = u8::try_from(family.as_raw()).expect("it is a small number");
    question.extend([family, 6, 1 << (INFO - 1), 0]);
    question.extend(u32::MAX.to_ne_bytes());
    question.extend(from.port().to_be_bytes());
    question.extend(to.port().to_be_bytes());
    for ip in [from.ip(), to.ip()] {
        match ip {
            IpAddr::V4(ip) => {
                question.extend(ip.octets());
                question.extend([0; 12]);
            }
            IpAddr::V6(ip) => question.extend(ip.octets()),
        }
    }
    question.extend(device.to_ne_bytes());
    // No cookie: whichever has these addresses.
    question.extend([0xff; 8]);
    question.try_into().expect("all of its fields are there")
}

/// `None`: it answers something else.
fn way_of(number: u32, answer: &[u8]) -> Option<io::Result<SendState>> {
    if u32_at(answer, 8)? != number {
        return None;
    }
    match u16_at(answer, 4)? {
        BY_FAMILY => {}
        ERROR => return Some(Err(Errno::from_raw_os_error(-i32_at(answer, HEAD_BYTES)?).into())),
        _ => return None,
    }
    let unknown = || io::Error::from(io::ErrorKind::InvalidData);
    let info = info_of(answer.get(ANSWER_BYTES..)?);
    let way = info.and_then(|info| {
        Some(SendState {
            waiting_bytes: u32_at(answer, WAITING_AT)?,
            acknowledged_bytes: u64::from_ne_bytes(*info.get(ACKNOWLEDGED_AT..)?.first_chunk()?),
            silent: Duration::from_millis(u32_at(info, LAST_ACK_AT)?.into()),
        })
    });
    Some(way.ok_or_else(unknown))
}

/// The `tcp_info` among the attributes of an answer.
fn info_of(mut attributes: &[u8]) -> Option<&[u8]> {
    loop {
        let (bytes, kind) = (usize::from(u16_at(attributes, 0)?), u16_at(attributes, 2)?);
        let contents = attributes.get(4..bytes)?;
        if kind == INFO {
            return Some(contents);
        }
        attributes = attributes.get(bytes.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A connection over loopback: this side's socket, which does not block, and the peer's.
    pub(crate) fn pair(listen: &str, connect: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(listen).unwrap();
        let port = listener.local_addr().unwrap().port();
        let peer = TcpStream::connect((connect, port)).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        (socket, peer)
    }

    /// Sends until there is no room at the peer, nor here; answers how much.
    pub(crate) fn fill(socket: &mut TcpStream) -> usize {
        let (mut sent, mut full) = (0, 0);
        while full < 10 {
            match socket.write(&[1; 65536]) {
                Ok(bytes) => sent += bytes,
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                    full += 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(why) => panic!("{why}"),
            }
        }
        sent
    }

    #[test]
    fn a_peer_that_takes_nothing_is_told_from_one_that_does() {
        // The last comes as IPv4 in IPv6, as where a lender listens on [::].
        for (listen, connect) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")] {
            let (mut socket, mut peer) = match std::panic::catch_unwind(|| pair(listen, connect)) {
                Ok(pair) => pair,
                Err(_) if listen.starts_with('[') => {
                    eprintln!("skipped {listen}: no IPv6 here");
                    continue;
                }
                Err(why) => std::panic::resume_unwind(why),
            };
            let mut asker = SockDiag::new().unwrap();
            assert_eq!(asker.ask(&socket).unwrap().waiting_bytes, 0, "{listen}");
            let sent = fill(&mut socket);
            let full = asker.ask(&socket).unwrap();
            assert!(full.waiting_bytes > 0 && full.acknowledged_bytes > 0, "{full:?}");
            let mut taken = vec![0; sent];
            peer.read_exact(&mut taken).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            let empty = asker.ask(&socket).unwrap();
            assert_eq!(empty.waiting_bytes, 0);
            assert!(
                empty.acknowledged_bytes >= sent as u64 && empty.silent < Duration::from_secs(60),
                "{empty:?}"
            );
        }
    }

    #[test]
    fn a_connection_that_is_not_there_is_an_error_and_answers_keep_their_order() {
        let (socket, _peer) = pair("127.0.0.1:0", "127.0.0.1");
        let mut asker = SockDiag::new().unwrap();
        let (here, there) = (socket.local_addr().unwrap(), "127.0.0.1:1".parse().unwrap());
        // An answer that nobody waits for.
        send(&asker.netlink, &question(77, here, socket.peer_addr().unwrap()), SendFlags::empty()).unwrap();
        send(&asker.netlink, &question(78, here, there), SendFlags::empty()).unwrap();
        assert_eq!(asker.ask(&socket).unwrap().waiting_bytes, 0);
        send(&asker.netlink, &question(79, here, there), SendFlags::empty()).unwrap();
        let mut answer = [0; 4096];
        let (bytes, _) = recv(&asker.netlink, &mut answer[..], RecvFlags::empty()).unwrap();
        assert!(way_of(79, &answer[..bytes]).unwrap().is_err());
    }

    #[test]
    fn an_answer_that_is_cut_says_nothing() {
        for bytes in 0..ANSWER_BYTES + 8 {
            let mut answer = vec![0; bytes];
            if bytes >= 12 {
                answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
            }
            assert!(!matches!(way_of(0, &answer), Some(Ok(_))), "{bytes} bytes");
        }
    }
}
