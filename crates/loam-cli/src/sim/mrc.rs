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
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "trace")]
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
    let sample =
        args.sample.map(Sample::Rate).or(args.sample_pages.map(|pages| Sample::Pages(pages as usize)));
    let (name, (curve, distinct)) = match (&args.trace, args.zipf, sample) {
        (Some(path), _, Some(sample)) => (path.display().to_string(), input::sampled(path, page, sample)?),
        (Some(path), _, None) => (path.display().to_string(), of_stream(&input::stream(path, page)?, None)),
        (None, Some(zipf), _) => {
            ("a Zipf stream".into(), of_stream(&Stream::of(zipf.pages(args.seed)), sample))
        }
        (None, None, _) => return Err(Failure::new("give a trace or --zipf; see `loam sim mrc --help`")),
    };
    something_sampled(&curve, distinct)?;
    print!("{}", text(&name, &curve, distinct, page, sample));
    if let Some(path) = &args.csv {
        write(path, &csv(&curve, page))?;
    }
    if let Some(path) = &args.svg {
        write(path, &chart(&name, &curve, page).svg())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The curve, and how many pages there are.
fn of_stream(stream: &Stream, sample: Option<Sample>) -> (Curve, u32) {
    let curve = sample.map_or_else(|| mrc::exact(stream), |sample| mrc::sampled(stream, sample));
    (curve, stream.distinct())
}

/// A sample without pages says nothing, and its curve would say that nothing misses.
fn something_sampled(curve: &Curve, distinct: u32) -> Result<(), Failure> {
    if curve.sampled() == 0 {
        let pages = count(u64::from(distinct));
        return Err(Failure::new(format!(
            "none of the {pages} pages is in the sample: give a larger --sample"
        )));
    }
    Ok(())
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

fn text(name: &str, curve: &Curve, distinct: u32, page: Bytes, sample: Option<Sample>) -> String {
    let mut out = format!(
        "{name}: {} references to {} pages of {page} ({} in all), LRU\n",
        count(curve.references()),
        count(u64::from(distinct)),
        size(u64::from(distinct), page),
    );
    if let Some(sample) = sample {
        let pages = match sample {
            Sample::Rate(rate) => rate * f64::from(distinct),
            Sample::Pages(pages) => f64::from(distinct).min(pages as f64),
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

/// What is drawn, from one page on: with no memory at all every reference misses, which says nothing and squeezes the rest.
fn points(curve: &Curve, page: Bytes) -> Vec<(f64, f64)> {
    let point = |pages| (size(pages, page).0 as f64, curve.misses(pages) / curve.references() as f64);
    let later = curve.steps().iter().map(|step| step.pages).filter(|&pages| pages > 1);
    std::iter::once(1).chain(later).map(point).collect()
}

fn chart(name: &str, curve: &Curve, page: Bytes) -> Figure {
    let need = curve.need();
    Figure::new(
        format!("Misses of {name} under LRU, pages of {page}"),
        Axis::new("local memory", Unit::Bytes),
        Axis::new("references that miss", Unit::Share).scale(Scale::Log10),
    )
    .series(Series::step("LRU", points(curve, page)))
    .series(Series::scatter(
        format!("needs {}", size(need, page)),
        vec![(size(need, page).0 as f64, curve.misses(need) / curve.references() as f64)],
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
        let text = text("loop.trace", &curve, stream.distinct(), Bytes(4096), None);
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
    fn the_drawing_begins_with_one_page() {
        let drawn = |pages: &[u64]| points(&mrc::exact(&Stream::of(pages.iter().copied())), Bytes(4096));
        assert_eq!(drawn(&[1, 2, 1, 2]), [(4096.0, 1.0), (8192.0, 0.5)], "it holds nothing that is used");
        assert_eq!(drawn(&[1, 1, 2, 1]), [(4096.0, 0.75), (8192.0, 0.5)], "it holds one of four");
    }

    #[test]
    fn a_sample_of_nothing_is_no_answer() {
        let (stream, curve) = curve();
        let nothing = mrc::sampled(&stream, Sample::Rate(1e-9));
        let failure = something_sampled(&nothing, stream.distinct()).expect_err("nothing is sampled");
        assert!(failure.line().contains("none of the 100 pages is in the sample"), "{}", failure.line());
        assert!(something_sampled(&curve, stream.distinct()).is_ok());
    }

    #[test]
    fn no_more_pages_are_sampled_than_there_are() {
        let (stream, curve) = curve();
        let sample = Some(Sample::Pages(5_000));
        let text = text("loop.trace", &curve, stream.distinct(), Bytes(4096), sample);
        assert!(text.contains("sampled: about 100 pages; few pages"), "{text}");
    }

    #[test]
    fn shares_keep_two_digits() {
        assert_eq!([32.0, 3.21, 0.012_34, 0.0].map(|p| share(p, 100)), ["32%", "3.2%", "0.012%", "0%"]);
    }
}
