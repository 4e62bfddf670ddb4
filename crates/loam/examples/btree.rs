//! The b-tree of regions-2010 (section V.B), searched wherever its memory is: here, paged, or in a direct region.
//!
//!     btree plain  KEYS CHILDREN SEARCHES
//!     btree paged  KEYS CHILDREN SEARCHES PERCENT [FLAG...]    PERCENT of the tree may be here; flags of `loam run`, such as --lender ADDR:PORT
//!     btree direct KEYS CHILDREN SEARCHES [SOCKET]             a region of the node at SOCKET
//!
//! Every level but the last is full, the last is filled from the left; a node that is no larger than a page lies in one, as in the simulator
//! (`loam_sim::regions::btree`). Prints one line of `name=value`. The sum is the same wherever the memory is.

use loam::Region;
use loam::paged::{self, Options, PagedVec};
use std::error::Error;
use std::time::Instant;
use zerocopy::FromBytes;

const PAGE_WORDS: usize = 512;
/// No child.
const NONE: u64 = u64::MAX;
/// Of the searches, so many more are done before, and not measured: one for each so many.
const WARM_UP: u64 = 4;

/// The tree's key number `n` in ascending order: at random in its own stretch of 1,024 numbers, so that any key can be named without a list of them.
fn key(n: u64) -> u64 {
    (n << 10) | (mixed(n) >> 54)
}

/// What is kept with it.
fn record(key: u64) -> u64 {
    mixed(key ^ 0x5bd1_e995)
}

/// splitmix64's last step.
fn mixed(n: u64) -> u64 {
    let n = (n.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Where nodes are. A node is the number of its keys, its keys in order, their records, and its children.
#[derive(Clone, Copy)]
struct Layout {
    children: usize,
    node_words: usize,
    /// Nodes of a page; 0: a node is larger than one.
    in_page: usize,
    /// Nodes of the full levels, and of all.
    full: u64,
    nodes: u64,
    /// Keys of the last level.
    left: u64,
}

impl Layout {
    fn new(keys: u64, children: usize) -> Self {
        let wide = children as u64;
        let (mut in_full, mut full) = (1_u64, 0);
        // A tree of so many full levels has wide^levels - 1 keys.
        while in_full * wide - 1 <= keys {
            full += in_full;
            in_full *= wide;
        }
        let left = keys - (in_full - 1);
        let node_words = 1 + 2 * (children - 1) + children;
        let nodes = full + left.div_ceil(wide - 1);
        Self { children, node_words, in_page: PAGE_WORDS / node_words, full, nodes, left }
    }

    /// The first word of a node. Nodes are numbered level by level, so that a node's children follow from its number.
    fn at(&self, node: u64) -> usize {
        let node = node as usize;
        match self.in_page {
            0 => node * self.node_words,
            in_page => node / in_page * PAGE_WORDS + node % in_page * self.node_words,
        }
    }

    fn words(&self) -> usize {
        self.at(self.nodes - 1) + self.node_words
    }

    /// Fills a node and all below it with the keys from number `next` on.
    fn fill(&self, words: &mut [u64], node: u64, next: &mut u64) {
        let (at, most) = (self.at(node), self.children - 1);
        let first = node * self.children as u64 + 1;
        let keys = match node < self.full {
            true => most as u64,
            false => (self.left - (node - self.full) * most as u64).min(most as u64),
        };
        words[at] = keys;
        for n in 0..=keys {
            let below = first + n;
            let has = node < self.full && below < self.nodes;
            words[at + 1 + 2 * most + n as usize] = if has { self.at(below) as u64 } else { NONE };
            if has {
                self.fill(words, below, next);
            }
            if n < keys {
                let key = key(*next);
                words[at + 1 + n as usize] = key;
                words[at + 1 + most + n as usize] = record(key);
                *next += 1;
            }
        }
    }

    /// The record of a key, and how many nodes were visited.
    fn search(&self, words: &[u64], key: u64) -> (Option<u64>, u64) {
        let (most, mut node, mut visited) = (self.children - 1, 0, 0);
        loop {
            visited += 1;
            let keys = &words[node + 1..node + 1 + words[node] as usize];
            match keys.binary_search(&key) {
                Ok(place) => return (Some(words[node + 1 + most + place]), visited),
                Err(place) => match words[node + 1 + 2 * most + place] {
                    NONE => return (None, visited),
                    below => node = below as usize,
                },
            }
        }
    }
}

/// Builds the tree at the first page of `memory`, searches it, and prints what came of it.
fn run(way: &str, memory: &mut [u64], keys: u64, layout: Layout, searches: u64) {
    // Nodes lie in the same places of pages, wherever the memory begins.
    let skip = memory.as_ptr().align_offset(4096);
    let words = &mut memory[skip..][..layout.words()];
    let begun = Instant::now();
    let mut next = 0;
    layout.fill(words, 0, &mut next);
    assert_eq!(next, keys, "each key has its place");
    let built_s = begun.elapsed().as_secs_f64();
    let (mut state, mut sum, mut visited) = (1_u64, 0_u64, 0);
    let mut search = |times: u64| {
        for _ in 0..times {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let wanted = key(((u128::from(mixed(state)) * u128::from(keys)) >> 64) as u64);
            let (found, nodes) = layout.search(words, wanted);
            assert_eq!(found, Some(record(wanted)), "each key that is searched for is there");
            sum = sum.wrapping_add(found.unwrap_or_default());
            visited += nodes;
        }
    };
    search(searches / WARM_UP);
    let begun = Instant::now();
    search(searches);
    let search_us = begun.elapsed().as_secs_f64() * 1e6 / searches as f64;
    let nodes = visited as f64 / (searches + searches / WARM_UP) as f64;
    println!(
        "way={way} keys={keys} children={} bytes={} built_s={built_s:.3} searches={searches} search_us={search_us:.4} nodes={nodes:.3} sum={sum:016x}",
        layout.children,
        layout.words() * 8,
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [way, keys, children, searches, rest @ ..] = args.as_slice() else {
        return Err("btree plain|paged|direct KEYS CHILDREN SEARCHES ...".into());
    };
    let (keys, children): (u64, usize) = (keys.parse()?, children.parse()?);
    let searches: u64 = searches.parse()?;
    if !(1..=1 << 40).contains(&keys) || !(2..=1 << 16).contains(&children) || searches == 0 {
        return Err("1 to 2^40 keys, 2 to 65536 children, at least one search".into());
    }
    let layout = Layout::new(keys, children);
    let words = layout.words() + PAGE_WORDS;
    let bytes = words as u64 * 8;
    match (way.as_str(), rest) {
        ("plain", []) => run(way, &mut vec![0; words], keys, layout, searches),
        ("paged", [percent, flags @ ..]) => {
            let local = bytes * percent.parse::<u64>()? / 100;
            paged::connect(&Options::new(local, bytes + (8 << 20)).flags(flags))?;
            run(way, &mut PagedVec::<u64>::zeroed(words)?, keys, layout, searches);
        }
        ("direct", rest) => {
            let mut options = loam::region::Options::new().temporary(true);
            if let Some(socket) = rest.first() {
                options = options.socket(socket);
            }
            let name = format!("btree-{}", std::process::id());
            let mut region = Region::create_with(&name, bytes.next_multiple_of(4096), &options)?;
            let memory = <[u64]>::mut_from_bytes(region.as_mut_slice()).map_err(|error| error.to_string())?;
            run(way, memory, keys, layout, searches);
        }
        _ => return Err("plain; paged and the percent that may be here; direct and the node's socket".into()),
    }
    Ok(())
}
