//! fio's verification, a public test of file systems, over `loam mount`: each block of a file carries what it must be, and fio checks every one
//! by each way in which programs read. The cache is smaller than the file, so that runs leave and come back.

use loam_tests::mounted::{self, Mount, settle};
use loam_tests::place::{self, Scratch};
use loam_tests::shell::{self, Ended};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const SIZE: &str = "48m";
const BLOCK: &str = "64k";

fn fio(file: &Path, dir: &Path, args: &[&str]) -> Ended {
    let mut fio = Command::new("fio");
    fio.args(["--name=verify", "--verify=xxhash", "--verify_interval=4096", "--verify_fatal=1"]);
    fio.arg(format!("--size={SIZE}")).arg(format!("--bs={BLOCK}")).args(args);
    fio.arg(format!("--filename={}", file.to_str().expect("UTF-8")));
    shell::run(fio.current_dir(dir), dir, "fio", LIMIT)
}

#[test]
fn every_way_to_read_verifies() {
    if !mounted::possible("every_way_to_read_verifies") {
        return;
    }
    let _alone = place::alone_here();
    let scratch = Scratch::new("mount-fio");
    let dir = scratch.path();
    let source = scratch.join("source");
    fs::create_dir(&source).expect("writable");
    let made = fio(&source.join("file"), dir, &["--rw=write", "--do_verify=0", "--ioengine=psync"]);
    assert_eq!(made.code(), 0, "{}", made.stderr);
    settle();
    let first = Mount::new(dir, "first", &source, &["--cache", "16M", "--listen", "127.0.0.1:0"]);
    let peer = first.addr().to_string();
    let second = Mount::new(dir, "second", &source, &["--cache", "16M", "--peer", &peer]);
    for engine in ["psync", "mmap", "libaio", "io_uring"] {
        for order in ["read", "randread"] {
            for mount in [&first, &second] {
                let ways =
                    ["--readonly", &format!("--rw={order}"), &format!("--ioengine={engine}"), "--iodepth=8"];
                let read = fio(&mount.at.join("file"), dir, &ways);
                let what = format!("{engine}, {order}: {}", read.stderr);
                assert_eq!(read.code(), 0, "{what}");
                let text = String::from_utf8_lossy(&read.stdout).into_owned();
                assert!(text.contains("err= 0") && text.contains("io=48.0MiB"), "{what}\n{text}");
            }
        }
    }
    assert!(second.figure("runs_from_peers") > 0, "the second mount never asked the first");

    // It can fail: one wrong byte is found.
    let file = fs::File::options().write(true).open(source.join("file")).expect("writable");
    file.write_all_at(b"?", 30 << 20 | 1234).expect("writable");
    settle();
    let read = fio(&first.at.join("file"), dir, &["--readonly", "--rw=read", "--ioengine=psync"]);
    assert_ne!(read.code(), 0, "fio does not look at what it reads");
    second.end();
    first.end();
}
