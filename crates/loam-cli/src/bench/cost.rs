//! What TLS costs: the same measurements plain and with TLS, in turns, so that a machine that gets quieter or busier meanwhile
//! favours neither.

use super::median;
use super::real::{self, RandomRun, SequentialRun};
use crate::failure::Failure;
use crate::text::{percent, table};
use serde::Serialize;
use std::path::Path;

/// Turns. The median of each figure counts.
const TURNS: usize = 9;

/// One side.
#[derive(Debug, Default, Serialize)]
struct Side {
    /// Medians of random reading, one a turn.
    fault_p50_us: Vec<f64>,
    /// Speeds of sequential reading, one a turn and for each the better page size.
    sequential_gb_per_s: Vec<f64>,
    random: Vec<RandomRun>,
    sequential: Vec<SequentialRun>,
}

impl Side {
    fn measure(&mut self, executable: &Path, mib: u64, seconds: u64, tls: bool) -> Result<(), Failure> {
        let random = real::random(executable, mib, seconds, None, tls)?;
        self.fault_p50_us.push(random.figures.remote.p50_us);
        self.random.push(random);
        let sequential = real::sequential(executable, mib, tls)?;
        self.sequential_gb_per_s.push(sequential.iter().map(|run| run.remote_gb_per_s).fold(0.0, f64::max));
        self.sequential.extend(sequential);
        Ok(())
    }
}

/// What was found. Keys are documented in `docs/summary.md`.
#[derive(Debug, Serialize)]
pub(super) struct Cost {
    kernel: String,
    cores: usize,
    notes: Vec<String>,
    plain: Side,
    tls: Side,
    plain_p50_us: f64,
    tls_p50_us: f64,
    tls_over_plain_p50: f64,
    plain_gb_per_s: f64,
    tls_gb_per_s: f64,
    tls_over_plain_gb_per_s: f64,
}

/// Measures both, in turns.
pub(super) fn measure(
    executable: &Path,
    mib: u64,
    seconds: u64,
    cores: usize,
    notes: Vec<String>,
) -> Result<Cost, Failure> {
    let (mut plain, mut tls) = (Side::default(), Side::default());
    for turn in 0..TURNS {
        // Who begins changes: what the first leaves behind in caches is not the second's merit.
        for secret in [turn % 2 == 1, turn % 2 == 0] {
            let side = if secret { &mut tls } else { &mut plain };
            side.measure(executable, mib, seconds, secret)?;
        }
    }
    let (plain_p50_us, tls_p50_us) = (median(&plain.fault_p50_us), median(&tls.fault_p50_us));
    let (plain_gb_per_s, tls_gb_per_s) =
        (median(&plain.sequential_gb_per_s), median(&tls.sequential_gb_per_s));
    Ok(Cost {
        kernel: crate::machine::kernel(),
        cores,
        notes,
        tls_over_plain_p50: tls_p50_us / plain_p50_us,
        tls_over_plain_gb_per_s: tls_gb_per_s / plain_gb_per_s,
        plain,
        tls,
        plain_p50_us,
        tls_p50_us,
        plain_gb_per_s,
        tls_gb_per_s,
    })
}

impl Cost {
    /// What a person reads.
    pub(super) fn table(&self) -> String {
        let range = |figures: &[f64], show: fn(f64) -> String| {
            let (least, most) = figures.iter().fold((f64::MAX, 0.0_f64), |(a, b), &x| (a.min(x), b.max(x)));
            format!("{} to {}", show(least), show(most))
        };
        let speed = |gb_per_s: f64| format!("{gb_per_s:.2} GB/s");
        let latency = |us: f64| format!("{us:.1} us");
        let rows = vec![
            ["", "plain", "TLS", "TLS / plain", "plain, all turns", "TLS, all turns"]
                .map(String::from)
                .to_vec(),
            vec![
                "random 4 KiB, p50".to_owned(),
                latency(self.plain_p50_us),
                latency(self.tls_p50_us),
                percent(self.tls_over_plain_p50, 1.0),
                range(&self.plain.fault_p50_us, latency),
                range(&self.tls.fault_p50_us, latency),
            ],
            vec![
                "in order".to_owned(),
                speed(self.plain_gb_per_s),
                speed(self.tls_gb_per_s),
                percent(self.tls_over_plain_gb_per_s, 1.0),
                range(&self.plain.sequential_gb_per_s, speed),
                range(&self.tls.sequential_gb_per_s, speed),
            ],
        ];
        let mut out = table(&rows);
        for note in &self.notes {
            out.push_str(&format!("note: {note}\n"));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_the_turns_counts() {
        assert!((median(&[9.0, 1.0, 3.0, 2.0, 100.0]) - 3.0).abs() < f64::EPSILON);
    }
}
