//! The memory that the agent and a borrowing process's hand share: its layout, and the gate between them.
//!
//! One memfd per borrowing process: a [`Control`] page group, then the transfer area of
//! [`RING_COMMANDS`] × [`TRANSFER_BYTES`]. The agent posts commands, the hand carries them out in order.
//!
//! **The gate** makes the order of two things known that the kernel does not order for us: the hand taking
//! pages away (`UFFDIO_MOVE`), and the agent reading userfaultfd events. While an event that changes mappings is unread the kernel
//! refuses MOVE (EAGAIN); once it is read, every command that was posted before is void (its epoch is
//! old). The agent reads events, and the hand calls MOVE, only while holding the gate, so no MOVE ever acts on a
//! mapping other than the one that the agent knew when it posted the command.
#![cfg_attr(not(test), no_std)]

pub mod direct;
mod plan;

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
pub use plan::{REGION_BYTES_MAX, RegionPlan};

/// Changes with every change of the layout; the agent refuses a shim that was built with another.
pub const LAYOUT_VERSION: u32 = 13;
/// Bytes of a base page.
pub const BASE_PAGE_BYTES: usize = 4096;
/// Commands that may be posted and not yet taken back by the agent.
pub const RING_COMMANDS: usize = 4;
/// Base pages that one command may take away.
pub const COMMAND_PAGES: usize = 256;
/// Spans of one command.
pub const COMMAND_SPANS: usize = 256;
/// Bytes of the transfer area of one command.
pub const TRANSFER_BYTES: usize = COMMAND_PAGES * BASE_PAGE_BYTES;
/// Bytes from the start of the memfd to the transfer area.
pub const CONTROL_BYTES: usize = 64 * 1024;
/// Bytes of the whole memfd.
pub const SHARED_BYTES: usize = CONTROL_BYTES + RING_COMMANDS * TRANSFER_BYTES;
/// Pages that the hand moves while it holds the gate once.
pub const GATE_PAGES: usize = 64;

/// What a command asks for ([`Command::kind`]).
pub mod kind {
    /// Take the pages of the spans away: contents to the transfer area, one [`super::result`] a page.
    pub const EVICT: u32 = 1;
    /// `madvise(addr, bytes, advice)` for each span; `Span::extra` is the advice, `Span::pages` the length.
    /// Failures are ignored (advice only), so use it for nothing that correctness needs.
    pub const ADVISE: u32 = 2;
    /// As `ADVISE`, with `Command::outcome` the first errno (0: all well).
    pub const ADVISE_CHECKED: u32 = 3;
    /// End the hand's thread: the program's last own thread has gone. `Span::extra` of the one span is how, as `wait` says it: the process ends as its last
    /// thread does, which is the hand.
    pub const EXIT: u32 = 4;
    /// Huge pages are not for this process any more: a property of the process and not of its mappings, which must not differ from their neighbours by it
    /// (`mremap` refuses what has become two mappings). It has no spans, and its failure is ignored.
    pub const NO_HUGE_PAGES: u32 = 5;
    /// Step aside ([`super::call::STEP_ASIDE`]), if the program still wants it ([`super::aside`]). `Span::extra` of the one span is the number of a socket in the process's own table, by which the
    /// hand sends the userfaultfd and then its socket. Then its thread ends, and [`super::Control::hand_tid`] becomes 0; what is posted meanwhile waits for the next hand.
    pub const STEP_ASIDE: u32 = 6;
}

/// What became of one page of an EVICT command.
pub mod result {
    /// Not yet known.
    pub const NONE: u8 = 0;
    /// Its contents are in the transfer area, its frame is gone from the program.
    pub const MOVED: u8 = 1;
    /// There was no page.
    pub const HOLE: u8 = 2;
    /// Pinned, or shared with a forked child (EBUSY): untouched.
    pub const BUSY: u8 = 3;
    /// The mapping does not allow it now (EINVAL: protection, locked): untouched.
    pub const DENIED: u8 = 4;
    /// The command was void by the time: untouched.
    pub const CANCELLED: u8 = 5;
}

