//! Reference traces: what a program touched, in order.
//!
//! The unit of address is the *grain*, 256 bytes: the smallest subpage (subpages-1996, section 3.1). Consecutive references to the same
//! grain are one [`Run`].

/// Bytes of a grain.
pub const GRAIN_BYTES: u64 = 256;

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
    /// Appends the next runs to `into`, some thousand at a time. False: there are no more, and nothing was appended.
    ///
    /// # Errors
    /// [`TraceError`], where the trace is malformed, cut or unreadable.
    fn next_runs(&mut self, into: &mut Vec<Run>) -> Result<bool, TraceError>;
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
