//! Which faults are a sequential scan's.

use crate::ids::{PageId, SpaceId};

/// Scans watched at a time.
const STREAMS: usize = 8;
/// So many pages one after the other are a scan.
const RUN_MIN: u32 = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    space: SpaceId,
    next: u64,
    run: u32,
}

/// The streams seen last, the latest first.
#[derive(Debug, Default)]
pub(super) struct Scans([Stream; STREAMS]);

impl Scans {
    /// A fault on `page`: is it part of a scan?
    pub(super) fn is_scan(&mut self, page: PageId) -> bool {
        let known = self
            .0
            .iter()
            .position(|stream| stream.run > 0 && stream.space == page.space && stream.next == page.index);
        let run = known.map_or(0, |at| self.0[at].run);
        self.0[..=known.unwrap_or(STREAMS - 1)].rotate_right(1);
        self.0[0] =
            Stream { space: page.space, next: page.index.wrapping_add(1), run: run.saturating_add(1) };
        self.0[0].run >= RUN_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_scans_are_found_and_jumps_are_not() {
        let mut scans = Scans::default();
        let page = |space, index| PageId { space: SpaceId(space), index };
        for index in 0..15 {
            assert!(!scans.is_scan(page(1, index)) && !scans.is_scan(page(2, 100 + index)));
        }
        assert!(scans.is_scan(page(1, 15)) && scans.is_scan(page(2, 115)));
        assert!(!scans.is_scan(page(1, 50)));
        assert!(scans.is_scan(page(1, 16)), "the stream is still known");
        for other in 0..STREAMS as u64 {
            assert!(!scans.is_scan(page(3, other * 10)));
        }
        assert!(!scans.is_scan(page(1, 17)), "too many others came between");
    }
}
