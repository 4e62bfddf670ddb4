//! The command line of `loam trace`.

use crate::size::Size;
use clap::{Args, Subcommand, ValueEnum};
use loam_sim::trace;
use std::ffi::OsString;
use std::path::PathBuf;

/// Reference traces.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    pub(crate) command: TraceCommand,
}

const EXAMPLES: &str = "\
Examples:
  loam trace record -o sort.trace -- sort big.txt
  loam trace info sort.trace
  loam trace import lackey.txt -o program.trace
  loam trace export sort.trace --format oracle -o sort.oracleGeneral.bin

The format is described in docs/trace-format.md.";

/// What to do with a trace.
#[derive(Subcommand, Debug)]
pub(crate) enum TraceCommand {
    /// Run a program and record which memory it touches
    ///
    /// Runs a program under valgrind's lackey and records which memory it touches, in order.
    ///
    /// The trace is packed on its way: nothing large is written. A program takes some hundred times as long
    /// as without recording. stdin, stdout, stderr and the exit status pass through. Only the process itself
    /// is recorded, not its children: a compiler's driver starts the compiler proper, so record that (`gcc
    /// -###` shows its command line). An interrupted program leaves a whole trace up to there.
    Record(RecordArgs),
    /// Convert a trace of another format to Loam's own
    ///
    /// Converts a trace to Loam's own format. lackey's text, libCacheSim's oracleGeneral and csv
    /// (address[,r|w][,size] a line) are recognised by their content, also packed with zstd.
    Import(ImportArgs),
    /// Show what there is in a trace
    ///
    /// Reads all of a trace, of any format, checks it on the way and shows what there is in it.
    Info(InfoArgs),
    /// Convert a trace to a format of other programs
    Export(ExportArgs),
}

/// Formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    /// Loam's own
    Loam,
    /// Text of `valgrind --tool=lackey --trace-mem=yes`
    Lackey,
    /// libCacheSim's oracleGeneral
    Oracle,
    /// Lines of address[,r|w][,size]
    Csv,
}

impl From<FormatArg> for trace::Format {
    fn from(format: FormatArg) -> Self {
        match format {
            FormatArg::Loam => Self::Loam,
            FormatArg::Lackey => Self::Lackey,
            FormatArg::Oracle => Self::Oracle,
            FormatArg::Csv => Self::Csv,
        }
    }
}

/// Formats of other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OtherFormat {
    /// Lines of address,op,size
    Csv,
    /// libCacheSim's oracleGeneral: one request for consecutive references to one page
    Oracle,
    /// Text of valgrind's lackey
    Lackey,
}

/// Arguments of `loam trace record`.
#[derive(Args, Debug)]
#[command(after_help = RECORD_EXAMPLES)]
pub(crate) struct RecordArgs {
    /// Where the trace goes [default: PROGRAM.trace in this folder]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Record instruction fetches too
    #[arg(long)]
    pub(crate) instructions: bool,
    /// Kill the program after N references
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Note in the trace how long a reference takes on the average, for the simulator
    #[arg(long, value_name = "NS", value_parser = nanoseconds)]
    pub(crate) ns_per_reference: Option<f64>,
    /// Print nothing but errors
    #[arg(long)]
    pub(crate) quiet: bool,
    /// The program
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: OsString,
    /// Its arguments
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<OsString>,
}

const RECORD_EXAMPLES: &str = "\
Examples:
  loam trace record -o sort.trace -- sort big.txt
  loam trace record --limit 50000000 -- ./server --port 8080
  loam trace record -o cc1.trace -- $(gcc -print-prog-name=cc1) -quiet -O2 prog.i -o /dev/null

Exit status: the program's own (0 where --limit ended it); 125 if Loam fails, 126 if PROGRAM cannot be executed,
127 if it is not found. Needs valgrind.";

/// Arguments of `loam trace import`.
#[derive(Args, Debug)]
#[command(after_help = IMPORT_EXAMPLES)]
pub(crate) struct ImportArgs {
    /// The trace
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// Where the trace in Loam's format goes
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) reading: Reading,
    /// Name of the program that the trace is of [default: IN's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) program: Option<String>,
    /// Note in the trace how long a reference takes on the average, for the simulator
    #[arg(long, value_name = "NS", value_parser = nanoseconds)]
    pub(crate) ns_per_reference: Option<f64>,
}

const IMPORT_EXAMPLES: &str = "\
Examples:
  loam trace import lackey.txt -o program.trace
  loam trace import cluster52.oracleGeneral.zst -o cluster52.trace --page 4K";

/// How a trace is read.
#[derive(Args, Debug)]
pub(crate) struct Reading {
    /// The trace's format [default: recognised by its content]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) format: Option<FormatArg>,
    /// Take instruction fetches too (lackey)
    #[arg(long)]
    pub(crate) instructions: bool,
    /// The page that an object of oracleGeneral is: a power of two from 256 to 1G
    #[arg(long, value_name = "SIZE", value_parser = page, default_value = "4K")]
    pub(crate) page: u64,
}

/// Arguments of `loam trace info`.
#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
    /// The trace
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) reading: Reading,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `loam trace export`.
#[derive(Args, Debug)]
#[command(after_help = EXPORT_EXAMPLES)]
pub(crate) struct ExportArgs {
    /// The trace, of any format
    pub(crate) file: PathBuf,
    /// The format to write
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) format: OtherFormat,
    /// Where it goes; - is stdout
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    /// The page that becomes an object of oracleGeneral: a power of two from 256 to 1G
    #[arg(long, value_name = "SIZE", value_parser = page, default_value = "4K")]
    pub(crate) page: u64,
}

const EXPORT_EXAMPLES: &str = "\
Examples:
  loam trace export sort.trace --format csv | head
  loam trace export sort.trace --format oracle --page 8K -o sort.oracleGeneral.bin

References are put at the start of their 256 bytes; of those in a row to one place that write, the last one writes.";

fn page(text: &str) -> Result<u64, String> {
    match text.parse::<Size>() {
        Ok(Size::Absolute(bytes)) if bytes.0.is_power_of_two() && (256..=1 << 30).contains(&bytes.0) => {
            Ok(bytes.0)
        }
        Ok(_) => Err("a page is a power of two from 256 to 1G".into()),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn nanoseconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ns) if ns > 0.0 && ns <= 1e6 => Ok(ns),
        _ => Err("expected nanoseconds above 0 and at most 1000000, as 12 or 0.5".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    #[test]
    fn the_recorded_programs_flags_are_not_ours() {
        let words = ["loam", "trace", "record", "--limit", "5", "--", "sort", "-o", "x", "--quiet"];
        let Command::Trace(trace) = Cli::try_parse_from(words).expect("valid").command else {
            panic!("no trace")
        };
        let TraceCommand::Record(record) = trace.command else { panic!("no recording") };
        assert_eq!((record.limit, record.output, record.quiet), (Some(5), None, false));
        assert_eq!(record.args, ["-o", "x", "--quiet"]);
    }

    #[test]
    fn pages_and_nanoseconds_have_limits() {
        assert_eq!((page("256"), page("8K"), page("1G")), (Ok(256), Ok(8192), Ok(1 << 30)));
        assert!(["128", "3K", "2G", "10%", "0", "x"].iter().all(|text| page(text).is_err()));
        assert_eq!(nanoseconds("0.5"), Ok(0.5));
        assert!(["0", "-1", "NaN", "inf", "1e7"].iter().all(|text| nanoseconds(text).is_err()));
    }
}
