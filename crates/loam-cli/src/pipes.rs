//! `loam status | head -1`: who reads our output may go before we have written it. `loam status > FILE`: its disk may be full.

use crate::failure::OWN_ERROR;
use loam_agent::stderr;
use std::panic::PanicHookInfo;

/// What a shell shows of a program that SIGPIPE ended; Rust programs ignore that signal.
const STATUS: i32 = 128 + 13;

/// From now on, output that nobody reads any more ends the process without a word, and one that cannot be written with a line.
pub(crate) fn end_quietly() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| match unwritten(panic) {
        Some(why) if why.contains("Broken pipe") => std::process::exit(STATUS),
        Some(why) => {
            stderr::say(format_args!("cannot write to stdout: {why}"));
            std::process::exit(OWN_ERROR.into());
        }
        None => before(panic),
    }));
}

/// Why `print!` could not; it has no other way to say it.
fn unwritten<'a>(panic: &'a PanicHookInfo<'_>) -> Option<&'a str> {
    panic.payload().downcast_ref::<String>()?.strip_prefix("failed printing to stdout: ")
}
