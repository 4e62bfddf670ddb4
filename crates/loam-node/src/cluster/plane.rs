//! The control plane's thread: brings inputs to membership, coordinator and table, and carries out what they want.

use super::account::Account;
use super::etcd::{EtcdMembers, Wire};
use super::figures::Table;
use super::links::{Dialer, Links, frame};
use super::membership::{MemberEffect, Membership};
use super::peer::Peer;
use super::published::Published;
use super::swim::Swim;
use super::{ClusterConfig, Counters, Packet};
use crate::error::NodeError;
use crate::event_loop::Mailbox;
use crate::shared::Shared;
use loam_core::global::{Coordinator, CoordinatorConfig, Effect};
use loam_core::ids::NodeId;
use loam_core::units::{Duration, Instant};
use loam_wire::client::ClientError;
use loam_wire::tls::Watched;
use loam_wire::{NodeFigures, cluster_class, coordination};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// How often this node looks at its own figures, and sends its table on.
const FIGURES_INTERVAL: Duration = Duration::from_millis(500);
/// To how many others.
const FIGURES_TO: usize = 2;
/// How often what borrowers see is made anew, at least, and at most.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(500);
const PUBLISH_INTERVAL_MIN: Duration = Duration::from_millis(200);
/// Messages handled before anything else has its turn.
const TURN_PACKETS_MAX: usize = 64;
/// Addresses that are asked at once who listens there.
const MEETINGS_MAX: usize = 8;
/// How long a node that ends may take to say so.
const FAREWELL: std::time::Duration = std::time::Duration::from_millis(150);

type Met = (SocketAddr, Result<NodeId, ClientError>);

