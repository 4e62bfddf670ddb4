//! What is recorded against what happened: exact where there is little of it, bounded where there is much.

use super::*;
use loam_core::borrower::FaultKind;
use loam_core::units::{BasePages, Bytes, Duration, Instant};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A run that goes on for `steps` of `step_ns`, with as many faults as can be.
fn long_run(steps: u64, step_ns: u64) -> Recording {
    let mut recording = Recording::default();
    for step in 0..steps {
        let moment = Moment {
            answered: [step; 5],
            sp_latency: Duration(step * 3),
            local: Bytes(step % 777),
            ..Moment::default()
        };
        recording.timeline.record(Instant(step * step_ns), moment);
        let kind = Waits::KINDS[(step % 5) as usize];
        // From a nanosecond to hours.
        recording.waits.record(kind, Duration(step.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (step % 64)));
    }
    recording.next_distances = (-255..=255).map(|distance| (distance, steps)).collect();
    recording
}

fn changed(at: u64, part: u32, from: u64, to: u64) -> SizeChange {
    let (at, from, to) = (Instant(at), BasePages(from), BasePages(to));
    SizeChange { at, part, from, to, reason: "more faults than fit".repeat(9), extents: 0 }
}

#[test]
fn a_recording_stays_small_however_long_the_run_is() {
    let mut sizes = Sizes::new(BasePages(1));
    for n in 0..100_000 {
        sizes.record(changed(n, (n % 7) as u32, 1 << (n / 7 % 9), 1 << ((n / 7 + 1) % 9)));
        assert!(sizes.changes().len() <= CHANGES_MAX);
    }
    assert!(sizes.left_out() > 90_000, "{}", sizes.left_out());
    for steps in [1_000, 2_000_000] {
        let mut recording = long_run(steps, 3_000_001);
        recording.sizes = sizes.clone();
        assert!(recording.timeline.moments().count() <= SLICES_MAX);
        let faults: u64 = Waits::KINDS.iter().map(|&kind| recording.waits.faults(kind)).sum();
        assert_eq!(faults, steps, "each fault is in a bucket");
        assert!(recording.bytes() < BYTES_MAX, "{}", recording.bytes());
    }
}

#[test]
fn as_many_parts_as_changes_are_bounded_too() {
    let mut sizes = Sizes::new(BasePages(1));
    for n in 0..5_000 {
        sizes.record(changed(n, n as u32, 1, 2));
    }
    assert_eq!((sizes.changes().len(), sizes.left_out()), (CHANGES_MAX, 5_000 - CHANGES_MAX as u64));
}

#[test]
fn a_fixed_size_is_one_line() {
    let sizes = Sizes::new(BasePages(8));
    assert_eq!(sizes.by_part(), BTreeMap::from([(0, vec![(Instant(0), BasePages(8))])]));
}

#[test]
fn a_long_reason_is_cut_between_letters() {
    let mut sizes = Sizes::new(BasePages(8));
    sizes.record(SizeChange { reason: "ü".repeat(1_000), ..changed(1, 0, 8, 4) });
    let reason = &sizes.changes()[0].reason;
    assert!((90..=96).contains(&reason.len()) && reason.chars().all(|c| c == 'ü'), "{reason}");
}

proptest! {
    /// The sorted waits are the exact ones, to 1%, and none is missing.
    #[test]
    fn waits_are_sorted_as_they_were(waits in proptest::collection::vec((0usize..5, 0u64..1 << 36), 0..300)) {
        let mut recorded = Waits::default();
        let mut exact: [Vec<u64>; 5] = Default::default();
        for (kind, wait) in waits {
            recorded.record(Waits::KINDS[kind], Duration(wait));
            exact[kind].push(wait.max(1));
        }
        for (kind, exact) in Waits::KINDS.into_iter().zip(&mut exact) {
            exact.sort_unstable_by(|a, b| b.cmp(a));
            let sorted = recorded.sorted(kind);
            prop_assert_eq!(recorded.faults(kind), exact.len() as u64);
            prop_assert_eq!(sorted.last().map_or(0, |last| last.0), exact.len() as u64);
            prop_assert!(sorted.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 > two[1].1));
            for (rank, &wait) in exact.iter().enumerate() {
                let at = sorted.partition_point(|&(faults, _)| faults <= rank as u64);
                let said = sorted[at].1.0 as f64;
                prop_assert!((said / wait as f64 - 1.0).abs() <= 0.01, "{said} for {wait}");
            }
        }
    }

    /// At the end of each slice stands what was known last, with the largest sizes in it.
    #[test]
    fn a_timeline_is_what_was_seen(steps in proptest::collection::vec((0u64..40_000_000, 0u64..9, 0u64..1_000), 1..400)) {
        let (mut timeline, mut seen, mut now, mut faults) = (Timeline::default(), Vec::new(), 0, 0);
        for (pause, more, local) in steps {
            now += pause;
            faults += more;
            let moment = Moment {
                answered: [0, 0, 0, faults, 0],
                page_wait: Duration(faults),
                local: Bytes(local),
                ..Moment::default()
            };
            timeline.record(Instant(now), moment);
            seen.push((now, moment));
        }
        let slice = timeline.slice().0;
        let moments: Vec<_> = timeline.moments().collect();
        prop_assert!(moments.len() <= SLICES_MAX && now < slice * SLICES_MAX as u64);
        prop_assert!(slice == 1_000_000 || now >= slice / 2 * SLICES_MAX as u64, "finer slices would do");
        let mut slices: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (at, moment) in seen {
            let of_slice = slices.entry(at / slice).or_default();
            *of_slice = (moment.answered[FaultKind::Remote as usize], of_slice.1.max(moment.local.0));
        }
        let exact = slices.into_iter().map(|(at, found)| ((at + 1) * slice, found));
        let found = moments.into_iter().map(|(at, m)| (at.0, (m.page_wait.0, m.local.0)));
        prop_assert!(found.eq(exact));
    }

    /// Few changes are all there; of many each part's last one is.
    #[test]
    fn the_last_size_of_a_part_is_kept(few in any::<bool>(), picks in proptest::collection::vec((0u32..5, 0u32..9), 1..4_000)) {
        let mut picks = picks;
        picks.truncate(if few { CHANGES_MAX } else { 4_000 });
        let (mut sizes, mut last) = (Sizes::new(BasePages(1)), BTreeMap::<u32, u64>::new());
        for (at, &(part, size)) in picks.iter().enumerate() {
            // Of parts 3 and 4 every third change is one of a single place, which says nothing of the part.
            if part >= 3 && at % 3 == 0 {
                sizes.record(SizeChange { extents: 2, ..changed(at as u64, part, 1, 1 << size) });
                continue;
            }
            let from = last.insert(part, 1 << size).unwrap_or(1);
            sizes.record(changed(at as u64, part, from, 1 << size));
        }
        if last.is_empty() {
            last.insert(0, 1); // the whole run
        }
        prop_assert_eq!(sizes.changes().len() as u64 + sizes.left_out(), picks.len() as u64);
        prop_assert!(sizes.left_out() == 0 || picks.len() > CHANGES_MAX);
        for (part, line) in sizes.by_part() {
            prop_assert_eq!(line.last().map(|at| at.1.0), last.get(&part).copied());
            prop_assert!(line.windows(2).all(|two| two[0].0 <= two[1].0));
            let own = sizes.changes().iter().filter(|change| change.part == part && change.extents == 0);
            prop_assert!(own.clone().zip(own.skip(1)).all(|(one, next)| one.to == next.from));
        }
    }
}
