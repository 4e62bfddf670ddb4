//! The network, and what nodes believe of each other's lives: both late, and wrong at times.

use super::machine::{Cause, Sabotage};
use super::world::{Event, World};
use loam_core::global::{Message as ClusterMessage, NodeMessage, PageMessage};
use loam_core::ids::{NodeId, PageId};
use loam_core::units::Duration;

/// What a true network takes for a message.
pub(super) const WIRE: Duration = Duration::from_micros(150);
/// The latest at which anybody notices anything.
const NOTICE_MAX: Duration = Duration::from_millis(8_000);
/// Messages that wait for a machine that is stopped; the rest is lost.
const INBOX_MAX: usize = 200;

/// The page that a message is about.
fn page_of(message: &NodeMessage) -> Option<PageId> {
    let NodeMessage::Page(message) = message else { return None };
    Some(match message {
        PageMessage::Locate { page, .. }
        | PageMessage::Fetch { page, .. }
        | PageMessage::Data { page, .. }
        | PageMessage::Miss { page }
        | PageMessage::Put { page, .. }
        | PageMessage::Moved { page, .. }
        | PageMessage::Singlet { page } => *page,
        PageMessage::Entries(entries) => entries.first()?.0,
    })
}

impl World<'_> {
    pub(super) fn send(&mut self, from: NodeId, to: NodeId, message: NodeMessage, contents: Option<u64>) {
        if matches!(message, NodeMessage::Cluster(ClusterMessage::EpochRequest { .. }))
            && let Some(delay) = self.trap.take()
        {
            self.after(delay, Event::Kill(from));
        }
        let hostile = if self.quiet { 0 } else { self.script.settings.hostile_permille };
        let copies = 1 + u64::from(self.dice.below(1_000) < hostile);
        for _ in 0..copies {
            if self.dice.below(1_000) < hostile {
                self.missed(&message);
                self.log(|| format!("{from:?} to {to:?}: lost: {message:?}"));
                continue;
            }
            let delay = match self.script.settings.faults && !self.quiet {
                false => WIRE,
                true if self.dice.below(1_000) < hostile => Duration::from_millis(self.dice.below(3_000)),
                true => self.dice.delay(WIRE),
            };
            self.under_way += u64::from(matches!(message, NodeMessage::Cluster(_)));
            self.after(delay, Event::Message(from, to, message.clone(), contents));
        }
    }

    /// Somebody does not hear of something. An epoch that was missed is made good by the next one: see [`World::epochs_agree_by_now`].
    fn missed(&mut self, message: &NodeMessage) {
        if matches!(message, NodeMessage::Cluster(ClusterMessage::EpochBegins(_))) {
            self.epoch_missed = Some(self.now);
        }
    }

    pub(super) fn deliver(&mut self, from: NodeId, to: NodeId, message: NodeMessage, contents: Option<u64>) {
        self.under_way -= u64::from(matches!(message, NodeMessage::Cluster(_)));
        let parted = self.sides.get(&from) != self.sides.get(&to);
        let Some(machine) = self.machines.get_mut(&to).filter(|_| !parted) else {
            self.disturbed.extend(page_of(&message));
            self.missed(&message);
            return self.log(|| format!("{from:?} to {to:?}: nobody there: {message:?}"));
        };
        if machine.stopped {
            if machine.inbox.len() < INBOX_MAX {
                self.under_way += u64::from(matches!(message, NodeMessage::Cluster(_)));
                machine.inbox.push(Event::Message(from, to, message, contents));
            } else {
                self.missed(&message);
            }
            return;
        }
        if !self.machines.contains_key(&from) {
            self.missed(&message); // by the others, who did not get theirs in time
        }
        self.log(|| format!("{from:?} to {to:?}: {message:?}"));
        self.take(from, to, message, contents);
    }

    /// A node came, went, hung or is reachable again: all others notice, each by itself, and it notices them.
    pub(super) fn notice(&mut self, subject: NodeId, fast: bool) {
        let others: Vec<NodeId> = self.machines.keys().copied().filter(|&other| other != subject).collect();
        for other in others {
            for (observer, of) in [(other, subject), (subject, other)] {
                let delay = if fast || self.quiet {
                    Duration::from_millis(self.dice.below(1_000))
                } else {
                    let typical = Duration::from_millis(self.script.settings.notice_ms);
                    Duration(self.dice.delay(typical).0.min(NOTICE_MAX.0))
                };
                self.after(delay, Event::Look(observer, of));
            }
        }
    }

    /// One looks whether another lives.
    pub(super) fn look(&mut self, observer: NodeId, subject: NodeId) {
        let reachable = self.sides.get(&observer) == self.sides.get(&subject);
        let lives = self.machines.get(&subject).is_some_and(|machine| !machine.stopped) && reachable;
        self.believe(observer, subject, lives);
    }

    pub(super) fn believe(&mut self, observer: NodeId, subject: NodeId, lives: bool) {
        if observer == subject || !lives && self.sabotage == Sabotage::NeverBuries {
            return;
        }
        let machine = self.machines.get_mut(&observer).expect("it lives");
        let changed =
            if lives { machine.believes.insert(subject) } else { machine.believes.remove(&subject) };
        if changed {
            let believes = machine.believes.clone();
            self.log(|| format!("{observer:?} believes in {believes:?}"));
            self.with_node(observer, Cause::default(), |node, now| node.handle_members(now, believes));
        }
    }
}
