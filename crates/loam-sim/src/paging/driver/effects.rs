//! What the borrower wants done, and how long it takes.

use super::{Driver, Event};
use loam_core::borrower::{Effect, InstallOutcome, InstallSource};
use loam_core::units::Duration;

impl Driver<'_> {
    pub(super) fn carry_out(&mut self, effect: Effect) {
        let path = self.config.path;
        match effect {
            Effect::Install { space, base, pages, source } => {
                for base in base..base + u64::from(pages) {
                    let contents = match source {
                        InstallSource::Zero => 0,
                        InstallSource::Buffer(buffer) => self.buffers[buffer.0 as usize],
                        InstallSource::Arrived(_) => self.arrived,
                    };
                    assert_eq!(contents, self.contents[base as usize], "wrong contents at base page {base}");
                    self.set_present(base, true);
                }
                self.borrower.handle_installed(self.now, space, base, pages, InstallOutcome::Done);
            }
            Effect::Get { copy, version, message, .. } => self.gets.push((message, copy, version)),
            Effect::Hold { buffer, .. } => self.buffers[buffer.0 as usize] = self.arrived,
            Effect::Evict(batch) => {
                let pages = self.borrower.batch_pages(batch).1.len() as u64;
                let done = self.agent.serve(self.now, Duration(path.message_ns + path.evict_ns * pages));
                self.queue.push(done, Event::Evicted(batch));
            }
            Effect::Put { copy, version, buffer, .. } => {
                self.out.put += 1;
                let at = copy.0 as usize;
                self.stored.resize(self.stored.len().max(at + 1), None);
                self.stored[at] = Some((version, self.buffers[buffer.0 as usize]));
                let takes = Duration((path.message_bytes + 4096) * path.ps_per_byte / 1000);
                let link = if path.serial { &mut self.agent } else { &mut self.uplink };
                let sent = link.serve(self.now, takes);
                self.queue.push(sent + Duration(path.latency_ns), Event::Stored(copy, version));
            }
            Effect::Drop { copy, version, .. } => {
                let held = &mut self.stored[copy.0 as usize];
                if held.is_some_and(|(of, _)| of == version) {
                    *held = None;
                }
            }
            // What is hurried is on the link already.
            Effect::Wake { .. } | Effect::Hurry { .. } => {}
            other => panic!("nothing asks for this here: {other:?}"),
        }
    }

    pub(super) fn send_gets(&mut self) {
        let path = self.config.path;
        for message in core::mem::take(&mut self.gets).chunk_by(|a, b| a.0 == b.0) {
            let bytes = path.message_bytes + 4096 * message.len() as u64;
            let ready = self.now + Duration(path.latency_ns);
            let link = if path.serial { &mut self.agent } else { &mut self.link };
            let there = link.serve(ready, Duration(bytes * path.ps_per_byte / 1000));
            let pages = message.iter().map(|&(_, copy, version)| (copy, version)).collect();
            self.queue.push(there, Event::Came(pages));
        }
    }
}
