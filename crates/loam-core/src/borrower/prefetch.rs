//! Fetching ahead of a program that reads in order.
//!
//! A page that is present raises no fault, so a prefetcher that brings everything home goes blind. One page of
//! each batch, the *marker*, is therefore fetched but kept in a buffer: the touch that finds it costs no
//! network, and tells that the program follows. (The kernel's readahead does the same with a page flag.)

use super::table::SpaceKey;
use crate::page_size::PageSize;
use crate::units::BasePages;

/// Pages to fetch: `first`, `first + stride`, …, `count` of them, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Number of the first page (first base page divided by the page's size).
    pub first: i64,
    /// Pages from one to the next; may be negative.
    pub stride: i64,
    /// How many.
    pub count: u32,
    /// Which of them is the marker.
    pub marker: u32,
    /// It is the first page of a stream that may be none: a bet.
    pub bet: bool,
}

/// Where a stream runs: an address space, in pages of one size. Where the size changes another stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSpace {
    /// The address space.
    pub space: SpaceKey,
    /// Of the pages that are counted.
    pub size: PageSize,
}

/// What the faulted page was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Away, and nobody had asked for it.
    Missing,
    /// Fetched ahead: the marker, or one that is still on its way.
    Ahead,
    /// Never written: it needs no fetch, and what is brought ahead of it has no marker.
    Fresh,
}

/// Tells of the page of this number whether all of it is here: a touch of it raises no fault, and there is nothing to fetch.
pub type IsHere<'a> = &'a dyn Fn(i64) -> bool;

/// A thread waits for a page.
#[derive(Clone, Copy)]
pub struct Faulted<'a> {
    /// Where.
    pub space: StreamSpace,
    /// The page's number.
    pub page: i64,
    /// What it was.
    pub touch: Touch,
    /// At most so many pages are worth fetching now.
    pub most: u32,
    /// What is here lies between the pages that are fetched, and the program goes over it unseen.
    pub here: IsHere<'a>,
}

/// A prefetch policy: sees faults, answers what to fetch with them.
pub trait Prefetcher: core::fmt::Debug + Send {
    /// A thread waits for a page: what to fetch with it.
    fn faulted(&mut self, fault: Faulted<'_>) -> Option<Ahead>;
    /// The same where the program has said that it goes from lower to higher addresses: no pattern is waited for. A policy that does nothing here
    /// learns it from the faults all the same.
    fn told(&mut self, fault: Faulted<'_>) -> Option<Ahead> {
        self.faulted(fault)
    }
    /// It never has more ahead of a stream than this, or one page.
    fn window_max(&self) -> BasePages {
        BasePages(0)
    }
    /// A stream comes to this page, or may.
    fn expects(&self, space: StreamSpace, page: i64) -> bool {
        let _ = (space, page);
        false
    }
    /// How much was asked for that the program has not come to, at most, of all streams together that seem to go on.
    fn ahead(&self) -> BasePages {
        BasePages(0)
    }
    /// The address space is gone, and its streams with it.
    fn space_gone(&mut self, space: SpaceKey) {
        let _ = space;
    }
    /// Of the last answer only the first `taken` pages were fetched: frames ran short.
    fn cut(&mut self, space: StreamSpace, ahead: &Ahead, taken: u32);
    /// A long stream has passed over this page.
    fn passed(&self, _space: StreamSpace, _page: i64) -> bool {
        false
    }
}

/// Never fetches ahead.
#[derive(Debug)]
pub struct NoPrefetch;

impl Prefetcher for NoPrefetch {
    fn faulted(&mut self, _: Faulted<'_>) -> Option<Ahead> {
        None
    }
    fn cut(&mut self, _: StreamSpace, _: &Ahead, _: u32) {}
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    space: StreamSpace,
    /// Where it began to be followed without a gap.
    first: i64,
    last: i64,
    /// 0 until a second fault has given it.
    stride: i64,
    /// One stride past the last page that was asked for.
    edge: i64,
    /// The marker that was not touched yet.
    marker: Option<i64>,
    /// Pages that were asked for and not gone over yet, at most; and of the last of them those behind the marker.
    asked: i64,
    behind: i64,
    /// Faults in order, so far.
    run: u32,
    /// Pages ahead, last time.
    window: u32,
    /// The first page that was ever asked for is out, and was not touched yet.
    bet: bool,
    used_at: u64,
}

impl Stream {
    /// One that begins with this page.
    fn new(space: StreamSpace, page: i64, used_at: u64) -> Self {
        let (stride, marker, asked, behind, run, window, bet) = (0, None, 0, 0, 0, 0, false);
        Self {
            space,
            first: page,
            last: page,
            stride,
            edge: page,
            marker,
            asked,
            behind,
            run,
            window,
            bet,
            used_at,
        }
    }

