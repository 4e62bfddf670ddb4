//! One machine: the node, and what a driver binds to it: contents, a disk, a clock, who waits.

use super::net::WIRE;
use super::world::{Event, World};
use loam_core::global::{
    Access, GlobalNode, Message as ClusterMessage, NodeEffect as Effect, NodeMessage, Origin, PageMessage,
};
use loam_core::ids::{NodeId, PageId, Version};
use loam_core::units::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A driver that is broken on purpose, to see that the checkers find it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// Everything as it should be.
    #[default]
    None,
    /// Who holds a page sends what it has, whatever version was asked for.
    ServesOldVersions,
    /// Nodes do not take PODs from others.
    IgnoresPods,
    /// Nodes do not take epochs from others.
    IgnoresEpochs,
    /// Nodes are not told of deaths, so they keep what they hold for the dead.
    NeverBuries,
    /// Pages that leave are not written to their disk.
    SkipsWrites,
    /// Now and then nothing comes of a disk read.
    LosesDiskReads,
    /// Nodes are not told that their machine takes frames away.
    HidesPressure,
    /// A copy that was served is kept as well, and put elsewhere later: it is counted twice.
    KeepsServedCopies,
}

/// Why a node has something to do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cause {
    /// The contents that came with it.
    pub came: Option<u64>,
    /// It was asked to send a page, in this version.
    pub asked: Option<Version>,
}

/// One thread of the programs.
#[derive(Clone, Debug, Default)]
pub(super) struct Thread {
    /// What it wants and has not got yet.
    pub wants: Option<Access>,
    /// It goes on by an event that is in the queue.
    pub scheduled: bool,
    /// The next page, if it reads in order.
    pub next: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Machine {
    pub node: GlobalNode,
    /// What each page holds; only what the node says is present counts.
    pub contents: BTreeMap<PageId, u64>,
    pub disk: BTreeMap<PageId, u64>,
    /// Which threads wait for a page, in the order in which they asked.
    pub waiting: BTreeMap<PageId, Vec<usize>>,
    pub threads: Vec<Thread>,
    /// What is to be read before anything else.
    pub to_read: VecDeque<Access>,
    pub busy: bool,
    pub stopped: bool,
    /// What came while it was stopped.
    pub inbox: Vec<Event>,
    /// How far its clock is ahead of the simulation's.
    pub ahead: Duration,
    /// When its timer is set for, by the simulation's clock.
    pub timer: Option<Instant>,
    /// The living, as it believes.
    pub believes: BTreeSet<NodeId>,
    /// All frames of the machine, and those that it gives at present.
    pub frames_all: u32,
    pub frames: u32,
    pub leaving: bool,
}

impl Machine {
    pub(super) fn new(node: GlobalNode, id: NodeId, frames: u32, threads: u64, ahead: Duration) -> Self {
        Self {
            node,
            contents: BTreeMap::new(),
            disk: BTreeMap::new(),
            waiting: BTreeMap::new(),
            threads: vec![Thread::default(); threads as usize],
            to_read: VecDeque::new(),
            busy: false,
            stopped: false,
            inbox: Vec::new(),
            ahead,
            timer: None,
            believes: BTreeSet::from([id]),
            frames_all: frames,
            frames,
            leaving: false,
        }
    }
}

impl World<'_> {
    /// What a machine's own clock says.
    pub(super) fn clock(&self, id: NodeId) -> Instant {
        self.now + self.machines[&id].ahead
    }

    /// Something happens to a node that lives and is not stopped; what it wants done is done.
    pub(super) fn with_node(
        &mut self,
        id: NodeId,
        cause: Cause,
        what: impl FnOnce(&mut GlobalNode, Instant),
    ) {
        let clock = self.clock(id);
        what(&mut self.machines.get_mut(&id).expect("it lives").node, clock);
        self.drain(id, cause);
    }

    pub(super) fn drain(&mut self, id: NodeId, cause: Cause) {
        while let Some(effect) = self.machines.get_mut(&id).and_then(|machine| machine.node.poll_effect()) {
            self.carry_out(id, effect, cause);
        }
        self.check_now(id);
        self.set_timer(id);
        self.go_if_ready(id);
    }

