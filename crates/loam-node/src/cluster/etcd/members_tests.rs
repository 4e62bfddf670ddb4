//! Nodes and an etcd under one virtual clock: nodes are killed, stopped, cut off and started again, the etcd goes, loses its data, compacts, ends
//! watches and removes keys; ten seconds after the end of it all that live must see the same, themselves.

use super::super::fake::FakeEtcd;
use super::*;
use proptest::prelude::*;

const PERIOD: Duration = Duration::from_millis(500);
/// The bar, as with the built-in membership.
const SETTLED: Duration = Duration::from_millis(10_000);
/// As the wire's.
const NO_ANSWER: Duration = Duration::from_millis(1500);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[derive(Clone)]
struct Watcher {
    number: u64,
    next: u64,
}

struct Seat {
    members: EtcdMembers,
    alive: bool,
    stopped: bool,
    cut: bool,
    watcher: Option<Watcher>,
    /// Answers on their way to it, or in its buffers while it is stopped.
    coming: VecDeque<(Instant, Told)>,
    warnings: Vec<String>,
}

struct World {
    now: Instant,
    etcd: FakeEtcd,
    seats: Vec<Seat>,
    last_id: u64,
}

impl World {
    fn new(count: usize) -> Self {
        let mut world = Self { now: Instant(0), etcd: FakeEtcd::default(), seats: Vec::new(), last_id: 0 };
        (0..count).for_each(|seat| world.sit(seat, &format!("n{seat}")));
        world
    }

