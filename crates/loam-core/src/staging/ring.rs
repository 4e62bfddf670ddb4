//! The ring itself: who waits, and what a disk gets next (nwcache-1999, section 3.2, "Ring management").

use super::channel::{Channel, Entry, Pages, Queue, State};
use super::figures::RingFigures;
use crate::ids::PageId;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

/// Held pages are pressed when less than this part of a channel is free.
const PRESSED_BELOW: u64 = 8;

/// A dense number that the driver gives to a page while it is in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingSlot(pub u32);

/// How a ring is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Pages that one channel can have, those on their way to the disk among them (table 1: 64 KB).
    pub channel_pages: u64,
    /// Disks that take turns.
    pub disks: usize,
    /// Consecutive pages that belong to one disk ([`super::GROUP_PAGES`]).
    pub group_pages: u32,
    /// A channel that has refused a page has room again when so many fit (in the paper 1; more where an answer costs a message).
    pub ok_room_pages: u64,
    /// A page is not written before so many [`Ring::tick`]s have passed, unless room is short or half of its channel is taken: what is put anew or read
    /// meanwhile never costs a write, and more of the others are neighbours. (The paper's disks begin at once: 0.)
    pub linger_ticks: u64,
}

/// What became of a page that was swapped out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapOut {
    /// It is in the ring: its frame can be used again.
    Ack,
    /// Its channel is full. [`Ring::poll_ok`] tells when it is not.
    Nack,
}

/// What a read of a page in the ring does to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// It is taken off the ring: the reader has the only copy (the paper's: "taken off the ring").
    TakeOff,
    /// It stays as it is safe here, and is written only when room is short: the reader usually changes or drops it before.
    Hold,
}

/// One page of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPage {
    /// Its number in the ring. If the page is cancelled meanwhile the number may stand for another by the end of the write.
    pub slot: RingSlot,
    /// Which.
    pub page: PageId,
}

/// Consecutive pages of one channel, on their way to one disk in one write. To be given back to [`Ring::finish`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "give it back with `finish`, or its pages take room for ever"]
pub struct RingWrite {
    number: u64,
    /// Which disk.
    pub disk: usize,
    /// Whose pages.
    pub channel: Channel,
    /// Which, ascending without a gap.
    pub pages: Vec<RingPage>,
}

/// See the module [`staging`](super).
#[derive(Debug)]
pub struct Ring {
    config: RingConfig,
    /// By slot; grows to the highest one used.
    entries: Vec<Entry>,
    channels: BTreeMap<Channel, Pages>,
    /// Of channels that are gone.
    past: RingFigures,
    /// By disk: the channel that it is emptying.
    snooped: Vec<Option<Channel>>,
    /// Channels that have refused a page, in that order.
    refused: VecDeque<Channel>,
    /// Pages of writes under way. None is written twice at a time: two versions of a page must reach a disk in their order.
    under_way: BTreeSet<PageId>,
    /// Over all channels: whether there is anything to look for.
    waiting_pages: u64,
    held_pages: u64,
    number_last: u64,
    /// Ticks so far.
    tick: u64,
}

impl Ring {
    /// An empty ring.
    ///
    /// # Panics
    /// If some count of the configuration is nothing, or more room is waited for than a channel has.
    pub fn new(config: RingConfig) -> Self {
        let RingConfig { channel_pages, disks, group_pages, ok_room_pages, .. } = config;
        assert!(channel_pages > 0 && disks > 0 && group_pages > 0, "a ring without room or disks");
        assert!((1..=channel_pages).contains(&ok_room_pages), "room that never comes is waited for");
        Self {
            config,
            entries: Vec::new(),
            channels: BTreeMap::new(),
            past: RingFigures::default(),
            snooped: vec![None; disks],
            refused: VecDeque::new(),
            under_way: BTreeSet::new(),
            waiting_pages: 0,
            held_pages: 0,
            number_last: 0,
            tick: 0,
        }
    }

    /// Which disk a page belongs to (section 3.1: groups of consecutive pages, round robin).
    pub fn disk_of(&self, page: PageId) -> usize {
        let group = page.index / u64::from(self.config.group_pages);
        (group % self.config.disks as u64) as usize
    }

    fn state(&self, slot: RingSlot) -> State {
        self.entries.get(slot.0 as usize).map_or(State::Out, |entry| entry.state)
    }

