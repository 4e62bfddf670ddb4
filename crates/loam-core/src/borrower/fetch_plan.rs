//! Fetch plans: in which order a page's subpages are asked for and sent, and which of them travel together (subpages-1996, sections 2.1
//! and 4.3).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A fault, as a planner sees it. Subpages are counted from the start of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFault {
    /// Subpages of the page.
    pub subpages: u32,
    /// The one in which the fault fell.
    pub subpage: u32,
    /// It fell in the second half of the subpage.
    pub second_half: bool,
}

/// Some subpages of a plan, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The first, from the start of the page.
    pub subpage: u32,
    /// How many.
    pub count: u32,
    /// In which message it travels. The first is 0, the numbers never fall, and a message is as a whole there or not.
    pub message: u32,
}

impl Step {
    /// The first subpage behind it.
    pub fn end(&self) -> u32 {
        self.subpage + self.count
    }

    /// Takes off its first subpages, `most` of them at most.
    pub fn take(&mut self, most: u64) -> Self {
        let count = u32::try_from(most).unwrap_or(u32::MAX).min(self.count);
        let taken = Self { count, ..*self };
        self.subpage += count;
        self.count -= count;
        taken
    }
}

/// Decides what is fetched for a fault.
pub trait FetchPlanner: core::fmt::Debug + Send {
    /// Appends the steps for a fault, the faulted subpage first and by itself, no subpage twice. What is not in them is not fetched.
    fn plan(&mut self, fault: PageFault, steps: &mut Vec<Step>);

    /// The first other subpage of a page that a thread wanted after a fault was so many subpages away from the faulted one.
    fn wanted_next(&mut self, distance: i32) {
        let _ = distance;
    }
}

/// A planner by its name; None: there is no such name. [`FETCH_PLANS`] has them all.
pub fn fetch_planner(name: &str) -> Option<Box<dyn FetchPlanner>> {
    Some(match name {
        "lazy" => Box::new(Lazy),
        "full" => Box::new(Full),
        "eager" => Box::new(Eager),
        "pipelined" => Box::new(Pipelined::NEIGHBOURS),
        "pipelined-doubled" => Box::new(Pipelined::DOUBLED),
        "pipelined-beside" => Box::new(Pipelined::BESIDE),
        "learned" => Box::new(Learned::default()),
        _ => return None,
    })
}

/// The names that [`fetch_planner`] knows.
pub const FETCH_PLANS: [&str; 7] =
    ["lazy", "full", "eager", "pipelined", "pipelined-doubled", "pipelined-beside", "learned"];

/// One of [`FETCH_PLANS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FetchPlan(u8);

impl FetchPlan {
    /// The one of this number in [`FETCH_PLANS`]; None: there are not so many.
    pub fn numbered(number: usize) -> Option<Self> {
        u8::try_from(number).ok().filter(|_| number < FETCH_PLANS.len()).map(Self)
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::numbered(FETCH_PLANS.iter().position(|plan| *plan == name)?)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        FETCH_PLANS[self.number()]
    }

    /// Its number.
    pub const fn number(self) -> usize {
        self.0 as usize
    }
}

/// Lazy subpage fetch: the faulted subpage; the others when they are wanted themselves (section 2.1, technique 1).
#[derive(Clone, Copy, Debug)]
pub struct Lazy;

/// The whole page as one message.
#[derive(Clone, Copy, Debug)]
pub struct Full;

/// Eager fullpage fetch: the faulted subpage, the rest of the page as one message behind it (section 2.1, technique 2).
#[derive(Clone, Copy, Debug)]
pub struct Eager;

/// Subpage pipelining: the faulted subpage, then some neighbours by themselves, then the rest as one message (section 4.3).
#[derive(Clone, Copy, Debug)]
pub struct Pipelined {
    /// Subpages that a pipelined message has.
    width: u32,
    /// The neighbour on whose side the fault fell travels with the faulted subpage.
    beside: bool,
}

impl Pipelined {
    /// +1, -1, rest.
    pub const NEIGHBOURS: Self = Self { width: 1, beside: false };
    /// The same with pipelined transfers of twice the size: "for 512-byte subpages, we sent the faulted 512-byte subpage followed
    /// by a pipelined transfer of the next 1K bytes".
    pub const DOUBLED: Self = Self { width: 2, beside: false };
    /// "We transferred twice the subpage size for the initial fault, choosing to send either the preceding or following page along
    /// for the ride, depending on where in the subpage the faulted word was located."
    pub const BESIDE: Self = Self { width: 1, beside: true };
}

