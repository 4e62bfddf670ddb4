//! Every order of events of small clusters: what is sent may arrive, arrive again, late, out of order or never; borrowers ask, release,
//! die and restart; the lender restarts. A search over all states that can be reached, each looked at once.
//!
//! All messages that were ever sent stay under way: each may arrive at any moment, as often as it likes, or never. So nothing has to be lost
//! or repeated on purpose. How much happens is bounded by budgets, which are part of the state.

use crate::region::*;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::vec;
use std::vec::Vec;

const LENDER: u16 = 3;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Message {
    Up(ToLender),
    Down(usize, ToBorrower),
}

/// How often things may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Budget {
    asks: u8,
    releases: u8,
    deaths: u8,
    /// Times that the lender is told of a death, before the end: after each a late word of the dead may begin another session.
    tellings: u8,
    restarts: u8,
    lender_restarts: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct World {
    lender: Lending,
    /// `None`: dead for good.
    borrowers: Vec<Option<Borrowing>>,
    /// What a borrower's restart finds: what it was told was granted, and has not released.
    written: Vec<Vec<Grant>>,
    starts: Vec<u64>,
    under_way: BTreeSet<Message>,
    budget: Budget,
}

fn id(borrower: usize) -> BorrowerId {
    BorrowerId(borrower as u64 + 100)
}

fn node(number: u16) -> RegionNode {
    RegionNode::new(number).expect("a number that a node can have")
}

/// Larger than any in the life before: it grows by one with each session that is lost.
fn incarnation(starts: u64) -> u64 {
    starts * 1000
}

impl World {
    fn new(borrowers: usize, pages: u64, budget: Budget) -> Self {
        let mut world = Self {
            lender: Lending::new(Layout::PAPER, node(LENDER), 1, pages),
            borrowers: Vec::new(),
            written: vec![Vec::new(); borrowers],
            starts: vec![0; borrowers],
            under_way: BTreeSet::new(),
            budget,
        };
        for borrower in 0..borrowers {
            world.borrowers.push(None);
            world.start(borrower);
        }
        world
    }

    fn start(&mut self, borrower: usize) {
        self.starts[borrower] += 1;
        let held = self.written[borrower].clone();
        let incarnation = incarnation(self.starts[borrower]);
        self.borrowers[borrower] =
            Some(Borrowing::new(Layout::PAPER, id(borrower), node(1), node(LENDER), incarnation, held));
        self.drain(borrower);
    }

    /// Carries out what a borrower wants done.
    fn drain(&mut self, borrower: usize) {
        let it = self.borrowers[borrower].as_mut().expect("it lives");
        while let Some(effect) = it.poll_effect() {
            match effect {
                Effect::Send(message) => {
                    self.under_way.insert(Message::Up(message));
                }
                Effect::TurnedAway(why) => panic!("turned away: {why:?}"),
                Effect::Granted(_) | Effect::Refused { .. } | Effect::Lost(_) => {}
            }
        }
        self.written[borrower] = it.held().copied().collect();
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Up(message) => {
                let (ToLender::Present { borrower, .. }
                | ToLender::Ask { borrower, .. }
                | ToLender::Release { borrower, .. }) = &message;
                let to = (borrower.0 - 100) as usize;
                if let Some(answer) = self.lender.handle(message) {
                    self.under_way.insert(Message::Down(to, answer));
                }
            }
            Message::Down(to, message) => {
                if let Some(borrower) = &mut self.borrowers[to] {
                    borrower.handle(message);
                    self.drain(to);
                }
            }
        }
    }

    /// Everything that can happen next.
    fn next(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut world = self.clone();
            change(&mut world);
            all.push(world);
        };
        for message in &self.under_way {
            add(&|world| world.deliver(message.clone()));
        }
        if self.budget.lender_restarts > 0 {
            add(&|world| {
                world.budget.lender_restarts -= 1;
                let (life, pages) = (world.lender.life() + 1, world.lender.spans().limit());
                world.lender = Lending::new(Layout::PAPER, node(LENDER), life, pages);
            });
        }
        for borrower in 0..self.borrowers.len() {
            let Some(it) = &self.borrowers[borrower] else {
                // The lender is told, perhaps again.
                if self.budget.tellings > 0 {
                    add(&|world| {
                        world.budget.tellings -= 1;
                        world.lender.handle_gone(id(borrower));
                    });
                }
                continue;
            };
            if !it.is_idle() {
                add(&|world| {
                    world.borrowers[borrower].as_mut().expect("it lives").resend();
                    world.drain(borrower);
                });
            }
            if self.budget.asks > 0 {
                for pages in [1, 2] {
                    add(&|world| {
                        world.budget.asks -= 1;
                        world.borrowers[borrower].as_mut().expect("it lives").ask(pages).expect("few wishes");
                        world.drain(borrower);
                    });
                }
            }
            if self.budget.releases > 0 {
                for grant in it.held().copied() {
                    for keep in 0..grant.pages {
                        add(&|world| {
                            world.budget.releases -= 1;
                            let it = world.borrowers[borrower].as_mut().expect("it lives");
                            it.release(grant.lease, keep).expect("few wishes");
                            world.drain(borrower);
                        });
                    }
                }
            }
            if self.budget.deaths > 0 {
                add(&|world| {
                    world.budget.deaths -= 1;
                    world.borrowers[borrower] = None;
                    world.written[borrower].clear();
                });
            }
            if self.budget.restarts > 0 {
                add(&|world| {
                    world.budget.restarts -= 1;
                    world.start(borrower);
                });
            }
        }
        all
    }

    /// What must hold at every moment.
    fn check(&self) {
        let spans = self.lender.spans();
        spans.audit();
        let mut believed = BTreeSet::new();
        for (number, borrower) in self.borrowers.iter().enumerate() {
            for grant in borrower.iter().flat_map(Borrowing::held) {
                // Memory of a lender's former life went with it; its borrowers learn of it with the next word.
                if grant.lease.life != self.lender.life() {
                    continue;
                }
                let span = spans.span(id(number), grant.lease.number);
                let span = span.expect("what a borrower has is the lender's word");
                let local = Layout::PAPER.received(node(LENDER), grant.address).expect("the lender's");
                assert_eq!(local, span.first * 4096);
                assert!(grant.pages <= span.pages, "more than the lender knows of");
                for page in span.first..span.first + grant.pages {
                    assert!(believed.insert(page), "page {page} is lent twice: {self:#?}");
                }
            }
        }
    }

    /// When all that is sent arrives once (what is under way before the rest, or not at all) everything comes to an end, and both sides have the same
    /// in their books.
    fn settle(mut self) {
        let mut rounds = 0;
        loop {
            for borrower in 0..self.borrowers.len() {
                match &mut self.borrowers[borrower] {
                    None => {
                        self.lender.handle_gone(id(borrower));
                    }
                    Some(it) if !it.is_idle() => {
                        it.resend();
                        self.drain(borrower);
                    }
                    Some(_) => {}
                }
            }
            if self.under_way.is_empty() {
                break;
            }
            for message in std::mem::take(&mut self.under_way) {
                self.deliver(message);
                self.check();
            }
            rounds += 1;
            assert!(rounds < 100, "it does not come to an end: {self:#?}");
        }
        let mut believed = 0;
        for (number, borrower) in self.borrowers.iter().enumerate() {
            for grant in borrower.iter().flat_map(Borrowing::held) {
                // One that has heard nothing of a restart has asked for nothing since.
                if grant.lease.life == self.lender.life() {
                    let span = self.lender.spans().span(id(number), grant.lease.number);
                    assert_eq!(span.map(|span| span.pages), Some(grant.pages));
                    believed += grant.pages;
                }
            }
        }
        assert_eq!(self.lender.spans().used(), believed, "lent to nobody who knows of it: {self:#?}");
    }
}

