//! Whether a loop may spin between two requests: it has to pay, and nobody may want the processor more.
//!
//! A lender is a guest on its machine. While programs there wait for a processor (the kernel's pressure-stall information), it sleeps between
//! requests; and where requests come too rarely to be caught by spinning, it sleeps as well.

use loam_core::polling::Polling;
use std::time::{Duration, Instant};

/// Programs wait for a processor: some of them for more than this part of the time, in thousandths. (One thread that faults, its agent and a lender alternate
/// on two cores: each waits a moment for another's last steps, 150 to 180 in all.)
const CROWDED_PERMILLE: u128 = 300;
/// It may be our own spinning that they wait for. So after spinning on a machine that became crowded it is left alone for longer each time, up to
/// so many looks …
const REST_LOOKS_MAX: u32 = 64;
/// … and after as many looks without a crowd it counts as new.
const QUIET_LOOKS: u32 = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Spinning {
    /// How long after a request.
    most: Duration,
    polling: Polling,
    /// When the last request was served, if its wait for the next one is a poll that is not over.
    since: Option<Instant>,
    /// Nobody waits for a processor.
    quiet: bool,
    /// The last look: when, and how long programs had waited by then.
    looked: Option<(Instant, u64)>,
    rest_looks: u32,
    rest_looks_next: u32,
    quiet_looks: u32,
}

impl Spinning {
    /// Spins for up to `most` after a request.
    pub(crate) fn new(most: Duration) -> Self {
        Self {
            most,
            polling: Polling::default(),
            since: None,
            quiet: false,
            looked: None,
            rest_looks: 0,
            rest_looks_next: 1,
            quiet_looks: 0,
        }
    }

    /// A request has been served.
    pub(crate) fn served(&mut self, now: Instant) {
        if self.since.is_some() {
            self.polling.hit();
        }
        self.since = (self.quiet && !self.most.is_zero() && self.polling.begins()).then_some(now);
    }

    /// Somebody else wants this core: not until the next request, and as often in vain not for a while.
    pub(crate) fn yields(&mut self) {
        if self.since.take().is_some() {
            self.polling.miss();
        }
    }

    /// Whether to look for the next request without sleeping.
    pub(crate) fn spins(&mut self, now: Instant) -> bool {
        let Some(since) = self.since else { return false };
        let lasts = now.saturating_duration_since(since) < self.most;
        if !lasts {
            self.polling.miss();
            self.since = None;
        }
        lasts
    }

