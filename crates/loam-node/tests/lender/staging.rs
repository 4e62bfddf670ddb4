//! The write cache over real sockets and a real disk store.

use crate::support::*;
use loam_core::ids::{PutClass, Version};
use loam_core::units::{Bytes, Duration};
use loam_node::{LendConfig, LendHandle, StoreAt, spawn};
use loam_wire::client::{Client, StoreNews, Target};
use loam_wire::{Frame, PageAck, PageMeta, PageRef, PutStatus, encode, feature, page_hash};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const MIB: u64 = 1 << 20;
const STAGING: u64 = feature::RECALL | feature::STAGING;

/// A folder that is gone afterwards.
pub(crate) struct Dir(pub(crate) PathBuf);

impl Dir {
    pub(crate) fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("loam-staging-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn store_config(dir: &Path, memory: Bytes) -> LendConfig {
    let mut config = config(memory);
    let linger = Some(Duration::ZERO);
    config.store = Some(StoreAt { dir: dir.to_owned(), size: Bytes(32 * MIB), channel: None, linger });
    config.zone = Some("rack 7".into());
    config
}

/// A borrower that notes what it is told.
pub(crate) struct Staging {
    pub(crate) borrower: Borrower,
    pub(crate) stored: BTreeSet<(u64, u32)>,
    pub(crate) gone: BTreeSet<(u64, u32)>,
    room: usize,
}

impl Staging {
    pub(crate) fn to(target: impl Into<Target>, space: u64) -> Self {
        let client = Client::connect_with(target, STAGING, space, "test", TIMEOUT).unwrap();
        assert_eq!(client.welcome().features(), STAGING);
        Self::over(client, space)
    }

    fn over(client: Client, space: u64) -> Self {
        Self { borrower: Borrower { client, space }, stored: BTreeSet::new(), gone: BTreeSet::new(), room: 0 }
    }

    fn store(&self) -> &StoreNews {
        self.borrower.client.store().expect("it has said staging")
    }

