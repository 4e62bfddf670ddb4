//! The run over time, in slices that become longer as the run does.

use loam_core::units::{Bytes, Duration, Instant};

/// Most slices.
pub const SLICES_MAX: usize = 2048;
/// Length of a slice at first.
const SLICE_FIRST: Duration = Duration::from_millis(1);

/// What is known of a run at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Faults answered so far, by [`loam_core::borrower::FaultKind`] in its order.
    pub answered: [u64; 5],
    /// Time so far in which a thread waited for the page that it touched.
    pub sp_latency: Duration,
    /// Time so far in which threads waited only because there was no room.
    pub put_wait: Duration,
    /// Time so far in which threads waited only for what had been asked for.
    pub page_wait: Duration,
    /// Resident here.
    pub local: Bytes,
    /// With lenders, and on their way there.
    pub lent: Bytes,
    /// In the slot file.
    pub on_disk: Bytes,
}

impl Moment {
    /// One moment for both: of what only grows the later value, of sizes the larger one.
    fn then(self, later: Self) -> Self {
        Self {
            local: self.local.max(later.local),
            lent: self.lent.max(later.lent),
            on_disk: self.on_disk.max(later.on_disk),
            ..later
        }
    }
}

/// A run's moments, one for each slice of its time in which anything was seen. Takes 250 KB however long the run is.
#[derive(Clone, Debug)]
pub struct Timeline {
    slice: Duration,
    slices: Vec<Option<Moment>>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { slice: SLICE_FIRST, slices: Vec::new() }
    }
}

impl Timeline {
    /// How the run stands at `now`, which never runs backwards.
    pub fn record(&mut self, now: Instant, moment: Moment) {
        while self.index(now) >= SLICES_MAX {
            self.halve();
        }
        let index = self.index(now);
        assert!(index + 1 >= self.slices.len(), "time ran backwards");
        self.slices.resize(index + 1, None);
        let slice = &mut self.slices[index];
        *slice = Some(slice.map_or(moment, |before| before.then(moment)));
    }

    /// The length of a slice.
    pub fn slice(&self) -> Duration {
        self.slice
    }

    /// Each slice's end and how the run stood there, sizes being the largest in the slice. A slice in which nothing was seen is left out.
    pub fn moments(&self) -> impl Iterator<Item = (Instant, Moment)> + '_ {
        let at = |index: usize| Instant(self.slice.0.saturating_mul(index as u64 + 1));
        self.slices.iter().enumerate().filter_map(move |(index, slice)| Some((at(index), (*slice)?)))
    }

    fn index(&self, now: Instant) -> usize {
        (now.0 / self.slice.0) as usize
    }

    /// Half the resolution, half the slices.
    fn halve(&mut self) {
        self.slice = Duration(self.slice.0 * 2);
        let pair = |two: &[Option<Moment>]| match two {
            [Some(one), Some(next)] => Some(one.then(*next)),
            _ => two.iter().copied().flatten().next(),
        };
        self.slices = self.slices.chunks(2).map(pair).collect();
    }

    pub(super) fn bytes(&self) -> usize {
        self.slices.capacity() * size_of::<Option<Moment>>()
    }
}
