//! What Loam tells a person on stderr.

use std::fmt::Display;
use std::io::Write as _;

/// Writes `loam: LINE` in one piece, so that no other process's line comes between.
///
/// A stderr that cannot be written (its disk is full, its reader is gone) changes nothing: `eprintln!` would panic, and a program would die for a line of its agent.
pub fn say(line: impl Display) {
    put(&format!("loam: {line}\n"));
}

/// The same for what is no line of its own: a figure that is written over.
pub fn put(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
