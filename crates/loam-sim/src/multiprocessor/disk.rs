//! A disk: arm, rotation, transfer (table 1).
//!
//! Of seeks the paper gives the shortest and the longest. Between them time grows with the root of the distance, as arms that speed up half the way and
//! slow down for the other half do (Ruemmler and Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3), 1994). The longest is
//! across all blocks that the program's files have on the disk: sizes of the simulated machine are scaled down, the disk's times are not, so its files
//! are taken to be as far apart as those of the full size.

use super::config::{DiskTimes, SeekCurve};
use loam_core::units::{Duration, Instant};

/// Which disk has a page, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The disk.
    pub disk: usize,
    /// The block on it.
    pub block: u64,
}

/// How pages lie on disks: groups of consecutive pages, to one disk after the other (section 3.1).
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Consecutive pages that belong to one disk.
    pub group_pages: u64,
    /// Disks that take turns.
    pub disks: usize,
}

impl Layout {
    /// Where a page is.
    pub fn place(self, page: u32) -> Place {
        let (group, within) = (u64::from(page) / self.group_pages, u64::from(page) % self.group_pages);
        let disks = self.disks as u64;
        Place { disk: (group % disks) as usize, block: group / disks * self.group_pages + within }
    }

    /// The page that follows on its disk.
    pub fn next_on_disk(self, page: u32) -> u32 {
        let next = page + 1;
        let begins_group = u64::from(next).is_multiple_of(self.group_pages);
        next + if begins_group { (self.disks as u32 - 1) * self.group_pages as u32 } else { 0 }
    }

    /// Blocks that each disk has of so many pages, at most.
    pub fn blocks(self, pages: u64) -> u64 {
        pages.div_ceil(self.group_pages).div_ceil(self.disks as u64) * self.group_pages
    }
}

/// One disk.
#[derive(Clone, Debug)]
pub struct Disk {
    times: DiskTimes,
    blocks: u64,
    /// The block that would follow what was read or written last.
    head: u64,
    busy: Duration,
}

impl Disk {
    /// A disk of which so many blocks are in use.
    pub fn new(times: DiskTimes, blocks: u64) -> Self {
        Self { times, blocks: blocks.max(2), head: 0, busy: Duration(0) }
    }

    /// How long it takes to get from one block to another one.
    pub fn seek(&self, from: u64, to: u64) -> Duration {
        let apart = from.abs_diff(to);
        if apart == 0 {
            return Duration(0);
        }
        let more = self.times.seek_max.0 - self.times.seek_min.0;
        let (apart, all) = (apart - 1, self.blocks - 1);
        let added = match self.times.curve {
            // The root of the share, in millionths.
            SeekCurve::Root => more * (apart * 1_000_000_000_000 / all).isqrt() / 1_000_000,
            SeekCurve::Linear => more * apart / all,
            SeekCurve::Shortest => 0,
        };
        Duration(self.times.seek_min.0 + added.min(more))
    }

    /// Reads or writes so many blocks in one access that begins at `now`: when it is done.
    pub fn access(&mut self, now: Instant, block: u64, blocks: u64) -> Instant {
        let takes = self.seek(self.head, block).0 + self.times.rotation.0 + self.transfer(blocks).0;
        self.head = block + blocks;
        self.busy.0 += takes;
        now + Duration(takes)
    }

    /// Goes on reading so many blocks behind what was read last.
    pub fn go_on(&mut self, now: Instant, blocks: u64) -> Instant {
        let takes = self.transfer(blocks);
        self.head += blocks;
        self.busy.0 += takes.0;
        now + takes
    }

    fn transfer(&self, blocks: u64) -> Duration {
        self.times.rate.time(blocks * super::config::PAGE_BYTES)
    }

    /// How long it has been at work.
    pub fn busy(&self) -> Duration {
        self.busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multiprocessor::config::{Config, Rate};

    fn disk(curve: SeekCurve) -> Disk {
        let ms = Duration::from_millis;
        let rate = Rate::mb_per_s(20.0);
        Disk::new(DiskTimes { seek_min: ms(2), seek_max: ms(22), rotation: ms(4), rate, curve }, 101)
    }

    #[test]
    fn groups_go_to_disks_in_turn() {
        let layout = Layout { group_pages: 32, disks: 4 };
        assert_eq!(layout.place(31), Place { disk: 0, block: 31 });
        assert_eq!(layout.place(32), Place { disk: 1, block: 0 });
        assert_eq!(layout.place(130), Place { disk: 0, block: 34 });
        assert_eq!((layout.next_on_disk(30), layout.next_on_disk(31)), (31, 128));
        assert_eq!((layout.blocks(128), layout.blocks(129)), (32, 64));
    }

    #[test]
    fn seeks_lie_between_the_shortest_and_the_longest() {
        let root = disk(SeekCurve::Root);
        assert_eq!([0, 1, 101].map(|to| root.seek(0, to).0), [0, 2_000_000, 22_000_000]);
        assert_eq!(root.seek(30, 5), root.seek(5, 30));
        assert_eq!(
            root.seek(0, 26),
            Duration::from_millis(12),
            "a quarter of the way takes half of the time"
        );
        assert_eq!(disk(SeekCurve::Linear).seek(0, 51), Duration::from_millis(12));
        assert_eq!(disk(SeekCurve::Shortest).seek(0, 101), Duration::from_millis(2));
    }

    #[test]
    fn an_access_is_seek_rotation_and_transfer() {
        let mut disk = disk(SeekCurve::Root);
        assert_eq!(disk.access(Instant(0), 1, 4), Instant(2_000_000 + 4_000_000 + 4 * 204_800));
        let end = disk.go_on(Instant(10_000_000), 2);
        assert_eq!(end, Instant(10_000_000 + 2 * 204_800));
        assert_eq!(disk.access(end, 7, 1), end + Duration(4_204_800), "what follows needs no seek");
        assert_eq!(disk.busy(), Duration(6_819_200 + 409_600 + 4_204_800));
    }

    #[test]
    fn the_paper_s_disk_has_the_paper_s_times() {
        let times = Config::paper().disk;
        assert_eq!(
            (times.seek_min.0, times.seek_max.0, times.rotation.0),
            (2_000_000, 22_000_000, 4_000_000)
        );
    }
}
