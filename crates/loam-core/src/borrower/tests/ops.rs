//! What happens to a program and its lenders, one thing after the other.

use super::*;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Write {
        space: usize,
        base: u64,
        value: u64,
    },
    Read {
        space: usize,
        base: u64,
    },
    Remove {
        space: usize,
        base: u64,
        len: u64,
    },
    UnmapAndMap {
        space: usize,
        base: u64,
        len: u64,
    },
    Remap {
        space: usize,
        base: u64,
        len: u64,
    },
    Fork {
        space: usize,
    },
    Exit {
        space: usize,
    },
    Complete {
        pick: usize,
    },
    LoseLender,
    JoinLender {
        room: u64,
    },
    Weights {
        weights: [u32; 4],
        min_age: u64,
    },
    WeightsUnknown,
    Room {
        room: bool,
    },
    /// A lender gives a stored page's place to another.
    Replace {
        pick: usize,
        tells: bool,
    },
    Tick,
    Limit {
        pages: u64,
    },
    Refuse {
        installs: u32,
    },
    /// A lender's machine wants some of its memory back.
    Recall {
        lender: usize,
        pick: usize,
        pages: usize,
    },
    /// It has room again.
    RoomAgain {
        lender: usize,
    },
    /// The program says what it will do with a range.
    Advise {
        space: usize,
        base: u64,
        len: u64,
        will_need: bool,
    },
    /// How it goes through a range, and what that is worth.
    Mark {
        space: usize,
        base: u64,
        len: u64,
        pattern: Option<Pattern>,
        priority: Option<Priority>,
    },
    /// On what terms it is paged.
    Terms {
        space: usize,
        base: u64,
        len: u64,
        terms: Terms,
    },
    /// A lender writes a page that it was told to, and says so soon.
    Drain {
        pick: usize,
    },
    /// A lender gives a page up that it was told is spare.
    GiveUp {
        pick: usize,
        tells: bool,
    },
    /// A lender dies, or restarts with what its disk has; before the next one does everything comes to rest.
    LoseOne {
        lender: usize,
        comes_back: bool,
    },
}

impl World {
    pub(super) fn clear(&mut self, key: SpaceKey, start: u64, end: u64) {
        for base in start..end {
            self.truth.remove(&(key, base));
            self.present.remove(&(key, base));
            self.protected.remove(&(key, base));
        }
    }

