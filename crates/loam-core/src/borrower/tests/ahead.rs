//! What is fetched ahead of a program, and is to be here when it comes there.

use super::*;
use std::sync::{Arc, Mutex};

const KEY: SpaceKey = SpaceKey(0);

/// How much is ahead, each time that the policy is told.
type Told = Arc<Mutex<Vec<u64>>>;

/// The live policy, and somebody who writes down what it is told.
#[derive(Debug, Default)]
struct Spy {
    policy: SecondChanceFifo,
    told: Told,
}

impl Replacement for Spy {
    fn inserted(&mut self, page: PageRef) {
        self.policy.inserted(page);
    }
    fn ahead(&mut self, pages: BasePages) {
        self.told.lock().unwrap().push(pages.0);
        self.policy.ahead(pages);
    }
    fn victim(&mut self) -> Option<PageRef> {
        self.policy.victim()
    }
    fn put_back(&mut self, page: PageRef) {
        self.policy.put_back(page);
    }
}

/// Everything is away, and there is room for all; pages are base pages, of which no more than eight are fetched ahead.
fn all_away() -> (World, Told) {
    let mut w = World::new(1, false, 1 << 20, 1);
    let told = Arc::default();
    w.b.replacement = Box::new(Spy { policy: SecondChanceFifo::default(), told: Arc::clone(&told) });
    for base in 0..PAGES {
        w.step(&Op::Write { space: 0, base, value: base + 1 });
    }
    w.send_away(KEY, 0..PAGES);
    (w, told)
}

fn read(w: &mut World, bases: impl IntoIterator<Item = u64>) {
    for base in bases {
        w.step(&Op::Read { space: 0, base });
        w.settle(10_000);
    }
}

/// The policy is told how much is ahead at any time, of all streams.
#[test]
fn there_is_to_be_room_for_what_is_ahead() {
    let (mut w, told) = all_away();
    read(&mut w, 100..200);
    let one = *told.lock().unwrap().last().unwrap();
    assert!((4..=24).contains(&one), "{one} ahead of one stream, and of what filled memory");
    read(&mut w, (0..64).flat_map(|n| [400 + n, 600 + n, 800 + n]));
    let four = *told.lock().unwrap().last().unwrap();
    assert!((4 * 4..=5 * 12).contains(&four), "{four} ahead of four streams");
    w.read_all();
}
