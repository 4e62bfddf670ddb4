//! From the command line to what the agent is asked for, and from its outcome to the closing lines and files.

use crate::args::{BorrowArgs, PageArg, PlacementArg, Switch};
use crate::closing;
use crate::direct;
use crate::embedded;
use crate::failure::Failure;
use crate::machine;
use crate::size::Reserve;
use crate::{node, run_report, target};
use loam_agent::stderr;
use loam_agent::summary::Summary;
use loam_agent::{
    AgentError, DirectMemory, Durability, Lenders, PageChoice, RegionConfig, RunConfig, RunOutcome,
};
use loam_core::units::{BASE_PAGE_BYTES, Bytes};
use loam_node::UsableMemory;
use loam_wire::client::Target;
use loam_wire::tls::Role;
use std::ffi::OsString;
use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Part of the available memory that a run may use unless `--local` says otherwise: the rest stays for the file cache and
/// for whatever else the machine does.
const LOCAL_PERCENT_DEFAULT: u64 = 75;
/// The shim's file name.
const SHIM: &str = "libloam_shim.so";

/// Least size of an allocation that goes to a region. Each takes whole base pages of it, and its own place in the books: 256 KiB waste less than
/// 2%, and hold what a program's large arrays and buffers have, not its objects.
const MIN_ALLOC_DEFAULT: Bytes = Bytes(256 << 10);
/// Less is not worth a region.
const REGION_MIN: Bytes = Bytes(1 << 20);

/// The page's size at first, where it is to be found. Larger pages gain little on a network of 10 Gb/s. What is larger than a program wants shrinks
/// after a few dozen pages, and what is smaller has cost a fault each until it has grown, a turn of local memory later.
const PAGE_AT_FIRST: Bytes = Bytes(256 << 10);

/// All that a run needs, and where its figures go.
pub(crate) struct Borrowing {
    pub(crate) config: RunConfig,
    embedded: Option<embedded::Lenders>,
    direct: Option<direct::Reserved>,
    summary: Option<(File, PathBuf)>,
    report: Option<(File, PathBuf)>,
}

impl Borrowing {
    /// Checks everything that can be checked before the program starts, and starts embedded lenders.
    pub(crate) fn prepare(
        args: BorrowArgs,
        program: OsString,
        program_args: Vec<OsString>,
    ) -> Result<Self, Failure> {
        let executable = std::env::current_exe().map_err(|error| {
            Failure::new(format!("cannot find its own executable ({error}): mount /proc"))
        })?;
        let shim = find_shim(std::env::var_os("LOAM_SHIM").map(PathBuf::from), &executable)?;
        let memory = machine::memory()?;
        let local = local_size(&args, memory)?;
        let page = match args.page {
            PageArg::Fixed(size) => PageChoice::Fixed(size),
            PageArg::Auto => PageChoice::Auto(PAGE_AT_FIRST),
            PageArg::Aapc => PageChoice::Aapc(PAGE_AT_FIRST),
        };
        let subpage = args.subpage.on(memory.total);
        if let PageChoice::Fixed(page) = page
            && subpage > page
        {
            return Err(Failure::new(format!(
                "--subpage {subpage} is larger than a page of {page}: give less, or a larger --page"
            )));
        }
        let is_direct = args.region.is_some_and(|region| region.is_direct);
        direct::check(&args, is_direct)?;
        let region = region(&args, memory)?;
        let reserve = reserve(&args, region, memory)?;
        let mut disk_dir = args.disk.clone().unwrap_or_else(machine::default_disk_dir);
        // Without lenders there is nobody to ask for.
        let sent = args.placement != Some(PlacementArg::None);
        let asks_node =
            !is_direct && args.lender.is_empty() && args.embedded.is_none() && (sent || args.node.is_some());
        let cluster = if asks_node { node::find(args.node.as_deref())? } else { None };
        let durability = args.durability.unwrap_or_else(|| default_durability(&args, cluster.is_some()));
        if durability != Durability::Disk {
            check_not_durable(&args, durability, cluster.is_some())?;
        }
        match (machine::private_dir(&disk_dir), durability) {
            (Ok(()), _) => {}
            // Only what too few lenders take, or one wants back, would go there: no reason not to begin.
            (Err(_), Durability::None | Durability::Staged | Durability::Replicas(_))
                if args.disk.is_none() =>
            {
                disk_dir = PathBuf::new();
            }
            (Err(failure), _) => return Err(failure),
        }
        let direct = match region.filter(|_| is_direct) {
            Some(region) => Some(direct::reserve(&args, region.size)?),
            None => None,
        };
        // Written at the end of what may be a long run: find out now whether it can be.
        if args.report.is_some() && args.report == args.summary {
            return Err(Failure::new("--report and --summary name the same file: give each its own"));
        }
        let record = args.report.is_some();
        let open = |path: PathBuf| Ok::<_, Failure>((open_summary(&path)?, path));
        let summary = args.summary.map(open).transpose()?;
        let open = |path: PathBuf| Ok::<_, Failure>((run_report::open(&path)?, path));
        let report = args.report.map(open).transpose()?;

        let embedded = args
            .embedded
            .map(|embedded| embedded::Lenders::start(&executable, embedded, None))
            .transpose()?;
        let placement = args.placement.unwrap_or(match cluster {
            // Pages go where room was promised, not where the cluster's weights say that others' pages are old.
            Some(_) if reserve.is_none() => PlacementArg::Gms,
            Some(_) => PlacementArg::RoundRobin,
            None => PlacementArg::RoundRobin,
        });
        let lenders = match cluster {
            Some(socket) => {
                Lenders::Cluster(socket, target::watched(args.tls.as_deref(), &[Role::Borrower])?)
            }
            None => {
                let mut lenders = target::targets(&args.lender, args.tls.as_deref(), &[Role::Borrower])?;
                // On loopback, and ours alone: nothing to encrypt.
                let started = embedded.iter().flat_map(|started| &started.addrs);
                lenders.extend(started.map(|&addr| Target::from(addr)));
                Lenders::Fixed(lenders)
            }
        };
        if matches!(&lenders, Lenders::Fixed(none) if none.is_empty()) && !args.quiet && !is_direct {
            let dir = disk_dir.display();
            stderr::say(format_args!(
                "no --lender and {}: pages go to the disk alone, in {dir}",
                node::absent()
            ));
        }
        let config = RunConfig {
            program,
            args: program_args,
            local,
            lenders,
            placement: placement.name().into(),
            lend_max: args.lend_max.map(|size| size.on(memory.total)),
            guard_scans: args.guard_scans == Switch::On,
            durability,
            disk_dir,
            page,
            fetch_plan: args.fetch_plan,
            subpage,
            prefetch: args.prefetch == Switch::On,
            region,
            direct: direct.as_ref().map(|reserved| reserved.memory.clone()),
            reserve,
            record,
            live_line: !args.quiet && std::io::stderr().is_terminal(),
            quiet: args.quiet,
            shim,
        };
        Ok(Self { config, embedded, direct, summary, report })
    }

