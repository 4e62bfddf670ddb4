//! Whose connection it is, and whether what comes over it counts.
//!
//! A borrower may have several connections, which see the same pages. One whose connection broke *comes back* over another, while frames of the old one
//! may still be on their way: the kernel sends them again, or nobody has read them here yet. An old put that were served now would take the place of
//! what was put since, or throw it out where there is no room, and its answer would reach nobody. So the hello of one that comes back voids the
//! connections before it: once it is answered nothing of theirs is served any more.
//!
//! What is here changes under the lender's lock, which whoever serves a frame takes anyway. A put lets go of it half-way, to store contents: it counts
//! as [`Busy`] until it is done, and the hello waits for that.

use crate::service::Refusal;
use crate::shared::Shared;
use loam_core::ids::SpaceId;
use loam_core::lender::{Lender, Terms, Unwelcome};
use loam_wire::error_code;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The connections of a space since it came back last.
#[derive(Debug)]
struct Stay {
    /// What it said when it came back; 0: it never has.
    returns: u32,
    /// It has come back since: nothing of these connections counts.
    void: AtomicBool,
    open: AtomicU32,
    busy: AtomicU32,
}

impl Stay {
    fn new(returns: u32) -> Self {
        Self { returns, void: AtomicBool::new(false), open: AtomicU32::new(0), busy: AtomicU32::new(0) }
    }

    fn is_void(&self) -> bool {
        self.void.load(Ordering::Acquire)
    }
}

/// Those that count, by space. Locked after the lender.
#[derive(Debug, Default)]
pub(crate) struct Stays(Mutex<BTreeMap<SpaceId, Arc<Stay>>>);

impl Stays {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<SpaceId, Arc<Stay>>> {
        self.0.lock().expect("nothing panics under it")
    }
}

/// What a connection of a borrower has of it.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) space: SpaceId,
    stay: Arc<Stay>,
}

impl PartialEq for Seat {
    fn eq(&self, other: &Self) -> bool {
        self.space == other.space && Arc::ptr_eq(&self.stay, &other.stay)
    }
}

impl Seat {
    /// Nothing that comes over this connection counts.
    pub(crate) fn is_void(&self) -> bool {
        self.stay.is_void()
    }

    /// A frame lets go of the lender half-way. `_lender` proves that it is locked.
    pub(crate) fn busy(&self, _lender: &Lender) -> Busy {
        self.stay.busy.fetch_add(1, Ordering::AcqRel);
        Busy(Arc::clone(&self.stay))
    }
}

/// A frame is half-way; over when this is dropped.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Stay>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Shared {
    /// The lender, for a frame of this connection, if it counts.
    pub(crate) fn lender_for(&self, seat: &Seat) -> Result<MutexGuard<'_, Lender>, Refusal> {
        let lender = self.lender();
        if seat.is_void() { Err(refusal_of_void()) } else { Ok(lender) }
    }

    /// A connection of a borrower has said hello.
    pub(crate) fn take_seat(
        &self,
        space: SpaceId,
        returns: u32,
        name: &str,
        terms: Terms,
    ) -> Result<Seat, Refusal> {
        loop {
            let mut lender = self.lender();
            let mut stays = self.stays.lock();
            lender.welcomes(space, terms).map_err(unwelcome)?;
            let before = stays.get(&space).filter(|stay| returns > 0 || stay.is_void()).cloned();
            if let Some(before) = &before {
                if (1..=before.returns).contains(&returns) {
                    // A try that was given up long ago.
                    return Err(refusal_of_void());
                }
                if returns > 0 {
                    before.void.store(true, Ordering::Release);
                }
                // Those who are half-way need the lock once more. One that does not come back lets the other come first that does.
                if returns == 0 || before.busy.load(Ordering::Acquire) > 0 {
                    drop((stays, lender));
                    std::thread::yield_now();
                    continue;
                }
                stays.remove(&space);
            }
            let opened = match before {
                Some(_) => lender.connection_returned(self.now(), space, name, terms),
                None => lender.connection_opened(space, name, terms),
            };
            opened.expect("it was just asked");
            let stay = stays.entry(space).or_insert_with(|| Arc::new(Stay::new(returns)));
            stay.open.fetch_add(1, Ordering::AcqRel);
            return Ok(Seat { space, stay: Arc::clone(stay) });
        }
    }

    /// A connection of a borrower is over.
    pub(crate) fn leave_seat(&self, seat: &Seat) {
        let mut lender = self.lender();
        if seat.is_void() {
            return;
        }
        lender.connection_closed(self.now(), seat.space);
        if seat.stay.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.stays.lock().remove(&seat.space);
        }
    }
}

fn refusal_of_void() -> Refusal {
    Refusal::bad_frame("its borrower has come back over another connection: this one counts no more")
}

fn unwelcome(why: Unwelcome) -> Refusal {
    match why {
        Unwelcome::TooManyBorrowers => {
            Refusal { code: error_code::BUSY, text: "this lender has too many borrowers: try another".into() }
        }
        Unwelcome::OtherTerms => {
            Refusal::bad_frame("another connection of this space has said other things of its pages")
        }
    }
}
