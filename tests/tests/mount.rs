//! `loam mount`: the same tree, read in every way, while its source changes, goes and comes back.

use loam_tests::cluster::{Cluster, SETTLED};
use loam_tests::mounted::{self, Mount, assert_same_tree, bytes, name, settle, write_settled};
use loam_tests::place::{self, Scratch};
use loam_tests::{procfs, shell};
use rustix::fs::{AtFlags, CWD, FileType, Mode, SeekFrom, Timespec, Timestamps, XattrFlags};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// A user without any rights.
const NOBODY: &str = "65534";
const RUN_BYTES: usize = 128 << 10;

fn source_in(scratch: &Scratch) -> PathBuf {
    let source = scratch.join("source");
    fs::create_dir(&source).expect("writable");
    source
}

fn sh(script: &str, dir: &Path) -> shell::Ended {
    shell::run(Command::new("sh").args(["-c", script]), dir, "sh", LIMIT)
}

/// A tree with something of everything.
fn grow(source: &Path) {
    for (seed, size) in [
        0,
        1,
        4095,
        4096,
        4097,
        RUN_BYTES - 1,
        RUN_BYTES,
        RUN_BYTES + 1,
        (1 << 20) - 1,
        (1 << 20) + 1,
        5_000_003,
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(source.join(format!("size-{size}")), bytes(seed as u64, size)).expect("writable");
    }
    let sparse = File::create(source.join("sparse")).expect("writable");
    sparse.set_len(40 << 20).expect("the file system has holes");
    for at in [0, 3 << 20, (17 << 20) + 5, (40 << 20) - 9] {
        sparse.write_all_at(&bytes(at, 9), at).expect("writable");
    }
    for odd in [&b"not \xff\xfe UTF-8"[..], b"line\nbreak", b" ", b"\\", b"-", b"...", b"\x01\x7f"] {
        fs::write(source.join(name(odd)), odd).expect("any name will do");
    }
    fs::write(source.join("n".repeat(255)), "long").expect("255 bytes are a name");
    let mut deep = source.to_owned();
    for level in 0..40 {
        deep.push(format!("directory-{level}"));
    }
    fs::create_dir_all(&deep).expect("writable");
    fs::write(deep.join("file"), "deep").expect("writable");
    symlink("size-4096", source.join("link")).expect("links can be made");
    symlink("/no/such/file", source.join("dangling")).expect("links can be made");
    symlink(name(b"../\xff"), source.join("odd link")).expect("links can be made");
    fs::hard_link(source.join("size-4097"), deep.join("hard link")).expect("links can be made");
    rustix::fs::mknodat(CWD, source.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0)
        .expect("root may");
    rustix::fs::mknodat(
        CWD,
        source.join("null"),
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o666),
        rustix::fs::makedev(1, 3),
    )
    .expect("root may");
    for (file, mode) in [("size-1", 0o4755), ("size-4095", 0o000), ("size-4096", 0o1777)] {
        fs::set_permissions(source.join(file), fs::Permissions::from_mode(mode)).expect("ours");
    }
    chown(source.join("size-0"), Some(12_345), Some(4_000_000_000)).expect("root may");
    rustix::fs::setxattr(source.join("size-1"), "user.note", b"\0any\xff", XattrFlags::empty())
        .expect("ext4 has these");
    let past = Timespec { tv_sec: -5, tv_nsec: 123_456_789 };
    let times = Timestamps { last_access: past, last_modification: past };
    rustix::fs::utimensat(CWD, source.join("size-4097"), &times, AtFlags::empty()).expect("ours");
}

#[test]
fn a_tree_is_shown_as_it_is() {
    let _alone = place::alone_here();
    if !mounted::possible("a_tree_is_shown_as_it_is") {
        return;
    }
    let scratch = Scratch::new("mount-tree");
    let source = source_in(&scratch);
    grow(&source);
    settle();
    let mount = Mount::new(scratch.path(), "view", &source, &[]);
    let files = assert_same_tree(&source, &mount.at);
    assert!(files > 60, "{files}");
    // Again, now from memory.
    let read = mount.figure("source_bytes");
    assert_eq!(assert_same_tree(&source, &mount.at), files);
    assert_eq!(mount.figure("source_bytes"), read, "nothing is read twice");
    // Holes are where they were.
    let (ours, theirs) = (
        File::open(mount.at.join("sparse")).expect("there"),
        File::open(source.join("sparse")).expect("there"),
    );
    for at in [0, 1 << 20, 3 << 20, 39 << 20] {
        for seek in [SeekFrom::Hole(at), SeekFrom::Data(at)] {
            assert_eq!(rustix::fs::seek(&ours, seek), rustix::fs::seek(&theirs, seek), "{seek:?}");
        }
    }
    let mut note = [0; 16];
    let length = rustix::fs::getxattr(mount.at.join("size-1"), "user.note", &mut note[..]).expect("shown");
    assert_eq!(&note[..length], b"\0any\xff");
    let error = fs::write(mount.at.join("new"), "x").expect_err("it is read-only");
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()));
    mount.end();
}

