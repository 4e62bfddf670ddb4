//! Every limit of the protocol. A frame beyond one of them is refused before anything is allocated for it.

use loam_core::units::BASE_PAGE_BYTES;

/// Base pages that one getpage, miss, putpage or ack may name.
pub const REQUEST_PAGES_MAX: usize = 256;
/// Base pages that one page frame may carry (256 KiB); a longer answer comes in several.
pub const PAGE_FRAME_PAGES_MAX: usize = 64;
/// Base pages that one drop may name.
pub const DROP_PAGES_MAX: usize = 1024;
/// Bytes of a borrower's name.
pub const NAME_BYTES_MAX: usize = 64;
/// Bytes of an error's text.
pub const ERROR_TEXT_BYTES_MAX: usize = 512;
/// Borrowers that one status lists.
pub const STATUS_BORROWERS_MAX: usize = 64;
/// Bytes of one message between nodes.
pub const CLUSTER_BYTES_MAX: usize = u16::MAX as usize;
/// Nodes that one view lists.
pub const VIEW_NODES_MAX: usize = 1024;
/// Base pages that one recall may name.
pub const RECALL_PAGES_MAX: usize = 1024;
/// Mounts that a node tells of.
pub const MOUNTS_MAX: usize = 256;
/// Pages of one `gone`.
pub const GONE_PAGES_MAX: usize = 1024;
/// Pages of one `stored`.
pub const STORED_PAGES_MAX: usize = 1024;
/// Pages of one `spare`.
pub const SPARE_PAGES_MAX: usize = 1024;
/// Bytes of the name of a lender's zone.
pub const ZONE_BYTES_MAX: usize = 64;
/// Bytes of the reason for a lender's limit.
pub const REASON_BYTES_MAX: usize = 256;
/// Extents that one locate may ask for.
pub const LOCATE_EXTENTS_MAX: usize = 64;
/// Extents that one register, unregister or last copy may name.
pub const REGISTER_EXTENTS_MAX: usize = 256;
/// Regions that a node has, and one list tells of.
pub const REGIONS_MAX: usize = 256;
/// Spans of one region.
pub const REGION_SPANS_MAX: usize = 64;
/// Bytes of the path of a device that regions are cut from.
pub const REGION_DEVICE_BYTES_MAX: usize = 120;
/// Bytes of the largest frame: a full putpage.
pub const FRAME_BYTES_MAX: usize =
    crate::layout::HEADER_BYTES + REQUEST_PAGES_MAX * (crate::layout::PAGE_META_BYTES + BASE_PAGE_BYTES);
