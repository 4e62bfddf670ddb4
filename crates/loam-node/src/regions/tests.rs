//! The book against a simple model, and the cases that matter by themselves.

mod cutting;
mod devices;
mod model;

use super::book::{Book, REGIONS_OF_USER_MAX};
use super::region::{Answer, Call};
use super::room::Room;
use loam_core::units::{BasePages, Bytes};
use loam_wire::{MemoryPolicy, RegionCall, RegionRefusal, region_flag};
use std::cell::Cell;
use std::os::unix::fs::FileExt;
use std::path::Path;

const OWN: u32 = 10;
const PAGE: u64 = 4096;

/// Room that counts.
#[derive(Debug)]
struct Counted {
    taken: Cell<u64>,
    unsettled: Cell<u64>,
    most: u64,
    /// After so many steps more the node ends.
    ends_after: Cell<Option<u64>>,
    /// So many looks before what was taken has come.
    comes_after: Cell<u64>,
}

impl Room for Counted {
    fn take(&self, pages: BasePages) -> Result<(), String> {
        if self.taken.get() + pages.0 > self.most {
            return Err("none".into());
        }
        self.taken.set(self.taken.get() + pages.0);
        self.unsettled.set(self.unsettled.get() + pages.0);
        Ok(())
    }
    fn has_come(&self) -> bool {
        let left = self.comes_after.get();
        self.comes_after.set(left.saturating_sub(1));
        left == 0
    }
    fn refusal(&self, _: BasePages) -> String {
        "it did not come".into()
    }
    fn settle(&self, pages: BasePages) {
        self.unsettled.set(self.unsettled.get() - pages.0);
    }
    fn give(&self, pages: BasePages) {
        self.taken.set(self.taken.get() - pages.0);
        assert!(
            self.unsettled.get() <= self.taken.get(),
            "what was not settled was given back as if it were"
        );
    }
    fn give_up(&self, pages: BasePages) {
        self.unsettled.set(self.unsettled.get() - pages.0);
        self.taken.set(self.taken.get() - pages.0);
    }
    fn ends(&self) -> bool {
        let left = self.ends_after.get();
        self.ends_after.set(left.map(|left| left.saturating_sub(1)));
        left == Some(0)
    }
    fn free(&self) -> BasePages {
        BasePages(self.most - self.taken.get())
    }
}

fn room(most: u64) -> Counted {
    let (taken, unsettled) = (Cell::new(0), Cell::new(0));
    Counted { taken, unsettled, most, ends_after: Cell::new(None), comes_after: Cell::new(0) }
}

fn book(lend: u64, most: u64) -> Book<Counted> {
    Book::new((BasePages(lend), Bytes(0)), Vec::new(), Path::new("/"), OWN, room(most))
}

fn call(call: RegionCall, name: &str, pages: u64, flags: u8, connection: u64, uid: u32) -> Call {
    let (bytes, name, device) = (pages * PAGE, name.into(), String::new());
    let policy = MemoryPolicy::Unset;
    Call { request: 0, call, flags, bytes, id: 0, name, policy, device, connection, uid }
}

/// From the beginning to the answer.
fn handle(book: &mut Book<Counted>, call: &Call) -> Result<Answer, (RegionRefusal, String)> {
    book.begin(call).unwrap_or_else(|| {
        loop {
            if let Some(answer) = book.go_on() {
                break answer;
            }
        }
    })
}

fn why(answer: Result<Answer, (RegionRefusal, String)>) -> Option<RegionRefusal> {
    answer.err().map(|(why, _)| why)
}

