//! Adoption: memory of a process is registered with its userfaultfd, and the policy is told of it.
//!
//! Which mappings there are is read first, and by the time that they are registered the program may have changed them: of a heap that has just shrunk only what is left
//! gets registered. The kernel tells of no change to memory that is not registered. So the mappings are read once more, and the policy is told of a range only if it is one mapping then: at least a page of
//! it has been registered, and a mapping is registered whole or not at all. Then its pages are listed, and after that no change of what is registered may be unread. Otherwise pages could be taken from
//! memory that is not registered, and the program would find zeros at their places.

use super::Agent;
use super::process::Process;
use crate::delays;
use crate::procfs::{self, Mapping};
use crate::uffd::Watch as Mode;
use loam_core::borrower::{BaseRange, SpaceKey};
use loam_core::units::BASE_PAGE_BYTES;
use rustix::io::Errno;
use rustix::process::Pid;

const MADV_NOHUGEPAGE: u32 = 15;
/// Mappings of at least this much are adopted first where several processes have grown (more than a thread's stack, of which there may be hundreds among the libraries).
const LARGE_BYTES: u64 = 16 << 20;

/// What has been registered, and the policy has not been told of.
#[derive(Debug)]
struct Registered {
    part: BaseRange,
    /// Pages that are not to leave.
    stays: Vec<BaseRange>,
}

/// The range is within one mapping of a kind that is adopted. `mappings`: in the order of their addresses.
fn is_one_mapping(mappings: &[Mapping], range: BaseRange) -> bool {
    let (start, end) = (range.start << 12, range.end << 12);
    let at = mappings.partition_point(|mapping| mapping.end <= start);
    mappings.get(at).is_some_and(|of| of.start <= start && end <= of.end && of.looks_adoptable())
}

/// What is left of the parts.
pub(super) fn without<'a>(
    parts: Vec<BaseRange>,
    holes: impl IntoIterator<Item = &'a BaseRange>,
) -> Vec<BaseRange> {
    holes.into_iter().fold(parts, |parts, hole| parts.into_iter().flat_map(|p| p.without(*hole)).collect())
}

/// A mapping of the range is one that children are to find empty, or, where no forks are reported, not at all. True also where nobody can say.
fn keeps_some(pid: Pid, range: BaseRange, fork_events: bool) -> bool {
    let (start, end) = (range.start << 12, range.end << 12);
    procfs::flags_up_to(pid, end - 1).map_or(true, |details| {
        let mut within = details.iter().filter(|of| of.mapping.start < end && of.mapping.end > start);
        within.any(|of| of.flags.has("wf") || !fork_events && of.is_hidden_by_program(false))
    })
}

/// Why what a program has as one mapping stays several ([`loam_hand::call::MAKE_WHOLE`]).
#[derive(Debug)]
pub(super) enum Apart {
    /// Or is none of adoption's doing, as there is none.
    NothingAdopted,
    /// The program has taken a part of it back.
    LetGo,
    Otherwise(#[expect(dead_code, reason = "for the log")] &'static str),
}

impl Apart {
    pub(super) fn errno(&self) -> Errno {
        match self {
            Self::NothingAdopted => Errno::NOENT,
            Self::LetGo => Errno::PERM,
            Self::Otherwise(_) => Errno::FAULT,
        }
    }
}

impl Agent<'_> {
    /// Adopts what can be adopted of these processes.
    ///
    /// Each look takes milliseconds, most of it for the kernel to list the pages of hundreds of libraries, while the others fill what they have mapped at full speed: of four that begin at
    /// once, the last had 80 MB more by then. So the large mappings of all of them come first; the kernel puts those below the libraries, where few are to be listed before them.
    pub(super) fn adopt_all(&mut self, keys: &[SpaceKey]) {
        if keys.len() > 1 && self.config.region.is_none() {
            for &key in keys {
                if let Some(pid) = self.adoptable_now(key)
                    && let Some(last) = self.adopt_grown(key, pid, false, LARGE_BYTES)
                {
                    self.adopt_others(key, pid, last);
                }
            }
        }
        for &key in keys {
            self.adopt(key);
        }
    }

    /// The process, if its memory may be adopted now; `None` where its mappings are just changing, it is about to fork, or what is registered is not what the policy knows.
    fn adoptable_now(&self, key: SpaceKey) -> Option<Pid> {
        let process = self.processes.get(&key)?;
        let may = process.may_be_adopted() && process.hand.as_ref().is_none_or(|hand| hand.forks == 0);
        process.pid.filter(|_| may && !process.adoption_unsure)
    }

