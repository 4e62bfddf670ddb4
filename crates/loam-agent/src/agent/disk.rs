//! The slot file, as the policy uses it: single pages in, runs of consecutive slots out.

use super::{Agent, Token};
use crate::config::Durability;
use crate::slots::{RUN_SLOTS_MAX, SlotFile};
use loam_core::borrower::{BufferIndex, CopyIndex, Source};
use loam_core::ids::Version;
use loam_core::units::BASE_PAGE_BYTES;
use loam_wire::page_hash;

/// Writes that are handed to the kernel between two looks for faults: each takes it some microseconds.
const PIECE_WRITES: usize = 16;

/// One page of a disk operation.
type Item = (CopyIndex, Version, BufferIndex);

#[derive(Debug, Default)]
struct Operation {
    write: bool,
    items: Vec<Item>,
}

/// See the module's documentation.
pub(super) struct Disk {
    pub file: SlotFile,
    writes: Vec<Item>,
    reads: Vec<Item>,
    operations: Vec<Operation>,
    idle: Vec<usize>,
    finished: Vec<(usize, bool)>,
    /// A person knows that there is no room; told again after a write has succeeded.
    told_full: bool,
}

impl Disk {
    pub(super) fn new(file: SlotFile) -> Self {
        let (writes, reads, operations) = (Vec::new(), Vec::new(), Vec::new());
        Self { file, writes, reads, operations, idle: Vec::new(), finished: Vec::new(), told_full: false }
    }

    fn operation(&mut self, write: bool, items: &[Item]) -> usize {
        let token = self.idle.pop().unwrap_or_else(|| {
            self.operations.push(Operation::default());
            self.operations.len() - 1
        });
        let operation = &mut self.operations[token];
        operation.write = write;
        operation.items.clear();
        operation.items.extend_from_slice(items);
        token
    }
}

/// The length of the run of consecutive copies at the front.
fn run(items: &[Item]) -> usize {
    let next = |w: &[Item]| w[0].0.0 + 1 == w[1].0.0;
    (1 + items.windows(2).take_while(|w| next(w)).count()).min(RUN_SLOTS_MAX)
}

