//! The b-tree that is searched (section V.B): every level but the last is full, and the last is filled from the left.
//!
//! It is really there: nodes with keys, records and pointers to children lie in one array, and a search walks them. The array's places are the addresses that the
//! simulated memories see.

use super::memory::PAGE_BYTES;

/// Bytes of a word: a key, a record's number, a pointer.
pub const WORD_BYTES: u64 = 8;
/// No child.
const NONE: u64 = u64::MAX;
/// Most levels that a tree can have: two children a node, and fewer than 2^40 keys.
const LEVELS_MAX: u32 = 40;

/// A b-tree. A node is a word with the number of its keys, its keys in order, their records, and its children.
#[derive(Debug)]
pub struct BTree {
    words: Vec<u64>,
    children: usize,
    keys: u64,
}

/// What a search found, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The key's record, if it is there.
    pub record: Option<u64>,
    /// Nodes that were visited.
    pub nodes: u32,
    /// Keys that were compared.
    pub probes: u32,
}

/// Where nodes lie: one that is not larger than a page lies in one page, larger ones one behind the other.
#[derive(Clone, Copy, Debug)]
struct Layout {
    node_words: u64,
    /// Nodes of a page; none if a node is larger.
    in_page: Option<u64>,
}

impl Layout {
    fn new(children: u64) -> Self {
        let node_words = 1 + 2 * (children - 1) + children;
        let in_page = PAGE_BYTES / (node_words * WORD_BYTES);
        Self { node_words, in_page: (in_page > 0).then_some(in_page) }
    }

    /// The first word of a node.
    fn at(&self, node: u64) -> u64 {
        match self.in_page {
            Some(in_page) => node / in_page * (PAGE_BYTES / WORD_BYTES) + node % in_page * self.node_words,
            None => node * self.node_words,
        }
    }
}

/// Fills the nodes with what `next` gives in order. Nodes are numbered level by level, so a node's children follow from its number.
struct Builder<F> {
    words: Vec<u64>,
    layout: Layout,
    children: u64,
    /// Nodes of the full levels.
    full: u64,
    nodes: u64,
    left: u64,
    next: F,
}

impl<F: FnMut() -> (u64, u64)> Builder<F> {
    /// The node and all below it.
    fn fill(&mut self, node: u64) {
        let at = self.layout.at(node) as usize;
        let (most, inner) = (self.children - 1, node < self.full);
        let (first, nodes) = (node * self.children + 1, self.nodes);
        let child = |n: u64| (inner && first + n < nodes).then_some(first + n);
        // The last leaf has what is left: nodes of the last level are filled in order, but theirs are not the last keys of the tree.
        let keys = if inner { most } else { self.keys_of_leaf(node) };
        self.words[at] = keys;
        for n in 0..=keys {
            let below = child(n);
            self.words[at + 1 + 2 * most as usize + n as usize] =
                below.map_or(NONE, |below| self.layout.at(below));
            if let Some(below) = below {
                self.fill(below);
            }
            if n < keys {
                let (key, record) = (self.next)();
                self.words[at + 1 + n as usize] = key;
                self.words[at + 1 + (most + n) as usize] = record;
            }
        }
    }

    fn keys_of_leaf(&self, node: u64) -> u64 {
        let before = (node - self.full) * (self.children - 1);
        (self.left - before).min(self.children - 1)
    }
}

