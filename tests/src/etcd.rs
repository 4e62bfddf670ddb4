//! A real etcd of one test, and a cable to it that can be pulled.

use crate::lender::free_addr;
use crate::{place, procfs, shell};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// One etcd on loopback. Dropping it kills it.
#[derive(Debug)]
pub struct Etcd {
    child: Option<Child>,
    scratch: place::Scratch,
    /// Where clients connect.
    pub addr: SocketAddr,
    peer: SocketAddr,
    initial_cluster: String,
    name: String,
}

impl Etcd {
    /// Starts one and waits until it answers. `None`, with a line that says so, where no etcd is installed.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start() -> Option<Self> {
        Self::start_many(1).map(|mut all| all.remove(0))
    }

    /// Starts some that are one etcd, and waits until each answers.
    ///
    /// # Panics
    /// If they do not start.
    pub fn start_many(count: usize) -> Option<Vec<Self>> {
        if !["/usr/bin/etcd", "/usr/local/bin/etcd"].iter().any(|path| std::path::Path::new(path).exists()) {
            assert!(!place::is_root(), "there is no etcd: run tests/setup.sh");
            eprintln!("skipped: there is no etcd (tests/setup.sh)");
            return None;
        }
        let peers: Vec<SocketAddr> = (0..count).map(|_| free_addr()).collect();
        let members = peers.iter().enumerate().map(|(number, peer)| format!("e{number}=http://{peer}"));
        let initial_cluster = members.collect::<Vec<_>>().join(",");
        let one = |(number, peer)| Self {
            child: None,
            scratch: place::Scratch::new("etcd"),
            addr: free_addr(),
            peer,
            initial_cluster: initial_cluster.clone(),
            name: format!("e{number}"),
        };
        let mut all: Vec<Self> = peers.iter().copied().enumerate().map(one).collect();
        all.iter_mut().for_each(Self::launch);
        all.iter().for_each(Self::wait);
        Some(all)
    }

    fn launch(&mut self) {
        let (client, peer) = (format!("http://{}", self.addr), format!("http://{}", self.peer));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.scratch.join("log"));
        let child = shell::that_dies_with_us("etcd".as_ref())
            .args(["--name", &self.name, "--logger", "zap", "--data-dir"])
            .arg(self.scratch.join("data"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &self.initial_cluster, "--unsafe-no-fsync"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("a log can be made"))
            .spawn()
            .expect("etcd can be started");
        self.child = Some(child);
    }

    fn wait(&self) {
        let answers = procfs::wait_until(Duration::from_secs(30), || {
            self.call("kv/range", r#"{"key":"AA=="}"#).is_ok()
        });
        answers.unwrap_or_else(|_| {
            let log = std::fs::read_to_string(self.scratch.join("log")).unwrap_or_default();
            panic!("etcd does not answer: {log}");
        });
    }

    /// Asks its JSON gateway.
    ///
    /// # Errors
    /// If it does not answer, or with an error.
    pub fn call(&self, path: &str, body: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(self.addr)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(
            stream,
            "POST /v3/{path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        if answer.starts_with("HTTP/1.1 200") { Ok(answer) } else { Err(io::Error::other(answer)) }
    }

    /// Ends it without a word.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        procfs::send(child.id(), rustix::process::Signal::KILL);
        let _ = child.wait();
    }

    /// Makes it hang: connections stay open, nothing is answered.
    ///
    /// # Panics
    /// If it does not run.
    pub fn stop(&self) {
        procfs::send(self.child.as_ref().expect("it runs").id(), rustix::process::Signal::STOP);
    }

    /// Lets one that hangs go on.
    ///
    /// # Panics
    /// If it does not run.
    pub fn go_on(&self) {
        procfs::send(self.child.as_ref().expect("it runs").id(), rustix::process::Signal::CONT);
    }

    /// Starts it again, and waits until it answers.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&mut self, with_data: bool) {
        if !with_data {
            std::fs::remove_dir_all(self.scratch.join("data")).expect("it is ours");
        }
        self.launch();
        self.wait();
    }

    /// What `--membership` takes.
    pub fn url(&self, cluster: &str) -> String {
        format!("etcd://{}/{cluster}", self.addr)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        if let Ok(Some(status)) = child.try_wait() {
            let log = std::fs::read_to_string(self.scratch.join("log")).unwrap_or_default();
            println!("the etcd at {} had ended by itself ({status}): {log}", self.addr);
        } else {
            self.kill();
        }
    }
}

/// A way to a server that can be cut: connections break, and new ones are closed at once.
#[derive(Debug)]
pub struct Cable {
    /// What to connect to.
    pub addr: SocketAddr,
    cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Cable {
    /// A cable to `server`. Its threads end with the process.
    ///
    /// # Panics
    /// If loopback cannot be listened on.
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let addr = listener.local_addr().expect("it listens");
        let cable = Self { addr, cut: Arc::default(), open: Arc::default() };
        let (cut, open) = (Arc::clone(&cable.cut), Arc::clone(&cable.open));
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if cut.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(far) = TcpStream::connect(server) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) =
                        (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    thread::spawn(move || {
                        // It ends when either does.
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                open.lock().expect("nothing panics under it").extend([near, far]);
            }
        });
        cable
    }

    /// Cuts it, or mends it.
    ///
    /// # Panics
    /// Never.
    pub fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
        for stream in self.open.lock().expect("nothing panics under it").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
