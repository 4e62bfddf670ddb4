//! Where an evicted page goes, and what makes room for one that comes.
//!
//! | policy | target | room is made by |
//! | --- | --- | --- |
//! | [`Gms`] | in proportion to the weights of the epoch | the oldest page |
//! | [`NChance`] | any other node | a free frame, a duplicate, a recirculating page, a very old page; or it is forwarded |
//! | [`Random`] | any other node | the oldest page |
//! | [`Nowhere`] | the disk | |

use super::epoch::Epoch;
use super::frames::{Ages, Frame, Frames};
use crate::draw::Draw;
use crate::ids::{NodeId, PageId};
use crate::units::{Duration, Instant};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// What a policy may look at when a page leaves.
#[derive(Clone, Copy, Debug)]
pub struct Evicted {
    /// Its age as replacement sees it: boosted if it is a global page.
    pub age: Duration,
    /// Other nodes have it too, as far as is known.
    pub duplicate: bool,
    /// How often it was sent on already counts down from N; for a page of the node's own it is N.
    pub recirculations: u8,
}

/// Where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: the disk has it.
    Discard,
    /// To this node, which may send it on so often.
    Forward(NodeId, u8),
}

/// How room is made for a page that came from another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// A free frame takes it.
    Free,
    /// This page is discarded.
    Replace(PageId),
    /// It is discarded itself: it is older than all that is here.
    Older,
    /// It is sent on, or discarded if it may not be.
    Full,
}

/// A placement policy.
pub trait Placement: core::fmt::Debug + Send {
    /// The epoch or the living nodes have changed. `others` are all but this one, ascending.
    fn cluster_changed(&mut self, me: NodeId, epoch: &Epoch, others: &[NodeId]);
    /// A page is evicted.
    fn place(&mut self, evicted: &Evicted) -> Place;
    /// How old a page counts here that another node used so long ago.
    fn age_on_arrival(&self, age: Duration) -> Duration {
        age
    }
    /// How the ages of pages are compared on a node whose own would be `ages`.
    fn ages(&self, ages: Ages) -> Ages {
        Ages { boost_percent: 0, ..ages }
    }
    /// A page has come whose frame would be `arriving`.
    fn room(&mut self, now: Instant, frames: &Frames, arriving: &Frame) -> Room {
        oldest_makes_room(now, frames, arriving)
    }
}

/// Names that [`by_name`] knows.
pub const NAMES: [&str; 4] = ["gms", "n-chance", "random", "none"];

/// The policy of this name.
pub fn by_name(name: &str, seed: u64) -> Option<Box<dyn Placement>> {
    Some(match name {
        "gms" => Box::new(Gms::new(seed)),
        "n-chance" => Box::new(NChance::new(seed)),
        "random" => Box::new(Random::new(seed)),
        "none" => Box::new(Nowhere),
        _ => return None,
    })
}

fn oldest_makes_room(now: Instant, frames: &Frames, arriving: &Frame) -> Room {
    if frames.free() > 0 {
        return Room::Free;
    }
    match frames.oldest(now) {
        Some((page, oldest)) if frames.age(now, &oldest) >= frames.age(now, arriving) => Room::Replace(page),
        _ => Room::Older,
    }
}

/// gms-1995, section 3.2: a page older than MinAge is discarded, another goes to node i with probability w_i / Σw.
#[derive(Debug)]
pub struct Gms {
    draw: Draw,
    min_age: Duration,
    /// Sums of the weights up to and with each node.
    sums: Vec<(u64, NodeId)>,
}

impl Gms {
    /// With the chances of this seed.
    pub fn new(seed: u64) -> Self {
        Self { draw: Draw::new(seed), min_age: Duration(0), sums: Vec::new() }
    }
}

impl Placement for Gms {
    fn cluster_changed(&mut self, me: NodeId, epoch: &Epoch, others: &[NodeId]) {
        self.min_age = epoch.min_age;
        self.sums.clear();
        let mut sum = 0;
        for &(node, weight) in &epoch.weights {
            if node != me && weight > 0 && others.binary_search(&node).is_ok() {
                sum += u64::from(weight);
                self.sums.push((sum, node));
            }
        }
    }

