//! The node's book of regions: who has which, what may be done with it, and what becomes of it. The ledger of the memory is
//! [`loam_core::region::Spans`]; here are names, owners and who has what open.

use super::making::{Making, Purpose};
use super::pieces::{Piece, release};
use super::room::Room;
use loam_core::region::{BorrowerId, Spans};
use loam_core::units::{BASE_PAGE_BYTES, BasePages, Bytes};
use loam_wire::limits::{REGION_SPANS_MAX, REGIONS_MAX};
use loam_wire::{RegionCall, RegionEntry, RegionFigures, RegionRefusal, RegionSpan, region_flag};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Regions of one user who is not the node's own.
pub(super) const REGIONS_OF_USER_MAX: usize = 64;
/// Base pages of a huge page.
pub(super) const HUGE_PAGES: u64 = 512;
/// Base pages that have an address: 1 PiB, as in [`loam_core::region::Layout::WIDE`].
const ROOM_PAGES: u64 = 1 << 38;

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
    /// Which connection; never used again.
    pub(crate) connection: u64,
    /// Whose, as the kernel says.
    pub(crate) uid: u32,
}

impl Call {
    /// It may need memory to be made.
    pub(super) fn may_make(&self) -> bool {
        matches!(self.call, RegionCall::Create | RegionCall::Resize)
    }
}

/// What a call came to.
#[derive(Debug)]
pub(super) enum Answer {
    Region(RegionEntry, Vec<RegionSpan>, Vec<Arc<OwnedFd>>),
    Regions(RegionFigures, Vec<RegionEntry>),
}

/// Why nothing was done, and in words.
pub(super) type Refused = (RegionRefusal, String);

#[derive(Debug)]
pub(super) struct Region {
    /// Never used again: what its holders call it by.
    id: u64,
    name: String,
    /// It has no right to its name any more, and goes when nobody has it open any more.
    removed: bool,
    owner: u32,
    flags: u8,
    pub(super) pieces: Vec<Piece>,
    /// Connections that have it open.
    opens: Vec<u64>,
    /// One of them alone may.
    exclusive: bool,
    /// The connection with which it goes.
    bound_to: Option<u64>,
}

impl Region {
    fn pages(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.span.pages).sum()
    }

    pub(super) fn is_huge(&self) -> bool {
        self.flags & region_flag::HUGE != 0
    }

    fn entry(&self) -> RegionEntry {
        let (bytes, opens) = (BasePages(self.pages()).bytes().0, self.opens.len() as u32);
        let shared = if self.exclusive || self.opens.is_empty() { 0 } else { region_flag::SHARED };
        RegionEntry::new(
            self.id,
            &self.name,
            self.owner,
            bytes,
            opens,
            self.pieces.len() as u32,
            self.flags | shared,
        )
    }

    pub(super) fn answer(&self, connection: u64) -> Answer {
        if !self.opens.contains(&connection) {
            return Answer::Region(self.entry(), Vec::new(), Vec::new());
        }
        let page = BASE_PAGE_BYTES as u64;
        let span = |piece: &Piece| RegionSpan::new(piece.span.first * page, 0, piece.span.pages * page);
        let files = self.pieces.iter().map(|piece| Arc::clone(&piece.file)).collect();
        Answer::Region(self.entry(), self.pieces.iter().map(span).collect(), files)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Book<R> {
    pub(super) spans: Spans,
    /// By number, never used again: the borrower of its leases.
    pub(super) regions: BTreeMap<u64, Region>,
    number_last: u64,
    /// One at a time.
    pub(super) making: Option<Making>,
    /// The node's own user.
    own: u32,
    pub(super) room: R,
}

pub(super) fn refuse<T>(why: RegionRefusal, text: impl Into<String>) -> Result<T, Refused> {
    Err((why, text.into()))
}

/// Names may stand in a path or a command line as they are.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && name.bytes().all(plain) && !name.starts_with(['.', '-'])
}

impl<R: Room> Book<R> {
    /// A book of a node that lends at most `limit`, and runs as user `own`.
    pub(super) fn new(limit: BasePages, own: u32, room: R) -> Self {
        let spans = Spans::new(ROOM_PAGES, limit.0);
        Self { spans, regions: BTreeMap::new(), number_last: 0, making: None, own, room }
    }

    /// Answers a call, or begins with what [`Self::go_on`] will answer.
    ///
    /// # Panics
    /// If memory is being made and the call [may need some](Call::may_make).
    pub(super) fn begin(&mut self, call: &Call) -> Option<Result<Answer, Refused>> {
        self.handle(call).transpose()
    }

