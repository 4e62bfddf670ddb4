//! The page-ownership directory (gms-1995, section 4.1): which node keeps which part of the global-cache directory. "Replicated on all
//! nodes and changed only when machines are added or deleted."
//!
//! A table from hash buckets to nodes, so that a change moves only what it must: a node that joins gets its share of buckets from those who
//! have most, a node that leaves gives its own away. A POD is versioned; of two, the higher one counts everywhere, so two masters at once
//! end in one table. Whoever asks by an old one gets a miss, and reads the disk.

use crate::ids::{NodeId, PageId};
use crate::replacement::Key;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Buckets for each node, at least: shares differ by at most one part in so many.
const BUCKETS_PER_NODE: usize = 16;
const BUCKETS_MIN: usize = 256;
/// Consecutive pages that have one owner: a reader of a file asks one node for all of them.
const PAGES_PER_OWNER: u64 = 32;

/// Orders PODs: by number, then by who made it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodVersion {
    /// Grows with each change.
    pub number: u64,
    /// The master that made it.
    pub master: NodeId,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    version: PodVersion,
    /// The owner of each bucket; a power of two of them. Empty: nobody owns anything.
    owners: Vec<NodeId>,
}

impl Pod {
    /// From what came over the wire; none if it is no POD: buckets must be a power of two, and their owners somebody.
    pub fn from_owners(version: PodVersion, owners: Vec<NodeId>) -> Option<Self> {
        let valid = owners.len().is_power_of_two() && owners.iter().all(|owner| owner.0 != 0);
        valid.then_some(Self { version, owners })
    }

    /// Which one it is.
    pub fn version(&self) -> PodVersion {
        self.version
    }

    /// The owner of each bucket.
    pub fn owners(&self) -> &[NodeId] {
        &self.owners
    }

    /// Who keeps the directory entry of a shared page.
    pub fn owner(&self, page: PageId) -> Option<NodeId> {
        let bits = self.owners.len().checked_ilog2()?;
        let spread = PageId { index: page.index / PAGES_PER_OWNER, ..page }.spread();
        let bucket = if bits == 0 { 0 } else { (spread >> (64 - bits)) as usize };
        Some(self.owners[bucket])
    }

    /// Does every one of `members`, and nobody else, own something?
    pub fn is_of(&self, members: impl ExactSizeIterator<Item = NodeId>) -> bool {
        let mut owners = self.owners.clone();
        owners.sort_unstable();
        owners.dedup();
        owners.len() == members.len() && owners.into_iter().eq(members)
    }

    /// The next POD, for `members` (ascending, each once), made by `master`. Buckets move only from those who are gone, and from those with
    /// more than their share.
    pub fn changed(&self, members: &[NodeId], master: NodeId) -> Self {
        let version = PodVersion { number: self.version.number + 1, master };
        if members.is_empty() {
            return Self { version, owners: Vec::new() };
        }
        let wanted = (members.len() * BUCKETS_PER_NODE).next_power_of_two().max(BUCKETS_MIN);
        // More buckets split each one in two with the same owner; they never become fewer, so that nothing moves when nodes leave.
        let mut owners = self.owners.clone();
        if owners.is_empty() {
            owners.push(members[0]);
        }
        while owners.len() < wanted {
            owners = owners.iter().flat_map(|&owner| [owner, owner]).collect();
        }
        let mut left: BTreeMap<NodeId, usize> = BTreeMap::new();
        let (share, more) = (owners.len() / members.len(), owners.len() % members.len());
        for (at, &member) in members.iter().enumerate() {
            left.insert(member, share + usize::from(at < more));
        }
        let mut homeless = Vec::new();
        for (at, owner) in owners.iter().enumerate() {
            match left.get_mut(owner) {
                Some(left) if *left > 0 => *left -= 1,
                _ => homeless.push(at),
            }
        }
        let mut takers = left.into_iter().flat_map(|(member, left)| core::iter::repeat_n(member, left));
        for at in homeless {
            owners[at] = takers.next().expect("shares add up to all buckets");
        }
        assert!(takers.next().is_none(), "shares are more than the buckets");
        Self { version, owners }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SpaceId;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    fn nodes(ids: &BTreeSet<u64>) -> Vec<NodeId> {
        ids.iter().map(|&id| NodeId(id)).collect()
    }

    #[test]
    fn nobody_owns_anything_in_an_empty_one() {
        assert_eq!(Pod::default().owner(PageId { space: SpaceId(1), index: 2 }), None);
        assert_eq!(Pod::from_owners(PodVersion::default(), alloc::vec![NodeId(1); 3]), None);
        assert_eq!(Pod::from_owners(PodVersion::default(), alloc::vec![NodeId(0); 4]), None);
    }

    proptest! {
        #[test]
        fn shares_are_even_and_little_moves(
            before in prop::collection::btree_set(1u64..60, 1..30),
            after in prop::collection::btree_set(1u64..60, 1..30),
        ) {
            let first = Pod::default().changed(&nodes(&before), NodeId(1));
            let second = first.changed(&nodes(&after), NodeId(1));
            prop_assert!(second.version() > first.version());
            prop_assert!(second.is_of(nodes(&after).into_iter()));
            let owned = |node| second.owners().iter().filter(|&&owner| owner == node).count();
            let counts: Vec<usize> = nodes(&after).into_iter().map(owned).collect();
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
            // Whoever stays and has no more than a share keeps all of it.
            let factor = second.owners().len() / first.owners().len();
            let share = second.owners().len().div_ceil(after.len());
            let moved = (0..second.owners().len())
                .filter(|&at| second.owners()[at] != first.owners()[at / factor])
                .count();
            let gone_or_above: usize = nodes(&before).into_iter().map(|node| {
                let had = factor * first.owners().iter().filter(|&&owner| owner == node).count();
                if after.contains(&node.0) { had.saturating_sub(share - 1) } else { had }
            }).sum();
            prop_assert!(moved <= gone_or_above, "{moved} moved of {gone_or_above}");
        }

        #[test]
        fn a_page_has_one_owner_of_the_members(ids in prop::collection::btree_set(1u64..99, 1..40), space: u64, index: u64) {
            let pod = Pod::default().changed(&nodes(&ids), NodeId(1));
            let owner = pod.owner(PageId { space: SpaceId(space), index }).unwrap();
            prop_assert!(ids.contains(&owner.0));
            let same = PageId { space: SpaceId(space), index: index / PAGES_PER_OWNER * PAGES_PER_OWNER };
            prop_assert_eq!(pod.owner(same), Some(owner));
        }
    }
}
