//! A region that several programs have open.

use super::link::Link;
use super::map::{Advice, Map};
use super::{Info, RegionError, Regions, open_in};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

/// A region that is open here and perhaps elsewhere: its bytes may change at any moment. One coherence domain, as all memory of one machine.
#[derive(Debug)]
pub struct SharedRegion {
    // In this order: first the mapping goes, then the node hears that it is not open here any more.
    map: Map,
    link: Link,
    info: Info,
}

impl SharedRegion {
    /// Opens a region together with others, with the node at one of the usual places.
    ///
    /// # Errors
    /// As [`Self::open_on`].
    pub fn open(name: &str) -> Result<Self, RegionError> {
        Self::open_on(Regions::connect(None)?, name)
    }

    /// Opens a region together with others. It takes the connection, which is how the node knows for how long.
    ///
    /// # Errors
    /// [`RegionError`]; [`super::Refusal::InUse`] if somebody has it open alone.
    pub fn open_on(regions: Regions, name: &str) -> Result<Self, RegionError> {
        let mut link = regions.link;
        let (map, info) = open_in(&mut link, 0, name, false)?;
        Ok(Self { map, link, info })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// How large it is, here: others may have let it grow since ([`Self::refresh`]).
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Never: a region has a page at least.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its bytes. Order between them is made as between threads: by the orderings of loads and stores.
    pub fn as_atomics(&self) -> &[AtomicU8] {
        self.map.as_atomics()
    }

    /// Copies out what is at `at`. Bytes that somebody writes meanwhile may be old or new, each by itself.
    ///
    /// # Panics
    /// If that is beyond the end.
    pub fn read_at(&self, at: usize, to: &mut [u8]) {
        let from = &self.as_atomics()[at..][..to.len()];
        for (to, from) in to.iter_mut().zip(from) {
            *to = from.load(Ordering::Relaxed);
        }
    }

    /// Copies in what is to be at `at`. Whoever reads meanwhile may see each byte old or new.
    ///
    /// # Panics
    /// If that is beyond the end.
    pub fn write_at(&self, at: usize, from: &[u8]) {
        let to = &self.as_atomics()[at..][..from.len()];
        for (to, from) in to.iter().zip(from) {
            to.store(*from, Ordering::Relaxed);
        }
    }

    /// Maps it as large as it is by now.
    ///
    /// # Errors
    /// [`RegionError`]; it is as it was.
    pub fn refresh(&mut self) -> Result<(), RegionError> {
        (self.map, self.info) = open_in(&mut self.link, self.info.id, &self.info.name, false)?;
        Ok(())
    }

    /// Tells the kernel how a range is going to be used.
    ///
    /// # Errors
    /// [`RegionError::Range`], [`RegionError::Advice`]; the memory is the same all the same.
    pub fn advise(&self, range: Range<usize>, advice: Advice) -> Result<(), RegionError> {
        self.map.advise(range, advice)
    }
}
