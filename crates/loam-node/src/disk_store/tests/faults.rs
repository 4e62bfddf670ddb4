//! A disk that fails, lies or is full; who gets how much of it.

use super::power::{Failing, PowerDisk};
use super::*;
use crate::disk_store::layout::{SPACES_MAX, TABLE_OFFSETS_BYTES};
use rustix::io::Errno;

const GEOMETRY: Geometry = Geometry { store: 99, header_bytes: 512, slots: 128 };

fn fresh(geometry: Geometry) -> (PowerDisk, DiskStore<PowerDisk>) {
    let disk = PowerDisk::new(&geometry, 1);
    let (store, _) = disk.open(geometry);
    (disk, store)
}

fn run(first: u64, pages: u64, version: u32) -> Vec<(u64, u32)> {
    (first..first + pages).map(|index| (index, version)).collect()
}

#[test]
fn a_run_is_one_write_and_one_sync_covers_many() {
    let (disk, mut store) = fresh(GEOMETRY);
    for group in 0..3 {
        write(&mut store, 1, &run(group * 32, 32, 1)).unwrap();
    }
    let durable = settle(&mut store);
    assert_eq!(durable.len(), 3);
    let figures = store.figures();
    assert_eq!((figures.writes, figures.pages_written, figures.pages), (3, 96, 96));
    assert_eq!(figures.bytes_written, 96 * 4608);
    assert!(figures.syncs <= 3, "{figures:?}");
    // Three groups and the table of spaces.
    assert_eq!(disk.0.borrow().writes, 4);
}

#[test]
fn a_store_in_pieces_takes_a_run_in_several_writes_that_are_durable_together() {
    let (_, mut store) = fresh(GEOMETRY);
    for group in 0..4 {
        write(&mut store, 1, &run(group * 32, 32, 1)).unwrap();
    }
    settle(&mut store);
    for index in (0..128).step_by(2) {
        assert!(store.forget(SpaceId(1), index, Version(1)));
    }
    let before = store.figures().writes;
    let token = write(&mut store, 1, &run(1000, 20, 1)).unwrap();
    assert_eq!(settle(&mut store), [Completion::Durable { token }]);
    assert_eq!(store.figures().writes - before, 20);
    // More pieces than may be under way at once are refused, and nothing is lost by it.
    for group in 0..2 {
        write(&mut store, 1, &run(2000 + group * 16, 16, 1)).unwrap();
    }
    let free = store.figures().slots_free;
    let mut refused = Ok(());
    for group in 0..8 {
        refused = write(&mut store, 1, &run(3000 + group * 4, 4, 1)).map(|_| ());
        check(&store);
        if refused.is_err() {
            break;
        }
    }
    assert!(matches!(refused, Err(Refused::Full { .. } | Refused::Busy)), "{refused:?} with {free} free");
    settle(&mut store);
    for index in 0..20 {
        read(&mut store, 1, 1000 + index, 1).unwrap();
    }
}

#[test]
fn more_pieces_than_may_be_under_way_are_busy_not_lost() {
    let (_, mut store) = fresh(Geometry { slots: 256, ..GEOMETRY });
    for group in 0..8 {
        write(&mut store, 1, &run(group * 32, 32, 1)).unwrap();
    }
    settle(&mut store);
    for index in (0..256).step_by(2) {
        store.forget(SpaceId(1), index, Version(1));
    }
    write(&mut store, 1, &run(1000, 32, 1)).unwrap();
    write(&mut store, 1, &run(2000, 32, 1)).unwrap();
    let free = store.figures().slots_free;
    assert_eq!(write(&mut store, 1, &run(3000, 1, 1)), Err(Refused::Busy));
    assert_eq!(store.figures().slots_free, free);
    settle(&mut store);
    write(&mut store, 1, &run(3000, 1, 1)).unwrap();
    settle(&mut store);
}

#[test]
fn the_older_version_is_read_until_the_newer_is_durable_and_its_slot_is_free_then() {
    let (_, mut store) = fresh(GEOMETRY);
    write(&mut store, 1, &[(5, 1)]).unwrap();
    settle(&mut store);
    let free = store.figures().slots_free;
    write(&mut store, 1, &[(5, 2)]).unwrap();
    assert_eq!(store.read(SpaceId(1), 5, Version(2)), Err(ReadRefused::Writing));
    store.read(SpaceId(1), 5, Version(1)).unwrap();
    assert_eq!(store.figures().slots_free, free - 1);
    settle(&mut store);
    assert_eq!(store.figures().slots_free, free);
    assert_eq!(store.read(SpaceId(1), 5, Version(1)), Err(ReadRefused::Missing));
    read(&mut store, 1, 5, 2).unwrap();
}

