//! Reservations, as borrowers ask for them: the lender's state decides ([`Lender::reserve_memory`]), here it is asked in bytes and answered.

use crate::seats::Seat;
use crate::service::Refusal;
use crate::shared::Shared;
use loam_core::lender::{Lender, Terms};
use loam_core::units::{BASE_PAGE_BYTES, BasePages, Bytes};
use loam_wire::{Reservation, ReservationFacts};
use std::net::Ipv4Addr;

/// Has `bytes` in all set aside for a borrower from now on, whole base pages.
pub(crate) fn reserve(shared: &Shared, seat: &Seat, bytes: u64) -> Result<Reservation, Refusal> {
    let space = seat.space;
    let pages = BasePages(bytes.div_ceil(BASE_PAGE_BYTES as u64));
    let (before, name, answer) = {
        let mut lender = shared.lender_for(seat)?;
        let (before, granted) = (lender.reservation(space), lender.reserve_memory(space, pages).is_ok());
        let news = granted && (pages.0 > 0) != (before.0 > 0);
        let name =
            || lender.borrowers().find(|b| b.space == space).map(|b| b.name.to_owned()).unwrap_or_default();
        let name = news.then(name);
        // Spare copies may have to leave for it.
        shared.tell_of(&lender);
        let facts = ReservationFacts {
            own_bytes: lender.reservation(space).bytes().0,
            most_bytes: lender.reservation_max(Some(space)).bytes().0,
            free_bytes: lender.room_of(space).0,
            ..of_all(&lender)
        };
        (before, name, Reservation::new(&facts, granted))
    };
    if let Some(name) = name {
        tell_log(shared, &name, before, pages);
    }
    Ok(answer)
}

/// It has begun to reserve, or has ceased to. One that does so again and again is told of once a minute.
fn tell_log(shared: &Shared, name: &str, before: BasePages, now: BasePages) {
    let text = if now.0 > 0 {
        format!("memory is reserved for {name}")
    } else {
        format!("nothing is reserved any more for {name}")
    };
    let (before, now) = (before.bytes(), now.bytes());
    if shared.is_news(Ipv4Addr::UNSPECIFIED.into(), &text) {
        tracing::info!("{text}: {now}, {before} before");
    } else {
        tracing::debug!("{text}: {now}, {before} before");
    }
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
