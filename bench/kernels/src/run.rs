//! Runs a kernel part by part.

use crate::catalogue::Info;
use crate::check::Check;
use crate::kernel::Kernel;
use crate::memory::Memory;

/// A kernel on its way. Each [`step`](Run::step) is one part of one iteration, so a caller may look at what the memory has noted in between.
pub struct Run<M: Memory> {
    info: &'static Info,
    problem: usize,
    memory: M,
    kernel: Box<dyn Kernel>,
    iterations: u32,
    iteration: u32,
    part: usize,
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The kernel's name.
    pub name: &'static str,
    /// The problem number.
    pub problem: usize,
    /// Bytes of its arrays.
    pub bytes: u64,
    /// Iterations that were run.
    pub iterations: u32,
    /// Of the result.
    pub checksum: u64,
    /// What was looked at.
    pub checks: Vec<Check>,
}

impl Report {
    /// All is as it must be.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.passed)
    }
}

impl<M: Memory> Run<M> {
    /// Makes the kernel and its input, which belongs to part 0.
    ///
    /// # Panics
    /// If the problem number is out of range, or there are no iterations.
    pub fn new(info: &'static Info, problem: usize, iterations: u32, memory: M) -> Self {
        assert!(iterations > 0, "a result needs an iteration");
        memory.part(0);
        let kernel = info.build(problem, &memory);
        Self { info, problem, memory, kernel, iterations, iteration: 0, part: 0 }
    }

    /// Marks and runs the next part. False: all iterations have been run.
    pub fn step(&mut self) -> bool {
        if self.iteration == self.iterations {
            return false;
        }
        self.memory.part(self.part as u32 + 1);
        self.kernel.run_part(self.part);
        self.part += 1;
        if self.part == self.info.parts.len() {
            self.part = 0;
            self.iteration += 1;
        }
        true
    }

    /// Damages the result, to see that it is noticed.
    pub fn corrupt(&mut self, seed: u64) {
        self.kernel.corrupt(seed);
    }

    /// Looks at the result.
    ///
    /// # Panics
    /// If there are iterations left.
    pub fn finish(mut self) -> Report {
        assert!(self.iteration == self.iterations && self.part == 0, "the run is not over");
        self.memory.part(0);
        // The checksum first: a kernel may need its arrays to check with.
        let checksum = self.kernel.checksum();
        let checks = self.kernel.verify(self.iterations);
        assert!(!checks.is_empty(), "a result that nobody looked at is none");
        Report {
            name: self.info.name,
            problem: self.problem,
            bytes: self.info.bytes(self.problem),
            iterations: self.iterations,
            checksum,
            checks,
        }
    }
}
