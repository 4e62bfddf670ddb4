//! Lenders that are gone and may come back: what they had written to their disks is still there (nwcache-1999: the disk has a page as soon as it is
//! acknowledged).
//!
//! Connecting waits, so a thread of its own does it for each; the loop takes in what it brings. Meanwhile whoever needs such a page waits.

use super::Agent;
use crate::config::Durability;
use crate::conn::Conn;
use loam_core::borrower::LenderIndex;
use loam_core::ids::SpaceId;
use loam_core::units::{self, BasePages};
use loam_wire::client::Target;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// A lender that has not come back by then is lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(200);
/// One that has broken off so often is given up: each time all of its pages are looked at.
const RETURNS_MAX: u32 = 16;
/// One that was there for so long since it came back is as good as one that never broke off.
const RETURNS_FORGOTTEN: units::Duration = units::Duration::from_millis(600_000);
/// How long one try may take: its machine may be there, and the lender not yet.
const TRY: Duration = Duration::from_secs(2);
const STACK_BYTES: usize = 256 * 1024;

/// How often a lender has come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Returns {
    times: u32,
    last: units::Instant,
}

impl Returns {
    /// It is back.
    fn add(&mut self, now: units::Instant) {
        self.times += 1;
        self.last = now;
    }

    /// It has broken off: whether it may come back once more. In a long run a lender breaks off now and then, and that alone says nothing against it.
    fn may_be_more(&mut self, now: units::Instant) -> bool {
        if now - self.last >= RETURNS_FORGOTTEN {
            self.times = 0;
        }
        self.times < RETURNS_MAX
    }
}

/// What a thread brings: a connection, or nothing in time.
type Returned = (LenderIndex, Option<Box<Conn>>);

/// See the module's documentation. Its threads end soon after it is dropped.
pub(super) struct Away {
    news: Receiver<Returned>,
    bring: Sender<Returned>,
    bell: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    /// Tries so far, to come back to any lender: each says a greater number than those before, so that what is still on its way of these counts no
    /// more.
    tries: Arc<AtomicU32>,
}

impl Away {
    pub(super) fn new() -> Result<Self, rustix::io::Errno> {
        let (bring, news) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Self { news, bring, bell, stop: Arc::default(), tries: Arc::default() })
    }

    /// Readable when something has been brought.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Tries to connect again, until it succeeds or patience ends.
    fn look_for(&self, lender: LenderIndex, target: Target, features: u64, space: SpaceId, name: &str) {
        let (name, bring, bell, stop) =
            (name.to_owned(), self.bring.clone(), Arc::clone(&self.bell), Arc::clone(&self.stop));
        let tries = Arc::clone(&self.tries);
        let look = move || {
            loam_disk::block_all_signals();
            let until = Instant::now() + PATIENCE;
            let mut found = None;
            while found.is_none() && Instant::now() < until && !stop.load(Relaxed) {
                std::thread::sleep(AGAIN);
                let returns = tries.fetch_add(1, Relaxed) + 1;
                found = Conn::connect(&target, features, space, returns, &name, TRY).ok();
            }
            // Nobody takes it any more at the end of a run.
            if bring.send((lender, found.map(Box::new))).is_ok() {
                let _ = rustix::io::write(&bell, &1_u64.to_ne_bytes());
            }
        };
        let thread = std::thread::Builder::new().name("loam-away".into()).stack_size(STACK_BYTES);
        if thread.spawn(look).is_err() && self.bring.send((lender, None)).is_ok() {
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    fn next(&self) -> Option<Returned> {
        let mut rung = [0_u8; 8];
        let _ = rustix::io::read(&self.bell, &mut rung);
        self.news.try_recv().ok()
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

impl Agent<'_> {
    /// If a lender that does not answer has pages on its disk, it is waited for. False: there is nothing to wait for.
    pub(super) fn await_lender(&mut self, lender: LenderIndex, why: &str) -> bool {
        let drains = self.lenders[usize::from(lender.0)].site.drains;
        if self.config.durability != Durability::Staged || !drains {
            return false;
        }
        let now = self.now();
        if !self.lenders[usize::from(lender.0)].returns.may_be_more(now) {
            return false;
        }
        let Some(conn) = self.disconnect(lender, why) else { return true };
        let (target, space) = (conn.target.clone(), conn.space);
        drop(conn);
        let lost = self.borrower.handle_lender_away(now, lender);
        let kept = self.borrower.held_by(lender);
        if lost > BasePages(0) || kept == BasePages(0) {
            self.give_up_lender(lender, why);
            if lost > BasePages(0) {
                self.end_for_lost(lender, why, lost);
            }
            return true;
        }
        let addr = self.lenders[usize::from(lender.0)].addr;
        self.lenders[usize::from(lender.0)].away = true;
        self.report.warn(&format!(
            "lender {addr} is gone ({why}); {} of the program are on its disk: it has {} s to come back",
            kept.bytes(),
            PATIENCE.as_secs()
        ));
        self.away.look_for(lender, target, self.config.durability.features(), space, &self.name);
        self.tell_weights(now);
        self.drain();
        true
    }

    /// Lenders have come back, or have not.
    pub(super) fn take_returned(&mut self) {
        while let Some((lender, conn)) = self.away.next() {
            let entry = &mut self.lenders[usize::from(lender.0)];
            assert!(std::mem::take(&mut entry.away), "only who is away is looked for");
            let (addr, why) = (entry.addr, entry.why_lost.clone());
            let Some(conn) = conn else {
                self.give_up_lender(lender, &format!("{why}, and it did not come back"));
                continue;
            };
            // It was joined over another of its addresses meanwhile: two copies there would be one.
            while let Some(n) = self.lenders.iter().position(|other| other.is(&conn)) {
                self.lose_lender(LenderIndex(n as u8), &format!("it is lender {addr}, which is back"));
            }
            let room = Self::lender_room(conn.free_bytes);
            self.lenders[usize::from(lender.0)].why_lost.clear();
            let now = self.now();
            self.lenders[usize::from(lender.0)].returns.add(now);
            if let Err(errno) = self.poll_on(conn.stream.as_fd(), super::Token::Lender(lender.0), false) {
                self.end(format!("epoll: {errno}"));
            }
            self.lenders[usize::from(lender.0)].conn = Some(*conn);
            self.report.warn(&format!("lender {addr} is back"));
            self.borrower.handle_lender_back(now, lender, room);
            self.reserve_again(lender);
            self.tell_weights(now);
            self.drain();
            self.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_breaks_off_again_and_again_is_given_up_and_who_does_so_now_and_then_is_not() {
        let mut now = units::Instant(0);
        let mut returns = Returns::default();
        for _ in 0..10 * RETURNS_MAX {
            assert!(returns.may_be_more(now));
            returns.add(now);
            now = now + RETURNS_FORGOTTEN;
        }
        for left in (0..RETURNS_MAX).rev() {
            assert!(returns.may_be_more(now), "{left} more");
            returns.add(now);
            now = now + units::Duration(RETURNS_FORGOTTEN.0 / 2);
        }
        assert!(!returns.may_be_more(now));
    }
}
