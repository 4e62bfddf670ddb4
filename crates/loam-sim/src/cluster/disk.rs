//! A node's disk, and the file server.
//!
//! A read is sequential if it follows on one of the last eight streams that were read from this disk; the paper's figure for it has the system's
//! prefetching and clustering in it. Pages that were written to as they leave are written behind the reads' back, in clusters, so each takes as long as a
//! sequential read; a read waits for the one that is under way, and for more only when a mebibyte of them has gathered.

use super::costs::DiskCosts;
use loam_core::ids::PageId;
use loam_core::units::{Duration, Instant};

const STREAMS: usize = 8;
const WRITES_WAITING_MAX: u64 = 128;

/// See the module.
#[derive(Debug)]
pub(super) struct Disk {
    costs: DiskCosts,
    free_at: Instant,
    writes_waiting: u64,
    /// The page after the last one of each stream, the latest first.
    streams: Vec<PageId>,
    pub(super) reads: u64,
    pub(super) sequential: u64,
}

impl Disk {
    pub(super) fn new(costs: DiskCosts) -> Self {
        let free_at = Instant(0);
        Self { costs, free_at, writes_waiting: 0, streams: Vec::new(), reads: 0, sequential: 0 }
    }

    /// When a page that is asked for now has been read.
    pub(super) fn read(&mut self, now: Instant, page: PageId) -> Instant {
        let write = self.costs.sequential.0;
        let idle = (now - self.free_at).0;
        let behind = idle.div_ceil(write).min(self.writes_waiting);
        let forced = (self.writes_waiting - behind).saturating_sub(WRITES_WAITING_MAX);
        self.writes_waiting -= behind + forced;
        let start = (self.free_at + Duration((behind + forced) * write)).max(now);
        self.free_at = start + self.seek(page);
        self.free_at
    }

    /// A page is to be written. Its frame is free when no more than a mebibyte of such pages waits: who wanted it waits until then.
    pub(super) fn write(&mut self, now: Instant) -> Instant {
        let write = self.costs.sequential.0;
        let done = ((now - self.free_at).0 / write).min(self.writes_waiting);
        self.writes_waiting -= done;
        self.free_at = self.free_at + Duration(done * write);
        if self.writes_waiting == 0 {
            self.free_at = self.free_at.max(now);
        }
        self.writes_waiting += 1;
        let too_many = self.writes_waiting.saturating_sub(WRITES_WAITING_MAX);
        if too_many == 0 { now } else { self.free_at + Duration(too_many * write) }
    }

    fn seek(&mut self, page: PageId) -> Duration {
        self.reads += 1;
        let known = self.streams.iter().position(|&next| next == page);
        if let Some(at) = known {
            self.streams.remove(at);
        }
        self.streams.insert(0, PageId { index: page.index.wrapping_add(1), ..page });
        self.streams.truncate(STREAMS);
        self.sequential += u64::from(known.is_some());
        if known.is_some() { self.costs.sequential } else { self.costs.random }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_core::ids::SpaceId;

    #[test]
    fn streams_are_sequential_and_writes_wait() {
        let costs = DiskCosts { sequential: Duration::from_millis(4), random: Duration::from_millis(14) };
        let page = |index| PageId { space: SpaceId(1), index };
        let ms = |at: u64| Instant(at * 1_000_000);
        let mut disk = Disk::new(costs);
        assert_eq!(disk.read(ms(0), page(5)), ms(14));
        assert_eq!(disk.read(ms(14), page(90)), ms(28), "another stream");
        assert_eq!(disk.read(ms(30), page(6)), ms(34), "the first one goes on");
        assert_eq!(disk.read(ms(34), page(91)), ms(38));
        assert_eq!(disk.write(ms(38)), ms(38));
        assert_eq!(disk.read(ms(38), page(7)), ms(42), "no write was under way");
        assert_eq!(disk.read(ms(43), page(8)), ms(50), "one is: it began when the disk was free");
        (0..WRITES_WAITING_MAX).for_each(|_| assert_eq!(disk.write(ms(50)), ms(50)));
        assert_eq!(disk.write(ms(50)), ms(54), "one too many: when the first has been written");
        assert_eq!(disk.write(ms(50)), ms(58));
        assert_eq!(disk.read(ms(50), page(9)), ms(62), "two too many");
    }
}
