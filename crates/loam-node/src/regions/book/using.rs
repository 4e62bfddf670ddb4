//! Who may have regions of which device.

use super::{Book, Refused, refuse};
use crate::regions::region::Call;
use crate::regions::room::Room;
use loam_wire::{MemoryPolicy, RegionRefusal, region_flag};
use std::path::Path;

impl<R: Room> Book<R> {
    /// Who has a region of a device has the descriptor of all of it. So only those get one who could open the device themselves: the node's own
    /// user, and the device's.
    pub(super) fn may_use(&self, uid: u32, pool: usize) -> Result<(), Refused> {
        let device = &self.pools[pool].device;
        if self.uses(uid, pool) {
            return Ok(());
        }
        refuse(
            RegionRefusal::Denied,
            format!(
                "{} is for programs of the node's own user and of its owner: a region of it gives all of it to who opens it",
                device.path()
            ),
        )
    }

    /// (Two who have no number here look as if they were one user, and as the owner of a file whose owner has none.)
    fn uses(&self, uid: u32, pool: usize) -> bool {
        uid != self.anybody && (uid == self.own || self.pools[pool].device.owner() == Some(uid))
    }

    /// Refuses where a device is not this node's (any more).
    pub(super) fn check_ours(&mut self, pool: usize) -> Result<(), Refused> {
        let pool = &mut self.pools[pool];
        if pool.is_ours() {
            return Ok(());
        }
        let text = format!(
            "another node has {}, or a program has a region of a node that has ended: end that first",
            pool.device.path()
        );
        refuse(RegionRefusal::InUse, text)
    }

    /// The pool of the device that a new region is to be cut from.
    pub(super) fn pool(&mut self, call: &Call) -> Result<usize, Refused> {
        let Some(number) = self.pools.iter().position(|pool| pool.device.path() == call.device) else {
            let mine = (0..self.pools.len()).filter(|pool| self.uses(call.uid, *pool));
            let known: Vec<&str> = mine.map(|pool| self.pools[pool].device.path()).collect();
            let known = if known.is_empty() {
                "with none for this user".to_owned()
            } else {
                format!("with {}", known.join(", "))
            };
            return refuse(
                RegionRefusal::NotFound,
                format!(
                    "the node has no device {}: it was started {known} (--region-device PATH)",
                    call.device
                ),
            );
        };
        self.may_use(call.uid, number)?;
        if call.flags & region_flag::HUGE != 0 || call.policy != MemoryPolicy::Unset {
            return refuse(
                RegionRefusal::Invalid,
                "a device has pages of its own, and is where it is: leave --huge and --numa out",
            );
        }
        self.check_ours(number)?;
        Ok(number)
    }
}

/// Whom the kernel names for a user that has no number here: Linux says 65534 unless it was told otherwise.
pub(super) fn overflow_user(root: &Path) -> u32 {
    let told = std::fs::read_to_string(root.join("proc/sys/kernel/overflowuid")).ok();
    told.and_then(|text| text.trim().parse().ok()).unwrap_or(65534)
}
