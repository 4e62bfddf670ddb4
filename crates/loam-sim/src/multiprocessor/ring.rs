//! The optical ring's clock (sections 2 and 3.2): when the pages that go round pass whom.
//!
//! A channel is a fibre as long as its round trip. Its places follow one another, each as long as a page; a node writes into a place when that passes
//! its transmitter, and reads a page when that passes its receiver. Nodes lie along the ring at equal distances, in the order of their numbers. All is a
//! function of the time, so nothing goes round in the simulator.

use loam_core::units::{Duration, Instant};

/// Sizes and times of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Optical {
    /// Once round.
    pub round_trip: Duration,
    /// A page's bytes at the channel's rate.
    pub page: Duration,
    /// Pages that a channel holds.
    pub places: usize,
    /// Nodes along it.
    pub nodes: usize,
}

impl Optical {
    /// When a place of `writer`'s channel next begins to pass a node, at `after` or later.
    pub fn passes(&self, writer: usize, place: usize, node: usize, after: Instant) -> Instant {
        let round = self.round_trip.0;
        let behind = ((node + self.nodes - writer) % self.nodes) as u64;
        let phase = (place as u64 * round / self.places as u64 + behind * round / self.nodes as u64) % round;
        let wait = (phase + round - after.0 % round) % round;
        after + Duration(wait)
    }
}

/// What a place of a channel holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    /// The page.
    pub page: u32,
    /// Which contents.
    pub version: u32,
    /// Another one each time that a page is put anywhere.
    pub id: u64,
    /// All of it is on the ring.
    pub since: Instant,
    /// The disk's interface has heard of it.
    pub told: bool,
    /// It was read back before the interface had heard of it.
    pub cancelled: bool,
    /// It is being copied to its disk's controller, or was.
    pub copied: bool,
}

/// One node's channel: what its places hold.
#[derive(Clone, Debug)]
pub struct Channel {
    places: Vec<Option<Staged>>,
}

impl Channel {
    /// An empty one.
    pub fn new(places: usize) -> Self {
        Self { places: vec![None; places] }
    }

    /// The free place that passes its writer first at `after` or later, and when it does. None: the channel is full.
    pub fn first_free(&self, ring: &Optical, writer: usize, after: Instant) -> Option<(usize, Instant)> {
        let free = (0..self.places.len()).filter(|&place| self.places[place].is_none());
        free.map(|place| (place, ring.passes(writer, place, writer, after))).min_by_key(|&(_, at)| at)
    }

    /// Whether a place is free.
    pub fn has_room(&self) -> bool {
        self.any_free().is_some()
    }

    /// The first free place.
    pub fn any_free(&self) -> Option<usize> {
        self.places.iter().position(Option::is_none)
    }

    /// Puts a page into a free place.
    ///
    /// # Panics
    /// If the place is taken.
    pub fn put(&mut self, place: usize, staged: Staged) {
        assert!(self.places[place].replace(staged).is_none(), "a place holds one page");
    }

    /// What a place holds.
    pub fn get(&self, place: usize) -> Option<&Staged> {
        self.places[place].as_ref()
    }

    /// What a place holds.
    pub fn get_mut(&mut self, place: usize) -> Option<&mut Staged> {
        self.places[place].as_mut()
    }

    /// Where a page is that its disk has heard of, and that nobody has taken off or copied.
    pub fn find(&mut self, page: u32) -> Option<(usize, &mut Staged)> {
        let waits =
            |staged: &Staged| staged.page == page && staged.told && !staged.copied && !staged.cancelled;
        let held = self.places.iter_mut().enumerate();
        held.filter_map(|(place, staged)| Some((place, staged.as_mut()?))).find(|(_, staged)| waits(staged))
    }

    /// The place may be written again.
    ///
    /// # Panics
    /// If it is free.
    pub fn free(&mut self, place: usize) -> Staged {
        self.places[place].take().expect("the place holds a page")
    }

    /// Pages that it holds.
    pub fn held(&self) -> impl Iterator<Item = &Staged> {
        self.places.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> Optical {
        Optical { round_trip: Duration(52_000), page: Duration(3_277), places: 16, nodes: 8 }
    }

    #[test]
    fn a_place_passes_each_node_once_a_round() {
        let ring = ring();
        assert_eq!(ring.passes(0, 0, 0, Instant(0)), Instant(0));
        assert_eq!(ring.passes(0, 0, 0, Instant(1)), Instant(52_000));
        assert_eq!(ring.passes(0, 4, 0, Instant(0)), Instant(13_000), "a quarter of the channel behind");
        assert_eq!(ring.passes(2, 0, 4, Instant(0)), Instant(13_000), "two of eight nodes further on");
        assert_eq!(ring.passes(6, 0, 0, Instant(0)), Instant(13_000), "round the end");
        for (writer, place, node) in [(3, 5, 1), (7, 15, 0), (1, 1, 2)] {
            let first = ring.passes(writer, place, node, Instant(1_000_000));
            assert!(first.0 - 1_000_000 < 52_000);
            assert_eq!(ring.passes(writer, place, node, first + Duration(1)), first + ring.round_trip);
        }
    }

    #[test]
    fn the_next_free_place_is_taken_and_a_full_channel_has_none() {
        let ring = ring();
        let mut channel = Channel::new(ring.places);
        let staged = Staged {
            page: 1,
            version: 1,
            id: 1,
            since: Instant(0),
            told: false,
            cancelled: false,
            copied: false,
        };
        let mut at = Instant(100);
        for n in 0..ring.places {
            let (place, passes) = channel.first_free(&ring, 0, at).unwrap();
            assert_eq!(passes, Instant(3_250 * (n as u64 + 1)), "one place after the other");
            channel.put(place, staged);
            at = passes + Duration(1);
        }
        assert_eq!(channel.first_free(&ring, 0, at), None);
        channel.free(7);
        assert_eq!(channel.first_free(&ring, 0, at).map(|(place, _)| place), Some(7));
        assert_eq!(channel.held().count(), 15);
    }
}
