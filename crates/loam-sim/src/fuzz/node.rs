//! A lender's machine: `loam_core`'s lender, its slab, and how it serves connections.

use super::hand::hash_of;
use super::script::Lie;
use super::sim::{Event, Sabotage, Sent, Sim, ToBorrower, ToLender};
use super::store::Store;
use loam_core::borrower::CopyIndex;
use loam_core::ids::{SpaceId, Version};
use loam_core::lender::{Effect, Found, Lender, Put, ReadTicket, Slot};
use loam_core::units::{BasePages, Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

/// How long the pages of a borrower without a connection are kept.
const GRACE: Duration = Duration::from_millis(5_000);
/// The same where there is a disk store: a little longer than a borrower waits for it.
const STORE_GRACE: Duration = Duration::from_millis(75_000);
const SERVICE: Duration = Duration::from_micros(10);
const BORROWERS_MAX: usize = 64;

enum Job {
    Get {
        wire: usize,
        request: u64,
        hits: Vec<(CopyIndex, Version, Slot)>,
        misses: Vec<(CopyIndex, Version)>,
        ticket: ReadTicket,
    },
    Put {
        wire: usize,
        request: u64,
        pages: Vec<Sent>,
        slots: Vec<Option<Slot>>,
    },
}

#[derive(Default)]
struct Conn {
    inbox: VecDeque<ToLender>,
    jobs: u32,
    closed: bool,
    /// Datagrams only: what was answered, to answer it again. `None`: it is being dealt with.
    answers: BTreeMap<u64, Option<Vec<ToBorrower>>>,
}

pub(crate) struct Node {
    pub index: usize,
    pub life: u32,
    pub up: bool,
    pub core: Lender,
    pub(super) slab: BTreeMap<Slot, u64>,
    conns: BTreeMap<usize, Conn>,
    jobs: BTreeMap<u64, Job>,
    job_last: u64,
    pub lie: Option<(Lie, Instant)>,
    clock_at: Option<Instant>,
    pub store: Option<Store>,
}

/// How a lender goes away with all that it had in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fall {
    /// `kill -9`.
    Killed,
    /// Its machine loses power.
    Power,
    /// It was told to end, and says so.
    Ends,
}

impl Conn {
    /// Those of the named pages that wait to be dealt with go before everything else, each still once.
    fn hurry(&mut self, named: &[(CopyIndex, Version)]) {
        let mut front = Vec::new();
        for message in &mut self.inbox {
            if let ToLender::Get { request, pages } = message {
                let (hurried, left): (Vec<_>, Vec<_>) = pages.iter().partition(|page| named.contains(page));
                if !hurried.is_empty() {
                    front.push(ToLender::Get { request: *request, pages: hurried });
                    *pages = left;
                }
            }
        }
        self.inbox.retain(|message| !matches!(message, ToLender::Get { pages, .. } if pages.is_empty()));
        for message in front.into_iter().rev() {
            self.inbox.push_front(message);
        }
    }
}

impl Node {
    pub(crate) fn new(index: usize, sim: &Sim) -> Self {
        let cache = sim.settings.cache.as_ref().filter(|cache| cache.stores[index]);
        let store = cache.map(|cache| Store::new(cache.store_pages));
        Self {
            index,
            life: 0,
            up: true,
            core: lender(store.as_ref(), sim),
            slab: BTreeMap::new(),
            conns: BTreeMap::new(),
            jobs: BTreeMap::new(),
            job_last: 0,
            lie: None,
            clock_at: None,
            store,
        }
    }

    fn lies(&self, sim: &Sim) -> Option<Lie> {
        self.lie.filter(|(_, until)| !sim.quiet && *until > sim.now).map(|(lie, _)| lie)
    }

    /// All that it held in memory is lost, and its connections with it.
    pub(crate) fn fall(&mut self, how: Fall, sim: &mut Sim) {
        sim.log(|| format!("lender {} falls: {how:?}", self.index));
        self.slab.values().for_each(|&value| sim.harm(self.index, value));
        let life = self.life + 1;
        for &wire in self.conns.keys() {
            if how == Fall::Ends {
                sim.send_to_borrower(wire, ToBorrower::Ending);
            }
            if !sim.settings.datagram {
                sim.send_to_borrower(wire, ToBorrower::Closed);
            }
        }
        let store = self.store.take().map(|store| store.crashed(how == Fall::Power, &mut sim.store_dice));
        *self = Self { life, up: false, store, ..Self::new(self.index, sim) };
    }