    /// The page is at its edge, or inside what it asked for, or between its steps there.
    fn spans(&self, page: i64) -> bool {
        let (low, high) =
            if self.stride > 0 { (self.last + 1, self.edge) } else { (self.edge, self.last - 1) };
        self.stride != 0 && low <= page && page <= high
    }

    /// It expects this page. Of one that has been followed for long a page between its steps is taken for its own: it begins anew there. Else whoever is there is another one.
    fn expects(&self, page: i64) -> bool {
        self.spans(page) && (self.run >= RUN_DISTRUSTED || (page - self.last) % self.stride == 0)
    }

    /// It is hardly one, and the page is between its steps: its pages are touched in another order.
    fn is_refuted(&self, page: i64) -> bool {
        self.run < RUN_DISTRUSTED && self.spans(page) && !self.expects(page)
    }

    /// Whether it expects this page, or would if it did not lie behind pages that are here: those count as touched. Answered with where its edge is then.
    fn reaches(&self, page: i64, here: IsHere<'_>) -> Option<i64> {
        if self.stride == 0 || self.expects(page) {
            return Some(self.edge).filter(|_| self.stride != 0);
        }
        let beyond = page - self.edge;
        let (gap, rest) = (beyond / self.stride, beyond % self.stride);
        let is_near = rest == 0 && (1..=gap_max(self.space)).contains(&gap);
        (is_near && (0..gap).all(|n| here(self.edge + n * self.stride))).then_some(page)
    }

    /// What it asked for is there as it should be.
    fn goes_on(&self, page: i64, touch: Touch) -> bool {
        touch == Touch::Ahead || page == self.edge && self.marker.is_none()
    }
}

/// So many pages that are here are gone over.
fn gap_max(space: StreamSpace) -> i64 {
    (GAP_BASE_PAGES / space.size.base_pages() as i64).max(1)
}

const STREAMS: usize = 32;
/// A stream that was not come to in so many faults is believed to be over.
const GOING_ON: u64 = 8 * STREAMS as u64;
/// Strides from which on a stream is a long one: more than a program that jumps about makes in passing.
const LONG_STRIDES: u64 = 128;
const STRIDE_MAX: i64 = 64;
/// So much that is here is gone over, between what was asked for and the next fault: 256 KiB, or a page.
const GAP_BASE_PAGES: i64 = 64;
/// What is fetched ahead may lie among pages that are here, so many times as many in all.
const SPREAD_MAX: i64 = 4;
/// Faults in order before the first page is fetched ahead: of neighbours, of pages farther apart, and where most first pages
/// were for nothing.
const RUN_NEIGHBOURS: u32 = 1;
const RUN_STRIDED: u32 = 2;
const RUN_DISTRUSTED: u32 = 4;
/// The part of the first pages that were touched: full, and the least that counts as trust.
const TRUST_FULL: u32 = 256;
const TRUST_LEAST: u32 = 64;
/// The weight of the newest of them.
const TRUST_STEP: u32 = 8;
/// Where the program has said that it goes on, a stream begins with this part of what it may fetch ahead at most.
const TOLD_SHARE: u32 = 4;

/// Sequential and strided streams, several at a time.
///
/// A stream begins with a bet of one page, which as its own marker takes no frame. Each marker that is touched doubles what is fetched
/// ahead, so what a program does not follow costs at most about what it has followed. A working set a little
/// larger than its memory faults everywhere, and much of that looks like the beginning of a stream: where most bets are
/// lost, more faults in order are asked for before one is made.
#[derive(Debug)]
pub struct StridePrefetcher {
    streams: [Option<Stream>; STREAMS],
    window_max: BasePages,
    trust: u32,
    clock: u64,
}

impl StridePrefetcher {
    /// At most `window_max` ahead, or one page.
    pub fn new(window_max: BasePages) -> Self {
        Self { streams: [None; STREAMS], window_max, trust: TRUST_FULL / 2, clock: 0 }
    }

