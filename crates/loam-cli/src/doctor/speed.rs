//! What makes a fault quick: cores that do not fall asleep between two of them.

use super::Check;
use crate::machine;

/// Halt polling from which a wake-up within a remote fault's time finds the core awake.
const HALT_POLL_NS_GOOD: u64 = 200_000;

/// A file whose being held open at 0 keeps the cores out of deep sleep.
pub(crate) const DMA_LATENCY: &str = "/dev/cpu_dma_latency";

pub(crate) fn checks() -> Vec<Check> {
    let mut checks = vec![dma_latency()];
    if let Some(poll_ns) = machine::setting("/sys/module/haltpoll/parameters/guest_halt_poll_ns") {
        checks.push(halt_poll(poll_ns.parse().unwrap_or(0)));
    }
    checks
}

fn dma_latency() -> Check {
    let name = "core wake-up";
    match rustix::fs::access(DMA_LATENCY, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Check::ok(name, format!("{DMA_LATENCY} may be held while faults are in flight")),
        Err(error) => Check::warn(
            name,
            format!("{DMA_LATENCY}: {error}"),
            "waking a sleeping core is most of a small fault (measured: 81 us with it, 27 us without).\n\
             Let the group hold it, as root: chgrp loam /dev/cpu_dma_latency && chmod 660 /dev/cpu_dma_latency",
        ),
    }
}

fn halt_poll(poll_ns: u64) -> Check {
    let found = format!("guest_halt_poll_ns = {poll_ns}");
    if poll_ns >= HALT_POLL_NS_GOOD {
        Check::ok("halt polling", found)
    } else {
        let held = rustix::fs::access(DMA_LATENCY, rustix::fs::Access::WRITE_OK).is_ok();
        if held {
            Check::ok(
                "halt polling",
                format!("{found}; {DMA_LATENCY} does the same while faults are in flight"),
            )
        } else {
            Check::warn(
                "halt polling",
                found,
                format!(
                    "in a virtual machine, as root: echo {HALT_POLL_NS_GOOD} > /sys/module/haltpoll/parameters/guest_halt_poll_ns"
                ),
            )
        }
    }
}
