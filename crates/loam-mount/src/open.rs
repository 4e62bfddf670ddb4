//! An open file: its node, and the source's file behind it, which may be lost and found again.

use crate::inodes::{Inodes, Node, Seen};
use crate::source::{Source, stat_of};
use crate::stat::{Stat, Version};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// A handle that the kernel has.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) node: Arc<Node>,
    /// `None`: the source was away.
    file: Mutex<Option<Arc<OwnedFd>>>,
    /// Opened without the kernel's keeping its pages: its use proves that they were dropped. See [`Node::proven`].
    proves: Option<Arc<Version>>,
}

impl OpenFile {
    pub(crate) fn new(node: Arc<Node>, file: Option<Arc<OwnedFd>>, proves: Option<Arc<Version>>) -> Self {
        Self { node, file: Mutex::new(file), proves }
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