    fn oldest(&self) -> usize {
        let age = |s: &Option<Stream>| s.map_or(0, |s| s.used_at);
        (0..STREAMS).min_by_key(|&i| age(&self.streams[i])).expect("there are streams")
    }

    /// A stream begins in the place of the one that was used least recently.
    fn begin(&mut self, stream: Stream) -> usize {
        let slot = self.oldest();
        self.end(slot);
        self.streams[slot] = Some(stream);
        slot
    }

    /// The stream at `index` ends. What was bet on it is lost.
    fn end(&mut self, index: usize) {
        if self.streams[index].take().is_some_and(|s| s.bet) {
            self.settle_bet(false);
        }
    }

    fn most(&self, space: StreamSpace, most: u32) -> u32 {
        u64::from(most).min(self.window_max.0 / space.size.base_pages()).max(1) as u32
    }

    fn settle_bet(&mut self, won: bool) {
        let goal = if won { TRUST_FULL } else { 0 };
        self.trust = (self.trust * (TRUST_STEP - 1) + goal) / TRUST_STEP;
    }

    /// The first of these streams that reaches this page, at which its edge is by then.
    fn following(&mut self, page: i64, here: IsHere<'_>, of: impl Fn(&Stream) -> bool) -> Option<usize> {
        let reached = |s: &Option<Stream>| s.as_ref().filter(|s| of(s)).and_then(|s| s.reaches(page, here));
        let (index, edge) =
            self.streams.iter().enumerate().find_map(|(index, s)| Some((index, reached(s)?)))?;
        self.streams[index].as_mut().expect("it was there").edge = edge;
        Some(index)
    }

    /// The stream at `index` expected `page`.
    fn followed(&mut self, index: usize, fault: Faulted<'_>) -> Option<Ahead> {
        let Faulted { page, touch, .. } = fault;
        let s = self.streams[index].as_mut().expect("the caller has found it");
        let in_order = s.goes_on(page, touch);
        let bet = core::mem::take(&mut s.bet);
        s.last = page;
        s.used_at = self.clock;
        s.run += 1;
        if s.marker == Some(page) {
            (s.marker, s.asked) = (None, s.behind);
        }
        if !in_order {
            // What was asked for is gone, or was passed over.
            *s = Stream {
                first: page,
                edge: page + s.stride,
                marker: None,
                asked: 0,
                run: 1,
                window: 0,
                ..*s
            };
        }
        if bet {
            self.settle_bet(in_order);
        }
        if in_order { self.extend(index, fault) } else { None }
    }

    /// The stream at `index` was followed to `page`.
    fn extend(&mut self, index: usize, fault: Faulted<'_>) -> Option<Ahead> {
        let Faulted { page, touch, most, here, .. } = fault;
        let distrusted = self.trust < TRUST_LEAST;
        let s = self.streams[index].as_mut().expect("the caller has found it");
        let run_min = match s.stride.abs() {
            _ if distrusted => RUN_DISTRUSTED,
            1 => RUN_NEIGHBOURS,
            _ => RUN_STRIDED,
        };
        if s.run < run_min {
            s.edge = page + s.stride;
            return None;
        }
        let window = (s.window * 2).clamp(1, most);
        let first = if s.stride > 0 { s.edge.max(page + s.stride) } else { s.edge.min(page + s.stride) };
        let asked = s.asked.min((first - page) / s.stride - 1);
        let wanted = usize::try_from(i64::from(window) - asked).ok().filter(|&wanted| wanted > 0)?;
        // What is here takes no room in the window, and nobody would see a touch of it: the marker is in the middle of what is not.
        let missing =
            (0..SPREAD_MAX * i64::from(window)).filter(|n| !here(first + s.stride * n)).take(wanted);
        let found = missing.clone().count();
        let marker = missing.clone().nth(found / 2)?;
        let last = missing.last()?;
        (s.bet, s.window) = (s.window == 0, window);
        (s.asked, s.behind) = (asked + found as i64, (found - found / 2 - 1) as i64);
        s.edge = first + s.stride * (last + 1);
        s.marker = (touch != Touch::Fresh).then_some(first + s.stride * marker);
        let (marker, count) = (marker as u32, last as u32 + 1);
        Some(Ahead { first, stride: s.stride, count, marker, bet: s.bet })
    }
}

impl Prefetcher for StridePrefetcher {
    fn window_max(&self) -> BasePages {
        self.window_max
    }

