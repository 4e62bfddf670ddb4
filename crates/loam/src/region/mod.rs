//! Direct regions: memory that this machine's node has reserved, used by plain loads and stores (docs/regions-direct.md).
//!
//! The node (`loam node`, or `loam lend --socket`) is asked when a region is made, opened or resized. In between nobody is: there is no system
//! call, and after the first touch of a page no fault.
//!
//! ```no_run
//! # fn main() -> Result<(), loam::RegionError> {
//! let mut region = loam::Region::create("table", 1 << 30)?;
//! region.as_mut_slice()[..5].copy_from_slice(b"hello");
//! drop(region); // stays with the node, until it is removed
//!
//! let region = loam::Region::open("table")?;
//! assert_eq!(&region.as_slice()[..5], b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! **Who has it.** [`Region`] is open in one place at a time; the node sees to it, so its memory is a slice as any other, and a `fork`
//! leaves it to the parent alone: in the child it must not be looked at, calls answer [`RegionError::OtherProcess`], and dropping it does nothing. (Until the
//! child ends, or becomes another program, the node takes the region to be open.) [`SharedRegion`] is open in several programs at once, who may write at any moment, so it is read and
//! written through atomics and copies; a child that forks off has it, too, until it ends. Only programs of the region's owner are let in alone, together also those of the node's own user. The node, and a
//! debugger, could change the memory all the same, as they could any other of this program.
//!
//! **When the node ends** what is mapped stays as it is for as long as it is mapped: the memory belongs to whoever has it. Its name is
//! gone with the node, and what needs the node answers [`RegionError::Lost`]. The memory cannot shrink below a mapping (it is sealed), so
//! no access ends in SIGBUS. (A region of a [device](Options::device) is as sound as the device: who may open that may change all of it, or take
//! it away.)

mod cgroup;
mod error;
mod link;
mod map;
mod memory;
mod shared;
mod vec;

pub use error::{Refusal, RegionError};
pub use map::Advice;
pub use memory::RegionMemory;
pub use shared::SharedRegion;
pub use vec::{Element, RegionVec};

use link::Link;
use loam_wire::limits::REGION_DEVICE_BYTES_MAX;
pub use loam_wire::{MemoryPolicy, PolicyError};
use loam_wire::{RegionAsk, RegionCall, RegionEntry, region_flag};
use map::Map;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What the node says of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Which region it is, in this life of the node: another one of the same name later has another number.
    pub id: u64,
    /// What it is called.
    pub name: String,
    /// Number of the user whose it is.
    pub owner: u32,
    /// How large it is.
    pub bytes: u64,
    /// How many have it open.
    pub opens: u32,
    /// Stretches that it is made of: one, and one more each time that it grew.
    pub spans: u32,
    /// Of huge pages.
    pub is_huge: bool,
    /// Removed with the program that made it.
    pub is_temporary: bool,
    /// The path of the device that it is cut from; else it is of the machine's memory.
    pub device: Option<String>,
    /// From which memory nodes of the machine it is.
    pub policy: MemoryPolicy,
    /// Its size is a multiple of this, and so are the beginnings of its stretches.
    pub align_bytes: u64,
}

impl From<&RegionEntry> for Info {
    fn from(entry: &RegionEntry) -> Self {
        Self {
            id: entry.id(),
            name: entry.name().to_owned(),
            owner: entry.owner(),
            bytes: entry.bytes(),
            opens: entry.opens(),
            spans: entry.spans(),
            is_huge: entry.flags() & region_flag::HUGE != 0,
            is_temporary: entry.flags() & region_flag::TEMPORARY != 0,
            device: Some(entry.device()).filter(|path| !path.is_empty()).map(str::to_owned),
            policy: entry.policy(),
            align_bytes: entry.align_bytes(),
        }
    }
}

/// All regions that this user may open, and what the node could still reserve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// By name.
    pub regions: Vec<Info>,
    /// Bytes that regions have, of all users.
    pub reserved_bytes: u64,
    /// Bytes that could be reserved now.
    pub free_bytes: u64,
}

/// A connection to this machine's node, to make and manage regions.
#[derive(Debug)]
pub struct Regions {
    link: Link,
}

/// How a region is made.
#[derive(Clone, Debug, Default)]
pub struct Options {
    socket: Option<PathBuf>,
    huge: bool,
    temporary: bool,
    device: Option<PathBuf>,
    policy: MemoryPolicy,
}

