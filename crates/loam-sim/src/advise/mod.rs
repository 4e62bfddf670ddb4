//! Which way to memory is best for each data structure of a recorded program: here, paged (and in pages of which size), or loaded and stored where it is.
//!
//! | module | what |
//! | --- | --- |
//! | [`cluster`] | what is described: local memory, the paths, the processor's cache |
//! | [`file`] | the same in a file |
//! | [`structures`] | data structures: named address ranges, or what gaps tell apart |
//! | [`record`] | the trace, taken apart: each structure's touches of base pages, and lines that miss in the cache |
//! | [`options`] | what each way takes: paged memory is replayed through the live borrower |
//! | [`choose`] | one way for each structure, within the local memory that they share |
//!
//! The times are those of equations 1 and 2 of regions-2010 (section V.B): what a reference takes that finds its data here, and beside it faults, or lines
//! from elsewhere. Faults are not a number times a latency: they are what the live policy waits for. `docs/advise.md` has what is assumed.

pub mod choose;
pub mod cluster;
pub mod file;
mod lines;
pub mod options;
pub mod record;
pub mod structures;
#[cfg(test)]
mod tests;

pub use cluster::{Cluster, Direct};
pub use options::{Choice, Way};
pub use structures::Named;

use crate::jobs;
use crate::trace::{Source, TraceError};
use options::{Budget, Replays};
use serde::Serialize;

/// Structures that are told apart beside the named ones: the rest is one more.
pub const STRUCTURES_MAX: usize = 64;

/// How a trace is looked at.
#[derive(Clone, Debug)]
pub struct Options {
    /// Touched bytes that are so far apart belong to different structures.
    pub gap_bytes: u64,
    /// So many structures without a name at most; what is left is one more.
    pub structures_max: usize,
    /// Ranges that have names.
    pub named: Vec<Named>,
    /// The trace tells pages, not addresses within them.
    pub pages_only: bool,
    /// What a reference takes that finds its data here.
    pub reference_ns: f64,
    /// Replays at a time.
    pub threads: usize,
}

/// What keeps from advising.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// There is nothing in it.
    #[error("there is no reference in it")]
    Empty,
    /// There is too much in it.
    #[error("the trace touches more than {} GiB of memory: advise on a part of it", structures::EXTENTS_MAX >> 10)]
    TooWide,
    /// There is too much in it.
    #[error(
        "the trace changes from page to page more than {} times: advise on its beginning (loam trace record --limit)",
        record::EVENTS_MAX
    )]
    TooLong,
    /// Named ranges.
    #[error("structure {0}: {1}")]
    Named(String, &'static str),
    /// Local memory.
    #[error(
        "{have} bytes of local memory are too little: what must stay here, the agent's buffers and the least that paged memory needs take {least} bytes"
    )]
    TooLittle {
        /// As described.
        have: u64,
        /// What is needed at least.
        least: u64,
    },
}

/// A data structure, and what is best for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Structure {
    /// Its name, or where it begins.
    pub name: String,
    /// Its first byte, and the one behind its last one, in whole base pages.
    pub start: u64,
    /// See above.
    pub end: u64,
    /// Separate ranges of which it consists.
    pub ranges: usize,
    /// Bytes of the base pages that are touched.
    pub bytes: u64,
    /// References.
    pub references: u64,
    /// Lines that the processor's cache does not have, at least and at most. None: the trace does not tell.
    pub lines: Option<[u64; 2]>,
    /// All that was looked at.
    pub options: Vec<Choice>,
    /// The best one, by its place there, where a line that may be needed is needed.
    pub best: usize,
    /// The best one if as few lines as possible are needed, where that is another one.
    pub best_with_fewest_lines: Option<usize>,
}

/// The same for all structures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fixed {
    /// What.
    pub name: String,
    /// The program's time; none: more than was waited for.
    pub time_ns: Option<u64>,
    /// Local memory that it takes.
    pub local_bytes: u64,
}

/// The advice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// Local memory that there is, and what of it the agent's buffers take if anything is paged: those of each structure's replay.
    pub local_bytes: u64,
    /// See above.
    pub buffers_bytes: u64,
    /// Local memory is too little for that: only one set of buffers is counted, and [`Self::time_ns`] is too short.
    pub buffers_shared: bool,
    /// What a reference takes that finds its data here.
    pub reference_ns: f64,
    /// The structures, largest first; the rest is the last one.
    pub structures: Vec<Structure>,
    /// The program's time as advised.
    pub time_ns: u64,
    /// Local memory that is used for data then.
    pub local_used_bytes: u64,
    /// All structures in one way.
    pub fixed: Vec<Fixed>,
    /// Several structures paged under one `--local`, with pages of the sizes that Loam finds: all (what `loam run` does), all that are not direct, and all that
    /// are advised to be paged. It is faster than a part for each where they are used at different times. Empty: all of it fits.
    pub together: Vec<Fixed>,
}

