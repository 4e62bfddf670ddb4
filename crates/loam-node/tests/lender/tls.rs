//! A lender with credentials: whom it serves, whom it refuses, and that one is no matter of the other.

use crate::support::*;
use loam_core::units::Bytes;
use loam_node::{ClusterConfig, LendHandle, spawn};
use loam_wire::client::{Client, ClientError, Target};
use loam_wire::tls::testing::{Authority, Issued};
use loam_wire::tls::{Credentials, Role, TlsError};
use loam_wire::{cluster_class, encode, error_code};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A folder that goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("loam-node-tls-{}-{number}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A lender with credentials of an authority.
struct Site {
    ca: Authority,
    folder: Folder,
    lender: LendHandle,
}

impl Site {
    fn new(mib: u64) -> Self {
        let (ca, folder) = (Authority::new("site"), Folder::new());
        ca.issue("node-1", &[Role::Node], -1, 1).write(&folder.0, &[&ca]);
        let mut config = config(Bytes::from_mib(mib));
        config.tls = Some(folder.0.clone());
        let lender = spawn(&config).unwrap();
        Self { ca, folder, lender }
    }

    fn target(&self, issued: &Issued, believed: &[&Authority]) -> Target {
        target(&self.lender, issued, believed)
    }

    /// Somebody who may borrow.
    fn friend(&self) -> Target {
        self.target(&self.ca.issue("busy-1", &[Role::Borrower], -1, 1), &[&self.ca])
    }

    /// The lender serves others as if nothing had been.
    fn serves(&self, space: u64) {
        let mut borrower = Borrower::to(self.friend(), space);
        borrower.put(0..8, 1);
        assert_eq!(borrower.get(0..8, 1).len(), 8);
    }
}

fn target(lender: &LendHandle, issued: &Issued, believed: &[&Authority]) -> Target {
    let folder = Folder::new();
    issued.write(&folder.0, believed);
    let credentials = Some(Arc::new(Credentials::load(&folder.0).unwrap()));
    Target { addr: lender.addr(), name: None, credentials }
}

fn refused(target: Target, space: u64) -> ClientError {
    let error = Client::connect(target, space, "test", TIMEOUT).expect_err("it must be refused");
    let line = error.to_string();
    assert!(!line.contains('\n') && !line.contains("  "), "one line: {line:?}");
    error
}

#[test]
fn pages_go_and_come_back_whole() {
    let site = Site::new(64);
    let mut named = site.friend();
    named.name = Some("node-1".into());
    let mut borrower = Borrower::to(named, 1);
    for batch in 0..16 {
        borrower.put(batch * 256..(batch + 1) * 256, 1);
    }
    for batch in 0..16 {
        assert_eq!(borrower.get(batch * 256..(batch + 1) * 256, 1).len(), 256);
    }
    for index in [5, 4000, 77] {
        assert_eq!(borrower.get([index], 1), [index]);
    }
    borrower.drop_pages(0..16, 1);
    assert!(borrower.get(0..16, 1).is_empty());
}

#[test]
fn many_borrowers_at_once() {
    let site = Site::new(64);
    std::thread::scope(|scope| {
        for space in 1..9 {
            let friend = site.friend();
            scope.spawn(move || {
                let mut borrower = Borrower::to(friend, space);
                for round in 0..20 {
                    borrower.put(round * 64..(round + 1) * 64, 1);
                    assert_eq!(borrower.get(round * 64..(round + 1) * 64, 1).len(), 64);
                }
            });
        }
    });
}

#[test]
fn wrong_certificates_and_roles() {
    let site = Site::new(4);
    let other = Authority::new("other");
    // A node may ask for the status, and may not borrow.
    let node = || site.target(&site.ca.issue("node-2", &[Role::Node], -1, 1), &[&site.ca]);
    assert!(Client::connect(node(), 0, "status", TIMEOUT).unwrap().status().is_ok());
    let ClientError::Refused { code, text } = refused(node(), 5) else { panic!("not in words") };
    assert_eq!(code, error_code::DENIED);
    assert!(text.contains("node-2 (node)") && text.contains("--role borrower"), "{text}");
    site.serves(6);

    let stranger = site.target(&other.issue("busy-1", &Role::ALL, -1, 1), &[&site.ca, &other]);
    let error = refused(stranger, 5);
    assert!(matches!(error, ClientError::Tls(TlsError::Alert(_))), "{error}");
    assert!(error.to_string().contains("does not know the authority of our certificate"), "{error}");
    site.serves(7);

    let expired = site.target(&site.ca.issue("busy-1", &Role::ALL, -9, -1), &[&site.ca]);
    let error = refused(expired, 5).to_string();
    assert!(error.contains("our certificate has expired"), "{error}");

    // Those whom the borrower refuses.
    let misled = site.target(&site.ca.issue("busy-1", &Role::ALL, -1, 1), &[&other]);
    let error = refused(misled, 5).to_string();
    assert!(error.contains("not in our ca.pem"), "{error}");
    let mut misnamed = site.friend();
    misnamed.name = Some("node-9".into());
    let error = refused(misnamed, 5).to_string();
    assert!(error.contains("that of node-1, not of node-9"), "{error}");
    site.serves(8);
}

#[test]
fn plain_tcp_and_tls_miss_each_other() {
    let site = Site::new(4);
    let ClientError::Refused { text, .. } = refused(site.lender.addr().into(), 5) else { panic!("in words") };
    assert!(text.contains("wants TLS") && text.contains("--tls DIR"), "{text}");
    site.serves(6);
    let plain = lender(4);
    let mut target = site.friend();
    target.addr = plain.addr();
    let error = refused(target, 5);
    assert!(matches!(error, ClientError::Tls(TlsError::NotTls)), "{error}");
    let mut borrower = Borrower::new(&plain, 7);
    borrower.put(0..8, 1);
    assert_eq!(borrower.get(0..8, 1).len(), 8);
}

#[test]
fn bytes_without_sense_and_peers_that_say_nothing() {
    let site = Site::new(16);
    let mut good = Borrower::to(site.friend(), 1);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut silent = Vec::new();
    for round in 0..200_usize {
        let mut bytes: Vec<u8> = (0..1 + round * 37 % 5000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        if round % 3 == 0 {
            // Dressed as a record of a handshake.
            let body = (bytes.len() as u16).to_be_bytes();
            bytes.splice(0..0, [22, 3, 1, body[0], body[1], 1, 0]);
        }
        let mut stream = TcpStream::connect(site.lender.addr()).unwrap();
        // It may be refused before all has gone.
        let _ = stream.write_all(&bytes);
        if round % 20 == 0 {
            silent.push(stream);
        } else if round % 5 == 0 {
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.len() < 4096, "it was answered at length: {}", answer.len());
        }
        let index = round as u64;
        good.put([index], 1);
        assert_eq!(good.get([index], 1), [index]);
    }
    site.serves(2);
}

#[test]
fn new_credentials_serve_new_connections_and_leave_old_ones_alone() {
    let site = Site::new(16);
    let mut old = Borrower::to(site.friend(), 1);
    old.put(0..8, 1);
    // Another authority takes over: first both are believed, with a certificate of the new one.
    let next = Authority::new("next");
    let newcomer = || site.target(&next.issue("busy-2", &[Role::Borrower], -1, 1), &[&site.ca, &next]);
    assert!(Client::connect(newcomer(), 2, "early", TIMEOUT).is_err());
    // A broken file changes nothing.
    std::fs::write(site.folder.0.join("node.pem"), "broken").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2500));
    site.serves(3);
    next.issue("node-1", &[Role::Node], -1, 1).write(&site.folder.0, &[&site.ca, &next]);
    eventually("the new authority's borrowers are served", || {
        Client::connect(newcomer(), 2, "late", TIMEOUT).is_ok()
    });
    // A borrower of the old authority that believes the new one, too.
    let both = site.target(&site.ca.issue("busy-1", &[Role::Borrower], -1, 1), &[&site.ca, &next]);
    Client::connect(both, 4, "both", TIMEOUT).unwrap();
    assert_eq!(old.get(0..8, 1).len(), 8, "who was there stays");
}

