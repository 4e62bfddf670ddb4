//! What runs on the busy nodes.

use super::{CPU_NS, PRIVATE, REFERENCES, SHARED};
use crate::cluster::{Cluster, Program, Step};
use crate::fuzz::dice::Dice;
use loam_core::global::Access;
use loam_core::ids::{PageId, SpaceId};

/// Spaces of the groups' files begin here.
const FILES: u64 = 1_000_000;

/// Builds its pages, or uses them at random.
#[derive(Debug)]
pub(super) struct Pager {
    space: SpaceId,
    file: SpaceId,
    builds: bool,
    dice: Dice,
    at: u32,
}

impl Pager {
    /// Every page once. Nothing need be read: what was in them does not matter.
    pub(super) fn builds(node: usize, group: usize) -> Self {
        let file = SpaceId(FILES + group as u64);
        Self { space: Cluster::space(node), file, builds: true, dice: Dice::new(0, 0), at: 0 }
    }

    /// Reads pages at random.
    pub(super) fn pages(node: usize, group: usize, seed: u64) -> Self {
        Self { builds: false, dice: Dice::new(seed, node as u64), ..Self::builds(node, group) }
    }
}

impl Program for Pager {
    fn next_step(&mut self, into: &mut Step) -> bool {
        const ALL: u32 = PRIVATE + SHARED;
        if self.at == if self.builds { ALL } else { REFERENCES } {
            return false;
        }
        let index = if self.builds { self.at } else { self.dice.below(u64::from(ALL)) as u32 };
        let mark = self.at == 0;
        self.at += 1;
        let shared = index < SHARED;
        let (space, index) = if shared { (self.file, index) } else { (self.space, index - SHARED) };
        let page = PageId { space, index: u64::from(index) };
        let access = Access { page, shared, write: self.builds && !shared };
        *into = Step { access, cpu_ns: CPU_NS, fresh: self.builds, mark };
        true
    }
}