    /// Waits for one frame that is no news; `take` says what it was.
    fn answer<R>(&mut self, mut take: impl FnMut(Frame<'_>) -> R) -> R {
        loop {
            match self.borrower.client.receive().unwrap() {
                Frame::Stored { pages, .. } => {
                    self.stored.extend(pages.iter().map(|page| (page.index(), page.version().0)));
                }
                Frame::Recall { pages: [], .. } => self.room += 1,
                Frame::Gone { pages, .. } => {
                    self.gone.extend(pages.iter().map(|page| (page.index(), page.version().0)));
                }
                frame => return take(frame),
            }
        }
    }

    pub(crate) fn put(
        &mut self,
        indexes: impl IntoIterator<Item = u64>,
        version: u32,
        class: PutClass,
    ) -> Vec<PutStatus> {
        let indexes: Vec<u64> = indexes.into_iter().collect();
        let all: Vec<_> = indexes.iter().map(|&i| contents(self.borrower.space, i, version)).collect();
        let metas: Vec<_> = indexes
            .iter()
            .zip(&all)
            .map(|(&index, page)| PageMeta::classed(index, Version(version), page_hash(page), class))
            .collect();
        let asked = self.borrower.client.next_request();
        self.borrower.client.send(&all.concat(), |out| encode::putpage(out, asked, &metas)).unwrap();
        self.answer(|frame| match frame {
            Frame::Ack { request, pages, .. } if request == asked => {
                pages.iter().map(PageAck::status).collect()
            }
            other => panic!("{other:?} instead of an ack"),
        })
    }

    /// Gets pages in whatever order the answers come, checks contents; answers which were there.
    pub(crate) fn get(&mut self, indexes: impl IntoIterator<Item = u64>, version: u32) -> BTreeSet<u64> {
        let refs: Vec<_> = indexes.into_iter().map(|index| PageRef::new(index, Version(version))).collect();
        let asked = self.borrower.client.next_request();
        self.borrower.client.send(&[], |out| encode::getpage(out, asked, &refs)).unwrap();
        let (mut there, mut answered, space) = (BTreeSet::new(), 0, self.borrower.space);
        while answered < refs.len() {
            answered += self.answer(|frame| match frame {
                Frame::Page { request, pages, payload } if request == asked => {
                    for (page, found) in pages.iter().zip(payload.chunks_exact(PAGE)) {
                        assert!(found == contents(space, page.index(), version), "other contents");
                        assert_eq!(page_hash(found), page.hash());
                        assert!(there.insert(page.index()), "answered twice");
                    }
                    pages.len()
                }
                Frame::Miss { request, pages } if request == asked => pages.len(),
                other => panic!("{other:?} instead of pages"),
            });
        }
        there
    }

    /// Waits until this is stored.
    pub(crate) fn wait_stored(&mut self, indexes: impl IntoIterator<Item = u64>, version: u32) {
        let wanted: Vec<_> = indexes.into_iter().map(|index| (index, version)).collect();
        while !wanted.iter().all(|page| self.stored.contains(page)) {
            match self.borrower.client.receive().unwrap() {
                Frame::Stored { pages, .. } => {
                    self.stored.extend(pages.iter().map(|page| (page.index(), page.version().0)));
                }
                Frame::Recall { pages: [], .. } => self.room += 1,
                other => panic!("{other:?} instead of what is stored"),
            }
        }
    }
}

/// The lender does not know yet that the old connection is over: what the disk has is told over the new one all the same.
#[test]
fn one_who_comes_back_is_told_what_the_disk_has_though_its_old_connection_is_open() {
    let dir = Dir::new("back");
    let lender = spawn(&store_config(&dir.0, Bytes(4 * MIB))).unwrap();
    let mut old = Staging::to(lender.addr(), 1);
    old.put(0..64, 1, PutClass::Staged);
    old.wait_stored(0..64, 1);
    let client = Client::connect_back(lender.addr(), STAGING, 1, 1, "test", TIMEOUT).unwrap();
    let mut back = Staging::over(client, 1);
    back.wait_stored(0..64, 1);
    back.put(64..128, 1, PutClass::Staged);
    back.wait_stored(64..128, 1);
    drop(old);
    assert_eq!(back.get(0..128, 1).len(), 128);
}

#[test]
fn what_is_staged_is_stored_and_read_from_the_disk_when_memory_is_short() {
    let dir = Dir::new("plain");
    let lender = spawn(&store_config(&dir.0, Bytes(4 * MIB))).unwrap();
    let mut staging = Staging::to(lender.addr(), 1);
    assert_eq!(staging.store().zone, "rack 7");
    assert!(
        staging.store().store_bytes > 20 * MIB
            && staging.store().store_free_bytes == staging.store().store_bytes
    );
    // Four times what is lent: each batch takes the place of what the disk has by then.
    for first in (0..4096).step_by(128) {
        assert_eq!(staging.put(first..first + 128, 1, PutClass::Staged), [PutStatus::Stored; 128]);
        staging.wait_stored(first..first + 128, 1);
    }
    assert!(lender.memory() <= Bytes(4 * MIB));
    for first in (0..4096).step_by(256) {
        assert_eq!(staging.get(first..first + 256, 1).len(), 256, "from memory or from the disk");
    }
    assert_eq!(staging.get(0..4, 2).len(), 0, "another version");
    // What is dropped is gone from the disk too.
    staging.borrower.drop_pages(0..8, 1);
    assert_eq!(staging.get(0..16, 1), (8..16).collect());
    assert_eq!(staging.put(8..12, 2, PutClass::Staged), [PutStatus::Stored; 4]);
    assert_eq!((staging.get(8..16, 1), staging.get(8..16, 2)), ((12..16).collect(), (8..12).collect()));
}

#[test]
fn a_burst_is_refused_when_its_channel_is_full_and_told_of_room() {
    let dir = Dir::new("burst");
    let mut config = store_config(&dir.0, Bytes(8 * MIB));
    config.store.as_mut().unwrap().channel = Some(Bytes(64 * PAGE as u64));
    let lender = spawn(&config).unwrap();
    let mut staging = Staging::to(lender.addr(), 1);
    let statuses = staging.put(0..256, 1, PutClass::Staged);
    let taken = statuses.iter().filter(|status| **status == PutStatus::Stored).count() as u64;
    assert!((64..256).contains(&taken), "{taken} were taken");
    assert!(statuses[taken as usize..].iter().all(|status| *status == PutStatus::NoRoom), "the first ones");
    staging.wait_stored(0..taken, 1);
    while staging.room == 0 {
        // (It comes after what made it.)
        let Frame::Recall { pages: [], within_ms: 0, .. } = staging.borrower.client.receive().unwrap() else {
            panic!("something else than room")
        };
        staging.room += 1;
    }
    assert_eq!(staging.put(taken..taken + 8, 1, PutClass::Staged), [PutStatus::Stored; 8]);
    assert_eq!(
        staging.put(taken + 8..256, 1, PutClass::Mirror).len() as u64,
        248 - taken,
        "a mirror needs no channel"
    );
    assert_eq!(staging.get(0..256, 1).len(), 256);
}

/// As users have it: what is put anew before it has lingered is never written, and what stays is.
#[test]
fn what_is_put_anew_at_once_is_written_once() {
    let dir = Dir::new("linger");
    let mut config = store_config(&dir.0, Bytes(8 * MIB));
    config.store.as_mut().unwrap().linger = Some(Duration::from_millis(3_000));
    let lender = spawn(&config).unwrap();
    let mut staging = Staging::to(lender.addr(), 1);
    for version in 1..=5 {
        assert_eq!(staging.put(0..128, version, PutClass::Staged), [PutStatus::Stored; 128]);
    }
    staging.wait_stored(0..128, 5);
    assert_eq!(staging.stored.len(), 128, "older versions were written, too: {:?}", staging.stored);
    assert_eq!(staging.get(0..128, 5).len(), 128);
}

#[test]
fn spare_pages_give_way_and_classes_need_the_feature() {
    let lender = lender(1);
    let mut staging = Staging::to(lender.addr(), 1);
    assert_eq!((staging.store().store_bytes, staging.store().zone.as_str()), (0, ""));
    assert_eq!(staging.put(0..256, 1, PutClass::Mirror), [PutStatus::Stored; 256]);
    assert_eq!(
        staging.put(256..257, 1, PutClass::Staged),
        [PutStatus::NoRoom],
        "without a disk it is a mirror, too"
    );
    let spare: Vec<_> = (0..32).map(|index| PageRef::new(index, Version(1))).collect();
    staging.borrower.client.send(&[], |out| encode::spare(out, &spare)).unwrap();
    let all = contents(1, 300, 1);
    let meta = PageMeta::classed(300, Version(1), page_hash(&all), PutClass::Mirror);
    staging.borrower.client.send(&all, |out| encode::putpage(out, 77, &[meta])).unwrap();
    staging.answer(|frame| assert!(matches!(frame, Frame::Ack { request: 77, .. })));
    let gone = &staging.gone;
    assert!(!gone.is_empty() && gone.iter().all(|page| page.0 < 32), "before the ack: {gone:?}");
    // Nobody else may say such things.
    let other = |frame: &dyn Fn(&mut Vec<u8>), payload: &[u8]| {
        let mut plain = Client::connect_with(lender.addr(), feature::RECALL, 2, "old", TIMEOUT).unwrap();
        assert_eq!(plain.store(), None);
        plain.send(payload, frame).unwrap();
        plain.receive().map(|frame| format!("{frame:?}"))
    };
    assert!(other(&|out| encode::spare(out, &spare), &[]).is_err());
    assert!(other(&|out| encode::putpage(out, 1, &[meta]), &all).is_err());
    let both = Client::connect_with(lender.addr(), STAGING | feature::SPARE, 3, "both", TIMEOUT);
    assert!(both.is_err(), "staging and spare are two things");
}

/// The other half of [`what_is_stored_survives_a_crash`]: a lender in a process of its own, to be killed.
#[test]
#[ignore = "started by another test"]
fn a_lender_to_be_killed() {
    let dir = std::env::var("LOAM_TEST_STORE").expect("the other test says where");
    let lender = spawn(&store_config(Path::new(&dir), Bytes(4 * MIB))).unwrap();
    println!("\nADDR {}", lender.addr());
    std::thread::sleep(TIMEOUT * 3);
}

fn start(dir: &Path) -> (Child, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "staging::a_lender_to_be_killed", "--ignored", "--nocapture"])
        .env("LOAM_TEST_STORE", dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let addr = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("ADDR ").map(str::to_owned));
    (child, addr.expect("it says where it is").parse().unwrap())
}

