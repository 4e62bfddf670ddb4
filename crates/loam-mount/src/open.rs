//! An open file: its node, and the source's file behind it, which may be lost and found again.

use crate::inodes::{Inodes, Node, Seen};
use crate::source::{Source, stat_of};
use crate::stat::{Stat, Version};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// A handle that the kernel has.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) node: Arc<Node>,
    /// `None`: the source was away.
    file: Mutex<Option<Arc<OwnedFd>>>,
    /// May the kernel keep the pages that it has, as it gets this handle?
    pub(crate) keeps_pages: bool,
    /// Opened without the kernel's keeping its pages: its use proves that they were dropped. See [`Node::proven`].
    proves: Option<Arc<Version>>,
}

impl OpenFile {
    /// A handle of what `node` is `now`.
    pub(crate) fn new(node: Arc<Node>, file: Option<Arc<OwnedFd>>, now: SystemTime) -> Self {
        let version = node.version();
        let keeps_pages = node.is_proven(&version);
        // Of a version that is not settled the kernel gets pages that a further change may make wrong, without a trace.
        let proves = (!keeps_pages && version.is_settled(now)).then_some(version);
        Self { node, file: Mutex::new(file), keeps_pages, proves }
    }

    /// The kernel uses or closes this handle.
    pub(crate) fn used(&self) {
        if let Some(version) = &self.proves {
            self.node.proven(version);
        }
    }

    /// The source's file; opened again if it was lost and is the same one.
    pub(crate) fn file(&self, source: &Source) -> Result<Arc<OwnedFd>, Errno> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let (opened, stat) = open_file(source, &self.node)?;
        if !stat.is_inode_of(&self.node.state().stat) {
            return Err(Errno::STALE);
        }
        self.node.opened(&opened);
        *file = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// The source's file does not answer any more (a server that was started again): the next use opens it again.
    pub(crate) fn lost(&self, file: &Arc<OwnedFd>) {
        let mut own = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if own.as_ref().is_some_and(|own| Arc::ptr_eq(own, file)) {
            *own = None;
        }
    }

    /// Looks at the file and takes over what it is like now.
    pub(crate) fn look(&self, source: &Source, inodes: &Inodes, file: &OwnedFd) -> Result<Seen, Errno> {
        let stat = stat_of(file)?;
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

    /// A file that was changed in that second of the epoch.
    fn changed_at(second: i64) -> Arc<Node> {
        let stat = stat_of(std::fs::File::open("/proc/self/exe").expect("proc")).expect("open");
        let root = Stat { ino: 2, ..stat.clone() };
        let inodes = Inodes::new("name", &root);
        let place = inodes.get(crate::inodes::ROOT_ID).expect("always there").place();
        let stat = Stat { ino: 77, ctime: (second, 5), mtime: (second, 5), ..stat };
        inodes.found(&place, OsStr::new("a"), &stat, root.dev)
    }

    #[test]
    fn only_a_handle_of_a_settled_version_proves_what_the_kernel_has() {
        let node = changed_at(1000);
        let at = |ms: u64| UNIX_EPOCH + Duration::from_millis(ms);
        let open = |now| OpenFile::new(Arc::clone(&node), None, now);
        let early = open(at(1_000_050));
        early.used();
        assert!(!early.keeps_pages && !open(at(1_005_000)).keeps_pages, "pages of before the last change");
        early.used();
        let settled = open(at(1_005_000));
        assert!(!settled.keeps_pages);
        settled.used();
        assert!(open(at(1_005_000)).keeps_pages);
    }
}
