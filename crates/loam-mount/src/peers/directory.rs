//! One mount's part of the global-cache directory: which nodes hold which runs. Everything in it is what holders said of themselves.

use super::{Holder, NodeId};
use loam_wire::mount::{ExtentRef, ExtentRuns};
use std::collections::{HashMap, VecDeque};

/// Entries that are kept; what came first is forgotten for more. It costs a read of the source, and at whole extents this
/// many stand for a tebibyte.
const EXTENTS_MAX: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };
/// Holders of one extent that are kept.
const HOLDERS_MAX: usize = 64;

/// Runs of which the named node has the only copy known.
pub(crate) type LastCopy = (NodeId, ExtentRuns);

/// The part of the directory.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    extents: HashMap<ExtentRef, Vec<Holder>>,
    /// In the order in which they came; some may have gone, or gone and come again.
    came: VecDeque<ExtentRef>,
}

impl Directory {
    /// `node` has these runs.
    pub(crate) fn register(&mut self, node: NodeId, runs: &ExtentRuns) {
        let extent = runs.extent();
        if runs.runs() == 0 {
            return;
        }
        let holders = self.extents.entry(extent).or_insert_with(|| {
            self.came.push_back(extent);
            Vec::new()
        });
        match holders.iter().position(|holder| holder.0 == node) {
            Some(at) => holders[at].1 |= runs.runs(),
            None if holders.len() < HOLDERS_MAX => holders.push((node, runs.runs())),
            None => {}
        }
        while self.extents.len() > EXTENTS_MAX || self.came.len() > 2 * EXTENTS_MAX {
            let oldest = self.came.pop_front().expect("every entry once came");
            self.extents.remove(&oldest);
        }
    }

    /// `node` does not have these runs any more. The answer names who is the only one left for some of them.
    pub(crate) fn unregister(&mut self, node: NodeId, runs: &ExtentRuns) -> Vec<LastCopy> {
        let extent = runs.extent();
        let Some(holders) = self.extents.get_mut(&extent) else { return Vec::new() };
        let Some(holder) = holders.iter_mut().find(|holder| holder.0 == node) else { return Vec::new() };
        let given_up = holder.1 & runs.runs();
        holder.1 &= !runs.runs();
        holders.retain(|holder| holder.1 != 0);
        let last = last_copies(extent, holders, given_up);
        if holders.is_empty() {
            self.extents.remove(&extent);
        }
        last
    }

    /// `node` has gone, with all that it had.
    pub(crate) fn forget(&mut self, node: NodeId) -> Vec<LastCopy> {
        let mut last = Vec::new();
        self.extents.retain(|extent, holders| {
            if let Some(at) = holders.iter().position(|holder| holder.0 == node) {
                let (_, runs) = holders.swap_remove(at);
                last.extend(last_copies(*extent, holders, runs));
            }
            !holders.is_empty()
        });
        last
    }

    /// Who has runs of an extent, but for `asker`. Each asker begins with another one, to spread the load.
    pub(crate) fn locate(&self, extent: &ExtentRef, asker: NodeId) -> Vec<Holder> {
        let Some(holders) = self.extents.get(extent) else { return Vec::new() };
        let start = (asker.0 ^ extent.extent()) as usize % holders.len();
        let turned = holders[start..].iter().chain(&holders[..start]);
        turned.copied().filter(|holder| holder.0 != asker).collect()
    }

    /// Extents of which something is known.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.extents.len()
    }
}

/// Of `runs`, those that one holder alone has, by holder.
fn last_copies(extent: ExtentRef, holders: &[Holder], runs: u8) -> Vec<LastCopy> {
    let (mut once, mut more) = (0, 0);
    for holder in holders {
        more |= once & holder.1;
        once |= holder.1;
    }
    let single = once & !more & runs;
    let of = |holder: &Holder| (holder.0, ExtentRuns::new(extent, holder.1 & single));
    holders.iter().map(of).filter(|last| last.1.runs() != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_wire::mount::FileVersion;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);
    const C: NodeId = NodeId(3);

    fn extent(at: u64) -> ExtentRef {
        ExtentRef::new(FileVersion::new(1), at)
    }

    fn runs(at: u64, runs: u8) -> ExtentRuns {
        ExtentRuns::new(extent(at), runs)
    }

    #[test]
    fn holders_are_found_by_others_until_they_give_up() {
        let mut directory = Directory::default();
        directory.register(A, &runs(0, 0b01));
        directory.register(A, &runs(0, 0b10));
        directory.register(B, &runs(0, 0b01));
        let mut found = directory.locate(&extent(0), C);
        found.sort();
        assert_eq!(found, [(A, 0b11), (B, 0b01)]);
        assert_eq!(directory.locate(&extent(0), A), [(B, 0b01)]);
        assert!(directory.locate(&extent(1), A).is_empty());
        assert_eq!(directory.unregister(B, &runs(0, 0xff)), [(A, runs(0, 0b01))], "A has the last copy");
        assert_eq!(directory.unregister(B, &runs(0, 0xff)), []);
        assert_eq!(directory.unregister(A, &runs(0, 0b11)), [], "nobody is left");
        assert_eq!(directory.len(), 0);
    }

    #[test]
    fn who_dies_leaves_last_copies_behind() {
        let mut directory = Directory::default();
        for node in [A, B] {
            directory.register(node, &runs(0, 0b01));
            directory.register(node, &runs(1, 0b11));
        }
        directory.register(C, &runs(1, 0b10));
        let mut last = directory.forget(B);
        last.sort_by_key(|last| last.1.extent());
        assert_eq!(last, [(A, runs(0, 0b01)), (A, runs(1, 0b01))], "run 1 of extent 1 is still with C");
        assert!(directory.forget(B).is_empty());
    }

    #[test]
    fn it_stays_within_its_bound() {
        let mut directory = Directory::default();
        for at in 0..EXTENTS_MAX as u64 + 10 {
            directory.register(A, &runs(at, 1));
        }
        assert_eq!(directory.len(), EXTENTS_MAX);
        assert!(directory.locate(&extent(9), B).is_empty() && !directory.locate(&extent(10), B).is_empty());
        // Entries that come and go do not pile up behind it.
        for _ in 0..2 * EXTENTS_MAX {
            directory.unregister(A, &runs(500, 1));
            directory.register(A, &runs(500, 1));
        }
        assert!(directory.came.len() <= 2 * EXTENTS_MAX && directory.len() <= EXTENTS_MAX);
    }
}
