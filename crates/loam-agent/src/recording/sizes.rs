//! Which page sizes were used when, by part of the program (aapc-2012, figure 7).

use loam_core::page_size::{self, Scope};
use loam_core::units::{BasePages, EXTENT_BASE_PAGES, Instant};
use std::collections::BTreeMap;

/// Most changes that are kept.
pub const CHANGES_MAX: usize = 1024;
/// Longest reason that is kept, in bytes.
const REASON_BYTES_MAX: usize = 96;

/// The pages of a part of the program got another size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeChange {
    /// When.
    pub at: Instant,
    /// Of which part.
    pub part: u32,
    /// The size until then.
    pub from: BasePages,
    /// The size from then on.
    pub to: BasePages,
    /// Why.
    pub reason: String,
    /// In how many extents; 0: everywhere where nothing else has been found.
    pub extents: u32,
}

impl From<page_size::SizeChange> for SizeChange {
    fn from(change: page_size::SizeChange) -> Self {
        let extents = match change.scope {
            Scope::All => 0,
            Scope::Range(_, pages) => (pages.0 / EXTENT_BASE_PAGES as u64) as u32,
        };
        Self {
            at: change.at,
            part: change.part,
            from: BasePages(change.from.base_pages()),
            to: BasePages(change.to.base_pages()),
            reason: change.reason.to_string(),
            extents,
        }
    }
}

/// The sizes of a run's pages from its beginning on. Takes 150 KB however often they change.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    first: BasePages,
    changes: Vec<SizeChange>,
    left_out: u64,
}

impl Sizes {
    /// All pages begin with this size.
    pub fn new(first: BasePages) -> Self {
        Self { first, ..Self::default() }
    }

    /// A size changed, later than all that changed before. Where there are too many, two that follow each other in a part become one.
    pub fn record(&mut self, mut change: SizeChange) {
        // The agent looks at the clock once for several steps: what one of them finds may be told after what the next has found.
        change.at = self.changes.last().map_or(change.at, |last| change.at.max(last.at));
        if change.reason.len() > REASON_BYTES_MAX {
            let fits = (0..=REASON_BYTES_MAX).rev().find(|&at| change.reason.is_char_boundary(at));
            change.reason.truncate(fits.unwrap_or(0));
        }
        change.reason.shrink_to_fit();
        if self.changes.len() == CHANGES_MAX {
            self.join_pairs();
        }
        if self.changes.len() == CHANGES_MAX {
            self.left_out += 1; // a part for each change: there is nothing to join
        } else {
            self.changes.push(change);
        }
    }

    /// What all pages had at first.
    pub fn first(&self) -> BasePages {
        self.first
    }

    /// The changes, oldest first.
    pub fn changes(&self) -> &[SizeChange] {
        &self.changes
    }

    /// Changes that are not in the list, because it was full or two became one.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Each part's sizes where no place has one of its own: the first one, and what followed when. Without changes the whole run is part 0.
    pub fn by_part(&self) -> BTreeMap<u32, Vec<(Instant, BasePages)>> {
        let mut parts: BTreeMap<u32, Vec<(Instant, BasePages)>> = BTreeMap::new();
        for change in self.changes.iter().filter(|change| change.extents == 0) {
            let sizes = parts.entry(change.part).or_insert_with(|| vec![(Instant(0), change.from)]);
            sizes.push((change.at, change.to));
        }
        if parts.is_empty() {
            parts.insert(0, vec![(Instant(0), self.first)]);
        }
        parts
    }

    /// Of each part two changes become the later one, from what was before both: the size between them is forgotten, and the
    /// last one is not. Changes of single places are no changes of what holds everywhere, and are joined by themselves.
    fn join_pairs(&mut self) {
        let mut kept: Vec<Option<SizeChange>> = Vec::with_capacity(CHANGES_MAX);
        let mut firsts: BTreeMap<(u32, bool), usize> = BTreeMap::new();
        for mut change in self.changes.drain(..) {
            let everywhere = change.extents == 0;
            match firsts.remove(&(change.part, everywhere)) {
                Some(first) => {
                    let first = kept[first].take().expect("it is joined once");
                    // Places differ: what was before one says nothing of another.
                    if everywhere {
                        change.from = first.from;
                    }
                    self.left_out += 1;
                }
                None => {
                    firsts.insert((change.part, everywhere), kept.len());
                }
            }
            kept.push(Some(change));
        }
        self.changes.extend(kept.into_iter().flatten());
    }

    pub(super) fn bytes(&self) -> usize {
        let reasons: usize = self.changes.iter().map(|change| change.reason.capacity()).sum();
        self.changes.capacity() * size_of::<SizeChange>() + reasons
    }
}
