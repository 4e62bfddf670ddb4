//! The store on a disk that loses power and fails, against a model; and on real files.

mod crashes;
mod faults;
mod files;
mod power;

use super::*;
use loam_wire::page_hash;
pub(crate) use power::PowerDisk;

/// A store on a disk that works until it is told not to, and the disk.
pub(crate) fn on_power_disk() -> (PowerDisk, DiskStore<PowerDisk>) {
    let geometry = Geometry { store: 7, header_bytes: 512, slots: 256 };
    let disk = PowerDisk::new(&geometry, 1);
    let (store, _) = disk.open(geometry);
    (disk, store)
}

impl DiskStore<PowerDisk> {
    /// What has gone is seen half freed.
    pub(crate) fn free_one_at_a_time(&mut self) {
        self.freed_at_once = 1;
    }
}

/// Contents that tell which page and version they are.
fn contents(space: u64, index: u64, version: u32) -> [u8; BASE_PAGE_BYTES] {
    let mut page = [0; BASE_PAGE_BYTES];
    let mut draw = power::Draw(space << 48 ^ index << 20 ^ u64::from(version));
    for eight in page.as_chunks_mut().0 {
        *eight = draw.next().to_le_bytes();
    }
    page
}

/// Begins to write pages of one version.
fn write<D: Device>(
    store: &mut DiskStore<D>,
    space: u64,
    pages: &[(u64, u32)],
) -> Result<WriteToken, Refused> {
    let filled: Vec<_> = pages.iter().map(|&(index, version)| contents(space, index, version)).collect();
    let pages: Vec<PageIn<'_>> = pages
        .iter()
        .zip(&filled)
        .map(|(&(index, version), page)| (index, Version(version), page_hash(page), page))
        .collect();
    store.write(SpaceId(space), &pages)
}

/// Everything that ends until nothing is under way.
fn settle<D: Device>(store: &mut DiskStore<D>) -> Vec<Completion> {
    let mut all = Vec::new();
    loop {
        all.extend(store.poll());
        check(store);
        if store.is_idle() {
            return all;
        }
        if !store.is_freeing() {
            store.device.wait();
        }
    }
}

/// Panics unless the store's books agree with each other.
fn check<D: Device>(store: &DiskStore<D>) {
    assert_eq!(store.records.check(), store.free.count(), "free slots are counted in two ways");
}

/// Reads a version and answers whether its contents are right; waits for it.
fn read<D: Device>(
    store: &mut DiskStore<D>,
    space: u64,
    index: u64,
    version: u32,
) -> Result<(), Result<ReadRefused, Fault>> {
    let token = store.read(SpaceId(space), index, Version(version)).map_err(Ok)?;
    loop {
        let ended = store.poll().find_map(|completion| match completion {
            Completion::Read { token: ended, page, hash } if ended == token => {
                assert_eq!(hash, page_hash(&page[..]), "the hash is told with the contents");
                Some(Ok(page))
            }
            Completion::ReadFailed { token: ended, error } if ended == token => Some(Err(error)),
            _ => None,
        });
        match ended {
            Some(Ok(page)) => {
                assert!(*page == contents(space, index, version), "wrong bytes were read");
                return Ok(());
            }
            Some(Err(error)) => return Err(Err(error)),
            None => store.device.wait(),
        }
    }
}
