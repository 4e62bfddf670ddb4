//! The records behind [`super::blocks`]: a fixed number of them in memory that the caller gives, free ones in a list, and the
//! tree that orders free blocks by size.

/// No record.
pub(crate) const NONE: u32 = 0;

/// What a block is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum State {
    /// The record is not in use. All zeros is such a record.
    #[default]
    Unused,
    /// Belongs to the program.
    Used,
    /// Free, and all zeros: never used, or given back.
    Clean,
    /// Free, with old contents.
    Dirty,
    /// Free, and on its way from dirty to clean.
    GivingBack,
}

/// A stretch of the region. Blocks lie one after the other and cover it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Node {
    /// First page, and how many.
    pub(crate) start: u32,
    pub(crate) pages: u32,
    /// Neighbours by address. In the list of unused records `next` is the next of them.
    pub(crate) previous: u32,
    pub(crate) next: u32,
    /// Children in the tree of its kind, while it is clean or dirty.
    pub(crate) left: u32,
    pub(crate) right: u32,
    /// Neighbours by age, while it is dirty.
    pub(crate) older: u32,
    pub(crate) newer: u32,
    /// What the region had handed out in all, in pages, when it became dirty.
    pub(crate) freed_at: u64,
    pub(crate) state: State,
}

/// All records. The first is never used: its index is [`NONE`].
#[derive(Debug)]
pub(crate) struct Nodes<'a> {
    nodes: &'a mut [Node],
    unused: u32,
    /// Those from here on have never been used, and their memory was never touched.
    fresh: u32,
}

impl<'a> Nodes<'a> {
    /// `nodes` are all zeros.
    pub(crate) fn new(nodes: &'a mut [Node]) -> Self {
        assert!(nodes.len() > 1 && nodes.len() <= u32::MAX as usize, "an index is 32 bits");
        Self { nodes, unused: NONE, fresh: 1 }
    }

    /// Whether so many records can be taken.
    pub(crate) fn has(&self, mut count: u32) -> bool {
        count = count.saturating_sub((self.nodes.len() - self.fresh as usize).min(u32::MAX as usize) as u32);
        let mut at = self.unused;
        while count > 0 && at != NONE {
            at = self.nodes[at as usize].next;
            count -= 1;
        }
        count == 0
    }

    /// Takes a record.
    ///
    /// # Panics
    /// If there is none: ask [`Self::has`] first.
    pub(crate) fn take(&mut self, node: Node) -> u32 {
        assert!(node.state != State::Unused, "a block is something");
        let index = if self.unused != NONE {
            let index = self.unused;
            self.unused = self[index].next;
            index
        } else {
            let index = self.fresh;
            assert!((index as usize) < self.nodes.len(), "no record is left");
            self.fresh += 1;
            index
        };
        assert_eq!(self[index].state, State::Unused, "a record is used once at a time");
        self[index] = node;
        index
    }

    /// Gives a record back.
    pub(crate) fn give_back(&mut self, index: u32) {
        assert!(index != NONE && self[index].state != State::Unused, "a record is given back once");
        self[index] = Node { next: self.unused, ..Node::default() };
        self.unused = index;
    }
}

impl core::ops::Index<u32> for Nodes<'_> {
    type Output = Node;
    fn index(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }
}

impl core::ops::IndexMut<u32> for Nodes<'_> {
    fn index_mut(&mut self, index: u32) -> &mut Node {
        assert_ne!(index, NONE, "no record has index 0");
        &mut self.nodes[index as usize]
    }
}

/// Free blocks of one kind by size, those of one size by address: a treap, whose priorities are a hash of the record's index. So it is
/// balanced whatever the program does, needs no memory but the records, and the same run makes the same tree. No function
/// recurses: a thread's stack may be small.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    root: u32,
}

/// Where a subtree hangs.
#[derive(Clone, Copy)]
enum Place {
    Root,
    Left(u32),
    Right(u32),
}

/// The mixing step of splitmix64: two indices never have the same.
fn priority(index: u32) -> u64 {
    let mut x = u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Tree {
    fn set(&mut self, nodes: &mut Nodes<'_>, place: Place, index: u32) {
        match place {
            Place::Root => self.root = index,
            Place::Left(of) => nodes[of].left = index,
            Place::Right(of) => nodes[of].right = index,
        }
    }

    fn key(nodes: &Nodes<'_>, index: u32) -> (u32, u32) {
        (nodes[index].pages, nodes[index].start)
    }

    /// Puts a block in.
    pub(crate) fn insert(&mut self, nodes: &mut Nodes<'_>, index: u32) {
        let key = Self::key(nodes, index);
        let (mut place, mut at) = (Place::Root, self.root);
        while at != NONE && priority(at) > priority(index) {
            let here = Self::key(nodes, at);
            assert_ne!(here, key, "a block is in the tree once");
            (place, at) = if key < here {
                (Place::Left(at), nodes[at].left)
            } else {
                (Place::Right(at), nodes[at].right)
            };
        }
        // What hangs here is split into what is smaller and what is larger.
        self.set(nodes, place, index);
        let (mut smaller, mut larger) = (Place::Left(index), Place::Right(index));
        while at != NONE {
            let here = Self::key(nodes, at);
            assert_ne!(here, key, "a block is in the tree once");
            if here < key {
                self.set(nodes, smaller, at);
                smaller = Place::Right(at);
                at = nodes[at].right;
            } else {
                self.set(nodes, larger, at);
                larger = Place::Left(at);
                at = nodes[at].left;
            }
        }
        self.set(nodes, smaller, NONE);
        self.set(nodes, larger, NONE);
    }

    /// Takes a block out, whose size and address are still those that it was put in with.
    pub(crate) fn remove(&mut self, nodes: &mut Nodes<'_>, index: u32) {
        let key = Self::key(nodes, index);
        let (mut place, mut at) = (Place::Root, self.root);
        while at != index {
            assert_ne!(at, NONE, "the block is in the tree");
            (place, at) = if key < Self::key(nodes, at) {
                (Place::Left(at), nodes[at].left)
            } else {
                (Place::Right(at), nodes[at].right)
            };
        }
        let (mut left, mut right) = (nodes[index].left, nodes[index].right);
        while left != NONE && right != NONE {
            if priority(left) > priority(right) {
                self.set(nodes, place, left);
                place = Place::Right(left);
                left = nodes[left].right;
            } else {
                self.set(nodes, place, right);
                place = Place::Left(right);
                right = nodes[right].left;
            }
        }
        self.set(nodes, place, if left != NONE { left } else { right });
        (nodes[index].left, nodes[index].right) = (NONE, NONE);
    }

    /// The smallest block of at least so many pages; of several the one with the lowest address.
    pub(crate) fn best(&self, nodes: &Nodes<'_>, pages: u32) -> Option<u32> {
        let (mut at, mut best) = (self.root, NONE);
        while at != NONE {
            if nodes[at].pages >= pages {
                best = at;
                at = nodes[at].left;
            } else {
                at = nodes[at].right;
            }
        }
        (best != NONE).then_some(best)
    }
}
