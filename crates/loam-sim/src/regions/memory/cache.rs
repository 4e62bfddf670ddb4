//! The processor's cache: lines, set by set, true LRU within a set, written back when they leave.

/// Lines of a set.
const WAYS: usize = 16;
/// No line.
const NONE: u64 = u64::MAX;
/// The lowest bit of an entry: it was written to.
const DIRTY: u64 = 1;

/// What a touch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// The line was not there.
    pub miss: bool,
    /// A line left that had been written to.
    pub written_back: bool,
}

/// A cache.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Sets of entries, the last used first: the line, shifted by one, and whether it is dirty.
    entries: Vec<[u64; WAYS]>,
    mask: u64,
}

impl Cache {
    /// An empty one.
    ///
    /// # Panics
    /// If its size is not a power of two of lines, with at least a set.
    pub fn new(bytes: u64) -> Self {
        let sets = bytes / super::LINE_BYTES / WAYS as u64;
        assert!(sets.is_power_of_two(), "a cache has a power of two of sets");
        Self { entries: vec![[NONE; WAYS]; sets as usize], mask: sets - 1 }
    }

    /// A line is read or written.
    #[inline]
    pub fn touch(&mut self, line: u64, write: bool) -> Touched {
        // Neighbouring lines go to neighbouring sets; higher bits are mixed in, or trees of equal nodes would use few sets.
        let set = &mut self.entries[((line ^ (line >> 15)) & self.mask) as usize];
        let dirty = u64::from(write);
        let at = set.iter().position(|entry| *entry != NONE && entry >> 1 == line);
        if let Some(at) = at {
            let entry = set[at] | dirty;
            set.copy_within(0..at, 1);
            set[0] = entry;
            return Touched::default();
        }
        let left = set[WAYS - 1];
        set.copy_within(0..WAYS - 1, 1);
        set[0] = line << 1 | dirty;
        Touched { miss: true, written_back: left != NONE && left & DIRTY != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// One set is an LRU list of lines.
        #[test]
        fn a_set_is_a_list(steps in proptest::collection::vec((0u64..24, any::<bool>()), 0..400)) {
            let mut cache = Cache::new(WAYS as u64 * super::super::LINE_BYTES);
            let mut list: Vec<(u64, bool)> = Vec::new();
            for (line, write) in steps {
                let touched = cache.touch(line, write);
                let was = list.iter().position(|of| of.0 == line).map(|at| list.remove(at));
                list.insert(0, (line, write || was.is_some_and(|of| of.1)));
                let left = if list.len() > WAYS { list.pop() } else { None };
                prop_assert_eq!(touched.miss, was.is_none());
                prop_assert_eq!(touched.written_back, left.is_some_and(|of| of.1));
            }
        }
    }
}
