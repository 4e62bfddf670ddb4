use super::*;
use crate::{Decoded, Frame, WireError, decode};

fn frame(bytes: &[u8]) -> Frame<'_> {
    match decode(bytes).expect("a frame") {
        Decoded::Whole { frame, consumed } if consumed == bytes.len() => frame,
        other => panic!("{other:?}"),
    }
}

#[test]
fn frames_come_back_as_they_went() {
    for call in CALLS {
        let mut bytes = Vec::new();
        let flags = region_flag::HUGE | region_flag::SHARED;
        let policy = MemoryPolicy::Interleave(3);
        let (name, device) = ("a.b-c_1", "/dev/dax0.0");
        let ask = RegionAsk { call, flags, bytes: 1 << 40, id: 77, name, policy, device };
        region_call(&mut bytes, 7, &ask);
        assert_eq!(frame(&bytes), Frame::RegionCall { request: 7, ask });
    }
    let entry = RegionEntry::new(5, "table", 1000, 8192, 2, 1, region_flag::TEMPORARY);
    assert_eq!((entry.id(), entry.name(), entry.owner()), (5, "table", 1000));
    assert_eq!((entry.bytes(), entry.opens(), entry.align_bytes()), (8192, 2, 4096));
    assert_eq!((entry.device(), entry.policy()), ("", MemoryPolicy::Unset));
    let entry = entry.with_memory(MemoryPolicy::Bind(4), "/dev/dax0.0", 1 << 30);
    assert_eq!((entry.device(), entry.policy()), ("/dev/dax0.0", MemoryPolicy::Bind(4)));
    assert_eq!(entry.align_bytes(), 1 << 30);
    let spans = [RegionSpan::new(4096, 0, 4096), RegionSpan::new(1 << 30, 8192, 4096)];
    let mut bytes = Vec::new();
    region(&mut bytes, 9, &entry, &spans);
    assert_eq!(frame(&bytes), Frame::Region { request: 9, entry: &entry, spans: &spans });
    let (figures, mut bytes) = (RegionFigures::new(5, 6), Vec::new());
    regions(&mut bytes, 1, &figures, &[entry]);
    assert_eq!(frame(&bytes), Frame::Regions { request: 1, figures: &figures, entries: &[entry] });
    for why in REFUSALS {
        let mut bytes = Vec::new();
        region_refused(&mut bytes, 3, why, "no\nroom");
        assert_eq!(frame(&bytes), Frame::RegionRefused { request: 3, why, text: "no room" });
    }
}

/// A call of a body, with one byte of text.
fn call(change: impl FnOnce(&mut [u8; 32])) -> Result<(), WireError> {
    let mut body = [0; 32];
    body[3] = 1;
    change(&mut body);
    let mut bytes = Vec::new();
    append(&mut bytes, kind::REGION_CALL, 1, 1, &body, b"a");
    decode(&bytes).map(drop)
}

#[test]
fn what_has_no_meaning_is_refused() {
    let field = Err(WireError::Field { kind: kind::REGION_CALL });
    assert_eq!(call(|_| {}), Ok(()));
    assert_eq!(call(|body| body[0] = 5), field, "no such call");
    assert_eq!(call(|body| body[1] = 8), field, "no such flag");
    assert_eq!(call(|body| body[2] = 2), field, "to no memory node");
    assert_eq!(call(|body| body[24] = 1), field, "memory nodes without a policy");
    assert_eq!(call(|body| body[3] = 2), field, "a name longer than the text");
    let mut bytes = Vec::new();
    append(&mut bytes, kind::REGION_REFUSED, 1, 0, &[8, 0, 0, 0, 0, 0, 0, 0], &[]);
    assert_eq!(decode(&bytes), Err(WireError::Field { kind: kind::REGION_REFUSED }));
    let changes: [fn(&mut RegionEntry); 5] = [
        |entry| entry.name_bytes = 65,
        |entry| entry.device_bytes = REGION_DEVICE_BYTES_MAX as u8 + 1,
        |entry| entry.policy = 9,
        |entry| entry.align_shift = 11,
        |entry| entry.align_shift = 31,
    ];
    for change in changes {
        let mut entry = RegionEntry::new(1, "table", 0, 0, 0, 0, 0);
        change(&mut entry);
        let mut bytes = Vec::new();
        region(&mut bytes, 9, &entry, &[]);
        assert_eq!(decode(&bytes), Err(WireError::Text { kind: kind::REGION }));
        let mut bytes = Vec::new();
        regions(&mut bytes, 9, &RegionFigures::new(0, 0), &[entry]);
        assert_eq!(decode(&bytes), Err(WireError::Text { kind: kind::REGIONS }));
    }
    // A path is not cut in the midst of a letter, and neither is a call's text.
    let long = "ä".repeat(REGION_DEVICE_BYTES_MAX);
    let device = RegionEntry::new(1, "a", 0, 0, 0, 0, 0).with_memory(MemoryPolicy::Unset, &long, 4096);
    assert_eq!(device.device().len(), REGION_DEVICE_BYTES_MAX);
    let mut body = [0; 32];
    body[3] = 1;
    let mut bytes = Vec::new();
    append(&mut bytes, kind::REGION_CALL, 1, 2, &body, "ä".as_bytes());
    assert_eq!(decode(&bytes).map(drop), field);
}
