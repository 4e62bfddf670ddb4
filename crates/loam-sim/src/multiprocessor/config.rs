//! Sizes and speeds of a machine.

use super::disk::Layout;
use super::ring::Optical;
use crate::reproduce::nwcache::printed;
use loam_core::units::Duration;

/// Bytes of a page (table 1), and of the files' blocks (section 3.1, note 2).
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a cache line. Assumed.
pub const LINE_BYTES: u64 = 64;
/// Lines of a page.
pub const LINES_PER_PAGE: u64 = PAGE_BYTES / LINE_BYTES;
/// Bytes of a message without a page or a line in it: what, and which page. Assumed.
pub const MESSAGE_BYTES: u64 = 16;
/// Page frames of a node that hold what is private: stacks, code, the system. Table 1 has a node's memory, 64 frames, as a whole. What is left by this, 52, brings
/// the run times that the ring saves nearest to the six that are printed, of all numbers from 32 to 64 that were tried (docs/simulator-write-cache.md).
const PRIVATE_FRAMES: u32 = 12;
/// Nodes that a machine may have.
pub const NODES_MAX: usize = 64;

/// A rate, as the time of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Picoseconds for each byte.
    pub ps_per_byte: u64,
}

impl Rate {
    /// So many million bytes a second.
    ///
    /// # Panics
    /// If it is not more than 0.
    pub fn mb_per_s(rate: f64) -> Self {
        assert!(rate > 0.0, "a rate is more than nothing");
        Self { ps_per_byte: (1e6 / rate).round() as u64 }
    }

    /// How long so many bytes take.
    pub fn time(self, bytes: u64) -> Duration {
        Duration((bytes * self.ps_per_byte).div_ceil(1000))
    }
}

/// What pages are read from the disk before they are asked for (section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Prefetch {
    /// "All page requests can be satisfied directly from the disk cache; i.e. all disk read accesses are performed in the background."
    Optimal,
    /// "On a disk cache miss, when the controller fills its cache with pages sequentially following the missing page."
    Naive,
}

/// Where dirty pages wait for their disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staging {
    /// In the node's memory, until the disk's controller has taken them (section 3.1).
    None,
    /// On the optical ring (section 3.2).
    Optical(Optical),
    /// In lenders' memory: Loam's staging ring.
    Lenders(Lenders),
}

/// Loam's ring: what its copies take. See `docs/simulator-write-cache.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lenders {
    /// Copies that must be safe before the frame is free.
    pub copies: usize,
    /// Pages of a borrower's channel.
    pub places: usize,
    /// From the decision to the first byte at the sender, and from the last at the receiver to the end: what does not depend on size.
    pub request: Duration,
    /// The lender, for each page.
    pub lender: Duration,
    /// The network interface, for each page.
    pub wire: Duration,
    /// The borrower's own part of a page that comes.
    pub install: Duration,
}

/// How seek times lie between the shortest and the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeekCurve {
    /// With the root of the distance.
    Root,
    /// With the distance.
    Linear,
    /// All seeks are the shortest: files that are as small on the disk as they are.
    Shortest,
}

/// A disk's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskTimes {
    /// To the next block that does not follow.
    pub seek_min: Duration,
    /// Across all of the files.
    pub seek_max: Duration,
    /// Each access waits for so long until its block comes round.
    pub rotation: Duration,
    /// Of the transfer.
    pub rate: Rate,
    /// Between shortest and longest seek.
    pub curve: SeekCurve,
}

/// What a disk's arm does first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum First {
    /// What came first.
    WhatCame,
    /// Reads that somebody waits for.
    Reads,
    /// Pages to write.
    Writes,
}

