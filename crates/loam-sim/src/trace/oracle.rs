//! libCacheSim's `oracleGeneral`: requests to objects, 24 bytes each.
//!
//! Packed and little endian: u32 time, u64 object, u32 size of the object, i64 number of the object's next
//! request (-1: there is none).

use super::collapse::Collapse;
use super::{GRAIN_BYTES, RUNS_PER_CALL, Run, Source, TraceError};
use std::io::BufRead;

/// Bytes of a request.
pub const RECORD_BYTES: usize = 24;

/// Requests that are read at a time.
const BATCH: usize = 4096;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Time in a unit of the trace's own.
    pub time: u32,
    /// Which object.
    pub object: u64,
    /// Its size in bytes.
    pub bytes: u32,
    /// Number of the request that asks for this object next, counted from 0; -1: none does.
    pub next: i64,
}

impl Request {
    /// The request as it stands in a file.
    #[must_use]
    pub fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&self.time.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.object.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[16..].copy_from_slice(&self.next.to_le_bytes());
        bytes
    }

    /// The request that stands in a file.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let mut object = [0; 8];
        object.copy_from_slice(&bytes[4..12]);
        let mut next = [0; 8];
        next.copy_from_slice(&bytes[16..]);
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self {
            time: word(0),
            object: u64::from_le_bytes(object),
            bytes: word(12),
            next: i64::from_le_bytes(next),
        }
    }
}

/// Reads requests, for a replay that knows objects only.
pub struct Objects<R> {
    reader: R,
    trace: String,
    requests: u64,
}

impl<R: BufRead> Objects<R> {
    /// Reads from `reader` (unpacked); `trace` is its name in messages.
    pub fn new(reader: R, trace: &str) -> Self {
        Self { reader, trace: trace.into(), requests: 0 }
    }

    /// Appends the next requests to `into`, some thousand at a time. False: there are no more.
    ///
    /// # Errors
    /// [`TraceError`], where the trace is malformed, cut or unreadable.
    pub fn next_requests(&mut self, into: &mut Vec<Request>) -> Result<bool, TraceError> {
        let mut record = [0; RECORD_BYTES];
        for taken in 0..BATCH {
            let got = self.fill(&mut record)?;
            if got == 0 {
                return Ok(taken > 0);
            }
            let start = self.requests * RECORD_BYTES as u64;
            if got < RECORD_BYTES {
                return Err(self.error(
                    start,
                    format_args!("{got} bytes where a request has {RECORD_BYTES}: cut, or not oracleGeneral"),
                ));
            }
            let request = Request::from_bytes(&record);
            // libCacheSim writes -1 for "never"; some writers the largest number. What is next comes later.
            if request.next != -1 && request.next <= i64::try_from(self.requests).unwrap_or(i64::MAX) {
                return Err(self.error(
                    start + 16,
                    format_args!(
                        "{} as the next request of an object of request {}: expected a later one, or -1",
                        request.next, self.requests
                    ),
                ));
            }
            self.requests += 1;
            into.push(request);
        }
        Ok(true)
    }

    /// Reads as much of a record as there is.
    fn fill(&mut self, record: &mut [u8; RECORD_BYTES]) -> Result<usize, TraceError> {
        let mut got = 0;
        while got < record.len() {
            match self.reader.read(&mut record[got..]) {
                Ok(0) => break,
                Ok(bytes) => got += bytes,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let at = self.requests * RECORD_BYTES as u64 + got as u64;
                    return Err(self.error(at, format_args!("cannot be read on: {error}")));
                }
            }
        }
        Ok(got)
    }

    fn error(&self, byte: u64, what: impl std::fmt::Display) -> TraceError {
        TraceError::at_byte(&self.trace, byte, what)
    }
}

/// Reads requests as references: each object is one page, each request one reading reference to the page's
/// start.
///
/// The page's number is the object's. Where that is too large for an address (ids that are hashes), its
/// uppermost bits are left out; [`Objects`] gives the whole id.
pub struct Pages<R> {
    objects: Objects<R>,
    grains_per_page: u64,
    batch: Vec<Request>,
    collapse: Collapse,
}

impl<R: BufRead> Pages<R> {
    /// Reads from `reader` (unpacked); `trace` is its name in messages.
    ///
    /// # Panics
    /// If `page_bytes` is no power of two of at least a grain.
    pub fn new(reader: R, trace: &str, page_bytes: u64) -> Self {
        assert!(page_bytes.is_power_of_two() && page_bytes >= GRAIN_BYTES, "a page is some grains");
        Self {
            objects: Objects::new(reader, trace),
            grains_per_page: page_bytes / GRAIN_BYTES,
            batch: Vec::with_capacity(BATCH),
            collapse: Collapse::default(),
        }
    }
}

impl<R: BufRead> Source for Pages<R> {
    fn next_runs(&mut self, into: &mut Vec<Run>) -> Result<bool, TraceError> {
        let before = into.len();
        while into.len() - before < RUNS_PER_CALL {
            self.batch.clear();
            if !self.objects.next_requests(&mut self.batch)? {
                self.collapse.end(into);
                break;
            }
            for request in &self.batch {
                let grain = request.object.wrapping_mul(self.grains_per_page) % (u64::MAX / GRAIN_BYTES + 1);
                self.collapse.add(Run { grain, references: 1, writes: false }, into);
            }
        }
        Ok(into.len() > before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::summary::all_runs;

    fn bytes(requests: &[(u64, i64)]) -> Vec<u8> {
        let record = |&(object, next)| Request { time: 1, object, bytes: 4096, next }.to_bytes();
        requests.iter().flat_map(record).collect()
    }

    #[test]
    fn objects_are_pages() {
        let file = bytes(&[(7, 2), (9, -1), (7, 3), (7, i64::MAX)]);
        let runs = all_runs(&mut Pages::new(file.as_slice(), "t", 8192)).expect("sound");
        let run = |grain, references| Run { grain, references, writes: false };
        assert_eq!(runs, [run(7 * 32, 1), run(9 * 32, 1), run(7 * 32, 2)]);
        let mut requests = Vec::new();
        assert!(Objects::new(file.as_slice(), "t").next_requests(&mut requests).expect("sound"));
        assert_eq!(requests[1], Request { time: 1, object: 9, bytes: 4096, next: -1 });
        assert_eq!(bytes(&[(7, 2)]), requests[0].to_bytes());
    }

    #[test]
    fn a_cut_or_malformed_file_is_told_by_its_byte() {
        let mut file = bytes(&[(7, 1), (7, -1)]);
        file.truncate(40);
        let error = all_runs(&mut Pages::new(file.as_slice(), "t", 4096)).expect_err("cut").to_string();
        assert!(error.starts_with("t: byte 24: 16 bytes where a request has 24"), "{error}");
        let file = bytes(&[(7, 1), (7, 1)]);
        let error = all_runs(&mut Pages::new(file.as_slice(), "t", 4096)).expect_err("past").to_string();
        assert!(error.starts_with("t: byte 40: 1 as the next request"), "{error}");
    }
}
