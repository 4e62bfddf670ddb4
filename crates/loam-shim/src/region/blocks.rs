//! Which parts of the region are whose: pure bookkeeping in pages, nothing here touches the region or asks the kernel.
//!
//! Blocks cover the region from end to end; free neighbours of one kind are one block. A request gets the smallest free block that
//! fits (best fit). What the program frees keeps its contents at first (*dirty*): a program that frees and allocates large buffers in turn
//! gets the same memory again, without a fault. What must be given back is taken in the order in which it was freed, is *clean* then, and
//! reads as zeros. Dirty and clean neighbours are not merged; a request that only both together could serve has the caller give
//! everything back first ([`Blocks::could_serve`]).
//!
//! The records are of a fixed number. When they are used up, a request that would need another is refused as if the region were full;
//! freeing never needs one.

use super::nodes::{NONE, Node, Nodes, State, Tree};

#[cfg(test)]
#[path = "audit.rs"]
mod audit;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Blocks<'a> {
    nodes: Nodes<'a>,
    /// By window of the region: the block in use that begins there. As no request is smaller than a window, no two begin in one.
    begins: &'a mut [u32],
    window_pages: u32,
    pages: u32,
    clean: Tree,
    dirty: Tree,
    oldest: u32,
    newest: u32,
    dirty_pages: u32,
    used_pages: u32,
    giving_back: u32,
    /// Pages that were handed out in all.
    handed_out: u64,
    /// Dirty contents count as old when so many pages were handed out since.
    old_after_pages: u64,
}

/// What is in a block that was just handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Zeros.
    Zeros,
    /// Something old, that is probably still here.
    Recent,
    /// Something old, that has probably been sent away: to be discarded, so that no fault brings it back for nothing.
    Stale,
}

/// A block handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) start: u32,
    pub(crate) contents: Contents,
}

/// A block to be given back to the kernel; then to be handed to [`Blocks::given_back`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct GivingBack {
    pub(crate) start: u32,
    pub(crate) pages: u32,
    node: u32,
}

impl<'a> Blocks<'a> {
    /// Records that a region of so many windows never runs out of, unless its free memory is in many more pieces than its used.
    pub(crate) const fn nodes_for(windows: u32) -> usize {
        windows as usize * 3 + 64
    }

    /// A region of `pages`, from which at least `window_pages` are asked for at a time. Both slices are all zeros, `begins` has an entry a
    /// window.
    pub(crate) fn new(
        nodes: &'a mut [Node],
        begins: &'a mut [u32],
        pages: u32,
        window_pages: u32,
        old_after_pages: u64,
    ) -> Self {
        assert!(window_pages > 0 && pages >= window_pages, "room for one block at least");
        assert!(begins.len() >= pages.div_ceil(window_pages) as usize, "an entry for each window");
        let mut nodes = Nodes::new(nodes);
        let all = nodes.take(Node { start: 0, pages, state: State::Clean, ..Node::default() });
        let mut clean = Tree::default();
        clean.insert(&mut nodes, all);
        Self {
            nodes,
            begins,
            window_pages,
            pages,
            clean,
            dirty: Tree::default(),
            oldest: NONE,
            newest: NONE,
            dirty_pages: 0,
            used_pages: 0,
            giving_back: 0,
            handed_out: 0,
            old_after_pages,
        }
    }

    pub(crate) fn dirty_pages(&self) -> u32 {
        self.dirty_pages
    }

    pub(crate) fn used_pages(&self) -> u32 {
        self.used_pages
    }

    /// Giving everything back, or waiting for others who are at it, might make room for a request that was refused.
    pub(crate) fn could_serve(&self, pages: u32) -> bool {
        self.dirty_pages + self.giving_back > 0 && self.pages - self.used_pages >= pages
    }

    /// Hands a block out that begins at a multiple of `align` pages (counted from page `origin`, where the region is in memory).
    /// Zeros are looked for first if `zeros` are wanted, what was freed last otherwise. `None`: full.
    pub(crate) fn allocate(&mut self, pages: u32, align: u32, origin: u64, zeros: bool) -> Option<Taken> {
        assert!(pages >= self.window_pages, "smaller than what the region serves");
        assert!(align.is_power_of_two(), "an alignment is a power of two");
        let room = pages.checked_add(align - 1)?;
        let clean = || self.clean.best(&self.nodes, room);
        let dirty = || self.dirty.best(&self.nodes, room);
        let block = if zeros { clean().or_else(dirty) } else { dirty().or_else(clean) }?;
        let Node { start, state, freed_at, .. } = self.nodes[block];
        let before = (u64::from(align) - (origin + u64::from(start)) % u64::from(align)) as u32 % align;
        let start = self.carve(block, before, pages)?;
        let contents = match state {
            State::Clean => Contents::Zeros,
            _ if self.handed_out - freed_at > self.old_after_pages => Contents::Stale,
            _ => Contents::Recent,
        };
        self.handed_out += u64::from(pages);
        Some(Taken { start, contents })
    }

