//! A disk that loses power: what was not synced is there, or not, or torn.

use super::super::layout::{DATA_OFFSET_BYTES, Geometry, TABLE_OFFSETS_BYTES, Table};
use super::super::{DiskStore, StoredPage, recover};
use crate::disk_store::device::Device;
use loam_disk::{Buffer, EngineError, Finished};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::cell::RefCell;
use std::rc::Rc;

const SECTOR: usize = 512;

/// SplitMix64: the same seed draws the same.
pub(super) struct Draw(pub(super) u64);

impl Draw {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// How often, in a thousand, it fails.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Failing {
    pub(super) writes: u64,
    pub(super) errno: Option<Errno>,
    pub(super) syncs: u64,
    pub(super) reads: u64,
}

enum Operation {
    Write {
        tag: u64,
        offset: usize,
        buffer: Buffer,
        bytes: usize,
    },
    Read {
        tag: u64,
        offset: usize,
        buffer: Buffer,
        bytes: usize,
    },
    /// Covers so many of what had ended when it was begun.
    Sync {
        tag: u64,
        covers: usize,
    },
}

pub(super) struct Disk {
    pub(super) durable: Vec<u8>,
    /// Ended and not synced, in order.
    volatile: Vec<(usize, Vec<u8>)>,
    under_way: Vec<Operation>,
    pub(super) draw: Draw,
    pub(super) failing: Failing,
    /// A sync that is under way stays so.
    pub(super) hold_syncs: bool,
    /// The queue to it fails.
    pub(super) dead: bool,
    /// It will, from the next read or write on.
    dies_of_next: bool,
    /// Reads of this byte fail.
    pub(super) bad_byte: Option<usize>,
    /// Writes that ended.
    pub(super) writes: u64,
}

/// The same disk before and after a crash.
#[derive(Clone)]
pub(crate) struct PowerDisk(pub(super) Rc<RefCell<Disk>>, Rc<OwnedFd>);

impl PowerDisk {
    pub(super) fn new(geometry: &Geometry, seed: u64) -> Self {
        let mut durable = vec![0; geometry.file_bytes() as usize];
        for (generation, offset) in TABLE_OFFSETS_BYTES.into_iter().enumerate() {
            let table = Table { generation: generation as u64 + 1, next_sequence: 1, spaces: Vec::new() };
            table.encode(geometry.store, &mut durable[offset as usize..]);
        }
        let disk = Rc::new(RefCell::new(Disk {
            durable,
            volatile: Vec::new(),
            under_way: Vec::new(),
            draw: Draw(seed),
            failing: Failing::default(),
            hold_syncs: false,
            dead: false,
            dies_of_next: false,
            bad_byte: None,
            writes: 0,
        }));
        // Always readable: each look may find something.
        let event = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        Self(disk, Rc::new(event))
    }

    /// The queue to it fails from the next read or write on.
    pub(crate) fn die_of_the_next(&self) {
        self.0.borrow_mut().dies_of_next = true;
    }

    pub(super) fn open(&self, geometry: Geometry) -> (DiskStore<Self>, Vec<StoredPage>) {
        let mut device = self.clone();
        let found = recover::recover(&mut device, &geometry).expect("a table is always whole");
        DiskStore::with(device, geometry, found)
    }

    /// Power goes: of what was not synced each write is there, or not, or in part.
    pub(super) fn lose_power(&self) {
        let mut disk = self.0.borrow_mut();
        let Disk { durable, volatile, under_way, draw, .. } = &mut *disk;
        let begun = under_way.drain(..).filter_map(|operation| match operation {
            Operation::Write { offset, buffer, bytes, .. } => Some((offset, buffer[..bytes].to_vec())),
            _ => None,
        });
        for (offset, bytes) in volatile.drain(..).chain(begun) {
            let way = draw.below(4);
            for (at, sector) in bytes.chunks(SECTOR).enumerate() {
                let there = way == 0 || (way == 1 && draw.below(2) == 0) || (way == 2 && draw.below(20) != 0);
                if there {
                    durable[offset + at * SECTOR..][..sector.len()].copy_from_slice(sector);
                }
            }
        }
    }

    /// Flips a bit of what is durable.
    pub(super) fn flip(&self, at: usize, bit: u32) {
        self.0.borrow_mut().durable[at] ^= 1 << bit;
    }
}

