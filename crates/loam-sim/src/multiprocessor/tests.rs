//! Small programs on small machines.

use super::account::{Outcome, Part};
use super::config::{Config, Leaving, Lenders, PAGE_BYTES, Prefetch, Staging};
use super::run;
use crate::model::Model;
use crate::workload::parallel::{ParallelProgram, Touch, TouchKind};
use proptest::prelude::*;

/// Page, first line, lines, write.
type Sweep = (u32, u32, u32, bool);

/// Touches that are given, for each phase and processor.
#[derive(Clone, Debug)]
struct Script {
    processors: usize,
    pages: u64,
    phases: Vec<Vec<Vec<Sweep>>>,
    busy_cycles: u32,
}

impl ParallelProgram for Script {
    fn name(&self) -> &'static str {
        "script"
    }
    fn shared_bytes(&self) -> u64 {
        self.pages * PAGE_BYTES
    }
    fn processors(&self) -> usize {
        self.processors
    }
    fn phases(&self) -> usize {
        self.phases.len()
    }
    fn run(&mut self, phase: usize, processor: usize, into: &mut Vec<Touch>) {
        for &(page, line, lines, write) in &self.phases[phase][processor] {
            into.push(Touch {
                address: u64::from(page) * PAGE_BYTES + u64::from(line) * 64,
                bytes: lines.min(64 - line).max(1) * 64,
                kind: if write { TouchKind::Write } else { TouchKind::Read },
                busy_cycles: self.busy_cycles,
            });
        }
    }
    fn check(&self) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }
}

/// Each processor sweeps over its own pages, so often.
fn sweeps(nodes: usize, pages_each: u32, sweeps: usize, write: bool) -> Script {
    let of = |p: usize| (0..pages_each).map(|page| (p as u32 * pages_each + page, 0, 64, write)).collect();
    let phase: Vec<Vec<_>> = (0..nodes).map(of).collect();
    let pages = nodes as u64 * u64::from(pages_each);
    Script { processors: nodes, pages, phases: vec![phase; sweeps], busy_cycles: 2_000 }
}

fn small(prefetch: Prefetch, ring: bool) -> Config {
    let config = Config { frames: 16, nodes: 4, disks: 2, ..Config::paper() }.with(prefetch, ring);
    Config { watched: true, ..config }
}

fn all_four() -> [Config; 4] {
    let both = |ring| [Prefetch::Optimal, Prefetch::Naive].map(|prefetch| small(prefetch, ring));
    let ([a, b], [c, d]) = (both(false), both(true));
    [a, b, c, d]
}

fn summed(outcome: &Outcome, part: Part) -> u64 {
    outcome.processors.iter().map(|account| account.part(part).0).sum()
}

#[test]
fn a_program_that_fits_reads_each_page_once_and_writes_nothing() {
    for config in all_four() {
        let outcome = run(&config, &mut sweeps(4, 3, 5, true));
        assert_eq!((outcome.reads.count, outcome.swap_outs.count, outcome.pages_written), (12, 0, 0));
        assert_eq!(outcome.touches, 60);
        assert_eq!(summed(&outcome, Part::NoFree), 0);
    }
}

#[test]
fn clean_pages_are_freed_and_dirty_ones_are_written() {
    for config in all_four() {
        let read = run(&config, &mut sweeps(4, 32, 3, false));
        assert!(read.clean > 0 && read.swap_outs.count == 0 && read.pages_written == 0, "{read:?}");
        let wrote = run(&config, &mut sweeps(4, 32, 3, true));
        assert!(wrote.clean == 0 && wrote.swap_outs.count > 100, "{wrote:?}");
        assert!(wrote.pages_written <= wrote.swap_outs.count, "{wrote:?}");
        assert!(wrote.run > read.run);
    }
}

#[test]
fn an_uncontended_read_takes_what_the_paper_says() {
    let script = Script {
        processors: 4,
        pages: 40,
        phases: vec![vec![vec![(32, 0, 1, false)], vec![], vec![], vec![]]],
        busy_cycles: 0,
    };
    // Page 32 is on disk 1, whose node is 2: two hops in a mesh of 2 by 2 would be node 3.
    let outcome = run(&small(Prefetch::Optimal, false), &mut script.clone());
    let cycles = outcome.reads.ns() / 5.0;
    assert!((5_990.0..=6_020.0).contains(&cycles), "{cycles}");
    let naive = run(&small(Prefetch::Naive, false), &mut script.clone());
    assert!(naive.reads.ns() > 4e6 && naive.cache_share() == 0.0 && naive.disk_reads.count == 1);
}