    /// Writes the figures, where they are wanted.
    pub(crate) fn finish(self, outcome: Result<RunOutcome, AgentError>) -> Result<RunOutcome, Failure> {
        // Before anything that may end this process.
        drop(self.embedded);
        drop(self.direct);
        let outcome = outcome.map_err(|error| {
            // There are no figures: better no file than an empty one.
            let paths = [&self.summary, &self.report].into_iter().flatten().map(|(_, path)| path);
            for path in paths.filter(|path| path.is_file()) {
                let _ = std::fs::remove_file(path);
            }
            Failure::new(error)
        })?;
        if let Some((file, path)) = self.summary {
            write_summary(file, &path, &outcome.summary)?;
        }
        if let (Some((file, path)), Some(recording)) = (self.report, &outcome.recording) {
            run_report::write(file, &path, &outcome.summary, recording)?;
        }
        if !self.config.quiet {
            stderr::put(&closing::lines(&outcome.summary));
        }
        Ok(outcome)
    }
}

/// What a user who says nothing would want: no disk here in the way where lenders can keep pages safe without it (nwcache-1999).
fn default_durability(args: &BorrowArgs, in_cluster: bool) -> Durability {
    let embedded = args.embedded.as_ref().map_or(0, |embedded| embedded.count as usize);
    let lenders = args.lender.len() + embedded;
    if needs_disk(args).is_none() && (in_cluster || lenders >= 2) {
        Durability::Staged
    } else {
        Durability::Disk
    }
}

/// A flag that leaves pages to the disk alone, if one is given.
fn needs_disk(args: &BorrowArgs) -> Option<&'static str> {
    let flags = [
        ("--placement none", args.placement == Some(PlacementArg::None)),
        ("--lend-max", args.lend_max.is_some()),
        ("--guard-scans", args.guard_scans == Switch::On),
    ];
    flags.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
}

/// Without a disk of one's own every page needs a lender.
fn check_not_durable(args: &BorrowArgs, durability: Durability, in_cluster: bool) -> Result<(), Failure> {
    let is_none = durability == Durability::None;
    if is_none && args.lender.is_empty() && args.embedded.is_none() && !in_cluster {
        return Err(Failure::new(format!(
            "--durability none keeps pages on lenders only, and there is no lender and {}: \
             give --lender ADDR:PORT, or leave --durability out",
            node::absent()
        )));
    }
    match needs_disk(args) {
        Some(flag) => Err(Failure::new(format!(
            "{flag} leaves pages to the disk alone, and --durability {durability} has no disk: leave one of them out"
        ))),
        None => Ok(()),
    }
}

/// `--local`, or its default; never more than the machine has.
fn local_size(args: &BorrowArgs, memory: UsableMemory) -> Result<Bytes, Failure> {
    let local = match args.local {
        Some(size) => size.on(memory.total),
        None => Bytes(memory.available.0 / 100 * LOCAL_PERCENT_DEFAULT),
    };
    if local > memory.total {
        return Err(Failure::new(format!(
            "--local {local} is more than the {} of this machine, or of the control group that this runs in: give less",
            memory.total
        )));
    }
    Ok(local)
}

