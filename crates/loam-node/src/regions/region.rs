//! A region in the node's book; what is asked of it, and what is answered.

use super::pieces::Piece;
use loam_core::units::{BASE_PAGE_BYTES, BasePages};
use loam_wire::{MemoryPolicy, RegionAsk, RegionCall, RegionEntry, RegionSpan, region_flag};
use rustix::fd::OwnedFd;
use std::sync::Arc;

/// One call, and who makes it.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) request: u64,
    pub(crate) call: RegionCall,
    pub(crate) flags: u8,
    pub(crate) bytes: u64,
    /// Which region; 0: the one that has the name.
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) policy: MemoryPolicy,
    /// By path; empty: of the machine's memory.
    pub(crate) device: String,
    /// Which connection; never used again.
    pub(crate) connection: u64,
    /// Whose, as the kernel says.
    pub(crate) uid: u32,
}

impl Call {
    pub(crate) fn new(request: u64, ask: &RegionAsk<'_>, connection: u64, uid: u32) -> Self {
        Self {
            request,
            call: ask.call,
            flags: ask.flags,
            bytes: ask.bytes,
            id: ask.id,
            name: ask.name.to_owned(),
            policy: ask.policy,
            device: ask.device.to_owned(),
            connection,
            uid,
        }
    }

    /// It may need memory to be made.
    pub(super) fn may_make(&self) -> bool {
        matches!(self.call, RegionCall::Create | RegionCall::Resize)
    }
}

/// What a call came to.
#[derive(Debug)]
pub(super) enum Answer {
    Region(Box<RegionEntry>, Vec<RegionSpan>, Vec<Arc<OwnedFd>>),
    Regions(loam_wire::RegionFigures, Vec<RegionEntry>),
}

#[derive(Debug)]
pub(super) struct Region {
    /// Never used again: what its holders call it by.
    pub(super) id: u64,
    pub(super) name: String,
    /// It has no right to its name any more, and goes when nobody has it open any more.
    pub(super) removed: bool,
    pub(super) owner: u32,
    pub(super) flags: u8,
    /// The pool that it is cut from, and that pool's path; else it is of the machine's memory.
    pub(super) device: Option<(usize, String)>,
    pub(super) policy: MemoryPolicy,
    /// Its pieces begin and end at multiples of so many base pages.
    pub(super) align: u64,
    pub(super) pieces: Vec<Piece>,
    /// Connections that have it open.
    pub(super) opens: Vec<u64>,
    /// One of them alone may.
    pub(super) exclusive: bool,
    /// The connection with which it goes.
    pub(super) bound_to: Option<u64>,
}

impl Region {
    pub(super) fn pages(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.span.pages).sum()
    }

    /// How many of its stretches lie within its first `pages`, and how many base pages those have.
    pub(super) fn whole_within(&self, pages: u64) -> (usize, u64) {
        let (mut whole, mut at) = (0, 0);
        for piece in &self.pieces {
            if at + piece.span.pages > pages {
                break;
            }
            (whole, at) = (whole + 1, at + piece.span.pages);
        }
        (whole, at)
    }

    /// The pool that it is cut from.
    pub(super) fn pool(&self) -> Option<usize> {
        self.device.as_ref().map(|(pool, _)| *pool)
    }

    pub(super) fn is_huge(&self) -> bool {
        self.flags & region_flag::HUGE != 0
    }

    pub(super) fn entry(&self) -> RegionEntry {
        let (bytes, opens) = (BasePages(self.pages()).bytes().0, self.opens.len() as u32);
        let shared = if self.exclusive || self.opens.is_empty() { 0 } else { region_flag::SHARED };
        let device = self.device.as_ref().map_or("", |(_, path)| path);
        RegionEntry::new(
            self.id,
            &self.name,
            self.owner,
            bytes,
            opens,
            self.pieces.len() as u32,
            self.flags | shared,
        )
        .with_memory(self.policy, device, BasePages(self.align).bytes().0)
    }

    pub(super) fn answer(&self, connection: u64) -> Answer {
        if !self.opens.contains(&connection) {
            return Answer::Region(Box::new(self.entry()), Vec::new(), Vec::new());
        }
        let page = BASE_PAGE_BYTES as u64;
        let span =
            |piece: &Piece| RegionSpan::new(piece.span.first * page, piece.offset(), piece.span.pages * page);
        let files = self.pieces.iter().map(|piece| Arc::clone(&piece.file)).collect();
        Answer::Region(Box::new(self.entry()), self.pieces.iter().map(span).collect(), files)
    }
}
