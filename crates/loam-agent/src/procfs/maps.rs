//! A process's mappings, and which of them Loam adopts.

use super::{ProcError, read_text};
use rustix::process::Pid;
use std::fmt;

/// A mapping smaller than this is not worth its bookkeeping.
pub(crate) const ADOPT_BYTES_MIN: u64 = 512 * 1024;
/// And where those that are smaller would be more than the budget has room for.
pub(crate) const ADOPT_BYTES_LEAST: u64 = 64 * 1024;

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

    /// The area that `brk` moves the end of.
    pub(crate) fn is_heap(&self) -> bool {
        self.kind == Kind::Heap
    }

    /// Looks like memory of the kind that is adopted, as far as its line in `maps` tells.
    pub(crate) fn looks_adoptable(&self) -> bool {
        let kind = self.kind == Kind::Anonymous || self.kind == Kind::Heap;
        kind && self.inode == 0 && !self.shared && self.read && self.write
    }

    /// Parses `start-end perms offset device inode   name`.
    pub(super) fn parse(line: &str) -> Option<Self> {
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
const FLAG_NAMES: [&str; 20] = [
    "rd", "wr", "ex", "sh", "gd", "pf", "lo", "io", "dc", "de", "ht", "wf", "dd", "nh", "hg", "um", "uw",
    "ss", "dp", "mg",
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
    let text = read_text(pid, "smaps")?;
    if text.is_empty() {
        return Err(ProcError::Gone { pid: pid.as_raw_nonzero().get() });
    }
    parse_smaps(&text).map_err(|line| ProcError::malformed(pid, "smaps", line))
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