    /// Whether a page is in the ring.
    pub fn contains(&self, slot: RingSlot) -> bool {
        self.state(slot) != State::Out
    }

    /// Pages that the channel has room for.
    pub fn room(&self, channel: Channel) -> u64 {
        let load = self.channels.get(&channel).map_or(0, Pages::load);
        self.config.channel_pages.saturating_sub(load)
    }

    /// A node swaps `page` out to its channel. If the slot is in the ring already its older contents will not be written.
    pub fn swap_out(&mut self, channel: Channel, slot: RingSlot, page: PageId) -> SwapOut {
        self.cancel(slot);
        let disks = self.config.disks;
        let pages = self.channels.entry(channel).or_insert_with(|| Pages::new(disks));
        assert!(!pages.closed, "a page for a channel that is closed");
        let (load, most) = (pages.load(), self.config.channel_pages);
        let (full, tight) = (load >= most, most - load.min(most) <= most / PRESSED_BELOW);
        if full {
            self.refuse(channel, 1);
            return SwapOut::Nack;
        }
        pages.figures.taken += 1;
        if tight {
            self.press_channel(channel, 1);
        }
        let at = slot.0 as usize;
        if self.entries.len() <= at {
            let out = Entry::new(page, channel, State::Out);
            self.entries.resize(at + 1, out);
        }
        self.entries[at] = Entry::new(page, channel, State::Out);
        self.enqueue(slot);
        SwapOut::Ack
    }

    /// Pages of the channel are refused: for the driver that knows before [`Self::swap_out`] that there is no room. Held pages make some.
    pub fn refuse(&mut self, channel: Channel, refused: u64) {
        let disks = self.config.disks;
        let pages = self.channels.entry(channel).or_insert_with(|| Pages::new(disks));
        pages.figures.refused += refused;
        if !core::mem::replace(&mut pages.refused, true) {
            self.refused.push_back(channel);
        }
        self.press_channel(channel, self.config.ok_room_pages);
        self.channels.get_mut(&channel).expect("it was just there").hurried_before = self.tick + 1;
    }

    /// Some time has passed: see [`RingConfig::linger_ticks`].
    pub fn tick(&mut self) {
        self.tick += 1;
    }

    /// Whether pages wait that time will make ready to be written.
    pub fn lingers(&self) -> bool {
        self.config.linger_ticks > 0 && self.waiting_pages > 0
    }

    /// A channel that has refused a page and has room again (section 3.1: "the controller sends a OK message"), first refused first. Once for each time.
    pub fn poll_ok(&mut self) -> Option<Channel> {
        self.poll_ok_of(|_| true)
    }

    /// As [`Self::poll_ok`], of the channels that `may` be told; the others wait.
    pub fn poll_ok_of(&mut self, may: impl Fn(Channel) -> bool) -> Option<Channel> {
        let most = self.config.ok_room_pages;
        let at = self.refused.iter().position(|&channel| self.room(channel) >= most && may(channel))?;
        let channel = self.refused.remove(at).expect("it was just seen");
        if let Some(pages) = self.channels.get_mut(&channel) {
            pages.refused = false;
        }
        Some(channel)
    }

    /// Whether [`Self::poll_ok_of`] has one.
    pub fn has_ok_of(&self, may: impl Fn(Channel) -> bool) -> bool {
        self.refused.iter().any(|&channel| self.room(channel) >= self.config.ok_room_pages && may(channel))
    }

    /// Pages that are held.
    pub fn pages_held(&self) -> u64 {
        self.held_pages
    }

