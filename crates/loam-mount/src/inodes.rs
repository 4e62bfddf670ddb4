//! Which files the kernel knows, under which numbers.
//!
//! A file's number is its inode number at the source, so that `ls -i`, hard links and `find -samefile` show what they show there. Numbers
//! that would mean two things (files of other devices below the source, the numbers 0 and 1) are replaced by ones from the upper half.
//! The kernel counts how often it was given a number and says when it forgets; a file with no count left is dropped
//! here too, so the table is as large as the kernel's own.
//!
//! When an inode number at the source is given to another file, the number here gets another generation: the kernel then keeps
//! nothing of the first file for the second.

use crate::source::{Place, stat_of};
use crate::stat::{Stat, Version};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The number of the source itself.
pub(crate) const ROOT_ID: u64 = 1;
/// From here on numbers are ours; no file system is known that goes so far.
const OWN_IDS: u64 = 1 << 63;

/// What is known of a file.
#[derive(Debug)]
pub(crate) struct NodeState {
    /// Where it was found last.
    pub(crate) place: Arc<Place>,
    /// As it was seen last.
    pub(crate) stat: Stat,
    pub(crate) generation: u64,
    /// What its pages are cached under.
    pub(crate) version: Arc<Version>,
    /// The kernel is known to hold no pages of another version: see [`Node::proven`].
    proven: bool,
    /// As all who have it open have it open at the source.
    open: Vec<Weak<OwnedFd>>,
}

/// One file.
#[derive(Debug)]
pub(crate) struct Node {
    /// The kernel's number for it.
    pub(crate) id: u64,
    state: Mutex<NodeState>,
}

impl Node {
    pub(crate) fn state(&self) -> MutexGuard<'_, NodeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it was found last.
    pub(crate) fn place(&self) -> Arc<Place> {
        Arc::clone(&self.state().place)
    }

    /// The version of it that is shown.
    pub(crate) fn version(&self) -> Arc<Version> {
        Arc::clone(&self.state().version)
    }

    /// Somebody has it open at the source.
    pub(crate) fn opened(&self, file: &Arc<OwnedFd>) {
        let mut state = self.state();
        state.open.retain(|file| file.strong_count() > 0);
        state.open.push(Arc::downgrade(file));
    }

    /// The file as somebody has it open at the source, if anybody has.
    pub(crate) fn as_open(&self) -> Option<Arc<OwnedFd>> {
        self.state().open.iter().find_map(Weak::upgrade)
    }

    /// Is a file with its number still this one, as far as can be told?
    ///
    /// Where the source does not say when an inode was made (NFSv3), a file that was changed and one that was given the number anew look alike.
    /// Then whoever has this one open is asked: of a removed file the server knows nothing, and what is remembered of it is older.
    pub(crate) fn is_same(&self, stat: &Stat) -> bool {
        let known = self.state().stat.clone();
        if !stat.is_inode_of(&known) {
            return false;
        }
        if stat.says_when_made() || stat.ctime == known.ctime {
            return true;
        }
        match self.as_open().map(stat_of) {
            Some(Ok(open)) => open.ctime >= stat.ctime,
            Some(Err(error)) => error != Errno::STALE,
            None => true,
        }
    }

    /// A handle that was opened without the kernel's keeping its pages, when this version was settled, has been used or closed: the kernel had
    /// dropped what it had before it gave the handle out. Only then may the next open of the same version keep them. (Until then another thread's reply,
    /// made while the first opening is on its way, could keep pages of the version before.)
    pub(crate) fn proven(&self, version: &Version) {
        let mut state = self.state();
        if *state.version == *version {
            state.proven = true;
        }
    }

    /// May the kernel keep the pages that it has?
    pub(crate) fn is_proven(&self, version: &Version) -> bool {
        let state = self.state();
        state.proven && *state.version == *version
    }
}

#[derive(Debug)]
struct Entry {
    node: Arc<Node>,
    /// How often the kernel was given the number and has not given it back.
    lookups: u64,
    /// Its device and inode, if the number is one of ours.
    own: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Table {
    entries: HashMap<u64, Entry>,
    /// Numbers of ours, by device and inode.
    own: HashMap<(u64, u64), u64>,
    own_last: u64,
    /// Which file was found last at a place.
    places: HashMap<Arc<Place>, u64>,
}

impl Table {
    /// The number of a file of this device and inode, and what it is kept under if it is one of ours.
    fn number(&mut self, stat: &Stat, home: bool) -> (u64, Option<(u64, u64)>) {
        if home && (ROOT_ID + 1..OWN_IDS).contains(&stat.ino) {
            return (stat.ino, None);
        }
        // The device by which it was found first: after the source was mounted again, files get new numbers here.
        let of_source = (stat.dev, stat.ino);
        let Self { own, own_last, .. } = self;
        let id = *own.entry(of_source).or_insert_with(|| {
            *own_last += 1;
            *own_last
        });
        (id, Some(of_source))
    }

