//! Every limit of the lender, in one place.

use loam_wire::limits::VIEW_NODES_MAX;
use std::time::Duration;

/// Connections of borrowers and tools open at once, and as many of those who have not said hello; the next one is told so and closed.
pub const CONNECTIONS_MAX: usize = 512;
/// Connections of other nodes: one of each, and of some the one before. (All of them tell the initiator what they have.)
pub const LINKS_MAX: usize = VIEW_NODES_MAX + 256;
/// Connections of programs of this machine, …
pub const LOCAL_CONNECTIONS_MAX: usize = 1024;
/// … and of those of one user.
pub const LOCAL_USER_CONNECTIONS_MAX: usize = 512;
/// Borrowers with pages or connections at once.
pub const BORROWERS_MAX: usize = 256;
/// How long the pages of a borrower without connections wait for it.
pub const GRACE: loam_core::units::Duration = loam_core::units::Duration::from_millis(10_000);
/// The same where there is a disk store: a run waits 60 s for a lender that has pages on its disk.
pub const STORE_GRACE: loam_core::units::Duration = loam_core::units::Duration::from_millis(75_000);
/// Descriptors for all connections, and for what else a node has open.
pub(crate) const FILES_WANTED: usize = 2 * CONNECTIONS_MAX + LINKS_MAX + LOCAL_CONNECTIONS_MAX + 512;
/// Event loops (one a core up to this).
pub const LOOPS_MAX: usize = 8;

/// Base pages that a program may say are local (16 TiB).
pub(crate) const LOCAL_PAGES_MAX: u64 = 1 << 32;
/// A connection must have said hello by then.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// A tool, or a node, that asks and says nothing for so long is closed. (Nodes close such a connection themselves, after half a minute.)
pub(crate) const TOOL_IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// A peer that takes none of the bytes that wait for it this long is given up, …
pub(crate) const STALLED_TIMEOUT: Duration = Duration::from_secs(60);
/// … and after this, if its kernel says that it is there: it was stopped.
pub(crate) const ASLEEP_TIMEOUT: Duration = Duration::from_secs(3600);
/// How often the kernel is asked about a peer that may have been stopped.
pub(crate) const ASLEEP_LOOK_INTERVAL: Duration = Duration::from_secs(3);
/// How long a refused peer may take to read why before the connection is cut.
pub(crate) const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
/// A peer whose machine has vanished is given up by the kernel after this.
pub(crate) const PEER_VANISHED_TIMEOUT: Duration = Duration::from_secs(30);
/// A quiet connection is asked after this whether its peer is still there, and then so often.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(15);
/// Who is refused for the same reason again and again is in the log once in this time.
pub(crate) const COMPLAINT_AGAIN: Duration = Duration::from_secs(60);
/// Such reasons that are remembered.
pub(crate) const COMPLAINTS_MAX: usize = 256;
/// How often credentials are looked at, and used if they are others than before.
pub(crate) const CREDENTIALS_INTERVAL: Duration = Duration::from_secs(1);
/// How often a loop looks for the above.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Requests wait in the receive buffer while more than this is queued to be sent on their connection.
pub(crate) const QUEUED_BYTES_HIGH: usize = 256 * 1024;
/// Bytes read from one connection before the others have their turn.
pub(crate) const TURN_BYTES_MAX: usize = 1024 * 1024;
/// Buffers begin at this size, and go back to it, or to nothing where nothing comes for a while.
pub(crate) const BUFFER_BYTES_MIN: usize = 16 * 1024;
/// Base pages of one page frame: the borrower can begin with the first while the next is read.
pub(crate) const ANSWER_PAGES: usize = 32;

/// Base pages of one page frame that no thread waits for: small, since one that somebody waits for may come next.
pub(crate) const BEHIND_FRAME_PAGES: usize = 16;
/// Such pages that one connection may have asked for and not got: sixteen whole pages of the largest size.
pub(crate) const BEHIND_PAGES_MAX: usize = 4096;
/// Such frames of one turn before other connections have theirs.
pub(crate) const BEHIND_FRAMES_TURN: usize = 8;
/// Pages that are being read from the disk store for one connection.
pub(crate) const READING_PAGES_MAX: usize = 1024;
/// Pages that one connection has asked for and that wait to be read: all that a borrower of 64 threads with pages of the largest size may wait for.
pub(crate) const TO_READ_PAGES_MAX: usize = 16 * 1024;
/// Pages under way to the disk store: as many full writes as it takes at a time.
pub(crate) const DRAINING_PAGES_MAX: u64 = 64 * crate::disk_store::WRITE_PAGES_MAX as u64;
/// A staged page waits between once and twice as long before it is written, unless its channel is half full or room is short. A sort's passes, a
/// solver's sweeps write the same page again within it; Linux lets dirty pages of files linger far longer.
pub(crate) const LINGER: loam_core::units::Duration = loam_core::units::Duration::from_millis(1_000);
/// The part of what is lent that pages of one borrower may take while they wait for the disk.
pub(crate) const CHANNEL_PART: u64 = 4;
/// What was told to be stored is not told again: it waits longer for a loop than other news does.
pub(crate) const STORED_POST_TIME: loam_core::units::Duration =
    loam_core::units::Duration::from_millis(60_000);
/// Bytes that the kernel keeps of a connection and has not sent: enough for a link of 10 Gb/s while this side is woken (half of it is left
/// then, 50 us), and no more, since what a thread waits for stands behind them.
pub(crate) const UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// How often the machine's memory is looked at while some of it is lent, …
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// … and while none is.
pub(crate) const WATCH_INTERVAL_IDLE: Duration = Duration::from_secs(1);
/// After pages had to go, no more is lent for this long.
pub(crate) const GROW_QUIET: Duration = Duration::from_secs(5);
/// Then the limit grows this often, …
pub(crate) const GROW_INTERVAL: Duration = Duration::from_secs(1);
/// … by at most this part of what was offered.
pub(crate) const GROW_SHARE: u64 = 16;

/// How long the processor is kept from deep sleep after the last request.
pub(crate) const LATENCY_HOLD: Duration = Duration::from_millis(50);
