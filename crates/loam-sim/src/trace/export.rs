//! Writing a trace in formats of other programs.
//!
//! What a run does not say is filled in: its references are put at the start of its grain, one byte each; in
//! a run that writes, the last one writes. Read back, they make the same runs.

use super::oracle::Request;
use super::{GRAIN_BYTES, Run, Source, TraceError};
use std::collections::HashMap;
use std::io::{self, Write};

/// Most requests of an oracleGeneral file: to know each object's next request, all are held, 8 bytes each.
pub const REQUESTS_MAX: usize = 1 << 27;
/// No request.
const NONE: u32 = u32::MAX;

/// Why a trace was not exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// It cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The other file cannot be written.
    #[error("cannot be written: {0}")]
    Write(#[from] io::Error),
    /// It has too many requests for oracleGeneral.
    #[error(
        "the trace has more than {REQUESTS_MAX} requests: export it with larger pages, or record a shorter one"
    )]
    TooLong,
}

/// Writes csv: `address,op,size` under a line of these names. Gives the number of references.
///
/// # Errors
/// [`ExportError`].
pub fn csv(source: &mut dyn Source, sink: &mut dyn Write) -> Result<u64, ExportError> {
    writeln!(sink, "address,op,size")?;
    each_reference(source, |address, writes| {
        let op = if writes { 'w' } else { 'r' };
        writeln!(sink, "{address:#x},{op},1")
    })
}

/// Writes the text of valgrind's lackey. Gives the number of references.
///
/// # Errors
/// [`ExportError`].
pub fn lackey(source: &mut dyn Source, sink: &mut dyn Write) -> Result<u64, ExportError> {
    each_reference(source, |address, writes| {
        let op = if writes { 'S' } else { 'L' };
        writeln!(sink, " {op} {address:08x},1")
    })
}

/// Writes oracleGeneral with pages of `page_bytes` as objects; the page's number is the object. Consecutive references to one page are
/// one request. Gives the number of requests.
///
/// # Errors
/// [`ExportError`].
///
/// # Panics
/// If `page_bytes` is no power of two from a grain to 1 GiB.
pub fn oracle(source: &mut dyn Source, page_bytes: u64, sink: &mut dyn Write) -> Result<u64, ExportError> {
    assert!(page_bytes.is_power_of_two() && (GRAIN_BYTES..=1 << 30).contains(&page_bytes), "a page's size");
    let bytes = u32::try_from(page_bytes).expect("at most 1 GiB");
    let requests = page_requests(source, page_bytes / GRAIN_BYTES)?;
    requests.write(bytes, sink)?;
    Ok(requests.numbers.len() as u64)
}

/// Writes a stream of page numbers as oracleGeneral, a request each, of objects of size 1 as libCacheSim counts pages.
///
/// # Errors
/// [`ExportError`].
pub fn oracle_of_pages(pages: impl Iterator<Item = u64>, sink: &mut dyn Write) -> Result<(), ExportError> {
    let mut requests = Requests::default();
    for page in pages {
        requests.push(page)?;
    }
    Ok(requests.write(1, sink)?)
}

/// The different objects, and for each request which of them.
#[derive(Default)]
struct Requests {
    numbering: HashMap<u64, u32>,
    objects: Vec<u64>,
    numbers: Vec<u32>,
}

impl Requests {
    fn push(&mut self, object: u64) -> Result<(), ExportError> {
        if self.numbers.len() == REQUESTS_MAX {
            return Err(ExportError::TooLong);
        }
        let objects = &mut self.objects;
        let number = *self.numbering.entry(object).or_insert_with(|| {
            objects.push(object);
            u32::try_from(objects.len() - 1).expect("no more than requests")
        });
        self.numbers.push(number);
        Ok(())
    }

    fn write(&self, bytes: u32, sink: &mut dyn Write) -> io::Result<()> {
        // Backwards, the request that was seen last is the next one.
        let mut next = vec![NONE; self.numbers.len()];
        let mut seen = vec![NONE; self.objects.len()];
        for (at, &number) in self.numbers.iter().enumerate().rev() {
            let at_number = u32::try_from(at).expect("below the limit of requests");
            next[at] = std::mem::replace(&mut seen[number as usize], at_number);
        }
        for (&number, &next) in self.numbers.iter().zip(&next) {
            let object = self.objects[number as usize];
            let next = if next == NONE { -1 } else { i64::from(next) };
            // Always the same time: libCacheSim drops objects after 300 days, which a long trace would reach.
            sink.write_all(&Request { time: 0, object, bytes, next }.to_bytes())?;
        }
        Ok(())
    }
}

