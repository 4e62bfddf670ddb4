//! The watch against fake files and a clock of our own.

use super::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// A root folder with fake files, gone with the test.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("loam-watch-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn meminfo(&self, available: u64) -> &Self {
        let text =
            format!("MemTotal: {} kB\nMemFree: 1 kB\nMemAvailable:   {} kB\n", 16 << 20, available / 1024);
        self.write("proc/meminfo", &text)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn machine(available: u64) -> Vec<Reading> {
    let (total, available) = (Bytes(16 * GIB), Bytes(available));
    vec![Reading { place: Place::Machine, total, available, stalled_us: None }]
}

#[test]
fn nothing_is_held_back_while_there_is_enough() {
    let mut governor = Governor::new(Bytes(4 * GIB), Bytes(GIB));
    let now = Instant::now();
    assert_eq!(governor.look(now, Bytes(0), &machine(8 * GIB)), Bytes(4 * GIB));
    assert_eq!(governor.look(now, Bytes(4 * GIB), &machine(GIB)), Bytes(4 * GIB), "the reserve, exactly");
    assert_eq!(governor.report().reason, "");
}

#[test]
fn it_shrinks_at_once_and_grows_back_slowly() {
    let mut governor = Governor::new(Bytes(4 * GIB), Bytes(GIB));
    let mut now = Instant::now();
    // 3 GiB are short of the reserve, and an eighth of it goes besides.
    let short = machine(0);
    assert_eq!(governor.look(now, Bytes(4 * GIB), &short), Bytes(3 * GIB - GIB / 8));
    assert!(
        governor.report().reason.starts_with("this machine has 0 B available"),
        "{:?}",
        governor.report()
    );
    // The slab gives back what the machine then has: nothing more goes.
    let limit = governor.look(now, Bytes(3 * GIB - GIB / 8), &machine(GIB + GIB / 8));
    assert_eq!(limit, Bytes(3 * GIB - GIB / 8));
    // The need is over at once, but may come back: for a while nothing changes, then it goes step by step.
    let plenty = machine(8 * GIB);
    now += GROW_QUIET - Duration::from_millis(1);
    assert_eq!(governor.look(now, limit, &plenty), limit);
    let mut last = limit;
    let mut steps = 0;
    while last < Bytes(4 * GIB) {
        now += GROW_INTERVAL;
        let grown = governor.look(now, last, &plenty);
        assert!(grown > last && grown.0 - last.0 <= 4 * GIB / GROW_SHARE, "{last} to {grown}");
        assert_eq!(governor.look(now, last, &plenty), grown, "once an interval");
        last = grown;
        steps += 1;
    }
    assert!(steps >= 4);
    assert_eq!(governor.report().reason, "");
}

#[test]
fn what_is_available_only_just_is_not_taken_back() {
    let mut governor = Governor::new(Bytes(4 * GIB), Bytes(GIB));
    let mut now = Instant::now();
    let limit = governor.look(now, Bytes(4 * GIB), &machine(GIB / 2));
    for available in [GIB, GIB + GIB / 16, GIB + GIB / 8] {
        now += GROW_QUIET + GROW_INTERVAL;
        assert_eq!(governor.look(now, limit, &machine(available)), limit, "else it would swing");
    }
}

#[test]
fn a_slab_that_is_small_yet_may_not_outgrow_the_machine() {
    let mut governor = Governor::new(Bytes(4 * GIB), Bytes(GIB));
    let now = Instant::now();
    assert_eq!(governor.look(now, Bytes(MIB), &machine(2 * GIB)), Bytes(GIB + MIB));
    // Nothing is lent: nothing has to go, and nothing may come.
    assert_eq!(governor.look(now, Bytes(0), &machine(0)), Bytes(0));
}

#[test]
fn programs_that_wait_for_memory_double_the_reserve() {
    let mut governor = Governor::new(Bytes(4 * GIB), Bytes(GIB));
    let mut now = Instant::now();
    let at = |us| {
        let mut readings = machine(3 * GIB / 2);
        readings[0].stalled_us = Some(us);
        readings
    };
    assert_eq!(
        governor.look(now, Bytes(4 * GIB), &at(5_000_000)),
        Bytes(4 * GIB),
        "what was before is not known"
    );
    now += Duration::from_millis(100);
    assert_eq!(governor.look(now, Bytes(4 * GIB), &at(5_010_000)), Bytes(4 * GIB), "a tenth of the time");
    now += Duration::from_millis(100);
    let limit = governor.look(now, Bytes(4 * GIB), &at(5_030_000));
    assert_eq!(limit, Bytes(4 * GIB - GIB / 2 - GIB / 4));
    assert!(governor.report().reason.ends_with("programs wait for memory"));
}

