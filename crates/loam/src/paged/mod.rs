//! Memory that is paged to other machines, for a program that was not started by `loam run`: [`connect`] has an agent serve this process, and
//! [`PagedVec`]s have their contents in its region, of which at most `local` stays here.
//!
//! Under `loam run` the program is served already: then [`connect`] does nothing, and vectors are borrowed for as all of the program's memory is.
//!
//! ```no_run
//! loam::paged::connect(&loam::paged::Options::new(1 << 30, 64 << 30).flags(["--lender", "10.0.0.7:7070"]))?;
//! let mut sums = loam::paged::PagedVec::<f64>::zeroed(1 << 30)?; // 8 GiB, of which at most one is here
//! sums[12] = 0.5;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod allocator;
mod figures;
pub mod raw;
mod said;
mod shim;
mod terms;
mod vec;

pub use allocator::PagedAllocator;
pub use figures::statistics;
pub use terms::{Plan, Terms};
pub use vec::PagedVec;

use shim::Shim;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock};

/// The command that serves, if `LOAM` does not name another.
const COMMAND: &str = "loam";

/// Why nothing can be borrowed. Each is one line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum PagedError {
    /// `loam` is not there.
    #[error("{}: cannot be started ({error}): install Loam, or set LOAM to the path of its command", command.display())]
    Command {
        /// What was tried.
        command: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// It says why it cannot serve.
    #[error("{0}")]
    Refused(String),
    /// It ended without a word, or said something else than agreed.
    #[error("`loam attach` did not begin: is it of the same version as this library?")]
    NoAnswer,
    /// The shim cannot be loaded.
    #[error("{}: cannot be loaded ({why}): install Loam again", path.display())]
    Shim {
        /// Which.
        path: PathBuf,
        /// What the dynamic loader says.
        why: String,
    },
    /// [`connect`] comes first.
    #[error("this program is not connected: call connect, or start it by `loam run`")]
    NotConnected,
    /// [`advise`] has reached nobody.
    #[error(
        "the agent has not heard the advice: it is busy, this process has no descriptors left (ulimit -n), or it is a child that the agent does not serve"
    )]
    Unheard,
    /// [`advise`] or [`prioritize`]: too much was said of other memory.
    #[error(
        "there is advice for too many ranges of this process (4096): take some back (Advice::Normal, Priority::Normal), or give it for larger ranges"
    )]
    TooMuch,
    /// [`set_terms`]: there are too many budgets.
    #[error(
        "there are budgets (local) for too many ranges of this process (64): take some back (Terms::new()), or give one for several of them together"
    )]
    TooManyBudgets,
    /// [`set_terms`]: pages have no such size.
    #[error("a page has 4 KiB, 8 KiB, and so on doubled up to 1 MiB, not {bytes} bytes: give one of these")]
    PageSize {
        /// What was asked for.
        bytes: usize,
    },
    /// The agent does not tell its figures.
    #[error("{}: the agent does not tell its figures ({error}): does the temporary folder still have its socket?", socket.display())]
    Statistics {
        /// Where it was asked.
        socket: PathBuf,
        /// What went wrong.
        error: std::io::Error,
    },
    /// No room, here or in the region.
    #[error(
        "no memory for {bytes} bytes: the region is full, and this machine as well; ask for a larger region"
    )]
    Full {
        /// How much was asked for.
        bytes: usize,
    },
}

/// What a program will do with memory. It changes when pages come and go, and never what is in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Use it soon: what is away of it is fetched now, behind all that a thread waits for. Of a range that is larger than half of what may be here only
    /// the beginning.
    WillNeed,
    /// Not use it for a while: its whole pages leave now, before all others, and make room. (A program that has never had more than may be here
    /// keeps all.)
    WillNotNeed,
    /// Nothing in particular: takes [`Sequential`](Self::Sequential) and [`Random`](Self::Random) back.
    Normal,
    /// From now on go through it from lower to higher addresses: the first touch already fetches what lies ahead (unless nothing is ever fetched ahead), and
    /// what lies behind, the last 8,192 pages of it (32 MiB of 4 KiB pages), leaves before all else when room is wanted.
    Sequential,
    /// From now on use it in no order: a fault brings one base page (4 KiB), and nothing is fetched ahead. Base pages at its ends count though they are
    /// only in part of it.
    Random,
}

