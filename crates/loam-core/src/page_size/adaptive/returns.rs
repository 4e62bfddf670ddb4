//! How much of what leaves comes back before local memory has been turned over once more by what is wanted.
//!
//! What nobody wanted turns it over, too, and so much the faster that hardly anything comes back in time; but it need not be there. So it does not
//! count: what comes back within one turn of wanted base pages would have stayed if nothing else had come.

use super::super::{Brought, Left};
use crate::borrower::SpaceKey;
use crate::draw::Draw;
use crate::units::BasePages;
use alloc::collections::{BTreeMap, VecDeque};

/// Samples of one turn of memory.
const SAMPLES: u64 = 512;
/// Weight of the newest sample.
const NEWEST: f64 = 1.0 / 128.0;
/// The clock goes by such parts of a base page.
const FINE: u64 = 256;

/// Watches a sample of the base pages that leave.
#[derive(Debug, Default)]
pub(super) struct Returns {
    /// Base pages that may be local.
    limit: u64,
    /// Wanted base pages that have left so far, in parts of one.
    clock: u64,
    watched: BTreeMap<(SpaceKey, u64), u64>,
    order: VecDeque<((SpaceKey, u64), u64)>,
    share: f64,
}

impl Returns {
    pub(super) fn limited(&mut self, limit: BasePages) {
        self.limit = limit.0;
    }

    /// Base pages that may be local.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Wanted base pages that have left so far.
    pub(super) fn clock(&self) -> u64 {
        self.clock / FINE
    }

    /// The share of base pages that come back within one turn.
    pub(super) fn share(&self) -> f64 {
        self.share
    }

    /// A page leaves, of which `wanted` is the share that is believed to have been wanted.
    pub(super) fn left(&mut self, page: &Left, wanted: f64, draw: &mut Draw) {
        let wanted = (page.pages.0 as f64 * FINE as f64 * wanted) as u64;
        self.clock += wanted;
        let turn = self.limit * FINE;
        while let Some(&(at, left)) = self.order.front() {
            if self.clock - left < turn && self.order.len() <= 2 * SAMPLES as usize {
                break;
            }
            self.order.pop_front();
            if self.watched.get(&at) == Some(&left) {
                self.watched.remove(&at);
                self.see(0.0);
            }
        }
        if draw.below((turn / SAMPLES).max(1)) < wanted {
            let at = (page.first.space, page.first.base + draw.below(page.size.base_pages()));
            self.watched.insert(at, self.clock);
            self.order.push_back((at, self.clock));
        }
    }

    /// A page comes, of which `wanted` is the share that is expected to be wanted.
    pub(super) fn brought(&mut self, page: &Brought, wanted: f64) {
        let first = page.size.first(page.fault.base);
        let (space, n) = (page.fault.space, page.size.base_pages());
        let came: Option<(SpaceKey, u64)> =
            self.watched.range((space, first)..(space, first + n)).next().map(|(&at, _)| at);
        if let Some(at) = came {
            self.watched.remove(&at);
            // The page has come back, and with it what nobody asks for.
            self.see(if at.1 == page.fault.base { 1.0 } else { wanted });
        }
    }

    fn see(&mut self, returned: f64) {
        self.share += (returned - self.share) * NEWEST;
    }
}