#[test]
fn only_the_owner_and_the_nodes_user_may() {
    use RegionCall::{Create, List, Open, Remove, Resize};
    let mut book = book(16, 16);
    assert_eq!(why(handle(&mut book, &call(Create, "a", 2, 0, 1, 7))), None);
    for what in [Open, Resize, Remove] {
        assert_eq!(why(handle(&mut book, &call(what, "a", 1, 0, 2, 8))), Some(RegionRefusal::Denied));
    }
    let seen = |book: &mut Book<Counted>, uid| match handle(book, &call(List, "", 0, 0, 9, uid)) {
        Ok(Answer::Regions(_, entries)) => entries.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!((seen(&mut book, 7), seen(&mut book, 8), seen(&mut book, OWN)), (1, 0, 1));
    assert_eq!(why(handle(&mut book, &call(Create, "a", 1, 0, 2, 8))), Some(RegionRefusal::Exists));
    // The node's user may, but not as if it were alone: the owner's programs may have kept the memory.
    assert_eq!(why(handle(&mut book, &call(Open, "a", 0, 0, 3, OWN))), Some(RegionRefusal::Denied));
    assert_eq!(why(handle(&mut book, &call(Open, "a", 0, region_flag::SHARED, 3, OWN))), None);
    assert_eq!(why(handle(&mut book, &call(Open, "a", 0, 0, 4, 7))), Some(RegionRefusal::InUse));
    book.handle_gone(3);
    assert_eq!(why(handle(&mut book, &call(Open, "a", 0, 0, 4, 7))), None);
    assert_eq!(
        why(handle(&mut book, &call(Open, "a", 0, region_flag::SHARED, 5, OWN))),
        Some(RegionRefusal::InUse)
    );
    book.audit();
}

#[test]
fn names_sizes_and_numbers_have_limits() {
    let mut book = book(1000, 1000);
    for name in ["", ".a", "-a", "a/b", "a b", "ä"] {
        let answer = handle(&mut book, &call(RegionCall::Create, name, 1, 0, 1, OWN));
        assert_eq!(why(answer), Some(RegionRefusal::Invalid), "{name:?}");
    }
    assert_eq!(
        why(handle(&mut book, &call(RegionCall::Create, "a", 0, 0, 1, 7))),
        Some(RegionRefusal::Invalid)
    );
    for number in 0..REGIONS_OF_USER_MAX {
        assert_eq!(
            why(handle(&mut book, &call(RegionCall::Create, &format!("r{number}"), 1, 0, 1, 7))),
            None
        );
    }
    assert_eq!(
        why(handle(&mut book, &call(RegionCall::Create, "b", 1, 0, 1, 7))),
        Some(RegionRefusal::TooMany)
    );
    assert_eq!(why(handle(&mut book, &call(RegionCall::Create, "b", 1, 0, 1, 8))), None, "another user's");
}

fn entry(answer: Result<Answer, (RegionRefusal, String)>) -> loam_wire::RegionEntry {
    match answer {
        Ok(Answer::Region(entry, ..)) => *entry,
        other => panic!("{other:?}"),
    }
}

/// A name that is given anew is another region's: who has the old one open goes on with the old one.
#[test]
fn a_holder_never_hits_another_region_of_its_name() {
    use RegionCall::{Create, Open, Remove, Resize};
    let mut book = book(16, 16);
    let old = entry(handle(&mut book, &call(Create, "a", 2, 0, 1, 7))).id();
    let by_id = |what, pages, connection| Call { id: old, ..call(what, "a", pages, 0, connection, 7) };
    assert_eq!(why(handle(&mut book, &by_id(Open, 0, 1))), None);
    assert_eq!(why(handle(&mut book, &call(Remove, "a", 0, 0, 2, 7))), None);
    let new = entry(handle(&mut book, &call(Create, "a", 3, 0, 2, 7))).id();
    assert_ne!(old, new);
    // The holder's calls: its own region grows, is looked at, is removed (again); the new one is as it was.
    assert_eq!(entry(handle(&mut book, &by_id(Resize, 4, 1))).bytes(), 4 * PAGE);
    assert_eq!(entry(handle(&mut book, &by_id(Open, 0, 1))).id(), old);
    assert_eq!(why(handle(&mut book, &by_id(Remove, 0, 1))), None);
    // Nobody else gets at it any more.
    assert_eq!(why(handle(&mut book, &by_id(Open, 0, 3))), Some(RegionRefusal::NotFound));
    book.handle_gone(1);
    assert_eq!(why(handle(&mut book, &by_id(Resize, 4, 1))), Some(RegionRefusal::NotFound));
    let now = entry(handle(&mut book, &call(Open, "a", 0, 0, 3, 7)));
    assert_eq!((now.id(), now.bytes()), (new, 3 * PAGE));
    book.audit();
}

/// What is cut off is gone, what is kept is kept, and the descriptor of before is another memory's.
#[test]
fn a_cut_makes_memory_anew() {
    let mut book = book(16, 16);
    handle(&mut book, &call(RegionCall::Create, "a", 4, 0, 1, 7)).expect("room");
    let files = |answer| match answer {
        Ok(Answer::Region(_, _, files)) => files,
        other => panic!("{other:?}"),
    };
    let file = |fd: &rustix::fd::OwnedFd| std::fs::File::from(fd.try_clone().expect("a descriptor"));
    let before = files(handle(&mut book, &call(RegionCall::Open, "a", 0, 0, 2, 7)));
    let contents: Vec<u8> = (0..4 * PAGE).map(|at| (at / 5) as u8).collect();
    file(&before[0]).write_all_at(&contents, 0).expect("written");
    // Not from under somebody else.
    let other = handle(&mut book, &call(RegionCall::Resize, "a", 2, 0, 3, 7));
    assert_eq!(why(other), Some(RegionRefusal::InUse));
    let after = files(handle(&mut book, &call(RegionCall::Resize, "a", 2, 0, 2, 7)));
    let mut back = vec![0; 2 * PAGE as usize];
    file(&after[0]).read_exact_at(&mut back, 0).expect("read");
    assert!(back == contents[..back.len()]);
    file(&before[0]).write_all_at(&[1; 8], 0).expect("it is still somebody's");
    file(&after[0]).read_exact_at(&mut back, 0).expect("read");
    assert!(back == contents[..back.len()]);
    assert_eq!(book.room().taken.get(), 2);
    book.audit();
}

/// Somebody who has kept a descriptor keeps no memory by it: what is free for others is free.
#[test]
fn memory_is_free_when_it_is_said_to_be() {
    let mut book = book(16, 16);
    handle(&mut book, &call(RegionCall::Create, "a", 4, 0, 1, 7)).expect("room");
    let opened = handle(&mut book, &call(RegionCall::Open, "a", 0, 0, 2, 7));
    let Ok(Answer::Region(_, _, kept)) = opened else { panic!("{opened:?}") };
    let blocks = || rustix::fs::fstat(&kept[0]).expect("it is open").st_blocks as u64 * 512;
    handle(&mut book, &call(RegionCall::Remove, "a", 0, 0, 1, 7)).expect("it is there");
    assert_eq!(blocks(), 4 * PAGE, "it is open");
    book.handle_gone(2);
    assert_eq!((blocks(), book.room().taken.get()), (0, 0));
    // And what a region that goes on gives back.
    handle(&mut book, &call(RegionCall::Create, "b", 4, 0, 1, 7)).expect("room");
    handle(&mut book, &call(RegionCall::Resize, "b", 8, 0, 1, 7)).expect("room");
    let opened = handle(&mut book, &call(RegionCall::Open, "b", 0, 0, 2, 7));
    let Ok(Answer::Region(_, _, kept)) = opened else { panic!("{opened:?}") };
    handle(&mut book, &call(RegionCall::Resize, "b", 2, 0, 2, 7)).expect("room");
    for file in &kept {
        assert_eq!(rustix::fs::fstat(file).expect("it is open").st_blocks, 0);
    }
}

/// While memory is being made for one, others go on; what becomes of the region meanwhile counts.
#[test]
fn others_are_served_while_memory_is_made() {
    use RegionCall::{Create, List, Open, Remove, Resize};
    let mut book = book(40, 40);
    handle(&mut book, &call(Create, "a", 4, 0, 1, 7)).expect("room");
    assert!(book.begin(&call(Resize, "a", 10, 0, 1, 7)).is_none() && book.go_on().is_none());
    // It is there as it was, and its memory to be is counted.
    let opened = book.begin(&call(Open, "a", 0, 0, 2, 7)).expect("at once");
    assert_eq!(entry(opened).bytes(), 4 * PAGE);
    assert!(matches!(book.begin(&call(List, "", 0, 0, 3, 7)), Some(Ok(Answer::Regions(..)))));
    assert_eq!(book.room().taken.get(), 10);
    book.audit();
    // It goes while it grows: so does what was made.
    book.begin(&call(Remove, "a", 0, 0, 3, 7)).expect("at once").expect("it is there");
    book.handle_gone(2);
    assert_eq!(book.room().taken.get(), 6);
    book.audit();
    let answer = std::iter::repeat_with(|| book.go_on()).flatten().next().expect("some time");
    assert_eq!(why(answer), Some(RegionRefusal::NotFound));
    assert_eq!((book.room().taken.get(), book.room().unsettled.get()), (0, 0));
    // Who has asked for it goes: nobody waits for it.
    assert!(book.begin(&call(Create, "b", 8, 0, 4, 7)).is_none() && book.go_on().is_none());
    book.handle_gone(5);
    assert!(book.is_making());
    book.handle_gone(4);
    assert!(!book.is_making() && book.go_on().is_none());
    assert_eq!((book.room().taken.get(), book.room().unsettled.get()), (0, 0));
    book.audit();
    // The name is free, and so is the room.
    handle(&mut book, &call(Create, "b", 40, 0, 4, 7)).expect("room");
}
