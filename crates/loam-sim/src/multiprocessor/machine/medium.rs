//! What the ring is made of: glass, as in the paper, or lenders' memory, as Loam's. How long it takes to put a page there, to read it, and to copy it to a
//! disk's controller.

use super::super::board::{Board, Leg};
use super::super::config::{Config, Lenders, PAGE_BYTES, Staging};
use super::super::ring::{Channel, Optical};
use crate::engine::Resource;
use loam_core::units::{Duration, Instant};

/// A page that has been put there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Put {
    /// Its place of the channel.
    pub(super) place: usize,
    /// Its frame is free from then on.
    pub(super) frame_free: Instant,
    /// It can be read from then on.
    pub(super) since: Instant,
}

/// A page on the ring that somebody reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    /// Whose channel.
    pub(super) writer: usize,
    /// Which place of it.
    pub(super) place: usize,
    /// It can be read from then on.
    pub(super) since: Instant,
    /// The node with its disk.
    pub(super) io: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) enum Medium {
    Glass {
        ring: Optical,
        /// Each node's receiver for pages to write to its disk.
        drains: Vec<Resource>,
        /// Each node's receiver for pages that it has faulted on.
        snoops: Vec<Resource>,
        /// Each node's transmitter.
        sends: Vec<Resource>,
    },
    Memory {
        of: Lenders,
        nodes: usize,
        /// Each node's network interface, outwards.
        out: Vec<Resource>,
        /// Each lender's processor, as far as it lends.
        lends: Vec<Resource>,
    },
}

impl Medium {
    pub(super) fn new(config: &Config) -> Self {
        let each = vec![Resource::default(); config.nodes];
        match config.staging {
            Staging::Optical(ring) => {
                Self::Glass { ring, drains: each.clone(), snoops: each.clone(), sends: each }
            }
            Staging::Lenders(of) => Self::Memory { of, nodes: config.nodes, out: each.clone(), lends: each },
            Staging::None => panic!("there is no ring"),
        }
    }

    /// Pages that a channel has room for.
    pub(super) fn places(&self) -> usize {
        match self {
            Self::Glass { ring, .. } => ring.places,
            Self::Memory { of, .. } => of.places,
        }
    }

    /// Puts a page, which begins to leave at the second of the two times, on its node's channel; none if that is full.
    pub(super) fn put(
        &mut self,
        board: &mut Board,
        (now, begins): (Instant, Instant),
        channel: &Channel,
        (writer, io): (usize, usize),
    ) -> Option<Put> {
        if !channel.has_room() {
            return None;
        }
        Some(match self {
            Self::Glass { ring, sends, .. } => {
                // The interface sends a page when it has all of it, since the ring is faster than the I/O bus; the frame is free then.
                let frame_free = board.page_from(now, begins, &[Leg::Memory(writer), Leg::Io(writer)]);
                let ready = frame_free.max(sends[writer].free_at());
                let (place, passes) = channel.first_free(ring, writer, ready).expect("it has room");
                let since = sends[writer].serve(passes, ring.page);
                Put { place, frame_free, since }
            }
            Self::Memory { of, nodes, out, lends } => {
                let ready = board.page_from(now, begins, &[Leg::Memory(writer)]) + half(of.request);
                let copies = lenders(*nodes, writer, io).take(of.copies).map(|lender| {
                    let sent = out[writer].serve(ready, of.wire);
                    let stored = lends[lender].serve(sent, of.install);
                    board.page_from(now, stored, &[Leg::Memory(lender)]) + half(of.request)
                });
                let safe = copies.max().expect("a copy is somewhere");
                Put { place: channel.any_free().expect("it has room"), frame_free: safe, since: safe }
            }
        })
    }

    /// When a page that is on the ring comes to a node that wants it: its first bytes, and the way from there. The rest is this much behind at least.
    pub(super) fn get(&mut self, now: Instant, node: usize, of: Stored) -> (Instant, Duration) {
        match self {
            Self::Glass { ring, snoops, .. } => {
                let ready = now.max(snoops[node].free_at()).max(of.since);
                let passes = ring.passes(of.writer, of.place, node, ready);
                snoops[node].serve(passes, ring.page);
                (passes, ring.page)
            }
            Self::Memory { .. } => (self.fetch(now.max(of.since), node, of), Duration(0)),
        }
    }

    /// From a node's interface to its memory.
    pub(super) fn way_in(&self, node: usize) -> Vec<Leg> {
        match self {
            Self::Glass { .. } => vec![Leg::Io(node), Leg::Memory(node)],
            Self::Memory { .. } => vec![Leg::Memory(node)],
        }
    }

