//! Nodes on one virtual clock, with contents: what a program finds must be what it wrote last, whatever the network does.

use super::*;
use crate::global::frames::{Frame, Kind};
use crate::global::placement;
use crate::ids::{SpaceId, Version};
use crate::units::Duration;
use alloc::collections::BTreeSet;
use proptest::prelude::*;

mod two_masters;

/// A disk takes so long.
const DISK: Duration = Duration::from_millis(10);

struct Machine {
    node: GlobalNode,
    /// What each page that was ever here holds; only what the node says is present counts.
    contents: BTreeMap<PageId, u64>,
    /// Accesses that wait, with the value to be written, if any.
    waiting: BTreeMap<PageId, Option<u64>>,
}

struct Cluster {
    now: Instant,
    machines: BTreeMap<NodeId, Machine>,
    /// Nodes that see each other only, while the others see each other only.
    apart: BTreeSet<NodeId>,
    /// Messages between the two sides are lost.
    cut: bool,
    events: BTreeMap<(Instant, u64), Event>,
    disk: BTreeMap<PageId, u64>,
    /// What each private page's program wrote last.
    truth: BTreeMap<PageId, u64>,
    events_ever: u64,
    writes_ever: u64,
    dice: u64,
    loss_percent: u64,
    policy: &'static str,
    config: NodeConfig,
}

enum Event {
    Message(NodeId, NodeId, NodeMessage, Option<u64>),
    Disk(NodeId, PageId),
}

/// What a shared page holds: its file does not change.
fn file(page: PageId) -> u64 {
    page.space.0 << 32 | page.index
}

impl Cluster {
    fn new(nodes: u64, frames: u32, policy: &'static str, seed: u64, loss_percent: u64) -> Self {
        Self::with(nodes, NodeConfig::new(frames), policy, seed, loss_percent)
    }

    fn with(nodes: u64, config: NodeConfig, policy: &'static str, seed: u64, loss_percent: u64) -> Self {
        let mut cluster = Self {
            now: Instant(1),
            machines: BTreeMap::new(),
            apart: BTreeSet::new(),
            cut: false,
            events: BTreeMap::new(),
            disk: BTreeMap::new(),
            truth: BTreeMap::new(),
            events_ever: 0,
            writes_ever: 0,
            dice: seed | 1,
            loss_percent,
            policy,
            config,
        };
        (1..=nodes).for_each(|id| cluster.start(NodeId(id)));
        cluster.run(Duration::from_millis(50));
        cluster
    }

    fn start(&mut self, id: NodeId) {
        let policy = placement::by_name(self.policy, id.0).unwrap();
        let node = GlobalNode::new(self.now, id, self.config, policy);
        self.machines.insert(id, Machine { node, contents: BTreeMap::new(), waiting: BTreeMap::new() });
        self.tell_members();
    }

    fn tell_members(&mut self) {
        let ids: Vec<NodeId> = self.machines.keys().copied().collect();
        for id in &ids {
            let side = self.apart.contains(id);
            let seen = ids.iter().copied().filter(|other| self.apart.contains(other) == side);
            self.machines.get_mut(id).unwrap().node.handle_members(self.now, seen);
            self.drain(*id, None);
        }
    }

    fn roll(&mut self, below: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % below
    }

    fn node(&self, id: u64) -> &GlobalNode {
        &self.machines[&NodeId(id)].node
    }

    /// Node `id` uses its private page `index`.
    fn private(&mut self, id: u64, index: u64, write: bool) {
        let page = PageId { space: SpaceId(id), index };
        self.access(NodeId(id), Access { page, shared: false, write });
    }

    /// Node `id` reads page `index` of a file.
    fn shared(&mut self, id: u64, index: u64) {
        let page = PageId { space: SpaceId(1_000), index };
        self.access(NodeId(id), Access { page, shared: true, write: false });
    }

    fn access(&mut self, id: NodeId, access: Access) {
        let Access { page, write, .. } = access;
        if self.machines[&id].waiting.contains_key(&page) {
            return;
        }
        self.writes_ever += 1;
        let value = write.then_some(self.writes_ever);
        let machine = self.machines.get_mut(&id).unwrap();
        if machine.node.handle_access(self.now, access) {
            self.used(id, page, value);
        } else {
            machine.waiting.insert(page, value);
        }
        self.drain(id, None);
    }

