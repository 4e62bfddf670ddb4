//! What each way takes, structure by structure.

use super::Fixed;
use super::cluster::{self, Cluster};
use super::record::{Of, Recorded, Touches};
use super::structures::{BASE_BYTES, Found, Map};
use crate::jobs;
use crate::paging::{self, Config, LOCAL_LEAST, Sizing};
use loam_core::borrower::BUFFERS_MIN;
use loam_core::page_size::PageSize;
use loam_core::units::{BasePages, Duration};
use serde::Serialize;

/// Of this many parts of local memory one is the agent's page buffers, as live.
const BUFFERS_SHARE: u64 = 50;
/// Local memory is given out in so many pieces, or in base pages where that are fewer.
const PIECES: u64 = 4096;
/// Parts of a structure that are tried as its local memory, beside its part of what there is, in sixteenths.
const SIXTEENTHS: [u64; 5] = [1, 2, 4, 8, 12];
/// Pages that local memory has room for at least: with fewer they turn each other out.
const PAGES_MIN: u64 = 8;
/// A size of page that waits so many times as long as the best one so far is not replayed to its end.
const STOP_AT: u64 = 4;
/// Live, so much is fetched ahead at most, and this part of local memory.
const AHEAD_BYTES_MAX: u64 = 4 << 20;
const AHEAD_SHARE: u64 = 16;

/// A way to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Way {
    /// All of it is here.
    Local,
    /// Borrowed, and it comes and goes in pages of so many bytes.
    Paged {
        /// The size.
        page_bytes: u64,
    },
    /// Loaded and stored where it is, on another node.
    Direct,
}

/// One way, and what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// Which.
    pub way: Way,
    /// Local memory that it takes.
    pub local_bytes: u64,
    /// The structure's references and what they wait for; of lines that may be needed or not all are.
    pub time_ns: u64,
    /// The same with as few lines as may be (direct only).
    pub time_fewest_ns: Option<u64>,
    /// Faults that wait for a lender (paged only).
    pub faults: Option<u64>,
}

impl Choice {
    /// With as few lines as may be.
    pub fn time_with_fewest_ns(&self) -> u64 {
        self.time_fewest_ns.unwrap_or(self.time_ns)
    }
}

/// How local memory is given out.
#[derive(Clone, Debug)]
pub struct Budget {
    /// All of it.
    pub local_bytes: u64,
    /// What the agent takes of it if something is paged.
    pub buffers_bytes: u64,
    /// And more for each further structure that is paged: its replay has buffers of its own, where what has just left is found again, so that
    /// without this several of them together would have more memory than there is.
    pub buffers_more_bytes: u64,
    /// The piece that it is given out in.
    pub piece_bytes: u64,
    /// For each structure its part of local memory, in proportion to its size. None: it is too small to be paged.
    parts: Vec<Option<u64>>,
    /// All data.
    pub data_bytes: u64,
}

fn is_pageable(of: &Found) -> bool {
    of.bytes > LOCAL_LEAST * BASE_BYTES
}

impl Budget {
    pub(super) fn new(local_bytes: u64, map: &Map) -> Self {
        let buffers_bytes =
            (local_bytes / BASE_BYTES / BUFFERS_SHARE).max(u64::from(BUFFERS_MIN)) * BASE_BYTES;
        let piece_bytes = (local_bytes / PIECES).next_multiple_of(BASE_BYTES).max(BASE_BYTES);
        let buffers_more_bytes = u64::from(BUFFERS_MIN) * BASE_BYTES;
        let (parts, data_bytes) = (Vec::new(), 0);
        let mut budget =
            Self { local_bytes, buffers_bytes, buffers_more_bytes, piece_bytes, parts, data_bytes };
        let (mut kept, mut paged) = (0, 0);
        for of in &map.structures {
            budget.data_bytes += of.bytes;
            if is_pageable(of) { paged += of.bytes } else { kept += budget.pieces(of.bytes) }
        }
        let all_paged = map.structures.iter().filter(|of| is_pageable(of)).count();
        let pieces = (budget.for_data_with(all_paged) / piece_bytes).saturating_sub(kept);
        let part = |bytes: u64| u128::from(pieces) * u128::from(bytes) / u128::from(paged.max(1));
        let least = budget.pieces(LOCAL_LEAST * BASE_BYTES);
        let part = |of: &Found| u64::try_from(part(of.bytes)).unwrap_or(u64::MAX).max(least) * piece_bytes;
        budget.parts = map.structures.iter().map(|of| is_pageable(of).then(|| part(of))).collect();
        budget
    }

