//! A node that programs ask for direct regions, and programs that have some.

use crate::place::{self, Scratch};
use crate::{procfs, shell};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// What the kernel, or a node, does soon takes no longer.
pub const SOON: Duration = Duration::from_secs(10);
const NOBODY: &str = "65534";
/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;

/// A folder that every user may read, with `loam` in it; none where we cannot be somebody else.
pub fn for_other_users(name: &str) -> Option<(Scratch, PathBuf)> {
    if !place::is_root() {
        println!("passed over: needs root, to be somebody else");
        return None;
    }
    let scratch = Scratch::new(name);
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).expect("ours");
    let loam = scratch.join("loam");
    std::fs::copy(place::loam(), &loam).expect("copied");
    Some((scratch, loam))
}

/// A node of its own, with a socket of its own; ended with this.
#[derive(Debug)]
pub struct Node {
    child: Child,
    /// Where it listens for programs.
    pub socket: PathBuf,
}

impl Node {
    /// Lends so much, and has no devices.
    pub fn start(scratch: &Scratch, lend: &str) -> Self {
        Self::start_with(scratch, lend, &[])
    }

    /// Lends so much, and cuts regions from these devices.
    pub fn start_with(scratch: &Scratch, lend: &str, devices: &[&Path]) -> Self {
        let socket = scratch.join("node.sock");
        let listen = crate::lender::free_addr().to_string();
        let child = shell::that_dies_with_us(&place::loam())
            .args(["node", "--lend", lend, "--keep", "1M", "--listen", &listen, "--socket"])
            .arg(&socket)
            .args(devices.iter().flat_map(|path| [Path::new("--region-device"), path]))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("loam can be started");
        procfs::wait_until(SOON, || UnixStream::connect(&socket).is_ok()).expect("it listens");
        Self { child, socket }
    }

    /// What `loam region` says to that.
    pub fn region(&self, args: &[&str]) -> Output {
        let mut command = Command::new(place::loam());
        command.arg("region").args(args).arg("--socket").arg(&self.socket).output().expect("it runs")
    }

    /// What it says where it does it.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.region(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// One line on stderr that has `word`, and status 125.
    pub fn refused(&self, args: &[&str], word: &str) {
        let output = self.region(args);
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{args:?}: {line}");
        assert!(line.lines().count() == 1 && line.contains(word), "{args:?}: {line}");
    }

    /// What there is.
    pub fn list(&self) -> Value {
        serde_json::from_str(&self.ok(&["list", "--json"])).expect("JSON")
    }

    /// The example, to be started with that.
    pub fn example(&self, args: &[&str]) -> Command {
        let mut command = Command::new(place::example("region"));
        command.arg("--socket").arg(&self.socket).args(args);
        command
    }

    /// Nobody has a region open any more: the kernel tells the node after a program's end.
    pub fn closed(&self, name: &str) {
        procfs::wait_until(SOON, || region_of(&self.list(), name)["opens"] == 0).expect("closed");
    }

    /// By SIGKILL.
    pub fn kill(&mut self) {
        procfs::send(self.child.id(), Signal::KILL);
        self.child.wait().expect("our child");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One of the list.
pub fn region_of<'a>(list: &'a Value, name: &str) -> &'a Value {
    let regions = list["regions"].as_array().expect("a list");
    regions.iter().find(|region| region["name"] == name).unwrap_or(&Value::Null)
}

/// A program that holds a region.
#[derive(Debug)]
pub struct Holder {
    /// The program.
    pub child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Holder {
    /// Starts it, and waits until it holds it.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut holder = Self { child, lines };
        assert_eq!(holder.line(), "ready");
        holder
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("a line").expect("text")
    }

    /// Makes it check all of its memory, and write it.
    pub fn checks(&mut self) {
        writeln!(self.child.stdin.as_mut().expect("piped"), "check").expect("it reads");
        assert_eq!(self.line(), "as it was");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `loam region` as a user who has nothing.
pub fn as_nobody(loam: &Path, args: &[&str], socket: &Path) -> Output {
    as_user(NOBODY, loam, args, socket)
}

/// `loam region` as the user of this number.
pub fn as_user(user: &str, loam: &Path, args: &[&str], socket: &Path) -> Output {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", user, "--clear-groups", "--"]).arg(loam).arg("region");
    command.args(args).arg("--socket").arg(socket).output().expect("it runs")
}
