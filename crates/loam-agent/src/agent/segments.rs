//! Shared memory that several processes of the tree have: the buffers of a database and its backends, arrays that workers share.
//!
//! Each process that has touched a page of it counts that as resident, so ten workers with one array of a gigabyte would look as if ten were here, and all else would have to
//! leave for it. Only the shares in `smaps_rollup` tell how much there is. Between two looks at those as much is taken to be here as at the last, but no less than one
//! process has by itself, and no more than all of them together: memory that is new is mostly filled by one first, and what the others touch after it is not new.

use super::slow_look::SlowLook;
use crate::procfs::{self, ProcError};
use loam_core::units::{Duration, Instant};
use rustix::process::Pid;

/// Up to this (4 MiB, and one for each process: it shares some with us) it may count once for each.
const AGAIN_PAGES: u64 = 4 << 8;
const AGAIN_PAGES_EACH: u64 = 1 << 8;
/// The shares are asked for again when what the processes have, each by itself, has changed by this part of what there is and by a mebibyte, and after this long: others may be in
/// it by then.
const CHANGED_SHARE: u64 = 32;
const CHANGED_PAGES: u64 = 256;
const STALE: Duration = Duration::from_millis(10_000);
/// As long there may be no answer to the first question (later, as long as one holds): then all count in full until there is one.
const ANSWERED_WITHIN: Duration = Duration::from_millis(1_000);
/// Between looks: this many times what a look takes.
const REST_SHARE: u32 = 3;

#[derive(Clone, Copy, Debug)]
struct Answer {
    held: u64,
    /// What the processes had by the figures with which this was asked, and when that was.
    sum: u64,
    at: Instant,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Segments {
    look: SlowLook<(Vec<(Pid, u64)>, Instant), Answer>,
    known: Option<Answer>,
    /// Since when there has been no answer.
    asked: Option<Instant>,
}

impl Segments {
    /// Base pages of shared memory that are here, of processes that have so many each.
    pub(super) fn pages(&mut self, now: Instant, each: &[(Pid, u64)]) -> u64 {
        let sum = each.iter().map(|one| one.1).sum();
        let largest = each.iter().map(|one| one.1).max().unwrap_or(0);
        if let Some(answer) = self.look.take() {
            tracing::trace!(?answer, sum, "shared memory");
            (self.known, self.asked) = (Some(answer), None);
        }
        if sum - largest <= AGAIN_PAGES + AGAIN_PAGES_EACH * each.len() as u64 {
            self.asked = None;
            return sum;
        }
        let is_fresh = self.known.is_some_and(|known| {
            let changed = known.sum.abs_diff(sum);
            changed <= CHANGED_PAGES.max(known.held / CHANGED_SHARE) && now - known.at < STALE
        });
        if is_fresh {
            self.asked = None;
        } else {
            let have: Vec<_> = each.iter().filter(|one| one.1 > 0).copied().collect();
            let is_asked = self.look.ask((have, now), "loam-segments", REST_SHARE, look);
            let within = if self.known.is_some() { STALE } else { ANSWERED_WITHIN };
            if !is_asked || now - *self.asked.get_or_insert(now) >= within {
                return sum;
            }
        }
        self.known.map_or(largest, |known| known.held.clamp(largest, sum))
    }
}

fn look((each, at): (Vec<(Pid, u64)>, Instant)) -> Answer {
    let sum = each.iter().map(|one| one.1).sum();
    let before = in_full(&each);
    // Who does not say counts in full, and who has ended has nothing.
    let held: u64 = each
        .iter()
        .map(|&(pid, pages)| procfs::shared_pages(pid).unwrap_or_else(|error| unknown(&error, pages)))
        .sum();
    // What others began to share after one of them was looked at was counted for him alone, and in part for them. (What is new is missed for as long: it is asked again.)
    Answer { held: held.saturating_sub(in_full(&each).saturating_sub(before)), sum, at }
}

/// What they have by now, each by itself.
fn in_full(each: &[(Pid, u64)]) -> u64 {
    let of =
        |pid, pages| procfs::files_of(pid).map_or_else(|error| unknown(&error, pages), |files| files.shared);
    each.iter().map(|&(pid, pages)| of(pid, pages)).sum()
}

fn unknown(error: &ProcError, pages: u64) -> u64 {
    if matches!(error, ProcError::Gone { .. }) { 0 } else { pages }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(held: u64, sum: u64) -> Segments {
        Segments { known: Some(Answer { held, sum, at: Instant(0) }), ..Segments::default() }
    }

    fn pages(segments: &mut Segments, each: &[u64]) -> u64 {
        let pid = rustix::process::getpid();
        let each: Vec<_> = each.iter().map(|pages| (pid, *pages)).collect();
        segments.pages(Instant(0), &each)
    }

    #[test]
    fn no_less_than_one_has_and_no_more_than_all_have() {
        let counted = |held, each: &[u64]| pages(&mut known(held, each.iter().sum()), each);
        assert_eq!(counted(5_000, &[4_000, 4_000, 4_000]), 5_000);
        assert_eq!(counted(0, &[4_000, 4_500, 4_000]), 4_500);
        assert_eq!(counted(1 << 40, &[4_000, 4_500, 4_000]), 12_500);
        // So little may count for each.
        assert_eq!(counted(0, &[4_000, AGAIN_PAGES]), 4_000 + AGAIN_PAGES);
        assert_eq!(counted(0, &[]), 0);
    }

    #[test]
    fn it_is_asked_once_until_something_changes() {
        let mut segments = known(8_000, 12_000);
        assert_eq!(pages(&mut segments, &[4_000, 4_000, 4_000 + 8_000 / CHANGED_SHARE]), 8_000);
        assert!(!segments.look.has_thread());
        // What the one has by itself while nobody has answered, and then what all have by the kernel's word: this very process, three times.
        assert_eq!(pages(&mut Segments::default(), &[4_000, 6_000]), 6_000);
        assert_eq!(pages(&mut segments, &[4_000, 4_000, 6_000]), 8_000);
        assert!(segments.look.has_thread());
        let began = std::time::Instant::now();
        while segments.known.is_some_and(|known| known.held == 8_000) {
            assert!(began.elapsed() < std::time::Duration::from_secs(20), "{segments:?}");
            std::thread::sleep(std::time::Duration::from_millis(1));
            pages(&mut segments, &[4_000, 4_000, 6_000]);
        }
    }
}
