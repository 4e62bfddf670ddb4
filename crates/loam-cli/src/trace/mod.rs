//! `loam trace`: record, import, info, export.

pub(crate) mod args;
mod output;
mod record;

use crate::failure::Failure;
use crate::text;
use args::{ExportArgs, ImportArgs, InfoArgs, OtherFormat, Reading, TraceArgs, TraceCommand};
use loam_agent::stderr;
use loam_sim::trace::export::{self, ExportError};
use loam_sim::trace::native::{Header, Writer};
use loam_sim::trace::summary::{Counter, Totals};
use loam_sim::trace::{Format, Opened, Options, Source, TraceError, open_as};
use output::Output;
use serde_json::json;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Does what the command line says.
pub(crate) fn trace(args: TraceArgs) -> Result<ExitCode, Failure> {
    match args.command {
        TraceCommand::Record(args) => return record::record(args),
        TraceCommand::Import(args) => import(args)?,
        TraceCommand::Info(args) => info(&args)?,
        TraceCommand::Export(args) => export(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn opened(path: &Path, reading: &Reading) -> Result<Opened, Failure> {
    let options = Options { instructions: reading.instructions, page_bytes: reading.page };
    open_as(path, reading.format.map(Format::from), options).map_err(Failure::new)
}

/// Why a trace did not come whole from its source into a file.
#[derive(Debug)]
enum Stop {
    Read(TraceError),
    Write(io::Error),
}

impl Stop {
    fn failure(self, output: &Path) -> Failure {
        match self {
            Self::Read(error) => Failure::new(error),
            Self::Write(error) => output::failure(output, &error),
        }
    }
}

/// Copies at most `limit` references. True: the source was over before that.
fn copy<W: Write>(source: &mut dyn Source, writer: &mut Writer<W>, limit: Option<u64>) -> Result<bool, Stop> {
    let mut runs = Vec::new();
    let mut left = limit.unwrap_or(u64::MAX);
    while source.next_runs(&mut runs).map_err(Stop::Read)? {
        let mut whole = 0;
        for run in &mut runs {
            if left == 0 {
                break;
            }
            let references = u64::from(run.references).min(left);
            run.references = u32::try_from(references).expect("no more than there were");
            left -= references;
            whole += 1;
        }
        writer.add(&runs[..whole]).map_err(Stop::Write)?;
        if left == 0 {
            return Ok(false);
        }
        runs.clear();
    }
    Ok(true)
}

fn import(args: ImportArgs) -> Result<(), Failure> {
    let mut opened = opened(&args.input, &args.reading)?;
    let stem = args.input.file_stem().unwrap_or_default().to_string_lossy();
    let mut header = opened.header.take().unwrap_or_else(|| Header {
        instructions: args.reading.instructions && opened.format == Format::Lackey,
        ..Header::new(&stem)
    });
    if let Some(program) = args.program {
        header.program = program;
    }
    header.ns_per_reference = args.ns_per_reference.or(header.ns_per_reference);
    let cannot = |error: &io::Error| output::failure(&args.output, error);
    let output = Output::create(&args.output).map_err(|error| cannot(&error))?;
    let mut writer = Writer::new(output, &header).map_err(|error| cannot(&error))?;
    copy(&mut opened.source, &mut writer, None).map_err(|stop| stop.failure(&args.output))?;
    let (totals, output) = writer.finish().map_err(|error| cannot(&error))?;
    let bytes = output.keep().map_err(|error| cannot(&error))?;
    stderr::say(closing(&args.output, &totals, bytes));
    Ok(())
}

/// One line on what was written.
fn closing(path: &Path, totals: &Totals, bytes: u64) -> String {
    format!(
        "{}: {} references in {} runs, {} pages of 8 KiB, {} bytes ({} per million references)",
        path.display(),
        text::count(totals.references),
        text::count(totals.runs),
        text::count(totals.pages_8k),
        text::count(bytes),
        per_million(bytes, totals.references),
    )
}

fn per_million(bytes: u64, references: u64) -> String {
    let per = u128::from(bytes) * 1_000_000 / u128::from(references.max(1));
    text::count(u64::try_from(per).unwrap_or(u64::MAX))
}

fn info(args: &InfoArgs) -> Result<(), Failure> {
    let mut opened = opened(&args.file, &args.reading)?;
    let (mut counter, mut runs) = (Counter::default(), Vec::new());
    while opened.source.next_runs(&mut runs).map_err(Failure::new)? {
        let named = |error| Failure::new(format!("{}: {error}", args.file.display()));
        counter.add(&runs).map_err(named)?;
        runs.clear();
    }
    let totals = counter.totals();
    let bytes = args.file.metadata().map_or(0, |file| file.len());
    let shown = match args.json {
        true => as_json(&opened, &totals, bytes),
        false => as_table(&opened, &totals, bytes),
    };
    written(io::stdout().write_all(shown.as_bytes()), Path::new("-"))
}

fn name(format: Format) -> &'static str {
    match format {
        Format::Loam => "Loam",
        Format::Lackey => "lackey",
        Format::Oracle => "oracleGeneral",
        Format::Csv => "csv",
    }
}

fn as_json(opened: &Opened, totals: &Totals, bytes: u64) -> String {
    let json = json!({
        "format": name(opened.format),
        "header": opened.header,
        "references": totals.references,
        "runs": totals.runs,
        "writing_runs": totals.writing_runs,
        "grains": totals.grains,
        "pages_4k": totals.pages_4k,
        "pages_8k": totals.pages_8k,
        "bytes": bytes,
    });
    format!("{json}\n")
}

fn as_table(opened: &Opened, totals: &Totals, bytes: u64) -> String {
    let mut lines = vec![("format", name(opened.format).to_string())];
    if let Some(header) = &opened.header {
        lines.push(("program", text::printable(&header.program, 60)));
        if !header.command.is_empty() {
            lines.push(("command", text::printable(&header.command.join(" "), 200)));
        }
        lines.push(("instructions", if header.instructions { "yes" } else { "no" }.into()));
        lines.extend(header.limit.map(|limit| ("limit", text::count(limit))));
        lines.extend(header.ns_per_reference.map(|ns| ("ns per reference", ns.to_string())));
    }
    let of_runs = text::percent(totals.writing_runs as f64, totals.runs as f64);
    lines.extend([
        ("references", text::count(totals.references)),
        ("runs", text::count(totals.runs)),
        ("runs that write", format!("{} ({of_runs})", text::count(totals.writing_runs))),
        ("runs that only read", text::count(totals.runs - totals.writing_runs)),
        ("grains of 256 B", text::count(totals.grains)),
        ("pages of 4 KiB", text::count(totals.pages_4k)),
        ("pages of 8 KiB", text::count(totals.pages_8k)),
        ("file's bytes", text::count(bytes)),
        ("bytes/million refs", per_million(bytes, totals.references)),
    ]);
    lines.iter().map(|(name, value)| format!("{name:<20} {value}\n")).collect()
}

fn export(args: &ExportArgs) -> Result<(), Failure> {
    let mut opened = open_as(&args.file, None, Options::default()).map_err(Failure::new)?;
    let mut output = Output::create(&args.output).map_err(|error| output::failure(&args.output, &error))?;
    let exported = match args.format {
        OtherFormat::Csv => export::csv(&mut opened.source, &mut output),
        OtherFormat::Lackey => export::lackey(&mut opened.source, &mut output),
        OtherFormat::Oracle => export::oracle(&mut opened.source, args.page, &mut output),
    };
    match exported {
        Ok(_) => written(output.keep().map(|_| ()), &args.output),
        Err(ExportError::Write(error)) => written(Err(error), &args.output),
        Err(error @ ExportError::TooLong) => Err(Failure::new(format!("{}: {error}", args.file.display()))),
        Err(error) => Err(Failure::new(error)),
    }
}

/// A reader that has seen enough (`| head`) is not worth an error.
fn written(result: io::Result<()>, path: &Path) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(output::failure(path, &error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_sim::trace::csv::Csv;
    use loam_sim::trace::native::Reader;
    use loam_sim::trace::summary::all_runs;

    fn copied(limit: Option<u64>) -> (bool, Vec<u32>) {
        let mut source = Csv::new(&b"0\n1\n256\n512\n513\n514\n"[..], "t");
        let mut writer = Writer::new(Vec::new(), &Header::new("t")).expect("memory");
        let whole = copy(&mut source, &mut writer, limit).expect("sound");
        let file = writer.finish().expect("memory").1;
        let runs = all_runs(&mut Reader::new(file.as_slice(), "t").expect("whole")).expect("whole");
        (whole, runs.iter().map(|run| run.references).collect())
    }

    #[test]
    fn a_limit_cuts_within_a_run() {
        assert_eq!(copied(None), (true, vec![2, 1, 3]));
        assert_eq!(copied(Some(7)), (true, vec![2, 1, 3]));
        assert_eq!(copied(Some(4)), (false, vec![2, 1, 1]));
        assert_eq!(copied(Some(2)), (false, vec![2]));
    }

    #[test]
    fn a_file_that_is_not_whole_leaves_nothing() {
        let path = std::env::temp_dir().join(format!("loam-cli-output-{}", std::process::id()));
        let mut output = Output::create(&path).expect("temporary folder");
        output.write_all(b"half").expect("temporary folder");
        drop(output);
        assert!(!path.exists() && !path.with_extension("part").exists());
        let mut output = Output::create(&path).expect("temporary folder");
        output.write_all(b"whole").expect("temporary folder");
        assert_eq!(output.keep().expect("temporary folder"), 5);
        assert_eq!(std::fs::read(&path).expect("it is there"), b"whole");
        std::fs::remove_file(&path).expect("our own file");
    }
}
