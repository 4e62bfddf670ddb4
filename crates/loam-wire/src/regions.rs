//! Direct regions, between a program and the node of its own machine (docs/regions-direct.md). The memory itself is handed over beside the
//! bytes: a [`Frame::Region`](crate::Frame::Region) that answers an open comes with one descriptor for each of its spans (SCM_RIGHTS).

use crate::encode::{append, tidy};
use crate::layout::kind;
use crate::limits::{
    ERROR_TEXT_BYTES_MAX, NAME_BYTES_MAX, REGION_DEVICE_BYTES_MAX, REGION_SPANS_MAX, REGIONS_MAX,
};
use crate::memory_policy::MemoryPolicy;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What is wanted of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionCall {
    /// Reserve a new one.
    Create,
    /// Hand its memory over, for as long as this connection lives.
    Open,
    /// Make it this large.
    Resize,
    /// Take the name away, and the memory when nobody has it open.
    Remove,
    /// Tell of all that the asker may open. Has no name.
    List,
}

const CALLS: [RegionCall; 5] =
    [RegionCall::Create, RegionCall::Open, RegionCall::Resize, RegionCall::Remove, RegionCall::List];

/// Bits that go with a call, and that a region has.
pub mod region_flag {
    /// Of huge pages (2 MiB).
    pub const HUGE: u8 = 1;
    /// Open: together with others that say the same. Without it nobody else has it open.
    pub const SHARED: u8 = 2;
    /// Create: removed with the connection that created it.
    pub const TEMPORARY: u8 = 4;
    /// All that go with a call.
    pub const CALLS: u8 = HUGE | SHARED | TEMPORARY;
}

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionRefusal {
    /// There is no region of that name.
    NotFound,
    /// There is one already.
    Exists,
    /// It is another user's.
    Denied,
    /// So much is not free, of what the node lends.
    NoRoom,
    /// Others have it open.
    InUse,
    /// The name, the size or the flags are none that a region can have.
    Invalid,
    /// There are as many as there may be.
    TooMany,
    /// The machine cannot do that: it has no huge pages, say.
    Unavailable,
}

const REFUSALS: [RegionRefusal; 8] = [
    RegionRefusal::NotFound,
    RegionRefusal::Exists,
    RegionRefusal::Denied,
    RegionRefusal::NoRoom,
    RegionRefusal::InUse,
    RegionRefusal::Invalid,
    RegionRefusal::TooMany,
    RegionRefusal::Unavailable,
];

/// What a program asks of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionAsk<'a> {
    /// What.
    pub call: RegionCall,
    /// [`region_flag`]s.
    pub flags: u8,
    /// Its size, for create and resize.
    pub bytes: u64,
    /// Which region; 0: the one that has the name now.
    pub id: u64,
    /// Its name.
    pub name: &'a str,
    /// Create: of which memory nodes.
    pub policy: MemoryPolicy,
    /// Create: cut from this device, by path; empty: of the machine's memory.
    pub device: &'a str,
}

impl<'a> RegionAsk<'a> {
    /// With the region that has this name now, and nothing else said.
    pub fn new(call: RegionCall, name: &'a str) -> Self {
        Self { call, flags: 0, bytes: 0, id: 0, name, policy: MemoryPolicy::Unset, device: "" }
    }
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RegionCallBody {
    call: u8,
    flags: u8,
    policy: u8,
    name_bytes: u8,
    reserved: [u8; 4],
    bytes: U64,
    id: U64,
    policy_nodes: U64,
}

impl RegionCallBody {
    /// The call, with the name and the device in `text`. `None`: it is none.
    pub(crate) fn checked<'a>(&self, text: &'a str) -> Option<RegionAsk<'a>> {
        let known = self.flags & !region_flag::CALLS == 0;
        let call = CALLS.get(usize::from(self.call)).copied().filter(|_| known)?;
        let (name, device) = text.split_at_checked(usize::from(self.name_bytes))?;
        if name.len() > NAME_BYTES_MAX || device.len() > REGION_DEVICE_BYTES_MAX {
            return None;
        }
        let policy = MemoryPolicy::from_wire(self.policy, self.policy_nodes.get())?;
        let (flags, bytes, id) = (self.flags, self.bytes.get(), self.id.get());
        Some(RegionAsk { call, flags, bytes, id, name, policy, device })
    }
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RegionRefusedBody {
    why: U16,
    reserved: [u8; 6],
}

