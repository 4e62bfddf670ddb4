//! An open file: its node, and the source's file behind it, which may be lost and found again.

use crate::inodes::{Inodes, Node, Seen};
use crate::source::{Source, stat_of};
use crate::stat::{Stat, Time, Version};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

#[derive(Debug)]
struct Held {
    /// `None`: the source was away, or lost it.
    file: Option<Arc<OwnedFd>>,
    /// When the file was changed last, as far as was seen through this handle.
    changed: Time,
}

impl Held {
    /// Of a file that does not say when it was made: without a descriptor only one that has not changed is known to be the same.
    fn may_have(&self, stat: &Stat) -> bool {
        self.file.is_some() || stat.ctime == self.changed
    }
}

/// A handle that the kernel has.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) node: Arc<Node>,
    /// Of the node when this was opened: with another one, its number is another file's.
    generation: u64,
    held: Mutex<Held>,
    /// May the kernel keep the pages that it has, as it gets this handle?
    pub(crate) keeps_pages: bool,
    /// Opened without the kernel's keeping its pages: its use proves that they were dropped. See [`Node::proven`].
    proves: Option<Arc<Version>>,
}

impl OpenFile {
    /// A handle of what `node` is `now`, of the generation that it had when `file` was seen to be its file.
    pub(crate) fn new(node: Arc<Node>, generation: u64, file: Option<Arc<OwnedFd>>, now: SystemTime) -> Self {
        let version = node.version();
        let keeps_pages = node.is_proven(&version);
        // Of a version that is not settled the kernel gets pages that a further change may make wrong, without a trace.
        let proves = (!keeps_pages && version.is_settled(now)).then_some(version);
        let held = Mutex::new(Held { file, changed: node.state().stat.ctime });
        Self { node, generation, held, keeps_pages, proves }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version that is shown; ESTALE if it may be another file's.
    pub(crate) fn version(&self) -> Result<Arc<Version>, Errno> {
        let state = self.node.state();
        if state.generation != self.generation {
            return Err(Errno::STALE);
        }
        let (version, stat) = (Arc::clone(&state.version), state.stat.clone());
        drop(state);
        if stat.says_when_made() || self.held().may_have(&stat) { Ok(version) } else { Err(Errno::STALE) }
    }

    /// The kernel uses or closes this handle.
    pub(crate) fn used(&self) {
        if let Some(version) = &self.proves {
            self.node.proven(version);
        }
    }

    /// The source's file; opened again if it was lost and is the same one.
    pub(crate) fn file(&self, source: &Source) -> Result<Arc<OwnedFd>, Errno> {
        self.version()?;
        let mut held = self.held();
        if let Some(file) = &held.file {
            return Ok(Arc::clone(file));
        }
        let (opened, stat) = open_file(source, &self.node)?;
        if !self.node.is_same(&stat) || !(stat.says_when_made() || held.may_have(&stat)) {
            return Err(Errno::STALE);
        }
        self.node.opened(&opened);
        held.file = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// The source's file does not answer any more (a server that was started again): the next use opens it again.
    pub(crate) fn lost(&self, file: &Arc<OwnedFd>) {
        let mut held = self.held();
        if held.file.as_ref().is_some_and(|own| Arc::ptr_eq(own, file)) {
            held.file = None;
        }
    }

    /// Looks at the file and takes over what it is like now.
    pub(crate) fn look(&self, source: &Source, inodes: &Inodes, file: &OwnedFd) -> Result<Seen, Errno> {
        let stat = stat_of(file)?;
        self.held().changed = stat.ctime;
        Ok(inodes.observe(&self.node, &stat, source.device().unwrap_or(stat.dev)))
    }
}

/// Opens a node's file at the source by the place where it was found last.
pub(crate) fn open_file(source: &Source, node: &Node) -> Result<(Arc<OwnedFd>, Stat), Errno> {
    let place = node.place();
    let file = source.open_file(&place)?;
    let stat = stat_of(&file)?;
    Ok((Arc::new(file), stat))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::time::{Duration, UNIX_EPOCH};

    /// A file that was changed in that second of the epoch, and what finds another one in its place.
    fn changed_at(second: i64) -> (Arc<Node>, impl FnOnce(Stat)) {
        let stat = stat_of(std::fs::File::open("/proc/self/exe").expect("proc")).expect("open");
        let root = Stat { ino: 2, ..stat.clone() };
        let inodes = Inodes::new("name", &root);
        let place = inodes.get(crate::inodes::ROOT_ID).expect("always there").place();
        let stat = Stat { ino: 77, ctime: (second, 5), mtime: (second, 5), ..stat };
        let node = inodes.found(&place, OsStr::new("a"), &stat, root.dev);
        (node, move |another| drop(inodes.found(&place, OsStr::new("a"), &another, root.dev)))
    }

    #[test]
    fn only_a_handle_of_a_settled_version_proves_what_the_kernel_has() {
        let (node, _) = changed_at(1000);
        let at = |ms: u64| UNIX_EPOCH + Duration::from_millis(ms);
        let open = |now| OpenFile::new(Arc::clone(&node), 0, None, now);
        let early = open(at(1_000_050));
        early.used();
        assert!(!early.keeps_pages && !open(at(1_005_000)).keeps_pages, "pages of before the last change");
        early.used();
        let settled = open(at(1_005_000));
        assert!(!settled.keeps_pages);
        settled.used();
        assert!(open(at(1_005_000)).keeps_pages);
    }

    #[test]
    fn a_handle_of_a_file_whose_number_is_another_ones_is_stale() {
        let (node, find) = changed_at(1000);
        let open = |generation| OpenFile::new(Arc::clone(&node), generation, None, SystemTime::now());
        let first = open(0);
        assert!(first.version().is_ok());
        let known = node.state().stat.clone();
        find(Stat { btime: (1000, 7), ..known });
        assert_eq!(first.version().map(drop), Err(Errno::STALE));
        assert!(open(1).version().is_ok());
    }

    #[test]
    fn a_handle_without_a_file_that_may_have_been_replaced_is_stale() {
        let (node, find) = changed_at(1000);
        node.state().stat.btime = (0, 0);
        let open = |file| OpenFile::new(Arc::clone(&node), 0, file, SystemTime::now());
        let file = std::fs::File::open("/proc/self/exe").expect("proc");
        let (without, with) = (open(None), open(Some(Arc::new(file.into()))));
        assert!(without.version().is_ok() && with.version().is_ok());
        let known = node.state().stat.clone();
        find(Stat { ctime: (2000, 5), ..known });
        assert!(without.version().is_err() && with.version().is_ok());
    }
}
