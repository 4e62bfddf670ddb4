//! What the disk store costs: runs of 32 pages and single pages through it, beside plain sequential O_DIRECT writes
//! of the same size; then recovery and random reads.
//!
//!     cargo run --release -p loam-node --example disk_store -- DIR [MiB]

use loam_core::ids::{SpaceId, Version};
use loam_core::units::Bytes;
use loam_node::disk_store::{Completion, DiskStore, PageIn, Refused};
use loam_wire::page_hash;
use rustix::event::{PollFd, PollFlags};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

const PAGE: usize = 4096;
/// Pages that the tests write over and over: nothing compresses or merges them.
const DISTINCT: usize = 1024;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().expect("usage: disk_store DIR [MiB]");
    let mib: u64 = arguments.next().map_or(1024, |text| text.parse().expect("a number of MiB"));
    let dir = Path::new(&dir);
    let pages = mib * 1024 * 1024 / PAGE as u64;
    let contents = random_pages();
    let hashes: Vec<_> = contents.iter().map(|page| page_hash(page)).collect();

    plain(dir, pages, &contents);

    let store_dir = dir.join("store");
    let size = Bytes(mib * 1024 * 1024 * 3 / 2 + (8 << 20));
    let begin = Instant::now();
    let (mut store, found) = DiskStore::open(&store_dir, size).expect("no store");
    println!("made: {:.2} s for {size}", begin.elapsed().as_secs_f64());
    assert!(found.is_empty(), "there is a store with pages already");
    store.notes().iter().for_each(|note| println!("{note}"));
    for (version, run) in [(1, 32), (2, 32), (3, 1)] {
        // Single pages wait for a sync each time that the queue is full: fewer of them say enough.
        let count = if run == 1 { pages / 8 } else { pages };
        let before = store.figures();
        let begin = Instant::now();
        let mut next = 0;
        let mut waits = Vec::new();
        let mut begun = BTreeMap::new();
        while (waits.len() as u64) < count.div_ceil(run) {
            while next < count {
                let end = (next + run).min(count);
                let these: Vec<PageIn<'_>> = (next..end)
                    .map(|index| {
                        let which = (index as usize * 7 + version as usize) % DISTINCT;
                        (index, Version(version), hashes[which], &contents[which])
                    })
                    .collect();
                match store.write(SpaceId(1), &these) {
                    Ok(token) => {
                        begun.insert(token, Instant::now());
                        next = end;
                    }
                    // Slots of older versions come back with the next sync.
                    Err(Refused::Busy | Refused::Full { .. }) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            wait(&store);
            for completion in store.poll() {
                let Completion::Durable { token } = completion else { panic!("{completion:?}") };
                waits.push(begun[&token].elapsed().as_secs_f64() * 1e3);
            }
        }
        let (figures, seconds) = (store.figures(), begin.elapsed().as_secs_f64());
        waits.sort_by(f64::total_cmp);
        println!(
            "store, runs of {run}, version {version}: {:.0} MB/s of pages durable ({} writes, {} syncs; durable \
             after {:.0} ms, one in a hundred {:.0})",
            (count * PAGE as u64) as f64 / seconds / 1e6,
            figures.writes - before.writes,
            figures.syncs - before.syncs,
            waits[waits.len() / 2],
            waits[waits.len() * 99 / 100],
        );
    }
    drop(store);

    let begin = Instant::now();
    let (mut store, found) = DiskStore::open(&store_dir, size).expect("no store");
    let (seconds, read) = (begin.elapsed().as_secs_f64(), store.figures().bytes_read);
    let mb_s = read as f64 / seconds / 1e6;
    println!("recovery: {} pages in {seconds:.2} s, {} read ({mb_s:.0} MB/s)", found.len(), Bytes(read));

    let count = 4096;
    let begin = Instant::now();
    let mut draw = 1_u64;
    let (mut begun, mut ended) = (0, 0);
    while ended < count {
        while begun < count && begun - ended < 8 {
            draw = draw.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            let page = found[(draw >> 20) as usize % found.len()];
            store.read(page.space, page.index, page.version).expect("it was found");
            begun += 1;
        }
        wait(&store);
        ended += store.poll().inspect(|c| assert!(matches!(c, Completion::Read { .. }), "{c:?}")).count();
    }
    println!(
        "random reads, 8 at once: {:.0} us each",
        begin.elapsed().as_secs_f64() * 1e6 * 8.0 / count as f64
    );
    drop(store);
    std::fs::remove_dir_all(&store_dir).expect("the store was ours");
}

fn wait(store: &DiskStore) {
    let fd = store.event_fd();
    rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).expect("poll");
}

/// The floor: the same bytes, one run of 32 after the other, one write at a time and an fdatasync at the end.
fn plain(dir: &Path, pages: u64, contents: &[[u8; PAGE]]) {
    std::fs::create_dir_all(dir).expect("no directory");
    let path = dir.join("plain");
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().write(true).create(true).truncate(true).custom_flags(direct).open(&path);
    let file = file.expect("no O_DIRECT here");
    let length = pages * PAGE as u64;
    let flags = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&file, flags, 0, length).expect("no room");
    // Aligned by hand: a whole run at a multiple of 4096.
    let mut memory = vec![0; 33 * PAGE];
    let start = memory.as_ptr().align_offset(PAGE);
    let run = &mut memory[start..start + 32 * PAGE];
    for (to, from) in run.chunks_exact_mut(PAGE).zip(contents) {
        to.copy_from_slice(from);
    }
    for pass in ["fresh", "again"] {
        let begin = Instant::now();
        for at in (0..length).step_by(run.len()) {
            let end = run.len().min((length - at) as usize);
            file.write_all_at(&run[..end], at).expect("writing");
        }
        rustix::fs::fdatasync(&file).expect("fdatasync");
        println!(
            "plain O_DIRECT, 128 KiB after 128 KiB, {pass}: {:.0} MB/s",
            length as f64 / begin.elapsed().as_secs_f64() / 1e6
        );
    }
    std::fs::remove_file(&path).expect("it was ours");
}

fn random_pages() -> Vec<[u8; PAGE]> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut page = || {
        let mut page = [0; PAGE];
        for eight in page.as_chunks_mut().0 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *eight = state.to_le_bytes();
        }
        page
    };
    (0..DISTINCT).map(|_| page()).collect()
}
