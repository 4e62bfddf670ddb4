//! `loam run`: from the command line to the agent, and from its outcome to the closing lines and the exit status.

use crate::args::RunArgs;
use crate::borrow::Borrowing;
use crate::failure::{self, Failure};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

/// Runs the program and ends as it ended.
pub(crate) fn run(args: RunArgs) -> Result<ExitCode, Failure> {
    crate::lend::start_log("warn");
    find_program(&args.program)?;
    let borrowing = Borrowing::prepare(args.borrow, args.program, args.args)?;
    let outcome = loam_agent::run(&borrowing.config);
    let outcome = borrowing.finish(outcome)?;
    match (outcome.code, outcome.signal) {
        (Some(code), _) => Ok(ExitCode::from((code & 0xFF) as u8)),
        (None, Some(signal)) => Ok(end_by(signal)),
        (None, None) => Err(Failure::new("the program's end was not seen; its exit status is lost")),
    }
}

/// Looks the program up as `execvp` does, so that a missing one is told before anything is started.
pub(crate) fn find_program(program: &OsStr) -> Result<(), Failure> {
    let shown = Path::new(program).display();
    let executable =
        |path: &Path| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    if program.as_bytes().contains(&b'/') {
        let path = Path::new(program);
        return match path.metadata() {
            Err(_) => Err(Failure::with_status(format!("{shown}: not found"), failure::NOT_FOUND)),
            Ok(_) if executable(path) => Ok(()),
            Ok(meta) if meta.is_dir() => Err(Failure::with_status(
                format!("{shown}: is a folder, not a program"),
                failure::NOT_EXECUTABLE,
            )),
            Ok(_) => Err(Failure::with_status(
                format!("{shown}: not executable: chmod +x it, or run it through its interpreter"),
                failure::NOT_EXECUTABLE,
            )),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    if !program.is_empty() && std::env::split_paths(&path).any(|dir| executable(&dir.join(program))) {
        return Ok(());
    }
    Err(Failure::with_status(format!("{shown}: not found in PATH: give its path"), failure::NOT_FOUND))
}

/// Ends this process as the program ended, so that a shell or a supervisor sees the same signal.
pub(crate) fn end_by(signal: i32) -> ExitCode {
    loam_agent::ending::end_by_signal(signal);
    // A signal that does not end a process (or cannot be raised) is told the way shells tell it.
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(failure::OWN_ERROR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn programs_are_found_as_the_shell_finds_them() {
        let scratch = Scratch::new("cli-find").expect("a temporary folder can be made");
        let plain = scratch.0.join("plain");
        std::fs::write(&plain, "x").expect("writable");
        let report = |program: &OsStr| format!("{:?}", find_program(program).expect_err("no such program"));
        assert!(find_program(OsStr::new("sh")).is_ok());
        assert!(report(plain.as_os_str()).contains("126"), "a file without the x bit");
        assert!(report(scratch.0.as_os_str()).contains("126"), "a folder");
        assert!(report(OsStr::new("/no/such/program")).contains("127"));
        assert!(report(OsStr::new("no-such-program-anywhere")).contains("127"));
        assert!(report(OsStr::new("")).contains("127"));
        std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o755)).expect("our own file");
        assert!(find_program(plain.as_os_str()).is_ok());
    }
}