    fn sit(&mut self, number: usize, name: &str) {
        // Ids are not in the order of seats.
        self.last_id += 1;
        let id = NodeId(self.last_id.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let addr = SocketAddr::from(([10, 0, 0, number as u8 + 1], 7070));
        let me = Peer { id, renewal: 0, addr, name: name.into() };
        let site = "etcd://a:1,b:2".parse().unwrap();
        let members = EtcdMembers::new(self.now, me, site, PERIOD, true);
        let (coming, warnings) = Default::default();
        let seat = Seat { members, alive: true, stopped: false, cut: false, watcher: None, coming, warnings };
        match self.seats.get_mut(number) {
            Some(place) => *place = seat,
            None => self.seats.push(seat),
        }
    }

    /// The etcd hears what nodes ask, and they what it says, a millisecond later.
    fn step(&mut self) {
        self.now = self.now + ms(10);
        let now = self.now;
        if !self.etcd.down {
            self.etcd.pass_time(now);
        }
        for seat in self.seats.iter_mut().filter(|seat| seat.alive) {
            let reached = !self.etcd.down && !seat.cut;
            if let (Some(watcher), true) = (&mut seat.watcher, reached) {
                let news = self.etcd.history.iter().filter(|(revision, _)| *revision >= watcher.next);
                let changes: Vec<Change> = news.map(|(_, change)| change.clone()).collect();
                watcher.next = self.etcd.revision + 1;
                if !changes.is_empty() {
                    seat.coming.push_back((
                        now,
                        Told { number: watcher.number, answer: Ok(Answer::Changes(changes)) },
                    ));
                }
            }
            if seat.stopped {
                continue;
            }
            let mut later = VecDeque::new();
            while let Some((due, told)) = seat.coming.pop_front() {
                if due <= now { seat.members.handle_told(now, told) } else { later.push_back((due, told)) }
            }
            seat.coming = later;
            if seat.members.poll_timeout().is_some_and(|due| due <= now) {
                seat.members.handle_timeout(now);
                assert!(seat.members.poll_timeout().is_none_or(|due| due > now), "it would spin");
            }
            while let Some(effect) = seat.members.poll_effect() {
                match effect {
                    MemberEffect::Ask(ask) => {
                        let answer = match (self.etcd.down, seat.cut) {
                            (false, false) => self.etcd.answer(now, &ask.call),
                            _ => Err(Trouble::Failed("down".into())),
                        };
                        let after = if seat.cut { NO_ANSWER } else { ms(1) };
                        if let (Call::Watch { from }, Ok(_)) = (&ask.call, &answer) {
                            seat.watcher = Some(Watcher { number: ask.number, next: *from });
                            if *from <= self.etcd.compacted {
                                let answer = Err(Trouble::Failed("compacted".into()));
                                seat.coming.push_back((now + after, Told { number: ask.number, answer }));
                            }
                        }
                        seat.coming.push_back((now + after, Told { number: ask.number, answer }));
                    }
                    MemberEffect::Warn(text) => seat.warnings.push(text),
                    MemberEffect::Changed => {}
                    effect => panic!("{effect:?}"),
                }
            }
        }
    }

    fn run(&mut self, span: Duration) {
        let until = self.now + span;
        while self.now < until {
            self.step();
        }
    }

    fn end_watches(&mut self) {
        for seat in &mut self.seats {
            if let Some(watcher) = seat.watcher.take() {
                let answer = Err(Trouble::Failed("it ended the watch".into()));
                seat.coming.push_back((self.now, Told { number: watcher.number, answer }));
            }
        }
    }

    fn etcd_stops(&mut self) {
        self.etcd.down = true;
        self.end_watches();
    }

    fn views(&self) -> Vec<Vec<NodeId>> {
        let ids = |seat: &Seat| seat.members.members().iter().map(|peer| peer.id).collect();
        self.seats.iter().filter(|seat| seat.alive).map(ids).collect()
    }

    fn living(&self) -> Vec<NodeId> {
        let mut ids: Vec<NodeId> =
            self.seats.iter().filter(|seat| seat.alive).map(|seat| seat.members.me.id).collect();
        ids.sort();
        ids
    }

    fn check_agreement(&self) {
        let living = self.living();
        for view in self.views() {
            assert_eq!(view, living, "at {:?}", self.now);
        }
    }
}

#[test]
fn nodes_agree_and_the_dead_are_missed() {
    let mut world = World::new(5);
    world.run(ms(500));
    world.check_agreement();
    world.seats[2].alive = false;
    world.run(ms(6000));
    world.check_agreement();
    // One that ends says so.
    let now = world.now;
    world.seats[3].members.handle_leave(now);
    world.run(ms(20));
    world.seats[3].alive = false;
    world.run(ms(100));
    world.check_agreement();
}

#[test]
fn a_node_that_is_started_again_takes_the_place_of_its_former_life() {
    let mut world = World::new(3);
    world.run(ms(500));
    world.sit(1, "n1");
    world.run(ms(500));
    world.check_agreement();
    assert!(
        world.seats.iter().all(|seat| seat.warnings.is_empty()),
        "by its lease it would take five seconds"
    );
}

#[test]
fn two_of_one_name_both_stay_and_say_so() {
    let mut world = World::new(3);
    world.run(ms(500));
    world.sit(3, "n1");
    world.run(ms(5000));
    world.check_agreement();
    for place in [1, 3] {
        let said = &world.seats[place].warnings;
        assert!(said.len() == 1 && said[0].contains("--name"), "{said:?}");
    }
}

#[test]
fn a_node_that_stood_still_comes_back_as_the_same_life() {
    let mut world = World::new(4);
    world.run(ms(500));
    let lives = world.living();
    world.seats[0].stopped = true;
    world.run(ms(9000));
    assert!(world.views()[1..].iter().all(|view| view.len() == 3));
    world.seats[0].stopped = false;
    world.run(ms(2000));
    world.check_agreement();
    assert_eq!(world.living(), lives);
}

#[test]
fn an_etcd_that_restarts_changes_nobodys_view() {
    for with_data in [true, false] {
        let mut world = World::new(4);
        world.run(ms(500));
        let before = world.views();
        world.etcd_stops();
        for _ in 0..2000 {
            world.step();
            assert_eq!(world.views(), before);
        }
        for seat in &world.seats {
            assert!(!seat.members.answers() && seat.warnings.len() == 1, "{:?}", seat.warnings);
        }
        // One dies in the meantime, which nobody can know.
        world.seats[1].alive = false;
        let living = World::views(&world);
        world.etcd.start(world.now, with_data);
        for _ in 0..400 {
            world.step();
            assert_eq!(world.views(), living, "with data {with_data}, at {:?}", world.now);
        }
        world.run(ms(6000));
        world.check_agreement();
        for seat in world.seats.iter().filter(|seat| seat.alive) {
            assert!(seat.members.answers() && seat.warnings.len() == 2, "{:?}", seat.warnings);
        }
    }
}

#[test]
fn members_are_kept_for_an_hour() {
    let mut world = World::new(2);
    world.run(ms(500));
    world.etcd_stops();
    world.seats[1].alive = false;
    world.run(ms(3_590_000));
    assert_eq!(world.views()[0].len(), 2);
    world.run(ms(20_000));
    assert_eq!((world.views()[0].len(), world.seats[0].warnings.len()), (1, 2));
}

#[test]
fn whoever_removes_a_key_only_costs_a_second() {
    let mut world = World::new(3);
    world.run(ms(500));
    let key = key_of(world.seats[0].members.me.id);
    world.etcd.remove(key.as_bytes());
    world.run(ms(1500));
    world.check_agreement();
    world.etcd.put(key.as_bytes(), b"{}", 0);
    world.run(ms(1500));
    world.check_agreement();
    // A watch that is compacted away.
    world.etcd.compacted = world.etcd.revision + 3;
    world.end_watches();
    world.run(ms(100));
    world.etcd.compacted = 0;
    world.run(ms(3000));
    world.check_agreement();
}

#[derive(Clone, Debug)]
enum Step {
    Run(u16),
    Kill(u8),
    Restart(u8),
    Stop(u8),
    GoOn(u8),
    Cut(u8, bool),
    EtcdDown,
    EtcdUp(bool),
    EndWatches,
    Compact,
    Remove(u8),
    Garbage(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1u16..9000).prop_map(Step::Run),
        1 => any::<u8>().prop_map(Step::Kill),
        2 => any::<u8>().prop_map(Step::Restart),
        1 => any::<u8>().prop_map(Step::Stop),
        1 => any::<u8>().prop_map(Step::GoOn),
        2 => any::<(u8, bool)>().prop_map(|(seat, cut)| Step::Cut(seat, cut)),
        1 => Just(Step::EtcdDown),
        2 => any::<bool>().prop_map(Step::EtcdUp),
        1 => Just(Step::EndWatches),
        1 => Just(Step::Compact),
        1 => any::<u8>().prop_map(Step::Remove),
        1 => any::<u8>().prop_map(Step::Garbage),
    ];
    prop::collection::vec(step, 1..30)
}

