//! Devices as pools: which spans of them are whose, and how one becomes a region's.

use super::device::{Device, DeviceError};
use super::memory::STEP_BYTES;
use loam_core::region::Spans;
use loam_disk::Mapped;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PAGE_BYTES: u64 = loam_core::units::BASE_PAGE_BYTES as u64;

/// A device, and who has what of it.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(super) device: Arc<Device>,
    pub(super) spans: Spans,
    /// It was this node's once, and has no contents and no memory of before.
    was_ours: bool,
}

impl Pool {
    fn new(device: Device) -> Self {
        let pages = device.bytes() / PAGE_BYTES;
        Self { device: Arc::new(device), spans: Spans::new(pages, pages), was_ours: false }
    }

    /// Whether it may be cut: it is this node's, which may have had to wait for another node, or for a program that still has a region of it. Asked each
    /// time: who has a descriptor of it could give the lock away. When it becomes this node's, what a node before had in it goes, if it is memory.
    pub(super) fn is_ours(&mut self) -> bool {
        let locked = self.device.lock();
        if locked && !self.was_ours {
            self.was_ours = true;
            self.device.release_or_warn(0, self.device.bytes());
        }
        locked
    }

    /// As one that keeps its bytes.
    #[cfg(test)]
    pub(super) fn into_medium(mut self) -> Self {
        let device = Arc::into_inner(self.device).expect("nobody else has it");
        self.device = Arc::new(device.into_medium());
        self
    }

    /// Base pages of its alignment.
    pub(super) fn align(&self) -> u64 {
        self.device.align_bytes() / PAGE_BYTES
    }
}

/// Opens all devices that the node was told of, with lines for those that somebody else has now.
///
/// # Errors
/// Which path is none, and why.
pub(crate) fn open(
    paths: &[PathBuf],
    root: &Path,
) -> Result<(Vec<Pool>, Vec<String>), (PathBuf, DeviceError)> {
    let (mut pools, mut warnings) = (Vec::<Pool>::new(), Vec::new());
    for path in paths {
        let device = Device::open(path, root).map_err(|why| (path.clone(), why))?;
        if pools.iter().any(|pool| pool.device.is_same(&device)) {
            return Err((path.clone(), DeviceError::Twice));
        }
        let mut pool = Pool::new(device);
        if !pool.is_ours() {
            warnings.push(format!(
                "{} cannot be cut into regions yet: another node has it, or a program has a region of a node that has ended; it is \
                 tried again when a region is asked for",
                path.display()
            ));
        }
        pools.push(pool);
    }
    Ok((pools, warnings))
}

/// A span of a device that is being cleared: it keeps what it had.
#[derive(Debug)]
pub(super) struct Clearing {
    pub(super) device: Arc<Device>,
    pub(super) offset: u64,
    bytes: u64,
    at: u64,
    map: Option<Mapped>,
}

impl Clearing {
    /// # Errors
    /// The system's.
    pub(super) fn begin(device: Arc<Device>, offset: u64, bytes: u64) -> io::Result<Self> {
        let map = device.clearing(offset, bytes)?;
        Ok(Self { device, offset, bytes, at: 0, map })
    }

    /// Clears the next piece; answers its bytes.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn step(&mut self) -> io::Result<u64> {
        // Through a mapping in pieces of any size, pages of 1 GiB too; a file takes whole pages.
        let whole = if self.map.is_some() { STEP_BYTES } else { STEP_BYTES.max(self.device.align_bytes()) };
        let part = whole.min(self.bytes - self.at);
        match &mut self.map {
            Some(map) => map.clear(self.at as usize..(self.at + part) as usize)?,
            None => self.device.clear(self.offset + self.at, part)?,
        }
        self.at += part;
        Ok(part)
    }

    pub(super) fn is_whole(&self) -> bool {
        self.at == self.bytes
    }

    /// Nothing comes of it: what a file in memory has taken for it, in a step that failed too, it gives back.
    pub(super) fn undo(&self) {
        self.device.release_or_warn(self.offset, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of 1 GiB is not one step: others wait for the end of each.
    #[test]
    fn through_a_mapping_steps_are_short_whatever_the_pages() {
        let path = PathBuf::from(format!("/dev/shm/loam-pool-steps-{}", std::process::id()));
        std::fs::write(&path, vec![7; 16 * STEP_BYTES as usize]).expect("written");
        let device =
            Device::open(&path, Path::new("/")).expect("a file in memory").with_pages(4 * STEP_BYTES);
        std::fs::remove_file(&path).expect("ours");
        let bytes = 8 * STEP_BYTES;
        let map = Mapped::new(device.file(), 0, bytes as usize, 4096).expect("mapped");
        let mut clearing = Clearing { device: Arc::new(device), offset: 0, bytes, at: 0, map: Some(map) };
        assert_eq!(clearing.step().expect("cleared"), STEP_BYTES);
        clearing.map = None;
        assert_eq!(clearing.step().expect("cleared"), 4 * STEP_BYTES, "whole pages");
    }
}
