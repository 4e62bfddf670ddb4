//! Which pages the lender's disk has: eight bytes for each, in lists by extent, as sorted as they come.
//!
//! What is named here is synced and readable. Where on the disk it is, is the disk store's business.

use super::{Tenancy, join, split};
use crate::ids::Version;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The pages of one extent on the disk, by offset.
type Pages = Vec<(u8, Version)>;

#[derive(Debug, Default)]
pub(super) struct OnDisk {
    extents: BTreeMap<Tenancy, BTreeMap<u64, Pages>>,
    pages: u64,
}

impl OnDisk {
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    pub(super) fn get(&self, tenancy: Tenancy, index: u64) -> Option<Version> {
        let (at, offset) = split(index);
        let pages = self.extents.get(&tenancy)?.get(&at)?;
        pages.binary_search_by_key(&offset, |page| page.0).ok().map(|found| pages[found].1)
    }

    pub(super) fn insert(&mut self, tenancy: Tenancy, index: u64, version: Version) {
        let (at, offset) = split(index);
        let pages = self.extents.entry(tenancy).or_default().entry(at).or_default();
        match pages.binary_search_by_key(&offset, |page| page.0) {
            Ok(_) => panic!("page {index} is on the disk twice"),
            Err(place) => pages.insert(place, (offset, version)),
        }
        self.pages += 1;
    }

    pub(super) fn remove(&mut self, tenancy: Tenancy, index: u64) -> Option<Version> {
        let (at, offset) = split(index);
        let extents = self.extents.get_mut(&tenancy)?;
        let pages = extents.get_mut(&at)?;
        let found = pages.binary_search_by_key(&offset, |page| page.0).ok()?;
        let (_, version) = pages.remove(found);
        if pages.is_empty() {
            extents.remove(&at);
        }
        if extents.is_empty() {
            self.extents.remove(&tenancy);
        }
        self.pages -= 1;
        Some(version)
    }

    /// The pages of the first extent at or behind number `from`, and that extent's number.
    pub(super) fn extent(&self, tenancy: Tenancy, from: u64) -> Option<(u64, Vec<(u64, Version)>)> {
        let (&at, pages) = self.extents.get(&tenancy)?.range(from..).next()?;
        Some((at, pages.iter().map(|&(offset, version)| (join(at, offset), version)).collect()))
    }

    /// Takes all pages of one borrower out; how many there were.
    pub(super) fn take(&mut self, tenancy: Tenancy) -> u64 {
        let extents = self.extents.remove(&tenancy).unwrap_or_default();
        let pages = extents.values().map(|pages| pages.len() as u64).sum::<u64>();
        self.pages -= pages;
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain map.
        #[test]
        fn is_a_map(ops in prop::collection::vec((0..2_u64, prop_oneof![0..6_u64, 250..260_u64], 0..9_u32), 1..200)) {
            let (mut on_disk, mut model) = (OnDisk::default(), BTreeMap::<(u64, u64), Version>::new());
            for (tenancy, index, version) in ops {
                let (key, t) = ((tenancy, index), Tenancy(tenancy));
                prop_assert_eq!(on_disk.get(t, index), model.get(&key).copied());
                match model.remove(&key) {
                    Some(old) => prop_assert_eq!(on_disk.remove(t, index), Some(old)),
                    None => {
                        prop_assert_eq!(on_disk.remove(t, index), None);
                        on_disk.insert(t, index, Version(version));
                        model.insert(key, Version(version));
                    }
                }
                prop_assert_eq!(on_disk.pages(), model.len() as u64);
            }
            let (mut walked, mut from) = (Vec::new(), 0);
            while let Some((at, pages)) = on_disk.extent(Tenancy(0), from) {
                walked.extend(pages);
                from = at + 1;
            }
            let expected: Vec<_> = model.iter().filter(|(key, _)| key.0 == 0).map(|(k, v)| (k.1, *v)).collect();
            prop_assert_eq!(on_disk.take(Tenancy(0)), expected.len() as u64);
            prop_assert_eq!(on_disk.pages(), (model.len() - expected.len()) as u64);
            prop_assert_eq!(walked, expected);
            prop_assert_eq!(on_disk.extent(Tenancy(0), 0), None);
        }
    }
}
