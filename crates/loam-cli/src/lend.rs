//! `loam lend`.

use crate::args::LendArgs;
use crate::embedded;
use crate::failure::Failure;
use crate::machine;
use loam_agent::{slices, stderr};
use loam_node::{LocalSocket, Turns};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// Lends until SIGINT or SIGTERM.
pub(crate) fn lend(args: &LendArgs) -> Result<ExitCode, Failure> {
    if let Some(parent) = args.embedded_by {
        embedded::end_with_parent(parent)?;
    }
    start_log("warn");
    let memory = machine::memory()?;
    let embedded = args.embedded_by.is_some();
    let mut config = args.sharing.config(args.size, memory.total);
    config.region_devices.clone_from(&args.region_device);
    // For this user alone: with --tls a lender serves nobody else without a certificate.
    config.socket = args.socket.clone().map(|path| LocalSocket { path, mode: 0o600, required: true });
    if embedded {
        // Several of them share this machine with the program that they serve.
        config.loops = Some(1);
        // And they are there for one run.
        config.reservable = Some(config.size);
    }
    config.turns = Turns { short: slices::ask_for_short_slices, usual: slices::ask_for_usual_slices };
    slices::ask_for_short_slices();
    loam_node::lend(&config, |lending| {
        for warning in &lending.warnings {
            stderr::say(warning);
        }
        if embedded {
            // The one line that `Lenders::start` waits for. If nobody reads it any more, this process ends anyway.
            let mut stdout = std::io::stdout().lock();
            let _ = writeln!(stdout, "{}", lending.addr).and_then(|()| stdout.flush());
        } else {
            stderr::say(format_args!("{lending}; Ctrl-C ends it"));
        }
    })
    .map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

/// What is at least as grave as `usual` says goes to stderr; `LOAM_LOG=debug` shows more, and `LOAM_LOG_FORMAT=json` makes each line an object.
pub(crate) fn start_log(usual: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("LOAM_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(usual));
    // A second subscriber cannot exist in a fresh process, so the answer does not matter.
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        // They would go to stderr as well, by `eprintln!`, which panics: a full disk under the log would end a lender.
        .log_internal_errors(false)
        // Event loops log, and nobody is to wait for them because nobody reads it.
        .with_writer(|| stderr::Log);
    let _ = match std::env::var("LOAM_LOG_FORMAT").as_deref() {
        Ok("json") => log.json().try_init(),
        _ => log.try_init(),
    };
}