/// Where a command is on its way ([`Command::state`]).
pub mod state {
    /// The agent's to fill.
    pub const FREE: u32 = 0;
    /// Waits for the hand.
    pub const POSTED: u32 = 1;
    /// The hand is at it.
    pub const RUNNING: u32 = 2;
    /// Results and contents may be read.
    pub const DONE: u32 = 3;
    /// Taken back by the agent before the hand began.
    pub const CANCELLED: u32 = 4;
}

/// What becomes of a hand that is to step aside ([`Control::aside`]). The thread that asks takes it back where nobody can say whether the hand will hear of it: one of the two is first.
pub mod aside {
    /// Nobody asks, or not any more.
    pub const NOBODY: u32 = 0;
    /// It goes: it sends what it has, and ends.
    pub const GOES: u32 = 1;
    /// It could not send what it has, and stays.
    pub const STAYS: u32 = 2;

    /// A thread asks, and has the other end of this socket.
    pub const fn wanted(socket: u32) -> u32 {
        socket.wrapping_add(3)
    }
}

/// A run of base pages of the program.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Span {
    /// First address, a multiple of 4,096.
    pub address: AtomicU64,
    /// Base pages.
    pub pages: AtomicU32,
    /// The advice, for `ADVISE`.
    pub extra: AtomicU32,
}

/// One command. The agent owns it in states FREE and DONE, the hand in RUNNING.
#[repr(C)]
#[derive(Debug)]
pub struct Command {
    /// A value of [`state`].
    pub state: AtomicU32,
    /// A value of [`kind`].
    pub kind: AtomicU32,
    /// [`Control::epoch`] when it was posted.
    pub epoch: AtomicU32,
    /// Spans in use.
    pub spans_count: AtomicU32,
    /// errno of `ADVISE_CHECKED`.
    pub outcome: AtomicU32,
    reserved: AtomicU32,
    /// The pages, in order; page `i` over all spans has its contents at `i * 4096` of the transfer area.
    pub spans: [Span; COMMAND_SPANS],
    /// A value of [`result`] for each page.
    pub results: [AtomicU8; COMMAND_PAGES],
}

/// The first bytes of the shared memory. All zeros is its valid first state.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Control {
    /// [`LAYOUT_VERSION`] of the agent.
    pub layout_version: AtomicU32,
    /// See the crate's documentation.
    pub gate: Gate,
    /// 1: the agent has found the gate taken when there was something to read. The hand gives it away between two moves, and leaves it
    /// for some ten microseconds before it takes it again, but no longer: the agent may have been held up.
    pub agent_wants_gate: AtomicU32,
    /// Grows when the agent has read an event that changes mappings; written by the agent with the gate held.
    pub epoch: AtomicU32,
    /// Commands posted so far; command `n` is in `commands[n % RING_COMMANDS]`.
    pub posted: AtomicU32,
    /// 1: the hand sleeps or is about to: ring the doorbell (one byte on its socket) after posting.
    pub hand_sleeps: AtomicU32,
    /// 1: the agent sleeps or is about to: the hand writes one byte to the socket when a command is done.
    pub agent_sleeps: AtomicU32,
    /// Thread id of the hand; not 0 once it has its own descriptor table and holds nothing else of the program's, and until it steps aside.
    pub hand_tid: AtomicU32,
    /// Whether the hand is to step aside, and does: a value of [`aside`]. Between the hand and the thread that asks.
    pub aside: AtomicU32,
    /// Commands that the hand has done or passed over: a slot that the agent cancelled is free again only
    /// when this has passed it.
    pub finished: AtomicU32,
    /// The part of the program that runs, as the program has said (`loam_part`): its number in the low byte, and above how often a part has begun,
    /// so that the same part again is seen. 0: none yet. Any of its threads writes it.
    pub part: AtomicU32,
    /// Base pages. A fork of a process that has more here is announced ([`call::FORK_COMES`]); 0: none is. Written by the agent.
    pub announce_above: AtomicU32,
    /// 1: nothing of the tree is adopted yet, so what a program frees lazily (`MADV_FREE`) may stay until the kernel wants it. Written by the agent.
    pub borrows_nothing: AtomicU32,
    /// Base pages. A private mapping that has more is not filled before anybody could adopt it (`MAP_POPULATE`); 0: any is. Written by the agent.
    pub populate_max: AtomicU32,
    /// 1: the tree takes memory faster than what it has can leave, so whoever allocates waits. Written by the agent.
    pub throttle: AtomicU32,
    /// How often a thread has waited for that. Written by the shim, from any of the program's threads.
    pub throttled: AtomicU32,
    /// What the shim counts.
    pub region: RegionFigures,
    /// The ring.
    pub commands: [Command; RING_COMMANDS],
}

