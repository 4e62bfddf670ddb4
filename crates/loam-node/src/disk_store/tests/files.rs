//! On real files: io_uring and threads, with O_DIRECT and without.

use super::*;
use crate::disk_store::file::FILE_NAME;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const SIZE: Bytes = Bytes::from_mib(4);

/// A directory that is removed again.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("loam-store-test-{}-{number}", std::process::id())))
    }

    fn file(&self) -> PathBuf {
        self.0.join(FILE_NAME)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

type Opened = Result<(DiskStore, Vec<StoredPage>), DiskStoreError>;

fn each_way(test: impl Fn(&Dir, &dyn Fn(Bytes) -> Opened)) {
    for direct in [true, false] {
        for choice in [Choice::Best, Choice::Threads] {
            let dir = Dir::new();
            test(&dir, &|size| DiskStore::open_as(&dir.0, size, direct, choice));
        }
    }
}

fn one_line(error: Option<DiskStoreError>) -> String {
    let line = error.expect("it was opened").to_string();
    assert!(!line.contains('\n') && line.starts_with("disk store"), "{line}");
    line
}

#[test]
fn what_is_durable_is_there_after_the_store_is_opened_again() {
    each_way(|_, open| {
        let (mut store, pages) = open(SIZE).unwrap();
        assert!(pages.is_empty());
        let slots = store.figures().slots;
        assert!((512..=768).contains(&slots), "{slots} slots in 4 MiB");
        for group in 0..8 {
            let pages: Vec<_> = (group * 32..group * 32 + 32).map(|index| (index, 1)).collect();
            write(&mut store, 3, &pages).unwrap();
        }
        write(&mut store, 4, &[(9, 5), (11, 6)]).unwrap();
        let ended = settle(&mut store);
        assert!(ended.iter().all(|c| matches!(c, Completion::Durable { .. })), "{ended:?}");
        assert_eq!(store.figures().writes, 9, "one write a run");
        write(&mut store, 3, &[(0, 2)]).unwrap();
        store.forget_space(SpaceId(4));
        settle(&mut store);
        drop(store);

        let (mut store, pages) = open(SIZE).unwrap();
        assert_eq!(pages.len(), 256, "a page of the space that has gone, or one too few");
        for page in &pages {
            let version = if page.index == 0 { 2 } else { 1 };
            assert_eq!((page.space, page.version), (SpaceId(3), Version(version)));
            read(&mut store, 3, page.index, version).unwrap();
        }
        assert_eq!((store.figures().slots_free, store.figures().pages), (slots - 256, 256));
        check(&store);
    });
}

#[test]
fn the_file_is_this_users_alone_and_has_its_space() {
    each_way(|dir, open| {
        drop(open(SIZE).unwrap());
        let file = std::fs::metadata(dir.file()).unwrap();
        assert_eq!(file.mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(&dir.0).unwrap().mode() & 0o777, 0o700);
        assert!(file.len() <= SIZE.0 && file.len() > SIZE.0 - 2 * 8192, "{} bytes", file.len());
        let (store, _) = open(SIZE).unwrap();
        let mut descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let ours = descriptors.find(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == dir.file()));
        let info =
            std::fs::read_to_string(format!("/proc/self/fdinfo/{}", ours.unwrap().file_name().display()));
        let flags = info
            .unwrap()
            .lines()
            .find_map(|line| line.strip_prefix("flags:").map(str::trim).map(str::to_owned));
        let flags = u32::from_str_radix(&flags.unwrap(), 8).unwrap();
        assert_eq!(flags & rustix::fs::OFlags::NONBLOCK.bits(), 0, "EAGAIN where a worker should wait");
        if !store.notes().iter().any(|note| note.contains("reserved")) {
            assert!(file.blocks() * 512 >= file.len(), "holes");
        }
        std::fs::set_permissions(dir.file(), std::fs::Permissions::from_mode(0o644)).unwrap();
        drop(store);
        open(SIZE).unwrap();
        assert_eq!(std::fs::metadata(dir.file()).unwrap().mode() & 0o777, 0o600);
    });
}

#[test]
fn two_lenders_cannot_have_one_store() {
    let dir = Dir::new();
    let (store, _) = DiskStore::open(&dir.0, SIZE).unwrap();
    let error = one_line(DiskStore::open(&dir.0, SIZE).err());
    assert!(error.contains("in use by another lender"), "{error}");
    drop(store);
    DiskStore::open(&dir.0, SIZE).unwrap();
}