#[test]
fn naive_prefetching_has_the_pages_that_follow() {
    let mut script = sweeps(4, 32, 1, false);
    script.phases[0][1..].iter_mut().for_each(Vec::clear);
    let outcome = run(&small(Prefetch::Naive, false), &mut script);
    // One is read and four are read ahead, of 32; each is asked for while the arm is at it.
    assert_eq!((outcome.disk_reads.count, outcome.cache_hits.count), (7, 0));
    assert_eq!(outcome.read_ahead.count, 25);
}

#[test]
fn others_wait_in_transit_for_a_page_that_one_brings() {
    let all = vec![vec![(0, 0, 1, false)]; 4];
    let mut script = Script { processors: 4, pages: 1, phases: vec![all], busy_cycles: 10 };
    let outcome = run(&small(Prefetch::Optimal, false), &mut script);
    assert_eq!(outcome.reads.count, 1);
    let transit = outcome.processors.iter().filter(|account| account.part(Part::Transit).0 > 0).count();
    let fault = outcome.processors.iter().filter(|account| account.part(Part::Fault).0 > 0).count();
    assert_eq!((transit, fault), (3, 1));
}

#[test]
fn the_ring_takes_bursts_that_the_standard_machine_waits_for() {
    let program = sweeps(4, 64, 2, true);
    let standard = run(&small(Prefetch::Optimal, false), &mut program.clone());
    let ring = run(&small(Prefetch::Optimal, true), &mut program.clone());
    assert!(
        ring.swap_outs.ns() * 3.0 < standard.swap_outs.ns(),
        "{} {}",
        ring.swap_outs.ns(),
        standard.swap_outs.ns()
    );
    assert!(ring.run < standard.run);
    assert!(standard.refused > 0);
}

#[test]
fn a_page_that_is_wanted_again_soon_comes_off_the_ring() {
    // All leave in the first phase; the last ones are wanted again before the disk has had time for them.
    let mut program = sweeps(4, 40, 1, true);
    let again = program.phases[0].iter().map(|of| of[12..28].iter().rev().copied().collect());
    program.phases.push(again.collect());
    let outcome = run(&small(Prefetch::Optimal, true), &mut program);
    assert!(outcome.ring_hits.count > 10, "{outcome:?}");
    assert!(outcome.pages_written < outcome.swap_outs.count, "what was taken off is not written");
}

#[test]
fn the_same_run_comes_to_the_same() {
    for config in all_four() {
        let program = sweeps(4, 40, 2, true);
        assert_eq!(run(&config, &mut program.clone()), run(&config, &mut program.clone()));
    }
}

fn scripts() -> impl Strategy<Value = Script> {
    // Two processors may touch a page in one phase, here even its same bytes: that is harder than what programs do.
    let touch = (0u32..60, 0u32..64, 1u32..64, prop::bool::weighted(0.6));
    let phase = prop::collection::vec(prop::collection::vec(touch, 0..40), 4);
    (prop::collection::vec(phase, 1..6), prop::sample::select(vec![0u32, 100, 5_000, 200_000]))
        .prop_map(|(phases, busy_cycles)| Script { processors: 4, pages: 60, phases, busy_cycles })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever a program does: after each event every page's newest contents are where the page table says and each frame is one page's, each page comes
    /// as it was written last, and each processor's parts are its whole time (all asserted by the machine); in the end all is on disk or in memory.
    #[test]
    fn nothing_is_lost(
        script in scripts(),
        frames in 3u32..14,
        free_min in 1u32..3,
        reclaimed in any::<bool>(),
        places in 1usize..5,
        naive in any::<bool>(),
        ring in 0u8..3,
    ) {
        let prefetch = if naive { Prefetch::Naive } else { Prefetch::Optimal };
        let mut config = small(prefetch, ring > 0);
        (config.frames, config.frames_free_min) = (frames, free_min);
        config.group_pages = 4;
        if reclaimed {
            config.leaving = Leaving::Reclaimed;
        }
        match &mut config.staging {
            Staging::Optical(glass) if ring == 1 => glass.places = places,
            Staging::Optical(_) => {
                let model = Model::load("tcp-25g").expect("it is built in");
                config.staging = Staging::Lenders(Lenders::of_model(&model, 2, places));
            }
            _ => {}
        }
        let touches: usize = script.phases.iter().flatten().map(Vec::len).sum();
        let outcome = run(&config, &mut script.clone());
        prop_assert_eq!(outcome.touches, touches as u64);
        for account in &outcome.processors {
            let sum: u64 = Part::ALL.iter().map(|&part| account.part(part).0).sum();
            prop_assert_eq!(sum, outcome.run.0);
        }
    }
}