    /// A file was found as `name` in `parent`.
    fn is_at(&mut self, node: &Node, parent: &Arc<Place>, name: &OsStr) {
        let mut state = node.state();
        if !state.place.is(parent, name) {
            let place = std::mem::replace(&mut state.place, parent.child(name));
            self.leaves(node.id, &place);
        }
        self.places.insert(Arc::clone(&state.place), node.id);
    }

    fn leaves(&mut self, id: u64, place: &Place) {
        if self.places.get(place) == Some(&id) {
            self.places.remove(place);
        }
    }
}

/// The files that the kernel knows.
#[derive(Debug)]
pub(crate) struct Inodes {
    /// The source's name: part of every version.
    source_name: String,
    table: Mutex<Table>,
}

/// What was seen when a file was looked at.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The version that it has.
    pub(crate) version: Arc<Version>,
    /// It is another one than the file had: what the kernel and open handles have is of that.
    pub(crate) changed: bool,
}

impl Inodes {
    /// Knows the source itself, which the kernel never forgets.
    pub(crate) fn new(source_name: &str, root: &Stat) -> Self {
        let new = Self {
            source_name: source_name.to_owned(),
            table: Mutex::new(Table {
                entries: HashMap::new(),
                own: HashMap::new(),
                own_last: OWN_IDS,
                places: HashMap::new(),
            }),
        };
        let place = Place::root();
        let node = new.node(ROOT_ID, place, root, true);
        new.table().entries.insert(ROOT_ID, Entry { node, lookups: 1, own: None });
        new
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self, id: u64, place: Arc<Place>, stat: &Stat, home: bool) -> Arc<Node> {
        let version = Arc::new(self.version(&place, stat, home));
        let state =
            NodeState { place, stat: stat.clone(), generation: 0, version, proven: false, open: Vec::new() };
        Arc::new(Node { id, state: Mutex::new(state) })
    }

    fn version(&self, place: &Place, stat: &Stat, home: bool) -> Version {
        let path = (!home).then(|| place.path().into_os_string());
        Version::of(&self.source_name, path.as_ref().map(|path| path.as_encoded_bytes()), stat)
    }

    /// How many files the kernel knows.
    pub(crate) fn len(&self) -> usize {
        self.table().entries.len()
    }