    fn space_gone(&mut self, space: SpaceKey) {
        for stream in &mut self.streams {
            stream.take_if(|stream| stream.space.space == space);
        }
    }

    fn expects(&self, space: StreamSpace, page: i64) -> bool {
        let may_begin = |stream: &Stream| stream.stride == 0 && page.abs_diff(stream.last) == 1;
        let mut streams = self.streams.iter().flatten().filter(|stream| stream.space == space);
        streams.any(|stream| stream.expects(page) || may_begin(stream))
    }

    fn ahead(&self) -> BasePages {
        let going_on = self.streams.iter().flatten().filter(|s| self.clock - s.used_at <= GOING_ON);
        let of = |stream: &Stream| stream.asked.unsigned_abs() * stream.space.size.base_pages();
        BasePages(going_on.map(of).sum())
    }

    fn faulted(&mut self, fault: Faulted<'_>) -> Option<Ahead> {
        let Faulted { space, page, here, .. } = fault;
        let most = self.most(space, fault.most);
        let fault = Faulted { most, ..fault };
        self.clock += 1;
        let clock = self.clock;
        if let Some(s) = self.streams.iter_mut().flatten().find(|s| s.space == space && s.last == page) {
            s.used_at = clock; // another part of the same page
            return None;
        }
        for index in 0..STREAMS {
            if self.streams[index].is_some_and(|s| s.space == space && s.is_refuted(page)) {
                self.end(index);
            }
        }
        if let Some(index) = self.following(page, here, |s| s.space == space) {
            return self.followed(index, fault);
        }
        // The second fault of a stream gives its stride.
        let near = |s: &Option<Stream>| {
            s.is_some_and(|s| s.space == space && s.stride == 0 && (page - s.last).abs() <= STRIDE_MAX)
        };
        if let Some(index) = self.streams.iter().position(near) {
            let s = self.streams[index].as_mut().expect("just found");
            let stride = page - s.last;
            // What is here between them was touched, too; or nothing there is, and they are near each other by chance.
            let has_gap = (2..=gap_max(space) + 1).contains(&stride.abs())
                && (1..stride.abs()).all(|n| here(s.last + n * stride.signum()));
            s.stride = if has_gap { stride.signum() } else { stride };
            s.last = page;
            s.edge = page + s.stride;
            s.used_at = clock;
            s.run = u32::from(!has_gap);
            return self.extend(index, fault);
        }
        self.begin(Stream::new(space, page, clock));
        None
    }

    fn told(&mut self, fault: Faulted<'_>) -> Option<Ahead> {
        let Faulted { space, page, touch, here, .. } = fault;
        let most = self.most(space, fault.most);
        let fault = Faulted { most, ..fault };
        self.clock += 1;
        let upward = |s: &Stream| s.space == space && s.stride == 1;
        if let Some(s) = self.streams.iter_mut().flatten().find(|s| upward(s) && s.last == page) {
            s.used_at = self.clock; // another part of the same page
            return None;
        }
        // It doubles with the first touch.
        let window = most / TOLD_SHARE / 2;
        let begins = Stream {
            last: page - 1,
            stride: 1,
            run: RUN_DISTRUSTED,
            window,
            ..Stream::new(space, page, self.clock)
        };
        let index = match self.following(page, here, upward) {
            Some(index) => {
                let s = self.streams[index].as_mut().expect("just found");
                if s.goes_on(page, touch) {
                    (s.run, s.window) = (s.run.max(begins.run), s.window.max(window));
                } else {
                    *s = begins;
                }
                index
            }
            None => self.begin(begins),
        };
        let ahead = self.followed(index, fault);
        // That the program has said so is no evidence for what it has not said.
        self.streams[index].as_mut().expect("it is followed").bet = false;
        ahead
    }