#[test]
fn a_directory_of_a_hundred_thousand() {
    let _alone = place::alone_here();
    if !mounted::possible("a_directory_of_a_hundred_thousand") {
        return;
    }
    let scratch = Scratch::new("mount-many");
    let source = source_in(&scratch);
    let template = source.join("0");
    fs::write(&template, "").expect("writable");
    for at in 1..100_000 {
        // Links are quicker to make than files; only so many go to one file.
        let from = source.join((at / 50_000 * 50_000).to_string());
        let new = source.join(at.to_string());
        if from == new {
            fs::write(&new, "").expect("writable")
        } else {
            fs::hard_link(&from, &new).expect("room")
        }
    }
    let mount = Mount::new(scratch.path(), "view", &source, &[]);
    assert_eq!(assert_same_tree(&source, &mount.at), 100_001);
    // What the kernel forgets is forgotten.
    fs::write("/proc/sys/vm/drop_caches", "2").expect("root may");
    procfs::wait_until(LIMIT, || mount.figure("inodes") < 10).expect("the table shrinks again");
    mount.end();
}

/// What is mounted in the source may be of a server that is gone: then there is a name, of a file of which nothing can be known.
#[test]
fn what_cannot_be_looked_at_is_listed() {
    let _alone = place::alone_here();
    if !mounted::possible("what_cannot_be_looked_at_is_listed") {
        return;
    }
    let scratch = Scratch::new("mount-unseen");
    let source = source_in(&scratch);
    let inside = scratch.join("inside");
    fs::create_dir(&inside).expect("writable");
    (0..9).for_each(|at| fs::write(source.join(format!("file {at}")), "text").expect("writable"));
    let dead = Mount::new(&source, "dead", &inside, &[]);
    let mount = Mount::new(scratch.path(), "view", &source, &[]);
    dead.send(Signal::KILL);
    procfs::wait_until(LIMIT, || fs::metadata(&dead.at).is_err()).expect("it is dead");
    let names = |dir: &Path| {
        let names = fs::read_dir(dir).expect("there").map(|entry| entry.expect("listed").file_name());
        names.collect::<BTreeSet<_>>()
    };
    for _ in 0..2 {
        assert_eq!(names(&mount.at), names(&source));
        assert!(
            fs::metadata(mount.at.join("dead")).is_err() && fs::metadata(mount.at.join("file 8")).is_ok()
        );
    }
    mount.end();
}

