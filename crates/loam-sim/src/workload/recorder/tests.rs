use super::*;
use crate::mrc::exact;
use crate::replay::Stream;
use proptest::prelude::*;

fn recorded(touches: impl IntoIterator<Item = (u64, bool)>) -> Vec<Reference> {
    let (mut recorder, mut out) = (Recorder::new(Bytes(8192)), Vec::new());
    for (page, write) in touches {
        recorder.work(1);
        recorder.page(Object::Private, page, write);
    }
    recorder.take(&mut out);
    out
}

#[test]
fn a_page_is_yielded_again_when_44_others_were() {
    let touches = (0..100).flat_map(|other| [(1000, false), (other, false)]);
    let out = recorded(touches);
    let at: Vec<_> = out.iter().enumerate().filter(|(_, r)| r.page.page == 1000).map(|(at, _)| at).collect();
    assert_eq!(at, [0, RECENT + 1, 2 * RECENT + 2]);
    assert_eq!(out.len(), 103);
}

#[test]
fn first_uses_and_first_writes_are_told() {
    let out = recorded([(1, false), (1, true), (1, true), (1, false), (2, true)]);
    let told: Vec<_> = out.iter().map(|r| (r.page.page, r.write, r.fresh)).collect();
    assert_eq!(told, [(1, false, true), (1, true, false), (2, true, true)]);
    // Five instructions, of which the last is before the last reference.
    let ps: u64 = 5 * PS_PER_INSTRUCTION;
    assert_eq!(out.iter().map(|r| u64::from(r.cpu_ns)).sum::<u64>(), ps / 1000);
}

#[test]
fn long_computations_are_kept() {
    let (mut recorder, mut out) = (Recorder::new(Bytes(8192)), Vec::new());
    recorder.work(4_000_000_000);
    recorder.idle(1 << 33);
    recorder.page(Object::File(3), 7, false);
    recorder.take(&mut out);
    let ns: u64 = out.iter().map(|r| u64::from(r.cpu_ns)).sum();
    assert_eq!(ns, 4_000_000_000 * PS_PER_INSTRUCTION / 1000);
    assert_eq!(out.iter().map(|r| u64::from(r.idle_us)).sum::<u64>(), 1 << 33);
}

#[test]
fn a_new_program_has_fresh_memory_and_a_new_file_too() {
    let (mut recorder, mut out) = (Recorder::new(Bytes(4096)), Vec::new());
    recorder.private(0, 8192, true);
    recorder.next_program();
    recorder.private(4096, 1, false);
    recorder.file(0, 0, 6000, true, true);
    recorder.file(0, 6000, 10, true, true);
    recorder.take(&mut out);
    let told: Vec<_> = out.iter().map(|r| (r.page.object, r.page.page, r.fresh)).collect();
    let (own, file) = (Object::Private, Object::File(0));
    assert_eq!(told, [(own, 0, true), (own, 1, true), (own, 1, true), (file, 0, true), (file, 1, true)]);
}

proptest! {
    /// What LRU makes of it, with many more frames than are remembered, is what it makes of every single touch, but for a few.
    #[test]
    fn misses_are_those_of_all_touches(seed in 0_u64..1000) {
        let mut dice = crate::fuzz::dice::Dice::new(seed, 0);
        let touches: Vec<u64> = (0..20_000).map(|_| match dice.below(4) {
            0 => dice.below(3000),
            1 => dice.below(500),
            _ => dice.below(8),
        }).collect();
        let out = recorded(touches.iter().map(|&page| (page, false)));
        let all = exact(&Stream::of(touches));
        let told = exact(&Stream::of(out.iter().map(|r| u64::from(r.page.page))));
        prop_assert_eq!(all.first_uses(), told.first_uses());
        for frames in [500, 1000, 2000] {
            let ratio = told.misses(frames) / all.misses(frames);
            prop_assert!((0.97..1.03).contains(&ratio), "{} frames: {}", frames, ratio);
        }
    }
}