    fn place(&mut self, evicted: &Evicted) -> Place {
        let Some(&(sum, _)) = self.sums.last() else { return Place::Discard };
        // A duplicate would cost its next user the same from the other node ("for which a duplicate exists elsewhere", section 4.5).
        if evicted.duplicate || evicted.age >= self.min_age {
            return Place::Discard;
        }
        let drawn = self.draw.below(sum);
        let at = self.sums.partition_point(|&(sum, _)| sum <= drawn);
        Place::Forward(self.sums[at].1, 0)
    }

    /// "Our current implementation boosts the ages of global pages" (section 3.1).
    fn ages(&self, ages: Ages) -> Ages {
        ages
    }
}

/// N-chance forwarding (Dahlin, Wang, Anderson, Patterson, OSDI 1994) with the changes of gms-1995, section 5.5.
#[derive(Debug)]
pub struct NChance {
    draw: Draw,
    others: Vec<NodeId>,
}

/// N: "singlet pages are forwarded by nodes with an initial recirculation count of N = 2".
pub const RECIRCULATIONS: u8 = 2;
/// "A very old singlet". The paper gives no age; a minute is how often it samples ages (section 4.2).
const VERY_OLD: Duration = Duration::from_millis(60_000);

impl NChance {
    /// With the chances of this seed.
    pub fn new(seed: u64) -> Self {
        Self { draw: Draw::new(seed), others: Vec::new() }
    }
}

impl Placement for NChance {
    fn cluster_changed(&mut self, _: NodeId, _: &Epoch, others: &[NodeId]) {
        self.others.clear();
        self.others.extend_from_slice(others);
    }

    fn place(&mut self, evicted: &Evicted) -> Place {
        if evicted.duplicate || evicted.recirculations == 0 || self.others.is_empty() {
            return Place::Discard;
        }
        let drawn = self.draw.below(self.others.len() as u64) as usize;
        Place::Forward(self.others[drawn], evicted.recirculations - 1)
    }

    /// "That page is made the youngest on its LRU list" (section 2): without global knowledge ages of different nodes are not compared. So
    /// it outlives the receiver's own pages there, for one turn of its list.
    fn age_on_arrival(&self, _: Duration) -> Duration {
        Duration(0)
    }

    fn ages(&self, ages: Ages) -> Ages {
        Ages { boost_percent: 0, one_list: true, ..ages }
    }

    fn room(&mut self, now: Instant, frames: &Frames, _: &Frame) -> Room {
        if frames.free() > 0 {
            return Room::Free;
        }
        if let Some((page, _)) = frames.oldest_duplicate().or_else(|| frames.oldest_global()) {
            return Room::Replace(page);
        }
        match frames.oldest(now) {
            Some((page, oldest)) if frames.age(now, &oldest) >= VERY_OLD => Room::Replace(page),
            _ => Room::Full,
        }
    }
}

/// To any other node, as Felten and Zahorjan's registry does (gms-1995, section 2).
#[derive(Debug)]
pub struct Random(NChance);

impl Random {
    /// With the chances of this seed.
    pub fn new(seed: u64) -> Self {
        Self(NChance::new(seed))
    }
}

impl Placement for Random {
    fn cluster_changed(&mut self, me: NodeId, epoch: &Epoch, others: &[NodeId]) {
        self.0.cluster_changed(me, epoch, others);
    }

    fn place(&mut self, evicted: &Evicted) -> Place {
        match self.0.place(&Evicted { recirculations: RECIRCULATIONS, ..*evicted }) {
            Place::Forward(node, _) => Place::Forward(node, 0),
            Place::Discard => Place::Discard,
        }
    }
}

/// No global memory.
#[derive(Debug)]
pub struct Nowhere;

impl Placement for Nowhere {
    fn cluster_changed(&mut self, _: NodeId, _: &Epoch, _: &[NodeId]) {}