#[test]
fn permissions_are_the_sources() {
    let _alone = place::alone_here();
    if !mounted::possible("permissions_are_the_sources") {
        return;
    }
    let scratch = Scratch::new("mount-rights");
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let source = source_in(&scratch);
    for (file, mode) in
        [("open", 0o644), ("closed", 0o600), ("nobody's", 0o400), ("dir/inside", 0o644), ("acl", 0o600)]
    {
        let path = source.join(file);
        fs::create_dir_all(path.parent().expect("in the source")).expect("writable");
        fs::write(&path, "text").expect("writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
    }
    chown(source.join("nobody's"), Some(65_534), None).expect("root may");
    fs::set_permissions(source.join("dir"), fs::Permissions::from_mode(0o700)).expect("ours");
    // user::rw-, user:65534:r--, group::---, mask::r--, other::--- (linux/posix_acl_xattr.h).
    let entries: [(u16, u16, u32); 5] = [(1, 6, !0), (2, 4, 65_534), (4, 0, !0), (16, 4, !0), (32, 0, !0)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(perm.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    rustix::fs::setxattr(source.join("acl"), "system.posix_acl_access", &list, XattrFlags::empty())
        .expect("ext4 has lists");
    let mount = Mount::new(scratch.path(), "view", &source, &[]);
    for file in ["open", "closed", "nobody's", "dir/inside", "acl"] {
        let as_nobody = |root: &Path| {
            let mut cat = Command::new("setpriv");
            cat.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "cat"]).arg(root.join(file));
            shell::run(&mut cat, scratch.path(), "cat", LIMIT).code()
        };
        let expected = if matches!(file, "closed" | "dir/inside") { 1 } else { 0 };
        assert_eq!((as_nobody(&source), as_nobody(&mount.at)), (expected, expected), "{file}");
    }
    mount.end();
}

#[test]
fn mapped_and_direct_reads_are_the_same() {
    let _alone = place::alone_here();
    if !mounted::possible("mapped_and_direct_reads_are_the_same") {
        return;
    }
    let scratch = Scratch::new("mount-ways");
    let source = source_in(&scratch);
    write_settled(&source.join("file"), &bytes(1, 9_000_123));
    let mount = Mount::new(scratch.path(), "view", &source, &[]);
    let map = "import mmap,sys,hashlib;f=open(sys.argv[1],'rb');m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ);\
               p=[m[i] for i in range(0,len(m),40961)];print(hashlib.sha256(m).hexdigest(),sum(p))";
    let scripts = [
        format!("python3 -c \"{map}\" DIR/file"),
        "dd if=DIR/file bs=64k iflag=direct status=none | sha256sum".to_string(),
        "dd if=DIR/file bs=1M iflag=direct skip=3 status=none | sha256sum".to_string(),
        "dd if=DIR/file bs=777 skip=5000 count=3000 status=none | sha256sum".to_string(),
        "cat DIR/file | sha256sum".to_string(),
        "cp DIR/file copy && sha256sum < copy".to_string(),
    ];
    for script in scripts {
        let of = |root: &Path| {
            let script = format!(
                "cd {}; {}",
                scratch.path().display(),
                script.replace("DIR", root.to_str().expect("UTF-8"))
            );
            let ended = sh(&script, scratch.path());
            assert_eq!(ended.code(), 0, "{script}: {}", ended.stderr);
            String::from_utf8(ended.stdout).expect("a sum")
        };
        let theirs = of(&source);
        assert!(theirs.len() > 20);
        assert_eq!(of(&mount.at), theirs, "{script}");
    }
    mount.end();
}

#[test]
fn a_changed_file_is_seen_changed_at_the_next_open() {
    let _alone = place::alone_here();
    if !mounted::possible("a_changed_file_is_seen_changed_at_the_next_open") {
        return;
    }
    let scratch = Scratch::new("mount-change");
    let source = source_in(&scratch);
    let (there, file) = (source.join("file"), "file");
    write_settled(&there, &bytes(0, 300_000));
    let mount = Mount::new(scratch.path(), "view", &source, &[]);
    let read = || fs::read(mount.at.join(file)).expect("readable");
    assert!(read() == bytes(0, 300_000));
    for round in 1..60_u64 {
        let new = match round % 5 {
            // In place with the same length and the same time of modification.
            0 => {
                let new = bytes(round, read().len());
                let stat = rustix::fs::stat(&there).expect("there");
                File::options()
                    .write(true)
                    .open(&there)
                    .expect("there")
                    .write_all_at(&new, 0)
                    .expect("writable");
                let at = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
                let times = Timestamps { last_access: at, last_modification: at };
                rustix::fs::utimensat(CWD, &there, &times, AtFlags::empty()).expect("ours");
                new
            }
            // Another file under the same name.
            1 => {
                let new = bytes(round, 200_000 + round as usize);
                fs::write(source.join("other"), &new).expect("writable");
                fs::rename(source.join("other"), &there).expect("the same folder");
                new
            }
            // Shorter; longer; gone and made again.
            2 => {
                let new = bytes(round, 10);
                fs::write(&there, &new).expect("writable");
                new
            }
            3 => {
                let mut new = read();
                let more = bytes(round, 150_000);
                File::options().append(true).open(&there).expect("there").write_all(&more).expect("writable");
                new.extend(more);
                new
            }
            _ => {
                fs::remove_file(&there).expect("there");
                let new = bytes(round, 131_072);
                fs::write(&there, &new).expect("writable");
                new
            }
        };
        assert!(read() == new, "round {round}: at once");
        if round % 4 == 0 {
            settle();
            assert!(read() == new && read() == new, "round {round}: settled, and from memory");
        }
    }
    assert!(mount.figure("versions_changed") > 20);
    mount.end();
}

#[test]
fn a_file_may_shrink_grow_and_vanish_while_it_is_open() {
    let _alone = place::alone_here();
    if !mounted::possible("a_file_may_shrink_grow_and_vanish_while_it_is_open") {
        return;
    }
    let scratch = Scratch::new("mount-shrink");
    let source = source_in(&scratch);
    let there = source.join("file");
    let long = bytes(3, 20 << 20);
    write_settled(&there, &long);
    let mount = Mount::new(scratch.path(), "view", &source, &[]);
    let mut open = File::open(mount.at.join("file")).expect("there");
    let mut start = vec![0; 100_000];
    open.read_exact(&mut start).expect("there");
    assert!(start == long[..100_000]);
    File::options().write(true).open(&there).expect("there").set_len(6 << 20).expect("writable");
    let mut rest = Vec::new();
    open.read_to_end(&mut rest).expect("an end is no error");
    // What was read ahead may still be of before; nothing else than the file's bytes ever comes.
    assert!(rest.len() >= (6 << 20) - 100_000 && rest[..] == long[100_000..100_000 + rest.len()]);
    // Grown again: the same open file shows it once it is looked at.
    File::options().append(true).open(&there).expect("there").write_all(&long[6 << 20..]).expect("writable");
    thread::sleep(Duration::from_millis(1200));
    assert_eq!(open.metadata().expect("open").len(), 20 << 20);
    let mut end = vec![0; 1 << 20];
    open.read_exact_at(&mut end, 19 << 20).expect("it is there again");
    assert!(end == long[19 << 20..]);
    let another = File::open(mount.at.join("file")).expect("there");
    // Removed: whoever has it open reads on, as on any file system.
    fs::remove_file(&there).expect("there");
    open.read_exact_at(&mut start, 9 << 20).expect("it is still open");
    assert!(start == long[9 << 20..][..100_000]);
    // Another one who had it open has closed it.
    drop(another);
    thread::sleep(Duration::from_millis(1200));
    assert!(File::open(mount.at.join("file")).is_err() && open.metadata().is_ok());
    drop(open);
    mount.end();
}

#[test]
fn the_source_may_go_away_and_come_back() {
    let _alone = place::alone_here();
    if !mounted::possible("the_source_may_go_away_and_come_back") {
        return;
    }
    let scratch = Scratch::new("mount-away");
    let source = source_in(&scratch);
    fs::create_dir(source.join("dir")).expect("writable");
    fs::write(source.join("dir/cached"), bytes(1, 3_000_000)).expect("writable");
    write_settled(&source.join("dir/unread"), &bytes(2, 3_000_000));
    let mount = Mount::new(scratch.path(), "view", &source, &[]);
    assert!(fs::read(mount.at.join("dir/cached")).expect("there") == bytes(1, 3_000_000));
    assert_eq!(fs::metadata(mount.at.join("dir/unread")).expect("there").len(), 3_000_000);
    fs::rename(&source, scratch.join("elsewhere")).expect("the same folder");
    thread::sleep(Duration::from_millis(1600));
    let code = |path: &str| fs::read(mount.at.join(path)).map_err(|error| error.raw_os_error());
    let eio = Err(Some(rustix::io::Errno::IO.raw_os_error()));
    assert!(code("dir/cached").expect("it is cached") == bytes(1, 3_000_000));
    assert_eq!(code("dir/unread"), eio);
    assert_eq!(code("never seen"), eio);
    fs::rename(scratch.join("elsewhere"), &source).expect("the same folder");
    procfs::wait_until(LIMIT, || code("dir/unread").is_ok()).expect("it comes back by itself");
    assert!(code("dir/unread") == Ok(bytes(2, 3_000_000)) && code("dir/cached") == Ok(bytes(1, 3_000_000)));
    // Attributes may be a second old.
    thread::sleep(Duration::from_millis(1200));
    assert_eq!(assert_same_tree(&source, &mount.at), 4);
    // Another directory takes its place.
    fs::rename(&source, scratch.join("old")).expect("the same folder");
    fs::create_dir(&source).expect("writable");
    fs::write(source.join("new"), "new").expect("writable");
    procfs::wait_until(LIMIT, || code("new").is_ok()).expect("the new one is shown");
    assert!(code("dir/unread").is_err());
    mount.end();
}

#[test]
fn threads_read_at_random_and_get_what_is_there() {
    let _alone = place::alone_here();
    if !mounted::possible("threads_read_at_random_and_get_what_is_there") {
        return;
    }
    let scratch = Scratch::new("mount-random");
    let source = source_in(&scratch);
    let files: Vec<Vec<u8>> = (0..4).map(|seed| bytes(seed, 9_000_000 + 4097 * seed as usize)).collect();
    for (at, contents) in files.iter().enumerate() {
        fs::write(source.join(at.to_string()), contents).expect("writable");
    }
    settle();
    // Less room than there is to read: what leaves is read again.
    let first = Mount::new(scratch.path(), "one", &source, &["--cache", "8M", "--listen", "127.0.0.1:0"]);
    let peer = first.addr().to_string();
    let second = Mount::new(scratch.path(), "two", &source, &["--cache", "16M", "--peer", &peer]);
    thread::scope(|scope| {
        for seed in 0..6_u64 {
            let (files, at) = (&files, if seed % 2 == 0 { &first.at } else { &second.at });
            scope.spawn(move || {
                let draws = bytes(seed + 100, 8 * 3 * 400);
                let mut draws =
                    draws.chunks_exact(8).map(|draw| u64::from_le_bytes(draw.try_into().expect("eight")));
                for _ in 0..400 {
                    let mut draw = || draws.next().expect("three a round") as usize;
                    let file = draw() % files.len();
                    let contents = &files[file];
                    let offset = draw() % contents.len();
                    let mut buffer = vec![0; 1 + draw() % 400_000];
                    let open = File::open(at.join(file.to_string())).expect("there");
                    if seed == 5 {
                        // Its pages are dropped, so that the mount and not the kernel answers.
                        rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed).expect("a hint");
                    }
                    let read = open.read_at(&mut buffer, offset as u64).expect("readable");
                    assert!(read == buffer.len().min(contents.len() - offset), "short inside of the file");
                    assert!(buffer[..read] == contents[offset..offset + read], "file {file} at {offset}");
                }
            });
        }
    });
    assert!(second.figure("runs_from_peers") > 0 && first.figure("runs_evicted") > 0);
    first.send(Signal::TERM);
    drop((first, second));
}

