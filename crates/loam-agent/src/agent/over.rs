//! Whether the run is over: nobody of the program is left, and nobody is about to come.

use super::Agent;
use crate::procfs;
use loam_core::units::{Duration, Instant};
use rustix::process::Pid;

/// A program that was there before us has been told where to join: what it has not done within this time it will not do.
const JOIN_MAX: Duration = Duration::from_millis(10_000);
/// A process that executes another program has left its memory, and the new program joins once its libraries are loaded: what has not come within this time runs
/// without Loam.
const EXEC_MAX: Duration = Duration::from_millis(2_000);

impl Agent<'_> {
    pub(super) fn is_over(&mut self) -> bool {
        if self.fatal.is_some() {
            return true;
        }
        let alone = self.processes.is_empty() && self.peers.is_empty();
        if !alone || !(self.program_ended || self.is_left()) {
            self.alone_since = None;
            return false;
        }
        let now = self.now();
        let since = *self.alone_since.get_or_insert(now);
        now - since >= EXEC_MAX || !self.may_come()
    }

    /// The program was there before us and does without us: it has not come in time, could not join, or executes another one by now.
    fn is_left(&self) -> bool {
        self.program.is_attached() && (self.next_peer > 0 || self.now() > Instant(0) + JOIN_MAX)
    }

    /// A process of the tree is there that may be on its way from one program to the next. (Of a program that was there before us those that execute
    /// another one are none of our business.)
    fn may_come(&self) -> bool {
        let lives = |pid: &Pid| procfs::stat(*pid).is_ok_and(|stat| !stat.is_zombie);
        !self.program.is_attached() && self.program.tree().iter().any(lives)
    }
}
