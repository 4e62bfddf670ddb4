//! Reservations, as borrowers ask for them: the lender's state decides ([`Lender::reserve_memory`]), here it is asked in bytes and answered.

use crate::shared::Shared;
use loam_core::ids::SpaceId;
use loam_core::lender::{Lender, Terms};
use loam_core::units::{BASE_PAGE_BYTES, BasePages, Bytes};
use loam_wire::{Reservation, ReservationFacts};

/// Has `bytes` in all set aside for a borrower from now on, whole base pages.
pub(crate) fn reserve(shared: &Shared, space: SpaceId, bytes: u64) -> Reservation {
    let pages = BasePages(bytes.div_ceil(BASE_PAGE_BYTES as u64));
    let mut lender = shared.lender();
    let (before, granted) = (lender.reservation(space), lender.reserve_memory(space, pages).is_ok());
    if granted && pages != before {
        let name = lender.borrowers().find(|b| b.space == space).map_or("", |b| b.name).to_owned();
        tracing::info!("{} are reserved for {name}, {} before", pages.bytes(), before.bytes());
    }
    // Spare copies may have to leave for it.
    shared.tell_of(&lender);
    let facts = ReservationFacts {
        own_bytes: lender.reservation(space).bytes().0,
        most_bytes: lender.reservation_max(Some(space)).bytes().0,
        free_bytes: lender.room_of(space).0,
        ..of_all(&lender)
    };
    Reservation::new(&facts, granted)
}

/// What there is to reserve for one that comes new.
pub(crate) fn what_there_is(shared: &Shared) -> Reservation {
    let lender = shared.lender();
    let facts = ReservationFacts {
        most_bytes: lender.reservation_max(None).bytes().0,
        free_bytes: lender.room(Terms::Kept).0,
        ..of_all(&lender)
    };
    Reservation::new(&facts, true)
}

fn of_all(lender: &Lender) -> ReservationFacts {
    ReservationFacts {
        all_bytes: lender.reserved().bytes().0,
        reservable_bytes: lender.reservable().bytes().0,
        ..ReservationFacts::default()
    }
}

/// Half of what is lent, unless somebody says otherwise: a machine whose own programs come first keeps the other half to take back.
pub(crate) fn default_reservable(lent: Bytes) -> Bytes {
    Bytes(lent.0 / 2)
}
