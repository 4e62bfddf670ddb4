//! Taking pages away: `UFFDIO_MOVE` into the staging window, from there a copy to the transfer area.
//!
//! Page `i` of a command goes to page `i` of the window, so runs of moved pages are copied in one piece. The gate is given back when
//! they have been copied, not before: once the agent has read the event of a fork, the process may end at any moment, its window with it,
//! and the child still needs what was there.

use core::arch::asm;
use core::hint::spin_loop;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use loam_hand::{BASE_PAGE_BYTES, COMMAND_PAGES, CONTROL_BYTES, Command, GATE_PAGES, TRANSFER_BYTES, result};

use crate::delays;
use crate::hand::Hand;
use crate::message::{self, Piece};
use crate::sys::{self, Errno, map};
use crate::userfault::{self, Moved};

/// Rounds of a wait before the hand lets others have its core.
const SPINS_BEFORE_YIELD: u32 = 200;
/// Rounds with a yield each between looks at the clock.
const YIELDS_PER_CLOCK: u32 = 16;
/// Rounds that the hand leaves the gate to an agent that wants it: some ten microseconds. It may sleep, or have no core.
const COURTESY_ROUNDS: u32 = 256;
/// A wait for the agent this long: look whether it lives.
const CHECK_AGENT_NS: u64 = 100_000_000;

/// A wait for something that the agent is about to do.
struct Wait<'a> {
    hand: &'a Hand,
    rounds: u32,
    checked_ns: u64,
}

