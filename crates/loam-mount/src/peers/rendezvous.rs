//! Who keeps the directory's entry of an extent: the member with the highest draw for it (Thaler, Ravishankar, "A name-based mapping scheme
//! for rendezvous", University of Michigan CSE-TR-316-96, 1996). When a member comes or goes, only its own share changes hands.

use super::NodeId;
use loam_wire::mount::ExtentRef;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The keeper of an extent's entry among `members`, of which there is at least one.
///
/// # Panics
/// Without members.
pub(crate) fn keeper(extent: ExtentRef, members: &[NodeId]) -> NodeId {
    let mut name = [0; 24];
    name[..8].copy_from_slice(&extent.file().space().0.to_le_bytes());
    name[8..16].copy_from_slice(&extent.file().check().to_le_bytes());
    name[16..].copy_from_slice(&extent.extent().to_le_bytes());
    let draw = |node: &NodeId| (xxh3_64_with_seed(&name, node.0), *node);
    *members.iter().max_by_key(|node| draw(node)).expect("there is a member")
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_wire::mount::FileVersion;

    fn extents() -> impl Iterator<Item = ExtentRef> {
        (0..3000).map(|at| ExtentRef::new(FileVersion::new(u128::from(at / 50)), at % 50))
    }

    #[test]
    fn shares_are_even_and_only_those_of_who_leaves_change_hands() {
        let members: Vec<_> =
            (1..=5_u64).map(|node| NodeId(node.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
        let fewer = &members[..4];
        let mut counts = [0; 5];
        for extent in extents() {
            let owner = keeper(extent, &members);
            counts[members.iter().position(|&node| node == owner).expect("a member")] += 1;
            if owner != members[4] {
                assert_eq!(keeper(extent, fewer), owner);
            }
        }
        assert!(counts.iter().all(|&count| count > 480 && count < 720), "{counts:?}");
    }

    #[test]
    fn the_order_in_which_members_are_known_does_not_matter() {
        let members = [NodeId(5), NodeId(9), NodeId(70)];
        for extent in extents() {
            assert_eq!(keeper(extent, &members), keeper(extent, &[members[2], members[0], members[1]]));
        }
    }
}