#[test]
fn a_flipped_bit_anywhere_in_a_slot_is_found_when_it_is_read_and_at_recovery() {
    // Every bit of the header, and some of the page.
    let places = (0..64).chain((0..4096).step_by(61).map(|at| 512 + at)).chain([512 + 4095]);
    for at in places {
        let (disk, mut store) = fresh(GEOMETRY);
        write(&mut store, 1, &[(7, 1)]).unwrap();
        settle(&mut store);
        let Found { pages, .. } = recover::recover(&mut disk.clone(), &GEOMETRY).unwrap();
        let slot = pages[&PageId { space: SpaceId(1), index: 7 }].slot;
        disk.flip(GEOMETRY.offset_bytes(slot) as usize + at, at as u32 % 8);
        assert_eq!(read(&mut store, 1, 7, 1), Err(Err(Fault::Corrupt)), "bit of byte {at}");
        assert_eq!(store.figures().corrupt, 1);
        let (store, pages) = disk.open(GEOMETRY);
        assert!(pages.is_empty(), "byte {at}: {pages:?}");
        assert_eq!(store.figures().slots_free, 128);
        assert!(store.figures().corrupt > 0);
    }
}

#[test]
fn a_torn_newer_version_does_not_hide_a_whole_older_one() {
    let (disk, mut store) = fresh(GEOMETRY);
    write(&mut store, 1, &[(7, 1)]).unwrap();
    settle(&mut store);
    write(&mut store, 1, &[(7, 2)]).unwrap();
    settle(&mut store);
    // As if the second had not been synced, and its last sector not been written.
    let Found { pages, .. } = recover::recover(&mut disk.clone(), &GEOMETRY).unwrap();
    let kept = pages[&PageId { space: SpaceId(1), index: 7 }];
    assert_eq!(kept.version, Version(2));
    disk.flip(GEOMETRY.offset_bytes(kept.slot) as usize + 4607, 0);
    let (mut store, pages) = disk.open(GEOMETRY);
    assert_eq!((pages.len(), pages[0].version), (1, Version(1)));
    read(&mut store, 1, 7, 1).unwrap();
}

#[test]
fn slots_of_another_store_or_another_place_do_not_count() {
    let (disk, mut store) = fresh(GEOMETRY);
    write(&mut store, 1, &[(7, 1)]).unwrap();
    settle(&mut store);
    let from = GEOMETRY.offset_bytes(0) as usize;
    let slot = disk.0.borrow().durable[from..from + 4608].to_vec();
    disk.0.borrow_mut().durable[GEOMETRY.offset_bytes(3) as usize..][..4608].copy_from_slice(&slot);
    disk.0.borrow_mut().durable[from] ^= 1;
    assert!(disk.open(GEOMETRY).1.is_empty(), "a slot in the wrong place was believed");
    disk.0.borrow_mut().durable[from] ^= 1;
    assert_eq!(disk.open(GEOMETRY).1.len(), 1);
    let stranger = PowerDisk::new(&Geometry { store: 100, ..GEOMETRY }, 1);
    stranger.0.borrow_mut().durable[from..from + 4608].copy_from_slice(&slot);
    assert!(stranger.open(Geometry { store: 100, ..GEOMETRY }).1.is_empty());
}

#[test]
fn a_table_of_spaces_that_is_torn_leaves_the_one_before() {
    let (disk, mut store) = fresh(GEOMETRY);
    for space in 1..=2 {
        write(&mut store, space, &[(7, 1)]).unwrap();
        settle(&mut store);
    }
    let tables = TABLE_OFFSETS_BYTES.map(|offset| {
        layout::Table::decode(99, &disk.0.borrow().durable[offset as usize..]).unwrap().generation
    });
    let newest = TABLE_OFFSETS_BYTES[usize::from(tables[1] > tables[0])];
    disk.flip(newest as usize + 70, 3);
    let (_, pages) = disk.open(GEOMETRY);
    assert_eq!(pages.iter().map(|page| page.space.0).collect::<Vec<_>>(), [1]);
}