#[test]
fn what_one_mount_has_read_another_gets_from_its_memory() {
    let _alone = place::alone_here();
    if !mounted::possible("what_one_mount_has_read_another_gets_from_its_memory") {
        return;
    }
    let scratch = Scratch::new("mount-shared");
    let source = source_in(&scratch);
    let a = Mount::new(scratch.path(), "a", &source, &["--listen", "127.0.0.1:0"]);
    let peer = a.addr().to_string();
    let b = Mount::new(scratch.path(), "b", &source, &["--peer", &peer]);
    let c = Mount::new(scratch.path(), "c", &source, &["--peer", &peer, "--peer", &b.addr().to_string()]);
    for mount in [&a, &b, &c] {
        procfs::wait_until(LIMIT, || mount.figure("peers") == 2).expect("they know each other");
    }
    // On a machine that is busy, the news may be late, or an answer later than a reader waits: then the source is read, or, while
    // it is away, an error comes. So there are several rounds; what is read is right in each, and one must be without the source.
    let mut without_source = [false; 2];
    for round in 0..10_u64 {
        let file = round.to_string();
        let contents = bytes(round, 30_000_001);
        write_settled(&source.join(&file), &contents);
        let figures = |mount: &Mount| (mount.figure("source_bytes"), mount.figure("runs_from_peers"));
        let (before_b, before_c) = (figures(&b), figures(&c));
        assert!(fs::read(a.at.join(&file)).expect("there") == contents);
        thread::sleep(Duration::from_millis(500));
        assert!(fs::read(b.at.join(&file)).expect("there") == contents);
        without_source[0] |= figures(&b) == (before_b.0, before_b.1 + 229);
        // And now with the source gone: c knows the file, and has nothing of it.
        assert_eq!(fs::metadata(c.at.join(&file)).expect("there").len(), 30_000_001);
        fs::rename(&source, scratch.join("gone")).expect("the same folder");
        thread::sleep(Duration::from_millis(1600));
        match fs::read(c.at.join(&file)) {
            Ok(read) => {
                assert!(read == contents);
                without_source[1] |= figures(&c) == (before_c.0, before_c.1 + 229);
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error())),
        }
        fs::rename(scratch.join("gone"), &source).expect("the same folder");
        procfs::wait_until(LIMIT, || fs::read_dir(&c.at).is_ok() && fs::read_dir(&b.at).is_ok())
            .expect("it is back");
        if without_source == [true; 2] {
            break;
        }
    }
    assert_eq!(without_source, [true; 2], "b and c read without the source");
    for mount in [a, b, c] {
        mount.end();
    }
}

