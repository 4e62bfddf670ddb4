//! Data structures of a recorded program. A trace has addresses and no names, so they are ranges: those that the user names, and what gaps tell apart.

use super::{AdviseError, Options};
use crate::paging::LOCAL_LEAST;
use crate::trace::{GRAIN_BYTES, Source};
use loam_core::units::EXTENT_BASE_PAGES;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Bytes of a base page.
pub const BASE_BYTES: u64 = 4096;
/// Base pages of an extent.
const EXTENT: u64 = EXTENT_BASE_PAGES as u64;
/// Grains of a base page.
pub const GRAINS: u64 = BASE_BYTES / GRAIN_BYTES;
/// Extents that a trace may touch: 64 GiB.
pub const EXTENTS_MAX: usize = 1 << 16;
/// A trace of fewer runs may be of whole pages by chance.
const ALIGNED_RUNS_MIN: u64 = 64;

/// A range with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name.
    pub name: String,
    /// Its first byte.
    pub start: u64,
    /// How many.
    pub bytes: u64,
}

/// One structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name, or where it begins.
    pub name: String,
    /// Its first byte, and the one behind its last one.
    pub start: u64,
    /// See above.
    pub end: u64,
    /// Separate ranges.
    pub ranges: usize,
    /// Bytes of the base pages that are touched.
    pub bytes: u64,
    /// Base pages that its replay has room for: whole extents.
    pub base_pages: u64,
}

/// Touched pages without a gap between them, of one structure.
#[derive(Clone, Copy, Debug)]
struct Range {
    first: u64,
    end: u64,
    touched: u64,
    /// The named structure that it belongs to, then whichever.
    structure: Option<usize>,
}

/// All structures, and which page belongs to which.
#[derive(Clone, Debug)]
pub struct Map {
    /// The structures: named ones, then the largest, then the rest.
    pub structures: Vec<Found>,
    /// Every reference is to the beginning of a page: the trace tells pages, not addresses.
    pub page_aligned: bool,
    ranges: Vec<Range>,
    /// Where the replay has an extent of a structure: places follow each other without the extents that nobody touches.
    places: BTreeMap<(usize, u64), u64>,
}

impl Map {
    /// The structure that a page belongs to, and its place there, in base pages.
    ///
    /// # Panics
    /// If it was not there when the structures were found.
    pub fn place(&self, page: u64) -> (usize, u64) {
        let after = self.ranges.partition_point(|range| range.first <= page);
        let range = after.checked_sub(1).map(|at| self.ranges[at]).filter(|range| page < range.end);
        let structure =
            range.and_then(|range| range.structure).expect("the trace is the one that was read before");
        (structure, self.places[&(structure, page / EXTENT)] + page % EXTENT)
    }
}

/// The touched base pages, a bit for each.
#[derive(Default)]
struct Touched {
    extents: BTreeMap<u64, [u64; 4]>,
    runs: u64,
    aligned: u64,
}

impl Touched {
    fn read(source: &mut dyn Source) -> Result<Self, AdviseError> {
        let (mut touched, mut runs, mut last) = (Self::default(), Vec::new(), u64::MAX);
        while source.next_runs(&mut runs)? {
            for run in runs.drain(..) {
                touched.runs += 1;
                touched.aligned += u64::from(run.grain % GRAINS == 0);
                let page = run.grain / GRAINS;
                if page == last {
                    continue;
                }
                last = page;
                touched.extents.entry(page / EXTENT).or_default()[(page % EXTENT / 64) as usize] |=
                    1 << (page % 64);
            }
            if touched.extents.len() > EXTENTS_MAX {
                return Err(AdviseError::TooWide);
            }
        }
        if touched.runs == 0 { Err(AdviseError::Empty) } else { Ok(touched) }
    }

    fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.extents.iter().flat_map(|(extent, words)| {
            (0..EXTENT)
                .filter(|page| words[(page / 64) as usize] >> (page % 64) & 1 == 1)
                .map(move |page| extent * EXTENT + page)
        })
    }
}