    /// It is started again, with what its disk has.
    pub(crate) fn rises(&mut self, sim: &mut Sim) {
        let on_disk = self.store.as_ref().map(Store::live);
        sim.log(|| format!("lender {} is up again, on its disk: {on_disk:?}", self.index));
        self.up = true;
        self.core = lender(self.store.as_ref(), sim);
        self.after(sim);
    }

    /// A borrower connects: answers the room, if it is taken in.
    pub(crate) fn open(&mut self, wire: usize, sim: &mut Sim) -> Option<BasePages> {
        let terms = sim.settings.terms();
        self.core.connection_opened(sim.wires[wire].space, "borrower", terms).ok()?;
        self.conns.insert(wire, Conn::default());
        let room = self.core.room(terms).base_pages();
        self.after(sim);
        Some(room)
    }

    /// Room as a borrower is told it.
    fn room(core: &Lender, space: SpaceId) -> u64 {
        core.room(core.terms(space)).base_pages().0
    }

    pub(crate) fn receive(&mut self, wire: usize, message: ToLender, sim: &mut Sim) {
        if sim.wires[wire].closed {
            return;
        }
        sim.wires[wire].closed = matches!(message, ToLender::Closed);
        if sim.wires[wire].lender_life != self.life && sim.settings.datagram && self.up {
            // It has been started anew and does not know this borrower: it begins with nothing.
            sim.wires[wire].lender_life = self.life;
            if !matches!(message, ToLender::Bye | ToLender::Closed) {
                assert!(self.open(wire, sim).is_some(), "a simulated lender has few borrowers");
            }
        }
        let Some(conn) = self.conns.get_mut(&wire).filter(|c| self.up && !c.closed) else { return };
        match message {
            ToLender::Closed => {
                conn.closed = true;
                conn.inbox.clear();
                self.close_if_done(wire, sim);
            }
            // What is answered again must be what was asked for: no part of it goes by itself.
            ToLender::Hurry { .. } if sim.settings.datagram => {}
            ToLender::Hurry { pages } => conn.hurry(&pages),
            message if sim.settings.datagram => self.begin(wire, message, sim),
            message => {
                conn.inbox.push_back(message);
                self.next(wire, sim);
            }
        }
        self.after(sim);
    }

    /// Over a connection one request is dealt with after the other.
    fn next(&mut self, wire: usize, sim: &mut Sim) {
        while let Some(conn) = self.conns.get_mut(&wire).filter(|c| c.jobs == 0) {
            let Some(message) = conn.inbox.pop_front() else { return };
            self.begin(wire, message, sim);
        }
    }

    fn begin(&mut self, wire: usize, message: ToLender, sim: &mut Sim) {
        let space = sim.wires[wire].space;
        let lie = self.lies(sim);
        let conn = self.conns.get_mut(&wire).expect("the caller looked");
        if let ToLender::Get { request, .. } | ToLender::Put { request, .. } = message
            && sim.settings.datagram
        {
            match conn.answers.get(&request) {
                None => drop(conn.answers.insert(request, None)),
                Some(None) => return,
                Some(Some(again)) => {
                    for message in again.clone() {
                        sim.send_to_borrower(wire, message);
                    }
                    return;
                }
            }
        }
        let job = match message {
            ToLender::Get { request, pages } => {
                let (mut hits, mut misses, mut on_disk) = (Vec::new(), Vec::new(), Vec::new());
                let wanted = pages.iter().map(|&(copy, version)| (u64::from(copy.0), version));
                self.core.get(sim.now, space, wanted, |index, version, hit| {
                    let copy = CopyIndex(index as u32);
                    match hit {
                        Found::Here(slot, _) => hits.push((copy, version, slot)),
                        Found::OnDisk => on_disk.push((copy, version)),
                        Found::Missing => misses.push((copy, version)),
                    }
                });
                self.read_store(wire, request, &on_disk, space, sim);
                Job::Get { wire, request, hits, misses, ticket: self.core.read_begin() }
            }
            ToLender::Put { request, pages } => {
                let refuses = lie == Some(Lie::Refuse);
                let slots = if refuses { vec![None; pages.len()] } else { self.reserve(space, &pages, sim) };
                let gone = self.core.take_gone(space);
                self.tell_gone(wire, &gone, sim);
                Job::Put { wire, request, pages, slots }
            }
            ToLender::Drop { pages } => {
                for (copy, version) in pages {
                    self.core.drop_page(space, u64::from(copy.0), version);
                }
                return;
            }
            ToLender::Spare { pages } => {
                for (copy, version) in pages {
                    self.core.spare_page(space, u64::from(copy.0), version);
                }
                return;
            }
            ToLender::Bye => {
                self.core.drop_all(space);
                return;
            }
            ToLender::Hurry { .. } | ToLender::Closed => unreachable!("dealt with on receipt"),
        };
        self.conns.get_mut(&wire).expect("the caller looked").jobs += 1;
        self.job_last += 1;
        self.jobs.insert(self.job_last, job);
        let delay = sim.net_dice.delay(SERVICE);
        sim.after(delay, Event::Serve { lender: self.index, life: self.life, job: self.job_last });
    }

