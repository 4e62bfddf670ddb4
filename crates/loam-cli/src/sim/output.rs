//! Files of a sweep.

use crate::failure::Failure;
use loam_agent::stderr;
use loam_sim::plan::Results;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

/// Rows that are printed; the files have all.
const ROWS_MAX: usize = 60;

/// Makes the folder before hours go into what shall be written there.
pub(super) fn make_folder(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| Failure::new(format!("{}: {error}", folder.display())))
}

/// Reads a text file of at most `most` bytes.
pub(super) fn read(path: &Path, most: u64) -> Result<String, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
    let mut text = String::new();
    let file = File::open(path).map_err(|error| failed(&error))?;
    // One byte more, to see whether there is more; what a pipe holds is not known before.
    let read = file.take(most + 1).read_to_string(&mut text).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => failed(&"not text in UTF-8"),
        _ => failed(&error),
    })?;
    if read as u64 > most { Err(failed(&format!("more than {} MiB", most >> 20))) } else { Ok(text) }
}

/// Writes a file whole or not at all: a task that its cluster ends leaves no half one.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let partial = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = fs::write(&partial, bytes).and_then(|()| fs::rename(&partial, path));
    written.map_err(|error| {
        // It may not be there; what counts is why.
        let _ = fs::remove_file(&partial);
        Failure::new(format!("{}: {error}", path.display()))
    })
}

/// Writes all that a whole sweep has, prints a table, and says what could not be simulated.
pub(super) fn results(results: &Results<'_>, folder: &Path) -> Result<(), Failure> {
    write(&folder.join("results.csv"), results.table().csv().as_bytes())?;
    write(&folder.join("results.parquet"), &results.parquet())?;
    let figures = results.figures();
    let place = |number: usize| folder.join(format!("figure-{number}.svg"));
    for (at, figure) in figures.iter().enumerate() {
        write(&place(at + 1), figure.svg().as_bytes())?;
    }
    // An earlier run may have had more: they would look like this run's.
    for number in figures.len() + 1.. {
        if fs::remove_file(place(number)).is_err() {
            break;
        }
    }
    write(&folder.join("report.html"), results.html().as_bytes())?;
    let text = results.short_table().text();
    let mut shown: String = text.lines().take(ROWS_MAX + 2).flat_map(|line| [line, "\n"]).collect();
    let more = text.lines().count().saturating_sub(ROWS_MAX + 2);
    if more > 0 {
        shown.push_str(&format!("({more} more in results.csv)\n"));
    }
    // A closed pipe (`| head`) is not worth an error: the files are there.
    let _ = std::io::stdout().write_all(shown.as_bytes());
    if let (count @ 1.., Some(first)) = results.errors() {
        stderr::say(format_args!(
            "{count} points could not be simulated (column error of results.csv); the first: {first}"
        ));
    }
    stderr::say(format_args!("the report is {}", folder.join("report.html").display()));
    Ok(())
}
