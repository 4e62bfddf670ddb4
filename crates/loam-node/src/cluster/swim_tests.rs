//! A whole cluster's membership under one virtual clock: nodes are killed, stopped, cut off and started again, packets are lost,
//! and ten seconds after the end of each fault all that live must see the same.

use super::*;
use proptest::prelude::*;
use rand::RngExt;
use std::collections::BTreeSet;

const PERIOD: Duration = Duration::from_millis(500);
/// The bar: so long after the end of a fault all views are equal.
const SETTLED: Duration = Duration::from_millis(10_000);

fn seconds(count: u64) -> Duration {
    Duration::from_millis(count * 1000)
}

enum Event {
    Packet { from: usize, to: usize, life: NodeId, bytes: Vec<u8> },
    Meet { asks: usize, addr: SocketAddr },
    Met { asks: usize, addr: SocketAddr, life: NodeId },
}

struct Seat {
    swim: Swim,
    alive: bool,
    stopped: bool,
    side: u32,
    waiting: Vec<Event>,
    warnings: Vec<String>,
}

struct World {
    now: Instant,
    seats: Vec<Seat>,
    events: BTreeMap<(Instant, u64), Event>,
    number: u64,
    random: SmallRng,
    /// Lost packets of a thousand.
    loss: u32,
}

fn addr(seat: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, seat as u8 + 1], 7070))
}

impl World {
    /// `count` nodes, all with the first two as seeds.
    fn new(count: usize, seed: u64) -> Self {
        let mut world = Self {
            now: Instant(0),
            seats: Vec::new(),
            events: BTreeMap::new(),
            number: 0,
            random: SmallRng::seed_from_u64(seed),
            loss: 0,
        };
        for seat in 0..count {
            let swim = world.swim(seat, &format!("n{seat}"));
            world.seats.push(Seat {
                swim,
                alive: true,
                stopped: false,
                side: 0,
                waiting: Vec::new(),
                warnings: Vec::new(),
            });
        }
        world
    }

    fn swim(&mut self, seat: usize, name: &str) -> Swim {
        let me = Peer {
            id: NodeId(self.random.random_range(1..u64::MAX)),
            renewal: 0,
            addr: addr(seat),
            name: name.into(),
        };
        let random = self.random.random();
        Swim::new(self.now, me, &[addr(0), addr(1)], PERIOD, true, random)
    }

    /// Another life at the same address.
    fn restart(&mut self, seat: usize) {
        let name = format!("n{seat}");
        self.seats[seat].swim = self.swim(seat, &name);
        (self.seats[seat].alive, self.seats[seat].stopped) = (true, false);
        self.seats[seat].waiting.clear();
    }

    fn id(&self, seat: usize) -> NodeId {
        self.seats[seat].swim.me().id
    }

    fn post(&mut self, event: Event) {
        self.number += 1;
        let due = self.now + Duration::from_micros(self.random.random_range(100..2000));
        assert!(self.events.insert((due, self.number), event).is_none());
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        self.seats[to].alive && self.seats[from].side == self.seats[to].side
    }

    fn deliver(&mut self, event: Event) {
        let now = self.now;
        let target = match &event {
            Event::Packet { to, .. } => *to,
            Event::Meet { addr: at, .. } => match (0..self.seats.len()).find(|seat| addr(*seat) == *at) {
                Some(seat) => seat,
                None => return,
            },
            Event::Met { asks, .. } => *asks,
        };
        if self.seats[target].alive && self.seats[target].stopped {
            self.seats[target].waiting.push(event);
            return;
        }
        match event {
            Event::Packet { from, to, life, bytes } => {
                if self.reaches(from, to)
                    && self.id(to) == life
                    && self.random.random_range(0..1000) >= self.loss
                {
                    self.seats[to].swim.handle_packet(now, &bytes);
                }
            }
            Event::Meet { asks, addr } => {
                if self.reaches(asks, target) {
                    let life = self.id(target);
                    self.post(Event::Met { asks, addr, life });
                }
            }
            Event::Met { asks, addr, life } => {
                if self.seats[asks].alive {
                    self.seats[asks].swim.handle_met(now, addr, life);
                }
            }
        }
    }