/// Those of the authority find each other; who is no node has no part in what they agree on.
#[test]
fn only_nodes_speak_as_nodes() {
    let ca = Authority::new("site");
    let node = |name: &str, join: &[SocketAddr]| {
        let folder = Folder::new();
        ca.issue(name, &[Role::Node], -1, 1).write(&folder.0, &[&ca]);
        let mut config = config(Bytes::from_mib(4));
        config.tls = Some(folder.0.clone());
        let probe_period = Duration::from_millis(200);
        let (name, join) = (Some(name.to_owned()), join.to_vec());
        config.cluster = Some(ClusterConfig { name, join, probe_period, ..ClusterConfig::default() });
        (spawn(&config).unwrap(), folder)
    };
    let (first, _folder_1) = node("n1", &[]);
    let (second, _folder_2) = node("n2", &[first.addr()]);
    let as_role = |role: Role| {
        let issued = ca.issue("asker", &[role], -1, 1);
        Client::connect(target(&first, &issued, &[&ca]), 0, "test", TIMEOUT).unwrap()
    };
    let mut borrower = as_role(Role::Borrower);
    eventually("two nodes know each other", || borrower.nodes().unwrap().1.len() == 2);
    assert!(borrower.nodes().unwrap().1.iter().any(|node| node.facts().addr == second.addr()));
    borrower.send(&[], |out| encode::cluster(out, 5, cluster_class::GOSSIP, b"hello")).unwrap();
    let Err(ClientError::Refused { code, text }) = borrower.receive() else { panic!("it must refuse") };
    assert_eq!(code, error_code::DENIED);
    assert!(text.contains("asker (borrower)") && text.contains("--role node"), "{text}");
    let mut node = as_role(Role::Node);
    node.send(&[], |out| encode::cluster(out, 5, cluster_class::GOSSIP, b"hello")).unwrap();
    node.ping().unwrap();
    // One of another authority, which believes this one, is not let in; nor is one without credentials.
    let other = Authority::new("other");
    let stranger = other.issue("n3", &[Role::Node], -1, 1);
    refused(target(&first, &stranger, &[&ca, &other]), 0);
    refused(first.addr().into(), 0);
    assert_eq!(as_role(Role::Borrower).nodes().unwrap().1.len(), 2);
}
