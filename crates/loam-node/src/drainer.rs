//! The thread that has the disk store: what the lender wants written, forgotten and read there (nwcache-1999: the disk controller and its interface to
//! the ring).
//!
//! ```text
//! loops, keeper ── bell ──► poll_disk_effect ──► copy the slots ──► DiskStore::write ── fdatasync ──► handle_drained ──► keeper: Stored
//! loop: getpage of what only the disk has ──► DiskStore::read ──► a frame in the loop's mailbox
//! ```
//!
//! The store groups what is synced; this thread only keeps it busy. Nothing is told to be stored before the store says that it is durable.
//!
//! Writes gather for a while before they are begun ([`Gather`]). A read is begun at once: a thread waits for it.

#[cfg(test)]
mod tests;

use crate::disk_store::{
    Completion, Device, DiskFigures, DiskStore, Fault, FileDevice, PageIn, ReadRefused, ReadToken, Refused,
    WriteToken,
};
use crate::event_loop::Mailbox;
use crate::gather::Gather;
use crate::limits::ANSWER_PAGES;
use crate::shared::{Shared, ring, silence};
use loam_core::ids::{ContentHash, SpaceId, Urgency, Version};
use loam_core::lender::{DiskEffect, Drain, Drained, SlotRun};
use loam_core::units::{BASE_PAGE_BYTES, Bytes};
use loam_wire::{PageMeta, PageRef, encode};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Where the answer of a read goes: a connection of a loop.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) connection: u64,
}

impl Reply {
    fn is(&self, other: &Self) -> bool {
        self.connection == other.connection && Arc::ptr_eq(&self.mailbox, &other.mailbox)
    }
}

/// A page that only the disk has.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) reply: Reply,
    pub(crate) request: u64,
    pub(crate) space: SpaceId,
    pub(crate) index: u64,
    pub(crate) version: Version,
    pub(crate) urgency: Urgency,
}

/// What others know of the disk store, and how they reach its thread.
#[derive(Debug)]
pub(crate) struct StoreLink {
    bell: OwnedFd,
    told: AtomicBool,
    /// Rings for reads.
    read_bell: OwnedFd,
    reads: Mutex<VecDeque<Read>>,
    slots: u64,
    free_slots: AtomicU64,
    figures: Mutex<DiskFigures>,
}

impl StoreLink {
    pub(crate) fn new<D: Device>(bell: OwnedFd, read_bell: OwnedFd, store: &DiskStore<D>) -> Self {
        let figures = store.figures();
        Self {
            bell,
            told: AtomicBool::new(false),
            read_bell,
            reads: Mutex::default(),
            slots: figures.slots,
            free_slots: AtomicU64::new(figures.slots_free),
            figures: Mutex::new(figures),
        }
    }

    /// Bytes of pages that the store can have in all.
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes(self.slots * BASE_PAGE_BYTES as u64)
    }

    /// Bytes of pages that it has room for, as far as is known here.
    pub(crate) fn free_bytes(&self) -> Bytes {
        Bytes(self.free_slots.load(Ordering::Relaxed) * BASE_PAGE_BYTES as u64)
    }

    pub(crate) fn figures(&self) -> DiskFigures {
        *self.figures.lock().expect("nothing panics under it")
    }

    /// There is something to do: wakes the thread once.
    pub(crate) fn tell(&self) {
        if !self.told.swap(true, Ordering::AcqRel) {
            ring(&self.bell);
        }
    }

    /// Takes out what was asked for, in place of the thread that the store has otherwise.
    #[cfg(test)]
    pub(crate) fn asked(&self) -> Vec<Read> {
        self.reads.lock().expect("nothing panics under it").drain(..).collect()
    }

    /// Asks for pages; each is answered in its connection's mailbox.
    pub(crate) fn read(&self, reads: &mut Vec<Read>) {
        self.reads.lock().expect("nothing panics under it").extend(reads.drain(..));
        ring(&self.read_bell);
    }
}

/// What the store read, and the hash by which it proved it: the borrower compares both with its own record.
type Proved = (Box<[u8; BASE_PAGE_BYTES]>, ContentHash);

/// See the module.
pub(crate) struct Drainer<D = FileDevice> {
    shared: Arc<Shared>,
    store: DiskStore<D>,
    writes: BTreeMap<WriteToken, Drain>,
    /// Copied, and the store had enough to do.
    waiting: Option<(Drain, Vec<u8>)>,
    buffer: Vec<u8>,
    reads: BTreeMap<ReadToken, Read>,
    /// What threads wait for, and what they do not.
    urgent: VecDeque<Read>,
    behind: VecDeque<Read>,
    /// Read, or not there, and not answered.
    answers: Vec<(Read, Option<Proved>)>,
    told_broken: bool,
    told_spaces: bool,
    gather: Gather,
}

impl<D: Device> Drainer<D> {
    pub(crate) fn new(shared: Arc<Shared>, store: DiskStore<D>) -> Self {
        Self {
            shared,
            store,
            writes: BTreeMap::new(),
            waiting: None,
            buffer: Vec::new(),
            reads: BTreeMap::new(),
            urgent: VecDeque::new(),
            behind: VecDeque::new(),
            answers: Vec::new(),
            told_broken: false,
            told_spaces: false,
            gather: Gather::new(),
        }
    }

