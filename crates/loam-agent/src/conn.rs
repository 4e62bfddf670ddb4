//! One connection to a lender, nonblocking.
//!
//! What is to be sent is collected while effects are carried out and goes out as few frames: adjacent faults
//! become one getpage, a batch of evictions one putpage. Getpages overtake putpages that wait: a thread waits for them. Of getpages, what a
//! thread waits for goes before what is behind it (the rest of its page, what is fetched ahead).

mod reserving;
#[cfg(test)]
mod tests;

use crate::pool::Pool;
use loam_core::borrower::BufferIndex;
use loam_core::ids::{ContentHash, PutClass, SpaceId, Urgency, Version};
use loam_core::units::BASE_PAGE_BYTES;
use loam_wire::client::{self, Target};
use loam_wire::limits::{DROP_PAGES_MAX, FRAME_BYTES_MAX, REQUEST_PAGES_MAX, SPARE_PAGES_MAX};
use loam_wire::{PageMeta, PageRef, Stream, encode, feature};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Room for received bytes: a whole frame, and enough behind it that a stream is read in large pieces.
const RECEIVE_BYTES: usize = FRAME_BYTES_MAX + 1024 * 1024;
/// Bytes of one read: what is received is looked at, and installed, while it is still in the cache.
const READ_BYTES_MAX: usize = 384 * 1024;
/// Bytes of one read while a thread waits: the rest of its page may be right behind what it waits for, and is not worth waiting for.
const READ_WAITED_BYTES_MAX: usize = 16 * 1024;
/// Bytes that the kernel may keep for us: what a thread waits for stands behind them. (The kernel gives twice as much room, and keeps about
/// half of it for itself.)
const RECEIVE_KERNEL_BYTES: usize = 512 * 1024;
/// Pieces of one writev.
const IOVECS_MAX: usize = 64;
/// Pages of one putpage frame: small enough that a getpage need not wait long behind it, nor a fault while it is sent.
const PUT_PAGES: usize = 32;
/// Pages of putpages under way at most: a getpage waits at the lender behind those that went before it.
const PUTS_UNDER_WAY_MAX: usize = 128;

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// Nothing: there is nothing now.
    Nothing,
    /// Everything that there was.
    All,
    /// As much as was asked for: there may be more.
    More,
}

/// A frame on its way out: its head, then the pages of a putpage.
#[derive(Debug)]
struct Outgoing {
    head: Vec<u8>,
    /// A getpage or a hurry.
    asks: bool,
    pages: Vec<BufferIndex>,
    sent_bytes: usize,
}

impl Outgoing {
    fn bytes(&self) -> usize {
        self.head.len() + self.pages.len() * BASE_PAGE_BYTES
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) stream: Stream,
    /// What the lender said that it can still take, in bytes.
    pub(crate) free_bytes: u64,
    received: Vec<u8>,
    start: usize,
    end: usize,
    out: VecDeque<Outgoing>,
    /// Where it leads, and as whom: to connect again.
    pub(crate) target: Target,
    pub(crate) space: SpaceId,
    /// Which life of which lender.
    pub(crate) instance: u64,
    /// It is on this very machine.
    pub(crate) is_here: bool,
    /// When something last came.
    heard_at: Instant,
    pings: bool,
    /// The lender knows fetch plans.
    plans: bool,
    /// It knows what to do with pages that several lenders have.
    stages: bool,
    /// It knows reservations.
    reserves: bool,
    /// It is to be asked for so many bytes.
    reserve: Option<u64>,
    /// The request that did so, and for how many; not answered yet.
    reserving: Option<(u64, u64)>,
    spares: Vec<PageRef>,
    /// What threads wait for, and what is behind that.
    gets: Vec<PageRef>,
    gets_behind: VecDeque<PageRef>,
    hurries: Vec<PageRef>,
    puts: Vec<(PageMeta, BufferIndex)>,
    drops: Vec<PageRef>,
    request: u64,
    spare: Vec<Outgoing>,
    /// Pages asked for or put and not answered.
    unanswered: u64,
    /// Those of them that are in putpages whose sending has begun.
    puts_under_way: usize,
    /// When an answer was owed first, or last came.
    quiet_since: Instant,
    pub(crate) wants_write: bool,
    /// Threads may wait for something: what comes is looked at soon.
    pub(crate) awaited: bool,
}

/// Whether the two ends of a connection are on one machine.
fn are_one_machine(ours: IpAddr, theirs: IpAddr) -> bool {
    ours.to_canonical() == theirs.to_canonical() || theirs.to_canonical().is_loopback()
}

