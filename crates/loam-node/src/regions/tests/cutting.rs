//! What takes its time leaves others alone: room that has to come first, and a stretch that is made anew.

use super::*;
use RegionCall::{Create, List, Open, Remove, Resize};

fn begun(book: &mut Book<Counted>, call: &Call) {
    assert!(!book.must_wait(call));
    assert!(book.begin(call).is_none(), "it takes its time");
}

fn done(book: &mut Book<Counted>) -> Result<Answer, (RegionRefusal, String)> {
    std::iter::repeat_with(|| book.go_on()).flatten().next().expect("some time")
}

fn lists(book: &mut Book<Counted>) {
    let list = call(List, "", 0, 0, 9, 7);
    assert!(!book.must_wait(&list) && matches!(book.begin(&list), Some(Ok(Answer::Regions(..)))));
}

#[test]
fn others_are_served_while_room_has_to_come() {
    let mut book = book(16, 16);
    book.room().comes_after.set(3);
    begun(&mut book, &call(Create, "a", 8, 0, 1, 7));
    for _ in 0..3 {
        assert!(book.go_on().is_none() && book.is_waiting());
        lists(&mut book);
        assert!(book.must_wait(&call(Create, "b", 1, 0, 2, 7)));
        assert_eq!((book.room().taken.get(), book.room().unsettled.get()), (8, 8));
        book.audit();
    }
    done(&mut book).expect("it has come");
    assert_eq!((book.room().taken.get(), book.room().unsettled.get()), (8, 0));
    // It does not come, and is not waited for any more.
    book.room().comes_after.set(u64::MAX);
    begun(&mut book, &call(Create, "b", 8, 0, 1, 7));
    assert!(book.go_on().is_none());
    book.handle_gone(1);
    assert_eq!((book.room().taken.get(), book.is_making()), (8, false));
    begun(&mut book, &call(Create, "b", 8, 0, 1, 7));
    let begun = std::time::Instant::now();
    let refused = loop {
        std::thread::sleep(super::super::room::ROOM_LOOK);
        if let Some(answer) = book.go_on() {
            break answer.expect_err("it did not come");
        }
    };
    assert!(refused.1.contains("did not come") && begun.elapsed() < 2 * super::super::room::ROOM_TIME);
    assert_eq!((book.room().taken.get(), book.room().unsettled.get()), (8, 0));
    book.audit();
}

#[test]
fn others_are_served_while_a_stretch_is_made_anew() {
    let mut book = book(80, 80);
    handle(&mut book, &call(Create, "a", 20, 0, 1, 7)).expect("room");
    handle(&mut book, &call(Create, "b", 1, 0, 1, 7)).expect("room");
    begun(&mut book, &call(Resize, "a", 11, 0, 1, 7));
    assert!(book.go_on().is_none());
    lists(&mut book);
    // It is not opened meanwhile (what is written would be lost); others are.
    assert!(book.must_wait(&call(Open, "a", 0, 0, 2, 7)) && !book.must_wait(&call(Open, "b", 0, 0, 2, 7)));
    assert!(book.must_wait(&Call { id: 1, ..call(Open, "other", 0, 0, 2, 7) }));
    assert_eq!(book.room().taken.get(), 21 + 11, "for a while it is there twice");
    assert_eq!(entry(done(&mut book)).bytes(), 11 * PAGE);
    assert_eq!(book.room().taken.get(), 12);
    assert!(!book.must_wait(&call(Open, "a", 0, 0, 2, 7)));
    book.audit();
    // It goes while it is cut, in each of its steps.
    for steps in 0..20 {
        handle(&mut book, &call(Create, "c", 20, 0, 1, 7)).expect("room");
        begun(&mut book, &call(Resize, "c", 11, 0, 1, 7));
        let over = (0..steps).find_map(|_| book.go_on());
        book.begin(&call(Remove, "c", 0, 0, 2, 7)).expect("at once").expect("there");
        book.audit();
        if over.is_none() {
            assert_eq!(why(done(&mut book)), Some(RegionRefusal::NotFound));
        }
        assert_eq!((book.room().taken.get(), book.room().unsettled.get()), (12, 0), "{steps}");
        book.audit();
    }
}

