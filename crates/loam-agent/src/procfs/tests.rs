//! Tables for the parsers, and this very process for the rest.

use super::maps::{Detail, Kind, Mapping, RECORD_BYTES_MIN, VmFlags, Why, parse_smaps, records_up_to};
use super::tree::{Stat, descendants_by_scan, descends, parse_stat};
use super::*;
use loam_core::units::Duration;
use std::process::{Child, Command, Stdio};

fn is_gone(error: &ProcError) -> bool {
    matches!(error, ProcError::Gone { .. })
}

fn own() -> Pid {
    rustix::process::getpid()
}

/// A mapping with a page that nobody may touch on either side: the kernel would make one mapping of it and a neighbour, and that may be a thread's stack of another test.
fn map(len_bytes: usize, flags: i32) -> u64 {
    let (none, all) = (libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping that overlaps nothing; never unmapped.
    let raw = unsafe {
        libc::mmap(std::ptr::null_mut(), len_bytes + 2 * 4096, none, flags | libc::MAP_ANONYMOUS, -1, 0)
    };
    assert_ne!(raw, libc::MAP_FAILED);
    let inner = raw.wrapping_byte_add(4096);
    // SAFETY: within the new mapping.
    assert_eq!(unsafe { libc::mprotect(inner, len_bytes, all) }, 0);
    inner.expose_provenance() as u64
}

fn advise(address: u64, bytes: usize, advice: i32) {
    let raw = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: a mapping of the calling test, to which no reference exists.
    assert_eq!(unsafe { libc::madvise(raw, bytes, advice) }, 0);
}

fn touch(address: u64) {
    // SAFETY: a mapping of the calling test, to which no reference exists.
    unsafe { std::ptr::with_exposed_provenance_mut::<u8>(address as usize).write_volatile(1) }
}

#[test]
fn lines_of_maps() {
    let parse = Mapping::parse;
    let heap =
        parse("55d0c8a1e000-55d0c8a3f000 rw-p 00000000 00:00 0                          [heap]").unwrap();
    assert_eq!((heap.start, heap.end), (0x55d0_c8a1_e000, 0x55d0_c8a3_f000));
    assert!(heap.read && heap.write && !heap.exec && !heap.shared && heap.inode == 0);
    let kinds = [
        ("7f0000000000-7f0000001000 rw-p 00000000 00:00 0 ", Kind::Anonymous, 0),
        ("7f0000000000-7f0000001000 rw-p 00000000 00:00 0", Kind::Anonymous, 0),
        (
            "7f0000000000-7f0000001000 ---p 00000000 00:00 0      [anon:glibc: malloc arena]",
            Kind::Anonymous,
            0,
        ),
        ("7f0000000000-7f0000001000 rw-s 00000000 00:01 1057   /dev/zero (deleted)", Kind::File, 1057),
        ("7f0000000000-7f0000001000 r-xp 00000000 fd:00 12     /tmp/a file with  blanks", Kind::File, 12),
        ("7f0000000000-7f0000001000 rw-p 00000000 00:00 0      /dev/without-inode", Kind::File, 0),
        ("7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0      [stack]", Kind::Stack, 0),
        ("7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0      [vdso]", Kind::Special, 0),
        ("7ffd00000000-7ffd00002000 r--p 00000000 00:00 0      [vvar_vclock]", Kind::Special, 0),
        ("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]", Kind::Special, 0),
        ("7f0000000000-7f0000001000 rw-p 00000000 00:00 0      [uprobes]", Kind::Special, 0),
    ];
    for (line, kind, inode) in kinds {
        let mapping = parse(line).unwrap_or_else(|| panic!("{line}"));
        assert_eq!((mapping.kind, mapping.inode), (kind, inode), "{line}");
    }
    for bad in [
        "",
        "x",
        "1000-2000",
        "2000-1000 rw-p 0 00:00 0",
        "1000-1000 rw-p 0 00:00 0",
        "1000-2001 rw-p 0 00:00 0",
        "1000-2000 rw-q 0 00:00 0",
        "1000-2000 rw- 0 00:00 0",
        "1000-2000 rw-p 0 00:00 x",
        "1000-fffffffffffffffff rw-p 0 00:00 0",
    ] {
        assert_eq!(parse(bad), None, "{bad}");
    }
}

#[test]
fn memory_is_read_where_it_is_mapped() {
    let address = map(2 * 4096, libc::MAP_PRIVATE);
    touch(address + 4096);
    let memory = Memory::open(own()).unwrap();
    let page = memory.page(address + 4096).unwrap();
    assert_eq!((page[0], page[1..].iter().any(|&byte| byte != 0)), (1, false));
    assert_eq!(memory.page(address).unwrap(), [0; 4096]);
    let none = memory.page(address + 2 * 4096).map(drop);
    assert!(none.is_ok(), "a page that only its owner may not touch: {none:?}");
    let beyond = memory.page(0).map(drop);
    assert!(matches!(beyond, Err(ProcError::Io { errno: Errno::IO, .. })), "{beyond:?}");
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let memory = Memory::open(Pid::from_child(&child)).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = memory.page(address).map(drop);
    assert!(gone.as_ref().is_err_and(is_gone), "{gone:?}");
}

#[test]
fn smaps_gives_each_mapping_its_own_lines() {
    let text = "1000-200000 rw-p 00000000 00:00 0 \nSize: 4 kB\nRss:       12 kB\nLocked:     8 kB\nSwap: 3 kB\n\
        VmFlags: rd wr mr mw me ac lo zz \nabc000-abd000 r--p 00000000 00:00 0 [vvar]\nRss: 0 kB\nVmFlags: rd de\n";
    let details = parse_smaps(text).unwrap();
    assert_eq!(details.len(), 2);
    assert!(details[0].flags.has("lo") && details[0].flags.has("wr") && !details[0].flags.has("de"));
    assert!(details[1].flags.has("de") && !details[1].flags.has("wr"));
    assert_eq!(format!("{:?}", details[1].flags), r#"{"rd", "de"}"#);
    for bad in ["Rss: 4 kB\n", "1000-2000 rw-p 0 00:00 0\nnonsense\n"] {
        assert!(parse_smaps(bad).is_err(), "{bad}");
    }
}

#[test]
fn the_rule_of_adoption() {
    let plain = Mapping::parse("7f0000000000-7f0000080000 rw-p 00000000 00:00 0").unwrap();
    let usual = VmFlags::parse("rd wr mr mw me ac");
    assert_eq!(adoptable(&plain, usual, false, ADOPT_BYTES_MIN), Ok(()));
    assert_eq!(adoptable(&Mapping { kind: Kind::Heap, ..plain }, usual, false, ADOPT_BYTES_MIN), Ok(()));
    let small = Mapping { end: plain.end - 4096, ..plain };
    assert_eq!(adoptable(&small, usual, false, ADOPT_BYTES_MIN), Err(Why::Small));
    assert_eq!(adoptable(&small, usual, true, ADOPT_BYTES_MIN), Ok(()));
    assert_eq!(adoptable(&small, usual, false, small.bytes()), Ok(()));
    assert_eq!(adoptable(&plain, VmFlags::parse("rd wr dc"), false, ADOPT_BYTES_MIN), Ok(()));
    assert_eq!(adoptable(&plain, VmFlags::parse("rd wr dd"), false, ADOPT_BYTES_MIN), Ok(()));
    let hidden = VmFlags::parse("rd wr dc dd nh");
    assert_eq!(adoptable(&plain, hidden, true, 0), Err(Why::Hidden), "the hand's stack");
    for (flag, why) in [
        ("sh", Why::Shared),
        ("gd", Why::Stack),
        ("ht", Why::HugeTlb),
        ("pf", Why::Device),
        ("io", Why::Device),
        ("ss", Why::Unusual),
        ("dp", Why::Unusual),
        ("wf", Why::WipeOnFork),
        ("lo", Why::Locked),
    ] {
        let flags = VmFlags::parse(&format!("rd wr mr {flag} ac"));
        assert_eq!(adoptable(&plain, flags, true, ADOPT_BYTES_MIN), Err(why), "{flag}");
    }
    for (mapping, why) in [
        (Mapping { shared: true, ..plain }, Why::Shared),
        (Mapping { inode: 5, kind: Kind::File, ..plain }, Why::File),
        (Mapping { kind: Kind::Stack, ..plain }, Why::Stack),
        (Mapping { kind: Kind::Special, ..plain }, Why::Special),
        (Mapping { write: false, ..plain }, Why::Protection),
        (Mapping { read: false, ..plain }, Why::Protection),
    ] {
        assert_eq!(adoptable(&mapping, usual, true, ADOPT_BYTES_MIN), Err(why));
    }
    assert_eq!(adoptable(&plain, VmFlags::parse("rd mr"), true, ADOPT_BYTES_MIN), Err(Why::Protection));
}

#[test]
fn what_is_hidden_from_children_by_us_is_told_from_what_is_not() {
    let mapping = Mapping::parse("7f0000000000-7f0000080000 rw-p 00000000 00:00 0").unwrap();
    let file = Mapping { kind: Kind::File, inode: 5, ..mapping };
    for (mapping, flags, is, may_be, by_program) in [
        (mapping, "rd wr", false, false, false),
        (mapping, "rd wr um", false, false, false),
        (mapping, "rd wr dc um nh", true, true, false),
        (mapping, "rd wr dc", false, true, true),
        (mapping, "rd wr dc dd nh uw", false, false, true),
        (mapping, "rd wr io dc de", false, false, true),
        (file, "rd wr dc", false, false, true),
    ] {
        let detail = Detail { mapping, flags: VmFlags::parse(flags) };
        assert_eq!(detail.is_hidden_by_us(), is, "{flags}");
        assert_eq!(detail.may_be_hidden_by_us(), may_be, "{flags}");
        assert_eq!(detail.is_hidden_by_program(false), by_program, "{flags}");
        assert_eq!(detail.is_hidden_by_program(true), flags.contains("dc"), "{flags}");
        // The one that is as the shim's own is.
        assert_eq!(
            detail.is_kept_from_children(),
            flags.contains("dc") && flags != "rd wr dc dd nh uw",
            "{flags}"
        );
    }
}

#[test]
fn what_is_plain_is_as_a_new_mapping_would_be() {
    let line = |text: &str| Mapping::parse(text).unwrap();
    let mapping = line("7f0000000000-7f0000080000 rw-p 00000000 00:00 0");
    let is_plain = |mapping, flags: &str| Detail { mapping, flags: VmFlags::parse(flags) }.is_plain(true);
    for flags in ["rd wr mr mw me ac", "rd wr mr mw me ac sd um uw nh"] {
        assert!(is_plain(mapping, flags), "{flags}");
    }
    for flag in ["ex", "lo", "dc", "wf", "dd", "gu", "ht", "sh", "gd", "io", "dp"] {
        assert!(!is_plain(mapping, &format!("rd wr mr mw me ac {flag}")), "{flag}");
    }
    for other in [
        "rwxp 00000000 00:00 0",
        "r--p 00000000 00:00 0",
        "rw-s 00000000 00:01 17",
        "rw-p 00000000 00:00 0 [stack]",
    ] {
        assert!(!is_plain(line(&format!("7f0000000000-7f0000080000 {other}")), "rd wr"), "{other}");
    }
    let hidden = Detail { mapping, flags: VmFlags::parse("rd wr dc um") };
    assert!(hidden.is_plain(false) && !hidden.is_plain(true), "by us, or by the program");
}

#[test]
fn the_end_of_what_may_be_a_threads_stack_stays() {
    let line = |text| Mapping::parse(text).unwrap();
    let stack = line("7f0000001000-7f0000801000 rw-p 00000000 00:00 0");
    let guard = line("7f0000000000-7f0000001000 ---p 00000000 00:00 0");
    let usual = VmFlags::parse("rd wr mr mw me ac");
    let last = stack.end - 8192;
    assert_eq!(stack_end(&stack, usual, Some(&guard)), last);
    assert_eq!(stack_end(&stack, usual, Some(&Mapping { read: true, ..guard })), stack.end);
    assert_eq!(stack_end(&stack, usual, Some(&Mapping { end: guard.end - 4096, ..guard })), stack.end);
    assert_eq!(stack_end(&stack, usual, None), stack.end);
    for flag in ["nh", "gu"] {
        let flags = VmFlags::parse(&format!("rd wr mr mw me ac {flag}"));
        assert_eq!(stack_end(&stack, flags, None), last, "{flag}");
    }
    let heap = Mapping { kind: Kind::Heap, ..stack };
    assert_eq!(stack_end(&heap, usual, Some(&guard)), stack.end);
    let small = Mapping { end: stack.start + 4096, ..stack };
    assert_eq!(stack_end(&small, usual, Some(&guard)), small.start);
}

/// What is wrong with how a live thread's control block is judged, if anything is.
fn wrong_of(block: u64) -> Option<String> {
    let details = flags(own()).unwrap();
    let at = details.iter().position(|d| (d.mapping.start..d.mapping.end).contains(&block));
    let Some(at) = at else { return Some(format!("{block:x} is in no mapping")) };
    let below = at.checked_sub(1).map(|below| details[below].mapping);
    let Detail { mapping, flags } = details[at];
    let stays = stack_end(&mapping, flags, below.as_ref());
    let known = control_blocks(own());
    if !(stays..mapping.end).contains(&block) {
        Some(format!("{block:x} in {mapping:x?}, {stays:x}"))
    } else if stays - mapping.start <= 1 << 20 {
        Some(format!("the rest of the stack may leave: {mapping:x?}, {stays:x}"))
    } else if !known.iter().any(|(start, end)| (*start..*end).contains(&block)) {
        Some(format!("{block:x} in {known:x?}"))
    } else {
        None
    }
}

#[test]
fn the_control_blocks_of_live_threads_stay() {
    let barrier = std::sync::Barrier::new(4);
    let look = || {
        barrier.wait(); // beside each other
        // SAFETY: it has no conditions.
        let block = unsafe { libc::pthread_self() };
        // Other tests map and unmap meanwhile, and what is listed piece by piece may be of two moments.
        let wrong: Vec<String> = (0..50).map_while(|_| wrong_of(block)).collect();
        barrier.wait();
        wrong
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(look)).collect();
        for thread in threads {
            let wrong = thread.join().unwrap();
            assert!(wrong.len() < 50, "{:?}", wrong.last());
        }
    });
}