    /// The file with this number.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<Node>> {
        self.table().entries.get(&id).map(|entry| Arc::clone(&entry.node))
    }

    /// A file was found as `name` in `parent`: its number, which the kernel gets once more. `device` is the source's own.
    pub(crate) fn found(&self, parent: &Arc<Place>, name: &OsStr, stat: &Stat, device: u64) -> Arc<Node> {
        let mut table = self.table();
        let (node, is_new) = self.counted(&mut table, parent, name, stat, device);
        table.is_at(&node, parent, name);
        drop(table);
        if is_new {
            return node;
        }
        if !node.is_same(stat) {
            let mut state = node.state();
            // Within 32 bits, as the kernel compares them.
            state.generation = (state.generation + 1) & 0xffff_ffff;
            state.proven = false;
            // These have the other file open.
            state.open.clear();
        }
        self.observe(&node, stat, device);
        node
    }

    /// A file was listed as `name` in `parent` and cannot be looked at: its number, which the kernel gets once more. What is known of it
    /// stays; of one that is not known that is `stat`, and its name is not remembered.
    pub(crate) fn listed(&self, parent: &Arc<Place>, name: &OsStr, stat: &Stat, device: u64) -> Arc<Node> {
        self.counted(&mut self.table(), parent, name, stat, device).0
    }

    /// The file of this device and inode, counted once more, and whether it is new.
    fn counted(
        &self,
        table: &mut Table,
        parent: &Arc<Place>,
        name: &OsStr,
        stat: &Stat,
        device: u64,
    ) -> (Arc<Node>, bool) {
        let home = stat.dev == device;
        let (id, own) = table.number(stat, home);
        if let Some(entry) = table.entries.get_mut(&id) {
            entry.lookups += 1;
            return (Arc::clone(&entry.node), false);
        }
        let node = self.node(id, parent.child(name), stat, home);
        table.entries.insert(id, Entry { node: Arc::clone(&node), lookups: 1, own });
        (node, true)
    }

    /// A file was looked at: takes over what it is like now.
    pub(crate) fn observe(&self, node: &Node, stat: &Stat, device: u64) -> Seen {
        let mut state = node.state();
        let version = self.version(&state.place, stat, stat.dev == device);
        state.stat = stat.clone();
        let changed = *state.version != version;
        if changed {
            state.version = Arc::new(version);
            state.proven = false;
        }
        Seen { version: Arc::clone(&state.version), changed }
    }

    /// The kernel gives a number back so many times.
    pub(crate) fn forget(&self, id: u64, lookups: u64) {
        if id == ROOT_ID {
            return;
        }
        let mut table = self.table();
        let Some(entry) = table.entries.get_mut(&id) else { return };
        entry.lookups = entry.lookups.saturating_sub(lookups);
        if entry.lookups > 0 {
            return;
        }
        let Entry { node, own, .. } = table.entries.remove(&id).expect("it was there above");
        table.leaves(id, &node.place());
        if let Some(of_source) = own {
            table.own.remove(&of_source);
        }
    }

    /// The file that was last seen as `name` in `parent`, with its number given to the kernel once more: for when the source cannot be
    /// asked.
    pub(crate) fn remembered(&self, parent: &Arc<Place>, name: &OsStr) -> Option<Arc<Node>> {
        let mut table = self.table();
        let id = *table.places.get(&*parent.child(name))?;
        let entry = table.entries.get_mut(&id).expect("it leaves its place when it is forgotten");
        entry.lookups += 1;
        Some(Arc::clone(&entry.node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: u64 = 9;

    fn stat(ino: u64) -> Stat {
        let own = crate::source::stat_of(std::fs::File::open("/proc/self/exe").expect("proc")).expect("open");
        Stat { dev: DEVICE, ino, ..own }
    }

    fn inodes() -> (Inodes, Arc<Place>) {
        let inodes = Inodes::new("name", &stat(2));
        let root = inodes.get(ROOT_ID).expect("always there").place();
        (inodes, root)
    }

    #[test]
    fn what_the_kernel_forgets_is_forgotten_once_it_was_given_back_as_often() {
        let (inodes, root) = inodes();
        for _ in 0..3 {
            assert_eq!(inodes.found(&root, OsStr::new("a"), &stat(77), DEVICE).id, 77);
        }
        inodes.forget(77, 2);
        assert!(inodes.get(77).is_some());
        inodes.forget(77, 1);
        assert!(inodes.get(77).is_none());
        inodes.forget(ROOT_ID, 1000);
        assert_eq!(inodes.len(), 1, "the source itself stays");
    }

    #[test]
    fn hard_links_are_one_file_and_other_devices_do_not_meet() {
        let (inodes, root) = inodes();
        let a = inodes.found(&root, OsStr::new("a"), &stat(77), DEVICE);
        let b = inodes.found(&root, OsStr::new("b"), &stat(77), DEVICE);
        assert!(Arc::ptr_eq(&a, &b));
        assert_eq!(a.place().path().as_os_str(), "b", "where it was found last");
        let other = inodes.found(&root, OsStr::new("c"), &Stat { dev: 10, ..stat(77) }, DEVICE);
        let third = inodes.found(&root, OsStr::new("d"), &Stat { dev: 11, ..stat(77) }, DEVICE);
        let one = inodes.found(&root, OsStr::new("e"), &stat(1), DEVICE);
        let ids = [a.id, other.id, third.id, one.id, ROOT_ID];
        assert!((1..5).all(|at| !ids[..at].contains(&ids[at])), "{ids:?}");
        assert_ne!(a.version().file, other.version().file);
        inodes.forget(other.id, 1);
        assert_eq!(inodes.table().own.len(), 2);
    }

    #[test]
    fn a_number_that_was_given_to_another_file_has_another_generation() {
        let (inodes, root) = inodes();
        let node = inodes.found(&root, OsStr::new("a"), &stat(77), DEVICE);
        let first = node.state().generation;
        let version = node.version();
        node.proven(&version);
        assert!(node.is_proven(&version));
        inodes.found(&root, OsStr::new("a"), &Stat { btime: (1, 1), ..stat(77) }, DEVICE);
        assert_ne!(node.state().generation, first);
        assert!(!node.is_proven(&node.version()), "the kernel's pages are the other file's");
    }

    #[test]
    fn where_nobody_says_when_files_were_made_who_has_one_open_is_asked() {
        let (inodes, root) = inodes();
        let path = std::env::temp_dir().join(format!("loam-mount-inodes-{}", std::process::id()));
        let file = std::fs::File::create(&path).expect("writable");
        std::fs::remove_file(&path).expect("ours");
        let like_nfs = |stat: Stat| Stat { dev: DEVICE, ino: 77, btime: (0, 0), ..stat };
        let now = || like_nfs(stat_of(&file).expect("open"));
        let found = |stat: &Stat| inodes.found(&root, OsStr::new("a"), stat, DEVICE).state().generation;
        assert_eq!(found(&now()), 0);
        let node = inodes.get(77).expect("found");
        let another = |at| Stat { ctime: (now().ctime.0 + at, 0), size: 9, ..now() };
        assert_eq!(found(&another(1)), 0, "nobody has it open: nothing of it is anywhere");
        let open = Arc::new(OwnedFd::from(file.try_clone().expect("open")));
        node.opened(&open);
        std::os::unix::fs::FileExt::write_all_at(&file, b"more", 0).expect("writable");
        assert_eq!(found(&now()), 0, "it has changed");
        assert_eq!(found(&another(2)), 1, "whoever has it open sees nothing of that");
        assert!(node.as_open().is_none() && found(&another(3)) == 1);
    }

    #[test]
    fn a_changed_file_is_another_version_and_proofs_of_the_old_one_count_no_more() {
        let (inodes, root) = inodes();
        let node = inodes.found(&root, OsStr::new("a"), &stat(77), DEVICE);
        let old = node.version();
        assert!(!inodes.observe(&node, &stat(77), DEVICE).changed);
        node.proven(&old);
        assert!(inodes.observe(&node, &Stat { size: 1, ..stat(77) }, DEVICE).changed);
        node.proven(&old);
        assert!(!node.is_proven(&node.version()) && !node.is_proven(&old));
        assert_eq!(node.version().size, 1);
    }

    #[test]
    fn a_file_that_cannot_be_looked_at_has_a_number_and_nothing_else() {
        let (inodes, root) = inodes();
        let name = OsStr::new("a");
        let unseen = Stat::unseen(DEVICE, 77, rustix::fs::FileType::Directory);
        let node = inodes.listed(&root, name, &unseen, DEVICE);
        assert_eq!((node.id, node.state().stat.kind()), (77, fuser::FileType::Directory));
        assert!(inodes.remembered(&root, name).is_none(), "while the source is away it is not known");
        let found = inodes.found(&root, name, &stat(77), DEVICE);
        assert!(Arc::ptr_eq(&found, &node) && found.state().generation == 1, "the kernel has to look anew");
        inodes.listed(&root, name, &unseen, DEVICE);
        assert!(inodes.remembered(&root, name).is_some() && node.state().stat == stat(77));
        inodes.forget(77, 4);
        assert!(inodes.get(77).is_none(), "the kernel had it four times");
    }

    #[test]
    fn a_file_is_open_as_long_as_anybody_has_it_open() {
        let (inodes, root) = inodes();
        let node = inodes.found(&root, OsStr::new("a"), &stat(77), DEVICE);
        let open = || {
            let file = Arc::new(OwnedFd::from(std::fs::File::open("/proc/self/exe").expect("proc")));
            node.opened(&file);
            file
        };
        let (first, second) = (open(), open());
        drop(second);
        assert!(node.as_open().is_some_and(|file| Arc::ptr_eq(&file, &first)));
        let third = open();
        assert_eq!(node.state().open.len(), 2, "those that were closed are not kept");
        drop(first);
        assert!(node.as_open().is_some_and(|file| Arc::ptr_eq(&file, &third)));
        drop(third);
        assert!(node.as_open().is_none());
    }

    #[test]
    fn a_name_is_remembered_for_when_the_source_is_away() {
        let (inodes, root) = inodes();
        let dir = inodes.found(&root, OsStr::new("dir"), &stat(50), DEVICE);
        let file = inodes.found(&dir.place(), OsStr::new("f"), &stat(51), DEVICE);
        // Found again under the same name: the place stays the same, so that what lies below is still found.
        inodes.found(&root, OsStr::new("dir"), &stat(50), DEVICE);
        let again = inodes.remembered(&dir.place(), OsStr::new("f")).expect("it was seen");
        assert!(Arc::ptr_eq(&again, &file));
        assert!(inodes.remembered(&root, OsStr::new("f")).is_none());
        inodes.forget(51, 1);
        assert!(inodes.get(51).is_some(), "remembering counts as one more");
        // Another file takes the name; the first one goes to another name, and is forgotten.
        let other = inodes.found(&dir.place(), OsStr::new("f"), &stat(52), DEVICE);
        inodes.found(&root, OsStr::new("g"), &stat(51), DEVICE);
        let named = |place: &Arc<Place>, name| inodes.remembered(place, OsStr::new(name)).map(|node| node.id);
        assert_eq!((named(&dir.place(), "f"), named(&root, "g")), (Some(other.id), Some(51)));
        inodes.forget(51, 9);
        assert_eq!((named(&dir.place(), "f"), named(&root, "g")), (Some(other.id), None));
        inodes.forget(52, 9);
        inodes.forget(50, 9);
        let table = inodes.table();
        assert!(table.places.is_empty() && table.entries.len() == 1, "{:?}", table.places);
    }
}