impl RegionRefusedBody {
    pub(crate) fn why_checked(&self) -> Option<RegionRefusal> {
        REFUSALS.get(usize::from(self.why.get())).copied()
    }
}

/// One stretch of a region's memory, contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RegionSpan {
    address: U64,
    offset: U64,
    bytes: U64,
}

impl RegionSpan {
    /// `bytes` at `address` of the node's ledger, which are at `offset` of the span's descriptor.
    pub fn new(address: u64, offset: u64, bytes: u64) -> Self {
        Self { address: address.into(), offset: offset.into(), bytes: bytes.into() }
    }
    /// Where it is in the node's ledger.
    pub fn address(&self) -> u64 {
        self.address.get()
    }
    /// Where it is in the file that the descriptor is of.
    pub fn offset(&self) -> u64 {
        self.offset.get()
    }
    /// How long it is.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }
}

/// What a node says of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RegionEntry {
    bytes: U64,
    owner: U32,
    opens: U32,
    spans: U32,
    flags: u8,
    name_bytes: u8,
    policy: u8,
    device_bytes: u8,
    name: [u8; NAME_BYTES_MAX],
    id: U64,
    policy_nodes: U64,
    align_shift: u8,
    reserved: [u8; 7],
    device: [u8; REGION_DEVICE_BYTES_MAX],
}

/// Stretches begin and end at multiples of at least 4 KiB, and at most of 1 GiB.
const ALIGN_SHIFTS: std::ops::RangeInclusive<u8> = 12..=30;

impl RegionEntry {
    /// Region `id` of `bytes`, in `spans` stretches, that `opens` connections have open.
    pub fn new(id: u64, name: &str, owner: u32, bytes: u64, opens: u32, spans: u32, flags: u8) -> Self {
        let name = tidy(name, NAME_BYTES_MAX);
        let mut entry = Self {
            bytes: bytes.into(),
            owner: owner.into(),
            opens: opens.into(),
            spans: spans.into(),
            flags,
            name_bytes: name.len() as u8,
            policy: 0,
            device_bytes: 0,
            name: [0; NAME_BYTES_MAX],
            id: id.into(),
            policy_nodes: 0.into(),
            align_shift: *ALIGN_SHIFTS.start(),
            reserved: [0; 7],
            device: [0; REGION_DEVICE_BYTES_MAX],
        };
        entry.name[..name.len()].copy_from_slice(name.as_bytes());
        entry
    }
    /// What its memory is: of which memory nodes, or cut from which device (empty: none), in stretches of multiples of `align_bytes`.
    ///
    /// # Panics
    /// If that is no power of two from 4 KiB to 1 GiB.
    #[must_use]
    pub fn with_memory(mut self, policy: MemoryPolicy, device: &str, align_bytes: u64) -> Self {
        let shift = align_bytes.trailing_zeros() as u8;
        assert!(align_bytes.is_power_of_two() && ALIGN_SHIFTS.contains(&shift), "{align_bytes}");
        let device = tidy(device, REGION_DEVICE_BYTES_MAX);
        (self.policy, self.policy_nodes) = (policy.mode(), policy.nodes().into());
        (self.align_shift, self.device_bytes) = (shift, device.len() as u8);
        self.device[..device.len()].copy_from_slice(device.as_bytes());
        self
    }
    /// Which region it is, of this node's life: not 0, and never another's. Names are given anew.
    pub fn id(&self) -> u64 {
        self.id.get()
    }
    /// What it is called.
    ///
    /// # Panics
    /// Never on one that came from [`crate::decode()`], which refuses what is no text.
    pub fn name(&self) -> &str {
        self.name_checked().expect("the decoder has seen to it")
    }
    pub(crate) fn name_checked(&self) -> Option<&str> {
        crate::decode::printable(self.name.get(..usize::from(self.name_bytes))?)
    }
    fn device_checked(&self) -> Option<&str> {
        crate::decode::printable(self.device.get(..usize::from(self.device_bytes))?)
    }
    fn policy_checked(&self) -> Option<MemoryPolicy> {
        MemoryPolicy::from_wire(self.policy, self.policy_nodes.get())
    }
    /// Its texts are text, and its numbers mean something.
    pub(crate) fn is_whole(&self) -> bool {
        self.name_checked().is_some()
            && self.device_checked().is_some()
            && self.policy_checked().is_some()
            && ALIGN_SHIFTS.contains(&self.align_shift)
    }
    /// The device that it is cut from, by path; empty: it is of the machine's memory.
    ///
    /// # Panics
    /// Never on one that came from [`crate::decode()`].
    pub fn device(&self) -> &str {
        self.device_checked().expect("the decoder has seen to it")
    }
    /// Of which memory nodes it is.
    ///
    /// # Panics
    /// Never on one that came from [`crate::decode()`].
    pub fn policy(&self) -> MemoryPolicy {
        self.policy_checked().expect("the decoder has seen to it")
    }
    /// Each of its stretches begins (in its file, and in the region) and ends at a multiple of this: a power of two from 4 KiB to 1 GiB.
    ///
    /// # Panics
    /// Never on one that came from [`crate::decode()`].
    pub fn align_bytes(&self) -> u64 {
        1 << self.align_shift
    }
    /// Whose it is: a user's number.
    pub fn owner(&self) -> u32 {
        self.owner.get()
    }
    /// How large it is.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }
    /// Connections that have it open.
    pub fn opens(&self) -> u32 {
        self.opens.get()
    }
    /// Stretches that it is made of.
    pub fn spans(&self) -> u32 {
        self.spans.get()
    }
    /// [`region_flag`]s.
    pub fn flags(&self) -> u8 {
        self.flags
    }
}

