use super::*;
use crate::cluster::Front;
use crate::disk_store::tests::{PowerDisk, on_power_disk};
use crate::limits::{BORROWERS_MAX, GRACE};
use crate::regions::Desk;
use crate::slab::Slab;
use loam_core::ids::{NodeId, PutClass};
use loam_core::lender::{Lender, Put, StoreConfig, Terms};
use loam_core::units::{BasePages, Duration, Instant};
use rustix::event::{EventfdFlags, eventfd};

const SPACE: SpaceId = SpaceId(7);

fn bell() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// A drainer that is turned by hand, over a disk that may die; its lender has a borrower.
fn turned_by_hand() -> (PowerDisk, Drainer<PowerDisk>) {
    let (disk, store) = on_power_disk();
    let size = Bytes::from_mib(1);
    let config = StoreConfig {
        capacity: BasePages(200),
        channel: BasePages(100),
        write_pages_max: 32,
        under_way_max: BasePages(64),
        linger: Duration::ZERO,
    };
    let lender = Lender::new(size.base_pages(), GRACE, BORROWERS_MAX);
    let mut lender = lender.with_store(Instant(0), config, []);
    lender.connection_opened(SPACE, "test", Terms::Staging).unwrap();
    let (front, _) = Front::new(NodeId(1), "test".to_owned(), "127.0.0.1:1".parse().unwrap(), false);
    let (slab, _) = Slab::create(size).unwrap();
    let link = StoreLink::new(bell(), bell(), &store);
    let shared = Shared::new(lender, slab, Some(link), String::new(), front, bell(), Desk::new().0);
    (disk, Drainer::new(Arc::new(shared), store))
}

/// A page of zeros is put, to be written.
fn stage(shared: &Shared, index: u64) {
    let hash = loam_wire::page_hash(&[0; BASE_PAGE_BYTES]);
    let put = Put { index, version: Version(1), hash, class: PutClass::Staged };
    let mut lender = shared.lender();
    let run = lender.reserve_as(shared.now(), SPACE, &[index], put.class).unwrap();
    assert!(lender.commit_as(shared.now(), SPACE, put, run.first));
    shared.tell_of(&lender);
}

fn ask(drainer: &Drainer<PowerDisk>, mailbox: &Arc<Mailbox>, index: u64) {
    let reply = Reply { mailbox: Arc::clone(mailbox), connection: 1 };
    let urgency = Urgency::Waited;
    let read = Read { reply, request: index, space: SPACE, index, version: Version(1), urgency };
    drainer.link().read(&mut vec![read]);
}

/// The store told nobody of what had ended with it, and its thread waited for that without a limit.
#[test]
fn a_disk_that_dies_as_something_is_begun_leaves_nobody_waiting() {
    for write in [false, true] {
        let (disk, mut drainer) = turned_by_hand();
        let mailbox = Arc::new(Mailbox::new(bell()));
        stage(&drainer.shared, 1);
        while drainer.shared.lender().stats().on_disk == 0 {
            drainer.turn();
        }
        disk.die_of_the_next();
        if write {
            stage(&drainer.shared, 2);
        } else {
            ask(&drainer, &mailbox, 1);
        }
        drainer.turn();
        assert!(drainer.store.is_dead());
        assert!(drainer.writes.is_empty() && drainer.reads.is_empty(), "{:?}", drainer.reads);
        let stats = drainer.shared.lender().stats();
        assert_eq!((stats.ring.under_way, stats.ring.failed), (0, u64::from(write)));
        assert_eq!(mailbox.answers(), usize::from(!write));
    }
}

/// It was freed in one go, while those who read waited.
#[test]
fn what_a_borrower_leaves_is_freed_a_piece_each_turn() {
    let (_, mut drainer) = turned_by_hand();
    drainer.store.free_one_at_a_time();
    (0..20).for_each(|index| stage(&drainer.shared, index));
    while drainer.shared.lender().stats().on_disk < 20 {
        drainer.turn();
    }
    assert!(drainer.store.forget_space(SPACE));
    assert!(drainer.store.is_freeing() && !drainer.gathers());
    for _ in 0..100 {
        drainer.turn();
        if !drainer.store.is_freeing() {
            break;
        }
    }
    let figures = drainer.store.figures();
    assert_eq!((figures.slots_free, figures.pages), (figures.slots, 0));
}