#[test]
fn writes_do_not_run_away_from_a_slow_sync() {
    let (disk, mut store) = fresh(Geometry { slots: 20_000, ..GEOMETRY });
    disk.0.borrow_mut().hold_syncs = true;
    let (mut next, mut refused) = (0, 0);
    while refused < 100 {
        match write(&mut store, 1, &run(next, 32, 1)) {
            Ok(_) => (next, refused) = (next + 32, 0),
            Err(error) => {
                assert_eq!(error, Refused::Busy);
                refused += 1;
            }
        }
        assert_eq!(store.poll().count(), 0);
    }
    assert_eq!((next as usize, store.writes_under_way), (UNSYNCED_PAGES_MAX, 0));
    disk.0.borrow_mut().hold_syncs = false;
    assert_eq!(settle(&mut store).len(), UNSYNCED_PAGES_MAX / 32);
    write(&mut store, 1, &run(next, 32, 1)).unwrap();
    settle(&mut store);
}

#[test]
fn a_write_that_fails_is_reported_its_place_is_not_used_again_and_the_store_goes_on() {
    let (disk, mut store) = fresh(GEOMETRY);
    write(&mut store, 1, &[(7, 1)]).unwrap();
    settle(&mut store);
    disk.0.borrow_mut().failing = Failing { writes: 1000, ..Failing::default() };
    let token = write(&mut store, 1, &run(7, 3, 2)).unwrap();
    assert_eq!(settle(&mut store), [Completion::Failed { token, error: Fault::Disk(Errno::IO) }]);
    disk.0.borrow_mut().failing = Failing::default();
    let figures = store.figures();
    assert_eq!((figures.slots_retired, figures.errors, figures.pages), (3, 1, 1));
    read(&mut store, 1, 7, 1).unwrap();
    assert_eq!(read(&mut store, 1, 7, 2), Err(Ok(ReadRefused::Missing)));
    let token = write(&mut store, 1, &run(7, 3, 3)).unwrap();
    assert_eq!(settle(&mut store), [Completion::Durable { token }]);
}

#[test]
fn a_full_disk_fails_the_write_and_keeps_the_place() {
    let (disk, mut store) = fresh(GEOMETRY);
    disk.0.borrow_mut().failing = Failing { writes: 1000, errno: Some(Errno::NOSPC), ..Failing::default() };
    let token = write(&mut store, 1, &run(0, 32, 1)).unwrap();
    assert_eq!(settle(&mut store), [Completion::Failed { token, error: Fault::Disk(Errno::NOSPC) }]);
    assert_eq!((store.figures().slots_retired, store.figures().slots_free), (0, 128));
    assert!(store.broken().is_none());
}

/// Many writes are under way at once, and all of them fail while it is full for a moment.
#[test]
fn a_disk_that_was_full_for_many_writes_is_written_again_when_there_is_room() {
    for errno in [Errno::NOSPC, Errno::DQUOT] {
        let (disk, mut store) = fresh(GEOMETRY);
        disk.0.borrow_mut().failing = Failing { writes: 1000, errno: Some(errno), ..Failing::default() };
        for index in 0..64 {
            let token = write(&mut store, 1, &[(index, 1)]).unwrap();
            let error = Fault::Disk(errno);
            assert_eq!(settle(&mut store), [Completion::Failed { token, error }], "write {index}");
        }
        disk.0.borrow_mut().failing = Failing::default();
        let token = write(&mut store, 1, &run(0, 32, 2)).unwrap();
        assert_eq!(settle(&mut store), [Completion::Durable { token }]);
        read(&mut store, 1, 31, 2).unwrap();
    }
}

#[test]
fn a_store_whose_sync_fails_promises_nothing_and_takes_nothing_more_but_reads() {
    let (disk, mut store) = fresh(GEOMETRY);
    write(&mut store, 1, &[(7, 1)]).unwrap();
    settle(&mut store);
    disk.0.borrow_mut().failing = Failing { syncs: 1000, ..Failing::default() };
    let token = write(&mut store, 1, &[(7, 2), (8, 1)]).unwrap();
    assert_eq!(settle(&mut store), [Completion::Failed { token, error: Fault::Broken }]);
    disk.0.borrow_mut().failing = Failing::default();
    let why = store.broken().unwrap().to_owned();
    assert!(why.contains("fdatasync") && !why.contains('\n'), "{why}");
    assert_eq!(write(&mut store, 1, &[(9, 1)]), Err(Refused::Broken));
    read(&mut store, 1, 7, 1).unwrap();
    assert!(store.forget_space(SpaceId(1)));
    settle(&mut store);
}

#[test]
fn write_after_write_that_fails_breaks_the_store() {
    let (disk, mut store) = fresh(GEOMETRY);
    disk.0.borrow_mut().failing = Failing { writes: 1000, ..Failing::default() };
    let mut writes = 0;
    while store.broken().is_none() {
        write(&mut store, 1, &[(writes, 1)]).unwrap();
        settle(&mut store);
        writes += 1;
        assert!(writes < 100, "it never breaks");
    }
    assert_eq!(writes, 16);
}

