//! `loam sim mrc`: how much memory a recorded program needs.

use super::input::{self, ZipfSpec};
use crate::failure::Failure;
use crate::size::Size;
use crate::text::{count, table};
use clap::Args;
use loam_core::units::Bytes;
use loam_sim::mrc::{self, Curve, Sample};
use loam_sim::replay::Stream;
use loam_sim::report::{Axis, Figure, Scale, Series, Unit};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Rows of the table: sizes from the largest power of two below the footprint down.
const ROWS: u32 = 10;
/// A sample of fewer pages than this says little.
const SAMPLED_PAGES_MIN: f64 = 1000.0;

/// Arguments of `loam sim mrc`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct MrcArgs {
    /// The trace
    #[arg(value_name = "TRACE", required_unless_present = "zipf", conflicts_with = "zipf")]
    trace: Option<PathBuf>,
    /// Instead of a trace: REQUESTS references to N pages, of which page k is used in proportion to 1/k^ALPHA
    #[arg(long, value_name = "N:ALPHA:REQUESTS")]
    zipf: Option<ZipfSpec>,
    /// Seed of the Zipf stream
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Size of a page: a power of two from 4K to 1M
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = crate::args::page_size)]
    page: Size,
    /// Look at this part of the pages only, above 0 and up to 1 (SHARDS): quicker, nearly as good for large programs
    #[arg(long, value_name = "RATE", value_parser = rate, conflicts_with = "sample_pages")]
    sample: Option<f64>,
    /// Look at so many pages at most (SHARDS of fixed size)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    sample_pages: Option<u32>,
    /// Write the curve to this file, a row for each size where it changes
    #[arg(long, value_name = "FILE.csv")]
    csv: Option<PathBuf>,
    /// Draw the curve into this file
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  loam sim mrc gcc.trace
  loam sim mrc gcc.trace --page 16K --svg gcc.svg --csv gcc.csv
  loam sim mrc huge.trace --sample 0.01

How the answer is chosen: the smallest size with which a page comes back once on average, or less often (misses are at
most twice the first uses). With less, the same pages go and come all the time.";

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if rate > 0.0 && rate <= 1.0 => Ok(rate),
        _ => Err("a rate is above 0 and up to 1, such as 0.01".into()),
    }
}