    /// A program has its page: it checks what it finds, and writes.
    fn used(&mut self, id: NodeId, page: PageId, value: Option<u64>) {
        let machine = self.machines.get_mut(&id).unwrap();
        let frame = machine.node.frames().get(page).expect("a page in use is present");
        assert_eq!(frame.kind, Kind::Local);
        let expected = if frame.shared { file(page) } else { self.truth.get(&page).copied().unwrap_or(0) };
        assert_eq!(machine.contents[&page], expected, "{page:?} at {id:?}");
        if let Some(value) = value {
            machine.contents.insert(page, value);
            self.truth.insert(page, value);
        }
    }

    fn drain(&mut self, id: NodeId, came: Option<u64>) {
        loop {
            let Some(machine) = self.machines.get_mut(&id) else { return };
            let Some(effect) = machine.node.poll_effect() else { return };
            match effect {
                Effect::Send { to, message } => {
                    let contents = match &message {
                        NodeMessage::Page(PageMessage::Data { page, .. } | PageMessage::Put { page, .. }) => {
                            Some(machine.contents[page])
                        }
                        _ => None,
                    };
                    self.send(id, to, message, contents);
                }
                Effect::Held(page) => {
                    machine.contents.insert(page, came.expect("it came with contents"));
                }
                Effect::ReadDisk(page) => self.schedule(DISK, Event::Disk(id, page)),
                Effect::WriteDisk(page) => {
                    let contents = machine.contents[&page];
                    self.disk.insert(page, contents);
                }
                Effect::Arrived { page, origin } => {
                    if origin != Origin::Own {
                        machine.contents.insert(page, came.expect("it came with contents"));
                    }
                    let value = machine.waiting.remove(&page).expect("somebody waits");
                    self.used(id, page, value);
                }
                Effect::Scanned { .. } => {}
            }
        }
    }

    fn schedule(&mut self, delay: Duration, event: Event) {
        self.events_ever += 1;
        self.events.insert((self.now + delay, self.events_ever), event);
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: NodeMessage, contents: Option<u64>) {
        if self.cut && self.apart.contains(&from) != self.apart.contains(&to) {
            return;
        }
        for _ in 0..1 + u64::from(self.roll(100) < self.loss_percent) {
            if self.roll(100) < self.loss_percent {
                continue;
            }
            let late = self.loss_percent > 0 && self.roll(20) < 1;
            let delay_us = match self.loss_percent {
                0 => 150,
                _ if late => self.roll(500_000),
                _ => 100 + self.roll(100),
            };
            self.schedule(
                Duration::from_micros(delay_us),
                Event::Message(from, to, message.clone(), contents),
            );
        }
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let timer = self.machines.values().filter_map(|machine| machine.node.poll_timeout()).min();
            let event = self.events.keys().next().map(|&(at, _)| at);
            let next = timer.into_iter().chain(event).min().unwrap_or(end).max(self.now);
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            while let Some((&key, _)) = self.events.range(..=(self.now, u64::MAX)).next() {
                let event = self.events.remove(&key).unwrap();
                self.happen(event);
            }
            let ids: Vec<NodeId> = self.machines.keys().copied().collect();
            for id in ids {
                let node = &mut self.machines.get_mut(&id).unwrap().node;
                if node.poll_timeout().is_some_and(|at| at <= self.now) {
                    node.handle_timeout(self.now);
                }
                self.drain(id, None);
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Message(from, to, message, contents) => {
                let Some(machine) = self.machines.get_mut(&to) else { return };
                machine.node.handle_message(self.now, from, message);
                self.drain(to, contents);
            }
            Event::Disk(id, page) => {
                let Some(machine) = self.machines.get_mut(&id) else { return };
                let shared = page.space == SpaceId(1_000);
                let contents = if shared { file(page) } else { self.disk.get(&page).copied().unwrap_or(0) };
                machine.node.handle_disk_read(self.now, page);
                self.drain(id, Some(contents));
            }
        }
    }

    fn kill(&mut self, id: NodeId) {
        self.machines.remove(&id);
        self.tell_members();
    }

