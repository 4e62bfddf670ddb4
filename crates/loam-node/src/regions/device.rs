//! What a node was started with to cut regions from, by path: a DAX device (CXL memory in that mode, too), or a file whose bytes are mapped as they lie
//! in memory. Nothing else: a page cache in front of a disk is no memory that is reserved.

use super::memory;
use loam_disk::{Mapped, is_dax};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const TMPFS: i64 = 0x0102_1994;
const HUGETLBFS: i64 = 0x9584_58f6;
/// Where a file system with DAX can map with one entry of the processor's table; its files are cut there.
const LARGE_BYTES: u64 = 2 << 20;
/// Bytes that are written at a time where memory is cleared by writing.
const WRITE_BYTES: usize = 1 << 20;

/// Why a path is nothing to cut regions from.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// It cannot be opened, or looked at.
    #[error("{0}; is it there, and may this user write to it?")]
    System(#[from] io::Error),
    /// It is something else.
    #[error(
        "it is {0}: name a DAX device (/dev/daxX.Y), or a file of a file system mounted with DAX, of hugetlbfs or of tmpfs"
    )]
    Kind(&'static str),
    /// The kernel does not say how large it is, or how it wants to be mapped.
    #[error("{} does not say how large it is: is it a DAX device in mode devdax (`daxctl list`)?", .0.display())]
    Unknown(PathBuf),
    /// There is no room in it.
    #[error("it has no room for one page of {align_bytes} bytes: make it larger (`truncate -s 1G`, say)")]
    Small {
        /// Of its pages.
        align_bytes: u64,
    },
    /// Programs say it by its path, which has to go into a frame.
    #[error(
        "its path is longer than {} bytes, or no plain text: link to it by a shorter one",
        loam_wire::limits::REGION_DEVICE_BYTES_MAX
    )]
    Path,
    /// It was named before.
    #[error("it was named twice: name each device once")]
    Twice,
}

/// How it is cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Mapped and written: a character device has no other way.
    Dax,
    /// Written, so that the file system has blocks for all of it: an access never has to wait for some.
    DaxFile,
    /// Given back and taken anew, as zeros: a file in memory, of ordinary or huge pages.
    Memory,
}

/// A device, opened. The lock on it is that of its open file, which everyone has who has it mapped.
#[derive(Debug)]
pub(super) struct Device {
    path: String,
    file: Arc<OwnedFd>,
    kind: Kind,
    bytes: u64,
    align_bytes: u64,
    identity: (u64, u64, u64),
}

