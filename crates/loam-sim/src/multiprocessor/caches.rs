//! Caches and the directory that keeps them coherent, line by line.
//!
//! One level, direct mapped. A line has at most one writer, or any number of readers: a write takes it from all others, as DASH's directory does by
//! invalidations. Nothing is sent to each cache here: each line has a number that grows when its holders lose it, and a cache holds a line only as long as it
//! has the line's number.

use super::config::{Config, LINE_BYTES, LINES_PER_PAGE};

/// Nobody has written to the line since it was last read by another one.
const NOBODY: u8 = u8::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The line, plus 1; 0 is none.
    line: u32,
    number: u32,
}

/// What a sweep over lines asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// Lines that had to come, or to be made the processor's own.
    pub lines: u64,
    /// Of these, lines that another cache had written.
    pub elsewhere: u64,
}

/// All processors' caches.
#[derive(Clone, Debug)]
pub struct Caches {
    sets: usize,
    entries: Vec<Entry>,
    number: Vec<u32>,
    writer: Vec<u8>,
}

impl Caches {
    /// Empty ones, for pages below `pages`.
    ///
    /// # Panics
    /// If there are too many pages to number their lines.
    pub fn new(config: &Config, pages: usize) -> Self {
        let sets = (config.cache_bytes / LINE_BYTES) as usize;
        let lines = pages * LINES_PER_PAGE as usize;
        assert!(u32::try_from(lines).is_ok_and(|lines| lines < u32::MAX), "lines have 32-bit numbers");
        Self {
            sets,
            entries: vec![Entry::default(); sets * config.nodes],
            number: vec![0; lines],
            writer: vec![NOBODY; lines],
        }
    }

    /// A processor reads or writes a range of bytes.
    pub fn sweep(&mut self, processor: usize, address: u64, bytes: u32, write: bool) -> Misses {
        let mut misses = Misses::default();
        let last = (address + u64::from(bytes).max(1) - 1) / LINE_BYTES;
        let own = &mut self.entries[processor * self.sets..][..self.sets];
        let me = processor as u8;
        for line in address / LINE_BYTES..=last {
            let at = line as usize;
            let entry = &mut own[at % self.sets];
            let tag = at as u32 + 1;
            let held = entry.line == tag && entry.number == self.number[at];
            if held && (!write || self.writer[at] == me) {
                continue;
            }
            misses.lines += 1;
            misses.elsewhere += u64::from(self.writer[at] != NOBODY && self.writer[at] != me);
            if write {
                self.number[at] = self.number[at].wrapping_add(1);
                self.writer[at] = me;
            } else {
                self.writer[at] = NOBODY;
            }
            *entry = Entry { line: tag, number: self.number[at] };
        }
        misses
    }

    /// A page leaves memory: no cache has any of it any more.
    pub fn forget(&mut self, page: u32) {
        let first = page as usize * LINES_PER_PAGE as usize;
        for line in first..first + LINES_PER_PAGE as usize {
            self.number[line] = self.number[line].wrapping_add(1);
            self.writer[line] = NOBODY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[derive(Default)]
    struct Model {
        /// Line held in each set of each cache.
        sets: BTreeMap<(usize, u64), u64>,
        /// Caches that may read a line; the one that may write it.
        readers: BTreeMap<u64, BTreeSet<usize>>,
        writer: BTreeMap<u64, usize>,
    }

    impl Model {
        /// Misses, and how many of another cache's writes.
        fn touch(&mut self, who: usize, line: u64, write: bool) -> (u64, u64) {
            let set = (who, line % 4);
            let here = self.sets.get(&set) == Some(&line)
                && self.readers.get(&line).is_some_and(|readers| readers.contains(&who));
            let writes = self.writer.get(&line) == Some(&who);
            if here && (!write || writes) {
                return (0, 0);
            }
            let elsewhere = self.writer.get(&line).is_some_and(|&writer| writer != who);
            self.sets.insert(set, line);
            let readers = self.readers.entry(line).or_default();
            if write {
                readers.clear();
                self.writer.insert(line, who);
            } else {
                self.writer.remove(&line);
            }
            self.readers.entry(line).or_default().insert(who);
            (1, u64::from(elsewhere))
        }
    }

    proptest! {
        /// Misses are those of caches with sets of readers and a writer for each line.
        #[test]
        fn misses_are_those_of_a_directory(
            steps in proptest::collection::vec((0usize..3, 0u64..16, 1u64..4, any::<bool>(), 0u8..12), 0..300)
        ) {
            let config = Config { cache_bytes: 4 * LINE_BYTES, nodes: 3, ..Config::paper() };
            let mut caches = Caches::new(&config, 1);
            let mut model = Model::default();
            for (who, line, lines, write, what) in steps {
                if what == 0 {
                    caches.forget(0);
                    model.readers.clear();
                    model.writer.clear();
                    continue;
                }
                let misses = caches.sweep(who, line * LINE_BYTES + 5, (lines * LINE_BYTES) as u32 - 5, write);
                let mut expected = Misses::default();
                for line in line..line + lines {
                    let (missed, elsewhere) = model.touch(who, line, write);
                    expected.lines += missed;
                    expected.elsewhere += elsewhere;
                }
                prop_assert_eq!(misses, expected);
            }
        }
    }
}