/// Collects the steps of one plan.
struct Plan<'a> {
    steps: &'a mut Vec<Step>,
    from: usize,
    subpages: u32,
    message: u32,
}

impl<'a> Plan<'a> {
    fn new(fault: PageFault, steps: &'a mut Vec<Step>) -> Self {
        assert!(fault.subpage < fault.subpages, "the fault lies in the page");
        let from = steps.len();
        steps.push(Step { subpage: fault.subpage, count: 1, message: 0 });
        Self { steps, from, subpages: fault.subpages, message: 0 }
    }

    /// Adds a subpage to the message, if the page has it and it is not in the plan.
    fn add(&mut self, subpage: i64) {
        let Some(subpage) = u32::try_from(subpage).ok().filter(|&s| s < self.subpages) else { return };
        let has = |step: &Step| (step.subpage..step.end()).contains(&subpage);
        if !self.steps[self.from..].iter().any(has) {
            self.steps.push(Step { subpage, count: 1, message: self.message });
        }
    }

    /// What is added from now on is another message, unless the last one is empty.
    fn next_message(&mut self) {
        self.message = self.steps.last().expect("the faulted subpage is in it").message + 1;
    }

    /// Adds what is between the steps so far, and behind them.
    fn add_rest(&mut self) {
        let planned = self.from..self.steps.len();
        let mut at = 0;
        while at < self.subpages {
            let ahead = self.steps[planned.clone()].iter().filter(|step| step.subpage >= at);
            let next = ahead.min_by_key(|step| step.subpage);
            let (until, goes_on) =
                next.map_or((self.subpages, self.subpages), |step| (step.subpage, step.end()));
            if at < until {
                self.steps.push(Step { subpage: at, count: until - at, message: self.message });
            }
            at = goes_on;
        }
    }
}

impl FetchPlanner for Lazy {
    fn plan(&mut self, fault: PageFault, steps: &mut Vec<Step>) {
        Plan::new(fault, steps);
    }
}

impl FetchPlanner for Full {
    fn plan(&mut self, fault: PageFault, steps: &mut Vec<Step>) {
        Plan::new(fault, steps).add_rest();
    }
}

impl FetchPlanner for Eager {
    fn plan(&mut self, fault: PageFault, steps: &mut Vec<Step>) {
        let mut plan = Plan::new(fault, steps);
        plan.next_message();
        plan.add_rest();
    }
}

impl FetchPlanner for Pipelined {
    fn plan(&mut self, fault: PageFault, steps: &mut Vec<Step>) {
        let mut plan = Plan::new(fault, steps);
        let at = i64::from(fault.subpage);
        if self.beside {
            plan.add(if fault.second_half { at + 1 } else { at - 1 });
        }
        for side in [1, -1] {
            plan.next_message();
            for distance in 1..=i64::from(self.width) {
                plan.add(at + side * distance);
            }
        }
        plan.next_message();
        plan.add_rest();
    }
}

/// Pipelining in the order of the distances that have been seen most often so far (figure 7, while the program runs): two
/// subpages by themselves, as the paper's scheme has, then the rest. Without anything seen, that is +1 and -1.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    seen: BTreeMap<i32, u32>,
    total: u32,
}

impl Learned {
    /// Subpages that travel by themselves.
    const PIPELINED: usize = 2;
    /// Counts are halved when so many have been seen, so that what the program does now counts most.
    const FORGET_AT: u32 = 4096;
}

impl FetchPlanner for Learned {
    fn plan(&mut self, fault: PageFault, steps: &mut Vec<Step>) {
        let at = i64::from(fault.subpage);
        let inside = |d: i64| (0..i64::from(fault.subpages)).contains(&(at + d));
        let mut best = [(0_u32, 0_i64); Self::PIPELINED];
        let seen = self.seen.iter().map(|(&d, &count)| (count, i64::from(d)));
        // What was never seen stands in as the paper has it.
        for (count, distance) in seen.chain([(0, 1), (0, -1)]) {
            if !inside(distance) || best.iter().any(|b| b.1 == distance) {
                continue;
            }
            if let Some(place) = best.iter().position(|b| b.1 == 0 || count > b.0) {
                best[place..].rotate_right(1);
                best[place] = (count, distance);
            }
        }
        let mut plan = Plan::new(fault, steps);
        for (_, distance) in best.into_iter().filter(|b| b.1 != 0) {
            plan.next_message();
            plan.add(at + distance);
        }
        plan.next_message();
        plan.add_rest();
    }

