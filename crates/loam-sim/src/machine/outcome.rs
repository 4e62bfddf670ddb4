//! What a simulated run was.

use std::collections::BTreeMap;

/// One stage of the model: how busy it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageFigures {
    /// Its name.
    pub name: String,
    /// It worked for so long.
    pub busy_ns: u64,
    /// Messages stood before it for so long, all together.
    pub waited_ns: u64,
}

/// Figures of one run. The parts of its time are `exec`, `emulation`, `interrupt`, `sp_latency` and `page_wait`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// References of the program.
    pub references: u64,
    /// Pages that it touched.
    pub pages: u64,
    /// Pages that it had locally, at most.
    pub local_pages: u64,
    /// Page faults: nothing of the page was here or under way.
    pub faults: u64,
    /// Accesses that waited for a part of a page that was under way, or (fetch plan `lazy`) not asked for yet.
    pub part_faults: u64,
    /// Pages that left.
    pub evicted: u64,
    /// References × the model's time for one.
    pub exec_ns: u64,
    /// More for references that were emulated.
    pub emulation_ns: u64,
    /// The processor received messages while the program could have run.
    pub interrupt_ns: u64,
    /// Waits for the first subpage of a page.
    pub sp_latency_ns: u64,
    /// Waits for the rest of a page.
    pub page_wait_ns: u64,
    /// Of the waits: while another page was on its way, too, beyond its first subpage (overlapped I/O).
    pub io_overlap_ns: u64,
    /// The program ran while the rest of a page was on its way (overlapped execution).
    pub run_overlap_ns: u64,
    /// Bytes fetched.
    pub bytes_in: u64,
    /// Messages fetched.
    pub messages: u64,
    /// The model's stages.
    pub stages: Vec<StageFigures>,
    /// With details: what each page fault waited, then and later, for data on its page, in the order of the faults.
    pub waits_ns: Vec<u64>,
    /// With details: the first part of that, until the first subpage was there.
    pub first_waits_ns: Vec<u64>,
    /// With details: how many references there had been at each page fault.
    pub fault_at: Vec<u64>,
    /// With details: for each distance, in subpages, how often the first other subpage touched after a fault was so far from it.
    pub distances: BTreeMap<i32, u64>,
}

impl Outcome {
    /// How long the run took.
    pub fn total_ns(&self) -> u64 {
        self.exec_ns + self.emulation_ns + self.interrupt_ns + self.sp_latency_ns + self.page_wait_ns
    }

    /// A part of the run's time, from 0 to 1.
    pub fn share(&self, part_ns: u64) -> f64 {
        part_ns as f64 / self.total_ns().max(1) as f64
    }

    /// How much shorter this run is than `other`: 0.25 is a quarter less time.
    pub fn gain_over(&self, other: &Self) -> f64 {
        1.0 - self.total_ns() as f64 / other.total_ns().max(1) as f64
    }
}
