//! One node of global memory: its frames, its part of the directory, its faults and evictions (gms-1995, sections 3.1 and 4.5).
//!
//! ```text
//! case 1, 2   fault ─► Locate (shared pages) ─► Fetch ─► Data, and the holder's global page is gone there
//! case 3      fault ─► nobody has it ─► ReadDisk
//! case 4      fault ─► Locate ─► Fetch ─► Data, and both have a duplicate
//! room        the oldest page: discarded if it is older than MinAge or a duplicate, else Put to a node by its weight
//! ```
//!
//! As in the paper's own implementation (section 4.5) the two halves of a swap are separate: the fault takes a frame, and eviction makes room
//! by age alone. Only clean pages are put: a dirty page is written to its disk as it leaves, as ever (section 3.3).
//!
//! Every message may be lost, doubled or late. What is asked for names its version, so contents are never older than the asker's
//! record says; a fault that hears nothing reads the disk.

mod evict;
mod fault;
mod gcd;
mod scan;
#[cfg(test)]
mod tests;
mod types;

pub use types::{Access, Effect, NodeConfig, NodeMessage, NodeStats, Origin, PageMessage};

use super::coordinator::Coordinator;
use super::directory::Directory;
use super::frames::Frames;
use super::message::Effect as ClusterEffect;
use super::placement::Placement;
use super::pod::Pod;
use crate::ids::{NodeId, PageId};
use crate::units::Instant;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use fault::Fault;
use scan::Scans;

/// See the module.
#[derive(Debug)]
pub struct GlobalNode {
    me: NodeId,
    config: NodeConfig,
    coordinator: Coordinator,
    frames: Frames,
    directory: Directory,
    placement: Box<dyn Placement>,
    faults: BTreeMap<PageId, Fault>,
    scans: Scans,
    /// The POD before the present one: whose directory had what.
    pod_before: Arc<Pod>,
    /// Own pages in others' memory.
    away: u32,
    /// Free frames that others' pages came into since the epoch began, less those that they left again.
    filled: i64,
    replaced: u32,
    consumed: u32,
    cpu_busy_permille: u16,
    stats: NodeStats,
    effects: VecDeque<Effect>,
}

impl GlobalNode {
    /// A node that is alone so far.
    ///
    /// # Panics
    /// If `me` is nobody.
    pub fn new(now: Instant, me: NodeId, config: NodeConfig, placement: Box<dyn Placement>) -> Self {
        let coordinator = Coordinator::new(now, me, config.coordinator);
        let mut node = Self {
            me,
            config,
            coordinator,
            frames: Frames::new(config.frames, placement.ages(config.ages)),
            directory: Directory::default(),
            placement,
            faults: BTreeMap::new(),
            scans: Scans::default(),
            pod_before: Arc::default(),
            away: 0,
            filled: 0,
            replaced: 0,
            consumed: 0,
            cpu_busy_permille: 0,
            stats: NodeStats::default(),
            effects: VecDeque::new(),
        };
        node.drain_coordinator(now);
        node
    }

    /// The living nodes have changed.
    pub fn handle_members(&mut self, now: Instant, members: impl IntoIterator<Item = NodeId>) {
        self.coordinator.handle_members(now, members);
        self.forget_the_dead();
        self.tell_placement();
        self.drain_coordinator(now);
    }

    /// A node says something.
    pub fn handle_message(&mut self, now: Instant, from: NodeId, message: NodeMessage) {
        match message {
            NodeMessage::Cluster(message) => self.coordinator.handle_message(now, from, message),
            NodeMessage::Page(message) => self.handle_page_message(now, message),
        }
        self.drain_coordinator(now);
    }

    fn handle_page_message(&mut self, now: Instant, message: PageMessage) {
        match message {
            PageMessage::Locate { page, requester } => self.locate(page, requester),
            PageMessage::Fetch { page, version, requester } => self.serve(page, version, requester),
            PageMessage::Data { page, version, duplicate } => self.take_data(now, page, version, duplicate),
            PageMessage::Miss { page } => self.read_disk(page),
            PageMessage::Put { page, frame, age } => self.hold(now, page, frame, age),
            PageMessage::Moved { page, version, from, to } => self.record_move(page, version, from, to),
            PageMessage::Singlet { page } => self.frames.set_duplicate(page, false),
            PageMessage::Entries(entries) => self.take_entries(entries),
        }
    }

    /// This node's processors are so busy, in thousandths.
    pub fn handle_cpu_busy(&mut self, permille: u16) {
        self.cpu_busy_permille = permille.min(1_000);
    }

    /// The machine gives more or fewer frames; pages that are too many leave, the oldest first.
    pub fn handle_frames(&mut self, now: Instant, frames: u32) {
        let fewer = self.frames.capacity().saturating_sub(frames);
        self.frames.set_capacity(frames);
        while self.frames.is_over() {
            self.evict_oldest(now);
        }
        if fewer > 0 {
            self.consume(now, fewer);
        }
        self.drain_coordinator(now);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.coordinator.handle_timeout(now);
        let late: Vec<PageId> =
            self.faults.iter().filter(|(_, fault)| fault.is_late(now)).map(|(&page, _)| page).collect();
        for page in late {
            self.read_disk(page);
        }
        self.drain_coordinator(now);
    }

    /// When [`Self::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let faults = self.faults.values().filter_map(Fault::until);
        faults.chain(self.coordinator.poll_timeout()).min()
    }

    /// What to do next.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Epochs, membership, POD.
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// What is present.
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// This node's part of the global-cache directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Counts since the start.
    pub fn stats(&self) -> NodeStats {
        self.stats
    }

    fn send(&mut self, to: NodeId, message: PageMessage) {
        assert_ne!(to, self.me, "a node does not write to itself");
        self.effects.push_back(Effect::Send { to, message: NodeMessage::Page(message) });
    }

    fn tell_placement(&mut self) {
        let others: Vec<NodeId> = self.coordinator.members().filter(|&node| node != self.me).collect();
        self.placement.cluster_changed(self.me, self.coordinator.epoch(), &others);
    }

    fn drain_coordinator(&mut self, now: Instant) {
        while let Some(effect) = self.coordinator.poll_effect() {
            match effect {
                ClusterEffect::Send { to, message } => {
                    self.effects.push_back(Effect::Send { to, message: NodeMessage::Cluster(message) });
                }
                ClusterEffect::Summarise => {
                    let mut summary = self.frames.summarise(now, self.config.coordinator.limits.old_age);
                    summary.replaced =
                        self.replaced.saturating_add(self.filled.clamp(0, i64::from(u32::MAX)) as u32);
                    summary.consumed = self.consumed;
                    summary.cpu_busy_permille = self.cpu_busy_permille;
                    let (local, global) = (self.frames.local_pages(), self.frames.global_pages());
                    self.effects.push_back(Effect::Scanned { local, global });
                    self.coordinator.handle_summary(now, summary);
                }
                ClusterEffect::EpochBegan => {
                    (self.filled, self.replaced, self.consumed) = (0, 0, 0);
                    self.tell_placement();
                }
                ClusterEffect::PodChanged => self.hand_over_entries(),
            }
        }
    }
}