    fn drain(&mut self) {
        for seat in 0..self.seats.len() {
            while let Some(effect) = self.seats[seat].swim.poll_effect() {
                match effect {
                    MemberEffect::Send { to, bytes } => {
                        let target = (0..self.seats.len()).find(|seat| addr(*seat) == to.addr);
                        if let Some(target) = target.filter(|_| self.seats[seat].alive) {
                            self.post(Event::Packet { from: seat, to: target, life: to.id, bytes });
                        }
                    }
                    MemberEffect::Meet(addr) => self.post(Event::Meet { asks: seat, addr }),
                    MemberEffect::Changed => {}
                    MemberEffect::Ask(_) => unreachable!("it has no service to ask"),
                    MemberEffect::Warn(text) => self.seats[seat].warnings.push(text),
                }
            }
        }
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            self.drain();
            let timer = |seat: &Seat| seat.swim.poll_timeout().filter(|_| seat.alive && !seat.stopped);
            let timer = self.seats.iter().filter_map(timer).min();
            let event = self.events.first_key_value().map(|((due, _), _)| *due);
            let Some(next) = timer.into_iter().chain(event).min().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            if event == Some(next) {
                let (_, event) = self.events.pop_first().expect("there is one");
                self.deliver(event);
                continue;
            }
            for seat in 0..self.seats.len() {
                if timer_is_due(&self.seats[seat], self.now) {
                    self.seats[seat].swim.handle_timeout(self.now);
                }
            }
        }
        self.now = end;
    }

    fn resume(&mut self, seat: usize) {
        self.seats[seat].stopped = false;
        for event in std::mem::take(&mut self.seats[seat].waiting) {
            self.post(event);
        }
    }

    /// All that live see all that live, and nobody else.
    fn agree(&self, living: &[usize]) -> Result<(), String> {
        let expected: BTreeSet<NodeId> = living.iter().map(|seat| self.id(*seat)).collect();
        for seat in living {
            let seen: BTreeSet<NodeId> =
                self.seats[*seat].swim.members().iter().map(|peer| peer.id).collect();
            if seen != expected {
                return Err(format!("node {seat} sees {seen:?}, and {expected:?} live"));
            }
        }
        Ok(())
    }
}

fn timer_is_due(seat: &Seat, now: Instant) -> bool {
    seat.alive && !seat.stopped && seat.swim.poll_timeout().is_some_and(|due| due <= now)
}

fn all(count: usize) -> Vec<usize> {
    (0..count).collect()
}

fn but(count: usize, gone: &[usize]) -> Vec<usize> {
    (0..count).filter(|seat| !gone.contains(seat)).collect()
}

#[test]
fn nodes_find_each_other_and_a_killed_one_is_out_of_every_view_soon() {
    let (mut late, mut worst) = (0, Duration::default());
    for seed in 0..20 {
        let mut world = World::new(9, seed);
        world.run(Duration::from_millis(5_000));
        world.agree(&all(9)).unwrap();
        // The lowest id is the master.
        let killed = (0..9).min_by_key(|seat| world.id(*seat)).unwrap();
        world.seats[killed].alive = false;
        let since = world.now;
        while world.agree(&but(9, &[killed])).is_err() {
            world.run(Duration::from_millis(100));
            assert!(world.now - since < SETTLED, "seed {seed}: {:?}", world.agree(&but(9, &[killed])));
        }
        worst = worst.max(world.now - since);
        late += u32::from(world.now - since > seconds(5));
        world.restart(killed);
        world.run(SETTLED);
        world.agree(&all(9)).unwrap();
    }
    assert!(late <= 2, "{late} of 20 took more than five seconds, the longest {worst:?}");
}

