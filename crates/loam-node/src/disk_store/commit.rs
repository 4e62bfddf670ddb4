//! When a page is durable: its write has ended, and an fdatasync that began afterwards has.
//!
//! One fdatasync is under way at a time, and covers all writes that had ended when it began; what ends meanwhile waits for the next
//! (group commit). If spaces came or went, their table is written first and rides on the same sync. Tables alternate between two
//! places, and each is durable before the other is written over.

use super::device::Device;
use super::layout::{TABLE_BYTES, TABLE_OFFSETS_BYTES, Table};
use super::{Completion, DiskStore, Fault, Operation, WriteToken};
use loam_disk::{Buffer, EngineError, Finished};
use rustix::io::Errno;
use std::collections::BTreeMap;

/// Writes that fail one after the other before the store is broken; those for which the disk is full do not count.
const FAILURES_MAX: u32 = 16;

/// The pages of one write.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) slots: Vec<u32>,
    /// Operations that are not over.
    pub(super) parts_left: usize,
    /// The first failure.
    pub(super) fault: Option<Errno>,
    /// Slots where the disk failed.
    pub(super) bad: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    WritingTable,
    Syncing,
}

/// What is on its way to being durable.
#[derive(Debug)]
pub(super) struct Commit {
    groups: BTreeMap<u64, Group>,
    /// Pages in them.
    pages: usize,
    /// Writes that have ended and wait for a sync, and those that the sync under way covers.
    written: Vec<u64>,
    syncing: Vec<u64>,
    step: Step,
    table_dirty: bool,
    table_generation: u64,
    failures_in_a_row: u32,
    /// The kernel's queue itself has failed: nothing that was begun will be heard of.
    dead: bool,
}

impl Commit {
    pub(super) fn new(table_generation: u64, table_dirty: bool) -> Self {
        Self {
            groups: BTreeMap::new(),
            pages: 0,
            written: Vec::new(),
            syncing: Vec::new(),
            step: Step::Idle,
            table_dirty,
            table_generation,
            failures_in_a_row: 0,
            dead: false,
        }
    }

    pub(super) fn begin(&mut self, token: u64, group: Group) {
        self.pages += group.slots.len();
        assert!(self.groups.insert(token, group).is_none(), "a token was given twice");
    }

    fn end(&mut self, token: u64) -> Group {
        let group = self.groups.remove(&token).expect("a write of no pages");
        self.pages -= group.slots.len();
        group
    }

    /// Slots of pages that are not durable yet.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        self.groups.values().flat_map(|group| group.slots.iter().copied())
    }

    /// Pages that are not durable yet.
    pub(super) fn pages(&self) -> usize {
        self.pages
    }

    pub(super) fn table_changed(&mut self) {
        self.table_dirty = true;
    }

    /// The next sync covers what has ended by now. Where a table goes first, what ends while it is written has to wait: its
    /// space may be newer than the table.
    fn cover(&mut self) {
        assert!(self.syncing.is_empty(), "two syncs at once");
        std::mem::swap(&mut self.written, &mut self.syncing);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.groups.is_empty() && self.step == Step::Idle && !self.table_dirty
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }
}

#[expect(private_bounds)]
impl<D: Device> DiskStore<D> {
    pub(super) fn take_finished(&mut self) {
        if self.commit.dead {
            return;
        }
        let mut finished = std::mem::take(&mut self.finished);
        let alive = self.device.finished(&mut finished);
        for Finished { token: tag, buffer, outcome } in finished.drain(..) {
            let operation = self.operations.remove(&tag).expect("the end of what was not begun");
            match operation {
                Operation::Read { token, slot, page, version } => {
                    let buffer = buffer.expect("a read has a buffer");
                    self.read_ended((token, slot, page, version), buffer, outcome);
                }
                Operation::Write { token, run } => {
                    self.write_buffers.extend(buffer);
                    self.write_ended(token, run, outcome);
                }
                Operation::Table => self.table_ended(outcome),
                Operation::Sync => self.sync_ended(outcome),
            }
        }
        self.finished = finished;
        self.release_freed();
        self.survive(alive);
    }

    /// The next table or sync, if there is reason for one, and everything to the kernel.
    pub(super) fn advance(&mut self) {
        if self.broken.is_some() {
            self.commit.table_dirty = false;
        } else if self.commit.step == Step::Idle {
            if self.commit.table_dirty {
                self.write_table();
            } else if !self.commit.written.is_empty() {
                self.commit.cover();
                self.sync();
            }
        }
        self.submit();
    }

    pub(super) fn submit(&mut self) {
        if !self.commit.dead {
            let alive = self.device.submit();
            self.survive(alive);
        }
    }

