//! A process's mappings, and which of them Loam adopts.

use super::{FILE_BYTES_MAX, ProcError, open, read_text, text_of};
use loam_core::borrower::BaseRange;
use rustix::process::Pid;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A mapping smaller than this is not worth its bookkeeping.
pub(crate) const ADOPT_BYTES_MIN: u64 = 512 * 1024;
/// And where those that are smaller would be more than the budget has room for.
pub(crate) const ADOPT_BYTES_LEAST: u64 = 64 * 1024;

/// What stays of a thread's stack, at its end: there C libraries have the thread's control block (2,304 bytes in glibc), which may begin
/// a page earlier where a thread-local variable wants to stand at a multiple of more than a page.
const STACK_END_BYTES: u64 = 8 * 1024;

/// What a mapping is, by its name and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No file and no name, or a name that the program gave it (`[anon:...]`).
    Anonymous,
    /// `brk` memory.
    Heap,
    /// The first thread's stack.
    Stack,
    /// `[vdso]`, `[vvar]`, `[vsyscall]` and whatever else the kernel maps by itself.
    Special,
    /// Of a file; memfd, shm and `MAP_SHARED | MAP_ANONYMOUS` are files of the kernel.
    File,
}

/// One line of `maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// First address.
    pub(crate) start: u64,
    /// One past the last.
    pub(crate) end: u64,
    /// `PROT_READ`.
    pub(crate) read: bool,
    /// `PROT_WRITE`.
    pub(crate) write: bool,
    /// `PROT_EXEC`.
    pub(crate) exec: bool,
    /// `MAP_SHARED`.
    pub(crate) shared: bool,
    /// Of the file; 0: none.
    pub(crate) inode: u64,
    /// See [`Kind`].
    pub(crate) kind: Kind,
}

impl Mapping {
    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Its base pages.
    pub(crate) fn pages(&self) -> BaseRange {
        BaseRange::new(self.start >> 12, self.end >> 12)
    }

    /// The area that `brk` moves the end of.
    pub(crate) fn is_heap(&self) -> bool {
        self.kind == Kind::Heap
    }

    /// Looks like memory of the kind that is adopted, as far as its line in `maps` tells.
    pub(crate) fn looks_adoptable(&self) -> bool {
        let kind = self.kind == Kind::Anonymous || self.kind == Kind::Heap;
        kind && self.inode == 0 && !self.shared && self.read && self.write
    }

    /// Nothing can be done with it: what stands below a thread's stack.
    fn is_guard(&self) -> bool {
        !(self.read || self.write || self.exec)
    }

    /// Parses `start-end perms offset device inode   name`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut rest = line;
        let mut next = || {
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            rest = after;
            word
        };
        let (start, end) = next().split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        let perms: [u8; 4] = next().as_bytes().try_into().ok()?;
        let (_offset, _device) = (next(), next());
        let inode = next().parse().ok()?;
        let name = rest.trim_start_matches(' ');
        let shared = match perms[3] {
            b's' => true,
            b'p' => false,
            _ => return None,
        };
        if start >= end || start % 4096 != 0 || end % 4096 != 0 {
            return None;
        }
        let kind = match name {
            _ if inode != 0 => Kind::File,
            "" => Kind::Anonymous,
            "[heap]" => Kind::Heap,
            "[stack]" => Kind::Stack,
            // Before Linux 4.5 other threads' stacks had names as well.
            _ if name.starts_with("[stack:") => Kind::Stack,
            _ if name.starts_with("[anon:") => Kind::Anonymous,
            _ if name.starts_with('[') => Kind::Special,
            // A device or a file system without inodes.
            _ => Kind::File,
        };
        let [read, write, exec] =
            [(0, b'r'), (1, b'w'), (2, b'x')].map(|(index, letter)| perms[index] == letter);
        Some(Self { start, end, read, write, exec, shared, inode, kind })
    }
}

/// The kernel's flags of a mapping that matter here.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct VmFlags(u32);