    /// Makes the middle of a free block a block in use; its start.
    fn carve(&mut self, block: u32, before: u32, pages: u32) -> Option<u32> {
        let whole = self.nodes[block];
        let after = whole.pages - before - pages;
        if !self.nodes.has(u32::from(before > 0) + u32::from(after > 0)) {
            return None;
        }
        self.unlist(block);
        let start = whole.start + before;
        self.nodes[block].start = start;
        self.nodes[block].pages = pages;
        self.nodes[block].state = State::Used;
        self.used_pages += pages;
        let begins = &mut self.begins[(start / self.window_pages) as usize];
        assert_eq!(*begins, NONE, "one block begins in a window");
        *begins = block;
        let piece = |start, pages| Node { start, pages, older: NONE, newer: NONE, ..whole };
        if before > 0 {
            let piece = self.nodes.take(piece(whole.start, before));
            self.link(whole.previous, piece, block);
            self.list(piece, whole.older);
        }
        if after > 0 {
            let piece = self.nodes.take(piece(start + pages, after));
            let next = self.nodes[block].next;
            self.link(block, piece, next);
            self.list(piece, whole.older);
        }
        Some(start)
    }

    /// The block in use that begins at this page; its size.
    pub(crate) fn pages_at(&self, start: u32) -> Option<u32> {
        self.used_at(start).map(|block| self.nodes[block].pages)
    }

    fn used_at(&self, start: u32) -> Option<u32> {
        let block = *self.begins.get((start / self.window_pages) as usize)?;
        (block != NONE && self.nodes[block].start == start).then_some(block)
    }

    /// Frees the block in use that begins at this page. False: there is none.
    pub(crate) fn free(&mut self, start: u32) -> bool {
        let Some(block) = self.used_at(start) else { return false };
        self.begins[(start / self.window_pages) as usize] = NONE;
        self.used_pages -= self.nodes[block].pages;
        self.nodes[block].freed_at = self.handed_out;
        self.become_free(block, State::Dirty);
        true
    }

    /// Gives the block in use that begins at `start` another size, where it is. False: something is behind it.
    ///
    /// # Panics
    /// If there is no such block.
    pub(crate) fn resize(&mut self, start: u32, pages: u32) -> bool {
        assert!(pages >= self.window_pages, "smaller than what the region serves");
        let block = self.used_at(start).expect("the caller looked");
        let old = self.nodes[block].pages;
        if pages > old { self.grow(block, pages - old) } else { self.shrink(block, old - pages) }
    }

    fn grow(&mut self, block: u32, more: u32) -> bool {
        let (mut room, mut at) = (0_u64, self.nodes[block].next);
        while room < u64::from(more) {
            if at == NONE || !matches!(self.nodes[at].state, State::Clean | State::Dirty) {
                return false;
            }
            room += u64::from(self.nodes[at].pages);
            at = self.nodes[at].next;
        }
        let mut left = more;
        while left > 0 {
            let next = self.nodes[block].next;
            let whole = self.nodes[next];
            self.unlist(next);
            if whole.pages <= left {
                left -= whole.pages;
                self.drop_from_line(next);
            } else {
                self.nodes[next].start += left;
                self.nodes[next].pages -= left;
                left = 0;
                self.list(next, whole.older);
            }
        }
        self.nodes[block].pages += more;
        self.used_pages += more;
        self.handed_out += u64::from(more);
        true
    }

    fn shrink(&mut self, block: u32, less: u32) -> bool {
        if less == 0 || !self.nodes.has(1) {
            return true; // it keeps what it has
        }
        self.nodes[block].pages -= less;
        self.used_pages -= less;
        let Node { start, pages, next, .. } = self.nodes[block];
        let freed_at = self.handed_out;
        let rest =
            Node { start: start + pages, pages: less, state: State::Used, freed_at, ..Node::default() };
        let rest = self.nodes.take(rest);
        self.link(block, rest, next);
        self.become_free(rest, State::Dirty);
        true
    }

    /// The block that was freed first, out of use until it is given back.
    pub(crate) fn give_back_oldest(&mut self) -> Option<GivingBack> {
        let node = self.oldest;
        if node == NONE {
            return None;
        }
        self.unlist(node);
        self.nodes[node].state = State::GivingBack;
        self.giving_back += 1;
        let Node { start, pages, .. } = self.nodes[node];
        Some(GivingBack { start, pages, node })
    }

