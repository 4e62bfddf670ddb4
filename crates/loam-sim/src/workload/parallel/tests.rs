//! What every program must do.

use super::memory::{Recorder, Space};
use super::program::Algorithm;
use super::*;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Numbers of processors, one of them not a power of two.
const SOME: [usize; 4] = [1, 3, 8, 64];
/// The paper's.
const PAPER: usize = 8;
/// Megabytes of table 2.
const PAPER_MB: [f64; 7] = [2.5, 3.1, 2.3, 2.7, 2.4, 2.6, 2.6];

fn program(name: &str, scale: Scale, processors: usize) -> Box<dyn ParallelProgram> {
    parallel_by_name(name, scale, processors).expect("it is a name")
}

/// Calls a test for all programs and these numbers of processors.
fn each(processors: impl IntoIterator<Item = usize>, mut test: impl FnMut(&str, usize)) {
    for processors in processors {
        PARALLEL_NAMES.iter().for_each(|name| test(name, processors));
    }
}

/// Runs all of it; in each phase the last processor first, or the first one.
fn run(program: &mut dyn ParallelProgram, backwards: bool, mut look: impl FnMut(usize, usize, &[Touch])) {
    let (count, mut touches) = (program.processors(), Vec::new());
    for (phase, at) in (0..program.phases()).flat_map(|phase| (0..count).map(move |at| (phase, at))) {
        let processor = if backwards { count - 1 - at } else { at };
        touches.clear();
        program.run(phase, processor, &mut touches);
        look(phase, processor, &touches);
    }
}

#[test]
fn results_are_right_for_any_number_of_processors() {
    let right = |name: &str, scale, processors| {
        let mut program = program(name, scale, processors);
        run(&mut *program, false, |_, _, _| ());
        let lines = program.check().unwrap_or_else(|wrong| panic!("{name} by {processors}: {wrong}"));
        assert!(!lines.is_empty(), "{name} says nothing");
        assert_eq!((program.name(), program.processors()), (name, processors));
    };
    each(1..=PROCESSORS_MAX, |name, processors| right(name, Scale::Small, processors));
    each(SOME, |name, processors| right(name, Scale::Paper, processors));
}

/// What is printed is in `docs/simulator-workloads.md`.
#[test]
fn the_papers_programs_are_of_its_size() {
    for (name, megabytes) in PARALLEL_NAMES.into_iter().zip(PAPER_MB) {
        let mut program = program(name, Scale::Paper, PAPER);
        let (mut touches, mut instructions) = (0, 0);
        run(&mut *program, false, |_, _, some| {
            touches += some.len();
            instructions += some.iter().map(|touch| u64::from(touch.busy_cycles)).sum::<u64>();
        });
        let (bytes, phases) = (program.shared_bytes(), program.phases());
        println!("{name}: {bytes} bytes, {phases} phases, {touches} touches, {instructions} instructions");
        println!("    {}", program.check().expect("it is right").join("; "));
        let off = bytes as f64 / 1e6 - megabytes;
        assert!(off.abs() < 0.06, "{name} has {bytes} bytes, the paper's {megabytes} MB");
        assert!(touches < 4_000_000, "{name} has {touches} touches");
    }
}

/// It depends neither on what ran before nor on the processors' order in a phase.
#[test]
fn a_program_has_one_stream() {
    each([3, 64], |name, processors| {
        let [first, again, backwards] = [false, false, true].map(|backwards| {
            let mut program = program(name, Scale::Small, processors);
            let mut hashes = vec![0; program.phases() * processors];
            run(&mut *program, backwards, |phase, processor, touches| {
                let mut hasher = DefaultHasher::new();
                touches.hash(&mut hasher);
                hashes[phase * processors + processor] = hasher.finish();
            });
            assert!(program.check().is_ok(), "{name} by {processors}");
            hashes
        });
        assert!(first == again, "{name} by {processors} differs when run again");
        assert!(first == backwards, "{name} by {processors} differs when run backwards");
    });
}

#[test]
fn touches_stay_in_a_page_and_in_memory_and_leave_little_of_it_alone() {
    // Arrays begin pages, and small ones leave most of theirs.
    for (scale, least) in [(Scale::Small, 0.2), (Scale::Paper, 0.97)] {
        each([PAPER], |name, processors| {
            let mut program = program(name, scale, processors);
            let end = program.shared_bytes();
            let mut touched = vec![false; end as usize];
            run(&mut *program, false, |_, _, touches| {
                for touch in touches {
                    let last = touch.address + u64::from(touch.bytes) - 1;
                    assert!(touch.bytes > 0 && last < end, "{name}: {touch:?} is outside of {end} bytes");
                    assert_eq!(
                        touch.address / PAGE_BYTES,
                        last / PAGE_BYTES,
                        "{name}: {touch:?} crosses a page"
                    );
                    touched[touch.address as usize..=last as usize].fill(true);
                }
            });
            let share = touched.iter().filter(|&&touched| touched).count() as f64 / end as f64;
            assert!(share > least, "{name} touches {share:.2} of its memory");
        });
    }
}