/// What the rule says about a live mapping of ours, by the real smaps.
fn verdict(address: u64) -> Result<(), Why> {
    let details = flags(own()).unwrap();
    let detail = details.iter().find(|d| (d.mapping.start..d.mapping.end).contains(&address)).unwrap();
    adoptable(&detail.mapping, detail.flags, false, ADOPT_BYTES_MIN)
}

#[test]
fn live_mappings_are_judged_by_what_they_are() {
    const BYTES: usize = 1 << 20;
    assert_eq!(verdict(map(BYTES, libc::MAP_PRIVATE)), Ok(()));
    assert_eq!(verdict(map(BYTES, libc::MAP_SHARED)), Err(Why::Shared));
    let wiped = map(BYTES, libc::MAP_PRIVATE);
    advise(wiped, BYTES, libc::MADV_WIPEONFORK);
    assert_eq!(verdict(wiped), Err(Why::WipeOnFork));
    let locked = map(BYTES, libc::MAP_PRIVATE);
    let raw = std::ptr::with_exposed_provenance::<libc::c_void>(locked as usize);
    // SAFETY: changes no contents.
    if unsafe { libc::mlock(raw, BYTES) } == 0 {
        assert_eq!(verdict(locked), Err(Why::Locked));
    } else {
        println!("skipped: locking memory is not permitted");
    }
    assert_eq!(verdict(map(BYTES, libc::MAP_PRIVATE | libc::MAP_GROWSDOWN)), Err(Why::Stack));
    let kinds: Vec<_> = flags(own()).unwrap().iter().map(|detail| detail.mapping.kind).collect();
    for kind in [Kind::Heap, Kind::Stack, Kind::Special, Kind::File, Kind::Anonymous] {
        assert!(kinds.contains(&kind), "{kind:?} not found");
    }
}