    pub(super) fn step(&mut self, op: &Op) {
        let pick = |s: &Self, i: usize| s.spaces[i % s.spaces.len()];
        match *op {
            Op::Write { space, base, value } => {
                let key = pick(self, space);
                self.touch_to_write(key, base);
                self.present.insert((key, base), value);
                self.truth.insert((key, base), value);
            }
            Op::Read { space, base } => {
                let key = pick(self, space);
                self.touch(key, base);
            }
            Op::Remove { space, base, len } => {
                let key = pick(self, space);
                self.rest();
                let now = self.time();
                // The event is read before the kernel drops the pages.
                self.b.handle_removed(now, key, BaseRange::new(base, base + len));
                self.drain();
                self.clear(key, base, base + len);
            }
            Op::UnmapAndMap { space, base, len } => {
                let key = pick(self, space);
                self.rest();
                self.clear(key, base, base + len);
                let now = self.time();
                self.b.handle_unmapped(now, key, BaseRange::new(base, base + len));
                self.drain();
                let now = self.time();
                self.b.handle_adopted(now, key, BaseRange::new(base, base + len), &[]);
                self.drain();
            }
            Op::Remap { space, base, len } => {
                let key = pick(self, space);
                self.rest();
                for (from, to) in [(base, base + FAR), (base + FAR, base)] {
                    for i in 0..len {
                        for map in [&mut self.truth, &mut self.present] {
                            if let Some(v) = map.remove(&(key, from + i)) {
                                map.insert((key, to + i), v);
                            }
                        }
                        if self.protected.remove(&(key, from + i)) {
                            self.protected.insert((key, to + i));
                        }
                    }
                    let now = self.time();
                    self.b.handle_remapped(now, key, BaseRange::new(from, from + len), to);
                    self.drain();
                    self.touch(key, to + len / 2);
                    self.rest();
                }
            }
            Op::Fork { space } => {
                if self.spaces.len() >= 4 {
                    return;
                }
                let parent = pick(self, space);
                let child = SpaceKey(self.next_space);
                self.next_space += 1;
                self.rest();
                for map in [&mut self.truth, &mut self.present] {
                    let copy: Vec<_> = map
                        .range((parent, 0)..(parent, u64::MAX))
                        .map(|(&(_, b), &v)| ((child, b), v))
                        .collect();
                    map.extend(copy);
                }
                let now = self.time();
                self.b.handle_forked(now, parent, child);
                self.b.handle_hand(child);
                self.spaces.push(child);
                self.forked.extend([parent, child]);
                self.drain();
            }
            Op::Exit { space } => {
                if self.spaces.len() == 1 {
                    return;
                }
                let key = self.spaces.remove(space % self.spaces.len());
                self.truth.retain(|at, _| at.0 != key);
                self.present.retain(|at, _| at.0 != key);
                self.protected.retain(|at| at.0 != key);
                let now = self.time();
                self.b.handle_space_gone(now, key);
                self.drain();
            }
            Op::Complete { pick } => {
                self.complete(pick);
            }
            Op::LoseLender => {
                if let Some(i) = self.lenders.iter().position(Option::is_some) {
                    self.lenders[i] = None;
                    self.full.remove(&i);
                    self.pending.retain(|p| {
                        !matches!(p, Pending::Get { lender, .. } | Pending::Put { lender, .. } | Pending::Gone { lender, .. } if usize::from(lender.0) == i)
                    });
                    let now = self.time();
                    let lost = self.b.handle_lender_lost(now, LenderIndex(i as u8));
                    assert_eq!(lost.0, 0, "nothing is lost under disk");
                    self.drain();
                }
            }
            Op::JoinLender { room } => {
                if self.lenders.iter().flatten().count() < 6 {
                    self.join_lender(room);
                }
            }
            Op::Weights { weights, min_age } => {
                let up = (0..self.lenders.len()).filter(|&i| self.lenders[i].is_some());
                let some: Vec<(LenderIndex, u32)> =
                    up.zip(weights).map(|(i, weight)| (LenderIndex(i as u8), weight)).collect();
                let now = self.time();
                self.b.handle_weights(now, &some, Duration(min_age));
                self.drain();
            }
            Op::WeightsUnknown => {
                let now = self.time();
                self.b.handle_weights_unknown(now);
                self.drain();
            }
            Op::Room { room } => self.lender_room = room,
            Op::Replace { pick, tells } => {
                let stored: Vec<_> = self
                    .lenders
                    .iter()
                    .enumerate()
                    .flat_map(|(n, store)| {
                        store
                            .iter()
                            .flat_map(BTreeMap::keys)
                            .map(move |&(copy, version)| (LenderIndex(n as u8), copy, version))
                    })
                    .collect();
                let Some(&(lender, copy, version)) = stored.get(pick % stored.len().max(1)) else { return };
                self.lenders[usize::from(lender.0)]
                    .as_mut()
                    .expect("it has the page")
                    .remove(&(copy, version));
                self.taken.insert((copy, version));
                if tells {
                    self.pending.push(Pending::Gone { lender, copy, version });
                }
            }
            Op::Drain { pick } => self.drain_one(pick),
            Op::GiveUp { pick, tells } => self.give_up(pick, tells),
            Op::LoseOne { lender, comes_back } => self.lose_one(lender, comes_back),
            Op::Tick => {
                self.now += 6_000_000;
                self.b.handle_timeout(Instant(self.now));
                self.drain();
            }
            Op::Refuse { installs } => self.refuses = installs,
            Op::Advise { space, base, len, will_need } => {
                let (key, now) = (pick(self, space), self.time());
                let advice = if will_need { Advice::WillNeed } else { Advice::WillNotNeed };
                self.b.handle_advice(now, key, BaseRange::new(base, base + len), advice);
                self.drain();
            }
            Op::Mark { space, base, len, pattern, priority } => {
                let (key, range) = (pick(self, space), BaseRange::new(base, base + len));
                pattern.inspect(|&pattern| assert!(self.b.handle_pattern(key, range, pattern)));
                priority.inspect(|&priority| assert!(self.b.handle_priority(key, range, priority)));
            }
            Op::Terms { space, base, len, terms } => {
                let (key, range) = (pick(self, space), BaseRange::new(base, base + len));
                assert_eq!(self.b.handle_terms(key, range, terms), Ok(()));
            }
            Op::Recall { lender, pick, pages } => self.recall(lender, pick, pages),
            Op::RoomAgain { lender } => {
                if self.full.remove(&lender) {
                    let now = self.time();
                    let none = core::iter::empty();
                    self.b.handle_recall(now, LenderIndex(lender as u8), BasePages(100_000), none);
                    self.drain();
                }
            }
            Op::Limit { pages } => {
                let now = self.time();
                self.b.handle_limit(now, BasePages(pages));
                self.b.handle_sharing_broken(now);
                self.drain();
            }
        }
        self.steps += 1;
        if self.steps.is_multiple_of(16) {
            self.check();
        }
    }