impl Device {
    /// Opens what is at `path`. `root` is where `sys` is.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub(super) fn open(path: &Path, root: &Path) -> Result<Self, DeviceError> {
        let path = std::path::absolute(path)?;
        let name = path.to_str().filter(|name| !name.chars().any(char::is_control));
        let name = name.ok_or(DeviceError::Path)?.to_owned();
        if name.len() > loam_wire::limits::REGION_DEVICE_BYTES_MAX {
            return Err(DeviceError::Path);
        }
        // Opening some devices does something. So it is looked at first, and what was looked at is opened.
        let system = |why: rustix::io::Errno| DeviceError::System(why.into());
        let seen = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(system)?;
        let stat = rustix::fs::fstat(&seen).map_err(system)?;
        let open = || {
            use std::os::fd::AsRawFd;
            let again = format!("/proc/self/fd/{}", seen.as_raw_fd());
            rustix::fs::open(again, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(system)
        };
        let (kind, file, bytes, align_bytes) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::CharacterDevice => {
                let (bytes, align_bytes) = dax_device(&stat, root)?;
                (Kind::Dax, open()?, bytes, align_bytes)
            }
            FileType::RegularFile => {
                let system_of = rustix::fs::fstatfs(&seen).map_err(system)?;
                let page_bytes = u64::try_from(system_of.f_bsize).unwrap_or(4096);
                let file = open()?;
                let (kind, align_bytes) = match system_of.f_type as i64 {
                    TMPFS => (Kind::Memory, 4096),
                    HUGETLBFS => (Kind::Memory, page_bytes),
                    _ if stat.st_size == 0 => return Err(DeviceError::Small { align_bytes: LARGE_BYTES }),
                    _ if is_dax(&file)? => (Kind::DaxFile, LARGE_BYTES),
                    _ => {
                        return Err(DeviceError::Kind(
                            "a file of a file system without DAX, whose pages are a disk's cache",
                        ));
                    }
                };
                (kind, file, u64::try_from(stat.st_size).unwrap_or(0), align_bytes)
            }
            FileType::BlockDevice => {
                return Err(DeviceError::Kind("a block device, whose pages are a disk's cache"));
            }
            FileType::Directory => return Err(DeviceError::Kind("a directory")),
            _ => return Err(DeviceError::Kind("no device and no file")),
        };
        let bytes = bytes / align_bytes * align_bytes;
        if bytes == 0 {
            return Err(DeviceError::Small { align_bytes });
        }
        let identity = if kind == Kind::Dax { (0, 0, stat.st_rdev) } else { (stat.st_dev, stat.st_ino, 0) };
        Ok(Self { path: name, file: Arc::new(file), kind, bytes, align_bytes, identity })
    }

    /// What programs call it by.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn file(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its spans begin and end at multiples of this.
    pub(super) fn align_bytes(&self) -> u64 {
        self.align_bytes
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.identity == other.identity
    }

    /// The user who may open it without us. `None`: that cannot be told (any more).
    pub(super) fn owner(&self) -> Option<u32> {
        rustix::fs::fstat(&self.file).ok().map(|stat| stat.st_uid)
    }

    /// Whether it is this node's alone now. The lock is the open file's, so it lasts as long as anybody has that mapped: a node that starts
    /// again does not get a device of which a program still has a region.
    pub(super) fn lock(&self) -> bool {
        rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// What it takes to clear `bytes` from `offset` on.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn clearing(&self, offset: u64, bytes: u64) -> io::Result<Option<Mapped>> {
        let whole = || usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory));
        match self.kind {
            Kind::Dax => Mapped::new(&self.file, offset, whole()?, self.align_bytes as usize).map(Some),
            Kind::DaxFile | Kind::Memory => Ok(None),
        }
    }

    /// Makes `bytes` of it 0, and has them there: who uses them never waits for the kernel to find a page, and never finds that there is none.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn clear(&self, offset: u64, bytes: u64) -> io::Result<()> {
        match self.kind {
            Kind::Dax => unreachable!("it is mapped for that"),
            Kind::DaxFile => {
                let file = std::fs::File::from(self.file.try_clone()?);
                let zeros = vec![0; WRITE_BYTES.min(bytes as usize)];
                let mut at = 0;
                while at < bytes {
                    let part = zeros.len().min((bytes - at) as usize);
                    file.write_all_at(&zeros[..part], offset + at)?;
                    at += part as u64;
                }
                Ok(())
            }
            Kind::Memory => {
                memory::release(&self.file, offset, bytes)?;
                let take = || rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, bytes);
                Ok(rustix::io::retry_on_intr(take)?)
            }
        }
    }

    /// Nobody has these bytes any more. A file in memory gives theirs back; elsewhere they stay what they are until somebody gets them.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn release(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if self.kind == Kind::Memory { memory::release(&self.file, offset, bytes) } else { Ok(()) }
    }

    /// The same, where nobody can be told.
    pub(super) fn release_or_warn(&self, offset: u64, bytes: u64) {
        if let Err(why) = self.release(offset, bytes) {
            tracing::warn!("cannot give memory of {} back: {why}", self.path);
        }
    }

    /// As one that keeps its bytes.
    #[cfg(test)]
    pub(super) fn into_medium(self) -> Self {
        Self { kind: Kind::DaxFile, ..self }
    }

    /// As one with pages of that size.
    #[cfg(test)]
    pub(super) fn with_pages(self, align_bytes: u64) -> Self {
        Self { align_bytes, ..self }
    }
}

