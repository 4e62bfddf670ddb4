//! Carrying out what the policy decides.

use super::Agent;
use super::protect::Guard;
use crate::uffd::Stop;
use loam_core::borrower::{Effect, InstallOutcome, InstallSource, SpaceKey};
use loam_core::units::{BASE_PAGE_BYTES, EXTENT_BASE_PAGES};
use loam_wire::PageRef;

/// An install that may still grow: neighbours whose contents lie side by side go in one call.
#[derive(Debug)]
struct Run {
    space: SpaceKey,
    base: u64,
    pages: u32,
    from: *const u8,
    zero: bool,
}

/// Installs that are collected while effects are drained.
#[derive(Debug, Default)]
pub(super) struct Held {
    run: Option<Run>,
}

impl Agent<'_> {
    /// Carries out every effect that waits.
    pub(super) fn drain(&mut self) {
        loop {
            match self.borrower.poll_effect() {
                Some(Effect::Install { space, base, pages, source }) => {
                    self.hold_install(space, base, pages, source)
                }
                Some(effect) => {
                    self.install_held();
                    self.carry_out(effect);
                }
                None => {
                    if self.held.run.is_none() {
                        break;
                    }
                    self.install_held(); // which may have effects of its own
                }
            }
        }
        self.submit_disk();
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Install { .. } => unreachable!("held by the caller"),
            Effect::Evict(batch) => self.order_eviction(batch),
            Effect::Populate { space, base, pages } => self.order_populate(space, base, pages),
            Effect::Protect { space, base, pages } => self.guard(space, base, pages, Guard::Protect),
            Effect::Unprotect { space, base, pages } => self.guard(space, base, pages, Guard::Release),
            Effect::LookForOwn { space, base, pages } => self.guard(space, base, pages, Guard::Look),
            Effect::Wake { space, base, pages } => {
                if let Some(uffd) = self.uffd_of(space) {
                    // Fails only if the process is gone: then nobody waits.
                    let _ = uffd.wake(base << 12..(base + u64::from(pages)) << 12);
                }
            }
            Effect::Get { lender, copy, version, message, urgency } => {
                // A page has no more subpages than that.
                let message = u16::try_from(message).expect("a message of a page's plan");
                if let Some(conn) = self.conn(lender) {
                    conn.get(PageRef::planned(u64::from(copy.0), version, urgency, message));
                }
            }
            Effect::Hurry { lender, copy, version } => {
                if let Some(conn) = self.conn(lender) {
                    conn.hurry(u64::from(copy.0), version);
                }
            }
            Effect::Put { lender, copy, version, hash, buffer, class } => {
                self.report.bytes.sent += BASE_PAGE_BYTES as u64;
                self.lenders[usize::from(lender.0)].sent_bytes += BASE_PAGE_BYTES as u64;
                if let Some(conn) = self.conn(lender) {
                    conn.put(u64::from(copy.0), version, hash, class, buffer);
                }
            }
            Effect::Drop { lender, copy, version } => {
                if let Some(conn) = self.conn(lender) {
                    conn.drop_page(PageRef::new(u64::from(copy.0), version));
                }
            }
            Effect::Spare { lender, copy, version } => {
                if let Some(conn) = self.conn(lender) {
                    conn.spare_page(PageRef::new(u64::from(copy.0), version));
                }
            }
            Effect::Hold { tag, buffer } => {
                let into = self.pool.page_mut(buffer.0 as usize);
                assert!(!self.payload.is_null(), "a page is held while its frame is taken in");
                // SAFETY: `payload` points to the pages of the frame that `take_lender` is taking in, which holds the receive
                // buffer for as long; `tag` is one of its page numbers.
                unsafe {
                    let from = self.payload.add(tag as usize * BASE_PAGE_BYTES);
                    std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), BASE_PAGE_BYTES);
                }
            }
            Effect::WriteDisk { copy, buffer } => {
                if self.has_slot_file() {
                    self.queue_write(copy, buffer);
                } else {
                    let now = self.now();
                    self.borrower.handle_written(now, copy, false);
                }
            }
            Effect::ReadDisk { copy, version, buffer } => self.queue_read(copy, version, buffer),
            Effect::Lost { space, base } => self.lost(space, base),
        }
    }

    fn hold_install(&mut self, space: SpaceKey, base: u64, pages: u32, source: InstallSource) {
        assert!(pages as usize <= EXTENT_BASE_PAGES, "no more zeros than there are");
        let (from, zero) = match source {
            InstallSource::Zero => (self.zeros.pointer(0).cast_const(), true),
            InstallSource::Buffer(buffer) => (self.pool.pointer(buffer.0 as usize).cast_const(), false),
            InstallSource::Arrived(tag) => {
                assert!(!self.payload.is_null(), "a page is installed while its frame is taken in");
                // Inside the frame's payload, by the tag.
                (self.payload.wrapping_add(tag as usize * BASE_PAGE_BYTES), false)
            }
        };
        if let Some(run) = &mut self.held.run {
            let bytes = run.pages as usize * BASE_PAGE_BYTES;
            let adjacent = run.space == space && run.base + u64::from(run.pages) == base;
            let fits = (run.pages + pages) as usize <= EXTENT_BASE_PAGES;
            if adjacent && fits && run.zero == zero && (zero || run.from.wrapping_add(bytes) == from) {
                run.pages += pages;
                return;
            }
        }
        self.install_held();
        self.held.run = Some(Run { space, base, pages, from, zero });
    }

    /// Installs what is held, and reports how it went.
    fn install_held(&mut self) {
        let Some(run) = self.held.run.take() else { return };
        let mut done = 0;
        // The kernel refuses a range that lies in two mappings: then page by page.
        let mut at_once = run.pages;
        while done < run.pages {
            let base = run.base + u64::from(done);
            let left = (run.pages - done).min(at_once);
            let Some(process) = self.processes.get(&run.space) else {
                self.installed(run.space, base, run.pages - done, InstallOutcome::Gone);
                return;
            };
            if process.has_unread_changes() {
                // As if the kernel had said EAGAIN; tried again when the change has been dealt with.
                self.installed(run.space, base, run.pages - done, InstallOutcome::Again);
                return;
            }
            let uffd = &process.uffd;
            let from =
                if run.zero { run.from } else { run.from.wrapping_add(done as usize * BASE_PAGE_BYTES) };
            let out = uffd.copy(base << 12, from, left as usize * BASE_PAGE_BYTES, false);
            let copied = (out.copied_bytes / BASE_PAGE_BYTES) as u32;
            if copied > 0 {
                self.installed(run.space, base, copied, InstallOutcome::Done);
                done += copied;
            }
            let base = run.base + u64::from(done);
            match out.error {
                None => {}
                Some(Stop::Exists) => {
                    self.installed(run.space, base, 1, InstallOutcome::Exists);
                    done += 1;
                }
                Some(Stop::Again) => {
                    self.retry = true;
                    self.installed(run.space, base, run.pages - done, InstallOutcome::Again);
                    return;
                }
                Some(Stop::Gone) if left > 1 => at_once = 1,
                Some(Stop::Gone) => {
                    self.installed(run.space, base, 1, InstallOutcome::Gone);
                    done += 1;
                }
                // Out of memory: the machine may have some in a moment.
                Some(Stop::Other(rustix::io::Errno::NOMEM)) => {
                    self.retry = true;
                    self.report
                        .warn("the machine has no free memory for a page of the program; it waits for some");
                    self.installed(run.space, base, run.pages - done, InstallOutcome::Again);
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    return;
                }
                Some(Stop::Other(errno)) => {
                    self.installed(run.space, base, run.pages - done, InstallOutcome::Gone);
                    tracing::warn!("a page could not be installed at {:#x}: {errno}", base << 12);
                    return;
                }
            }
        }
    }

    fn installed(&mut self, space: SpaceKey, base: u64, pages: u32, outcome: InstallOutcome) {
        let now = self.now();
        self.borrower.handle_installed(now, space, base, pages, outcome);
    }

    /// A thread needs a page of which no good copy is left. It must not read zeros: the page is poisoned, and the
    /// program ended with a line that says why.
    fn lost(&mut self, space: SpaceKey, base: u64) {
        if let Some(uffd) = self.uffd_of(space) {
            let _ = uffd.poison(base << 12, BASE_PAGE_BYTES);
        }
        let why = self.report.why_lost();
        self.end(format!(
            "a page of the program is lost{why}: the program is ended, no wrong data was given to it; \
             run it again with --durability disk, which survives the loss of lenders"
        ));
    }
}