    fn carry_out(&mut self, id: NodeId, effect: Effect, cause: Cause) {
        let machine = self.machines.get_mut(&id).expect("it has an effect");
        match effect {
            Effect::Send { to, mut message } => {
                let contents = match &mut message {
                    NodeMessage::Page(PageMessage::Data { page, version, .. }) => {
                        if let Some(asked) = cause.asked {
                            *version = asked;
                        }
                        Some(machine.contents[page])
                    }
                    NodeMessage::Page(PageMessage::Put { page, .. }) => Some(machine.contents[page]),
                    NodeMessage::Page(PageMessage::Miss { page }) if cause.asked.is_some() => {
                        // It was on its way elsewhere: who asked reads the disk, and the other copy is known to nobody.
                        self.disturbed.insert(*page);
                        None
                    }
                    NodeMessage::Page(PageMessage::Moved { page, .. }) => {
                        self.left.insert((id, *page), self.now);
                        None
                    }
                    _ => None,
                };
                self.send(id, to, message, contents);
            }
            Effect::Held(page) => {
                machine.contents.insert(page, cause.came.expect("it came with contents"));
            }
            Effect::ReadDisk(page) => {
                if self.sabotage == Sabotage::LosesDiskReads && self.dice.once_in(50) {
                    return;
                }
                let delay = self.dice.delay(Duration::from_micros(self.script.settings.disk_us));
                self.after(Duration(delay.0.min(2_000_000_000)), Event::DiskRead(id, page));
            }
            Effect::WriteDisk(page) => {
                let value = machine.contents[&page];
                let version = machine.node.directory().get(page).expect("its owner has an entry").version;
                self.history.insert((page, version), value);
                if self.sabotage != Sabotage::SkipsWrites {
                    machine.disk.insert(page, value);
                }
            }
            Effect::Arrived { page, origin } => {
                if origin != Origin::Own {
                    machine.contents.insert(page, cause.came.expect("it came with contents"));
                }
                self.log(|| format!("{id:?}: {page:?} is here, {origin:?}"));
                self.arrived(id, page);
            }
            Effect::Scanned { .. } => {}
        }
    }

    fn set_timer(&mut self, id: NodeId) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(&id).filter(|machine| !machine.stopped) else { return };
        let Some(at) = machine.node.poll_timeout() else { return };
        let at = Instant(at.0.saturating_sub(machine.ahead.0)).max(now);
        if machine.timer.is_none_or(|timer| at < timer) {
            machine.timer = Some(at);
            self.queue.push(at, Event::Timer(id));
        }
    }

    pub(super) fn timer(&mut self, id: NodeId) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(&id).filter(|machine| machine.timer == Some(now)) else {
            return;
        };
        machine.timer = None;
        self.with_node(id, Cause::default(), |node, now| {
            if node.poll_timeout().is_some_and(|at| at <= now) {
                node.handle_timeout(now);
            }
        });
    }

    pub(super) fn disk_read(&mut self, id: NodeId, page: PageId) {
        let machine = &self.machines[&id];
        let value = if is_shared(page) { file(page) } else { machine.disk.get(&page).copied().unwrap_or(0) };
        let cause = Cause { came: Some(value), ..Cause::default() };
        self.with_node(id, cause, |node, now| node.handle_disk_read(now, page));
    }

    /// A message has come to a node that can take it.
    pub(super) fn take(&mut self, from: NodeId, to: NodeId, mut message: NodeMessage, came: Option<u64>) {
        let mut cause = Cause { came, asked: None };
        let frames = self.machines[&to].node.frames();
        let mut kept = None;
        match &mut message {
            NodeMessage::Page(PageMessage::Fetch { page, version, .. }) => {
                cause.asked = Some(*version);
                if let Some(frame) = frames.get(*page) {
                    if self.sabotage == Sabotage::ServesOldVersions {
                        *version = frame.version;
                    }
                    if self.sabotage == Sabotage::KeepsServedCopies {
                        kept = Some((*page, *frame, self.machines[&to].contents[page]));
                    }
                }
            }
            NodeMessage::Page(PageMessage::Put { page, .. })
                if self.left.get(&(to, *page)).is_some_and(|&left| self.now - left <= WIRE) =>
            {
                // It comes to a node that says of an older copy just now that it has it no longer.
                self.disturbed.insert(*page);
            }
            NodeMessage::Cluster(ClusterMessage::Pod(_)) if self.sabotage == Sabotage::IgnoresPods => return,
            NodeMessage::Cluster(ClusterMessage::EpochBegins(_))
                if self.sabotage == Sabotage::IgnoresEpochs =>
            {
                return;
            }
            _ => {}
        }
        self.with_node(to, cause, |node, now| node.handle_message(now, from, message));
        if let Some((page, frame, value)) = kept.filter(|(page, ..)| !is_shared(*page)) {
            let again = PageMessage::Put { page, frame, age: Duration(1) };
            let cause = Cause { came: Some(value), asked: None };
            self.with_node(to, cause, |node, now| node.handle_message(now, from, NodeMessage::Page(again)));
        }
    }
}

/// Spaces from here on are files': the file, and its version in the last 20 bits.
const FILES: u64 = 1 << 40;

/// A page of a file, in one version of it.
pub(super) fn file_page(file: u64, version: u64, index: u64) -> PageId {
    PageId { space: loam_core::ids::SpaceId(FILES | file << 20 | version), index }
}

/// Of a file?
pub(super) fn is_shared(page: PageId) -> bool {
    page.space.0 >= FILES
}

/// What a page of a file holds.
pub(super) fn file(page: PageId) -> u64 {
    assert!(is_shared(page), "it is private");
    page.space.0 << 20 | page.index
}

/// Whose private page it is.
pub(super) fn owner(page: PageId) -> NodeId {
    assert!(!is_shared(page), "it is a file's");
    NodeId(page.space.0)
}
