//! `lend` in a process of its own: this test program, started again for one test.

use crate::support::*;
use loam_core::units::Bytes;
use loam_wire::client::{Client, ClientError};
use loam_wire::error_code;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const CHILD: &str = "LOAM_TEST_LEND_CHILD";

/// Not a test by itself: the child's side of the others.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    loam_node::lend(&config(Bytes::from_mib(4)), |lending| eprintln!("{lending}")).unwrap();
    eprintln!("ended");
}

fn start() -> (Child, std::net::SocketAddr, impl Iterator<Item = String>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "signals::child", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.starts_with("lending")).expect("it says that it is ready");
    let addr = line.strip_prefix("lending 4.0 MiB on ").expect("as documented").parse().unwrap();
    (child, addr, lines)
}

fn ends_cleanly_on(signal: Signal) {
    let (mut child, addr, mut lines) = start();
    let mut client = Client::connect(addr, 5, "test", TIMEOUT).unwrap();
    client.ping().unwrap();
    let instance = client.welcome().instance();
    kill_process(Pid::from_child(&child), signal).unwrap();
    match client.receive() {
        Err(ClientError::Refused { code: error_code::ENDING, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(child.wait().unwrap().success());
    assert!(lines.any(|line| line == "ended"), "lend returned");
    // The port may be another test's by now.
    let other = Client::connect(addr, 5, "test", TIMEOUT);
    assert!(other.map_or(true, |other| other.welcome().instance() != instance), "it still listens");
}

#[test]
fn sigterm_ends_it_cleanly() {
    ends_cleanly_on(Signal::TERM);
}

#[test]
fn sigint_ends_it_cleanly() {
    ends_cleanly_on(Signal::INT);
}