    fn write_table(&mut self) {
        let commit = &mut self.commit;
        (commit.step, commit.table_dirty) = (Step::WritingTable, false);
        commit.cover();
        commit.table_generation += 1;
        let generation = commit.table_generation;
        let table =
            Table { generation, next_sequence: self.next_sequence, spaces: self.records.spaces().collect() };
        let mut buffer = Buffer::new(TABLE_BYTES);
        table.encode(self.geometry.store, &mut buffer);
        let tag = self.begin(Operation::Table);
        // Generation 1 is in the first place: see `StoreFile`.
        let place = (generation - 1) as usize % TABLE_OFFSETS_BYTES.len();
        self.device.write(tag, TABLE_OFFSETS_BYTES[place], buffer, TABLE_BYTES);
    }

    fn table_ended(&mut self, outcome: Result<(), Errno>) {
        assert!(self.commit.step == Step::WritingTable);
        self.commit.step = Step::Idle;
        match outcome {
            // With a sync, whether pages wait for it or not.
            Ok(()) if self.broken.is_none() => self.sync(),
            Ok(()) => {}
            Err(errno) => {
                self.figures.errors += 1;
                self.break_down(format!("writing the table of spaces failed ({errno})"));
            }
        }
    }

    fn sync(&mut self) {
        assert!(self.commit.step == Step::Idle);
        self.commit.step = Step::Syncing;
        let tag = self.begin(Operation::Sync);
        self.device.sync(tag);
    }

    fn sync_ended(&mut self, outcome: Result<(), Errno>) {
        assert!(self.commit.step == Step::Syncing);
        self.commit.step = Step::Idle;
        match outcome {
            Ok(()) => {
                self.figures.syncs += 1;
                for token in std::mem::take(&mut self.commit.syncing) {
                    let group = self.commit.end(token);
                    for &slot in &group.slots {
                        self.records.durable(slot, &mut self.freed);
                    }
                    self.completions.push(Completion::Durable { token: WriteToken(token) });
                }
            }
            Err(errno) => {
                // After a failed sync the kernel may count lost pages as written: another one would prove nothing.
                self.figures.errors += 1;
                self.break_down(format!("fdatasync failed ({errno})"));
            }
        }
    }

    fn write_ended(&mut self, token: u64, run: super::SlotRun, outcome: Result<(), Errno>) {
        self.writes_under_way -= 1;
        let group = self.commit.groups.get_mut(&token).expect("a write of no pages");
        group.parts_left -= 1;
        match outcome {
            Ok(()) => {
                self.figures.writes += 1;
                self.figures.pages_written += u64::from(run.slots);
                self.figures.bytes_written += u64::from(run.slots) * self.geometry.stride_bytes() as u64;
                self.commit.failures_in_a_row = 0;
            }
            Err(errno) => {
                self.figures.errors += 1;
                group.fault.get_or_insert(errno);
                // A full disk says nothing against the place, nor against the disk: there may be room again.
                if !matches!(errno, Errno::NOSPC | Errno::DQUOT) {
                    self.commit.failures_in_a_row += 1;
                    group.bad.extend(run.each());
                }
            }
        }
        if group.parts_left == 0 {
            match group.fault {
                Some(errno) => self.fail(token, Fault::Disk(errno)),
                None if self.broken.is_some() => self.fail(token, Fault::Broken),
                None => {
                    group.slots.iter().for_each(|&slot| self.records.written(slot));
                    self.commit.written.push(token);
                }
            }
        }
        if let (Err(errno), true) = (outcome, self.commit.failures_in_a_row >= FAILURES_MAX) {
            self.break_down(format!("{FAILURES_MAX} writes in a row failed (last: {errno})"));
        }
    }

    fn fail(&mut self, token: u64, error: Fault) {
        let group = self.commit.end(token);
        for &slot in &group.slots {
            self.records.failed(slot, group.bad.contains(&slot), &mut self.freed);
        }
        self.completions.push(Completion::Failed { token: WriteToken(token), error });
    }

    /// Nothing more is taken. What is durable stays and is read; what waited for a sync has failed.
    fn break_down(&mut self, why: String) {
        if self.broken.is_none() {
            self.broken = Some(format!(
                "disk store: {why}: nothing more is written there; check the disk and start the lender anew"
            ));
        }
        let mut waiting = std::mem::take(&mut self.commit.syncing);
        waiting.append(&mut self.commit.written);
        waiting.into_iter().for_each(|token| self.fail(token, Fault::Broken));
    }

    fn survive(&mut self, alive: Result<(), EngineError>) {
        let Err(error) = alive else { return };
        self.break_down(error.to_string());
        self.commit.dead = true;
        self.commit.step = Step::Idle;
        self.commit.table_dirty = false;
        // The kernel may still write what it has: those slots are never used again.
        let groups = std::mem::take(&mut self.commit.groups);
        self.commit.pages = 0;
        for (token, group) in groups {
            for &slot in &group.slots {
                self.records.failed(slot, true, &mut self.freed);
            }
            self.completions.push(Completion::Failed { token: WriteToken(token), error: Fault::Broken });
        }
        for (_, operation) in std::mem::take(&mut self.operations) {
            if let Operation::Read { token, .. } = operation {
                let token = super::ReadToken(token);
                self.completions.push(Completion::ReadFailed { token, error: Fault::Broken });
            }
        }
        self.release_freed();
    }
}
