//! Which lender takes the pages that leave (gms-1995, sections 3.2 and 5.5).
//!
//! The choice is made once for a batch and not for each page: what leaves together is wanted together, and goes and comes in few
//! frames. Proportions hold all the same. Each batch is a draw of its own, with the same chances whatever its size is, so a lender's
//! expected part of the pages is its part of the weights; only the spread is that of as many draws as there are batches.
//!
//! The paper's targets take every page and discard their oldest; a lender may also refuse. So what it has refused counts, until
//! it is heard that it has room, or an epoch begins.

use crate::draw::Draw;
use crate::units::Duration;
use alloc::boxed::Box;

/// A lender with less room than this part of what it holds is tight.
const TIGHT_PART: u64 = 16;

/// A lender, as the borrower knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LenderState {
    /// It can be used.
    pub up: bool,
    /// Base pages that it can still take without giving up others, as far as is known.
    pub room: u64,
    /// Base pages that it holds.
    pub held: u64,
    /// Its weight in this epoch.
    pub weight: u32,
    /// It has refused a page since the last word of its room or weight.
    pub refused: bool,
    /// Base pages that it has asked for and that it still has: until they have gone it has no room.
    pub wanted_back: u64,
    /// Where it is.
    pub site: Site,
    /// Its ring is full: it takes pages, but not to write them to its disk, until it has written some.
    pub ring_full: bool,
    /// It is being waited for: what its disk has is still there.
    pub away: bool,
    /// It has been asked for so many pages that nobody waited for,
    pub asked_behind: u64,
    /// and has answered up to this one of them, as it answers them in order.
    pub answered_behind: u64,
}

/// Where a lender is, to keep copies apart. Numbers are the driver's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Its machine.
    pub machine: u32,
    /// Its rack, or whatever fails together; 0: not known.
    pub zone: u32,
    /// It writes what it is given to a disk of its own (nwcache-1999, section 3.2: an I/O-enabled node).
    pub drains: bool,
}

impl LenderState {
    /// It takes pages, as far as is known.
    pub fn has_room(&self) -> bool {
        self.up && !self.refused && self.wanted_back == 0 && self.room > 0
    }

    /// It hardly has room, for one that has so much with it.
    pub(super) fn is_tight(&self) -> bool {
        self.room < self.held / TIGHT_PART
    }
}

/// A policy of where pages go. It sees every lender and chooses for a batch.
pub trait LenderChoice: core::fmt::Debug + Send {
    /// The lender of the next batch, but not `except`; `None`: the disk alone. `must`: there is no disk, so that pages stay in memory
    /// if no lender takes them.
    fn choose(&mut self, lenders: &[LenderState], except: Option<usize>, must: bool) -> Option<usize>;
    /// Its batch may go on with this lender.
    fn goes_on(&self, lender: &LenderState) -> bool {
        lender.has_room()
    }
    /// Lenders that a page is offered to, one after the other, before the disk alone has it; if it `must` be taken, all.
    fn offers(&self, must: bool) -> u8 {
        if must { u8::MAX } else { 1 }
    }
    /// An epoch with this MinAge has begun and weights are known; `None`: they are not known any more.
    fn epoch_began(&mut self, _min_age: Option<Duration>) {}
}

/// Names of the policies.
pub const PLACEMENTS: [&str; 5] = ["gms", "n-chance", "random", "round-robin", "none"];

/// The policy of that name, with chance from `seed`.
pub fn lender_choice(name: &str, seed: u64) -> Option<Box<dyn LenderChoice>> {
    let dice = Dice(Draw::new(seed));
    Some(match name {
        "gms" => Box::new(Gms { dice, min_age: None, replaces: false }),
        "n-chance" => Box::new(NChance { dice }),
        "random" => Box::new(Random { dice }),
        "round-robin" => Box::new(RoundRobin::default()),
        "none" => Box::new(Nobody),
        _ => return None,
    })
}

/// Draws lenders.
#[derive(Clone, Debug)]
struct Dice(Draw);

impl Dice {
    /// One lender, with a probability in proportion to its share; `None` if nobody has one.
    fn draw(
        &mut self,
        lenders: &[LenderState],
        except: Option<usize>,
        share: impl Fn(&LenderState) -> u64,
    ) -> Option<usize> {
        let shares = || {
            let each = lenders.iter().enumerate().filter(|&(n, _)| Some(n) != except);
            each.map(|(n, lender)| (n, share(lender))).filter(|&(_, share)| share > 0)
        };
        let sum: u64 = shares().map(|(_, share)| share).sum();
        if sum == 0 {
            return None;
        }
        let mut at = self.0.below(sum);
        for (n, share) in shares() {
            if at < share {
                return Some(n);
            }
            at -= share;
        }
        unreachable!("what was drawn is below the sum of all shares")
    }
}