impl Agent<'_> {
    /// Whether there is a slot file. Without `--durability disk` it is opened for the first page that too few lenders take, or that one
    /// wants back; if that fails once, lenders have to keep such pages, or the program.
    pub(super) fn has_slot_file(&mut self) -> bool {
        if self.disk.is_some() || self.slot_file_refused {
            return self.disk.is_some();
        }
        match self.open_slot_file() {
            Ok(file) => {
                let why = self.why_slot_file();
                let instead = match self.config.durability.replicas() {
                    1 => "",
                    _ => {
                        ", or use --durability disk, which has one copy of each page with lenders and is quicker where they have no room for more"
                    }
                };
                self.report.warn(&format!(
                    "{why}: what is left goes to a file under {}, which is slower; start another lender to avoid that{instead}",
                    self.config.disk_dir.display()
                ));
                for note in file.notes() {
                    self.report.warn(&note);
                }
                self.disk = Some(Disk::new(file));
            }
            Err(why) => {
                self.slot_file_refused = true;
                let first = self.why_slot_file();
                self.report.warn(&format!(
                    "{first}, and there is nowhere else to take what is left: {why}; start another lender"
                ));
            }
        }
        self.disk.is_some()
    }

    fn why_slot_file(&self) -> String {
        match self.config.durability.replicas() {
            1 => "a lender wants its memory back and no other has room".into(),
            n => format!("there are no {n} lenders with room"),
        }
    }

    fn open_slot_file(&self) -> Result<SlotFile, String> {
        let dir = &self.config.disk_dir;
        if dir.as_os_str().is_empty() {
            return Err("this user has no folder for it (--disk DIR)".to_owned());
        }
        let file = SlotFile::create(dir, 0).map_err(|error| error.to_string())?;
        self.poll_on(file.event_fd(), Token::Disk, false).map_err(|errno| format!("epoll: {errno}"))?;
        Ok(file)
    }

    pub(super) fn queue_write(&mut self, copy: CopyIndex, buffer: BufferIndex) {
        self.disk.as_mut().expect("the caller has looked").writes.push((copy, Version(0), buffer));
    }

    pub(super) fn queue_read(&mut self, copy: CopyIndex, version: Version, buffer: BufferIndex) {
        self.disk.as_mut().expect("what was written is read").reads.push((copy, version, buffer));
    }

    /// Hands what was queued to the kernel.
    pub(super) fn submit_disk(&mut self) {
        let Some(disk) = &mut self.disk else { return };
        if disk.writes.is_empty() && disk.reads.is_empty() {
            return;
        }
        let mut refused: Vec<CopyIndex> = Vec::new();
        let reads = std::mem::take(&mut disk.reads);
        let mut rest = &reads[..];
        let mut failure = None;
        while !rest.is_empty() {
            let (items, after) = rest.split_at(run(rest));
            rest = after;
            let token = disk.operation(false, items);
            let buffers: Vec<*mut u8> = items.iter().map(|i| self.pool.pointer(i.2.0 as usize)).collect();
            // SAFETY: pool buffers are aligned base pages and outlive the file; the policy gave each to this read alone and
            // does not touch it before it is told of the end.
            let queued = unsafe { disk.file.queue_read(token as u64, u64::from(items[0].0.0), &buffers) };
            if let Err(error) = queued {
                failure = Some(error.to_string());
            }
        }
        let writes = std::mem::take(&mut disk.writes);
        let mut rest = &writes[..];
        while !rest.is_empty() {
            let (items, after) = rest.split_at(run(rest));
            rest = after;
            let first = u64::from(items[0].0.0);
            let result = disk.file.reserve(first + items.len() as u64).and_then(|()| {
                let token = disk.operation(true, items);
                let buffers: Vec<*const u8> =
                    items.iter().map(|i| self.pool.pointer(i.2.0 as usize).cast_const()).collect();
                // SAFETY: as above; a buffer under a write is not written before the policy is told of the end.
                unsafe { disk.file.queue_write(token as u64, first, &buffers) }
                    .inspect_err(|_| disk.idle.push(token))
            });
            if let Err(error) = result {
                if !std::mem::replace(&mut disk.told_full, true) {
                    let instead = match self.config.durability {
                        Durability::Disk => "pages that would leave stay in memory, over --local",
                        Durability::None | Durability::Staged | Durability::Replicas(_) => {
                            "pages that lenders want back stay there, and others in memory, over --local"
                        }
                    };
                    self.report.warn(&format!("{error}; {instead}, until there is room"));
                }
                refused.extend(items.iter().map(|i| i.0));
            }
        }
        if let Err(error) = disk.file.submit(PIECE_WRITES) {
            failure = Some(error.to_string());
        }
        if let Some(why) = failure {
            self.end(why);
        }
        let now = self.now();
        for copy in refused {
            self.borrower.handle_written(now, copy, false);
        }
    }

    /// Hands a few more writes to the kernel.
    pub(super) fn submit_piece(&mut self) {
        let Some(disk) = self.disk.as_mut().filter(|disk| disk.file.can_submit()) else { return };
        if let Err(error) = disk.file.submit(PIECE_WRITES) {
            let why = error.to_string();
            self.end(why);
        }
    }

    /// Takes in what the disk has finished.
    pub(super) fn take_disk(&mut self) {
        let Some(disk) = &mut self.disk else { return };
        let mut event = [0_u8; 8];
        let _ = rustix::io::read(disk.file.event_fd(), &mut event);
        let mut finished = std::mem::take(&mut disk.finished);
        let mut errors = Vec::new();
        let result = disk.file.completions(|token, outcome| {
            finished.push((token as usize, outcome.is_ok()));
            errors.extend(outcome.err());
        });
        if let Err(error) = result {
            self.end(error.to_string());
        }
        for error in errors {
            self.report.warn(&error.to_string());
        }
        for (token, done) in finished.drain(..) {
            self.disk_done(token, done);
        }
        if let Some(disk) = &mut self.disk {
            disk.finished = finished;
        }
        self.drain();
        self.flush();
    }

    fn disk_done(&mut self, token: usize, done: bool) {
        let disk = self.disk.as_mut().expect("it has just finished something");
        let items = std::mem::take(&mut disk.operations[token].items);
        let write = disk.operations[token].write;
        let bytes = (items.len() * BASE_PAGE_BYTES) as u64;
        if write {
            disk.told_full &= !done;
            self.report.bytes.disk_written += if done { bytes } else { 0 };
        } else {
            self.report.bytes.disk_read += bytes;
        }
        for &(copy, version, buffer) in &items {
            let now = self.now();
            if write {
                self.borrower.handle_written(now, copy, done);
            } else if done {
                let hash = page_hash(self.pool.page(buffer.0 as usize));
                let arrival = self.borrower.handle_arrival(now, copy, version, hash, Source::Disk, 0);
                if arrival == loam_core::borrower::Arrival::Corrupt {
                    self.report.warn(
                        "the slot file returned a page with wrong contents: check the disk under --disk",
                    );
                }
            } else {
                self.borrower.handle_missed(now, copy, version, Source::Disk);
            }
            self.drain();
        }
        let disk = self.disk.as_mut().expect("still there");
        disk.operations[token].items = items;
        disk.idle.push(token);
    }
}
