//! What `/proc` tells about the processes of the tree. Any of them may vanish at any moment: then the answer is
//! [`ProcError::Gone`], which callers treat as an exit, not as a failure.

mod maps;
mod memory;
mod pagemap;
mod threads;
mod tree;

pub(crate) use maps::{
    ADOPT_BYTES_LEAST, ADOPT_BYTES_MIN, Mapping, adoptable, flags, flags_up_to, has_mapped, mappings,
    stack_end,
};
pub(crate) use memory::Memory;
pub(crate) use pagemap::Pagemap;
pub(crate) use threads::control_blocks;
pub(crate) use tree::{descendants, everybody, is_descendant, name, ran, stat};

use loam_core::units::{BASE_PAGE_BYTES, Bytes};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use std::cell::Cell;
use std::io::Read;

/// A file of `/proc` larger than this is not read: 65,530 mappings of smaps take about 50 MB.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// `/proc` did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcError {
    /// The process has ended, or has no memory any more.
    #[error("process {pid} has ended")]
    Gone {
        /// Which.
        pid: i32,
    },
    /// Not readable.
    #[error(
        "/proc/{pid}/{file} cannot be read ({errno}): run Loam as the same user as the program, and mount /proc"
    )]
    Io {
        /// Of which process.
        pid: i32,
        /// Which file.
        file: &'static str,
        /// Why.
        errno: Errno,
    },
    /// Not what Linux writes.
    #[error("/proc/{pid}/{file} is not understood at {text:?}: please report this kernel (uname -r)")]
    Malformed {
        /// Of which process.
        pid: i32,
        /// Which file.
        file: &'static str,
        /// The text.
        text: String,
    },
}

impl ProcError {
    fn new(pid: Pid, file: &'static str, errno: Errno) -> Self {
        let pid = pid.as_raw_nonzero().get();
        match errno {
            Errno::NOENT | Errno::SRCH => Self::Gone { pid },
            errno => Self::Io { pid, file, errno },
        }
    }

    fn io(pid: Pid, file: &'static str, error: &std::io::Error) -> Self {
        Self::new(pid, file, Errno::from_io_error(error).unwrap_or(Errno::IO))
    }

    fn malformed(pid: Pid, file: &'static str, text: &str) -> Self {
        let text = text.chars().take(80).collect();
        Self::Malformed { pid: pid.as_raw_nonzero().get(), file, text }
    }
}

fn open(pid: Pid, file: &'static str) -> Result<OwnedFd, ProcError> {
    let path = format!("/proc/{}/{file}", pid.as_raw_nonzero());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| ProcError::new(pid, file, errno))
}

/// The whole file as text; bytes that are no UTF-8 (file names can have any) are replaced.
fn read_text(pid: Pid, file: &'static str) -> Result<String, ProcError> {
    let mut bytes = Vec::new();
    std::fs::File::from(open(pid, file)?)
        .take(FILE_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|error| ProcError::io(pid, file, &error))?;
    Ok(text_of(bytes))
}

fn text_of(bytes: Vec<u8>) -> String {
    match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }
}

/// The number after `key` (`"Threads:"`), if the file has such a line.
fn field(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// The resident size of a process, from a file that stays open: one small system call a look.
///
/// The kernel counts per CPU and adds up now and then: the figure may be off by some 32 pages a CPU.
#[derive(Debug)]
pub(crate) struct Statm {
    pid: Pid,
    fd: OwnedFd,
    /// What `file_pages` was made of when it was so much.
    files: Cell<Option<(u64, FilePages)>>,
}

/// What the figure that counts files and shared memory together is made of, in base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilePages {
    /// Of files, without tmpfs and shared memory, and without as much as the process has locked: what the kernel can take back at any time.
    pub(crate) mapped: u64,
    /// Of shared memory: shared anonymous mappings, shm, tmpfs files.
    pub(crate) shared: u64,
}

/// Pages of files and shared memory that come or go without a new look at which of them are of files (1 MiB).
const FILES_STALE_PAGES: u64 = 256;

impl Statm {
    /// Opens it. It stays with this very process even if the id is given to another.
    ///
    /// # Errors
    /// [`ProcError::Gone`], or no permission.
    pub(crate) fn open(pid: Pid) -> Result<Self, ProcError> {
        Ok(Self { pid, fd: open(pid, "statm")?, files: Cell::new(None) })
    }

    /// Resident base pages now; 0 for a process that has exited and was not reaped yet.
    ///
    /// # Errors
    /// [`ProcError::Gone`] once it was reaped.
    pub(crate) fn resident_pages(&self) -> Result<u64, ProcError> {
        Ok(self.read()?.resident_pages)
    }

    /// What `file_pages`, which it says now, is made of. It is asked again when that has changed by a mebibyte.
    pub(crate) fn files(&self, file_pages: u64) -> FilePages {
        let fresh = self.files.get().filter(|known| known.0.abs_diff(file_pages) < FILES_STALE_PAGES);
        let known = fresh.unwrap_or_else(|| (file_pages, files_of(self.pid).unwrap_or_default()));
        self.files.set(Some(known));
        let FilePages { mapped, shared } = known.1;
        FilePages { mapped: mapped.min(file_pages), shared: shared.min(file_pages) }
    }

