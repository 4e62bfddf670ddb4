//! `loam attach`: what the library starts to have its own program served. Nobody waits for it, so it must not be the program's child: a program
//! that waits for any of its children would meet one that it never made.

use crate::args::AttachArgs;
use crate::borrow::Borrowing;
use crate::failure::{Failure, OWN_ERROR};
use rustix::process::Pid;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// Whether this is a `loam attach`, its flags right or wrong: who has started it looks for the answer on stdout.
pub(crate) fn is_meant() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == "attach")
}

/// Says on stdout why nothing is served.
pub(crate) fn refuse(failure: &Failure) -> ExitCode {
    tell(&[format!("failed: {}", failure.line()).as_bytes()]);
    ExitCode::from(OWN_ERROR)
}

/// Starts this command again in the background; there, serves the program until it ends.
pub(crate) fn attach(args: AttachArgs) -> Result<ExitCode, Failure> {
    if !args.background_child {
        return Ok(match start_in_background() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => refuse(&Failure::new(format!("cannot start a process for the agent ({error})"))),
        });
    }
    // Ctrl-C is the program's.
    let _ = rustix::process::setsid();
    crate::lend::start_log("warn");
    let mut told = false;
    match serve(args, &mut told) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(failure) if told => Err(failure),
        Err(failure) => Ok(refuse(&failure)),
    }
}

fn start_in_background() -> std::io::Result<()> {
    let mut child = Command::new(std::env::current_exe()?);
    child.args(std::env::args_os().skip(1)).arg("--background-child").stdin(Stdio::null()).spawn().map(drop)
}

fn serve(args: AttachArgs, told: &mut bool) -> Result<(), Failure> {
    let Some(pid) = Pid::from_raw(args.pid).filter(|_| args.pid > 0) else {
        return Err(Failure::new(format!("--pid {}: there is no such process", args.pid)));
    };
    if args.borrow.region.is_none() {
        return Err(Failure::new(
            "a program that runs already borrows for a region of it: give --region SIZE",
        ));
    }
    if args.borrow.region.is_some_and(|region| region.is_direct) {
        return Err(Failure::new(
            "a program that runs already cannot have a direct region: give --region SIZE:paged, or have it open one (docs/regions-direct.md)",
        ));
    }
    let name = std::fs::read(format!("/proc/{}/comm", args.pid)).unwrap_or_default();
    let name = OsStr::from_bytes(name.trim_ascii_end()).to_owned();
    let borrowing = Borrowing::prepare(args.borrow, name, Vec::new())?;
    let shim = borrowing.config.shim.clone();
    let outcome = loam_agent::attach(&borrowing.config, pid, |socket: &Path| {
        tell(&[b"ready", socket.as_os_str().as_bytes(), shim.as_os_str().as_bytes()]);
        *told = true;
    });
    borrowing.finish(outcome).map(drop)
}

/// Says what there is to say on stdout. If nobody reads, the program has gone, which will be seen.
fn tell(lines: &[&[u8]]) {
    let mut all = lines.join(&b'\n');
    all.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(&all).and_then(|()| stdout.flush());
}
