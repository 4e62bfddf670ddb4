//! The cluster that is asked about.

use crate::model::{Model, Place};
use crate::paging::Path;
use crate::regions::today::{self, LoadStore};
use loam_core::units::Duration;

/// A way to load and store without a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Direct {
    /// For tables.
    pub name: String,
    /// A load, in ns.
    pub load_ns: u64,
    /// A load from this machine's own memory, in ns: what the reference's own time has in it already.
    pub local_ns: u64,
}

/// What is described.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Local memory for the program.
    pub local_bytes: u64,
    /// What a fault takes.
    pub paging: Model,
    /// Loads and stores, where the hardware has them.
    pub direct: Option<Direct>,
    /// The processor's cache, or the program's share of it: a power of two from 64 KiB to 1 GiB.
    pub cache_bytes: u64,
}

/// One hop of the prototype of 2010 (regions-2010, figure 6, fixed stride: an `input` row).
const PROTOTYPE: Duration = Duration(1_900);

/// The ways to load and store that are documented (docs/simulator-regions.md, "Today").
pub fn known() -> Vec<LoadStore> {
    today::load_store(PROTOTYPE)
}

impl Direct {
    /// One of the documented ways, by its key.
    pub fn known(key: &str) -> Option<Self> {
        let of = known().into_iter().find(|of| of.key == key)?;
        Some(Self { name: of.name.into(), load_ns: of.load.0, local_ns: of.local.0 })
    }
}

/// Loam's agent on a model's path. A base page by itself takes what the model says. Of many, the network's stages are one line here (they follow each other in the
/// model, so a lender copies the next message while the last one is on the wire), which makes long messages up to half slower than in the model. What is at
/// the processor is the agent's: it has one of its own.
pub fn path(model: &Model) -> Path {
    let at = |processor: bool| {
        model.stages.iter().filter(move |stage| (stage.at == Place::Processor) == processor)
    };
    let agent_ps: u64 = at(true).map(|stage| stage.ps_per_byte).sum();
    Path {
        latency_ns: model.request_ns + at(false).map(|stage| stage.fixed_ns + stage.random_ns).sum::<u64>(),
        ps_per_byte: at(false).map(|stage| stage.ps_per_byte).sum(),
        message_bytes: 0,
        message_ns: at(true).map(|stage| stage.fixed_ns + stage.random_ns).sum(),
        install_ns: agent_ps * 4096 / 1000,
        evict_ns: EVICT_NS,
        serial: false,
    }
}

/// What the agent takes to take a base page away: docs/simulator-page-sizes.md, "Today's path".
const EVICT_NS: u64 = 300;

/// Time from a text as people write it: `265ns`, `2us`, `1.5ms`. None: it is none, or longer than an hour.
pub fn duration_ns(text: &str) -> Option<u64> {
    let split = text.find(|letter: char| letter.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let number = number.trim();
    let digits = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let ns = number.parse::<f64>().ok().filter(|_| digits)? * scale;
    (ns <= 3.6e12).then(|| ns.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_by_itself_takes_what_the_model_says() {
        for name in ["tcp-10g", "tcp-25g", "tcp-100g", "rdma-100g", "cxl"] {
            let model = Model::load(name).expect("built in");
            let path = path(&model);
            let ours = path.latency_ns + path.ps_per_byte * 4096 / 1000 + path.message_ns + path.install_ns;
            let whole: u64 = model.stages.iter().map(|of| of.fixed_ns + of.ps_per_byte * 4096 / 1000).sum();
            assert!(ours.abs_diff(model.request_ns + whole) <= 3, "{name}: {ours}");
        }
    }

    #[test]
    fn latencies_have_units() {
        let read = ["265ns", "2us", "1.5ms", "0ns", "1s"].map(duration_ns);
        assert_eq!(read, [265, 2_000, 1_500_000, 0, 1_000_000_000].map(Some));
        for wrong in ["265", "", "ns", "-1ns", "1e3ns", "2h", "4000s", "infns", "1.2.3us"] {
            assert_eq!(duration_ns(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn documented_ways_have_keys() {
        let keys: Vec<&str> = known().iter().map(|of| of.key).collect();
        assert_eq!(keys, ["prototype-2010", "cxl2-pool", "cxl2-switch", "cxl3", "rdma-line"]);
        assert_eq!(Direct::known("cxl2-switch").map(|of| (of.load_ns, of.local_ns)), Some((265, 85)));
        assert_eq!(Direct::known("cxl9"), None);
    }
}