    /// Pages of writes that have not ended.
    pub fn pages_under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Takes the next write for `disk`, of at most `pages_max` pages (section 3.2): of the channel that it is emptying, else of the one that has most
    /// for it; the pages that were swapped out first, and those behind them as long as they are consecutive.
    pub fn drain(&mut self, disk: usize, pages_max: usize) -> Option<RingWrite> {
        assert!(pages_max > 0, "a write of no pages");
        let channel = self.snoop(disk)?;
        self.snooped[disk] = Some(channel);
        self.number_last += 1;
        let mut write = RingWrite { number: self.number_last, disk, channel, pages: Vec::new() };
        let of_channel = self.channels.get_mut(&channel).expect("it was just chosen");
        let queue = &mut of_channel.waiting[disk];
        while let Some(slot) = queue.first() {
            let page = self.entries[slot.0 as usize].page;
            let follows = write.pages.last().is_none_or(|last| follows(last.page, page));
            if write.pages.len() == pages_max || !follows || !self.under_way.insert(page) {
                break;
            }
            queue.remove(&mut self.entries, slot);
            self.entries[slot.0 as usize].state = State::UnderWay(write.number);
            write.pages.push(RingPage { slot, page });
        }
        let pages = write.pages.len() as u64;
        assert!(pages > 0, "a channel without pages was chosen");
        of_channel.figures.waiting -= pages;
        self.waiting_pages -= pages;
        of_channel.figures.under_way += pages;
        Some(write)
    }

    /// A write has ended. `ended` hears of each page that is still wanted; all of them are off the ring. `ok`: they are on the disk.
    pub fn finish(&mut self, write: RingWrite, ok: bool, mut ended: impl FnMut(RingPage)) {
        let RingWrite { number, channel, pages, .. } = write;
        let of_channel = self.channels.get_mut(&channel).expect("a channel with pages under way is kept");
        let figures = &mut of_channel.figures;
        figures.under_way -= pages.len() as u64;
        if ok {
            figures.writes += 1;
            figures.drained += pages.len() as u64;
        } else {
            figures.failed += pages.len() as u64;
        }
        for page in pages {
            assert!(self.under_way.remove(&page.page), "a page was under way twice");
            let entry = &mut self.entries[page.slot.0 as usize];
            if entry.state == State::UnderWay(number) {
                entry.state = State::Out;
                ended(page);
            }
        }
        self.forget_closed(channel);
    }

    /// A page in the ring is read. Whether it was there: a hit of the victim cache. One that is under way stays so.
    pub fn read(&mut self, slot: RingSlot, victim: Victim) -> bool {
        let state = self.state(slot);
        if state == State::Out {
            return false;
        }
        let channel = self.entries[slot.0 as usize].channel;
        let figures = &mut self.channels.get_mut(&channel).expect("its channel").figures;
        figures.victim_hits += 1;
        match (state, victim) {
            (State::Waiting(_) | State::Held, Victim::TakeOff) => {
                self.cancel(slot);
            }
            (State::Waiting(_), Victim::Hold) => {
                self.unlink(slot);
                let pages = self.channels.get_mut(&channel).expect("its channel");
                pages.held.push(&mut self.entries, slot);
                pages.figures.held += 1;
                self.held_pages += 1;
                self.entries[slot.0 as usize].state = State::Held;
            }
            _ => {}
        }
        true
    }

    /// A page is not wanted on the disk any more: it was dropped, or put anew. A write of it that is under way ends without it.
    pub fn cancel(&mut self, slot: RingSlot) {
        let state = self.state(slot);
        if matches!(state, State::Waiting(_) | State::Held) {
            let channel = self.unlink(slot);
            self.channels.get_mut(&channel).expect("its channel").figures.cancelled += 1;
            self.entries[slot.0 as usize].state = State::Out;
            self.forget_closed(channel);
        } else if let State::UnderWay(_) = state {
            self.entries[slot.0 as usize].state = State::Out;
        }
    }

    /// Room is short: what waits lingers no longer, and at least `pages` of the held pages are queued to be written, if there are so many, those of the
    /// channel that holds most first.
    pub fn press(&mut self, pages: u64) {
        let mut left = pages;
        if pages > 0 {
            self.channels.values_mut().for_each(|of_channel| of_channel.hurried_before = self.tick + 1);
        }
        while left > 0 {
            let most = self.channels.iter().filter(|(_, pages)| !pages.closed);
            let Some((&channel, most)) = most.max_by_key(|(_, pages)| pages.held.pages()) else { return };
            let held = most.held.pages();
            if held == 0 {
                return;
            }
            self.press_channel(channel, left);
            left -= held.min(left);
        }
    }

    /// Nothing of this channel is written from now on. Its pages are cancelled one by one by their owner; when the last has gone so has the channel.
    pub fn close(&mut self, channel: Channel) {
        if let Some(pages) = self.channels.get_mut(&channel) {
            pages.closed = true;
            self.refused.retain(|other| *other != channel);
            self.forget_closed(channel);
        }
    }

