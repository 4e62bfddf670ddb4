//! `loam sim workload`: what a built-in program is like.

use super::reproduce;
use crate::failure::Failure;
use crate::size::Size;
use crate::text::{count, percent, seconds, table};
use clap::Args;
use loam_core::units::Bytes;
use loam_sim::mrc::{self, Curve};
use loam_sim::replay::{Stream, StreamBuilder};
use loam_sim::workload::{Footprint, NAMES, Object, Reference, Scale, Workload, by_name};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Sizes of memory that are told, in MiB.
const SIZES_MIB: [u64; 9] = [8, 16, 32, 48, 64, 96, 128, 192, 256];

/// Arguments of `loam sim workload`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct WorkloadArgs {
    /// Which program
    #[arg(value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(NAMES))]
    name: String,
    /// Size of a page: a power of two from 4K to 1M
    #[arg(long, value_name = "SIZE", default_value = "8K", value_parser = crate::args::page_size)]
    page: Size,
    /// Seed of what is random in it
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The size that tests use, a thousandth or so of the paper's
    #[arg(long)]
    small: bool,
    /// Folder with the recorded programs (compile); at first `traces` here, then where this build comes from
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  loam sim workload oo7
  loam sim workload compile --page 4K --seed 7

What the programs are: docs/simulator-workloads.md.";

/// What a run amounts to.
#[derive(Debug, Default)]
struct Totals {
    references: u64,
    private: u64,
    writes: u64,
    fresh: u64,
    cpu_ns: u64,
    idle_us: u64,
}

impl Totals {
    fn add(&mut self, reference: &Reference) {
        self.references += 1;
        self.private += u64::from(reference.page.object == Object::Private);
        self.writes += u64::from(reference.write);
        self.fresh += u64::from(reference.fresh);
        self.cpu_ns += u64::from(reference.cpu_ns);
        self.idle_us += u64::from(reference.idle_us);
    }
}

/// Runs it and prints.
pub(super) fn workload(args: &WorkloadArgs) -> Result<ExitCode, Failure> {
    let Size::Absolute(page) = args.page else {
        return Err(Failure::new("--page is a size, not a percentage"));
    };
    // Only one of them reads recorded programs.
    let traces =
        if args.name == "compile" { reproduce::folder(args.traces.as_deref())? } else { PathBuf::new() };
    let scale = if args.small { Scale::Small } else { Scale::Paper };
    let built = by_name(&args.name, scale, page, args.seed, &traces).map_err(Failure::new)?;
    let mut workload = built.expect("clap checked the name");
    let (totals, stream) = run(&mut *workload);
    let results = workload
        .check()
        .map_err(|wrong| Failure::new(format!("{}: computed wrongly: {wrong}", args.name)))?;
    print!("{}", text(&args.name, page, workload.footprint(), &totals, &results, &mrc::exact(&stream)));
    Ok(ExitCode::SUCCESS)
}

fn run(workload: &mut dyn Workload) -> (Totals, Stream) {
    let footprint = workload.footprint().clone();
    let (mut totals, mut stream, mut some) = (Totals::default(), StreamBuilder::default(), Vec::new());
    while workload.next_references(&mut some) {
        for reference in some.drain(..) {
            totals.add(&reference);
            stream.push(footprint.number(reference.page), 1);
        }
    }
    (totals, stream.finish())
}

fn text(
    name: &str,
    page: Bytes,
    footprint: &Footprint,
    totals: &Totals,
    results: &[String],
    curve: &Curve,
) -> String {
    let size = |pages: u64| Bytes(pages * page.0).to_string();
    let mut out = format!("{name}: {} in pages of {page}\n\n", size(footprint.pages()));
    let mut rows = vec![["memory", "pages", "size", ""].map(String::from).to_vec()];
    let mut row = |what: &str, pages: u64, note: &str| {
        rows.push(vec![what.into(), count(pages), size(pages), note.into()]);
    };
    if footprint.private_pages > 0 {
        row("private", footprint.private_pages, "");
    }
    for file in &footprint.files {
        row(&format!("file: {}", file.name), file.pages, if file.made { "made by it" } else { "" });
    }
    let of = |part: u64| percent(part as f64, totals.references as f64);
    write!(
        out,
        "{}\n{} page references: {} to private memory, {} write, {} to what is new\n{} of processor time{}\n",
        table(&rows),
        count(totals.references),
        of(totals.private),
        of(totals.writes),
        of(totals.fresh),
        seconds(totals.cpu_ns as f64 / 1e9),
        match totals.idle_us {
            0 => String::new(),
            us => format!(", {} of thinking", seconds(us as f64 / 1e6)),
        }
    )
    .expect("a String takes it");
    for result in results {
        writeln!(out, "checked: {result}").expect("a String takes it");
    }
    let mut rows = vec![["memory", "misses", "again"].map(String::from).to_vec()];
    let first = curve.first_uses();
    let mut row = |what: String, pages: u64| {
        let misses = curve.misses(pages);
        rows.push(vec![what, count(misses as u64), count((misses - first) as u64)]);
    };
    for pages in SIZES_MIB.map(|mib| Bytes::from_mib(mib).0 / page.0) {
        if pages < curve.footprint() {
            row(size(pages), pages);
        }
    }
    row(size(curve.footprint()), curve.footprint());
    write!(
        out,
        "\nLRU; \"again\" are misses of pages that were there before\n{}\nneeds {} (the smallest size with which a page comes back \
         once on average, or less often)\n",
        table(&rows),
        size(curve.need())
    )
    .expect("a String takes it");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_person_can_look_at_each() {
        let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
        for name in NAMES {
            let page = Bytes(8192);
            let mut workload =
                by_name(name, Scale::Small, page, 1, &traces).expect("traces are there").expect("a name");
            let (totals, stream) = run(&mut *workload);
            assert_eq!(totals.references, stream.references());
            let results = workload.check().expect("right results");
            let text = text(name, page, workload.footprint(), &totals, &results, &mrc::exact(&stream));
            for part in [name, "of processor time", "checked: ", "needs "] {
                assert!(text.contains(part), "{name} without `{part}`: {text}");
            }
        }
    }
}