/// Flag names, two letters each as in smaps, and their bits.
const FLAG_NAMES: [&str; 21] = [
    "rd", "wr", "ex", "sh", "gd", "pf", "lo", "io", "dc", "de", "ht", "wf", "dd", "nh", "hg", "um", "uw",
    "ss", "dp", "mg", "gu",
];

impl VmFlags {
    /// `VmFlags: rd wr mr ...`, without the key; unknown names are skipped.
    pub(super) fn parse(names: &str) -> Self {
        Self(names.split_ascii_whitespace().fold(0, |bits, name| bits | Self::bit(name).unwrap_or(0)))
    }

    fn bit(name: &str) -> Option<u32> {
        FLAG_NAMES.iter().position(|known| *known == name).map(|index| 1 << index)
    }

    /// Whether the flag of this name is set.
    ///
    /// # Panics
    /// For a name that is not among the known ones: a slip of the pen, not a matter of the input.
    pub(crate) fn has(self, name: &str) -> bool {
        self.0 & Self::bit(name).expect("a flag name that is not in the table") != 0
    }
}

impl fmt::Debug for VmFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(FLAG_NAMES.iter().filter(|name| self.has(name))).finish()
    }
}

/// One mapping as smaps has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Detail {
    /// The line of `maps`.
    pub(crate) mapping: Mapping,
    /// Its flags.
    pub(crate) flags: VmFlags,
}

impl Detail {
    /// Where we hide what is adopted from children: it is registered with a userfaultfd as well, which what the program hides is not, nor what
    /// is the shim's own.
    pub(crate) fn is_hidden_by_us(&self) -> bool {
        self.flags.has("dc") && self.is_registered()
    }

    /// With a userfaultfd, for pages that are missing: ours, or the program's own.
    pub(crate) fn is_registered(&self) -> bool {
        self.flags.has("um")
    }

    /// Or may be: the hand hides a range some time after it was told to. If the program has unmapped it by then, and mapped other memory at
    /// its place, that is hidden now. (What the program hides is known from its own request, see `Process::released`.)
    pub(crate) fn may_be_hidden_by_us(&self) -> bool {
        let mapping = &self.mapping;
        let is_private = matches!(mapping.kind, Kind::Anonymous | Kind::Heap) && !mapping.shared;
        // Of the shim's own, or of a device.
        let is_apart = ["dd", "de", "io", "pf"].into_iter().any(|name| self.flags.has(name));
        self.is_hidden_by_us() || self.flags.has("dc") && is_private && !is_apart
    }

    /// A child does not have it, and it is not the shim's own (`join::own` there; a program that says all of that of its memory says it by the C library's `madvise`).
    pub(crate) fn is_kept_from_children(&self) -> bool {
        self.flags.has("dc") && !(self.flags.has("dd") && self.flags.has("nh"))
    }

    /// The program keeps it from its children. Where the kernel reports forks (`fork_events`) nothing is hidden by us.
    pub(crate) fn is_hidden_by_program(&self, fork_events: bool) -> bool {
        self.flags.has("dc") && (fork_events || !self.is_hidden_by_us())
    }

    /// Private memory of no file that is read and written, and nothing more: what a new mapping would be as well.
    pub(crate) fn is_plain(&self, fork_events: bool) -> bool {
        const APART: [&str; 13] =
            ["ex", "sh", "gd", "pf", "lo", "io", "de", "ht", "wf", "dd", "ss", "dp", "gu"];
        self.mapping.looks_adoptable()
            && !self.mapping.exec
            && !APART.into_iter().any(|name| self.flags.has(name))
            && !self.is_hidden_by_program(fork_events)
    }
}

/// It has a mapping of a file that is called as the one at `path` is, wherever its own root is. False where that cannot be told.
pub(crate) fn has_mapped(pid: Pid, path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(OsStr::to_str) else { return false };
    read_text(pid, "maps").is_ok_and(|text| text.lines().any(|line| is_of_file(line, name)))
}