#[test]
fn a_place_of_somebody_else_is_refused() {
    let dir = Dir::new();
    std::fs::create_dir(&dir.0).unwrap();
    if std::os::unix::fs::chown(&dir.0, Some(12345), None).is_err() {
        println!("skipped: only root can give a directory away");
        return;
    }
    let error = DiskStore::open(&dir.0, SIZE).err();
    assert!(matches!(error, Some(DiskStoreError::Foreign { owner_uid: 12345, .. })), "{error:?}");
    one_line(error);
    std::os::unix::fs::chown(&dir.0, Some(0), None).unwrap();
    std::fs::write(dir.file(), b"").unwrap();
    std::os::unix::fs::chown(dir.file(), Some(12345), None).unwrap();
    assert!(one_line(DiskStore::open(&dir.0, SIZE).err()).contains(FILE_NAME));
    std::fs::remove_file(dir.file()).unwrap();
    std::os::unix::fs::symlink("/dev/null", dir.file()).unwrap();
    one_line(DiskStore::open(&dir.0, SIZE).err());
}

#[test]
fn what_is_no_store_is_left_alone() {
    let dir = Dir::new();
    std::fs::create_dir(&dir.0).unwrap();
    std::fs::write(dir.file(), vec![7; 100_000]).unwrap();
    assert!(one_line(DiskStore::open(&dir.0, SIZE).err()).contains("no disk store"));
    assert_eq!(std::fs::read(dir.file()).unwrap(), vec![7; 100_000]);
    let error = one_line(DiskStore::open(std::path::Path::new("/dev/null/store"), SIZE).err());
    assert!(error.contains("--store DIR"), "{error}");
    for size in [Bytes(0), Bytes::from_mib(1), Bytes(u64::MAX)] {
        assert!(one_line(DiskStore::open(&Dir::new().0, size).err()).contains("--store-size"));
    }
}

#[test]
fn a_damaged_superblock_is_read_from_its_copy_and_another_format_is_named() {
    let dir = Dir::new();
    let (mut store, _) = DiskStore::open(&dir.0, SIZE).unwrap();
    write(&mut store, 1, &[(1, 1)]).unwrap();
    settle(&mut store);
    let geometry = store.geometry;
    drop(store);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(dir.file()).unwrap();
    file.write_all_at(&[0xFF; 100], 0).unwrap();
    let (store, pages) = DiskStore::open(&dir.0, SIZE).unwrap();
    assert_eq!((pages.len(), store.geometry), (1, geometry));
    drop(store);
    // Both of another format: bytes 12 to 16, and a CRC that agrees.
    let mut block = vec![0; 4096];
    geometry.encode(&mut block);
    block[12] = 9;
    block[8..12].fill(0);
    let crc = crc32c::crc32c(&block);
    block[8..12].copy_from_slice(&crc.to_le_bytes());
    file.write_all_at(&block, 0).unwrap();
    file.write_all_at(&block, 4096).unwrap();
    assert!(one_line(DiskStore::open(&dir.0, SIZE).err()).contains("format 9"));
}

#[test]
fn a_store_that_died_while_it_was_made_is_made_again() {
    let dir = Dir::new();
    std::fs::create_dir(&dir.0).unwrap();
    std::fs::write(dir.file(), vec![0; 1 << 20]).unwrap();
    let (mut store, pages) = DiskStore::open(&dir.0, SIZE).unwrap();
    assert!(pages.is_empty());
    write(&mut store, 1, &[(1, 1)]).unwrap();
    settle(&mut store);
}

#[test]
fn a_store_grows_and_becomes_smaller_where_nothing_is_in_the_way() {
    each_way(|dir, open| {
        let (mut store, _) = open(SIZE).unwrap();
        let slots = store.figures().slots;
        // The last slots are in use.
        let all: Vec<_> = (0..slots).map(|index| (index, 1)).collect();
        for pages in all.chunks(32) {
            write(&mut store, 1, pages).unwrap();
        }
        settle(&mut store);
        assert_eq!(store.figures().slots_free, 0);
        drop(store);
        let (mut store, pages) = open(Bytes(2 * SIZE.0)).unwrap();
        assert_eq!(pages.len() as u64, slots);
        assert!(store.figures().slots > 2 * slots);
        write(&mut store, 1, &[(slots, 1)]).unwrap();
        settle(&mut store);
        read(&mut store, 1, slots, 1).unwrap();
        drop(store);
        let error = one_line(open(SIZE).err());
        assert!(error.contains("1 pages") && error.contains("--store-size"), "{error}");
        let (mut store, _) = open(Bytes(2 * SIZE.0)).unwrap();
        store.forget_space(SpaceId(1));
        settle(&mut store);
        drop(store);
        let (store, pages) = open(SIZE).unwrap();
        assert_eq!((pages.len(), store.figures().slots), (0, slots));
        assert!(std::fs::metadata(dir.file()).unwrap().len() <= SIZE.0);
    });
}

/// A tmpfs of this size that nobody else sees: its path is good while the descriptor is open.
fn small_disk(bytes: u64) -> Option<(OwnedFd, PathBuf)> {
    let config = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    rustix::mount::fsconfig_set_string(&config, "size", bytes.to_string()).ok()?;
    rustix::mount::fsconfig_create(&config).ok()?;
    let mount =
        rustix::mount::fsmount(&config, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).ok()?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/store", mount.as_raw_fd()));
    Some((mount, path))
}

