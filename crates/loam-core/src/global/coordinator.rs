//! The turn of epochs, and who owns which directory: the part of each node that speaks of the whole cluster (gms-1995, sections 3.2 and 4.4).
//!
//! ```text
//!            initiator            every node
//! T is over, M replaced, or inaccurate
//!            EpochRequest ──────► Summarise: the driver looks at its pages
//!            ◄──────────────────  Summary
//!  all are here, or the wait is over
//!            EpochBegins ───────► weights, MinAge, next initiator
//! ```
//!
//! Every message is a hint. One that is lost, doubled, late or from another partition costs time or disk reads, never more: epochs and PODs
//! are ordered, and of two the higher one counts. Who begins the next epoch is in the epoch; if that node does not, the master does (the
//! living node with the lowest id), and everybody can become the master.
//!
//! The driver calls `handle_*` with the time, and then drains `poll_effect`; `poll_timeout` says when to call `handle_timeout`.

use super::ages::AgeSummary;
use super::epoch::{Epoch, EpochId};
use super::message::{CoordinatorConfig, Effect, EndReason, Message};
use super::pod::Pod;
use crate::ids::NodeId;
use crate::units::Instant;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

#[derive(Debug)]
struct Gathering {
    id: EpochId,
    summaries: BTreeMap<NodeId, AgeSummary>,
    until: Instant,
}

/// See the module.
#[derive(Debug)]
pub struct Coordinator {
    me: NodeId,
    config: CoordinatorConfig,
    members: BTreeSet<NodeId>,
    pod: Arc<Pod>,
    epoch: Arc<Epoch>,
    began: Instant,
    /// The highest epoch heard of, begun or not.
    heard: EpochId,
    gathering: Option<Gathering>,
    /// Whose request the driver is summarising for.
    summarising: Option<EpochId>,
    /// Pages that this node took in place of its own since the epoch began.
    replaced: u64,
    /// It was said already that this epoch should end.
    end_said: bool,
    /// The master was told of another master's POD since the epoch began or the living changed.
    pod_told: bool,
    /// The epoch should end before its time.
    end_early: bool,
    effects: VecDeque<Effect>,
}

impl Coordinator {
    /// The coordinator of `me`, who is alone so far.
    ///
    /// # Panics
    /// If `me` is nobody.
    pub fn new(now: Instant, me: NodeId, config: CoordinatorConfig) -> Self {
        assert!(me.0 != 0, "there is no node 0");
        let mut coordinator = Self {
            me,
            config,
            members: BTreeSet::from([me]),
            pod: Arc::default(),
            epoch: Arc::default(),
            began: now,
            heard: EpochId::default(),
            gathering: None,
            summarising: None,
            replaced: 0,
            end_said: false,
            pod_told: false,
            end_early: false,
            effects: VecDeque::new(),
        };
        coordinator.renew_pod();
        coordinator
    }

    /// The living nodes have changed; this one is among them whether it is named or not.
    pub fn handle_members(&mut self, now: Instant, members: impl IntoIterator<Item = NodeId>) {
        let mut members: BTreeSet<NodeId> = members.into_iter().filter(|node| node.0 != 0).collect();
        members.insert(self.me);
        if members == self.members {
            return;
        }
        let joined: Vec<NodeId> = members.difference(&self.members).copied().collect();
        let master_before = self.master();
        self.members = members;
        self.pod_told = false;
        if let Some(gathering) = &mut self.gathering {
            gathering.summaries.retain(|node, _| self.members.contains(node));
            let id = gathering.id;
            let ask = |to| Effect::Send { to, message: Message::EpochRequest { id } };
            self.effects.extend(joined.iter().copied().map(ask));
        }
        self.renew_pod();
        if self.master() != master_before && !self.is_master() {
            // Of two PODs the higher one counts, and this node's may be the higher one: it was master itself, or of another partition.
            let message = Message::PodRequest { version: self.pod.version() };
            self.effects.push_back(Effect::Send { to: self.master(), message });
        }
        if self.epoch.id.initiator == self.me {
            // Who was not known when this node began the epoch has not heard of it, and the master may be among them.
            let tell = |&to| Effect::Send { to, message: Message::EpochBegins(self.epoch.clone()) };
            self.effects.extend(joined.iter().map(tell));
        }
        if !joined.is_empty() && self.is_master() {
            // Who is new has no epoch yet, and its memory is of use at once.
            self.begin(now);
        }
        self.finish_if_gathered(now);
    }