#[test]
fn a_read_that_fails_is_an_error_of_that_read_alone() {
    let (disk, mut store) = fresh(GEOMETRY);
    write(&mut store, 1, &[(7, 1)]).unwrap();
    settle(&mut store);
    disk.0.borrow_mut().failing = Failing { reads: 1000, ..Failing::default() };
    assert_eq!(read(&mut store, 1, 7, 1), Err(Err(Fault::Disk(Errno::IO))));
    disk.0.borrow_mut().failing = Failing::default();
    read(&mut store, 1, 7, 1).unwrap();
}

#[test]
fn blocks_that_cannot_be_read_at_recovery_are_left_alone_and_the_rest_is_found() {
    let (disk, mut store) = fresh(GEOMETRY);
    for group in 0..4 {
        write(&mut store, 1, &run(group * 32, 32, 1)).unwrap();
    }
    settle(&mut store);
    disk.0.borrow_mut().bad_byte = Some(GEOMETRY.offset_bytes(40) as usize + 1000);
    let (store, pages) = disk.open(GEOMETRY);
    assert_eq!(pages.len(), 127);
    let figures = store.figures();
    assert_eq!((figures.slots_retired, figures.slots_free, figures.errors), (1, 0, 1));
    check(&store);
}

#[test]
fn one_space_fills_the_store_up_to_the_reserve_and_a_newcomer_gets_that() {
    let (_, mut store) = fresh(GEOMETRY);
    // Alone, its share is everything.
    assert_eq!(store.room(SpaceId(1)), 128);
    write(&mut store, 2, &[(0, 1)]).unwrap();
    // With another one it is half, and more while more than an eighth is free: 127 free, 16 in reserve.
    assert_eq!(store.room(SpaceId(1)), 111);
    for group in 0..3 {
        write(&mut store, 1, &run(group * 32, 32, 1)).unwrap();
    }
    settle(&mut store);
    assert_eq!(store.room(SpaceId(1)), 15);
    assert_eq!(write(&mut store, 1, &run(200, 16, 1)), Err(Refused::Full { room: 15 }));
    write(&mut store, 1, &run(200, 15, 1)).unwrap();
    settle(&mut store);
    assert_eq!(store.room(SpaceId(1)), 0);
    // A newer version gives a slot back, so the reserve is for it too.
    write(&mut store, 1, &run(0, 16, 2)).unwrap();
    settle(&mut store);
    assert_eq!(store.figures().slots_free, 16);
    // A third finds the reserve.
    assert_eq!(store.room(SpaceId(3)), 16);
    write(&mut store, 3, &run(0, 16, 1)).unwrap();
    settle(&mut store);
    assert_eq!(write(&mut store, 2, &[(1, 1)]), Err(Refused::Full { room: 0 }));
    // And when the first is gone, all have room again.
    assert!(store.forget_space(SpaceId(1)));
    assert_eq!(store.room(SpaceId(3)), 128 / 2 + 31);
    settle(&mut store);
}

#[test]
fn a_space_that_has_gone_leaves_the_table_and_comes_back_as_a_new_one() {
    let (disk, mut store) = fresh(GEOMETRY);
    write(&mut store, 1, &run(0, 32, 1)).unwrap();
    settle(&mut store);
    store.forget_space(SpaceId(1));
    settle(&mut store);
    write(&mut store, 1, &[(99, 1)]).unwrap();
    settle(&mut store);
    let (_, pages) = disk.open(GEOMETRY);
    assert_eq!(pages.iter().map(|page| page.index).collect::<Vec<_>>(), [99], "pages of its former life");
}

