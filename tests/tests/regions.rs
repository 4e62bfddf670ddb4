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
        Self::start_with(scratch, lend, &[])
    }

    fn start_with(scratch: &Scratch, lend: &str, devices: &[&Path]) -> Self {
        let socket = scratch.join("node.sock");
        let listen = loam_tests::lender::free_addr().to_string();
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

/// A file in memory to cut regions from, by path, and gone with this.
struct DeviceFile(PathBuf);

impl DeviceFile {
    fn new(name: &str, bytes: u64) -> Self {
        let path = PathBuf::from(format!("/dev/shm/loam-e2e-{name}-{}", std::process::id()));
        std::fs::write(&path, vec![0xA5; usize::try_from(bytes).expect("small")]).expect("written");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }

    /// What is in it, by the file itself.
    fn holds(&self, bytes: &[u8]) -> bool {
        let all = std::fs::read(&self.0).expect("a file");
        all.windows(bytes.len()).any(|part| part == bytes)
    }
}

impl Drop for DeviceFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The number with which the example begins what it writes with this seed.
fn first_word(seed: u64) -> [u8; 8] {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

#[test]
fn regions_of_a_device_by_path() {
    let _alone = place::alone();
    let scratch = Scratch::new("regions-device");
    let device = DeviceFile::new("device", 32 * MIB);
    let node = Node::start_with(&scratch, "8M", &[&device.0]);
    assert!(node.ok(&["create", "first", "16M", "--device", device.path()]).contains("16.0 MiB"));
    let list = node.list();
    assert_eq!(
        (&region_of(&list, "first")["device"], &list["reserved_bytes"]),
        (&Value::from(device.path()), &Value::from(0))
    );
    assert!(node.ok(&["list"]).contains(device.path()));
    let zeros = |node: &Node, name: &str, bytes: u64| {
        let checked = node.example(&["check", name, "5"]).output().expect("it runs");
        let words = bytes / 8;
        assert_eq!(String::from_utf8_lossy(&checked.stdout), format!("{bytes} bytes, {words} words wrong\n"));
        node.closed(name);
    };
    zeros(&node, "first", 16 * MIB);
    assert!(!device.holds(&first_word(6)));
    assert!(node.example(&["write", "first", "6"]).status().expect("it runs").success());
    node.closed("first");
    assert!(device.holds(&first_word(6)), "it is in the device, and nowhere else");
    assert!(node.example(&["check", "first", "6"]).status().expect("it runs").success());
    node.closed("first");
    // More than the node lends, and less than the device has left.
    node.refused(&["create", "second", "20M", "--device", device.path()], "not free");
    node.ok(&["create", "second", "16M", "--device", device.path()]);
    assert!(node.example(&["write", "second", "7"]).status().expect("it runs").success());
    node.closed("second");
    assert!(
        node.example(&["check", "first", "6"]).status().expect("it runs").success(),
        "neither writes into the other"
    );
    node.closed("first");
    node.ok(&["rm", "first"]);
    node.ok(&["resize", "second", "24M"]);
    node.closed("second");
    let grown = node.example(&["check", "second", "7"]).output().expect("it runs");
    let expected = format!("{} bytes, {} words wrong\n", 24 * MIB, 8 * MIB / 8);
    assert_eq!(String::from_utf8_lossy(&grown.stdout), expected, "what the first has left is zeros");
    // What is no such device, and what does not go together.
    node.refused(&["create", "x", "1M", "--device", "/dev/null"], "--region-device");
    let both = node.region(&["create", "x", "1M", "--device", device.path(), "--huge"]);
    assert!(!both.status.success() && String::from_utf8_lossy(&both.stderr).contains("--huge"));
}

#[test]
fn a_device_is_not_given_anew_while_a_program_has_it() {
    let _alone = place::alone();
    let scratch = Scratch::new("regions-device-killed");
    let device = DeviceFile::new("killed", 16 * MIB);
    let mut node = Node::start_with(&scratch, "8M", &[&device.0]);
    node.ok(&["create", "first", "8M", "--device", device.path()]);
    let mut holder = Holder::start(node.example(&["hold", "first", "3"]));
    node.kill();
    holder.checks();
    drop(node);
    let node = Node::start_with(&scratch, "8M", &[&device.0]);
    assert!(node.list()["regions"].as_array().expect("a list").is_empty(), "names end with the node");
    node.refused(&["create", "second", "8M", "--device", device.path()], "has a region");
    holder.checks();
    // A second node beside it does not get it either.
    drop(holder);
    node.ok(&["create", "second", "16M", "--device", device.path()]);
    let checked = node.example(&["check", "second", "3"]).output().expect("it runs");
    assert_eq!(
        String::from_utf8_lossy(&checked.stdout),
        format!("{} bytes, {} words wrong\n", 16 * MIB, 16 * MIB / 8),
        "zeros"
    );
    assert!(!device.holds(&first_word(3)));
}

/// Who has a region of a device has all of the device.
#[test]
fn a_device_is_for_who_could_open_it() {
    let _alone = place::alone();
    if !place::is_root() {
        println!("passed over: needs root, to be somebody else");
        return;
    }
    let scratch = Scratch::new("regions-device-users");
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).expect("ours");
    let device = DeviceFile::new("users", 8 * MIB);
    let node = Node::start_with(&scratch, "8M", &[&device.0]);
    let loam = scratch.join("loam");
    std::fs::copy(place::loam(), &loam).expect("copied");
    let nobody = || as_nobody(&loam, &["create", "theirs", "1M", "--device", device.path()], &node.socket);
    let refused = nobody();
    let line = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(125) && line.contains("gives all of it"), "{line}");
    std::os::unix::fs::chown(&device.0, Some(65534), None).expect("root may");
    let made = nobody();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn what_is_no_device_stops_the_node() {
    let scratch = Scratch::new("regions-no-device");
    let file = scratch.join("plain");
    std::fs::write(&file, vec![0; 1 << 20]).expect("written");
    let start = |path: &Path| {
        let mut command = Command::new(place::loam());
        let socket = scratch.join("no.sock");
        let listen = loam_tests::lender::free_addr().to_string();
        command.args(["node", "--lend", "8M", "--listen", &listen, "--socket"]).arg(socket);
        let output = command.arg("--region-device").arg(path).output().expect("it runs");
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(125) && line.lines().count() == 1, "{line}");
        line
    };
    assert!(start(Path::new("/dev/zero")).contains("not DAX"));
    let line = start(&file);
    // (Where the tests' folder is a disk's.)
    assert!(line.contains("without DAX") || scratch.path().starts_with("/dev/shm"), "{line}");
}

