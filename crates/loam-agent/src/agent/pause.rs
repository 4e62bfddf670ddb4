//! Descriptors that epoll would report again and again while nothing can be done about them: not listened to for a moment.

use super::moves::WORD_PAUSE;
use super::token::Door;
use super::{Agent, Token};
use loam_core::borrower::SpaceKey;
use loam_core::units::{Duration, Instant};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// A process whose events need a descriptor that we do not get now: it waits in its fork meanwhile.
const FORK_PAUSE: Duration = Duration::from_millis(10);
/// Whoever connects waits in the socket's queue meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Descriptors that a process has taken when it is served: its connection, its userfaultfd, the memory that it shares with us, two files of `/proc`.
const DESCRIPTORS_EACH: u64 = 5;
/// What is opened besides, for a moment or when a lender or a disk file comes.
const DESCRIPTORS_SPARE: u64 = 16;

/// What is not listened to, and until when.
#[derive(Debug, Default)]
pub(super) struct Pauses(Vec<(Instant, Token)>);

impl Pauses {
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.iter().map(|&(due, _)| due).min()
    }

    fn begin(&mut self, due: Instant, token: Token) {
        if self.0.iter().all(|&(_, of)| of != token) {
            self.0.push((due, token));
        }
    }

    pub(super) fn has(&self, token: Token) -> bool {
        self.0.iter().any(|&(_, of)| of == token)
    }

    fn take_due(&mut self, now: Instant) -> Vec<Token> {
        self.0.extract_if(.., |&mut (due, _)| due <= now).map(|(_, token)| token).collect()
    }
}

/// The kernel had no descriptor or no memory to give: it may have in a moment.
pub(super) fn is_want(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)
}

impl Agent<'_> {
    /// The event that comes next from a process cannot be read. The kernel keeps it, and the thread that forks waits.
    pub(super) fn pause_events(&mut self, key: SpaceKey, errno: Errno) {
        self.tell_want(errno);
        self.pause(Token::Faults(key), FORK_PAUSE);
    }

    /// There are descriptors for those that are joining, and for one more. (The kernel says how many are open as the size of their folder.)
    pub(super) fn has_room(&self) -> bool {
        let limit = getrlimit(Resource::Nofile).current;
        let open = rustix::fs::stat("/proc/self/fd").map_or(0, |stat| stat.st_size as u64);
        let wanted = DESCRIPTORS_EACH * (self.peers.len() as u64 + 1) + DESCRIPTORS_SPARE;
        limit.is_none_or(|limit| open + wanted <= limit)
    }

    /// Nobody can be accepted there, for want of a descriptor or because there are too many already.
    pub(super) fn pause_accepting(&mut self, token: Token, errno: Option<Errno>) {
        if let Some(errno) = errno {
            self.tell_want(errno);
        }
        self.pause(token, ACCEPT_PAUSE);
    }

    fn tell_want(&mut self, errno: Errno) {
        self.report.warn(&format!(
            "the agent gets no more descriptors ({errno}): processes that start wait until others have ended; raise the limit of open files (ulimit -Hn)"
        ));
    }

    /// A word of a process is on its way ([`super::moves`]).
    pub(super) fn wait_for_word(&mut self, key: SpaceKey) {
        self.pause(Token::Faults(key), WORD_PAUSE);
    }

    fn pause(&mut self, token: Token, time: Duration) {
        // Left in the set, without interest: only a descriptor that is gone cannot be, and that is not listened to anyway.
        if let Some(fd) = self.descriptor(token)
            && self.listen_to(fd, token, rustix::event::epoll::EventFlags::empty()).is_ok()
        {
            let due = self.now() + time;
            self.pauses.begin(due, token);
        }
    }

    /// Listens again where it is time.
    pub(super) fn end_pauses(&mut self, now: Instant) {
        for token in self.pauses.take_due(now) {
            let Some(fd) = self.descriptor(token) else { continue };
            if let Err(errno) = self.poll_on(fd, token, false) {
                self.end(format!("epoll failed ({errno})"));
            }
            if let Token::Faults(key) = token {
                self.deal_with_events(key); // what was read before may have waited as well
            }
        }
    }

    /// What a token that can be paused stands for, if that is still there.
    fn descriptor(&self, token: Token) -> Option<BorrowedFd<'_>> {
        match token {
            Token::Listener(Door::Path) => Some(self.listener.as_fd()),
            Token::Listener(Door::AbstractName) => self.abstract_listener.as_ref().map(AsFd::as_fd),
            Token::Control => self.report.control_fd(),
            Token::Faults(key) => self.processes.get(&key).map(|process| process.uffd.as_fd()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_begins_once_and_ends_when_it_is_due() {
        let mut pauses = Pauses::default();
        pauses.begin(Instant(30), Token::Listener(Door::Path));
        pauses.begin(Instant(10), Token::Faults(SpaceKey(1)));
        pauses.begin(Instant(5), Token::Listener(Door::Path));
        assert_eq!(pauses.due(), Some(Instant(10)));
        assert!(pauses.has(Token::Listener(Door::Path)) && !pauses.has(Token::Control));
        assert_eq!(pauses.take_due(Instant(9)), []);
        assert_eq!(pauses.take_due(Instant(10)), [Token::Faults(SpaceKey(1))]);
        assert_eq!(pauses.take_due(Instant(30)), [Token::Listener(Door::Path)]);
        assert_eq!(pauses.due(), None);
    }
}