/// Named ranges as pages, in order, and whose they are. Where two meet within a page it is the first one's.
fn named(options: &Options) -> Result<Vec<(u64, u64, usize)>, AdviseError> {
    let mut ranges = Vec::new();
    for (at, of) in options.named.iter().enumerate() {
        let wrong = |what| Err(AdviseError::Named(of.name.clone(), what));
        let Some(end) = of.start.checked_add(of.bytes).filter(|_| of.bytes > 0) else {
            return wrong("has no bytes, or ends behind the last address");
        };
        if options.named[..at].iter().any(|other| other.name == of.name) {
            return wrong("is named twice");
        }
        if options.named[..at].iter().any(|other| of.start < other.start + other.bytes && other.start < end) {
            return wrong("lies partly in a range that has another name");
        }
        ranges.push((of.start / BASE_BYTES, end.div_ceil(BASE_BYTES), at));
    }
    ranges.sort_unstable();
    Ok(ranges)
}

/// Reads a trace and tells its structures apart.
///
/// # Errors
/// [`AdviseError`]: the trace, or the names.
pub fn find(source: &mut dyn Source, options: &Options) -> Result<Map, AdviseError> {
    let named = named(options)?;
    let touched = Touched::read(source)?;
    let gap = (options.gap_bytes / BASE_BYTES).max(1);
    let mut ranges: Vec<Range> = Vec::new();
    for page in touched.pages() {
        let structure = named.iter().find(|of| of.0 <= page && page < of.1).map(|of| of.2);
        match ranges.last_mut().filter(|last| last.structure == structure) {
            Some(last) if structure.is_some() || page - last.end < gap => {
                last.end = page + 1;
                last.touched += 1;
            }
            _ => ranges.push(Range { first: page, end: page + 1, touched: 1, structure }),
        }
    }
    let own = own(&ranges, options);
    let rest = options.named.len() + own.len();
    for (at, &range) in own.iter().enumerate() {
        ranges[range].structure = Some(options.named.len() + at);
    }
    for range in ranges.iter_mut().filter(|range| range.structure.is_none()) {
        range.structure = Some(rest);
    }
    let page_aligned = touched.runs >= ALIGNED_RUNS_MIN && touched.aligned == touched.runs;
    let mut map = Map { structures: Vec::new(), page_aligned, ranges, places: BTreeMap::new() };
    map.describe(rest + 1, options, &touched);
    Ok(map)
}

/// Ranges without a name that are structures of their own, the largest first. Smaller ones than can be paged are not.
fn own(ranges: &[Range], options: &Options) -> Vec<usize> {
    let large = |at: &usize| ranges[*at].structure.is_none() && ranges[*at].touched >= LOCAL_LEAST;
    let mut own: Vec<usize> = (0..ranges.len()).filter(large).collect();
    own.sort_by_key(|&at| core::cmp::Reverse(ranges[at].touched));
    own.truncate(options.structures_max);
    own
}

