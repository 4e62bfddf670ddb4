//! A site with an authority, made by `loam ca`, and lenders with its certificates.

use crate::place::{self, Scratch};
use crate::shell::{self, Started};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// An authority in a folder of the test.
#[derive(Debug)]
pub struct Site {
    dir: PathBuf,
}

/// A `loam lend --tls`, and what it says.
#[derive(Debug)]
pub struct TlsLender {
    process: Started,
    /// Where it listens.
    pub addr: SocketAddr,
}

/// Runs `loam` to its end, in `dir`.
pub fn loam(dir: &Path, args: &[&str]) -> shell::Ended {
    shell::run(Command::new(place::loam()).args(args).current_dir(dir), dir, "loam", LIMIT)
}

impl Site {
    /// Makes the authority.
    ///
    /// # Panics
    /// If `loam ca init` fails.
    pub fn new(scratch: &Scratch, name: &str) -> Self {
        let dir = scratch.join(name);
        std::fs::create_dir_all(&dir).expect("the scratch folder is writable");
        let ended = loam(&dir, &["ca", "init"]);
        assert_eq!(ended.code(), 0, "{}", ended.stderr);
        Self { dir }
    }

    /// The authority's own folder.
    pub fn authority(&self) -> PathBuf {
        self.dir.join("loam-ca")
    }

    /// Issues a certificate; answers its folder.
    ///
    /// # Panics
    /// If `loam ca issue` fails.
    pub fn issue(&self, name: &str, role: &str, more: &[&str]) -> PathBuf {
        let ended = loam(&self.dir, &[&["ca", "issue", name, "--role", role], more].concat());
        assert_eq!(ended.code(), 0, "{}", ended.stderr);
        self.dir.join(name)
    }
}

impl TlsLender {
    /// Starts one on loopback, with credentials or without.
    ///
    /// # Panics
    /// If it does not listen within a time.
    pub fn start(size: &str, tls: Option<&Path>, dir: &Path, name: &str) -> Self {
        let mut command = shell::that_dies_with_us(&place::loam());
        command.args(["lend", size, "--listen", "127.0.0.1:0"]).stdin(Stdio::null());
        command.env("LOAM_LOG", "info");
        if let Some(tls) = tls {
            command.arg("--tls").arg(tls);
        }
        let process = shell::start(&mut command, dir, name);
        let mut lender = Self { process, addr: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let line = lender.wait_for("lending");
        let addr = line.split(" on ").nth(1).and_then(|rest| rest.split(';').next()).map(str::parse);
        lender.addr = addr.expect("it says where").expect("an address");
        lender
    }

    /// Waits for a line with these words in its log.
    ///
    /// # Panics
    /// If it does not come.
    pub fn wait_for(&mut self, words: &str) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            let log = self.process.stderr_so_far();
            if let Some(line) = shell::whole_lines(&log).find(|line| line.contains(words)) {
                return line.to_owned();
            }
            assert!(self.process.runs() && Instant::now() < end, "no '{words}' in its log:\n{log}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
