//! Processes with direct memory: what one has is given back when it has ended, and not before nobody can write there any more.

use super::Agent;
use super::process::Process;
use crate::direct::Pool;
use crate::packets;
use crate::uffd::Uffd;
use loam_core::units::{Duration, Instant};
use loam_hand::CallReply;
use rustix::event::epoll;
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::Pid;
use std::sync::atomic::Ordering::Relaxed;

/// Between looks at processes that are ending.
const ENDING_INTERVAL: Duration = Duration::from_millis(1);

/// The pool, and who is about to give some of it back.
#[derive(Debug)]
pub(super) struct Direct {
    pub(super) pool: Pool,
    ending: Vec<Ending>,
}

/// A process whose hand has gone. Its other threads may still run for a moment.
#[derive(Debug)]
struct Ending {
    pid: Option<Pid>,
    uffd: Uffd,
    probe: u64,
    token: u32,
}

impl Direct {
    pub(super) fn new(pool: Pool) -> Self {
        Self { pool, ending: Vec::new() }
    }
}

impl Process {
    /// Base pages of direct memory that are mapped and so count as resident. The program can write there what it likes: it can lie no further than it has files
    /// and shared memory.
    pub(super) fn direct_pages(&self, file_pages: u64) -> u64 {
        let Some(hand) = &self.hand else { return 0 };
        (hand.shared.control().region.direct_bytes.load(Relaxed) >> 12).min(file_pages)
    }
}

impl Agent<'_> {
    /// A process that has just joined is `token` in the table. (One that has died meanwhile has left a process before its exec here, which keeps its own.)
    pub(super) fn set_token(&mut self, pid: Pid, token: u32) {
        let process = self.space_of(pid).and_then(|key| self.processes.get_mut(&key));
        if let Some(process) = process.filter(|process| process.token == 0) {
            process.token = token;
        }
    }

    /// A process has ended, or has left its memory.
    pub(super) fn direct_gone(&mut self, process: Process) {
        let Some(direct) = self.direct.as_mut().filter(|_| process.token != 0) else { return };
        let Process { uffd, probe, token, pid, .. } = process;
        // Nobody listens to it any more: its key is gone.
        let _ = epoll::delete(&self.epoll, uffd.as_fd());
        direct.ending.push(Ending { pid, uffd, probe, token });
        self.look_at_ending();
    }

    /// Gives back what processes had whose memory is gone: before that, threads of theirs could still write.
    pub(super) fn look_at_ending(&mut self) {
        let Some(direct) = &mut self.direct else { return };
        let pool = &direct.pool;
        direct.ending.retain(|ending| {
            let is_gone = ending.uffd.is_dead(ending.probe << 12);
            if is_gone {
                pool.release(ending.token);
            }
            !is_gone
        });
    }

    /// The process has ended, and the kernel is still taking its memory apart: what is left of it is no memory of a program that runs.
    pub(super) fn is_ending(&self, pid: Pid) -> bool {
        self.direct.as_ref().is_some_and(|direct| direct.ending.iter().any(|ending| ending.pid == Some(pid)))
    }

    /// When to look again, if there is anything to look at.
    pub(super) fn ending_due(&self, now: Instant) -> Option<Instant> {
        self.direct.as_ref().filter(|direct| !direct.ending.is_empty()).map(|_| now + ENDING_INTERVAL)
    }

    /// A process that is about to fork protects its direct memory by what it makes from this.
    pub(super) fn give_userfaultfd(&self, socket: &OwnedFd) {
        let device: Vec<_> = self.device.iter().map(AsFd::as_fd).collect();
        let _ = packets::send(socket.as_fd(), &CallReply::default(), &device);
    }
}