    /// Adopts what can be adopted of a process. False: not all of it, as its mappings are just changing; soon, then.
    pub(super) fn adopt(&mut self, key: SpaceKey) -> bool {
        let Some(process) = self.processes.get_mut(&key) else { return true };
        let Some(pid) = process.pid else { return true };
        if !process.may_be_adopted() {
            return false;
        }
        let unsure = std::mem::take(&mut process.adoption_unsure);
        if process.hand.as_ref().is_some_and(|hand| hand.forks > 0) {
            return true; // what is adopted now would be hidden from the child
        }
        if self.config.region.is_some() {
            self.adopt_region(key, pid);
        } else if let Some(last) = self.adopt_grown(key, pid, unsure, self.watch.adopt_bytes_min())
            && !self.adopt_others(key, pid, last)
        {
            return false;
        }
        self.set_looked_at(key);
        self.processes.get(&key).is_none_or(|process| !process.adoption_unsure)
    }

    /// Adopts mappings of which nothing was adopted before; the last of them begins at address `last`. False: they cannot be read now.
    fn adopt_others(&mut self, key: SpaceKey, pid: Pid, last: u64) -> bool {
        let adopted = self.borrower.ranges(key);
        let mut registered = Vec::new();
        let least = self.watch.adopt_bytes_min();
        let Ok(details) = procfs::flags_up_to(pid, last) else { return false };
        if let Some(process) = self.processes.get_mut(&key) {
            process.keeps_from_children |= details.iter().any(|detail| detail.is_kept_from_children());
        }
        let blocks = procfs::control_blocks(pid);
        let mut below = None;
        for detail in details {
            let mapping = detail.mapping;
            let end = procfs::stack_end(&mapping, detail.flags, below.replace(mapping).as_ref());
            let whole = mapping.pages();
            let touches = adopted
                .iter()
                .any(|r| r.end == whole.start || r.start == whole.end || !r.intersect(whole).is_empty());
            // Where memory is hidden from children by us, what the program itself hides must stay apart.
            let hidden = !self.fork_events && detail.is_hidden_by_program(false);
            if !hidden && procfs::adoptable(&mapping, detail.flags, touches, least).is_ok() {
                let last = [(end, mapping.end)];
                let stays: Vec<BaseRange> = blocks
                    .iter()
                    .chain(&last)
                    .map(|(start, end)| BaseRange::new(start >> 12, end >> 12).intersect(whole))
                    .filter(|range| !range.is_empty())
                    .collect();
                self.register_mapping(key, whole, &stays, &mut registered);
            }
        }
        self.adopt_registered(key, pid, registered);
        true
    }

    /// Adopts what adopted memory has grown by: a heap that fills at full speed cannot wait for a look at every page of
    /// the process. Returns where the last mapping of another kind begins that is to be looked at, of so many bytes or (where few are asked for) next to adopted memory. `unsure`: some may be registered of which the
    /// policy knows nothing but pages that were touched since.
    fn adopt_grown(&mut self, key: SpaceKey, pid: Pid, unsure: bool, bytes_min: u64) -> Option<u64> {
        let mappings = procfs::mappings(pid).ok()?;
        let process = self.processes.get_mut(&key).expect("the caller has it");
        process.released.keep(mappings.iter().map(Mapping::pages));
        let window = process.window;
        self.take_back(key, mappings.iter().map(Mapping::pages));
        let (mut registered, mut last) = (Vec::new(), None);
        for mapping in mappings.iter().filter(|m| m.looks_adoptable()) {
            let whole = mapping.pages();
            let adopted = |base| self.borrower.is_adopted(key, base);
            let is_known = adopted(whole.start) && adopted(whole.end - 1);
            if is_known && (!unsure || self.left(key, whole).is_empty()) || whole.intersect(window) == whole {
                continue; // whole, or a hole in it that the program keeps for itself; or our own
            }
            // Of one mapping, the flags are one. What a heap grows by is a new mapping at first.
            let is_next = adopted(whole.start.saturating_sub(1))
                || registered.last().is_some_and(|last: &Registered| last.part.end == whole.start);
            let grew = mapping.is_heap() && is_next || adopted(whole.start) && (!unsure || mapping.is_heap());
            if self.fork_events && grew {
                self.register_mapping(key, whole, &[], &mut registered);
            } else {
                let adjacent = adopted(whole.end) || adopted(whole.start) || is_next;
                if adjacent && bytes_min < LARGE_BYTES || mapping.bytes() >= bytes_min {
                    last = Some(mapping.start);
                }
            }
        }
        self.adopt_registered(key, pid, registered);
        last
    }