#[test]
fn what_is_stored_survives_a_crash() {
    let dir = Dir::new("crash");
    let (mut child, addr) = start(&dir.0);
    let mut staging = Staging::to(addr, 1);
    assert_eq!(staging.put(0..200, 1, PutClass::Staged), [PutStatus::Stored; 200]);
    staging.wait_stored(0..200, 1);
    // Newer versions of some, of which the lender may have stored none, some or all when it dies.
    assert_eq!(staging.put(0..100, 2, PutClass::Staged), [PutStatus::Stored; 100]);
    let instance = staging.borrower.client.welcome().instance();
    child.kill().unwrap();
    child.wait().unwrap();
    let told = loop {
        // What it said before it died.
        match staging.borrower.client.receive() {
            Ok(Frame::Stored { pages, .. }) => {
                staging.stored.extend(pages.iter().map(|page| (page.index(), page.version().0)));
            }
            Ok(_) => {}
            Err(_) => break staging.stored.clone(),
        }
    };
    let (mut child, addr) = start(&dir.0);
    let mut staging = Staging::to(addr, 1);
    assert_ne!(staging.borrower.client.welcome().instance(), instance, "another life");
    let newest = |index: u64| told.contains(&(index, 2)).then_some(2).or((index >= 100).then_some(1));
    let must: Vec<_> = (0..200).filter_map(|index| Some((index, newest(index)?))).collect();
    assert!(must.len() >= 100);
    for &(index, version) in &must {
        assert_eq!(
            staging.get([index], version).len(),
            1,
            "page {index}, version {version}, was told to be safe"
        );
    }
    // It is told what is there, without having asked.
    for (index, version) in must {
        staging.wait_stored([index], version);
    }
    drop(staging);
    // Nobody comes back within the grace: the store lets them go.
    std::thread::sleep(GRACE * 3);
    assert_eq!(Staging::to(addr, 1).get(0..200, 1).len(), 0);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_store_that_cannot_be_is_said_in_one_line() {
    let dir = Dir::new("refused");
    let lender: LendHandle = spawn(&store_config(&dir.0, Bytes(MIB))).unwrap();
    let why = spawn(&store_config(&dir.0, Bytes(MIB))).unwrap_err().to_string();
    assert!(why.contains("in use by another lender") && !why.contains('\n'), "{why}");
    drop(lender);
    let mut config = store_config(&dir.0, Bytes(MIB));
    config.zone = Some("a\nb".into());
    let why = spawn(&config).unwrap_err().to_string();
    assert!(why.starts_with("zone \"a\\nb\" is no name"), "{why}");
}
