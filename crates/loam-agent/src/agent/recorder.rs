//! Recording a run for `--report`. Without it nothing here is done.

use super::Agent;
use crate::recording::{Moment, Recording};
use loam_core::borrower::FaultKind;
use loam_core::units::{BASE_PAGE_BYTES, Bytes, Duration, Instant};

impl Agent<'_> {
    /// A fault has been answered.
    pub(super) fn record_wait(&mut self, kind: FaultKind, wait: Duration) {
        if let Some(recording) = &mut self.report.recording {
            recording.waits.record(kind, wait);
        }
    }

    /// How the run stands now.
    pub(super) fn record_moment(&mut self, now: Instant) {
        let Some(recording) = &mut self.report.recording else { return };
        let stats = self.borrower.stats();
        let moment = Moment {
            answered: stats.answered,
            sp_latency: stats.first_wait,
            put_wait: Duration(stats.queued_wait.0 + self.throttle.waited.0),
            page_wait: stats.joined_wait,
            local: Bytes(self.watch.resident_pages * BASE_PAGE_BYTES as u64),
            lent: self.borrower.lent().bytes(),
            on_disk: self.borrower.on_disk().bytes(),
        };
        recording.timeline.record(now, moment);
    }

    /// What was recorded, when the run is over.
    pub(super) fn take_recording(&mut self) -> Option<Recording> {
        let mut recording = *self.report.recording.take()?;
        recording.next_distances = self.borrower.next_distances().collect();
        recording.sizes = self.report.sizes.clone();
        Some(recording)
    }
}