    fn link(&self) -> &StoreLink {
        self.shared.store.as_ref().expect("who has a store has a link to it")
    }

    /// Serves until the lender ends.
    pub(crate) fn run(mut self) {
        while !self.shared.stopping() {
            self.turn();
        }
    }

    fn turn(&mut self) {
        let (gathers, was_full, begun) = (self.gathers(), self.waiting.is_some(), self.writes.len());
        self.wait(gathers);
        self.complete();
        if gathers {
            self.gather.ended(was_full, begun, self.writes.len());
        }
        self.begin_reads();
        self.begin_writes();
        if self.store.is_dead() {
            // It may have died of what was just begun: then nothing rings for what ended with it.
            self.complete();
            self.begin_reads();
        }
        self.answer();
        let figures = self.store.figures();
        self.link().free_slots.store(figures.slots_free, Ordering::Relaxed);
        *self.link().figures.lock().expect("nothing panics under it") = figures;
    }

    /// Nobody waits for a read, nor for slots that are to be freed.
    fn gathers(&self) -> bool {
        let nobody_reads = self.reads.is_empty() && self.urgent.is_empty() && self.behind.is_empty();
        nobody_reads && !self.store.is_freeing()
    }

    /// Until there is something to do; if it gathers, only reads count at first.
    fn wait(&self, gathers: bool) {
        let link = self.link();
        if gathers {
            let time = Timespec::try_from(self.gather.time()).expect("some milliseconds");
            poll(&mut [PollFd::new(&link.read_bell, PollFlags::IN)], Some(&time));
        }
        let mut fds = [
            PollFd::new(&link.bell, PollFlags::IN),
            PollFd::new(&link.read_bell, PollFlags::IN),
            PollFd::from_borrowed_fd(self.store.event_fd(), PollFlags::IN),
        ];
        // Of a dead store nobody takes what the descriptor tells: it would ring for ever.
        let heard = if self.store.is_dead() { 2 } else { 3 };
        // What has gone is freed a piece each turn.
        let limit = self.store.is_freeing().then(Timespec::default);
        poll(&mut fds[..heard], limit.as_ref());
        if !fds[0].revents().is_empty() {
            silence(&link.bell);
            link.told.store(false, Ordering::Release);
        }
        if !fds[1].revents().is_empty() {
            silence(&link.read_bell);
        }
    }

    /// Takes in what the store has done.
    fn complete(&mut self) {
        let completions: Vec<Completion> = self.store.poll().collect();
        let mut drained = Vec::new();
        for completion in completions {
            match completion {
                Completion::Durable { token } => drained.push((token, Drained::Stored)),
                Completion::Failed { token, error } => {
                    tracing::warn!("disk store: pages could not be written and stay in memory: {error}");
                    drained.push((token, Drained::Failed));
                }
                Completion::Read { token, page, hash } => {
                    let read = self.reads.remove(&token).expect("it was begun");
                    self.answers.push((read, Some((page, hash))));
                }
                Completion::ReadFailed { token, error } => {
                    let read = self.reads.remove(&token).expect("it was begun");
                    if let Fault::Disk(_) | Fault::Corrupt = error {
                        tracing::warn!(
                            "disk store: a page could not be read: {error}; its borrower has to have it elsewhere"
                        );
                    }
                    self.lost(read);
                }
            }
        }
        if drained.is_empty() {
            return;
        }
        // What is told with it is what there is.
        self.link().free_slots.store(self.store.figures().slots_free, Ordering::Relaxed);
        let mut lender = self.shared.lender();
        let now = self.shared.now();
        for (token, drained) in drained {
            let drain = self.writes.remove(&token).expect("it was begun");
            lender.handle_drained(now, drain, drained);
        }
        drop(lender);
        self.shared.tell_keeper();
        self.tell_broken();
    }

    /// A page that the lender believed to be here cannot be had.
    fn lost(&mut self, read: Read) {
        self.shared.lender().handle_disk_lost(read.space, read.index, read.version);
        self.answers.push((read, None));
    }

    fn begin_reads(&mut self) {
        let asked = std::mem::take(&mut *self.link().reads.lock().expect("nothing panics under it"));
        for read in asked {
            match read.urgency {
                Urgency::Waited => self.urgent.push_back(read),
                Urgency::Behind => self.behind.push_back(read),
            }
        }
        while let Some(read) = self.urgent.pop_front().or_else(|| self.behind.pop_front()) {
            match self.store.read(read.space, read.index, read.version) {
                Ok(token) => assert!(self.reads.insert(token, read).is_none(), "a token was given twice"),
                Err(ReadRefused::Busy) => {
                    match read.urgency {
                        Urgency::Waited => self.urgent.push_front(read),
                        Urgency::Behind => self.behind.push_front(read),
                    }
                    return;
                }
                // Dropped since it was asked for, or put anew; or nobody gets anything from that disk any more.
                Err(ReadRefused::Missing | ReadRefused::Writing | ReadRefused::Dead) => self.lost(read),
            }
        }
    }

