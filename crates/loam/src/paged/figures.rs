//! What the agent says of itself: that which `loam status --json` prints of each run.

use super::{PagedError, served};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// How long the agent may take; it answers between two faults.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// It tells less than fits into a socket's buffer.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// Where shims join the agent that [`connect`](super::connect) has started.
static SOCKET: OnceLock<PathBuf> = OnceLock::new();

pub(super) fn remember(socket: PathBuf) {
    SOCKET.set(socket).expect("connecting is behind a lock, and happens once");
}

/// `agent-PID.sock` is for shims, and `run-PID.sock` beside it tells the figures.
fn beside(socket: &Path) -> Option<PathBuf> {
    let agent = socket.file_name()?.to_str()?.strip_prefix("agent-")?;
    Some(socket.with_file_name(format!("run-{agent}")))
}

/// The agent's figures so far, of this process and of all that it has forked, or of the whole tree of `loam run`: one JSON object, with the keys of
/// docs/summary.md.
///
/// # Errors
/// [`PagedError::NotConnected`], [`PagedError::Statistics`].
pub fn statistics() -> Result<String, PagedError> {
    served().ok_or(PagedError::NotConnected)?;
    let run = std::env::var_os("LOAM_SOCKET").map(PathBuf::from);
    let socket = SOCKET.get().or(run.as_ref()).and_then(|socket| beside(socket));
    let socket = socket.ok_or(PagedError::NotConnected)?;
    ask(&socket).map_err(|error| PagedError::Statistics { socket, error })
}

fn ask(socket: &Path) -> io::Result<String> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    if answer.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(answer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_that_tells_figures_is_beside_that_of_shims() {
        let found = |path: &str| beside(Path::new(path));
        assert_eq!(found("/tmp/loam-0/agent-12.sock"), Some("/tmp/loam-0/run-12.sock".into()));
        assert_eq!(found("/tmp/loam-0/other-12.sock"), None);
        assert_eq!(found("/"), None);
    }
}