#[test]
fn memory_nodes_are_chosen() {
    let _alone = place::alone();
    let scratch = Scratch::new("regions-numa");
    let node = Node::start(&scratch, "32M");
    node.ok(&["create", "plain", "4M"]);
    node.ok(&["create", "bound", "4M", "--numa", "bind:0"]);
    node.refused(&["create", "far", "4M", "--numa", "interleave:0,63"], "no memory node 63: it has 0");
    for wrong in ["bind", "bind:x", "near", "preferred:0,1"] {
        let output = node.region(&["create", "far", "4M", "--numa", wrong]);
        assert!(!output.status.success(), "{wrong}");
    }
    let list = node.list();
    assert_eq!(
        (&region_of(&list, "bound")["numa"], &region_of(&list, "plain")["numa"]),
        (&Value::from("bind:0"), &Value::Null)
    );
    assert!(node.ok(&["list"]).contains("bind:0"));
    // What the kernel says of a program that has them open.
    for (name, policy) in [("plain", "default"), ("bound", "bind:0")] {
        let holder = Holder::start(node.example(&["hold", name, "1"]));
        let maps = std::fs::read_to_string(format!("/proc/{}/numa_maps", holder.child.id())).expect("NUMA");
        let of: Vec<&str> = maps.lines().filter(|line| line.contains("loam-region")).collect();
        assert!(of.len() == 1 && of[0].split(' ').nth(1) == Some(policy), "{of:?}");
        assert!(of[0].contains("N0=1024"), "all of its pages are there, and on node 0: {of:?}");
    }
}