    fn wanted_next(&mut self, distance: i32) {
        *self.seen.entry(distance).or_insert(0) += 1;
        self.total += 1;
        if self.total >= Self::FORGET_AT {
            self.seen.values_mut().for_each(|count| *count /= 2);
            self.seen.retain(|_, count| *count > 0);
            self.total = self.seen.values().sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn plan(name: &str, subpages: u32, subpage: u32, second_half: bool) -> Vec<(u32, u32)> {
        let mut steps = Vec::new();
        let mut planner = fetch_planner(name).unwrap();
        planner.plan(PageFault { subpages, subpage, second_half }, &mut steps);
        steps
            .into_iter()
            .flat_map(|s| (s.subpage..s.end()).map(move |subpage| (subpage, s.message)))
            .collect()
    }

    #[test]
    fn plans_as_the_paper_has_them() {
        assert_eq!(plan("lazy", 4, 2, false), [(2, 0)]);
        assert_eq!(plan("full", 4, 2, false), [(2, 0), (0, 0), (1, 0), (3, 0)]);
        assert_eq!(plan("eager", 4, 2, false), [(2, 0), (0, 1), (1, 1), (3, 1)]);
        assert_eq!(plan("pipelined", 8, 2, false)[..5], [(2, 0), (3, 1), (1, 2), (0, 3), (4, 3)]);
        assert_eq!(plan("pipelined", 4, 3, false), [(3, 0), (2, 1), (0, 2), (1, 2)], "there is no +1");
        assert_eq!(
            plan("pipelined-doubled", 8, 3, false),
            [(3, 0), (4, 1), (5, 1), (2, 2), (1, 2), (0, 3), (6, 3), (7, 3)]
        );
        assert_eq!(plan("pipelined-beside", 4, 1, false), [(1, 0), (0, 0), (2, 1), (3, 2)]);
        assert_eq!(plan("pipelined-beside", 4, 1, true), [(1, 0), (2, 0), (0, 1), (3, 2)]);
        assert_eq!(plan("pipelined", 1, 0, true), [(0, 0)]);
    }

    #[test]
    fn learned_begins_as_pipelined_and_follows_what_it_sees() {
        assert_eq!(plan("learned", 8, 2, false), plan("pipelined", 8, 2, false));
        let mut learned = Learned::default();
        for distance in [3, 3, -2, 3, -2, 1] {
            learned.wanted_next(distance);
        }
        let fault = |subpage| PageFault { subpages: 8, subpage, second_half: false };
        let mut steps = Vec::new();
        learned.plan(fault(3), &mut steps);
        assert_eq!([steps[1].subpage, steps[2].subpage], [6, 1]);
        steps.clear();
        learned.plan(fault(6), &mut steps);
        assert_eq!([steps[1].subpage, steps[2].subpage], [4, 7], "+3 is outside of the page");
    }

    #[test]
    fn a_step_is_taken_in_pieces() {
        let mut step = Step { subpage: 3, count: 5, message: 1 };
        assert_eq!(step.take(2), Step { subpage: 3, count: 2, message: 1 });
        assert_eq!(step.take(u64::MAX), Step { subpage: 5, count: 3, message: 1 });
        assert_eq!((step.count, step.take(1).count), (0, 0));
    }

    proptest! {
        /// The faulted subpage is first, each comes once, messages count up from 0 without a gap, and all but lazy bring the page.
        #[test]
        fn a_plan_is_the_page_once(
            name in proptest::sample::select(&FETCH_PLANS[..]),
            (subpages, subpage) in (1_u32..=256).prop_flat_map(|n| (Just(n), 0..n)),
            second_half: bool,
            seen in proptest::collection::vec(-40_i32..40, 0..50),
        ) {
            let mut planner = fetch_planner(name).unwrap();
            for distance in seen.into_iter().filter(|&d| d != 0) {
                planner.wanted_next(distance);
            }
            let mut steps = Vec::new();
            planner.plan(PageFault { subpages, subpage, second_half }, &mut steps);
            prop_assert_eq!(steps[0], Step { subpage, count: 1, message: 0 });
            prop_assert!(steps.windows(2).all(|w| w[1].message == w[0].message || w[1].message == w[0].message + 1));
            let all: BTreeSet<u32> = steps.iter().flat_map(|s| s.subpage..s.end()).collect();
            prop_assert_eq!(all.len() as u32, steps.iter().map(|s| s.count).sum::<u32>());
            prop_assert!(steps.len() <= 8, "a plan is short, however large the page");
            prop_assert!(all.iter().all(|&s| s < subpages));
            prop_assert_eq!(all.len() as u32, if name == "lazy" { 1 } else { subpages });
        }
    }
}