/// What a node lends as regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RegionFigures {
    reserved_bytes: U64,
    free_bytes: U64,
}

impl RegionFigures {
    /// What regions have, and what they could still get.
    pub fn new(reserved_bytes: u64, free_bytes: u64) -> Self {
        Self { reserved_bytes: reserved_bytes.into(), free_bytes: free_bytes.into() }
    }
    /// Memory that regions have.
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes.get()
    }
    /// Memory that could be reserved now.
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes.get()
    }
}

/// `RegionCall`. A name or a device that is too long is cut.
pub fn region_call(out: &mut Vec<u8>, request: u64, ask: &RegionAsk<'_>) {
    let (name, device) = (tidy(ask.name, NAME_BYTES_MAX), tidy(ask.device, REGION_DEVICE_BYTES_MAX));
    let body = RegionCallBody {
        call: CALLS.iter().position(|known| *known == ask.call).expect("all are there") as u8,
        flags: ask.flags,
        policy: ask.policy.mode(),
        name_bytes: name.len() as u8,
        reserved: [0; 4],
        bytes: ask.bytes.into(),
        id: ask.id.into(),
        policy_nodes: ask.policy.nodes().into(),
    };
    let text = name + &device;
    append(out, kind::REGION_CALL, request, text.len(), body.as_bytes(), text.as_bytes());
}

/// `Region` with at most [`REGION_SPANS_MAX`] spans.
pub fn region(out: &mut Vec<u8>, request: u64, entry: &RegionEntry, spans: &[RegionSpan]) {
    let spans = &spans[..spans.len().min(REGION_SPANS_MAX)];
    append(out, kind::REGION, request, spans.len(), entry.as_bytes(), spans.as_bytes());
}

/// `Regions` with at most [`REGIONS_MAX`] of them.
pub fn regions(out: &mut Vec<u8>, request: u64, figures: &RegionFigures, entries: &[RegionEntry]) {
    let entries = &entries[..entries.len().min(REGIONS_MAX)];
    append(out, kind::REGIONS, request, entries.len(), figures.as_bytes(), entries.as_bytes());
}

/// `RegionRefused`. A text that is too long is cut.
pub fn region_refused(out: &mut Vec<u8>, request: u64, why: RegionRefusal, text: &str) {
    let text = tidy(text, ERROR_TEXT_BYTES_MAX);
    let number = REFUSALS.iter().position(|known| *known == why).expect("all are there") as u16;
    let body = RegionRefusedBody { why: number.into(), reserved: [0; 6] };
    append(out, kind::REGION_REFUSED, request, text.len(), body.as_bytes(), text.as_bytes());
}

#[cfg(test)]
mod tests;
