//! What a node wants done: carried out, and charged to its processor by the paper's tables.

use super::message::{self, Class};
use super::{Cluster, Event, id};
use loam_core::global::{NodeEffect as Effect, NodeMessage, PageMessage};
use loam_core::ids::PageId;
use loam_core::units::{Duration, Instant};

/// Why a node has something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its program's reference, of a shared page or not.
    Access(bool),
    /// A message that costs so much by itself.
    Message(Duration, MessageKind),
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    Locate,
    Fetch,
    Else,
}

impl Cluster {
    pub(super) fn deliver(&mut self, from: usize, to: usize, message: NodeMessage, now: Instant) {
        let c = &self.config.costs;
        let (cost, kind) = match &message {
            NodeMessage::Cluster(message) => (c.cluster_receive(message), MessageKind::Else),
            NodeMessage::Page(message) => match message {
                PageMessage::Locate { .. } => (Duration(0), MessageKind::Locate),
                PageMessage::Fetch { .. } => (Duration(0), MessageKind::Fetch),
                PageMessage::Data { page, .. } => {
                    let shared = self.seats[to].waits_for_shared(*page);
                    (if shared { c.receipt_shared } else { c.receipt }, MessageKind::Else)
                }
                PageMessage::Miss { .. } => (c.receipt_miss, MessageKind::Else),
                PageMessage::Put { frame, .. } => {
                    (if frame.shared { c.put_target_shared } else { c.put_target }, MessageKind::Else)
                }
                PageMessage::Moved { .. } => (c.put_directory, MessageKind::Else),
                PageMessage::Singlet { .. } | PageMessage::Entries(_) => (c.receive, MessageKind::Else),
            },
        };
        let seat = &mut self.seats[to];
        seat.received(&message, cost);
        seat.node.handle_message(now, id(from), message);
        self.drain(to, now, Cause::Message(cost, kind));
    }

    /// Carries out what a node wants done, and charges its processor for it.
    pub(super) fn drain(&mut self, n: usize, now: Instant, cause: Cause) {
        let begin = self.seats[n].processor.free_at().max(now);
        let mut cost = match cause {
            Cause::Message(cost, _) => cost,
            Cause::Access(_) | Cause::Other => Duration(0),
        };
        let mut put = false;
        let mut written = now;
        while let Some(effect) = self.seats[n].node.poll_effect() {
            if self.config.global {
                cost = Duration(cost.0 + self.cost(n, cause, &effect).0);
            }
            match effect {
                Effect::Send { to, message } => {
                    put |= message::class(&message) == Class::Put;
                    self.send(n, (to.0 - 1) as usize, message, begin + cost);
                }
                Effect::Held(_) => {}
                Effect::ReadDisk(page) => self.read(n, page, begin + cost),
                Effect::WriteDisk(_) => written = self.seats[n].disk.write(now),
                Effect::Arrived { page, .. } => {
                    let frame = if put { self.config.costs.frame_free } else { Duration(0) };
                    self.arrived(n, page, (begin + cost + frame).max(written));
                }
                Effect::Scanned { .. } => {}
            }
        }
        self.seats[n].work(now, cost);
        self.set_timer(n, now);
    }