/// All processors together do the same, however many they are, but for what each does once (radix: some instructions
/// for each digit).
#[test]
fn work_is_divided() {
    for name in PARALLEL_NAMES {
        let [alone, together] = [1, PAPER].map(|processors| {
            let mut instructions = vec![0; processors];
            run(&mut *program(name, Scale::Paper, processors), false, |_, processor, touches| {
                instructions[processor] +=
                    touches.iter().map(|touch| u64::from(touch.busy_cycles)).sum::<u64>();
            });
            instructions
        });
        let whole: u64 = together.iter().sum();
        assert!((1.0..1.03).contains(&(whole as f64 / alone[0] as f64)), "{name}: {alone:?}, {together:?}");
        let (least, most) = (together.iter().min().expect("one"), together.iter().max().expect("one"));
        assert!(*least as f64 > 0.8 * *most as f64, "{name} is divided unfairly: {together:?}");
    }
}

#[test]
fn phases_are_free_of_races() {
    let free = |name: &str, scale, processors| {
        let found = races::find(&mut *program(name, scale, processors));
        assert_eq!(found, Ok(()), "{name} by {processors}");
    };
    each(SOME, |name, processors| free(name, Scale::Small, processors));
    each([PAPER], |name, processors| free(name, Scale::Paper, processors));
}

#[test]
fn a_result_is_not_checked_before_the_end() {
    each([1, 2], |name, processors| {
        let mut program = program(name, Scale::Small, processors);
        for call in 0..program.phases() * processors {
            assert!(program.check().is_err(), "{name} after {call} calls");
            program.run(call / processors, call % processors, &mut vec![]);
        }
        assert!(program.check().is_ok(), "{name}");
    });
}

/// A check would be worth nothing if it did not notice that a single part of the work was left out: the last one,
/// which nothing mends afterwards.
fn check_after_an_omission<A: Algorithm>() {
    let processors = 3;
    let outcome = |omitted: Option<(usize, usize)>| {
        let mut algorithm = A::new(Scale::Small, processors, &mut Space::default());
        let (mut touches, mut last) = (Vec::new(), None);
        for at in (0..algorithm.phases()).flat_map(|phase| (0..processors).map(move |at| (phase, at))) {
            if Some(at) != omitted {
                touches.clear();
                algorithm.run(at.0, at.1, &mut Recorder::new(&mut touches));
                last = if touches.is_empty() { last } else { Some(at) };
            }
        }
        (algorithm.check(), last)
    };
    let (right, last) = outcome(None);
    assert!(right.is_ok(), "{}: {right:?}", A::NAME);
    let wrong = outcome(last).0;
    assert!(wrong.is_err(), "{}: nobody notices that {last:?} was left out: {wrong:?}", A::NAME);
}

#[test]
fn checks_notice_what_was_left_out() {
    check_after_an_omission::<em3d::Em3d>();
    check_after_an_omission::<fft::Fft>();
    check_after_an_omission::<gauss::Gauss>();
    check_after_an_omission::<lu::Lu>();
    check_after_an_omission::<mg::Mg>();
    check_after_an_omission::<radix::Radix>();
    check_after_an_omission::<sor::Sor>();
}

#[test]
fn phases_come_in_order_and_processors_once() {
    let refused = |calls: &[(usize, usize)]| {
        let mut program = program("sor", Scale::Small, 2);
        let run = || calls.iter().for_each(|&(phase, at)| program.run(phase, at, &mut vec![]));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
    };
    assert!(!refused(&[(0, 1), (0, 0), (1, 0), (1, 1)]));
    assert!(refused(&[(0, 0), (0, 0)]), "twice");
    assert!(refused(&[(0, 0), (1, 0)]), "before the barrier");
    assert!(refused(&[(1, 0)]), "not the first");
    assert!(refused(&[(0, 0), (0, 1), (2, 0)]), "one left out");
    assert!(refused(&[(0, 2)]), "no such processor");
}

#[test]
fn no_program_has_another_name_or_too_many_processors() {
    assert!(parallel_by_name("barnes", Scale::Small, PAPER).is_none());
    for processors in [0, PROCESSORS_MAX + 1] {
        let refused =
            std::panic::catch_unwind(|| parallel_by_name("sor", Scale::Small, processors).is_some());
        assert!(refused.is_err(), "{processors}");
    }
}