    /// Whether [`Self::drain`] has something for `disk` now.
    pub fn has_write(&self, disk: usize) -> bool {
        self.snoop(disk).is_some()
    }

    /// What the whole ring has done.
    pub fn figures(&self) -> RingFigures {
        self.channels.values().fold(self.past, |sum, pages| sum.plus(&pages.figures))
    }

    /// What each channel has done.
    pub fn channels(&self) -> impl Iterator<Item = (Channel, RingFigures)> {
        self.channels.iter().map(|(&channel, pages)| (channel, pages.figures))
    }

    /// The channel that `disk` reads next. ("The interface only starts snooping another channel after the swap-outs on the current channel have been
    /// exhausted"; then "the most heavily loaded cache channel".) One whose first page is under way in an older version must wait, and so must one whose
    /// first page lingers: those behind it came later.
    fn snoop(&self, disk: usize) -> Option<Channel> {
        if self.waiting_pages == 0 {
            return None;
        }
        let load = |pages: &Pages| {
            let first = pages.waiting[disk].first()?;
            let first = &self.entries[first.0 as usize];
            let waits =
                pages.closed || self.under_way.contains(&first.page) || self.is_lingering(pages, first);
            (!waits).then(|| pages.waiting[disk].pages())
        };
        let current =
            self.snooped[disk].filter(|channel| self.channels.get(channel).and_then(load).is_some());
        current.or_else(|| {
            let loaded = self.channels.iter().filter_map(|(&channel, pages)| Some((load(pages)?, channel)));
            // Of equals the one with the lowest number.
            loaded.max_by_key(|&(load, channel)| (load, core::cmp::Reverse(channel))).map(|most| most.1)
        })
    }

    fn is_lingering(&self, pages: &Pages, entry: &Entry) -> bool {
        let State::Waiting(since) = entry.state else { unreachable!("it is first in its queue") };
        let hurries = since < pages.hurried_before || pages.load() * 2 >= self.config.channel_pages;
        !hurries && self.tick - since < self.config.linger_ticks
    }

    /// A slot that is out joins the queue of its disk.
    fn enqueue(&mut self, slot: RingSlot) {
        let Entry { page, channel, .. } = self.entries[slot.0 as usize];
        let disk = self.disk_of(page);
        let pages = self.channels.get_mut(&channel).expect("its channel");
        pages.waiting[disk].push(&mut self.entries, slot);
        pages.figures.waiting += 1;
        self.waiting_pages += 1;
        self.entries[slot.0 as usize].state = State::Waiting(self.tick);
    }

    /// Takes a waiting or held slot out of its list; the caller gives it its new state.
    fn unlink(&mut self, slot: RingSlot) -> Channel {
        let Entry { page, channel, state, .. } = self.entries[slot.0 as usize];
        let disk = self.disk_of(page);
        let pages = self.channels.get_mut(&channel).expect("its channel");
        let (queue, count, all): (&mut Queue, _, _) = if let State::Waiting(_) = state {
            (&mut pages.waiting[disk], &mut pages.figures.waiting, &mut self.waiting_pages)
        } else {
            assert_eq!(state, State::Held, "slot {} is in no list", slot.0);
            (&mut pages.held, &mut pages.figures.held, &mut self.held_pages)
        };
        queue.remove(&mut self.entries, slot);
        *count -= 1;
        *all -= 1;
        channel
    }

    /// The pages of a channel that were held first are queued to be written.
    fn press_channel(&mut self, channel: Channel, pages: u64) {
        for _ in 0..pages {
            let Some(slot) = self.channels.get(&channel).and_then(|pages| pages.held.first()) else { return };
            self.unlink(slot);
            self.enqueue(slot);
            self.channels.get_mut(&channel).expect("its channel").figures.pressed += 1;
        }
    }

    fn forget_closed(&mut self, channel: Channel) {
        if self.channels.get(&channel).is_some_and(|pages| pages.closed && pages.load() == 0) {
            let pages = self.channels.remove(&channel).expect("it was just seen");
            self.past = self.past.plus(&pages.figures);
        }
    }
}

/// Whether `page` comes right behind `before`.
fn follows(before: PageId, page: PageId) -> bool {
    before.space == page.space && before.index.checked_add(1) == Some(page.index)
}