impl Conn {
    /// Connects and says hello; `returns` is not 0 for one that comes back ([`loam_wire::Frame::Hello`]).
    pub(crate) fn connect(
        target: &Target,
        features: u64,
        space: SpaceId,
        returns: u32,
        name: &str,
        timeout: Duration,
    ) -> Result<Self, client::ClientError> {
        let (stream, welcome) = client::connect_back(target, features, space.0, returns, name, timeout)?;
        stream.socket().set_nonblocking(true)?;
        // Without it what a thread waits for comes later, and nothing worse.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(stream.socket(), RECEIVE_KERNEL_BYTES);
        let mut conn = Self::new(stream, target.clone(), space, welcome.free_bytes(), welcome.features());
        conn.instance = welcome.instance();
        Ok(conn)
    }

    pub(crate) fn new(
        stream: Stream,
        target: Target,
        space: SpaceId,
        free_bytes: u64,
        features: u64,
    ) -> Self {
        let socket = stream.socket();
        let is_here = match (socket.local_addr(), socket.peer_addr()) {
            (Ok(ours), Ok(theirs)) => are_one_machine(ours.ip(), theirs.ip()),
            _ => false,
        };
        Self {
            stream,
            target,
            space,
            instance: 0,
            is_here,
            heard_at: Instant::now(),
            pings: false,
            free_bytes,
            received: vec![0; RECEIVE_BYTES],
            start: 0,
            end: 0,
            out: VecDeque::new(),
            plans: features & feature::PLAN != 0,
            stages: features & feature::STAGING != 0,
            reserves: features & feature::RESERVE != 0,
            reserve: None,
            reserving: None,
            spares: Vec::new(),
            gets: Vec::new(),
            gets_behind: VecDeque::new(),
            hurries: Vec::new(),
            puts: Vec::new(),
            drops: Vec::new(),
            request: 0,
            spare: Vec::new(),
            unanswered: 0,
            awaited: false,
            puts_under_way: 0,
            quiet_since: Instant::now(),
            wants_write: false,
        }
    }

    pub(crate) fn get(&mut self, page: PageRef) {
        match page.urgency() {
            Urgency::Waited => self.gets.push(page),
            Urgency::Behind => self.gets_behind.push_back(page),
        }
    }

    /// A thread waits by now for what was asked for behind.
    pub(crate) fn hurry(&mut self, index: u64, version: Version) {
        let named = |page: &PageRef| page.index() == index && page.version() == version;
        // Usually all of it has been sent.
        if let Some(at) = self.gets_behind.iter().position(named) {
            self.gets_behind.remove(at);
            self.gets.push(PageRef::new(index, version));
        } else if self.plans {
            self.hurries.push(PageRef::new(index, version));
        }
    }

    pub(crate) fn put(
        &mut self,
        index: u64,
        version: Version,
        hash: ContentHash,
        class: PutClass,
        buffer: BufferIndex,
    ) {
        let class = if self.stages { class } else { PutClass::Ordinary };
        self.puts.push((PageMeta::classed(index, version, hash, class), buffer));
    }

    /// The lender may give this up from now on. One that does not know of that keeps it.
    pub(crate) fn spare_page(&mut self, page: PageRef) {
        if self.stages {
            self.spares.push(page);
        }
    }

    pub(crate) fn drop_page(&mut self, page: PageRef) {
        self.drops.push(page);
    }

    /// `pages` answers have come.
    pub(crate) fn answered(&mut self, pages: usize) {
        self.unanswered = self.unanswered.saturating_sub(pages as u64);
        self.quiet_since = Instant::now();
    }

    /// `pages` of putpages have been answered.
    pub(crate) fn put_answered(&mut self, pages: usize) {
        self.puts_under_way = self.puts_under_way.saturating_sub(pages);
        self.answered(pages);
    }

    /// A call of [`Self::flush`] would send something.
    pub(crate) fn can_send(&self) -> bool {
        let asks = !(self.gets.is_empty() && self.gets_behind.is_empty() && self.hurries.is_empty());
        let fresh = asks
            || self.pings
            || self.reserve.is_some()
            || !(self.puts.is_empty() && self.drops.is_empty() && self.spares.is_empty());
        !self.wants_write && (fresh || self.out.front().is_some_and(|frame| self.may_send(frame)))
    }

    fn may_send(&self, frame: &Outgoing) -> bool {
        let begun = frame.sent_bytes > 0;
        frame.pages.is_empty() || begun || self.puts_under_way + frame.pages.len() <= PUTS_UNDER_WAY_MAX
    }

    /// Something has come that the socket's readiness does not tell of.
    pub(crate) fn holds(&self) -> bool {
        self.stream.holds()
    }

    /// An answer is owed.
    pub(crate) fn owes(&self) -> bool {
        self.unanswered > 0
    }

