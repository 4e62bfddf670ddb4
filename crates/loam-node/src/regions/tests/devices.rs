//! Regions of a device: here a file in memory by path, which the node treats in the same way.

use super::super::pool;
use super::*;
use loam_wire::RegionSpan;
use std::path::PathBuf;

/// A file in memory, gone with this.
pub(super) struct DeviceFile {
    path: PathBuf,
    pages: u64,
    /// As a device does: what is given back stays as it is.
    keeps: bool,
}

impl DeviceFile {
    pub(super) fn new(name: &str, pages: u64, keeps: bool) -> Self {
        let path = PathBuf::from(format!("/dev/shm/loam-regions-{name}-{}", std::process::id()));
        std::fs::File::create(&path).expect("made");
        let this = Self { path, pages, keeps };
        this.fill();
        this
    }

    /// What somebody had there before.
    fn fill(&self) {
        std::fs::write(&self.path, vec![9; (self.pages * PAGE) as usize]).expect("written");
    }

    /// Base pages of memory that it has.
    fn there(&self) -> u64 {
        rustix::fs::stat(&self.path).expect("there").st_blocks as u64 * 512 / PAGE
    }

    fn pools(&self) -> (Vec<pool::Pool>, Vec<String>) {
        pool::open(std::slice::from_ref(&self.path), Path::new("/")).expect("a file in memory")
    }

    pub(super) fn book(&self, lend: u64) -> Book<Counted> {
        let (mut pools, _) = self.pools();
        if self.keeps {
            pools = pools.into_iter().map(pool::Pool::into_medium).collect();
            self.fill();
        }
        Book::new((BasePages(lend), Bytes(0)), pools, Path::new("/"), OWN, room(lend))
    }

    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn create(&self, name: &str, pages: u64, uid: u32) -> Call {
        Call { device: self.name(), ..call(RegionCall::Create, name, pages, 0, 1, uid) }
    }
}

impl Drop for DeviceFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn opened(book: &mut Book<Counted>, name: &str, connection: u64) -> (Vec<RegionSpan>, std::fs::File) {
    match handle(book, &call(RegionCall::Open, name, 0, 0, connection, OWN)) {
        Ok(Answer::Region(entry, spans, files)) => {
            assert_eq!(spans.len(), files.len());
            assert_eq!(spans.iter().map(RegionSpan::bytes).sum::<u64>(), entry.bytes());
            let file = files[0].try_clone().expect("a descriptor");
            (spans, std::fs::File::from(file))
        }
        other => panic!("{other:?}"),
    }
}

fn bytes(spans: &[RegionSpan], file: &std::fs::File) -> Vec<u8> {
    let mut all = Vec::new();
    for span in spans {
        let mut part = vec![0; span.bytes() as usize];
        file.read_exact_at(&mut part, span.offset()).expect("read");
        all.extend(part);
    }
    all
}

#[test]
fn a_second_region_never_sees_the_firsts_bytes() {
    for keeps in [false, true] {
        never_sees_the_firsts_bytes(&DeviceFile::new("bytes", 16, keeps));
    }
}

fn never_sees_the_firsts_bytes(device: &DeviceFile) {
    let mut book = device.book(4);
    let made = handle(&mut book, &device.create("a", 10, OWN));
    assert_eq!(
        (book.room().taken.get(), book.sizes()),
        (0, vec![(1, 10)]),
        "it costs the node's memory nothing"
    );
    assert_eq!(entry(made).device(), device.name());
    let (spans, file) = opened(&mut book, "a", 2);
    assert!(bytes(&spans, &file).iter().all(|byte| *byte == 0), "nor what was there before");
    for span in &spans {
        file.write_all_at(&vec![7; span.bytes() as usize], span.offset()).expect("written");
    }
    assert_eq!(why(handle(&mut book, &device.create("b", 7, OWN))), Some(RegionRefusal::NoRoom));
    // In place: what is kept stays, what is cut off is another's.
    let cut = handle(&mut book, &call(RegionCall::Resize, "a", 4, 0, 2, OWN));
    assert_eq!(entry(cut).bytes(), 4 * PAGE);
    handle(&mut book, &device.create("b", 12, OWN)).expect("room");
    book.audit();
    let (others, _) = opened(&mut book, "b", 3);
    assert!(bytes(&others, &file).iter().all(|byte| *byte == 0));
    for (span, other) in spans.iter().zip(&others) {
        let end = span.offset() + 4 * PAGE;
        assert!(end <= other.offset() || other.offset() + other.bytes() <= span.offset(), "given twice");
    }
    book.handle_gone(2);
    let (spans, _) = opened(&mut book, "a", 2);
    assert!(bytes(&spans, &file).iter().all(|byte| *byte == 7), "what is kept is kept");
    // It grows by what is given back.
    handle(&mut book, &call(RegionCall::Remove, "b", 0, 0, 1, OWN)).expect("there");
    book.handle_gone(3);
    handle(&mut book, &call(RegionCall::Resize, "a", 16, 0, 2, OWN)).expect("room");
    let (spans, _) = opened(&mut book, "a", 2);
    let now = bytes(&spans, &file);
    assert!(
        now[..4 * PAGE as usize].iter().all(|byte| *byte == 7)
            && now[4 * PAGE as usize..].iter().all(|byte| *byte == 0)
    );
    book.audit();
}