impl Options {
    /// The usual: ordinary pages, kept until it is removed, by the node at one of the usual places.
    pub fn new() -> Self {
        Self::default()
    }
    /// By the node behind this socket.
    #[must_use]
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.socket = Some(path.into());
        self
    }
    /// Of huge pages (2 MiB): fewer first touches, fewer misses of the processor's table. The machine must have some set aside
    /// (`/proc/sys/vm/nr_hugepages`).
    #[must_use]
    pub fn huge(mut self, huge: bool) -> Self {
        self.huge = huge;
        self
    }
    /// Removed when the [`Region`] (or the [`Regions`]) that made it is dropped, or its program dies.
    #[must_use]
    pub fn temporary(mut self, temporary: bool) -> Self {
        self.temporary = temporary;
        self
    }
    /// Cut from this device, which must be one that the node was started with (`--region-device`): memory of its own, a DAX device say. Who opens
    /// such a region gets the descriptor of all of the device, so only programs of the node's own user, and of the device's owner, may.
    #[must_use]
    pub fn device(mut self, path: impl Into<PathBuf>) -> Self {
        self.device = Some(path.into());
        self
    }
    /// From these memory nodes of the machine (NUMA).
    #[must_use]
    pub fn memory_policy(mut self, policy: MemoryPolicy) -> Self {
        self.policy = policy;
        self
    }
    /// The device as the node knows it.
    fn device_path(&self) -> Result<String, RegionError> {
        let Some(path) = &self.device else { return Ok(String::new()) };
        let text = std::path::absolute(path).ok().and_then(|path| path.into_os_string().into_string().ok());
        let plain = |text: &String| {
            text.len() <= REGION_DEVICE_BYTES_MAX && !text.is_empty() && !text.chars().any(char::is_control)
        };
        text.filter(plain).ok_or_else(|| RegionError::DevicePath { path: path.clone() })
    }
    fn flags(&self) -> u8 {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        flag(self.huge, region_flag::HUGE) | flag(self.temporary, region_flag::TEMPORARY)
    }
    fn connect(&self) -> Result<Regions, RegionError> {
        Regions::connect(self.socket.as_deref())
    }
}

impl Regions {
    /// Connects to the node behind `socket`, or the first that answers at the usual places (`/run/loam/node.sock`,
    /// `$XDG_RUNTIME_DIR/loam/node.sock`).
    ///
    /// # Errors
    /// [`RegionError::NoNode`], [`RegionError::Connect`], [`RegionError::Lost`].
    pub fn connect(socket: Option<&Path>) -> Result<Self, RegionError> {
        Ok(Self { link: Link::connect(socket)? })
    }

    /// Reserves memory under a name.
    ///
    /// # Errors
    /// [`RegionError::Refused`], [`RegionError::Lost`], [`RegionError::DevicePath`].
    pub fn create(&mut self, name: &str, bytes: u64, options: &Options) -> Result<Info, RegionError> {
        let device = options.device_path()?;
        let new = RegionAsk::new(RegionCall::Create, name);
        let ask = RegionAsk { bytes, flags: options.flags(), policy: options.policy, device: &device, ..new };
        Ok(self.link.call(&ask)?.info)
    }

    /// All that this user may open.
    ///
    /// # Errors
    /// [`RegionError::Lost`].
    pub fn list(&mut self) -> Result<List, RegionError> {
        self.link.list()
    }

    /// Makes a region this large. It can grow at any time, and shrink when nobody has it open.
    ///
    /// # Errors
    /// [`RegionError::Refused`], [`RegionError::Lost`].
    pub fn resize(&mut self, name: &str, bytes: u64) -> Result<Info, RegionError> {
        Ok(self.link.call(&RegionAsk { bytes, ..RegionAsk::new(RegionCall::Resize, name) })?.info)
    }

    /// Takes the name away, and the memory when nobody has it open any more. Answers what it was.
    ///
    /// # Errors
    /// [`RegionError::Refused`], [`RegionError::Lost`].
    pub fn remove(&mut self, name: &str) -> Result<Info, RegionError> {
        Ok(self.link.call(&RegionAsk::new(RegionCall::Remove, name))?.info)
    }
}

/// What there is to know of a region that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// How large it is.
    pub bytes: usize,
    /// Stretches that it is mapped from.
    pub spans: usize,
    /// Of huge pages.
    pub is_huge: bool,
    /// The kernel was told never to swap it out. False where this user may not lock so much memory (`ulimit -l`): no matter on a
    /// machine without swap, nor with huge pages.
    pub is_locked: bool,
}

/// Opens region `id`, or, if that is 0, the one that has the name now.
fn open_in(link: &mut Link, id: u64, name: &str, alone: bool) -> Result<(Map, Info), RegionError> {
    let flags = if alone { 0 } else { region_flag::SHARED };
    mapped(link.call(&RegionAsk { flags, id, ..RegionAsk::new(RegionCall::Open, name) })?, alone)
}

/// A call about a region that is open here, whatever else has its name by now.
fn about(info: &Info, call: RegionCall) -> RegionAsk<'_> {
    RegionAsk { id: info.id, ..RegionAsk::new(call, &info.name) }
}

fn mapped(answer: link::Answer, alone: bool) -> Result<(Map, Info), RegionError> {
    let (align_bytes, is_device) = (answer.info.align_bytes as usize, answer.info.device.is_some());
    let map = Map::new(&answer.memory, align_bytes, is_device, alone).map_err(RegionError::Map)?;
    // Sharers would find their pages unmapped for it. And what is put together counts as the memory of who has asked for it: where that has a limit
    // the program has to say that it wants it.
    if alone && !cgroup::is_limited() {
        map.advise(0..map.len(), Advice::LargePages)?;
    }
    Ok((map, answer.info))
}

