//! The way out to a peer, and what is counted for as long as it is there.

use crate::behind::Behind;
use crate::buffers::Outgoing;
use crate::disk_reads::DiskReads;
use crate::drainer::Reply;
use crate::limits::*;
use crate::regions::Call;
use crate::service::{Outlet, Refusal};
use crate::shared::Shared;
use loam_wire::tls::Identity;
use loam_wire::{MountAt, Stream};
use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// Where a connection came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Over the network, or loopback.
    Tcp(SocketAddr),
    /// By the UNIX socket: a program of this machine.
    Local,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Local => f.write_str("a local program"),
        }
    }
}

/// The local pages of one program, counted for as long as its connection lives.
#[derive(Debug)]
pub(super) struct LocalPages {
    shared: Arc<Shared>,
    pages: u64,
}

impl LocalPages {
    fn new(shared: &Arc<Shared>, pages: u64) -> Self {
        // More than there can be is a mistake, and must not overflow the sum of all.
        let pages = pages.min(LOCAL_PAGES_MAX);
        shared.local_pages_are(pages, 0);
        Self { shared: Arc::clone(shared), pages }
    }
}

impl Drop for LocalPages {
    fn drop(&mut self) {
        self.shared.local_pages_are(0, self.pages);
    }
}

/// A mount of this machine, known for as long as its connection lives.
#[derive(Debug)]
pub(super) struct Here {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Here {
    fn drop(&mut self) {
        self.shared.mount_is_gone(self.number);
    }
}

/// A program that makes calls about regions; what it has open is closed with it.
#[derive(Debug)]
pub(super) struct Caller {
    shared: Arc<Shared>,
    number: u64,
    uid: u32,
    /// A call is under way.
    pub(super) waits: bool,
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.shared.regions.gone(self.number);
    }
}

#[derive(Debug)]
pub(super) struct Line {
    pub(super) stream: Stream,
    pub(super) outgoing: Outgoing,
    pub(super) behind: Behind,
    pub(super) broken: bool,
    pub(super) sent_bytes: u64,
    /// When bytes last left, or nothing waited.
    pub(super) moved: Instant,
    /// The request and the version of the last view that was sent, if views are wanted.
    pub(super) subscription: Option<(u64, u64)>,
    pub(super) origin: Origin,
    pub(super) local_pages: Option<LocalPages>,
    pub(super) mount: Option<Here>,
    pub(super) caller: Option<Caller>,
    pub(super) reply: Reply,
    pub(super) disk_reads: DiskReads,
}

impl Outlet for Line {
    fn queue(&mut self) -> &mut Outgoing {
        if self.outgoing.len() == 0 {
            self.moved = Instant::now();
        }
        &mut self.outgoing
    }

    fn behind(&mut self) -> &mut Behind {
        if self.behind.is_empty() && self.outgoing.len() == 0 {
            self.moved = Instant::now();
        }
        &mut self.behind
    }

    fn is_local(&self) -> bool {
        self.origin == Origin::Local
    }

    fn calls(&mut self, shared: &Arc<Shared>, call: Call) -> Result<(), Refusal> {
        if self.caller.is_none() {
            let peer = rustix::net::sockopt::socket_peercred(self.stream.socket());
            let uid = peer.map_err(|why| Refusal::bad_frame(&format!("cannot tell who you are: {why}")))?.uid;
            let number = shared.regions.connection();
            self.caller =
                Some(Caller { shared: Arc::clone(shared), number, uid: uid.as_raw(), waits: false });
        }
        let caller = self.caller.as_mut().expect("it is there by now");
        if std::mem::replace(&mut caller.waits, true) {
            return Err(Refusal::bad_frame("one call about a region at a time: wait for the answer"));
        }
        let call = Call { connection: caller.number, uid: caller.uid, ..call };
        shared.regions.call(call, self.reply.clone());
        Ok(())
    }

    fn has_local_pages(&mut self, shared: &Arc<Shared>, pages: u64) {
        self.local_pages = None;
        self.local_pages = Some(LocalPages::new(shared, pages));
    }

    fn is_mount(&mut self, shared: &Arc<Shared>, at: MountAt) {
        self.mount = None;
        let number = shared.mount_is_here(at);
        self.mount = number.map(|number| Here { shared: Arc::clone(shared), number });
    }

    fn subscribe(&mut self, request: u64, version: u64) {
        self.subscription = Some((request, version));
    }

    fn flush(&mut self) {
        while self.waits() && !self.broken {
            let sent = if self.outgoing.len() > 0 {
                self.stream.write(self.outgoing.bytes())
            } else {
                self.stream.flush().map(|()| 0)
            };
            match sent {
                Ok(bytes) => {
                    self.outgoing.sent(bytes);
                    self.sent_bytes += bytes as u64;
                    self.moved = Instant::now();
                }
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.broken = true,
            }
        }
    }

    fn disk_reads(&mut self) -> &mut DiskReads {
        &mut self.disk_reads
    }

    fn takes_reads(&self) -> bool {
        self.outgoing.len() <= QUEUED_BYTES_HIGH
    }

    fn reply(&self) -> Reply {
        self.reply.clone()
    }

    fn identity(&self) -> Option<&Identity> {
        self.stream.identity()
    }
}

impl Line {
    /// Something is to be sent.
    pub(super) fn waits(&self) -> bool {
        self.outgoing.len() > 0 || self.stream.waits()
    }

    /// Some of what is behind can go, were it not for what waits: what of it is on the disk has room there.
    pub(super) fn has_behind(&self) -> bool {
        !self.behind.is_empty() && self.disk_reads.has_room()
    }

    /// Something is to be sent, and the peer only has to take it.
    pub(super) fn sends(&self) -> bool {
        self.waits() || self.has_behind()
    }
}