    /// Invariants of each node, and, when nothing is under way, of all together.
    fn check(&self, quiet: bool) {
        let mut global = BTreeSet::new();
        for (id, machine) in &self.machines {
            let frames = machine.node.frames();
            assert!(frames.pages() <= frames.capacity(), "{id:?} has more pages than frames");
            assert_eq!(frames.iter().count(), frames.pages() as usize);
            let ages: Vec<Instant> =
                frames.iter().filter(|(_, f)| f.kind == Kind::Local).map(|(_, f)| f.last_used).collect();
            assert!(ages.is_sorted_by(|newer, older| newer >= older), "local pages are by last use");
            for (page, frame) in frames.iter() {
                assert!(frame.kind == Kind::Local || !frame.dirty, "a global page is clean");
                if quiet && frame.kind == Kind::Global {
                    assert!(global.insert(page), "{page:?} is held for others twice");
                }
            }
            if quiet {
                assert!(machine.waiting.is_empty(), "{id:?} waits for ever");
            }
        }
        if quiet {
            for (id, machine) in &self.machines {
                for page in machine.node.directory().pages() {
                    for &(holder, kind) in &machine.node.directory().get(page).unwrap().holders {
                        let frame = self.machines[&holder].node.frames().get(page);
                        assert!(
                            frame.is_some_and(|f| f.kind == kind),
                            "{id:?} believes that {holder:?} has {page:?}"
                        );
                    }
                }
            }
        }
    }
}

fn stats(cluster: &Cluster, id: u64) -> NodeStats {
    cluster.node(id).stats()
}

#[test]
fn the_four_cases() {
    let step = Duration::from_millis(30);
    let mut cluster = Cluster::new(3, 8, "gms", 1, 0);
    cluster.run(Duration::from_millis(1_000));
    // Case 3: the disk, and what does not fit goes to idle nodes.
    for index in 0..12 {
        cluster.private(1, index, true);
        cluster.run(step);
    }
    let first = stats(&cluster, 1);
    assert_eq!((first.disk, first.puts, first.writes, first.discards), (12, 4, 4, 0));
    assert_eq!(cluster.node(2).frames().global_pages() + cluster.node(3).frames().global_pages(), 4);
    // Case 2: only local pages here; the swap leaves the number of global pages elsewhere as it is.
    cluster.private(1, 0, false);
    cluster.run(step);
    assert_eq!((stats(&cluster, 1).global, stats(&cluster, 1).disk), (1, 12));
    assert_eq!(cluster.node(2).frames().global_pages() + cluster.node(3).frames().global_pages(), 4);
    // Case 1: node 2 starts to work; its first pages push out what it holds for others, which goes to node 3.
    cluster.run(Duration::from_millis(1_000));
    for index in 0..8 {
        cluster.private(2, index, true);
        cluster.run(step);
    }
    assert_eq!(cluster.node(2).frames().global_pages(), 0);
    assert_eq!(cluster.node(3).frames().global_pages(), 4);
    cluster.check(true);
    // Case 4: a file's page in another's local memory is copied; both know.
    cluster.shared(3, 7);
    cluster.run(step);
    cluster.shared(1, 7);
    cluster.run(step);
    assert_eq!((stats(&cluster, 3).disk, stats(&cluster, 1).duplicate), (1, 1));
    let page = PageId { space: SpaceId(1_000), index: 7 };
    assert!(cluster.node(1).frames().get(page).unwrap().duplicate);
    assert!(cluster.node(3).frames().get(page).unwrap().duplicate);
    cluster.check(true);
    // One of the duplicates leaves without a message to anybody but the directory; the other is a singlet again.
    let puts = stats(&cluster, 1).puts;
    for index in 0..8 {
        cluster.private(1, index, false);
        cluster.run(step);
    }
    assert!(cluster.node(1).frames().get(page).is_none());
    assert!(!cluster.node(3).frames().get(page).unwrap().duplicate);
    assert!(stats(&cluster, 1).puts > puts);
    cluster.check(true);
}

#[test]
fn a_private_page_that_is_written_again_is_never_taken_from_its_old_copy() {
    let mut cluster = Cluster::new(2, 4, "gms", 1, 0);
    cluster.run(Duration::from_millis(1_000));
    for round in 0..40 {
        cluster.private(1, round % 6, round % 3 == 0);
        cluster.run(Duration::from_millis(20));
    }
    let stats = stats(&cluster, 1);
    assert!(stats.global > 10 && stats.writes > 5, "{stats:?}");
    cluster.check(true);
}

#[test]
fn a_machine_that_takes_its_memory_back_ends_the_epoch() {
    let mut cluster = Cluster::new(3, 64, "gms", 1, 0);
    cluster.run(Duration::from_millis(2_000));
    let epoch = |cluster: &Cluster| cluster.node(1).coordinator().epoch().clone();
    let before = epoch(&cluster);
    assert!(before.weight(NodeId(2)) > 0);
    let now = cluster.now;
    cluster.machines.get_mut(&NodeId(2)).unwrap().node.handle_frames(now, 0);
    cluster.drain(NodeId(2), None);
    cluster.run(Duration::from_millis(1_100));
    let after = epoch(&cluster);
    assert!(after.id > before.id, "others would send it pages until the epoch's time is over");
    assert_eq!(after.weight(NodeId(2)), 0);
}