/// A region that is open here and nowhere else.
#[derive(Debug)]
pub struct Region {
    // In this order: first the mapping goes, then the node hears that nobody has it open.
    map: Map,
    link: Link,
    info: Info,
}

impl Region {
    /// Makes a region and opens it, with the node at one of the usual places.
    ///
    /// # Errors
    /// As [`Self::create_with`].
    pub fn create(name: &str, bytes: u64) -> Result<Self, RegionError> {
        Self::create_with(name, bytes, &Options::new())
    }

    /// Makes a region and opens it. Its bytes are 0.
    ///
    /// # Errors
    /// [`RegionError`].
    pub fn create_with(name: &str, bytes: u64, options: &Options) -> Result<Self, RegionError> {
        let mut regions = options.connect()?;
        let made = regions.create(name, bytes, options)?;
        match open_in(&mut regions.link, made.id, name, true) {
            Ok((map, info)) => Ok(Self { map, link: regions.link, info }),
            Err(why) => {
                // Nobody was told of it. (If the node does not hear it, the connection's end is all that can be done.)
                let _ =
                    regions.link.call(&RegionAsk { id: made.id, ..RegionAsk::new(RegionCall::Remove, name) });
                Err(why)
            }
        }
    }

    /// Opens a region, with the node at one of the usual places.
    ///
    /// # Errors
    /// As [`Self::open_on`].
    pub fn open(name: &str) -> Result<Self, RegionError> {
        Self::open_on(Regions::connect(None)?, name)
    }

    /// Opens a region. It takes the connection, which is how the node knows for how long.
    ///
    /// # Errors
    /// [`RegionError`]; [`Refusal::InUse`] if somebody has it open, [`Refusal::Denied`] if it is another user's: who may open that opens it together
    /// ([`SharedRegion`]), since its owner's programs may have kept its memory.
    pub fn open_on(regions: Regions, name: &str) -> Result<Self, RegionError> {
        let mut link = regions.link;
        let (map, info) = open_in(&mut link, 0, name, true)?;
        Ok(Self { map, link, info })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// Its memory. The first byte of each page is on a page of the machine.
    pub fn as_slice(&self) -> &[u8] {
        self.map.as_slice()
    }

    /// Its memory, to change it.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.map.as_mut_slice()
    }

    /// How large it is.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Only after a [`Self::resize`] that has failed: a region has a page at least.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tells the kernel how a range is going to be used.
    ///
    /// # Errors
    /// [`RegionError::Range`], [`RegionError::Advice`]; the memory is the same all the same.
    pub fn advise(&self, range: Range<usize>, advice: Advice) -> Result<(), RegionError> {
        self.map.advise(range, advice)
    }

    /// Makes it this large, rounded up to whole pages. What it has of its contents stays, what is new is 0; it is mapped anew, so its
    /// pages are touched for the first time again.
    ///
    /// # Errors
    /// [`RegionError`]. If it was to grow it is as it was. If it was to shrink and the node may have done that all the same (any error but a
    /// refusal), the node has what is left of it, and here it is empty until it is opened anew. After [`RegionError::Lost`] and
    /// [`RegionError::Protocol`] nothing more is asked for it: it has to be dropped and opened anew to be resized.
    pub fn resize(&mut self, bytes: u64) -> Result<(), RegionError> {
        let before = self.len() as u64;
        let was_broken = self.link.is_broken();
        let answer = self.link.call(&RegionAsk { bytes, ..about(&self.info, RegionCall::Resize) });
        let why = match answer.and_then(|answer| mapped(answer, true)) {
            Ok((map, info)) => {
                (self.map, self.info) = (map, info);
                return Ok(());
            }
            Err(why) => why,
        };
        let is_done = match &why {
            // Refused, or done and the memory could not be handed over: it does not say.
            RegionError::Refused { why: refusal, .. } => *refusal == Refusal::Unavailable,
            // Else it may be, if it was asked for.
            why => !was_broken && !matches!(why, RegionError::OtherProcess),
        };
        let rounded = bytes.checked_next_multiple_of(self.map.page_bytes() as u64);
        if is_done && rounded.is_some_and(|bytes| bytes < before) {
            // What is mapped here may not be what the node has: it must not be read or written any more, nor may what was asked be done later.
            self.map = Map::none();
            self.link.end_if_broken();
        } else if is_done && !self.link.is_broken() {
            let _ = self.link.call(&RegionAsk { bytes: before, ..about(&self.info, RegionCall::Resize) });
        }
        Err(why)
    }

    /// Takes its name away: the memory goes when this is dropped.
    ///
    /// # Errors
    /// [`RegionError::Refused`], [`RegionError::Lost`].
    pub fn remove(mut self) -> Result<(), RegionError> {
        self.link.call(&about(&self.info, RegionCall::Remove)).map(|_| ())
    }

    /// What there is to know of it.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            bytes: self.map.len(),
            spans: self.map.spans(),
            is_huge: self.info.is_huge,
            is_locked: self.map.is_locked(),
        }
    }
}
