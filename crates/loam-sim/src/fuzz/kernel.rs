//! A borrowing process as its kernel has it: which base pages are there, with which contents, and which events its userfaultfd has.
//!
//! Contents are version numbers: each write gives a page a new one, 0 is zeros.

use loam_core::borrower::{BaseRange, SpaceKey};
use loam_core::units::Instant;
use std::collections::VecDeque;

use super::hand::Hand;
use super::lenders::Page as Contents;
use super::script::{Settings, Work};

/// Base pages from one arena to the next: several extents, so that arenas never touch.
const ARENA_STEP: u64 = 1024;

/// One base page of address space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    pub mapped: bool,
    /// Missing pages of it are reported to the agent.
    pub registered: bool,
    /// Its contents, where there is a page.
    pub present: Option<u64>,
    /// Its frame is shared with nobody, and the kernel knows it.
    pub exclusive: bool,
    /// Who writes there waits, and the agent is told.
    pub protected: bool,
    pub pinned_until: Instant,
    pub denied_until: Instant,
    /// What the process must read.
    pub truth: u64,
    /// What it may read as well, while a discard races with it.
    pub also: Option<u64>,
    /// Discards of it that are under way.
    pub windows: u8,
    /// Written since the first of them began.
    pub written: bool,
    /// As which copy it left last, where that is known.
    pub left_as: Option<Contents>,
}

impl Page {
    /// `value` may be read here.
    pub(crate) fn may_read(&self, value: u64) -> bool {
        self.truth == value || self.also == Some(value)
    }

    /// A page with these contents is there now.
    pub(crate) fn install(&mut self, value: u64) {
        self.present = Some(value);
        self.exclusive = true;
        self.protected = false;
        self.truth = value;
        self.also = (self.windows > 0).then_some(0);
    }

    /// As it goes to a child, or to another address: a discard that is under way goes on without it.
    pub(crate) fn leave_windows(&mut self) {
        if self.windows > 0 || self.also.is_some() {
            match self.present {
                Some(value) => (self.truth, self.also) = (value, None),
                None if self.written => self.also = Some(0),
                None => (self.truth, self.also) = (0, None),
            }
        }
        self.windows = 0;
        self.written = false;
    }

    fn fresh(mapped: bool) -> Self {
        Self { mapped, ..Self::default() }
    }
}

/// A thread, or the hand, waits at a page that is missing, or to write to one that is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub base: u64,
    pub writes: bool,
    pub by_hand: bool,
}

/// A message of userfaultfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uevent {
    Fault(Fault),
    Remove(BaseRange),
    Unmap(BaseRange),
    Remap { from: BaseRange, to: u64 },
    Fork(SpaceKey),
}

/// A change of mappings whose maker waits until it has been read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raised {
    pub event: Uevent,
    pub thread: usize,
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    Nothing,
    /// A page.
    Page(u64),
    /// So many events to be read.
    Reading(u32),
    /// The end of its system call.
    Call,
    /// The agent's answer to a release.
    Answer,
}

#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub work: VecDeque<Work>,
    /// How far the first of them is.
    pub done: u64,
    pub waits: Waits,
    pub since: Instant,
    /// An event for it is in the queue.
    pub scheduled: bool,
    /// Pages that its discard will drop when the events have been read.
    pub dropping: Vec<usize>,
}

impl Thread {
    pub(crate) fn new() -> Self {
        let waits = Waits::Nothing;
        Self {
            work: VecDeque::new(),
            done: 0,
            waits,
            since: Instant(0),
            scheduled: false,
            dropping: Vec::new(),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.work.is_empty() && self.waits == Waits::Nothing
    }
}

/// A process: the kernel's side, its threads, its hand, and what the agent has read.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub key: SpaceKey,
    pub pages: Vec<Page>,
    arena_pages: u64,
    skew: u64,
    pub threads: Vec<Thread>,
    pub hand: Option<Hand>,
    /// Faults that were not read.
    pub faults: VecDeque<Fault>,
    /// Changes that were not read: while there are any, no page is installed or taken.
    pub raised: VecDeque<Raised>,
    /// Read, and not dealt with.
    pub read: VecDeque<Uevent>,
    /// The agent knows of it (a child only once its parent's event is dealt with).
    pub known: bool,
    /// Its address space is gone.
    pub ended: bool,
    /// The agent has been told to look at its descriptor.
    pub reading: bool,
    /// Ranges that the program keeps for itself.
    pub released: Vec<BaseRange>,
}

