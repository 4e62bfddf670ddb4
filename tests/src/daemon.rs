//! The daemon of a node as a borrower sees it: a socket that answers with a view of the cluster, made up by the test.

use loam_wire::{Decoded, Frame, ViewEntry, ViewFigures, decode, encode};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// One node that lends.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Which life of it.
    pub id: u64,
    /// Where it listens.
    pub addr: SocketAddr,
    /// Its weight.
    pub weight: u32,
}

#[derive(Debug, Default)]
struct State {
    epoch: u64,
    min_age_ns: u64,
    version: u64,
    nodes: Vec<Node>,
    /// Who has asked for views.
    subscribers: Vec<UnixStream>,
    ended: bool,
}

impl State {
    fn view(&self) -> Vec<u8> {
        const GIB: u64 = 1 << 30;
        let entry = |node: &Node| ViewEntry::new(node.id, node.addr, node.weight, 0, GIB, GIB);
        let mut nodes: Vec<ViewEntry> = self.nodes.iter().map(entry).collect();
        nodes.sort_by_key(ViewEntry::id);
        let mut bytes = Vec::new();
        encode::view(&mut bytes, 1, &ViewFigures::new(self.epoch, self.min_age_ns, self.version), &nodes);
        bytes
    }
}

/// A daemon in threads of the test. Dropping it kills it.
#[derive(Debug)]
pub struct FakeDaemon {
    /// Where it listens.
    pub socket: PathBuf,
    state: Arc<Mutex<State>>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FakeDaemon {
    /// Starts one on a socket inside `dir`, whose cluster has no weights yet.
    ///
    /// # Panics
    /// If no socket can be made there.
    pub fn start(dir: &Path, nodes: &[Node]) -> Self {
        let socket = dir.join("node.sock");
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).expect("the scratch folder takes a socket");
        let state = Arc::new(Mutex::new(State { nodes: nodes.to_vec(), ..State::default() }));
        let serving = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if lock(&serving).ended {
                    break;
                }
                let state = Arc::clone(&serving);
                thread::spawn(move || serve(stream, &state));
            }
        });
        Self { socket, state }
    }

    /// Its cluster is this from now on.
    pub fn change(&self, nodes: &[Node]) {
        self.tell(|state| state.nodes = nodes.to_vec());
    }

    /// An epoch begins: the nodes' weights hold, with this MinAge.
    pub fn begin_epoch(&self, min_age_ns: u64) {
        self.tell(|state| (state.epoch, state.min_age_ns) = (state.epoch + 1, min_age_ns));
    }

    fn tell(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.state);
        change(&mut state);
        state.version += 1;
        let view = state.view();
        state.subscribers.retain_mut(|stream| stream.write_all(&view).is_ok());
    }

    /// How many listen to it now.
    pub fn subscribers(&self) -> usize {
        lock(&self.state).subscribers.len()
    }

    /// Ends it without a word.
    pub fn kill(&self) {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.ended, true) {
            return;
        }
        for stream in state.subscribers.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(state);
        // Wakes the listener, which goes then.
        let _ = UnixStream::connect(&self.socket);
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A connection's end is the borrower's to notice.
fn serve(mut stream: UnixStream, state: &Mutex<State>) {
    let (mut input, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(got @ 1..) = stream.read(&mut chunk) {
        input.extend_from_slice(&chunk[..got]);
        while let Ok(Decoded::Whole { frame, consumed }) = decode(&input) {
            let mut answer = Vec::new();
            match frame {
                Frame::Hello { .. } => encode::welcome(&mut answer, 0, 7, 0, 0),
                Frame::ViewRequest { .. } => {
                    let mut state = lock(state);
                    answer = state.view();
                    if let (Ok(subscriber), false) = (stream.try_clone(), state.ended) {
                        state.subscribers.push(subscriber);
                    }
                }
                Frame::Local { .. } => {}
                _ => encode::error(&mut answer, 2, "a node's daemon takes no frame of this kind"),
            }
            input.drain(..consumed);
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    }
}
