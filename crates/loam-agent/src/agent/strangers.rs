//! Programs that ask to join and are not of the tree: a job that was handed to a scheduler from inside a run (`sbatch`, `at`) has inherited the
//! socket's name. They run without Loam.

use super::{Agent, Token};
use crate::control;
use crate::packets::{self, Received};
use loam_hand::{LAYOUT_VERSION, Welcome, role, status};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::BTreeMap;

/// So many are heard at a time: anybody on the machine may connect, and what he keeps open is ours too.
const STRANGERS_MAX: usize = 16;

/// Who has connected and not said yet why.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    sockets: BTreeMap<u32, OwnedFd>,
    next: u32,
}

impl Strangers {
    /// Takes one in; the one that has been silent for longest goes where there are too many.
    fn add(&mut self, socket: OwnedFd) -> u32 {
        if self.sockets.len() >= STRANGERS_MAX {
            self.sockets.pop_first();
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.sockets.insert(number, socket);
        number
    }
}

impl Agent<'_> {
    /// Somebody of whom we do not know has connected.
    pub(super) fn hear_stranger(&mut self, socket: OwnedFd) {
        let number = self.strangers.add(socket);
        let socket = self.strangers.sockets[&number].as_fd();
        if self.poll_on(socket, Token::Stranger(number), false).is_err() {
            self.strangers.sockets.remove(&number);
            return;
        }
        // Mostly it has spoken already, and is none of those that are in the way of others.
        self.answer_stranger(number);
    }

    /// A program that starts is told to run without us. A forked child is not: what its parent has elsewhere would be zeros to it. One that says the number that stood in its memory is a child of one
    /// that we serve, though it may descend from nobody of whom we know.
    pub(super) fn answer_stranger(&mut self, number: u32) {
        let Some(socket) = self.strangers.sockets.get(&number) else { return };
        match packets::receive_hello(socket.as_fd()) {
            Received::Nothing => return,
            Received::Packet(hello, _)
                if hello.layout_version == LAYOUT_VERSION
                    && hello.role == role::FORKED
                    && self.knocked(hello.knock).is_some() =>
            {
                let socket = self.strangers.sockets.remove(&number).expect("it has spoken just now");
                if let Some(credentials) = control::peer(socket.as_fd()) {
                    self.take_in_as_peer(socket, credentials.pid, Some(hello));
                }
                return;
            }
            Received::Packet(hello, _) if hello.role == role::STARTED => {
                let welcome = Welcome {
                    layout_version: LAYOUT_VERSION,
                    status: status::RUN_WITHOUT,
                    ..Welcome::default()
                };
                let _ = packets::send(socket.as_fd(), &welcome, &[]);
            }
            Received::Packet(..) | Received::Closed => {}
        }
        self.strangers.sockets.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_silent_goes_where_there_are_too_many() {
        let mut strangers = Strangers::default();
        for n in 0..=STRANGERS_MAX as u32 {
            let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            assert_eq!(strangers.add(ours.into()), n);
        }
        assert_eq!(strangers.sockets.len(), STRANGERS_MAX);
        assert_eq!(strangers.sockets.keys().next(), Some(&1));
    }
}
