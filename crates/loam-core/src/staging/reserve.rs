//! How many frames are kept free (nwcache-1999, sections 1 and 5).
//!
//! A fault needs a frame at once; a dirty page frees one only when its swap-out is acknowledged. The paper keeps a fixed number free, and finds the best
//! by trying: 2 with the write cache, 4 or 12 without, by the kind of prefetching. What is right is what faults take while one swap-out
//! is under way, so it can be measured: frames taken in a span of that length. Swap-outs come in bursts, so the most of recent spans counts, not
//! their mean; it is forgotten slowly. A fault that found no frame proves that it was too few, and adds half.

use crate::units::{Duration, Instant};

/// A span's most is forgotten by this part with each span that is below it.
const FORGET_PART: u64 = 16;
/// New swap-outs change the mean latency by this part.
const MEAN_PART: u64 = 8;
/// Spans that have passed without anything are looked at one by one up to so many: after them nothing of the most is left.
const IDLE_SPANS_MAX: u64 = 1024;
/// A span is at least this long: a clock is not finer.
const SPAN_MIN: Duration = Duration::from_micros(10);
/// A swap-out that took longer did not take longer: somebody was away.
const LATENCY_MAX: Duration = Duration::from_millis(10_000);
/// What a span is before the first swap-out has ended.
const SPAN_UNKNOWN: Duration = Duration::from_millis(1);

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveConfig {
    /// The paper's: always so many.
    Fixed {
        /// Frames.
        frames: u64,
    },
    /// What faults take while a swap-out is under way.
    Adaptive {
        /// At least so many frames.
        frames_min: u64,
        /// At most so many.
        frames_max: u64,
    },
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Reserve {
    config: ReserveConfig,
    /// Mean latency of swap-outs, and mean of how far they are from it.
    latency: Duration,
    deviation: Duration,
    span_began: Instant,
    /// Frames taken in this span.
    taken: u64,
    /// The most of recent spans, in 1/[`FORGET_PART`] frames so that it can shrink by less than one.
    most: u64,
}

impl Reserve {
    /// Nothing has been seen.
    ///
    /// # Panics
    /// If the least is nothing or above the most.
    pub fn new(config: ReserveConfig) -> Self {
        match config {
            ReserveConfig::Fixed { frames } => assert!(frames > 0, "a reserve of nothing"),
            ReserveConfig::Adaptive { frames_min, frames_max } => {
                assert!(0 < frames_min && frames_min <= frames_max, "a reserve of nothing");
            }
        }
        Self {
            config,
            latency: Duration(0),
            deviation: Duration(0),
            span_began: Instant(0),
            taken: 0,
            most: 0,
        }
    }

    /// Frames to keep free now.
    pub fn frames(&self) -> u64 {
        match self.config {
            ReserveConfig::Fixed { frames } => frames,
            ReserveConfig::Adaptive { frames_min, frames_max } => {
                let seen = self.most.div_ceil(FORGET_PART).max(self.taken);
                seen.clamp(frames_min, frames_max)
            }
        }
    }

    /// How long frames that are taken now have to last: until a swap-out that begins now has most likely ended.
    pub fn span(&self) -> Duration {
        if self.latency == Duration(0) {
            return SPAN_UNKNOWN;
        }
        // As a retransmission timer does it (Jacobson 1988): the mean and four times the deviation.
        Duration(self.latency.0 + 4 * self.deviation.0).max(SPAN_MIN)
    }

    /// Faults, or what is fetched ahead, took `frames`.
    pub fn handle_taken(&mut self, now: Instant, frames: u64) {
        self.pass(now);
        self.taken = self.taken.saturating_add(frames);
    }

    /// A swap-out has ended after `latency`: its frame is free.
    pub fn handle_swapped_out(&mut self, latency: Duration) {
        let latency = latency.min(LATENCY_MAX);
        if self.latency == Duration(0) {
            (self.latency, self.deviation) = (latency, Duration(latency.0 / 2));
            return;
        }
        let off = latency.0.abs_diff(self.latency.0);
        self.deviation = Duration(mean(self.deviation.0, off));
        self.latency = Duration(mean(self.latency.0, latency.0));
    }

    /// A fault found no free frame.
    pub fn handle_no_frame(&mut self, now: Instant) {
        self.pass(now);
        let kept = self.frames();
        self.most = self.most.max((kept + kept.div_ceil(2)).saturating_mul(FORGET_PART));
        if let ReserveConfig::Adaptive { frames_max, .. } = self.config {
            self.most = self.most.min(frames_max.saturating_mul(FORGET_PART));
        }
    }

    /// Ends the spans that have passed.
    fn pass(&mut self, now: Instant) {
        let span = self.span().0;
        let passed = (now - self.span_began).0 / span;
        if passed == 0 {
            return;
        }
        for at in 0..passed.min(IDLE_SPANS_MAX) {
            let seen = if at == 0 { self.taken.saturating_mul(FORGET_PART) } else { 0 };
            self.most = seen.max(self.most - self.most.div_ceil(FORGET_PART));
            if self.most == 0 {
                break;
            }
        }
        self.taken = 0;
        self.span_began = now;
    }
}

/// `old`, moved towards `new`; by at least one, so that it arrives.
fn mean(old: u64, new: u64) -> u64 {
    let step = old.abs_diff(new).div_ceil(MEAN_PART);
    if new > old { old + step } else { old - step }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ADAPTIVE: ReserveConfig = ReserveConfig::Adaptive { frames_min: 2, frames_max: 1000 };

    /// One frame every `gap_us` for `frames` frames, with swap-outs of `latency_us`.
    fn steady(reserve: &mut Reserve, now: &mut Instant, gap_us: u64, latency_us: u64, frames: u64) {
        for _ in 0..frames {
            *now = *now + Duration::from_micros(gap_us);
            reserve.handle_taken(*now, 1);
            reserve.handle_swapped_out(Duration::from_micros(latency_us));
        }
    }

    #[test]
    fn fixed_is_fixed() {
        for frames in [2, 4, 12] {
            let mut reserve = Reserve::new(ReserveConfig::Fixed { frames });
            steady(&mut reserve, &mut Instant(0), 1, 10_000, 1000);
            reserve.handle_no_frame(Instant(0));
            assert_eq!(reserve.frames(), frames);
        }
    }

    #[test]
    fn a_faster_disk_needs_fewer_frames() {
        let (mut slow, mut fast) = (Reserve::new(ADAPTIVE), Reserve::new(ADAPTIVE));
        steady(&mut slow, &mut Instant(0), 100, 10_000, 2000);
        steady(&mut fast, &mut Instant(0), 100, 500, 2000);
        // 100 and 5 frames are taken in one latency.
        assert!((95..=130).contains(&slow.frames()), "{}", slow.frames());
        assert!((4..=8).contains(&fast.frames()), "{}", fast.frames());
    }

    #[test]
    fn a_burst_is_remembered_and_then_forgotten() {
        let (mut reserve, mut now) = (Reserve::new(ADAPTIVE), Instant(0));
        steady(&mut reserve, &mut now, 10_000, 1000, 50);
        assert_eq!(reserve.frames(), 2);
        steady(&mut reserve, &mut now, 1, 1000, 300);
        assert!(reserve.frames() >= 250, "{}", reserve.frames());
        // The next burst comes while it is remembered.
        steady(&mut reserve, &mut now, 1_100, 1000, 10);
        assert!(reserve.frames() >= 100, "{}", reserve.frames());
        steady(&mut reserve, &mut now, 10_000, 1000, 50);
        assert_eq!(reserve.frames(), 2);
    }

    #[test]
    fn a_fault_without_a_frame_makes_it_grow() {
        let mut reserve = Reserve::new(ADAPTIVE);
        let mut before = reserve.frames();
        for _ in 0..30 {
            reserve.handle_no_frame(Instant(0));
            assert!(reserve.frames() > before || reserve.frames() == 1000);
            before = reserve.frames();
        }
        assert_eq!(before, 1000);
    }

    proptest! {
        /// Whatever comes, it stays between its bounds, and a long rest brings it down to the least.
        #[test]
        fn stays_between_its_bounds(
            steps in prop::collection::vec((0..4_u8, 0..u64::MAX / 4, 0..10_000_000_u64), 1..100),
            frames_min in 1..10_u64,
            more in 0..100_u64,
        ) {
            let config = ReserveConfig::Adaptive { frames_min, frames_max: frames_min + more };
            let (mut reserve, mut now) = (Reserve::new(config), Instant(0));
            for (kind, value, gap) in steps {
                now = now + Duration(gap);
                match kind {
                    0 => reserve.handle_taken(now, value % 1000),
                    1 => reserve.handle_swapped_out(Duration(value)),
                    2 => reserve.handle_swapped_out(Duration(value % 10_000_000)),
                    _ => reserve.handle_no_frame(now),
                }
                prop_assert!((frames_min..=frames_min + more).contains(&reserve.frames()));
            }
            for _ in 0..2000 {
                now = now + reserve.span();
                reserve.handle_taken(now, 0);
            }
            prop_assert_eq!(reserve.frames(), frames_min);
        }

        /// The reserve is what is taken in a span, if that is always the same.
        #[test]
        fn is_what_is_taken_in_a_span(gap_us in 1..2000_u64, latency_us in 50..20_000_u64) {
            let config = ReserveConfig::Adaptive { frames_min: 1, frames_max: 1_000_000 };
            let (mut reserve, mut now) = (Reserve::new(config), Instant(0));
            let spans = 40 * latency_us / gap_us + 400;
            steady(&mut reserve, &mut now, gap_us, latency_us, spans);
            let wanted = latency_us.div_ceil(gap_us);
            prop_assert!(reserve.frames() >= wanted, "{} of {wanted}", reserve.frames());
            prop_assert!(reserve.frames() <= wanted + wanted / 4 + 8, "{} of {wanted}", reserve.frames());
        }
    }
}