/// A file of `/proc` as the kernel makes it (`seq_read_iter`): what is left of the record before first, then further records until there is as much as was asked for.
struct Records<'a> {
    records: &'a [String],
    made: &'a std::cell::Cell<usize>,
    rest: Vec<u8>,
}

impl std::io::Read for Records<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.rest.len() < buffer.len() && self.made.get() < self.records.len() {
            self.rest.extend_from_slice(self.records[self.made.get()].as_bytes());
            self.made.set(self.made.get() + 1);
        }
        let bytes = self.rest.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&self.rest[..bytes]);
        self.rest.drain(..bytes);
        Ok(bytes)
    }
}

proptest::proptest! {
    /// The kernel looks at all pages of a mapping when it makes its record.
    #[test]
    fn no_record_is_made_behind_the_last_one_that_is_wanted(
        lines in proptest::collection::vec((14_usize..40, 0_usize..20, 0_usize..9), 1..12),
        wanted in 0_usize..14,
    ) {
        let record = |(index, &(lines, wide, flags)): (usize, &(usize, usize, usize))| {
            let start = 0x10_0000 * (index as u64 + 1);
            let counts: String = (0..lines).map(|n| format!("Count{n}:            {} kB\n", n * 17)).collect();
            let flags = &" nr ac sd nh wf lo dc dd"[..3 * flags];
            let first = format!("{start:x}-{:x} rw-p 00000000 00:00 0 \n", start + 0x1000);
            format!("{first}{counts}Last: {:wide$}\nVmFlags: mr mw me{flags} \n", "")
        };
        let records: Vec<String> = lines.iter().enumerate().map(record).collect();
        let last = 0x10_0000 * wanted as u64 + 1; // there is none: up to the next one behind it
        for last in [last, 0x10_0000 * (wanted as u64 + 1)] {
            let made = std::cell::Cell::new(0);
            let text = records_up_to(Records { records: &records, made: &made, rest: Vec::new() }, last).unwrap();
            let expected = (wanted + 1).min(records.len());
            proptest::prop_assert_eq!(String::from_utf8(text).unwrap(), records[..expected].concat());
            proptest::prop_assert_eq!(made.get(), expected);
        }
    }
}

