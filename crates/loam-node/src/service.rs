//! What a lender does with each request.

use crate::behind::{Asked, Behind};
use crate::buffers::Outgoing;
use crate::cluster::{Packet, Published};
use crate::disk_reads::DiskReads;
use crate::drainer::{Read, Reply};
use crate::limits::ANSWER_PAGES;
use crate::regions::Call;
use crate::reserving;
use crate::seats::{Busy, Seat};
use crate::shared::Shared;
use loam_core::ids::{NodeId, PutClass, SpaceId, Urgency};
use loam_core::lender::{Found, Put, Slot, SlotRun, Terms};
use loam_core::units::{BASE_PAGE_BYTES, Bytes};
use loam_wire::limits::{GONE_PAGES_MAX, STATUS_BORROWERS_MAX};
use loam_wire::tls::{Identity, Role};
use loam_wire::{
    BorrowerEntry, FEATURES_KNOWN, Frame, MemoryFigures, MountAt, PROTOCOL_VERSION, PageAck, PageMeta,
    PageRef, PutStatus, StatusFigures, WireError, encode, error_code, feature, page_hash,
};
use std::net::IpAddr;
use std::sync::Arc;

/// Why a connection is ended, in words for the peer.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) text: String,
}

impl Refusal {
    pub(crate) fn bad_frame(text: &str) -> Self {
        Self { code: error_code::BAD_FRAME, text: text.to_owned() }
    }
}

impl From<WireError> for Refusal {
    fn from(error: WireError) -> Self {
        Self { code: error_code::BAD_FRAME, text: error.to_string() }
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Peer {
    /// It has not said hello.
    Stranger,
    /// `loam status` and the like: stores nothing.
    Tool,
    /// A borrower.
    Borrower(Seat),
}

/// Where answers go: a queue, and a way to send from it early.
pub(crate) trait Outlet {
    /// The queue.
    fn queue(&mut self) -> &mut Outgoing;
    /// Pages that are answered when nothing else waits.
    fn behind(&mut self) -> &mut Behind;
    /// Sends what can be sent without waiting.
    fn flush(&mut self);
    /// It is a program of this machine, by the UNIX socket.
    fn is_local(&self) -> bool;
    /// It makes this call about a region, as a program of this machine.
    fn calls(&mut self, shared: &Arc<Shared>, call: Call) -> Result<(), Refusal>;
    /// It has so many local pages, from now on and until it goes.
    fn has_local_pages(&mut self, shared: &Arc<Shared>, pages: u64);
    /// It is a mount, there, from now on and until it goes.
    fn is_mount(&mut self, shared: &Arc<Shared>, at: MountAt);
    /// From now on each view after version `version` goes out with this request's number.
    fn subscribe(&mut self, request: u64, version: u64);
    /// Pages that only the disk has.
    fn disk_reads(&mut self) -> &mut DiskReads;
    /// It takes more of them now: it has not much to take as it is.
    fn takes_reads(&self) -> bool;
    /// Where answers that others make go.
    fn reply(&self) -> Reply;
    /// Who the peer proved to be; `None` where nothing has to be proved.
    fn identity(&self) -> Option<&Identity>;
}

/// One event loop's side of the service, with the lists that it uses again and again.
#[derive(Debug)]
pub(crate) struct Service {
    shared: Arc<Shared>,
    head: Vec<u8>,
    metas: Vec<PageMeta>,
    slots: Vec<Slot>,
    misses: Vec<PageRef>,
    gone: Vec<PageRef>,
    acks: Vec<PageAck>,
    good: Vec<usize>,
    placed: Vec<(usize, Slot)>,
    unplaced: Vec<usize>,
    reads: Vec<Read>,
    on_disk: Vec<PageRef>,
    waited: Vec<PageRef>,
    asked: Vec<Asked>,
    indexes: Vec<u64>,
}

impl Service {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            head: Vec::new(),
            metas: Vec::new(),
            slots: Vec::new(),
            misses: Vec::new(),
            gone: Vec::new(),
            acks: Vec::new(),
            good: Vec::new(),
            placed: Vec::new(),
            unplaced: Vec::new(),
            reads: Vec::new(),
            on_disk: Vec::new(),
            waited: Vec::new(),
            asked: Vec::new(),
            indexes: Vec::new(),
        }
    }

