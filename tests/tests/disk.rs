//! A disk that is full, fills up, or cannot be written. Nothing is lost; a person is told.

use loam_tests::borrow::{Borrow, Borrowed};
use loam_tests::place::{self, Scratch};
use loam_tests::{shell, workloads};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// A small file system in memory; unmounted at the end.
struct Mount(PathBuf);

impl Mount {
    /// None if this user may not mount.
    fn new(at: &Path, options: &str) -> Option<Self> {
        if !place::is_root() {
            println!("passed over: only root may mount a small file system");
            return None;
        }
        fs::create_dir_all(at).expect("the scratch folder is writable");
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", options, "loam-test"]).arg(at).output();
        match done {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            other => {
                println!("passed over: mount is not possible here: {other:?}");
                None
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

fn walk() -> Command {
    workloads::memwalk(96, 4, "blocks")
}

fn expected(scratch: &Scratch) -> String {
    let plain = shell::run(&mut walk(), scratch.path(), "plain", LIMIT);
    assert_eq!(plain.code(), 0, "{}", plain.stderr);
    String::from_utf8(plain.stdout).expect("ASCII")
}

/// Either the run ends well and says what happened, or it is ended by one line that names the folder. Wrong data is never an outcome.
fn nothing_lost(borrowed: &Borrowed, expected: &str, disk: &Path, what: &str) {
    let ended = &borrowed.ended;
    let told = format!("{}{}", ended.stderr, borrowed.warnings().join("\n"));
    assert!(!ended.stderr.contains("WRONG"), "{what}: the program saw wrong data: {}", ended.stderr);
    assert!(told.contains(disk.to_str().expect("UTF-8")), "{what}: nobody was told where: {told}");
    let stdout = String::from_utf8_lossy(&ended.stdout);
    if ended.code() == 0 {
        assert_eq!(stdout, expected, "{what}");
    } else {
        assert!(expected.starts_with(&*stdout), "{what}: printed something else");
        let ours = ended.error_lines().into_iter().filter(|line| line.starts_with("loam")).count();
        assert_eq!(ours, 1, "{what}: one line is due: {}", ended.stderr);
    }
    println!("{what}: status {}, {told}", ended.code());
}

#[test]
fn a_disk_that_is_too_small() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("small-disk");
    let disk = scratch.join("disk");
    for (size, lenders) in [("8m", "2x512M"), ("48m", "2x512M"), ("48m", "")] {
        let Some(_mount) = Mount::new(&disk, &format!("size={size},mode=700")) else { return };
        let mut borrow = Borrow::new(scratch.path()).local_mib(32).disk(&disk);
        if !lenders.is_empty() {
            borrow = borrow.embedded(lenders);
        }
        let borrowed = borrow.run(&walk(), None, LIMIT);
        nothing_lost(
            &borrowed,
            &expected(&scratch),
            &disk,
            &format!("a disk of {size}, lenders '{lenders}'"),
        );
    }
}

#[test]
fn a_disk_that_fills_up() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("filling-disk");
    let disk = scratch.join("disk");
    let expected = expected(&scratch);
    for moment in ["filled", "pass 1"] {
        let Some(_mount) = Mount::new(&disk, "size=400m,mode=700") else { return };
        let borrow = Borrow::new(scratch.path()).local_mib(32).disk(&disk).embedded("1x512M");
        let mut running = borrow.start(&walk(), None);
        running.run.wait_for_line(moment, LIMIT);
        // Somebody else takes all the room that is left.
        let mut hog = fs::File::create(disk.join("hog")).expect("writable");
        let _ = std::io::copy(&mut std::io::repeat(1), &mut hog);
        let borrowed = running.finish(LIMIT);
        // Space that was reserved ahead may suffice: then there is nothing to tell.
        if borrowed.ended.code() == 0 {
            assert_eq!(String::from_utf8_lossy(&borrowed.ended.stdout), expected, "filled up at '{moment}'");
        } else {
            nothing_lost(&borrowed, &expected, &disk, &format!("filled up at '{moment}'"));
        }
    }
}

/// The slot file does not outlive the run, however that ends.
#[test]
fn the_slot_file_is_removed() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("slots");
    let disk = scratch.join("disk");
    let files = || -> Vec<PathBuf> {
        fs::read_dir(&disk).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    let borrow = Borrow::new(scratch.path()).local_mib(32).disk(&disk);
    borrow.run(&walk(), None, LIMIT).assert_ended_well("with a disk");
    assert_eq!(files(), Vec::<PathBuf>::new(), "after a run that ended well");
    let mut running = borrow.start(&walk(), None);
    running.run.wait_for_line("pass 1", LIMIT);
    loam_tests::procfs::send(running.run.pid(), rustix::process::Signal::KILL);
    drop(running);
    borrow.run(&walk(), None, LIMIT).assert_ended_well("after a killed run");
    assert_eq!(files(), Vec::<PathBuf>::new(), "after a run that was killed and one that was not");
}