impl Map {
    fn describe(&mut self, structures: usize, options: &Options, touched: &Touched) {
        let mut found: Vec<Option<Found>> = vec![None; structures];
        for range in &self.ranges {
            let at = range.structure.expect("each range has one");
            let name = match options.named.get(at) {
                Some(named) => named.name.clone(),
                None if at + 1 == structures => "the rest".into(),
                None => format!("{:#x}", range.first.saturating_mul(BASE_BYTES)),
            };
            // A trace may name any address, also the last one.
            let start = range.first.saturating_mul(BASE_BYTES);
            let of =
                found[at].get_or_insert(Found { name, start, end: 0, ranges: 0, bytes: 0, base_pages: 0 });
            of.end = range.end.saturating_mul(BASE_BYTES);
            of.ranges += 1;
            of.bytes += range.touched * BASE_BYTES;
            for &extent in
                touched.extents.range(range.first / EXTENT..=(range.end - 1) / EXTENT).map(|of| of.0)
            {
                if let Entry::Vacant(place) = self.places.entry((at, extent)) {
                    place.insert(of.base_pages);
                    of.base_pages += EXTENT;
                }
            }
        }
        // A named range that is never touched is no structure, nor is a rest of nothing; numbers close up.
        let mut numbers = Vec::new();
        for of in found {
            numbers.push(self.structures.len());
            self.structures.extend(of);
        }
        for range in &mut self.ranges {
            range.structure = range.structure.map(|at| numbers[at]);
        }
        let places = core::mem::take(&mut self.places);
        self.places =
            places.into_iter().map(|((at, extent), place)| ((numbers[at], extent), place)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::csv::Csv;

    fn map(pages: impl Iterator<Item = u64>, named: Vec<Named>, most: usize) -> Result<Map, AdviseError> {
        let text: String = pages.map(|page| format!("{}\n", page * 4096 + 256)).collect();
        let options = Options {
            gap_bytes: 64 << 10,
            structures_max: most,
            named,
            pages_only: false,
            reference_ns: 1.0,
            threads: 1,
        };
        find(&mut Csv::new(text.as_bytes(), "t"), &options)
    }

    fn at(name: &str, page: u64, pages: u64) -> Named {
        Named { name: name.into(), start: page * 4096, bytes: pages * 4096 }
    }

    #[test]
    fn gaps_tell_structures_apart_and_small_ones_are_the_rest() {
        // 300 pages, a gap of 10 within; 400 pages; 3 pages elsewhere.
        let pages = || (1000..1100).chain(1110..1310).chain(5000..5400).chain(90_000..90_003);
        let found = map(pages(), Vec::new(), 8).expect("a trace");
        let names: Vec<(&str, u64)> =
            found.structures.iter().map(|s| (s.name.as_str(), s.bytes / 4096)).collect();
        assert_eq!(names, [("0x1388000", 400), ("0x3e8000", 300), ("the rest", 3)]);
        assert_eq!(found.place(90_001).0, 2);
        // Places keep their alignment to an extent, so pages of every size do, and no extent is left out between.
        let (structure, place) = found.place(1305);
        assert_eq!((structure, place), (1, 1305 % 256 + (1305 / 256 - 1000 / 256) * 256));
        assert_eq!(found.structures[1].base_pages, 3 * 256);
        let one = map(pages(), Vec::new(), 1).expect("a trace");
        let names: Vec<&str> = one.structures.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["0x1388000", "the rest"]);
        assert_eq!((one.structures[1].ranges, one.structures[1].bytes / 4096), (2, 303));
    }

    #[test]
    fn names_cut_what_gaps_do_not() {
        let named = vec![at("edges", 1200, 100), at("nodes", 1000, 200), at("never", 1, 2)];
        let found = map(1000..1700, named, 8).expect("a trace");
        let names: Vec<(&str, u64)> =
            found.structures.iter().map(|s| (s.name.as_str(), s.bytes / 4096)).collect();
        assert_eq!(names, [("edges", 100), ("nodes", 200), ("0x514000", 400)]);
        assert_eq!([1000, 1199, 1200, 1300].map(|page| found.place(page).0), [1, 1, 0, 2]);
    }

    #[test]
    fn wrong_names_are_told() {
        let message = |named| map(0..10, named, 8).expect_err("wrong").to_string();
        assert!(message(vec![at("a", 0, 2), at("b", 1, 2)]).contains("structure b: lies partly"));
        assert!(message(vec![at("a", 0, 2), at("a", 5, 2)]).contains("named twice"));
        assert!(message(vec![at("a", 0, 0)]).contains("has no bytes"));
        assert!(matches!(
            map(core::iter::empty(), Vec::new(), 8),
            Err(AdviseError::Trace(_) | AdviseError::Empty)
        ));
    }
}
