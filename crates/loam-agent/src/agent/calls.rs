//! What programs ask of the agent while they run: to bring memory home, to let a fork pass, to hear what they say of their memory.

use super::Agent;
use crate::packets;
use crate::procfs;
use loam_core::borrower::{
    Advice, BaseRange, FetchPlan, Homecoming, Pattern, Priority, SpaceKey, Terms, TooMany,
};
use loam_core::page_size::PageSize;
use loam_core::units::{BasePages, Duration, Instant};
use loam_hand::{Call, CallReply, call};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::Pid;

/// A call that is answered later.
pub(super) struct WaitingCall {
    pub space: SpaceKey,
    socket: OwnedFd,
    waits: Waits,
}

/// What for.
enum Waits {
    /// Nothing of a range is away any more; `what` asks for that.
    Home { home: Homecoming, what: u32, shows: u32 },
    /// Changes of mappings have been dealt with that were read before the advice came: the memory that it speaks of came after them, and
    /// they would take the advice with them.
    Changes(Call),
    /// What the process has is adopted: it is about to fork. Only the limit depends on it, so the fork goes on at that time if it is not.
    Adopted { until: Instant },
}

/// A fork waits for so long at most until what the process has is adopted.
const ADOPTED_WITHIN: Duration = Duration::from_millis(500);

/// No program has memory from here on, whatever it says (5-level page tables).
const ADDRESSES_END: u64 = 1 << 56;

/// The base pages that a program says something of: those that the range touches, or only whole ones.
fn pages_of(request: &Call, whole: bool) -> BaseRange {
    let address = request.address.min(ADDRESSES_END);
    let end = request.address.saturating_add(request.bytes).min(ADDRESSES_END);
    let (start, end) = match whole {
        false => (address >> 12, end.div_ceil(4096)),
        true => (address.div_ceil(4096), end >> 12),
    };
    // Nothing is no page, wherever it is.
    BaseRange::new(start, if request.bytes == 0 { start } else { end.max(start) })
}

/// What says something of memory, and asks for nothing.
fn is_advice(what: u32) -> bool {
    (call::WILL_NEED..=call::TERMS).contains(&what)
}

/// The terms that a program asks for; `None`: there are none such.
fn terms_of(request: &Call) -> Option<Terms> {
    let [page, plan, ..] = request.terms.to_le_bytes();
    let page = match page.checked_sub(1) {
        Some(log2) => Some(PageSize::new(BasePages(1_u64.checked_shl(log2.into())?))?),
        None => None,
    };
    let plan = match plan.checked_sub(1) {
        Some(number) => Some(FetchPlan::numbered(number.into())?),
        None => None,
    };
    let local = (request.local_bytes > 0).then_some(BasePages(request.local_bytes >> 12));
    Some(Terms { page, plan, local })
}

/// Whether what was said can be remembered, as [`CallReply::status`].
fn remembered(is_so: bool) -> u32 {
    if is_so { 0 } else { Errno::NOSPC.raw_os_error().unsigned_abs() }
}

fn reply(socket: &OwnedFd, status: u32) {
    let _ = packets::send(socket.as_fd(), &CallReply { status, reserved: 0 }, &[]);
}

