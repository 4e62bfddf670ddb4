//! The checkers.

use super::machine::{file, is_shared, owner};
use super::world::World;
use crate::fuzz::sim::FailureKind;
use loam_core::global::{Frame, Kind};
use loam_core::ids::{NodeId, PageId, Version};
use loam_core::units::Duration;

const EPOCH_OVER: Duration = Duration::from_millis(10_000 + 1_500 + 500 + 100);

impl World<'_> {
    /// After everything that happens at a node: no more pages than frames, and what is waited for is not there.
    pub(super) fn check_now(&mut self, id: NodeId) {
        let Some(machine) = self.machines.get(&id) else { return };
        let pages = machine.node.frames().pages();
        if pages > machine.frames {
            let frames = machine.frames;
            return self.fail(FailureKind::Leak, || format!("{id:?} has {pages} pages in {frames} frames"));
        }
        let local =
            |page: &&PageId| machine.node.frames().get(**page).is_some_and(|frame| frame.kind == Kind::Local);
        if let Some(&page) = machine.waiting.keys().find(local) {
            self.fail(FailureKind::Unsafe, || format!("{id:?}: {page:?} is local, and waited for"));
        }
    }

    /// What lies in all nodes' memory and tables.
    pub(super) fn check_all(&mut self) {
        let mut found = None;
        for (&id, machine) in &self.machines {
            let frames = machine.node.frames();
            let counted = frames.iter().count();
            if counted != frames.pages() as usize {
                found = Some((
                    FailureKind::Leak,
                    format!("{id:?} counts {} pages, and has {counted}", frames.pages()),
                ));
            }
            for (page, frame) in frames.iter() {
                let value = machine.contents.get(&page).copied();
                if let Err(why) = self.page_is_right(id, page, &frame, value) {
                    found = Some((
                        FailureKind::WrongBytes,
                        format!("{id:?}: {page:?} {why}: {frame:?}, holds {value:?}"),
                    ));
                }
            }
            if let Err((page, why)) = self.table_is_right(id) {
                found = Some((FailureKind::Leak, format!("{id:?}: {page:?} {why}")));
            }
            if found.is_some() {
                break;
            }
        }
        if let Some((kind, what)) = found {
            self.fail(kind, || what);
        }
    }

    /// A copy is what its record says.
    fn page_is_right(
        &self,
        id: NodeId,
        page: PageId,
        frame: &Frame,
        value: Option<u64>,
    ) -> Result<(), &'static str> {
        let right = |of: u64| if value == Some(of) { Ok(()) } else { Err("has other contents") };
        if frame.shared != is_shared(page) {
            return Err("is taken for one of the other kind");
        }
        if frame.shared {
            return right(file(page));
        }
        if frame.owner != owner(page) {
            return Err("has another owner");
        }
        let of_version = match frame.version {
            Version(0) => 0,
            version => *self.history.get(&(page, version)).ok_or("has a version that was never written")?,
        };
        match frame.kind {
            Kind::Local if id != frame.owner => Err("is in another's use"),
            Kind::Local if frame.dirty => right(self.truth.get(&page).copied().unwrap_or(0)),
            Kind::Local if self.truth.get(&page).copied().unwrap_or(0) != of_version => {
                Err("is not the last version")
            }
            Kind::Global if frame.dirty => Err("is dirty"),
            _ => right(of_version),
        }
    }

    /// A node's table of its own pages: a page is here or at one other, or on the disk alone; and no more are elsewhere than it may have there.
    fn table_is_right(&self, id: NodeId) -> Result<(), (PageId, &'static str)> {
        let machine = &self.machines[&id];
        let directory = machine.node.directory();
        let mut away = 0;
        for page in directory.pages() {
            let entry = directory.get(page).expect("it was listed");
            if entry.private != (!is_shared(page) && owner(page) == id) {
                return Err((page, "has an entry of the other kind"));
            }
            if !entry.private {
                let twice = (1..entry.holders.len())
                    .any(|n| entry.holders[..n].iter().any(|before| before.0 == entry.holders[n].0));
                if twice {
                    return Err((page, "is recorded twice at one node"));
                }
                continue;
            }
            let local = machine.node.frames().get(page).is_some_and(|frame| frame.kind == Kind::Local);
            let copies = entry.holders.len() + usize::from(local);
            if copies > 1 {
                return Err((page, "is counted twice by its owner"));
            }
            away += entry.holders.len();
            if away > self.script.settings.share as usize {
                return Err((page, "is more than its node may have elsewhere"));
            }
        }
        Ok(())
    }

    /// No program waits.
    pub(super) fn check_answered(&mut self) {
        let waits = self.machines.iter().find_map(|(&id, machine)| {
            let wants = machine.threads.iter().find_map(|thread| thread.wants);
            wants.or(machine.to_read.front().copied()).map(|access| (id, access))
        });
        if let Some((id, access)) = waits {
            self.fail(FailureKind::Liveness, || format!("{id:?} waits for {access:?}"));
        }
    }

    /// Who did not hear that an epoch began hears of the next one: after the longest epoch, the master's patience, and the wait for summaries.
    fn epochs_agree_by_now(&self) -> bool {
        self.epoch_missed.is_none_or(|missed| self.now - missed > EPOCH_OVER)
    }

    /// All speak of the same cluster, which is that of the living.
    pub(super) fn check_views(&mut self) {
        let Some(first) = self.machines.values().next() else { return };
        let first = first.node.coordinator();
        let all: Vec<NodeId> = self.machines.keys().copied().collect();
        let wrong = self.machines.iter().find_map(|(&id, machine)| {
            let one = machine.node.coordinator();
            let what = if !one.members().eq(all.iter().copied()) {
                format!("members are {:?} and not {all:?}", one.members().collect::<Vec<_>>())
            } else if one.master() != all[0] {
                format!("the master is {:?}", one.master())
            } else if one.pod() != first.pod() {
                format!("PODs {:?} and {:?}", one.pod().version(), first.pod().version())
            } else if !one.pod().is_of(all.iter().copied()) {
                format!("the POD {:?} is not of the living", one.pod().version())
            } else if one.epoch() != first.epoch() && self.epochs_agree_by_now() {
                format!("epochs {:?} and {:?}", one.epoch(), first.epoch())
            } else if one.epoch().id.number == 0 {
                "no epoch has begun".to_owned()
            } else {
                return None;
            };
            Some(format!("{id:?} does not agree with {:?}: {what}", all[0]))
        });
        if let Some(what) = wrong {
            self.fail(FailureKind::Disagreement, || what);
        }
    }

    /// Thirty quiet seconds later: epochs go on, and speak of the living only.
    pub(super) fn check_epoch(&mut self) {
        let Some(first) = self.machines.values().next() else { return };
        let epoch = first.node.coordinator().epoch();
        let named = epoch.weights.iter().map(|&(node, _)| node).chain([epoch.next_initiator]);
        let gone: Vec<NodeId> = named.filter(|node| !self.machines.contains_key(node)).collect();
        if self.epoch_before.is_none_or(|before| epoch.id <= before) {
            let id = epoch.id;
            self.fail(FailureKind::Liveness, || format!("no epoch has begun since {id:?}"));
        } else if !gone.is_empty() {
            self.fail(FailureKind::Disagreement, || format!("an epoch counts on {gone:?}, who are gone"));
        }
    }

    /// Nothing is held for nodes that are gone, no directory names one, and no entry names nobody.
    pub(super) fn check_nothing_is_left(&mut self) {
        let mut found = None;
        for (id, machine) in &self.machines {
            for (page, frame) in machine.node.frames().iter() {
                if frame.kind == Kind::Global && !frame.shared && !self.machines.contains_key(&frame.owner) {
                    found = Some(format!("{id:?} holds {page:?} for {:?}, who is gone", frame.owner));
                }
            }
            let directory = machine.node.directory();
            for page in directory.pages() {
                let entry = directory.get(page).expect("it was listed");
                if entry.holders.is_empty() && !entry.private {
                    found = Some(format!("{id:?} keeps an entry for {page:?}, which nobody has"));
                }
                if let Some((gone, _)) =
                    entry.holders.iter().find(|(node, _)| !self.machines.contains_key(node))
                {
                    found = Some(format!("{id:?} believes that {gone:?} has {page:?}, who is gone"));
                }
            }
        }
        if let Some(what) = found {
            self.fail(FailureKind::Leak, || what);
        }
    }

    /// In a run whose network was true: of every page of which no message was overtaken by another, all copies are in its directory, in
    /// the right use, and all that is in the directory is there. So frames' pages and directories' entries have the same sum.
    pub(super) fn check_directories(&mut self) {
        let Some(pod) = self.machines.values().next().map(|machine| machine.node.coordinator().pod_shared())
        else {
            return;
        };
        let mut found = None;
        let mut exact = 0;
        for (&id, machine) in &self.machines {
            for (page, frame) in
                machine.node.frames().iter().filter(|(page, _)| !self.disturbed.contains(page))
            {
                if !frame.shared && frame.owner == id {
                    continue; // its own record is here; see `table_is_right`
                }
                let keeper = if frame.shared { pod.owner(page) } else { Some(frame.owner) };
                let entry = keeper.and_then(|keeper| self.machines.get(&keeper)?.node.directory().get(page));
                let known = entry.is_some_and(|entry| entry.holders.contains(&(id, frame.kind)));
                if !known {
                    found = Some(format!(
                        "{id:?} has {page:?} ({:?}), and {keeper:?} knows {entry:?}",
                        frame.kind
                    ));
                }
                exact += 1;
            }
            let directory = machine.node.directory();
            for page in directory.pages().into_iter().filter(|page| !self.disturbed.contains(page)) {
                for &(holder, kind) in &directory.get(page).expect("it was listed").holders {
                    let frame =
                        self.machines.get(&holder).and_then(|machine| machine.node.frames().get(page));
                    if frame.is_none_or(|frame| frame.kind != kind) {
                        found = Some(format!(
                            "{id:?} believes that {holder:?} has {page:?} ({kind:?}): {frame:?}"
                        ));
                    }
                }
            }
        }
        self.outcome.exact += exact;
        if let Some(what) = found {
            self.fail(FailureKind::Leak, || what);
        }
    }
}