/// What happens to a page that is touched while it waits for its controller in the standard machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leaving {
    /// Where the controller has refused the page and has not asked for it again, it is taken back: its contents are still in memory. Section 3.1 does not
    /// say so, but section 5 has it that "page reads are completed relatively quickly" while swap-outs take long.
    Reclaimed,
    /// Its page-table entry stays locked until the page is safe; it is then read again.
    Locked,
}

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Nodes, at most [`NODES_MAX`].
    pub nodes: usize,
    /// Those with a disk: every `nodes / disks`-th one.
    pub disks: usize,
    /// Consecutive pages that belong to one disk.
    pub group_pages: u64,
    /// Picoseconds of a processor's cycle.
    pub pcycle_ps: u64,
    /// Page frames of a node for what is shared.
    pub frames: u32,
    /// Free frames that a node keeps at least.
    pub frames_free_min: u32,
    /// Entries of a TLB.
    pub tlb_entries: usize,
    /// A TLB miss, in cycles.
    pub tlb_miss_cycles: u64,
    /// A TLB shootdown for the processor that begins it, in cycles.
    pub shootdown_cycles: u64,
    /// An interrupt, in cycles: what a shootdown takes of each other processor.
    pub interrupt_cycles: u64,
    /// A processor's cache.
    pub cache_bytes: u64,
    /// Lines that a write buffer holds.
    pub write_buffer_lines: u64,
    /// Until memory answers, without the transfer.
    pub memory_latency: Duration,
    /// Memory bus.
    pub memory_bus: Rate,
    /// I/O bus.
    pub io_bus: Rate,
    /// A link of the network.
    pub link: Rate,
    /// A router.
    pub hop: Duration,
    /// A page read from a disk's cache, where nobody is in its way.
    pub page_read: Duration,
    /// Pages that a disk controller's cache holds.
    pub controller_pages: usize,
    /// The disks.
    pub disk: DiskTimes,
    /// What their arms do first.
    pub first: First,
    /// What is read ahead.
    pub prefetch: Prefetch,
    /// Where dirty pages wait.
    pub staging: Staging,
    /// What happens to those that are wanted meanwhile.
    pub leaving: Leaving,
    /// After each event, look where every page's newest contents are. For tests.
    pub watched: bool,
}

fn table_1(case: &str) -> f64 {
    printed("table 1", case, "parameter")
}

/// All page frames of a node.
pub(crate) fn memory_frames() -> u32 {
    (table_1("memory per node") as u64 * 1024 / PAGE_BYTES) as u32
}

impl Config {
    /// The standard multiprocessor of table 1, with optimal prefetching.
    pub fn paper() -> Self {
        let ms = |case| Duration::from_millis(table_1(case) as u64);
        assert_eq!(table_1("page size") as u64, PAGE_BYTES, "pages are of one size here");
        let pages = |kib: f64| (kib * 1024.0) as u64 / PAGE_BYTES;
        let config = Self {
            nodes: table_1("nodes") as usize,
            disks: table_1("I/O nodes") as usize,
            group_pages: table_1("pages per disk group (round robin over disks)") as u64,
            pcycle_ps: (table_1("pcycle") * 1000.0) as u64,
            frames: memory_frames() - PRIVATE_FRAMES,
            frames_free_min: 0,
            // MIPS R10000, the usual processor of such machines (Yeager, IEEE Micro 16(2), 1996).
            tlb_entries: 64,
            tlb_miss_cycles: table_1("TLB miss") as u64,
            shootdown_cycles: table_1("TLB shootdown") as u64,
            interrupt_cycles: table_1("interrupt") as u64,
            cache_bytes: 16 << 10,
            write_buffer_lines: 16,
            memory_latency: Duration(100),
            memory_bus: Rate::mb_per_s(table_1("memory bus")),
            io_bus: Rate::mb_per_s(table_1("I/O bus")),
            link: Rate::mb_per_s(table_1("network link")),
            hop: Duration(20),
            page_read: Duration(0),
            controller_pages: pages(table_1("disk controller cache")) as usize,
            disk: DiskTimes {
                seek_min: ms("seek min"),
                seek_max: ms("seek max"),
                rotation: ms("rotation"),
                rate: Rate::mb_per_s(table_1("disk rate")),
                curve: SeekCurve::Root,
            },
            first: First::WhatCame,
            prefetch: Prefetch::Optimal,
            staging: Staging::None,
            leaving: Leaving::Reclaimed,
            watched: false,
        };
        let page_read = printed("section 5", "uncontended page read from a disk cache", "time") * 1e3;
        let page_read = config.cycles(page_read as u64);
        Self { page_read, ..config }.with(Prefetch::Optimal, false)
    }