/// Room that may be used, as a share.
fn room(lender: &LenderState) -> u64 {
    // Told by others: their sum must fit.
    if lender.has_room() { lender.room.min(u64::from(u32::MAX)) } else { 0 }
}

/// Section 3.2: in proportion to the weights of the epoch; but as long as anybody has room nobody's page gives way: a free frame is older than any page.
/// (Weights are as old as their epoch, a lender's room as its last answer; the paper's nodes answer no putpage.) MinAge 0 says that the cluster has too few old pages: nothing is
/// sent. As long as no weights are known, in proportion to free room.
#[derive(Debug)]
struct Gms {
    dice: Dice,
    min_age: Option<Duration>,
    /// No lender with a weight had room at the last choice: what leaves takes the place of older pages.
    replaces: bool,
}

impl LenderChoice for Gms {
    fn choose(&mut self, lenders: &[LenderState], except: Option<usize>, must: bool) -> Option<usize> {
        let weight = |l: &LenderState| if l.up && !l.refused { u64::from(l.weight) } else { 0 };
        let roomy = |l: &LenderState| if l.room > 0 { weight(l) } else { 0 };
        self.replaces = false;
        let by_weight = match self.min_age {
            None => return self.dice.draw(lenders, except, room),
            Some(Duration(0)) => None,
            Some(_) => {
                let with_room = self.dice.draw(lenders, except, roomy);
                // Before somebody who has a weight and no room any more gives a page up; not because nobody with a weight is there.
                let full = || lenders.iter().any(|l| weight(l) > 0 && l.room == 0);
                let with_room =
                    with_room.or_else(|| if full() { self.dice.draw(lenders, except, room) } else { None });
                self.replaces = with_room.is_none();
                with_room.or_else(|| self.dice.draw(lenders, except, weight))
            }
        };
        by_weight.or_else(|| if must { self.dice.draw(lenders, except, room) } else { None })
    }

    fn goes_on(&self, lender: &LenderState) -> bool {
        lender.up && !lender.refused && (lender.room > 0 || (self.replaces && lender.weight > 0))
    }

    fn epoch_began(&mut self, min_age: Option<Duration>) {
        self.min_age = min_age;
    }
}

/// Section 5.5, N = 2: a lender picked at random, without any knowledge of it. One that has nothing to give up refuses; the page
/// is then sent to another, and the next time it is dropped.
#[derive(Debug)]
struct NChance {
    dice: Dice,
}

impl LenderChoice for NChance {
    fn choose(&mut self, lenders: &[LenderState], except: Option<usize>, _: bool) -> Option<usize> {
        self.dice.draw(lenders, except, |lender| u64::from(lender.up))
    }
    fn goes_on(&self, lender: &LenderState) -> bool {
        lender.up
    }
    fn offers(&self, _: bool) -> u8 {
        2
    }
}

/// Any lender that is not known to be full.
#[derive(Debug)]
struct Random {
    dice: Dice,
}

impl LenderChoice for Random {
    fn choose(&mut self, lenders: &[LenderState], except: Option<usize>, _: bool) -> Option<usize> {
        self.dice.draw(lenders, except, |lender| u64::from(room(lender) > 0))
    }
}

/// One lender after the other, those that are known to be full left out.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    turn: usize,
}

impl LenderChoice for RoundRobin {
    fn choose(&mut self, lenders: &[LenderState], except: Option<usize>, _: bool) -> Option<usize> {
        let n = lenders.len();
        let order = (1..=n).map(|step| (self.turn + step) % n);
        let next = order.into_iter().find(|&i| Some(i) != except && room(&lenders[i]) > 0)?;
        self.turn = next;
        Some(next)
    }
}

/// The disk alone.
#[derive(Debug)]
struct Nobody;

impl LenderChoice for Nobody {
    fn choose(&mut self, _: &[LenderState], _: Option<usize>, _: bool) -> Option<usize> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    const AGE: Option<Duration> = Some(Duration(1_000_000_000));

    fn lender(weight: u32, room: u64) -> LenderState {
        LenderState { up: true, room, weight, ..LenderState::default() }
    }

    fn counts(choice: &mut dyn LenderChoice, lenders: &[LenderState], draws: u64) -> Vec<u64> {
        let mut counts = vec![0; lenders.len()];
        for _ in 0..draws {
            counts[choice.choose(lenders, None, false).expect("somebody has a share")] += 1;
        }
        counts
    }

    /// Pearson's statistic against `shares`.
    fn chi_square(counts: &[u64], shares: &[u64]) -> f64 {
        let (n, sum) = (counts.iter().sum::<u64>() as f64, shares.iter().sum::<u64>() as f64);
        let expected = |&share: &u64| n * share as f64 / sum;
        counts.iter().zip(shares).map(|(&c, s)| (c as f64 - expected(s)).powi(2) / expected(s)).sum()
    }

    /// Quantile 0.999 with so many degrees of freedom: a sound policy passes it for nearly every seed, and surely for these.
    const CHI_SQUARE_3: f64 = 16.27;