    pub(super) fn join_lender(&mut self, room: u64) -> LenderIndex {
        let index = self.b.handle_lender_joined(BasePages(room));
        let at = usize::from(index.0);
        if at == self.lenders.len() {
            self.lenders.push(None);
            self.puts.push(0);
        }
        assert!(self.lenders[at].replace(BTreeMap::new()).is_none(), "two lenders have one index");
        self.drain();
        index
    }

    /// A lender wants some of what it has back; it names a version that is gone now and then, as a late one would.
    pub(super) fn recall(&mut self, lender: usize, pick: usize, pages: usize) {
        let Some(Some(store)) = self.lenders.get(lender) else { return };
        let named = |&(copy, Version(version)): &(CopyIndex, Version)| {
            (copy, Version(version + u32::from((copy.0 as usize + pick).is_multiple_of(31))))
        };
        let asked: Vec<_> = store.keys().skip(pick % store.len().max(1)).take(pages).map(named).collect();
        // Of what the borrower does not know it says so, and it was never there.
        self.taken.extend(asked.iter().filter(|page| !store.contains_key(page)));
        self.ask_back(lender, asked);
    }

    pub(super) fn ask_back(&mut self, lender: usize, pages: Vec<(CopyIndex, Version)>) {
        if pages.is_empty() || self.replicas.away.contains(&LenderIndex(lender as u8)) {
            return;
        }
        self.full.insert(lender);
        let now = self.time();
        self.b.handle_recall(now, LenderIndex(lender as u8), BasePages(0), pages.into_iter());
        self.drain();
    }

    /// A lender wants all that it has back.
    pub(super) fn recall_all(&mut self, lender: usize) {
        let pages =
            self.lenders[lender].as_ref().map_or_else(Vec::new, |store| store.keys().copied().collect());
        self.ask_back(lender, pages);
    }
}

pub(super) fn op(lose: bool) -> impl Strategy<Value = Op> {
    let at = (0usize..4, 0u64..PAGES);
    let span = (0usize..4, 0u64..PAGES - 200, 1u64..200);
    prop_oneof![
        12 => (at.clone(), 0u64..50).prop_map(|((space, base), value)| Op::Write { space, base, value }),
        8 => at.prop_map(|(space, base)| Op::Read { space, base }),
        1 => span.clone().prop_map(|(space, base, len)| Op::Remove { space, base, len }),
        1 => span.clone().prop_map(|(space, base, len)| Op::UnmapAndMap { space, base, len }),
        1 => span.prop_map(|(space, base, len)| Op::Remap { space, base, len }),
        1 => (0usize..4).prop_map(|space| Op::Fork { space }),
        1 => (0usize..4).prop_map(|space| Op::Exit { space }),
        12 => (0usize..1000).prop_map(|pick| Op::Complete { pick }),
        1 => Just(if lose { Op::LoseLender } else { Op::Tick }),
        2 => proptest::sample::select(&[0, 20, 100_000][..]).prop_map(|room| Op::JoinLender { room }),
        1 => (any::<[u8; 4]>(), 0u64..3)
            .prop_map(|(w, min_age)| Op::Weights { weights: w.map(|w| u32::from(w / 64)), min_age }),
        1 => Just(Op::WeightsUnknown),
        1 => any::<bool>().prop_map(move |room| Op::Room { room: room || !lose }),
        1 => Just(Op::Tick),
        2 => (0usize..1000, any::<bool>())
            .prop_map(move |(pick, tells)| if lose { Op::Replace { pick, tells } } else { Op::Tick }),
        1 => (200u64..1200).prop_map(|pages| Op::Limit { pages }),
        2 => (1u32..8).prop_map(|installs| Op::Refuse { installs }),
        2 => (0usize..3, 0usize..1000, 1usize..400)
            .prop_map(|(lender, pick, pages)| Op::Recall { lender, pick, pages }),
        1 => (0usize..3).prop_map(|lender| Op::RoomAgain { lender }),
        2 => (0usize..4, 0u64..PAGES, 1u64..900, any::<bool>())
            .prop_map(|(space, base, len, will_need)| Op::Advise { space, base, len, will_need }),
        2 => (0usize..4, 0u64..PAGES, 1u64..900, proptest::option::of(0usize..3), proptest::option::of(0usize..3))
            .prop_map(|(space, base, len, pattern, priority)| Op::Mark {
                space,
                base,
                len,
                pattern: pattern.map(|n| [Pattern::Unknown, Pattern::Sequential, Pattern::Random][n]),
                priority: priority.map(|n| [Priority::Low, Priority::Normal, Priority::High][n]),
            }),
        2 => (0usize..4, 0u64..PAGES, 1u64..900, terms::terms())
            .prop_map(|(space, base, len, terms)| Op::Terms { space, base, len, terms }),
    ]
}

pub(super) fn ops(lose: bool) -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(op(lose), 1..250)
}