/// The thread, from outside. Ends when told to.
#[derive(Debug)]
pub(crate) struct Control {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Control {
    /// Tells the other nodes, and waits for the thread.
    pub(crate) fn end(self) {
        // A thread that has gone already is found out by the join.
        let _ = self.stop.send(());
        assert!(self.thread.join().is_ok(), "the control plane broke an invariant");
    }
}

/// See the module.
pub(crate) struct Plane {
    shared: Arc<Shared>,
    mailboxes: Vec<Arc<Mailbox>>,
    packets: mpsc::Receiver<Packet>,
    membership: Box<dyn Membership + Send>,
    /// To the site's membership service.
    wire: Option<Wire>,
    members: Vec<Peer>,
    coordinator: Coordinator,
    links: Links,
    dialer: Dialer,
    table: Table,
    looks: u64,
    account: Account,
    random: SmallRng,
    meetings: BTreeSet<SocketAddr>,
    met: (mpsc::Sender<Met>, mpsc::Receiver<Met>),
    /// Seeds of which it was said already that they do not answer.
    silent: BTreeSet<SocketAddr>,
    seeds: Vec<SocketAddr>,
    look_due: Instant,
    publish_due: Instant,
    published: Instant,
}

impl Plane {
    /// Starts the thread, and `http` on it.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        mailboxes: Vec<Arc<Mailbox>>,
        config: Option<(&ClusterConfig, mpsc::Receiver<Packet>)>,
        credentials: Option<Arc<Watched>>,
        http: Option<std::net::TcpListener>,
        random: u64,
    ) -> Result<Control, NodeError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(NodeError::system("making the control plane's runtime"))?;
        let dialer = Dialer::new(&shared.front.name, credentials);
        let plane =
            config.map(|(config, packets)| Self::new(shared, mailboxes, config, packets, dialer, random));
        let shared = Arc::clone(shared);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("loam-plane".into())
            .spawn(move || {
                runtime.block_on(async {
                    if let Some(http) = http {
                        tokio::spawn(crate::http::serve(http, shared));
                    }
                    match plane {
                        Some(plane) => plane.run(stopped).await,
                        None => drop(stopped.await),
                    }
                });
            })
            .map_err(NodeError::system("starting a thread"))?;
        Ok(Control { stop, thread })
    }

    fn new(
        shared: &Arc<Shared>,
        mailboxes: Vec<Arc<Mailbox>>,
        config: &ClusterConfig,
        packets: mpsc::Receiver<Packet>,
        dialer: Dialer,
        random: u64,
    ) -> Self {
        let (front, now) = (&shared.front, shared.now());
        let me = Peer { id: front.id, renewal: 0, addr: front.addr, name: front.name.as_str().into() };
        let period = Duration(u64::try_from(config.probe_period.as_nanos()).unwrap_or(u64::MAX / 1_000_000));
        let named = config.name.is_some();
        let membership: Box<dyn Membership + Send> = match config.etcd.clone() {
            Some(site) => Box::new(EtcdMembers::new(now, me.clone(), site, period, named)),
            None => Box::new(Swim::new(now, me.clone(), &config.join, period, named, random)),
        };
        Self {
            mailboxes,
            packets,
            membership,
            wire: config.etcd.clone().map(Wire::new),
            members: vec![me],
            coordinator: Coordinator::new(now, front.id, CoordinatorConfig::default()),
            links: Links::new(dialer.clone(), Arc::clone(&front.counters)),
            dialer,
            table: Table::default(),
            looks: 0,
            account: Account::new(&shared.lender().stats()),
            random: SmallRng::seed_from_u64(random.rotate_left(32)),
            meetings: BTreeSet::new(),
            met: mpsc::channel(MEETINGS_MAX),
            silent: BTreeSet::new(),
            seeds: config.join.clone(),
            look_due: now,
            publish_due: now,
            published: now,
            shared: Arc::clone(shared),
        }
    }

    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        while self.turn(&mut stopped).await {}
        self.membership.handle_leave(self.shared.now());
        self.settle();
        tokio::time::sleep(FAREWELL).await;
    }

    /// Waits until there is something to do, and does it. False: the node ends.
    async fn turn(&mut self, stopped: &mut oneshot::Receiver<()>) -> bool {
        self.settle();
        let wait = std::time::Duration::from_nanos((self.due() - self.shared.now()).0);
        tokio::select! {
            biased;
            _ = stopped => return false,
            Some(packet) = self.packets.recv() => {
                self.take(&packet);
                for _ in 0..TURN_PACKETS_MAX {
                    let Ok(packet) = self.packets.try_recv() else { break };
                    self.take(&packet);
                }
                self.take_answers();
            }
            Some((addr, answer)) = self.met.1.recv() => self.answered(addr, answer),
            Some(told) = Wire::told(&mut self.wire) => self.membership.handle_told(self.shared.now(), told),
            () = tokio::time::sleep(wait) => {}
        }
        self.pass_time();
        true
    }

    /// Somebody who was asked has answered, or the site's service. Packets may come so quickly that there are always some.
    fn take_answers(&mut self) {
        if let Ok((addr, answer)) = self.met.1.try_recv() {
            self.answered(addr, answer);
        }
        if let Some(told) = self.wire.as_mut().and_then(Wire::told_by_now) {
            self.membership.handle_told(self.shared.now(), told);
        }
    }

    fn due(&self) -> Instant {
        let due = self.look_due.min(self.publish_due);
        [self.membership.poll_timeout(), self.coordinator.poll_timeout()]
            .into_iter()
            .flatten()
            .fold(due, Instant::min)
    }

    fn pass_time(&mut self) {
        let now = self.shared.now();
        if self.membership.poll_timeout().is_some_and(|due| due <= now) {
            self.membership.handle_timeout(now);
        }
        if self.coordinator.poll_timeout().is_some_and(|due| due <= now) {
            self.coordinator.handle_timeout(now);
        }
        if self.look_due <= now {
            self.look_due = now + FIGURES_INTERVAL;
            self.look(now);
        }
        if self.publish_due <= now {
            self.publish(now);
        }
    }

    /// Looks at this node's own figures, and sends the table to some others.
    fn look(&mut self, now: Instant) {
        self.looks += 1;
        let stats = self.shared.lender().stats();
        self.coordinator.handle_replaced(now, self.account.replaced(&stats));
        if self.account.is_inaccurate(&stats) {
            self.coordinator.handle_inaccurate(now);
        }
        self.table.set(now, self.shared.own_figures(self.looks));
        let me = self.shared.front.id;
        let others: Vec<&Peer> = self.members.iter().filter(|peer| peer.id != me).collect();
        if others.is_empty() {
            return;
        }
        let message = self.table.message();
        let first = self.random.random_range(0..others.len());
        for place in 0..FIGURES_TO.min(others.len()) {
            let to = others[(first + place) % others.len()];
            self.links.send(to.id, to.addr, frame(me, cluster_class::FIGURES, &message));
        }
    }

    /// Borrowers should hear of it soon.
    fn publish_soon(&mut self) {
        self.publish_due = self.publish_due.min(self.published + PUBLISH_INTERVAL_MIN);
    }

    fn publish(&mut self, now: Instant) {
        (self.published, self.publish_due) = (now, now + PUBLISH_INTERVAL);
        let me = self.shared.front.id;
        let fresh =
            Published::of(now, me, &self.members, &self.coordinator, &self.table, self.membership.answers());
        if self.shared.front.publish(fresh) {
            self.mailboxes.iter().for_each(|mailbox| mailbox.wake());
        }
    }

    /// A message from another node.
    fn take(&mut self, packet: &Packet) {
        let now = self.shared.now();
        let me = self.shared.front.id;
        let taken = match packet.class {
            cluster_class::GOSSIP => {
                self.membership.handle_packet(now, &packet.bytes);
                true
            }
            cluster_class::COORDINATOR if !self.lives(packet.sender) => false,
            cluster_class::COORDINATOR => match coordination::decode(&packet.bytes) {
                Ok(message) => {
                    self.coordinator.handle_message(now, packet.sender, message);
                    true
                }
                Err(error) => {
                    tracing::debug!(node = format_args!("{:016x}", packet.sender.0), %error, "refused");
                    false
                }
            },
            cluster_class::FIGURES => match NodeFigures::list(&packet.bytes) {
                Some(list) => {
                    let members = &self.members;
                    let lives = |id| members.binary_search_by_key(&id, |peer| peer.id).is_ok();
                    self.table.hear(now, list, me, lives);
                    true
                }
                None => false,
            },
            _ => false,
        };
        if !taken {
            Counters::add(&self.shared.front.counters.messages_in_refused);
        }
    }

    fn peer(&self, id: NodeId) -> Option<&Peer> {
        self.members.binary_search_by_key(&id, |peer| peer.id).ok().map(|at| &self.members[at])
    }

    fn lives(&self, id: NodeId) -> bool {
        self.peer(id).is_some()
    }

    /// Carries out what membership and coordinator want, until they want nothing.
    fn settle(&mut self) {
        let me = self.shared.front.id;
        loop {
            while let Some(effect) = self.membership.poll_effect() {
                match effect {
                    MemberEffect::Send { to, bytes } => {
                        self.links.send(to.id, to.addr, frame(me, cluster_class::GOSSIP, &bytes));
                    }
                    MemberEffect::Meet(addr) => self.meet(addr),
                    MemberEffect::Ask(ask) => {
                        let wire = self.wire.as_mut().expect("only etcd's machine asks");
                        if let Err(told) = wire.ask(ask) {
                            self.membership.handle_told(self.shared.now(), told);
                        }
                    }
                    MemberEffect::Changed => self.members_changed(),
                    MemberEffect::Warn(text) => tracing::warn!("{text}"),
                }
            }
            let Some(effect) = self.coordinator.poll_effect() else { return };
            match effect {
                Effect::Send { to, message } => {
                    let mut bytes = Vec::new();
                    let said = coordination::encode(&mut bytes, &message);
                    if let Some(peer) = self.peer(to).filter(|_| said) {
                        let addr = peer.addr;
                        self.links.send(to, addr, frame(me, cluster_class::COORDINATOR, &bytes));
                    }
                }
                Effect::Summarise => {
                    let summary = self.account.summary(&self.shared);
                    self.coordinator.handle_summary(self.shared.now(), summary);
                }
                Effect::EpochBegan => {
                    let epoch = self.coordinator.epoch();
                    let (number, min_age_ms) = (epoch.id.number, epoch.min_age.as_micros() / 1000);
                    tracing::debug!(number, min_age_ms, replacements = epoch.replacements, "epoch");
                    Counters::add(&self.shared.front.counters.epochs);
                    self.publish_soon();
                }
                Effect::PodChanged => {}
            }
        }
    }

    fn members_changed(&mut self) {
        let now = self.shared.now();
        let members = self.membership.members();
        let before = std::mem::replace(&mut self.members, members);
        let counters = &self.shared.front.counters;
        let among = |peer: &Peer, list: &[Peer]| list.iter().any(|other| other.id == peer.id);
        for peer in self.members.iter().filter(|peer| !among(peer, &before)) {
            Counters::add(&counters.members_joined);
            tracing::info!(node = format_args!("{:016x}", peer.id.0), name = %peer.name, addr = %peer.addr, "joined");
        }
        for peer in before.iter().filter(|peer| !among(peer, &self.members)) {
            Counters::add(&counters.members_lost);
            tracing::info!(node = format_args!("{:016x}", peer.id.0), name = %peer.name, addr = %peer.addr, "gone");
        }
        let lives = |id| self.members.binary_search_by_key(&id, |peer| peer.id).is_ok();
        self.table.retain(lives);
        self.links.retain(lives);
        self.coordinator.handle_members(now, self.members.iter().map(|peer| peer.id));
        self.publish_soon();
    }

    /// Asks who listens at an address, unless it is being asked.
    fn meet(&mut self, addr: SocketAddr) {
        if self.meetings.len() < MEETINGS_MAX && self.meetings.insert(addr) {
            let (met, dialer) = (self.met.0.clone(), self.dialer.clone());
            tokio::spawn(async move {
                let answer = dialer.meet(addr).await;
                // A plane that has ended does not want to know.
                let _ = met.send((addr, answer)).await;
            });
        }
    }

    fn answered(&mut self, addr: SocketAddr, answer: Result<NodeId, ClientError>) {
        self.meetings.remove(&addr);
        match answer {
            Ok(id) => {
                if self.silent.remove(&addr) {
                    tracing::warn!(%addr, "the seed answers now");
                }
                self.membership.handle_met(self.shared.now(), addr, id);
            }
            Err(error) if self.seeds.contains(&addr) && self.silent.insert(addr) => {
                tracing::warn!(%addr, "cannot join there yet, will go on trying: {error}");
            }
            Err(error) => tracing::debug!(%addr, %error, "nobody answers"),
        }
    }
}

#[cfg(test)]
#[path = "plane_tests.rs"]
mod tests;