    /// A node says something.
    pub fn handle_message(&mut self, now: Instant, from: NodeId, message: Message) {
        match message {
            Message::EpochRequest { id } => {
                if id > self.heard && id.initiator == from {
                    self.heard = id;
                    self.summarising = Some(id);
                    self.effects.push_back(Effect::Summarise);
                } else if id.number <= self.epoch.id.number && id != self.epoch.id {
                    // It was away or is new: with this it begins its next one above all others.
                    let message = Message::EpochBegins(self.epoch.clone());
                    self.effects.push_back(Effect::Send { to: from, message });
                }
            }
            Message::Summary { id, summary } => {
                let expected = self.gathering.as_ref().is_some_and(|gathering| gathering.id == id);
                if expected && self.members.contains(&from) {
                    self.gathering.as_mut().expect("it was just seen").summaries.insert(from, *summary);
                    self.finish_if_gathered(now);
                }
            }
            Message::EpochBegins(epoch) => self.adopt(now, epoch),
            Message::EpochEnds { id, .. } => {
                if id == self.epoch.id && self.is_initiator() {
                    self.begin_soon(now);
                }
            }
            Message::Pod(pod) => self.adopt_pod(pod),
            Message::PodRequest { version } => {
                if version < self.pod.version() {
                    let message = Message::Pod(self.pod.clone());
                    self.effects.push_back(Effect::Send { to: from, message });
                } else if version > self.pod.version() {
                    // Another master's, from before a partition healed.
                    let message = Message::PodRequest { version: self.pod.version() };
                    self.effects.push_back(Effect::Send { to: from, message });
                }
            }
        }
    }

    /// The answer to [`Effect::Summarise`].
    pub fn handle_summary(&mut self, now: Instant, summary: AgeSummary) {
        let Some(id) = self.summarising.take() else { return };
        if id.initiator != self.me {
            self.effects.push_back(Effect::Send {
                to: id.initiator,
                message: Message::Summary { id, summary: Box::new(summary) },
            });
        } else if let Some(gathering) = self.gathering.as_mut().filter(|gathering| gathering.id == id) {
            gathering.summaries.insert(self.me, summary);
            self.finish_if_gathered(now);
        }
    }

    /// This node has taken `pages` from others in place of its own oldest. With as many as its weight it ends the epoch: statistically all
    /// M are replaced then (section 3.2; the paper lets the node with the largest weight declare it, which is the next initiator).
    pub fn handle_replaced(&mut self, now: Instant, pages: u64) {
        self.replaced += pages;
        let weight = u64::from(self.epoch.weight(self.me));
        if weight > 0 && self.replaced >= weight && self.is_initiator() {
            self.end(now, EndReason::Replaced);
        }
    }

    /// This node's ages are no longer what it said: its old pages were taken into use, or a page came that is older than all it has.
    pub fn handle_inaccurate(&mut self, now: Instant) {
        self.end(now, EndReason::Inaccurate);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.gathering.as_ref().is_some_and(|gathering| now >= gathering.until) {
            self.finish(now);
        }
        if self.gathering.is_none() && self.due().is_some_and(|due| now >= due) {
            self.begin(now);
        }
    }