#[test]
fn mappings_up_to_one_are_read_from_records_that_are_as_large_as_they_are_taken_to_be() {
    const BYTES: usize = 1 << 20;
    let address = map(BYTES, libc::MAP_PRIVATE);
    advise(address, BYTES, libc::MADV_WIPEONFORK); // a mapping by itself
    let some = flags_up_to(own(), address).unwrap();
    let last = some.last().unwrap();
    assert_eq!((last.mapping.start, last.flags.has("wf")), (address, true));
    assert!(some.is_sorted_by_key(|detail| detail.mapping.start));
    let text = read_text(own(), "smaps").unwrap();
    let records = text.split_inclusive(" \n").filter(|record| record.contains("VmFlags:"));
    let least = records.map(str::len).min().unwrap();
    assert!((RECORD_BYTES_MIN..4096).contains(&least), "a record has {least} bytes");
}

#[test]
fn present_pages_are_found_over_many_calls() {
    const PAGES: u64 = 4096;
    let address = map((PAGES * 4096) as usize, libc::MAP_PRIVATE);
    advise(address, (PAGES * 4096) as usize, libc::MADV_NOHUGEPAGE);
    let pagemap = Pagemap::open(own()).unwrap();
    let mut out = vec![(0, address)]; // what is in there already is left alone, even if it is adjacent
    pagemap.present(address, address + PAGES * 4096, &mut out).unwrap();
    assert_eq!(out, [(0, address)]);
    out.clear();
    // Pages 0 and 1 of each four: 1,024 ranges, more than one call gives.
    for page in (0..PAGES).filter(|page| page % 4 < 2) {
        touch(address + page * 4096);
    }
    pagemap.present(address, address + PAGES * 4096, &mut out).unwrap();
    let want: Vec<_> =
        (0..PAGES).step_by(4).map(|page| (address + page * 4096, address + (page + 2) * 4096)).collect();
    assert_eq!(out, want);
    out.clear();
    pagemap.present(address + 4096, address + 5 * 4096, &mut out).unwrap();
    assert_eq!(out, [(address + 4096, address + 2 * 4096), (address + 4 * 4096, address + 5 * 4096)]);
}

