use super::recording::RecordingError;
use super::*;
use loam_kernels::{INFOS, Plain, Size, info};
use std::collections::BTreeSet;

const BASE_PAGE: Bytes = Bytes(4096);
const SMALL: Size = Size::Bytes(3 << 20);

fn recording(info: &'static Info, iterations: u32) -> Recording {
    Recording::new(info, info.problem(SMALL).unwrap(), iterations, BASE_PAGE, 1 << 24).unwrap()
}

#[test]
fn a_recorded_run_computes_what_a_plain_one_does() {
    for info in INFOS {
        let problem = info.problem(SMALL).unwrap();
        let mut plain = Run::new(info, problem, info.iterations, Plain::default());
        while plain.step() {}
        let recorded = recording(info, info.iterations);
        assert!(recorded.report().passed());
        assert_eq!(*recorded.report(), plain.finish());
    }
}

#[test]
fn all_pages_are_touched_and_each_is_fresh_once() {
    for info in INFOS {
        let recorded = recording(info, 2);
        let (mut seen, mut touched) = (BTreeSet::new(), 0);
        for event in recorded.events() {
            if let Event::Reference { page, fresh, .. } = event {
                assert!(page < recorded.base_pages());
                assert_eq!(fresh, seen.insert(page), "{}: page {page}", info.name);
                touched += 1;
            }
        }
        // The last bytes of an array that is larger than its problem (cubes of odd edges) may be left alone.
        assert!(seen.len() as u32 * 10 >= recorded.base_pages() * 9, "{}: {}", info.name, seen.len());
        assert!(u64::from(recorded.base_pages()) * BASE_PAGE.0 >= recorded.report().bytes);
        assert!(touched > seen.len());
    }
}

#[test]
fn parts_are_in_the_stream() {
    let info = info("sp").unwrap();
    let recorded = recording(info, 2);
    let parts: Vec<u32> = recorded
        .events()
        .filter_map(|event| if let Event::Part(part) = event { Some(part) } else { None })
        .collect();
    assert_eq!(parts, [0, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6]);
    // No part of it is without references, and those of an iteration take about the same time.
    let mut times = vec![0_u64];
    for event in recorded.events() {
        match event {
            Event::Part(_) => times.push(0),
            Event::Reference { cpu_ns, .. } => *times.last_mut().unwrap() += u64::from(cpu_ns),
        }
    }
    assert!(times[2..].iter().all(|&time| time > 0));
    let (first, second): (u64, u64) = (times[2..8].iter().sum(), times[8..].iter().sum());
    assert!(first.abs_diff(second) * 100 < first, "{first} and {second}");
}

#[test]
fn setting_up_yields_each_page_once_and_once_when_written() {
    let mut times = std::collections::BTreeMap::new();
    for event in recording(info("cg").unwrap(), 1).events() {
        match event {
            Event::Part(1) => break,
            Event::Part(_) => {}
            Event::Reference { page, write, .. } => *times.entry((page, write)).or_insert(0) += 1,
        }
    }
    assert!(!times.is_empty() && times.values().all(|&times| times == 1));
}

#[test]
fn too_long_a_recording_is_refused() {
    let info = info("sp").unwrap();
    let problem = info.problem(SMALL).unwrap();
    let error = Recording::new(info, problem, 1, BASE_PAGE, 100).unwrap_err();
    assert_eq!(error, RecordingError::TooLong("sp", 100));
}

#[test]
fn pages_come_again_after_others_or_after_some_time() {
    use loam_kernels::{Array, Memory};
    let memory = Recorded::new(BASE_PAGE);
    let mut array = memory.array::<u64>(512 * 64);
    let mut other = memory.array::<u32>(3);
    let pages = |memory: &Recorded| {
        let mut events = Vec::new();
        memory.take(&mut events);
        let page =
            |event| if let Event::Reference { page, write, .. } = event { Some((page, write)) } else { None };
        events.into_iter().filter_map(page).collect::<Vec<_>>()
    };
    array.get(5);
    array.get(511);
    array.set(6, 1);
    array.set(7, 1);
    other.set(2, 1);
    array.get(512);
    assert_eq!(pages(&memory), [(0, false), (0, true), (64, true), (1, false)]);
    // One other less than RECENT is too few. Two have been: the small array, and page 1.
    let last = RECENT as usize - 1;
    (2..last).for_each(|page| _ = array.get(page * 512));
    array.set(8, 1);
    assert_eq!(pages(&memory), (2..last).map(|page| (page as u32, false)).collect::<Vec<_>>());
    array.get(last * 512);
    array.get(8);
    assert_eq!(pages(&memory), [(last as u32, false), (0, false)]);
    // It must be told again that it is written.
    array.set(8, 1);
    assert_eq!(pages(&memory), [(0, true)]);
    // Time alone is enough.
    memory.work(QUANTUM);
    array.get(8);
    assert_eq!(pages(&memory), [(0, false)]);
    assert_eq!(memory.base_pages(), 65);
}