#[test]
fn a_full_disk_says_how_much_is_free_and_nothing_is_left_behind() {
    let Some((_mount, path)) = small_disk(2 << 20) else {
        println!("skipped: mounts are not permitted");
        return;
    };
    let error = DiskStore::open(&path, SIZE).err();
    assert!(matches!(error, Some(DiskStoreError::Space { .. })), "{error:?}");
    let line = one_line(error);
    assert!(line.contains("2.0 MiB are free") && line.contains("--store-size"), "{line}");
    assert_eq!(std::fs::metadata(path.join(FILE_NAME)).unwrap().blocks(), 0);
    let (mut store, _) = DiskStore::open(&path, Bytes(3 << 19)).unwrap();
    write(&mut store, 1, &[(1, 1)]).unwrap();
    settle(&mut store);
    read(&mut store, 1, 1, 1).unwrap();
}

#[test]
fn a_limit_of_file_sizes_is_an_error_not_a_signal() {
    let before = rustix::process::getrlimit(rustix::process::Resource::Fsize);
    // Other tests of this process write nothing so large.
    let limit = rustix::process::Rlimit { current: Some(1 << 40), maximum: before.maximum };
    if rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).is_err() {
        println!("skipped: the limit is lower already");
        return;
    }
    let error = one_line(DiskStore::open(&Dir::new().0, Bytes(2 << 40)).err());
    rustix::process::setrlimit(rustix::process::Resource::Fsize, before).unwrap();
    assert!(error.contains("ulimit -f"), "{error}");
}

#[test]
fn a_flipped_bit_in_the_file_is_never_read_as_a_page() {
    each_way(|dir, open| {
        let (mut store, _) = open(SIZE).unwrap();
        write(&mut store, 1, &[(1, 1), (2, 1)]).unwrap();
        settle(&mut store);
        let first = PageId { space: SpaceId(1), index: 1 };
        let records::Found::Slot(slot) = store.records.find(first, Version(1)) else { panic!("not there") };
        let at = store.geometry.offset_bytes(slot) + u64::from(store.geometry.header_bytes) + 77;
        drop(store);
        let file = std::fs::OpenOptions::new().read(true).write(true).open(dir.file()).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 16], at).unwrap();
        let (mut store, pages) = open(SIZE).unwrap();
        assert_eq!(pages.iter().map(|page| page.index).collect::<Vec<_>>(), [2]);
        assert_eq!(store.figures().corrupt, 1);
        read(&mut store, 1, 2, 1).unwrap();
    });
}

/// What [`a_lender_that_is_killed_keeps_what_it_promised`] kills.
#[test]
#[ignore = "a child of another test"]
fn child_that_is_killed() {
    let Ok(dir) = std::env::var("LOAM_TEST_STORE") else { return };
    let (mut store, _) = DiskStore::open(std::path::Path::new(&dir), SIZE).unwrap();
    let mut pages = BTreeMap::new();
    for version in 1.. {
        let first = u64::from(version) * 7 % 64;
        let run: Vec<_> = (first..first + 16).map(|index| (index, version)).collect();
        if let Ok(token) = write(&mut store, 1, &run) {
            pages.insert(token, (first, version));
        }
        for completion in store.poll() {
            let Completion::Durable { token } = completion else { panic!("{completion:?}") };
            let (first, version) = pages[&token];
            println!("durable {first} {version}");
        }
    }
}

#[test]
fn a_lender_that_is_killed_keeps_what_it_promised() {
    let dir = Dir::new();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "disk_store::tests::files::child_that_is_killed", "--ignored", "--nocapture"])
        .env("LOAM_TEST_STORE", &dir.0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut promised: BTreeMap<u64, u32> = BTreeMap::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let note = |line: &str, promised: &mut BTreeMap<u64, u32>| {
        let mut words = line.split(' ').skip(1);
        let Some((first, version)) = words.next().zip(words.next()) else { return };
        // A line that was cut off promises nothing.
        let (Ok(first), Ok(version)) = (first.parse::<u64>(), version.parse::<u32>()) else { return };
        for index in first..first + 16 {
            let newest = promised.entry(index).or_default();
            *newest = version.max(*newest);
        }
    };
    let mut count = 0;
    while count < 40 {
        let line = lines.next().expect("the child ended").unwrap();
        if line.starts_with("durable") {
            note(&line, &mut promised);
            count += 1;
        }
    }
    child.kill().unwrap();
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    // The last line may have been cut off in the middle of its number.
    for line in rest.iter().take(rest.len().saturating_sub(1)) {
        note(line, &mut promised);
    }
    child.wait().unwrap();
    let (mut store, pages) = DiskStore::open(&dir.0, SIZE).unwrap();
    let found: BTreeMap<u64, u32> = pages.iter().map(|page| (page.index, page.version.0)).collect();
    for (index, version) in promised {
        assert!(found.get(&index) >= Some(&version), "{index}: {version} of {:?}", found.get(&index));
    }
    for (index, version) in found {
        read(&mut store, 1, index, version).unwrap();
    }
}