    /// Silence counts from now.
    pub(crate) fn forgive(&mut self) {
        self.quiet_since = Instant::now();
    }

    /// Something has come within this time.
    pub(crate) fn was_heard(&self, within: Duration) -> bool {
        self.heard_at.elapsed() < within
    }

    /// Asks for a reservation of `bytes`, in place of what was reserved before. One that does not know them is not asked.
    pub(crate) fn reserve(&mut self, bytes: u64) {
        self.reserve = self.reserves.then_some(bytes);
    }

    /// This request is answered: for how many bytes it asked. `None`: it did not, or that does not count any more.
    pub(crate) fn take_reserving(&mut self, request: u64) -> Option<u64> {
        self.reserving.take_if(|(asked, _)| *asked == request).map(|(_, bytes)| bytes)
    }

    /// Asks for a sign of life.
    pub(crate) fn ping(&mut self) {
        self.pings = true;
    }

    /// How long an answer has been owed without a byte coming.
    pub(crate) fn silent_for(&self) -> Option<Duration> {
        (self.unanswered > 0).then(|| self.quiet_since.elapsed())
    }

    /// Says goodbye at the end of a run, as far as the socket takes it.
    pub(crate) fn bye(&mut self, pool: &Pool) {
        // Nobody needs any more what has not begun to go.
        self.out.retain(|frame| frame.sent_bytes > 0);
        self.gets.clear();
        self.gets_behind.clear();
        self.hurries.clear();
        self.puts.clear();
        self.drops.clear();
        self.spares.clear();
        let mut frame = self.frame();
        encode::bye(&mut frame.head);
        self.out.push_back(frame);
        let _ = self.flush(pool);
        self.stream.end();
    }

    fn frame(&mut self) -> Outgoing {
        let mut frame = self.spare.pop().unwrap_or(Outgoing {
            head: Vec::new(),
            asks: false,
            pages: Vec::new(),
            sent_bytes: 0,
        });
        frame.head.clear();
        frame.asks = false;
        frame.pages.clear();
        frame.sent_bytes = 0;
        frame
    }

