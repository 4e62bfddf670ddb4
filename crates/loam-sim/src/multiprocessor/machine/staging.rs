//! The ring in the machine (section 3.2). Who waits, and which pages a disk gets next, is `loam_core::staging`'s; here is what it takes, and the messages.

use super::super::config::Config;
use super::super::pages::Place;
use super::super::ring::{Channel, Staged};
use super::medium::{Medium, Put, Stored};
use super::{Event, Machine};
use loam_core::ids::{PageId, SpaceId};
use loam_core::staging::{self, Ring, RingConfig, RingSlot, RingWrite, SwapOut, Victim};
use loam_core::units::{Duration, Instant};
use std::collections::VecDeque;

/// A page that is copied from the ring to its disk's controller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    page: u32,
    version: u32,
    place: usize,
    id: u64,
}

/// The ring, its interfaces and their queues.
#[derive(Debug)]
pub(super) struct Glass {
    medium: Medium,
    policy: Ring,
    channels: Vec<Channel>,
    /// Pages that wait for a place on their node's channel, and when they begin to leave.
    queues: Vec<VecDeque<(u32, Instant)>>,
    last_id: u64,
}

impl Glass {
    pub(super) fn new(config: &Config) -> Self {
        let medium = Medium::new(config);
        let places = medium.places();
        let policy = Ring::new(RingConfig {
            channel_pages: places as u64,
            disks: config.disks,
            group_pages: config.group_pages as u32,
            ok_room_pages: 1,
            linger_ticks: 0,
        });
        Self {
            medium,
            policy,
            channels: vec![Channel::new(places); config.nodes],
            queues: vec![VecDeque::new(); config.nodes],
            last_id: 0,
        }
    }

    pub(super) fn get(&self, writer: usize, place: usize) -> Option<&Staged> {
        self.channels[writer].get(place)
    }

    /// A place, if it still holds what it held when it had this number.
    fn same(&mut self, writer: usize, place: usize, id: u64) -> Option<&mut Staged> {
        self.channels[writer].get_mut(place).filter(|staged| staged.id == id)
    }

    pub(super) fn is_empty(&self) -> bool {
        let figures = self.policy.figures();
        figures.load() == 0 && self.channels.iter().all(|channel| channel.held().count() == 0)
    }
}

fn channel(writer: usize) -> staging::Channel {
    staging::Channel(writer as u64)
}

fn page_id(page: u32) -> PageId {
    PageId { space: SpaceId(0), index: page.into() }
}

