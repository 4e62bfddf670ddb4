//! `loam node`.

use crate::args::NodeArgs;
use crate::failure::Failure;
use crate::lend::start_log;
use crate::machine;
use loam_agent::{slices, stderr};
use loam_node::{ClusterConfig, LocalSocket, Turns};
use loam_wire::places;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Where a node of this user listens for local programs.
fn own_socket() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        Some(places::system_node_socket())
    } else {
        places::user_node_socket()
    }
}

/// Is a node until SIGINT or SIGTERM.
pub(crate) fn node(args: &NodeArgs) -> Result<ExitCode, Failure> {
    start_log("warn,loam_node=info");
    let memory = machine::memory()?;
    let mut config = args.sharing.config(args.lend, memory.total);
    config.region_devices.clone_from(&args.region_device);
    let path = args.socket.clone().or_else(own_socket);
    config.socket =
        path.map(|path| LocalSocket { path, mode: args.socket_mode, required: args.socket.is_some() });
    config.cluster = Some(ClusterConfig {
        name: args.name.clone(),
        etcd: args.membership.clone(),
        join: args.join.clone(),
        advertise: args.advertise,
        probe_period: Duration::from_millis(args.probe_ms),
    });
    config.turns = Turns { short: slices::ask_for_short_slices, usual: slices::ask_for_usual_slices };
    slices::ask_for_short_slices();
    loam_node::lend(&config, |lending| {
        for warning in &lending.warnings {
            stderr::say(warning);
        }
        stderr::say(format_args!("{lending}; Ctrl-C ends it"));
    })
    .map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}
