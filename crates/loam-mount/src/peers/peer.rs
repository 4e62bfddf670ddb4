//! One other mount: its address, the connections to it, and whether it is worth asking.

use super::NodeId;
use super::link::{Card, Link};
use crate::figures::Figures;
use loam_wire::client::ClientError;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a reader waits for another mount before it reads the source.
pub(crate) const ASK_LIMIT: Duration = Duration::from_millis(100);
/// How long a mount may be silent before it is no member any more.
pub(crate) const PING_LIMIT: Duration = Duration::from_secs(1);
/// For so long a mount that failed is not asked; twice as long each further time, up to the second.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
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
    figures: Arc<Figures>,
}

impl Peer {
    pub(crate) fn new(addr: SocketAddr, card: Card, figures: Arc<Figures>) -> Self {
        Self { addr, card, node: AtomicU64::new(0), state: Mutex::default(), figures }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
