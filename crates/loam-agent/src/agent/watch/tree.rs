//! Who is in the tree, and who of them runs without Loam.

use super::super::Agent;
use super::super::join::Peer;
use crate::procfs::{self, Statm};
use loam_core::units::{Duration, Instant};
use rustix::process::Pid;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A process that has the shim and has not come for so long is taken for one that runs without Loam. (GDAL's 115 libraries take 60 ms on an idle processor until the shim starts, and several times
/// that on a busy one.)
const STARTS_MAX: Duration = Duration::from_millis(1_000);
/// So many programs that ran without Loam are named.
const NAMES_MAX: usize = 8;

/// Processes of the tree that are not under Loam, or not yet.
#[derive(Default)]
pub(super) struct Strangers {
    here: HashMap<Pid, Stranger>,
    /// Those of them that are neither just made nor ending.
    seen: HashMap<Pid, Seen>,
    /// How many have run without Loam, in all.
    pub(super) without_loam: u64,
    /// The programs of the first few, and how often each ran.
    names: BTreeMap<String, u64>,
}

struct Stranger {
    statm: Statm,
    /// Whose memory it has: it was made by `vfork`, and has not executed its program. That counts there.
    of: Option<Pid>,
}

/// A stranger that was seen twice.
struct Seen {
    /// When it was the second time.
    since: Instant,
    /// The shim is in it: its libraries may still be linked and started, and it comes when they have been.
    has_shim: bool,
    /// Its program, when it was seen last.
    name: String,
    /// It counts as one that runs without Loam.
    counted: bool,
    /// Its program is among those that are named.
    named: bool,
}

/// Base pages of all strangers.
#[derive(Default)]
pub(super) struct StrangerPages {
    pub(super) pages: u64,
    /// Of those: of strangers that were seen once only.
    pub(super) newcomers: u64,
    /// Of files and shared memory.
    pub(super) files: u64,
}

impl Stranger {
    fn new(pid: Pid, statm: Statm) -> Self {
        let parent = procfs::stat(pid).ok().and_then(|stat| stat.parent);
        Self { statm, of: parent.filter(|&parent| procfs::have_one_memory(pid, parent)) }
    }

    /// It has memory of its own, by now.
    fn is_by_itself(&mut self, pid: Pid) -> bool {
        self.of = self.of.filter(|&parent| procfs::have_one_memory(pid, parent));
        self.of.is_none()
    }
}

impl Strangers {
    /// It is there for the second time, or more. It runs without Loam, unless it has the shim and has not taken long yet.
    fn saw_again(
        &mut self,
        pid: Pid,
        now: Instant,
        has_shim: impl FnOnce() -> bool,
        name: impl FnOnce() -> String,
    ) {
        let new = || Seen { since: now, has_shim: false, name: String::new(), counted: false, named: false };
        let seen = self.seen.entry(pid).or_insert_with(new);
        if seen.counted {
            return;
        }
        (seen.has_shim, seen.name) = (has_shim(), name());
        if !seen.has_shim || now >= seen.since + STARTS_MAX {
            self.count(pid);
        }
    }

    fn count(&mut self, pid: Pid) {
        let Some(seen) = self.seen.get_mut(&pid).filter(|seen| !seen.counted) else { return };
        seen.counted = true;
        self.without_loam += 1;
        if self.names.len() < NAMES_MAX || self.names.contains_key(&seen.name) {
            seen.named = true;
            *self.names.entry(seen.name.clone()).or_default() += 1;
        }
    }

    /// It is served now.
    pub(super) fn joined(&mut self, pid: Pid) {
        self.here.remove(&pid);
        let Some(seen) = self.seen.remove(&pid).filter(|seen| seen.has_shim && seen.counted) else { return };
        // It has only taken long to start.
        self.without_loam -= 1;
        if let Some(times) = self.names.get_mut(&seen.name).filter(|_| seen.named) {
            *times -= 1;
            self.names.retain(|_, times| *times > 0);
        }
    }

    /// Forgets those that are not there any more. Who had taken time to start, and has ended, has run without Loam. (Their numbers may be others' by and by.)
    fn keep(&mut self, is_there: impl Fn(Pid) -> bool) {
        let ended: Vec<Pid> = self.seen.keys().copied().filter(|&pid| !is_there(pid)).collect();
        for pid in ended {
            self.count(pid);
            self.seen.remove(&pid);
        }
    }

    /// All have ended.
    pub(super) fn end(&mut self) {
        self.keep(|_| false);
    }

    /// The programs of those that have run without Loam, the first few.
    pub(super) fn names(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    /// Those that have memory of their own.
    pub(super) fn statms(&self) -> impl Iterator<Item = (Pid, &Statm)> {
        let own = self.here.iter().filter(|(_, stranger)| stranger.of.is_none());
        own.map(|(&pid, stranger)| (pid, &stranger.statm))
    }
}

impl Agent<'_> {
    /// Who is there, and who of them is without a hand.
    pub(super) fn look_at_tree(&mut self) {
        let now = self.now();
        let tree = self.tree();
        let known: Vec<Pid> =
            self.processes.values().filter(|p| p.statm.is_some()).filter_map(|p| p.pid).collect();
        let strangers = &mut self.watch.strangers;
        strangers.here.retain(|pid, _| tree.contains(pid) && !known.contains(pid));
        // (The list may miss one that lives.)
        strangers.keep(|pid| tree.contains(&pid) || Statm::open(pid).is_ok());
        let joining: Vec<Pid> = self.peers.values().map(Peer::pid).collect();
        for &pid in tree.iter().filter(|pid| !known.contains(pid)) {
            // One that has ended is there until somebody waits for it, without memory.
            if let Ok(statm) = Statm::open(pid)
                && statm.resident_pages().is_ok_and(|pages| pages > 0)
            {
                let stranger = Stranger::new(pid, statm);
                let is_by_itself = stranger.of.is_none();
                let before = strangers.here.insert(pid, stranger);
                // Seen twice: it is not just made, or ending.
                if before.is_some_and(|before| before.of.is_none()) && is_by_itself && !joining.contains(&pid)
                {
                    let has_shim = || procfs::has_mapped(pid, &self.config.shim);
                    strangers.saw_again(pid, now, has_shim, || procfs::name(pid).unwrap_or_default());
                }
            }
        }
    }

    pub(super) fn count_strangers(&mut self) -> StrangerPages {
        let mut all = StrangerPages::default();
        let ending: HashSet<Pid> =
            self.watch.strangers.here.keys().copied().filter(|pid| self.is_ending(*pid)).collect();
        let strangers = &mut self.watch.strangers;
        for (&pid, stranger) in strangers.here.iter_mut().filter(|(pid, _)| !ending.contains(pid)) {
            if !stranger.is_by_itself(pid) {
                continue;
            }
            let figures = stranger.statm.read().unwrap_or_default();
            all.pages += figures.resident_pages;
            all.files += figures.file_pages;
            all.newcomers += if strangers.seen.contains_key(&pid) { 0 } else { figures.resident_pages };
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(raw: i32) -> Pid {
        Pid::from_raw(raw).unwrap()
    }

    fn at(ms: u64) -> Instant {
        Instant(0) + Duration::from_millis(ms)
    }

    fn named(name: &str) -> impl FnOnce() -> String {
        let name = name.to_owned();
        move || name
    }

    fn state(strangers: &Strangers) -> (u64, Vec<String>) {
        (strangers.without_loam, strangers.names())
    }

    #[test]
    fn who_has_no_shim_is_counted_at_once_and_stays_so() {
        let mut strangers = Strangers::default();
        strangers.saw_again(pid(1), at(0), || false, named("one"));
        strangers.saw_again(pid(1), at(100), || unreachable!("it is known"), named("two"));
        assert_eq!(state(&strangers), (1, vec!["one".into()]));
        // It executes another program, which has.
        strangers.joined(pid(1));
        assert_eq!(state(&strangers), (1, vec!["one".into()]));
    }

    #[test]
    fn who_has_the_shim_has_time_to_start_it() {
        let mut strangers = Strangers::default();
        for ms in [0, 100, 999] {
            strangers.saw_again(pid(1), at(ms), || true, named("one"));
        }
        strangers.joined(pid(1));
        // Its number again, by another.
        strangers.saw_again(pid(1), at(2_000), || true, named("two"));
        assert_eq!(state(&strangers), (0, vec![]));
        strangers.saw_again(pid(1), at(3_000), || true, named("two"));
        assert_eq!(state(&strangers), (1, vec!["two".into()]));
    }

    #[test]
    fn who_has_taken_longer_than_that_is_taken_back() {
        let mut strangers = Strangers::default();
        for (number, name) in [(1, "one"), (2, "one"), (3, "three")] {
            strangers.saw_again(pid(number), at(0), || true, named(name));
            strangers.saw_again(pid(number), at(1_000), || true, named(name));
        }
        assert_eq!(state(&strangers), (3, vec!["one".into(), "three".into()]));
        strangers.joined(pid(1));
        strangers.joined(pid(3));
        strangers.joined(pid(3));
        assert_eq!(state(&strangers), (1, vec!["one".into()]));
    }

    #[test]
    fn so_many_are_named() {
        let mut strangers = Strangers::default();
        for number in 1..=20 {
            strangers.saw_again(pid(number), at(0), || false, named(&format!("{number:02}")));
        }
        strangers.saw_again(pid(21), at(0), || false, named("01"));
        assert_eq!((strangers.without_loam, strangers.names().len()), (21, NAMES_MAX));
        assert_eq!(strangers.names["01"], 2);
        // One that had no place among them takes none away.
        strangers.saw_again(pid(22), at(0), || true, named("99"));
        strangers.saw_again(pid(22), at(1_000), || true, named("99"));
        strangers.joined(pid(22));
        assert_eq!((strangers.without_loam, strangers.names().len()), (21, NAMES_MAX));
    }

    #[test]
    fn who_has_ended_and_never_came_has_run_without_loam() {
        let mut strangers = Strangers::default();
        for number in 1..=3 {
            strangers.saw_again(pid(number), at(0), || number != 2, named(&number.to_string()));
        }
        strangers.joined(pid(3));
        strangers.keep(|of| of == pid(1));
        assert_eq!(state(&strangers), (1, vec!["2".into()]));
        strangers.end();
        strangers.end();
        assert_eq!(state(&strangers), (2, vec!["1".into(), "2".into()]));
    }
}