impl Machine<'_> {
    fn glass(&mut self) -> &mut Glass {
        self.glass.as_mut().expect("a machine with a ring")
    }

    /// "A page can be swapped out to the NWCACHE if there is room available on the node's cache channel": in the order in which they leave.
    pub(super) fn queue_for_ring(&mut self, page: u32, node: usize, now: Instant, begins: Instant) {
        self.glass().queues[node].push_back((page, begins));
        self.fill_channel(node, now);
    }

    fn fill_channel(&mut self, node: usize, now: Instant) {
        while let Some(&(page, begins)) = self.glass().queues[node].front() {
            let io = self.io_node(page);
            let glass = self.glass.as_mut().expect("a machine with a ring");
            let put =
                glass.medium.put(&mut self.board, (now, begins.max(now)), &glass.channels[node], (node, io));
            let Some(Put { place, frame_free, since }) = put else { return };
            glass.queues[node].pop_front();
            glass.last_id += 1;
            let (id, version) = (glass.last_id, self.pages[page as usize].version);
            let staged = Staged { page, version, id, since, told: false, cancelled: false, copied: false };
            glass.channels[node].put(place, staged);
            self.queue.push(frame_free, Event::Inserted { page, writer: node, place });
        }
    }

    /// The page is in its node's interface, or on the ring already: its frame is free, its Ring bit set; the disk's interface is told.
    pub(super) fn inserted(&mut self, page: u32, writer: usize, place: usize, now: Instant) {
        let id = self.glass().channels[writer].get(place).expect("it was put there").id;
        let heard = self.board.message(now, writer, self.io_node(page));
        self.queue.push(heard, Event::Told { writer, place, id });
        self.swapped_out(page, Place::Ring { writer, place }, now);
    }

    pub(super) fn told(&mut self, writer: usize, place: usize, id: u64, now: Instant) {
        let staged = self.glass().same(writer, place, id).expect("it is freed after it was told of");
        staged.told = true;
        let Staged { page, cancelled, .. } = *staged;
        let disk = self.disk_of(page);
        if cancelled {
            return self.acknowledge(disk, writer, place, id, now);
        }
        assert_eq!(self.glass().policy.disk_of(page_id(page)), disk, "one rule for who has a page");
        let answer = self.glass().policy.swap_out(channel(writer), RingSlot(page), page_id(page));
        assert_eq!(answer, SwapOut::Ack, "the channel's places were counted");
        self.drain(disk, now);
    }

    /// The ACK goes to the node that swapped a page out: it may use the place again.
    fn acknowledge(&mut self, disk: usize, writer: usize, place: usize, id: u64, now: Instant) {
        let heard = self.board.message(now, self.config.node_of(disk), writer);
        self.queue.push(heard, Event::PlaceFree { writer, place, id });
    }

    pub(super) fn place_free(&mut self, writer: usize, place: usize, id: u64, now: Instant) {
        let staged = self.glass().channels[writer].free(place);
        assert_eq!(staged.id, id, "a place is freed once");
        self.fill_channel(writer, now);
    }

    /// "Every time the disk controller attached to the interface has room for an extra page in its cache, the interface starts snooping the most heavily
    /// loaded cache channel and copies as many pages as possible from it to the disk cache."
    pub(super) fn drain(&mut self, disk: usize, now: Instant) {
        let node = self.config.node_of(disk);
        let Some(glass) = &mut self.glass else { return };
        let controller = &mut self.ios[disk].controller;
        while controller.room() > 0 {
            let Some(write) = glass.policy.drain(disk, controller.room()) else { return };
            let writer = write.channel.0 as usize;
            let mut copies = Vec::with_capacity(write.pages.len());
            let mut done = now;
            for of in &write.pages {
                assert!(controller.reserve(), "there was room");
                let (place, staged) = glass.channels[writer].find(of.slot.0).expect("it is on its channel");
                staged.copied = true;
                let Staged { page, version, id, since, .. } = *staged;
                let stored = Stored { writer, place, since, io: node };
                done = done.max(glass.medium.copy(&mut self.board, now, stored));
                copies.push(Copy { page, version, place, id });
                let entry = &mut self.pages[page as usize];
                if entry.place == (Place::Ring { writer, place }) {
                    entry.place = Place::Copying;
                }
            }
            self.queue.push(done, Event::Copied { disk, write, copies });
        }
    }

    pub(super) fn copied(&mut self, disk: usize, write: RingWrite, copies: &[Copy], now: Instant) {
        let writer = write.channel.0 as usize;
        self.glass().policy.finish(write, true, |_| {});
        for &Copy { page, version, place, id } in copies {
            self.ios[disk].controller.fill(page, version);
            self.acknowledge(disk, writer, place, id, now);
            let entry = &mut self.pages[page as usize];
            // If somebody was faster, the page is in memory, and dirty there.
            if entry.place != Place::Copying {
                continue;
            }
            entry.place = Place::Disk;
            if std::mem::take(&mut entry.deferred) {
                let node = entry.wanted.expect("somebody waits for it");
                self.ask(page, node, now);
            }
        }
        self.room_came(disk, now);
    }

    /// "The faulting node can simply snoop the page off the correct cache channel", and tells the disk's interface.
    pub(super) fn snoop(&mut self, page: u32, node: usize, writer: usize, place: usize, now: Instant) {
        let disk = self.disk_of(page);
        let glass = self.glass.as_mut().expect("a machine with a ring");
        let Staged { version, id, since, .. } =
            *glass.channels[writer].get(place).expect("its Ring bit is set");
        let io = self.config.node_of(disk);
        let (begins, rest) = glass.medium.get(now, node, Stored { writer, place, since, io });
        self.pages[page as usize].place = Place::Coming;
        self.queue.push(begins, Event::Snooped { page, version, rest });
        let heard = self.board.message(now, node, io);
        self.queue.push(heard, Event::Cancelled { disk, writer, place, id });
    }

    pub(super) fn snooped(&mut self, page: u32, version: u32, rest: Duration, now: Instant) {
        let node = self.pages[page as usize].wanted.expect("somebody waits for it");
        let way = self.glass().medium.way_in(node);
        let comes = self.board.page(now, &way).max(now + rest);
        self.queue.push(comes, Event::Arrived { page, version, dirty: true });
    }

    /// "This message tells the remote NWCACHE interface that the page does not have to be written to disk": unless it is being copied already.
    pub(super) fn cancelled(&mut self, disk: usize, writer: usize, place: usize, id: u64, now: Instant) {
        let Some(staged) = self.glass().same(writer, place, id) else { return };
        if staged.copied {
            return;
        }
        staged.cancelled = true;
        if !staged.told {
            return;
        }
        let page = staged.page;
        assert!(self.glass().policy.read(RingSlot(page), Victim::TakeOff), "page {page} waits");
        self.acknowledge(disk, writer, place, id, now);
    }
}