    /// Handles one frame of `peer` (which hello changes).
    pub(crate) fn handle(
        &mut self,
        peer: &mut Peer,
        frame: Frame<'_>,
        out: &mut impl Outlet,
    ) -> Result<(), Refusal> {
        if *peer == Peer::Stranger {
            return self.greet(peer, frame, out);
        }
        match (&*peer, frame) {
            (Peer::Borrower(seat), Frame::GetPage { request, pages }) => {
                self.getpage(seat, request, pages, out)?;
            }
            (Peer::Borrower(seat), Frame::Hurry { pages }) => {
                let mut asked = std::mem::take(&mut self.asked);
                out.disk_reads().hurry(pages, &mut asked);
                out.behind().hurry(pages, &mut asked);
                let answered = self.answer_asked(seat, &asked, Urgency::Waited, out);
                self.asked = asked;
                answered?;
            }
            (Peer::Borrower(seat), Frame::PutPage { request, pages, payload }) => {
                self.putpage(seat, request, pages, payload, out)?;
            }
            (Peer::Borrower(seat), Frame::Drop { pages }) => {
                let mut lender = self.shared.lender_for(seat)?;
                for page in pages {
                    lender.drop_page(seat.space, page.index(), page.version());
                }
                self.shared.tell_of(&lender);
            }
            (Peer::Borrower(seat), Frame::Spare { pages }) => {
                let mut lender = self.shared.lender_for(seat)?;
                if lender.terms(seat.space) != Terms::Staging {
                    return Err(Refusal::bad_frame("spare is for those who have said staging"));
                }
                for page in pages {
                    lender.spare_page(seat.space, page.index(), page.version());
                }
                self.shared.tell_of(&lender);
            }
            (Peer::Borrower(seat), Frame::Bye) => {
                let mut lender = self.shared.lender_for(seat)?;
                lender.drop_all(seat.space);
                self.shared.tell_of(&lender);
                self.shared.tell_keeper();
            }
            (Peer::Tool, Frame::Bye) => {}
            (Peer::Borrower(seat), Frame::Reserve { request, bytes }) => {
                let reservation = reserving::reserve(&self.shared, seat, bytes)?;
                self.answer(out, |_, head| encode::reserved(head, request, &reservation));
            }
            (Peer::Tool, Frame::Reserve { request, bytes: 0 }) => {
                let reservation = reserving::what_there_is(&self.shared);
                self.answer(out, |_, head| encode::reserved(head, request, &reservation));
            }
            (_, Frame::Ping { request }) => self.answer(out, |_, head| encode::pong(head, request)),
            (_, Frame::StatusRequest { request }) => {
                let (figures, borrowers) = self.status();
                self.answer(out, |_, head| encode::status(head, request, &figures, &borrowers));
            }
            (_, Frame::MemoryRequest { request }) => {
                let (figures, reason) = self.memory();
                self.answer(out, |_, head| encode::memory(head, request, &figures, &reason));
            }
            (_, Frame::ViewRequest { request }) => {
                let published = self.shared.published();
                self.answer(out, |_, head| {
                    encode::view(head, request, &published.view, &published.view_nodes)
                });
                out.subscribe(request, published.view.version());
            }
            (_, Frame::NodesRequest { request }) => {
                let published = self.shared.published();
                self.answer(out, |_, head| {
                    encode::nodes(head, request, &published.cluster, &published.nodes)
                });
            }
            (_, Frame::MountHere(at)) if out.is_local() => out.is_mount(&self.shared, *at),
            (_, Frame::MountsRequest { request, group }) => {
                let mounts = self.shared.mounts_of(group);
                self.answer(out, |_, head| encode::mounts(head, request, &mounts));
            }
            (_, Frame::Local { pages }) if out.is_local() => out.has_local_pages(&self.shared, pages),
            (Peer::Tool, Frame::RegionCall { request, ask }) if out.is_local() => {
                // Connection and user are what the socket says, not the peer.
                out.calls(&self.shared, Call::new(request, &ask, 0, 0))?;
            }
            // Local programs borrow; they have no part in what nodes agree on.
            (Peer::Tool, Frame::Cluster { sender, class, bytes }) if !out.is_local() => {
                require(Role::Node, out.identity())?;
                let packet = Packet { sender: NodeId(sender), class, bytes: bytes.into() };
                if !self.shared.front.deliver(packet) {
                    let text = "this lender is in no cluster: start it with `loam node` to be joined";
                    return Err(Refusal::bad_frame(text));
                }
            }
            (
                Peer::Tool,
                Frame::GetPage { .. }
                | Frame::Hurry { .. }
                | Frame::PutPage { .. }
                | Frame::Spare { .. }
                | Frame::Reserve { .. }
                | Frame::Drop { .. },
            ) => {
                return Err(Refusal::bad_frame("space 0 has no pages: say hello with a space of your own"));
            }
            _ => return Err(Refusal::bad_frame("a lender takes no frame of this kind here")),
        }
        Ok(())
    }