/// Looks at a trace, which is read twice.
///
/// # Errors
/// [`AdviseError`].
///
/// # Panics
/// If the second reading finds what the first one did not.
pub fn advise(
    cluster: &Cluster,
    options: &Options,
    open: &mut dyn FnMut() -> Result<Box<dyn Source>, TraceError>,
) -> Result<Advice, AdviseError> {
    let map = structures::find(&mut *open()?, options)?;
    let recorded = record::record(&mut *open()?, &map, cluster.cache_bytes, options.reference_ns)?;
    let lines_known = !options.pages_only && !map.page_aligned;
    let budget = Budget::new(cluster.local_bytes, &map);
    let replays = Replays { cluster, map: &map, recorded: &recorded };
    let tried = options::tried(&replays, &budget, lines_known, options.threads);
    let (most, fewest) = (|choice: &Choice| choice.time_ns, |choice: &Choice| choice.time_with_fewest_ns());
    let best = choose::choose(&tried, &budget, &most).ok_or_else(|| AdviseError::TooLittle {
        have: cluster.local_bytes,
        least: budget.buffers_bytes + choose::least(&tried, &budget),
    })?;
    let with_fewest = choose::choose(&tried, &budget, &fewest).expect("as much fits as before");
    let fixed = options::fixed(&tried, &budget);
    let chosen: Vec<Choice> = tried.iter().zip(&best.places).map(|(options, &at)| options[at]).collect();
    let fits = budget.data_bytes <= cluster.local_bytes;
    let together = if fits { Vec::new() } else { together(&replays, &chosen, options.threads) };
    let time_ns = chosen.iter().map(|choice| choice.time_ns).fold(0, u64::saturating_add);
    let local_used_bytes = chosen.iter().map(|choice| choice.local_bytes).sum();
    // Another size of page, or another part of local memory, is no other way.
    let other = |at: usize| {
        let kind = |place: usize| core::mem::discriminant(&tried[at][place].way);
        let fewest = with_fewest.places[at];
        (kind(fewest) != kind(best.places[at])).then_some(fewest)
    };
    let others: Vec<Option<usize>> = (0..tried.len()).map(other).collect();
    let structures = map.structures.into_iter().zip(tried).zip(&recorded.structures).enumerate();
    let structures = structures.map(|(at, ((of, options), recorded))| Structure {
        name: of.name,
        start: of.start,
        end: of.end,
        ranges: of.ranges,
        bytes: of.bytes,
        references: recorded.references,
        lines: lines_known.then_some([recorded.lines_fewest, recorded.lines_most]),
        options,
        best: best.places[at],
        best_with_fewest_lines: others[at],
    });
    Ok(Advice {
        local_bytes: cluster.local_bytes,
        buffers_bytes: best.buffers_bytes,
        buffers_shared: best.buffers_shared,
        reference_ns: options.reference_ns,
        structures: structures.collect(),
        time_ns,
        local_used_bytes,
        fixed,
        together,
    })
}

/// What is paged under one local memory, in three ways.
fn together(replays: &Replays<'_>, chosen: &[Choice], threads: usize) -> Vec<Fixed> {
    let which =
        |wanted: &dyn Fn(Way) -> bool| chosen.iter().map(|choice| wanted(choice.way)).collect::<Vec<bool>>();
    let mut sets = vec![("all paged under one --local, as loam run does", which(&|_| true))];
    for (name, set) in [
        ("direct as advised, the rest paged under one --local", which(&|way| way != Way::Direct)),
        (
            "here and direct as advised, the rest paged under one --local",
            which(&|way| matches!(way, Way::Paged { .. })),
        ),
    ] {
        if sets.iter().all(|known| known.1 != set) {
            sets.push((name, set));
        }
    }
    let run = |(name, set): &(&str, Vec<bool>)| replays.together(name, chosen, set);
    jobs::run(&sets, threads, &|_| {}, run).into_iter().flatten().collect()
}

impl Advice {
    /// What takes the least time of all that fits: the advice (none), or something else.
    pub fn faster(&self) -> Option<&Fixed> {
        let all = self.together.iter().chain(&self.fixed).filter(|of| of.local_bytes <= self.local_bytes);
        let faster = all.filter(|of| of.time_ns.is_some_and(|time| time < self.time_ns));
        faster.min_by_key(|of| of.time_ns)
    }
}
