//! What programs do: read and write their own pages, read files, and know what they must find.

use super::machine::{Cause, file, file_page, is_shared, owner};
use super::world::{Event, World};
use crate::fuzz::sim::FailureKind;
use loam_core::global::{Access, Kind};
use loam_core::ids::{NodeId, PageId, SpaceId};
use loam_core::units::Duration;

/// Accesses in one run at most, about: the rest of the time programs think.
const ACCESSES_MAX: u64 = 4_000;

impl World<'_> {
    /// How long a thread computes between two accesses.
    fn think(&mut self) -> Duration {
        let s = &self.script.settings;
        let all = s.threads * s.frames.len() as u64;
        let least = self.script.quiet_at.0 / 1_000 * all / ACCESSES_MAX;
        let typical = if self.quiet { 10 } else { s.think_us.max(least) };
        Duration(self.dice.delay(Duration::from_micros(typical)).0.min(1_000_000_000))
    }

    /// All threads that rest and should not go on.
    pub(super) fn wake(&mut self, id: NodeId) {
        for thread in 0..self.machines[&id].threads.len() {
            self.go_on(id, thread);
        }
    }

    fn go_on(&mut self, id: NodeId, thread: usize) {
        let delay = self.think();
        let machine = self.machines.get_mut(&id).expect("it lives");
        let state = &mut machine.threads[thread];
        if !state.scheduled {
            state.scheduled = true;
            self.after(delay, Event::Thread(id, thread));
        }
    }

    /// A thread goes on.
    pub(super) fn thread(&mut self, id: NodeId, thread: usize) {
        self.machines.get_mut(&id).expect("it lives").threads[thread].scheduled = false;
        for _ in 0..self.dice.pick(&[1, 1, 1, 4]) {
            if self.machines[&id].waiting.values().flatten().any(|&waits| waits == thread) {
                return;
            }
            let Some(access) = self.wish(id, thread) else { return };
            let machine = self.machines.get_mut(&id).expect("it lives");
            machine.threads[thread].wants = Some(access);
            let clock = self.now + machine.ahead;
            if machine.node.handle_access(clock, access) {
                self.used(id, thread);
            } else {
                machine.waiting.entry(access.page).or_default().push(thread);
            }
            self.drain(id, Cause::default());
        }
        if self.machines.get(&id).is_some_and(|machine| machine.threads[thread].wants.is_none()) {
            self.go_on(id, thread);
        }
    }

    /// What it wants next, if anything.
    fn wish(&mut self, id: NodeId, thread: usize) -> Option<Access> {
        let s = &self.script.settings;
        let machine = self.machines.get_mut(&id).expect("it lives");
        let state = &mut machine.threads[thread];
        if state.wants.is_some() {
            return state.wants;
        }
        if let Some(access) = machine.to_read.pop_front() {
            return Some(access);
        }
        if !machine.busy || self.quiet || machine.leaving {
            return None;
        }
        state.next += 1;
        let shared = self.dice.below(100) < s.shared_percent;
        let pages = if shared { s.file_pages } else { s.private };
        let index = if s.in_order { state.next % pages } else { self.dice.below(pages) };
        let write = !shared && self.dice.below(100) < s.write_percent;
        let page = if shared {
            let file = self.dice.below(s.files);
            file_page(file, self.files[file as usize], index)
        } else {
            PageId { space: SpaceId(id.0), index }
        };
        Some(Access { page, shared, write })
    }

    /// A page has come: the first who waits for it has it, the others ask again.
    pub(super) fn arrived(&mut self, id: NodeId, page: PageId) {
        let machine = self.machines.get_mut(&id).expect("it lives");
        let Some(waiting) = machine.waiting.remove(&page) else {
            return self
                .fail(FailureKind::Unsafe, || format!("{id:?}: {page:?} came, and nobody waits for it"));
        };
        self.used(id, waiting[0]);
        for thread in waiting {
            self.go_on(id, thread);
        }
    }

    /// A thread has its page: it checks what it finds, and writes.
    fn used(&mut self, id: NodeId, thread: usize) {
        self.outcome.accesses += 1;
        let machine = self.machines.get_mut(&id).expect("it lives");
        let Access { page, write, .. } = machine.threads[thread].wants.take().expect("it asked for a page");
        let local = machine.node.frames().get(page).is_some_and(|frame| frame.kind == Kind::Local);
        let found = machine.contents.get(&page).copied();
        let expected = if is_shared(page) { file(page) } else { self.truth.get(&page).copied().unwrap_or(0) };
        if found != Some(expected) || !local {
            return self.fail(FailureKind::WrongBytes, || {
                format!("{id:?} reads {page:?}: {found:?} and not {expected} (local: {local})")
            });
        }
        if write {
            self.values += 1;
            assert_eq!(owner(page), id, "programs write their own pages");
            machine.contents.insert(page, self.values);
            self.truth.insert(page, self.values);
        }
    }

    /// Everything that a machine's programs ever wrote, and all files, are to be read once more.
    pub(super) fn read_all(&mut self, id: NodeId) {
        if self.machines[&id].leaving {
            return;
        }
        let frames = self.machines[&id].frames.max(2);
        self.give_frames(id, frames);
        let read = |page| Access { page, shared: is_shared(page), write: false };
        let mine =
            PageId { space: SpaceId(id.0), index: 0 }..=PageId { space: SpaceId(id.0), index: u64::MAX };
        let mut all: Vec<Access> = self.truth.range(mine).map(|(&page, _)| read(page)).collect();
        let s = &self.script.settings;
        for file in 0..s.files.min(u64::from(s.shared_percent > 0) * s.files) {
            let version = self.files[file as usize];
            all.extend((0..s.file_pages).map(|index| read(file_page(file, version, index))));
        }
        self.machines.get_mut(&id).expect("it lives").to_read.extend(all);
        self.wake(id);
    }
}