    fn cut(&mut self, space: StreamSpace, ahead: &Ahead, taken: u32) {
        let edge = ahead.first + ahead.stride * i64::from(ahead.count);
        // The stream of the last answer: another one may have the same edge.
        let (clock, stride) = (self.clock, ahead.stride);
        let asked =
            |s: &&mut Stream| s.used_at == clock && s.space == space && s.stride == stride && s.edge == edge;
        if let Some(s) = self.streams.iter_mut().flatten().find(asked) {
            s.edge = ahead.first + ahead.stride * i64::from(taken);
            s.asked = s.asked.min((s.edge - s.last) / s.stride - 1).max(0);
            s.behind = s.behind.min(s.asked);
            if taken <= ahead.marker {
                s.marker = None;
                s.bet = false;
            }
        }
    }

    fn passed(&self, space: StreamSpace, page: i64) -> bool {
        self.streams.iter().flatten().any(|s| {
            let (low, high) = (s.first.min(s.last), s.first.max(s.last));
            let long = low.abs_diff(high) >= LONG_STRIDES * s.stride.unsigned_abs();
            s.space == space && s.stride != 0 && long && low <= page && page <= high
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draw;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const SPACE: StreamSpace = StreamSpace { space: SpaceKey(0), size: PageSize::SMALLEST };

    fn at(space: StreamSpace, page: i64, touch: Touch, here: IsHere<'_>) -> Faulted<'_> {
        Faulted { space, page, touch, most: u32::MAX, here }
    }

    /// A program that touches `pages` in order; what is home raises no fault, the marker does. Returns the touches that had to wait.
    fn waits(prefetcher: &mut StridePrefetcher, pages: impl Iterator<Item = i64>) -> Vec<i64> {
        waits_among(prefetcher, BTreeSet::new(), pages)
    }

    /// The same where some pages are home from the beginning.
    fn waits_among(
        prefetcher: &mut StridePrefetcher,
        mut home: BTreeSet<i64>,
        pages: impl Iterator<Item = i64>,
    ) -> Vec<i64> {
        let (mut marked, mut waited) = (BTreeSet::new(), Vec::new());
        for page in pages {
            if home.contains(&page) {
                continue;
            }
            let touch = if marked.remove(&page) { Touch::Ahead } else { Touch::Missing };
            if touch == Touch::Missing {
                waited.push(page);
            }
            home.insert(page);
            if let Some(a) = prefetcher.faulted(at(SPACE, page, touch, &|page| home.contains(&page))) {
                for n in 0..a.count {
                    let p = a.first + a.stride * i64::from(n);
                    if n == a.marker && !home.contains(&p) {
                        marked.insert(p);
                    } else {
                        home.insert(p);
                    }
                }
            }
        }
        waited
    }

    #[test]
    fn a_sequential_reader_waits_only_at_the_start() {
        for stride in [1, -1, 3, -7] {
            let mut p = StridePrefetcher::new(BasePages(16));
            let waited = waits(&mut p, (0..4_000).map(|n| 1_000_000 + n * stride));
            assert!(waited.len() <= 5, "stride {stride}: waited for {waited:?}");
        }
    }

    /// It need not be told twice: from the first touch on it is ahead, and not where nobody has said so.
    #[test]
    fn who_is_told_runs_ahead_at_once() {
        let (mut told, mut plain) =
            (StridePrefetcher::new(BasePages(64)), StridePrefetcher::new(BasePages(64)));
        let ahead = told.told(at(SPACE, 500, Touch::Missing, &|_| false)).expect("at once");
        assert_eq!((ahead.first, ahead.stride, ahead.count), (501, 1, 16));
        assert_eq!(plain.faulted(at(SPACE, 500, Touch::Missing, &|_| false)), None);
        let marker = ahead.first + i64::from(ahead.marker);
        let next = told.told(at(SPACE, marker, Touch::Ahead, &|_| false)).expect("it goes on");
        assert!(next.first == 517 && next.count > 16, "{next:?}");
        // What was asked for is gone by the time: from there again, as far.
        let again = told.told(at(SPACE, 520, Touch::Missing, &|_| false)).expect("at once");
        assert_eq!((again.first, again.count), (521, 16));
        // Where most bets were lost, too.
        let pairs = (0..4_000).flat_map(|n| [n * 1_000, n * 1_000 + 1]);
        for page in pairs {
            told.faulted(at(SPACE, 1 << 40 | page, Touch::Missing, &|_| false));
        }
        let trust = told.trust;
        assert!(trust < TRUST_LEAST && told.told(at(SPACE, 9_000, Touch::Missing, &|_| false)).is_some());
        assert_eq!(told.trust, trust, "nothing was learnt");
        // Nor where the first window is one page, which would be a bet if nobody had said so.
        let mut small = StridePrefetcher::new(BasePages(4));
        let trust = small.trust;
        small.told(at(SPACE, 10, Touch::Missing, &|_| false));
        small.told(at(SPACE, 11, Touch::Ahead, &|_| false));
        assert_eq!(small.trust, trust, "nothing was learnt");
    }

    /// What is here raises no fault: not as the page behind the last one, nor as the one that was to be the marker.
    #[test]
    fn a_reader_of_what_is_home_in_part_waits_only_at_the_start() {
        let mut draw = Draw::new(5);
        for (stride, percent) in [(1, 10), (1, 40), (-1, 70), (3, 40), (1, 90)] {
            let mut p = StridePrefetcher::new(BasePages(16));
            let reads = || (0..4_000).map(|n| 1_000_000 + n * stride);
            let home: BTreeSet<i64> = reads().filter(|_| draw.below(100) < percent).collect();
            let waited = waits_among(&mut p, home, reads());
            assert!(
                waited.len() <= 8,
                "stride {stride}, {percent}%: waited for {}: {waited:?}",
                waited.len()
            );
        }
    }

    /// Two touches in no order look like a stream with a stride, and pages between its steps are none of its.
    #[test]
    fn a_reader_where_pages_were_touched_in_no_order_waits_only_at_the_start() {
        let mut draw = Draw::new(7);
        for span in [40, 100, 300, 1_000] {
            let mut p = StridePrefetcher::new(BasePages(16));
            waits(&mut p, (0..60).map(|_| 1_000_000 + draw.below(span) as i64));
            let waited = waits(&mut p, 1_000_000..1_004_000);
            assert!(waited.len() <= 40, "within {span}: waited for {}", waited.len());
        }
    }

    /// Whatever has been fetched and not touched counts as ahead, and not much besides.
    #[test]
    fn what_is_ahead_is_counted() {
        for (streams, stride) in [(1, 1), (1, -3), (5, 1)] {
            let mut p = StridePrefetcher::new(BasePages(16));
            let (mut out, mut marked) = (BTreeSet::new(), BTreeSet::new());
            for page in (0..2_000).flat_map(|n| (0..streams).map(move |s| s * 1_000_000 + n * stride)) {
                let is_marked = marked.remove(&page);
                if out.remove(&page) && !is_marked {
                    continue; // it is here
                }
                let touch = if is_marked { Touch::Ahead } else { Touch::Missing };
                if let Some(a) = p.faulted(at(SPACE, page, touch, &|_| false)) {
                    marked.insert(a.first + a.stride * i64::from(a.marker));
                    out.extend((0..i64::from(a.count)).map(|n| a.first + a.stride * n));
                }
                let (ahead, out) = (p.ahead().0, out.len() as u64);
                assert!(ahead <= 24 * streams as u64, "{ahead} ahead of {streams} streams of 16");
                assert!(out <= ahead + 16 * (streams as u64 - 1), "{out} are out, and {ahead} known of");
            }
            // Other streams begin, and nothing is ahead of those that are over.
            for page in (1..=STREAMS as i64).map(|n| n << 40) {
                p.faulted(at(SPACE, page, Touch::Missing, &|_| false));
            }
            assert_eq!(p.ahead(), BasePages(0));
        }
    }

    #[test]
    fn streams_do_not_disturb_each_other() {
        let mut p = StridePrefetcher::new(BasePages(16));
        let mixed = (0..2_000).flat_map(|n| [n, 1_000_000 + n, 2_000_000 - n]);
        assert!(waits(&mut p, mixed).len() <= 12);
    }

    #[test]
    fn what_was_cut_is_asked_for_again() {
        let mut p = StridePrefetcher::new(BasePages(16));
        let space = SPACE;
        let touch = |page| if page < 2 { Touch::Missing } else { Touch::Ahead };
        let ahead =
            (0..4).filter_map(|page| p.faulted(at(space, page, touch(page), &|_| false))).last().unwrap();
        assert!(ahead.count > 1);
        p.cut(space, &ahead, 1);
        let next = p.faulted(at(space, ahead.first, Touch::Missing, &|_| false));
        assert_eq!(next, None, "the marker was not among what was cut");
    }

    #[test]
    fn a_stream_whose_marker_was_cut_goes_on_at_its_edge() {
        let mut p = StridePrefetcher::new(BasePages(16));
        let space = SPACE;
        let ahead = p
            .faulted(at(space, 0, Touch::Missing, &|_| false))
            .or(p.faulted(at(space, 1, Touch::Missing, &|_| false)))
            .unwrap();
        p.cut(space, &ahead, 0);
        let next = p.faulted(at(space, ahead.first, Touch::Missing, &|_| false)).unwrap();
        assert_eq!(next.first, ahead.first + 1);
    }

    #[test]
    fn a_stream_in_fresh_memory_needs_no_marker() {
        let mut p = StridePrefetcher::new(BasePages(16));
        let (mut faults, mut edge) = (0, 0);
        while edge < 1_000 {
            faults += 1;
            if let Some(ahead) = p.faulted(at(SPACE, edge, Touch::Fresh, &|_| false)) {
                edge = ahead.first + i64::from(ahead.count);
            } else {
                edge += 1;
            }
        }
        assert!(faults < 80, "{faults} faults");
    }

    #[test]
    fn where_nobody_follows_almost_nothing_is_fetched() {
        let mut p = StridePrefetcher::new(BasePages(64));
        let pairs = (0..4_000).flat_map(|n| [n * 1_000, n * 1_000 + 1]);
        let fetched: u32 = pairs
            .filter_map(|page| p.faulted(at(SPACE, page, Touch::Missing, &|_| false)))
            .map(|a| a.count)
            .sum();
        assert!(fetched < 100, "{fetched} pages for nothing");
        let waited = waits(&mut p, (0..1_000).map(|n| 1 << 40 | n));
        assert!(waited.len() <= 12, "a stream is recognised all the same: {waited:?}");
    }

    proptest! {
        /// Random touches far apart are never taken for a stream, and no answer is larger than the window.
        #[test]
        fn random_faults_fetch_nothing(pages in proptest::collection::vec(0i64..1 << 40, 1..300)) {
            let mut p = StridePrefetcher::new(BasePages(8));
            for page in pages {
                prop_assert_eq!(p.faulted(at(SPACE, page * 1_000, Touch::Missing, &|_| false)), None);
            }
        }

        /// No more is fetched than the window has; the marker is, and so is the last page.
        #[test]
        fn answers_are_bounded(
            pages in proptest::collection::vec((0i64..200, 0..3), 1..500),
            home in proptest::collection::btree_set(0i64..200, 0..200),
        ) {
            let mut p = StridePrefetcher::new(BasePages(8));
            for (page, touch) in pages {
                let touch = [Touch::Missing, Touch::Ahead, Touch::Fresh][touch as usize];
                if let Some(a) = p.faulted(at(SPACE, page, touch, &|page| home.contains(&page))) {
                    prop_assert!(a.count >= 1 && a.count <= 4 * 8 && a.marker < a.count && a.stride != 0);
                    let fetched: Vec<u32> =
                        (0..a.count).filter(|&n| !home.contains(&(a.first + a.stride * i64::from(n)))).collect();
                    prop_assert!(fetched.len() <= 8 && fetched.contains(&a.marker) && fetched.contains(&(a.count - 1)));
                }
            }
        }
    }
}
