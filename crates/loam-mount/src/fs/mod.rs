//! The file system as the kernel sees it: each of its questions, answered from the source, and reads by [`crate::reader`].
//!
//! Names and attributes may be kept by the kernel for a second; an open looks at the source's file itself. If it is another version
//! than the kernel has pages of, the kernel drops them; if another file lies there, the open is answered with ESTALE, upon which the kernel looks
//! the name up again. While the source is away, what was seen last is shown of the files that the kernel knows.

mod dirs;
mod extended;

use crate::figures::Figures;
use crate::inodes::{Inodes, Node};
use crate::open::{OpenFile, open_file};
use crate::reader::Reader;
use crate::source::{Source, is_away, stat_of};
use crate::stat::Stat;
use dirs::OpenDir;
use fuser::{
    FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, Notifier,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

/// For so long the kernel may answer for a name or for attributes by itself.
const KEPT: Duration = Duration::from_secs(1);
/// Reads that the kernel may have under way before anybody asked for them.
const BACKGROUND_MAX: u16 = 64;

thread_local! {
    /// Where a thread copies runs together.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What the kernel has open, by number.
#[derive(Debug)]
struct Handles<T> {
    open: Mutex<HashMap<u64, Arc<T>>>,
    last: AtomicU64,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self { open: Mutex::default(), last: AtomicU64::new(0) }
    }
}

impl<T> Handles<T> {
    fn add(&self, handle: T) -> FileHandle {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(handle));
        FileHandle(number)
    }
    fn get(&self, handle: FileHandle) -> Result<Arc<T>, Errno> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).get(&handle.0).cloned().ok_or(Errno::BADF)
    }
    fn remove(&self, handle: FileHandle) -> Option<Arc<T>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.0)
    }
}

/// The file system.
#[derive(Debug)]
pub(crate) struct View {
    source: Arc<Source>,
    inodes: Arc<Inodes>,
    reader: Reader,
    figures: Arc<Figures>,
    files: Handles<OpenFile>,
    dirs: Handles<OpenDir>,
    /// To tell the kernel what it has to forget. There once it is mounted.
    notifier: Arc<OnceLock<Notifier>>,
}