/// What a process has had from its region. Written by the shim, from any of the program's threads.
#[repr(C)]
#[derive(Debug, Default)]
pub struct RegionFigures {
    /// Allocations that the region served.
    pub allocations: AtomicU64,
    /// Their bytes, as they were asked for.
    pub allocated_bytes: AtomicU64,
    /// Most bytes that were in use at once.
    pub peak_bytes: AtomicU64,
    /// Allocations for which it had no room.
    pub full: AtomicU64,
    /// Their bytes.
    pub full_bytes: AtomicU64,
    /// Bytes of direct memory that are mapped now.
    pub direct_bytes: AtomicU64,
    /// Bytes that this process, a forked child, has copied from its parent's direct memory.
    pub copied_bytes: AtomicU64,
    /// Of those, what has come into memory of its own, because the pool had no chunk left.
    pub private_bytes: AtomicU64,
    /// 1: the program has called one of the functions that the shim stands in for.
    pub called: AtomicU32,
    reserved: AtomicU32,
}

const _: () = assert!(size_of::<Control>() <= CONTROL_BYTES);

/// What [`Control::part`] says when part `number` begins after `before`. Numbers above 255 count as that.
pub const fn part_begins(before: u32, number: u32) -> u32 {
    let number = if number > 0xff { 0xff } else { number };
    (before & !0xff).wrapping_add(0x100) | number
}

/// The number of the part in [`Control::part`].
pub const fn part_number(part: u32) -> u32 {
    part & 0xff
}

/// A lock between two processes, held for microseconds. See the crate's documentation.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Gate(AtomicU32);

impl Gate {
    /// Takes the gate if it is free.
    pub fn try_lock(&self) -> bool {
        self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
    /// Gives the gate back.
    ///
    /// # Panics
    /// If it was not taken.
    pub fn unlock(&self) {
        assert!(self.give_back(), "the gate was not locked");
    }
    /// The same for the agent, who cannot rely on what the other side may write. False: the gate was not taken any more.
    #[must_use]
    pub fn give_back(&self) -> bool {
        self.0.swap(0, Ordering::Release) == 1
    }
}

/// First bytes that a shim sends on its socket, with its userfaultfd as ancillary data where it could open one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Hello {
    /// [`LAYOUT_VERSION`] of the shim.
    pub layout_version: u32,
    /// A value of [`role`].
    pub role: u32,
    /// The staging window's address and size in the program, mapped and not yet registered.
    pub window_address: u64,
    /// See `window_address`.
    pub window_bytes: u64,
    /// For [`role::FORKED`]: address of the probe page, else 0.
    pub probe_address: u64,
    /// errno of the shim's attempt to make a userfaultfd; 0: it is attached.
    pub userfaultfd_errno: u32,
    /// Its process id as it sees it.
    pub pid: u32,
    /// Where its region is, of the size that [`Welcome::region`] says; 0: it has none.
    pub region_address: u64,
    /// For [`role::FORKED`] where forks are reported: what stood at the beginning of the probe page when it was touched, by which the agent knows whose memory this is; else 0.
    pub knock: u64,
}