#[test]
fn a_share_limit_holds() {
    let config = NodeConfig { share_max: 2, ..NodeConfig::new(8) };
    let mut cluster = Cluster::with(2, config, "gms", 1, 0);
    cluster.run(Duration::from_millis(1_000));
    for index in 0..14 {
        cluster.private(1, index, true);
        cluster.run(Duration::from_millis(20));
    }
    assert_eq!((stats(&cluster, 1).puts, cluster.node(2).frames().global_pages()), (2, 2));
    // One comes home, so another may go.
    cluster.private(1, 0, false);
    cluster.run(Duration::from_millis(20));
    assert_eq!((stats(&cluster, 1).global, stats(&cluster, 1).puts), (1, 3));
}

#[test]
fn a_scan_does_not_displace_what_others_use() {
    let run = |scan_guard| {
        let config = NodeConfig { scan_guard, ..NodeConfig::new(40) };
        let mut cluster = Cluster::with(3, config, "gms", 1, 0);
        cluster.run(Duration::from_millis(2_000));
        let mut dice = 1u64;
        for round in 0..4_000 {
            // Node 1 uses 64 pages at random, node 2 reads a file from its beginning to its end.
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            cluster.private(1, (dice >> 40) % 64, false);
            cluster.private(2, round, false);
            cluster.run(Duration::from_millis(20));
        }
        stats(&cluster, 1).disk
    };
    let (with, without) = (run(true), run(false));
    assert!(with * 2 < without, "{with} disk reads with the guard, {without} without");
}

/// A node, one of two, that has one frame.
fn one_frame() -> GlobalNode {
    let policy = placement::by_name("random", 1).unwrap();
    let mut node = GlobalNode::new(Instant(1), NodeId(1), NodeConfig::new(1), policy);
    node.handle_members(Instant(1), [NodeId(1), NodeId(2)]);
    node
}

fn put(page: PageId, owner: u64) -> NodeMessage {
    let frame = Frame {
        kind: Kind::Global,
        shared: page.space == SpaceId(1_000),
        owner: NodeId(owner),
        ..Frame::default()
    };
    NodeMessage::Page(PageMessage::Put { page, frame, age: Duration(u64::MAX / 4) })
}

// The next three were found by `loam sim fuzz --cluster`.

#[test]
fn what_comes_late_of_the_dead_is_not_kept() {
    let mut node = one_frame();
    let (now, dead, page) = (Instant(2), NodeId(9), PageId { space: SpaceId(1_000), index: 7 });
    node.handle_message(now, NodeId(2), put(PageId { space: SpaceId(9), index: 0 }, 9));
    assert_eq!((node.frames().pages(), node.stats().refused), (0, 1), "nobody would ever ask for it");
    let (version, from) = (Version(0), NodeId(2));
    for message in [
        PageMessage::Locate { page, requester: dead },
        PageMessage::Moved { page, version, from, to: Some(dead) },
        PageMessage::Entries(alloc::vec![(page, dead, Kind::Local)]),
    ] {
        node.handle_message(now, NodeId(2), NodeMessage::Page(message));
        assert!(node.directory().is_empty());
    }
    // And an entry goes with the last who is in it.
    let message = PageMessage::Locate { page, requester: NodeId(2) };
    node.handle_message(now, NodeId(2), NodeMessage::Page(message));
    assert_eq!(node.directory().len(), 1);
    node.handle_members(now, [NodeId(1)]);
    assert!(node.directory().is_empty());
}

#[test]
fn an_own_page_that_comes_home_is_counted_once() {
    let mut node = one_frame();
    for index in 0..2 {
        let page = PageId { space: SpaceId(1), index };
        node.handle_access(Instant(2 + index), Access { page, shared: false, write: false });
        node.handle_disk_read(Instant(2 + index), page);
    }
    let page = PageId { space: SpaceId(1), index: 0 };
    assert_eq!(node.directory().get(page).unwrap().holders, [(NodeId(2), Kind::Global)]);
    assert_eq!(node.away, 1);
    // The other sends it on, to its owner; that it has moved is lost.
    node.handle_message(Instant(5), NodeId(2), put(page, 1));
    assert_eq!((node.directory().get(page).unwrap().holders.len(), node.away), (0, 0));
}

