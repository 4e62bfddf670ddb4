//! Pages out of slots: verified, or not at all.

use super::device::Device;
use super::layout::SlotHeader;
use super::records::Found;
use super::{Completion, DiskStore, Fault, Operation, READS_MAX, ReadRefused, ReadToken};
use loam_core::ids::{ContentHash, PageId, SpaceId, Version};
use loam_core::units::BASE_PAGE_BYTES;
use loam_disk::Buffer;
use loam_wire::page_hash;
use rustix::io::Errno;

#[expect(private_bounds)]
impl<D: Device> DiskStore<D> {
    /// Begins to read this version of a page.
    ///
    /// # Errors
    /// [`ReadRefused`]: nothing was begun.
    pub fn read(&mut self, space: SpaceId, index: u64, version: Version) -> Result<ReadToken, ReadRefused> {
        let page = PageId { space, index };
        if self.is_dead() {
            return Err(ReadRefused::Dead);
        }
        let slot = match self.records.find(page, version) {
            Found::Slot(slot) => slot,
            Found::Writing => return Err(ReadRefused::Writing),
            Found::Missing => return Err(ReadRefused::Missing),
        };
        if self.reads_under_way >= READS_MAX {
            return Err(ReadRefused::Busy);
        }
        let stride_bytes = self.geometry.stride_bytes();
        let buffer = self.read_buffers.pop().unwrap_or_else(|| Buffer::new(stride_bytes));
        let token = self.next_token();
        let tag = self.begin(Operation::Read { token, slot, page, version });
        self.device.read(tag, self.geometry.offset_bytes(slot), buffer, stride_bytes);
        self.reads_under_way += 1;
        self.submit();
        Ok(ReadToken(token))
    }

    pub(super) fn read_ended(
        &mut self,
        (token, slot, page, version): (u64, u32, PageId, Version),
        buffer: Buffer,
        outcome: Result<(), Errno>,
    ) {
        self.reads_under_way -= 1;
        let token = ReadToken(token);
        let ended = match self.proved(slot, page, version, &buffer, outcome) {
            Ok((contents, hash)) => {
                self.figures.reads += 1;
                Completion::Read { token, page: Box::new(*contents), hash }
            }
            Err(error) => {
                match error {
                    Fault::Corrupt => self.figures.corrupt += 1,
                    Fault::Disk(_) => self.figures.errors += 1,
                    Fault::Missing | Fault::Broken => {}
                }
                Completion::ReadFailed { token, error }
            }
        };
        self.figures.bytes_read += buffer.len() as u64;
        self.read_buffers.push(buffer);
        self.completions.push(ended);
    }

    /// The page's contents and their hash, if they are that.
    fn proved<'b>(
        &self,
        slot: u32,
        page: PageId,
        version: Version,
        bytes: &'b [u8],
        outcome: Result<(), Errno>,
    ) -> Result<(&'b [u8; BASE_PAGE_BYTES], ContentHash), Fault> {
        // It was let go while the disk read it: the slot may hold something else.
        if !self.records.holds(slot, page, version) {
            return Err(Fault::Missing);
        }
        outcome.map_err(Fault::Disk)?;
        let (head, contents) = bytes.split_at(bytes.len() - BASE_PAGE_BYTES);
        let contents: &[u8; BASE_PAGE_BYTES] = contents.try_into().expect("a base page");
        let header = SlotHeader::decode(self.geometry.store, slot, head).ok_or(Fault::Corrupt)?;
        let whole = header.page == page && header.version == version && header.hash == page_hash(contents);
        if whole { Ok((contents, header.hash)) } else { Err(Fault::Corrupt) }
    }
}