    /// All that it says.
    ///
    /// # Errors
    /// As [`Self::resident_pages`].
    pub(crate) fn read(&self) -> Result<StatmFigures, ProcError> {
        let mut buffer = [0; 128];
        let bytes = loop {
            match rustix::io::pread(&self.fd, &mut buffer, 0) {
                Err(Errno::INTR) => {}
                other => break other.map_err(|errno| ProcError::new(self.pid, "statm", errno))?,
            }
        };
        figures_of(&buffer[..bytes]).ok_or_else(|| {
            ProcError::malformed(self.pid, "statm", &String::from_utf8_lossy(&buffer[..bytes]))
        })
    }
}

/// Whether a process has not left its memory yet: one that was ended leaves it before it says so.
pub(crate) fn has_memory(pid: Pid) -> bool {
    Statm::open(pid).and_then(|statm| statm.resident_pages()).is_ok_and(|pages| pages > 0)
}

/// Base pages of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatmFigures {
    pub(crate) resident_pages: u64,
    /// Of those: pages of files (programs and libraries, mostly) and of shared memory.
    pub(crate) file_pages: u64,
}

impl StatmFigures {
    /// Resident base pages that no file and no shared memory has.
    pub(crate) fn may_be_adopted(&self) -> u64 {
        self.resident_pages.saturating_sub(self.file_pages)
    }
}

/// The second number and the third.
fn figures_of(statm: &[u8]) -> Option<StatmFigures> {
    let mut numbers = statm.split(|byte| *byte == b' ').skip(1).map(|number| {
        if number.is_empty() {
            return None;
        }
        number.iter().try_fold(0_u64, |sum, byte| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            sum.checked_mul(10)?.checked_add(digit)
        })
    });
    Some(StatmFigures { resident_pages: numbers.next()??, file_pages: numbers.next()?? })
}

/// Private anonymous memory of a process that is resident, from `status`.
///
/// # Errors
/// [`ProcError`].
pub(crate) fn anonymous_bytes(pid: Pid) -> Result<Bytes, ProcError> {
    Ok(Bytes(field(&read_text(pid, "status")?, "RssAnon:").unwrap_or(0) * 1024))
}

/// [`FilePages`] of a process, from `status`.
///
/// # Errors
/// [`ProcError`].
pub(crate) fn files_of(pid: Pid) -> Result<FilePages, ProcError> {
    let text = read_text(pid, "status")?;
    // Without memory (a zombie, a kernel thread) there is no such line.
    let pages = |key| field(&text, key).unwrap_or(0) * 1024 / BASE_PAGE_BYTES as u64;
    Ok(FilePages { mapped: pages("RssFile:").saturating_sub(pages("VmLck:")), shared: pages("RssShmem:") })
}

/// Resident base pages of shared memory of a process: of a page that several have mapped, the part that is its own. Slow: the kernel looks at every page.
///
/// # Errors
/// [`ProcError`].
pub(crate) fn shared_pages(pid: Pid) -> Result<u64, ProcError> {
    let text = read_text(pid, "smaps_rollup")?;
    Ok(field(&text, "Pss_Shmem:").unwrap_or(0) * 1024 / BASE_PAGE_BYTES as u64)
}

/// Whether two processes have one memory, as a child of `vfork` and its parent do until the child executes its program. False where that may not be asked.
pub(crate) fn have_one_memory(one: Pid, other: Pid) -> bool {
    const KCMP_VM: libc::c_int = 1;
    let [one, other] = [one, other].map(|pid| pid.as_raw_nonzero().get());
    // SAFETY: compares two processes by their numbers, and touches nothing of ours.
    let answer = unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0_usize, 0_usize) };
    answer == 0
}

/// Resident base pages of a process.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct HeldPages {
    /// Those that it shares with others by a fork only in part.
    pub held: u64,
    /// The other part.
    pub of_others: u64,
}

/// [`HeldPages`] of a process. Slow: the kernel looks at every page.
///
/// # Errors
/// [`ProcError`].
pub(crate) fn held_pages(pid: Pid) -> Result<HeldPages, ProcError> {
    let text = read_text(pid, "smaps_rollup")?;
    let kib = |key| field(&text, key).ok_or_else(|| ProcError::malformed(pid, "smaps_rollup", &text));
    let of_others = kib("Anonymous:")?.saturating_sub(kib("Pss_Anon:")?);
    let pages = |kib: u64| kib * 1024 / BASE_PAGE_BYTES as u64;
    Ok(HeldPages { held: pages(kib("Rss:")?.saturating_sub(of_others)), of_others: pages(of_others) })
}

const _: () = assert!(BASE_PAGE_BYTES == 4096, "statm counts the machine's pages, which must be base pages");

#[cfg(test)]
mod tests;