#[test]
fn sizes_follow_what_is_touched() {
    const BYTES: u64 = 32 << 20;
    let statm = Statm::open(own()).unwrap();
    let (resident, shared) = (statm.resident_pages().unwrap(), shared_pages(own()).unwrap());
    let address = map(BYTES as usize, libc::MAP_SHARED);
    (0..BYTES).step_by(4096).for_each(|offset| touch(address + offset));
    // Other tests run beside this one: half of the growth is enough to see that it is ours.
    assert!(statm.resident_pages().unwrap() > resident + BYTES / 4096 / 2);
    assert!(shared_pages(own()).unwrap() > shared + BYTES / 4096 / 2);
    assert!(files_of(own()).unwrap().shared > BYTES / 4096 / 2);
}

#[test]
fn a_child_made_by_vfork_has_its_parents_memory() {
    assert!(have_one_memory(own(), own()));
    let mut child = sleeper();
    assert!(!have_one_memory(own(), Pid::from_child(&child)));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!have_one_memory(own(), Pid::from_child(&child)), "there is none");

    let mut stack = vec![0_u64; 8192];
    extern "C" fn wait(until: *mut libc::c_void) -> libc::c_int {
        let until = until.cast::<std::sync::atomic::AtomicBool>();
        // SAFETY: the test keeps it until this has ended. Nothing else of the process is used.
        while !unsafe { &*until }.load(std::sync::atomic::Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        0
    }
    let until = std::sync::atomic::AtomicBool::new(false);
    // SAFETY: `wait` runs on `stack` alone, calls nothing, and is waited for.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len());
        libc::clone(wait, top.cast(), libc::CLONE_VM | libc::SIGCHLD, (&raw const until).cast_mut().cast())
    };
    let is_one = have_one_memory(own(), Pid::from_raw(pid).unwrap());
    until.store(true, std::sync::atomic::Ordering::Relaxed);
    // SAFETY: waits for the child; no status is asked for.
    assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
    assert!(is_one);
}