/// 128 bits that stand for a state: millions of whole ones would not fit into memory.
fn name(world: &World) -> (u64, u64) {
    let of = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, world).hash(&mut hasher);
        hasher.finish()
    };
    (of(0), of(1))
}

/// Looks at every state that can be reached; answers how many there are.
fn search(first: World) -> usize {
    let mut seen = BTreeSet::from([name(&first)]);
    let mut ahead = vec![first];
    while let Some(world) = ahead.pop() {
        world.check();
        world.clone().settle();
        let mut deaf = world.clone();
        deaf.under_way.clear();
        deaf.settle();
        for next in world.next() {
            if seen.insert(name(&next)) {
                ahead.push(next);
            }
        }
    }
    seen.len()
}

const QUIET: Budget =
    Budget { asks: 0, releases: 0, deaths: 0, tellings: 0, restarts: 0, lender_restarts: 0 };

/// A search that saw hardly anything proves nothing.
fn search_finds(first: World, states_min: usize) {
    let states = search(first);
    std::println!("{states} states");
    assert!(states >= states_min, "only {states} states");
}

#[test]
fn two_borrowers_and_room_for_one() {
    search_finds(World::new(2, 2, Budget { asks: 2, releases: 1, ..QUIET }), 1_500);
}

#[test]
fn one_asks_and_releases() {
    search_finds(World::new(1, 3, Budget { asks: 3, releases: 2, ..QUIET }), 1_000);
}

#[test]
fn one_restarts_with_what_it_has() {
    search_finds(World::new(1, 3, Budget { asks: 2, releases: 2, restarts: 1, ..QUIET }), 3_000);
}

#[test]
fn one_dies_and_another_takes_its_place() {
    search_finds(World::new(2, 1, Budget { asks: 2, deaths: 1, tellings: 1, ..QUIET }), 3_000);
}

#[test]
fn one_restarts_and_one_dies() {
    search_finds(
        World::new(2, 2, Budget { asks: 1, releases: 1, deaths: 1, tellings: 1, restarts: 1, ..QUIET }),
        8_000,
    );
}

#[test]
fn the_lender_restarts() {
    search_finds(World::new(1, 2, Budget { asks: 2, releases: 1, lender_restarts: 1, ..QUIET }), 1_500);
}

#[test]
fn the_lender_restarts_and_another_is_first() {
    search_finds(World::new(2, 1, Budget { asks: 1, lender_restarts: 1, ..QUIET }), 1_000);
}