fn play(count: usize, steps: &[Step]) -> World {
    let mut world = World::new(count);
    for step in steps {
        let now = world.now;
        let at = |seat: u8| usize::from(seat) % count;
        match *step {
            Step::Run(span) => world.run(ms(span.into())),
            Step::Kill(seat) => world.seats[at(seat)].alive = false,
            Step::Restart(seat) => world.sit(at(seat), &format!("n{}", at(seat))),
            Step::Stop(seat) => world.seats[at(seat)].stopped = true,
            Step::GoOn(seat) => world.seats[at(seat)].stopped = false,
            Step::Cut(seat, cut) => world.seats[at(seat)].cut = cut,
            Step::EtcdDown => world.etcd_stops(),
            Step::EtcdUp(with_data) => {
                world.end_watches();
                world.etcd.start(now, with_data);
            }
            Step::EndWatches => world.end_watches(),
            Step::Compact => world.etcd.compacted = world.etcd.revision,
            Step::Remove(seat) => {
                let key = key_of(world.seats[at(seat)].members.me.id);
                world.etcd.remove(key.as_bytes());
            }
            Step::Garbage(seat) => {
                let key = key_of(world.seats[at(seat)].members.me.id);
                world.etcd.put(if seat < 128 { key.as_bytes() } else { b"x" }, b"garbage", 0);
            }
        }
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn all_agree_once_the_faults_are_over(count in 2usize..7, steps in steps()) {
        let mut world = play(count, &steps);
        for seat in &mut world.seats {
            (seat.stopped, seat.cut) = (false, false);
        }
        world.end_watches();
        let now = world.now;
        if world.etcd.down {
            world.etcd.start(now, true);
        }
        world.run(SETTLED);
        world.check_agreement();
        for seat in world.seats.iter().filter(|seat| seat.alive) {
            prop_assert!(seat.members.answers(), "{:?}", seat.warnings);
        }
        // Nothing more is asked for than leases kept alive.
        let before = world.etcd.revision;
        world.run(SETTLED);
        prop_assert_eq!(world.etcd.revision, before);
        world.check_agreement();
    }
}
