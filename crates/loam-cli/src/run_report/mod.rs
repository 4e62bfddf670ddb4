//! `loam run --report FILE.html`: a run on one page, for people who have not read the papers. `docs/report.md` says what each figure shows.

mod figures;
#[cfg(test)]
mod tests;
mod words;

use crate::failure::Failure;
use crate::text::printable;
use loam_agent::recording::Recording;
use loam_agent::summary::Summary;
use loam_sim::report::Html;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Longest part of the command that stands in the title.
const TITLE_CHARS_MAX: usize = 80;
/// Longest line that came from outside.
const LINE_CHARS_MAX: usize = 400;

/// Headings of the figures, in their order.
pub(crate) const HEADINGS: [&str; 6] = [
    "Where the time went, from start to end",
    "Memory here and elsewhere",
    "When pages were missing",
    "How long a thread waited for a page",
    "Where in a page a program goes on",
    "Page sizes",
];

/// Opens the file of a report, before the program runs: that it cannot be written must not come out at the end of a long run.
pub(crate) fn open(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| failure(path, &error))
}

/// Writes the report of a run.
pub(crate) fn write(
    mut file: File,
    path: &Path,
    summary: &Summary,
    recording: &Recording,
) -> Result<(), Failure> {
    file.write_all(page(summary, recording).as_bytes()).map_err(|error| failure(path, &error))
}

fn failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write the report to {} ({error}): give another --report", path.display()))
}

/// The whole file.
pub(crate) fn page(summary: &Summary, recording: &Recording) -> String {
    let mut html = Html::new(format!("A run of {}", printable(&summary.command, TITLE_CHARS_MAX)));
    for paragraph in words::opening(summary) {
        html.paragraph(&paragraph);
    }
    for warning in &summary.warnings {
        html.paragraph(&format!("Warning: {}", printable(warning, LINE_CHARS_MAX)));
    }
    html.heading("Where the time went");
    html.shares("where the time went", &words::parts(&summary.time_s));
    html.paragraph(&words::verdict(summary));

    html.heading("What the waits were for");
    if summary.faults.total == 0 {
        html.paragraph("No thread ever touched memory that was away, so there is nothing to tell.");
    } else {
        html.paragraph(
            "A fault is one thread that stops because it has touched memory that is not here. This is how faults were answered.",
        );
        html.table(&words::faults(summary, recording));
    }
    let figures = [
        figures::time(summary, recording),
        figures::memory(summary, recording),
        figures::clusters(summary, recording),
        figures::waits(recording),
        figures::distances(summary, recording),
        figures::sizes(summary, recording),
    ];
    for (number, (heading, figure)) in HEADINGS.iter().zip(figures).enumerate() {
        html.heading(&format!("{}. {heading}", number + 1));
        match figure {
            Ok(drawn) => {
                let (sees, does) = (drawn.sees.as_str(), drawn.does.as_str());
                html.explained(&drawn.figure, &[("What you see.", sees), ("What to do about it.", does)]);
            }
            Err(why) => html.paragraph(&why),
        }
    }
    if !summary.lenders.is_empty() {
        html.heading("Lenders");
        html.table(&words::lenders(summary));
    }
    html.heading("How to read on");
    html.paragraph(
        "Waits are kept to 1%, times to a two-thousandth of the run, so that recording takes less than a megabyte however long a run is. \
         The figures are those of two papers: where the time goes, sorted waits, clusters of faults and distances are subpages-1996's \
         (figures 4, 5, 6, 7 and 10), page sizes by part of the program are aapc-2012's (figure 7). docs/report.md has more, docs/summary.md every \
         figure of the run as JSON (--summary).",
    );
    html.page()
}