    /// Slots for pages, in their order, as far as there is room for those of each class.
    fn reserve(&mut self, space: SpaceId, pages: &[Sent], sim: &Sim) -> Vec<Option<Slot>> {
        let mut slots = Vec::new();
        for of_class in pages.chunk_by(|a, b| a.class == b.class) {
            let indexes: Vec<u64> = of_class.iter().map(|page| u64::from(page.copy.0)).collect();
            let mut own: Vec<Option<Slot>> = Vec::new();
            while own.len() < indexes.len()
                && let Some(run) =
                    self.core.reserve_as(sim.now, space, &indexes[own.len()..], of_class[0].class)
            {
                own.extend(run.slots().map(Some));
            }
            own.resize(indexes.len(), None);
            slots.append(&mut own);
        }
        slots
    }

    pub(crate) fn serve(&mut self, job: u64, sim: &mut Sim) {
        let job = self.jobs.remove(&job).expect("it was begun");
        let lie = self.lies(sim);
        let (wire, request, answers) = match job {
            Job::Get { wire, request, hits, mut misses, ticket } => {
                let mut pages: Vec<(CopyIndex, Version, u64)> =
                    hits.iter().map(|&(copy, version, slot)| (copy, version, self.slab[&slot])).collect();
                self.core.read_end(ticket);
                let forgets = sim.sabotage == Sabotage::ForgetfulLender && sim.net_dice.once_in(4);
                if forgets {
                    let space = sim.wires[wire].space;
                    for (copy, version, _) in pages.drain(..) {
                        self.core.drop_page(space, u64::from(copy.0), version);
                        misses.push((copy, version));
                    }
                }
                for (_, version, value) in &mut pages {
                    if lie == Some(Lie::Contents) {
                        sim.harm(self.index, *value);
                        *value ^= 1 << 63;
                    } else if lie == Some(Lie::Version) {
                        sim.harm(self.index, *value);
                        version.0 = version.0.wrapping_add(1);
                    }
                }
                let mut answers = Vec::new();
                if !pages.is_empty() {
                    answers.push(ToBorrower::Page { request, pages });
                }
                if !misses.is_empty() {
                    answers.push(ToBorrower::Miss { request, pages: misses });
                }
                (wire, request, answers)
            }
            Job::Put { wire, request, pages, slots } => {
                let space = sim.wires[wire].space;
                let mut acks = Vec::new();
                for (n, page) in pages.iter().enumerate() {
                    assert_eq!(page.hash, hash_of(page.value), "a buffer was reused before it was sent");
                    let mut stored = slots[n];
                    if let Some(slot) = stored {
                        if lie == Some(Lie::Forget) {
                            sim.harm(self.index, page.value);
                            self.core.abort(space, slot);
                        } else {
                            self.slab.insert(slot, page.value);
                            let Sent { copy, version, hash, class, .. } = *page;
                            let put = Put { index: u64::from(copy.0), version, hash, class };
                            stored = stored.filter(|&slot| self.core.commit_as(sim.now, space, put, slot));
                        }
                    }
                    acks.push((page.copy, page.version, stored.is_some()));
                }
                let free = Self::room(&self.core, space);
                (wire, request, vec![ToBorrower::Ack { request, pages: acks, free }])
            }
        };
        if let Some(conn) = self.conns.get_mut(&wire) {
            conn.jobs -= 1;
            if sim.settings.datagram {
                conn.answers.insert(request, Some(answers.clone()));
            }
        }
        for message in answers {
            sim.send_to_borrower(wire, message);
        }
        self.next(wire, sim);
        self.close_if_done(wire, sim);
        self.after(sim);
    }

