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

/// Starts this command again in the background; there, serves the program until it ends.
pub(crate) fn attach(args: AttachArgs) -> Result<ExitCode, Failure> {
    if !args.background_child {
        let cannot = |error| Failure::new(format!("cannot start a process for the agent ({error})"));
        let executable = std::env::current_exe().map_err(cannot)?;
        let again = std::env::args_os().skip(1);
        let mut child = Command::new(executable);
        child.args(again).arg("--background-child").stdin(Stdio::null()).spawn().map_err(cannot)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Ctrl-C is the program's.
    let _ = rustix::process::setsid();
    crate::lend::start_log("warn");
    let mut told = false;
    match serve(args, &mut told) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(failure) if told => Err(failure),
        Err(failure) => {
            tell(&[format!("failed: {}", failure.line()).as_bytes()]);
            Ok(ExitCode::from(OWN_ERROR))
        }
    }
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
