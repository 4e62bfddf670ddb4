//! Loam's own errors: one line on stderr (what, where, what to do) and a status that tells them from the program's.

use loam_agent::stderr;
use std::fmt::Display;
use std::process::ExitCode;

/// Exit status of Loam's own errors, as `env(1)` and `timeout(1)` have it.
pub(crate) const OWN_ERROR: u8 = 125;
/// The program was found, but cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The program was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// An error on its way to the user.
#[derive(Debug)]
pub(crate) struct Failure {
    line: String,
    status: u8,
}

impl Failure {
    /// An error of Loam's own: status 125.
    pub(crate) fn new(line: impl Display) -> Self {
        Self { line: line.to_string(), status: OWN_ERROR }
    }

    /// The same with another status.
    pub(crate) fn with_status(line: impl Display, status: u8) -> Self {
        Self { line: line.to_string(), status }
    }

    /// What would be printed: one line, whatever an inner error put into its text.
    pub(crate) fn line(&self) -> String {
        self.line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Prints the line and gives the status to end with.
    pub(crate) fn report(&self) -> ExitCode {
        stderr::say(self.line());
        ExitCode::from(self.status)
    }
}

/// Answers a command line that clap did not accept: help and version as they are, errors as one line.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    match error.kind() {
        DisplayHelp | DisplayVersion => {
            // A closed pipe (`loam --help | head -1`) is not worth an error.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(OWN_ERROR)
        }
        _ => Failure::new(one_line(&error.to_string())).report(),
    }
}

/// What was wrong with a command line, for whoever cannot use any other answer.
pub(crate) fn usage_failure(error: &clap::Error) -> Failure {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    match error.kind() {
        DisplayHelp | DisplayVersion => Failure::new("--help and --version start nothing: leave them out"),
        _ => Failure::new(one_line(&error.to_string())),
    }
}

/// clap's message without its heading, its tips and the usage paragraph.
fn one_line(message: &str) -> String {
    let what: Vec<&str> = message
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .collect();
    let joined = what.join(" ");
    let joined = joined.strip_prefix("error: ").unwrap_or(&joined);
    format!("{joined}; see `loam --help`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn a_wrong_flag_is_told_in_one_line() {
        let error = crate::args::Cli::command()
            .try_get_matches_from(["loam", "lend", "lots"])
            .expect_err("not a size");
        let line = one_line(&error.to_string());
        assert!(line.contains("lots") && line.contains("SIZE"), "{line}");
        assert!(!line.contains('\n') && !line.contains("Usage") && !line.starts_with("error"), "{line}");
    }

    #[test]
    fn a_missing_argument_is_named() {
        let error =
            crate::args::Cli::command().try_get_matches_from(["loam", "run"]).expect_err("no program");
        assert!(one_line(&error.to_string()).contains("PROGRAM"), "{error}");
    }
}
