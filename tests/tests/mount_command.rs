//! `loam mount` and `loam unmount` as commands: what they refuse, and how a mount ends.

use loam_tests::mounted::{self, Mount};
use loam_tests::place::{self, Scratch};
use loam_tests::{procfs, shell};
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn loam(args: &[&Path], dir: &Path) -> shell::Ended {
    shell::run(Command::new(place::loam()).args(args), dir, "loam", LIMIT)
}

fn assert_refused(ended: &shell::Ended, words: &[&str], what: &str) {
    assert_eq!(ended.code(), 125, "{what}: {}", ended.stderr);
    assert_eq!(ended.error_lines().len(), 1, "{what}: one line is due: {}", ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "{what}: no {word:?} in {}", ended.stderr);
    }
}

#[test]
fn what_cannot_be_mounted_is_refused_in_one_line() {
    let _alone = place::alone();
    if !mounted::possible("what_cannot_be_mounted_is_refused_in_one_line") {
        return;
    }
    let scratch = Scratch::new("mount-refused");
    let dir = |name: &str| {
        fs::create_dir_all(scratch.join(name)).expect("writable");
        scratch.join(name)
    };
    let (source, empty, full) = (dir("source/inside"), dir("empty"), dir("full"));
    let source = source.parent().expect("just made");
    fs::write(full.join("file"), "").expect("writable");
    for foreground in [true, false] {
        let mount = |source: &Path, at: &Path, more: &[&str]| {
            let mut args = vec![Path::new("mount"), source, at];
            args.extend(more.iter().map(Path::new));
            args.extend(foreground.then_some(Path::new("--foreground")));
            loam(&args, scratch.path())
        };
        assert_refused(&mount(&scratch.join("nowhere"), &empty, &[]), &["nowhere", "source"], "no source");
        assert_refused(&mount(&full.join("file"), &empty, &[]), &["file", "directory"], "a file as source");
        assert_refused(&mount(source, &full, &[]), &["full", "not empty"], "a full mountpoint");
        assert_refused(
            &mount(source, &full.join("file"), &[]),
            &["file", "directory"],
            "a file as mountpoint",
        );
        assert_refused(&mount(source, &scratch.join("nowhere"), &[]), &["nowhere"], "no mountpoint");
        assert_refused(&mount(source, &source.join("inside"), &[]), &["in each other"], "inside the source");
        assert_refused(&mount(source, &empty, &["--cache", "1M"]), &["--cache"], "a tiny cache");
        assert_refused(
            &mount(source, &empty, &["--listen", "0.0.0.0:0"]),
            &["--insecure"],
            "an open address",
        );
    }
    assert_refused(&loam(&[Path::new("unmount"), &empty], scratch.path()), &["empty"], "nothing mounted");
    let mount = Mount::new(scratch.path(), "empty", source, &[]);
    let again = loam(&[Path::new("mount"), source, &mount.at], scratch.path());
    assert_refused(&again, &["already mounted", "loam unmount"], "a second mount there");
    mount.end();
}

#[test]
fn a_mount_ends_in_every_way() {
    let _alone = place::alone();
    if !mounted::possible("a_mount_ends_in_every_way") {
        return;
    }
    let scratch = Scratch::new("mount-ends");
    let source = scratch.join("source");
    fs::create_dir(&source).expect("writable");
    fs::write(source.join("file"), "text").expect("writable");
    let at = scratch.join("view");
    fs::create_dir(&at).expect("writable");
    let unmount = |more: &[&str]| {
        let mut args = vec![Path::new("unmount"), &at];
        args.extend(more.iter().map(Path::new));
        loam(&args, scratch.path())
    };
    // In the background: it is there when the command returns.
    let ended = loam(&[Path::new("mount"), &source, &at], scratch.path());
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    assert_eq!(fs::read(at.join("file")).expect("it is there"), b"text");
    // In use; then not.
    let open = File::open(at.join("file")).expect("there");
    assert_refused(&unmount(&[]), &["in use", "--lazy"], "a busy one");
    drop(open);
    assert_eq!(unmount(&[]).code(), 0);
    assert!(!mounted::is_mounted(&at));

    // Ctrl-C while a file is open: taken away all the same.
    let mount = Mount::new(scratch.path(), "view", &source, &[]);
    let open = File::open(mount.at.join("file")).expect("there");
    mount.end();
    drop(open);

    // Killed: what is left says so, and can be taken away.
    let mount = Mount::new(scratch.path(), "view", &source, &[]);
    let pid = mount.pid();
    mount.send(Signal::KILL);
    procfs::wait_until(LIMIT, || fs::read_dir(&at).is_err()).expect("its process has gone");
    assert!(!procfs::runs(pid) || fs::metadata(&at).is_err());
    let again = loam(&[Path::new("mount"), &source, &at], scratch.path());
    assert_refused(&again, &["loam unmount"], "a dead one is in the way");
    assert_eq!(unmount(&[]).code(), 0);
    drop(mount);

    // Unmounted by others: the process ends by itself.
    let mount = Mount::new(scratch.path(), "view", &source, &[]);
    let pid = mount.pid();
    assert_eq!(unmount(&["--lazy"]).code(), 0);
    let gone = || {
        !Path::new(&format!("/proc/{pid}/exe")).exists() || fs::read_link(format!("/proc/{pid}/exe")).is_err()
    };
    procfs::wait_until(LIMIT, gone).expect("it ends");
}
