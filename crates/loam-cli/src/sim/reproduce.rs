//! `loam sim reproduce PAPER`.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use loam_agent::stderr;
use loam_sim::machine::Prepared;
use loam_sim::report::Html;
use loam_sim::reproduce::subpages::{App, Experiments};
use loam_sim::reproduce::{Reproduction, aapc, gms, nwcache, regions, results_table, subpages};
use loam_sim::trace;
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// A paper that can be reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Paper {
    /// Reducing Network Latency Using Subpages in a Global Memory Environment (Jamrozik et al., ASPLOS 1996).
    Subpages,
    /// Implementing Global Memory Management in a Workstation Cluster (Feeley et al., SOSP 1995).
    Gms,
    /// Automatic Adaptive Page-size Control for Remote Memory Paging (Midorikawa and Uchiyama, CCGrid 2012).
    Aapc,
    /// NWCache: Optimizing Disk Accesses via an Optical Network/Write Cache Hybrid (Carrera and Bianchini, IPPS/SPDP 1999).
    Nwcache,
    /// Getting Rid of Coherency Overhead for Memory-Hungry Applications (Montaner et al., CLUSTER 2010).
    Regions,
}

/// Arguments of `loam sim reproduce`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReproduceArgs {
    /// Which paper
    #[arg(value_enum)]
    paper: Paper,
    /// Folder with the recorded programs; at first `traces` here, then where this build comes from
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Write report.html, the tables as CSV and the figures as SVG into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Simulations at a time; as many as there are cores unless told otherwise
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// gms: tables 1 to 5 alone, which take seconds. aapc: without the table of today's path.
    /// nwcache: the paper's machine alone. regions: a sixteenth of all sizes
    #[arg(long)]
    quick: bool,
    /// gms: what all chances come from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

const EXAMPLES: &str = "\
Examples:
  loam sim reproduce subpages                         each printed figure beside ours, then the claims
  loam sim reproduce subpages --out subpages          and a report with the figures
  make traces; loam sim reproduce subpages --traces target/traces
  loam sim reproduce gms --out gms                    a cluster that shares its memory, against N-chance
  loam sim reproduce gms --quick                      its cost tables alone
  loam sim reproduce aapc --out aapc                  page sizes that adapt, against fixed ones
  loam sim reproduce nwcache --out nwcache            a multiprocessor whose dirty pages wait on an optical ring
  loam sim reproduce regions --out regions            loads and stores to other nodes' memory, against remote swap

Ends with status 1 if a claim of the paper does not hold.";

/// The recorded programs: file, what it is, and which of the paper's programs it stands for.
const PROGRAMS: [(&str, &str, &str); 5] = [
    ("cc1", "cc1 (a C compiler)", "Modula-3"),
    ("ld", "ld (a linker)", "ld"),
    ("objdump", "objdump (a disassembler)", "Atom"),
    ("povray", "povray (a ray tracer)", "Render"),
    ("gdb", "gdb (starting)", "gdb"),
];

/// Runs a paper's experiments and prints what came of them.
pub(super) fn reproduce(args: &ReproduceArgs) -> Result<ExitCode, Failure> {
    let reproduction = match args.paper {
        Paper::Subpages if args.quick => {
            return Err(Failure::new(
                "--quick is for gms, aapc, nwcache and regions: subpages has no quicker part",
            ));
        }
        Paper::Subpages => subpages(args)?,
        Paper::Gms => gms(args)?,
        Paper::Aapc => aapc(args)?,
        Paper::Nwcache => nwcache(args)?,
        Paper::Regions => regions(args)?,
    };
    print(&reproduction).map_err(|error| Failure::new(format!("stdout: {error}")))?;
    if let Some(out) = &args.out {
        write(&reproduction, out)?;
        stderr::say(format_args!("the report is {}", out.join("report.html").display()));
    }
    let holds = reproduction.checks.iter().all(|check| check.pass);
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Runs something that tells how far it is, and says how fast it was.
fn timed<T>(run: impl FnOnce(&(dyn Fn(usize, usize) + Sync)) -> T, references: impl Fn(&T) -> u64) -> T {
    let began = Instant::now();
    let terminal = std::io::stderr().is_terminal();
    let done = run(&|done, all| {
        if terminal {
            stderr::put(&format!("\r{done} of {all} simulations"));
        }
    });
    if terminal {
        stderr::put("\n");
    }
    let (seconds, millions) = (began.elapsed().as_secs_f64(), references(&done) as f64 / 1e6);
    stderr::say(format_args!(
        "{millions:.0} million references replayed in {seconds:.1} s, {:.0} million a second",
        millions / seconds
    ));
    done
}

fn threads(args: &ReproduceArgs) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    args.threads.unwrap_or_else(cores).clamp(1, 256)
}