fn page_requests(source: &mut dyn Source, grains_per_page: u64) -> Result<Requests, ExportError> {
    let (mut requests, mut runs, mut last) = (Requests::default(), Vec::new(), None);
    while source.next_runs(&mut runs)? {
        for run in runs.drain(..) {
            let page = run.grain / grains_per_page;
            if last.replace(page) != Some(page) {
                requests.push(page)?;
            }
        }
    }
    Ok(requests)
}

fn each_reference(
    source: &mut dyn Source,
    mut write: impl FnMut(u64, bool) -> io::Result<()>,
) -> Result<u64, ExportError> {
    let (mut runs, mut references) = (Vec::new(), 0);
    while source.next_runs(&mut runs)? {
        for Run { grain, references: count, writes } in runs.drain(..) {
            let address = grain.wrapping_mul(GRAIN_BYTES);
            for left in (0..count).rev() {
                write(address, writes && left == 0)?;
            }
            references += u64::from(count);
        }
    }
    Ok(references)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::csv::Csv;
    use crate::trace::lackey::Lackey;
    use crate::trace::oracle::{Objects, Pages};
    use crate::trace::summary::all_runs;

    struct Once(Vec<Run>);

    impl Source for Once {
        fn next_runs(&mut self, into: &mut Vec<Run>) -> Result<bool, TraceError> {
            into.append(&mut self.0);
            Ok(!into.is_empty())
        }
    }

    fn runs() -> Vec<Run> {
        let run = |grain, references, writes| Run { grain, references, writes };
        vec![run(16, 3, true), run(17, 1, false), run(0x1fff_0007, 1, true), run(16, 2, false)]
    }

    #[test]
    fn texts_read_back_are_the_same() {
        let mut text = Vec::new();
        assert_eq!(csv(&mut Once(runs()), &mut text).expect("memory"), 7);
        assert_eq!(all_runs(&mut Csv::new(text.as_slice(), "t")).expect("sound"), runs());
        text.clear();
        assert_eq!(lackey(&mut Once(runs()), &mut text).expect("memory"), 7);
        assert!(text.starts_with(b" L 00001000,1\n L 00001000,1\n S 00001000,1\n"));
        assert_eq!(all_runs(&mut Lackey::new(text.as_slice(), "t", false)).expect("sound"), runs());
    }

    #[test]
    fn requests_know_the_next_one() {
        let mut file = Vec::new();
        assert_eq!(oracle(&mut Once(runs()), 4096, &mut file).expect("memory"), 3);
        let mut requests = Vec::new();
        assert!(Objects::new(file.as_slice(), "t").next_requests(&mut requests).expect("sound"));
        let seen: Vec<_> = requests.iter().map(|request| (request.object, request.next)).collect();
        assert_eq!(seen, [(1, 2), (0x01ff_f000, -1), (1, -1)]);
        let pages = all_runs(&mut Pages::new(file.as_slice(), "t", 4096)).expect("sound");
        assert_eq!(pages.iter().map(|run| run.grain).collect::<Vec<_>>(), [16, 0x1fff_0000, 16]);
    }

    proptest::proptest! {
        /// Every page comes back, each request names the next of its page, and a cut is noticed.
        #[test]
        fn streams_of_pages_come_back(pages in proptest::collection::vec(0_u64..900, 1..2_000)) {
            let mut file = Vec::new();
            oracle_of_pages(pages.iter().copied(), &mut file).expect("memory");
            let (mut requests, mut objects) = (Vec::new(), Objects::new(file.as_slice(), "t"));
            while objects.next_requests(&mut requests).expect("sound") {}
            assert!(requests.iter().map(|request| request.object).eq(pages.iter().copied()));
            for (at, request) in requests.iter().enumerate() {
                let next = pages[at + 1..].iter().position(|&page| page == pages[at]);
                assert_eq!(request.next, next.map_or(-1, |n| (at + 1 + n) as i64));
            }
            file.truncate(file.len() - 5);
            let (mut requests, mut objects) = (Vec::new(), Objects::new(file.as_slice(), "t"));
            let error = loop {
                match objects.next_requests(&mut requests) {
                    Ok(more) => assert!(more, "the cut was not noticed"),
                    Err(error) => break error,
                }
            };
            assert!(error.place.contains("byte"), "{error}");
        }
    }
}
