//! This node's part of the global-cache directory: looking up, keeping true, handing over (gms-1995, sections 4.1 and 4.4).

use super::{GlobalNode, PageMessage};
use crate::global::frames::{Frame, Kind};
use crate::ids::{NodeId, PageId, Version};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Entries in one message.
const ENTRIES_MAX: usize = 1_024;

impl GlobalNode {
    /// `requester` wants a page whose entry is here.
    pub(super) fn locate(&mut self, page: PageId, requester: NodeId) {
        let (holder, version) = match self.directory.get(page) {
            None => (None, Version(0)),
            Some(entry) => {
                let alive =
                    |&&(node, _): &&(NodeId, Kind)| node != requester && self.coordinator.is_member(node);
                let global = entry.holders.iter().filter(alive).find(|(_, kind)| *kind == Kind::Global);
                (global.or_else(|| entry.holders.iter().rfind(alive)).copied(), entry.version)
            }
        };
        let private = self.directory.get(page).is_some_and(|entry| entry.private);
        if let Some((node, Kind::Global)) = holder {
            self.directory.remove(page, node);
            if private {
                self.away = self.away.saturating_sub(1);
            }
        }
        if !private {
            // "The directory is updated with the new location": from another node's memory or from the disk, it will be there.
            self.take_entries(alloc::vec![(page, requester, Kind::Local)]);
            self.drop_if_empty(page);
        }
        match holder {
            Some((node, _)) if node == self.me => self.serve(page, version, requester),
            Some((node, _)) => self.send(node, PageMessage::Fetch { page, version, requester }),
            None if requester == self.me => self.read_disk(page),
            None => self.send(requester, PageMessage::Miss { page }),
        }
    }

    /// A page leaves this node, for `to` or for nowhere: its entry's owner is told.
    pub(super) fn record_leave(&mut self, page: PageId, frame: &Frame, to: Option<NodeId>) {
        let owner = if frame.shared { self.coordinator.pod().owner(page) } else { Some(frame.owner) };
        match owner {
            Some(owner) if owner != self.me => {
                let (version, from) = (frame.version, self.me);
                self.send(owner, PageMessage::Moved { page, version, from, to });
            }
            _ => self.record_move(page, frame.version, self.me, to),
        }
    }

    /// The entry of a page is here, and the page has moved.
    pub(super) fn record_move(&mut self, page: PageId, version: Version, from: NodeId, to: Option<NodeId>) {
        let to = to.filter(|&to| self.coordinator.is_member(to));
        let private = self.directory.get(page).is_some_and(|entry| entry.private);
        if private {
            let entry = self.directory.entry(page);
            if entry.version != version {
                return;
            }
            let before = entry.holders.len();
            // Only who holds it can move it on; this node itself does when it evicts.
            let knows = from == self.me || entry.holders.iter().any(|&(node, _)| node == from);
            if !knows {
                return;
            }
            entry.holders.clear();
            entry.holders.extend(to.filter(|&to| to != self.me).map(|to| (to, Kind::Global)));
            let after = entry.holders.len();
            self.away = (self.away + after as u32).saturating_sub(before as u32);
            return;
        }
        let last = self.directory.remove(page, from);
        if let Some(to) = to {
            self.directory.add(page, to, Kind::Global);
        } else if let Some(last) = last {
            if last == self.me {
                self.frames.set_duplicate(page, false);
            } else {
                self.send(last, PageMessage::Singlet { page });
            }
        }
        self.drop_if_empty(page);
    }

    /// An own page has come back from those who held it, whether they say so or not.
    pub(super) fn record_home(&mut self, page: PageId, version: Version) {
        let entry = self.directory.entry(page);
        if entry.private && entry.version == version {
            self.away = self.away.saturating_sub(entry.holders.len() as u32);
            entry.holders.clear();
        }
    }

    /// An entry that names nobody is kept of this node's own pages only.
    fn drop_if_empty(&mut self, page: PageId) {
        if self.directory.get(page).is_some_and(|entry| entry.holders.is_empty() && !entry.private) {
            self.directory.take(page);
        }
    }

    /// This node uses a shared page that it held for another.
    pub(super) fn record_holder(&mut self, page: PageId) {
        let shared = self.frames.get(page).is_some_and(|frame| frame.shared);
        let Some(owner) = self.coordinator.pod().owner(page).filter(|_| shared) else { return };
        let entry = (page, self.me, Kind::Local);
        if owner == self.me {
            self.take_entries(alloc::vec![entry]);
        } else {
            self.send(owner, PageMessage::Entries(alloc::vec![entry]));
        }
    }

    /// Who is no member is not recorded: a message that outlives its sender would leave an entry that nobody ever takes away.
    pub(super) fn take_entries(&mut self, entries: Vec<(PageId, NodeId, Kind)>) {
        for (page, node, kind) in entries {
            if self.coordinator.is_member(node)
                && !self.directory.get(page).is_some_and(|entry| entry.private)
            {
                self.directory.add(page, node, kind);
            }
        }
    }

    /// The POD has changed. Entries go to their new owners; and of pages whose former owner may be gone with its entries, those who have
    /// them tell the new one.
    pub(super) fn hand_over_entries(&mut self) {
        let pod = self.coordinator.pod_shared();
        let before = core::mem::replace(&mut self.pod_before, pod.clone());
        let mut out: BTreeMap<NodeId, Vec<(PageId, NodeId, Kind)>> = BTreeMap::new();
        for page in self.directory.pages() {
            let private = self.directory.get(page).is_some_and(|entry| entry.private);
            let Some(owner) = pod.owner(page).filter(|&owner| !private && owner != self.me) else { continue };
            let entry = self.directory.take(page).expect("it was just listed");
            out.entry(owner)
                .or_default()
                .extend(entry.holders.into_iter().map(|(node, kind)| (page, node, kind)));
        }
        let mine: Vec<(PageId, NodeId, Kind)> = self
            .frames
            .iter()
            .filter(|(page, frame)| frame.shared && pod.owner(*page) != before.owner(*page))
            .map(|(page, frame)| (page, self.me, frame.kind))
            .collect();
        for entry in mine {
            match pod.owner(entry.0) {
                Some(owner) if owner != self.me => out.entry(owner).or_default().push(entry),
                _ => self.take_entries(alloc::vec![entry]),
            }
        }
        for (owner, entries) in out {
            for some in entries.chunks(ENTRIES_MAX) {
                self.send(owner, PageMessage::Entries(some.to_vec()));
            }
        }
    }

    /// Nodes have gone: what they held is lost, and what is here for them is of no use.
    pub(super) fn forget_the_dead(&mut self) {
        let members: Vec<NodeId> = self.coordinator.members().collect();
        let dead = |node: NodeId| members.binary_search(&node).is_err();
        for page in self.directory.pages() {
            let entry = self.directory.entry(page);
            let before = entry.holders.len();
            entry.holders.retain(|&(node, _)| !dead(node));
            if entry.private {
                self.away = self.away.saturating_sub((before - entry.holders.len()) as u32);
            }
            self.drop_if_empty(page);
        }
        let orphans: Vec<PageId> = self
            .frames
            .iter()
            .filter(|(_, frame)| frame.kind == Kind::Global && !frame.shared && dead(frame.owner))
            .map(|(page, _)| page)
            .collect();
        for page in orphans {
            self.frames.remove(page);
        }
    }
}