    /// When a page has been copied to its disk's controller. On the paper's machine the controller is plugged into the interface.
    pub(super) fn copy(&mut self, board: &mut Board, now: Instant, of: Stored) -> Instant {
        match self {
            Self::Glass { ring, drains, .. } => {
                let drain = &mut drains[of.io];
                let ready = now.max(drain.free_at()).max(of.since);
                let passes = ring.passes(of.writer, of.place, of.io, ready);
                drain.serve(passes, ring.page)
            }
            Self::Memory { .. } => {
                let here = self.fetch(now.max(of.since), of.io, of);
                board.page_from(now, here, &[Leg::Memory(of.io), Leg::Io(of.io)])
            }
        }
    }

    /// Fetches a page from its first lender; at once, where that is the node itself.
    fn fetch(&mut self, now: Instant, node: usize, stored: Stored) -> Instant {
        let Self::Memory { of, nodes, out, lends } = self else { panic!("from lenders") };
        let lender = lenders(*nodes, stored.writer, stored.io).next().expect("there is one");
        if lender == node {
            return now;
        }
        let served = lends[lender].serve(now + half(of.request), of.lender);
        out[lender].serve(served, of.wire) + half(of.request) + of.install
    }
}

fn half(time: Duration) -> Duration {
    Duration(time.0 / 2)
}

/// Who keeps a borrower's pages: the node with their disk first, those behind it, never the borrower.
fn lenders(nodes: usize, writer: usize, io: usize) -> impl Iterator<Item = usize> {
    (0..nodes).map(move |n| (io + n) % nodes).filter(move |&node| node != writer)
}

impl Lenders {
    /// What a page takes on the machines and the network of a hardware model (`models/`), of which all stages are used: those at the lender, the wire, and those
    /// at the borrower's processor.
    pub fn of_model(model: &crate::model::Model, copies: usize, places: usize) -> Self {
        use crate::model::Place;
        let time = |place: Place| {
            let stages = model.stages.iter().filter(|stage| stage.at == place);
            Duration(stages.map(|stage| stage.fixed_ns + stage.ps_per_byte * PAGE_BYTES / 1000).sum())
        };
        Self {
            copies,
            places,
            request: Duration(model.request_ns),
            lender: time(Place::Lender),
            wire: time(Place::Shared),
            install: time(Place::Processor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    fn stored(since: u64) -> Stored {
        Stored { writer: 0, place: 3, since: Instant(since), io: 2 }
    }

    #[test]
    fn glass_takes_a_bus_and_gives_with_the_round() {
        let config = Config::paper().with(super::super::super::config::Prefetch::Naive, true);
        let (mut board, mut medium) = (Board::new(&config), Medium::new(&config));
        let channel = Channel::new(medium.places());
        let put = medium.put(&mut board, (Instant(0), Instant(0)), &channel, (0, 2)).unwrap();
        // The I/O bus and a line of the memory bus before it.
        assert_eq!(put.frame_free, Instant(13_652 + 80));
        assert!(put.since.0 - put.frame_free.0 < 3_250 + 3_277, "the next free place, and a page's time");
        let (first, rest) = medium.get(Instant(100_000), 5, stored(0));
        assert!(first.0 - 100_000 < 52_000 && rest == Duration(3_277));
        let (later, _) = medium.get(Instant(100_000), 5, stored(300_000));
        assert!(later.0 >= 300_000, "not before it is there");
        let copied = medium.copy(&mut board, Instant(100_000), stored(0));
        assert!(copied.0 - 100_000 < 52_000 + 3_277);
    }

    #[test]
    fn two_lenders_keep_a_page_and_the_nearer_one_writes_it() {
        let model = Model::load("tcp-25g").unwrap();
        let lenders = Lenders::of_model(&model, 2, 16);
        assert_eq!(lenders.request, Duration(10_000));
        assert_eq!((lenders.lender.0, lenders.wire.0, lenders.install.0), (500 + 614, 1_392, 2_000 + 1_843));
        let config = Config { staging: Staging::Lenders(lenders), ..Config::paper() };
        let (mut board, mut medium) = (Board::new(&config), Medium::new(&config));
        let put = medium.put(&mut board, (Instant(0), Instant(0)), &Channel::new(16), (0, 2)).unwrap();
        let bus = 5_120;
        assert_eq!(
            put.frame_free.0,
            bus + 10_000 + 2 * 1_392 + 3_843 + bus,
            "the second copy's wire is behind the first's"
        );
        assert_eq!(
            medium.copy(&mut board, Instant(90_000), stored(0)),
            Instant(90_000 + 13_652 + 80),
            "it is here"
        );
        let (read, _) = medium.get(Instant(200_000), 5, stored(0));
        assert_eq!(read.0 - 200_000, 10_000 + 1_114 + 1_392 + 3_843);
    }

    #[test]
    fn nobody_lends_to_itself() {
        assert_eq!(lenders(4, 2, 2).take(2).collect::<Vec<_>>(), [3, 0]);
        assert_eq!(lenders(4, 3, 2).take(2).collect::<Vec<_>>(), [2, 0]);
    }
}
