//! From single accesses to runs.

use super::{GRAIN_BYTES, Run};

/// Largest access that is believed: the widest that processors have (saving all vector registers) is below
/// it.
pub(super) const ACCESS_BYTES_MAX: u64 = 4096;

/// Joins consecutive accesses to one grain.
#[derive(Debug, Default)]
pub struct Collapse {
    open: Option<Run>,
}

impl Collapse {
    /// Takes one access of `bytes` bytes (at least 1). An access that straddles grains is a reference to each
    /// of them. A run that is over goes to `into`.
    ///
    /// # Panics
    /// If `bytes` is 0: the reader of a format refuses that.
    pub fn access(&mut self, address: u64, bytes: u64, writes: bool, into: &mut Vec<Run>) {
        assert!(bytes > 0, "an access has a size");
        // The last byte of memory is not wrapped around.
        let last = address.saturating_add(bytes - 1) / GRAIN_BYTES;
        for grain in address / GRAIN_BYTES..=last {
            self.add(Run { grain, references: 1, writes }, into);
        }
    }

    /// Takes a run.
    pub fn add(&mut self, run: Run, into: &mut Vec<Run>) {
        if let Some(open) = &mut self.open
            && open.grain == run.grain
            && let Some(references) = open.references.checked_add(run.references)
        {
            open.references = references;
            open.writes |= run.writes;
            return;
        }
        into.extend(self.open.replace(run));
    }

    /// The end: the run that is still open goes to `into`.
    pub fn end(&mut self, into: &mut Vec<Run>) {
        into.extend(self.open.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_time_on_one_grain_are_one_run() {
        let (mut collapse, mut runs) = (Collapse::default(), Vec::new());
        for (address, bytes, writes) in
            [(0x100, 8, false), (0x1f8, 8, true), (0x1fc, 8, false), (0x200, 1, false)]
        {
            collapse.access(address, bytes, writes, &mut runs);
        }
        collapse.end(&mut runs);
        let run = |grain, references, writes| Run { grain, references, writes };
        assert_eq!(runs, [run(1, 3, true), run(2, 2, false)]);
    }

    #[test]
    fn the_end_of_memory_and_a_full_count_are_no_overflow() {
        let (mut collapse, mut runs) = (Collapse::default(), Vec::new());
        collapse.access(u64::MAX, 64, false, &mut runs);
        let run = Run { grain: u64::MAX / GRAIN_BYTES, references: u32::MAX, writes: false };
        collapse.add(run, &mut runs);
        collapse.end(&mut runs);
        assert_eq!(runs, [Run { references: 1, ..run }, run]);
    }
}
