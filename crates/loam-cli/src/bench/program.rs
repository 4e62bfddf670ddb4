//! The borrowing program of the measurement: fills memory, waits until most of it is elsewhere, reads it back and
//! checks every word that it reads. It knows nothing of Loam; `loam run` starts it like any other.

use super::{Quantiles, elapsed_ns};
use crate::bench::args::{ProgramArgs, ProgramWay};
use crate::failure::Failure;
use loam_core::units::BASE_PAGE_BYTES;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Words of a page.
const PAGE_WORDS: usize = BASE_PAGE_BYTES / 8;
/// Words between two that sequential reading looks at: eight of each page.
const STRIDE_WORDS: usize = PAGE_WORDS / 8;
/// A read that is quicker did not leave this process.
const LOCAL_NS_MAX: u32 = 1500;
/// Passes of sequential reading.
pub(super) const PASSES: usize = 3;
/// How long memory may take to leave.
const LEAVE_WITHIN: Duration = Duration::from_secs(60);
/// Most samples that are kept.
const SAMPLES_MAX: usize = 1 << 20;

/// What random reading found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Random {
    /// Reads that had to wait.
    pub(super) remote: Quantiles,
    /// Reads that found their page here.
    pub(super) local_reads: usize,
}

/// What sequential reading found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sequential {
    /// Speed of each pass.
    pub(super) pass_gb_per_s: Vec<f64>,
}

/// Fills, waits, reads, checks.
pub(crate) fn program(args: &ProgramArgs) -> Result<ExitCode, Failure> {
    let bytes = usize::try_from(args.mib << 20).map_err(|_| Failure::new("--mib is too large"))?;
    let mut memory = vec![0_u64; bytes / 8 + PAGE_WORDS];
    // The allocator puts its own words before the first; measure whole pages.
    let offset = memory.as_ptr().align_offset(BASE_PAGE_BYTES);
    let memory = &mut memory[offset..offset + bytes / 8];
    for (page, words) in memory.chunks_exact_mut(PAGE_WORDS).enumerate() {
        for (at, word) in words.iter_mut().enumerate() {
            *word = expected(page, at);
        }
    }
    wait_until_away(args)?;
    let json = match args.way {
        ProgramWay::Random => serde_json::to_vec(&random(
            memory,
            Duration::from_secs(args.seconds),
            Duration::from_micros(args.pause_us),
        )?),
        ProgramWay::Sequential => serde_json::to_vec(&sequential(memory)?),
    };
    let json = json.map_err(|error| Failure::new(format!("cannot write the figures ({error})")))?;
    std::fs::write(&args.out, json)
        .map_err(|error| Failure::new(format!("cannot write {} ({error})", args.out.display())))?;
    Ok(ExitCode::SUCCESS)
}

/// What word `at` of page `page` contains. Never zero, different in every page, and dear to compress.
fn expected(page: usize, at: usize) -> u64 {
    scramble((page * PAGE_WORDS + at) as u64) | 1
}

/// The finaliser of splitmix64.
fn scramble(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Waits until no more than `--local-mib` and a half of the rest is resident, then until that has settled.
fn wait_until_away(args: &ProgramArgs) -> Result<(), Failure> {
    let resident_mib = || {
        let statm = crate::machine::setting("/proc/self/statm").unwrap_or_default();
        let pages: u64 =
            statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(u64::MAX >> 20);
        (pages * BASE_PAGE_BYTES as u64) >> 20
    };
    let enough = args.local_mib + args.mib.saturating_sub(args.local_mib) / 2;
    let since = Instant::now();
    let mut before = u64::MAX;
    loop {
        let now = resident_mib();
        if now <= enough && now >= before {
            return Ok(());
        }
        if since.elapsed() > LEAVE_WITHIN {
            return Err(Failure::new(format!(
                "bench-program: {now} MiB of {} are still here after {} s: memory does not leave",
                args.mib,
                LEAVE_WITHIN.as_secs()
            )));
        }
        before = now;
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn wrong(page: usize, at: usize, seen: u64) -> Failure {
    let wanted = expected(page, at);
    Failure::new(format!(
        "bench-program: WRONG DATA in page {page}, word {at}: {seen:#x}, written was {wanted:#x}"
    ))
}

/// Reads one word of a random page at a time.
fn random(memory: &[u64], span: Duration, pause: Duration) -> Result<Random, Failure> {
    let pages = memory.len() / PAGE_WORDS;
    assert!(pages > 0);
    let mut samples_ns = Vec::with_capacity(SAMPLES_MAX);
    let mut local_reads = 0;
    let begin = Instant::now();
    let mut turn = 0_u64;
    while begin.elapsed() < span && samples_ns.len() < SAMPLES_MAX {
        turn += 1;
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        let draw = scramble(turn ^ 0x00C0_FFEE_0000_0000);
        let page = (draw % pages as u64) as usize;
        let at = (draw >> 40) as usize % PAGE_WORDS;
        let word = black_box(&memory[page * PAGE_WORDS + at]);
        let since = Instant::now();
        let seen = black_box(*word);
        let took_ns = elapsed_ns(since);
        if seen != expected(page, at) {
            return Err(wrong(page, at, seen));
        }
        if took_ns < LOCAL_NS_MAX {
            local_reads += 1;
        } else {
            samples_ns.push(took_ns);
        }
    }
    let remote = Quantiles::of(&mut samples_ns)
        .ok_or_else(|| Failure::new("bench-program: no read had to wait: memory did not leave"))?;
    Ok(Random { remote, local_reads })
}

/// Reads eight words of every page, in order.
fn sequential(memory: &[u64]) -> Result<Sequential, Failure> {
    let mut pass_gb_per_s = Vec::with_capacity(PASSES);
    for _ in 0..PASSES {
        let since = Instant::now();
        for (page, words) in memory.chunks_exact(PAGE_WORDS).enumerate() {
            for at in (0..PAGE_WORDS).step_by(STRIDE_WORDS) {
                let seen = words[at];
                if seen != expected(page, at) {
                    return Err(wrong(page, at, seen));
                }
            }
        }
        pass_gb_per_s.push(size_of_val(memory) as f64 / since.elapsed().as_secs_f64() / 1e9);
    }
    Ok(Sequential { pass_gb_per_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_wrong_word_is_found() {
        let mut memory: Vec<u64> =
            (0..8 * PAGE_WORDS).map(|at| expected(at / PAGE_WORDS, at % PAGE_WORDS)).collect();
        assert!(sequential(&memory).is_ok());
        memory[5 * PAGE_WORDS + STRIDE_WORDS] = 0;
        let failure = sequential(&memory).expect_err("one word is wrong");
        assert!(failure.line().contains("page 5, word 64"), "{failure:?}");
    }

    #[test]
    fn no_page_is_zero_or_like_another() {
        let first: std::collections::BTreeSet<u64> = (0..4096).map(|page| expected(page, 0)).collect();
        assert!(!first.contains(&0));
        assert!(first.len() > 4090, "{} of 4096 differ", first.len());
    }
}