    /// `None`: memory is being made for it.
    fn handle(&mut self, call: &Call) -> Result<Option<Answer>, Refused> {
        match call.call {
            RegionCall::List => Ok(Some(self.list(call.uid))),
            _ if !is_name(&call.name) => refuse(
                RegionRefusal::Invalid,
                "a region's name has 1 to 64 letters, digits, '.', '_' or '-', and begins with none of '.' and '-'",
            ),
            RegionCall::Create => self.create(call).map(|()| None),
            RegionCall::Open => self.open(call).map(Some),
            RegionCall::Resize => self.resize(call),
            RegionCall::Remove => {
                let number = self.find(call)?;
                let region = self.regions.get_mut(&number).expect("it was just found");
                let answer = Answer::Region(region.entry(), Vec::new(), Vec::new());
                region.removed = true;
                self.drop_unused(number);
                Ok(Some(answer))
            }
        }
    }

    /// A connection has ended: its program has died, or is done.
    pub(super) fn handle_gone(&mut self, connection: u64) {
        self.stop_making_for(connection);
        let mut touched = Vec::new();
        for (number, region) in &mut self.regions {
            let opens = region.opens.len();
            region.opens.retain(|open| *open != connection);
            if region.bound_to == Some(connection) {
                region.removed = true;
            }
            if region.opens.len() < opens || region.removed {
                touched.push(*number);
            }
        }
        touched.into_iter().for_each(|number| self.drop_unused(number));
    }

    fn may(&self, uid: u32, region: &Region) -> bool {
        uid == region.owner || uid == self.own
    }

    fn find(&self, call: &Call) -> Result<u64, Refused> {
        // A name may have been given to another since; who has a region open goes on with the one that it has.
        let named = if call.id == 0 {
            self.named(&call.name)
        } else {
            let known = self.regions.get_key_value(&call.id);
            known.filter(|(_, region)| !region.removed || region.opens.contains(&call.connection))
        };
        match named {
            None => refuse(
                RegionRefusal::NotFound,
                format!(
                    "there is no region \"{}\" (any more): `loam region list` shows what there is",
                    call.name
                ),
            ),
            Some((_, region)) if !self.may(call.uid, region) => refuse(
                RegionRefusal::Denied,
                format!("region \"{}\" is another user's: choose another name", call.name),
            ),
            Some((number, _)) => Ok(*number),
        }
    }

    fn named(&self, name: &str) -> Option<(&u64, &Region)> {
        self.regions.iter().find(|(_, region)| !region.removed && region.name == name)
    }

    fn list(&self, uid: u32) -> Answer {
        let mine = self.regions.values().filter(|region| !region.removed && self.may(uid, region));
        let mut entries: Vec<RegionEntry> = mine.map(Region::entry).collect();
        entries.sort_by(|a, b| a.name().cmp(b.name()));
        let limit = self.spans.limit() - self.spans.used();
        let free = BasePages(limit.min(self.room.free().0)).bytes();
        Answer::Regions(RegionFigures::new(BasePages(self.spans.used()).bytes().0, free.0), entries)
    }

    fn create(&mut self, call: &Call) -> Result<(), Refused> {
        if call.flags & region_flag::SHARED != 0 {
            return refuse(
                RegionRefusal::Invalid,
                "a region is shared by who opens it, not by who creates it",
            );
        }
        if self.named(&call.name).is_some() {
            return refuse(
                RegionRefusal::Exists,
                format!("there is a region \"{}\" already: choose another name", call.name),
            );
        }
        let of_user = self.regions.values().filter(|region| region.owner == call.uid).count();
        if self.regions.len() >= REGIONS_MAX || (call.uid != self.own && of_user >= REGIONS_OF_USER_MAX) {
            return refuse(
                RegionRefusal::TooMany,
                format!(
                    "this node has too many regions ({REGIONS_MAX} in all, {REGIONS_OF_USER_MAX} of one user): remove one"
                ),
            );
        }
        let flags = call.flags & (region_flag::HUGE | region_flag::TEMPORARY);
        let pages = pages_of(call.bytes, flags & region_flag::HUGE != 0)?;
        self.number_last += 1;
        let number = self.number_last;
        let bound_to = (flags & region_flag::TEMPORARY != 0).then_some(call.connection);
        let region = Region {
            id: number,
            name: call.name.clone(),
            removed: false,
            owner: call.uid,
            flags,
            pieces: Vec::new(),
            opens: Vec::new(),
            exclusive: false,
            bound_to,
        };
        let huge = region.is_huge();
        self.begin_making(Purpose::Create(region), number, call.connection, pages, huge)
    }