/// Pages can be put together to large ones where a file of memory begins with the region's, and so does what it grows by.
#[test]
fn stretches_begin_at_large_pages() {
    let mut book = book(1 << 20, 1 << 20);
    let spans = |answer| match answer {
        Ok(Answer::Region(_, spans, _)) => spans.iter().map(|span| span.bytes() / PAGE).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    handle(&mut book, &call(Create, "a", 600, 0, 1, 7)).expect("room");
    handle(&mut book, &call(Resize, "a", 610, 0, 1, 7)).expect("room");
    handle(&mut book, &call(Resize, "a", 2000, 0, 1, 7)).expect("room");
    let opened = handle(&mut book, &call(Open, "a", 0, 0, 2, 7));
    assert_eq!(spans(opened), [600, 10, 1024 - 610, 2000 - 1024]);
    // Cut where it was filled, and grown again.
    handle(&mut book, &call(Resize, "a", 700, 0, 2, 7)).expect("room");
    assert_eq!(spans(handle(&mut book, &call(Resize, "a", 2000, 0, 2, 7))), [600, 10, 90, 324, 976]);
    book.audit();
}

#[test]
fn memory_comes_from_where_it_was_asked_of() {
    let mut book = book(16, 16);
    let bound = |name: &str, policy| Call { policy, ..call(Create, name, 4, 0, 1, 7) };
    let (refusal, text) = handle(&mut book, &bound("far", MemoryPolicy::Bind(1 << 63))).expect_err("refused");
    assert!(refusal == RegionRefusal::Invalid && text.contains("no memory node 63 that"), "{text}");
    assert!(book.sizes().is_empty() && book.room().taken.get() == 0);
    let made = entry(handle(&mut book, &bound("near", MemoryPolicy::Bind(1))));
    assert_eq!(made.policy(), MemoryPolicy::Bind(1));
    // What it grows by, and what is made anew of it, too.
    handle(&mut book, &call(Resize, "near", 8, 0, 1, 7)).expect("room");
    handle(&mut book, &call(Resize, "near", 3, 0, 1, 7)).expect("room");
    handle(&mut book, &call(Resize, "near", 5, 0, 1, 7)).expect("room");
    let Ok(Answer::Region(_, _, files)) = handle(&mut book, &call(Open, "near", 0, 0, 1, 7)) else {
        panic!("it is there")
    };
    assert_eq!(files.len(), 2);
    for file in &files {
        let bytes = rustix::fs::fstat(file).expect("open").st_size as usize;
        let _mapped = loam_disk::Mapped::new(file, 0, bytes, 4096).expect("mapped");
        let inode = rustix::fs::fstat(file).expect("open").st_ino.to_string();
        let maps = std::fs::read_to_string("/proc/self/maps").expect("ours");
        let line = maps.lines().find(|line| line.split_whitespace().nth(4) == Some(&inode)).expect("mapped");
        let place = format!("{} ", line.split('-').next().expect("an address"));
        let told = std::fs::read_to_string("/proc/self/numa_maps").expect("a kernel with NUMA");
        let told = told.lines().find(|line| line.starts_with(&place)).expect("mapped");
        assert!(told.starts_with(&format!("{place}bind:0 ")), "{told}");
    }
}

/// What is bound to a memory node is given up when that has no more to spare.
#[test]
fn what_others_take_meanwhile_is_seen_before_each_step() {
    let root = std::env::temp_dir().join(format!("loam-regions-bound-{}", std::process::id()));
    let node = root.join("sys/devices/system/node/node0");
    std::fs::create_dir_all(&node).expect("made");
    std::fs::create_dir_all(root.join("proc")).expect("made");
    std::fs::write(root.join("proc/zoneinfo"), "Node 0, zone Normal\n        high     1\n").expect("written");
    let free = |kib: u64| {
        let text = format!(
            "Node 0 MemTotal: 9999 kB\nNode 0 MemFree: {kib} kB\nNode 0 Active(file): 0 kB\nNode 0 Inactive(file): 0 kB\n"
        );
        std::fs::write(node.join("meminfo"), text).expect("written");
    };
    let mut book = Book::new((BasePages(16), Bytes(0)), Vec::new(), &root, OWN, room(16));
    let create = Call { policy: MemoryPolicy::Bind(1), ..call(Create, "a", 8, 0, 1, 7) };
    free(36);
    begun(&mut book, &create);
    // Room, and two steps, of two pages each; then what is left of it has to be free, and one more.
    assert!(book.go_on().is_none() && book.go_on().is_none());
    free(28);
    assert!(book.go_on().is_none());
    free(19);
    assert_eq!(why(book.go_on().expect("no more")), Some(RegionRefusal::NoRoom));
    assert_eq!((book.room().taken.get(), book.room().unsettled.get(), book.is_making()), (0, 0, false));
    book.audit();
    free(36);
    handle(&mut book, &create).expect("room again");
    std::fs::remove_dir_all(&root).expect("ours");
}