/// Why a shim connects.
pub mod role {
    /// A program starts: after exec.
    pub const STARTED: u32 = 1;
    /// A forked child gets its hand.
    pub const FORKED: u32 = 2;
    /// A short call from any thread: one request ([`super::Call`]), one answer, then closed.
    pub const CALL: u32 = 3;
}

/// The agent's answer to a shim's first [`Hello`] (roles STARTED and FORKED), which is short: `window_address` and
/// `probe_address` are still 0. Ancillary data where `status` is [`status::GO_ON`]: the memfd of [`SHARED_BYTES`]; for a direct region the table
/// ([`direct::Chunks`]) and the pool; then, where the agent could open one, a descriptor of `/dev/userfaultfd`. The shim sends its complete hello next.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Welcome {
    /// [`LAYOUT_VERSION`] of the agent.
    pub layout_version: u32,
    /// 1: the userfaultfd reports forks, so a child is served from its first moment.
    pub fork_events: u32,
    /// Bytes of the staging window that the shim shall map: at least [`TRANSFER_BYTES`].
    pub window_bytes: u64,
    /// A value of [`status`].
    pub status: u32,
    /// 0.
    pub reserved: u32,
    /// See [`RegionPlan`].
    pub region: RegionPlan,
}

/// The agent's answer to a shim's complete [`Hello`]: window and probe are registered. For [`role::FORKED`] with fork events
/// the child's userfaultfd, from the fork event, is ancillary data.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Ready {
    /// A value of [`status`].
    pub status: u32,
    /// 0.
    pub reserved: u32,
}

/// The agent's answer to a [`Call`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CallReply {
    /// 0: done. Else an errno: not done.
    pub status: u32,
    /// 0.
    pub reserved: u32,
}

/// How a shim goes on: [`Welcome::status`], [`Ready::status`].
pub mod status {
    /// Go on under Loam.
    pub const GO_ON: u32 = 0;
    /// Let the program run without Loam (a forked child: without a hand of its own).
    pub const RUN_WITHOUT: u32 = 1;
    /// End the program with status 125; the agent has said why.
    pub const EXIT: u32 = 2;
}

/// What a [`role::CALL`] connection asks; follows the hello.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Call {
    /// A value of [`call`].
    pub what: u32,
    /// With [`call::TERMS`], see there; else 0.
    pub terms: u32,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// With [`call::TERMS`]: bytes of the range that may be here; 0: as many as there is room for. Else 0.
    pub local_bytes: u64,
}