fn subpages(args: &ReproduceArgs) -> Result<Reproduction, Failure> {
    let folder = folder(args.traces.as_deref())?;
    let apps: Vec<App> = PROGRAMS.iter().map(|p| app(&folder, p)).collect::<Result<_, _>>()?;
    let run = |done: &(dyn Fn(usize, usize) + Sync)| Experiments::run(apps, threads(args), done);
    Ok(subpages::reproduce(&timed(run, |experiments| experiments.references)))
}

fn gms(args: &ReproduceArgs) -> Result<Reproduction, Failure> {
    if args.quick {
        return Ok(gms::reproduce(&gms::Experiments::tables()));
    }
    let folder = folder(args.traces.as_deref())?;
    let run =
        |done: &(dyn Fn(usize, usize) + Sync)| gms::Experiments::run(&folder, args.seed, threads(args), done);
    let references =
        |done: &Result<gms::Experiments, String>| done.as_ref().map_or(0, gms::Experiments::references);
    let experiments = timed(run, references)
        .map_err(|error| Failure::new(format!("{error} (bench/traces/record.sh records it)")))?;
    Ok(gms::reproduce(&experiments))
}

fn aapc(args: &ReproduceArgs) -> Result<Reproduction, Failure> {
    let extent = if args.quick { aapc::Extent::Paper } else { aapc::Extent::All };
    let run = |done: &(dyn Fn(usize, usize) + Sync)| aapc::Experiments::run(extent, threads(args), done);
    let references = |done: &Result<aapc::Experiments, String>| {
        done.as_ref().map_or(0, |experiments| experiments.references)
    };
    Ok(aapc::reproduce(&timed(run, references).map_err(Failure::new)?))
}

fn nwcache(args: &ReproduceArgs) -> Result<Reproduction, Failure> {
    let extent = if args.quick { nwcache::Extent::Paper } else { nwcache::Extent::All };
    let run = |done: &(dyn Fn(usize, usize) + Sync)| nwcache::Experiments::run(extent, threads(args), done);
    let touches =
        |done: &Result<nwcache::Experiments, String>| done.as_ref().map_or(0, nwcache::Experiments::touches);
    Ok(nwcache::reproduce(&timed(run, touches).map_err(Failure::new)?))
}

fn regions(args: &ReproduceArgs) -> Result<Reproduction, Failure> {
    let extent = if args.quick { regions::Extent::Quick } else { regions::Extent::All };
    let run = |done: &(dyn Fn(usize, usize) + Sync)| regions::Experiments::run(extent, threads(args), done);
    let accesses =
        |done: &Result<regions::Experiments, String>| done.as_ref().map_or(0, regions::Experiments::accesses);
    Ok(regions::reproduce(&timed(run, accesses).map_err(Failure::new)?))
}

/// Where the traces are.
pub(super) fn folder(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(folder) = given {
        return Ok(folder.to_owned());
    }
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    [PathBuf::from("traces"), built_from].into_iter().find(|folder| folder.is_dir()).ok_or_else(|| {
        Failure::new("no folder `traces` here: give --traces DIR (the recorded programs are in Loam's source, or `make traces`)")
    })
}

fn app(folder: &Path, (file, name, stands_for): &(&str, &str, &'static str)) -> Result<App, Failure> {
    let path = folder.join(file).with_extension("trace");
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(format!("{error} (bench/traces/record.sh records it)"));
    let mut source = trace::open(&path).map_err(|error| failed(&error))?;
    let trace = Prepared::read(&mut source, 8192).map_err(|error| failed(&error))?;
    Ok(App { name: (*name).into(), stands_for, trace })
}

fn print(reproduction: &Reproduction) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}\n", reproduction.title)?;
    for line in &reproduction.about {
        writeln!(out, "{line}")?;
    }
    for (_, caption, table) in reproduction.tables.iter().filter(|t| t.0 != "runs") {
        writeln!(out, "\n{caption}\n\n{}", table.text())?;
    }
    if !reproduction.results.is_empty() {
        writeln!(out, "\nPrinted results and ours\n\n{}", results_table(&reproduction.results).text())?;
    }
    writeln!(out, "\nClaims\n")?;
    for check in &reproduction.checks {
        writeln!(out, "{}", check.line())?;
    }
    Ok(())
}

fn write(reproduction: &Reproduction, folder: &Path) -> Result<(), Failure> {
    let failed = |path: &Path, error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let file = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| failed(&path, error))
    };
    let mut html = Html::new(reproduction.title.clone());
    for line in &reproduction.about {
        html.paragraph(line);
    }
    html.heading("Claims");
    html.checks(&reproduction.checks);
    if !reproduction.results.is_empty() {
        html.heading("Printed results and ours");
        let results = results_table(&reproduction.results);
        html.table(&results);
        file("results.csv", results.csv())?;
    }
    html.heading("Figures");
    for (name, figure) in &reproduction.figures {
        html.figure(figure);
        file(&format!("{name}.svg"), figure.svg())?;
    }
    for (name, caption, table) in &reproduction.tables {
        html.heading(caption);
        html.table(table);
        file(&format!("{name}.csv"), table.csv())?;
    }
    file("report.html", html.page())
}