#[test]
fn of_what_is_mapped_only_files_are_told() {
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let bytes = file.metadata().unwrap().len() as usize & !4095;
    assert!(bytes > 4 << 20, "the tests' own executable is no small file");
    let statm = Statm::open(own()).unwrap();
    let files = || statm.files(statm.read().unwrap().file_pages).mapped;
    let before = files();
    let shared = map(bytes, libc::MAP_SHARED);
    (0..bytes as u64).step_by(4096).for_each(|offset| touch(shared + offset));
    // Other tests run beside this one, and map no file of that size.
    assert!(files() < before + bytes as u64 / 4096 / 2, "shared memory is no file");
    // SAFETY: a new mapping that overlaps nothing; never unmapped.
    let mapped = unsafe {
        use rustix::mm::{MapFlags, ProtFlags};
        rustix::mm::mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::PRIVATE, &file, 0).unwrap()
    };
    for offset in (0..bytes).step_by(4096) {
        // SAFETY: within the mapping, of a file that nobody shortens.
        unsafe { mapped.cast::<u8>().add(offset).read_volatile() };
    }
    assert!(files() > before + bytes as u64 / 4096 / 2, "a file is");
}

#[test]
fn numbers_of_statm() {
    let figures = |resident_pages, file_pages| Some(StatmFigures { resident_pages, file_pages });
    assert_eq!(figures_of(b"1234 567 89 1 0 2 0\n"), figures(567, 89));
    assert_eq!(figures_of(b"0 0 0 0 0 0 0\n"), figures(0, 0));
    for bad in [&b""[..], b"12", b"12 ", b"12 x 3", b"12 3", b"12 3 x", b"1 99999999999999999999 2"] {
        assert_eq!(figures_of(bad), None, "{bad:?}");
    }
}