/// Computes and prints.
pub(super) fn mrc(args: &MrcArgs) -> Result<ExitCode, Failure> {
    let Size::Absolute(page) = args.page else {
        return Err(Failure::new("--page is a size, not a percentage"));
    };
    let (name, stream) = match (&args.trace, args.zipf) {
        (Some(path), _) => (path.display().to_string(), input::stream(path, page)?),
        (None, Some(zipf)) => ("a Zipf stream".into(), Stream::of(zipf.pages(args.seed))),
        (None, None) => return Err(Failure::new("give a trace or --zipf; see `loam sim mrc --help`")),
    };
    let sample =
        args.sample.map(Sample::Rate).or(args.sample_pages.map(|pages| Sample::Pages(pages as usize)));
    let curve = sample.map_or_else(|| mrc::exact(&stream), |sample| mrc::sampled(&stream, sample));
    print!("{}", text(&name, &curve, &stream, page, sample));
    if let Some(path) = &args.csv {
        write(path, &csv(&curve, page))?;
    }
    if let Some(path) = &args.svg {
        write(path, &chart(&name, &curve, page).svg())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

fn size(pages: u64, page: Bytes) -> Bytes {
    Bytes(pages.saturating_mul(page.0))
}

/// The sizes that are told, in page frames, and why one is if that is to be said.
fn sizes(curve: &Curve, page: Bytes) -> Vec<(u64, &'static str)> {
    let (need, footprint) = (curve.need(), curve.footprint());
    let largest = size(footprint, page).0.max(1).ilog2();
    let powers = (largest.saturating_sub(ROWS - 1)..=largest).map(|power| (1_u64 << power) / page.0);
    let mut sizes: Vec<_> = powers.filter(|&pages| pages > 0).map(|pages| (pages, "")).collect();
    sizes.retain(|&(pages, _)| pages != need && pages != footprint);
    sizes.push((
        footprint,
        if need == footprint { "the answer; more saves nothing" } else { "more saves nothing" },
    ));
    if need != footprint {
        sizes.push((need, "the answer"));
    }
    sizes.sort_unstable();
    sizes
}

fn text(name: &str, curve: &Curve, stream: &Stream, page: Bytes, sample: Option<Sample>) -> String {
    let mut out = format!(
        "{name}: {} references to {} pages of {page} ({} in all), LRU\n",
        count(stream.references()),
        count(u64::from(stream.distinct())),
        size(u64::from(stream.distinct()), page),
    );
    if let Some(sample) = sample {
        let pages = match sample {
            Sample::Rate(rate) => rate * f64::from(stream.distinct()),
            Sample::Pages(pages) => pages as f64,
        };
        let note = if pages < SAMPLED_PAGES_MIN { "; few pages: the figures are rough" } else { "" };
        writeln!(out, "sampled: about {} pages{note}", count(pages.round() as u64))
            .expect("a String takes it");
    }
    let mut rows = vec![["local memory", "of references miss", "faults", ""].map(String::from).to_vec()];
    for (pages, why) in sizes(curve, page) {
        let misses = curve.misses(pages);
        rows.push(vec![
            size(pages, page).to_string(),
            share(misses, curve.references()),
            count(misses.round() as u64),
            why.into(),
        ]);
    }
    let need = curve.need();
    write!(
        out,
        "\n{}\nneeds {} of local memory: with that, {} of references miss, {} faults, of which {} are first uses\n\
         (the smallest size with which a page comes back once on average, or less often)\n",
        table(&rows),
        size(need, page),
        share(curve.misses(need), curve.references()),
        count(curve.misses(need).round() as u64),
        count(curve.first_uses().round() as u64),
    )
    .expect("a String takes it");
    out
}

/// Percent with two digits that count: misses are rare.
fn share(misses: f64, references: u64) -> String {
    let percent = 100.0 * misses / references as f64;
    let digits = if percent > 0.0 { (1.0 - percent.log10().floor()).clamp(0.0, 8.0) as usize } else { 0 };
    format!("{percent:.digits$}%")
}

fn csv(curve: &Curve, page: Bytes) -> String {
    let mut out = String::from("pages,bytes,misses,miss_ratio\n");
    for step in curve.steps() {
        let ratio = step.misses / curve.references() as f64;
        writeln!(out, "{},{},{},{ratio}", step.pages, size(step.pages, page).0, step.misses)
            .expect("a String takes it");
    }
    out
}

fn chart(name: &str, curve: &Curve, page: Bytes) -> Figure {
    let at = |pages| size(pages, page).0 as f64;
    let part = |misses: f64| misses / curve.references() as f64;
    // From one page on: with no memory at all every reference misses, which says nothing and squeezes the rest.
    let shown = curve.steps().iter().filter(|step| step.pages > 0);
    let points = shown.map(|step| (at(step.pages), part(step.misses))).collect();
    let need = curve.need();
    Figure::new(
        format!("Misses of {name} under LRU, pages of {page}"),
        Axis::new("local memory", Unit::Bytes),
        Axis::new("references that miss", Unit::Share).scale(Scale::Log10),
    )
    .series(Series::step("LRU", points))
    .series(Series::scatter(
        format!("needs {}", size(need, page)),
        vec![(at(need), part(curve.misses(need)))],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop over 100 pages, 50 times: LRU needs all of them.
    fn curve() -> (Stream, Curve) {
        let stream = Stream::of((0..50).flat_map(|_| 0..100));
        let curve = mrc::exact(&stream);
        (stream, curve)
    }

    #[test]
    fn the_answer_is_told_with_sizes_and_faults() {
        let (stream, curve) = curve();
        let text = text("loop.trace", &curve, &stream, Bytes(4096), None);
        assert!(text.contains("5,000 references to 100 pages of 4.0 KiB (400.0 KiB in all)"), "{text}");
        assert!(
            text.contains("needs 400.0 KiB of local memory: with that, 2.0% of references miss, 100 faults"),
            "{text}"
        );
        assert!(text.contains("256.0 KiB                   100%   5,000"), "{text}");
    }

    #[test]
    fn the_curve_is_written_and_drawn() {
        let (_, curve) = curve();
        assert_eq!(
            csv(&curve, Bytes(4096)),
            "pages,bytes,misses,miss_ratio\n0,0,5000,1\n100,409600,100,0.02\n"
        );
        assert!(chart("loop", &curve, Bytes(4096)).svg().contains("needs 400.0 KiB"));
    }

    #[test]
    fn shares_keep_two_digits() {
        assert_eq!([32.0, 3.21, 0.012_34, 0.0].map(|p| share(p, 100)), ["32%", "3.2%", "0.012%", "0%"]);
    }
}
