//! Finds what one processor writes and another one touches between two barriers.

use super::memory::{Recorder, Shared, Space};
use super::program::{Algorithm, Program, share};
use super::{ParallelProgram, Scale, Touch, TouchKind};

/// Nobody wrote a byte.
const NOBODY: u8 = u8::MAX;

/// Runs a program, and checks that its phases are free of data races.
///
/// # Errors
/// The first race.
pub(super) fn find(program: &mut dyn ParallelProgram) -> Result<(), String> {
    let mut writers = vec![NOBODY; program.shared_bytes() as usize];
    let bytes = |touch: &Touch| touch.address as usize..touch.address as usize + touch.bytes as usize;
    let mut touches: Vec<Vec<Touch>> = vec![Vec::new(); program.processors()];
    for phase in 0..program.phases() {
        for (processor, touches) in touches.iter_mut().enumerate() {
            touches.clear();
            program.run(phase, processor, touches);
        }
        for kind in [TouchKind::Write, TouchKind::Read] {
            for (processor, touches) in touches.iter().enumerate() {
                for touch in touches.iter().filter(|touch| touch.kind == kind) {
                    let touched = &mut writers[bytes(touch)];
                    let others = |&writer: &u8| writer != NOBODY && writer != processor as u8;
                    if let Some(at) = touched.iter().position(others) {
                        let (at, writer) = (touch.address + at as u64, touched[at]);
                        return Err(format!(
                            "phase {phase}: {processor} touches byte {at} ({kind:?}), which {writer} writes"
                        ));
                    }
                    if kind == TouchKind::Write {
                        touched.fill(processor as u8);
                    }
                }
            }
        }
        let written = touches.iter().flatten().filter(|touch| touch.kind == TouchKind::Write);
        written.for_each(|touch| writers[bytes(touch)].fill(NOBODY));
    }
    Ok(())
}

const ELEMENTS: usize = 64;

/// Each element takes its left neighbour's value. What is at the right end of one processor's share is read by the
/// next: without a barrier between reading and writing, that is a race.
struct Shift<const BARRIER: bool> {
    processors: usize,
    values: Shared<u32>,
    /// What each processor has read.
    read: Vec<Vec<u32>>,
}

impl<const BARRIER: bool> Algorithm for Shift<BARRIER> {
    const NAME: &'static str = "shift";

    fn new(_: Scale, processors: usize, space: &mut Space) -> Self {
        let values = space.array((0..ELEMENTS as u32).collect());
        Self { processors, values, read: vec![vec![]; processors] }
    }

    fn phases(&self) -> usize {
        if BARRIER { 2 } else { 1 }
    }

    fn run(&mut self, phase: usize, processor: usize, recorder: &mut Recorder<'_>) {
        let own = share(ELEMENTS - 1, self.processors, processor);
        if phase == 0 {
            self.read[processor] = recorder.read(&self.values, own.clone()).to_vec();
        }
        if phase + 1 == self.phases() {
            recorder
                .write(&mut self.values, own.start + 1..own.end + 1)
                .copy_from_slice(&self.read[processor]);
        }
    }

    fn check(&self) -> Result<Vec<String>, String> {
        let expected = (0..ELEMENTS as u32).map(|at| at.saturating_sub(1));
        if expected.eq(self.values.values().iter().copied()) { Ok(vec![]) } else { Err("not shifted".into()) }
    }
}

#[test]
fn a_race_is_found_and_is_one() {
    let mut right = Program::<Shift<true>>::new(Scale::Small, 4);
    assert_eq!(find(&mut right), Ok(()));
    assert!(right.check().is_ok());
    let mut racy = Program::<Shift<false>>::new(Scale::Small, 4);
    // The race that the search meets first, among writers and readers in their order.
    assert_eq!(find(&mut racy), Err("phase 0: 1 touches byte 60 (Read), which 0 writes".into()));
    assert!(racy.check().is_err(), "one after the other is not what all at once would do");
    let mut alone = Program::<Shift<false>>::new(Scale::Small, 1);
    assert_eq!(find(&mut alone), Ok(()));
    assert!(alone.check().is_ok());
}

/// Two processors that write the same byte.
struct Clash(Shared<u8>);

impl Algorithm for Clash {
    const NAME: &'static str = "clash";

    fn new(_: Scale, _: usize, space: &mut Space) -> Self {
        Self(space.array(vec![0; 10]))
    }

    fn phases(&self) -> usize {
        1
    }

    fn run(&mut self, _: usize, processor: usize, recorder: &mut Recorder<'_>) {
        recorder.write(&mut self.0, processor * 4..processor * 4 + 5)[4] = 1;
    }

    fn check(&self) -> Result<Vec<String>, String> {
        Ok(vec![])
    }
}

#[test]
fn two_writers_are_a_race() {
    let found = find(&mut Program::<Clash>::new(Scale::Small, 2));
    assert_eq!(found, Err("phase 0: 1 touches byte 4 (Write), which 0 writes".into()));
}
