//! `loam status | head -1`: who reads our output may go before we have written it.

use std::panic::PanicHookInfo;

/// What a shell shows of a program that SIGPIPE ended; Rust programs ignore that signal.
const STATUS: i32 = 128 + 13;

/// From now on, output that nobody reads any more ends the process without a word.
pub(crate) fn end_quietly() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if is_broken_pipe(panic) {
            std::process::exit(STATUS);
        }
        before(panic);
    }));
}

/// `print!` has no other way to say it.
fn is_broken_pipe(panic: &PanicHookInfo<'_>) -> bool {
    let text = panic.payload().downcast_ref::<String>();
    text.is_some_and(|text| text.starts_with("failed printing to stdout") && text.contains("Broken pipe"))
}