#[test]
fn without_any_reading_nothing_changes() {
    let mut governor = Governor::new(Bytes(GIB), Bytes(MIB));
    assert_eq!(governor.look(Instant::now(), Bytes(GIB), &[]), Bytes(GIB));
}

#[test]
fn the_machine_is_read_as_the_kernel_writes_it() {
    let root = Root::new("machine");
    let sources = Sources::new(&root.0);
    assert_eq!(sources.read(), [], "nothing there tells nothing");
    root.meminfo(5 * GIB).write(
        "proc/pressure/memory",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=960072\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
    );
    let stalled_us = Some(960_072);
    let expected =
        Reading { place: Place::Machine, total: Bytes(16 * GIB), available: Bytes(5 * GIB), stalled_us };
    assert_eq!(sources.read(), [expected]);
    assert_eq!(sources.total(), Some(Bytes(16 * GIB)));
    root.write("proc/meminfo", "MemTotal: 5 kB\nMemAvailable: lots\n");
    assert_eq!(sources.read(), []);
}

#[test]
fn limits_of_every_group_around_it_count() {
    let root = Root::new("groups");
    root.meminfo(8 * GIB).write("proc/self/cgroup", "0::/outer/inner\n");
    let outer = "sys/fs/cgroup/outer";
    root.write(&format!("{outer}/memory.max"), &format!("{}\n", 2 * GIB))
        .write(&format!("{outer}/memory.high"), "max\n")
        .write(&format!("{outer}/memory.current"), &format!("{}\n", GIB + MIB))
        .write(&format!("{outer}/memory.stat"), &format!("anon 5\ninactive_file {MIB}\nactive_file 3\n"))
        .write(&format!("{outer}/inner/memory.max"), "max\n")
        .write(&format!("{outer}/inner/memory.high"), "max\n")
        .write(&format!("{outer}/inner/memory.current"), "5\n");
    let sources = Sources::new(&root.0);
    let readings = sources.read();
    assert_eq!(readings.len(), 2, "a group without a limit has nothing to say: {readings:?}");
    let place = Place::Group("/sys/fs/cgroup/outer".into());
    assert_eq!((&readings[1].place, readings[1].available), (&place, Bytes(GIB)));
    // It is the tighter one.
    let mut governor = Governor::new(Bytes(4 * GIB), Bytes(GIB));
    let limit = governor.look(Instant::now(), Bytes(MIB), &readings);
    assert_eq!(limit, Bytes(MIB + GIB - 2 * GIB / GROUP_RESERVE_SHARE));
    assert!(
        governor.report().reason.contains("/sys/fs/cgroup/outer (limit 2.0 GiB)"),
        "{:?}",
        governor.report()
    );
    let sizes = |total, available| Some(UsableMemory { total: Bytes(total), available: Bytes(available) });
    assert_eq!(usable_memory(&root.0), sizes(2 * GIB, GIB), "what a program in there may have");
    // The lower of the two limits holds.
    root.write(&format!("{outer}/memory.high"), &GIB.to_string());
    assert_eq!(sources.read()[1].available, Bytes(0));
    assert_eq!(usable_memory(&root.0), sizes(GIB, 0));
    root.write("proc/self/cgroup", "").meminfo(3 * GIB);
    assert_eq!(usable_memory(&root.0), sizes(16 * GIB, 3 * GIB), "no group has a limit");
    assert_eq!(usable_memory(&root.0.join("proc")), None);
}

#[test]
fn groups_of_version_one_are_read_too() {
    let root = Root::new("one");
    root.meminfo(8 * GIB).write("proc/self/cgroup", "8:pids:/\n4:memory:/box\n0::/\n");
    let group = "sys/fs/cgroup/memory/box";
    root.write(&format!("{group}/memory.limit_in_bytes"), &GIB.to_string())
        .write(&format!("{group}/memory.usage_in_bytes"), &(GIB - MIB).to_string())
        .write(&format!("{group}/memory.stat"), &format!("inactive_file 7\ntotal_inactive_file {MIB}\n"))
        .write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
        .write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
    let sources = Sources::new(&root.0);
    let readings = sources.read();
    assert_eq!(readings.len(), 2, "{readings:?}");
    assert_eq!(readings[1].available, Bytes(2 * MIB));
    // In a container: the path is one that is not mounted here.
    root.write("proc/self/cgroup", "4:memory:/docker/0123\n")
        .write("sys/fs/cgroup/memory/memory.limit_in_bytes", &GIB.to_string());
    assert_eq!(Sources::new(&root.0).read()[1].total, Bytes(GIB));
}

#[test]
fn this_machine_can_be_read() {
    let sources = Sources::new(Path::new("/"));
    let readings = sources.read();
    assert_eq!(readings[0].place, Place::Machine);
    assert!(readings[0].available > Bytes(0) && readings[0].available <= readings[0].total);
}
