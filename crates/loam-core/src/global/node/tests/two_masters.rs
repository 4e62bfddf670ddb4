//! Two masters at once cost disk reads, nothing else. [`Cluster::used`] looks at what every access finds.

use super::*;

const ROUNDS: u64 = 600;
/// Pages of each of the two that work; each node has room for ten.
const PRIVATE: u64 = 14;

impl Cluster {
    /// From now on these see each other only; `cut`: and reach each other only. None: all are together again.
    pub(super) fn part(&mut self, apart: impl IntoIterator<Item = NodeId>, cut: bool) {
        self.apart = apart.into_iter().collect();
        self.cut = cut;
        self.tell_members();
    }

    fn masters(&self) -> BTreeSet<NodeId> {
        self.machines.values().map(|machine| machine.node.coordinator().master()).collect()
    }

    /// Nodes 1 and 4 work, with more pages than they have frames, and all read the same file.
    fn work(&mut self, part: u64) {
        let mut dice = part;
        let mut roll = |below: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % below
        };
        for round in 0..ROUNDS {
            self.private(1, roll(PRIVATE), round % 3 == 0);
            self.private(4, roll(PRIVATE), round % 4 == 0);
            self.shared(1 + roll(4), roll(6));
            self.run(Duration::from_millis(15));
            self.check(false);
        }
    }

    fn disk_reads(&self) -> u64 {
        self.machines.values().map(|machine| machine.node.stats().disk).sum()
    }
}

/// Disk reads in three equal times; in the second the nodes `apart` see each other only. No message is lost for another reason, so the run repeats exactly.
fn disk_reads(apart: &[u64], cut: bool) -> [u64; 3] {
    let mut cluster = Cluster::new(4, 10, "gms", 7, 0);
    cluster.run(Duration::from_millis(1_000));
    // All pages are somewhere.
    cluster.work(0);
    let mut before = cluster.disk_reads();
    let mut since = |cluster: &Cluster| {
        let now = cluster.disk_reads();
        now - core::mem::replace(&mut before, now)
    };
    cluster.work(1);
    let first = since(&cluster);
    cluster.part(apart.iter().map(|id| NodeId(*id)), cut);
    cluster.work(2);
    let masters = cluster.masters();
    assert_eq!(masters.len(), if apart.is_empty() { 1 } else { 2 }, "{masters:?}");
    let split = since(&cluster);
    cluster.part([], false);
    cluster.work(3);
    assert_eq!(cluster.masters(), BTreeSet::from([NodeId(1)]));
    let last = since(&cluster);
    cluster.run(Duration::from_millis(1_000));
    for machine in cluster.machines.values() {
        assert!(machine.waiting.is_empty(), "a fault waits for ever");
    }
    [first, split, last]
}

#[test]
fn two_masters_at_once_cost_disk_reads_and_nothing_else() {
    let whole = disk_reads(&[], false);
    for cut in [false, true] {
        let [first, split, last] = disk_reads(&[3, 4], cut);
        assert_eq!(first, whole[0], "the same until then");
        assert!(split > whole[1], "{split} disk reads with two masters, {} with one", whole[1]);
        assert!(last <= whole[2] + whole[2] / 10, "{last} disk reads after that, {} without", whole[2]);
    }
}
