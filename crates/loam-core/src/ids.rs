//! Names of things that more than one part of Loam speaks of.

/// A space: the copies of one borrowing process tree (in later issues also one file). Random, chosen by its
/// owner, unique over the cluster for as long as it lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(pub u64);

/// One life of a node. Random, chosen at each start: a node that restarts is another one, so nothing that was said of its former life is
/// believed of it. 0 is nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// One base page of contents in global memory: 128 bits, `(space, index)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    /// Whose page.
    pub space: SpaceId,
    /// Which page of the space.
    pub index: u64,
}

/// Which contents of a [`PageId`]: grows by one each time that the index is used for new contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32);

/// Whether a thread waits for a page that is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// One does: it goes before everything else.
    #[default]
    Waited,
    /// It is the rest of a page, or fetched ahead: what is waited for may overtake it.
    Behind,
}

/// What a lender is to do with a page that is put there (the write cache: nwcache-1999, section 3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PutClass {
    /// Keep it on the terms of its space.
    #[default]
    Ordinary,
    /// It waits here for this lender's disk: the lender writes it there and tells when it is safe. One without a disk store
    /// treats it as a mirror.
    Staged,
    /// The other copy of a page that waits for another lender's disk: keep it until told.
    Mirror,
}

/// 128-bit XXH3 hash of a base page's contents: tells clean from dirty and proves a page on its way back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash(pub u128);