/// The line of `maps` is one of a file with that name.
pub(super) fn is_of_file(line: &str, name: &str) -> bool {
    let line = line.strip_suffix(" (deleted)").unwrap_or(line);
    line.rsplit_once('/').is_some_and(|(_, last)| last == name)
}

/// All mappings, without their flags. Quick: the kernel looks at no page.
///
/// # Errors
/// As [`flags`].
pub(crate) fn mappings(pid: Pid) -> Result<Vec<Mapping>, ProcError> {
    let text = read_text(pid, "maps")?;
    text.lines()
        .map(|line| Mapping::parse(line).ok_or_else(|| ProcError::malformed(pid, "maps", line)))
        .collect()
}

/// All mappings with their flags, in the order of their addresses. Slow: the kernel looks at every page of the process.
///
/// # Errors
/// [`ProcError::Gone`] also for a process that has exited and was not reaped yet.
pub(crate) fn flags(pid: Pid) -> Result<Vec<Detail>, ProcError> {
    details(pid, &read_text(pid, "smaps")?)
}

/// As [`flags`], of the mappings up to the one that begins at address `last`. What stands behind that the kernel does not look at: new mappings mostly stand
/// below older ones, so what they cost does not grow with all that is there.
///
/// # Errors
/// As [`flags`].
pub(crate) fn flags_up_to(pid: Pid, last: u64) -> Result<Vec<Detail>, ProcError> {
    let text =
        records_up_to(File::from(open(pid, "smaps")?), last).map_err(|e| ProcError::io(pid, "smaps", &e))?;
    details(pid, &text_of(text))
}

fn details(pid: Pid, smaps: &str) -> Result<Vec<Detail>, ProcError> {
    if smaps.is_empty() {
        return Err(ProcError::Gone { pid: pid.as_raw_nonzero().get() });
    }
    parse_smaps(smaps).map_err(|line| ProcError::malformed(pid, "smaps", line))
}

/// Less than any record of smaps. The kernel makes a record when the one before has been read to its end and more is wanted, and further ones as long as what it has is less than what was asked for.
pub(super) const RECORD_BYTES_MIN: usize = 256;
/// Less than the line of a record's flags, which is its last: `VmFlags: mr mw me nr `.
const FLAGS_BYTES_MIN: usize = 16;

/// The records of smaps up to the one of the mapping that begins at `last`, or the first behind it; no record after that is asked for.
pub(super) fn records_up_to(mut smaps: impl Read, last: u64) -> io::Result<Vec<u8>> {
    let (mut text, mut line) = (Vec::new(), 0);
    let mut is_last = false;
    let mut buffer = [0; RECORD_BYTES_MIN];
    loop {
        // Or may be: what has come of the line says no other.
        let begun = &text[line..];
        let in_flags = !begun.is_empty() && begun.iter().zip(b"VmFlags:").all(|(byte, flags)| byte == flags);
        let wanted = match (is_last, in_flags) {
            (false, _) => RECORD_BYTES_MIN,
            (true, false) => FLAGS_BYTES_MIN,
            (true, true) => 1,
        };
        let bytes = match smaps.read(&mut buffer[..wanted]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if bytes == 0 || text.len() as u64 > FILE_BYTES_MAX {
            return Ok(text);
        }
        text.extend_from_slice(&buffer[..bytes]);
        while let Some(length) = text[line..].iter().position(|byte| *byte == b'\n') {
            let whole = &text[line..line + length];
            if is_last && whole.starts_with(b"VmFlags:") {
                // With a line that is shorter than any should be, more may have come.
                text.truncate(line + length + 1);
                return Ok(text);
            }
            is_last |= first_address(whole).is_some_and(|address| address >= last);
            line += length + 1;
        }
    }
}

/// Of a record's first line; `None` for any other.
fn first_address(line: &[u8]) -> Option<u64> {
    let (address, _) = str::from_utf8(line).ok()?.split_once('-')?;
    u64::from_str_radix(address, 16).ok()
}

/// The text of smaps; the line that is not understood, else.
pub(super) fn parse_smaps(text: &str) -> Result<Vec<Detail>, &str> {
    let mut result: Vec<Detail> = Vec::new();
    for line in text.lines() {
        // `Key: value` lines begin with a capital letter, mappings with a hexadecimal digit, which is lower case.
        if !line.starts_with(|c: char| c.is_ascii_uppercase()) {
            let mapping = Mapping::parse(line).ok_or(line)?;
            let flags = VmFlags::default();
            result.push(Detail { mapping, flags });
            continue;
        }
        let (key, value) = line.split_once(':').ok_or(line)?;
        let detail = result.last_mut().ok_or(line)?;
        if key == "VmFlags" {
            detail.flags = VmFlags::parse(value);
        }
    }
    Ok(result)
}

/// Why a mapping is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Shared memory.
    Shared,
    /// Of a file.
    File,
    /// A stack, or one that grows down.
    Stack,
    /// The kernel's own.
    Special,
    /// Not both readable and writable.
    Protection,
    /// Locked by the program.
    Locked,
    /// A forked child is to find zeros in it.
    WipeOnFork,
    /// Huge pages of the fixed kind.
    HugeTlb,
    /// Of a device.
    Device,
    /// The kernel may drop its pages (`MAP_DROPPABLE`), or only the processor may write them (shadow stacks).
    Unusual,
    /// Neither for a child nor for a core dump: above all the hand's own stack.
    Hidden,
    /// Too small.
    Small,
}