/// What memory is worth to a program when there is not room for all of it. It is that of the whole tree: all processes of a `loam run` share one budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// It leaves before all other memory, but for a 64th of the budget or four pages, which it has to go on with.
    Low,
    /// As all memory of which nothing is said.
    #[default]
    Normal,
    /// It leaves after all other memory, but for what that has to go on with, as above. Of sixteen pages that leave (other than low ones) one is the oldest of
    /// high memory: what is in use comes back at once, and what is not any more goes one day.
    High,
}

/// What to borrow.
#[derive(Clone, Debug)]
pub struct Options {
    local_bytes: u64,
    region_bytes: u64,
    flags: Vec<OsString>,
}

impl Options {
    /// At most `local_bytes` of what this program allocates from now on is here, and its region reserves `region_bytes` of address space: all that it can
    /// borrow for at once. An unserved allocation, once the region is full, is an ordinary one.
    pub fn new(local_bytes: u64, region_bytes: u64) -> Self {
        Self { local_bytes, region_bytes, flags: Vec::new() }
    }

    /// Has lenders set room aside for `bytes` of this program's pages before [`connect`] succeeds: as much as the region has, to be sure of all of it.
    /// It is this program's alone until it ends. If they have less, `connect` fails, and says what is missing.
    pub fn reserve(mut self, bytes: u64) -> Self {
        self.flags.push(format!("--reserve={bytes}").into());
        self
    }

    /// More flags of `loam run`, such as `--lender ADDR:PORT`; without one the cluster of this machine's node lends.
    pub fn flags<S: AsRef<OsStr>>(mut self, flags: impl IntoIterator<Item = S>) -> Self {
        self.flags.extend(flags.into_iter().map(|flag| flag.as_ref().to_owned()));
        self
    }
}

static SHIM: OnceLock<Shim> = OnceLock::new();

/// The shim that serves this process; none if it is not served.
fn served() -> Option<&'static Shim> {
    SHIM.get().or_else(|| Shim::preloaded().map(|preloaded| SHIM.get_or_init(|| preloaded)))
}

/// Has an agent serve this process, from now to its end. A process that is served already goes on as it is; the options of later calls are
/// not looked at. Children that fork are served too.
///
/// # Errors
/// [`PagedError`], and nothing has changed.
pub fn connect(options: &Options) -> Result<(), PagedError> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if served().is_some() {
        return Ok(());
    }
    let (socket, path) = attach(options)?;
    let shim = Shim::load(&path)?;
    shim.join(&socket)?;
    figures::remember(socket);
    SHIM.set(shim).expect("connecting is behind a lock, and nobody has preloaded one");
    Ok(())
}

/// Whether this process is served: by [`connect`], or as it was started by `loam run`.
pub fn is_connected() -> bool {
    served().is_some()
}

/// Says what this program will do with `memory`, which may be any: what is not borrowed for is passed over. It waits for nothing but the agent's "heard".
/// (`loam run` and [`connect`] alike.) A good moment is well before the memory is used, or when a pass over it is over.
///
/// [`Advice::Sequential`], [`Advice::Random`], [`Priority`] and [`Terms`] hold for their addresses until something else is said of them, or they are unmapped, discarded
/// (`MADV_DONTNEED`), or freed or resized by this module (outside of the region from 4 KiB on). A child that forks has its parent's. A process may say different things of 4096 ranges.
///
/// # Errors
/// [`PagedError::NotConnected`]; [`PagedError::Unheard`]; [`PagedError::TooMuch`], and nothing has changed.
pub fn advise<T>(memory: &[T], advice: Advice) -> Result<(), PagedError> {
    let start = memory.as_ptr().addr();
    raw::advise(start..start + size_of_val(memory), advice)
}