#[test]
fn a_mount_that_hangs_or_dies_costs_time_only() {
    let _alone = place::alone_here();
    if !mounted::possible("a_mount_that_hangs_or_dies_costs_time_only") {
        return;
    }
    let scratch = Scratch::new("mount-dies");
    let source = source_in(&scratch);
    let contents: Vec<Vec<u8>> = (0..12).map(|seed| bytes(seed, 8 << 20)).collect();
    for (at, contents) in contents.iter().enumerate() {
        fs::write(source.join(at.to_string()), contents).expect("writable");
    }
    settle();
    let a = Mount::new(scratch.path(), "a", &source, &["--listen", "127.0.0.1:0"]);
    let b = Mount::new(scratch.path(), "b", &source, &["--peer", &a.addr().to_string()]);
    procfs::wait_until(LIMIT, || a.figure("peers") == 1 && b.figure("peers") == 1)
        .expect("they know each other");
    let read = |mount: &Mount, file: usize| {
        assert!(fs::read(mount.at.join(file.to_string())).expect("there") == contents[file], "{file}");
    };
    (0..12).for_each(|file| read(&a, file));
    thread::sleep(Duration::from_millis(200));
    read(&b, 0);
    a.send(Signal::STOP);
    read(&b, 1);
    procfs::wait_until(LIMIT, || b.figure("peers") == 0).expect("it is seen to hang");
    read(&b, 2);
    a.send(Signal::CONT);
    procfs::wait_until(LIMIT, || b.figure("peers") == 1).expect("it is seen again");
    let from_peers = b.figure("runs_from_peers");
    // One answer may be late on a busy machine, and what it was for comes from the source: there are several rounds.
    let asked = (3..11).any(|file| {
        thread::sleep(Duration::from_millis(300));
        read(&b, file);
        b.figure("runs_from_peers") > from_peers
    });
    assert!(asked, "and asked again");
    a.send(Signal::KILL);
    read(&b, 11);
    procfs::wait_until(LIMIT, || b.figure("peers") == 0).expect("it is seen to be gone");
    (0..12).for_each(|file| read(&b, file));
    b.end();
}

