//! The loop's alarm clock.
//!
//! A wait with a time limit programs a timer of the processor and takes it back again, which in a virtual machine costs more
//! than the rest of a small fault: each is a trip to the host. So the loop waits without a limit, and a timer
//! that stays set from one wait to the next wakes it when something is due.

use loam_core::units::Instant;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Alarm {
    fd: OwnedFd,
    /// When it rings next.
    set_to: Option<Instant>,
}

impl Alarm {
    pub(super) fn new() -> Result<Self, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { fd: timerfd_create(TimerfdClockId::Monotonic, flags)?, set_to: None })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Rings at `due` or before. One that rings for nothing costs less than to set it anew each time.
    pub(super) fn ring_by(&mut self, now: Instant, due: Instant) -> Result<(), Errno> {
        if self.set_to.is_some_and(|at| at <= due) {
            return Ok(());
        }
        // A timer of zero is one that is switched off.
        let ns = (due - now).0.max(1);
        let it_value = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timer = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &timer)?;
        self.set_to = Some(due.max(now));
        Ok(())
    }

    /// It has rung.
    pub(super) fn rang(&mut self) {
        let mut times = [0_u8; 8];
        if rustix::io::read(&self.fd, &mut times).is_ok() {
            self.set_to = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_core::units::Duration;
    use rustix::event::{PollFd, PollFlags, poll};

    fn rings_within(alarm: &Alarm, ms: i64) -> bool {
        let limit = Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
        poll(&mut [PollFd::new(&alarm.fd, PollFlags::IN)], Some(&limit)).unwrap() > 0
    }

    #[test]
    fn it_rings_by_the_earliest_time_asked_for_and_once() {
        let mut alarm = Alarm::new().unwrap();
        let now = Instant(1_000_000_000);
        alarm.ring_by(now, now + Duration::from_millis(60_000)).unwrap();
        assert!(!rings_within(&alarm, 1));
        alarm.ring_by(now, now + Duration::from_millis(1)).unwrap();
        alarm.ring_by(now, now + Duration::from_millis(50_000)).unwrap();
        assert!(rings_within(&alarm, 10_000), "the later time does not put the earlier one off");
        alarm.rang();
        assert!(!rings_within(&alarm, 1));
        alarm.ring_by(now, now).unwrap();
        assert!(rings_within(&alarm, 10_000), "what is due already rings at once");
    }
}