    /// The kernel has taken it, or, where it is not `done`, has refused: then it counts as freed just now.
    pub(crate) fn given_back(&mut self, block: GivingBack, done: bool) {
        let node = self.nodes[block.node];
        assert!(node.state == State::GivingBack && node.start == block.start, "a block that was asked for");
        self.giving_back -= 1;
        self.nodes[block.node].freed_at = self.handed_out;
        self.become_free(block.node, if done { State::Clean } else { State::Dirty });
    }

    /// In a forked child: whoever was giving something back is not in this process.
    pub(crate) fn forked(&mut self) {
        // The first block never changes its place: nothing is in front of it.
        let mut at = if self.giving_back > 0 { self.first() } else { NONE };
        while at != NONE {
            if self.nodes[at].state == State::GivingBack {
                self.giving_back -= 1;
                self.nodes[at].freed_at = self.handed_out;
                at = self.become_free(at, State::Dirty);
            }
            at = self.nodes[at].next;
        }
        assert_eq!(self.giving_back, 0, "all of them are in the line");
    }

    /// The block at page 0.
    fn first(&self) -> u32 {
        // Found by what every state has: any block leads to it. Record 1 may have been given back, so look for one that is alive.
        let mut at = 1;
        while self.nodes[at].state == State::Unused {
            at += 1;
        }
        while self.nodes[at].previous != NONE {
            at = self.nodes[at].previous;
        }
        at
    }

    /// A block that is in no list and no tree becomes free, and one with its neighbours of the same kind. The block that it is then.
    fn become_free(&mut self, mut block: u32, state: State) -> u32 {
        self.nodes[block].state = state;
        let Node { previous, next, .. } = self.nodes[block];
        if next != NONE && self.nodes[next].state == state {
            self.unlist(next);
            let pages = self.nodes[next].pages;
            self.drop_from_line(next);
            self.nodes[block].pages += pages;
        }
        if previous != NONE && self.nodes[previous].state == state {
            self.unlist(previous);
            let Node { pages, freed_at, .. } = self.nodes[block];
            self.drop_from_line(block);
            self.nodes[previous].pages += pages;
            self.nodes[previous].freed_at = freed_at;
            block = previous;
        }
        self.list(block, self.newest);
        block
    }

    /// Into the tree of its kind, and if it is dirty into the line of ages, behind `older`.
    fn list(&mut self, block: u32, older: u32) {
        if self.nodes[block].state == State::Clean {
            self.clean.insert(&mut self.nodes, block);
            return;
        }
        assert_eq!(self.nodes[block].state, State::Dirty, "free blocks are listed");
        self.dirty.insert(&mut self.nodes, block);
        self.dirty_pages += self.nodes[block].pages;
        let newer = if older == NONE { self.oldest } else { self.nodes[older].newer };
        (self.nodes[block].older, self.nodes[block].newer) = (older, newer);
        if older == NONE {
            self.oldest = block
        } else {
            self.nodes[older].newer = block
        }
        if newer == NONE { self.newest = block } else { self.nodes[newer].older = block }
    }

    /// Out of both.
    fn unlist(&mut self, block: u32) {
        if self.nodes[block].state == State::Clean {
            self.clean.remove(&mut self.nodes, block);
            return;
        }
        assert_eq!(self.nodes[block].state, State::Dirty, "free blocks are listed");
        self.dirty.remove(&mut self.nodes, block);
        self.dirty_pages -= self.nodes[block].pages;
        let Node { older, newer, .. } = self.nodes[block];
        if older == NONE {
            self.oldest = newer
        } else {
            self.nodes[older].newer = newer
        }
        if newer == NONE {
            self.newest = older
        } else {
            self.nodes[newer].older = older
        }
        (self.nodes[block].older, self.nodes[block].newer) = (NONE, NONE);
    }

    /// Puts `block` between two neighbours by address, either of which may be missing.
    fn link(&mut self, previous: u32, block: u32, next: u32) {
        (self.nodes[block].previous, self.nodes[block].next) = (previous, next);
        if previous != NONE {
            self.nodes[previous].next = block;
        }
        if next != NONE {
            self.nodes[next].previous = block;
        }
    }

    /// A neighbour has taken its place.
    fn drop_from_line(&mut self, block: u32) {
        let Node { previous, next, .. } = self.nodes[block];
        if previous != NONE {
            self.nodes[previous].next = next;
        }
        if next != NONE {
            self.nodes[next].previous = previous;
        }
        self.nodes.give_back(block);
    }
}
