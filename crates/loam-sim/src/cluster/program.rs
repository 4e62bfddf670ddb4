//! What runs on a node: a stream of references to pages.

use crate::fuzz::dice::Dice;
use crate::workload::{Footprint, Object, WorkPage, Workload};
use loam_core::global::Access;
use loam_core::ids::{PageId, SpaceId};
use std::sync::Arc;

/// One reference, and what the program did before it.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Which page, and how.
    pub access: Access,
    /// Processor time before it.
    pub cpu_ns: u64,
    /// Nothing need be read: what was there does not matter.
    pub fresh: bool,
    /// Time is measured from here on.
    pub mark: bool,
}

impl Step {
    /// No reference yet.
    pub(super) fn none() -> Self {
        let page = PageId { space: SpaceId(0), index: 0 };
        Self { access: Access { page, shared: false, write: false }, cpu_ns: 0, fresh: false, mark: false }
    }
}

/// A program.
pub trait Program: std::fmt::Debug + Send {
    /// Its next reference. False: it has ended. (Written in place: a returned one is copied several times, and processors wait for each copy.)
    fn next_step(&mut self, into: &mut Step) -> bool;
}

/// A reference in eight bytes: hundreds of millions of them are kept.
#[derive(Clone, Copy, Debug)]
struct Packed {
    /// And in the two highest bits whether it writes, and whether the page is fresh.
    page: u32,
    cpu_ns: u32,
}

impl Packed {
    const WRITE: u32 = 1 << 31;
    const FRESH: u32 = 1 << 30;

    fn new(page: u32, cpu_ns: u32, write: bool, fresh: bool) -> Self {
        assert!(page < Self::FRESH, "fewer than 2^30 pages");
        let flags = if write { Self::WRITE } else { 0 } | if fresh { Self::FRESH } else { 0 };
        Self { page: page | flags, cpu_ns }
    }

    fn page(self) -> u32 {
        self.page & (Self::FRESH - 1)
    }

    fn write(self) -> bool {
        self.page & Self::WRITE != 0
    }

    fn fresh(self) -> bool {
        self.page & Self::FRESH != 0
    }
}

/// A workload's references, kept so that many simulations can run them.
#[derive(Debug)]
pub struct Recording {
    /// The workload's name.
    pub name: &'static str,
    steps: Vec<Packed>,
    /// Pages that it touches.
    pub pages: u64,
}

impl Recording {
    /// Runs the workload, and keeps what it touched.
    ///
    /// # Errors
    /// If it did not compute what it should.
    pub fn new(workload: &mut dyn Workload) -> Result<Self, String> {
        let begins = Begins::new(workload.footprint());
        let (mut steps, mut some) = (Vec::new(), Vec::new());
        let mut seen = vec![false; workload.footprint().pages() as usize];
        loop {
            some.clear();
            if !workload.next_references(&mut some) {
                break;
            }
            for reference in &some {
                let page = begins.number(reference.page);
                seen[page as usize] = true;
                steps.push(Packed::new(page, reference.cpu_ns, reference.write, reference.fresh));
            }
        }
        workload.check()?;
        steps.shrink_to_fit();
        let pages = seen.iter().filter(|&&seen| seen).count() as u64;
        Ok(Self { name: workload.name(), steps, pages })
    }

    /// How many references there are.
    pub fn references(&self) -> u64 {
        self.steps.len() as u64
    }
}

/// The number of each file's first page.
struct Begins(Vec<u64>);

impl Begins {
    fn new(footprint: &Footprint) -> Self {
        let mut at = footprint.private_pages;
        let begin = |file: &crate::workload::WorkFile| {
            at += file.pages;
            at - file.pages
        };
        Self(footprint.files.iter().map(begin).collect())
    }

    fn number(&self, page: WorkPage) -> u32 {
        let begin = match page.object {
            Object::Private => 0,
            Object::File(file) => self.0[usize::from(file)],
        };
        u32::try_from(begin + u64::from(page.page)).expect("fewer than 2^32 pages")
    }
}

/// A recording, run once or several times. Its files are on the node's own disk, so all its pages are the node's own.
#[derive(Debug)]
pub struct Replay {
    recording: Arc<Recording>,
    space: SpaceId,
    at: usize,
    passes_left: u32,
}

impl Replay {
    /// Measured is the last of `passes`.
    pub fn new(recording: Arc<Recording>, space: SpaceId, passes: u32) -> Self {
        assert!(passes > 0 && !recording.steps.is_empty(), "nothing to run");
        Self { recording, space, at: 0, passes_left: passes }
    }
}

impl Program for Replay {
    fn next_step(&mut self, into: &mut Step) -> bool {
        if self.at == self.recording.steps.len() {
            self.at = 0;
            self.passes_left -= 1;
        }
        if self.passes_left == 0 {
            return false;
        }
        let step = self.recording.steps[self.at];
        self.at += 1;
        let page = PageId { space: self.space, index: u64::from(step.page()) };
        into.access = Access { page, shared: false, write: step.write() };
        into.cpu_ns = u64::from(step.cpu_ns);
        into.fresh = step.fresh();
        into.mark = self.at == 1 && self.passes_left == 1;
        true
    }
}

/// Which pages a [`Walk`] goes through, and how.
#[derive(Clone, Copy, Debug)]
pub struct WalkConfig {
    /// Own pages.
    pub private: u32,
    /// Pages of a file that every such program reads.
    pub shared: u32,
    /// How often all pages are gone through. None: for ever.
    pub passes: Option<u32>,
    /// Passes before time is measured.
    pub warm_up: u32,
    /// Not in order: jumping by chance.
    pub random: bool,
    /// Processor time before each reference.
    pub cpu_ns: u64,
    /// The first pass writes to its own pages: they are new.
    pub builds: bool,
}

/// Goes through its pages again and again: first the shared half, then its own.
#[derive(Debug)]
pub struct Walk {
    config: WalkConfig,
    space: SpaceId,
    file: SpaceId,
    dice: Dice,
    at: u32,
    pass: u32,
}

impl Walk {
    /// With pages of its own in `space`, and a `file` that others read too.
    pub fn new(config: WalkConfig, space: SpaceId, file: SpaceId, seed: u64) -> Self {
        assert!(config.private + config.shared > 0, "nothing to walk through");
        Self { config, space, file, dice: Dice::new(seed, space.0), at: 0, pass: 0 }
    }
}

impl Program for Walk {
    fn next_step(&mut self, into: &mut Step) -> bool {
        let all = self.config.private + self.config.shared;
        if self.at == all {
            self.at = 0;
            self.pass = self.pass.saturating_add(1);
        }
        if self.config.passes.is_some_and(|passes| self.pass >= passes) {
            return false;
        }
        // The first pass touches each page once.
        let jumps = self.config.random && self.pass > 0;
        let index = if jumps { self.dice.below(u64::from(all)) as u32 } else { self.at };
        let shared = index < self.config.shared;
        let page = if shared {
            PageId { space: self.file, index: u64::from(index) }
        } else {
            PageId { space: self.space, index: u64::from(index - self.config.shared) }
        };
        let builds = self.config.builds && self.pass == 0 && !shared;
        let mark = self.at == 0 && self.pass == self.config.warm_up;
        self.at += 1;
        let access = Access { page, shared, write: builds };
        *into = Step { access, cpu_ns: self.config.cpu_ns, fresh: builds, mark };
        true
    }
}