/// Values of [`Call::what`].
pub mod call {
    /// The program registers the range with a userfaultfd of its own, asks that its children find it empty (or, without fork events, not at all), puts guards on
    /// it, or has a shared segment take its place: bring it home and let it go for good.
    pub const RELEASE: u32 = 1;
    /// A fork is about to happen where fork events are not to be had: bring everything home, stop evicting.
    pub const FORK_PREPARE: u32 = 2;
    /// That fork is over.
    pub const FORK_DONE: u32 = 3;
    /// The program will use the range soon. Answered before anything has come.
    pub const WILL_NEED: u32 = 4;
    /// It will not use the range for a while: its whole pages may leave first. Answered before they have.
    pub const WILL_NOT_NEED: u32 = 5;
    /// It goes through the range from lower to higher addresses. This and the following hold until something else is said of the range, its
    /// pages are discarded or unmapped, or it is forgotten. ENOSPC: so much is said of other ranges that this cannot be remembered.
    pub const SEQUENTIAL: u32 = 6;
    /// It uses the range in no order.
    pub const RANDOM: u32 = 7;
    /// Neither.
    pub const NORMAL: u32 = 8;
    /// The range leaves before others.
    pub const LOW: u32 = 9;
    /// As others.
    pub const MIDDLE: u32 = 10;
    /// After others.
    pub const HIGH: u32 = 11;
    /// What was said of the range holds no longer: it is freed.
    pub const FORGET: u32 = 12;
    /// On what terms it is paged, in place of all such terms before. [`super::Call::terms`] has in its lowest byte 1 plus the power of two of base pages
    /// that its pages have, and in the next 1 plus the number of its fetch plan (`loam_core`'s list); 0: as of the process. ENOSPC as above; EDQUOT:
    /// there are too many budgets.
    pub const TERMS: u32 = 13;
    /// A process with direct memory and several threads is about to fork: a descriptor of `/dev/userfaultfd`, where the agent has one, comes with the
    /// answer.
    pub const USERFAULTFD: u32 = 14;
    /// A fork is about to happen of a process that has more than [`super::Control::announce_above`] here. Answered when its memory is adopted.
    pub const FORK_COMES: u32 = 15;
    /// `mremap` of the range was refused (EFAULT), as adoption may have made several mappings of one that grew meanwhile. Answered with 0: it may be tried
    /// again, soon if not at once. ENOENT: nothing is adopted. EPERM: the program has taken a part of it back ([`RELEASE`]). EFAULT: there are several for another reason.
    pub const MAKE_WHOLE: u32 = 16;
    /// That was of no use, so the shim would copy the range to a new mapping. EFAULT: it is of a kind that the copy would not be of.
    pub const MAY_COPY: u32 = 17;
    /// The program keeps memory from children that it will fork: what they have by the agent's record is compared with what they have.
    pub const KEEPS: u32 = 18;
    /// The process is about to do what only one of a single thread may, so its hand is to step aside ([`super::kind::STEP_ASIDE`]). `address` is the number of the socket. Answered when the hand has
    /// been told; ESRCH: there is none.
    pub const STEP_ASIDE: u32 = 19;
}

/// [`Call::terms`] with a page of `page_bytes`, or 0, and 1 plus the number of a plan, or 0. `None`: pages have no such size, or there is no such number.
pub const fn terms_word(page_bytes: usize, plan: u32) -> Option<u32> {
    let pages = page_bytes / BASE_PAGE_BYTES;
    let is_whole = page_bytes.is_multiple_of(BASE_PAGE_BYTES);
    if plan > 0xff || !is_whole || pages > COMMAND_PAGES || pages > 0 && !pages.is_power_of_two() {
        return None;
    }
    let page = if pages == 0 { 0 } else { 1 + pages.trailing_zeros() };
    Some(plan << 8 | page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_terms_are_powers_of_two_up_to_a_command() {
        assert_eq!(terms_word(0, 0), Some(0));
        assert_eq!(terms_word(4096, 3), Some(0x301));
        assert_eq!(terms_word(1 << 20, 7), Some(0x709));
        for wrong in [1, 4095, 3 << 12, 2 << 20, 1 << 50] {
            assert_eq!(terms_word(wrong, 0), None, "{wrong}");
        }
        assert_eq!(terms_word(0, 256), None);
    }

    #[test]
    fn a_gate_that_was_written_over_is_seen() {
        let gate = Gate::default();
        assert!(gate.try_lock() && !gate.try_lock());
        assert!(gate.give_back());
        assert!(!gate.give_back(), "nobody had it");
        gate.0.store(7, Ordering::Relaxed);
        assert!(!gate.try_lock() && !gate.give_back() && gate.try_lock());
    }

    #[test]
    fn the_same_part_again_is_another_word() {
        let first = part_begins(0, 5);
        let again = part_begins(first, 5);
        assert_ne!(first, again);
        assert_eq!([first, again].map(part_number), [5, 5]);
        assert_eq!(part_number(part_begins(again, 1_000)), 255);
        assert_eq!(part_number(part_begins(u32::MAX, 1)), 1, "the count begins again");
    }
}
