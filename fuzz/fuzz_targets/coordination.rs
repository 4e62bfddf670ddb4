//! Coordinators' messages from anything: what is taken can be said again, and means the same.
//! `cargo +nightly fuzz run coordination`
#![no_main]

use libfuzzer_sys::fuzz_target;
use loam_wire::coordination::{decode, encode};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = decode(bytes) {
        let mut again = Vec::new();
        assert!(encode(&mut again, &message));
        assert_eq!(decode(&again).as_ref(), Ok(&message));
    }
});
