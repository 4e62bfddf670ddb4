//! The daemon of this machine's node, as `loam run` finds it.

use crate::failure::Failure;
use loam_wire::places::node_sockets;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The socket of a daemon that runs: `asked`, or one of the usual places. `None`: none runs there.
pub(crate) fn find(asked: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let Some(path) = asked else {
        return Ok(running());
    };
    match UnixStream::connect(path) {
        Ok(_) => Ok(Some(path.to_owned())),
        Err(error) => Err(Failure::new(format!(
            "no node can be reached at {} ({error}): start `loam node` there, or leave --node out",
            path.display()
        ))),
    }
}

/// The first of the usual places with a daemon behind it.
pub(crate) fn running() -> Option<PathBuf> {
    node_sockets().into_iter().find(|path| UnixStream::connect(path).is_ok())
}

/// That there is none, in words, and what to do about it.
pub(crate) fn absent() -> String {
    let places: Vec<String> = node_sockets().iter().map(|path| path.display().to_string()).collect();
    format!("no `loam node` at {} (start one to use its cluster)", places.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_socket_that_is_asked_for_must_answer() {
        let path = std::env::temp_dir().join(format!("loam-cli-node-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let line = find(Some(&path)).expect_err("nobody listens").line();
        assert!(line.contains("loam node") && line.contains("--node"), "{line}");
        let listener = UnixListener::bind(&path).expect("a socket can be made");
        assert_eq!(find(Some(&path)).expect("it listens"), Some(path.clone()));
        drop(listener);
        assert!(find(Some(&path)).is_err(), "a socket without a daemon behind it");
        let _ = std::fs::remove_file(&path);
    }
}