impl BTree {
    /// A tree with so many children a node, of keys and records in ascending order of keys.
    ///
    /// # Panics
    /// With fewer than two children or without keys, and if `pairs` ends too early or is not ascending.
    pub fn build(children: usize, keys: u64, pairs: impl IntoIterator<Item = (u64, u64)>) -> Self {
        assert!(children >= 2 && keys > 0, "a tree has keys, and nodes with children");
        let wide = children as u64;
        // A tree of so many full levels has wide^levels - 1 keys.
        let mut in_full = 1;
        let (mut full, mut levels) = (0, 0);
        while in_full * wide - 1 <= keys {
            full += in_full;
            in_full *= wide;
            levels += 1;
            assert!(levels < LEVELS_MAX, "too many keys");
        }
        let left = keys - (in_full - 1);
        let nodes = full + left.div_ceil(wide - 1);
        let layout = Layout::new(wide);
        let words = vec![0; (layout.at(nodes - 1) + layout.node_words) as usize];
        let mut last = None;
        let mut pairs = pairs.into_iter();
        let next = || {
            let (key, record) = pairs.next().expect("as many keys as were told");
            assert!(last.is_none_or(|last| last < key), "keys ascend");
            last = Some(key);
            (key, record)
        };
        let mut builder = Builder { words, layout, children: wide, full, nodes, left, next };
        builder.fill(0);
        Self { words: builder.words, children, keys }
    }

    /// Its keys.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Bytes from the first node to the last.
    pub fn bytes(&self) -> u64 {
        self.words.len() as u64 * WORD_BYTES
    }

    /// Looks for a key; `touch` is told the address of each word that is read.
    #[inline]
    pub fn search(&self, key: u64, mut touch: impl FnMut(u64)) -> Found {
        let most = self.children - 1;
        let mut read = |word: usize| {
            touch(word as u64 * WORD_BYTES);
            self.words[word]
        };
        let mut found = Found { record: None, nodes: 0, probes: 0 };
        let mut node = 0;
        loop {
            found.nodes += 1;
            let (mut low, mut high) = (0, read(node) as usize);
            while low < high {
                let middle = (low + high) / 2;
                let here = read(node + 1 + middle);
                found.probes += 1;
                if here == key {
                    found.record = Some(read(node + 1 + most + middle));
                    return found;
                }
                if here < key {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            let child = read(node + 1 + 2 * most + low);
            if child == NONE {
                return found;
            }
            node = child as usize;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn of(children: usize, set: &BTreeSet<u64>) -> BTree {
        BTree::build(children, set.len() as u64, set.iter().map(|&key| (key, key ^ 0xff)))
    }

    proptest! {
        /// What is in the set is found, with its record, and nothing else is.
        #[test]
        fn it_has_what_a_set_has(
            children in 2usize..40,
            set in proptest::collection::btree_set(0u64..3000, 1..600),
            others in proptest::collection::vec(0u64..3000, 0..200)
        ) {
            let tree = of(children, &set);
            for &key in set.iter().chain(&others) {
                let found = tree.search(key, |address| assert!(address < tree.bytes()));
                prop_assert_eq!(found.record, set.contains(&key).then_some(key ^ 0xff));
            }
        }

        /// All levels but the last are full: no search visits more nodes than the keys need, and of those that end at a missing key, none visits fewer than one less.
        #[test]
        fn all_levels_but_the_last_are_full(children in 2usize..20, keys in 1u64..2000) {
            let set: BTreeSet<u64> = (0..keys).map(|key| 2 * key + 1).collect();
            let tree = of(children, &set);
            let mut levels = 0;
            let mut most = 0_u64;
            while most < keys {
                levels += 1;
                most = most * children as u64 + children as u64 - 1;
            }
            let missing: Vec<u32> = (0..=keys).map(|n| tree.search(2 * n, |_| {}).nodes).collect();
            prop_assert!(missing.iter().all(|&nodes| nodes == levels || nodes + 1 == levels), "{:?}", missing);
            prop_assert!(missing.windows(2).all(|pair| pair[1] <= pair[0]), "the last level is filled from the left");
        }
    }

    #[test]
    fn a_node_lies_in_one_page_if_it_can() {
        for children in [2, 5, 100, 171] {
            let layout = Layout::new(children);
            for node in 0..1000 {
                let (first, last) = (layout.at(node), layout.at(node) + layout.node_words - 1);
                let page = |word: u64| word * WORD_BYTES / PAGE_BYTES;
                assert_eq!(page(first), page(last), "{children}");
                assert!(layout.at(node + 1) > last);
            }
        }
        assert!(Layout::new(172).in_page.is_none());
    }
}
