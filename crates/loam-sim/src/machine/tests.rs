//! What theory says must hold, on programs that are made up here.

use super::{Config, Outcome, Prepared, run};
use crate::model::Model;
use crate::trace::{Run, Source, TraceError};
use loam_core::borrower::FETCH_PLANS;
use proptest::prelude::*;

struct Made(Option<Vec<Run>>);

impl Source for Made {
    fn next_runs(&mut self, into: &mut Vec<Run>) -> Result<bool, TraceError> {
        let Some(runs) = self.0.take() else { return Ok(false) };
        into.extend(runs);
        Ok(true)
    }
}

fn prepared(runs: Vec<Run>, page_bytes: u64) -> Prepared {
    Prepared::read(&mut Made(Some(runs)), page_bytes).unwrap()
}

/// A program that walks, jumps and comes back: `n` runs over some `pages` pages of 8 KiB.
fn program(seed: u64, n: usize, pages: u64) -> Vec<Run> {
    let mut x = seed | 1;
    let mut at = 0;
    (0..n)
        .map(|_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let pick = x >> 33;
            at = match pick % 16 {
                0 => (pick >> 4) % (pages * 32),
                1..4 => (pick >> 4) % (pages * 4),
                4..10 => (at + 1) % (pages * 32),
                _ => at ^ 64,
            };
            Run { grain: at, references: 1 + (pick % 37) as u32, writes: pick.is_multiple_of(5) }
        })
        .collect()
}

fn config(subpage_bytes: u64, local_pages: Option<u64>, fetch_plan: &str) -> Config {
    Config {
        model: Model::load("alpha-an2-1996").unwrap(),
        subpage_bytes,
        unit_bytes: 256,
        local_pages,
        fetch_plan: fetch_plan.into(),
        pipelined_unattended: true,
        details: true,
    }
}

fn outcome(config: &Config, trace: &Prepared, policy: &str) -> Outcome {
    run(config, trace, loam_core::replacement::by_name(policy).unwrap()).unwrap()
}

#[test]
fn one_fault_takes_what_table_2_says() {
    // Printed (ms): until the subpage is there, and until the rest is. The parts of the model are from the table's first and last
    // rows only, so that the others are a check of it: within a tenth.
    let printed =
        [(256, 0.45, 1.49), (512, 0.47, 1.46), (1024, 0.52, 1.38), (2048, 0.66, 1.25), (4096, 0.94, 1.23)];
    let touch = |grain| Run { grain, references: 1, writes: false };
    for (subpage, first_ms, rest_ms) in printed {
        let config = config(subpage, None, "eager");
        let first = outcome(&config, &prepared(vec![touch(0)], 8192), "lru");
        let both = outcome(&config, &prepared(vec![touch(0), touch(31)], 8192), "lru");
        let close = |ns: u64, ms: f64| (ns as f64 / 1e6 / ms - 1.0).abs() < 0.1;
        assert!(close(first.total_ns(), first_ms), "{subpage}: {} ns", first.total_ns());
        assert!(close(both.total_ns(), rest_ms), "{subpage}: {} ns for the rest", both.total_ns());
    }
    let full = outcome(&config(8192, None, "full"), &prepared(vec![touch(0)], 8192), "lru");
    assert!((1.40e6..1.56e6).contains(&(full.total_ns() as f64)), "{} ns", full.total_ns());
}

#[test]
fn with_memory_enough_there_is_one_fault_a_page() {
    let trace = prepared(program(7, 20_000, 60), 8192);
    for plan in FETCH_PLANS {
        let outcome = outcome(&config(1024, None, plan), &trace, "second-chance");
        assert_eq!(outcome.faults, trace.pages(), "{plan}");
        assert_eq!(outcome.evicted, 0);
        if plan != "lazy" {
            assert_eq!(outcome.bytes_in, trace.pages() * 8192, "{plan}");
        }
    }
}

#[test]
fn a_run_is_a_function_of_its_inputs() {
    let trace = prepared(program(3, 30_000, 100), 8192);
    for policy in ["lru", "second-chance", "arc"] {
        let config = config(512, Some(40), "pipelined");
        assert_eq!(outcome(&config, &trace, policy), outcome(&config, &trace, policy));
    }
}

#[test]
fn a_fault_at_a_time_and_no_other_work_meets_the_closed_form() {
    // Pages apart, each touched once, with so much to do between that everything has arrived: n (fault + rest's interrupt) + references.
    let runs: Vec<Run> =
        (0..50).map(|page| Run { grain: page * 32, references: 1_000_000, writes: false }).collect();
    let trace = prepared(runs, 8192);
    let outcome = outcome(&config(1024, None, "eager"), &trace, "lru");
    let stages: u64 = Model::load("alpha-an2-1996")
        .unwrap()
        .stages
        .iter()
        .map(|s| s.fixed_ns + s.ps_per_byte * 1024 / 1000)
        .sum();
    assert_eq!(outcome.sp_latency_ns, 50 * (356_000 + stages));
    assert_eq!(outcome.page_wait_ns, 0);
    // The last page's rest comes when the program has ended.
    assert_eq!(outcome.interrupt_ns, 49 * (60_333 + 29_950 * 7168 / 1000));
    assert_eq!(outcome.exec_ns, 50_000_000 * 12);
}

#[test]
fn wrong_sizes_are_refused() {
    let trace = prepared(program(3, 10, 3), 8192);
    let lru = || loam_core::replacement::by_name("lru").unwrap();
    for (subpage, unit, local) in
        [(16_384, 256, None), (1024, 2048, None), (768, 256, None), (256, 256, Some(3))]
    {
        let config = Config { unit_bytes: unit, ..config(subpage, local, "eager") };
        assert!(run(&config, &trace, lru()).is_err(), "{subpage} {unit} {local:?}");
    }
    assert!(run(&config(256, None, "no-such"), &trace, lru()).unwrap_err().to_string().contains("eager"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// The driver's and the policy's asserts hold whatever the program does, and the first subpage never comes later by `eager` than the
    /// whole page does by `full`.
    #[test]
    fn eager_never_waits_longer_than_full_for_a_first_subpage(
        seed: u64, pages in 12_u64..80, local in 8_u64..60, shift in 0_u32..5,
        policy in proptest::sample::select(&["lru", "fifo", "clock", "sieve", "s3-fifo", "arc", "second-chance"][..]),
    ) {
        let trace = prepared(program(seed, 3_000, pages), 8192);
        let full = outcome(&config(8192, Some(local), "full"), &trace, policy);
        for plan in FETCH_PLANS {
            let ours = outcome(&config(256 << shift, Some(local), plan), &trace, policy);
            prop_assert!(ours.faults > 0 && ours.references == full.references);
            if plan == "eager" {
                // Though it may stand in line behind other pages' rests, as whole pages never do for a program with one thread.
                let (longest, shortest) = (ours.first_waits_ns.iter().max(), full.first_waits_ns.iter().min());
                prop_assert!(longest <= shortest, "{longest:?} {shortest:?}");
            }
        }
    }
}
