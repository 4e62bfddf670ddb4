//! A kernel's events in memory, packed, to be replayed many times and by several threads.

use super::{Event, KernelStream};
use loam_core::units::Bytes;
use loam_kernels::{Info, Report};

const PAGE_BITS: u32 = 28;
const PAGE_MASK: u64 = (1 << PAGE_BITS) - 1;
const WRITE: u64 = 1 << PAGE_BITS;
const FRESH: u64 = 1 << (PAGE_BITS + 1);
const PART: u64 = 1 << (PAGE_BITS + 2);
/// The time is in the bits from here on.
const TIME_SHIFT: u32 = 32;
/// Events are kept in pieces, so that none is ever copied to make room.
const PIECE_EVENTS: usize = 1 << 20;

/// See the module. An event takes 8 bytes.
#[derive(Clone, Debug)]
pub struct Recording {
    pieces: Vec<Vec<u64>>,
    events: u64,
    base_page: Bytes,
    base_pages: u32,
    report: Report,
}

/// A recording that was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// The kernel's result is wrong.
    #[error("{0}: the result is wrong: {1}")]
    Wrong(&'static str, String),
    /// There is more to record than may be.
    #[error("{0}: more than {1} events: take fewer iterations, a smaller problem or larger base pages")]
    TooLong(&'static str, u64),
}

impl Recording {
    /// Runs a kernel (see [`KernelStream::new`]) and keeps what it did, at most so many events.
    ///
    /// # Errors
    /// If the result is wrong, or there are more events.
    ///
    /// # Panics
    /// As [`KernelStream::new`], and if it has 2^28 base pages or more.
    pub fn new(
        info: &'static Info,
        problem: usize,
        iterations: u32,
        base_page: Bytes,
        events_max: u64,
    ) -> Result<Self, RecordingError> {
        let mut stream = KernelStream::new(info, problem, iterations, base_page);
        assert!(u64::from(stream.base_pages()) <= PAGE_MASK, "page numbers have {PAGE_BITS} bits");
        let (mut pieces, mut batch, mut events) = (vec![Vec::new()], Vec::new(), 0);
        while stream.next_events(&mut batch) {
            events += batch.len() as u64;
            if events > events_max {
                return Err(RecordingError::TooLong(info.name, events_max));
            }
            for event in batch.drain(..) {
                if pieces.last().is_none_or(|piece: &Vec<u64>| piece.len() == PIECE_EVENTS) {
                    pieces.push(Vec::with_capacity(PIECE_EVENTS));
                }
                pieces.last_mut().expect("there is one").push(pack(event));
            }
        }
        let report = stream.report().expect("all events have been taken").clone();
        if let Some(wrong) = report.checks.iter().find(|check| !check.passed) {
            return Err(RecordingError::Wrong(info.name, wrong.text.clone()));
        }
        Ok(Self { pieces, events, base_page, base_pages: stream.base_pages(), report })
    }

    /// What the kernel did, in order.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        self.pieces.iter().flatten().copied().map(unpack)
    }

    /// How many events there are.
    pub fn len(&self) -> u64 {
        self.events
    }

    /// There are none, which no kernel leaves.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Bytes of a base page.
    pub fn base_page(&self) -> Bytes {
        self.base_page
    }

    /// Base pages of the kernel's memory: page numbers are below.
    pub fn base_pages(&self) -> u32 {
        self.base_pages
    }

    /// What the kernel computed, checked.
    pub fn report(&self) -> &Report {
        &self.report
    }
}

fn pack(event: Event) -> u64 {
    match event {
        Event::Part(part) => PART | u64::from(part) & PAGE_MASK,
        Event::Reference { page, cpu_ns, write, fresh } => {
            let flags = if write { WRITE } else { 0 } | if fresh { FRESH } else { 0 };
            u64::from(cpu_ns) << TIME_SHIFT | flags | u64::from(page)
        }
    }
}

fn unpack(packed: u64) -> Event {
    let number = (packed & PAGE_MASK) as u32;
    if packed & PART != 0 {
        return Event::Part(number);
    }
    let cpu_ns = (packed >> TIME_SHIFT) as u32;
    Event::Reference { page: number, cpu_ns, write: packed & WRITE != 0, fresh: packed & FRESH != 0 }
}
