//! What regions are made of, and how they give it back.

use super::book::{Book, Refused, refuse};
use super::device::Device;
use super::memory;
use super::room::Room;
use loam_core::region::{BorrowerId, LeaseNumber, Span};
use loam_core::units::{BASE_PAGE_BYTES, BasePages};
use loam_wire::RegionRefusal;
use rustix::fd::OwnedFd;
use std::io;
use std::sync::Arc;

/// A stretch of a region's memory: a file of its own, or a span of a device.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) lease: LeaseNumber,
    pub(super) span: Span,
    pub(super) file: Arc<OwnedFd>,
    pub(super) device: Option<Arc<Device>>,
}

impl Piece {
    /// Where it begins in its file.
    pub(super) fn offset(&self) -> u64 {
        if self.device.is_some() { self.span.first * BASE_PAGE_BYTES as u64 } else { 0 }
    }

    /// Gives back what is behind its first `keep` base pages. Somebody may still have its descriptor, or have it mapped, without a right to it: what is
    /// free for others must be free.
    fn release(&self, keep: u64) {
        let (from, bytes) = (BasePages(keep).bytes().0, BasePages(self.span.pages - keep).bytes().0);
        let released = match &self.device {
            Some(device) => device.release(self.offset() + from, bytes),
            None => memory::release(&self.file, from, bytes),
        };
        if let Err(why) = released {
            tracing::warn!("cannot give a region's memory back before all that have it have ended: {why}");
        }
    }
}

impl<R: Room> Book<R> {
    /// Takes away what is behind the first `want` base pages. Where that cuts a stretch that has to be [made anew](Self::begin_making) first, nothing
    /// is done: which one it is, and how many base pages of it stay.
    pub(super) fn shrink(&mut self, number: u64, want: u64) -> Result<Option<(usize, u64)>, Refused> {
        let region = &self.regions[&number];
        let (whole, at) = region.whole_within(want);
        if want > at && region.pool().is_none() {
            if region.is_huge() {
                return refuse(
                    RegionRefusal::Invalid,
                    "a region of huge pages shrinks by what it has grown by, or not at all",
                );
            }
            // It is sealed, and who once had its descriptor could use all of it.
            return Ok(Some((whole, want - at)));
        }
        self.keep(number, whole, want - at);
        Ok(None)
    }

    /// Keeps the first `whole` stretches of a region, and `kept` base pages of the next one.
    pub(super) fn keep(&mut self, number: u64, mut whole: usize, kept: u64) {
        let region = self.regions.get_mut(&number).expect("it was just there");
        let pool = region.pool();
        if kept > 0 {
            let cut = &mut region.pieces[whole];
            let (gone, lease) = (cut.span.pages - kept, cut.lease);
            if gone > 0 && pool.is_some() {
                cut.release(kept);
            }
            cut.span.pages = kept;
            let freed = self.spans_of(pool).keep(BorrowerId(number), lease, kept);
            assert_eq!(freed.map_or(0, |span| span.pages), gone);
            whole += 1;
        }
        let region = self.regions.get_mut(&number).expect("it was just there");
        for piece in region.pieces.split_off(whole) {
            self.give_back(number, pool, &piece);
        }
    }

    /// A stretch that is no region's any more: first the memory, then its place for others.
    pub(super) fn give_back(&mut self, number: u64, pool: Option<usize>, piece: &Piece) {
        piece.release(0);
        let freed = self.spans_of(pool).keep(BorrowerId(number), piece.lease, 0);
        assert_eq!(freed, Some(piece.span));
        if pool.is_none() {
            self.room.give(BasePages(piece.span.pages));
        }
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
