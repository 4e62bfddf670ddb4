//! The store's file: made or found, locked, as large as asked for.

use super::error::DiskStoreError;
use super::layout::{
    DATA_OFFSET_BYTES, GROUP_SLOTS, Geometry, SUPERBLOCK_BYTES, TABLE_BYTES, TABLE_OFFSETS_BYTES, Table,
};
use loam_core::units::Bytes;
use loam_disk::{Buffer, DirError, RoomError};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The file's name in the directory.
pub(super) const FILE_NAME: &str = "pages.loam";
/// The kernel may still be ending the operations of a lender that was killed, and keeps the lock until then.
const LOCK_PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5000 });

/// An open and locked store file.
#[derive(Debug)]
pub(super) struct StoreFile {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) dir: PathBuf,
    pub(super) path: PathBuf,
    /// As it is on the disk.
    pub(super) geometry: Geometry,
    /// Slots that the size asked for has: fewer than there are means that the file is to be cut.
    pub(super) wanted_slots: u32,
    /// O_DIRECT: the page cache keeps no second copy.
    pub(super) direct: bool,
    /// False where the file system cannot reserve: a write may then find the disk full.
    pub(super) reserves: bool,
}

impl StoreFile {
    /// Opens or makes the file in `dir`, of `size`. `direct` permits O_DIRECT where it is to be had.
    pub(super) fn open(dir: &Path, size: Bytes, direct: bool) -> Result<Self, DiskStoreError> {
        let path = dir.join(FILE_NAME);
        let dir_fd = loam_disk::open_dir(dir).map_err(|error| match error {
            DirError::Unusable(errno) => DiskStoreError::Dir { dir: dir.to_owned(), errno },
            DirError::Foreign { owner_uid } => DiskStoreError::Foreign { path: dir.to_owned(), owner_uid },
        })?;
        let fd = open_own(&dir_fd, &path)?;
        lock(&fd, &path)?;
        let of_path = path.clone();
        let fail = |what| {
            let path = of_path.clone();
            move |errno| DiskStoreError::File { path, what, errno }
        };

        let length_bytes = rustix::fs::fstat(&fd).map_err(fail("reading"))?.st_size as u64;
        let found = if length_bytes == 0 { None } else { superblock(&fd, &path)? };
        let direct = direct && set_direct(&fd, true);
        let align_bytes = if direct { align_bytes(&fd) } else { 512 };
        let header_bytes = found.map_or(align_bytes as u32, |geometry| geometry.header_bytes);
        // A store that was moved to a disk with larger blocks: the page cache can still read it.
        let fits = (header_bytes as usize).is_multiple_of(align_bytes);
        let direct = direct && (fits || !set_direct(&fd, false));

        let wanted_slots = Geometry::slots_in(size.0, header_bytes);
        let at_least = |slots: u64| DATA_OFFSET_BYTES + slots * (u64::from(header_bytes) + 4096);
        if wanted_slots < GROUP_SLOTS || size.0 > at_least(u64::from(u32::MAX) - 1) {
            let (min, max) =
                (Bytes(at_least(u64::from(GROUP_SLOTS))), Bytes(at_least(u64::from(u32::MAX) - 1)));
            return Err(DiskStoreError::Size { asked: size, min, max });
        }
        let geometry = match found {
            Some(geometry) => Geometry { slots: geometry.slots.max(wanted_slots), ..geometry },
            None => {
                let mut store = [0; 8];
                rustix::rand::getrandom(&mut store, rustix::rand::GetRandomFlags::empty())
                    .map_err(fail("getrandom for"))?;
                Geometry { store: u64::from_le_bytes(store), header_bytes, slots: wanted_slots }
            }
        };
        let mut this = Self {
            fd: Arc::new(fd),
            dir: dir.to_owned(),
            path,
            geometry,
            wanted_slots,
            direct,
            reserves: true,
        };
        this.reserve(if found.is_some() { length_bytes } else { 0 })?;
        if found.is_none() {
            this.write_tables().map_err(fail("writing"))?;
        }
        if found != Some(geometry) {
            this.write_superblocks().map_err(fail("writing"))?;
            rustix::fs::fsync(&dir_fd).map_err(fail("syncing the directory of"))?;
        }
        Ok(this)
    }

    /// Space for the whole file. `length_bytes`: what it has already, or 0 for a new one.
    fn reserve(&mut self, length_bytes: u64) -> Result<(), DiskStoreError> {
        let wanted_bytes = self.geometry.file_bytes();
        // From its beginning: what a copied or restored file has as holes gets its place too.
        let from_bytes = if length_bytes < wanted_bytes { length_bytes } else { 0 };
        self.reserves =
            loam_disk::reserve(&*self.fd, from_bytes, wanted_bytes).map_err(|error| match error {
                RoomError::FileLimit { limit_bytes } => {
                    DiskStoreError::FileLimit { wanted: Bytes(wanted_bytes), limit: Bytes(limit_bytes) }
                }
                RoomError::Full { free_bytes } => {
                    if length_bytes == 0 {
                        // Nothing was there before: nothing is left behind.
                        let _ = rustix::fs::ftruncate(&*self.fd, 0);
                    }
                    let (wanted, free) = (Bytes(wanted_bytes - from_bytes), Bytes(free_bytes));
                    DiskStoreError::Space { dir: self.dir.clone(), wanted, free }
                }
                RoomError::Refused(errno) => {
                    DiskStoreError::File { path: self.path.clone(), what: "growing", errno }
                }
            })?;
        Ok(())
    }

