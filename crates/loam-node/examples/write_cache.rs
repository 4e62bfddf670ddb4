//! What the write cache does on this machine: pages staged at a lender with a disk store, over loopback, until they are stored; then read back while they wait, from memory and
//! from the disk.
//!
//!     cargo run --release -p loam-node --example write_cache -- DIR [MiB]

use loam_core::ids::{PutClass, Version};
use loam_core::units::{BASE_PAGE_BYTES, Bytes};
use loam_node::{LendConfig, StoreAt, spawn};
use loam_wire::client::Client;
use loam_wire::{Frame, PageMeta, PageRef, PutStatus, encode, feature, page_hash};
use std::time::{Duration, Instant};

const BATCH: u64 = 64;

struct Borrower {
    client: Client,
    stored: u64,
    refused: u64,
}

fn contents(index: u64) -> Vec<u8> {
    let mut state = index.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut page = Vec::with_capacity(BASE_PAGE_BYTES);
    while page.len() < BASE_PAGE_BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        page.extend((state ^ (state >> 29)).to_le_bytes());
    }
    page
}

impl Borrower {
    /// Waits for one frame that is no news.
    fn answer<R>(&mut self, mut take: impl FnMut(Frame<'_>) -> R) -> R {
        loop {
            match self.client.receive().expect("the lender lives") {
                Frame::Stored { pages, .. } => self.stored += pages.len() as u64,
                Frame::Recall { .. } | Frame::Gone { .. } => {}
                frame => return take(frame),
            }
        }
    }

    /// Puts a batch; what is refused is tried again until it is taken.
    fn put(&mut self, pages: &[(PageMeta, Vec<u8>)]) {
        let mut left: Vec<&(PageMeta, Vec<u8>)> = pages.iter().collect();
        while !left.is_empty() {
            let metas: Vec<_> = left.iter().map(|page| page.0).collect();
            let payload: Vec<u8> = left.iter().flat_map(|page| &page.1).copied().collect();
            let asked = self.client.next_request();
            self.client.send(&payload, |out| encode::putpage(out, asked, &metas)).expect("it takes frames");
            let taken: Vec<bool> = self.answer(|frame| match frame {
                Frame::Ack { pages, .. } => {
                    pages.iter().map(|page| page.status() == PutStatus::Stored).collect()
                }
                other => panic!("{other:?}"),
            });
            let before = left.len();
            let mut taken = taken.into_iter();
            left.retain(|_| !taken.next().expect("one answer a page"));
            self.refused += left.len() as u64;
            if left.len() == before {
                std::thread::sleep(Duration::from_micros(500));
            }
        }
    }

    fn get(&mut self, index: u64) -> Duration {
        let asked = self.client.next_request();
        let begin = Instant::now();
        self.client
            .send(&[], |out| encode::getpage(out, asked, &[PageRef::new(index, Version(1))]))
            .expect("it takes frames");
        self.answer(|frame| assert!(matches!(frame, Frame::Page { .. }), "{frame:?}"));
        begin.elapsed()
    }
}

fn median(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().expect("usage: write_cache DIR [MiB]");
    let mib: u64 = arguments.next().map_or(1024, |text| text.parse().expect("a number of MiB"));
    let dir = std::path::Path::new(&dir).join("write-cache");
    let mut config = LendConfig::new(Bytes::from_mib(mib / 4));
    config.listen = "127.0.0.1:0".parse().expect("an address");
    // How long pages linger is not what is measured.
    let linger = Some(loam_core::units::Duration::ZERO);
    config.store = Some(StoreAt { dir: dir.clone(), size: Bytes::from_mib(mib * 3), channel: None, linger });
    let lender = spawn(&config).expect("it lends");
    let features = feature::RECALL | feature::STAGING;
    let client = Client::connect_with(lender.addr(), features, 7, "write_cache", Duration::from_secs(60));
    let mut borrower = Borrower { client: client.expect("it takes borrowers"), stored: 0, refused: 0 };
    let pages = mib * 256;
    let all: Vec<(PageMeta, Vec<u8>)> = (0..pages)
        .map(|index| {
            let page = contents(index);
            (PageMeta::classed(index, Version(1), page_hash(&page), PutClass::Staged), page)
        })
        .collect();

    let burst = pages / 32;
    let begin = Instant::now();
    for batch in all[..burst as usize].chunks(BATCH as usize) {
        borrower.put(batch);
    }
    let took = begin.elapsed().as_secs_f64();
    println!(
        "a burst of {} MiB: {:.0} MB/s until it is taken",
        burst / 256,
        burst as f64 * 4096.0 / took / 1e6
    );
    let begin = Instant::now();
    for batch in all[burst as usize..].chunks(BATCH as usize) {
        borrower.put(batch);
    }
    let taken = begin.elapsed().as_secs_f64();
    while borrower.stored < pages {
        match borrower.client.receive().expect("the lender lives") {
            Frame::Stored { pages, .. } => borrower.stored += pages.len() as u64,
            Frame::Recall { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    let stored = begin.elapsed().as_secs_f64();
    let bytes = (pages - burst) as f64 * 4096.0 / 1e6;
    println!(
        "{} MiB more, four times the memory: {:.0} MB/s taken ({} puts of a page refused and tried again), {:.0} MB/s stored",
        (pages - burst) / 256,
        bytes / taken,
        borrower.refused,
        bytes / stored
    );
    let times = |borrower: &mut Borrower, of: &mut dyn FnMut(u64) -> u64| {
        median((0..2000).map(|at| borrower.get(of(at))).collect())
    };
    let (mid, high) = times(&mut borrower, &mut |at| (at * 7919) % (pages / 2));
    println!("a page that the disk has: median {mid:?}, one in a hundred {high:?}");
    let (mid, high) = times(&mut borrower, &mut |at| pages - 1 - at % 64);
    println!("a page in memory: median {mid:?}, one in a hundred {high:?}");
    drop(lender);
    let _ = std::fs::remove_dir_all(&dir);
}