    /// Looks whether anybody waits for a processor: `stalled_us` is for how long some program has, since the machine was started; `None`
    /// where the kernel does not say, and then nobody does.
    pub(crate) fn look(&mut self, now: Instant, stalled_us: Option<u64>) {
        let before = self.looked.take();
        let Some(stalled_us) = stalled_us else {
            self.quiet = true;
            return;
        };
        self.looked = Some((now, stalled_us));
        let Some((at, stalled_before_us)) = before else { return };
        let waited_us = u128::from(stalled_us.saturating_sub(stalled_before_us));
        let crowded = waited_us * 1000 > now.saturating_duration_since(at).as_micros() * CROWDED_PERMILLE;
        if crowded {
            if self.quiet {
                self.rest_looks = self.rest_looks_next;
                self.rest_looks_next = (self.rest_looks_next * 2).min(REST_LOOKS_MAX);
            }
            (self.quiet, self.quiet_looks) = (false, 0);
        } else if self.rest_looks > 0 {
            self.rest_looks -= 1;
        } else {
            self.quiet = true;
            self.quiet_looks = (self.quiet_looks + 1).min(QUIET_LOOKS);
            if self.quiet_looks == QUIET_LOOKS {
                self.rest_looks_next = 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_micros(100);
    const SECOND: Duration = Duration::from_secs(1);

    /// A machine where time goes by, and where programs have waited for a processor.
    struct Machine {
        spinning: Spinning,
        now: Instant,
        stalled_us: u64,
    }

    impl Machine {
        fn new() -> Self {
            let mut spinning = Spinning::new(MOST);
            let now = Instant::now();
            spinning.look(now, Some(7_000_000));
            Self { spinning, now, stalled_us: 7_000_000 }
        }

        /// A second later, in which programs waited for so many thousandths of it. Answers whether a request would be spun after.
        fn second(&mut self, permille: u64) -> bool {
            self.now += SECOND;
            self.stalled_us += permille * 1000;
            self.spinning.look(self.now, Some(self.stalled_us));
            self.spinning.since = None;
            self.spinning.served(self.now);
            self.spinning.spins(self.now)
        }
    }

    #[test]
    fn it_spins_for_a_while_after_a_request_where_nobody_waits() {
        let mut machine = Machine::new();
        machine.spinning.served(machine.now);
        assert!(!machine.spinning.spins(machine.now), "nothing is known of the machine yet");
        assert!(machine.second(10));
        assert!(machine.spinning.spins(machine.now + MOST / 2));
        assert!(!machine.spinning.spins(machine.now + MOST));
        assert!(!machine.spinning.spins(machine.now), "it is over");
    }

    #[test]
    fn it_gives_way_to_whoever_waits_for_a_processor() {
        let mut machine = Machine::new();
        assert!(machine.second(299));
        assert!(!machine.second(301));
        assert!(!machine.second(0), "perhaps it was us");
        assert!(machine.second(0));
        assert!(!machine.second(400), "it was");
        let rests: Vec<u32> = (0..8)
            .map(|_| {
                let rest = (1..).find(|_| machine.second(0)).expect("it is tried again");
                assert!(!machine.second(400));
                rest
            })
            .collect();
        assert_eq!(rests, [3, 5, 9, 17, 33, 65, 65, 65], "seldom in the end");
        let quiet = (0..REST_LOOKS_MAX + QUIET_LOOKS).filter(|_| machine.second(0)).count();
        assert_eq!(quiet, 64);
        assert!(!machine.second(400));
        assert!(!machine.second(0));
        assert!(machine.second(0), "after a long quiet it counts as new");
    }

    #[test]
    fn a_core_that_others_want_is_left_until_the_next_request() {
        let mut machine = Machine::new();
        assert!(machine.second(0));
        machine.spinning.yields();
        assert!(!machine.spinning.spins(machine.now));
        machine.spinning.served(machine.now);
        assert!(machine.spinning.spins(machine.now));
    }

    /// Of a thousand requests, each of whose waits ends like this, how many are spun after.
    fn spun(machine: &mut Machine, end: impl Fn(&mut Machine)) -> usize {
        let one = |_: &u32| {
            machine.spinning.served(machine.now);
            let spins = machine.spinning.spins(machine.now);
            end(machine);
            spins
        };
        (0..1000).filter(one).count()
    }

    #[test]
    fn a_core_that_others_want_again_and_again_is_left_for_longer() {
        let mut machine = Machine::new();
        assert!(machine.second(0));
        let spun = spun(&mut machine, |machine| machine.spinning.yields());
        assert!((3..=15).contains(&spun), "{spun}: tried now and then");
    }

    #[test]
    fn requests_that_come_too_rarely_are_slept_for() {
        let mut machine = Machine::new();
        assert!(machine.second(0));
        let seldom = spun(&mut machine, |machine| {
            machine.now += MOST * 2;
            assert!(!machine.spinning.spins(machine.now));
        });
        assert!((3..=15).contains(&seldom), "{seldom}: tried now and then");
        let often = spun(&mut machine, |machine| machine.now += MOST / 2);
        assert!(often > 700, "{often}: they come often again");
    }

    #[test]
    fn where_the_kernel_does_not_say_nobody_waits_and_without_time_nothing_spins() {
        let mut spinning = Spinning::new(MOST);
        let now = Instant::now();
        spinning.look(now, None);
        spinning.served(now);
        assert!(spinning.spins(now));
        let mut spinning = Spinning::new(Duration::ZERO);
        spinning.look(now, None);
        spinning.served(now);
        assert!(!spinning.spins(now));
    }
}
