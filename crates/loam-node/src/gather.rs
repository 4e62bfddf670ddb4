//! How long the disk's thread lets work gather before it looks at it.
//!
//! Nobody waits for writes. Begun many at a time, more of them are neighbours, and a program that shares its cores with the lender is interrupted
//! less; but a disk must not stand still for it.

use std::time::Duration;

const SHORTEST: Duration = Duration::from_micros(125);
const LONGEST: Duration = Duration::from_millis(8);

/// See the module.
#[derive(Debug)]
pub(crate) struct Gather {
    time: Duration,
}

impl Gather {
    pub(crate) fn new() -> Self {
        Self { time: Duration::from_millis(1) }
    }

    /// How long this time.
    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    /// What became of it: whether the store had been given as many writes as it takes, how many were under way, and how many of them still are.
    pub(crate) fn ended(&mut self, was_full: bool, begun: usize, left: usize) {
        if was_full && left == 0 {
            // It could have done more meanwhile.
            self.time = (self.time / 2).max(SHORTEST);
        } else if !was_full || left * 2 > begun {
            self.time = (self.time * 2).min(LONGEST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that does so many writes a millisecond, never short of them, and takes 64 at a time: how many it does in a second.
    fn writes_in_a_second(per_ms: f64) -> (f64, Duration) {
        let mut gather = Gather::new();
        let (mut now_ms, mut done) = (0.0, 0.0);
        while now_ms < 1000.0 {
            let ms = gather.time().as_secs_f64() * 1000.0;
            let now = (per_ms * ms).min(64.0);
            gather.ended(true, 64, 64 - now as usize);
            (now_ms, done) = (now_ms + ms, done + now);
        }
        (done, gather.time())
    }

    #[test]
    fn a_slow_disk_is_looked_at_seldom_and_a_fast_one_is_kept_busy() {
        let (done, time) = writes_in_a_second(1.0);
        assert!(done > 990.0 && time == LONGEST, "{done} {time:?}");
        let (done, time) = writes_in_a_second(200.0);
        assert!(done > 100_000.0 && time < Duration::from_millis(1), "{done} {time:?}");
    }

    #[test]
    fn with_little_to_do_it_is_as_long_as_it_may_be() {
        let mut gather = Gather::new();
        for _ in 0..20 {
            gather.ended(false, 1, 0);
        }
        assert_eq!(gather.time(), LONGEST);
        for _ in 0..20 {
            gather.ended(true, 64, 0);
        }
        assert_eq!(gather.time(), SHORTEST);
    }
}
