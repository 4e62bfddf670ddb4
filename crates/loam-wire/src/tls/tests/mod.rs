//! Both sides of a connection in one process: what comes through, who is refused, and what is said about it.

mod credentials;
mod hostile;
mod refusals;
mod traffic;

use super::testing::{Authority, Issued};
use super::{Credentials, Role, TlsError, TlsStream};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// No test waits longer.
const LIMIT: Duration = Duration::from_secs(20);

/// A folder that goes with its test.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("loam-tls-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Credentials of somebody who believes these authorities.
pub(super) fn credentials(issued: &Issued, believed: &[&Authority]) -> Credentials {
    let folder = Folder::new();
    issued.write(&folder.0, believed);
    Credentials::load(&folder.0).unwrap()
}

/// A node and a borrower of one authority.
pub(super) fn friends() -> (Credentials, Credentials) {
    let ca = Authority::new("ca");
    let node = credentials(&ca.issue("node-1", &[Role::Node], -1, 1), &[&ca]);
    let borrower = credentials(&ca.issue("busy-1", &[Role::Borrower], -1, 1), &[&ca]);
    (node, borrower)
}

/// Two ends of a TCP connection, both nonblocking.
pub(super) fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    client.set_nonblocking(true).unwrap();
    server.set_nonblocking(true).unwrap();
    (client, server)
}

/// Calls until it does not have to wait any more.
pub(super) fn wait<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let end = Instant::now() + LIMIT;
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                assert!(Instant::now() < end, "not within {LIMIT:?}");
                std::thread::sleep(Duration::from_micros(50));
            }
            done => return done,
        }
    }
}

/// A client and a server, before their handshake.
pub(super) fn pair(client: &Credentials, server: &Credentials, name: Option<&str>) -> (TlsStream, TlsStream) {
    let (c, s) = sockets();
    (TlsStream::client(c, client, name).unwrap(), TlsStream::server(s, server).unwrap())
}

/// What each side came to: the client says hello and reads, the server reads and answers.
pub(super) fn meet(client: &mut TlsStream, server: &mut TlsStream) -> (io::Result<()>, io::Result<()>) {
    let (mut at_client, mut at_server) = (None, None);
    let mut room = [0; 64];
    let end = Instant::now() + LIMIT;
    let mut said = false;
    while at_client.is_none() || at_server.is_none() {
        assert!(Instant::now() < end, "not within {LIMIT:?}: {at_client:?}, {at_server:?}");
        if at_server.is_none() {
            match server.receive(&mut room) {
                Ok(bytes) => {
                    assert_eq!(&room[..bytes], b"hello");
                    wait(|| server.send(&[io::IoSlice::new(b"welcome")])).unwrap();
                    at_server = Some(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => at_server = Some(Err(error)),
            }
        } else if server.has_failed() {
            let _ = server.receive(&mut room);
        }
        if at_client.is_none() {
            if !said && client.identity().is_some() {
                said = client.send(&[io::IoSlice::new(b"hello")]).is_ok();
            }
            match client.receive(&mut room) {
                Ok(bytes) => {
                    assert_eq!(&room[..bytes], b"welcome");
                    at_client = Some(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => at_client = Some(Err(error)),
            }
        } else if client.has_failed() {
            let _ = client.receive(&mut room);
        }
    }
    (at_client.unwrap(), at_server.unwrap())
}

/// A client and a server that know each other.
pub(super) fn open() -> (TlsStream, TlsStream) {
    let (node, borrower) = friends();
    let (mut client, mut server) = pair(&borrower, &node, None);
    let (at_client, at_server) = meet(&mut client, &mut server);
    at_client.unwrap();
    at_server.unwrap();
    (client, server)
}

/// The line of an error of TLS.
pub(super) fn line(result: io::Result<()>) -> String {
    let error = result.expect_err("it must be refused");
    let line = TlsError::of(&error).unwrap_or_else(|| panic!("{error}: not of TLS")).to_string();
    assert!(!line.contains('\n') && !line.contains("  "), "one line: {line:?}");
    line
}