    /// Adopts what is not yet adopted of a process's region.
    fn adopt_region(&mut self, key: SpaceKey, pid: Pid) {
        let Some(region) = self.processes.get(&key).and_then(|process| process.region) else { return };
        let adopted: u64 = self.borrower.ranges(key).iter().map(|r| r.intersect(region).len()).sum();
        if adopted == region.len() {
            return;
        }
        let Ok(details) = procfs::flags(pid) else { return };
        let mut registered = Vec::new();
        for detail in details {
            let mapping = detail.mapping;
            let part = mapping.pages().intersect(region);
            // Where memory is hidden from children by us, what the program itself hides must stay apart.
            let hidden = !self.fork_events && detail.is_hidden_by_program(false);
            // The region is large enough: a piece of it is small only because the program protects or locks its neighbours.
            if !part.is_empty() && !hidden && procfs::adoptable(&mapping, detail.flags, true, 0).is_ok() {
                self.register_mapping(key, part, &[], &mut registered);
            }
        }
        self.adopt_registered(key, pid, registered);
    }

    fn set_looked_at(&mut self, key: SpaceKey) {
        let Some(process) = self.processes.get_mut(&key) else { return };
        if process.adoption_unsure {
            return; // to be looked at again soon
        }
        let figures = process.statm.as_ref().and_then(|statm| statm.read().ok()).unwrap_or_default();
        process.waited_in_vain = false;
        process.looked_at_pages = figures.may_be_adopted().saturating_sub(self.borrower.local_in(key).0);
        self.tell_limits(key);
    }

    /// What of a mapping the policy does not know, and may.
    fn left(&self, key: SpaceKey, whole: BaseRange) -> Vec<BaseRange> {
        let process = &self.processes[&key];
        let adopted = self.borrower.ranges(key);
        let kept = [process.window, BaseRange::new(process.probe, process.probe + 1)];
        let holes = adopted.iter().chain(process.released.iter()).chain(&process.letting_go).chain(&kept);
        without(vec![whole], holes.filter(|hole| !hole.intersect(whole).is_empty()))
    }

    /// Registers what of a mapping is not. The pages of `stays` are not to leave.
    fn register_mapping(
        &mut self,
        key: SpaceKey,
        whole: BaseRange,
        stays: &[BaseRange],
        registered: &mut Vec<Registered>,
    ) {
        // (While the list is read a mapping may grow, and be in it twice, one line after the other.)
        let twice = registered.iter().rev().take_while(|of| of.part.end > whole.start).map(|of| &of.part);
        let parts = without(self.left(key, whole), twice);
        let process = self.processes.get_mut(&key).expect("the caller has it");
        for part in parts {
            // Children that nobody tells of share nothing that is adopted.
            let mode = if self.fork_events { Mode::Pages } else { Mode::Missing };
            if process.uffd.register(part.start << 12..part.end << 12, mode).is_err() {
                continue; // the program's own userfaultfd has it, or it has just changed
            }
            if let Some(hand) = &mut process.hand {
                match process.region {
                    // The rest of the program keeps its huge pages, and no part of a region is moved.
                    Some(_) => hand.advise(&[part], MADV_NOHUGEPAGE),
                    // All of the process's: advice on this part would come after a while, and what it has grown by meanwhile would be a mapping by itself.
                    None => hand.turn_off_huge_pages(),
                }
                if !self.fork_events {
                    // A child made behind libc's back must not find the mapping, where it would read zeros.
                    hand.hide(&[part]);
                }
            }
            registered.push(Registered { part, stays: stays.to_vec() });
        }
    }

    /// The program moves or resizes what it has as one mapping, and the kernel has found several (`mremap`: EFAULT): a part of it was adopted when it had just grown. Makes them
    /// one again, if not at once; the policy hears of the rest at the next look.
    pub(super) fn make_whole(&mut self, key: SpaceKey, pid: Pid, range: BaseRange) -> Result<(), Apart> {
        let made = self.try_to_make_whole(key, pid, range);
        tracing::debug!(?key, ?range, ?made, "to be whole");
        made.map(drop)
    }

