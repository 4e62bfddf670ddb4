//! The write cache under everything at once: borrowers that put, change, read, drop and spare, and a memory much smaller than what they have.

use crate::staging::{Dir, Staging, store_config};
use loam_core::ids::{PutClass, Version};
use loam_core::units::Bytes;
use loam_node::spawn;
use loam_wire::{PageRef, PutStatus, encode};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const INDEXES: u64 = 1500;

/// xorshift64: the same steps for the same seed, though not in the same moments.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Fewer say nothing; a disk that stands still for a while is waited for.
const PUTS_LEAST: u64 = 1_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// What one borrower has: version, and whether it may be gone.
fn churn(addr: SocketAddr, space: u64, time: Duration) -> (u64, u64) {
    let mut staging = Staging::to(addr, space);
    let mut dice = Dice(space * 77 + 1);
    let mut has: BTreeMap<u64, (u32, bool)> = BTreeMap::new();
    let (mut versions, mut puts, mut refused) = (BTreeMap::<u64, u32>::new(), 0, 0);
    let end = Instant::now() + time;
    while Instant::now() < end || (puts < PUTS_LEAST && Instant::now() < end + PATIENCE) {
        let (first, pages) = (dice.below(INDEXES), 1 + dice.below(48));
        let indexes: Vec<u64> = (first..first + pages).collect();
        match dice.below(10) {
            0..=4 => {
                let version =
                    indexes.iter().map(|i| versions.get(i).copied().unwrap_or(0)).max().unwrap() + 1;
                let class = if dice.below(5) == 0 { PutClass::Mirror } else { PutClass::Staged };
                for (index, status) in indexes.iter().zip(staging.put(indexes.clone(), version, class)) {
                    versions.insert(*index, version);
                    has.remove(index);
                    if status == PutStatus::Stored {
                        has.insert(*index, (version, false));
                        puts += 1;
                    } else {
                        refused += 1;
                    }
                }
            }
            5..=7 => {
                for index in indexes.into_iter().step_by(3) {
                    let Some(&(version, may_be_gone)) = has.get(&index) else { continue };
                    let there = staging.get([index], version).contains(&index);
                    assert!(there || may_be_gone, "space {space}: page {index}, version {version}, is lost");
                    // An older version is never there.
                    assert!(staging.get([index], version - 1).is_empty());
                }
            }
            8 => {
                let dropped: Vec<_> = indexes.iter().filter_map(|i| Some((*i, has.remove(i)?.0))).collect();
                let refs: Vec<_> = dropped.iter().map(|&(i, v)| PageRef::new(i, Version(v))).collect();
                if !refs.is_empty() {
                    staging.borrower.client.send(&[], |out| encode::drop(out, &refs)).unwrap();
                }
            }
            _ => {
                let mut refs = Vec::new();
                for index in indexes {
                    if let Some((version, may_be_gone)) = has.get_mut(&index) {
                        refs.push(PageRef::new(index, Version(*version)));
                        *may_be_gone = !staging.stored.contains(&(index, *version));
                    }
                }
                if !refs.is_empty() {
                    staging.borrower.client.send(&[], |out| encode::spare(out, &refs)).unwrap();
                }
            }
        }
    }
    for (&index, &(version, may_be_gone)) in &has {
        assert!(
            may_be_gone || !staging.gone.contains(&(index, version)),
            "page {index} gave way, and was not spare"
        );
        assert!(
            staging.get([index], version).contains(&index) || may_be_gone,
            "page {index} is lost at the end"
        );
    }
    (puts, refused)
}

#[test]
fn nothing_is_lost_while_all_of_it_changes() {
    let dir = Dir::new("churn");
    // 6,000 pages of four borrowers, 2,560 in memory, 640 of each in its channel.
    let lender = spawn(&store_config(&dir.0, Bytes(10 * MIB))).unwrap();
    let addr = lender.addr();
    let borrowers: Vec<_> =
        (1..=4).map(|space| std::thread::spawn(move || churn(addr, space, Duration::from_secs(4)))).collect();
    for borrower in borrowers {
        let (puts, refused) = borrower.join().expect("it lost nothing");
        assert!(puts >= PUTS_LEAST, "{puts} puts, {refused} refused: hardly anything was tried");
    }
}
