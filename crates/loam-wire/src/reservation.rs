//! Reservations: memory of a lender that is one borrower's alone ([`crate::feature::RESERVE`]).

use crate::encode::append;
use crate::layout::kind;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ReserveBody {
    pub(crate) bytes: U64,
    pub(crate) reserved: U64,
}

/// What a borrower has reserved at a lender, and could have. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Reservation {
    own: U64,
    most: U64,
    all: U64,
    reservable: U64,
    free: U64,
    status: u8,
    unused: [u8; 7],
}

/// The sizes of a [`Reservation`], in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservationFacts {
    /// See [`Reservation::own_bytes`].
    pub own_bytes: u64,
    /// See [`Reservation::most_bytes`].
    pub most_bytes: u64,
    /// See [`Reservation::all_bytes`].
    pub all_bytes: u64,
    /// See [`Reservation::reservable_bytes`].
    pub reservable_bytes: u64,
    /// See [`Reservation::free_bytes`].
    pub free_bytes: u64,
}

impl Reservation {
    /// The answer to a request that was granted, or was not.
    pub fn new(facts: &ReservationFacts, granted: bool) -> Self {
        Self {
            own: facts.own_bytes.into(),
            most: facts.most_bytes.into(),
            all: facts.all_bytes.into(),
            reservable: facts.reservable_bytes.into(),
            free: facts.free_bytes.into(),
            status: u8::from(!granted),
            unused: [0; 7],
        }
    }
    /// Reserved for the asker now.
    pub fn own_bytes(&self) -> u64 {
        self.own.get()
    }
    /// The most that it could have reserved now, what it has already included.
    pub fn most_bytes(&self) -> u64 {
        self.most.get()
    }
    /// Reserved for all borrowers together.
    pub fn all_bytes(&self) -> u64 {
        self.all.get()
    }
    /// What may be reserved for all together.
    pub fn reservable_bytes(&self) -> u64 {
        self.reservable.get()
    }
    /// Room for the asker's pages, what is reserved for it included.
    pub fn free_bytes(&self) -> u64 {
        self.free.get()
    }
    /// The reservation is what was asked for. Else nothing has changed.
    pub fn granted(&self) -> bool {
        self.status == 0
    }
    pub(crate) fn is_sane(&self) -> bool {
        self.status <= 1
    }
}

/// `Reserve`: so much in all from now on, in place of what was reserved before.
pub fn reserve(out: &mut Vec<u8>, request: u64, bytes: u64) {
    let body = ReserveBody { bytes: bytes.into(), reserved: 0.into() };
    append(out, kind::RESERVE, request, 0, body.as_bytes(), &[]);
}

/// `Reserved`, the answer.
pub fn reserved(out: &mut Vec<u8>, request: u64, reservation: &Reservation) {
    append(out, kind::RESERVED, request, 0, reservation.as_bytes(), &[]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoded, Frame, WireError, decode};

    const FACTS: ReservationFacts =
        ReservationFacts { own_bytes: 1, most_bytes: 2, all_bytes: 3, reservable_bytes: 4, free_bytes: 5 };

    #[test]
    fn the_frames_are_what_the_documentation_draws() {
        let mut bytes = Vec::new();
        reserve(&mut bytes, 9, 0x0102_0304_0506_0708);
        assert_eq!((bytes[4], bytes.len()), (40, 24 + 16));
        assert_eq!(bytes[24..32], [8, 7, 6, 5, 4, 3, 2, 1]);
        let Ok(Decoded::Whole { frame, consumed: 40 }) = decode(&bytes) else { panic!("a frame") };
        assert_eq!(frame, Frame::Reserve { request: 9, bytes: 0x0102_0304_0506_0708 });
        let (refusal, mut bytes) = (Reservation::new(&FACTS, false), Vec::new());
        reserved(&mut bytes, 9, &refusal);
        assert_eq!((bytes[4], bytes.len()), (41, 24 + 48));
        let fields: Vec<u8> = bytes[24..].iter().step_by(8).copied().collect();
        assert_eq!(fields, [1, 2, 3, 4, 5, 1]);
        let Ok(Decoded::Whole { frame, .. }) = decode(&bytes) else { panic!("a frame") };
        assert_eq!(frame, Frame::Reserved { request: 9, reservation: &refusal });
        assert!(!refusal.granted() && Reservation::new(&FACTS, true).granted());
        let back = [
            refusal.own_bytes(),
            refusal.most_bytes(),
            refusal.all_bytes(),
            refusal.reservable_bytes(),
            refusal.free_bytes(),
        ];
        assert_eq!(back, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn an_answer_that_is_neither_is_refused() {
        let mut wrong = Reservation::new(&FACTS, true);
        wrong.status = 2;
        let mut bytes = Vec::new();
        reserved(&mut bytes, 1, &wrong);
        assert_eq!(decode(&bytes), Err(WireError::Field { kind: kind::RESERVED }));
    }
}