impl<'a> Wait<'a> {
    fn new(hand: &'a Hand) -> Wait<'a> {
        Wait { hand, rounds: 0, checked_ns: 0 }
    }

    /// Lets a little time pass.
    fn pause(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds < SPINS_BEFORE_YIELD {
            spin_loop();
            return;
        }
        sys::sched_yield();
        if self.rounds.is_multiple_of(YIELDS_PER_CLOCK) {
            let now_ns = sys::now_ns();
            if self.checked_ns == 0 {
                self.checked_ns = now_ns;
            } else if now_ns - self.checked_ns > CHECK_AGENT_NS {
                self.hand.check_agent();
                self.checked_ns = now_ns;
            }
        }
    }
}

/// Void: an event that changes mappings has been read since the command was posted.
struct Void;

/// Takes the pages of an EVICT command away, their contents to the transfer area and what became of each to
/// `Command::results`. Returns how many pages of the window were in use.
pub(crate) fn take_pages(hand: &Hand, slot: usize, command: &Command) -> usize {
    assert!(hand.start.window_bytes >= TRANSFER_BYTES, "the window holds a command's pages");
    let epoch = command.epoch.load(Relaxed);
    let mut page = 0;
    let mut is_void = false;
    for (address, pages, _) in hand.spans(command) {
        let mut done = 0;
        while done < pages {
            let take = GATE_PAGES.min(pages - done);
            let chunk = Chunk {
                slot,
                epoch,
                address: address + done * BASE_PAGE_BYTES,
                first: page + done,
                pages: take,
            };
            if !is_void && take_chunk(hand, command, &chunk).is_err() {
                is_void = true;
            } else if is_void {
                set(command, chunk.first, take, result::CANCELLED);
            }
            done += take;
        }
        page += pages;
    }
    page
}

/// A part of a command.
struct Chunk {
    slot: usize,
    epoch: u32,
    /// Of the program.
    address: usize,
    /// Page of the command, and so of the window and the transfer area.
    first: usize,
    pages: usize,
}

/// At most [`GATE_PAGES`] pages, with the gate held once, or as often as the kernel refuses because an event is unread.
fn take_chunk(hand: &Hand, command: &Command, chunk: &Chunk) -> core::result::Result<(), Void> {
    let control = hand.control;
    let mut done = 0;
    let mut wait = Wait::new(hand);
    loop {
        // A fault may be waiting for the agent to read it.
        let mut courtesy = COURTESY_ROUNDS;
        while courtesy > 0 && control.agent_wants_gate.load(Relaxed) != 0 {
            courtesy -= 1;
            spin_loop();
        }
        while !control.gate.try_lock() {
            wait.pause();
        }
        let before = done;
        let step = if control.epoch.load(Relaxed) == chunk.epoch {
            move_pages(hand, command, chunk, &mut done)
        } else {
            Step::Void
        };
        // Results and contents are written by now: the agent may look at them as soon as it has the gate.
        let mut known = done;
        match step {
            // What the kernel has moved without saying so (see `has_arrived`) is in the window, whatever is mapped at its place by now:
            // the agent hears of it before it deals with the change.
            Step::Void => {
                for page in chunk.first + done..chunk.first + chunk.pages {
                    let is_here = is_in_window(hand, page);
                    set(command, page, 1, if is_here { result::MOVED } else { result::CANCELLED });
                }
                known = chunk.pages;
            }
            // Whoever hears next that the gate is free may be told of a fork, or that this process has ended.
            Step::EventUnread | Step::GateWanted => {
                let has_gone = |done| has_arrived(hand, chunk.address + done * BASE_PAGE_BYTES);
                while done < chunk.pages && has_gone(done) && is_in_window(hand, chunk.first + done) {
                    set(command, chunk.first + done, 1, result::MOVED);
                    done += 1;
                }
                known = done;
            }
            Step::Finished => {}
        }
        delays::maybe(8);
        copy_out(hand, chunk.slot, command, chunk.first + before..chunk.first + known);
        delays::maybe(8);
        control.gate.unlock();
        match step {
            Step::Finished => return Ok(()),
            Step::Void => return Err(Void),
            // The agent needs the gate to read the event; then the epoch is another.
            Step::EventUnread => wait.pause(),
            Step::GateWanted => {}
        }
    }
}

enum Step {
    Finished,
    EventUnread,
    GateWanted,
    Void,
}

/// Moves what can be moved, from page `done` of the chunk on. The gate is held.
fn move_pages(hand: &Hand, command: &Command, chunk: &Chunk, done: &mut usize) -> Step {
    let &Chunk { address, first, pages, .. } = chunk;
    assert!(first + pages <= COMMAND_PAGES, "checked with the spans");
    let before = *done;
    // After a refusal that may concern the whole span (it crosses the end of a mapping): one by one.
    let mut at_once = pages;
    let mut unlocked = false;
    let mut discarded = None;
    // The window's protection, for the page that is next.
    let mut changed = false;
    while *done < pages {
        // A page or more each time that the gate is held: the agent may have said it long ago.
        if *done > before && hand.control.agent_wants_gate.load(Relaxed) != 0 {
            return Step::GateWanted;
        }
        let take = at_once.min(pages - *done);
        let source = address + *done * BASE_PAGE_BYTES;
        let destination = hand.start.window + (first + *done) * BASE_PAGE_BYTES;
        delays::maybe(16);
        // SAFETY: the window is ours, empty (see `empty_window`) and registered; the agent serves the source's pages.
        let moved = unsafe {
            userfault::move_pages(hand.start.userfaultfd, destination, source, take * BASE_PAGE_BYTES)
        };
        delays::maybe(16);
        let outcome = match moved {
            Moved::Bytes(bytes) => {
                let count = bytes / BASE_PAGE_BYTES;
                set(command, first + *done, count, result::MOVED);
                *done += count;
                if core::mem::take(&mut changed) {
                    at_once = pages; // those behind it are likely of the same mapping
                }
                continue;
            }
            Moved::Nothing(Errno::EAGAIN) => return Step::EventUnread,
            // The program is ending.
            Moved::Nothing(Errno::ESRCH | Errno::EINTR) => return Step::Void,
            // A program that locks all of its memory has locked the window, which takes nothing then from what is not locked.
            Moved::Nothing(Errno::EINVAL) if !unlocked => {
                unlocked = true;
                let _ = map::unlock(hand.start.window, hand.start.window_bytes);
                continue;
            }
            Moved::Nothing(Errno::EINVAL) if take > 1 => {
                at_once = 1;
                continue;
            }
            Moved::Nothing(Errno::EINVAL) if !changed && change_window(hand) => {
                changed = true;
                continue;
            }
            // These concern the first page of what was asked for.
            Moved::Nothing(Errno::ENOENT) => result::HOLE,
            Moved::Nothing(Errno::EBUSY | Errno::ENOMEM) => result::BUSY,
            Moved::Nothing(Errno::EEXIST) if has_arrived(hand, source) => result::MOVED,
            // The kernel has put zeros there, for such a program or for somebody who reads the window from outside: what commands move
            // there is discarded after each. The page itself is where it was, so nothing else can be lost. (Where `take_chunk` took such zeros for a page that has arrived, the page is in its place, and
            // nobody loses it: the agent believes that it is empty, and zeros are never installed over what is there.)
            Moved::Nothing(Errno::EEXIST) if discarded != Some(*done) => {
                discarded = Some(*done);
                discard(hand, first + *done..first + *done + 1);
                continue;
            }
            Moved::Nothing(Errno::EEXIST) => result::BUSY,
            Moved::Nothing(_) => result::DENIED,
        };
        set(command, first + *done, 1, outcome);
        *done += 1;
        changed = false;
    }
    Step::Finished
}

/// The kernel moves pages between mappings of the same protection only: the window becomes executable, or no longer is. (What may not be written is moved to none.) False:
/// the system does not allow it.
fn change_window(hand: &Hand) -> bool {
    let executes = !hand.window_executes.get();
    let protection = if executes { map::PROTECTION_ALL } else { map::PROTECTION_READ_WRITE };
    // SAFETY: the window is ours; what is in it stays readable.
    let changed = unsafe { map::protect(hand.start.window, hand.start.window_bytes, protection) }.is_ok();
    if changed {
        hand.window_executes.set(executes);
    }
    changed
}

/// The page of `source` is no longer where it was, and its place in the window is taken (EEXIST): it is there.
///
/// Linux 6.18 moves pages without saying so: when it had to try one again (it was locked, or being migrated), it moves what it can from
/// there on, counts none of it, and then stumbles over the first of them (EEXIST, or a part of what was asked for). Page `i` of the
/// window is empty before a command and can be filled from page `i` of the command only, so what is there says it.
///
/// Where nobody says whether there is a page, only whether it is here, one that is swapped out is taken to have arrived, of which the window may have zeros: nothing
/// is discarded, and it is in its place (see `move_pages`).
fn has_arrived(hand: &Hand, source: usize) -> bool {
    !map::has_page(hand.pagemap, source).unwrap_or_else(|| map::is_resident(source))
}

/// There is a page in the window. The kernel may have swapped it out, or it was when it was moved.
fn is_in_window(hand: &Hand, page: usize) -> bool {
    let at = hand.start.window + page * BASE_PAGE_BYTES;
    map::has_page(hand.pagemap, at).unwrap_or_else(|| map::is_resident(at) || !reads_as_zeros(at))
}

/// Of a page of the window: where there is none the kernel puts zeros.
fn reads_as_zeros(at: usize) -> bool {
    // SAFETY: the window is mapped for the life of the process, to be read and written, and nobody but the hand uses it.
    unsafe { core::slice::from_raw_parts(at as *const u64, BASE_PAGE_BYTES / 8) }
        .iter()
        .all(|word| *word == 0)
}

fn set(command: &Command, first: usize, pages: usize, outcome: u8) {
    for slot in &command.results[first..first + pages] {
        slot.store(outcome, Relaxed);
    }
}

/// Copies those of `pages` that were moved to their places in the transfer area of `slot`.
fn copy_out(hand: &Hand, slot: usize, command: &Command, pages: Range<usize>) {
    let transfer = hand.start.control as usize + CONTROL_BYTES + slot * TRANSFER_BYTES;
    let is_moved = |page: usize| command.results[page].load(Relaxed) == result::MOVED;
    let mut page = pages.start;
    while page < pages.end {
        if !is_moved(page) {
            page += 1;
            continue;
        }
        let first = page;
        while page < pages.end && is_moved(page) {
            page += 1;
        }
        let at = first * BASE_PAGE_BYTES;
        // SAFETY: the window's pages were moved in just now and are the hand's alone; the transfer area of a running command is
        // the hand's too; both are mapped and `page <= COMMAND_PAGES` bounds the range in both. The direction flag is clear, as
        // the calling convention has it. (An instruction, not `memcpy`: the program may have one of its own.)
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") (page - first) * BASE_PAGE_BYTES => _,
                inout("rsi") hand.start.window + at => _,
                inout("rdi") transfer + at => _,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// Gives the frames of the window's first `pages` pages back and leaves it empty for the next command.
pub(crate) fn empty_window(hand: &Hand, pages: usize) {
    if pages > 0 {
        delays::maybe(8);
        discard(hand, 0..pages);
    }
}

/// Discards pages of the window that hold nothing, or what has been copied out.
fn discard(hand: &Hand, pages: Range<usize>) {
    let window = hand.start.window;
    let part = window + pages.start * BASE_PAGE_BYTES..window + pages.end * BASE_PAGE_BYTES;
    // SAFETY: the window is ours and registered for write protection; the callers' promise.
    let emptied = unsafe {
        userfault::discard_quietly(hand.start.userfaultfd, window..window + hand.start.window_bytes, part)
    };
    if let Err(errno) = emptied {
        message::kill_self(&[
            Piece::Text(b"the staging window cannot be emptied (error "),
            Piece::errno(errno),
            Piece::Text(b"); the program is ended"),
        ]);
    }
}
