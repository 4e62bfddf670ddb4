//! A region gets memory, or a stretch of one is made anew: step by step, since clearing takes about a second for each gigabyte, and others have calls
//! meanwhile. One region at a time. Where it fails everything is as before.
//!
//! Of the machine's memory: room first (copies of runs may have to go), then the memory, then, if a stretch is cut, a copy of what is kept.
//! Huge pages: first the memory, since there may be none, then the room. Of a device: only clearing.

mod reserving;

use super::book::{Book, Refused, refuse};
use super::memory;
use super::pieces::{Piece, hint};
use super::pool::Clearing;
use super::region::{Answer, Region};
use super::room::Room;
use loam_core::region::{BorrowerId, LeaseNumber, Span};
use loam_core::units::{BasePages, Bytes};
use loam_wire::{MemoryPolicy, RegionRefusal};
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// What the memory is for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// This region, which nobody knows of yet.
    Create(Region),
    /// One that is there, unless it goes meanwhile.
    Grow,
    /// In place of this stretch of one that is there: what is kept of it.
    Cut(usize),
}

#[derive(Debug)]
enum Memory {
    New(memory::Making),
    Device(Clearing),
}

/// A stretch to be.
#[derive(Debug)]
struct Part {
    /// None: it takes the place of another.
    lease: Option<(LeaseNumber, Span)>,
    memory: Memory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Copies of runs are on their way out.
    Room {
        until: Instant,
    },
    Memory,
    /// So many bytes are copied.
    Copy {
        at: u64,
    },
    Done,
}

/// Memory that is being made for a region.
#[derive(Debug)]
pub(super) struct Making {
    purpose: Purpose,
    /// The region's.
    number: u64,
    /// Who has asked for it, and waits.
    connection: u64,
    /// All base pages of it.
    pages: u64,
    huge: bool,
    policy: MemoryPolicy,
    pool: Option<usize>,
    phase: Phase,
    parts: Vec<Part>,
    /// So many parts are whole.
    whole: usize,
    /// Base pages that the room has given for it, and what of that is taken from the machine.
    taken: u64,
    settled: u64,
}

impl<R: Room> Book<R> {
    /// Memory is being made: [`Self::go_on`] has something to do, and nothing else that makes memory may begin.
    pub(super) fn is_making(&self) -> bool {
        self.making.is_some()
    }

    /// What is being made waits for others: to go on at once would change nothing.
    pub(super) fn is_waiting(&self) -> bool {
        self.making.as_ref().is_some_and(|making| matches!(making.phase, Phase::Room { .. }))
    }

    /// This region is being made smaller, and must not be opened meanwhile: what was written to it could be lost.
    pub(super) fn is_cutting(&self, number: u64) -> bool {
        let cut = |making: &Making| matches!(making.purpose, Purpose::Cut(_)) && making.number == number;
        self.making.as_ref().is_some_and(cut)
    }

    /// Makes the next piece; answers the call when all is made, or nothing comes of it.
    pub(super) fn go_on(&mut self) -> Option<Result<Answer, Refused>> {
        let mut making = self.making.take()?;
        match self.step(&mut making) {
            Ok(()) if making.phase == Phase::Done => Some(self.finish(making)),
            Ok(()) => {
                self.making = Some(making);
                None
            }
            Err(refused) => {
                self.undo(making);
                Some(Err(refused))
            }
        }
    }

    /// Nobody waits for what is being made, if that is for this connection.
    pub(super) fn stop_making_for(&mut self, connection: u64) {
        if let Some(making) = self.making.take_if(|making| making.connection == connection) {
            self.undo(making);
        }
    }

    fn step(&self, making: &mut Making) -> Result<(), Refused> {
        if self.room.ends() {
            return refuse(RegionRefusal::NoRoom, "the node ends");
        }
        let cut = match making.purpose {
            Purpose::Cut(stretch) => Some(stretch),
            _ => None,
        };
        match making.phase {
            Phase::Room { until } => {
                if self.room.has_come() {
                    making.phase = Phase::Memory;
                    if making.huge {
                        self.room.settle(BasePages(making.pages));
                        making.settled = making.pages;
                        making.phase = Phase::Done;
                    }
                } else if Instant::now() >= until {
                    return refuse(RegionRefusal::NoRoom, self.room.refusal(BasePages(making.pages)));
                }
            }
            Phase::Memory => {
                self.fill(making)?;
                if making.whole == making.parts.len() {
                    making.phase = if cut.is_some() { Phase::Copy { at: 0 } } else { Phase::Done };
                    if making.huge {
                        self.take_room(making)?;
                    }
                }
            }
            Phase::Copy { at } => {
                let (Some(stretch), Memory::New(to)) = (cut, &making.parts[0].memory) else {
                    unreachable!("only what is cut is copied")
                };
                // (It may have gone meanwhile. Then nothing comes of it.)
                let from =
                    self.regions.get(&making.number).map(|region| Arc::clone(&region.pieces[stretch].file));
                let bytes = BasePages(making.pages).bytes().0;
                let copied =
                    from.map_or(Ok(bytes - at), |from| memory::copy_step(&from, to.file(), at, bytes));
                let at = at + copied.map_err(|why| failed(false, false, making.pages, &why))?;
                making.phase = if at < bytes { Phase::Copy { at } } else { Phase::Done };
            }
            Phase::Done => unreachable!("it is finished then"),
        }
        Ok(())
    }