/// `--region` and `--min-alloc`, in whole base pages.
fn region(args: &BorrowArgs, memory: UsableMemory) -> Result<Option<RegionConfig>, Failure> {
    let Some(region) = args.region else { return Ok(None) };
    let page = BASE_PAGE_BYTES as u64;
    let size = Bytes(region.size.on(memory.total).0 / page * page);
    let size = if region.is_direct { DirectMemory::round(size) } else { size };
    let min_alloc = args.min_alloc.map_or(MIN_ALLOC_DEFAULT, |least| least.on(memory.total));
    if !(REGION_MIN..=RegionConfig::SIZE_MAX).contains(&size) {
        let most = RegionConfig::SIZE_MAX;
        return Err(Failure::new(format!("--region {size}: a region has {REGION_MIN} to {most}")));
    }
    if min_alloc.0 < page || min_alloc > size {
        return Err(Failure::new(format!(
            "--min-alloc {min_alloc}: give a size from {} to that of the region, {size}",
            Bytes(page)
        )));
    }
    Ok(Some(RegionConfig { size, min_alloc }))
}

/// `--reserve`, in whole base pages. All of the region unless a size is given: the rest of the program counts against `--local` too, so no part
/// of the region can be relied on to stay here.
fn reserve(
    args: &BorrowArgs,
    region: Option<RegionConfig>,
    memory: UsableMemory,
) -> Result<Option<Bytes>, Failure> {
    let size = match (args.reserve, region) {
        (None, _) => return Ok(None),
        (Some(Reserve::Size(size)), _) => size.on(memory.total),
        (Some(Reserve::Region), Some(region)) => region.size,
        (Some(Reserve::Region), None) => {
            return Err(Failure::new(
                "--reserve without a size reserves room for the region, and there is none: give --reserve=SIZE, or --region SIZE",
            ));
        }
    };
    if args.placement == Some(PlacementArg::None) {
        return Err(Failure::new(
            "--placement none sends lenders nothing, and --reserve asks them for room: leave one of them out",
        ));
    }
    if let Some(most) = args.lend_max.map(|most| most.on(memory.total)).filter(|most| *most < size) {
        return Err(Failure::new(format!(
            "--lend-max {most} leaves some of the {size} unused that --reserve asks lenders for: reserve less"
        )));
    }
    Ok(Some(Bytes(size.0.next_multiple_of(BASE_PAGE_BYTES as u64))))
}

/// `LOAM_SHIM`, else beside the executable, else where `make install` puts it.
fn find_shim(from_environment: Option<PathBuf>, executable: &Path) -> Result<PathBuf, Failure> {
    if let Some(path) = from_environment {
        // The program may change its folder before it executes another: only an absolute path keeps its meaning.
        return std::fs::canonicalize(&path).map_err(|error| {
            Failure::new(format!("LOAM_SHIM={} ({error}): unset it or set it right", path.display()))
        });
    }
    let dir = executable.parent().unwrap_or(Path::new("/"));
    let places = [dir.join(SHIM), dir.join("../lib/loam").join(SHIM)];
    for place in &places {
        if let Ok(path) = std::fs::canonicalize(place) {
            return Ok(path);
        }
    }
    Err(Failure::new(format!(
        "{SHIM} is neither {} nor {}: build it with `make`, or set LOAM_SHIM to it",
        places[0].display(),
        places[1].display()
    )))
}

fn open_summary(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| summary_failure(path, &error))
}

fn write_summary(mut file: File, path: &Path, summary: &Summary) -> Result<(), Failure> {
    let mut json = serde_json::to_vec_pretty(summary).expect("a summary has only keys that JSON has");
    json.push(b'\n');
    std::io::Write::write_all(&mut file, &json).map_err(|error| summary_failure(path, &error))
}

fn summary_failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write the summary to {} ({error}): give another --summary", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn the_shim_is_looked_for_in_three_places() {
        let scratch = Scratch::new("cli-shim").expect("a temporary folder can be made");
        let executable = scratch.0.join("bin/loam");
        let missing = find_shim(None, &executable).expect_err("nothing is there");
        assert!(format!("{missing:?}").contains("LOAM_SHIM"));
        for place in ["lib/loam", "bin"] {
            let dir = scratch.0.join(place);
            std::fs::create_dir_all(&dir).expect("a folder can be made");
            std::fs::create_dir_all(scratch.0.join("bin")).expect("a folder can be made");
            let shim = dir.join(SHIM);
            std::fs::write(&shim, "").expect("writable");
            let found = find_shim(None, &executable).expect("it is there");
            assert_eq!(
                found,
                std::fs::canonicalize(&shim).expect("it is there"),
                "the later place is the nearer one"
            );
        }
        assert!(
            find_shim(Some(scratch.0.join("gone.so")), &executable).is_err(),
            "a wrong LOAM_SHIM is not passed over"
        );
    }
}