    #[test]
    fn batches_follow_the_weights() {
        let weights = [1_u64, 10, 100, 889];
        // Room says the contrary.
        let lenders: Vec<LenderState> = weights.iter().map(|&w| lender(w as u32, 1_000 - w)).collect();
        for seed in 0..20 {
            let mut gms = lender_choice("gms", seed).unwrap();
            gms.epoch_began(AGE);
            let found = chi_square(&counts(&mut *gms, &lenders, 40_000), &weights);
            assert!(found < CHI_SQUARE_3, "seed {seed}: {found}");
        }
    }

    #[test]
    fn without_weights_batches_follow_free_room() {
        let rooms = [5_u64, 50, 45, 900];
        let lenders: Vec<LenderState> = rooms.iter().map(|&room| lender(1, room)).collect();
        let mut gms = lender_choice("gms", 7).unwrap();
        assert!(chi_square(&counts(&mut *gms, &lenders, 40_000), &rooms) < CHI_SQUARE_3);
        gms.epoch_began(AGE);
        assert!(chi_square(&counts(&mut *gms, &lenders, 40_000), &rooms) > CHI_SQUARE_3, "weights are known");
        gms.epoch_began(None);
        assert!(chi_square(&counts(&mut *gms, &lenders, 40_000), &rooms) < CHI_SQUARE_3);
    }

    #[test]
    fn n_chance_and_random_know_no_weights() {
        let lenders = [lender(1, 9), lender(1_000, 1), lender(0, 70), lender(5, 5)];
        for name in ["n-chance", "random"] {
            let mut choice = lender_choice(name, 3).unwrap();
            choice.epoch_began(AGE);
            assert!(chi_square(&counts(&mut *choice, &lenders, 40_000), &[1; 4]) < CHI_SQUARE_3, "{name}");
        }
    }

    #[test]
    fn min_age_zero_sends_nothing_where_there_is_a_disk() {
        let lenders = [lender(5, 100), lender(5, 100)];
        let mut gms = lender_choice("gms", 1).unwrap();
        gms.epoch_began(Some(Duration(0)));
        assert_eq!(gms.choose(&lenders, None, false), None);
        assert!(gms.choose(&lenders, None, true).is_some(), "without a disk they have nowhere else to go");
        gms.epoch_began(AGE);
        assert!(gms.choose(&lenders, None, false).is_some());
    }

    #[test]
    fn who_is_down_or_has_refused_is_left_out() {
        let mut lenders = [lender(5, 100), lender(5, 100), lender(0, 0)];
        lenders[0].up = false;
        lenders[1].refused = true;
        for name in PLACEMENTS {
            let mut choice = lender_choice(name, 1).unwrap();
            choice.epoch_began(AGE);
            // N-chance knows nothing but who is there.
            let others = if name == "n-chance" { Some(2) } else { None };
            assert_eq!(choice.choose(&lenders, Some(1), false), others, "{name}");
            assert!(!choice.goes_on(&lenders[0]), "{name}");
        }
        assert_eq!(lender_choice("other", 1).map(|_| ()), None);
    }

    #[test]
    fn a_weighted_lender_that_is_full_gives_up_its_oldest_if_none_has_room() {
        let mut lenders = [lender(5, 0), lender(0, 100), lender(1, 1)];
        let mut gms = lender_choice("gms", 1).unwrap();
        gms.epoch_began(AGE);
        assert_eq!(counts(&mut *gms, &lenders, 100), [0, 0, 100], "room first, of those with a weight");
        assert!(!gms.goes_on(&lenders[0]));
        lenders[2].room = 0;
        assert_eq!(counts(&mut *gms, &lenders, 100), [0, 100, 0], "room at all");
        assert_eq!(gms.choose(&lenders[1..2], None, false), None, "nobody with a weight is there: the disk");
        lenders[1].room = 0;
        let drawn = counts(&mut *gms, &lenders, 600);
        assert!(drawn[0] > 3 * drawn[2] && drawn[1] == 0, "by weight: {drawn:?}");
        assert!(gms.goes_on(&lenders[0]), "a batch stays together");
        lenders[1].room = 100;
        gms.epoch_began(None);
        assert_eq!(gms.choose(&lenders, None, false), Some(1), "by room alone");
        assert!(!gms.goes_on(&lenders[0]));
    }

    #[test]
    fn one_seed_is_one_sequence() {
        let lenders = [lender(3, 5), lender(4, 5), lender(5, 5)];
        let sequence = |seed| {
            let mut choice = lender_choice("gms", seed).unwrap();
            choice.epoch_began(AGE);
            (0..50).map(|_| choice.choose(&lenders, None, false)).collect::<Vec<_>>()
        };
        assert_eq!(sequence(9), sequence(9));
        assert_ne!(sequence(9), sequence(10));
    }
}
