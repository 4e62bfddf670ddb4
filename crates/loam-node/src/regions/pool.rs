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
    /// Nobody else has it.
    locked: bool,
}

impl Pool {
    fn new(device: Device) -> Self {
        let pages = device.bytes() / PAGE_BYTES;
        let locked = device.lock();
        Self { device: Arc::new(device), spans: Spans::new(pages, pages), locked }
    }

    /// Whether it may be cut: it is this node's, which may have had to wait for another node, or for a program that still has a region of it.
    pub(super) fn is_ours(&mut self) -> bool {
        self.locked = self.locked || self.device.lock();
        self.locked
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
        let pool = Pool::new(device);
        if !pool.locked {
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
        let part = STEP_BYTES.max(self.device.align_bytes()).min(self.bytes - self.at);
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
}
