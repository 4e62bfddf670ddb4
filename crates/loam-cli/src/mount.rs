//! `loam mount` and `loam unmount`.

use crate::args::{MountArgs, UnmountArgs};
use crate::embedded::first_line;
use crate::failure::{self, Failure};
use crate::{lend, machine};
use loam_agent::stderr;
use loam_mount::MountConfig;
use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How long a mount may take to be made.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// What a mount in the background prints first, with what is to be told behind it.
const READY: &str = "ready: ";

/// Mounts. In the background: returns once programs can use it.
pub(crate) fn mount(args: &MountArgs) -> Result<ExitCode, Failure> {
    if !args.foreground && !args.background_child {
        return in_background();
    }
    lend::start_log("warn");
    let memory = machine::memory()?;
    let config = MountConfig {
        source: args.source.clone(),
        mountpoint: args.mountpoint.clone(),
        name: args.name.clone(),
        cache: args.cache.on(memory.total),
        listen: args.listen,
        peers: args.peer.clone(),
        node: args
            .node
            .clone()
            .or_else(|| loam_wire::places::node_sockets().into_iter().find(|socket| socket.exists())),
        tls: args.tls.clone(),
        insecure: args.insecure,
    };
    loam_mount::mount(&config, |mounted| {
        if args.background_child {
            let mut stdout = std::io::stdout().lock();
            // If nobody waits for it any more, the mount is there all the same.
            let _ = writeln!(stdout, "{READY}{mounted}").and_then(|()| stdout.flush());
            // Nobody reads stderr from now on either. The end of the terminal is not the mount's.
            let _ = rustix::process::setsid();
        } else {
            stderr::say(format_args!("{mounted}; Ctrl-C ends it"));
        }
    })
    .map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs this command again with `--background-child`, and waits until it has mounted or failed.
fn in_background() -> Result<ExitCode, Failure> {
    let cannot = |error| Failure::new(format!("cannot start a process for the mount ({error})"));
    let executable = std::env::current_exe().map_err(cannot)?;
    let mut child = Command::new(executable)
        .args(std::env::args_os().skip(1))
        .arg("--background-child")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let stdout = child.stdout.take().expect("asked for as a pipe");
    // Ctrl-C while it waits ends both; afterwards the mount has a session of its own.
    let line = first_line(stdout).recv_timeout(READY_WITHIN).unwrap_or_default();
    if let Some(mounted) = line.trim_end().strip_prefix(READY) {
        stderr::say(format_args!("{mounted}; `loam unmount` ends it"));
        return Ok(ExitCode::SUCCESS);
    }
    let deadline = Instant::now() + Duration::from_secs(1);
    while !matches!(child.try_wait(), Ok(Some(_))) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    // One that has not ended by itself by now hangs.
    let _ = child.kill();
    let status = child.wait().map_err(cannot)?;
    let mut told = String::new();
    let mut stderr = child.stderr.take().expect("asked for as a pipe").take(4096);
    let _ = stderr.read_to_string(&mut told);
    let why = told.lines().last().map(|line| line.strip_prefix("loam: ").unwrap_or(line));
    match why {
        Some(why) => {
            Err(Failure::with_status(why, status.code().map_or(failure::OWN_ERROR, |code| code as u8)))
        }
        None => {
            Err(Failure::new(format!("the mount was not made within {READY_WITHIN:?}: try --foreground")))
        }
    }
}

/// Ends a mount.
pub(crate) fn unmount(args: &UnmountArgs) -> Result<ExitCode, Failure> {
    loam_mount::unmount(&args.mountpoint, args.lazy).map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}
