//! What others have for a peer: answers that were waited for, and frames that nobody asked for.

use super::{Connection, State};
use crate::cluster::Published;
use crate::limits::QUEUED_BYTES_HIGH;
use crate::service::Outlet;
use loam_wire::limits::REGION_SPANS_MAX;
use loam_wire::{Decoded, Frame, RegionRefusal, decode, encode};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::sync::Arc;

impl Connection {
    /// Queues a frame that nobody asked for.
    pub(crate) fn tell(&mut self, frame: &[u8]) {
        self.line.queue().append(frame.len()).copy_from_slice(frame);
    }

    /// Bytes of posts that it takes now; the last may be longer. What was asked for does not count: there is little of it, and it would keep a borrower that
    /// reads all the time from being told anything.
    pub(crate) fn post_room(&self) -> usize {
        let are_sent = self.line.sent_bytes >= self.posted_end;
        QUEUED_BYTES_HIGH.saturating_sub(if are_sent { 0 } else { self.posted_bytes })
    }

    /// Bytes that wait to be sent.
    #[cfg(test)]
    pub(crate) fn queued_bytes(&self) -> usize {
        self.line.outgoing.len()
    }

    /// Queues a post.
    pub(crate) fn post(&mut self, frame: &[u8]) {
        if self.line.sent_bytes >= self.posted_end {
            self.posted_bytes = 0;
        }
        self.tell(frame);
        self.posted_bytes += frame.len();
        self.posted_end = self.line.sent_bytes + self.line.outgoing.len() as u64;
    }

    /// Posts have waited for those before them, and those are sent.
    pub(crate) fn wants_posts(&mut self) -> bool {
        let wants = self.has_posts && self.line.sent_bytes >= self.posted_end;
        self.has_posts &= !wants;
        wants
    }

    /// Queues an answer with `pages` that were read from the disk, or were not there.
    pub(crate) fn answer(&mut self, pages: usize, frame: &[u8]) {
        self.line.disk_reads.answered(pages);
        if self.state == State::Open {
            self.tell(frame);
        }
    }

    /// Sends the answer to a call about a region, with descriptors of its memory. They go beside the bytes, so all that was
    /// to be sent before has to be with the kernel.
    pub(crate) fn hand(&mut self, frame: &[u8], files: &[Arc<OwnedFd>]) {
        if let Some(caller) = &mut self.line.caller {
            caller.waits = false;
        }
        if self.state != State::Open {
            return;
        }
        if files.is_empty() {
            return self.tell(frame);
        }
        self.line.flush();
        if self.line.waits() {
            tracing::warn!("closed {}: it does not take its answers", self.line.origin);
            self.line.broken = true;
            return;
        }
        match send_with(self.line.stream.socket(), frame, files) {
            // What did not fit follows as bytes; the descriptors went with the first.
            Ok(sent) if sent < frame.len() => self.tell(&frame[sent..]),
            Ok(_) => {}
            // It is told and stays: what it has mapped already is its own for as long as its connection lives.
            Err(why) => match decode(frame) {
                Ok(Decoded::Whole { frame: Frame::Region { request, .. }, .. }) => {
                    let text = format!(
                        "cannot hand the region's memory over: {why}; is there a limit on descriptors (ulimit -n)?"
                    );
                    tracing::warn!("{}: {text}", self.line.origin);
                    let mut refused = Vec::new();
                    encode::region_refused(&mut refused, request, RegionRefusal::Unavailable, &text);
                    self.tell(&refused);
                }
                _ => unreachable!("only a region's frame comes with memory"),
            },
        }
    }

    pub(crate) fn wants_views(&self) -> bool {
        self.line.subscription.is_some()
    }

    /// Queues a view for who wants it and has not got it. One who does not take what was sent before gets the next one instead.
    pub(crate) fn offer_view(&mut self, published: &Published) -> bool {
        let version = published.view.version();
        match self.line.subscription {
            Some((request, sent))
                if sent != version && self.state == State::Open && self.line.outgoing.len() == 0 =>
            {
                let mut head = Vec::new();
                encode::view(&mut head, request, &published.view, &published.view_nodes);
                self.line.queue().append(head.len()).copy_from_slice(&head);
                self.line.subscription = Some((request, version));
                true
            }
            _ => false,
        }
    }
}

/// Sends bytes with descriptors.
fn send_with(
    socket: &std::net::TcpStream,
    bytes: &[u8],
    files: &[Arc<OwnedFd>],
) -> rustix::io::Result<usize> {
    let files: Vec<BorrowedFd<'_>> = files.iter().map(|file| file.as_fd()).collect();
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REGION_SPANS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)), "a region has no more spans than that");
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags))
}
