//! Lenders of the cluster: whom to join, when to try again, what weights the policy is told.

use super::Agent;
use super::lenders::Lender;
use crate::AgentError;
use crate::cluster::{CONNECT_TIMEOUT, Cluster, News, NoLender, Node, View};
use crate::config::Durability;
use crate::conn::Conn;
use loam_core::borrower::LenderIndex;
use loam_core::ids::SpaceId;
use loam_core::units::{Duration, Instant};
use loam_wire::tls::Watched;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time;

/// Lenders of a run at most; of more those with the largest weights.
const LENDERS_MAX: usize = 64;
/// Handshakes at a time.
const GREETINGS_MAX: usize = 8;
/// Between two tries to reach a lender: at first, and at most. Twice as long each time.
const AGAIN_MIN: Duration = Duration::from_millis(1_000);
const AGAIN_MAX: Duration = Duration::from_millis(30_000);
/// How long a run's beginning waits for the daemon's first view.
const VIEW_WITHIN: time::Duration = time::Duration::from_secs(2);
/// And for the lenders of that: whoever is slower joins a running program. (Without a disk one is waited for until it cannot come any more.)
const LENDERS_WITHIN: time::Duration = time::Duration::from_millis(500);
/// A lender that was full is believed to have room, if the view says so, this long after it said something itself: the view
/// is older than an answer may be.
const ROOM_AGAIN: Duration = Duration::from_millis(3_000);

/// When to try a lender again.
#[derive(Clone, Copy, Debug)]
struct Try {
    not_before: Instant,
    pause: Duration,
}

/// What a run knows of its cluster.
#[derive(Debug)]
pub(super) struct Membership {
    cluster: Cluster,
    view: View,
    greeting: BTreeSet<SocketAddr>,
    tries: BTreeMap<SocketAddr, Try>,
    /// Who was joined before: its pages of then are gone, and a new space keeps them apart from what is still on its way there.
    joined: BTreeSet<SocketAddr>,
    /// What the policy was told last.
    weights: Option<(u64, Vec<(LenderIndex, u32)>)>,
    believed: BTreeMap<LenderIndex, Instant>,
}

impl Membership {
    /// Listens to the daemon, and joins the lenders that its first view has.
    pub(super) fn start(
        socket: &Path,
        credentials: Option<Arc<Watched>>,
        durability: Durability,
        reserves: bool,
        space: SpaceId,
        name: &str,
    ) -> Result<(Self, Vec<Lender>, Vec<String>), AgentError> {
        let cluster = Cluster::start(socket, credentials, durability.features())
            .map_err(|error| AgentError::Setup(format!("listening to the node's daemon failed ({error})")))?;
        let mut membership = Self {
            cluster,
            view: View::default(),
            greeting: BTreeSet::new(),
            tries: BTreeMap::new(),
            joined: BTreeSet::new(),
            weights: None,
            believed: BTreeMap::new(),
        };
        let (mut lenders, mut warnings): (Vec<Lender>, Vec<String>) = (Vec::new(), Vec::new());
        let began = time::Instant::now();
        let mut deadline = began + VIEW_WITHIN;
        let mut seen = false;
        while let Some(news) = membership.cluster.next_until(deadline) {
            match news {
                News::View(view) => {
                    membership.view = view;
                    if !std::mem::replace(&mut seen, true) {
                        // Whoever joins later has reserved nothing.
                        let waits = durability.needs_lender() || reserves;
                        let patience = if waits { CONNECT_TIMEOUT } else { LENDERS_WITHIN };
                        deadline = time::Instant::now() + patience;
                    }
                    membership.join_more(Instant(0), &lenders, space, name);
                }
                News::Gone(why) => {
                    warnings
                        .push(format!("the node's daemon at {} cannot be heard: {why}", socket.display()));
                }
                News::Greeted(node, greeted) => {
                    match membership.greeted(Instant(0), node, greeted) {
                        Ok(lender) if lenders.iter().any(|other| other.is_same(&lender)) => {}
                        Ok(lender) => lenders.push(lender),
                        Err(warning) => warnings.extend(warning),
                    }
                    membership.join_more(Instant(0), &lenders, space, name);
                }
            }
            let alone = durability.needs_lender() && lenders.is_empty();
            if seen && membership.greeting.is_empty() && !alone {
                break;
            }
        }
        if lenders.is_empty() && durability.needs_lender() {
            // What was told of one of them is what has to be mended.
            if let Some(why) = warnings.into_iter().next() {
                return Err(AgentError::Setup(why));
            }
            return Err(AgentError::Setup(format!(
                "no lender of the cluster behind {} can be reached, and --durability none keeps pages nowhere else: start \
                 `loam node --lend SIZE` on another machine, or use --durability disk",
                socket.display()
            )));
        }
        Ok((membership, lenders, warnings))
    }

