//! Controllers and arms: reads, reading ahead, writes.

use super::super::board::Board;
use super::super::config::Prefetch;
use super::super::controller::Job;
use super::{Event, Machine};
use loam_core::units::Instant;

impl Machine<'_> {
    /// A page is asked for at its disk.
    pub(super) fn read(&mut self, page: u32, now: Instant) {
        let disk = self.disk_of(page);
        let here = self.ios[disk].controller.find(page);
        if here.is_some() || self.config.prefetch == Prefetch::Optimal {
            self.pages[page as usize].hit = true;
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
        let io = &mut self.ios[disk];
        if io.arm.is_some() {
            return;
        }
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
        self.outcome.disk_reads += 1;
        self.deliver(page, self.platter[page as usize], now);
        let (disk, layout) = (self.disk_of(page), self.config.layout());
        let first = layout.next_on_disk(page);
        let room = self.ios[disk].controller.room();
        let follow = std::iter::successors(Some(first), |&page| Some(layout.next_on_disk(page)));
        let pages = follow.take(room).take_while(|&page| (page as usize) < self.pages.len()).count();
        let done = self.ios[disk].disk.go_on(now, pages as u64);
        self.queue.push(done, Event::ReadAhead { first, pages: pages as u32 });
        if pages == 0 {
            // Nothing follows: the arm is free at once, by the event above.
            assert_eq!(done, now);
        }
    }

    pub(super) fn read_ahead(&mut self, first: u32, pages: u32, now: Instant) {
        let layout = self.config.layout();
        // What follows the last page may be beyond the file: then there were none.
        let disk = layout.place(first).disk;
        let io = &mut self.ios[disk];
        assert!(matches!(io.arm, Some(Job::Read(_))), "the arm of disk {disk} reads");
        io.arm = None;
        let began = io.controller.clock();
        let mut page = first;
        for _ in 0..pages {
            if !io.controller.read_ahead(page, self.platter[page as usize], began) {
                break;
            }
            page = layout.next_on_disk(page);
        }
        self.kick(disk, now);
    }
}
