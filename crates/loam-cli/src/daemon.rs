//! `loam node`.

use crate::args::NodeArgs;
use crate::failure::Failure;
use crate::lend::start_log;
use crate::machine;
use loam_node::{ClusterConfig, LocalSocket};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Where the socket of a node that runs as root is.
const SYSTEM_SOCKET: &str = "/run/loam/node.sock";
/// And a user's own, below `$XDG_RUNTIME_DIR`.
const USER_SOCKET: &str = "loam/node.sock";

/// Where nodes of this machine may listen for local programs, in the order in which to look.
pub(crate) fn sockets() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let user = runtime.map(|dir| dir.join(USER_SOCKET));
    std::iter::once(PathBuf::from(SYSTEM_SOCKET)).chain(user).collect()
}

/// Where a node of this user listens for local programs.
fn own_socket() -> Option<PathBuf> {
    let mut sockets = sockets();
    if rustix::process::geteuid().is_root() {
        Some(sockets.swap_remove(0))
    } else {
        sockets.into_iter().nth(1)
    }
}

/// Is a node until SIGINT or SIGTERM.
pub(crate) fn node(args: &NodeArgs) -> Result<ExitCode, Failure> {
    start_log("warn,loam_node=info");
    let memory = machine::memory()?;
    let mut config = loam_node::LendConfig::new(args.lend.on(memory.total));
    config.keep = args.keep.map(|keep| keep.on(memory.total));
    config.machine_root.clone_from(&args.machine_root);
    config.listen = args.listen;
    config.tls = args.tls.clone();
    config.insecure = args.insecure;
    config.http = args.http;
    args.store.apply(memory.total, &mut config);
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
    loam_agent::slices::ask_for_short_slices();
    loam_node::lend(&config, |lending| {
        for warning in &lending.warnings {
            eprintln!("loam: {warning}");
        }
        eprintln!("loam: {lending}; Ctrl-C ends it");
    })
    .map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}
