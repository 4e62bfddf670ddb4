//! Direct regions of a device by path, and of memory nodes, with real processes.

use loam_tests::place::{self, Scratch};
use loam_tests::region_node::{Holder, MIB, Node, as_nobody, as_user, for_other_users, region_of};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

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
    let Some((scratch, loam)) = for_other_users("regions-device-users") else { return };
    let device = DeviceFile::new("users", 8 * MIB);
    let node = Node::start_with(&scratch, "8M", &[&device.0]);
    let args = ["create", "theirs", "1M", "--device", device.path()];
    let other = || as_user("65533", &loam, &args, &node.socket);
    let refused = other();
    let line = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(125) && line.contains("gives all of it"), "{line}");
    let give_to = |user: u32| std::os::unix::fs::chown(&device.0, Some(user), None).expect("root may");
    // Whom the kernel names for anybody of whom it knows no number.
    give_to(65534);
    let anybody = as_nobody(&loam, &args, &node.socket);
    assert!(String::from_utf8_lossy(&anybody.stderr).contains("gives all of it"), "{anybody:?}");
    give_to(65533);
    let made = other();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn what_is_no_device_stops_the_node() {
    let scratch = Scratch::new("regions-no-device");
    let file = scratch.join("plain");
    std::fs::write(&file, vec![0; 1 << 20]).expect("written");
    let start = |path: &Path| {
        // With a limit: what is a device after all is served.
        let mut command = Command::new("timeout");
        command.arg("20").arg(place::loam());
        let socket = scratch.join("no.sock");
        let listen = loam_tests::lender::free_addr().to_string();
        command.args(["node", "--lend", "8M", "--listen", &listen, "--socket"]).arg(socket);
        let output = command.arg("--region-device").arg(path).output().expect("it runs");
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(125) && line.lines().count() == 1, "{line}");
        line
    };
    assert!(start(Path::new("/dev/zero")).contains("not DAX"));
    let kind = Command::new("stat").args(["-f", "-c", "%T"]).arg(&file).output().expect("it runs");
    let kind = String::from_utf8_lossy(&kind.stdout).trim().to_owned();
    if kind == "tmpfs" {
        println!("passed over: the tests' folder is in memory, and a file there is a device");
        return;
    }
    let line = start(&file);
    assert!(line.contains("without DAX"), "{kind}: {line}");
}

#[test]
fn memory_nodes_are_chosen() {
    let _alone = place::alone();
    let scratch = Scratch::new("regions-numa");
    let node = Node::start(&scratch, "32M");
    node.ok(&["create", "plain", "4M"]);
    node.ok(&["create", "bound", "4M", "--numa", "bind:0"]);
    node.refused(
        &["create", "far", "4M", "--numa", "interleave:0,63"],
        "no memory node 63 that this node may use: there is 0",
    );
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
