//! Controllers and arms: reads, reading ahead, writes.

use super::super::board::Board;
use super::super::config::Prefetch;
use super::super::controller::Job;
use super::super::pages::Source;
use super::{Event, Machine};
use loam_core::units::Instant;

impl Machine<'_> {
    /// A page is asked for at its disk.
    pub(super) fn read(&mut self, page: u32, now: Instant) {
        let disk = self.disk_of(page);
        let here = self.ios[disk].controller.find(page);
        if here.is_some() || self.config.prefetch == Prefetch::Optimal {
            self.pages[page as usize].source = Source::Cache;
            return self.deliver(page, self.stored(page), now);
        }
        self.ios[disk].controller.read(page);
        self.kick(disk, now);
    }

    fn deliver(&mut self, page: u32, version: u32, now: Instant) {
        let node = self.pages[page as usize].wanted.expect("somebody waits for it");
        let comes = self.board.page(now, &Board::read_way(self.io_node(page), node));
        self.queue.push(comes, Event::Arrived { page, version, dirty: false });
    }

    /// The arm begins what it is to do next, if it is free.
    pub(super) fn kick(&mut self, disk: usize, now: Instant) {
        let layout = self.config.layout();
        if self.ios[disk].arm.is_some() {
            return;
        }
        let io = &mut self.ios[disk];
        let Some(job) = io.controller.next_job() else { return };
        match &job {
            Job::Write(pages) => {
                let done = io.disk.access(now, layout.place(pages[0].page).block, pages.len() as u64);
                self.queue.push(done, Event::Written { disk });
            }
            Job::Read(page) => {
                let done = io.disk.access(now, layout.place(*page).block, 1);
                self.queue.push(done, Event::ReadDone { page: *page });
            }
        }
        io.arm = Some(job);
    }

    pub(super) fn written(&mut self, disk: usize, now: Instant) {
        let io = &mut self.ios[disk];
        let Some(Job::Write(pages)) = io.arm.take() else { panic!("the arm of disk {disk} writes") };
        io.controller.written();
        self.outcome.disk_writes += 1;
        self.outcome.pages_written += pages.len() as u64;
        for held in pages {
            let on_disk = &mut self.platter[held.page as usize];
            assert!(*on_disk <= held.version, "page {}: older contents over newer ones", held.page);
            *on_disk = held.version;
        }
        self.room_came(disk, now);
    }

    /// A page that was waited for has been read: it is sent, and the arm goes on with what follows, for as many slots as no page to write has.
    pub(super) fn read_done(&mut self, page: u32, now: Instant) {
        self.deliver(page, self.platter[page as usize], now);
        let controller = &self.ios[self.disk_of(page)].controller;
        let (left, began) = (controller.room() as u32, controller.clock());
        self.go_on_reading(page, left, began, now);
    }

    /// The arm reads the page that follows, if it is to.
    fn go_on_reading(&mut self, page: u32, left: u32, began: u64, now: Instant) {
        let (disk, next) = (self.disk_of(page), self.config.layout().next_on_disk(page));
        let io = &mut self.ios[disk];
        assert!(matches!(io.arm, Some(Job::Read(_))), "the arm of disk {disk} reads");
        if left == 0 || next as usize >= self.pages.len() {
            io.arm = None;
            return self.kick(disk, now);
        }
        let done = io.disk.go_on(now, 1);
        self.queue.push(done, Event::ReadAhead { page: next, left: left - 1, began });
    }

    pub(super) fn read_ahead(&mut self, page: u32, left: u32, began: u64, now: Instant) {
        let disk = self.disk_of(page);
        let controller = &mut self.ios[disk].controller;
        let kept = controller.read_ahead(page, self.platter[page as usize], began);
        // It was asked for while the arm was at it.
        if kept && controller.take_read(page) {
            self.pages[page as usize].source = Source::ReadAhead;
            self.deliver(page, self.stored(page), now);
        }
        self.go_on_reading(page, if kept { left } else { 0 }, began, now);
    }
}