/// The slots of a large space were freed in one go, and all that others wanted to read waited.
#[test]
fn a_space_that_has_gone_is_freed_in_pieces_between_which_others_read() {
    let (disk, mut store) = fresh(GEOMETRY);
    store.free_one_at_a_time();
    for group in 0..3 {
        write(&mut store, 1, &run(group * 32, 32, 1)).unwrap();
    }
    write(&mut store, 2, &[(0, 1)]).unwrap();
    settle(&mut store);
    // Some are on their way, and one of these is there in an older version.
    write(&mut store, 1, &[(0, 2), (200, 1)]).unwrap();
    assert!(store.forget_space(SpaceId(1)));
    assert_eq!(store.records.slots_of(SpaceId(1)), 0);
    check(&store);
    assert!(store.is_freeing());
    // Nobody has to go without the room that it leaves.
    assert_eq!(write(&mut store, 3, &run(0, 32, 1)), Err(Refused::Busy));
    assert_eq!(store.read(SpaceId(1), 5, Version(1)), Err(ReadRefused::Missing));
    read(&mut store, 2, 0, 1).unwrap();
    assert!(store.is_freeing(), "and it is not waited for");
    // It may come back meanwhile.
    write(&mut store, 1, &[(5, 9)]).unwrap();
    settle(&mut store);
    assert!(!store.is_freeing());
    assert_eq!(store.figures().slots_free, 128 - 2);
    let (_, pages) = disk.open(GEOMETRY);
    let pages: Vec<_> = pages.iter().map(|page| (page.space.0, page.index, page.version.0)).collect();
    assert_eq!(pages, [(1, 5, 9), (2, 0, 1)]);
}

#[test]
fn there_is_a_limit_of_spaces() {
    let (_, mut store) = fresh(Geometry { slots: 8192, ..GEOMETRY });
    for space in 0..SPACES_MAX as u64 {
        write(&mut store, space, &[(0, 1)]).unwrap();
        if space % 64 == 63 {
            settle(&mut store);
        }
    }
    settle(&mut store);
    assert_eq!(write(&mut store, u64::MAX, &[(0, 1)]), Err(Refused::Spaces));
    store.forget_space(SpaceId(5));
    write(&mut store, u64::MAX, &[(0, 1)]).unwrap();
    settle(&mut store);
}

/// Its pages were once reported durable by a sync that covered them and not the table that names their space.
#[test]
fn a_space_that_comes_while_a_table_is_written_waits_for_the_next_one() {
    for seed in 0..500 {
        let disk = PowerDisk::new(&GEOMETRY, seed);
        let (mut store, _) = disk.open(GEOMETRY);
        write(&mut store, 1, &[(0, 1)]).unwrap();
        for _ in 0..seed % 5 {
            store.poll();
        }
        let token = write(&mut store, 2, &[(0, 1)]).unwrap();
        while !store.poll().any(|completion| completion == Completion::Durable { token }) {}
        disk.lose_power();
        let (_, pages) = disk.open(GEOMETRY);
        assert!(pages.iter().any(|page| page.space == SpaceId(2)), "seed {seed}: {pages:?}");
    }
}

#[test]
fn the_store_may_be_moved_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<DiskStore>();
}

/// The queue to the disk fails with a read, a write and a sync under way: each of them ends, once, and from then on everything is refused.
#[test]
fn a_dead_queue_leaves_nobody_waiting() {
    for seed in 0..50 {
        let disk = PowerDisk::new(&GEOMETRY, seed);
        let (mut store, _) = disk.open(GEOMETRY);
        write(&mut store, 1, &run(0, 8, 1)).unwrap();
        settle(&mut store);
        let read_token = store.read(SpaceId(1), 3, Version(1)).unwrap();
        let mut writes = vec![write(&mut store, 1, &run(100, 8, 1)).unwrap()];
        // Some are further than others.
        let mut ended: Vec<Completion> =
            (0..seed % 3).flat_map(|_| store.poll().collect::<Vec<_>>()).collect();
        writes.push(write(&mut store, 1, &run(200, 8, 1)).unwrap());
        disk.0.borrow_mut().dead = true;
        ended.extend(settle(&mut store));
        assert!(store.is_dead() && store.broken().is_some() && store.is_idle());
        for token in writes {
            let ends = |c: &&Completion| match c {
                Completion::Durable { token: ended } | Completion::Failed { token: ended, .. } => {
                    *ended == token
                }
                _ => false,
            };
            assert_eq!(ended.iter().filter(ends).count(), 1, "seed {seed}: {ended:?}");
        }
        let reads = |c: &&Completion| match c {
            Completion::Read { token, .. } | Completion::ReadFailed { token, .. } => *token == read_token,
            _ => false,
        };
        assert_eq!(ended.iter().filter(reads).count(), 1, "seed {seed}: {ended:?}");
        assert_eq!(store.read(SpaceId(1), 3, Version(1)), Err(ReadRefused::Dead));
        assert_eq!(write(&mut store, 1, &run(300, 1, 1)), Err(Refused::Broken));
        store.forget(SpaceId(1), 3, Version(1));
        store.forget_space(SpaceId(1));
        assert!(settle(&mut store).is_empty(), "seed {seed}");
    }
}
