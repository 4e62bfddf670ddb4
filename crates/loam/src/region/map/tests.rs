use super::*;
use rustix::fd::OwnedFd;
use rustix::fs::MemfdFlags;

fn memory(pages: usize) -> OwnedFd {
    let file =
        rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory");
    rustix::fs::ftruncate(&file, (pages * PAGE_BYTES) as u64).expect("sized");
    file
}

fn stretch(pages: usize, file: OwnedFd) -> Stretch {
    (loam_wire::RegionSpan::new(0, 0, (pages * PAGE_BYTES) as u64), file)
}

#[test]
fn what_could_shrink_is_not_mapped() {
    let (sealed, open) = (memory(2), memory(2));
    rustix::fs::fcntl_add_seals(&sealed, SealFlags::SHRINK).expect("sealed");
    assert!(
        Map::new(&[stretch(3, sealed.try_clone().expect("a descriptor"))], PAGE_BYTES, false, true).is_err(),
        "too long"
    );
    assert!(Map::new(&[stretch(2, open)], PAGE_BYTES, false, true).is_err(), "not sealed");
    assert_eq!(
        Map::new(&[stretch(2, sealed)], PAGE_BYTES, false, true).expect("mapped").len(),
        2 * PAGE_BYTES
    );
}

/// The kernel frees a place before it finds that it cannot map there (huge pages, of which there are none). What another thread maps there meanwhile stays.
#[test]
fn what_fails_takes_nothing_of_others_away() {
    let sealed = |file: &OwnedFd| rustix::fs::fcntl_add_seals(file, SealFlags::SHRINK).expect("sealed");
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let Ok(huge) = rustix::fs::memfd_create("test", flags) else {
        println!("passed over: a kernel without huge pages");
        return;
    };
    // More than any machine has set aside.
    let (pages, many) = (HUGE_BYTES / PAGE_BYTES, 1 << 30);
    rustix::fs::ftruncate(&huge, (many * PAGE_BYTES) as u64).expect("sized");
    sealed(&huge);
    let (first, last) = (
        rustix::fs::memfd_create("test-in-front", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .expect("memory"),
        memory(pages),
    );
    rustix::fs::ftruncate(&first, 2 * HUGE_BYTES as u64).expect("sized");
    sealed(&first);
    sealed(&last);
    let whole = (many + 3 * pages) * PAGE_BYTES;
    let mut map = Map::reserve(whole, PAGE_BYTES).expect("addresses");
    let stretches = [stretch(2 * pages, first), stretch(many, huge), stretch(pages, last)];
    let failed = map.lay(&stretches).expect_err("no such pages");
    assert_eq!(failed.raw_os_error(), Some(libc::ENOMEM));
    let gap = 2 * HUGE_BYTES..2 * HUGE_BYTES + many * PAGE_BYTES;
    assert_eq!(map.abandoned, Some(gap.clone()));
    let at = |offset: usize| map.base.as_ptr().wrapping_add(offset);
    let take = |place: *mut u8| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: nothing is replaced by it.
        let taken = unsafe { libc::mmap(place.cast(), PAGE_BYTES, protection, flags, -1, 0) };
        taken == place.cast()
    };
    // As another thread may.
    let theirs = [at(gap.start), at(gap.end - PAGE_BYTES)].map(|place| (place, take(place)));
    for (place, _) in theirs.iter().filter(|(_, taken)| *taken) {
        // SAFETY: it was just mapped.
        unsafe { place.write_volatile(9) };
    }
    let maps = || std::fs::read_to_string("/proc/self/maps").expect("ours");
    let behind = format!("-{:x} ---p", map.reserved.as_ptr().addr() + map.reserved_bytes);
    assert!(maps().contains("test-in-front") && maps().contains(&behind));
    drop(map);
    for (place, _) in theirs.iter().filter(|(_, taken)| *taken) {
        // SAFETY: it ends the test by SIGSEGV if it is not mapped any more, as it should.
        assert_eq!(unsafe { place.read_volatile() }, 9);
    }
    assert!(!maps().contains("test-in-front") && !maps().contains(&behind), "what was ours is free");
    if theirs.iter().any(|(_, taken)| !taken) {
        println!("this kernel has kept the place set aside");
    }
}

/// As on a kernel that has no advice for what is locked.
#[test]
fn locked_pages_are_unmapped_on_old_kernels_too() {
    let file = memory(4);
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
    let mut map = Map::new(&[stretch(4, file)], PAGE_BYTES, false, true).expect("mapped");
    map.as_mut_slice().fill(3);
    let resident = || {
        let pages = std::fs::read_to_string("/proc/self/smaps").expect("ours");
        let place = format!("{:x}-", map.base.as_ptr().addr());
        let of_map = pages.lines().skip_while(|line| !line.starts_with(&place)).skip(1);
        let rss = of_map.map(str::to_owned).find(|line| line.starts_with("Rss:")).expect("a mapping");
        rss.trim_start_matches("Rss:").trim().to_owned()
    };
    assert_eq!(resident(), "16 kB");
    map.unmap_locked(PAGE_BYTES, 2 * PAGE_BYTES).expect("unmapped");
    assert_eq!(resident(), "8 kB");
    assert!(map.as_slice().iter().all(|byte| *byte == 3), "it has kept its contents");
}

