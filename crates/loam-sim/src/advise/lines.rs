//! Lines that the processor's cache does not have, as far as grains tell.
//!
//! A trace names 256 bytes, four lines. So the cache is looked at twice: as if each grain were one line (the fewest that can be missing), and as if a grain
//! took the room of four, each reference to it until all are there needing another one (the most).

/// Bytes of a line.
pub(super) const LINE_BYTES: u64 = 64;
/// Lines of a grain.
const LINES: u32 = (crate::trace::GRAIN_BYTES / LINE_BYTES) as u32;
const WAYS: usize = 16;
/// No grain.
const NONE: u64 = u64::MAX;

/// A cache of grains, LRU within a set.
#[derive(Debug)]
struct Sets {
    /// The last used first: the grain, and how many of its lines are there.
    entries: Vec<[(u64, u32); WAYS]>,
}

impl Sets {
    fn new(grains: u64) -> Self {
        let sets = (grains / WAYS as u64).max(1).next_power_of_two();
        Self { entries: vec![[(NONE, 0); WAYS]; sets as usize] }
    }

    /// The grain's lines that were there before; it is the last used one now.
    fn touch(&mut self, grain: u64) -> &mut u32 {
        let mask = self.entries.len() as u64 - 1;
        // As in `regions::memory::Cache`: higher bits are mixed in.
        let set = &mut self.entries[((grain ^ (grain >> 15)) & mask) as usize];
        let at = set.iter().position(|entry| entry.0 == grain);
        let last = at.unwrap_or(WAYS - 1);
        let entry = if at.is_some() { set[last] } else { (grain, 0) };
        set.copy_within(0..last, 1);
        set[0] = entry;
        &mut set[0].1
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Lines {
    fewest: Sets,
    most: Sets,
}

impl Lines {
    /// An empty cache.
    pub(super) fn new(cache_bytes: u64) -> Self {
        let lines = cache_bytes / LINE_BYTES;
        Self { fewest: Sets::new(lines), most: Sets::new(lines / u64::from(LINES)) }
    }

    /// The program refers to a grain so many times. How many lines the cache does not have, at least and at most.
    pub(super) fn touch(&mut self, grain: u64, references: u32) -> [u64; 2] {
        let has = self.fewest.touch(grain);
        let fewest = u64::from(core::mem::replace(has, 1) == 0);
        let has = self.most.touch(grain);
        let more = references.min(LINES - *has);
        *has += more;
        [fewest, u64::from(more)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_reference_is_one_line() {
        let mut lines = Lines::new(1 << 16);
        assert_eq!(lines.touch(5, 1), [1, 1]);
        assert_eq!(lines.touch(5, 1), [0, 1]);
        assert_eq!(lines.touch(5, 100), [0, 2]);
        assert_eq!(lines.touch(5, 100), [0, 0]);
        assert_eq!(lines.touch(6, 32), [1, 4]);
    }

    proptest! {
        /// A set without rivals for its room is an LRU list of grains; and there are never fewer lines at most than at least.
        #[test]
        fn one_set_is_a_list(steps in proptest::collection::vec((0_u64..40, 1_u32..6), 0..300)) {
            let mut sets = Sets::new(WAYS as u64);
            let mut lines = Lines::new(1 << 16);
            let mut list: Vec<u64> = Vec::new();
            let mut sums = [0, 0];
            for (grain, references) in steps {
                let was = list.iter().position(|&of| of == grain).map(|at| list.remove(at));
                list.insert(0, grain);
                list.truncate(WAYS);
                prop_assert_eq!(core::mem::replace(sets.touch(grain), 1) != 0, was.is_some());
                let touched = lines.touch(grain, references);
                sums = [sums[0] + touched[0], sums[1] + touched[1]];
                prop_assert!(sums[0] <= sums[1]);
            }
        }
    }
}