    /// The ranges that were registered for it, or why it is in parts.
    fn try_to_make_whole(
        &mut self,
        key: SpaceKey,
        pid: Pid,
        range: BaseRange,
    ) -> Result<Vec<BaseRange>, Apart> {
        let Some(process) = self.processes.get_mut(&key) else { return Err(Apart::NothingAdopted) };
        if self.config.region.is_some() || !self.watch.is_pressed() {
            return Err(Apart::NothingAdopted);
        }
        let mappings = procfs::mappings(pid).map_err(|_| Apart::Otherwise("mappings cannot be read"))?;
        let (mut at, mut parts) = (range.start << 12, Vec::new());
        for mapping in mappings.iter().skip_while(|mapping| mapping.end <= range.start << 12) {
            if mapping.start > at || !mapping.looks_adoptable() {
                return Err(Apart::Otherwise("of another kind"));
            }
            let part = mapping.pages();
            let mut let_go = process.released.iter().chain(&process.letting_go);
            if let_go.any(|of| !of.intersect(part).is_empty()) {
                return Err(Apart::LetGo);
            }
            parts.push(part);
            at = mapping.end;
            if at >= range.end << 12 {
                break;
            }
        }
        if at < range.end << 12 {
            return Err(Apart::Otherwise("not mapped"));
        }
        // What was let go may have moved since, of which the kernel tells nobody; what children are to find empty would have the parent's pages in them.
        if process.keeps_from_children && keeps_some(pid, range, self.fork_events) {
            return Err(Apart::LetGo);
        }
        if process.hand.as_ref().is_some_and(|hand| hand.forks > 0) {
            return Ok(Vec::new()); // later: what is adopted now would be hidden from the child
        }
        let mode = if self.fork_events { Mode::Pages } else { Mode::Missing };
        for part in &parts {
            let addresses = part.start << 12..part.end << 12;
            process.uffd.register(addresses, mode).map_err(|_| Apart::Otherwise("cannot be registered"))?;
        }
        if let Some(hand) = process.hand.as_mut().filter(|_| !self.fork_events) {
            hand.hide(&parts);
        }
        process.adoption_unsure = true;
        Ok(parts)
    }

    /// Whether a new mapping would be as all of the range is.
    pub(super) fn may_copy(&self, pid: Pid, range: BaseRange) -> bool {
        if range.is_empty() {
            return false;
        }
        let Ok(details) = procfs::flags_up_to(pid, (range.end << 12) - 1) else { return false };
        let mut at = range.start << 12;
        for detail in details.iter().skip_while(|detail| detail.mapping.end <= range.start << 12) {
            if detail.mapping.start > at || !detail.is_plain(self.fork_events) {
                return false;
            }
            at = detail.mapping.end;
            if at >= range.end << 12 {
                return true;
            }
        }
        false
    }

    /// Tells the policy of what has been registered, as far as that is known of all of it (see the module's documentation); the rest at a later look.
    fn adopt_registered(&mut self, key: SpaceKey, pid: Pid, registered: Vec<Registered>) {
        if registered.is_empty() {
            return;
        }
        delays::maybe(2);
        let mappings = procfs::mappings(pid).unwrap_or_default();
        delays::maybe(2);
        let (sure, unsure): (Vec<_>, Vec<_>) =
            registered.into_iter().partition(|of| is_one_mapping(&mappings, of.part));
        let process = self.processes.get_mut(&key).expect("the caller has it");
        // Listed before another event is read: a discard that is under way comes after this, and clears it again.
        let listed: Vec<_> = sure.into_iter().map(|of| (of.part, present(process, &of))).collect();
        delays::maybe(2);
        // A fork, maybe: the kernel has had us wait until the child had its copy, and so is likelier here than anywhere. If the child's is
        // not registered, what the hand took from it would read as zeros. It stays
        // registered: by now it may be another mapping, moved here, that was registered before. A fault there, in a child too, is
        // of memory that was never taken, and is answered page by page.
        let is_changing = process.uffd.is_changing(process.probe << 12);
        if is_changing || !unsure.is_empty() {
            tracing::debug!(is_changing, ?unsure, "adoption unsure");
            process.adoption_unsure = true;
        }
        if is_changing {
            return;
        }
        for (part, present) in listed {
            tracing::debug!(?part, present = present.iter().map(|r| r.len()).sum::<u64>(), "adopted");
            let now = self.now();
            self.borrower.handle_adopted(now, key, part, &present);
            self.drain();
        }
    }
}

