//! The command line of `loam advise`, and the cluster that it describes.

use crate::failure::Failure;
use crate::size::Size;
use crate::trace::args::{Reading, nanoseconds};
use clap::Args;
use loam_sim::advise::cluster::{duration_ns, known};
use loam_sim::advise::file::Description;
use loam_sim::advise::{Cluster, Direct, STRUCTURES_MAX};
use loam_sim::model::Model;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Largest description of a cluster, or of structures.
const FILE_BYTES_MAX: u64 = 1 << 20;
const PAGING_DEFAULT: &str = "tcp-25g";
const DIRECT_DEFAULT: &str = "cxl2-switch";
const CACHE_DEFAULT: &str = "2M";

/// Arguments of `loam advise`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AdviseArgs {
    /// The recorded program (`loam trace record`), in any format
    #[arg(value_name = "TRACE")]
    pub(super) trace: PathBuf,
    /// Describe the cluster in a TOML file: local, paging, direct, local_load and cache, as below. Flags come before it
    #[arg(long, value_name = "FILE.toml")]
    cluster: Option<PathBuf>,
    /// Local memory for the program's data: 512M, 4G
    #[arg(long, value_name = "SIZE")]
    local: Option<String>,
    /// What a fault takes: a model of the simulator (tcp-10g, tcp-25g, tcp-100g, rdma-100g, cxl, nvme, ...) or its file [default: tcp-25g]
    #[arg(long, value_name = "MODEL")]
    paging: Option<String>,
    /// What a load from another node's memory takes: cxl2-pool (175ns), cxl2-switch (265ns), cxl3 (355ns), rdma-line (2us), prototype-2010
    /// (1.9us), a time with its unit, or none where the hardware cannot [default: cxl2-switch]
    #[arg(long, value_name = "WAY|TIME|none")]
    direct: Option<String>,
    /// What a load from this machine's own memory takes [default: 85ns]
    #[arg(long, value_name = "TIME")]
    local_load: Option<String>,
    /// The processor's cache, or what the program has of it: a power of two from 64K to 1G [default: 2M]
    #[arg(long, value_name = "SIZE")]
    cache: Option<String>,
    /// What a reference takes that finds its data here, in nanoseconds [default: the trace's, else the model's]
    #[arg(long, value_name = "NS", value_parser = nanoseconds)]
    pub(super) ns_per_reference: Option<f64>,
    /// Data structures: lines of name,start,size, such as table,0x4a3c010,64M
    #[arg(long, value_name = "FILE.csv")]
    pub(super) structures: Option<PathBuf>,
    /// Other memory is one structure up to a gap of so much that is not touched
    #[arg(long, value_name = "SIZE", default_value = "64K")]
    pub(super) gap: String,
    /// Tell at most so many structures without a name apart, the largest
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u16).range(0..=STRUCTURES_MAX as i64))]
    pub(super) most: u16,
    #[command(flatten)]
    pub(super) reading: Reading,
    /// Replays at a time [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) threads: Option<u16>,
    /// Print one JSON object, with all that was tried
    #[arg(long)]
    pub(super) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  loam trace record -o job.trace -- ./job input
  loam advise job.trace --local 512M
  loam advise job.trace --local 512M --paging rdma-100g --direct 400ns
  loam advise job.trace --cluster ours.toml --structures arrays.csv --json

A cluster:
  local = \"512M\"
  paging = \"ours-25g.toml\"      # or a built-in model; a file begins where this one is
  direct = \"cxl2-pool\"          # or \"400ns\", or \"none\"

How each figure comes about, and what a trace cannot tell: docs/advise.md.";

/// A file that may not be endless.
pub(super) fn read(path: &Path) -> Result<String, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
    let mut text = String::new();
    let file = File::open(path).map_err(|error| failed(&error))?;
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| failed(&error))?;
    if read as u64 > FILE_BYTES_MAX { Err(failed(&"more than 1 MiB")) } else { Ok(text) }
}

/// Bytes of a size that is of no machine.
pub(super) fn bytes(what: &str, text: &str) -> Result<u64, Failure> {
    match text.parse() {
        Ok(Size::Absolute(bytes)) => Ok(bytes.0),
        Ok(Size::OfMemory(_)) => Err(Failure::new(format!(
            "{what} {text}: write a size such as 512M; a part of which machine is not known"
        ))),
        Err(error) => Err(Failure::new(format!("{what} {text}: {error}"))),
    }
}

fn time(what: &str, text: &str) -> Result<u64, Failure> {
    duration_ns(text).ok_or_else(|| {
        Failure::new(format!(
            "{what} {text}: write a time with its unit, at most an hour, such as 265ns or 2us"
        ))
    })
}

