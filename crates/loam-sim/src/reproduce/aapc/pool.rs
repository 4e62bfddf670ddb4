//! Records kernels and replays them, on some threads, with few recordings in memory at a time.

use super::programs::Program;
use crate::workload::kernels::{Event, Recording, RecordingError};
use loam_core::units::Bytes;
use loam_kernels::Size;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};

/// Most that a recording may have: 8 bytes each.
const EVENTS_MAX: u64 = 1 << 27;

/// A recorded program.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) program: usize,
    pub(super) recording: Recording,
    /// What it computes in an iteration.
    pub(super) exec_ns: u64,
}

struct State<J> {
    programs: VecDeque<usize>,
    jobs: VecDeque<(Arc<Recorded>, J)>,
    /// Programs that are being recorded now.
    recording: usize,
    failed: Option<String>,
}

/// Records each program, and does `work` for each of its jobs.
///
/// # Errors
/// If a program cannot be recorded.
pub(super) fn run<J: Send>(
    programs: &[Program],
    jobs_of: impl Fn(usize) -> Vec<J> + Sync,
    threads: usize,
    work: impl Fn(&Recorded, J) + Sync,
) -> Result<(), String> {
    let state = Mutex::new(State {
        programs: (0..programs.len()).collect(),
        jobs: VecDeque::new(),
        recording: 0,
        failed: None,
    });
    let changed = Condvar::new();
    let worker = || {
        let mut now = state.lock().expect("no run panicked");
        loop {
            if now.failed.is_some() {
                return;
            }
            // What is recorded is replayed first, so that it can be forgotten.
            if let Some((recorded, job)) = now.jobs.pop_front() {
                drop(now);
                work(&recorded, job);
                drop(recorded);
                now = state.lock().expect("no run panicked");
            } else if let Some(program) = now.programs.pop_front() {
                now.recording += 1;
                drop(now);
                let recorded = record(programs, program, EVENTS_MAX);
                now = state.lock().expect("no run panicked");
                now.recording -= 1;
                match recorded {
                    Ok(recorded) => {
                        let recorded = Arc::new(recorded);
                        now.jobs.extend(jobs_of(program).into_iter().map(|job| (Arc::clone(&recorded), job)));
                    }
                    Err(error) => now.failed = Some(error),
                }
                changed.notify_all();
            } else if now.recording > 0 {
                now = changed.wait(now).expect("no run panicked");
            } else {
                return;
            }
        }
    };
    std::thread::scope(|scope| (0..threads.max(1)).for_each(|_| _ = scope.spawn(worker)));
    let failed = state.into_inner().expect("no run panicked").failed;
    failed.map_or(Ok(()), Err)
}

fn record(programs: &[Program], program: usize, events_max: u64) -> Result<Recorded, String> {
    let of = &programs[program];
    let mut problem = of.problem;
    let recording = loop {
        match Recording::new(of.info, problem, of.iterations(), Bytes(4096), events_max) {
            // The paper's problems are the paper's; of others half as much shows as much.
            Err(RecordingError::TooLong(..)) if !of.paper => {
                let half = Size::Bytes(of.info.bytes(problem) / 2);
                problem = of.info.problem(half).map_err(|error| error.to_string())?;
            }
            recording => break recording.map_err(|error| error.to_string())?,
        }
    };
    let (mut part, mut all_ns) = (0, 0);
    for event in recording.events() {
        match event {
            Event::Part(next) => part = next,
            Event::Reference { cpu_ns, .. } if part > 0 => all_ns += u64::from(cpu_ns),
            Event::Reference { .. } => {}
        }
    }
    Ok(Recorded { program, recording, exec_ns: all_ns / u64::from(of.iterations()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_too_long_is_smaller_unless_it_is_the_papers() {
        let today = [Program::today(4 << 20).swap_remove(0)];
        let whole = record(&today, 0, EVENTS_MAX).expect("it fits").recording;
        let events = whole.events().count() as u64;
        let less = record(&today, 0, events / 2).expect("a smaller one fits").recording;
        assert!(less.base_pages() < whole.base_pages() && less.events().count() as u64 <= events / 2);
        let paper = [Program::paper(16, 16, 16, 12).swap_remove(0)];
        let error = record(&paper, 0, 1000).expect_err("it is as large as the paper's");
        assert!(error.contains("more than 1000 events"), "{error}");
    }
}
