//! Belady's optimum: the page whose next use is farthest away leaves.

use super::Stream;

/// Never used again.
const NEVER: u32 = u32::MAX;

/// Misses of the optimum on demand (Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2),
/// 1966) with so many page frames.
///
/// A page in memory is known by the time of its next use, which is no other page's: the pages in memory are a set of times. A reference
/// hits if its time is in the set, and the victim is the set's last. Pages that are never used again are a mere count: they leave first,
/// and which of them does makes no difference.
///
/// # Panics
/// Without frames, or on a stream of 2^32 entries.
pub fn belady(stream: &Stream, frames: usize) -> u64 {
    assert!(frames > 0, "a replay needs at least one page frame");
    let next = next_uses(stream);
    let (mut held, mut held_forever, mut misses) = (TimeSet::new(next.len()), 0, 0);
    for (now, &next) in next.iter().enumerate() {
        if !held.remove(now) {
            misses += 1;
            if held.len + held_forever >= frames {
                if held_forever > 0 {
                    held_forever -= 1;
                } else {
                    let last = held.last().expect("frames are full of pages");
                    held.remove(last);
                }
            }
        }
        if next == NEVER {
            held_forever += 1;
        } else {
            held.insert(next as usize);
        }
    }
    misses
}

/// For each entry, when its page is used next.
fn next_uses(stream: &Stream) -> Vec<u32> {
    let entries = stream.entries();
    assert!(entries.len() < NEVER as usize, "the optimum is for streams of fewer than 2^32 entries");
    let mut next_of_page = vec![NEVER; stream.distinct() as usize];
    let mut next = vec![NEVER; entries.len()];
    for (now, page) in stream.pages().enumerate().rev() {
        next[now] = std::mem::replace(&mut next_of_page[page as usize], now as u32);
    }
    next
}

/// A set of times as a tree of bits: a bit of a level says whether the word below it is not zero.
struct TimeSet {
    levels: Vec<Vec<u64>>,
    len: usize,
}

impl TimeSet {
    fn new(times: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = times;
        while words > 1 || levels.is_empty() {
            words = words.div_ceil(64).max(1);
            levels.push(vec![0; words]);
        }
        Self { levels, len: 0 }
    }

    fn insert(&mut self, mut time: usize) {
        self.len += 1;
        for level in &mut self.levels {
            let word = &mut level[time / 64];
            let was = *word;
            *word |= 1 << (time % 64);
            if was != 0 {
                return;
            }
            time /= 64;
        }
    }

    /// Was it there?
    fn remove(&mut self, mut time: usize) -> bool {
        if self.levels[0][time / 64] & 1 << (time % 64) == 0 {
            return false;
        }
        self.len -= 1;
        for level in &mut self.levels {
            let word = &mut level[time / 64];
            *word &= !(1 << (time % 64));
            if *word != 0 {
                break;
            }
            time /= 64;
        }
        true
    }

    fn last(&self) -> Option<usize> {
        self.levels.iter().rev().try_fold(0, |word, level| {
            let bit = level[word].checked_ilog2()?;
            Some(word * 64 + bit as usize)
        })
    }
}
