//! `loam sim replay`: misses of a stream under replacement policies.

use super::input::{self, ZipfSpec};
use crate::failure::Failure;
use crate::text::{count, seconds, table};
use clap::Args;
use loam_core::units::BasePages;
use loam_sim::replay::{self, POLICIES, Stream};
use loam_sim::trace::export::oracle_of_pages;
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Arguments of `loam sim replay`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReplayArgs {
    /// A trace in any format that is known; an object of libCacheSim's oracleGeneral is a page
    #[arg(value_name = "FILE", required_unless_present = "zipf", conflicts_with = "zipf")]
    file: Option<PathBuf>,
    /// Instead of a file: REQUESTS references to N pages, of which page k is used in proportion to 1/k^ALPHA
    #[arg(long, value_name = "N:ALPHA:REQUESTS")]
    zipf: Option<ZipfSpec>,
    /// Seed of the Zipf stream
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "file")]
    seed: u64,
    /// Policies, with commas between them
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "lru",
          value_parser = clap::builder::PossibleValuesParser::new(POLICIES))]
    policy: Vec<String>,
    /// Page frames of local memory, with commas between sizes [default: a tenth of the pages that are used]
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..))]
    frames: Vec<u32>,
    /// Write the Zipf stream to this file in oracleGeneral format, and count nothing
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    export: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  loam sim replay pages.oracleGeneral --policy lru,fifo,belady --frames 1000,10000
  loam sim replay --zipf 1000000:0.8:20000000 --policy lru --frames 100000
  loam sim replay --zipf 1000000:0.8:20000000 --export zipf.oracleGeneral

`second-chance` is what `loam run` uses; `belady` is the optimum, which knows the future.";

/// What one policy did.
#[derive(Serialize)]
struct Row {
    policy: String,
    frames: u32,
    misses: u64,
    seconds: f64,
}

/// What came out.
#[derive(Serialize)]
struct Report {
    references: u64,
    pages: u32,
    /// To read the stream and to number its pages.
    read_seconds: f64,
    rows: Vec<Row>,
}

/// Counts and prints.
pub(super) fn replay(args: &ReplayArgs) -> Result<ExitCode, Failure> {
    if let (Some(to), Some(zipf)) = (&args.export, args.zipf) {
        export(zipf, args.seed, to)?;
        return Ok(ExitCode::SUCCESS);
    }
    let start = Instant::now();
    let stream = match (&args.file, args.zipf) {
        (Some(file), _) => input::stream(file, BasePages(1).bytes())?,
        (None, Some(zipf)) => Stream::of(zipf.pages(args.seed)),
        (None, None) => return Err(Failure::new("give a file or --zipf; see `loam sim replay --help`")),
    };
    let mut report = Report {
        references: stream.references(),
        pages: stream.distinct(),
        read_seconds: start.elapsed().as_secs_f64(),
        rows: Vec::new(),
    };
    let tenth = [(stream.distinct() / 10).max(1)];
    for policy in &args.policy {
        for &frames in if args.frames.is_empty() { &tenth } else { &args.frames[..] } {
            let start = Instant::now();
            let misses = replay::misses(policy, &stream, frames as usize).expect("clap checked the name");
            let seconds = start.elapsed().as_secs_f64();
            report.rows.push(Row { policy: policy.clone(), frames, misses, seconds });
        }
    }
    if args.json {
        let json = serde_json::to_string_pretty(&report).expect("numbers and names are JSON");
        println!("{json}");
    } else {
        print!("{}", text(&report));
    }
    Ok(ExitCode::SUCCESS)
}

fn export(zipf: ZipfSpec, seed: u64, to: &Path) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", to.display()));
    let mut file = BufWriter::new(File::create(to).map_err(|error| failed(&error))?);
    oracle_of_pages(zipf.pages(seed), &mut file).map_err(|error| failed(&error))?;
    file.flush().map_err(|error| failed(&error))
}

fn text(report: &Report) -> String {
    let heading = ["policy", "frames", "misses", "of all", "time", "references/s"];
    let mut rows = vec![heading.map(String::from).to_vec()];
    for row in &report.rows {
        rows.push(vec![
            row.policy.clone(),
            count(u64::from(row.frames)),
            count(row.misses),
            format!("{:.3}%", 100.0 * row.misses as f64 / report.references as f64),
            format!("{:.2} s", row.seconds),
            format!("{:.1} M", report.references as f64 / row.seconds / 1e6),
        ]);
    }
    format!(
        "{} references to {} pages, read in {}\n\n{}",
        count(report.references),
        count(u64::from(report.pages)),
        seconds(report.read_seconds),
        table(&rows)
    )
}
