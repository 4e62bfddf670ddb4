//! Streams in libCacheSim's binary format oracleGeneral, which carries the future that Belady's optimum needs.
//!
//! A record is 24 bytes, little-endian: time (u32), object (u64), size (u32), the number of the next request for the object (i64; -1:
//! none). Here an object is a page, of size 1.

use super::{Stream, StreamBuilder};
use loam_core::replacement::Numbering;
use std::io::{self, ErrorKind, Read, Write};

const RECORD_BYTES: usize = 24;
/// Records that are read and written at once.
const RECORDS: usize = 4096;

/// Why a stream cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    /// The file is not a whole number of records.
    #[error(
        "byte {0}: the file ends within a record; expected 24 bytes (is this an oracleGeneral trace, not compressed?)"
    )]
    Cut(u64),
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes each of these references, in order, as a record.
///
/// # Errors
/// What writing gives.
pub fn export(pages: &[u64], to: &mut dyn Write) -> io::Result<()> {
    let mut numbers = Numbering::default();
    let (mut next_of_page, mut next) = (Vec::new(), vec![-1_i64; pages.len()]);
    for (now, &page) in pages.iter().enumerate().rev() {
        let number = numbers.number(page) as usize;
        next_of_page.resize(next_of_page.len().max(number + 1), -1);
        next[now] = std::mem::replace(&mut next_of_page[number], now as i64);
    }
    let mut bytes = Vec::with_capacity(RECORDS * RECORD_BYTES);
    for (page, next) in pages.chunks(RECORDS).zip(next.chunks(RECORDS)) {
        bytes.clear();
        for (page, next) in page.iter().zip(next) {
            // Always the same time: libCacheSim drops objects after 300 days.
            bytes.extend(0_u32.to_le_bytes());
            bytes.extend(page.to_le_bytes());
            bytes.extend(1_u32.to_le_bytes());
            bytes.extend(next.to_le_bytes());
        }
        to.write_all(&bytes)?;
    }
    Ok(())
}

/// Reads the objects of a file, each as a page.
///
/// # Errors
/// [`OracleError`].
pub fn import(from: &mut dyn Read) -> Result<Stream, OracleError> {
    let mut builder = StreamBuilder::default();
    let mut bytes = vec![0; RECORDS * RECORD_BYTES];
    let mut done = 0_u64;
    loop {
        let filled = fill(from, &mut bytes)?;
        let (records, rest) = bytes[..filled].as_chunks::<RECORD_BYTES>();
        for record in records {
            let object = record[4..12].first_chunk().expect("a record has an object");
            builder.push(u64::from_le_bytes(*object), 1);
        }
        done += filled as u64;
        if !rest.is_empty() {
            return Err(OracleError::Cut(done - rest.len() as u64));
        }
        if filled < bytes.len() {
            return Ok(builder.finish());
        }
    }
}

/// Reads until the buffer is full or nothing more comes.
fn fill(from: &mut dyn Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match from.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
