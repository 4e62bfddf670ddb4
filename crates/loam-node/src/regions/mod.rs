//! Direct regions for programs of this machine: memory of the node's own that they map (docs/regions-direct.md).
//!
//! One thread does what calls ask for: reserving memory takes as long as clearing it does, and an event loop must
//! not wait for that. It clears memory for one call at a time, in steps; calls that need none are answered in between. A loop hands calls over with the asking connection's number and its user, as the kernel tells it; the answer goes
//! back through the loop's mailbox.

mod book;
mod device;
mod making;
mod memory;
mod pieces;
mod placement;
mod pool;
mod region;
mod room;
#[cfg(test)]
mod tests;

use crate::drainer::Reply;
use crate::shared::Shared;
use book::{Book, Refused};
pub use device::DeviceError;
use loam_core::units::{BasePages, Bytes};
use loam_wire::encode;
pub(crate) use pool::{Pool, open};
use region::Answer;
pub(crate) use region::Call;
use room::ROOM_LOOK;
pub(crate) use room::Shares;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};

/// Words that are heard between two steps of making memory: some milliseconds at most.
const WORDS_MAX: usize = 256;

/// What the thread is told.
#[derive(Debug)]
enum Word {
    Call(Call, Reply),
    Gone(u64),
    End,
}

/// The loops' side. A connection has one call under way, so what waits is bounded by them.
#[derive(Debug)]
pub(crate) struct Desk {
    to: Sender<Word>,
    connection_last: AtomicU64,
}

impl Desk {
    /// And the ear of the thread to be.
    pub(crate) fn new() -> (Self, Ear) {
        let (to, from) = channel();
        (Self { to, connection_last: AtomicU64::new(0) }, Ear(from))
    }

    /// A number for a connection that makes its first call.
    pub(crate) fn connection(&self) -> u64 {
        self.connection_last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Leaves a call; the answer goes to `reply`.
    pub(crate) fn call(&self, call: Call, reply: Reply) {
        self.tell(Word::Call(call, reply));
    }

    /// That connection has ended.
    pub(crate) fn gone(&self, connection: u64) {
        self.tell(Word::Gone(connection));
    }

    /// The node ends.
    pub(crate) fn end(&self) {
        self.tell(Word::End);
    }

    fn tell(&self, word: Word) {
        // It only fails when the thread has ended, and with it everything that the word could be about.
        let _ = self.to.send(word);
    }
}

/// Where the thread hears what it is told.
#[derive(Debug)]
pub(crate) struct Ear(Receiver<Word>);

/// Serves until the node ends, which lends and keeps that much; created regions end with it (what programs have mapped stays theirs).
pub(crate) fn run(
    shared: &Arc<Shared>,
    limits: (BasePages, Bytes),
    pools: Vec<Pool>,
    root: &Path,
    ear: &Ear,
) {
    let own = rustix::process::geteuid().as_raw();
    let mut book = Book::new(limits, pools, root, own, Arc::clone(shared));
    // Whose memory is being made, and who waits for that to be done.
    let mut making: Option<(u64, Reply)> = None;
    let mut waiting: VecDeque<(Call, Reply)> = VecDeque::new();
    loop {
        // Who waited to be let in goes before who waits for memory.
        let next = waiting.iter().position(|(call, _)| !call.may_make()).unwrap_or(0);
        let word = if book.is_waiting() {
            match ear.0.recv_timeout(ROOM_LOOK) {
                Ok(word) => Some(word),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        } else if making.is_some() {
            match ear.0.try_recv() {
                Ok(word) => Some(word),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => return,
            }
        } else if let Some((call, reply)) = waiting.remove(next) {
            Some(Word::Call(call, reply))
        } else {
            let Ok(word) = ear.0.recv() else { return };
            Some(word)
        };
        // While memory is made all that has come goes before the next step, so that nobody waits for more than one.
        let (mut next, mut more) = (word, WORDS_MAX);
        while let Some(word) = next.take() {
            match word {
                Word::End => return,
                Word::Gone(connection) => {
                    waiting.retain(|(call, _)| call.connection != connection);
                    book.handle_gone(connection);
                }
                Word::Call(call, reply) if book.must_wait(&call) => {
                    waiting.push_back((call, reply));
                }
                Word::Call(call, reply) => match book.begin(&call) {
                    Some(answer) => tell(call.request, &reply, answer),
                    None => making = Some((call.request, reply)),
                },
            }
            if more > 0 && book.is_making() {
                (next, more) = (ear.0.try_recv().ok(), more - 1);
            }
        }
        if let Some(answer) = book.go_on() {
            let (request, reply) = making.take().expect("somebody waits for it");
            tell(request, &reply, answer);
        }
        if !book.is_making() {
            making = None;
        }
    }
}

fn tell(request: u64, reply: &Reply, answer: Result<Answer, Refused>) {
    let mut frame = Vec::new();
    let files = match answer {
        Ok(Answer::Region(entry, spans, files)) => {
            encode::region(&mut frame, request, &entry, &spans);
            files
        }
        Ok(Answer::Regions(figures, entries)) => {
            encode::regions(&mut frame, request, &figures, &entries);
            Vec::new()
        }
        Err((why, text)) => {
            encode::region_refused(&mut frame, request, why, &text);
            Vec::new()
        }
    };
    reply.mailbox.hand(reply.connection, frame, files);
}