impl AdviseArgs {
    /// The cluster, from flags and file.
    pub(super) fn cluster(&self) -> Result<Cluster, Failure> {
        let mut said = Description::default();
        if let Some(path) = &self.cluster {
            let failed = |error| Failure::new(format!("{}: {error}", path.display()));
            said = Description::parse(&read(path)?).map_err(failed)?;
            // A model's file begins where the description is.
            let beside = said.paging.as_ref().filter(|name| !Model::NAMES.contains(&name.as_str()));
            if let Some(name) = beside {
                said.paging = Some(path.with_file_name("").join(name).display().to_string());
            }
        }
        let first = |flag: &Option<String>, file: Option<String>| flag.clone().or(file);
        let local = first(&self.local, said.local).ok_or_else(|| {
            Failure::new("say how much local memory there is: --local 512M, or local in --cluster's file")
        })?;
        let paging = first(&self.paging, said.paging).unwrap_or_else(|| PAGING_DEFAULT.into());
        let direct = first(&self.direct, said.direct).unwrap_or_else(|| DIRECT_DEFAULT.into());
        let cache = first(&self.cache, said.cache).unwrap_or_else(|| CACHE_DEFAULT.into());
        let cache_bytes = bytes("cache", &cache)?;
        if !cache_bytes.is_power_of_two() || !(64 << 10..=1 << 30).contains(&cache_bytes) {
            return Err(Failure::new(format!("cache {cache}: a power of two from 64K to 1G")));
        }
        Ok(Cluster {
            local_bytes: bytes("local", &local)?,
            paging: Model::load(&paging).map_err(Failure::new)?,
            direct: way(&direct, first(&self.local_load, said.local_load).as_deref())?,
            cache_bytes,
        })
    }
}

/// How other nodes' memory is loaded from.
fn way(direct: &str, local_load: Option<&str>) -> Result<Option<Direct>, Failure> {
    let local_ns = local_load.map(|text| time("local_load", text)).transpose()?;
    let mut way = match direct {
        "none" => return Ok(None),
        key if Direct::known(key).is_some() => Direct::known(key).expect("just seen"),
        text => {
            let load_ns = duration_ns(text).ok_or_else(|| {
                let keys: Vec<&str> = known().iter().map(|of| of.key).collect();
                Failure::new(format!(
                    "direct {text}: one of {}, none, or a time such as 265ns",
                    keys.join(", ")
                ))
            })?;
            let usual = Direct::known(DIRECT_DEFAULT).expect("it is documented");
            Direct { name: format!("a load of {text}"), load_ns, local_ns: usual.local_ns }
        }
    };
    way.local_ns = local_ns.unwrap_or(way.local_ns);
    if way.load_ns < way.local_ns {
        return Err(Failure::new(format!(
            "direct: a load from another node ({} ns) is not faster than one from here ({} ns)",
            way.load_ns, way.local_ns
        )));
    }
    Ok(Some(way))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn cluster(words: &[&str]) -> Result<Cluster, Failure> {
        let all = ["loam", "advise", "t"].iter().chain(words);
        let Command::Advise(args) = Cli::try_parse_from(all).expect("valid").command else {
            panic!("advise")
        };
        args.cluster()
    }

    #[test]
    fn flags_describe_a_cluster() {
        let usual = cluster(&["--local", "4G"]).expect("valid");
        let direct = usual.direct.expect("there is one");
        assert_eq!((usual.local_bytes, direct.load_ns, direct.local_ns), (4 << 30, 265, 85));
        assert_eq!((usual.cache_bytes, usual.paging.name.as_str()), (2 << 20, "TCP, 25 Gb/s"));
        assert_eq!(cluster(&["--local", "4G", "--direct", "none"]).expect("valid").direct, None);
        let own = cluster(&["--local", "4G", "--direct", "2us", "--local-load", "100ns"]).expect("valid");
        assert_eq!(own.direct.map(|of| (of.load_ns, of.local_ns)), Some((2000, 100)));
    }

    #[test]
    fn what_is_no_cluster_is_told_in_a_line() {
        for (words, says) in [
            (&[][..], "--local 512M"),
            (&["--local", "25%"], "which machine"),
            (&["--local", "4G", "--direct", "cxl9"], "cxl2-switch"),
            (&["--local", "4G", "--direct", "40ns"], "not faster"),
            (&["--local", "4G", "--cache", "3M"], "power of two"),
            (&["--local", "4G", "--paging", "tcp-1g"], "tcp-10g"),
            (&["--local", "4G", "--local-load", "85"], "unit"),
            (&["--cluster", "/nonexistent"], "/nonexistent"),
        ] {
            let error = cluster(words).expect_err("wrong");
            assert!(error.line().contains(says), "{words:?}: {}", error.line());
        }
    }
}
