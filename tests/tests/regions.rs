//! Direct regions with real processes: made by the command, written by one program, read by another, through deaths of both sides.

use loam_tests::place::{self, Scratch};
use loam_tests::{procfs, shell};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);
const NOBODY: &str = "65534";
const MIB: u64 = 1 << 20;

struct Node {
    child: Child,
    socket: PathBuf,
}

impl Node {
    fn start(scratch: &Scratch, lend: &str) -> Self {
        let socket = scratch.join("node.sock");
        let listen = loam_tests::lender::free_addr().to_string();
        let child = shell::that_dies_with_us(&place::loam())
            .args(["node", "--lend", lend, "--keep", "1M", "--listen", &listen, "--socket"])
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("loam can be started");
        procfs::wait_until(SOON, || UnixStream::connect(&socket).is_ok()).expect("it listens");
        Self { child, socket }
    }

    fn region(&self, args: &[&str]) -> Output {
        let mut command = Command::new(place::loam());
        command.arg("region").args(args).arg("--socket").arg(&self.socket).output().expect("it runs")
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = self.region(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// One line on stderr that has `word`, and status 125.
    fn refused(&self, args: &[&str], word: &str) {
        let output = self.region(args);
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{args:?}: {line}");
        assert!(line.lines().count() == 1 && line.contains(word), "{args:?}: {line}");
    }

    fn list(&self) -> Value {
        serde_json::from_str(&self.ok(&["list", "--json"])).expect("JSON")
    }

    fn example(&self, args: &[&str]) -> Command {
        let mut command = Command::new(place::example("region"));
        command.arg("--socket").arg(&self.socket).args(args);
        command
    }

    /// Nobody has a region open any more: the kernel tells the node after a program's end.
    fn closed(&self, name: &str) {
        procfs::wait_until(SOON, || region_of(&self.list(), name)["opens"] == 0).expect("closed");
    }

    fn kill(&mut self) {
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

fn region_of<'a>(list: &'a Value, name: &str) -> &'a Value {
    let regions = list["regions"].as_array().expect("a list");
    regions.iter().find(|region| region["name"] == name).unwrap_or(&Value::Null)
}

/// A program that holds a region.
struct Holder {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Holder {
    fn start(mut command: Command) -> Self {
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
    fn checks(&mut self) {
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

#[test]
fn one_program_writes_and_another_reads() {
    let _alone = place::alone();
    let scratch = Scratch::new("regions");
    let node = Node::start(&scratch, "64M");
    assert!(node.ok(&["create", "table", "16M"]).contains("16.0 MiB"));
    node.refused(&["create", "table", "1M"], "already");
    node.refused(&["create", "other", "60M"], "not free");
    node.refused(&["create", "../other", "1M"], "name");
    assert!(node.example(&["write", "table", "5"]).status().expect("it runs").success());
    node.closed("table");
    assert!(node.example(&["check", "table", "5"]).status().expect("it runs").success());
    node.closed("table");
    node.ok(&["resize", "table", "8M"]);
    assert!(
        node.example(&["check", "table", "5"]).status().expect("it runs").success(),
        "what is left is as it was"
    );
    node.closed("table");
    let list = node.list();
    assert_eq!(
        (&list["reserved_bytes"], &list["free_bytes"]),
        (&Value::from(8 * MIB), &Value::from(56 * MIB))
    );
    assert!(node.ok(&["list"]).contains("table"));
    node.ok(&["resize", "table", "24M"]);
    let grown = node.example(&["check", "table", "5"]).output().expect("it runs");
    let zeros = (24 - 8) * MIB / 8;
    assert_eq!(
        String::from_utf8_lossy(&grown.stdout),
        format!("{} bytes, {zeros} words wrong\n", 24 * MIB),
        "zeros at its end, and nothing else: {}",
        String::from_utf8_lossy(&grown.stderr)
    );
    node.ok(&["rm", "table"]);
    node.refused(&["rm", "table"], "no region");
    procfs::wait_until(SOON, || node.list()["reserved_bytes"] == 0).expect("all is free again");
}

#[test]
fn a_program_that_is_killed_lets_go() {
    let _alone = place::alone();
    let scratch = Scratch::new("regions-killed");
    let node = Node::start(&scratch, "64M");
    node.ok(&["create", "kept", "4M"]);
    let mut holder = Holder::start(node.example(&["hold", "kept", "9"]));
    holder.checks();
    node.refused(&["resize", "kept", "1M"], "open");
    let mut temporary = Holder::start(node.example(&["temporary", "passing", "8388608"]));
    assert_eq!(node.list()["reserved_bytes"], 12 * MIB);
    for holder in [&mut holder, &mut temporary] {
        procfs::send(holder.child.id(), Signal::KILL);
        holder.child.wait().expect("our child");
    }
    procfs::wait_until(SOON, || node.list()["reserved_bytes"] == 4 * MIB)
        .expect("the temporary one has gone");
    node.closed("kept");
    assert!(
        node.example(&["check", "kept", "9"]).status().expect("it runs").success(),
        "the other one has not"
    );
    // A region that is removed while it is open stays with who has it.
    node.closed("kept");
    let mut holder = Holder::start(node.example(&["hold", "kept", "9"]));
    assert!(node.ok(&["rm", "kept"]).contains("1 now"));
    holder.checks();
    assert_eq!(node.list()["reserved_bytes"], 4 * MIB, "it is not given to anybody yet");
    drop(holder);
    procfs::wait_until(SOON, || node.list()["reserved_bytes"] == 0).expect("now it is free");
}

#[test]
fn a_node_that_is_killed_takes_no_memory_with_it() {
    let _alone = place::alone();
    let scratch = Scratch::new("regions-node");
    let mut node = Node::start(&scratch, "64M");
    node.ok(&["create", "table", "16M"]);
    let mut holder = Holder::start(node.example(&["hold", "table", "3"]));
    node.kill();
    holder.checks();
    drop(node);
    let node = Node::start(&scratch, "64M");
    holder.checks();
    assert!(node.list()["regions"].as_array().expect("a list").is_empty(), "names end with the node");
    node.ok(&["create", "table", "16M"]);
    assert!(node.example(&["write", "table", "4"]).status().expect("it runs").success());
    holder.checks();
}

#[test]
fn another_user_is_refused() {
    let _alone = place::alone();
    if !place::is_root() {
        println!("passed over: needs root, to be somebody else");
        return;
    }
    let scratch = Scratch::new("regions-users");
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).expect("ours");
    let node = Node::start(&scratch, "64M");
    node.ok(&["create", "roots", "4M"]);
    let loam = scratch.join("loam");
    std::fs::copy(place::loam(), &loam).expect("copied");
    let nobody = |args: &[&str]| as_nobody(&loam, args, &node.socket);
    let line = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    for args in [&["resize", "roots", "8M"][..], &["rm", "roots"]] {
        let output = nobody(args);
        assert!(
            output.status.code() == Some(125) && line(&output).contains("another user"),
            "{}",
            line(&output)
        );
    }
    let listed: Value = serde_json::from_slice(&nobody(&["list", "--json"]).stdout).expect("JSON");
    assert!(listed["regions"].as_array().expect("a list").is_empty(), "not even seen: {listed}");
    let output = nobody(&["create", "theirs", "4M"]);
    assert!(output.status.success(), "{}", line(&output));
    assert_eq!(region_of(&node.list(), "theirs")["owner_uid"], 65534);
    // The node's own user may, but only together: who owns it may have kept it mapped.
    let written = node.example(&["write", "theirs", "1"]).output().expect("it runs");
    assert!(!written.status.success() && line(&written).contains("not alone"), "{}", line(&written));
    let checked = node.example(&["check", "theirs", "1"]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&checked.stdout).starts_with("4194304 bytes"), "{}", line(&checked));
}

fn as_nobody(loam: &Path, args: &[&str], socket: &Path) -> Output {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]).arg(loam).arg("region");
    command.args(args).arg("--socket").arg(socket).output().expect("it runs")
}