    /// Whether nobody was told this of that address for a while.
    pub(crate) fn is_news(&self, of: IpAddr, text: &str) -> bool {
        self.shared.is_news(of, text)
    }

    /// What there is to tell of the cluster.
    pub(crate) fn published(&self) -> Arc<Published> {
        self.shared.published()
    }

    /// Appends a frame without payload.
    fn answer(&mut self, out: &mut impl Outlet, build: impl FnOnce(&Shared, &mut Vec<u8>)) {
        self.head.clear();
        build(&self.shared, &mut self.head);
        out.queue().append(self.head.len()).copy_from_slice(&self.head);
    }

    /// Answers the first frame of a connection.
    fn greet(&mut self, peer: &mut Peer, frame: Frame<'_>, out: &mut impl Outlet) -> Result<(), Refusal> {
        let Frame::Hello { version, features, space, returns, name } = frame else {
            return Err(Refusal::bad_frame("the first frame must be a hello"));
        };
        *peer = self.hello(version, features, space, returns, name, out.identity())?;
        let staging = features & feature::STAGING != 0;
        let (capacity, free) = {
            let (lender, free) = match peer {
                Peer::Borrower(seat) => {
                    let lender = self.shared.lender_for(seat)?;
                    let free = lender.room_of(seat.space);
                    (lender, free)
                }
                _ => {
                    let lender = self.shared.lender();
                    let free = lender.room(if staging { Terms::Staging } else { Terms::Recallable });
                    (lender, free)
                }
            };
            (lender.stats().capacity.0, free.0)
        };
        self.answer(out, |shared, head| {
            encode::welcome(head, features & FEATURES_KNOWN, shared.instance, capacity, free);
            if staging {
                let store = shared.store.as_ref();
                let bytes = store.map_or(0, |store| store.bytes().0);
                let free = store.map_or(0, |store| store.free_bytes().0);
                encode::store(head, bytes, free, &shared.zone);
            }
        });
        // One who comes back is told what the disk has.
        self.shared.tell_of(&self.shared.lender());
        Ok(())
    }

    fn hello(
        &self,
        version: u16,
        features: u64,
        space: u64,
        returns: u32,
        name: &str,
        identity: Option<&Identity>,
    ) -> Result<Peer, Refusal> {
        if version != PROTOCOL_VERSION {
            return Err(Refusal {
                code: error_code::VERSION,
                text: format!(
                    "this lender speaks protocol version {PROTOCOL_VERSION}, you speak {version}: use the same \
                     version of Loam on both"
                ),
            });
        }
        if space == 0 {
            return Ok(Peer::Tool);
        }
        require(Role::Borrower, identity)?;
        // Who does not say that its pages are spare may have them only here; who does not know recalls is not asked.
        let has = |bit| features & bit != 0;
        let terms = match (has(feature::RECALL), has(feature::SPARE)) {
            (recall, spare) if has(feature::STAGING) => {
                if spare || !recall {
                    let text = "staging is said together with recall, and not with spare";
                    return Err(Refusal::bad_frame(text));
                }
                Terms::Staging
            }
            (true, true) => Terms::Spare,
            (true, false) => Terms::Recallable,
            (false, _) => Terms::Kept,
        };
        self.shared.take_seat(SpaceId(space), returns, name, terms).map(Peer::Borrower)
    }