    /// Makes the next piece of the part that is not yet whole.
    fn fill(&self, making: &mut Making) -> Result<(), Refused> {
        // Before each: others have taken some meanwhile.
        if making.pool.is_none() && !making.huge {
            let left = BasePages(making.pages - making.settled).bytes();
            self.memory_nodes.check_room(making.policy, left.0, false)?;
        }
        let part = &mut making.parts[making.whole];
        let (step, is_whole) = match &mut part.memory {
            Memory::New(memory) => (memory.step(), memory.is_whole()),
            Memory::Device(memory) => (memory.step(), memory.is_whole()),
        };
        let step = step.map_err(|why| failed(making.pool.is_some(), making.huge, making.pages, &why))?;
        making.whole += usize::from(is_whole);
        if making.pool.is_none() && !making.huge {
            let step = Bytes(step).base_pages();
            self.room.settle(step);
            making.settled += step.0;
        }
        Ok(())
    }

    fn finish(&mut self, making: Making) -> Result<Answer, Refused> {
        let number = making.number;
        if !matches!(making.purpose, Purpose::Create(_)) && !self.regions.contains_key(&number) {
            self.undo(making);
            return refuse(RegionRefusal::NotFound, "the region was removed while its size was to change");
        }
        let mut made = Vec::new();
        for part in &making.parts {
            match part.memory.finish() {
                Ok(file) => made.push(file),
                Err(why) => {
                    let refused = failed(making.pool.is_some(), making.huge, making.pages, &why);
                    self.undo(making);
                    return Err(refused);
                }
            }
        }
        let Making { purpose, connection, pages, parts, .. } = making;
        if let Purpose::Cut(stretch) = purpose {
            self.exchange(number, stretch, made.remove(0), pages);
        } else {
            if let Purpose::Create(region) = purpose {
                assert!(self.regions.insert(number, region).is_none());
            }
            let region = self.regions.get_mut(&number).expect("seen to above");
            for (part, file) in parts.into_iter().zip(made) {
                let (lease, span) = part.lease.expect("what is new has a place");
                let device = match part.memory {
                    Memory::New(_) => None,
                    Memory::Device(clearing) => Some(clearing.device),
                };
                region.pieces.push(Piece { lease, span, file, device });
            }
        }
        Ok(self.regions[&number].answer(connection))
    }

    /// A stretch that is cut becomes another file, and what was behind it goes.
    fn exchange(&mut self, number: u64, stretch: usize, file: Arc<OwnedFd>, kept: u64) {
        let region = self.regions.get_mut(&number).expect("seen to above");
        let cut = &mut region.pieces[stretch];
        let before = cut.span.pages;
        let old = std::mem::replace(&mut cut.file, file);
        if let Err(why) = memory::release(&old, 0, BasePages(before).bytes().0) {
            tracing::warn!("cannot give a region's memory back before all that have it have ended: {why}");
        }
        self.room.give(BasePages(before));
        self.keep(number, stretch, kept);
    }

    fn undo(&mut self, making: Making) {
        for part in making.parts {
            // First the memory, then its place for others.
            if let Memory::Device(clearing) = &part.memory {
                clearing.undo();
            }
            drop(part.memory);
            if let Some((lease, span)) = part.lease {
                let freed = self.spans_of(making.pool).keep(BorrowerId(making.number), lease, 0);
                assert_eq!(freed, Some(span));
            }
        }
        self.room.give(BasePages(making.settled));
        self.room.give_up(BasePages(making.taken - making.settled));
    }

    /// Base pages of what is being made that have a place of their own, in the machine's memory or in a pool.
    #[cfg(test)]
    pub(super) fn making_pages(&self, pool: Option<usize>) -> u64 {
        let of = self.making.as_ref().filter(|making| making.pool == pool);
        let parts = of.into_iter().flat_map(|making| &making.parts);
        parts.filter_map(|part| part.lease).map(|(_, span)| span.pages).sum()
    }
}

impl Memory {
    /// What programs will map.
    fn finish(&self) -> std::io::Result<Arc<OwnedFd>> {
        match self {
            Self::New(memory) => memory.finish(),
            Self::Device(clearing) => Ok(Arc::clone(clearing.device.file())),
        }
    }
}

fn failed(device: bool, huge: bool, pages: u64, why: &std::io::Error) -> Refused {
    let size = BasePages(pages).bytes();
    if huge {
        let text = format!(
            "cannot reserve {size} of huge pages: {why}; set /proc/sys/vm/nr_hugepages (with --numa that of the memory node: \
             /sys/devices/system/node/nodeN/hugepages), or leave --huge out"
        );
        (RegionRefusal::Unavailable, text)
    } else if device {
        let text = format!(
            "cannot clear {size} of the device: {why}; if it is a file, is there room in its file system? Else see what the \
             kernel says of it (dmesg)"
        );
        (RegionRefusal::Unavailable, text)
    } else {
        (RegionRefusal::NoRoom, format!("cannot reserve {size}: {}", hint(why)))
    }
}