/// Where machines run nodes nobody names peers: mounts find each other, also one that is made before its node, and another source's stay apart.
#[test]
fn mounts_of_a_cluster_find_each_other() {
    if !mounted::possible("mounts_of_a_cluster_find_each_other") {
        return;
    }
    let _alone = place::alone_here();
    let scratch = Scratch::new("mount-found");
    let (dir, source) = (scratch.path(), source_in(&scratch));
    let contents = bytes(9, 3 << 20);
    let files: Vec<String> = (0..8).map(|number| format!("file-{number}")).collect();
    files.iter().for_each(|file| write_settled(&source.join(file), &contents));
    let mut cluster = Cluster::on_loopback(2);
    cluster.agrees(&[0, 1], SETTLED);
    cluster.nodes[1].kill();
    let socket = |number: usize| cluster.nodes[number].socket().to_str().expect("UTF-8").to_owned();
    let (here, there) = (socket(0), socket(1));
    let first = Mount::new(dir, "first", &source, &["--name", "one", "--node", &here]);
    let second = Mount::new(dir, "second", &source, &["--name", "one", "--node", &there]);
    let other = Mount::new(dir, "other", &source, &["--name", "two", "--node", &here]);
    cluster.nodes[1].start();
    let found = procfs::wait_until(LIMIT, || {
        first.figure("peers") == 1 && second.figure("peers") == 1 && other.figure("peers") == 0
    });
    found.unwrap_or_else(|_| panic!("{}", cluster.logs()));
    let shared = files.iter().any(|file| {
        assert!(fs::read(first.at.join(file)).expect("readable") == contents);
        // The directory hears of it a moment later; an answer that is late is not waited for.
        thread::sleep(Duration::from_millis(500));
        assert!(fs::read(second.at.join(file)).expect("readable") == contents);
        second.figure("runs_from_peers") > 0
    });
    assert!(shared, "the second reader went to the source each time");
    assert_eq!(other.figure("runs_from_peers"), 0);
    for mount in [other, second, first] {
        mount.end();
    }
}
