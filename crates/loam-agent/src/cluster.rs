//! The cluster behind the node's daemon: its view, and connections to lenders that appear in it.
//!
//! All of this waits: for the daemon, for a handshake, for a machine that does not answer. So threads of its own do it, and the
//! event loop only takes in what they have brought: a view, or a connection that is ready for use. One thread listens to the
//! daemon and looks for it again when it is gone; each handshake is a thread that lives as long as that. A view is a hint,
//! at most a few come in a second, and of those that wait the newest alone counts.

use crate::conn::Conn;
use loam_core::ids::SpaceId;
use loam_core::units::Duration;
use loam_wire::client::{ClientError, Target};
use loam_wire::limits::FRAME_BYTES_MAX;
use loam_wire::tls::{Credentials, Watched};
use loam_wire::{Decoded, Frame, ViewEntry, decode, encode, error_code};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time;

/// How long a lender may take to answer hello.
pub(crate) const CONNECT_TIMEOUT: time::Duration = time::Duration::from_secs(3);
/// How often the thread that listens looks whether it is still wanted.
const LOOK: time::Duration = time::Duration::from_millis(100);
/// Between two tries to reach a daemon that is gone.
const AGAIN: time::Duration = time::Duration::from_millis(500);
/// How often the daemon is told of the program's local pages.
const TELL: time::Duration = time::Duration::from_millis(500);
/// Stack of a thread here.
const STACK_BYTES: usize = 256 * 1024;

/// One node of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Which life of it.
    pub id: u64,
    pub addr: SocketAddr,
    pub weight: u32,
    pub free_bytes: u64,
    pub lends: bool,
}

/// The cluster as the daemon knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// 0: no weights are known.
    pub epoch: u64,
    pub min_age: Duration,
    pub nodes: Vec<Node>,
}

/// What a thread has brought.
#[derive(Debug)]
pub(crate) enum News {
    View(View),
    /// The daemon cannot be heard any more, and is looked for.
    Gone(String),
    /// A handshake has ended.
    Greeted(Node, Result<Box<Conn>, NoLender>),
}

/// Why a node does not lend to this run.
#[derive(Debug)]
pub(crate) struct NoLender {
    pub(crate) why: String,
    /// It does not want to, or we do not want it: nothing that passes by itself.
    pub(crate) denied: bool,
}

impl From<ClientError> for NoLender {
    fn from(error: ClientError) -> Self {
        let denied = match &error {
            ClientError::Tls(_) => true,
            ClientError::Refused { code, .. } => *code == error_code::DENIED,
            _ => false,
        };
        Self { why: error.to_string(), denied }
    }
}

/// See the module's documentation. The thread that listens ends soon after this is dropped.
#[derive(Debug)]
pub(crate) struct Cluster {
    news: Receiver<News>,
    bring: Bring,
    /// What lenders are told of the pages that they get.
    features: u64,
    /// What to show lenders; `None`: plain TCP.
    credentials: Option<Arc<Watched>>,
    stop: Arc<AtomicBool>,
    local_pages: Arc<AtomicU64>,
}

/// How a thread brings something.
#[derive(Clone, Debug)]
struct Bring {
    news: Sender<News>,
    bell: Arc<OwnedFd>,
}

