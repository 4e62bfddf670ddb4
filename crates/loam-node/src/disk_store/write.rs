//! Pages into slots.

use super::commit::Group;
use super::device::Device;
use super::free_slots::SlotRun;
use super::layout::{GROUP_SLOTS, SlotHeader};
use super::records::State;
use super::{
    DiskStore, Operation, PageIn, Refused, UNSYNCED_PAGES_MAX, WRITE_PAGES_MAX, WRITES_MAX, WriteToken,
};
use loam_core::ids::{PageId, SpaceId};
use loam_core::units::BASE_PAGE_BYTES;
use loam_disk::Buffer;

#[expect(private_bounds)]
impl<D: Device> DiskStore<D> {
    /// Begins to write pages of a space, 1 to 32, all or none: as one operation if there are so many free slots side by side, else as
    /// few as can be. They are copied; each is the newest version of its page from now on, and can be read when it is written
    /// (the giver has it in memory until it is durable). The hash must be that of the contents, or the page will never be read.
    ///
    /// # Errors
    /// [`Refused`]: nothing was begun.
    ///
    /// # Panics
    /// On no pages, more than 32, or a page twice.
    pub fn write(&mut self, space: SpaceId, pages: &[PageIn<'_>]) -> Result<WriteToken, Refused> {
        assert!((1..=WRITE_PAGES_MAX).contains(&pages.len()), "a write of {} pages", pages.len());
        for (at, page) in pages.iter().enumerate() {
            assert!(pages[..at].iter().all(|other| other.0 != page.0), "page {} twice in a write", page.0);
        }
        if self.broken.is_some() {
            return Err(Refused::Broken);
        }
        self.has_room(space, pages)?;
        if self.commit.pages() + pages.len() > UNSYNCED_PAGES_MAX {
            return Err(Refused::Busy);
        }
        let runs = self.take_runs(pages.len())?;
        if !self.records.has_space(space) {
            // Its slots count at recovery only if the table of spaces names it: written before the sync that they wait for.
            self.records.add_space(space, self.next_sequence);
            self.commit.table_changed();
        }

        let token = self.next_token();
        let mut left = pages;
        for &run in &runs {
            let (these, after) = left.split_at(run.slots as usize);
            left = after;
            self.write_run(token, space, run, these);
        }
        let slots = runs.iter().flat_map(|run| run.each()).collect();
        self.commit.begin(token, Group { slots, parts_left: runs.len(), fault: None, bad: Vec::new() });
        self.submit();
        Ok(WriteToken(token))
    }

    fn has_room(&self, space: SpaceId, pages: &[PageIn<'_>]) -> Result<(), Refused> {
        if !self.records.has_space(space) && self.records.spaces().len() >= super::layout::SPACES_MAX {
            return Err(Refused::Spaces);
        }
        // A newer version gives the slot of the older one back: the reserve is for it too.
        let new = pages.iter().filter(|page| !self.records.knows(PageId { space, index: page.0 })).count();
        let room = self.room(space);
        if new > room as usize || pages.len() > self.free.count() as usize {
            if self.is_freeing() {
                return Err(Refused::Busy);
            }
            return Err(Refused::Full { room });
        }
        Ok(())
    }

    fn take_runs(&mut self, pages: usize) -> Result<Vec<SlotRun>, Refused> {
        let mut runs = Vec::new();
        let mut left = pages as u32;
        while left > 0 {
            let run = self.free.take(left).expect("as many are free, by the count");
            left -= run.slots;
            runs.push(run);
        }
        if self.writes_under_way + runs.len() > WRITES_MAX {
            runs.into_iter().for_each(|run| self.free.release(run));
            return Err(Refused::Busy);
        }
        Ok(runs)
    }

    fn write_run(&mut self, token: u64, space: SpaceId, run: SlotRun, pages: &[PageIn<'_>]) {
        let stride_bytes = self.geometry.stride_bytes();
        let whole_bytes = GROUP_SLOTS as usize * stride_bytes;
        let mut buffer = self.write_buffers.pop().unwrap_or_else(|| Buffer::new(whole_bytes));
        for ((slot, &(index, version, hash, contents)), to) in
            run.each().zip(pages).zip(buffer.chunks_exact_mut(stride_bytes))
        {
            let page = PageId { space, index };
            let header = SlotHeader { page, version, sequence: self.next_sequence, hash };
            self.next_sequence += 1;
            let (head, body) = to.split_at_mut(stride_bytes - BASE_PAGE_BYTES);
            header.encode(self.geometry.store, slot, head);
            body.copy_from_slice(contents);
            self.records.put(slot, page, version, State::Writing);
        }
        let tag = self.begin(Operation::Write { token, run });
        let bytes = run.slots as usize * stride_bytes;
        self.device.write(tag, self.geometry.offset_bytes(run.first), buffer, bytes);
        self.writes_under_way += 1;
    }
}