    fn write_tables(&self) -> Result<(), Errno> {
        let mut buffer = Buffer::new(TABLE_BYTES);
        for (generation, offset_bytes) in TABLE_OFFSETS_BYTES.into_iter().enumerate() {
            let table = Table { generation: generation as u64 + 1, next_sequence: 1, spaces: Vec::new() };
            table.encode(self.geometry.store, &mut buffer);
            write_all(&self.fd, &buffer, offset_bytes)?;
        }
        // The superblock makes it a store: what it speaks of is there before.
        rustix::fs::fdatasync(&*self.fd)
    }

    /// One after the other, so that one of them is whole at every moment.
    fn write_superblocks(&self) -> Result<(), Errno> {
        let mut buffer = Buffer::new(SUPERBLOCK_BYTES);
        self.geometry.encode(&mut buffer);
        for copy in 0..2 {
            write_all(&self.fd, &buffer, copy * SUPERBLOCK_BYTES as u64)?;
            rustix::fs::fsync(&*self.fd)?;
        }
        Ok(())
    }

    /// Cuts the file to the size that was asked for; the caller has seen that no page is beyond.
    pub(super) fn cut(&mut self) -> Result<(), DiskStoreError> {
        self.geometry.slots = self.wanted_slots;
        let cut = self
            .write_superblocks()
            .and_then(|()| rustix::fs::ftruncate(&*self.fd, self.geometry.file_bytes()))
            .and_then(|()| rustix::fs::fsync(&*self.fd));
        cut.map_err(|errno| DiskStoreError::File { path: self.path.clone(), what: "cutting", errno })
    }
}

/// Opens the file, for this user alone. A link is not followed: whoever made it would choose what is written.
fn open_own(dir: &OwnedFd, path: &Path) -> Result<OwnedFd, DiskStoreError> {
    let fail = |errno| DiskStoreError::File { path: path.to_owned(), what: "opening", errno };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let fd = rustix::fs::openat(dir, FILE_NAME, flags, mode).map_err(fail)?;
    let stat = rustix::fs::fstat(&fd).map_err(fail)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(DiskStoreError::Foreign { path: path.to_owned(), owner_uid: stat.st_uid });
    }
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(DiskStoreError::NotAStore { path: path.to_owned() });
    }
    rustix::fs::fchmod(&fd, mode).map_err(fail)?;
    // It was for a pipe of that name, where opening would wait. io_uring may take it for "rather EAGAIN than a worker".
    let flags = rustix::fs::fcntl_getfl(&fd).map_err(fail)?;
    rustix::fs::fcntl_setfl(&fd, flags - OFlags::NONBLOCK).map_err(fail)?;
    Ok(fd)
}

/// Two lenders would write over each other. The kernel keeps the lock until the last operation of a lender that was killed is over: who
/// has it sees nothing change but by himself.
fn lock(fd: &OwnedFd, path: &Path) -> Result<(), DiskStoreError> {
    let begin = Instant::now();
    loop {
        match rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if begin.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(Errno::AGAIN) => return Err(DiskStoreError::InUse { path: path.to_owned() }),
            Err(errno) => {
                return Err(DiskStoreError::File { path: path.to_owned(), what: "locking", errno });
            }
        }
    }
}

/// The first whole superblock. None where the store was never finished: it died before anything was in it.
fn superblock(fd: &OwnedFd, path: &Path) -> Result<Option<Geometry>, DiskStoreError> {
    let mut blocks = vec![0; 2 * SUPERBLOCK_BYTES];
    let mut filled = 0;
    while filled < blocks.len() {
        match rustix::io::pread(fd, &mut blocks[filled..], filled as u64) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(Errno::INTR) => {}
            Err(errno) => {
                return Err(DiskStoreError::File { path: path.to_owned(), what: "reading", errno });
            }
        }
    }
    let mut format = None;
    for block in blocks.chunks(SUPERBLOCK_BYTES) {
        match Geometry::decode(block) {
            Ok(geometry) => return Ok(Some(geometry)),
            Err(other) => format = format.or(other),
        }
    }
    match format {
        Some(format) => Err(DiskStoreError::Format { path: path.to_owned(), format }),
        None if filled == blocks.len() && blocks.iter().all(|&byte| byte == 0) => Ok(None),
        None => Err(DiskStoreError::NotAStore { path: path.to_owned() }),
    }
}

/// Turns O_DIRECT on or off. Answers whether it could.
fn set_direct(fd: &OwnedFd, on: bool) -> bool {
    let Ok(mut flags) = rustix::fs::fcntl_getfl(fd) else { return false };
    flags.set(OFlags::DIRECT, on);
    rustix::fs::fcntl_setfl(fd, flags).is_ok()
}

/// What direct I/O is aligned to here. Where the kernel does not tell, it is tried.
fn align_bytes(fd: &OwnedFd) -> usize {
    let told = loam_disk::direct_align_bytes(fd.as_fd());
    let found = told.unwrap_or_else(|| {
        let mut buffer = Buffer::new(512);
        if rustix::io::pread(fd, &mut buffer[..], 512).is_ok() { 512 } else { 4096 }
    });
    found.clamp(512, 4096).next_power_of_two()
}

fn write_all(fd: &OwnedFd, bytes: &[u8], offset_bytes: u64) -> Result<(), Errno> {
    loop {
        match rustix::io::pwrite(fd, bytes, offset_bytes) {
            Ok(written) if written == bytes.len() => return Ok(()),
            // Direct I/O cannot go on in the middle of a block: from the beginning, unless nothing moves.
            Ok(0) => return Err(Errno::IO),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