    fn begin_writes(&mut self) {
        if let Some((drain, contents)) = self.waiting.take()
            && !self.write(drain, contents)
        {
            return;
        }
        loop {
            let (effect, ticket) = {
                let mut lender = self.shared.lender();
                let Some(effect) = lender.poll_disk_effect() else { return };
                let drains = matches!(effect, DiskEffect::Drain(_));
                (effect, drains.then(|| lender.read_begin()))
            };
            match effect {
                DiskEffect::Forget(forget) => {
                    for (index, version) in forget.pages {
                        self.store.forget(forget.space, index, version);
                    }
                }
                DiskEffect::ForgetSpace(space) => {
                    self.store.forget_space(space);
                }
                DiskEffect::Drain(drain) => {
                    let mut contents = std::mem::take(&mut self.buffer);
                    let copied = self.copy(&drain, &mut contents);
                    self.shared.lender().read_end(ticket.expect("a drain comes with a ticket"));
                    if let Err(why) = copied {
                        tracing::error!("cannot read the memory file: {why}");
                        self.end(drain, Drained::Failed);
                    } else if !self.write(drain, contents) {
                        return;
                    }
                }
            }
        }
    }

    fn copy(&self, drain: &Drain, to: &mut Vec<u8>) -> std::io::Result<()> {
        to.resize(drain.pages.len() * BASE_PAGE_BYTES, 0);
        let mut to = &mut to[..];
        for run in drain.pages.chunk_by(|a, b| a.slot.0 + 1 == b.slot.0) {
            let (now, rest) = to.split_at_mut(run.len() * BASE_PAGE_BYTES);
            self.shared.slab.read(SlotRun { first: run[0].slot, pages: run.len() as u32 }, now)?;
            to = rest;
        }
        Ok(())
    }

    /// Begins a write. False: the store has enough to do, and this one waits.
    fn write(&mut self, drain: Drain, contents: Vec<u8>) -> bool {
        let pages: Vec<PageIn<'_>> = drain
            .pages
            .iter()
            .zip(contents.as_chunks::<BASE_PAGE_BYTES>().0)
            .map(|(page, contents)| (page.index, page.version, page.hash, contents))
            .collect();
        let refused = match self.store.write(drain.space, &pages) {
            Ok(token) => {
                assert!(self.writes.insert(token, drain).is_none(), "a token was given twice");
                self.buffer = contents;
                return true;
            }
            Err(Refused::Busy) => {
                self.waiting = Some((drain, contents));
                return false;
            }
            Err(refused) => refused,
        };
        if refused == Refused::Spaces && !std::mem::replace(&mut self.told_spaces, true) {
            tracing::warn!(
                "disk store: it has pages of as many borrowers as it can name: those of others stay in memory"
            );
        }
        let drained = if refused == Refused::Broken { Drained::Failed } else { Drained::NoRoom };
        self.end(drain, drained);
        self.tell_broken();
        true
    }

    fn end(&self, drain: Drain, drained: Drained) {
        self.shared.lender().handle_drained(self.shared.now(), drain, drained);
        self.shared.tell_keeper();
    }

    fn tell_broken(&mut self) {
        if let Some(why) = self.store.broken().filter(|_| !self.told_broken) {
            tracing::error!("{why}");
            self.told_broken = true;
        }
    }

    /// Answers what was read, neighbours of one request in one frame.
    fn answer(&mut self) {
        let answers = std::mem::take(&mut self.answers);
        let goes_with = |a: &(Read, Option<_>), b: &(Read, Option<_>)| {
            a.0.request == b.0.request && a.0.reply.is(&b.0.reply) && a.1.is_some() == b.1.is_some()
        };
        for of_one in answers.chunk_by(goes_with) {
            for of_frame in of_one.chunks(ANSWER_PAGES) {
                let (read, found) = &of_frame[0];
                let mut frame = Vec::new();
                if found.is_some() {
                    let meta = |(read, found): &(Read, Option<Proved>)| {
                        let (_, hash) = found.as_ref().expect("one like the first");
                        PageMeta::new(read.index, read.version, *hash)
                    };
                    encode::page(&mut frame, read.request, &of_frame.iter().map(meta).collect::<Vec<_>>());
                    of_frame
                        .iter()
                        .flat_map(|answer| &answer.1)
                        .for_each(|(page, _)| frame.extend_from_slice(&page[..]));
                } else {
                    let miss = |answer: &(Read, _)| PageRef::new(answer.0.index, answer.0.version);
                    encode::miss(&mut frame, read.request, &of_frame.iter().map(miss).collect::<Vec<_>>());
                }
                read.reply.mailbox.answer(read.reply.connection, of_frame.len(), frame);
            }
        }
    }
}

fn poll(fds: &mut [PollFd<'_>], limit: Option<&Timespec>) {
    match rustix::event::poll(fds, limit) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(why) => panic!("poll: {why}"),
    }
}