/// Says which memory is to keep its place when there is not room for all, from now on. Otherwise as [`advise`].
///
/// # Errors
/// As [`advise`]; [`PagedError::TooMuch`].
pub fn prioritize<T>(memory: &[T], priority: Priority) -> Result<(), PagedError> {
    let start = memory.as_ptr().addr();
    raw::prioritize(start..start + size_of_val(memory), priority)
}

/// Says on what terms `memory` is paged from now on, in place of all that was set of it before: [`Terms`]. It also holds for what is here already, but for the pages
/// that that came in. Otherwise as [`advise`].
///
/// # Errors
/// As [`advise`]; [`PagedError::TooMuch`], [`PagedError::TooManyBudgets`], [`PagedError::PageSize`], and nothing has changed.
pub fn set_terms<T>(memory: &[T], terms: &Terms) -> Result<(), PagedError> {
    let start = memory.as_ptr().addr();
    raw::set_terms(start..start + size_of_val(memory), terms)
}

/// Zeros of the region, or of this machine where it is full or they are few; aligned to 16 bytes.
pub(crate) fn zeros(bytes: usize) -> Result<NonNull<u8>, PagedError> {
    served().ok_or(PagedError::NotConnected)?.zeros(bytes).ok_or(PagedError::Full { bytes })
}

/// Makes what [`zeros`] has given larger or smaller; what is new has any contents.
///
/// # Safety
/// As [`free`], unless it fails.
pub(crate) unsafe fn resize(memory: Option<NonNull<u8>>, bytes: usize) -> Result<NonNull<u8>, PagedError> {
    let shim = served().ok_or(PagedError::NotConnected)?;
    // SAFETY: the caller's promise.
    memory.inspect(|&memory| unsafe { said::forget(shim, memory) });
    // SAFETY: the caller's promise.
    unsafe { shim.resize(memory, bytes.max(1)) }.ok_or(PagedError::Full { bytes })
}

/// Frees what [`zeros`] has given.
///
/// # Safety
/// It was not freed before, and nobody uses it any more.
pub(crate) unsafe fn free(memory: NonNull<u8>) {
    let shim = served().expect("it was when this was made");
    // SAFETY: the caller's promise.
    unsafe { said::forget(shim, memory) };
    // SAFETY: the caller's promise.
    unsafe { shim.free(memory) };
}

/// See [`crate::part`]. False: this process has not connected.
pub(crate) fn part(number: u32) -> bool {
    SHIM.get().inspect(|shim| shim.part(number)).is_some()
}

/// Starts the agent; where it listens, and the shim that fits it.
fn attach(options: &Options) -> Result<(PathBuf, PathBuf), PagedError> {
    let command = std::env::var_os("LOAM").map_or_else(|| PathBuf::from(COMMAND), PathBuf::from);
    let mut child = Command::new(&command)
        .args(["attach", "--quiet", "--pid"])
        .arg(std::process::id().to_string())
        .args(["--local", &options.local_bytes.to_string(), "--region", &options.region_bytes.to_string()])
        .args(&options.flags)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| PagedError::Command { command: command.clone(), error })?;
    let answer = answer(child.stdout.take().expect("asked for as a pipe"));
    // It has started the agent and ended; or it will have, soon.
    match (answer, child.wait()) {
        (Err(PagedError::NoAnswer), Ok(status)) if !status.success() => Err(PagedError::Refused(format!(
            "`{} attach` ended without an answer ({status}): see what it has said on stderr; is it of the same version as this library?",
            command.display()
        ))),
        (answer, _) => answer,
    }
}

fn answer(stdout: ChildStdout) -> Result<(PathBuf, PathBuf), PagedError> {
    let mut lines = BufReader::new(stdout).lines();
    let mut next = || lines.next().and_then(Result::ok).ok_or(PagedError::NoAnswer);
    let first = next()?;
    match first.strip_prefix("failed: ") {
        Some(why) => Err(PagedError::Refused(why.to_owned())),
        None if first == "ready" => Ok((PathBuf::from(next()?), Path::new(&next()?).to_owned())),
        None => Err(PagedError::NoAnswer),
    }
}
