//! One other mount: its address, the connections to it, and whether it is worth asking.

use super::NodeId;
use super::link::{Card, Link};
use crate::figures::Figures;
use loam_wire::client::ClientError;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a reader waits for another mount before it reads the source.
pub(crate) const ASK_LIMIT: Duration = Duration::from_millis(100);
/// How long a mount may be silent before it is no member any more.
pub(crate) const PING_LIMIT: Duration = Duration::from_secs(1);
/// For so long a mount that failed is not asked; twice as long each further time, up to the second.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Runs of so many readers come from one mount at a time. The kernel asks for more ahead, so the network never waits for them; all of them at once would push each
/// other out of the processor's cache between the socket and the reader (measured over 10 Gbit/s: 0.97 to 1.00 GB/s with two to four, 0.93 with no limit).
const TRANSFERS_MAX: usize = 3;
/// Connections that are kept open while nobody uses them.
const IDLE_LINKS_MAX: usize = 16;

#[derive(Debug, Default)]
struct State {
    idle: Vec<Link>,
    /// Not to be asked before then.
    down_until: Option<Instant>,
    pause: Duration,
    /// The same failure is told once.
    told: Option<String>,
}

/// Another mount.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) addr: SocketAddr,
    card: Card,
    /// Its node, 0 while it is not known or does not answer.
    node: AtomicU64,
    state: Mutex<State>,
    /// Transfers that are under way.
    transfers: Mutex<usize>,
    transfer_over: Condvar,
    figures: Arc<Figures>,
}

/// One of the transfers that may be under way, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Transfer<'a>(&'a Peer);

impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        *self.0.transfers() -= 1;
        self.0.transfer_over.notify_one();
    }
}

impl Peer {
    pub(crate) fn new(addr: SocketAddr, card: Card, figures: Arc<Figures>) -> Self {
        Self {
            addr,
            card,
            node: AtomicU64::new(0),
            state: Mutex::default(),
            transfers: Mutex::default(),
            transfer_over: Condvar::new(),
            figures,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn transfers(&self) -> MutexGuard<'_, usize> {
        self.transfers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for its turn to get much from it.
    pub(crate) fn transfer(&self) -> Transfer<'_> {
        let mut under_way = self.transfers();
        while *under_way >= TRANSFERS_MAX {
            under_way = self.transfer_over.wait(under_way).unwrap_or_else(PoisonError::into_inner);
        }
        *under_way += 1;
        Transfer(self)
    }

    /// Who it is, if it answers.
    pub(crate) fn node(&self) -> Option<NodeId> {
        Some(NodeId(self.node.load(Ordering::Relaxed))).filter(|node| node.0 != 0)
    }

    /// Uses a connection. `None`: it failed, now or a short time ago.
    pub(crate) fn ask<T>(&self, work: impl FnMut(&mut Link) -> Result<T, ClientError>) -> Option<T> {
        if self.state().down_until.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        match self.try_ask(work) {
            Ok(answer) => {
                self.state().pause = PAUSE_MIN;
                Some(answer)
            }
            Err(error) => {
                self.failed(&error);
                None
            }
        }
    }

    fn try_ask<T>(
        &self,
        mut work: impl FnMut(&mut Link) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let idle = self.state().idle.pop();
        if let Some(mut link) = idle {
            match work(&mut link) {
                Ok(answer) => {
                    self.keep(link);
                    return Ok(answer);
                }
                // It may have been closed while nobody used it, by a mount that has started again since.
                Err(ClientError::Io(error)) if !is_slow(&error) => self.state().idle.clear(),
                Err(error) => return Err(error),
            }
        }
        let mut link = Link::open(self.addr, &self.card, ASK_LIMIT)?;
        let answer = work(&mut link)?;
        self.keep(link);
        Ok(answer)
    }

    fn keep(&self, link: Link) {
        let mut state = self.state();
        if state.idle.len() < IDLE_LINKS_MAX {
            state.idle.push(link);
        }
    }

    fn failed(&self, error: &ClientError) {
        self.figures.peer_failures.add(1);
        if matches!(error, ClientError::BadPage) {
            self.figures.pages_refused.add(1);
        }
        let mut state = self.state();
        // Answers of what was asked in vain may still come on them.
        state.idle.clear();
        state.pause = (2 * state.pause).clamp(PAUSE_MIN, PAUSE_MAX);
        state.down_until = Some(Instant::now() + state.pause);
        self.tell(&mut state, error);
    }

    fn tell(&self, state: &mut State, error: &ClientError) {
        let text = match error {
            ClientError::Connect { why, .. } => format!("it cannot be reached ({why})"),
            ClientError::Io(why) => format!("it was lost ({why})"),
            ClientError::Refused { text, .. } => format!("it refused: {text}"),
            other => other.to_string(),
        };
        if state.told.as_ref() != Some(&text) {
            tracing::warn!("the mount at {} is of no use now: {text}", self.addr);
            state.told = Some(text);
        }
    }

    /// Looks whether it is there and who it is, on a connection of its own.
    pub(crate) fn look(&self, link: &mut Option<Link>) -> Option<NodeId> {
        let alive = match link.take() {
            Some(mut known) => known.ping().map(|()| known),
            None => Link::open(self.addr, &self.card, PING_LIMIT),
        };
        match alive {
            // An address of our own.
            Ok(link) if link.node == self.card.node => self.node.store(0, Ordering::Relaxed),
            Ok(alive) => {
                let before = self.node.swap(alive.node.0, Ordering::Relaxed);
                let mut state = self.state();
                state.told = None;
                if before != alive.node.0 {
                    // It is there again: no reason to wait any longer.
                    state.down_until = None;
                }
                drop(state);
                *link = Some(alive);
            }
            Err(error) => {
                self.node.store(0, Ordering::Relaxed);
                let mut state = self.state();
                state.idle.clear();
                self.tell(&mut state, &error);
            }
        }
        self.node()
    }
}

fn is_slow(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    #[test]
    fn only_so_many_transfers_are_under_way_and_all_get_their_turn() {
        let addr = SocketAddr::from(([127, 0, 0, 1], 1));
        let card = Card { node: NodeId(1), group: 1, name: "x".into(), port: 0, credentials: None };
        let peer = Peer::new(addr, card, Arc::default());
        let (now, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 * TRANSFERS_MAX {
                scope.spawn(|| {
                    let turn = peer.transfer();
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(5));
                    now.fetch_sub(1, Ordering::SeqCst);
                    drop(turn);
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(done.into_inner(), 4 * TRANSFERS_MAX);
        assert!((1..=TRANSFERS_MAX).contains(&most.into_inner()));
        assert_eq!(*peer.transfers(), 0);
    }
}