    /// The same machine with this prefetching, with or without the optical ring, and with as many free frames as section 5 found best for it.
    #[must_use]
    pub fn with(self, prefetch: Prefetch, ring: bool) -> Self {
        let [optimal, naive, nwcache] = crate::reproduce::nwcache::least_free_frames();
        let staging = if ring { Staging::Optical(self.optical()) } else { Staging::None };
        let frames_free_min = match (ring, prefetch) {
            (true, _) => nwcache,
            (false, Prefetch::Optimal) => optimal,
            (false, Prefetch::Naive) => naive,
        };
        Self { prefetch, staging, frames_free_min, ..self }
    }

    /// Table 1's ring, with a channel for each node ("the number of cache channels is n", section 3.2).
    fn optical(&self) -> Optical {
        let channel_bytes = (table_1("storage per channel") * 1024.0) as u64;
        Optical {
            round_trip: Duration((table_1("ring round trip") * 1e3) as u64),
            page: Rate::mb_per_s(table_1("ring rate") * 1e3).time(PAGE_BYTES),
            places: (channel_bytes / PAGE_BYTES) as usize,
            nodes: self.nodes,
        }
    }

    /// So many processor cycles.
    pub fn cycles(&self, cycles: u64) -> Duration {
        Duration(cycles * self.pcycle_ps / 1000)
    }

    /// How pages lie on the disks.
    pub fn layout(&self) -> Layout {
        Layout { group_pages: self.group_pages, disks: self.disks }
    }

    /// The node that has a disk.
    pub fn node_of(&self, disk: usize) -> usize {
        disk * (self.nodes / self.disks)
    }

    /// What is wrong with it.
    ///
    /// # Panics
    /// If a machine cannot be like this.
    pub(super) fn check(&self) {
        assert!((1..=NODES_MAX).contains(&self.nodes), "1 to {NODES_MAX} nodes");
        assert!((1..=self.nodes).contains(&self.disks), "1 to {} disks", self.nodes);
        assert!(self.frames_free_min >= 1, "a node with no free frame waits for ever");
        assert!(self.frames > self.frames_free_min, "more frames than must be free");
        assert!(self.controller_pages >= 1 && self.group_pages >= 1 && self.tlb_entries >= 1, "sizes");
        assert!(
            self.cache_bytes.is_multiple_of(LINE_BYTES) && self.cache_bytes > 0,
            "a cache of whole lines"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_table_1_s() {
        let config = Config::paper();
        assert_eq!(config.memory_bus.time(PAGE_BYTES), Duration(5_120));
        assert_eq!(config.link.time(PAGE_BYTES), Duration(20_480));
        assert_eq!(config.io_bus.time(PAGE_BYTES), Duration(13_652));
        assert_eq!((config.frames, config.controller_pages), (64 - 12, 4));
        assert_eq!(config.cycles(200_000_000), Duration::from_millis(1_000));
    }

    #[test]
    fn free_frames_are_section_5_s() {
        let min = |prefetch, ring| Config::paper().with(prefetch, ring).frames_free_min;
        assert_eq!(min(Prefetch::Optimal, false), 12);
        assert_eq!(min(Prefetch::Naive, false), 4);
        assert_eq!([Prefetch::Optimal, Prefetch::Naive].map(|prefetch| min(prefetch, true)), [2, 2]);
    }

    #[test]
    fn a_channel_s_pages_fill_its_fibre() {
        let Staging::Optical(ring) = Config::paper().with(Prefetch::Naive, true).staging else { panic!() };
        assert_eq!(ring.places, 16);
        // 64 KiB at 1.25 GB/s go round in 52.4 us: the paper's 52 are rounded.
        assert!(ring.page.0.abs_diff(ring.round_trip.0 / 16) < 30);
    }
}
