//! The slot file of one borrower.

use super::hand::hash_of;
use super::script::DiskFault;
use super::seat::Seat;
use super::sim::{FailureKind, Sabotage, SeatEvent, Sim};
use loam_core::borrower::{Arrival, BufferIndex, CopyIndex, Source};
use loam_core::ids::Version;
use loam_core::units::{Duration, Instant};
use std::collections::BTreeMap;

const WRITE: Duration = Duration::from_micros(100);
const READ: Duration = Duration::from_micros(200);

#[derive(Clone, Copy, Debug)]
enum Operation {
    Write(CopyIndex, BufferIndex),
    Read(CopyIndex, Version, BufferIndex),
}

#[derive(Debug, Default)]
pub(crate) struct Disk {
    slots: BTreeMap<CopyIndex, u64>,
    pub writes: Vec<(CopyIndex, BufferIndex)>,
    pub reads: Vec<(CopyIndex, Version, BufferIndex)>,
    operations: BTreeMap<u64, Operation>,
    last: u64,
    pub fault: Option<(DiskFault, Instant)>,
}

impl Disk {
    /// A slot holds this.
    pub(crate) fn has(&self, copy: CopyIndex, value: u64) -> bool {
        self.slots.get(&copy) == Some(&value)
    }

    fn faulty(&self, sim: &Sim) -> Option<DiskFault> {
        self.fault.filter(|(_, until)| !sim.quiet && *until > sim.now).map(|(fault, _)| fault)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.operations.len()
    }
}

impl Seat {
    /// Hands what was queued to the disk. True: some was refused, and the policy has been told.
    pub(crate) fn submit_disk(&mut self, sim: &mut Sim) -> bool {
        for (copy, version, buffer) in std::mem::take(&mut self.disk.reads) {
            self.begin(Operation::Read(copy, version, buffer), READ, sim);
        }
        let writes = std::mem::take(&mut self.disk.writes);
        let refused = self.disk.faulty(sim) == Some(DiskFault::Full) && !writes.is_empty();
        for (copy, buffer) in writes {
            if sim.sabotage == Sabotage::SkipsWrites && sim.disk_dice.once_in(8) {
                self.borrower.handle_written(sim.now, copy, true);
            } else if refused {
                self.borrower.handle_written(sim.now, copy, false);
            } else {
                self.begin(Operation::Write(copy, buffer), WRITE, sim);
            }
        }
        refused
    }

    fn begin(&mut self, operation: Operation, typical: Duration, sim: &mut Sim) {
        let slot = |o: &Operation| match *o {
            Operation::Write(copy, _) | Operation::Read(copy, ..) => copy,
        };
        if self.disk.operations.values().any(|o| slot(o) == slot(&operation)) {
            let what = format!("borrower {}: two disk operations on one slot: {operation:?}", self.index);
            sim.fail(FailureKind::WrongBytes, || what);
        }
        self.disk.last += 1;
        self.disk.operations.insert(self.disk.last, operation);
        let delay = sim.disk_dice.delay(typical);
        let operation = self.disk.last;
        self.after(delay, SeatEvent::DiskDone { operation }, sim);
    }

    pub(crate) fn disk_done(&mut self, operation: u64, sim: &mut Sim) {
        let operation = self.disk.operations.remove(&operation).expect("it was begun");
        let fault = self.disk.faulty(sim);
        match operation {
            Operation::Write(copy, buffer) => {
                // The buffer is read as late as a device could: it must not have changed.
                let value = self.buffers[buffer.0 as usize];
                let failed = fault == Some(DiskFault::Writes) && sim.disk_dice.once_in(2);
                sim.log(|| format!("borrower {}: slot {} written {}", self.index, copy.0, !failed));
                self.disk.slots.insert(copy, if failed { value ^ 1 << 62 } else { value });
                self.borrower.handle_written(sim.now, copy, !failed);
            }
            Operation::Read(copy, version, buffer) => {
                let value = self.disk.slots.get(&copy).copied().unwrap_or(0);
                if fault == Some(DiskFault::Reads) && sim.disk_dice.once_in(2) {
                    sim.log(|| format!("borrower {}: slot {} cannot be read", self.index, copy.0));
                    sim.harmed_on_disk.insert(value);
                    let covered = self.covered_but(copy, Source::Disk, sim);
                    self.borrower.handle_missed(sim.now, copy, version, Source::Disk);
                    self.check_covered(&covered, sim);
                    self.drain(sim);
                    return;
                }
                let rots = fault == Some(DiskFault::Rot) && sim.disk_dice.once_in(2);
                let read = if rots { value ^ 1 << 61 } else { value };
                if rots {
                    sim.harmed_on_disk.insert(value);
                    self.disk.slots.insert(copy, read);
                }
                self.fill(buffer, read);
                let covered = if rots { self.covered_but(copy, Source::Disk, sim) } else { Vec::new() };
                let arrival = self.take_arrival(copy, version, read, Source::Disk, 0, sim);
                sim.log(|| {
                    format!("borrower {}: slot {} read: value {read}, {arrival:?}", self.index, copy.0)
                });
                self.check_covered(&covered, sim);
                let wanted = if rots { Arrival::Corrupt } else { Arrival::Taken };
                if arrival != wanted {
                    let what =
                        format!("borrower {}: slot {} brought {read}: {arrival:?}", self.index, copy.0);
                    sim.fail(FailureKind::WrongBytes, || what);
                }
            }
        }
        self.drain(sim);
    }

    /// What is covered without this place of this copy.
    pub(crate) fn covered_but(
        &self,
        copy: CopyIndex,
        place: Source,
        sim: &Sim,
    ) -> Vec<(loam_core::borrower::SpaceKey, u64, u64)> {
        let mut covered = self.covered(sim);
        let except = match place {
            Source::Lender(lender) => Some(lender),
            Source::Disk => None,
        };
        covered.retain(|&(key, base, value)| {
            let Some(view) = self.borrower.copy_of(key, base).filter(|v| v.index == copy) else {
                return false;
            };
            let in_buffer = view.buffer.is_some_and(|b| self.buffers[b.0 as usize] == value);
            let elsewhere =
                sim.settings.cache.is_some() && self.is_at_lender((copy, view.version), except, sim);
            in_buffer || elsewhere || (place != Source::Disk && view.on_disk && self.disk.has(copy, value))
        });
        covered
    }

    pub(crate) fn take_arrival(
        &mut self,
        copy: CopyIndex,
        version: Version,
        value: u64,
        source: Source,
        tag: u32,
        sim: &Sim,
    ) -> Arrival {
        let mut hash = hash_of(value);
        if sim.sabotage == Sabotage::IgnoresHash {
            // What it should hash to, taken from whoever wants it.
            let wanted = self.processes.values().find_map(|p| {
                let mut bases = (0..p.pages.len()).map(|i| p.base_of(i));
                bases.find_map(|b| self.borrower.copy_of(p.key, b).filter(|v| v.index == copy))
            });
            hash = wanted.map_or(hash, |v| v.hash);
        }
        self.borrower.handle_arrival(sim.now, copy, version, hash, source, tag)
    }
}
