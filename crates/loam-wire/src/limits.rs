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
/// Extents that one locate may ask for.
pub const LOCATE_EXTENTS_MAX: usize = 64;
/// Extents that one register, unregister or last copy may name.
pub const REGISTER_EXTENTS_MAX: usize = 256;
/// Bytes of the largest frame: a full putpage.
pub const FRAME_BYTES_MAX: usize =
    crate::layout::HEADER_BYTES + REQUEST_PAGES_MAX * (crate::layout::PAGE_META_BYTES + BASE_PAGE_BYTES);