    /// Answers what threads wait for, and leaves the rest for when nothing else waits.
    fn getpage(
        &mut self,
        seat: &Seat,
        request: u64,
        pages: &[PageRef],
        out: &mut impl Outlet,
    ) -> Result<(), Refusal> {
        let mut waited = std::mem::take(&mut self.waited);
        waited.clear();
        for &page in pages {
            match page.urgency() {
                Urgency::Waited => waited.push(page),
                Urgency::Behind => out.behind().push(request, page),
            }
        }
        let answered = if waited.is_empty() {
            Ok(())
        } else {
            self.give(seat, request, waited.iter(), Urgency::Waited, out)
        };
        self.waited = waited;
        answered
    }

    /// Answers the next few pages that nobody waits for.
    pub(crate) fn answer_behind(&mut self, peer: &Peer, out: &mut impl Outlet) -> Result<(), Refusal> {
        let Peer::Borrower(seat) = peer else { unreachable!("only borrowers have asked for pages") };
        let mut asked = std::mem::take(&mut self.asked);
        out.behind().next_frame(&mut asked);
        let answered = self.answer_asked(seat, &asked, Urgency::Behind, out);
        self.asked = asked;
        answered
    }

    fn answer_asked(
        &mut self,
        seat: &Seat,
        asked: &[Asked],
        urgency: Urgency,
        out: &mut impl Outlet,
    ) -> Result<(), Refusal> {
        for of_one in asked.chunk_by(|a, b| a.request == b.request) {
            self.give(seat, of_one[0].request, of_one.iter().map(|asked| &asked.page), urgency, out)?;
        }
        Ok(())
    }

