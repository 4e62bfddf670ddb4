//! Where nodes listen for programs of their machine, unless they were told otherwise.

use std::path::PathBuf;

/// The socket of a node that runs as root.
const SYSTEM_SOCKET: &str = "/run/loam/node.sock";
/// And a user's own, below `$XDG_RUNTIME_DIR`.
const USER_SOCKET: &str = "loam/node.sock";

/// Where nodes of this machine may listen for programs of this user, in the order in which to look.
pub fn node_sockets() -> Vec<PathBuf> {
    std::iter::once(system_node_socket()).chain(user_node_socket()).collect()
}

/// Where a node that runs as root listens.
pub fn system_node_socket() -> PathBuf {
    PathBuf::from(SYSTEM_SOCKET)
}

/// Where a node of this user listens; `None` where the user has no folder for such (`$XDG_RUNTIME_DIR`).
pub fn user_node_socket() -> Option<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    runtime.map(|dir| dir.join(USER_SOCKET))
}
