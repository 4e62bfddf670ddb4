//! What a borrower has its driver do.

use super::copies::{BufferIndex, CopyIndex, LenderIndex};
use super::table::SpaceKey;
use crate::ids::{ContentHash, PutClass, Urgency, Version};

/// Names a batch of pages on their way out; see [`Borrower::batch_pages`](super::Borrower::batch_pages).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// Where the contents of an install come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallSource {
    /// Zeros.
    Zero,
    /// A page buffer.
    Buffer(BufferIndex),
    /// The page that the driver just reported with this tag ([`Borrower::handle_arrival`](super::Borrower::handle_arrival)).
    Arrived(u32),
}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Have the hand take the batch's pages; answer with [`Borrower::handle_fate`](super::Borrower::handle_fate) for each, then
    /// [`Borrower::handle_batch_done`](super::Borrower::handle_batch_done).
    Evict(BatchId),
    /// Have the hand make these base pages the program's own (break copy-on-write sharing) without changing
    /// them. No answer.
    Populate {
        /// Whose.
        space: SpaceKey,
        /// First base page.
        base: u64,
        /// How many.
        pages: u32,
    },
    /// Put contents in place and wake who waits there; answer with [`Borrower::handle_installed`](super::Borrower::handle_installed).
    Install {
        /// Whose.
        space: SpaceKey,
        /// First base page.
        base: u64,
        /// How many; more than one only for zeros.
        pages: u32,
        /// From where.
        source: InstallSource,
    },
    /// Wake who waits at these base pages: the page is there, or the mapping is gone.
    Wake {
        /// Whose.
        space: SpaceKey,
        /// First base page.
        base: u64,
        /// How many.
        pages: u32,
    },
    /// Write-protect these base pages, which a fork has left shared: who writes there waits, and the driver calls [`Borrower::handle_write`](super::Borrower::handle_write). Those that
    /// are not there are left out. Where it cannot be done the driver says so ([`Borrower::handle_not_protected`](super::Borrower::handle_not_protected)).
    Protect {
        /// Whose.
        space: SpaceKey,
        /// First base page.
        base: u64,
        /// How many.
        pages: u32,
    },
    /// When all that was to be protected is: tell which of these base pages are in a frame of their own by now, since somebody wrote between the fork and now
    /// ([`Borrower::handle_own`](super::Borrower::handle_own)).
    LookForOwn {
        /// Whose.
        space: SpaceKey,
        /// First base page.
        base: u64,
        /// How many.
        pages: u32,
    },
    /// They may be written again; wake who waits for that. No answer.
    Unprotect {
        /// Whose.
        space: SpaceKey,
        /// First base page.
        base: u64,
        /// How many.
        pages: u32,
    },
    /// Ask a lender for a copy; answer with [`Borrower::handle_arrival`](super::Borrower::handle_arrival) or [`Borrower::handle_missed`](super::Borrower::handle_missed).
    Get {
        /// Whom.
        lender: LenderIndex,
        /// What.
        copy: CopyIndex,
        /// Which contents.
        version: Version,
        /// In which message of the fetch plan it travels; see [`Step::message`](super::Step::message).
        message: u32,
        /// A thread waits for it, or for the message that it is in.
        urgency: Urgency,
    },
    /// A thread waits by now for what was asked for as [`Urgency::Behind`]: move it forward where it is not sent yet. At most once for each
    /// [`Effect::Get`]. No answer of its own.
    Hurry {
        /// Whom.
        lender: LenderIndex,
        /// What.
        copy: CopyIndex,
        /// Which contents.
        version: Version,
    },
    /// Read a copy's slot into a buffer; answer with [`Borrower::handle_arrival`](super::Borrower::handle_arrival) or [`Borrower::handle_missed`](super::Borrower::handle_missed).
    ReadDisk {
        /// What.
        copy: CopyIndex,
        /// Which contents.
        version: Version,
        /// Where to.
        buffer: BufferIndex,
    },
    /// Keep the page that just arrived with this tag in a buffer.
    Hold {
        /// See [`Borrower::handle_arrival`](super::Borrower::handle_arrival).
        tag: u32,
        /// Where to.
        buffer: BufferIndex,
    },
    /// Send a buffer to a lender; answer with [`Borrower::handle_put_answer`](super::Borrower::handle_put_answer).
    Put {
        /// Whom.
        lender: LenderIndex,
        /// As what.
        copy: CopyIndex,
        /// Which contents.
        version: Version,
        /// Their hash.
        hash: ContentHash,
        /// From where.
        buffer: BufferIndex,
        /// What the lender shall do with it.
        class: PutClass,
    },
    /// Tell a lender that it may give a copy up from now on: another one has it on its disk. No answer.
    Spare {
        /// Whom.
        lender: LenderIndex,
        /// What.
        copy: CopyIndex,
        /// Which contents.
        version: Version,
    },
    /// Write a buffer to the copy's slot; answer with [`Borrower::handle_written`](super::Borrower::handle_written).
    WriteDisk {
        /// As what.
        copy: CopyIndex,
        /// From where.
        buffer: BufferIndex,
    },
    /// Tell a lender that a copy is not needed any more. No answer.
    Drop {
        /// Whom.
        lender: LenderIndex,
        /// What.
        copy: CopyIndex,
        /// Which contents.
        version: Version,
    },
    /// A thread touched a page of which no good copy is left: poison it and end the program.
    Lost {
        /// Whose.
        space: SpaceKey,
        /// The base page.
        base: u64,
    },
}
