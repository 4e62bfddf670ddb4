//! A lender whose machine wants its memory back. What the machine has is said by files of ours.

use crate::support::*;
use loam_core::ids::Version;
use loam_core::units::Bytes;
use loam_node::{LendHandle, LocalSocket, spawn};
use loam_wire::client::Client;
use loam_wire::{Frame, PageRef, PutStatus, feature};
use std::path::PathBuf;

const MIB: u64 = 1 << 20;
const BOTH: u64 = feature::RECALL | feature::SPARE;

/// A lender of 8 MiB that keeps 1 MiB free, on a machine whose memory is a file.
pub(crate) struct Machine {
    root: PathBuf,
    lender: Option<LendHandle>,
}

impl Machine {
    pub(crate) fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("loam-giveback-{}-{name}", std::process::id()));
        std::fs::create_dir_all(root.join("proc")).unwrap();
        let mut machine = Self { root, lender: None };
        machine.has(100 * MIB);
        let mut config = config(Bytes(8 * MIB));
        config.keep = Some(Bytes(MIB));
        config.machine_root = machine.root.clone();
        let path = machine.root.join("node.sock");
        config.socket = Some(LocalSocket { path, mode: 0o600, required: true });
        machine.lender = Some(spawn(&config).unwrap());
        machine
    }

    pub(crate) fn has(&mut self, available: u64) {
        let text = format!("MemTotal: 1048576 kB\nMemAvailable: {} kB\n", available / 1024);
        // Never half written when it is read.
        let (path, new) = (self.root.join("proc/meminfo"), self.root.join("new"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    pub(crate) fn lender(&self) -> &LendHandle {
        self.lender.as_ref().expect("it runs until the end")
    }

    pub(crate) fn borrower(&self, space: u64, features: u64) -> Borrower {
        let client = Client::connect_with(self.lender().addr(), features, space, "test", TIMEOUT).unwrap();
        assert_eq!(client.welcome().features(), features);
        Borrower { client, space }
    }

    pub(crate) fn tool(&self) -> Client {
        Client::connect(self.lender().addr(), 0, "tool", TIMEOUT).unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.lender.take());
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

#[test]
fn spare_pages_go_and_come_again() {
    let mut machine = Machine::new("spare");
    let mut borrower = machine.borrower(1, BOTH);
    for first in (0..1024).step_by(256) {
        assert!(borrower.put(first..first + 256, 1).iter().all(|s| *s == PutStatus::Stored));
    }
    assert_eq!(machine.lender().memory(), Bytes(4 * MIB));
    machine.has(0);
    eventually("its memory is given back", || machine.lender().memory() == Bytes(0));
    let (figures, reason) = machine.tool().memory().unwrap();
    assert_eq!((figures.limit_bytes.get(), figures.dropped.get(), figures.kept.get()), (0, 1024, 0));
    assert!(reason.starts_with("this machine has 0 B available and keeps 1.0 MiB free"), "{reason}");
    assert_eq!(borrower.get(0..64, 1), [0u64; 0], "a miss: the borrower reads its disk");
    assert_eq!(borrower.put(0..2, 2), [PutStatus::NoRoom; 2], "nothing comes in meanwhile");
    // The need is over: after a while the borrower is told that there is room again.
    machine.has(100 * MIB);
    let Frame::Recall { free_bytes, within_ms: 0, pages: [] } = borrower.client.receive().unwrap() else {
        panic!("something else than room")
    };
    assert!(free_bytes > 0);
    assert_eq!(borrower.put(0..2, 2), [PutStatus::Stored; 2]);
    assert_eq!(borrower.get(0..2, 2), [0, 1]);
}

#[test]
fn only_copies_are_asked_for_and_stay_until_they_are_dropped() {
    let mut machine = Machine::new("recall");
    let mut borrower = machine.borrower(1, feature::RECALL);
    borrower.put(0..256, 1);
    machine.has(0);
    let mut asked: Vec<u64> = Vec::new();
    while asked.len() < 256 {
        let Frame::Recall { free_bytes, within_ms, pages } = borrower.client.receive().unwrap() else {
            panic!("something else than a recall")
        };
        assert!(free_bytes == 0 && within_ms > 0);
        assert!(pages.iter().all(|page| page.version() == Version(1)));
        asked.extend(pages.iter().map(PageRef::index));
    }
    asked.sort_unstable();
    assert_eq!(asked, (0..256).collect::<Vec<u64>>());
    // It does nothing for now: nothing is lost, and the lender says so.
    let mut tool = machine.tool();
    eventually("it is told that they stay", || tool.memory().unwrap().0.kept.get() == 256);
    assert_eq!(machine.lender().memory(), Bytes(MIB));
    borrower.drop_pages(0..256, 1);
    eventually("their memory is given back", || machine.lender().memory() == Bytes(0));
    let (figures, _) = tool.memory().unwrap();
    assert_eq!((figures.dropped.get(), figures.recalled.get(), figures.kept.get()), (0, 256, 0));
}

#[test]
fn a_borrower_that_knows_nothing_of_it_keeps_its_pages() {
    let mut machine = Machine::new("old");
    let mut borrower = machine.borrower(1, 0);
    borrower.put(0..256, 1);
    machine.has(0);
    let mut tool = machine.tool();
    eventually("the lender sees that they stay", || tool.memory().unwrap().0.kept.get() == 256);
    assert_eq!(borrower.get(0..256, 1).len(), 256);
    assert_eq!(borrower.put(300..301, 1), [PutStatus::NoRoom]);
}

#[test]
fn two_that_say_different_things_of_one_space_are_not_one_borrower() {
    let machine = Machine::new("terms");
    let _first = machine.borrower(1, feature::RECALL);
    let second = Client::connect_with(machine.lender().addr(), BOTH, 1, "test", TIMEOUT);
    assert!(second.is_err());
}
