//! The slot file itself: where it is made, how it vanishes, and the space that it has for certain.

use super::{SLOT_BYTES, SlotsError};
use crate::pool::Pool;
use loam_core::units::Bytes;
use loam_disk::{DirError, RoomError};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Space is reserved in steps of this many slots (64 MiB), so that growing costs a call now and then only.
pub(super) const STEP_SLOTS: u64 = 64 * 1024 * 1024 / SLOT_BYTES as u64;

/// How a slot file may be opened, best first. Without O_DIRECT the page cache would hold every page a second time, so
/// that is given up last.
pub(super) const ATTEMPTS: [Kind; 4] = [
    Kind { nameless: true, direct: true },
    Kind { nameless: false, direct: true },
    Kind { nameless: true, direct: false },
    Kind { nameless: false, direct: false },
];

/// One way to open it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// O_TMPFILE: it never has a name. Else it has one for a moment.
    pub(super) nameless: bool,
    /// O_DIRECT.
    pub(super) direct: bool,
}

/// An open slot file without a name: it is gone when the last descriptor closes, however the agent ends.
#[derive(Debug)]
pub(super) struct Backing {
    fd: Arc<OwnedFd>,
    pub(super) dir: PathBuf,
    pub(super) kind: Kind,
    /// Slots that may be used.
    pub(super) slots: u64,
    /// False where the file system cannot reserve: a write may then find the disk full.
    pub(super) reserves: bool,
}

impl Backing {
    pub(super) fn create(dir: &Path, initial_slots: u64, attempts: &[Kind]) -> Result<Self, SlotsError> {
        let dir_fd = open_dir(dir)?;
        let fail = |errno| SlotsError::Create { dir: dir.to_owned(), errno };
        let mut last = Errno::OPNOTSUPP;
        for &kind in attempts {
            let fd = match open_file(dir_fd.as_fd(), kind) {
                Ok(fd) => Arc::new(fd),
                Err(errno @ (Errno::INVAL | Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT)) => {
                    last = errno;
                    continue;
                }
                Err(errno) => return Err(fail(errno)),
            };
            let mut backing = Self { fd, dir: dir.to_owned(), kind, slots: 0, reserves: true };
            backing.reserve(initial_slots.max(1))?;
            // A file system may take O_DIRECT and then refuse blocks of 4 KiB: ask now, not at the first eviction.
            match backing.try_first_slot() {
                Err(Errno::INVAL) if kind.direct => last = Errno::INVAL,
                Err(Errno::NOSPC | Errno::DQUOT) => return Err(backing.no_space(SLOT_BYTES as u64)),
                Err(errno) => return Err(fail(errno)),
                Ok(()) => return Ok(backing),
            }
        }
        Err(fail(last))
    }

    pub(super) fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Makes sure that slots below `slots` have their space on the disk.
    pub(super) fn reserve(&mut self, slots: u64) -> Result<(), SlotsError> {
        if slots <= self.slots {
            return Ok(());
        }
        let rounded_slots = slots.next_multiple_of(STEP_SLOTS);
        // A last step that does not fit is no reason to refuse what was asked for.
        match self.grow(rounded_slots) {
            Err(SlotsError::Space { .. } | SlotsError::FileLimit { .. }) if rounded_slots > slots => {
                self.grow(slots)
            }
            result => result,
        }
    }

    fn grow(&mut self, slots: u64) -> Result<(), SlotsError> {
        assert!(slots > self.slots);
        let (from_bytes, to_bytes) = (self.slots * SLOT_BYTES as u64, slots * SLOT_BYTES as u64);
        let wanted = Bytes(to_bytes - from_bytes);
        let reserved = loam_disk::reserve(&self.fd, from_bytes, to_bytes).map_err(|error| {
            let dir = self.dir.clone();
            match error {
                RoomError::FileLimit { limit_bytes } => {
                    SlotsError::FileLimit { dir, wanted: Bytes(to_bytes), limit: Bytes(limit_bytes) }
                }
                RoomError::Full { free_bytes } => SlotsError::Space { dir, wanted, free: Bytes(free_bytes) },
                RoomError::Refused(errno) => SlotsError::Create { dir, errno },
            }
        })?;
        self.reserves &= reserved;
        self.slots = slots;
        Ok(())
    }

    fn no_space(&self, wanted_bytes: u64) -> SlotsError {
        let free_bytes =
            rustix::fs::fstatvfs(&self.fd).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
        SlotsError::Space { dir: self.dir.clone(), wanted: Bytes(wanted_bytes), free: Bytes(free_bytes) }
    }

    fn try_first_slot(&self) -> Result<(), Errno> {
        let mut pool = Pool::new(1).map_err(|_| Errno::NOMEM)?;
        if rustix::io::pwrite(&self.fd, pool.page(0), 0)? != SLOT_BYTES {
            return Err(Errno::IO);
        }
        if rustix::io::pread(&self.fd, pool.page_mut(0), 0)? != SLOT_BYTES {
            return Err(Errno::IO);
        }
        Ok(())
    }
}

fn open_dir(dir: &Path) -> Result<OwnedFd, SlotsError> {
    loam_disk::open_dir(dir).map_err(|error| {
        let dir = dir.to_owned();
        match error {
            DirError::Unusable(errno) => SlotsError::Dir { dir, errno },
            DirError::Foreign { owner_uid } => SlotsError::ForeignDir { dir, owner_uid },
        }
    })
}

fn open_file(dir: BorrowedFd<'_>, kind: Kind) -> Result<OwnedFd, Errno> {
    let mut flags = OFlags::RDWR | OFlags::CLOEXEC;
    if kind.direct {
        flags |= OFlags::DIRECT;
    }
    let mode = Mode::RUSR | Mode::WUSR;
    if kind.nameless {
        return rustix::fs::openat(dir, c".", flags | OFlags::TMPFILE, mode);
    }
    // Ours alone by its process id and time; EXCL refuses whatever is there already.
    let nanos =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let name = CString::new(format!("slots-{}-{nanos}", std::process::id())).expect("a name without NUL");
    let fd = rustix::fs::openat(dir, &name, flags | OFlags::CREATE | OFlags::EXCL, mode);
    // A file system may make the file and only then refuse O_DIRECT: the name goes in either case.
    match rustix::fs::unlinkat(dir, &name, AtFlags::empty()) {
        Err(errno) if fd.is_ok() => Err(errno),
        _ => fd,
    }
}