impl Disk {
    fn end(&mut self, operation: Operation) -> Finished {
        let fails = |draw: &mut Draw, permille: u64| permille > 0 && draw.below(1000) < permille;
        match operation {
            Operation::Write { tag, offset, buffer, bytes } => {
                self.writes += 1;
                let mut data = buffer[..bytes].to_vec();
                let outcome =
                    if offset as u64 >= DATA_OFFSET_BYTES && fails(&mut self.draw, self.failing.writes) {
                        // As far as it came.
                        data.truncate(self.draw.below((bytes / SECTOR) as u64) as usize * SECTOR);
                        Err(self.failing.errno.unwrap_or(Errno::IO))
                    } else {
                        Ok(())
                    };
                self.volatile.push((offset, data));
                Finished { token: tag, buffer: Some(buffer), outcome }
            }
            Operation::Read { tag, offset, mut buffer, bytes } => {
                buffer[..bytes].copy_from_slice(&self.durable[offset..offset + bytes]);
                for (from, data) in &self.volatile {
                    let start = offset.max(*from);
                    let end = (offset + bytes).min(from + data.len());
                    if start < end {
                        buffer[start - offset..end - offset].copy_from_slice(&data[start - from..end - from]);
                    }
                }
                let bad = self.bad_byte.is_some_and(|at| (offset..offset + bytes).contains(&at));
                let failed = bad || fails(&mut self.draw, self.failing.reads);
                let outcome = if failed { Err(Errno::IO) } else { Ok(()) };
                Finished { token: tag, buffer: Some(buffer), outcome }
            }
            Operation::Sync { tag, covers } => {
                let failed = fails(&mut self.draw, self.failing.syncs);
                for (offset, data) in self.volatile.drain(..covers) {
                    // A failed sync has lost what it covers, and the next one does not say so.
                    if !failed {
                        self.durable[offset..offset + data.len()].copy_from_slice(&data);
                    }
                }
                Finished { token: tag, buffer: None, outcome: if failed { Err(Errno::IO) } else { Ok(()) } }
            }
        }
    }
}

impl Device for PowerDisk {
    fn write(&mut self, tag: u64, offset_bytes: u64, buffer: Buffer, bytes: usize) {
        assert!(bytes.is_multiple_of(SECTOR) && offset_bytes.is_multiple_of(SECTOR as u64), "not aligned");
        let mut disk = self.0.borrow_mut();
        let offset = offset_bytes as usize;
        let clash = disk.under_way.iter().any(|other| match other {
            Operation::Write { offset: o, bytes: b, .. } => offset < o + b && *o < offset + bytes,
            _ => false,
        });
        assert!(!clash, "two writes to one place at once");
        disk.dead |= disk.dies_of_next;
        disk.under_way.push(Operation::Write { tag, offset, buffer, bytes });
    }

    fn read(&mut self, tag: u64, offset_bytes: u64, buffer: Buffer, bytes: usize) {
        let mut disk = self.0.borrow_mut();
        disk.dead |= disk.dies_of_next;
        disk.under_way.push(Operation::Read { tag, offset: offset_bytes as usize, buffer, bytes });
    }

    fn sync(&mut self, tag: u64) {
        let mut disk = self.0.borrow_mut();
        assert!(!disk.under_way.iter().any(|o| matches!(o, Operation::Sync { .. })), "two syncs at once");
        let covers = disk.volatile.len();
        disk.under_way.push(Operation::Sync { tag, covers });
    }

    fn submit(&mut self) -> Result<(), EngineError> {
        if self.0.borrow().dead {
            return Err(EngineError { what: "the test", errno: Errno::IO });
        }
        Ok(())
    }

    /// Each operation that is under way ends or not, in any order.
    fn finished(&mut self, into: &mut Vec<Finished>) -> Result<(), EngineError> {
        let mut disk = self.0.borrow_mut();
        for _ in 0..disk.under_way.len() {
            let (count, one) = (disk.under_way.len() as u64, disk.draw.next());
            let operation = disk.under_way.swap_remove((one % count) as usize);
            let held = disk.hold_syncs && matches!(operation, Operation::Sync { .. });
            if disk.draw.below(2) == 0 && !held {
                let ended = disk.end(operation);
                into.push(ended);
            } else {
                disk.under_way.push(operation);
            }
        }
        Ok(())
    }

    fn wait(&mut self) {}

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.1.as_fd()
    }

    fn data_from(&self, offset_bytes: u64) -> Option<u64> {
        let disk = self.0.borrow();
        let (from, zeros) = (offset_bytes as usize / SECTOR * SECTOR, [0; SECTOR]);
        let sectors = disk.durable[from..].chunks(SECTOR);
        let first = sectors.enumerate().find(|(_, sector)| *sector != &zeros[..sector.len()])?.0;
        Some((from + first * SECTOR).max(offset_bytes as usize) as u64)
    }
}
