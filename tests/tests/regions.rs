//! Direct regions with real processes: made by the command, written by one program, read by another, through deaths of both sides.

use loam_tests::place::{self, Scratch};
use loam_tests::procfs;
use loam_tests::region_node::{Holder, MIB, Node, SOON, as_nobody, for_other_users, region_of};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Output;

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
    let Some((scratch, loam)) = for_other_users("regions-users") else { return };
    let node = Node::start(&scratch, "64M");
    node.ok(&["create", "roots", "4M"]);
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
