//! The memory of a region as files, for who hands it on to other programs (`loam run --region SIZE:direct`).

use super::link::{Link, Stretch};
use super::map::Map;
use super::{Advice, Options, RegionAsk, RegionCall, RegionError, cgroup};
use rustix::fd::{AsFd, BorrowedFd};

/// A region that was made for this and has no other name that anybody knows: its stretches, which others may be given. The node keeps it for as long as
/// this lives, and gives the memory to somebody else when nobody has it mapped any more.
#[derive(Debug)]
pub struct RegionMemory {
    memory: Vec<Stretch>,
    /// Behind which the node sees that somebody has it open.
    _link: Link,
}

impl RegionMemory {
    /// Reserves `bytes`, all zeros, as a temporary region.
    ///
    /// # Errors
    /// [`RegionError`].
    pub fn reserve(name: &str, bytes: u64, options: &Options) -> Result<Self, RegionError> {
        let options = options.clone().temporary(true);
        let mut regions = options.connect()?;
        let made = regions.create(name, bytes, &options)?;
        let ask = RegionAsk { id: made.id, ..RegionAsk::new(RegionCall::Open, name) };
        let answer = regions.link.call(&ask)?;
        // Sealed and as long as they should be: or they cannot be mapped.
        let (align, is_device) = (answer.info.align_bytes as usize, answer.info.device.is_some());
        let map = Map::new(&answer.memory, align, is_device, true).map_err(RegionError::Map)?;
        // As for a region that a program opens itself: large pages, where that counts against nobody's limit. Whoever maps them later has them.
        if !cgroup::is_limited() {
            map.advise(0..map.len(), Advice::LargePages)?;
        }
        Ok(Self { memory: answer.memory, _link: regions.link })
    }

    /// Its stretches: file, offset there, bytes.
    pub fn stretches(&self) -> impl ExactSizeIterator<Item = (BorrowedFd<'_>, u64, u64)> {
        self.memory.iter().map(|(span, file)| (file.as_fd(), span.offset(), span.bytes()))
    }
}
