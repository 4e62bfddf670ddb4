//! The other machines' memory: `Lender`s of the live policy, with contents that are numbers.

use loam_core::ids::{ContentHash, SpaceId, Version};
use loam_core::lender::{Effect, Lender, Terms};
use loam_core::units::{BasePages, Duration, Instant};

const SPACE: SpaceId = SpaceId(1);

/// One lender and what its slots hold.
#[derive(Debug)]
pub(super) struct Store {
    lender: Lender,
    /// What is in each slot; contents are told apart by their hash alone.
    contents: Vec<ContentHash>,
}

impl Store {
    pub(super) fn new(capacity: BasePages) -> Self {
        let mut lender = Lender::new(capacity, Duration::from_millis(1_000), 1);
        lender.connection_opened(SPACE, "simulated", Terms::Kept).expect("there is room for one");
        Self { lender, contents: Vec::new() }
    }

    /// As a driver does it: reserve, write the slot, commit. False: no room.
    pub(super) fn put(&mut self, index: u32, version: Version, hash: ContentHash) -> bool {
        let Some(run) = self.lender.reserve(Instant(0), SPACE, &[u64::from(index)]) else { return false };
        let slot = run.first;
        if self.contents.len() <= slot.0 as usize {
            self.contents.resize(slot.0 as usize + 1, ContentHash(0));
        }
        self.contents[slot.0 as usize] = hash;
        // Nobody asks for ages here.
        self.lender.commit(Instant(0), SPACE, u64::from(index), version, hash, slot);
        true
    }

    /// The contents of that version, if they are here.
    pub(super) fn get(&mut self, index: u32, version: Version) -> Option<ContentHash> {
        let ticket = self.lender.read_begin();
        let mut answer = None;
        let contents = &self.contents;
        self.lender.get(Instant(0), SPACE, std::iter::once((u64::from(index), version)), |_, _, found| {
            answer = found.here().map(|(slot, _)| contents[slot.0 as usize]);
        });
        self.lender.read_end(ticket);
        answer
    }

    pub(super) fn drop_page(&mut self, index: u32, version: Version) {
        self.lender.drop_page(SPACE, u64::from(index), version);
        self.lender.handle_timeout(Instant(0));
        while let Some(Effect::Release(run)) = self.lender.poll_effect() {
            self.lender.released(run);
        }
    }

    pub(super) fn pages(&self) -> u64 {
        self.lender.stats().pages
    }
}