    /// Pieces that so many bytes take.
    pub fn pieces(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.piece_bytes)
    }

    /// What is left for data if something is paged.
    pub fn for_data_bytes(&self) -> u64 {
        self.for_data_with(1)
    }

    /// The same if so many structures are.
    pub fn for_data_with(&self, paged: usize) -> u64 {
        self.local_bytes.saturating_sub(self.buffers_of(paged))
    }

    /// What the buffers take if so many structures are paged.
    pub fn buffers_of(&self, paged: usize) -> u64 {
        match paged as u64 {
            0 => 0,
            more => self.buffers_bytes + (more - 1) * self.buffers_more_bytes,
        }
    }

    /// Local memory that is tried for a structure, least first. (Where all of it fits it is not paged.)
    fn shares(&self, at: usize, of: &Found) -> Vec<u64> {
        let Some(part) = self.parts[at] else { return Vec::new() };
        let least = self.pieces(LOCAL_LEAST * BASE_BYTES) * self.piece_bytes;
        let sixteenths = SIXTEENTHS.map(|parts| of.bytes / 16 * parts / self.piece_bytes * self.piece_bytes);
        let mut shares: Vec<u64> =
            sixteenths.into_iter().chain([part]).map(|bytes| bytes.max(least)).collect();
        shares.sort_unstable();
        shares.dedup();
        shares.retain(|&bytes| bytes < of.bytes && bytes <= self.for_data_bytes());
        shares
    }

    /// The least that a structure can be paged with.
    pub fn least_paged_bytes(&self, at: usize) -> Option<u64> {
        self.parts[at].map(|_| LOCAL_LEAST * BASE_BYTES)
    }

    /// A structure's part of local memory if all structures are paged.
    pub fn part_bytes(&self, at: usize) -> Option<u64> {
        self.parts[at]
    }
}

/// One replay: a structure with so much local memory.
#[derive(Clone, Copy)]
struct Job {
    structure: usize,
    local_bytes: u64,
}

/// All ways for each structure.
pub(super) fn tried(
    replays: &Replays<'_>,
    budget: &Budget,
    lines_known: bool,
    threads: usize,
) -> Vec<Vec<Choice>> {
    let (map, recorded) = (replays.map, replays.recorded);
    let mut jobs = Vec::new();
    for (structure, of) in map.structures.iter().enumerate() {
        jobs.extend(
            budget.shares(structure, of).into_iter().map(|local_bytes| Job { structure, local_bytes }),
        );
    }
    let done = jobs::run(&jobs, threads, &|_| {}, |job| replays.paged(job.structure, job.local_bytes));
    let mut tried: Vec<Vec<Choice>> = Vec::new();
    for (of, recorded) in map.structures.iter().zip(&recorded.structures) {
        let time_ns = replays.computing_ns(recorded);
        let (way, local_bytes) = (Way::Local, of.bytes);
        tried.push(vec![Choice { way, local_bytes, time_ns, time_fewest_ns: None, faults: None }]);
    }
    for (job, done) in jobs.iter().zip(done) {
        tried[job.structure].extend(done);
    }
    for (options, of) in tried.iter_mut().zip(&recorded.structures) {
        options.extend(lines_known.then(|| replays.direct(of)).flatten());
    }
    tried
}

/// What is replayed, on what.
#[derive(Clone, Copy)]
pub(super) struct Replays<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) map: &'a Map,
    pub(super) recorded: &'a Recorded,
}