    fn close_if_done(&mut self, wire: usize, sim: &Sim) {
        if self.conns.get(&wire).is_some_and(|c| c.closed && c.jobs == 0) {
            self.conns.remove(&wire);
            self.core.connection_closed(sim.now, sim.wires[wire].space);
        }
    }

    /// Its machine wants memory back, or has it again.
    pub(crate) fn lend(&mut self, pages: u64, sim: &mut Sim) {
        // A datagram may be late: a drop would meet the same copy, put again. Live there are only connections.
        if !self.up || (sim.settings.datagram && !sim.settings.disk) {
            return;
        }
        let before = self.core.limit();
        self.core.handle_limit(BasePages(pages));
        sim.log(|| format!("lender {} lends {} pages at most", self.index, self.core.limit().0));
        if self.core.limit() > before {
            let spaces: Vec<SpaceId> = self.core.borrowers().map(|b| b.space).collect();
            for space in spaces {
                self.ask_back(space, Vec::new(), sim);
            }
        }
        self.after(sim);
    }

    /// Asks a borrower for pages, or tells it of room.
    fn ask_back(&self, space: SpaceId, pages: Vec<(CopyIndex, Version)>, sim: &mut Sim) {
        let free = Self::room(&self.core, space);
        if let Some(wire) = self.wire_of(space, sim) {
            sim.send_to_borrower(wire, ToBorrower::Recall { pages, free });
        }
    }

    /// Time has passed, or memory was given back.
    pub(crate) fn tick(&mut self, sim: &mut Sim) {
        self.clock_at = None;
        self.core.handle_timeout(sim.now);
        self.after(sim);
    }

    fn tell_gone(&self, wire: usize, pages: &[(u64, Version)], sim: &mut Sim) {
        if !pages.is_empty() {
            let pages = pages.iter().map(|&(index, version)| (CopyIndex(index as u32), version)).collect();
            let free = Self::room(&self.core, sim.wires[wire].space);
            sim.send_to_borrower(wire, ToBorrower::Gone { pages, free });
        }
    }

    /// Any connection of a borrower.
    fn wire_of(&self, space: SpaceId, sim: &Sim) -> Option<usize> {
        let mut open = self.conns.iter().filter(|(_, conn)| !conn.closed);
        open.find(|(wire, _)| sim.wires[**wire].space == space).map(|(&wire, _)| wire)
    }

    pub(crate) fn after(&mut self, sim: &mut Sim) {
        self.work_store(sim);
        while let Some(effect) = self.core.poll_effect() {
            match effect {
                Effect::Release(run) => {
                    let delay = sim.net_dice.delay(SERVICE);
                    sim.after(delay, Event::Released { lender: self.index, life: self.life, run });
                }
                Effect::Gone(gone) => {
                    if let Some(wire) = self.wire_of(gone.space, sim) {
                        self.tell_gone(wire, &gone.pages, sim);
                    }
                }
                Effect::Recall(recall) => {
                    let named =
                        recall.pages.iter().map(|&(index, version)| (CopyIndex(index as u32), version));
                    self.ask_back(recall.space, named.collect(), sim);
                }
                Effect::Stored(stored) => {
                    let pages: Vec<_> = stored
                        .pages
                        .iter()
                        .map(|&(index, version)| (CopyIndex(index as u32), version))
                        .collect();
                    if let Some(wire) = self.wire_of(stored.space, sim) {
                        sim.send_to_borrower(wire, ToBorrower::Stored { pages });
                    }
                    self.core.told_stored(stored.space);
                }
                Effect::Room(space) => self.ask_back(space, Vec::new(), sim),
            }
        }
        if let Some(due) = self.core.poll_timeout() {
            let at = due.max(sim.now + Duration::from_micros(1));
            if self.clock_at.is_none_or(|t| t > at) {
                self.clock_at = Some(at);
                sim.queue.push(at, Event::LenderClock { lender: self.index, life: self.life });
            }
        }
    }
}

/// The policy of a lender, with what is on its disk.
fn lender(store: Option<&Store>, sim: &Sim) -> Lender {
    let pages = BasePages(sim.settings.lender_pages);
    let Some(store) = store else { return Lender::new(pages, GRACE, BORROWERS_MAX) };
    let config = Store::config(&sim.settings).expect("there are stores");
    Lender::new(pages, STORE_GRACE, BORROWERS_MAX).with_store(sim.now, config, store.found())
}
