//! A lender to test, and a borrower that knows what it stored.

use loam_core::ids::Version;
use loam_core::units::{BASE_PAGE_BYTES, Bytes, Duration as CoreDuration};
use loam_node::{LendConfig, LendHandle, spawn};
use loam_wire::client::{Client, Target};
use loam_wire::{Frame, PageMeta, PageRef, PutStatus, encode, page_hash};
use std::time::{Duration, Instant};

pub(crate) const PAGE: usize = BASE_PAGE_BYTES;
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
pub(crate) const GRACE: Duration = Duration::from_secs(1);

pub(crate) fn config(size: Bytes) -> LendConfig {
    let mut config = LendConfig::new(size);
    config.listen = "127.0.0.1:0".parse().unwrap();
    config.grace = CoreDuration::from_millis(GRACE.as_millis() as u64);
    config
}

pub(crate) fn lender(mib: u64) -> LendHandle {
    spawn(&config(Bytes::from_mib(mib))).unwrap()
}

/// Contents that depend on everything that names them.
pub(crate) fn contents(space: u64, index: u64, version: u32) -> Vec<u8> {
    let mut state =
        space ^ index.rotate_left(20) ^ u64::from(version).rotate_left(48) ^ 0x9e37_79b9_7f4a_7c15;
    let mut page = Vec::with_capacity(PAGE);
    while page.len() < PAGE {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        page.extend((state ^ (state >> 29)).to_le_bytes());
    }
    page
}

pub(crate) struct Borrower {
    pub(crate) client: Client,
    pub(crate) space: u64,
}

impl Borrower {
    pub(crate) fn new(lender: &LendHandle, space: u64) -> Self {
        Self::to(lender.addr().into(), space)
    }

    pub(crate) fn to(target: Target, space: u64) -> Self {
        Self { client: Client::connect(target, space, "test", TIMEOUT).unwrap(), space }
    }

    /// One that comes back, for the `returns`th time.
    pub(crate) fn back(lender: &LendHandle, space: u64, returns: u32) -> Self {
        let client = Client::connect_back(lender.addr(), 0, space, returns, "test", TIMEOUT).unwrap();
        Self { client, space }
    }

    /// The frame of a putpage.
    pub(crate) fn putpage(&self, indexes: impl IntoIterator<Item = u64>, version: u32) -> Vec<u8> {
        let indexes: Vec<u64> = indexes.into_iter().collect();
        let pages: Vec<_> = indexes.iter().map(|&index| self.meta(index, version)).collect();
        let mut frame = Vec::new();
        encode::putpage(&mut frame, 1, &pages);
        indexes.iter().for_each(|&index| frame.extend(contents(self.space, index, version)));
        frame
    }

    pub(crate) fn meta(&self, index: u64, version: u32) -> PageMeta {
        PageMeta::new(index, Version(version), page_hash(&contents(self.space, index, version)))
    }

    /// Puts pages with their right contents; answers their statuses.
    pub(crate) fn put(&mut self, indexes: impl IntoIterator<Item = u64>, version: u32) -> Vec<PutStatus> {
        let indexes: Vec<u64> = indexes.into_iter().collect();
        let pages: Vec<_> = indexes.iter().map(|&index| self.meta(index, version)).collect();
        let payload: Vec<u8> =
            indexes.iter().flat_map(|&index| contents(self.space, index, version)).collect();
        self.put_raw(&pages, &payload)
    }

    pub(crate) fn put_raw(&mut self, pages: &[PageMeta], payload: &[u8]) -> Vec<PutStatus> {
        let asked = self.client.next_request();
        self.client.send(payload, |out| encode::putpage(out, asked, pages)).unwrap();
        let Frame::Ack { request, pages: acks, .. } = self.client.receive().unwrap() else {
            panic!("no ack")
        };
        assert_eq!(request, asked);
        assert_eq!(acks.len(), pages.len());
        for (ack, page) in acks.iter().zip(pages) {
            assert_eq!((ack.index(), ack.version()), (page.index(), page.version()));
        }
        acks.iter().map(loam_wire::PageAck::status).collect()
    }

    /// Gets pages, checks contents and order; answers which were there.
    pub(crate) fn get(&mut self, indexes: impl IntoIterator<Item = u64>, version: u32) -> Vec<u64> {
        let refs: Vec<_> = indexes.into_iter().map(|index| PageRef::new(index, Version(version))).collect();
        let (mut there, space) = (Vec::new(), self.space);
        let missing = self
            .client
            .getpages(&refs, |index, page| {
                assert!(page == contents(space, index, version), "page {index} has other contents");
                there.push(index);
            })
            .unwrap();
        let missing: Vec<u64> = missing.iter().map(PageRef::index).collect();
        let order: Vec<u64> =
            refs.iter().map(PageRef::index).filter(|index| !missing.contains(index)).collect();
        assert_eq!(there, order, "the order of the request");
        there
    }

    pub(crate) fn drop_pages(&mut self, indexes: impl IntoIterator<Item = u64>, version: u32) {
        let refs: Vec<_> = indexes.into_iter().map(|index| PageRef::new(index, Version(version))).collect();
        self.client.send(&[], |out| encode::drop(out, &refs)).unwrap();
    }
}

/// Waits for something that other threads do.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
