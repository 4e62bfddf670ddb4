//! A trace taken apart: what each structure is asked for, in order.

use super::AdviseError;
use super::lines::Lines;
use super::structures::{GRAINS, Map};
use crate::trace::Source;
use crate::workload::kernels::Event;

/// Events of all structures together: 2 GiB.
pub const EVENTS_MAX: u64 = 1 << 28;
/// Events are kept in pieces, so that none is ever copied to make room.
const PIECE: usize = 1 << 18;
const WRITE: u64 = 1;
const PAGE_SHIFT: u32 = 1;
const TIME_SHIFT: u32 = 32;

/// Touches of base pages: one for each change of page, and how long the program computed since the one before, whatever it used meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Touches {
    pieces: Vec<Vec<u64>>,
    last_page: Option<u64>,
    last_ns: u64,
    events: u64,
}

impl Touches {
    fn push(&mut self, page: u64, write: bool, now_ns: u64) {
        if self.last_page == Some(page) {
            let last =
                self.pieces.last_mut().and_then(|piece| piece.last_mut()).expect("there is a last page");
            *last |= u64::from(write);
            return;
        }
        self.last_page = Some(page);
        let mut computed = now_ns - self.last_ns;
        self.last_ns = now_ns;
        // Longer than a number has room for: said in several.
        while computed > u64::from(u32::MAX) {
            self.put(u64::from(u32::MAX), page, false);
            computed -= u64::from(u32::MAX);
        }
        self.put(computed, page, write);
    }

    fn put(&mut self, ns: u64, page: u64, write: bool) {
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE) {
            self.pieces.push(Vec::with_capacity(PIECE));
        }
        let piece = self.pieces.last_mut().expect("it was just made");
        piece.push(ns << TIME_SHIFT | page << PAGE_SHIFT | u64::from(write));
        self.events += 1;
    }

    /// For a replay: one part that begins, and the touches.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        let touches = self.pieces.iter().flatten().map(|&packed| Event::Reference {
            page: (packed as u32) >> PAGE_SHIFT,
            cpu_ns: (packed >> TIME_SHIFT) as u32,
            write: packed & WRITE == 1,
            fresh: false,
        });
        core::iter::once(Event::Part(1)).chain(touches)
    }
}

/// What a structure is asked for.
#[derive(Clone, Debug, Default)]
pub struct Of {
    /// References.
    pub references: u64,
    /// Lines that the cache does not have, at least and at most.
    pub lines_fewest: u64,
    /// See above.
    pub lines_most: u64,
    /// Its touches.
    pub touches: Touches,
}

/// All of a trace.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// By structure.
    pub structures: Vec<Of>,
    /// All structures beside each other.
    pub all: Touches,
    /// The first base page of each structure there, and what all of them take.
    pub begins: Vec<u64>,
    /// See above.
    pub all_base_pages: u64,
    /// What a reference takes that finds its data here.
    pub reference_ns: f64,
}

impl Recorded {
    /// For a replay of some structures beside each other: their touches; the others' time passes.
    pub fn events_of<'a>(&'a self, wanted: &'a [bool]) -> impl Iterator<Item = Event> + 'a {
        let mut passed_ns = 0_u64;
        self.all.events().filter_map(move |event| match event {
            Event::Part(_) => Some(event),
            Event::Reference { page, cpu_ns, write, fresh } => {
                passed_ns += u64::from(cpu_ns);
                let structure = self.begins.partition_point(|&first| first <= u64::from(page)) - 1;
                if !wanted[structure] {
                    return None;
                }
                // What there is no room for passes with the next one.
                let cpu_ns = u32::try_from(passed_ns).unwrap_or(u32::MAX);
                passed_ns -= u64::from(cpu_ns);
                Some(Event::Reference { page, cpu_ns, write, fresh })
            }
        })
    }
}

/// Where pages are: looked up once for each of those that end in the same bits, since programs come back.
struct Near(Vec<(u64, (usize, u64))>);

impl Near {
    const PAGES: usize = 4096;

    fn get(&mut self, page: u64, find: impl FnOnce(u64) -> (usize, u64)) -> (usize, u64) {
        let near = &mut self.0[page as usize % Self::PAGES];
        if near.0 != page {
            *near = (page, find(page));
        }
        near.1
    }
}

/// Reads the trace that `map` is of.
///
/// # Errors
/// [`AdviseError::Trace`], [`AdviseError::TooLong`].
///
/// # Panics
/// If it is another one.
pub fn record(
    source: &mut dyn Source,
    map: &Map,
    cache_bytes: u64,
    reference_ns: f64,
) -> Result<Recorded, AdviseError> {
    let mut structures = vec![Of::default(); map.structures.len()];
    let mut begins = Vec::new();
    let mut all_base_pages = 0;
    for of in &map.structures {
        begins.push(all_base_pages);
        all_base_pages += of.base_pages;
    }
    let (mut all, mut lines) = (Touches::default(), Lines::new(cache_bytes));
    let mut near = Near(vec![(u64::MAX, (0, 0)); Near::PAGES]);
    let (mut runs, mut references) = (Vec::new(), 0_u64);
    while source.next_runs(&mut runs)? {
        for run in runs.drain(..) {
            let (at, place) = near.get(run.grain / GRAINS, |page| map.place(page));
            let [fewest, most] = lines.touch(run.grain, run.references);
            let now_ns = (references as f64 * reference_ns) as u64;
            let of = &mut structures[at];
            of.references += u64::from(run.references);
            of.lines_fewest += fewest;
            of.lines_most += most;
            of.touches.push(place, run.writes, now_ns);
            let of_structure = of.touches.events;
            all.push(begins[at] + place, run.writes, now_ns);
            references += u64::from(run.references);
            // Of both at each run: long times are said in many.
            if all.events.max(of_structure) > EVENTS_MAX / 2 {
                return Err(AdviseError::TooLong);
            }
        }
    }
    Ok(Recorded { structures, all, begins, all_base_pages, reference_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_structures_are_replayed_while_the_others_time_passes() {
        let mut all = Touches::default();
        for (page, ns) in [(0, 0), (300, 10), (1, 30), (301, 60)] {
            all.push(page, false, ns);
        }
        let structures = vec![Of::default(); 2];
        let recorded =
            Recorded { structures, all, begins: vec![0, 256], all_base_pages: 512, reference_ns: 1.0 };
        let events: Vec<Event> = recorded.events_of(&[false, true]).collect();
        let touch = |page, cpu_ns| Event::Reference { page, cpu_ns, write: false, fresh: false };
        assert_eq!(events, [Event::Part(1), touch(300, 10), touch(301, 50)]);
    }

    #[test]
    fn touches_keep_pages_writes_and_time() {
        let mut touches = Touches::default();
        for (page, write, ns) in [(3, false, 0), (3, true, 10), (7, false, 25), (3, false, 10_000_000_000)] {
            touches.push(page, write, ns);
        }
        let events: Vec<Event> = touches.events().collect();
        let touch = |page, cpu_ns, write| Event::Reference { page, cpu_ns, write, fresh: false };
        assert_eq!(events[..3], [Event::Part(1), touch(3, 0, true), touch(7, 25, false)]);
        let time: u64 = events[3..]
            .iter()
            .map(|event| match event {
                Event::Reference { cpu_ns, page: 3, .. } => u64::from(*cpu_ns),
                other => panic!("{other:?}"),
            })
            .sum();
        assert_eq!(time, 10_000_000_000 - 25);
    }
}
