//! What `loam run` asks of the agent.

use crate::direct::DirectMemory;
use loam_core::units::Bytes;
use loam_hand::direct::DirectPlan;
use loam_wire::client::Target;
use loam_wire::tls::Watched;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// When a page's local frame may be reused (DESIGN.md, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the slot file has it. A lender may die at any time.
    Disk,
    /// When one lender has it. That lender's death ends the program.
    None,
    /// When two lenders have it, on different machines if there are such; those with a disk write it there. One of them may die at any time.
    Staged,
    /// When so many lenders have it, from 2 to 4; it is never on a disk. All but one of them may die at once.
    Replicas(u8),
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Disk => f.write_str("disk"),
            Self::None => f.write_str("none"),
            Self::Staged => f.write_str("staged"),
            Self::Replicas(lenders) => write!(f, "replicas={lenders}"),
        }
    }
}

impl Durability {
    /// What a lender is told of the pages that it gets. With a slot file each is a spare copy, which it may drop when its own machine wants
    /// the memory; without one it is the only copy, and is taken home when the lender says so.
    pub(crate) fn features(self) -> u64 {
        use loam_wire::feature::{PLAN, RECALL, RESERVE, SPARE, STAGING};
        let of_pages = match self {
            Self::Disk => SPARE,
            Self::None | Self::Replicas(_) => 0,
            Self::Staged => STAGING,
        };
        RECALL | PLAN | RESERVE | of_pages
    }

    /// Lenders that must have a page.
    pub(crate) fn replicas(self) -> u8 {
        match self {
            Self::Disk | Self::None => 1,
            Self::Staged => 2,
            Self::Replicas(lenders) => lenders,
        }
    }

    /// Without a lender a run has nowhere to put pages.
    pub(crate) fn needs_lender(self) -> bool {
        self == Self::None
    }
}

/// Whom to borrow from.
#[derive(Clone, Debug)]
pub enum Lenders {
    /// These, as long as they live; may be none under [`Durability::Disk`].
    Fixed(Vec<Target>),
    /// Whoever lends in the cluster of the node's daemon behind this socket: lenders come and go while the program runs.
    /// With credentials each is met with those that the folder has then.
    Cluster(PathBuf, Option<Arc<Watched>>),
}

/// Everything that [`crate::run`] needs to know.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The program, as given; looked up in `PATH` if it has no slash.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Memory that the process tree may keep here.
    pub local: Bytes,
    /// See [`Lenders`].
    pub lenders: Lenders,
    /// Where pages that leave go: one of [`loam_core::borrower::PLACEMENTS`].
    pub placement: String,
    /// Bytes that may be with lenders at a time, under [`Durability::Disk`]; what is above goes to the disk alone.
    pub lend_max: Option<Bytes>,
    /// What a long sequential stream passes over goes to the disk alone when it leaves for the first time.
    pub guard_scans: bool,
    /// See [`Durability`].
    pub durability: Durability,
    /// Where the slot file goes; without one to begin with, where it would go if a lender wanted pages back. Empty: nowhere.
    pub disk_dir: PathBuf,
    /// How large pages are.
    pub page: PageChoice,
    /// In which order the subpages of a page come: one of [`loam_core::borrower::FETCH_PLANS`].
    pub fetch_plan: String,
    /// Subpage size: a power of two from 4 KiB to the page's.
    pub subpage: Bytes,
    /// Fetch ahead of sequential and strided faults.
    pub prefetch: bool,
    /// Show a line that is rewritten twice a second on stderr.
    pub live_line: bool,
    /// Borrow for large allocations only.
    pub region: Option<RegionConfig>,
    /// What the region is made of, if it is direct: one region for all of the tree, of its size.
    pub direct: Option<Arc<DirectMemory>>,
    /// Room for so many bytes of the program's pages is set aside at lenders before it starts, or it does not start.
    pub reserve: Option<Bytes>,
    /// Record what `--report` draws ([`crate::recording`]).
    pub record: bool,
    /// Print nothing but errors.
    pub quiet: bool,
    /// `libloam_shim.so`.
    pub shim: PathBuf,
}

/// A region for each process of the tree: its large allocations are served from there, and nothing else of it is borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionConfig {
    /// Address space that is reserved, in whole base pages.
    pub size: Bytes,
    /// Allocations from this size on; at least a base page, at most `size`.
    pub min_alloc: Bytes,
}

/// Freed memory of a region may keep its contents up to this part of `--local`: what was freed and is allocated again soon is there then, as it
/// would be with the C library; beyond that, old contents would push out what the program uses.
const SPARE_SHARE: u64 = 4;
/// Of direct memory a process may keep this part of the region: what it keeps no other process can have.
const SPARE_SHARE_DIRECT: u64 = 16;

impl RegionConfig {
    /// The largest.
    pub const SIZE_MAX: Bytes = Bytes(loam_hand::REGION_BYTES_MAX);

    /// What a shim is told.
    pub(crate) fn plan(self, local: Bytes, direct: Option<DirectPlan>) -> loam_hand::RegionPlan {
        let plan = loam_hand::RegionPlan {
            bytes: self.size.0,
            least_bytes: self.min_alloc.0,
            spare_bytes: match direct {
                None => local.0 / SPARE_SHARE,
                Some(_) => self.size.0 / SPARE_SHARE_DIRECT,
            },
            direct: direct.unwrap_or_default(),
        };
        assert!(plan.is_sane() && plan.bytes > 0, "the command line was checked");
        plan
    }
}

/// How large pages are. A size is a power of two from 4 KiB to 1 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageChoice {
    /// All alike.
    Fixed(Bytes),
    /// Found for each place while the program runs, beginning with this one.
    Auto(Bytes),
    /// One for all memory, found by aapc-2012's criterion, beginning with this one.
    Aapc(Bytes),
}

impl PageChoice {
    /// The size at first.
    pub fn first(self) -> Bytes {
        match self {
            Self::Fixed(size) | Self::Auto(size) | Self::Aapc(size) => size,
        }
    }
}