#[test]
fn a_device_is_mapped_where_its_span_lies_and_at_a_multiple_of_its_pages() {
    let file = memory(1024);
    let span = |offset: usize, file: &OwnedFd| {
        let span = loam_wire::RegionSpan::new(0, offset as u64, HUGE_BYTES as u64);
        (span, file.try_clone().expect("a descriptor"))
    };
    let large = 4 * HUGE_BYTES;
    assert!(Map::new(&[span(PAGE_BYTES, &file)], HUGE_BYTES, true, true).is_err(), "not where a page begins");
    assert!(Map::new(&[span(HUGE_BYTES, &file)], large, true, true).is_err(), "half a page");
    assert!(Map::new(&[span(2 * HUGE_BYTES, &file)], HUGE_BYTES, true, true).is_err(), "behind its end");
    let mut map =
        Map::new(&[span(HUGE_BYTES, &file), span(0, &file)], HUGE_BYTES, true, true).expect("mapped");
    assert_eq!(map.base.as_ptr().addr() % HUGE_BYTES, 0);
    map.as_mut_slice()[..HUGE_BYTES].fill(1);
    map.as_mut_slice()[HUGE_BYTES..].fill(2);
    let mut back = [0; 2];
    rustix::io::pread(&file, &mut back, HUGE_BYTES as u64 - 1).expect("read");
    assert_eq!(back, [2, 1]);
    // A page of 1 GiB, as far as addresses go.
    let giant = memory((1 << 30) / PAGE_BYTES);
    let whole = (loam_wire::RegionSpan::new(0, 0, 1 << 30), giant);
    let map = Map::new(&[whole], 1 << 30, true, true).expect("mapped");
    assert_eq!(map.base.as_ptr().addr() % (1 << 30), 0);
}

/// Several stretches, of which one lies where no large page can be: the others are put together all the same.
#[test]
fn pages_are_put_together_stretch_by_stretch() {
    let pages = HUGE_BYTES / PAGE_BYTES;
    let made = |pages: usize| {
        let file = memory(pages);
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
        stretch(pages, file)
    };
    // Whether there are any is the kernel's to say, not what is tested.
    let mut probe = Map::new(&[made(pages)], PAGE_BYTES, false, true).expect("mapped");
    probe.as_mut_slice().fill(1);
    if let Err(why) = probe.tell_kernel(0, HUGE_BYTES, libc::MADV_COLLAPSE) {
        println!("passed over: no large page to be had ({why})");
        return;
    }
    // At 0, 5 large pages; then not at a large page's place; then again, behind what fills up.
    let memory = [made(5 * pages), made(3 * pages + 1), made(pages - 1), made(5 * pages)];
    let mut map = Map::new(&memory, PAGE_BYTES, false, true).expect("mapped");
    map.as_mut_slice().fill(5);
    map.collapse(0, map.len());
    let starts = [0, 5 * HUGE_BYTES, 8 * HUGE_BYTES + PAGE_BYTES, 9 * HUGE_BYTES];
    let large = starts.map(|at| in_large_pages(&map, at));
    assert_eq!(large, [5 * HUGE_BYTES, 3 * HUGE_BYTES, 0, 5 * HUGE_BYTES]);
    assert!(map.as_slice().iter().all(|byte| *byte == 5), "it has kept its contents");
    // Again, where the second is in a place of no large page: nothing can be done with that, and nothing is lost.
    let memory = [made(pages + 1), made(5 * pages - 1), made(5 * pages)];
    let mut map = Map::new(&memory, PAGE_BYTES, false, true).expect("mapped");
    map.as_mut_slice().fill(6);
    map.collapse(0, map.len());
    let starts = [0, HUGE_BYTES + PAGE_BYTES, 6 * HUGE_BYTES];
    assert_eq!(starts.map(|at| in_large_pages(&map, at)), [HUGE_BYTES, 0, 5 * HUGE_BYTES]);
    assert!(map.as_slice().iter().all(|byte| *byte == 6));
}

/// Bytes that the kernel has in large pages, of the stretch that is mapped at `at`.
fn in_large_pages(map: &Map, at: usize) -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("ours");
    let place = format!("{:x}-", map.base.as_ptr().addr() + at);
    let of = text.lines().skip_while(|line| !line.starts_with(&place)).skip(1);
    let line =
        of.take(30).find(|line| line.starts_with("ShmemPmdMapped:")).expect("a kernel with large pages");
    line.split_whitespace().nth(1).expect("a number").parse::<usize>().expect("a number") << 10
}
