//! How it begins: what a region is to have more gets its places, in stretches, and room.

use super::super::book::{Book, HUGE_PAGES, Refused, refuse};
use super::super::memory;
use super::super::placement::placement;
use super::super::pool::Clearing;
use super::super::room::{ROOM_TIME, Room};
use super::{Making, Memory, Part, Phase, Purpose, failed};
use loam_core::region::{BorrowerId, LeaseNumber, Span};
use loam_core::units::BasePages;
use loam_wire::RegionRefusal;
use loam_wire::limits::REGION_SPANS_MAX;
use std::sync::Arc;
use std::time::Instant;

impl<R: Room> Book<R> {
    /// Reserves base pages for a region, and begins to make their memory.
    ///
    /// # Panics
    /// If memory is being made already.
    pub(in crate::regions) fn begin_making(
        &mut self,
        purpose: Purpose,
        number: u64,
        connection: u64,
        pages: u64,
    ) -> Result<(), Refused> {
        assert!(self.making.is_none(), "one at a time");
        let region = match &purpose {
            Purpose::Create(region) => region,
            Purpose::Grow | Purpose::Cut(_) => &self.regions[&number],
        };
        let (huge, pool, policy, align) = (region.is_huge(), region.pool(), region.policy, region.align);
        let sizes = match purpose {
            Purpose::Cut(_) => vec![pages],
            _ => stretches(region.pages(), pages, align, region.pieces.len()),
        };
        self.memory_nodes.check(policy, BasePages(pages).bytes().0, huge)?;
        let mut making = Making {
            purpose,
            number,
            connection,
            pages,
            huge,
            policy,
            pool,
            phase: Phase::Memory,
            parts: Vec::new(),
            whole: 0,
            taken: 0,
            settled: 0,
        };
        let begun = self.reserve(&mut making, &sizes, align, policy);
        match begun {
            Ok(()) => {
                self.making = Some(making);
                Ok(())
            }
            Err(refused) => {
                self.undo(making);
                Err(refused)
            }
        }
    }

    fn reserve(
        &mut self,
        making: &mut Making,
        sizes: &[u64],
        align: u64,
        policy: loam_wire::MemoryPolicy,
    ) -> Result<(), Refused> {
        let failed = |why: std::io::Error| failed(making.pool.is_some(), making.huge, making.pages, &why);
        for pages in sizes {
            let bytes = BasePages(*pages).bytes().0;
            let lease = if matches!(making.purpose, Purpose::Cut(_)) {
                None
            } else {
                Some(self.lease(making.number, making.pool, *pages, align)?)
            };
            let memory = match (making.pool, lease) {
                (Some(pool), Some((_, span))) => {
                    let (device, offset) =
                        (Arc::clone(&self.pools[pool].device), BasePages(span.first).bytes().0);
                    Clearing::begin(device, offset, bytes).map(Memory::Device)
                }
                _ => memory::Making::begin(bytes, making.huge, placement(policy)).map(Memory::New),
            };
            match memory {
                Ok(memory) => making.parts.push(Part { lease, memory }),
                Err(why) => {
                    if let Some((lease, span)) = lease {
                        let freed = self.spans_of(making.pool).keep(BorrowerId(making.number), lease, 0);
                        assert_eq!(freed, Some(span));
                    }
                    return Err(failed(why));
                }
            }
        }
        // Huge pages are set aside already, if at all: whether there are any is seen before runs lose copies.
        if making.pool.is_none() && !making.huge {
            self.take_room(making)?;
        }
        Ok(())
    }

    fn lease(
        &mut self,
        number: u64,
        pool: Option<usize>,
        pages: u64,
        align: u64,
    ) -> Result<(LeaseNumber, Span), Refused> {
        let spans = self.spans_of(pool);
        // Where it can be had, a stretch begins where the processor's table can have one entry for a large page.
        let large = if align < HUGE_PAGES && pages >= HUGE_PAGES { HUGE_PAGES } else { align };
        let reserved = spans.reserve(BorrowerId(number), pages, large);
        let Ok(reserved) = reserved.or_else(|_| spans.reserve(BorrowerId(number), pages, align)) else {
            let (size, limit) = (BasePages(pages).bytes(), BasePages(spans.limit()).bytes());
            let left = BasePages(spans.limit() - spans.used()).bytes();
            let of = match pool {
                None => format!("of {limit} that this node lends, regions may still get {left}"),
                Some(pool) => format!(
                    "{} has {limit}, and {left} of them left, perhaps in pieces",
                    self.pools[pool].device.path()
                ),
            };
            return refuse(RegionRefusal::NoRoom, format!("{size} are not free: {of}"));
        };
        Ok(reserved)
    }

    pub(super) fn take_room(&self, making: &mut Making) -> Result<(), Refused> {
        self.room.take(BasePages(making.pages)).map_err(|why| (RegionRefusal::NoRoom, why))?;
        making.taken = making.pages;
        making.phase = Phase::Room { until: Instant::now() + ROOM_TIME };
        Ok(())
    }
}

/// How many base pages each stretch has by which a region of `have` in `pieces` stretches gets `more`. Pages can be put together to large ones where those
/// begin at such a one's multiple in the file and in the region. A stretch's file begins with it, so what fills up to there is one of its own, while there is no want
/// of stretches.
fn stretches(have: u64, more: u64, align: u64, pieces: usize) -> Vec<u64> {
    let fill = have.next_multiple_of(HUGE_PAGES) - have;
    if align >= HUGE_PAGES || fill == 0 || more < fill + HUGE_PAGES || pieces + 2 > REGION_SPANS_MAX / 2 {
        return vec![more];
    }
    vec![fill, more - fill]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_begin_where_large_pages_do() {
        let few = |have, more| stretches(have, more, 1, 1);
        assert_eq!(few(0, 5000), [5000]);
        assert_eq!(few(512, 5000), [5000]);
        assert_eq!(few(500, 5000), [12, 4988]);
        assert_eq!(few(500, 524), [12, 512], "a large page is behind it");
        assert_eq!(few(500, 523), [523], "none is");
        assert_eq!(stretches(500, 5000, 512, 1), [5000], "of huge pages");
        assert_eq!(stretches(500, 5000, 1, REGION_SPANS_MAX / 2 - 2).len(), 2);
        assert_eq!(stretches(500, 5000, 1, REGION_SPANS_MAX / 2 - 1).len(), 1, "there is want of them");
    }
}