    /// Sends what was collected, as far as the socket takes it; of putpages the one that has begun, and one more.
    pub(crate) fn flush(&mut self, pool: &Pool) -> io::Result<()> {
        if self.unanswered == 0 {
            self.quiet_since = Instant::now();
        }
        self.pack();
        self.wants_write = false;
        let mut puts_left = 1;
        while self.out.front().is_some_and(|frame| self.may_send(frame)) {
            let mut slices = [IoSlice::new(&[]); IOVECS_MAX];
            let mut used = 0;
            'fill: for frame in &self.out {
                // One that has begun is finished: what waits behind it needs that.
                if !frame.pages.is_empty() && frame.sent_bytes == 0 {
                    if puts_left == 0 || !self.may_send(frame) {
                        break;
                    }
                    puts_left -= 1;
                }
                let mut skip = frame.sent_bytes;
                let pages = frame.pages.iter().map(|b| &pool.page(b.0 as usize)[..]);
                for piece in std::iter::once(&frame.head[..]).chain(pages) {
                    if skip >= piece.len() {
                        skip -= piece.len();
                        continue;
                    }
                    if used == IOVECS_MAX {
                        break 'fill;
                    }
                    slices[used] = IoSlice::new(&piece[skip..]);
                    skip = 0;
                    used += 1;
                }
            }
            if used == 0 {
                break;
            }
            let sent = match &slices[..used] {
                // A getpage that somebody waits for is one piece, and that is the quicker call.
                [one] => self.stream.write(one),
                pieces => self.stream.write_vectored(pieces),
            };
            match sent {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent(bytes),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.wants_write = true;
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
        self.push()
    }

    /// Sends what the stream has taken and still has.
    fn push(&mut self) -> io::Result<()> {
        match self.stream.flush() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.wants_write = true;
                Ok(())
            }
            other => other,
        }
    }

    /// Makes frames of what was collected.
    fn pack(&mut self) {
        // Not while the last ones wait: then what comes to be waited for meanwhile still goes before what is behind.
        let asks_wait = self.out.iter().take(2).any(|frame| frame.asks);
        while !asks_wait && self.gets.len() + self.gets_behind.len() > 0 {
            let behind =
                (REQUEST_PAGES_MAX - self.gets.len().min(REQUEST_PAGES_MAX)).min(self.gets_behind.len());
            self.gets.extend(self.gets_behind.drain(..behind));
            let n = self.gets.len().min(REQUEST_PAGES_MAX);
            let mut frame = self.frame();
            self.request += 1;
            encode::getpage(&mut frame.head, self.request, &self.gets[..n]);
            self.gets.drain(..n);
            self.unanswered += n as u64;
            self.ask(frame);
        }
        // After what they speak of.
        while !self.hurries.is_empty() {
            let n = self.hurries.len().min(REQUEST_PAGES_MAX);
            let mut frame = self.frame();
            encode::hurry(&mut frame.head, &self.hurries[..n]);
            self.hurries.drain(..n);
            self.ask(frame);
        }
        // Before the puts: a copy that has just been given back may be put again. The other way round cannot be: nothing is
        // dropped whose put is not answered.
        let drops = std::mem::take(&mut self.drops);
        self.drops = self.pack_all(drops, DROP_PAGES_MAX, encode::drop);
        if std::mem::take(&mut self.pings) {
            let mut frame = self.frame();
            self.request += 1;
            encode::ping(&mut frame.head, self.request);
            self.ask(frame);
        }
        if let Some(bytes) = self.reserve.take() {
            let mut frame = self.frame();
            self.request += 1;
            encode::reserve(&mut frame.head, self.request, bytes);
            self.reserving = Some((self.request, bytes));
            self.ask(frame);
        }
        // Whatever is spare has been put and answered.
        let spares = std::mem::take(&mut self.spares);
        self.spares = self.pack_all(spares, SPARE_PAGES_MAX, encode::spare);
        while !self.puts.is_empty() {
            let n = self.puts.len().min(PUT_PAGES);
            let mut frame = self.frame();
            self.request += 1;
            let metas: Vec<PageMeta> = self.puts[..n].iter().map(|(meta, _)| *meta).collect();
            encode::putpage(&mut frame.head, self.request, &metas);
            frame.pages.extend(self.puts.drain(..n).map(|(_, buffer)| buffer));
            self.unanswered += n as u64;
            self.out.push_back(frame);
        }
    }

    /// Makes frames of all that was collected; the list comes back empty. (What a process leaves behind at its end, or unmaps, is millions of pages at once.)
    fn pack_all(
        &mut self,
        mut pages: Vec<PageRef>,
        most: usize,
        encode: fn(&mut Vec<u8>, &[PageRef]),
    ) -> Vec<PageRef> {
        for pages in pages.chunks(most) {
            let mut frame = self.frame();
            encode(&mut frame.head, pages);
            self.out.push_back(frame);
        }
        pages.clear();
        pages.shrink_to(most);
        pages
    }

    /// A getpage or a hurry goes behind a frame that has begun and behind others of its kind, before everything else that waits.
    fn ask(&mut self, mut frame: Outgoing) {
        frame.asks = true;
        let begun = self.out.front().map_or(0, |f| usize::from(f.sent_bytes > 0));
        let asks = self.out.iter().skip(begun).take_while(|f| f.asks).count();
        self.out.insert(begun + asks, frame);
    }

    fn sent(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let frame = self.out.front_mut().expect("no more was sent than there is");
            if frame.sent_bytes == 0 {
                self.puts_under_way += frame.pages.len();
            }
            let left = frame.bytes() - frame.sent_bytes;
            if bytes < left {
                frame.sent_bytes += bytes;
                return;
            }
            bytes -= left;
            let done = self.out.pop_front().expect("looked at above");
            if self.spare.len() < 16 {
                self.spare.push(done);
            }
        }
    }

    /// Reads once; answers how much came, and whether there may be more. The end of the stream is an error.
    pub(crate) fn receive(&mut self) -> io::Result<Came> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.received.len() - self.end < FRAME_BYTES_MAX / 2 {
            self.received.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        loop {
            // A frame that has begun to come is finished.
            let begins = self.start == self.end;
            let most = if self.awaited && begins { READ_WAITED_BYTES_MAX } else { READ_BYTES_MAX };
            let room = self.received.len().min(self.end + most);
            match self.stream.read(&mut self.received[self.end..room]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    self.end += bytes;
                    self.quiet_since = Instant::now();
                    self.heard_at = self.quiet_since;
                    let more = self.end == room || self.stream.holds();
                    return Ok(if more { Came::More } else { Came::All });
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Came::Nothing),
                Err(e) => return Err(e),
            }
        }
    }

    /// Takes the received bytes out, to look at while the rest of the agent works; give them back with
    /// [`Self::put_back`].
    pub(crate) fn take_received(&mut self) -> (Vec<u8>, usize, usize) {
        (std::mem::take(&mut self.received), self.start, self.end)
    }

    /// The buffer comes back; bytes before `start` have been dealt with.
    pub(crate) fn put_back(&mut self, received: Vec<u8>, start: usize) {
        assert!(self.received.is_empty() && start <= self.end, "the receive buffer is taken once");
        self.received = received;
        self.start = start;
    }
}
