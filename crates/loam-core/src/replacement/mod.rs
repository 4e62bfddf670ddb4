//! Replacement: in which order pages leave.
//!
//! A policy is written once, as an [`Order`] over small numbers, so that its state is a few arrays. [`Numbered`] makes a
//! [`Replacement`] of it, which the live agent and the event simulator drive by [`PageRef`]; the replay of a mere reference stream
//! (`loam-sim`, `replay`) drives the same code by number, at full speed. [`SecondChanceFifo`], the agent's, is the exception: it was
//! made for pages without access bits and keeps its own tables; [`Unnumbered`] lets the replay drive it too.
//!
//! | name | policy |
//! | --- | --- |
//! | `lru` | least recently used |
//! | `fifo` | first in, first out |
//! | `second-chance` | what the live agent uses, in a [`TokenOrdered`]: of several processes the pages of one may leave last |
//! | `clock` | FIFO that passes over pages touched since it last came by |
//! | `s3-fifo` | three FIFO queues: small, main, ghost |
//! | `sieve` | a FIFO queue with a hand that stays where it is |
//! | `arc` | adaptive replacement cache: recency against frequency |
//!
//! No policy is told how many frames there are. Who needs to know takes it from how many pages it holds when it is asked for a victim.

mod arc;
mod clock;
mod fifo;
pub(crate) mod links;
mod lru;
mod numbered;
mod numbering;
mod s3_fifo;
mod second_chance;
mod sieve;
#[cfg(test)]
mod tests;
mod token_ordered;

pub use arc::Arc;
pub use clock::Clock;
pub use fifo::Fifo;
pub use lru::Lru;
pub use numbered::{Numbered, Unnumbered};
pub use numbering::{Key, Numbering};
pub use s3_fifo::S3Fifo;
pub use second_chance::SecondChanceFifo;
pub use sieve::Sieve;
pub use token_ordered::TokenOrdered;

use crate::borrower::SpaceKey;
use crate::page_size::PageSize;
use crate::units::BasePages;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A page: its address space and its first base page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageRef {
    /// The address space.
    pub space: SpaceKey,
    /// The page's first base page.
    pub first: u64,
}

/// A replacement policy. It is told when a page comes, and asked which leaves next.
///
/// A page whose mapping was removed stays in the policy until it is given out as a victim, or found by [`Replacement::retain`].
pub trait Replacement: core::fmt::Debug + Send {
    /// `page` has become local. If it is still in the policy from before its mapping was removed, that is a touch.
    fn inserted(&mut self, page: PageRef);
    /// The same of a page of this size. A policy that does nothing here takes all pages for equally large.
    fn inserted_sized(&mut self, page: PageRef, size: PageSize) {
        let _ = size;
        self.inserted(page);
    }
    /// `page`, which is in the policy, was used. Never called live: there are no access bits to read.
    fn touched(&mut self, page: PageRef) {
        let _ = page;
    }
    /// `page`, which is in the policy, has left without being asked for as a victim. A policy that does nothing here takes its return for a touch.
    fn removed(&mut self, page: PageRef) {
        let _ = page;
    }
    /// `page`, a victim some time ago, could not be taken away: that it comes in again is no sign that it is used.
    fn kept(&mut self, page: PageRef) {
        let _ = page;
    }
    /// So many base pages were fetched ahead that the program has not come to: they are to stay until it does.
    fn ahead(&mut self, pages: BasePages) {
        let _ = pages;
    }
    /// How many pages it holds, those whose mappings were removed as well; one that has come again since counts twice. A policy that does nothing here is
    /// not tidied.
    fn entries(&self) -> usize {
        0
    }
    /// Forgets pages that are not there (any more). Those that stay keep their places.
    fn retain(&mut self, is_there: &mut dyn FnMut(PageRef) -> bool) {
        let _ = is_there;
    }
    /// The page to leave next; it is out of the policy then.
    fn victim(&mut self) -> Option<PageRef>;
    /// Puts back the last victim, which was not needed, so that it is the next one again. Only directly after
    /// [`Replacement::victim`] gave it.
    fn put_back(&mut self, page: PageRef);
    /// The pages of this address space leave last from now on; `None`: nobody's do. A policy that does nothing here has all processes share alike.
    fn give_token(&mut self, holder: Option<SpaceKey>) {
        let _ = holder;
    }
}

/// A replacement policy over small numbers: what [`Replacement`] is over pages.
///
/// State is kept in arrays that numbers index, so they should be dense. Nothing is allocated once the arrays have their size.
pub trait Order: core::fmt::Debug + Default + Send {
    /// Directly after a page was inserted or touched, so many touches of it may still change something. At most 3.
    const TOUCHES_IN_A_ROW: u32 = 1;

    /// How many pages it holds.
    fn len(&self) -> usize;
    /// Does it hold none?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Is the page in the policy?
    fn holds(&self, page: u32) -> bool;
    /// Is it in the policy, or remembered after it left? A number that is not may be given to another page.
    fn knows(&self, page: u32) -> bool {
        self.holds(page)
    }
    /// A page that it does not hold has come.
    fn inserted(&mut self, page: u32);
    /// A page that it holds was used.
    fn touched(&mut self, page: u32);
    /// The page to leave next; it is out of the policy then.
    fn victim(&mut self) -> Option<u32>;
    /// Puts the last victim back: see [`Replacement::put_back`].
    fn put_back(&mut self, page: u32);
}

/// Names that [`by_name`] knows.
pub const NAMES: [&str; 7] = ["lru", "fifo", "second-chance", "clock", "s3-fifo", "sieve", "arc"];

/// The policy of this name, empty.
pub fn by_name(name: &str) -> Option<Box<dyn Replacement>> {
    Some(match name {
        "lru" => Box::new(Numbered::<Lru>::default()),
        "fifo" => Box::new(Numbered::<Fifo>::default()),
        "second-chance" => Box::new(SecondChanceFifo::default()),
        "clock" => Box::new(Numbered::<Clock>::default()),
        "s3-fifo" => Box::new(Numbered::<S3Fifo>::default()),
        "sieve" => Box::new(Numbered::<Sieve>::default()),
        "arc" => Box::new(Numbered::<Arc>::default()),
        _ => return None,
    })
}

/// The cell of a page in an array that grows with the numbers in use.
pub(crate) fn cell<T: Copy + Default>(of: &mut Vec<T>, page: u32) -> &mut T {
    let at = page as usize;
    if at >= of.len() {
        of.resize((at + 1).next_power_of_two().max(64), T::default());
    }
    &mut of[at]
}

/// How many frames there seem to be: the pages that were held when memory last was full.
///
/// A batch of victims does not shrink it: only the first one after an insertion is a sign that memory is full.
#[derive(Debug, Default)]
struct Frames {
    count: usize,
    inserted_since: bool,
}

impl Frames {
    fn inserted(&mut self) {
        self.inserted_since = true;
    }
    fn full_with(&mut self, pages: usize) -> usize {
        if core::mem::take(&mut self.inserted_since) {
            self.count = pages;
        }
        self.count
    }
}
