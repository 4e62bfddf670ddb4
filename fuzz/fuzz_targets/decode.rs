//! The decoder on anything: as it is, and with magic, length and crc made right, so that the checks behind them
//! are reached too. `cargo +nightly fuzz run decode`
#![no_main]

use libfuzzer_sys::fuzz_target;
use loam_wire::{Decoded, Frame, decode};

fn look(bytes: &[u8]) {
    let mut rest = bytes;
    loop {
        match decode(rest) {
            Ok(Decoded::Whole { frame, consumed }) => {
                assert!(consumed > 0 && consumed <= rest.len());
                if let Frame::Page { pages, payload, .. } | Frame::PutPage { pages, payload, .. } = frame {
                    assert_eq!(pages.len() * 4096, payload.len());
                }
                if let Frame::PutPage { pages, .. } = frame {
                    // Panics on a class that the decoder should have refused.
                    pages.iter().for_each(|page| drop(page.class()));
                }
                if let Frame::Reserved { reservation, .. } = frame {
                    // One or the other, whatever the byte was: the decoder has refused the rest.
                    let facts = loam_wire::ReservationFacts {
                        own_bytes: reservation.own_bytes(),
                        most_bytes: reservation.most_bytes(),
                        all_bytes: reservation.all_bytes(),
                        reservable_bytes: reservation.reservable_bytes(),
                        free_bytes: reservation.free_bytes(),
                    };
                    let (mut again, mut had) = (Vec::new(), Vec::new());
                    loam_wire::encode::reserved(
                        &mut again,
                        0,
                        &loam_wire::Reservation::new(&facts, reservation.granted()),
                    );
                    loam_wire::encode::reserved(&mut had, 0, reservation);
                    assert_eq!(again[..24 + 41][24..], had[..24 + 41][24..]);
                }
                if let Frame::Store { zone, .. } = frame {
                    assert!(zone.len() <= loam_wire::limits::ZONE_BYTES_MAX);
                }
                // Walks everything that the frame borrows.
                let _ = format!("{frame:?}");
                rest = &rest[consumed..];
            }
            Ok(Decoded::NeedMore { bytes_total }) => {
                assert!(bytes_total > rest.len() && bytes_total <= loam_wire::limits::FRAME_BYTES_MAX);
                return;
            }
            Err(_) => return,
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    look(bytes);
    if bytes.len() >= 24 {
        let mut mended = bytes.to_vec();
        mended[..4].copy_from_slice(b"LOAM");
        mended[5] = 0;
        loam_wire::mend_for_fuzzing(&mut mended);
        look(&mended);
    }
});