    /// When [`Self::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.gathering {
            Some(gathering) => Some(gathering.until),
            None => self.due(),
        }
    }

    /// What to do next.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The epoch that this node knows of. Number 0: none has begun yet.
    pub fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// Since when.
    pub fn epoch_began(&self) -> Instant {
        self.began
    }

    /// The page-ownership directory.
    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    /// The same, to keep.
    pub fn pod_shared(&self) -> Arc<Pod> {
        self.pod.clone()
    }

    /// Is this node alive, as far as is known?
    pub fn is_member(&self, node: NodeId) -> bool {
        self.members.contains(&node)
    }

    /// The living nodes, ascending.
    pub fn members(&self) -> impl ExactSizeIterator<Item = NodeId> + '_ {
        self.members.iter().copied()
    }

    /// Who distributes PODs: the living node with the lowest id.
    pub fn master(&self) -> NodeId {
        *self.members.first().expect("this node is a member")
    }

    /// Is it this one?
    pub fn is_master(&self) -> bool {
        self.master() == self.me
    }

    /// Who begins the next epoch: the one that the last epoch names; the master if that one is gone.
    pub fn initiator(&self) -> NodeId {
        let named = self.epoch.next_initiator;
        if self.members.contains(&named) { named } else { self.master() }
    }

    /// Is it this one?
    pub fn is_initiator(&self) -> bool {
        self.initiator() == self.me
    }

    /// When this node would begin an epoch: the initiator at the epoch's end, the master a while later. All others never do.
    fn due(&self) -> Option<Instant> {
        let shortest = self.config.limits.duration_min.min(self.epoch.duration);
        let end = self.began + if self.end_early { shortest } else { self.epoch.duration };
        if self.is_initiator() {
            Some(end)
        } else if self.is_master() {
            Some(end + self.config.patience)
        } else {
            None
        }
    }

    fn end(&mut self, now: Instant, why: EndReason) {
        if core::mem::replace(&mut self.end_said, true) || self.epoch.id.number == 0 {
            return;
        }
        if self.is_initiator() {
            self.begin_soon(now);
        } else {
            let message = Message::EpochEnds { id: self.epoch.id, why };
            self.effects.push_back(Effect::Send { to: self.initiator(), message });
        }
    }

    /// Begins the next epoch, but not before this one has lasted for the shortest time: summaries cost every node something.
    fn begin_soon(&mut self, now: Instant) {
        self.end_early = true;
        if self.due().is_some_and(|due| now >= due) {
            self.begin(now);
        }
    }

    /// Asks everybody for a summary.
    fn begin(&mut self, now: Instant) {
        if self.gathering.is_some() {
            return;
        }
        let id = EpochId { number: self.heard.number.max(self.epoch.id.number) + 1, initiator: self.me };
        assert!(id > self.epoch.id && id > self.heard, "epochs only grow");
        self.heard = id;
        self.gathering = Some(Gathering { id, summaries: BTreeMap::new(), until: now + self.config.gather });
        self.send_all(|| Message::EpochRequest { id });
        self.summarising = Some(id);
        self.effects.push_back(Effect::Summarise);
    }

    fn finish_if_gathered(&mut self, now: Instant) {
        let all =
            self.gathering.as_ref().is_some_and(|gathering| gathering.summaries.len() == self.members.len());
        if all {
            self.finish(now);
        }
    }

    /// Chooses the epoch from the summaries that came, and tells everybody.
    fn finish(&mut self, now: Instant) {
        let Some(gathering) = self.gathering.take() else { return };
        if gathering.id <= self.epoch.id || gathering.summaries.is_empty() {
            // A higher one has begun meanwhile, or not even this node's own driver answered: the timeout comes again.
            self.began = now;
            return;
        }
        let over = now - self.began;
        let epoch = Arc::new(self.config.limits.next(gathering.id, &self.epoch, over, &gathering.summaries));
        self.send_all(|| Message::EpochBegins(epoch.clone()));
        self.adopt(now, epoch);
    }

    fn adopt(&mut self, now: Instant, epoch: Arc<Epoch>) {
        if epoch.id <= self.epoch.id {
            return;
        }
        self.heard = self.heard.max(epoch.id);
        // Whoever this node gathered for may not have heard of the other epoch: its own is made good soon.
        let gives_up = self.gathering.as_ref().is_some_and(|gathering| gathering.id < epoch.id);
        if gives_up {
            self.gathering = None;
        }
        self.epoch = epoch;
        self.began = now;
        self.replaced = 0;
        (self.end_said, self.end_early) = (false, gives_up);
        self.pod_told = false;
        self.effects.push_back(Effect::EpochBegan);
        // Once an epoch, so that a lost POD is noticed.
        if !self.is_master() {
            let message = Message::PodRequest { version: self.pod.version() };
            self.effects.push_back(Effect::Send { to: self.master(), message });
        }
    }

    /// The master makes a POD for the members as they are now; others wait for it.
    fn renew_pod(&mut self) {
        if !self.is_master() || self.pod.is_of(self.members.iter().copied()) {
            return;
        }
        let members: Vec<NodeId> = self.members.iter().copied().collect();
        self.pod = Arc::new(self.pod.changed(&members, self.me));
        self.effects.push_back(Effect::PodChanged);
        let pod = self.pod.clone();
        self.send_all(|| Message::Pod(pod.clone()));
    }

    fn adopt_pod(&mut self, pod: Arc<Pod>) {
        if pod.version() > self.pod.version() {
            let of_another_master = pod.version().master != self.master();
            self.pod = pod;
            self.effects.push_back(Effect::PodChanged);
            if of_another_master && self.is_master() && self.pod.is_of(self.members.iter().copied()) {
                let pod = self.pod.clone();
                self.send_all(|| Message::Pod(pod.clone()));
            } else if of_another_master && !self.is_master() && !core::mem::replace(&mut self.pod_told, true)
            {
                // The master has an older one, and would not hear of this one before the next epoch. Once only: where views differ, two
                // masters would answer each other's PODs with newer ones without end.
                let message = Message::PodRequest { version: self.pod.version() };
                self.effects.push_back(Effect::Send { to: self.master(), message });
            }
        }
        // Another master's POD may lack members that this one knows.
        self.renew_pod();
    }

    fn send_all(&mut self, message: impl Fn() -> Message) {
        for &to in self.members.iter().filter(|&&node| node != self.me) {
            self.effects.push_back(Effect::Send { to, message: message() });
        }
    }
}