impl Bring {
    fn bring(&self, news: News) {
        // Nobody takes it any more at the end of a run.
        if self.news.send(news).is_ok() {
            // EAGAIN: the counter is full, so it is readable.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }
}

impl Cluster {
    /// Listens to the daemon behind `socket`.
    ///
    /// # Errors
    /// The system has no descriptor or thread left.
    pub(crate) fn start(
        socket: &Path,
        credentials: Option<Arc<Watched>>,
        features: u64,
    ) -> std::io::Result<Self> {
        let (sender, news) = channel();
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let bring = Bring { news: sender, bell: Arc::new(bell) };
        let stop = Arc::new(AtomicBool::new(false));
        let local_pages = Arc::new(AtomicU64::new(0));
        let (path, to, stopped) = (socket.to_owned(), bring.clone(), Arc::clone(&stop));
        let pages = Arc::clone(&local_pages);
        let thread = std::thread::Builder::new().name("loam-cluster".into()).stack_size(STACK_BYTES);
        thread.spawn(move || {
            loam_disk::block_all_signals();
            listen(&path, &to, &stopped, &pages);
        })?;
        Ok(Self { news, bring, features, credentials, stop, local_pages })
    }

    /// The daemon will hear that the program has so many base pages here.
    pub(crate) fn has_local_pages(&self, pages: u64) {
        self.local_pages.store(pages, Relaxed);
    }

    /// Readable when something has been brought.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.bring.bell.as_fd()
    }

    /// The next that was brought; never waits.
    pub(crate) fn next(&self) -> Option<News> {
        let mut rung = [0_u8; 8];
        let _ = rustix::io::read(&self.bring.bell, &mut rung);
        self.news.try_recv().ok()
    }

    /// The next that is brought until `deadline`.
    pub(crate) fn next_until(&self, deadline: time::Instant) -> Option<News> {
        let left = deadline.saturating_duration_since(time::Instant::now());
        match self.news.recv_timeout(left) {
            Ok(news) => Some(news),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => unreachable!("a sender is our own"),
        }
    }

    /// Connects to a node and says hello, on a thread of its own; [`News::Greeted`] comes when that has ended.
    pub(crate) fn greet(&self, node: Node, space: SpaceId, name: &str) {
        let (name, to, features) = (name.to_owned(), self.bring.clone(), self.features);
        let credentials = self.credentials.clone();
        let thread = std::thread::Builder::new().name("loam-hello".into()).stack_size(STACK_BYTES);
        let started = thread.spawn(move || {
            loam_disk::block_all_signals();
            let credentials = credentials.map(|watched| current(&watched));
            let target = Target { addr: node.addr, name: None, credentials };
            let conn = Conn::connect(&target, features, space, 0, &name, CONNECT_TIMEOUT);
            to.bring(News::Greeted(node, conn.map(Box::new).map_err(NoLender::from)));
        });
        if let Err(error) = started {
            let why = format!("no thread can be started ({error})");
            self.bring.bring(News::Greeted(node, Err(NoLender { why, denied: false })));
        }
    }
}

/// What the folder has now, or had last when it could be used.
fn current(watched: &Watched) -> Arc<Credentials> {
    if let Some(Err(why)) = watched.look() {
        tracing::warn!("the new credentials are not used, the old ones stay: {why}");
    }
    watched.current()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Nobody waits for the thread: at the end of a run that would be time lost for nothing.
        self.stop.store(true, Relaxed);
    }
}

/// Listens until it is told to stop, again and again.
fn listen(path: &PathBuf, to: &Bring, stop: &AtomicBool, local_pages: &AtomicU64) {
    let mut told = String::new();
    while !stop.load(Relaxed) {
        let mut heard = false;
        let why = subscribe(path, stop, local_pages, |view| {
            heard = true;
            to.bring(News::View(view));
        });
        // The same again and again is said once.
        if heard || why != told {
            to.bring(News::Gone(why.clone()));
            told = why;
        }
        let again = time::Instant::now() + AGAIN;
        while !stop.load(Relaxed) && time::Instant::now() < again {
            std::thread::sleep(LOOK);
        }
    }
}

/// Asks for views and passes them on. Answers why there are no more.
fn subscribe(
    path: &PathBuf,
    stop: &AtomicBool,
    local_pages: &AtomicU64,
    mut take: impl FnMut(View),
) -> String {
    let talk = || -> std::io::Result<UnixStream> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(CONNECT_TIMEOUT))?;
        let mut out = Vec::new();
        // Space 0: this connection stores nothing.
        encode::hello(&mut out, 0, "loam run");
        encode::view_request(&mut out, 1);
        (&stream).write_all(&out)?;
        Ok(stream)
    };
    let stream = match talk() {
        Ok(stream) => stream,
        Err(error) => return error.to_string(),
    };
    let (mut received, mut end) = (vec![0; 16 * 1024], 0);
    let (mut told_pages, mut told_at) = (0, time::Instant::now());
    while !stop.load(Relaxed) {
        let pages = local_pages.load(Relaxed);
        if pages != told_pages && told_at.elapsed() >= TELL {
            let mut out = Vec::new();
            encode::local(&mut out, pages);
            if let Err(error) = (&stream).write_all(&out) {
                return error.to_string();
            }
            (told_pages, told_at) = (pages, time::Instant::now());
        }
        let consumed = match decode(&received[..end]) {
            Ok(Decoded::Whole { frame, consumed }) => {
                match frame {
                    Frame::Welcome(_) | Frame::Pong { .. } => {}
                    Frame::View { figures, nodes, .. } => take(View {
                        epoch: figures.epoch(),
                        min_age: Duration(figures.min_age_ns()),
                        nodes: nodes.iter().map(node).collect(),
                    }),
                    Frame::Error { text, .. } => return format!("it says: {text}"),
                    _ => return "it sent a frame that is no view".into(),
                }
                consumed
            }
            Ok(Decoded::NeedMore { bytes_total }) => {
                assert!(bytes_total > end && bytes_total <= FRAME_BYTES_MAX, "the codec has its limits");
                received.resize(received.len().max(bytes_total), 0);
                match (&stream).read(&mut received[end..]) {
                    Ok(0) => return "it closed the connection".into(),
                    Ok(bytes) => end += bytes,
                    Err(error) => match error.kind() {
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                        _ => return error.to_string(),
                    },
                }
                continue;
            }
            Err(error) => return format!("it sent a malformed frame ({error})"),
        };
        received.copy_within(consumed..end, 0);
        end -= consumed;
    }
    String::new()
}