/// First address of what is to stay of a mapping that is adopted; its end, unless it may be a thread's stack. `below`: the mapping before it.
///
/// The last that is done for a thread is done by the kernel, when it has ended: its control block is written to (`CLONE_CHILD_CLEARTID`), and
/// whoever joins it is woken. An ending thread waits for no page: if the block were away, that would not be done, and the other would
/// wait for ever. Stacks as such may leave: a thousand threads have 8 GB of them.
///
/// A stack stands above memory without access, or was mapped as one (`MAP_STACK`: `nh` since Linux 6.7), or has guards in it (`gu`). So may other
/// memory, of which these two pages are lost to others: that is cheaper than to miss one.
pub(crate) fn stack_end(mapping: &Mapping, flags: VmFlags, below: Option<&Mapping>) -> u64 {
    let guarded = below.is_some_and(|below| below.end == mapping.start && below.is_guard());
    let may_be = mapping.kind == Kind::Anonymous && (guarded || flags.has("nh") || flags.has("gu"));
    let bytes = if may_be { STACK_END_BYTES.min(mapping.bytes()) } else { 0 };
    mapping.end - bytes
}

/// Whether a mapping is adopted. `adjacent_adopted`: it touches memory that is adopted already, as the pieces of a mapping
/// do whose protection was changed in parts.
///
/// # Errors
/// The first reason against it.
pub(crate) fn adoptable(
    mapping: &Mapping,
    flags: VmFlags,
    adjacent_adopted: bool,
    bytes_min: u64,
) -> Result<(), Why> {
    let reasons = [
        (mapping.shared || flags.has("sh"), Why::Shared),
        (mapping.kind == Kind::File || mapping.inode != 0, Why::File),
        (mapping.kind == Kind::Stack || flags.has("gd"), Why::Stack),
        (mapping.kind == Kind::Special, Why::Special),
        (flags.has("ht"), Why::HugeTlb),
        (flags.has("io") || flags.has("pf"), Why::Device),
        (flags.has("ss") || flags.has("dp"), Why::Unusual),
        (flags.has("wf"), Why::WipeOnFork),
        (flags.has("lo"), Why::Locked),
        (!(mapping.read && mapping.write && flags.has("rd") && flags.has("wr")), Why::Protection),
        (flags.has("dc") && flags.has("dd"), Why::Hidden),
        (mapping.bytes() < bytes_min && !adjacent_adopted, Why::Small),
    ];
    match reasons.into_iter().find(|(applies, _)| *applies) {
        Some((_, why)) => Err(why),
        None => Ok(()),
    }
}
