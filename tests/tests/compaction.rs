//! The kernel moves the frames of the whole machine: no test has to run beside this one.

use loam_tests::borrow::Borrow;
use loam_tests::place::{self, Scratch};
use loam_tests::{shell, workloads};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);

fn walk() -> Command {
    workloads::memwalk(96, 5, "blocks")
}

/// Has the kernel move the frames of the whole machine about for as long as this lives, by compaction.
struct Compaction {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Compaction {
    const FILE: &str = "/proc/sys/vm/compact_memory";

    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                std::fs::write(Self::FILE, "1").expect("root may");
            }
        });
        Self { stop, thread: Some(thread) }
    }

    /// Frames that the kernel has migrated since the machine started.
    fn migrated() -> u64 {
        let vmstat = std::fs::read_to_string("/proc/vmstat").expect("every kernel has it");
        let count = vmstat.lines().find_map(|line| line.strip_prefix("pgmigrate_success "));
        count.expect("a kernel that compacts counts it").parse().expect("a number")
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().expect("dropped once").join();
        assert!(ended.is_ok() || std::thread::panicking(), "compaction was refused");
    }
}

/// A page that is being migrated cannot be moved at once. Linux 6.18 then moves others without counting them: each must be found all the
/// same.
#[test]
fn frames_migrate_meanwhile() {
    let _alone = place::alone();
    if std::fs::OpenOptions::new().write(true).open(Compaction::FILE).is_err() {
        println!("passed over: compaction is for root, and not in every kernel");
        return;
    }
    let scratch = Scratch::new("migrate");
    let plain = shell::run(&mut walk(), scratch.path(), "plain", LIMIT);
    assert_eq!(plain.code(), 0, "{}", plain.stderr);
    let expected = String::from_utf8(plain.stdout).expect("ASCII");
    let before = Compaction::migrated();
    let compaction = Compaction::start();
    let borrowed = Borrow::new(scratch.path()).local_mib(32).embedded("1x512M").run(&walk(), None, LIMIT);
    drop(compaction);
    borrowed.assert_right(&expected, "under compaction");
    let migrated = Compaction::migrated() - before;
    assert!(migrated > 0, "nothing was migrated");
    println!("{migrated} frames migrated in {:.1} s", borrowed.ended.wall.as_secs_f64());
}
