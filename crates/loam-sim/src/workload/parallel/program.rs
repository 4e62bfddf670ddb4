//! What all programs share: an algorithm, divided among processors, in a memory that notes its touches.

use super::memory::{Recorder, Space};
use super::{ParallelProgram, Touch};
use crate::fuzz::dice::Dice;
use crate::workload::Scale;
use std::ops::Range;

/// Processors that a program can be divided among, at most.
pub const PROCESSORS_MAX: usize = 64;

/// One parallel algorithm and its data.
pub(super) trait Algorithm: Send {
    /// As in the paper.
    const NAME: &'static str;

    /// With its input in the memory.
    fn new(scale: Scale, processors: usize, space: &mut Space) -> Self;

    /// See [`ParallelProgram::phases`].
    fn phases(&self) -> usize;

    /// One processor's part of a phase.
    fn run(&mut self, phase: usize, processor: usize, recorder: &mut Recorder<'_>);

    /// See [`ParallelProgram::check`].
    fn check(&self) -> Result<Vec<String>, String>;
}

/// An algorithm as a program.
pub(super) struct Program<A> {
    algorithm: A,
    processors: usize,
    shared_bytes: u64,
    /// The phase that runs.
    phase: usize,
    /// Which processors have run in it.
    ran: u64,
}

impl<A: Algorithm> Program<A> {
    /// # Panics
    /// If there are no processors, or more than [`PROCESSORS_MAX`].
    pub(super) fn new(scale: Scale, processors: usize) -> Self {
        assert!((1..=PROCESSORS_MAX).contains(&processors), "from 1 to {PROCESSORS_MAX} processors");
        let mut space = Space::default();
        let algorithm = A::new(scale, processors, &mut space);
        Self { algorithm, processors, shared_bytes: space.bytes(), phase: 0, ran: 0 }
    }

    /// All processors, as in [`Program::ran`].
    fn everyone(&self) -> u64 {
        u64::MAX >> (PROCESSORS_MAX - self.processors)
    }
}

impl<A: Algorithm> ParallelProgram for Program<A> {
    fn name(&self) -> &'static str {
        A::NAME
    }

    fn shared_bytes(&self) -> u64 {
        self.shared_bytes
    }

    fn processors(&self) -> usize {
        self.processors
    }

    fn phases(&self) -> usize {
        self.algorithm.phases()
    }

    /// # Panics
    /// If a phase is left out or begins before the one before it has ended, or a processor runs twice in one.
    fn run(&mut self, phase: usize, processor: usize, into: &mut Vec<Touch>) {
        assert!(phase < self.phases() && processor < self.processors, "no such phase or processor");
        if phase != self.phase && self.ran == self.everyone() {
            (self.phase, self.ran) = (self.phase + 1, 0);
        }
        let bit = 1 << processor;
        assert!(phase == self.phase, "phase {phase} while {} is not done", self.phase);
        assert!(self.ran & bit == 0, "processor {processor} has run in phase {phase}");
        self.ran |= bit;
        self.algorithm.run(phase, processor, &mut Recorder::new(into));
    }

    fn check(&self) -> Result<Vec<String>, String> {
        if self.phase + 1 < self.phases() || self.ran != self.everyone() {
            return Err(format!("{} has not run to its end", A::NAME));
        }
        self.algorithm.check()
    }
}

/// A processor's share of so many things: neighbours, as many as the others' or one more or less.
pub(super) fn share(things: usize, processors: usize, processor: usize) -> Range<usize> {
    things * processor / processors..things * (processor + 1) / processors
}

/// A random number in [-1, 1), of 53 bits.
pub(super) fn uniform(dice: &mut Dice) -> f64 {
    dice.below(1 << 53) as f64 / (1_u64 << 52) as f64 - 1.0
}