fn errno(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

impl View {
    /// Shows what `reader` reads.
    pub(crate) fn new(reader: Reader, notifier: Arc<OnceLock<Notifier>>) -> Self {
        Self {
            source: Arc::clone(&reader.source),
            inodes: Arc::clone(&reader.inodes),
            figures: Arc::clone(&reader.figures),
            reader,
            files: Handles::default(),
            dirs: Handles::default(),
            notifier,
        }
    }

    /// The file of a number. The kernel names only what it was given and has not given back.
    fn node(&self, ino: INodeNo) -> Result<Arc<Node>, Errno> {
        self.inodes.get(ino.0).ok_or(Errno::STALE)
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Result<Arc<Node>, Errno> {
        let parent = self.node(parent)?.place();
        let looked = self.source.device().and_then(|device| {
            let stat = self.source.stat(&parent.child(name))?;
            Ok(self.inodes.found(&parent, name, &stat, device))
        });
        match looked {
            Err(error) if is_away(error) => self.inodes.remembered(&parent, name).ok_or(Errno::IO),
            answer => answer,
        }
    }

    /// What a file is like now: by its place, or as it is open if it has none any more.
    fn look_at(&self, node: &Node) -> Result<Stat, Errno> {
        let known = node.state().stat.clone();
        let device = match self.source.device() {
            Ok(device) => device,
            Err(_) => return Ok(known),
        };
        let of_place = match self.source.stat(&node.place()) {
            // Another directory may have become the source.
            Ok(stat) if node.id == INodeNo::ROOT.0 || node.is_same(&stat) => Ok(stat),
            Ok(_) => Err(Errno::STALE),
            Err(error) => Err(error),
        };
        let stat = match of_place {
            Ok(stat) => stat,
            Err(error) if is_away(error) => return Ok(known),
            Err(error) => {
                let gone = if error == Errno::NOENT { Errno::STALE } else { error };
                node.as_open().map_or(Err(gone), stat_of)?
            }
        };
        if self.inodes.observe(node, &stat, device).changed {
            self.figures.versions_changed.add(1);
        }
        Ok(stat)
    }

    fn open_node(&self, ino: INodeNo) -> Result<OpenFile, Errno> {
        let node = self.node(ino)?;
        let generation = node.state().generation;
        let device = self.source.device();
        let file = match device.and_then(|_| open_file(&self.source, &node)) {
            Ok((file, stat)) => {
                if !node.is_same(&stat) {
                    return Err(Errno::STALE);
                }
                let device = device.unwrap_or(stat.dev);
                if self.inodes.observe(&node, &stat, device).changed {
                    self.figures.versions_changed.add(1);
                }
                node.opened(&file);
                Some(file)
            }
            // What is cached can still be read.
            Err(error) if is_away(error) => None,
            Err(Errno::NOENT) => return Err(Errno::STALE),
            Err(error) => return Err(error),
        };
        let open = OpenFile::new(node, generation, file, SystemTime::now());
        if !open.keeps_pages
            && let Some(notifier) = self.notifier.get()
        {
            // Attributes only, which waits for nothing. The pages the kernel drops itself, as it is not told to keep them.
            let _ = notifier.inval_inode(ino, -1, 0);
        }
        Ok(open)
    }
}

impl Filesystem for View {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        for wanted in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_POSIX_ACL,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
        ] {
            // An older kernel does without.
            let _ = config.add_capabilities(wanted);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_max_readahead(u32::MAX).or_else(|most| config.set_max_readahead(most));
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name) {
            Ok(node) => {
                let (attr, generation) = {
                    let state = node.state();
                    (state.stat.attr(node.id), Generation(state.generation))
                };
                reply.entry(&KEPT, &attr, generation);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        self.inodes.forget(ino.0, nlookup);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let looked = self.node(ino).and_then(|node| {
            let stat = self.look_at(&node)?;
            // What the kernel shows as inode number; of the source itself it is not the number by which it is asked for.
            let shown = if ino == INodeNo::ROOT { stat.ino } else { node.id };
            Ok(stat.attr(shown))
        });
        match looked {
            Ok(attr) => reply.attr(&KEPT, &attr),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let target = self.node(ino).and_then(|node| {
            let link = self.source.hold(&node.place())?;
            rustix::fs::readlinkat(link, "", Vec::new())
        });
        match target {
            Ok(target) => reply.data(target.as_bytes()),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.open_node(ino) {
            Ok(file) => {
                let mut flags = FopenFlags::FOPEN_NOFLUSH;
                flags.set(FopenFlags::FOPEN_KEEP_CACHE, file.keeps_pages);
                reply.opened(self.files.add(file), flags);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut reply = Some(reply);
        let read = self.files.get(fh).and_then(|file| {
            file.used();
            SCRATCH.with_borrow_mut(|scratch| {
                self.reader.read(&file, offset, size as usize, scratch, |bytes| {
                    reply.take().expect("answered once").data(bytes);
                })
            })
        });
        if let (Err(error), Some(reply)) = (read, reply) {
            reply.error(errno(error));
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(file) = self.files.remove(fh) {
            file.used();
        }
        reply.ok();
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = self.node(ino).and_then(|node| {
            let dir = self.source.open_dir(&node.place()).map_err(|error| match error {
                Errno::NOENT | Errno::NOTDIR => Errno::STALE,
                other => other,
            })?;
            Ok(OpenDir::new(dir))
        });
        match opened {
            Ok(dir) => reply.opened(self.dirs.add(dir), FopenFlags::empty()),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        match self.dirs.get(fh).and_then(|dir| dir.list(offset, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.node(ino).and_then(|node| {
            let device = self.source.device()?;
            self.dirs.get(fh)?.list_plus(offset, &node.place(), device, &self.inodes, &mut reply)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        drop(self.dirs.remove(fh));
        reply.ok();
    }

    fn lseek(&self, _: &Request, _: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        match self.files.get(fh).and_then(|file| extended::seek(&self.source, &file, offset, whence)) {
            Ok(offset) => reply.offset(offset),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.source.space_left() {
            Ok(left) => reply.statfs(
                left.f_blocks,
                left.f_bfree,
                left.f_bavail,
                left.f_files,
                left.f_ffree,
                left.f_bsize as u32,
                left.f_namemax as u32,
                left.f_frsize as u32,
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if ino == INodeNo::ROOT && name == extended::FIGURES {
            return extended::answer(Ok(self.figures_json()), size, reply);
        }
        let value = self.node(ino).and_then(|node| extended::value(&self.source, &node, name));
        extended::answer(value, size, reply);
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.node(ino).and_then(|node| extended::names(&self.source, &node));
        extended::answer(names, size, reply);
    }
}

impl View {
    /// The counters, and what is held now.
    fn figures_json(&self) -> Vec<u8> {
        let (held_bytes, room_bytes) = self.reader.cache.held_bytes();
        let mut figures = serde_json::to_value(&*self.figures).expect("numbers with names");
        for (name, value) in [
            ("cached_bytes", held_bytes),
            ("cache_bytes", room_bytes),
            ("peers", self.reader.peers.count() as u64),
            ("inodes", self.inodes.len() as u64),
        ] {
            figures[name] = value.into();
        }
        figures.to_string().into_bytes()
    }
}
