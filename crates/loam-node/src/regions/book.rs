//! The node's book of regions: who has which, what may be done with it, and what becomes of it. The ledger of the memory is
//! [`loam_core::region::Spans`]; here are names, owners and who has what open.

mod using;

use super::making::{Making, Purpose};
use super::placement::MemoryNodes;
use super::pool::Pool;
use super::region::{Answer, Call, Region};
use super::room::Room;
use loam_core::region::Spans;
use loam_core::units::{BASE_PAGE_BYTES, BasePages, Bytes};
use loam_wire::limits::{REGION_SPANS_MAX, REGIONS_MAX};
use loam_wire::{RegionCall, RegionEntry, RegionFigures, RegionRefusal, region_flag};
use std::collections::BTreeMap;
use std::path::Path;

/// Regions of one user who is not the node's own.
pub(super) const REGIONS_OF_USER_MAX: usize = 64;
/// Base pages of a huge page.
pub(super) const HUGE_PAGES: u64 = 512;
/// Base pages that have an address: 1 PiB, as in [`loam_core::region::Layout::WIDE`].
const ROOM_PAGES: u64 = 1 << 38;

/// Why nothing was done, and in words.
pub(super) type Refused = (RegionRefusal, String);

/// See the module.
#[derive(Debug)]
pub(super) struct Book<R> {
    /// Of the machine's memory.
    spans: Spans,
    /// What else regions are cut from.
    pub(super) pools: Vec<Pool>,
    pub(super) memory_nodes: MemoryNodes,
    /// By number, never used again: the borrower of its leases.
    pub(super) regions: BTreeMap<u64, Region>,
    number_last: u64,
    /// One at a time.
    pub(super) making: Option<Making>,
    /// The node's own user.
    own: u32,
    /// Whom the kernel names where a user has no number here (another user namespace's): anybody.
    anybody: u32,
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
    /// A book of a node that lends at most `limit`, has `pools` besides, and runs as user `own` on the machine of which `root` tells and which keeps `keep`
    /// for itself.
    pub(super) fn new(
        (limit, keep): (BasePages, Bytes),
        pools: Vec<Pool>,
        root: &Path,
        own: u32,
        room: R,
    ) -> Self {
        let (spans, memory_nodes) = (Spans::new(ROOM_PAGES, limit.0), MemoryNodes::of(root, keep));
        let (regions, anybody) = (BTreeMap::new(), using::overflow_user(root));
        Self { spans, pools, memory_nodes, regions, number_last: 0, making: None, own, anybody, room }
    }

    /// The ledger of the machine's memory, or of a pool.
    pub(super) fn spans_of(&mut self, pool: Option<usize>) -> &mut Spans {
        match pool {
            None => &mut self.spans,
            Some(pool) => &mut self.pools[pool].spans,
        }
    }

    /// The call has to wait until what is being made is made.
    pub(super) fn must_wait(&self, call: &Call) -> bool {
        let number =
            if call.id == 0 { self.named(&call.name).map(|(number, _)| *number) } else { Some(call.id) };
        let opens_cut = call.call == RegionCall::Open && number.is_some_and(|number| self.is_cutting(number));
        opens_cut || (call.may_make() && self.is_making())
    }

    /// Answers a call, or begins with what [`Self::go_on`] will answer.
    ///
    /// # Panics
    /// If memory is being made and the call [has to wait](Self::must_wait) for that.
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
                let answer = Answer::Region(Box::new(region.entry()), Vec::new(), Vec::new());
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
        let pool = if call.device.is_empty() { None } else { Some(self.pool(call)?) };
        let align = match pool {
            Some(pool) => self.pools[pool].align(),
            None if flags & region_flag::HUGE != 0 => HUGE_PAGES,
            None => 1,
        };
        let pages = pages_of(call.bytes, align)?;
        self.number_last += 1;
        let number = self.number_last;
        let bound_to = (flags & region_flag::TEMPORARY != 0).then_some(call.connection);
        let region = Region {
            id: number,
            name: call.name.clone(),
            removed: false,
            owner: call.uid,
            flags,
            device: pool.map(|pool| (pool, call.device.clone())),
            policy: call.policy,
            align,
            pieces: Vec::new(),
            opens: Vec::new(),
            exclusive: false,
            bound_to,
        };
        self.begin_making(Purpose::Create(region), number, call.connection, pages)
    }

    fn open(&mut self, call: &Call) -> Result<Answer, Refused> {
        let number = self.find(call)?;
        if let Some(pool) = self.regions[&number].pool() {
            self.may_use(call.uid, pool)?;
        }
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
        let have = region.pages();
        let want = pages_of(call.bytes, region.align)?;
        if want > have {
            if region.pieces.len() >= REGION_SPANS_MAX {
                return refuse(
                    RegionRefusal::TooMany,
                    format!("region \"{}\" has {REGION_SPANS_MAX} stretches: make a new one", call.name),
                );
            }
            if let Some(pool) = region.pool() {
                self.check_ours(pool)?;
            }
            self.begin_making(Purpose::Grow, number, call.connection, want - have)?;
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
            if let Some((stretch, kept)) = self.shrink(number, want)? {
                self.begin_making(Purpose::Cut(stretch), number, call.connection, kept)?;
                return Ok(None);
            }
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
        for piece in &region.pieces {
            self.give_back(number, region.pool(), piece);
        }
    }

    /// Looks at everything.
    ///
    /// # Panics
    /// If regions and ledger do not say the same.
    #[cfg(test)]
    pub(super) fn audit(&self) {
        for pool in (0..self.pools.len()).map(Some).chain([None]) {
            let spans = pool.map_or(&self.spans, |pool| &self.pools[pool].spans);
            spans.audit();
            let of = self.regions.values().filter(|region| region.pool() == pool);
            assert_eq!(of.map(Region::pages).sum::<u64>() + self.making_pages(pool), spans.used());
        }
        for (number, region) in &self.regions {
            assert!(!region.removed || !region.opens.is_empty(), "nobody can reach it");
            assert!(!region.exclusive || region.opens.len() <= 1);
            assert_eq!(region.id, *number);
            for piece in &region.pieces {
                let spans = region.pool().map_or(&self.spans, |pool| &self.pools[pool].spans);
                assert_eq!(spans.span(loam_core::region::BorrowerId(*number), piece.lease), Some(piece.span));
                assert!(piece.span.first % region.align == 0 && piece.span.pages % region.align == 0);
                let bytes = rustix::fs::fstat(&piece.file).expect("it is open").st_size as u64;
                let (offset, pages) = (piece.offset(), BasePages(piece.span.pages).bytes().0);
                assert!(offset + pages <= bytes && (piece.device.is_some() || pages == bytes));
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

/// Whole pages of a region of `bytes`, a multiple of `align`.
fn pages_of(bytes: u64, align: u64) -> Result<u64, Refused> {
    let pages = bytes.div_ceil(BASE_PAGE_BYTES as u64).next_multiple_of(align);
    if pages == 0 || pages > ROOM_PAGES {
        let (min, max) = (BasePages(align).bytes(), BasePages(ROOM_PAGES).bytes());
        return refuse(RegionRefusal::Invalid, format!("a region has at least {min} and at most {max}"));
    }
    Ok(pages)
}
