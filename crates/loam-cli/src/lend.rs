//! `loam lend`.

use crate::args::LendArgs;
use crate::embedded;
use crate::failure::Failure;
use crate::machine;
use std::io::Write;
use std::process::ExitCode;

/// Lends until SIGINT or SIGTERM.
pub(crate) fn lend(args: &LendArgs) -> Result<ExitCode, Failure> {
    if let Some(parent) = args.embedded_by {
        embedded::end_with_parent(parent)?;
    }
    start_log();
    let memory = machine::memory()?;
    let size = args.size.on(memory.total);
    let embedded = args.embedded_by.is_some();
    let mut config = loam_node::LendConfig::new(size);
    config.listen = args.listen;
    config.tls = args.tls.clone();
    config.insecure = args.insecure;
    if embedded {
        // Several of them share this machine with the program that they serve.
        config.loops = Some(1);
    }
    loam_agent::slices::ask_for_short_slices();
    loam_node::lend(&config, |lending| {
        for warning in &lending.warnings {
            eprintln!("loam: {warning}");
        }
        if embedded {
            // The one line that `Lenders::start` waits for. If nobody reads it any more, this process ends anyway.
            let mut stdout = std::io::stdout().lock();
            let _ = writeln!(stdout, "{}", lending.addr).and_then(|()| stdout.flush());
        } else {
            eprintln!("loam: {lending}; Ctrl-C ends it");
        }
    })
    .map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

/// Warnings and errors go to stderr; `LOAM_LOG=debug` shows more.
pub(crate) fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("LOAM_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    // A second subscriber cannot exist in a fresh process, so the answer does not matter.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}
