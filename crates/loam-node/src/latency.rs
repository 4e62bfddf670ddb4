//! Keeps the processor from deep sleep while requests come: waking a halted core is most of a small fault's time.

use crate::limits::LATENCY_HOLD;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::time::{Duration, Instant};

/// Holds `/dev/cpu_dma_latency` at 0 from the first request until a while after the last. Where that is not
/// permitted nothing happens: `loam doctor` tells.
#[derive(Debug)]
pub(crate) struct LatencyHold {
    allowed: bool,
    held: Option<File>,
}

impl LatencyHold {
    pub(crate) fn new(allowed: bool) -> Self {
        Self { allowed, held: None }
    }

    /// A request was served.
    pub(crate) fn active(&mut self) {
        if !self.allowed || self.held.is_some() {
            return;
        }
        let file = OpenOptions::new().write(true).open("/dev/cpu_dma_latency");
        self.held = file.and_then(|mut file| file.write_all(&0_i32.to_ne_bytes()).map(|()| file)).ok();
        self.allowed = self.held.is_some();
    }

    /// Nothing was served since `last`: how long to wait before asking again, if it is still held.
    pub(crate) fn idle(&mut self, last: Instant, now: Instant) -> Option<Duration> {
        let left = (last + LATENCY_HOLD).saturating_duration_since(now);
        if left.is_zero() {
            self.held = None;
        }
        self.held.as_ref().map(|_| left)
    }
}
