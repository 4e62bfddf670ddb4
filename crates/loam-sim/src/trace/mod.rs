//! Reference traces: what a program touched, in order.
//!
//! The unit of address is the *grain*, 256 bytes: the smallest subpage (subpages-1996, section 3.1).
//! Consecutive references to the same grain are one [`Run`].
//!
//! [`open()`] recognises a file's format by its content and gives a [`Source`]; every source reads piece by
//! piece, so memory does not grow with the trace. Loam's own format ([`native`]) is described byte by byte in
//! `docs/trace-format.md`.

pub mod csv;
pub mod export;
pub mod lackey;
pub mod native;
pub mod oracle;
pub mod summary;

mod collapse;
mod lines;
mod open;

pub use collapse::Collapse;
pub use open::{Format, Opened, Options, open, open_as, open_objects};

use std::fmt::Display;

/// Bytes of a grain.
pub const GRAIN_BYTES: u64 = 256;

/// Runs that a source appends at a time, about.
const RUNS_PER_CALL: usize = 16 << 10;

/// Consecutive references of a program to one grain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Address / [`GRAIN_BYTES`].
    pub grain: u64,
    /// How many; at least 1.
    pub references: u32,
    /// At least one of them writes.
    pub writes: bool,
}

/// Something that gives a program's references in order.
pub trait Source {
    /// Appends the next runs to `into`, some thousand at a time. False: there are no more, and nothing was
    /// appended.
    ///
    /// # Errors
    /// [`TraceError`], where the trace is malformed, cut or unreadable.
    fn next_runs(&mut self, into: &mut Vec<Run>) -> Result<bool, TraceError>;
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn next_runs(&mut self, into: &mut Vec<Run>) -> Result<bool, TraceError> {
        (**self).next_runs(into)
    }
}

/// A trace that cannot be read on.
#[derive(Debug, thiserror::Error)]
#[error("{trace}: {place}: {what}")]
pub struct TraceError {
    /// Its file or name.
    pub trace: String,
    /// Line or byte.
    pub place: String,
    /// What is wrong there, and what was expected.
    pub what: String,
}

impl TraceError {
    fn at_byte(trace: &str, byte: u64, what: impl Display) -> Self {
        Self { trace: trace.into(), place: format!("byte {byte}"), what: what.to_string() }
    }

    fn at_line(trace: &str, line: u64, what: impl Display) -> Self {
        Self { trace: trace.into(), place: format!("line {line}"), what: what.to_string() }
    }
}