    fn place(&mut self, _: &Evicted) -> Place {
        Place::Discard
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::global::frames::Kind;
    use crate::ids::{SpaceId, Version};

    const FRESH: Evicted =
        Evicted { age: Duration::from_millis(10), duplicate: false, recirculations: RECIRCULATIONS };

    fn epoch() -> Epoch {
        let weights =
            alloc::vec![(NodeId(1), 50), (NodeId(2), 10), (NodeId(3), 0), (NodeId(4), 30), (NodeId(9), 70)];
        Epoch { min_age: Duration::from_millis(1_000), weights, ..Epoch::default() }
    }

    #[test]
    fn gms_follows_the_weights_of_the_living() {
        let mut gms = Gms::new(1);
        assert_eq!(gms.place(&FRESH), Place::Discard, "no epoch is known");
        gms.cluster_changed(NodeId(1), &epoch(), &[NodeId(2), NodeId(3), NodeId(4)]);
        let mut counts = [0u32; 10];
        for _ in 0..4_000 {
            let Place::Forward(node, _) = gms.place(&FRESH) else { panic!("it is younger than MinAge") };
            counts[node.0 as usize] += 1;
        }
        assert_eq!(counts[2] + counts[4], 4_000);
        assert!((2_850..3_150).contains(&counts[4]), "{counts:?}");
        assert_eq!(gms.place(&Evicted { age: Duration::from_millis(1_000), ..FRESH }), Place::Discard);
        assert_eq!(gms.place(&Evicted { duplicate: true, ..FRESH }), Place::Discard);
    }

    #[test]
    fn n_chance_forwards_a_singlet_twice() {
        let mut policy = NChance::new(1);
        policy.cluster_changed(NodeId(1), &epoch(), &[NodeId(2), NodeId(7)]);
        let Place::Forward(_, left) = policy.place(&FRESH) else { panic!("a singlet is kept") };
        assert_eq!(left, 1);
        let Place::Forward(_, left) = policy.place(&Evicted { recirculations: left, ..FRESH }) else {
            panic!()
        };
        assert_eq!((left, policy.place(&Evicted { recirculations: left, ..FRESH })), (0, Place::Discard));
    }

    #[test]
    fn only_gms_compares_ages_of_different_nodes() {
        let age = Duration::from_millis(70_000);
        assert_eq!(Gms::new(1).age_on_arrival(age), age);
        assert_eq!(NChance::new(1).age_on_arrival(age), Duration(0), "the youngest");
        let ages = Ages { boost_percent: 25, ..Ages::default() };
        assert_eq!((Gms::new(1).ages(ages).boost_percent, NChance::new(1).ages(ages).boost_percent), (25, 0));
        assert!(NChance::new(1).ages(ages).one_list && !Random::new(1).ages(ages).one_list);
    }

    #[test]
    fn n_chance_takes_duplicates_before_recirculating_pages_before_old_ones() {
        let page = |index| PageId { space: SpaceId(1), index };
        let now = Instant(100_000_000_000);
        let mut frames = Frames::new(3, Ages::default());
        let mut policy = NChance::new(1);
        let arriving = Frame { kind: Kind::Global, last_used: now, version: Version(0), ..Frame::default() };
        let young = Frame { last_used: now, ..Frame::default() };
        frames.insert(page(1), Frame { last_used: Instant(1), ..young });
        frames.insert(page(2), Frame { duplicate: true, ..young });
        assert_eq!(policy.room(now, &frames, &arriving), Room::Free);
        frames.insert(page(3), Frame { kind: Kind::Global, ..young });
        assert_eq!(policy.room(now, &frames, &arriving), Room::Replace(page(2)));
        frames.set_duplicate(page(2), false);
        assert_eq!(policy.room(now, &frames, &arriving), Room::Replace(page(3)));
        frames.remove(page(3));
        frames.set_capacity(2);
        assert_eq!(policy.room(now, &frames, &arriving), Room::Replace(page(1)));
        frames.touch(now, page(1), false);
        assert_eq!(policy.room(now, &frames, &arriving), Room::Full);
        // The others ask for age alone.
        let older = Frame { last_used: Instant(now.0 - 1), ..arriving };
        assert_eq!(Random::new(1).room(now, &frames, &older), Room::Older);
        assert_eq!(Random::new(1).room(now, &frames, &arriving), Room::Replace(page(2)));
    }
}