impl Replays<'_> {
    /// Equation 1's first part: all references find their data here.
    fn computing_ns(&self, of: &Of) -> u64 {
        (of.references as f64 * self.recorded.reference_ns) as u64
    }

    /// Equation 2, beside what a reference takes anyway.
    fn direct(&self, of: &Of) -> Option<Choice> {
        let direct = self.cluster.direct.as_ref()?;
        let more_ns = direct.load_ns.saturating_sub(direct.local_ns);
        let with = |lines: u64| self.computing_ns(of).saturating_add(lines.saturating_mul(more_ns));
        Some(Choice {
            way: Way::Direct,
            local_bytes: 0,
            time_ns: with(of.lines_most),
            time_fewest_ns: Some(with(of.lines_fewest)),
            faults: None,
        })
    }

    /// Pages of every size that has room.
    fn paged(&self, structure: usize, local_bytes: u64) -> Vec<Choice> {
        let of = &self.recorded.structures[structure];
        let (mut choices, mut best_ns) = (Vec::new(), None);
        let local = BasePages(local_bytes / BASE_BYTES);
        for size in PageSize::all().filter(|size| size.base_pages() * PAGES_MIN <= local.0) {
            let stop_ns = best_ns.map(|best: u64| STOP_AT.saturating_mul(best));
            let base_pages = self.map.structures[structure].base_pages;
            let config = self.config(local, Sizing::Fixed(size), false);
            let Some((waits_ns, faults)) = self.waits(config, base_pages, &of.touches, stop_ns) else {
                continue;
            };
            best_ns = Some(best_ns.map_or(waits_ns, |best| best.min(waits_ns)));
            choices.push(Choice {
                way: Way::Paged { page_bytes: size.base_pages() * BASE_BYTES },
                local_bytes,
                time_ns: self.computing_ns(of).saturating_add(waits_ns),
                time_fewest_ns: None,
                faults: Some(faults),
            });
        }
        choices
    }

    /// As `loam run` does it: what is paged has one local memory, and pages of the sizes that Loam finds. The others are here or direct as chosen.
    /// None: too little is left for it.
    pub(super) fn together(&self, name: &str, chosen: &[Choice], is_paged: &[bool]) -> Option<Fixed> {
        let others = || chosen.iter().zip(is_paged).filter(|(_, paged)| !**paged).map(|(choice, _)| choice);
        let kept: u64 = others().map(|choice| choice.local_bytes).sum();
        let left = self.cluster.local_bytes.checked_sub(kept)? / BASE_BYTES;
        if left <= LOCAL_LEAST + u64::from(BUFFERS_MIN) || !is_paged.contains(&true) {
            return None;
        }
        let start = PageSize::new(BasePages(8)).expect("32 KiB");
        let sizing = Sizing::Auto { least: PageSize::SMALLEST, start, most: PageSize::LARGEST };
        let config = self.config(BasePages(left), sizing, true);
        let events = self.recorded.events_of(is_paged);
        let outcome = paging::replay(&config, self.recorded.all_base_pages, events);
        let paged = self.recorded.structures.iter().zip(is_paged).filter(|(_, paged)| **paged);
        let waits_ns = outcome.wall_ns - outcome.exec_ns;
        let parts = paged.map(|(of, _)| self.computing_ns(of)).chain(others().map(|choice| choice.time_ns));
        let time_ns = Some(parts.fold(waits_ns, u64::saturating_add));
        Some(Fixed { name: name.into(), time_ns, local_bytes: self.cluster.local_bytes })
    }

    fn config(&self, local: BasePages, sizing: Sizing, buffers_are_local: bool) -> Config {
        let ahead = AHEAD_BYTES_MAX.min(self.cluster.local_bytes / AHEAD_SHARE) / BASE_BYTES;
        Config {
            path: cluster::path(&self.cluster.paging),
            local,
            sizing,
            fetch_plan: "eager",
            prefetch: (ahead > 0).then_some(BasePages(ahead)),
            replacement: "second-chance",
            parts: false,
            periods: 1,
            rescue: true,
            buffers_are_local,
            set_up_once: false,
            iterations_max: 1,
            stop_after: None,
        }
    }

    /// What the program waits for, and its faults. None: longer than is of interest.
    fn waits(
        &self,
        mut config: Config,
        base_pages: u64,
        touches: &Touches,
        stop_ns: Option<u64>,
    ) -> Option<(u64, u64)> {
        // The other structures' references pass meanwhile.
        let all: u64 = self.recorded.structures.iter().map(|of| of.references).sum();
        let computing_ns = (all as f64 * self.recorded.reference_ns) as u64;
        config.stop_after = stop_ns.map(|ns| Duration(computing_ns.saturating_add(ns)));
        let outcome = paging::replay(&config, base_pages, touches.events());
        (!outcome.stopped).then(|| (outcome.wall_ns - outcome.exec_ns, outcome.faults))
    }
}

/// One way for all structures. Those that are too small to be paged stay here.
pub(super) fn fixed(tried: &[Vec<Choice>], budget: &Budget) -> Vec<Fixed> {
    let all = |name: String, choose: &dyn Fn(usize, &Choice) -> bool| {
        let mut whole = Fixed { name, time_ns: Some(0), local_bytes: 0 };
        for (at, options) in tried.iter().enumerate() {
            let choice = options.iter().find(|choice| choose(at, choice));
            whole.time_ns = whole.time_ns.zip(choice).map(|(sum, choice)| sum.saturating_add(choice.time_ns));
            whole.local_bytes += choice.map_or(0, |choice| choice.local_bytes);
        }
        whole
    };
    let mut fixed = vec![all("all here".into(), &|_, choice| choice.way == Way::Local)];
    for size in PageSize::all() {
        let page_bytes = size.base_pages() * BASE_BYTES;
        let paged =
            all(format!("all paged, {} KiB", page_bytes >> 10), &|at, choice| match budget.part_bytes(at) {
                Some(part) => choice.way == Way::Paged { page_bytes } && choice.local_bytes == part,
                None => choice.way == Way::Local,
            });
        let many = (0..tried.len()).filter(|&at| budget.part_bytes(at).is_some()).count();
        let fits = paged.local_bytes <= budget.for_data_with(many);
        fixed.extend((fits && many > 0 && paged.time_ns.is_some()).then_some(paged));
    }
    let direct = all("all direct".into(), &|_, choice| choice.way == Way::Direct);
    fixed.extend(direct.time_ns.is_some().then_some(direct));
    fixed
}

#[cfg(test)]
impl Budget {
    /// For tests of choosing alone.
    pub(super) fn of(local_bytes: u64, buffers_bytes: u64, buffers_more_bytes: u64) -> Self {
        let (piece_bytes, parts, data_bytes) = (BASE_BYTES, Vec::new(), u64::MAX);
        Self { local_bytes, buffers_bytes, buffers_more_bytes, piece_bytes, parts, data_bytes }
    }
}
