//! The ring against a model: plain lists, searched from end to end.

use super::*;
use crate::ids::{PageId, SpaceId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use proptest::prelude::*;

const DISKS: usize = 2;
const GROUP: u32 = 4;
const CHANNEL_PAGES: u64 = 9;
const OK_ROOM: u64 = 2;
const SLOTS: u32 = 40;

fn config() -> RingConfig {
    RingConfig {
        channel_pages: CHANNEL_PAGES,
        disks: DISKS,
        group_pages: GROUP,
        ok_room_pages: OK_ROOM,
        linger_ticks: 0,
    }
}

fn page(index: u64) -> PageId {
    PageId { space: SpaceId(1), index }
}

#[derive(Clone, Debug)]
enum Op {
    SwapOut {
        channel: u64,
        slot: u32,
        index: u64,
    },
    /// A burst of consecutive pages in consecutive slots.
    Burst {
        channel: u64,
        slot: u32,
        index: u64,
        pages: u32,
    },
    Drain {
        disk: usize,
        most: usize,
    },
    Finish {
        which: usize,
        ok: bool,
    },
    Read {
        slot: u32,
        hold: bool,
    },
    Cancel(u32),
    Press(u64),
    Ok,
    Close(u64),
    Tick,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let (channel, slot, index) = (0..3_u64, 0..SLOTS, 0..24_u64);
    let op = prop_oneof![
        6 => (channel.clone(), slot.clone(), index.clone())
            .prop_map(|(channel, slot, index)| Op::SwapOut { channel, slot, index }),
        4 => (channel.clone(), 0..SLOTS - 6, index, 1..6_u32)
            .prop_map(|(channel, slot, index, pages)| Op::Burst { channel, slot, index, pages }),
        6 => (0..DISKS, 1..6_usize).prop_map(|(disk, most)| Op::Drain { disk, most }),
        6 => (0..8_usize, any::<bool>()).prop_map(|(which, ok)| Op::Finish { which, ok }),
        3 => (slot.clone(), any::<bool>()).prop_map(|(slot, hold)| Op::Read { slot, hold }),
        3 => slot.prop_map(Op::Cancel),
        1 => (0..12_u64).prop_map(Op::Press),
        2 => Just(Op::Ok),
        1 => channel.prop_map(Op::Close),
        2 => Just(Op::Tick),
    ];
    prop::collection::vec(op, 1..200)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    channel: u64,
    slot: u32,
    index: u64,
    /// When it was queued.
    tick: u64,
}

#[derive(Debug, Default)]
struct Model {
    /// In the order in which they will be written, over all channels and disks.
    waiting: Vec<Entry>,
    held: Vec<Entry>,
    /// By write: its pages, and which are still wanted.
    writes: Vec<(RingWrite, Vec<(Entry, bool)>)>,
    snooped: [Option<u64>; DISKS],
    refused: Vec<u64>,
    closed: Vec<u64>,
    linger_ticks: u64,
    tick: u64,
    /// By channel: what is queued before that tick does not linger.
    hurried_before: BTreeMap<u64, u64>,
    /// What became of each page that was taken: it must be in one of these or in the ring.
    taken: u64,
    written: u64,
    failed: u64,
    cancelled: u64,
}

impl Model {
    fn disk_of(index: u64) -> usize {
        (index / u64::from(GROUP)) as usize % DISKS
    }

    fn load(&self, channel: u64) -> usize {
        let of = |entry: &&Entry| entry.channel == channel;
        let under_way = self.writes.iter().flat_map(|write| &write.1).map(|page| &page.0);
        self.waiting.iter().filter(of).count()
            + self.held.iter().filter(of).count()
            + under_way.filter(of).count()
    }

    /// Takes a page off that no write has yet.
    fn take_off(&mut self, slot: u32) {
        let before = self.waiting.len() + self.held.len();
        self.waiting.retain(|entry| entry.slot != slot);
        self.held.retain(|entry| entry.slot != slot);
        self.cancelled += (before - self.waiting.len() - self.held.len()) as u64;
        self.forget_closed();
    }

    fn cancel(&mut self, slot: u32) {
        self.take_off(slot);
        for (entry, wanted) in self.writes.iter_mut().flat_map(|write| &mut write.1) {
            *wanted &= entry.slot != slot;
        }
    }

    /// A closed channel without pages can be opened again.
    fn forget_closed(&mut self) {
        let closed = core::mem::take(&mut self.closed);
        for channel in closed {
            if self.load(channel) > 0 {
                self.closed.push(channel);
            } else {
                self.hurried_before.remove(&channel);
            }
        }
    }

    fn press(&mut self, channel: u64, pages: usize) {
        for _ in 0..pages {
            let Some(at) = self.held.iter().position(|entry| entry.channel == channel) else { return };
            let entry = self.held.remove(at);
            self.waiting.push(Entry { tick: self.tick, ..entry });
        }
    }

    fn is_under_way(&self, index: u64) -> bool {
        self.writes.iter().any(|write| write.1.iter().any(|page| page.0.index == index))
    }

    fn of(&self, channel: u64, disk: usize) -> Vec<Entry> {
        let here = |entry: &&Entry| entry.channel == channel && Self::disk_of(entry.index) == disk;
        self.waiting.iter().filter(here).copied().collect()
    }

    fn lingers(&self, entry: &Entry) -> bool {
        let hurried = entry.tick < self.hurried_before.get(&entry.channel).copied().unwrap_or(0);
        let loaded = self.load(entry.channel) * 2 >= CHANNEL_PAGES as usize;
        !hurried && !loaded && entry.tick + self.linger_ticks > self.tick
    }

    /// The pages that the next write must have.
    fn next_write(&self, disk: usize, most: usize) -> Option<Vec<Entry>> {
        let can = |channel: &u64| {
            let first = self.of(*channel, disk).first().copied();
            let ready = |entry: Entry| !self.is_under_way(entry.index) && !self.lingers(&entry);
            !self.closed.contains(channel) && first.is_some_and(ready)
        };
        let channel = self.snooped[disk].filter(can).or_else(|| {
            let mut can: Vec<u64> = (0..3).filter(can).collect();
            can.sort_by_key(|&channel| core::cmp::Reverse(self.of(channel, disk).len()));
            can.first().copied()
        })?;
        let mut pages: Vec<Entry> = Vec::new();
        for entry in self.of(channel, disk) {
            let follows = pages.last().is_none_or(|last| last.index + 1 == entry.index);
            if pages.len() == most || !follows || self.is_under_way(entry.index) {
                break;
            }
            pages.push(entry);
        }
        Some(pages)
    }
}

struct Test {
    ring: Ring,
    model: Model,
}

impl Test {
    fn swap_out(&mut self, channel: u64, slot: u32, index: u64) {
        if self.model.closed.contains(&channel) {
            return;
        }
        self.model.cancel(slot);
        let load = self.model.load(channel) as u64;
        let answer = self.ring.swap_out(Channel(channel), RingSlot(slot), page(index));
        let entry = Entry { channel, slot, index, tick: self.model.tick };
        if load < CHANNEL_PAGES {
            assert_eq!(answer, SwapOut::Ack, "refused though there was room");
            if CHANNEL_PAGES - load <= CHANNEL_PAGES / 8 {
                self.model.press(channel, 1);
            }
            self.model.waiting.push(entry);
            self.model.taken += 1;
        } else {
            assert_eq!(answer, SwapOut::Nack, "more than a channel holds");
            self.model.press(channel, OK_ROOM as usize);
            self.model.hurried_before.insert(channel, self.model.tick + 1);
            if !self.model.refused.contains(&channel) {
                self.model.refused.push(channel);
            }
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::SwapOut { channel, slot, index } => self.swap_out(channel, slot, index),
            Op::Burst { channel, slot, index, pages } => {
                (0..pages).for_each(|at| self.swap_out(channel, slot + at, index + u64::from(at)));
            }
            Op::Drain { disk, most } => {
                let expected = self.model.next_write(disk, most);
                assert_eq!(self.ring.has_write(disk), expected.is_some());
                let write = self.ring.drain(disk, most);
                let found = write.as_ref().map(|write| {
                    let pages = write.pages.iter().map(|p| (p.slot.0, p.page.index));
                    (write.channel.0, pages.collect::<Vec<_>>())
                });
                let wanted = expected.as_ref().map(|pages| {
                    let list = pages.iter().map(|entry| (entry.slot, entry.index));
                    (pages[0].channel, list.collect::<Vec<_>>())
                });
                assert_eq!(found, wanted);
                if let (Some(write), Some(pages)) = (write, expected) {
                    assert!(pages.iter().all(|entry| Model::disk_of(entry.index) == disk));
                    self.model.snooped[disk] = Some(pages[0].channel);
                    self.model.waiting.retain(|entry| !pages.contains(entry));
                    self.model.writes.push((write, pages.into_iter().map(|page| (page, true)).collect()));
                }
            }
            Op::Finish { which, ok } if which < self.model.writes.len() => {
                let (write, pages) = self.model.writes.remove(which);
                let mut ended = Vec::new();
                self.ring.finish(write, ok, |page| ended.push((page.slot.0, page.page.index)));
                let wanted = pages.iter().filter(|page| page.1).map(|page| (page.0.slot, page.0.index));
                assert_eq!(ended, wanted.collect::<Vec<_>>(), "what was cancelled is not reported as stored");
                *if ok { &mut self.model.written } else { &mut self.model.failed } += pages.len() as u64;
                self.model.forget_closed();
            }
            Op::Read { slot, hold } => {
                let there = self.ring.contains(RingSlot(slot));
                let victim = if hold { Victim::Hold } else { Victim::TakeOff };
                assert_eq!(self.ring.read(RingSlot(slot), victim), there);
                if !hold {
                    // One that is under way stays wanted: nobody else knows yet that it is safe.
                    self.model.take_off(slot);
                } else if let Some(at) = self.model.waiting.iter().position(|entry| entry.slot == slot) {
                    let entry = self.model.waiting.remove(at);
                    self.model.held.push(entry);
                }
            }
            Op::Cancel(slot) => {
                self.ring.cancel(RingSlot(slot));
                self.model.cancel(slot);
            }
            Op::Press(pages) => {
                let closed = |model: &Model, entry: &Entry| model.closed.contains(&entry.channel);
                let held = self.model.held.iter().filter(|entry| !closed(&self.model, entry)).count();
                let before: BTreeMap<_, _> = self.ring.channels().map(|(c, f)| (c, f.held)).collect();
                self.ring.press(pages);
                if pages > 0 {
                    let hurried = before.keys().map(|channel| (channel.0, self.model.tick + 1));
                    self.model.hurried_before.extend(hurried);
                }
                let mut pressed = 0;
                let after: BTreeMap<_, _> = self.ring.channels().map(|(c, f)| (c, f.held)).collect();
                // Which channel comes first is the ring's to say; in which order within one is not.
                let fullest =
                    before.iter().filter(|(c, _)| !self.model.closed.contains(&c.0)).map(|c| *c.1).max();
                let mut order: Vec<_> = before.keys().copied().collect();
                order.sort_by_key(|channel| core::cmp::Reverse((before[channel], *channel)));
                for channel in order {
                    let n = before[&channel] - after[&channel];
                    let whole = after[&channel] == 0 || pressed + n == pages;
                    assert!(n == 0 || whole, "it goes on to another channel before this one is empty");
                    assert!(n == 0 || pressed > 0 || Some(before[&channel]) == fullest);
                    self.model.press(channel.0, n as usize);
                    pressed += n;
                }
                assert_eq!(pressed, pages.min(held as u64));
            }
            Op::Ok => {
                let has_room = |c: &u64| self.model.load(*c) as u64 + OK_ROOM <= CHANNEL_PAGES;
                let at = self.model.refused.iter().position(has_room);
                let expected = at.map(|at| Channel(self.model.refused.remove(at)));
                assert_eq!(self.ring.poll_ok(), expected);
            }
            Op::Close(channel) => {
                self.ring.close(Channel(channel));
                if self.model.load(channel) > 0 && !self.model.closed.contains(&channel) {
                    self.model.closed.push(channel);
                }
                if self.model.load(channel) == 0 {
                    self.model.hurried_before.remove(&channel);
                }
                self.model.refused.retain(|other| *other != channel);
            }
            Op::Tick => {
                self.ring.tick();
                self.model.tick += 1;
            }
            Op::Finish { .. } => {}
        }
    }

    fn check(&self) {
        let figures = self.ring.figures();
        let model = &self.model;
        let under_way: usize = model.writes.iter().map(|write| write.1.len()).sum();
        assert_eq!(figures.waiting, model.waiting.len() as u64);
        assert_eq!(figures.held, model.held.len() as u64);
        assert_eq!(self.ring.pages_held(), figures.held);
        assert_eq!(figures.under_way, under_way as u64);
        let ended = (figures.drained, figures.failed, figures.cancelled);
        assert_eq!(ended, (model.written, model.failed, model.cancelled));
        assert_eq!(figures.taken, model.taken);
        // Nothing is lost: what was taken is in the ring, or it is known what became of it.
        assert_eq!(figures.taken, figures.load() + figures.drained + figures.failed + figures.cancelled);
        for (channel, figures) in self.ring.channels() {
            assert!(figures.load() <= CHANNEL_PAGES, "a channel is bounded");
            assert_eq!(figures.load(), model.load(channel.0) as u64);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn does_what_the_model_does(ops in ops(), linger_ticks in 0..4_u64) {
        let ring = Ring::new(RingConfig { linger_ticks, ..config() });
        let mut test = Test { ring, model: Model { linger_ticks, ..Model::default() } };
        for op in &ops {
            test.apply(op);
            test.check();
        }
        // The end: everything that waits is written, in order, and nothing is left.
        for _ in 0..1000 {
            for disk in 0..DISKS {
                test.apply(&Op::Drain { disk, most: 3 });
            }
            test.apply(&Op::Press(100));
            test.apply(&Op::Finish { which: 0, ok: true });
            test.check();
        }
        for slot in 0..SLOTS {
            test.apply(&Op::Cancel(slot));
        }
        prop_assert_eq!(test.ring.figures().load(), 0);
    }
}

/// Section 3.2: "the pages swapped out by a node are copied together".
#[test]
fn the_fullest_channel_first_and_until_it_is_empty() {
    let mut ring = Ring::new(RingConfig { disks: 1, ..config() });
    for (slot, (channel, index)) in
        [(0, 100), (1, 10), (1, 11), (1, 13), (0, 101), (2, 50)].into_iter().enumerate()
    {
        let taken = ring.swap_out(Channel(channel), RingSlot(slot as u32), page(index));
        assert_eq!(taken, SwapOut::Ack);
    }
    let mut order = Vec::new();
    while let Some(write) = ring.drain(0, 32) {
        order.push(write.pages.iter().map(|page| page.page.index).collect::<Vec<_>>());
        // Another channel becomes the fullest while this one is emptied: it waits.
        if order.len() == 1 {
            (6..9).for_each(|slot| {
                let _ = ring.swap_out(Channel(2), RingSlot(slot), page(u64::from(slot) * 100));
            });
        }
        ring.finish(write, true, |_| ());
    }
    let expected: [&[u64]; 7] = [&[10, 11], &[13], &[50], &[600], &[700], &[800], &[100, 101]];
    assert_eq!(order, expected);
    let figures = ring.figures();
    assert_eq!((figures.drained, figures.writes), (9, 7));
}

/// Two versions of a page must not be under way at a time: the older might be the later on the disk.
#[test]
fn a_page_is_under_way_once() {
    let mut ring = Ring::new(RingConfig { disks: 1, ..config() });
    let _ = ring.swap_out(Channel(0), RingSlot(0), page(5));
    let old = ring.drain(0, 8).expect("it waits");
    ring.cancel(RingSlot(0));
    let _ = ring.swap_out(Channel(0), RingSlot(1), page(5));
    let _ = ring.swap_out(Channel(1), RingSlot(2), page(9));
    let other = ring.drain(0, 8).expect("the other channel does not wait");
    assert_eq!(other.pages[0].page, page(9));
    assert!(!ring.has_write(0));
    ring.finish(old, true, |page| panic!("{page:?} was cancelled"));
    let new = ring.drain(0, 8).expect("its turn");
    assert_eq!(new.pages[0].slot, RingSlot(1));
    ring.finish(other, true, |_| ());
    ring.finish(new, true, |_| ());
}

#[test]
fn a_refused_channel_is_told_of_room_once() {
    let mut ring = Ring::new(RingConfig { disks: 1, ..config() });
    for slot in 0..CHANNEL_PAGES as u32 {
        assert_eq!(ring.swap_out(Channel(0), RingSlot(slot), page(u64::from(slot) * 2)), SwapOut::Ack);
    }
    assert_eq!(ring.swap_out(Channel(0), RingSlot(30), page(90)), SwapOut::Nack);
    assert_eq!(ring.swap_out(Channel(0), RingSlot(31), page(92)), SwapOut::Nack);
    assert_eq!(ring.room(Channel(0)), 0);
    ring.cancel(RingSlot(3));
    assert_eq!(ring.poll_ok(), None, "not for one page");
    ring.cancel(RingSlot(4));
    assert_eq!(ring.poll_ok(), Some(Channel(0)));
    assert_eq!(ring.poll_ok(), None);
    assert_eq!((ring.figures().refused, ring.figures().cancelled), (2, 2));
}