#[test]
fn a_node_that_was_stopped_comes_back_as_the_same_life() {
    for seed in 0..10 {
        let mut world = World::new(5, seed);
        world.run(SETTLED);
        let life = world.id(3);
        world.seats[3].stopped = true;
        world.run(seconds(30));
        world.agree(&but(5, &[3])).unwrap();
        world.resume(3);
        world.run(SETTLED);
        world.agree(&all(5)).unwrap();
        assert_eq!(world.id(3), life);
    }
}

/// News of a death is told for about a period only.
#[test]
fn a_node_that_was_stopped_finds_out_soon_who_died_meanwhile() {
    for seed in 0..20 {
        let mut world = World::new(9, seed);
        world.run(SETTLED);
        world.seats[3].stopped = true;
        world.run(seconds(10));
        (world.seats[4].alive, world.seats[7].alive) = (false, false);
        world.run(seconds(20));
        world.resume(3);
        world.run(seconds(5));
        world.agree(&but(9, &[4, 7])).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// It has heard that the dead one is suspected, and not what became of that; and suspects it itself when it is stopped once more.
#[test]
fn a_node_that_was_stopped_with_a_suspicion_finds_out_soon() {
    let mut suspected = 0;
    for seed in 0..20 {
        for after_ms in [500, 1000, 1500, 2000, 2500] {
            let mut world = World::new(9, seed);
            world.run(SETTLED);
            world.seats[4].alive = false;
            world.run(Duration::from_millis(after_ms));
            world.seats[3].stopped = true;
            world.run(seconds(20));
            let dead = world.seats[4].swim.me();
            suspected += u32::from(world.seats[3].swim.incarnation(dead, State::Suspect).is_some());
            world.resume(3);
            if seed % 2 == 0 {
                world.run(Duration::from_millis(1800));
                world.seats[3].stopped = true;
                world.run(seconds(20));
                world.resume(3);
            }
            world.run(seconds(5));
            let told = world.agree(&but(9, &[4]));
            told.unwrap_or_else(|error| panic!("seed {seed}, {after_ms} ms: {error}"));
        }
    }
    assert!(suspected > 10, "{suspected}: nothing was tested");
}

/// The seeds have died since: all that the halves have of each other is that they once were one.
#[test]
fn halves_find_each_other_again_however_long_they_were_apart() {
    for (seed, apart_s) in [(1, 6), (2, 30), (3, 400), (4, 3000)] {
        let mut world = World::new(9, seed);
        world.run(SETTLED);
        (world.seats[0].alive, world.seats[1].alive) = (false, false);
        world.run(SETTLED);
        (5..9).for_each(|seat| world.seats[seat].side = 1);
        world.run(seconds(apart_s));
        world.agree(&[2, 3, 4]).unwrap();
        world.agree(&[5, 6, 7, 8]).unwrap();
        (5..9).for_each(|seat| world.seats[seat].side = 0);
        world.run(SETTLED);
        world.agree(&but(9, &[0, 1])).unwrap_or_else(|error| panic!("after {apart_s} s: {error}"));
    }
}

#[test]
fn everybody_alone_and_back() {
    let mut world = World::new(6, 7);
    world.run(SETTLED);
    (0..6).for_each(|seat| world.seats[seat].side = seat as u32);
    world.run(seconds(60));
    (0..6).for_each(|seat| world.agree(&[seat]).unwrap());
    (0..6).for_each(|seat| world.seats[seat].side = 0);
    world.run(SETTLED);
    world.agree(&all(6)).unwrap();
}

#[test]
fn a_restarted_node_replaces_its_former_life_at_once() {
    for seed in 0..10 {
        let mut world = World::new(5, seed);
        world.run(SETTLED);
        let former = world.id(2);
        world.restart(2);
        assert_ne!(world.id(2), former);
        world.run(seconds(3));
        world.agree(&all(5)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn a_namesake_that_died_is_replaced_and_one_that_lives_stays_with_a_warning() {
    let mut world = World::new(6, 3);
    world.seats[5].alive = false;
    world.run(SETTLED);
    world.agree(&but(6, &[5])).unwrap();
    // Node 2 dies and comes back elsewhere.
    world.seats[2].alive = false;
    world.restart(5);
    world.seats[5].swim = world.swim(5, "n2");
    world.run(seconds(3));
    world.agree(&but(6, &[2])).unwrap();
    assert!(world.seats.iter().all(|seat| seat.warnings.is_empty()));
    // And back at its old place with its old name, while the other lives.
    world.restart(2);
    world.run(SETTLED);
    world.agree(&all(6)).unwrap();
    for seat in [2, 5] {
        assert_eq!(world.seats[seat].warnings.len(), 1, "node {seat}: {:?}", world.seats[seat].warnings);
        assert!(world.seats[seat].warnings[0].contains("n2"));
    }
}

#[test]
fn who_leaves_is_not_waited_for() {
    let mut world = World::new(5, 11);
    world.run(SETTLED);
    let now = world.now;
    world.seats[4].swim.handle_leave(now);
    world.drain();
    world.seats[4].swim.handle_packet(now, b"late");
    assert_eq!(world.seats[4].swim.poll_timeout(), None);
    world.run(seconds(1));
    world.agree(&all(4)).unwrap();
}

#[test]
fn what_is_down_is_forgotten() {
    let mut world = World::new(3, 5);
    world.run(SETTLED);
    for _ in 0..20 {
        world.restart(2);
        world.run(SETTLED);
    }
    world.seats[1].alive = false;
    world.run(seconds(4000));
    let swim = &world.seats[0].swim;
    assert!(swim.foca.iter_membership_state().len() <= 2, "{}", swim.foca.iter_membership_state().len());
    assert_eq!(swim.contacts.len(), 2, "the seeds alone: {:?}", swim.contacts);
    assert!(swim.timers.len() < 50, "{}", swim.timers.len());
}

#[derive(Clone, Debug)]
enum Fault {
    Kill(usize),
    Restart(usize),
    Stop(usize),
    Resume(usize),
    Part(u32),
    Heal,
}

fn faults() -> impl Strategy<Value = Vec<(Fault, u64)>> {
    let fault = prop_oneof![
        (0..7_usize).prop_map(Fault::Kill),
        (0..7_usize).prop_map(Fault::Restart),
        (0..7_usize).prop_map(Fault::Stop),
        (0..7_usize).prop_map(Fault::Resume),
        any::<u32>().prop_map(Fault::Part),
        Just(Fault::Heal),
    ];
    proptest::collection::vec((fault, 0..15_000_u64), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn after_any_faults_all_views_are_equal(seed in any::<u64>(), loss in 0..50_u32, faults in faults()) {
        let mut world = World::new(7, seed);
        world.loss = loss;
        world.run(SETTLED);
        for (fault, span_ms) in faults {
            match fault {
                Fault::Kill(seat) => world.seats[seat].alive = false,
                Fault::Restart(seat) => world.restart(seat),
                Fault::Stop(seat) => world.seats[seat].stopped = true,
                Fault::Resume(seat) => world.resume(seat),
                Fault::Part(sides) => {
                    (0..7).for_each(|seat| world.seats[seat].side = sides >> seat & 1);
                }
                Fault::Heal => (0..7).for_each(|seat| world.seats[seat].side = 0),
            }
            world.run(Duration::from_millis(span_ms));
        }
        // At least a seed must be there, or the living may have nobody in common.
        if !world.seats[0].alive {
            world.restart(0);
        }
        (0..7).for_each(|seat| {
            world.seats[seat].side = 0;
            world.resume(seat);
        });
        world.run(SETTLED);
        let living: Vec<usize> = (0..7).filter(|seat| world.seats[*seat].alive).collect();
        if let Err(error) = world.agree(&living) {
            // A lost packet in the wrong moment may cost one more round; never more.
            prop_assert!(loss > 0, "{error}");
            world.run(seconds(5));
            world.agree(&living).map_err(TestCaseError::fail)?;
        }
    }
}
