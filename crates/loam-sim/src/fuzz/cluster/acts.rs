//! What is done to the cluster.

use super::machine::{Cause, Machine, Sabotage};
use super::script::Act;
use super::world::{Event, World};
use loam_core::global::{CoordinatorConfig, EpochLimits, GlobalNode, NodeConfig, NodeMessage, placement};
use loam_core::ids::NodeId;
use loam_core::units::Duration;

/// More machines than this never run at the same time.
const MACHINES_MAX: usize = 12;
/// A node that leaves answers for so long what is still under way to it.
const FAREWELL: Duration = Duration::from_millis(500);

impl World<'_> {
    /// Who is meant by a number.
    fn of(&self, number: u64) -> Option<NodeId> {
        let at = number as usize % self.machines.len().max(1);
        self.machines.keys().nth(at).copied()
    }

    /// Whom most believe to be something: as the one with the highest epoch says.
    fn role(&self, role: fn(&GlobalNode) -> NodeId) -> Option<NodeId> {
        let knows = self.machines.values().max_by_key(|machine| machine.node.coordinator().epoch().id)?;
        Some(role(&knows.node)).filter(|id| self.machines.contains_key(id))
    }

    pub(super) fn act(&mut self, act: Act) {
        self.log(|| format!("{act:?}"));
        let initiator = |node: &GlobalNode| node.coordinator().initiator();
        match act {
            Act::Work(which, busy) => {
                if let Some(id) = self.of(which) {
                    self.work(id, busy);
                }
            }
            Act::SwapIdle => {
                let all: Vec<(NodeId, bool)> = self.machines.iter().map(|(&id, m)| (id, m.busy)).collect();
                all.into_iter().for_each(|(id, busy)| self.work(id, !busy));
            }
            Act::Frames(which, percent) => {
                if let Some(id) = self.of(which) {
                    let frames = u64::from(self.machines[&id].frames_all) * percent / 100;
                    self.give_frames(id, frames as u32);
                }
            }
            Act::Change(which) => {
                let files = self.files.len() as u64;
                self.files[(which % files) as usize] += 1;
            }
            Act::Kill(which) => self.kill(self.of(which)),
            Act::KillMaster => self.kill(self.role(|node| node.coordinator().master())),
            Act::KillInitiator => self.kill(self.role(initiator)),
            Act::KillGathering(us) => self.trap = Some(Duration::from_micros(us)),
            Act::Stop(which, ms) => self.stop(self.of(which), ms),
            Act::StopInitiator(ms) => self.stop(self.role(initiator), ms),
            Act::Restart(which) => {
                if let Some(id) = self.of(which) {
                    let frames = self.machines[&id].frames_all;
                    self.kill(Some(id));
                    self.join(frames, true);
                }
            }
            Act::Join(which) => {
                let frames = &self.script.settings.frames;
                let frames = frames[which as usize % frames.len()];
                self.join(frames, self.script.settings.busy >> (which % 64) & 1 == 1);
            }
            Act::Leave(which) => {
                if let Some(machine) = self.of(which).and_then(|id| self.machines.get_mut(&id)) {
                    machine.leaving = true;
                }
                if let Some(id) = self.of(which) {
                    self.go_if_ready(id);
                }
            }
            Act::Part(bits, ms) => {
                for (at, &id) in self.machines.keys().enumerate() {
                    self.sides.insert(id, (bits >> (at % 16) & 1) as u8);
                }
                self.parts += 1;
                self.after(Duration::from_millis(ms), Event::Heal(self.parts));
                self.notice_all(false);
            }
            Act::Jump(which, ms) => {
                if let Some(id) = self.of(which).filter(|id| !self.machines[id].stopped) {
                    let machine = self.machines.get_mut(&id).expect("it lives");
                    machine.ahead = Duration(machine.ahead.0 + Duration::from_millis(ms).0);
                    self.drain(id, Cause::default());
                }
            }
            Act::Suspect(one, other, ms) => {
                if let (Some(one), Some(other)) = (self.of(one), self.of(other))
                    && !self.machines[&one].stopped
                {
                    self.believe(one, other, false);
                    self.after(Duration::from_millis(ms), Event::Look(one, other));
                }
            }
        }
    }

    pub(super) fn notice_all(&mut self, fast: bool) {
        let all: Vec<NodeId> = self.machines.keys().copied().collect();
        all.into_iter().for_each(|id| self.notice(id, fast));
    }

    fn work(&mut self, id: NodeId, busy: bool) {
        let machine = self.machines.get_mut(&id).expect("it lives");
        if machine.leaving || machine.stopped {
            return;
        }
        machine.busy = busy;
        if busy {
            // Programs do not run without memory.
            let frames = machine.frames.max(2);
            self.give_frames(id, frames);
            self.wake(id);
        }
    }

    /// The machine gives so many frames. One where programs run or wait keeps two.
    pub(super) fn give_frames(&mut self, id: NodeId, frames: u32) {
        let sabotage = self.sabotage;
        let machine = self.machines.get_mut(&id).expect("it lives");
        if machine.leaving || machine.stopped {
            return;
        }
        let idle = !machine.busy && machine.threads.iter().all(|thread| thread.wants.is_none());
        let frames = if idle { frames } else { frames.max(2) };
        let fewer = frames < machine.frames;
        machine.frames = frames;
        if !(fewer && sabotage == Sabotage::HidesPressure) {
            self.with_node(id, Cause::default(), |node, now| node.handle_frames(now, frames));
        }
        self.check_now(id);
    }

    /// A machine starts. Its node is a new one, whoever ran there before.
    pub(super) fn join(&mut self, frames: u32, busy: bool) {
        if self.machines.len() >= MACHINES_MAX {
            return;
        }
        let s = &self.script.settings;
        let id = loop {
            let id = NodeId(1 + self.dice.below(1 << 30));
            if self.ever.insert(id) {
                break id;
            }
        };
        let usual = NodeConfig::new(frames);
        let limits =
            EpochLimits { duration_max: Duration::from_millis(s.epoch_ms), ..EpochLimits::default() };
        let config = NodeConfig {
            coordinator: CoordinatorConfig { limits, ..usual.coordinator },
            fault_wait: Duration::from_millis(s.fault_wait_ms),
            share_max: s.share,
            scan_guard: s.guard,
            ..usual
        };
        // No two clocks agree.
        let ahead = Duration::from_millis(self.dice.pick(&[1, 1_000, 3_600_000, 3_000_000_000]));
        let policy = placement::by_name(s.placement, id.0).expect("a placement's name");
        let node = GlobalNode::new(self.now + ahead, id, config, policy);
        let machine = Machine::new(node, id, frames, s.threads, ahead);
        self.log(|| format!("{id:?} joins with {frames} frames"));
        self.machines.insert(id, machine);
        let side = self.dice.below(2) as u8 * self.sides.values().copied().max().unwrap_or(0);
        self.sides.insert(id, side);
        self.outcome.joined += 1;
        self.drain(id, Cause::default());
        if self.script.settings.faults {
            self.notice(id, false);
        } else {
            // Who does not know of another drops its pages, and that is no fault of any directory's.
            let all: Vec<NodeId> = self.machines.keys().copied().collect();
            all.iter().for_each(|&other| self.believe(other, id, true));
            all.iter().for_each(|&other| self.believe(id, other, true));
        }
        self.work(id, busy);
    }

    pub(super) fn kill(&mut self, id: Option<NodeId>) {
        let Some(id) = id.filter(|_| self.machines.len() > 1) else { return };
        if self.machines.contains_key(&id) {
            self.log(|| format!("{id:?} dies"));
            self.outcome.died += 1;
            self.remove(id, false);
        }
    }

    fn remove(&mut self, id: NodeId, fast: bool) {
        let machine = self.machines.remove(&id).expect("it lives");
        self.book(&machine);
        let lost = |event: &&Event| matches!(event, Event::Message(_, _, NodeMessage::Cluster(_), _));
        self.under_way -= machine.inbox.iter().filter(lost).count() as u64;
        self.notice(id, fast);
    }

    fn stop(&mut self, id: Option<NodeId>, ms: u64) {
        let Some(machine) = id.and_then(|id| self.machines.get_mut(&id)) else { return };
        let id = id.expect("it was just seen");
        if !machine.stopped && !machine.leaving {
            machine.stopped = true;
            self.after(Duration::from_millis(ms), Event::Resume(id));
            self.notice(id, false);
        }
    }

    /// It goes on where it stood, with all that came meanwhile, and by a clock that went on.
    pub(super) fn resume(&mut self, id: NodeId) {
        let Some(machine) = self.machines.get_mut(&id).filter(|machine| machine.stopped) else { return };
        machine.stopped = false;
        machine.timer = None;
        let inbox = std::mem::take(&mut machine.inbox);
        self.log(|| format!("{id:?} goes on"));
        self.drain(id, Cause::default());
        for event in inbox {
            self.handle(event);
        }
        self.notice(id, false);
    }

    /// Who leaves, and whom nothing keeps, puts its pages elsewhere and goes.
    pub(super) fn go_if_ready(&mut self, id: NodeId) {
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let waits = machine.threads.iter().any(|thread| thread.wants.is_some());
        if machine.leaving && !machine.stopped && !waits && machine.frames > 0 {
            machine.frames = 0;
            self.with_node(id, Cause::default(), |node, now| node.handle_frames(now, 0));
            self.after(FAREWELL, Event::Gone(id));
        }
    }

    pub(super) fn gone(&mut self, id: NodeId) {
        if self.machines.len() > 1 && self.machines.contains_key(&id) {
            self.outcome.left += 1;
            self.remove(id, true);
        }
    }

    /// Faults cease: whoever is stopped goes on, the network is whole and true, programs rest, and all look at each other within a second.
    pub(super) fn calm(&mut self) {
        self.quiet = true;
        self.trap = None;
        self.sides.values_mut().for_each(|side| *side = 0);
        let all: Vec<NodeId> = self.machines.keys().copied().collect();
        all.into_iter().for_each(|id| self.resume(id));
        self.notice_all(true);
        // Of the dead too.
        let dead: Vec<NodeId> =
            self.ever.iter().copied().filter(|id| !self.machines.contains_key(id)).collect();
        dead.into_iter().for_each(|id| self.notice(id, true));
        self.log(|| "faults cease".into());
    }
}