impl Agent<'_> {
    /// A program says something of its memory. Answered as by [`CallReply::status`].
    fn take_advice(&mut self, space: SpaceKey, request: &Call) -> u32 {
        let now = self.now();
        // What leaves on advice is only what was named whole: the rest of its page may be needed.
        let range = pages_of(request, request.what == call::WILL_NOT_NEED);
        let borrower = &mut self.borrower;
        let status = match request.what {
            call::WILL_NEED => {
                borrower.handle_advice(now, space, range, Advice::WillNeed);
                0
            }
            call::WILL_NOT_NEED => {
                borrower.handle_advice(now, space, range, Advice::WillNotNeed);
                0
            }
            call::SEQUENTIAL => remembered(borrower.handle_pattern(space, range, Pattern::Sequential)),
            call::RANDOM => remembered(borrower.handle_pattern(space, range, Pattern::Random)),
            call::NORMAL => remembered(borrower.handle_pattern(space, range, Pattern::Unknown)),
            call::LOW => remembered(borrower.handle_priority(space, range, Priority::Low)),
            call::MIDDLE => remembered(borrower.handle_priority(space, range, Priority::Normal)),
            call::HIGH => remembered(borrower.handle_priority(space, range, Priority::High)),
            call::TERMS => self.take_terms(space, range, request),
            _ => {
                borrower.handle_forgotten(space, range);
                0
            }
        };
        self.drain();
        status
    }

    fn take_terms(&mut self, space: SpaceKey, range: BaseRange, request: &Call) -> u32 {
        let Some(terms) = terms_of(request) else { return Errno::INVAL.raw_os_error().unsigned_abs() };
        match self.borrower.handle_terms(space, range, terms) {
            Ok(()) => {
                if terms.local.is_some() {
                    let now = self.now();
                    self.press(now); // it holds for what is adopted
                }
                0
            }
            Err(TooMany::Ranges) => remembered(false),
            Err(TooMany::Budgets) => Errno::DQUOT.raw_os_error().unsigned_abs(),
        }
    }

    pub(super) fn take_call(&mut self, pid: Pid, socket: OwnedFd, request: Call) {
        let answer = |socket: &OwnedFd| reply(socket, 0);
        if request.what == call::MAY_COPY {
            // Of whoever asks: a child that was made behind libc's back is nobody that is known.
            let may = self.may_copy(pid, pages_of(&request, false));
            reply(&socket, if may { 0 } else { Errno::FAULT.raw_os_error().unsigned_abs() });
            return;
        }
        let Some(space) = self.space_of(pid) else {
            // Whoever has something to say is told that nobody has heard it; there is nothing to bring home for the others.
            let is_to_hear = is_advice(request.what) || request.what == call::STEP_ASIDE;
            let unheard = is_to_hear.then(|| Errno::SRCH.raw_os_error().unsigned_abs());
            reply(&socket, unheard.unwrap_or(0));
            return;
        };
        let now = self.now();
        tracing::debug!(?space, what = request.what, pages = ?pages_of(&request, false), "call");
        match request.what {
            call::RELEASE | call::FORK_PREPARE => {
                let range = if request.what == call::RELEASE {
                    pages_of(&request, false)
                } else {
                    BaseRange::new(0, 1 << 51)
                };
                self.borrower.handle_evictable(now, space, false);
                self.drain();
                if request.what == call::FORK_PREPARE {
                    self.allow_fork(space, true);
                } else if let Some(process) = self.processes.get_mut(&space) {
                    process.letting_go.push(range);
                }
                let waits = Waits::Home { home: Homecoming::new(range), what: request.what, shows: 0 };
                self.calls.push(WaitingCall { space, socket, waits });
                self.answer_calls();
            }
            call::FORK_DONE => {
                self.allow_fork(space, false);
                if !self.fork_events {
                    self.borrower.handle_forked_unseen(now, space);
                }
                self.evict_again(space);
                answer(&socket);
            }
            call::USERFAULTFD => self.give_userfaultfd(&socket),
            call::STEP_ASIDE => {
                let hand = self.processes.get_mut(&space).and_then(|process| process.hand.as_mut());
                let is_told = hand.map(|hand| hand.step_aside(now, request.address as u32));
                reply(&socket, if is_told.is_some() { 0 } else { Errno::SRCH.raw_os_error().unsigned_abs() });
            }
            call::KEEPS => {
                if let Some(process) = self.processes.get_mut(&space) {
                    process.keeps_from_children = true;
                }
                answer(&socket);
            }
            call::MAKE_WHOLE => {
                let made = self.make_whole(space, pid, pages_of(&request, false));
                reply(&socket, made.map_or_else(|apart| apart.errno().raw_os_error().unsigned_abs(), |()| 0));
            }
            call::FORK_COMES => {
                self.press(now);
                self.watch_tick(now); // so that the policy knows the limit first
                if self.adopt(space) {
                    answer(&socket);
                } else {
                    let waits = Waits::Adopted { until: now + ADOPTED_WITHIN };
                    self.calls.push(WaitingCall { space, socket, waits });
                }
            }
            what if is_advice(what) => {
                let mut waiting = WaitingCall { space, socket, waits: Waits::Changes(request) };
                // Behind what was said before it and waits, too.
                let is_behind =
                    self.calls.iter().any(|of| of.space == space && matches!(of.waits, Waits::Changes(_)));
                if is_behind || !self.try_answer(&mut waiting) {
                    self.calls.push(waiting);
                }
            }
            _ => {}
        }
    }

    /// Brings home what waiting calls need, and answers those that have what they wait for.
    pub(super) fn answer_calls(&mut self) {
        let mut waiting = std::mem::take(&mut self.calls);
        let mut answered = Vec::new();
        waiting.retain_mut(|waiting| {
            let is_answered = self.try_answer(waiting);
            if is_answered && matches!(waiting.waits, Waits::Home { .. }) {
                answered.push(waiting.space);
            }
            !is_answered
        });
        waiting.append(&mut self.calls);
        self.calls = waiting;
        for space in answered {
            self.evict_again(space);
        }
    }

    /// Pages may leave a process again, unless another call still brings them home, or a fork has them there.
    fn evict_again(&mut self, space: SpaceKey) {
        let waits = |call: &WaitingCall| call.space == space && matches!(call.waits, Waits::Home { .. });
        let hand = self.processes.get(&space).and_then(|process| process.hand.as_ref());
        if self.calls.iter().any(waits) || hand.is_some_and(|hand| hand.forks > 0) {
            return;
        }
        let now = self.now();
        self.borrower.handle_evictable(now, space, true);
        self.drain();
    }

    fn try_answer(&mut self, waiting: &mut WaitingCall) -> bool {
        let began = self.now();
        let Some(process) = self.processes.get_mut(&waiting.space) else { return true };
        let (home, what, shows) = match &mut waiting.waits {
            Waits::Home { home, what, shows } => (home, *what, shows),
            Waits::Changes(_) if process.has_unread_changes() => return false,
            Waits::Changes(request) => {
                let status = self.take_advice(waiting.space, request);
                reply(&waiting.socket, status);
                return true;
            }
            Waits::Adopted { until } => {
                let is_in_vain = began >= *until;
                if is_in_vain {
                    process.waited_in_vain = true;
                    self.tell_limits(waiting.space);
                }
                let goes_on = is_in_vain || self.adopt_in_time(waiting.space);
                if goes_on {
                    reply(&waiting.socket, 0);
                }
                return goes_on;
            }
        };
        if !self.put_hand_to_rest(waiting.space) {
            return false;
        }
        self.let_go_on(waiting.space); // nothing begins: the call made the space unevictable
        loop {
            let now = self.now();
            let goes_on = self.borrower.bring_home(now, waiting.space, home);
            self.drain();
            if self.borrower.is_home_again(waiting.space, home) {
                break;
            }
            if !goes_on {
                return false;
            }
        }
        if !self.fork_events && !self.is_hand_idle(waiting.space) {
            return false; // it may have something to show or hide
        }
        if !self.is_shown(waiting.space, home.range(), shows) {
            return false;
        }
        if what == call::RELEASE {
            self.release(waiting.space, home.range());
        }
        self.drain();
        reply(&waiting.socket, 0);
        true
    }

    fn is_hand_idle(&mut self, key: SpaceKey) -> bool {
        self.take_finished(key, usize::MAX);
        self.processes.get(&key).and_then(|p| p.hand.as_ref()).is_none_or(super::process::Hand::is_idle)
    }

    /// Everything of the range is at home: lets it go, for good.
    fn release(&mut self, key: SpaceKey, range: BaseRange) {
        let now = self.now();
        let adopted: Vec<BaseRange> = self.borrower.ranges(key);
        let process = self.processes.get_mut(&key).expect("the caller looked");
        // What was resized (`mremap`) is registered whole, and the policy knows of the new part only what was touched.
        let mapped = process.pid.and_then(|pid| procfs::mappings(pid).ok()).unwrap_or_default();
        let mapped = mapped.iter().filter(|mapping| mapping.looks_adoptable());
        let mapped = mapped.map(procfs::Mapping::pages);
        let within = |part: BaseRange| Some(part.intersect(range)).filter(|part| !part.is_empty());
        for part in mapped.chain(adopted.iter().copied()).filter_map(within) {
            // A page that was never touched reads as zeros from now on, as it should.
            let _ = process.uffd.unregister(part.start << 12..part.end << 12);
        }
        for part in adopted.into_iter().filter_map(within) {
            self.borrower.handle_unmapped(now, key, part);
        }
        if let Some(at) = process.letting_go.iter().position(|&going| going == range) {
            process.letting_go.swap_remove(at);
        }
        tracing::debug!(?key, ?range, "let go");
        process.released.add(range);
        process.keeps_from_children = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(address: u64, bytes: u64, whole: bool) -> (u64, u64) {
        let range = pages_of(&Call { address, bytes, ..Call::default() }, whole);
        (range.start, range.end)
    }

    #[test]
    fn what_is_said_of_a_part_of_a_page_is_said_of_it_or_not() {
        assert_eq!(pages(4096, 8192, false), (1, 3));
        assert_eq!(pages(4095, 2, false), (0, 2));
        assert_eq!(pages(4095, 2 + 4096, true), (1, 2));
        assert_eq!(pages(100, 200, true), (1, 1), "nothing whole");
        assert_eq!(pages(100, 0, false), (0, 0), "nothing");
    }

    /// A program may say anything, by a pointer that is wrong.
    #[test]
    fn what_has_no_end_ends_where_addresses_do() {
        let last = ADDRESSES_END >> 12;
        for whole in [false, true] {
            assert_eq!(pages(1 << 20, u64::MAX, whole), (256, last));
            assert_eq!(pages(u64::MAX - 4095, 4096, whole), (last, last));
            assert_eq!(pages(u64::MAX, u64::MAX, whole), (last, last));
        }
    }
}
