//! A peer that takes nothing, and whose kernel says so again and again: its program is stopped (Ctrl-Z, a freezer, a debugger), and will want its
//! pages when it goes on. A machine that is gone says nothing.
//!
//! The kernel gives both up after `TCP_USER_TIMEOUT`. So it is raised, look by look, while the peer's kernel acknowledges without taking anything. Whoever
//! is never looked at is given up by the kernel, and so is who falls silent: the last word is not ours.

use crate::limits::{ASLEEP_LOOK_INTERVAL, PEER_VANISHED_TIMEOUT};
use crate::sock_diag::SendState;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
struct Patience {
    /// After this the kernel gives up whoever takes nothing.
    vanished: Duration,
    /// Between two looks, nearly.
    look: Duration,
}

#[derive(Debug)]
pub(super) struct Asleep {
    patience: Patience,
    /// When it was first seen that no more than so many bytes are acknowledged, while others wait.
    since: Option<(Instant, u64)>,
    /// Its kernel says that it is there.
    answers: bool,
    /// It has more time than others.
    raised: bool,
    looked: Option<Instant>,
}

impl Default for Asleep {
    fn default() -> Self {
        Self::new(Patience { vanished: PEER_VANISHED_TIMEOUT, look: ASLEEP_LOOK_INTERVAL })
    }
}

impl Asleep {
    fn new(patience: Patience) -> Self {
        Self { patience, since: None, answers: false, raised: false, looked: None }
    }

    /// It is time to look, and [`Self::look`] is told what there is.
    pub(super) fn looks(&mut self, now: Instant) -> bool {
        let due = self.looked.is_none_or(|looked| now >= looked + self.patience.look);
        if due {
            self.looked = Some(now);
        }
        due
    }

    /// Takes in what the kernel says; answers what `TCP_USER_TIMEOUT` is from now on, if it is not what it was.
    pub(super) fn look(&mut self, now: Instant, way: SendState) -> Option<Duration> {
        let Patience { vanished, look } = self.patience;
        if way.waiting_bytes > 0
            && let Some((since, acknowledged_bytes)) = self.since
            && acknowledged_bytes == way.acknowledged_bytes
        {
            let stopped = now.saturating_duration_since(since);
            // It has acknowledged something since, though no more of it. (It is asked again before its time is over, which is more than `vanished` away.)
            self.answers = way.silent < stopped && way.silent < vanished * 2;
            self.raised |= self.answers;
            // The kernel counts from before the first look, and the next one may be late.
            return self.answers.then_some(stopped + look * 4 + vanished);
        }
        self.since = (way.waiting_bytes > 0).then_some((now, way.acknowledged_bytes));
        self.answers = false;
        std::mem::take(&mut self.raised).then_some(vanished)
    }

    /// It takes nothing, but is there.
    pub(super) fn answers(&self) -> bool {
        self.answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sock_diag::SockDiag;
    use crate::sock_diag::tests::{fill, pair};
    use std::io::{Read, Write};

    const SECOND: Duration = Duration::from_secs(1);

    fn asleep() -> (Asleep, Instant) {
        (Asleep::new(Patience { vanished: 30 * SECOND, look: 3 * SECOND }), Instant::now())
    }

    fn way(waiting_bytes: u32, acknowledged_bytes: u64, silent_s: u32) -> SendState {
        SendState { waiting_bytes, acknowledged_bytes, silent: silent_s * SECOND }
    }

    #[test]
    fn one_that_is_stopped_has_ever_more_time_and_the_usual_when_it_goes_on() {
        let (mut asleep, start) = asleep();
        assert_eq!(asleep.look(start, way(100, 5, 0)), None);
        for s in 1..1000 {
            let given = asleep.look(start + s * SECOND, way(100, 5, s % 31)).map(|given| given.as_secs());
            let answers = s % 31 < s;
            assert_eq!(given, answers.then_some(u64::from(s) + 42), "second {s}");
            assert_eq!(asleep.answers(), answers);
        }
        assert_eq!(
            asleep.look(start + 1000 * SECOND, way(100, 6, 0)),
            Some(30 * SECOND),
            "it took something"
        );
        assert_eq!(asleep.look(start + 1001 * SECOND, way(100, 7, 0)), None, "and more");
        assert_eq!(
            asleep.look(start + 1002 * SECOND, way(100, 7, 0)),
            Some(43 * SECOND),
            "it is stopped again"
        );
        assert_eq!(asleep.look(start + 1003 * SECOND, way(0, 107, 0)), Some(30 * SECOND), "it took all");
        assert!(!asleep.answers());
    }

    #[test]
    fn a_machine_that_is_gone_has_no_more_time_than_it_had() {
        let (mut gone, start) = asleep();
        for s in 0..100 {
            // The last acknowledgement was there before, or just when it was first seen.
            assert_eq!(gone.look(start + s * SECOND, way(100, 5, s)), None, "second {s}");
        }
        // Another is gone while it is stopped.
        let (mut stopped, start) = asleep();
        let mut given = Vec::new();
        for s in 0..200_u32 {
            given.extend(stopped.look(start + s * SECOND, way(100, 5, s.saturating_sub(50))));
        }
        assert!(given.last().unwrap().as_secs() <= 50 + 60 + 42, "{given:?}");
        assert!(!stopped.answers());
        let after = stopped.look(start + 200 * SECOND, way(100, 6, 0));
        assert_eq!(after, Some(30 * SECOND), "it was its network");
    }

    /// Against the kernel's own clock.
    #[test]
    fn the_kernel_keeps_a_peer_that_is_stopped_and_then_all_of_it_comes() {
        let patience = Patience { vanished: 3 * SECOND, look: SECOND / 5 };
        let (mut asleep, mut asker) = (Asleep::new(patience), SockDiag::new().unwrap());
        let (mut kept, mut peer) = pair("127.0.0.1:0", "127.0.0.1");
        let (mut alone, _its_peer) = pair("127.0.0.1:0", "127.0.0.1");
        let set = |socket: &std::net::TcpStream, time: Duration| {
            let ms = u32::try_from(time.as_millis()).unwrap();
            rustix::net::sockopt::set_tcp_user_timeout(socket, ms).unwrap();
        };
        set(&kept, patience.vanished);
        set(&alone, patience.vanished);
        let sent = fill(&mut kept);
        fill(&mut alone);
        let start = Instant::now();
        while start.elapsed() < 10 * SECOND {
            std::thread::sleep(patience.look / 2);
            let now = Instant::now();
            if asleep.looks(now) {
                let given = asleep.look(now, asker.ask(&kept).unwrap());
                if let Some(time) = given {
                    set(&kept, time);
                }
            }
        }
        assert!(asleep.answers());
        let ended = alone.write(&[1; 65536]).expect_err("the kernel gives it up by itself");
        assert_eq!(ended.kind(), std::io::ErrorKind::TimedOut);
        let mut taken = vec![0; sent];
        peer.read_exact(&mut taken).unwrap();
        assert!(taken.iter().all(|byte| *byte == 1));
    }
}
