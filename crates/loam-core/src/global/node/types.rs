//! What nodes say to each other about pages, what a node asks of its driver, and how it may behave.

use crate::global::frames::{Ages, Frame, Kind};
use crate::global::message::{CoordinatorConfig, Message as ClusterMessage};
use crate::ids::{NodeId, PageId, Version};
use crate::units::Duration;
use alloc::vec::Vec;

/// What nodes say to each other about pages. `Data` and `Put` carry contents, which the driver binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageMessage {
    /// To the owner of the directory entry: who has this page?
    Locate {
        /// The page.
        page: PageId,
        /// Who wants it.
        requester: NodeId,
    },
    /// To a holder: send it to the requester.
    Fetch {
        /// The page.
        page: PageId,
        /// Of a private page: these contents only.
        version: Version,
        /// Who wants it.
        requester: NodeId,
    },
    /// The page.
    Data {
        /// The page.
        page: PageId,
        /// Which contents.
        version: Version,
        /// The sender keeps it in its own use.
        duplicate: bool,
    },
    /// Nobody has it, or the one who was thought to has it no longer.
    Miss {
        /// The page.
        page: PageId,
    },
    /// Hold this page for me.
    Put {
        /// The page.
        page: PageId,
        /// Its record: owner, version, what is known of it. `last_used` is the sender's and counts for nothing.
        frame: Frame,
        /// How long ago it was used.
        age: Duration,
    },
    /// To the owner of the directory entry: `from` has the page no longer.
    Moved {
        /// The page.
        page: PageId,
        /// Of a private page: these contents.
        version: Version,
        /// Who had it.
        from: NodeId,
        /// Who got it, as a global page.
        to: Option<NodeId>,
    },
    /// To the last who has a page: others have it no longer.
    Singlet {
        /// The page.
        page: PageId,
    },
    /// To the new owner of directory entries: who holds what.
    Entries(Vec<(PageId, NodeId, Kind)>),
}

/// What nodes say to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeMessage {
    /// About the cluster.
    Cluster(ClusterMessage),
    /// About pages.
    Page(PageMessage),
}

/// Where a page came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// It was here, held for another.
    Own,
    /// Another node's global memory (cases 1 and 2).
    Global,
    /// Another node's local memory (case 4).
    Duplicate,
    /// The disk (case 3).
    Disk,
}

/// What the driver shall do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send it; with the page's contents where it is `Data` or `Put`.
    Send {
        /// To whom; never this node.
        to: NodeId,
        /// What.
        message: NodeMessage,
    },
    /// The contents that came with the putpage are this page's from now on.
    Held(PageId),
    /// Read the page from its disk or file server, then call [`super::GlobalNode::handle_disk_read`].
    ReadDisk(PageId),
    /// The page leaves and is dirty: write it to its disk.
    WriteDisk(PageId),
    /// The page is local now; who waited for it goes on.
    Arrived {
        /// The page.
        page: PageId,
        /// From where.
        origin: Origin,
    },
    /// So many pages were looked at for a summary of ages (what it costs: section 5.2).
    Scanned {
        /// Local ones.
        local: u32,
        /// Global ones.
        global: u32,
    },
}

/// How a node behaves.
#[derive(Clone, Copy, Debug)]
pub struct NodeConfig {
    /// Page frames.
    pub frames: u32,
    /// How ages are known and compared, as far as the placement leaves it so.
    pub ages: Ages,
    /// Epochs.
    pub coordinator: CoordinatorConfig,
    /// How long a fault waits for others before it reads the disk.
    pub fault_wait: Duration,
    /// The most pages of its own that a node may have in others' memory (section 6: "a threshold limiting the total amount of global memory
    /// storage that a single node could consume").
    pub share_max: u32,
    /// Pages of a sequential scan are put as old ones, so that they never displace what is used (section 6: "sequential file access").
    pub scan_guard: bool,
}

impl NodeConfig {
    /// With so many frames, and all else as usual.
    pub fn new(frames: u32) -> Self {
        Self {
            frames,
            ages: Ages { boost_percent: 25, ..Ages::default() },
            coordinator: CoordinatorConfig::default(),
            fault_wait: Duration::from_millis(100),
            share_max: u32::MAX,
            scan_guard: false,
        }
    }
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Faults served by a page that was here for another.
    pub own: u64,
    /// Faults served from others' global memory.
    pub global: u64,
    /// Faults served from others' local memory.
    pub duplicate: u64,
    /// Faults served by the disk.
    pub disk: u64,
    /// Pages sent to other nodes to be held there.
    pub puts: u64,
    /// Pages that came to be held here.
    pub held: u64,
    /// Pages that came and found no room.
    pub refused: u64,
    /// Pages discarded.
    pub discards: u64,
    /// Pages written to the disk as they left.
    pub writes: u64,
}

/// One use of a page by this node's programs.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The page.
    pub page: PageId,
    /// Of a file that other nodes may read too.
    pub shared: bool,
    /// Is it written to?
    pub write: bool,
}
