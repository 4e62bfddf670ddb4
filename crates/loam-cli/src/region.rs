//! `loam region`.

use crate::failure::Failure;
use crate::size::Size;
use crate::{machine, text};
use clap::{Args, Subcommand};
use loam::region::{Info, MemoryPolicy, Options};
use loam::{RegionError, Regions};
use loam_core::units::Bytes;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `loam region`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RegionArgs {
    #[command(subcommand)]
    command: RegionCommand,
}

const EXAMPLES: &str = "\
Examples:
  loam region create table 4G                           reserve 4 GiB of what this machine's node lends
  loam region create index 2G --huge
  loam region create graph 64G --device /dev/dax0.0     of a device that the node was started with
  loam region create left 8G --numa bind:0              of memory node 0 alone
  loam region list
  loam region resize table 6G
  loam region rm table";

const CREATE_EXAMPLES: &str = "\
Examples:
  loam region create table 4G
  loam region create graph 64G --device /dev/dax0.0     `loam node ... --region-device /dev/dax0.0` before
  loam region create left 8G --numa bind:0";

#[derive(Subcommand, Debug)]
enum RegionCommand {
    /// Reserve memory under a name
    ///
    /// Reserves memory of this machine's node under a name, for programs that map it (crate `loam`, docs/regions-direct.md).
    ///
    /// All of it is taken at once and stays until `loam region rm`, or until the node ends. Only programs of this user, or of the node's, may open
    /// it.
    #[command(after_help = CREATE_EXAMPLES)]
    Create {
        /// Its name: letters, digits, '.', '_' and '-', 64 at most
        name: String,
        /// How large: 512M, 4G, 25% (of this machine's memory); rounded up to whole pages
        size: Size,
        /// Of huge pages (2 MiB), which the machine must have set aside (/proc/sys/vm/nr_hugepages)
        #[arg(long)]
        huge: bool,
        /// Cut from this device, one that the node was started with (`loam node --region-device PATH`), by the same path
        ///
        /// It is cleared first. Its size is rounded up to the device's alignment. Only programs of the node's own user and of the device's owner may open it: who
        /// does could read and write all of the device.
        #[arg(long, value_name = "PATH", conflicts_with_all = ["huge", "numa"])]
        device: Option<PathBuf>,
        /// From which memory nodes of this machine: bind:0 (that alone), interleave:0,1 (by turns), preferred:1 (as far as it has some), local (that of the
        /// processor which takes it) [default: as the kernel does]
        #[arg(long, value_name = "POLICY")]
        numa: Option<MemoryPolicy>,
        #[command(flatten)]
        node: NodeSocket,
    },
    /// Show the regions that this user may open
    #[command(after_help = "Example:\n  loam region list --json")]
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        node: NodeSocket,
    },
    /// Make a region larger or smaller
    ///
    /// Makes a region larger or smaller. Contents stay, what is new is zeros. It grows at any time, also while programs have it open; it shrinks when
    /// none has.
    #[command(after_help = "Example:\n  loam region resize table 6G")]
    Resize {
        /// Its name
        name: String,
        /// How large it shall be
        size: Size,
        #[command(flatten)]
        node: NodeSocket,
    },
    /// Remove a region
    ///
    /// Removes a region: its name at once, its memory when the last program that has it open is done.
    #[command(after_help = "Example:\n  loam region rm table")]
    Rm {
        /// Its name
        name: String,
        #[command(flatten)]
        node: NodeSocket,
    },
}

#[derive(Args, Debug)]
struct NodeSocket {
    /// The socket of this machine's node [default: /run/loam/node.sock, $XDG_RUNTIME_DIR/loam/node.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl NodeSocket {
    fn connect(&self) -> Result<Regions, Failure> {
        Regions::connect(self.socket.as_deref()).map_err(Failure::new)
    }
}

/// Does what is asked for with a region.
pub(crate) fn region(args: &RegionArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        RegionCommand::Create { name, size, huge, device, numa, node } => {
            let bytes = size.on(machine::memory()?.total);
            let mut options = Options::new().huge(*huge).memory_policy(numa.unwrap_or_default());
            if let Some(path) = device {
                options = options.device(path);
            }
            let info = told(node.connect()?.create(name, bytes.0, &options))?;
            say(&format!(
                "region {}: {}, until `loam region rm` or the node's end",
                info.name,
                Bytes(info.bytes)
            ));
        }
        RegionCommand::List { json, node } => list(&told(node.connect()?.list())?, *json),
        RegionCommand::Resize { name, size, node } => {
            let bytes = size.on(machine::memory()?.total);
            let info = told(node.connect()?.resize(name, bytes.0))?;
            say(&format!("region {}: {}", info.name, Bytes(info.bytes)));
        }
        RegionCommand::Rm { name, node } => {
            let info = told(node.connect()?.remove(name))?;
            match info.opens {
                0 => say(&format!("region {name}: removed, {} are free", Bytes(info.bytes))),
                opens => say(&format!(
                    "region {name}: removed; {} are free when what has it open is done ({opens} now)",
                    Bytes(info.bytes)
                )),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn told<T>(answer: Result<T, RegionError>) -> Result<T, Failure> {
    answer.map_err(Failure::new)
}

fn say(line: &str) {
    // Nobody who reads it any more is no error.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// What was said of memory nodes, if anything was.
fn policy(info: &Info) -> Option<MemoryPolicy> {
    Some(info.policy).filter(|policy| *policy != MemoryPolicy::Unset)
}

fn list(list: &loam::region::List, json: bool) {
    if json {
        let region = |info: &Info| {
            serde_json::json!({
                "name": info.name, "owner_uid": info.owner, "bytes": info.bytes, "opens": info.opens,
                "spans": info.spans, "huge": info.is_huge, "temporary": info.is_temporary,
                "device": info.device, "numa": policy(info).map(|policy| policy.to_string()),
            })
        };
        let all = serde_json::json!({
            "regions": list.regions.iter().map(region).collect::<Vec<_>>(),
            "reserved_bytes": list.reserved_bytes, "free_bytes": list.free_bytes,
        });
        return say(&format!("{all:#}"));
    }
    let mut rows = vec![["name", "size", "open", "user", ""].map(String::from).to_vec()];
    rows.extend(list.regions.iter().map(|info| {
        let mut notes = Vec::new();
        if info.is_huge {
            notes.push("huge pages".to_owned());
        }
        if info.is_temporary {
            notes.push("temporary".to_owned());
        }
        notes.extend(info.device.as_ref().map(|path| format!("of {path}")));
        notes.extend(policy(info).map(|policy| policy.to_string()));
        let size = Bytes(info.bytes).to_string();
        vec![info.name.clone(), size, info.opens.to_string(), info.owner.to_string(), notes.join(", ")]
    }));
    if !list.regions.is_empty() {
        let _ = write!(std::io::stdout(), "{}", text::table(&rows));
    }
    say(&format!(
        "{} regions of yours; regions have {} in all, {} could be reserved now",
        list.regions.len(),
        Bytes(list.reserved_bytes),
        Bytes(list.free_bytes)
    ));
}