#[test]
fn a_page_that_is_put_here_while_it_is_read_from_the_disk_stays_recorded() {
    let mut node = one_frame();
    let own = PageId { space: SpaceId(1), index: 0 };
    node.handle_access(Instant(2), Access { page: own, shared: false, write: false });
    node.handle_disk_read(Instant(2), own);
    // A page of a file whose directory is here.
    let mine = |index: &u64| {
        node.coordinator().pod().owner(PageId { space: SpaceId(1_000), index: *index }) == Some(NodeId(1))
    };
    let index = (0..10_000).step_by(32).find(mine).unwrap();
    let page = PageId { space: SpaceId(1_000), index };
    assert!(!node.handle_access(Instant(3), Access { page, shared: true, write: false }));
    let NodeMessage::Page(PageMessage::Put { page, frame, .. }) = put(page, 2) else { unreachable!() };
    for age in [Duration(0), Duration(u64::MAX / 4)] {
        node.handle_message(Instant(4), NodeId(2), NodeMessage::Page(PageMessage::Put { page, frame, age }));
    }
    node.handle_disk_read(Instant(5), page);
    assert_eq!(node.frames().get(page).unwrap().kind, Kind::Local);
    assert_eq!(node.directory().get(page).unwrap().holders, [(NodeId(1), Kind::Local)]);
}

#[derive(Clone, Debug)]
enum Step {
    Private(u64, u64, bool),
    Shared(u64, u64),
    Run(u64),
    Kill(u64),
    Start,
    Frames(u64, u32),
    Part(u64, bool),
    Heal,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => (0u64..9, 0u64..24, any::<bool>()).prop_map(|(node, page, write)| Step::Private(node, page, write)),
        12 => (0u64..9, 0u64..24).prop_map(|(node, page)| Step::Shared(node, page)),
        12 => (0u64..200_000).prop_map(Step::Run),
        1 => (0u64..9).prop_map(Step::Kill),
        1 => Just(Step::Start),
        2 => (0u64..9, 2u32..16).prop_map(|(node, frames)| Step::Frames(node, frames)),
        1 => any::<(u64, bool)>().prop_map(|(which, cut)| Step::Part(which, cut)),
        1 => Just(Step::Heal),
    ];
    prop::collection::vec(step, 1..300)
}

fn play(policy: &'static str, steps: &[Step], seed: u64, loss_percent: u64) -> Cluster {
    let mut cluster = Cluster::new(4, 8, policy, seed, loss_percent);
    let mut next = 10;
    for step in steps {
        let ids: Vec<u64> = cluster.machines.keys().map(|id| id.0).collect();
        let of = |which: &u64| ids[(which % ids.len() as u64) as usize];
        match step {
            Step::Private(which, index, write) => cluster.private(of(which), *index, *write),
            Step::Shared(which, index) => cluster.shared(of(which), *index),
            Step::Run(us) => cluster.run(Duration::from_micros(*us)),
            Step::Kill(which) => {
                if ids.len() > 1 {
                    cluster.kill(NodeId(of(which)));
                }
            }
            Step::Start => {
                next += 1;
                cluster.start(NodeId(next));
            }
            Step::Frames(which, frames) => {
                let id = NodeId(of(which));
                let now = cluster.now;
                cluster.machines.get_mut(&id).unwrap().node.handle_frames(now, *frames);
                cluster.drain(id, None);
            }
            Step::Part(which, cut) => {
                let there = |id: &&u64| which >> (**id % 64) & 1 == 1;
                cluster.part(ids.iter().filter(there).map(|id| NodeId(*id)), *cut);
            }
            Step::Heal => cluster.part([], false),
        }
        cluster.check(false);
    }
    cluster.run(Duration::from_millis(1_000));
    cluster.check(false);
    cluster
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn programs_find_what_they_wrote(
        policy in prop::sample::select(placement::NAMES.to_vec()),
        steps in steps(), seed: u64, loss_percent in 0u64..40,
    ) {
        let cluster = play(policy, &steps, seed, loss_percent);
        for machine in cluster.machines.values() {
            prop_assert!(machine.waiting.is_empty(), "a fault waits for ever");
        }
    }

    #[test]
    fn without_faults_directories_are_exact(
        policy in prop::sample::select(placement::NAMES.to_vec()),
        accesses in prop::collection::vec((1u64..5, 0u64..24, any::<bool>(), any::<bool>()), 1..200),
    ) {
        let mut cluster = Cluster::new(4, 8, policy, 1, 0);
        for (node, index, shared, write) in accesses {
            if shared { cluster.shared(node, index) } else { cluster.private(node, index, write) }
            // One after the other: what overtakes is the other test's.
            cluster.run(Duration::from_millis(15));
        }
        cluster.check(true);
    }
}