fn node(entry: &ViewEntry) -> Node {
    Node {
        id: entry.id(),
        addr: entry.addr(),
        weight: entry.weight(),
        free_bytes: entry.free_bytes(),
        lends: entry.capacity_bytes() > 0 && entry.addr().port() != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_wire::ViewFigures;
    use std::os::unix::net::UnixListener;

    const LIMIT: time::Duration = time::Duration::from_secs(20);

    fn next(cluster: &Cluster) -> News {
        cluster.next_until(time::Instant::now() + LIMIT).expect("something is brought in time")
    }

    fn accept(listener: &UnixListener) -> UnixStream {
        let (mut stream, _) = listener.accept().expect("the cluster connects");
        let mut bytes = vec![0; 4096];
        let mut end = 0;
        loop {
            end += stream.read(&mut bytes[end..]).expect("it says hello");
            let Ok(Decoded::Whole { frame, consumed }) = decode(&bytes[..end]) else { continue };
            assert!(matches!(frame, Frame::Hello { space: 0, .. }), "{frame:?}");
            if let Ok(Decoded::Whole { frame, .. }) = decode(&bytes[consumed..end]) {
                assert_eq!(frame, Frame::ViewRequest { request: 1 });
                break;
            }
        }
        let mut welcome = Vec::new();
        encode::welcome(&mut welcome, 0, 7, 0, 0);
        stream.write_all(&welcome).expect("it listens");
        stream
    }

    fn view(epoch: u64, nodes: &[ViewEntry]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode::view(&mut bytes, 1, &ViewFigures::new(epoch, 5, epoch), nodes);
        bytes
    }

    #[test]
    fn views_come_in_pieces_and_the_daemon_comes_back() {
        let path = std::env::temp_dir().join(format!("loam-cluster-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket can be made");
        let cluster = Cluster::start(&path, None, 0).expect("a thread can be started");
        let addr = SocketAddr::from(([10, 0, 0, 7], 7070));
        let entry = ViewEntry::new(9, addr, 3, 0, 4096, 8192);
        let mut daemon = accept(&listener);
        for byte in view(1, &[entry]) {
            daemon.write_all(&[byte]).expect("it listens");
        }
        let News::View(found) = next(&cluster) else { panic!("a view is due") };
        let lender = Node { id: 9, addr, weight: 3, free_bytes: 4096, lends: true };
        assert_eq!(found, View { epoch: 1, min_age: Duration(5), nodes: vec![lender] });
        // More entries than fit into the first buffer, and one more view behind it.
        let many = vec![entry; 1000];
        daemon.write_all(&[view(2, &many), view(3, &[])].concat()).expect("it listens");
        let (News::View(second), News::View(third)) = (next(&cluster), next(&cluster)) else {
            panic!("two views are due")
        };
        assert_eq!((second.nodes.len(), third.epoch), (1000, 3));
        drop(daemon);
        assert!(matches!(next(&cluster), News::Gone(_)));
        let mut daemon = accept(&listener);
        daemon.write_all(b"this is no frame of Loam's at all, whoever sent it").expect("it listens");
        let News::Gone(why) = next(&cluster) else { panic!("nonsense is noticed") };
        assert!(why.contains("malformed"), "{why}");
        let mut daemon = accept(&listener);
        daemon.write_all(&view(4, &[])).expect("it listens");
        assert!(matches!(next(&cluster), News::View(View { epoch: 4, .. })));
        let _ = std::fs::remove_file(&path);
    }

    #[test]
    fn who_does_not_answer_is_told_without_waiting_here() {
        let path = std::env::temp_dir().join(format!("loam-nobody-{}.sock", std::process::id()));
        let cluster = Cluster::start(&path, None, 0).expect("a thread can be started");
        assert!(matches!(next(&cluster), News::Gone(_)), "there is no daemon");
        // A port that was free a moment ago.
        let addr = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("loopback");
        let node = Node { id: 1, addr, weight: 0, free_bytes: 0, lends: true };
        cluster.greet(node, SpaceId(1), "test");
        assert!(matches!(next(&cluster), News::Greeted(n, Err(_)) if n == node));
    }
}
