//! `loam advise`: which way to memory is best for each data structure of a recorded program.

pub(crate) mod args;
mod show;

use crate::failure::Failure;
use args::AdviseArgs;
use loam_sim::advise::{self, Named, Options};
use loam_sim::trace::{self, Format, Source, open_as};
use std::path::Path;
use std::process::ExitCode;

/// Structures that may be named.
const NAMED_MAX: usize = 1024;

/// Replays and prints.
pub(crate) fn advise(args: &AdviseArgs) -> Result<ExitCode, Failure> {
    let cluster = args.cluster()?;
    let reading = trace::Options { instructions: args.reading.instructions, page_bytes: args.reading.page };
    let format = args.reading.format.map(Format::from);
    let opened = open_as(&args.trace, format, reading).map_err(Failure::new)?;
    let of_trace = opened.header.as_ref().and_then(|header| header.ns_per_reference);
    let options = Options {
        gap_bytes: args::bytes("--gap", &args.gap)?,
        structures_max: usize::from(args.most),
        named: args.structures.as_deref().map(named).transpose()?.unwrap_or_default(),
        pages_only: opened.format == Format::Oracle,
        reference_ns: args.ns_per_reference.or(of_trace).unwrap_or(cluster.paging.reference_ns as f64),
        threads: args.threads.map_or_else(cores, usize::from),
    };
    drop(opened);
    let mut open = || open_as(&args.trace, format, reading).map(|opened| opened.source as Box<dyn Source>);
    let named = |error: advise::AdviseError| match error {
        advise::AdviseError::Trace(error) => Failure::new(error),
        other => Failure::new(format!("{}: {other}", args.trace.display())),
    };
    let advice = advise::advise(&cluster, &options, &mut open).map_err(named)?;
    match args.json {
        true => println!("{}", show::json(&advice, &cluster)),
        false => print!("{}", show::text(&args.trace.display().to_string(), &advice, &cluster)),
    }
    Ok(ExitCode::SUCCESS)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Named ranges from a file.
fn named(path: &Path) -> Result<Vec<Named>, Failure> {
    let text = args::read(path)?;
    let lines =
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let mut named = Vec::new();
    for (at, line) in lines {
        let wrong = |what: &str| Failure::new(format!("{}: line {}: {what}", path.display(), at + 1));
        named.push(one(line).map_err(|what| wrong(&what))?);
        if named.len() > NAMED_MAX {
            return Err(wrong(&format!("more than {NAMED_MAX} structures")));
        }
    }
    Ok(named)
}

fn one(line: &str) -> Result<Named, String> {
    let mut fields = line.split(',').map(str::trim);
    let (Some(name), Some(start), Some(size), None) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return Err("expected name,start,size, such as table,0x4a3c010,64M".into());
    };
    if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
        return Err("a name has 1 to 64 letters".into());
    }
    let number = match start.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => start.parse(),
    };
    let start = number.map_err(|_| format!("{start} is no address, such as 0x4a3c010"))?;
    let bytes = args::bytes("size", size).map_err(|failure| failure.line().to_owned())?;
    Ok(Named { name: name.into(), start, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_lines_of_three() {
        let found = one("table, 0x4a3c010, 64M").expect("three");
        assert_eq!((found.name.as_str(), found.start, found.bytes), ("table", 0x4a3_c010, 64 << 20));
        assert_eq!(one("t,4096,1").expect("three").start, 4096);
        for (line, says) in [
            ("t,4096", "name,start,size"),
            ("t,4096,1,2", "name,start,size"),
            (",4096,1", "1 to 64 letters"),
            ("t,zz,1", "no address"),
            ("t,0xzz,1", "no address"),
            ("t,1,25%", "which machine"),
            ("t,1,0", "no memory"),
        ] {
            assert!(one(line).expect_err("wrong").contains(says), "{line}");
        }
    }
}