    fn open(&mut self, call: &Call) -> Result<Answer, Refused> {
        let number = self.find(call)?;
        let region = self.regions.get_mut(&number).expect("it was just found");
        // Once more by the same: it wants to see what has become of it.
        if region.opens.contains(&call.connection) {
            return Ok(region.answer(call.connection));
        }
        let shared = call.flags & region_flag::SHARED != 0;
        // Alone is for one user: who had its memory before may have kept it, and only programs of one user trust each other that far.
        if !shared && call.uid != region.owner {
            return refuse(
                RegionRefusal::Denied,
                format!(
                    "region \"{}\" is another user's (number {}): open it together with others (SharedRegion), not alone",
                    call.name, region.owner
                ),
            );
        }
        if !region.opens.is_empty() && (region.exclusive || !shared) {
            let text = if region.exclusive { "for itself alone" } else { "together with others" };
            return refuse(
                RegionRefusal::InUse,
                format!("a program has region \"{}\" open {text}: wait until it is done", call.name),
            );
        }
        region.exclusive = !shared;
        region.opens.push(call.connection);
        Ok(region.answer(call.connection))
    }

    fn resize(&mut self, call: &Call) -> Result<Option<Answer>, Refused> {
        let number = self.find(call)?;
        let region = &self.regions[&number];
        let (huge, have) = (region.is_huge(), region.pages());
        let want = pages_of(call.bytes, huge)?;
        if want > have {
            if region.pieces.len() >= REGION_SPANS_MAX {
                return refuse(
                    RegionRefusal::TooMany,
                    format!("region \"{}\" has grown {REGION_SPANS_MAX} times: make a new one", call.name),
                );
            }
            self.begin_making(Purpose::Grow, number, call.connection, want - have, huge)?;
            return Ok(None);
        }
        if want < have {
            // What somebody has mapped is not taken from under it. (Who asks sees to its own mappings.)
            if region.opens.iter().any(|open| *open != call.connection) {
                return refuse(
                    RegionRefusal::InUse,
                    format!("a program has region \"{}\" open: it can shrink when that is done", call.name),
                );
            }
            self.shrink(number, want)?;
        }
        Ok(Some(self.regions[&number].answer(call.connection)))
    }

    /// A region that has no name and that nobody has open goes.
    fn drop_unused(&mut self, number: u64) {
        let unused = |region: &Region| region.removed && region.opens.is_empty();
        if !self.regions.get(&number).is_some_and(unused) {
            return;
        }
        let region = self.regions.remove(&number).expect("it was just there");
        // (Not all of its leases: it may have been growing.)
        for piece in region.pieces {
            // First the memory, then its place for others.
            release(piece.file, piece.span.pages);
            assert_eq!(self.spans.keep(BorrowerId(number), piece.lease, 0), Some(piece.span));
            self.room.give(BasePages(piece.span.pages));
        }
    }

    /// Looks at everything.
    ///
    /// # Panics
    /// If regions and ledger do not say the same.
    #[cfg(test)]
    pub(super) fn audit(&self) {
        self.spans.audit();
        let pages: u64 = self.regions.values().map(Region::pages).sum();
        assert_eq!(pages + self.making_pages(), self.spans.used());
        for (number, region) in &self.regions {
            assert!(!region.removed || !region.opens.is_empty(), "nobody can reach it");
            assert!(!region.exclusive || region.opens.len() <= 1);
            assert_eq!(region.id, *number);
            for piece in &region.pieces {
                assert_eq!(self.spans.span(BorrowerId(*number), piece.lease), Some(piece.span));
                let bytes = rustix::fs::fstat(&piece.file).expect("it is open").st_size;
                assert_eq!(bytes as u64, BasePages(piece.span.pages).bytes().0);
            }
        }
    }

    /// Base pages of all regions, by number.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> Vec<(u64, u64)> {
        self.regions.iter().map(|(number, region)| (*number, region.pages())).collect()
    }

    #[cfg(test)]
    pub(super) fn room(&self) -> &R {
        &self.room
    }
}

/// Whole pages of a region of `bytes`.
fn pages_of(bytes: u64, huge: bool) -> Result<u64, Refused> {
    let pages = bytes.div_ceil(BASE_PAGE_BYTES as u64);
    let pages = if huge { pages.next_multiple_of(HUGE_PAGES) } else { pages };
    if pages == 0 || pages > ROOM_PAGES {
        let max = BasePages(ROOM_PAGES).bytes();
        return refuse(
            RegionRefusal::Invalid,
            format!("a region has at least {} and at most {max}", Bytes(4096)),
        );
    }
    Ok(pages)
}