    /// Answers a request, or some of its pages: in their order, what is not there at the end. What only the disk has is answered later.
    fn give<'p>(
        &mut self,
        seat: &Seat,
        request: u64,
        pages: impl Iterator<Item = &'p PageRef>,
        urgency: Urgency,
        out: &mut impl Outlet,
    ) -> Result<(), Refusal> {
        self.metas.clear();
        self.slots.clear();
        self.misses.clear();
        self.on_disk.clear();
        let ticket = {
            let now = self.shared.now();
            let mut lender = self.shared.lender_for(seat)?;
            let wanted = pages.map(|page| (page.index(), page.version()));
            lender.get(now, seat.space, wanted, |index, version, found| match found {
                Found::Here(slot, hash) => {
                    self.metas.push(PageMeta::new(index, version, hash));
                    self.slots.push(slot);
                }
                Found::OnDisk => self.on_disk.push(PageRef::new(index, version)),
                Found::Missing => self.misses.push(PageRef::new(index, version)),
            });
            lender.read_begin()
        };
        let mut result = Ok(());
        let frames = self.slots.len().div_ceil(ANSWER_PAGES);
        for (at, (metas, slots)) in
            self.metas.chunks(ANSWER_PAGES).zip(self.slots.chunks(ANSWER_PAGES)).enumerate()
        {
            self.head.clear();
            encode::page(&mut self.head, request, metas);
            let head_bytes = self.head.len();
            let frame_bytes = head_bytes + slots.len() * BASE_PAGE_BYTES;
            let frame = out.queue().append(frame_bytes);
            frame[..head_bytes].copy_from_slice(&self.head);
            if let Err(why) = read_slots(&self.shared, slots, &mut frame[head_bytes..]) {
                tracing::error!("cannot read the memory file: {why}");
                out.queue().take_back(frame_bytes);
                result = Err(Refusal { code: error_code::ENDING, text: "the lender lost its memory".into() });
                break;
            }
            if at + 1 < frames {
                out.flush();
            }
        }
        if urgency == Urgency::Waited {
            out.flush(); // the rest can wait, and the thread that asks cannot
        }
        let mut lender = self.shared.lender();
        lender.read_end(ticket);
        self.shared.tell_of(&lender);
        drop(lender);
        if result.is_ok() {
            self.read_from_disk(seat.space, request, urgency, out);
        }
        if result.is_ok() && !self.misses.is_empty() {
            self.head.clear();
            encode::miss(&mut self.head, request, &self.misses);
            out.queue().append(self.head.len()).copy_from_slice(&self.head);
        }
        result
    }

    /// Asks the disk for the pages in `self.on_disk`.
    fn read_from_disk(&mut self, space: SpaceId, request: u64, urgency: Urgency, out: &mut impl Outlet) {
        if self.on_disk.is_empty() {
            return;
        }
        for &page in &self.on_disk {
            out.disk_reads().push(Asked { request, page }, urgency);
        }
        self.begin_reads(space, out);
    }

    /// Has the disk read what may be read by now of what was asked of it.
    pub(crate) fn begin_reads(&mut self, space: SpaceId, out: &mut impl Outlet) {
        let Some(store) = self.shared.store.as_ref().filter(|_| out.takes_reads()) else { return };
        while let Some((Asked { request, page }, urgency)) = out.disk_reads().next() {
            let (reply, index, version) = (out.reply(), page.index(), page.version());
            self.reads.push(Read { reply, request, space, index, version, urgency });
        }
        if !self.reads.is_empty() {
            store.read(&mut self.reads);
        }
    }

    /// Says which pages in `self.gone` are here no longer.
    fn tell_gone(&mut self, free: Bytes, out: &mut impl Outlet) {
        for pages in self.gone.chunks(GONE_PAGES_MAX) {
            self.head.clear();
            encode::gone(&mut self.head, free.0, pages);
            out.queue().append(self.head.len()).copy_from_slice(&self.head);
        }
    }

    fn putpage(
        &mut self,
        seat: &Seat,
        request: u64,
        pages: &[PageMeta],
        payload: &[u8],
        out: &mut impl Outlet,
    ) -> Result<(), Refusal> {
        let says_class = pages.iter().any(|page| page.class() != PutClass::Ordinary);
        if says_class && self.shared.lender_for(seat)?.terms(seat.space) != Terms::Staging {
            return Err(Refusal::bad_frame("classes of pages are for those who have said staging"));
        }
        self.acks.clear();
        self.good.clear();
        for (at, (page, contents)) in pages.iter().zip(payload.chunks_exact(BASE_PAGE_BYTES)).enumerate() {
            let good = page_hash(contents) == page.hash();
            let status = if good { PutStatus::Stored } else { PutStatus::BadHash };
            self.acks.push(PageAck::new(page.index(), page.version(), status));
            if good {
                self.good.push(at);
            }
        }
        assert_eq!(self.acks.len(), pages.len(), "the decoder gives a base page for each descriptor");
        self.gone.clear();
        let busy = self.reserve(seat, pages)?;
        let free = self.write_and_commit(seat.space, pages, payload);
        drop(busy);
        // Before the answer: what is sent next should know.
        self.tell_gone(free, out);
        self.head.clear();
        encode::ack(&mut self.head, request, &self.acks, free.0);
        out.queue().append(self.head.len()).copy_from_slice(&self.head);
        Ok(())
    }

    /// Reserves slots for the good pages into `self.placed`, in order, as far as there is room for pages of their class.
    fn reserve(&mut self, seat: &Seat, pages: &[PageMeta]) -> Result<Busy, Refusal> {
        let space = seat.space;
        self.placed.clear();
        self.unplaced.clear();
        let now = self.shared.now();
        let mut lender = self.shared.lender_for(seat)?;
        for of_class in self.good.chunk_by(|a, b| pages[*a].class() == pages[*b].class()) {
            self.indexes.clear();
            self.indexes.extend(of_class.iter().map(|at| pages[*at].index()));
            let mut done = 0;
            while done < of_class.len() {
                let class = pages[of_class[done]].class();
                let Some(run) = lender.reserve_as(now, space, &self.indexes[done..], class) else { break };
                self.placed.extend(of_class[done..].iter().copied().zip(run.slots()));
                done += run.pages as usize;
            }
            self.unplaced.extend_from_slice(&of_class[done..]);
        }
        let gone = lender.take_gone(space);
        self.gone.extend(gone.into_iter().map(|(index, version)| PageRef::new(index, version)));
        Ok(seat.busy(&lender))
    }

    /// Fills the reserved slots with the good pages in their order, and makes them known. Answers the room that is left.
    fn write_and_commit(&mut self, space: SpaceId, pages: &[PageMeta], payload: &[u8]) -> Bytes {
        let placed = &self.placed;
        let mut written = 0;
        while written < placed.len() {
            // A stretch that is contiguous in the frame and in the slab goes in one call.
            let (at, slot) = placed[written];
            let stretch = placed[written..]
                .iter()
                .enumerate()
                .take_while(|(far, next)| **next == (at + far, Slot(slot.0 + *far as u32)))
                .count();
            let run = SlotRun { first: slot, pages: stretch as u32 };
            let contents = &payload[at * BASE_PAGE_BYTES..(at + stretch) * BASE_PAGE_BYTES];
            if let Err(why) = self.shared.slab.write(run, contents) {
                tracing::warn!("cannot store pages: {why}; is the machine out of memory?");
                break;
            }
            written += stretch;
        }
        let now = self.shared.now();
        let mut lender = self.shared.lender();
        for (order, &(at, slot)) in placed.iter().enumerate() {
            let page = &pages[at];
            let stored = if order < written {
                let (index, version) = (page.index(), page.version());
                let put = Put { index, version, hash: page.hash(), class: page.class() };
                lender.commit_as(now, space, put, slot)
            } else {
                lender.abort(space, slot);
                false
            };
            if !stored {
                self.unplaced.push(at);
            }
        }
        for &at in &self.unplaced {
            self.acks[at] = PageAck::new(pages[at].index(), pages[at].version(), PutStatus::NoRoom);
        }
        self.shared.tell_of(&lender);
        lender.room_of(space)
    }

    fn memory(&self) -> (MemoryFigures, String) {
        let stats = self.shared.lender().stats();
        let report = self.shared.memory();
        let figures = MemoryFigures {
            capacity_bytes: stats.capacity.0.into(),
            limit_bytes: stats.limit.0.into(),
            reserve_bytes: report.reserve.0.into(),
            available_bytes: report.available.0.into(),
            slab_bytes: self.shared.slab.memory().unwrap_or_default().0.into(),
            dropped: stats.dropped.into(),
            recalled: stats.recalled.into(),
            kept: stats.kept.into(),
        };
        (figures, report.reason.clone())
    }

    fn status(&self) -> (StatusFigures, Vec<BorrowerEntry>) {
        let lender = self.shared.lender();
        let stats = lender.stats();
        let borrowers = lender
            .borrowers()
            .take(STATUS_BORROWERS_MAX)
            .zip(1..)
            // Not the space: who knows that can read its pages.
            .map(|(b, number)| BorrowerEntry::new(number, b.pages, b.connections, b.name))
            .collect();
        drop(lender);
        let figures = StatusFigures {
            instance: self.shared.instance.into(),
            capacity_bytes: stats.capacity.0.into(),
            used_bytes: (stats.pages * BASE_PAGE_BYTES as u64).into(),
            free_bytes: stats.free.0.into(),
            pages: stats.pages.into(),
            gets: stats.gets.into(),
            puts: stats.puts.into(),
            misses: stats.misses.into(),
            uptime_s: self.shared.uptime_s().into(),
            borrowers: stats.borrowers.into(),
            connections: (self.shared.places.taken() as u64).into(),
        };
        (figures, borrowers)
    }
}

/// Refuses a peer whose certificate has not this role. Where nothing has to be proved everybody has it.
fn require(role: Role, identity: Option<&Identity>) -> Result<(), Refusal> {
    let Some(identity) = identity.filter(|identity| !identity.is(role)) else { return Ok(()) };
    let (name, role) = (&identity.name, role.word());
    let text = format!(
        "the certificate of {identity} has not the role {role}: issue one with `loam ca issue {name} --role {role}`, or with \
         --role both"
    );
    Err(Refusal { code: error_code::DENIED, text })
}

/// Copies slots into `to` in order, neighbours in one call.
fn read_slots(shared: &Shared, slots: &[Slot], mut to: &mut [u8]) -> std::io::Result<()> {
    for run in slots.chunk_by(|a, b| a.0 + 1 == b.0) {
        let (now, rest) = to.split_at_mut(run.len() * BASE_PAGE_BYTES);
        shared.slab.read(SlotRun { first: run[0], pages: run.len() as u32 }, now)?;
        to = rest;
    }
    Ok(())
}
