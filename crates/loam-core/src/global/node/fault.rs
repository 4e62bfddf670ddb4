//! Faults: the four cases (gms-1995, section 3.1), from the side of the one who faults and of the one who has the page.

use super::{Access, Effect, GlobalNode, Origin, PageMessage};
use crate::global::frames::{Frame, Kind};
use crate::global::placement::RECIRCULATIONS;
use crate::ids::{NodeId, PageId, Version};
use crate::units::Instant;

/// A page that somebody here waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    access: Access,
    /// The contents that will do, of a private page.
    version: Version,
    scanned: bool,
    /// Others are asked until then; none: the disk is.
    until: Option<Instant>,
}

impl Fault {
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now >= until)
    }

    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }
}

impl GlobalNode {
    /// A program of this node uses a page. False: it is not local; [`Effect::Arrived`] tells when it is.
    pub fn handle_access(&mut self, now: Instant, access: Access) -> bool {
        if self.frames.touch(now, access.page, access.write) {
            return true;
        }
        if self.faults.contains_key(&access.page) {
            return false;
        }
        if !access.shared {
            self.directory.entry(access.page).private = true;
        }
        let scanned = self.scans.is_scan(access.page) && self.config.scan_guard;
        let version = self.directory.get(access.page).map_or(Version(0), |entry| entry.version);
        let until = Some(now + self.config.fault_wait);
        self.faults.insert(access.page, Fault { access, version, scanned, until });
        if self.frames.get(access.page).is_some_and(|frame| frame.version == version) {
            // It is here for another, or is a file's page that was last used elsewhere.
            let frame = self.frames.remove(access.page).expect("it was just seen");
            self.install(now, access.page, frame.duplicate, Origin::Own);
            self.record_holder(access.page);
            return false;
        }
        let owner = if access.shared { self.coordinator.pod().owner(access.page) } else { None };
        match owner {
            Some(owner) if owner != self.me => {
                self.send(owner, PageMessage::Locate { page: access.page, requester: self.me });
            }
            _ => self.locate(access.page, self.me),
        }
        false
    }

    /// Someone wants a page of this node.
    pub(super) fn serve(&mut self, page: PageId, version: Version, requester: NodeId) {
        if requester == self.me {
            return self.read_disk(page);
        }
        let found = self.frames.get(page).copied().filter(|frame| frame.version == version);
        match found {
            None => self.send(requester, PageMessage::Miss { page }),
            Some(Frame { kind: Kind::Global, .. }) => {
                // "If it was a global page, the remote node deletes its entry" (section 4.5).
                self.frames.remove(page).expect("it was just seen");
                self.filled -= 1;
                self.send(requester, PageMessage::Data { page, version, duplicate: false });
            }
            Some(_) => {
                self.frames.set_duplicate(page, true);
                self.send(requester, PageMessage::Data { page, version, duplicate: true });
            }
        }
    }

    pub(super) fn take_data(&mut self, now: Instant, page: PageId, version: Version, duplicate: bool) {
        // Late data: the disk was read meanwhile, and these contents may be older than what the program made of it.
        let wanted =
            self.faults.get(&page).is_some_and(|fault| fault.until.is_some() && fault.version == version);
        if wanted {
            let origin = if duplicate { Origin::Duplicate } else { Origin::Global };
            self.install(now, page, duplicate, origin);
        }
    }

    /// Nobody has it.
    pub(super) fn read_disk(&mut self, page: PageId) {
        if let Some(fault) = self.faults.get_mut(&page)
            && fault.until.take().is_some()
        {
            self.effects.push_back(Effect::ReadDisk(page));
        }
    }

    /// The answer to [`Effect::ReadDisk`].
    ///
    /// # Panics
    /// If it was not asked for.
    pub fn handle_disk_read(&mut self, now: Instant, page: PageId) {
        let fault = self.faults.get(&page).expect("a disk is read for a fault");
        assert!(fault.until.is_none(), "the disk was not asked");
        self.install(now, page, false, Origin::Disk);
        self.drain_coordinator(now);
    }

    fn install(&mut self, now: Instant, page: PageId, duplicate: bool, origin: Origin) {
        let fault = self.faults.remove(&page).expect("somebody waits for it");
        let older = self.frames.remove(page);
        debug_assert!(older.is_none_or(|frame| frame.kind == Kind::Global), "a local page was waited for");
        self.take_frame(now);
        let frame = Frame {
            kind: Kind::Local,
            shared: fault.access.shared,
            owner: self.me,
            version: fault.version,
            duplicate,
            dirty: fault.access.write,
            scanned: fault.scanned,
            recirculations: RECIRCULATIONS,
            last_used: now,
        };
        self.frames.insert(page, frame);
        let count = match origin {
            Origin::Own => &mut self.stats.own,
            Origin::Global => &mut self.stats.global,
            Origin::Duplicate => &mut self.stats.duplicate,
            Origin::Disk => &mut self.stats.disk,
        };
        *count += 1;
        self.effects.push_back(Effect::Arrived { page, origin });
    }
}