/// Size and alignment of a DAX device, as the kernel's driver tells them (drivers/dax/bus.c: `size`, `align`; before Linux 5.10 the
/// alignment was that of the device above).
fn dax_device(stat: &Stat, root: &Path) -> Result<(u64, u64), DeviceError> {
    let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    let place = root.join(format!("sys/dev/char/{major}:{minor}"));
    let subsystem = std::fs::read_link(place.join("subsystem")).unwrap_or_default();
    if subsystem.file_name().is_none_or(|name| name != "dax") {
        return Err(DeviceError::Kind("a character device that is not DAX"));
    }
    let number = |file: &str| std::fs::read_to_string(place.join(file)).ok()?.trim().parse::<u64>().ok();
    let size = number("size").filter(|size| *size > 0);
    let align = number("align").or_else(|| number("device/align"));
    let align = align.filter(|align| align.is_power_of_two() && (4096..=1 << 30).contains(align));
    size.zip(align).ok_or(DeviceError::Unknown(place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Folder(PathBuf);

    impl Folder {
        fn new(under: &str, name: &str) -> Self {
            let path = Path::new(under).join(format!("loam-device-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder");
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn file(folder: &Folder, bytes: u64) -> PathBuf {
        let path = folder.0.join("pool");
        fs::File::create(&path).expect("made").set_len(bytes).expect("sized");
        path
    }

    fn why(path: &Path) -> String {
        Device::open(path, Path::new("/")).expect_err("it is none").to_string()
    }

    #[test]
    fn what_is_no_memory_is_refused() {
        let folder = Folder::new("/dev/shm", "kinds");
        assert!(why(&folder.0).contains("a directory"));
        assert!(why(&folder.0.join("nowhere")).contains("No such file"));
        assert!(why(Path::new("/dev/null")).contains("not DAX"));
        assert!(why(&file(&folder, 4095)).contains("no room"));
        let disk = Folder::new(env!("CARGO_MANIFEST_DIR"), "disk");
        let on_disk = file(&disk, 1 << 20);
        let kind = rustix::fs::statfs(&on_disk).expect("there").f_type as i64;
        if kind != TMPFS {
            assert!(why(&on_disk).contains("without DAX"), "{}", why(&on_disk));
        }
        let long = folder.0.join("a".repeat(121));
        fs::File::create(&long).expect("made");
        assert!(why(&long).contains("longer"));
    }

    #[test]
    fn it_is_its_openers_alone_for_as_long_as_anybody_has_it() {
        let folder = Folder::new("/dev/shm", "lock");
        let path = file(&folder, 9 * 4096 + 5);
        let open = || Device::open(&path, Path::new("/")).expect("a file in memory");
        let (first, second) = (open(), open());
        assert_eq!((first.bytes(), first.align_bytes()), (9 * 4096, 4096));
        assert!(first.is_same(&second));
        assert!(first.lock() && !second.lock() && first.lock());
        // As a program has it that has it mapped: the file is the same open one.
        let kept = Mapped::new(&first.file, 0, 4096, 4096).expect("mapped");
        drop(first);
        assert!(!second.lock(), "somebody still has it mapped");
        drop(kept);
        assert!(second.lock());
    }

    #[test]
    fn what_is_cleared_is_zeros_and_there() {
        let folder = Folder::new("/dev/shm", "clear");
        let path = file(&folder, 8 * 4096);
        fs::write(&path, vec![9; 8 * 4096]).expect("written");
        let mut device = Device::open(&path, Path::new("/")).expect("a file in memory");
        let there = |device: &Device| rustix::fs::fstat(&device.file).expect("open").st_blocks as u64 * 512;
        for kind in [Kind::Memory, Kind::DaxFile] {
            fs::write(&path, vec![9; 8 * 4096]).expect("written");
            device.kind = kind;
            device.clear(4096, 3 * 4096).expect("cleared");
            let now = fs::read(&path).expect("read");
            for (at, byte) in now.iter().enumerate() {
                assert_eq!(*byte == 0, (4096..4 * 4096).contains(&at), "{kind:?} {at}");
            }
            assert_eq!(there(&device), 8 * 4096, "{kind:?}");
        }
        device.release(0, 8 * 4096).expect("nothing to do");
        assert_eq!(there(&device), 8 * 4096, "a medium keeps what it has");
        device.kind = Kind::Memory;
        device.release(0, 8 * 4096).expect("given back");
        assert_eq!(there(&device), 0);
    }

    /// The kernel's files of a DAX device; there is none here.
    #[test]
    fn a_dax_device_says_how_it_wants_to_be_mapped() {
        let root = Folder::new("/dev/shm", "sys");
        let stat = rustix::fs::stat("/dev/null").expect("there");
        let place = root.0.join("sys/dev/char/1:3");
        fs::create_dir_all(place.join("device")).expect("made");
        assert!(matches!(dax_device(&stat, &root.0), Err(DeviceError::Kind(_))));
        std::os::unix::fs::symlink("../../../bus/dax", place.join("subsystem")).expect("linked");
        let write = |name: &str, text: &str| fs::write(place.join(name), text).expect("written");
        write("size", "17179869184\n");
        assert!(matches!(dax_device(&stat, &root.0), Err(DeviceError::Unknown(_))));
        write("device/align", "1073741824\n");
        assert_eq!(dax_device(&stat, &root.0).expect("older kernels"), (17_179_869_184, 1 << 30));
        write("align", "2097152\n");
        assert_eq!(dax_device(&stat, &root.0).expect("newer kernels"), (17_179_869_184, 2 << 20));
        for (size, align) in
            [("0", "4096"), ("x", "4096"), ("4096", "4097"), ("4096", "2048"), ("4096", "4294967296")]
        {
            write("size", size);
            write("align", align);
            assert!(matches!(dax_device(&stat, &root.0), Err(DeviceError::Unknown(_))), "{size} {align}");
        }
    }
}
