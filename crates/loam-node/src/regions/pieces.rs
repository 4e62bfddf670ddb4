//! What regions are made of, and how they give it back. Where something fails, everything is as before.

use super::book::{Book, Refused, refuse};
use super::memory;
use super::room::Room;
use loam_core::region::{BorrowerId, LeaseNumber, Span};
use loam_core::units::{BasePages, Bytes};
use loam_wire::RegionRefusal;
use rustix::fd::OwnedFd;
use std::io;
use std::sync::Arc;

/// A stretch of a region's memory: a file of its own.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) lease: LeaseNumber,
    pub(super) span: Span,
    pub(super) file: Arc<OwnedFd>,
}

impl<R: Room> Book<R> {
    /// Takes away what is behind the first `want` base pages. A stretch that is cut is made anew: it is sealed, and who once had its
    /// descriptor could use all of it.
    pub(super) fn shrink(&mut self, number: u64, want: u64) -> Result<(), Refused> {
        let region = self.regions.get_mut(&number).expect("it was just there");
        let (huge, mut at, mut whole) = (region.is_huge(), 0, 0);
        while at + region.pieces[whole].span.pages <= want {
            at += region.pieces[whole].span.pages;
            whole += 1;
        }
        if want > at {
            let kept = want - at;
            if huge {
                return refuse(
                    RegionRefusal::Unavailable,
                    "a region of huge pages shrinks by what it has grown by, or not at all",
                );
            }
            let failed = |why| (RegionRefusal::NoRoom, why);
            // For a moment it is there twice.
            self.room.take(BasePages(kept)).map_err(failed)?;
            let cut = &mut region.pieces[whole];
            let copied = make_at_once(&self.room, kept).and_then(|file| {
                let bytes = BasePages(kept).bytes().0;
                let ends = || self.room.ends();
                match cut.file.try_clone().and_then(|from| memory::copy(from, &file, bytes, ends)) {
                    Ok(()) => Ok(file),
                    Err(why) => {
                        drop(file);
                        self.room.give(BasePages(kept));
                        Err(why)
                    }
                }
            });
            match copied {
                Ok(file) => release(std::mem::replace(&mut cut.file, Arc::new(file)), cut.span.pages),
                Err(why) => {
                    return refuse(
                        RegionRefusal::NoRoom,
                        format!("cannot make its memory anew: {}", hint(&why)),
                    );
                }
            }
            self.room.give(BasePages(cut.span.pages));
            let freed = self.spans.keep(BorrowerId(number), cut.lease, kept);
            assert_eq!(freed.map(|span| span.pages), Some(cut.span.pages - kept));
            cut.span.pages = kept;
            whole += 1;
        }
        for piece in region.pieces.drain(whole..) {
            let freed = self.spans.keep(BorrowerId(number), piece.lease, 0);
            assert_eq!(freed, Some(piece.span));
            release(piece.file, piece.span.pages);
            self.room.give(BasePages(piece.span.pages));
        }
        Ok(())
    }
}

/// Memory for base pages that were taken of the room. If there is none, the room has them back.
fn make_at_once<R: Room>(room: &R, pages: u64) -> io::Result<OwnedFd> {
    let mut settled = 0;
    let mut make = || {
        let mut memory = memory::Making::begin(BasePages(pages).bytes().0, false)?;
        while !memory.is_whole() {
            let step = Bytes(memory.step()?).base_pages();
            room.settle(step);
            settled += step.0;
            if room.ends() {
                return Err(io::Error::other("the node ends"));
            }
        }
        memory.finish()
    };
    let made = make();
    if made.is_err() {
        room.give(BasePages(settled));
        room.give_up(BasePages(pages - settled));
    }
    made
}

/// Gives memory back that is no region's any more. Somebody may still have its descriptor, or have it mapped, without a right to it: what is free for
/// others must be free.
pub(super) fn release(file: Arc<OwnedFd>, pages: u64) {
    if let Err(why) = memory::release(&file, BasePages(pages).bytes().0) {
        tracing::warn!("cannot give a region's memory back before all that have it have ended: {why}");
    }
}

/// What the system says, and what to do.
pub(super) fn hint(why: &io::Error) -> String {
    let many = why.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error());
    let what = if many {
        "raise the node's limit of open files (ulimit -n)"
    } else {
        "is there a limit on the node?"
    };
    format!("{why}; {what}")
}
