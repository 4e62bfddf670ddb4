//! The lender's ledger: which base pages are reserved, for whom.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Who has a lease: one borrower for as long as it lives, its restarts included. Random; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BorrowerId(pub u64);

/// Which lease of one ledger. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseNumber(pub u64);

/// Contiguous base pages of the lender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first, counted from where the lent memory begins.
    pub first: u64,
    /// How many; at least one.
    pub pages: u64,
}

impl Span {
    /// The first page behind it.
    pub const fn end(self) -> u64 {
        self.first + self.pages
    }
}

/// There is no such span free, or it would be more than may be lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Held {
    borrower: BorrowerId,
    span: Span,
}

/// Reservations out of `room` base pages, of which at most `limit` are lent at a time.
///
/// The two differ where memory has no place of its own: a file of memory lies at any address, so it is given one in a room far larger
/// than what may be lent, and gaps between leases cost nothing. On a device both are its size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spans {
    room: u64,
    limit: u64,
    used: u64,
    leases: BTreeMap<LeaseNumber, Held>,
    /// By first page.
    places: BTreeMap<u64, LeaseNumber>,
    number_last: u64,
}

impl Spans {
    /// An empty ledger.
    ///
    /// # Panics
    /// If more may be lent than there is room for.
    pub fn new(room: u64, limit: u64) -> Self {
        assert!(limit <= room);
        Self { room, limit, used: 0, leases: BTreeMap::new(), places: BTreeMap::new(), number_last: 0 }
    }

    /// Base pages reserved.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Base pages that may be reserved in all.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// At most so many are reserved from now on. What is reserved already stays: it is pinned.
    ///
    /// # Panics
    /// If that is more than there is room for.
    pub fn set_limit(&mut self, pages: u64) {
        assert!(pages <= self.room);
        self.limit = pages;
    }

    /// Leases, by their number.
    pub fn leases(&self) -> impl Iterator<Item = (LeaseNumber, BorrowerId, Span)> {
        self.leases.iter().map(|(number, held)| (*number, held.borrower, held.span))
    }

    /// What a lease is, if there is one of that number and it is this borrower's.
    pub fn span(&self, borrower: BorrowerId, lease: LeaseNumber) -> Option<Span> {
        self.leases.get(&lease).filter(|held| held.borrower == borrower).map(|held| held.span)
    }

    /// Reserves `pages` contiguous base pages, the first a multiple of `align`, in the smallest gap that has them.
    ///
    /// # Errors
    /// [`NoRoom`]; nothing has changed.
    ///
    /// # Panics
    /// If `pages` or `align` is 0.
    pub fn reserve(
        &mut self,
        borrower: BorrowerId,
        pages: u64,
        align: u64,
    ) -> Result<(LeaseNumber, Span), NoRoom> {
        assert!(pages > 0 && align > 0);
        if self.limit.saturating_sub(self.used) < pages {
            return Err(NoRoom);
        }
        let first = self.gap(pages, align).ok_or(NoRoom)?;
        self.number_last += 1;
        let (number, span) = (LeaseNumber(self.number_last), Span { first, pages });
        assert!(self.places.insert(first, number).is_none());
        assert!(self.leases.insert(number, Held { borrower, span }).is_none());
        self.used += pages;
        assert!(self.used <= self.limit);
        Ok((number, span))
    }

    /// Where the smallest gap begins that holds so many from a multiple of `align` on.
    fn gap(&self, pages: u64, align: u64) -> Option<u64> {
        let mut best: Option<(u64, u64)> = None;
        let mut from = 0;
        let ends = self.places.iter().map(|(first, number)| (*first, self.leases[number].span.end()));
        for (until, next) in ends.chain([(self.room, self.room)]) {
            assert!(from <= until, "spans overlap");
            let first = from.next_multiple_of(align);
            let fits = first.checked_add(pages).is_some_and(|end| end <= until);
            if fits && best.is_none_or(|(size, _)| until - from < size) {
                best = Some((until - from, first));
            }
            from = next;
        }
        best.map(|(_, first)| first)
    }

    /// Keeps the first `keep` base pages of a lease and answers what is free by that: `None` if it had no more, or there is no such lease of
    /// this borrower.
    pub fn keep(&mut self, borrower: BorrowerId, lease: LeaseNumber, keep: u64) -> Option<Span> {
        let held = self.leases.get_mut(&lease).filter(|held| held.borrower == borrower)?;
        let span = held.span;
        if keep >= span.pages {
            return None;
        }
        if keep == 0 {
            self.leases.remove(&lease);
            assert_eq!(self.places.remove(&span.first), Some(lease));
        } else {
            held.span.pages = keep;
        }
        self.used -= span.pages - keep;
        Some(Span { first: span.first + keep, pages: span.pages - keep })
    }

    /// Ends all leases of a borrower; answers their spans.
    pub fn end(&mut self, borrower: BorrowerId) -> Vec<Span> {
        let mine = self.leases.iter().filter(|(_, held)| held.borrower == borrower);
        let numbers: Vec<LeaseNumber> = mine.map(|(number, _)| *number).collect();
        numbers.into_iter().filter_map(|number| self.keep(borrower, number, 0)).collect()
    }

    /// Looks at everything.
    ///
    /// # Panics
    /// If a base page is reserved twice, lies outside the room, or is not counted.
    pub fn audit(&self) {
        assert_eq!(self.places.len(), self.leases.len());
        let (mut end, mut used) = (0, 0);
        for (first, number) in &self.places {
            let span = self.leases[number].span;
            assert!(span.first == *first && span.pages > 0 && *first >= end && span.end() <= self.room);
            (end, used) = (span.end(), used + span.pages);
        }
        assert_eq!(used, self.used);
    }
}
