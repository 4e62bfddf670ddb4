//! Where connections come from: the network, and programs of this machine. They take turns, so that a flood at one door keeps nobody out at the other.

use crate::connection::Origin;
use crate::local::Local;
use std::io;
use std::net::{TcpListener, TcpStream};

/// See the module.
#[derive(Debug)]
pub(crate) struct Doors {
    pub(crate) listener: TcpListener,
    pub(crate) local: Option<Local>,
    local_is_next: bool,
}

impl Doors {
    pub(crate) fn new(listener: TcpListener, local: Option<Local>) -> Self {
        Self { listener, local, local_is_next: false }
    }

    /// A connection that waits, of the door whose turn it is if there is one.
    pub(crate) fn next(&mut self) -> io::Result<(TcpStream, Origin)> {
        let local_first = self.local_is_next;
        self.local_is_next = !local_first;
        match self.at(local_first) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.at(!local_first),
            taken => taken,
        }
    }

    fn at(&self, local: bool) -> io::Result<(TcpStream, Origin)> {
        match &self.local {
            // (A stream of bytes like any other; that it is no TCP shows in its addresses alone.)
            Some(door) if local => door.accept().map(|socket| (TcpStream::from(socket), Origin::Local)),
            None if local => Err(io::ErrorKind::WouldBlock.into()),
            _ => self.listener.accept().map(|(socket, addr)| (socket, Origin::Tcp(addr))),
        }
    }
}