    /// What an effect costs the processor of its node.
    fn cost(&mut self, n: usize, cause: Cause, effect: &Effect) -> Duration {
        let c = &self.config.costs;
        match effect {
            Effect::Send { message: NodeMessage::Cluster(message), .. } => {
                let cost = c.cluster_send(message);
                self.seats[n].epoch.charge(message, cost);
                cost
            }
            Effect::Scanned { local, global } => {
                let cost = c.scan(*local, *global);
                self.seats[n].epoch.gather(cost);
                cost
            }
            Effect::Send { message: NodeMessage::Page(message), .. } => match message {
                PageMessage::Locate { .. } => c.request_shared,
                PageMessage::Fetch { .. } => match cause {
                    Cause::Access(false) => c.request,
                    Cause::Access(true) => Duration(c.request_shared.0 + c.locate_hit.0),
                    _ => c.locate_hit,
                },
                PageMessage::Miss { .. } if cause_is(cause, MessageKind::Locate) => c.locate_miss,
                PageMessage::Miss { .. } => c.target,
                PageMessage::Data { page, .. } => {
                    let shared = self.seats[n].is_shared(*page);
                    let target = if shared { c.target_shared } else { c.target };
                    // The directory's node has the page itself.
                    let located = if cause_is(cause, MessageKind::Locate) { c.locate_hit.0 } else { 0 };
                    Duration(target.0 + located)
                }
                PageMessage::Put { frame, .. } if !frame.shared && frame.owner == id(n) => {
                    Duration(c.put.0 + c.put_own_directory.0)
                }
                PageMessage::Put { .. } => c.put,
                PageMessage::Moved { .. } => c.put_tell,
                PageMessage::Singlet { .. } | PageMessage::Entries(_) => c.send,
            },
            Effect::ReadDisk(_) => match cause {
                Cause::Access(false) => c.lookup,
                Cause::Access(true) => Duration(c.request_shared.0 + c.locate_miss.0),
                _ => Duration(0),
            },
            Effect::Arrived { .. } if matches!(cause, Cause::Access(_)) => c.lookup,
            Effect::Held(_) | Effect::WriteDisk(_) | Effect::Arrived { .. } => Duration(0),
        }
    }

    fn send(&mut self, from: usize, to: usize, message: NodeMessage, at: Instant) {
        if !self.config.global {
            return;
        }
        let bytes = message::bytes(&message);
        let on_link = self.config.costs.on_link(bytes);
        let class = message::class(&message);
        let alone = self.config.costs.network(class);
        let seat = &mut self.seats[from];
        seat.sent(&message, bytes);
        let left = seat.link_out.serve(at, on_link);
        // In the queue's heap events are moved about: they are small.
        let message = Box::new(message);
        // Both links at once: what is left of the time alone is in controllers and software.
        let rest = Duration(alone.0.saturating_sub(on_link.0));
        match class {
            Class::Small => self.queue.push(left + rest, Event::Deliver(from, to, message)),
            Class::Data | Class::Put => {
                let head = Instant(left.0 - on_link.0) + rest;
                self.queue.push(head, Event::Head(from, to, message));
            }
        }
    }

    fn read(&mut self, n: usize, page: PageId, at: Instant) {
        let seat = &mut self.seats[n];
        let step = seat.running.as_ref().filter(|running| running.is_waiting_for(page)).map(|r| r.next);
        let done = match step {
            Some(step) if step.fresh => {
                // What is new goes to the server, and is in its memory.
                if step.access.shared {
                    self.served_files.insert(page);
                }
                at
            }
            Some(step) if step.access.shared => {
                let cached = !self.served_files.insert(page) && self.config.file_server_caches;
                let read = if cached { at } else { self.file_server.read(at, page) };
                read + self.config.costs.file_server_hit
            }
            _ => seat.disk.read(at, page),
        };
        self.queue.push(done, Event::DiskDone(n, page));
    }

    /// The page that a program waits for is here.
    fn arrived(&mut self, n: usize, page: PageId, at: Instant) {
        let seat = &mut self.seats[n];
        let running = seat.running.as_mut().expect("only programs fault");
        let (waited, since) = running.waiting.take().expect("it waits");
        assert_eq!(waited, page, "it waits for one page at a time");
        running.faults += 1;
        running.fault_wait = Duration(running.fault_wait.0 + (at - since).0);
        running.references += 1;
        if running.program.next_step(&mut running.next) {
            self.queue.push(at + Duration(running.next.cpu_ns), Event::Resume(n));
        } else {
            running.ended = Some(at);
            self.running -= 1;
        }
    }

    fn set_timer(&mut self, n: usize, now: Instant) {
        let seat = &mut self.seats[n];
        let Some(at) = seat.node.poll_timeout().filter(|_| self.config.global) else { return };
        let at = at.max(now);
        if seat.timer.is_none_or(|set| at < set) {
            seat.timer = Some(at);
            self.queue.push(at, Event::Timer(n));
        }
    }
}

fn cause_is(cause: Cause, kind: MessageKind) -> bool {
    matches!(cause, Cause::Message(_, of) if of == kind)
}
