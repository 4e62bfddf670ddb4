//! Evictions, and pages that come to be held for others (gms-1995, sections 3.2 and 4.5).

use super::{Effect, GlobalNode, PageMessage};
use crate::global::frames::{Frame, Kind};
use crate::global::placement::{Evicted, Place, RECIRCULATIONS, Room};
use crate::ids::{PageId, Version};
use crate::units::{Duration, Instant};

/// A frame taken from a page at least this old was idle memory.
const IDLE: Duration = Duration::from_millis(5_000);
/// As this old a page of a scan is put: older than what anybody uses, younger than a free frame.
const SCANNED_AGE: Duration = Duration::from_millis(600_000);

impl GlobalNode {
    /// Makes sure of a free frame for a page that this node itself uses.
    pub(super) fn take_frame(&mut self, now: Instant) {
        let idle = if self.frames.free() > 0 {
            true
        } else {
            let oldest = self.frames.oldest(now).map(|(_, frame)| self.frames.age(now, &frame));
            while self.frames.free() == 0 {
                self.evict_oldest(now);
            }
            oldest.is_some_and(|age| age >= IDLE)
        };
        if idle {
            self.consume(now, 1);
        }
    }

    /// Idle memory is idle no longer: the node's programs took it, or its machine did.
    pub(super) fn consume(&mut self, now: Instant, frames: u32) {
        self.consumed = self.consumed.saturating_add(frames);
        let weight = self.coordinator.epoch().weight(self.me);
        // Half of what it said that it had is gone: others send it pages by a weight that is wrong (section 3.2, way 3).
        if weight > 0 && u64::from(self.consumed) * 2 > u64::from(weight) {
            self.coordinator.handle_inaccurate(now);
        }
    }

    /// The oldest page leaves this node.
    ///
    /// # Panics
    /// Without pages.
    pub(super) fn evict_oldest(&mut self, now: Instant) {
        let (page, frame) = self.frames.oldest(now).expect("a node without frames has no page to evict");
        self.evict(now, page, frame);
    }

    fn evict(&mut self, now: Instant, page: PageId, mut frame: Frame) {
        let age = self.frames.age(now, &frame);
        self.frames.remove(page).expect("it is present");
        self.write_if_dirty(page, &mut frame);
        let recirculations = if frame.kind == Kind::Local { RECIRCULATIONS } else { frame.recirculations };
        let own = !frame.shared && frame.owner == self.me;
        let place = if own && self.away >= self.config.share_max {
            Place::Discard
        } else {
            self.placement.place(&Evicted { age, duplicate: frame.duplicate, recirculations })
        };
        let old = frame.kind;
        match place {
            Place::Discard => {
                self.stats.discards += 1;
                // Only what others could have had is a replacement in the cluster's sense.
                self.replaced = self.replaced.saturating_add(1);
                self.record_leave(page, &frame, None);
            }
            Place::Forward(to, recirculations) => {
                self.stats.puts += 1;
                let age = if frame.scanned { SCANNED_AGE } else { now - frame.last_used };
                frame.kind = Kind::Global;
                frame.recirculations = recirculations;
                // The record first: who gets the page may refuse it, and says so to the same directory.
                self.record_leave(page, &frame, Some(to));
                self.send(to, PageMessage::Put { page, frame, age });
            }
        }
        debug_assert!(old == Kind::Global || own || frame.shared, "a private local page is its owner's");
    }

    /// What leaves and is dirty is written; from then on only the new contents count.
    fn write_if_dirty(&mut self, page: PageId, frame: &mut Frame) {
        if !core::mem::take(&mut frame.dirty) {
            return;
        }
        assert_eq!(frame.kind, Kind::Local, "a global page is clean");
        self.stats.writes += 1;
        self.effects.push_back(Effect::WriteDisk(page));
        if !frame.shared {
            let entry = self.directory.entry(page);
            entry.version = Version(entry.version.0.checked_add(1).expect("a page was written 2^32 times"));
            frame.version = entry.version;
        }
    }

    /// Another node sent a page to be held.
    pub(super) fn hold(&mut self, now: Instant, page: PageId, frame: Frame, age: Duration) {
        let last_used = Instant(now.0.saturating_sub(self.placement.age_on_arrival(age).0));
        let arriving = Frame { kind: Kind::Global, dirty: false, last_used, ..frame };
        match self.frames.get(page) {
            // What is in use here is at least as good.
            Some(present) if present.kind == Kind::Local => return self.record_holder(page),
            // It was overtaken by a newer one.
            Some(present) if present.version > frame.version => return,
            Some(_) => {
                self.frames.remove(page).expect("it was just seen");
            }
            None => {}
        }
        self.stats.held += 1;
        match self.placement.room(now, &self.frames, &arriving) {
            Room::Free => {
                self.filled += 1;
                // A frame that a getpage has just left is no loss to the cluster: only more fills than leaves count.
                if self.filled > 0 {
                    self.coordinator.handle_replaced(now, 1);
                }
                self.insert_held(page, arriving);
            }
            Room::Replace(victim) => {
                let mut left = self.frames.remove(victim).expect("a victim is present");
                self.write_if_dirty(victim, &mut left);
                self.stats.discards += 1;
                self.record_leave(victim, &left, None);
                self.replaced = self.replaced.saturating_add(1);
                self.coordinator.handle_replaced(now, 1);
                self.insert_held(page, arriving);
            }
            Room::Older => {
                self.refuse(page, &arriving);
                // Nothing here is as old as its weight told others.
                if !arriving.scanned {
                    self.coordinator.handle_inaccurate(now);
                }
            }
            Room::Full => {
                let evicted = Evicted { age, duplicate: false, recirculations: arriving.recirculations };
                match self.placement.place(&evicted) {
                    Place::Forward(to, recirculations) => {
                        self.stats.puts += 1;
                        let frame = Frame { recirculations, ..arriving };
                        self.record_leave(page, &arriving, Some(to));
                        self.effects.push_back(Effect::Held(page));
                        self.send(to, PageMessage::Put { page, frame, age });
                    }
                    Place::Discard => self.refuse(page, &arriving),
                }
            }
        }
    }

    fn insert_held(&mut self, page: PageId, frame: Frame) {
        self.frames.insert(page, frame);
        self.effects.push_back(Effect::Held(page));
    }

    fn refuse(&mut self, page: PageId, frame: &Frame) {
        self.stats.refused += 1;
        self.stats.discards += 1;
        self.record_leave(page, frame, None);
    }
}