impl Process {
    pub(crate) fn new(key: SpaceKey, s: &Settings) -> Self {
        // The last arena is free address space at first: something can be moved there. The others can grow by a quarter.
        let pages = (0..s.arenas * s.arena_pages).map(|i| {
            Page::fresh(i / s.arena_pages + 1 < s.arenas && i % s.arena_pages < s.arena_pages * 3 / 4)
        });
        Self {
            key,
            pages: pages.collect(),
            arena_pages: s.arena_pages,
            skew: s.skew,
            threads: (0..s.threads).map(|_| Thread::new()).collect(),
            hand: Some(Hand::default()),
            faults: VecDeque::new(),
            raised: VecDeque::new(),
            read: VecDeque::new(),
            known: true,
            ended: false,
            reading: false,
            released: Vec::new(),
        }
    }

    /// The child of a fork: it has the parent's pages, which are both's from now on, and one thread.
    pub(crate) fn fork(&mut self, key: SpaceKey) -> Self {
        for page in &mut self.pages {
            page.exclusive = false;
        }
        let mut child = Self {
            key,
            threads: vec![Thread::new()],
            hand: None,
            faults: VecDeque::new(),
            raised: VecDeque::new(),
            read: VecDeque::new(),
            known: false,
            reading: false,
            ..self.clone()
        };
        for page in &mut child.pages {
            page.leave_windows();
            page.pinned_until = Instant(0);
        }
        child
    }

    /// Address of a page, as a base page.
    pub(crate) fn base_of(&self, index: usize) -> u64 {
        let i = index as u64;
        (i / self.arena_pages + 1) * ARENA_STEP + self.skew + i % self.arena_pages
    }

    pub(crate) fn index_of(&self, base: u64) -> Option<usize> {
        let arena = (base / ARENA_STEP).checked_sub(1)?;
        let offset = (base % ARENA_STEP).checked_sub(self.skew)?;
        let index = (arena * self.arena_pages + offset) as usize;
        (offset < self.arena_pages && index < self.pages.len()).then_some(index)
    }

    pub(crate) fn page(&mut self, base: u64) -> Option<&mut Page> {
        let index = self.index_of(base)?;
        Some(&mut self.pages[index])
    }

    /// Runs of neighbouring pages among `indexes`, within arenas, for which `want` holds.
    pub(crate) fn runs(
        &self,
        indexes: std::ops::Range<usize>,
        want: impl Fn(&Page) -> bool,
    ) -> Vec<BaseRange> {
        let mut runs: Vec<BaseRange> = Vec::new();
        for i in indexes.filter(|&i| want(&self.pages[i])) {
            let base = self.base_of(i);
            match runs.last_mut() {
                Some(run) if run.end == base => run.end += 1,
                _ => runs.push(BaseRange::new(base, base + 1)),
            }
        }
        runs
    }

    /// Indexes of an arena.
    pub(crate) fn arena(&self, arena: u64) -> std::ops::Range<usize> {
        let arenas = self.pages.len() as u64 / self.arena_pages;
        let first = (arena % arenas * self.arena_pages) as usize;
        first..first + self.arena_pages as usize
    }

    /// `count` indexes from `page` on, as far as its arena goes.
    pub(crate) fn span(&self, page: u64, count: u64) -> std::ops::Range<usize> {
        let first = (page % self.pages.len() as u64) as usize;
        let end = self.arena(first as u64 / self.arena_pages).end;
        first..end.min(first + count as usize)
    }

    /// Takes pages out of the address space, or gives fresh ones.
    pub(crate) fn set_mapped(&mut self, indexes: std::ops::Range<usize>, mapped: bool) {
        for page in &mut self.pages[indexes] {
            *page = Page::fresh(mapped);
        }
    }

    /// A change of mappings has been read and not been dealt with.
    pub(crate) fn has_undealt_changes(&self) -> bool {
        self.read.iter().any(|e| !matches!(e, Uevent::Fault(_)))
    }

    /// The kernel's books and the agent's may differ now.
    pub(crate) fn is_changing(&self) -> bool {
        !self.raised.is_empty() || self.has_undealt_changes()
    }
}