/// Who has one region of it has the descriptor of all of it.
#[test]
fn only_who_could_open_the_device_gets_a_region_of_it() {
    let device = DeviceFile::new("users", 16, false);
    let mut book = device.book(4);
    let me = rustix::process::geteuid().as_raw();
    assert_ne!(me, OWN, "the test says who the node's user is");
    assert_eq!(why(handle(&mut book, &device.create("theirs", 1, me + 7))), Some(RegionRefusal::Denied));
    assert_eq!(why(handle(&mut book, &device.create("mine", 1, me))), None, "the file is this user's");
    assert_eq!(why(handle(&mut book, &device.create("nodes", 1, OWN))), None);
    assert_eq!(
        why(handle(&mut book, &call(RegionCall::Open, "nodes", 0, 0, 5, me))),
        Some(RegionRefusal::Denied)
    );
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&device.path, Some(me + 7), None).expect("root may");
        assert_eq!(
            why(handle(&mut book, &call(RegionCall::Open, "mine", 0, 0, 5, me))),
            Some(RegionRefusal::Denied)
        );
        assert_eq!(why(handle(&mut book, &device.create("theirs", 1, me + 7))), None);
    }
    book.audit();
}

#[test]
fn a_call_reaches_no_other_path() {
    let device = DeviceFile::new("paths", 16, true);
    let mut book = device.book(4);
    let refused = |book: &mut Book<Counted>, call: &Call| handle(book, call).expect_err("refused");
    let other = Call { device: "/dev/shm/other".into(), ..device.create("a", 1, OWN) };
    let (why, text) = refused(&mut book, &other);
    assert!(why == RegionRefusal::NotFound && text.contains(&device.name()), "{text}");
    let huge = Call { flags: region_flag::HUGE, ..device.create("a", 1, OWN) };
    assert_eq!(refused(&mut book, &huge).0, RegionRefusal::Invalid);
    let bound = Call { policy: MemoryPolicy::Bind(1), ..device.create("a", 1, OWN) };
    assert_eq!(refused(&mut book, &bound).0, RegionRefusal::Invalid);
    let (_, text) = refused(&mut super::book(4, 4), &device.create("a", 1, OWN));
    assert!(text.contains("with none"), "{text}");
    assert!(book.sizes().is_empty());
}

/// A number that stands for anybody is nobody's; and paths are for who may use them.
#[test]
fn who_has_no_number_owns_nothing_and_strangers_hear_no_paths() {
    let device = DeviceFile::new("anybody", 16, false);
    let mut book = device.book(4);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&device.path, Some(65534), None).expect("root may");
        let answer = handle(&mut book, &device.create("theirs", 1, 65534));
        assert_eq!(why(answer), Some(RegionRefusal::Denied));
    }
    let other = Call { device: "/dev/shm/other".into(), ..device.create("a", 1, 77) };
    let (why, text) = handle(&mut book, &other).expect_err("refused");
    assert!(why == RegionRefusal::NotFound && !text.contains(&device.name()), "{text}");
}

/// What a killed node leaves: a program that has a region mapped. The next node gets the device when that has ended.
#[test]
fn a_device_of_which_somebody_has_a_region_is_not_taken() {
    let device = DeviceFile::new("restart", 16, false);
    let mut first = device.book(4);
    handle(&mut first, &device.create("a", 4, OWN)).expect("room");
    let (_, kept) = opened(&mut first, "a", 2);
    drop(first);
    device.fill();
    let (pools, warnings) = device.pools();
    assert!(warnings.len() == 1 && warnings[0].contains("yet"), "{warnings:?}");
    let mut second = Book::new((BasePages(4), Bytes(0)), pools, Path::new("/"), OWN, room(4));
    assert_eq!(why(handle(&mut second, &device.create("a", 4, OWN))), Some(RegionRefusal::InUse));
    assert_eq!(device.there(), 16, "it is not this node's");
    drop(kept);
    assert_eq!(why(handle(&mut second, &device.create("a", 4, OWN))), None);
    assert_eq!(device.there(), 4, "what the first node's programs had is gone");
    let (spans, file) = opened(&mut second, "a", 2);
    assert!(bytes(&spans, &file).iter().all(|byte| *byte == 0));
    // The lock is asked for each time: who has the descriptor can let others have it.
    rustix::fs::flock(&file, rustix::fs::FlockOperation::Unlock).expect("ours");
    let other = std::fs::File::open(&device.path).expect("there");
    rustix::fs::flock(&other, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("free");
    assert_eq!(why(handle(&mut second, &device.create("b", 4, OWN))), Some(RegionRefusal::InUse));
    let grow = call(RegionCall::Resize, "a", 8, 0, 2, OWN);
    assert_eq!(why(handle(&mut second, &grow)), Some(RegionRefusal::InUse));
    drop(other);
    assert_eq!(why(handle(&mut second, &grow)), None);
    assert!(bytes(&spans, &file).iter().all(|byte| *byte == 0) && device.there() == 8, "it kept what it had");
    let twice = pool::open(&[device.path.clone(), device.path.clone()], Path::new("/"));
    assert!(twice.is_err());
}

/// What cannot be cleared is nobody's, and neither is its place.
#[test]
fn where_clearing_fails_nothing_is_left() {
    for keeps in [false, true] {
        let device = DeviceFile::new("fails", 16, keeps);
        let mut book = device.book(4);
        let had = if keeps { 16 } else { 0 };
        assert_eq!(device.there(), had, "memory of before is given back when it becomes the node's");
        book.room().ends_after.set(Some(1));
        assert!(handle(&mut book, &device.create("a", 10, OWN)).is_err());
        assert_eq!(device.there(), had, "given back");
        book.audit();
        book.room().ends_after.set(None);
        // Nobody waits for it any more.
        assert!(book.begin(&device.create("a", 10, OWN)).is_none() && book.go_on().is_none());
        assert!(device.there() > 0);
        book.handle_gone(1);
        assert_eq!(device.there(), had, "given back");
        handle(&mut book, &device.create("a", 16, OWN)).expect("all of it is free");
        book.audit();
    }
}
