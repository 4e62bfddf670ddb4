//! Fetching ahead of a program that reads in order.
//!
//! A page that is present raises no fault, so a prefetcher that brings everything home goes blind. One page of
//! each batch, the *marker*, is therefore fetched but kept in a buffer: the touch that finds it costs no
//! network, and tells that the program follows. (The kernel's readahead does the same with a page flag.)

use super::table::SpaceKey;

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
}

/// A prefetch policy: sees faults, answers what to fetch with them.
pub trait Prefetcher: core::fmt::Debug + Send {
    /// A thread waits for page number `page` of `space`.
    fn faulted(&mut self, space: SpaceKey, page: i64) -> Option<Ahead>;
    /// Of the last answer only the first `taken` pages were fetched: frames ran short.
    fn cut(&mut self, space: SpaceKey, ahead: &Ahead, taken: u32);
}

/// Never fetches ahead.
#[derive(Debug)]
pub struct NoPrefetch;

impl Prefetcher for NoPrefetch {
    fn faulted(&mut self, _: SpaceKey, _: i64) -> Option<Ahead> {
        None
    }
    fn cut(&mut self, _: SpaceKey, _: &Ahead, _: u32) {}
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    space: SpaceKey,
    last: i64,
    stride: i64,
    /// One stride past the last page that was asked for.
    edge: i64,
    hits: u32,
    window: u32,
    used_at: u64,
}

const STREAMS: usize = 32;
const STRIDE_MAX: i64 = 64;

/// Sequential and strided streams, several at a time; each doubles what it fetches ahead while it is followed.
#[derive(Debug)]
pub struct StridePrefetcher {
    streams: [Option<Stream>; STREAMS],
    window_max: u32,
    clock: u64,
}

impl StridePrefetcher {
    /// At most `window_max` pages ahead.
    pub fn new(window_max: u32) -> Self {
        Self { streams: [None; STREAMS], window_max: window_max.max(1), clock: 0 }
    }

    fn oldest(&self) -> usize {
        let age = |s: &Option<Stream>| s.map_or(0, |s| s.used_at);
        (0..STREAMS).min_by_key(|&i| age(&self.streams[i])).expect("there are streams")
    }
}

impl Prefetcher for StridePrefetcher {
    fn faulted(&mut self, space: SpaceKey, page: i64) -> Option<Ahead> {
        self.clock += 1;
        let clock = self.clock;
        // A stream that expects this page: at its edge, or inside what it asked for (the marker, or a page
        // that was not there to fetch).
        let follows = |s: &Stream| {
            if s.space != space || s.stride == 0 {
                return false;
            }
            let (low, high) = if s.stride > 0 { (s.last + 1, s.edge) } else { (s.edge, s.last - 1) };
            low <= page && page <= high
        };
        if let Some(s) = self.streams.iter_mut().flatten().find(|s| follows(s)) {
            s.last = page;
            s.used_at = clock;
            s.hits += 1;
            if s.hits < 2 {
                s.edge = page + s.stride;
                return None;
            }
            s.window = (s.window * 2).clamp(1, self.window_max);
            let goal = page + s.stride * (i64::from(s.window) + 1);
            let first = if s.stride > 0 { s.edge.max(page + s.stride) } else { s.edge.min(page + s.stride) };
            let count = (goal - first) / s.stride;
            if count <= 0 {
                return None;
            }
            s.edge = goal;
            return Some(Ahead { first, stride: s.stride, count: count as u32, marker: count as u32 / 2 });
        }
        // The second fault of a stream gives its stride.
        let near = |s: &Stream| {
            s.space == space && s.hits == 0 && page != s.last && (page - s.last).abs() <= STRIDE_MAX
        };
        if let Some(s) = self.streams.iter_mut().flatten().find(|s| near(s)) {
            s.stride = page - s.last;
            s.last = page;
            s.edge = page + s.stride;
            s.used_at = clock;
            s.hits = 1;
            // Neighbours are worth a small bet at once; farther strides have to prove themselves.
            if s.stride.abs() > 1 {
                return None;
            }
            s.window = 1;
            s.hits = 2;
            let first = s.edge;
            s.edge += s.stride;
            return Some(Ahead { first, stride: s.stride, count: 1, marker: 0 });
        }
        let slot = self.oldest();
        self.streams[slot] =
            Some(Stream { space, last: page, stride: 0, edge: page, hits: 0, window: 1, used_at: clock });
        None
    }

    fn cut(&mut self, space: SpaceKey, ahead: &Ahead, taken: u32) {
        let edge = ahead.first + ahead.stride * i64::from(ahead.count);
        let asked = |s: &&mut Stream| s.space == space && s.stride == ahead.stride && s.edge == edge;
        if let Some(s) = self.streams.iter_mut().flatten().find(asked) {
            s.edge = ahead.first + ahead.stride * i64::from(taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// A program that touches `pages` in order; what is home raises no fault, the marker does. Returns the touches that had to wait.
    fn waits(prefetcher: &mut StridePrefetcher, pages: impl Iterator<Item = i64>) -> Vec<i64> {
        let (mut home, mut marked, mut waited) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        for page in pages {
            if home.contains(&page) {
                continue;
            }
            if !marked.remove(&page) {
                waited.push(page);
            }
            home.insert(page);
            if let Some(a) = prefetcher.faulted(SpaceKey(0), page) {
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
            let mut p = StridePrefetcher::new(16);
            let waited = waits(&mut p, (0..4_000).map(|n| 1_000_000 + n * stride));
            assert!(waited.len() <= 5, "stride {stride}: waited for {waited:?}");
        }
    }

    #[test]
    fn streams_do_not_disturb_each_other() {
        let mut p = StridePrefetcher::new(16);
        let mixed = (0..2_000).flat_map(|n| [n, 1_000_000 + n, 2_000_000 - n]);
        assert!(waits(&mut p, mixed).len() <= 12);
    }

    #[test]
    fn what_was_cut_is_asked_for_again() {
        let mut p = StridePrefetcher::new(16);
        let space = SpaceKey(0);
        let ahead = (0..4).filter_map(|page| p.faulted(space, page)).last().unwrap();
        assert!(ahead.count > 1);
        p.cut(space, &ahead, 1);
        let next = p.faulted(space, ahead.first).unwrap();
        assert_eq!(next.first, ahead.first + 1);
    }

    proptest! {
        /// Random touches far apart are never taken for a stream, and no answer is larger than the window.
        #[test]
        fn random_faults_fetch_nothing(pages in proptest::collection::vec(0i64..1 << 40, 1..300)) {
            let mut p = StridePrefetcher::new(8);
            for page in pages {
                prop_assert_eq!(p.faulted(SpaceKey(0), page * 1_000), None);
            }
        }

        #[test]
        fn answers_are_bounded(pages in proptest::collection::vec(0i64..200, 1..500)) {
            let mut p = StridePrefetcher::new(8);
            for page in pages {
                if let Some(a) = p.faulted(SpaceKey(0), page) {
                    prop_assert!(a.count >= 1 && a.count <= 9 && a.marker < a.count && a.stride != 0);
                }
            }
        }
    }
}
