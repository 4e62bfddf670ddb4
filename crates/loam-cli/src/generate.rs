//! Man pages and shell completions, made from the command line's definition.

use crate::args::Cli;
use crate::failure::Failure;
use clap::CommandFactory;
use std::path::Path;
use std::process::ExitCode;

/// Writes `loam.1` and a page for each command into `dir`.
pub(crate) fn man(dir: &Path) -> Result<ExitCode, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(format!("cannot write man pages to {} ({error})", dir.display()))
    };
    std::fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), dir).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the completions for one shell on stdout.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "loam", &mut script);
    let written = std::io::Write::write_all(&mut std::io::stdout().lock(), &script);
    written.map_err(|error| Failure::new(format!("cannot print the completions ({error})")))?;
    Ok(ExitCode::SUCCESS)
}