/// Those pages of what has been registered that are there and may leave.
fn present(process: &Process, registered: &Registered) -> Vec<BaseRange> {
    let part = registered.part;
    let mut present = Vec::new();
    let listed = process.pagemap.as_ref().map(|p| p.present(part.start << 12, part.end << 12, &mut present));
    if !matches!(listed, Some(Ok(()))) {
        tracing::debug!(?part, ?listed, "not listed");
        present.clear();
    }
    // What stays is empty to the policy, which chooses nothing of that to leave, and installs zeros only where there is no page: so the
    // mapping stays one, for an `mremap` of all of it. (Not in there yet, it will come by a fault and be as any other; those are few.)
    let bytes = BASE_PAGE_BYTES as u64;
    let runs = present.iter().map(|&(start, end)| BaseRange::new(start / bytes, end / bytes)).collect();
    without(runs, &registered.stays)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uffd::{Uffd, open_device};
    use rustix::fd::AsFd;

    const PAGES: u64 = 8;
    /// Far below where the kernel puts mappings by itself: what is not mapped here stays so, whatever other tests do.
    const AREA: u64 = 0x1000_0000_0000;

    fn call(answer: *mut libc::c_void) {
        assert_ne!(answer, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    }

    /// Maps private memory at pages of `AREA`, where nothing is.
    fn map(pages: BaseRange) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let at = std::ptr::without_provenance_mut((AREA + (pages.start << 12)) as usize);
        // SAFETY: a new mapping that takes no other's place, which the flag asks for.
        call(unsafe {
            libc::mmap(at, (pages.len() << 12) as usize, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        });
    }

    fn unmap(pages: BaseRange) {
        let at = std::ptr::without_provenance_mut((AREA + (pages.start << 12)) as usize);
        // SAFETY: what `map` has made, to which no reference exists.
        assert_eq!(unsafe { libc::munmap(at, (pages.len() << 12) as usize) }, 0);
    }

    /// The same in the numbers of the policy.
    fn there(pages: BaseRange) -> BaseRange {
        BaseRange::new((AREA >> 12) + pages.start, (AREA >> 12) + pages.end)
    }

    /// A heap is read to end at `AREA` + 8 pages, shrinks, is registered, and has grown again when its pages are listed: of that, `grown` is not registered.
    #[test]
    fn what_has_shrunk_and_grown_meanwhile_is_not_adopted() {
        let uffd = match open_device().and_then(|device| Uffd::from_device(device.as_fd())) {
            Ok(uffd) => uffd,
            Err(error) => {
                println!("skipped: {error}");
                return;
            }
        };
        uffd.api(0).unwrap();
        let me = rustix::process::getpid();
        let one = |range| is_one_mapping(&procfs::mappings(me).unwrap(), range);
        let (all, kept, gone) =
            (BaseRange::new(0, PAGES), BaseRange::new(0, PAGES - 3), BaseRange::new(PAGES - 3, PAGES));
        map(all);
        assert!(one(there(all)));
        unmap(gone);
        // The kernel registers what there is of the range, and says that all is well.
        uffd.register(there(all).start << 12..there(all).end << 12, Mode::Missing).unwrap();
        assert!(!one(there(all)), "a hole in it");
        map(gone);
        assert!(!one(there(all)), "two mappings, of which one is not registered");
        assert!(one(there(kept)) && one(there(gone)));
        // The next look finds the rest.
        uffd.register(there(gone).start << 12..there(gone).end << 12, Mode::Missing).unwrap();
        assert!(one(there(all)), "joined, as both are registered");
        unmap(all);
        assert!(!one(there(all)));
    }

    #[test]
    fn only_memory_that_is_adopted_counts() {
        let line = |text| Mapping::parse(text).unwrap();
        let mappings = [
            line("1000-4000 rw-p 00000000 00:00 0 [heap]"),
            line("4000-6000 r--p 00000000 00:00 0 "),
            line("6000-9000 rw-s 00000000 00:01 17 /memfd:x (deleted)"),
            line("a000-c000 rw-p 00000000 00:00 0 "),
        ];
        let one = |start, end| is_one_mapping(&mappings, BaseRange::new(start, end));
        assert!(one(1, 4) && one(2, 3) && one(0xa, 0xc));
        assert!(
            !one(0, 2)
                && !one(3, 5)
                && !one(4, 6)
                && !one(6, 9)
                && !one(8, 0xb)
                && !one(0xb, 0xd)
                && !one(0xd, 0xe)
        );
    }
}
