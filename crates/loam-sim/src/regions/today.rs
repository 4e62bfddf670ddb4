//! Today's ways to another machine's memory, and when paging beats load and store.
//!
//! From equations 1 and 2: a page that is touched in `A` lines (accesses that the processor's cache does not have) before it leaves costs `A * local + page` if it
//! is paged, and `A * load` if it is loaded from where it is. So paging is the better one from `page / (load - local)` accesses on. A page has 64 lines: more
//! accesses than that are only possible if the program comes back to it.

use super::memory::{Memory, PAGE_BYTES, Times};
use crate::model::Model;
use loam_core::units::Duration;

/// A way to load and store without a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadStore {
    /// For command lines.
    pub key: &'static str,
    /// For tables.
    pub name: &'static str,
    /// A load.
    pub load: Duration,
    /// A load from the processor's own memory on the same machine.
    pub local: Duration,
    /// Where the figures come from.
    pub source: &'static str,
}

/// A way to fetch a page on a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paging {
    /// For tables.
    pub name: String,
    /// From the fault to the page.
    pub page: Duration,
    /// Where the figures come from.
    pub source: String,
}

/// An Opteron's load from its own memory: assumed, as in [`super::config::MEMORY`].
const LOCAL_2010: Duration = super::config::MEMORY;
/// A load from the memory of a processor's own socket: Li et al., "Pond: CXL-Based Memory Pooling Systems for Cloud Platforms", ASPLOS 2023, figure 7.
const LOCAL_TODAY: Duration = Duration(85);
/// What a pool of 8 to 16 sockets adds to it without a switch: Pond, abstract and section 4.1: 70 to 90 ns.
const POOL: u64 = 90;
/// What a pool behind a switch adds: Pond, section 4.1: more than 180 ns.
const SWITCHED: u64 = 180;

/// Load and store: the prototype's neighbour, and today's.
pub fn load_store(prototype: Duration) -> Vec<LoadStore> {
    let today = |key, name, adds, source| LoadStore {
        key,
        name,
        load: Duration(LOCAL_TODAY.0 + adds),
        local: LOCAL_TODAY,
        source,
    };
    vec![
        LoadStore {
            key: "prototype-2010",
            name: "prototype of 2010, one hop",
            load: prototype,
            local: LOCAL_2010,
            source: "regions-2010, figure 6, fixed stride",
        },
        today(
            "cxl2-pool",
            "CXL 2.0, pool of 16 sockets",
            POOL,
            "Pond (Li et al., ASPLOS 2023): 85 ns for the socket's own memory, 70 to 90 ns more for a pool without a switch",
        ),
        today(
            "cxl2-switch",
            "CXL 2.0, behind a switch",
            SWITCHED,
            "Pond: more than 180 ns more for a pool behind a switch",
        ),
        today(
            "cxl3",
            "CXL 3.0, two switches",
            // Each switch adds what Pond has between a pool with one and a pool without. CXL 3.0 cascades them (Das Sharma, Blankenship, Berger, "An Introduction to
            // the Compute Express Link (CXL) Interconnect", ACM Computing Surveys 56(11), 2024); it doubles the rate of a link, which a line's latency hardly shows.
            SWITCHED + (SWITCHED - POOL),
            "Pond's switch once more: CXL 3.0 cascades switches (Das Sharma et al., ACM Computing Surveys 56(11), 2024). Estimated, not measured",
        ),
        LoadStore {
            key: "rdma-line",
            name: "RDMA read for each line",
            load: Duration(2_000),
            local: LOCAL_TODAY,
            source: "Kalia, Kaminsky, Andersen, USENIX ATC 2016: about 2 us. Not a load: a program has to ask for each line",
        },
    ]
}

/// Paging: the paper's remote swap, and the simulator's models of today's.
pub fn paging(swap_2010: Duration) -> Vec<Paging> {
    let mut all = vec![Paging {
        name: "remote swap of 2010 (NBD, 1 Gb/s)".into(),
        page: swap_2010,
        source: "added up: docs/simulator-regions.md".into(),
    }];
    all.extend(["tcp-25g", "rdma-100g", "cxl"].map(|name| {
        let model = Model::load(name).expect("it is built in");
        let stages = model.stages.iter().map(|of| of.fixed_ns + of.ps_per_byte * PAGE_BYTES / 1000);
        Paging {
            page: Duration(model.request_ns + stages.sum::<u64>()),
            source: format!("loam sim's model `{name}`, whose file has the sources"),
            name: format!("a fault through Loam: {}", model.name),
        }
    }));
    all
}

/// Accesses to a page before it leaves from which on paging is the better one; none: never.
pub fn crossover(page: Duration, of: &LoadStore) -> Option<f64> {
    (of.load > of.local).then(|| page.0 as f64 / (of.load.0 - of.local.0) as f64)
}

/// The same, found by running a program that touches each page of a large array in so many lines before it goes on: the fewest lines with which paging is not
/// slower. More than `lines_max` are not tried.
pub fn crossover_run(page: Duration, of: &LoadStore, lines_max: u64) -> Option<u64> {
    let times = Times {
        local: of.local,
        local_loads: 1,
        remote: of.load,
        posted: Duration(0),
        swap: page,
        swap_out: Duration(0),
    };
    let paging_wins = |lines: u64| {
        let spent = sweep(times, lines);
        spent.swap_ns <= spent.remote_ns
    };
    let (mut low, mut high) = (1, lines_max + 1);
    while low < high {
        let middle = low.midpoint(high);
        if paging_wins(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    (low <= lines_max).then_some(low)
}

/// Groups of so many pages, whose lines do not fit in the cache, are gone over again and again until each page has been touched in so many lines; then the next group.
const GROUP: u64 = 64;
const PAGES: u64 = 1024;
const CACHE_BYTES: u64 = 1 << 16;

fn sweep(times: Times, lines: u64) -> super::memory::Spent {
    const LINES: u64 = PAGE_BYTES / super::memory::LINE_BYTES;
    let mut memory = Memory::new(times, CACHE_BYTES, GROUP as usize * 2);
    memory.set_up(PAGES * PAGE_BYTES);
    memory.begin();
    for group in 0..PAGES / GROUP {
        for line in 0..lines {
            for page in 0..GROUP {
                let page = group * GROUP + page;
                memory.touch(page * PAGE_BYTES + line % LINES * super::memory::LINE_BYTES, 8, false);
            }
        }
    }
    memory.spent()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_run_crosses_where_the_equations_do() {
        for of in load_store(Duration(1900)) {
            for page in [3_000, 20_000, 110_000].map(Duration) {
                let expected = crossover(page, &of).expect("remote loads are slower");
                if expected > 400.0 {
                    continue;
                }
                let found = crossover_run(page, &of, 500).expect("within what is tried") as f64;
                assert!(
                    (found - expected).abs() <= 1.0 + expected / 20.0,
                    "{}: {found}, {expected}",
                    of.name
                );
            }
        }
    }

    #[test]
    fn without_a_difference_paging_never_wins() {
        let of = LoadStore { key: "", name: "", load: Duration(85), local: Duration(85), source: "" };
        assert_eq!(crossover(Duration(1), &of), None);
        assert_eq!(crossover_run(Duration(1000), &of, 100), None);
    }
}
