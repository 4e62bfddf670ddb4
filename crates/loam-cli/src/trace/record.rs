//! `loam trace record`: a program under valgrind's lackey, whose text is packed as it comes.

use super::args::RecordArgs;
use super::output::{self, Output};
use super::{closing, copy};
use crate::failure::{self, Failure};
use crate::run::{end_by, find_program};
use crate::text;
use loam_agent::stderr;
use loam_sim::trace::lackey::Lackey;
use loam_sim::trace::native::{Header, Writer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The pipe's size: lackey writes line by line, so that fewer switches between the two processes are needed.
const PIPE_BYTES: usize = 1 << 20;
/// How often it is looked whether the program has ended or is to end.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Runs and records the program, and ends as it ended.
pub(super) fn record(args: RecordArgs) -> Result<ExitCode, Failure> {
    find_program(&args.program)?;
    if find_program(OsStr::new("valgrind")).is_err() {
        return Err(Failure::new("valgrind, which records, is not installed: apt install valgrind"));
    }
    let name = Path::new(&args.program).file_name().unwrap_or(&args.program).to_string_lossy();
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.trace")));
    let command = std::iter::once(&args.program).chain(&args.args);
    let header = Header {
        command: command.map(|word| word.to_string_lossy().into_owned()).collect(),
        instructions: args.instructions,
        limit: args.limit,
        ns_per_reference: args.ns_per_reference,
        ..Header::new(&name)
    };
    let cannot = |error: &io::Error| output::failure(&path, error);
    let output = Output::create(&path).map_err(|error| cannot(&error))?;
    let mut writer = Writer::new(output, &header).map_err(|error| cannot(&error))?;

    let started = Instant::now();
    let mut lines = Recording::start(&args)?;
    let mut source = Lackey::new(BufReader::with_capacity(PIPE_BYTES, &mut lines), &name, args.instructions);
    let copied = copy(&mut source, &mut writer, args.limit);
    drop(source);
    // Whatever stopped the copying: without a reader the program would wait for ever.
    let status = lines.end(!matches!(copied, Ok(true)))?;
    let whole = copied.map_err(|stop| stop.failure(&path))?;

    let (totals, output) = writer.finish().map_err(|error| cannot(&error))?;
    if totals.references == 0 {
        return Err(Failure::new(format!("{name}: valgrind recorded no reference: see what it said above")));
    }
    let bytes = output.keep().map_err(|error| cannot(&error))?;
    if !args.quiet {
        let seconds = text::seconds(started.elapsed().as_secs_f64());
        // A trace of a part of a run is one, too, but nobody should take it for the whole.
        let early = match (whole, status.signal()) {
            (false, _) => "; ended by --limit".into(),
            (true, Some(signal)) => format!("; ended by signal {signal}"),
            (true, None) => String::new(),
        };
        stderr::say(format_args!("{}, {seconds}{early}", closing(&path, &totals, bytes)));
    }
    if !whole {
        return Ok(ExitCode::SUCCESS);
    }
    match (status.code(), status.signal()) {
        (Some(code), _) => Ok(ExitCode::from((code & 0xFF) as u8)),
        (None, Some(signal)) => Ok(end_by(signal)),
        (None, None) => Err(Failure::new("the program's end was not seen; its exit status is lost")),
    }
}

/// The running program and the pipe that lackey's text comes through.
struct Recording {
    child: Child,
    pipe: File,
    /// Kept open, so that the pipe has a writer until valgrind opened it: the program's end is seen by
    /// waiting for it. (Handing the descriptor down instead would show it to the program, and its children
    /// would keep it open.)
    _writer: OwnedFd,
    status: Option<ExitStatus>,
    /// This process was asked to end.
    ended: Arc<AtomicBool>,
}

impl Recording {
    fn start(args: &RecordArgs) -> Result<Self, Failure> {
        let cannot = |error: io::Error| Failure::new(format!("cannot start valgrind ({error})"));
        let (pipe, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| cannot(error.into()))?;
        // A smaller pipe is slower and nothing else.
        let _ = fcntl_setpipe_size(&pipe, PIPE_BYTES);
        // The program gets these signals from the terminal; the trace of what it did until then is to be
        // whole.
        let ended = Arc::new(AtomicBool::new(false));
        for (signal, flag) in [(SIGINT, &Arc::default()), (SIGTERM, &ended), (SIGHUP, &ended)] {
            signal_hook::flag::register(signal, Arc::clone(flag)).map_err(cannot)?;
        }
        let log = format!("--log-file=/proc/{}/fd/{}", std::process::id(), writer.as_raw_fd());
        let child = Command::new("valgrind")
            .args(["-q", "--tool=lackey", "--basic-counts=no", "--trace-mem=yes"])
            // A child that was forked would write into the same trace.
            .args(["--trace-children=no", "--child-silent-after-fork=yes", &log, "--"])
            .arg(&args.program)
            .args(&args.args)
            .spawn()
            .map_err(cannot)?;
        Ok(Self { child, pipe: pipe.into(), _writer: writer, status: None, ended })
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // Not yet waited for, so the number is still its own.
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits for the program's end, or brings it about.
    fn end(mut self, kill: bool) -> Result<ExitStatus, Failure> {
        if self.status.is_none() && kill {
            self.signal(Signal::KILL);
        }
        let lost = |error| Failure::with_status(format!("the program's end: {error}"), failure::OWN_ERROR);
        self.status.map_or_else(|| self.child.wait().map_err(lost), Ok)
    }
}

impl Read for Recording {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let over = self.status.is_some();
            // What came to this process alone goes on to the program; an interrupt the terminal sends to
            // both.
            if self.ended.swap(false, Ordering::Relaxed) && !over {
                self.signal(Signal::TERM);
            }
            let timeout = if over { Timespec { tv_sec: 0, tv_nsec: 0 } } else { LOOK };
            let mut fds = [PollFd::new(&self.pipe, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) if over => return Ok(0),
                Ok(0) => self.status = self.child.try_wait()?,
                Ok(_) => return self.pipe.read(into),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
