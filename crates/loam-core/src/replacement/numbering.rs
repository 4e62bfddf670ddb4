//! Small numbers for pages.

use alloc::vec::Vec;

/// What can be numbered.
pub trait Key: Copy + Eq {
    /// Spreads keys evenly over all 64 bits, the high ones above all. The same on every machine.
    fn spread(self) -> u64;
}

/// An odd number near 2^64 divided by the golden ratio: neighbours land far apart (Knuth, volume 3, section 6.4).
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl Key for u64 {
    #[inline]
    fn spread(self) -> u64 {
        let mixed = self.wrapping_mul(GOLDEN);
        (mixed ^ mixed >> 32).wrapping_mul(GOLDEN)
    }
}

impl Key for super::PageRef {
    #[inline]
    fn spread(self) -> u64 {
        (self.first ^ u64::from(self.space.0).rotate_right(24)).spread()
    }
}

impl Key for crate::ids::PageId {
    #[inline]
    fn spread(self) -> u64 {
        (self.index ^ self.space.0.rotate_right(24)).spread()
    }
}

const EMPTY: u32 = u32::MAX;
const PLACES_MIN: usize = 64;

/// Gives each key a number, the lowest free one. A hash table with open addressing whose hash is fixed, so the same calls give the same
/// numbers everywhere.
#[derive(Debug)]
pub struct Numbering<K> {
    keys: Vec<K>,
    free: Vec<u32>,
    /// Numbers, each at the first empty place from where its key's hash points. A power of two, at most half of them in use.
    places: Vec<u32>,
}

impl<K> Default for Numbering<K> {
    fn default() -> Self {
        Self { keys: Vec::new(), free: Vec::new(), places: Vec::new() }
    }
}

impl<K: Key> Numbering<K> {
    /// How many keys have a number.
    pub fn len(&self) -> usize {
        self.keys.len() - self.free.len()
    }

    /// Has no key a number?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All numbers are below this.
    pub fn bound(&self) -> u32 {
        self.keys.len() as u32
    }

    /// The key of a number that was given.
    pub fn key(&self, number: u32) -> K {
        self.keys[number as usize]
    }

    /// The key's number, if it has one.
    #[inline]
    pub fn get(&self, key: K) -> Option<u32> {
        if self.places.is_empty() {
            return None;
        }
        match self.places[self.find(key)] {
            EMPTY => None,
            number => Some(number),
        }
    }

    /// The key's number; a new one if it has none.
    #[inline]
    pub fn number(&mut self, key: K) -> u32 {
        if self.len() * 2 >= self.places.len() {
            self.grow();
        }
        let at = self.find(key);
        if self.places[at] == EMPTY {
            self.places[at] = self.new_number(key);
        }
        self.places[at]
    }

    /// Takes a key's number back.
    pub fn remove(&mut self, key: K) {
        let Some(number) = self.get(key) else { return };
        let mask = self.places.len() - 1;
        let mut gap = self.find(key);
        let mut at = gap;
        // Whoever stands behind the gap and would be found before it moves into it (Knuth, volume 3, section 6.4, algorithm R).
        loop {
            at = (at + 1) & mask;
            let other = self.places[at];
            if other == EMPTY {
                break;
            }
            let home = self.home(self.keys[other as usize]);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.places[gap] = other;
                gap = at;
            }
        }
        self.places[gap] = EMPTY;
        self.free.push(number);
    }

    fn new_number(&mut self, key: K) -> u32 {
        if let Some(number) = self.free.pop() {
            self.keys[number as usize] = key;
            return number;
        }
        let number = u32::try_from(self.keys.len()).ok().filter(|&number| number != EMPTY);
        self.keys.push(key);
        number.expect("fewer than 2^32 pages")
    }

    #[inline]
    fn home(&self, key: K) -> usize {
        let bits = self.places.len().trailing_zeros();
        (key.spread() >> (64 - bits)) as usize
    }

    /// Where the key's number stands, or the empty place where it belongs.
    #[inline]
    fn find(&self, key: K) -> usize {
        let mask = self.places.len() - 1;
        let mut at = self.home(key);
        while self.places[at] != EMPTY && self.keys[self.places[at] as usize] != key {
            at = (at + 1) & mask;
        }
        at
    }

    #[cold]
    fn grow(&mut self) {
        let places = (self.places.len() * 2).max(PLACES_MIN);
        let old = core::mem::replace(&mut self.places, alloc::vec![EMPTY; places]);
        for number in old.into_iter().filter(|&number| number != EMPTY) {
            let at = self.find(self.keys[number as usize]);
            self.places[at] = number;
        }
    }
}
