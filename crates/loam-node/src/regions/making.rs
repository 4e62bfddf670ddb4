//! A region gets memory: step by step, since clearing it takes about a second for each gigabyte, and others have calls meanwhile. One region at a
//! time. Where it fails everything is as before.

use super::book::{Answer, Book, HUGE_PAGES, Refused, Region, refuse};
use super::memory;
use super::pieces::{Piece, hint};
use super::room::Room;
use loam_core::region::{BorrowerId, LeaseNumber, Span};
use loam_core::units::{BasePages, Bytes};
use loam_wire::RegionRefusal;
use std::sync::Arc;

/// What the memory is for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// This region, which nobody knows of yet.
    Create(Region),
    /// One that is there, unless it goes meanwhile.
    Grow,
}

/// Memory that is being made for a region.
#[derive(Debug)]
pub(super) struct Making {
    purpose: Purpose,
    /// The region's.
    number: u64,
    /// Who has asked for it, and waits.
    connection: u64,
    huge: bool,
    lease: LeaseNumber,
    span: Span,
    memory: memory::Making,
    /// Base pages that the room has given for it, and what of that is taken from the machine.
    taken: u64,
    settled: u64,
}

impl<R: Room> Book<R> {
    /// Memory is being made: [`Self::go_on`] has something to do, and nothing else that makes memory may begin.
    pub(super) fn is_making(&self) -> bool {
        self.making.is_some()
    }

    /// Reserves base pages, and begins to make their memory.
    ///
    /// # Panics
    /// If memory is being made already.
    pub(super) fn begin_making(
        &mut self,
        purpose: Purpose,
        number: u64,
        connection: u64,
        pages: u64,
        huge: bool,
    ) -> Result<(), Refused> {
        assert!(self.making.is_none(), "one at a time");
        let align = if huge { HUGE_PAGES } else { 1 };
        let size = BasePages(pages).bytes();
        let Ok((lease, span)) = self.spans.reserve(BorrowerId(number), pages, align) else {
            let left = BasePages(self.spans.limit() - self.spans.used()).bytes();
            return refuse(
                RegionRefusal::NoRoom,
                format!(
                    "{size} are not free: of {} that this node lends, regions may still get {left}",
                    BasePages(self.spans.limit()).bytes()
                ),
            );
        };
        // Huge pages are set aside already, if at all: whether there are any is seen before runs lose copies.
        let taken = if huge { Ok(0) } else { self.room.take(BasePages(pages)).map(|()| pages) };
        let begun = taken.map_err(|why| (RegionRefusal::NoRoom, why)).and_then(|taken| {
            let begun = memory::Making::begin(size.0, huge).map_err(|why| failed(huge, pages, &why));
            begun.inspect_err(|_| self.room.give_up(BasePages(taken))).map(|memory| (taken, memory))
        });
        match begun {
            Ok((taken, memory)) => {
                let settled = 0;
                let making =
                    Making { purpose, number, connection, huge, lease, span, memory, taken, settled };
                self.making = Some(making);
                Ok(())
            }
            Err(refused) => {
                assert_eq!(self.spans.keep(BorrowerId(number), lease, 0), Some(span));
                Err(refused)
            }
        }
    }

    /// Makes the next piece; answers the call when all is made, or nothing comes of it.
    pub(super) fn go_on(&mut self) -> Option<Result<Answer, Refused>> {
        let mut making = self.making.take()?;
        match self.step(&mut making) {
            Ok(false) => {
                self.making = Some(making);
                None
            }
            Ok(true) => Some(self.finish(making)),
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

    /// Whether that was all.
    fn step(&self, making: &mut Making) -> Result<bool, Refused> {
        let step = making.memory.step().map_err(|why| failed(making.huge, making.span.pages, &why))?;
        let step = Bytes(step).base_pages();
        if !making.huge {
            self.room.settle(step);
            making.settled += step.0;
        }
        if self.room.ends() {
            return refuse(RegionRefusal::NoRoom, "the node ends");
        }
        if !making.memory.is_whole() {
            return Ok(false);
        }
        if making.huge {
            let pages = BasePages(making.span.pages);
            self.room.take(pages).map_err(|why| (RegionRefusal::NoRoom, why))?;
            self.room.settle(pages);
            (making.taken, making.settled) = (pages.0, pages.0);
        }
        Ok(true)
    }

    fn finish(&mut self, making: Making) -> Result<Answer, Refused> {
        let Making { purpose, number, connection, huge, lease, span, memory, .. } = making;
        let back = |this: &mut Self| {
            assert_eq!(this.spans.keep(BorrowerId(number), lease, 0), Some(span));
            this.room.give(BasePages(span.pages));
        };
        let file = match memory.finish() {
            Ok(file) => file,
            Err(why) => {
                back(self);
                return Err(failed(huge, span.pages, &why));
            }
        };
        let piece = Piece { lease, span, file: Arc::new(file) };
        if let Purpose::Create(region) = purpose {
            assert!(self.regions.insert(number, region).is_none());
        }
        let Some(region) = self.regions.get_mut(&number) else {
            drop(piece);
            back(self);
            return refuse(RegionRefusal::NotFound, "the region was removed while it was to grow");
        };
        region.pieces.push(piece);
        Ok(region.answer(connection))
    }

    fn undo(&mut self, making: Making) {
        // First the memory, then its place for others.
        drop(making.memory);
        assert_eq!(self.spans.keep(BorrowerId(making.number), making.lease, 0), Some(making.span));
        self.room.give(BasePages(making.settled));
        self.room.give_up(BasePages(making.taken - making.settled));
    }

    /// Base pages of what is being made.
    #[cfg(test)]
    pub(super) fn making_pages(&self) -> u64 {
        self.making.as_ref().map_or(0, |making| making.span.pages)
    }
}

fn failed(huge: bool, pages: u64, why: &std::io::Error) -> Refused {
    let size = BasePages(pages).bytes();
    if huge {
        let text = format!(
            "cannot reserve {size} of huge pages: {why}; set /proc/sys/vm/nr_hugepages, or leave --huge out"
        );
        (RegionRefusal::Unavailable, text)
    } else {
        (RegionRefusal::NoRoom, format!("cannot reserve {size}: {}", hint(why)))
    }
}
