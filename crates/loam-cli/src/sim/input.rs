//! Where references come from: a trace, or a stream made on the spot.

use crate::failure::Failure;
use loam_core::units::Bytes;
use loam_sim::mrc::{self, Curve, Sample};
use loam_sim::replay::{Stream, Zipf};
use loam_sim::trace::{Options, Source, open_as};
use std::path::Path;
use std::str::FromStr;

/// `N:ALPHA:REQUESTS` of `--zipf`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ZipfSpec {
    pages: u32,
    alpha: f64,
    requests: usize,
}

impl FromStr for ZipfSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let (Some(pages), Some(alpha), Some(requests), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err("write pages, skew and requests, such as 1000000:0.8:20000000".into());
        };
        let spec = Self {
            pages: pages.parse().map_err(|_| format!("{pages} is not a number of pages"))?,
            alpha: alpha.parse().map_err(|_| format!("{alpha} is not a skew such as 0.8"))?,
            requests: requests.parse().map_err(|_| format!("{requests} is not a number of requests"))?,
        };
        if !(1..=1 << 28).contains(&spec.pages) {
            return Err("from 1 to 268435456 pages".into());
        }
        if !(0.0..=10.0).contains(&spec.alpha) {
            return Err("the skew is from 0 to 10".into());
        }
        if !(1..=1 << 31).contains(&spec.requests) {
            return Err("from 1 to 2147483648 requests".into());
        }
        Ok(spec)
    }
}

impl ZipfSpec {
    /// The stream's pages, in order.
    pub(super) fn pages(self, seed: u64) -> impl Iterator<Item = u64> {
        Zipf::new(self.pages, self.alpha, seed).take(self.requests)
    }
}

/// The page references of a trace in any format. An object of oracleGeneral is a page, whatever the page's size.
pub(super) fn stream(path: &Path, page: Bytes) -> Result<Stream, Failure> {
    let stream = Stream::of_trace(&mut *open(path, page)?, page.0).map_err(Failure::new)?;
    some_references(path, stream.references())?;
    Ok(stream)
}

/// What a sample of them shows, and how many pages there are; they are never all in memory.
pub(super) fn sampled(path: &Path, page: Bytes, sample: Sample) -> Result<(Curve, u32), Failure> {
    let sampled = mrc::sampled_of_trace(&mut *open(path, page)?, page.0, sample).map_err(Failure::new)?;
    some_references(path, sampled.0.references())?;
    Ok(sampled)
}

fn open(path: &Path, page: Bytes) -> Result<Box<dyn Source + Send>, Failure> {
    let options = Options { page_bytes: page.0, ..Options::default() };
    Ok(open_as(path, None, options).map_err(Failure::new)?.source)
}

fn some_references(path: &Path, references: u64) -> Result<(), Failure> {
    if references == 0 {
        return Err(Failure::new(format!("{}: there is no reference in it", path.display())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_streams_are_three_numbers() {
        let spec: ZipfSpec = "1000:0.8:20".parse().expect("three numbers");
        assert_eq!(spec, ZipfSpec { pages: 1000, alpha: 0.8, requests: 20 });
        assert_eq!(spec.pages(1).count(), 20);
        for text in
            ["", "1000", "1000:0.8", "0:0.8:1", "10:-1:5", "10:11:5", "10:NaN:5", "10:1:0", "10:1:5:6"]
        {
            assert!(text.parse::<ZipfSpec>().is_err(), "{text:?} passed");
        }
    }
}
