//! Loam's own format: runs in blocks, packed. `docs/trace-format.md` describes it byte by byte.
//!
//! Programs return to a few places again and again, so a grain is mostly told by its place in a short table
//! of the latest different grains (`recent`); what is left, zstd finds.

mod read;
mod recent;
mod write;

pub use read::{Reader, peek};
pub use write::Writer;

use super::summary::Totals;
use serde::{Deserialize, Serialize};

/// First bytes of a file: the name and the version of the format.
pub const MAGIC: [u8; 8] = *b"LOAMTRC\x01";
/// First bytes of the footer.
const FOOTER_MAGIC: [u8; 8] = *b"LOAMEND\x01";
/// Bytes of the footer: magic, six totals, checksum.
const FOOTER_BYTES: usize = 8 + 6 * 8 + 4;
/// Most bytes of the header's JSON.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Most runs of a block.
const RUNS_PER_BLOCK: usize = 64 << 10;
/// Bytes of a block's head: runs, three lengths, checksum.
const BLOCK_HEAD_BYTES: usize = 5 * 4;
/// A count takes at most so many bytes.
const COUNT_BYTES_MAX: usize = 5;
/// A distance takes at most so many bytes.
const DISTANCE_BYTES_MAX: usize = 10;
/// References that a token can tell by itself; the rest is in the counts.
const TOKEN_REFERENCES_MAX: u32 = 128;
/// zstd's window, as a power of two: patterns that return after 32 MiB of blocks (12 million runs) are found.
const WINDOW_LOG: u32 = 25;

/// What a trace is of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The program's name.
    pub program: String,
    /// Its command line, the program first; empty where it is not known.
    pub command: Vec<String>,
    /// Bytes of a grain: 256.
    pub grain_bytes: u64,
    /// Instruction fetches are in the trace.
    pub instructions: bool,
    /// The recording ended after so many references, or was to.
    pub limit: Option<u64>,
    /// Nanoseconds that a reference took on the average, where that is known.
    pub ns_per_reference: Option<f64>,
}

impl Header {
    /// A header that knows the program's name only.
    #[must_use]
    pub fn new(program: &str) -> Self {
        Self {
            program: program.into(),
            command: Vec::new(),
            grain_bytes: super::GRAIN_BYTES,
            instructions: false,
            limit: None,
            ns_per_reference: None,
        }
    }
}

/// The footer of a file with these totals.
fn footer(totals: &Totals) -> [u8; FOOTER_BYTES] {
    let mut bytes = [0; FOOTER_BYTES];
    bytes[..8].copy_from_slice(&FOOTER_MAGIC);
    let words = [
        totals.runs,
        totals.references,
        totals.writing_runs,
        totals.grains,
        totals.pages_4k,
        totals.pages_8k,
    ];
    for (at, word) in words.iter().enumerate() {
        bytes[8 + at * 8..16 + at * 8].copy_from_slice(&word.to_le_bytes());
    }
    let checksum = crc32c::crc32c(&bytes[..FOOTER_BYTES - 4]);
    bytes[FOOTER_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The totals of a footer; none if it is no footer.
fn totals(bytes: &[u8; FOOTER_BYTES]) -> Option<Totals> {
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[8 + at * 8..16 + at * 8]);
        u64::from_le_bytes(word)
    };
    let totals = Totals {
        runs: word(0),
        references: word(1),
        writing_runs: word(2),
        grains: word(3),
        pages_4k: word(4),
        pages_8k: word(5),
    };
    (footer(&totals) == *bytes).then_some(totals)
}

#[cfg(test)]
mod tests;
