use super::*;
use TouchKind::{Read, Write};
use proptest::prelude::*;

fn touch(address: u64, bytes: u32, kind: TouchKind, busy_cycles: u32) -> Touch {
    Touch { address, bytes, kind, busy_cycles }
}

#[test]
fn sweeps_are_cut_at_pages_and_instructions_spread_over_them() {
    let mut space = Space::default();
    let (mut first, second) = (space.array(vec![0_u8; 5]), space.array(vec![0_u64; 1000]));
    assert_eq!(space.bytes(), PAGE_BYTES + 8000);
    let mut touches = vec![touch(0, 1, Read, 9)];
    let mut recorder = Recorder::new(&mut touches);
    assert_eq!(recorder.read(&second, 511..1000).len(), 489);
    recorder.work(4890);
    recorder.update(&mut first, 1..3)[1] = 7;
    recorder.work(3);
    recorder.write(&mut first, 4..5)[0] = 8;
    let expected = [
        touch(0, 1, Read, 9),
        touch(4096 + 511 * 8, 8, Read, 10),
        touch(8192, 488 * 8, Read, 4880),
        touch(1, 2, Read, 1),
        touch(1, 2, Write, 2),
        touch(4, 1, Write, 0),
    ];
    assert_eq!(touches, expected);
    assert_eq!(first.values(), [0, 0, 7, 0, 8]);
}

#[test]
fn what_is_combined_lies_before_or_behind() {
    let mut array = Space::default().array(vec![1, 2, 3, 4, 5, 6]);
    let mut touches = Vec::new();
    let ([behind, before], target) = Recorder::new(&mut touches).combine(&mut array, [4..6, 0..2], 2..4);
    assert_eq!([before, behind, &*target], [[1, 2], [5, 6], [3, 4]]);
    let expected = [touch(16, 8, Read, 0), touch(0, 8, Read, 0), touch(8, 8, Read, 0), touch(8, 8, Write, 0)];
    assert_eq!(touches, expected);
    for from in [0..2, 1..2, 2..4, 0..4] {
        let refused = std::panic::catch_unwind(|| {
            let mut array = Space::default().array(vec![1, 2, 3, 4]);
            Recorder::new(&mut vec![]).combine(&mut array, [from.clone()], 1..3).1[0]
        });
        assert!(refused.is_err(), "{from:?} is a part of 1..3");
    }
}

#[test]
fn instructions_without_a_touch_are_refused() {
    let refused = |touches_before: usize| {
        std::panic::catch_unwind(|| {
            let array = Space::default().array(vec![0_u8]);
            let mut touches = vec![];
            let mut recorder = Recorder::new(&mut touches);
            (0..touches_before).for_each(|_| _ = recorder.read(&array, 0..1));
            recorder.work(1);
            recorder.work(1);
        })
        .is_err()
    };
    assert!(refused(0), "there was none");
    assert!(refused(1), "it had its instructions");
}

proptest! {
    /// Whatever is swept over: each byte once and in order, no page's end crossed, no instruction lost.
    #[test]
    fn a_sweep_is_its_bytes(sweeps in prop::collection::vec((0_usize..3000, 1_usize..3000, 0_usize..1 << 20), 1..8)) {
        let array = Space::default().array(vec![0_u32; 6000]);
        let mut touches = Vec::new();
        let mut recorder = Recorder::new(&mut touches);
        let mut expected: Vec<u64> = Vec::new();
        for &(begin, length, instructions) in &sweeps {
            recorder.read(&array, begin..begin + length);
            recorder.work(instructions);
            expected.extend(4 * begin as u64..4 * (begin + length) as u64);
        }
        let bytes = |touch: &Touch| touch.address..touch.address + u64::from(touch.bytes);
        prop_assert!(touches.iter().flat_map(bytes).eq(expected));
        for touch in &touches {
            prop_assert_eq!(touch.address / PAGE_BYTES, (bytes(touch).end - 1) / PAGE_BYTES);
        }
        let executed: usize = touches.iter().map(|touch| touch.busy_cycles as usize).sum();
        prop_assert_eq!(executed, sweeps.iter().map(|sweep| sweep.2).sum::<usize>());
    }
}