    pub(super) fn fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.cluster.fd()
    }

    /// For the daemon to know.
    pub(super) fn has_local_pages(&self, pages: u64) {
        self.cluster.has_local_pages(pages);
    }

    /// Begins to join those of the view that are not joined and may be tried.
    fn join_more(&mut self, now: Instant, lenders: &[Lender], space: SpaceId, name: &str) {
        let connected =
            |addr: SocketAddr| lenders.iter().any(|l| (l.conn.is_some() || l.away) && l.addr == addr);
        let mut wanted: Vec<Node> = self
            .view
            .nodes
            .iter()
            .filter(|node| node.lends && !connected(node.addr) && !self.greeting.contains(&node.addr))
            .filter(|node| self.tries.get(&node.addr).is_none_or(|again| again.not_before <= now))
            .copied()
            .collect();
        wanted.sort_by_key(|node| std::cmp::Reverse((node.weight, node.free_bytes, node.id)));
        let taken = lenders.iter().filter(|l| l.conn.is_some() || l.away).count() + self.greeting.len();
        let room = LENDERS_MAX.saturating_sub(taken).min(GREETINGS_MAX.saturating_sub(self.greeting.len()));
        for node in wanted.into_iter().take(room) {
            if !self.greeting.insert(node.addr) {
                continue; // twice in one view
            }
            let before = self.joined.contains(&node.addr);
            self.cluster.greet(node, if before { super::start::random_space() } else { space }, name);
        }
    }

    /// A handshake has ended; the lender, if it is one, or else what a person should be told, if anything.
    fn greeted(
        &mut self,
        now: Instant,
        node: Node,
        greeted: Result<Box<Conn>, NoLender>,
    ) -> Result<Lender, Option<String>> {
        self.greeting.remove(&node.addr);
        match greeted {
            Ok(conn) => {
                self.tries.remove(&node.addr);
                self.joined.insert(node.addr);
                Ok(Lender::new(node.addr, *conn))
            }
            Err(NoLender { why, denied }) => {
                let line = format!("lender {} of the cluster cannot be used: {why}", node.addr);
                tracing::info!("{line}");
                self.try_later(now, node.addr);
                Err(denied.then_some(line))
            }
        }
    }

    /// It could not be reached, or is lost.
    pub(super) fn try_later(&mut self, now: Instant, addr: SocketAddr) {
        let before = self.tries.get(&addr).map(|again| again.pause);
        let pause = before.map_or(AGAIN_MIN, |pause| Duration((pause.0 * 2).min(AGAIN_MAX.0)));
        self.tries.insert(addr, Try { not_before: now + pause, pause });
        // Who is in no view any more is not tried anyway.
        let view = &self.view;
        self.tries.retain(|&addr, again| again.not_before > now || view.nodes.iter().any(|n| n.addr == addr));
    }
}

impl Agent<'_> {
    /// Views and connections have come.
    pub(super) fn take_news(&mut self) {
        while let Some(news) = self.membership.as_ref().and_then(|membership| membership.cluster.next()) {
            let now = self.now();
            let Some(membership) = &mut self.membership else { return };
            match news {
                News::View(view) => membership.view = view,
                News::Gone(why) => {
                    membership.view = View::default();
                    self.report.warn(&format!(
                        "the node's daemon is gone ({why}): the run goes on with the lenders that it has, and looks for it"
                    ));
                }
                News::Greeted(node, greeted) => match membership.greeted(now, node, greeted) {
                    // Two nodes that are one lender, under two addresses, would be one copy.
                    Ok(lender) if self.has_lender(&lender) => {}
                    Ok(lender) => self.add_lender(lender),
                    Err(warning) => warning.iter().for_each(|line| self.report.warn(line)),
                },
            }
        }
        let now = self.now();
        self.join_more(now);
        self.tell_weights(now);
        self.believe_room(now);
        self.drain();
        self.flush();
    }

    /// Tries lenders that may be tried (again).
    pub(super) fn join_more(&mut self, now: Instant) {
        if let Some(membership) = &mut self.membership {
            membership.join_more(now, &self.lenders, self.space, &self.name);
        }
    }

    /// Tells the policy of an epoch's weights, when they are others than it knows.
    pub(super) fn tell_weights(&mut self, now: Instant) {
        let Some(membership) = &mut self.membership else { return };
        let view = &membership.view;
        if view.epoch == 0 {
            if membership.weights.take().is_some() {
                self.borrower.handle_weights_unknown(now);
            }
            return;
        }
        let weight = |addr| view.nodes.iter().find(|node| node.addr == addr).map_or(0, |node| node.weight);
        let up = self.lenders.iter().enumerate().filter(|(_, lender)| lender.conn.is_some());
        let weights = up.map(|(n, lender)| (LenderIndex(n as u8), weight(lender.addr))).collect();
        let told = Some((view.epoch, weights));
        if membership.weights != told {
            membership.weights = told;
            let (_, weights) = membership.weights.as_ref().expect("just set");
            self.borrower.handle_weights(now, weights, view.min_age);
        }
    }

    /// Lenders that were full when they last answered may have room again: others have given some back. Who is full is not asked.
    fn believe_room(&mut self, now: Instant) {
        let Some(membership) = &mut self.membership else { return };
        for (n, lender) in self.lenders.iter().enumerate().filter(|(_, lender)| lender.conn.is_some()) {
            let index = LenderIndex(n as u8);
            let known = self.borrower.lender(index);
            let node = membership.view.nodes.iter().find(|node| node.addr == lender.addr);
            let Some(node) = node.filter(|node| node.free_bytes > 0) else { continue };
            let last = membership.believed.get(&index).copied().unwrap_or(Instant(0)).max(lender.room_heard);
            if (known.refused || known.room == 0) && last + ROOM_AGAIN <= now {
                membership.believed.insert(index, now);
                self.borrower.handle_lender_room(index, Self::lender_room(node.free_bytes));
            }
        }
    }
}