fn sleeper() -> Child {
    let script = "sleep 600 & exec sleep 600";
    Command::new("/bin/sh").args(["-c", script]).stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn descendants_are_found_both_ways_and_a_vanished_process_is_gone() {
    let mut child = sleeper();
    let child_pid = Pid::from_child(&child);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let grandchild = loop {
        if let [grandchild] = descendants(child_pid)[..] {
            break grandchild;
        }
        assert!(std::time::Instant::now() < end, "no grandchild");
        std::thread::sleep(std::time::Duration::from_millis(2));
    };
    for list in [descendants(own()), descendants_by_scan(own())] {
        let place = |pid| list.iter().position(|found| *found == pid);
        assert!(place(child_pid).unwrap() < place(grandchild).unwrap());
        assert!(place(own()).is_none());
    }
    assert!(is_descendant(grandchild, own()) && is_descendant(grandchild, child_pid));
    assert!(!is_descendant(own(), child_pid) && !is_descendant(child_pid, child_pid));

    let (statm, pagemap) = (Statm::open(child_pid).unwrap(), Pagemap::open(child_pid).unwrap());
    assert!(statm.resident_pages().unwrap() > 0);
    rustix::process::kill_process(grandchild, rustix::process::Signal::KILL).unwrap();
    child.kill().unwrap();
    // Ended, not reaped: no memory any more.
    while statm.resident_pages().unwrap() > 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(is_gone(&flags(child_pid).unwrap_err()));
    assert_eq!(files_of(child_pid).unwrap(), FilePages::default());
    child.wait().unwrap();
    assert!(is_gone(&statm.resident_pages().unwrap_err()));
    assert!(is_gone(&flags(child_pid).unwrap_err()));
    assert!(is_gone(&files_of(child_pid).unwrap_err()));
    match pagemap.present(1 << 20, 1 << 21, &mut Vec::new()) {
        Ok(()) => {}
        Err(error) => assert!(is_gone(&error), "{error}"),
    }
}

#[test]
fn a_name_with_brackets_hides_no_parent() {
    let rest = "1 12 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 2 0 500 0 0";
    let parent = |start: &str| parse_stat(&format!("{start} {rest}")).map(|stat| stat.parent);
    let seven = Pid::from_raw(7);
    assert_eq!(parent("12 (a) R 7"), Some(seven));
    assert_eq!(parent("12 (x) R 99 (y)) S 7"), Some(seven));
    assert_eq!(parent("1 (init) S 0"), Some(None));
    assert_eq!(parse_stat("12 (a"), None);
    assert_eq!(parse_stat("12 (a) R 7 1 2"), None, "no number of threads");
}

#[test]
fn a_first_thread_that_has_ended_tells_how() {
    let mut child = Command::new("/bin/sh").args(["-c", "exit 7"]).spawn().unwrap();
    let pid = Pid::from_child(&child);
    while !stat(pid).unwrap().is_zombie {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(
        stat(pid).unwrap(),
        Stat { parent: Some(own()), is_zombie: true, threads: 1, wait_status: 7 << 8 }
    );
    child.wait().unwrap();
    assert!(is_gone(&stat(pid).unwrap_err()));
    let own = stat(own()).unwrap();
    assert!(!own.is_zombie && own.threads >= 1 && own.wait_status == 0);
}

#[test]
fn an_ancestor_that_ends_meanwhile_hides_no_descent() {
    let pid = |n| Pid::from_raw(n).unwrap();
    let of = |parent| Stat { parent: Pid::from_raw(parent), is_zombie: false, threads: 1, wait_status: 0 };
    let gone = |at: Pid| Err(ProcError::Gone { pid: at.as_raw_nonzero().get() });
    // 30 is a child of 20, which is a child of 10; 20 ends when it was read of 30 that it is its parent, and 10 becomes 30's.
    let mut looks = 0;
    let found = descends(pid(30), pid(10), |at| {
        looks += 1;
        match at.as_raw_nonzero().get() {
            30 if looks == 1 => Ok(of(20)),
            30 => Ok(of(10)),
            _ => gone(at),
        }
    });
    assert!(found);
    assert!(!descends(pid(30), pid(10), gone), "it has ended itself");
    assert!(
        !descends(pid(30), pid(10), |at| if at == pid(30) { Ok(of(20)) } else { gone(at) }),
        "again and again"
    );
    assert!(!descends(pid(30), pid(10), |at| Ok(of(if at == pid(30) { 1 } else { 0 }))));
}

#[test]
fn a_mapping_is_known_by_its_files_name() {
    let line = |path: &str| format!("7f1c-7f2d r-xp 00000000 08:01 42    {path}");
    let is = |path: &str| super::maps::is_of_file(&line(path), "lib.so");
    assert!(is("/usr/lib/lib.so") && is("/other root/lib.so") && is("/lib.so (deleted)"));
    assert!(
        !is("/usr/lib/lib.so.1") && !is("/usr/lib.so/x") && !is("/usr/mylib.so") && !is("[heap]") && !is("")
    );
    assert!(has_mapped(own(), &std::env::current_exe().unwrap()));
    assert!(!has_mapped(own(), std::path::Path::new("/nowhere")));
}

#[test]
fn what_a_process_has_run_is_of_its_own_code_and_without_the_thread_that_is_left_out() {
    // By the thread's own clock: other tests run in this process.
    let spin = |ms: i64| {
        let clock = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let until = clock().tv_sec * 1000 + clock().tv_nsec / 1_000_000 + ms;
        while clock().tv_sec * 1000 + clock().tv_nsec / 1_000_000 < until {
            std::hint::black_box((0..1_000_000_u64).fold(0, |a: u64, b| a ^ b.wrapping_mul(a)));
        }
    };
    spin(40);
    // A thread that has ended is among them, and one that is left out is not.
    let (told, tid) = std::sync::mpsc::channel();
    let (go, waits) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        spin(60);
        told.send(rustix::thread::gettid()).unwrap();
        let _ = waits.recv();
    });
    let tid = tid.recv().unwrap();
    assert!(ran(own(), Some(tid)).unwrap() < ran(own(), None).unwrap());
    drop(go);
    thread.join().unwrap();
    let all = ran(own(), None).unwrap();
    assert!(all >= Duration::from_millis(50));
    assert!(ran(own(), Some(tid)).unwrap() >= all, "there is no such thread: none is left out");
}
