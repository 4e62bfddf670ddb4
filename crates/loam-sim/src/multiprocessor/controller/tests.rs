//! What the controller keeps, refuses and writes.

use super::*;

fn controller() -> Controller {
    preferring(First::WhatCame)
}

fn preferring(first: First) -> Controller {
    Controller::new(4, Layout { group_pages: 32, disks: 4 }, first)
}

fn request(page: u32) -> Request {
    Request { page, swap: 1, node: 0 }
}

fn pages(job: Option<Job>) -> Vec<u32> {
    let Some(Job::Write(run)) = job else { panic!("{job:?}") };
    run.iter().map(|held| held.page).collect()
}

#[test]
fn a_full_cache_refuses_and_calls_back_in_order() {
    let mut of = controller();
    for page in [10, 20, 40, 50] {
        assert_eq!(of.offer(request(page), 1), Answer::Ack);
    }
    assert_eq!([60, 70].map(|page| of.offer(request(page), 1)), [Answer::Nack; 2]);
    assert_eq!((of.room(), of.grant()), (0, None));
    assert_eq!(pages(of.next_job()), [10]);
    of.written();
    assert_eq!(of.find(10), Some(1), "it can still be read here");
    assert_eq!(of.grant(), Some(request(60)));
    assert_eq!((of.room(), of.find(10)), (0, None), "its slot is kept for the page that comes");
    assert_eq!(of.offer(request(80), 1), Answer::Nack, "nobody else gets it");
    of.fill(60, 1);
    assert_eq!(of.find(60), Some(1));
    assert!(of.withdraw(request(70)) && !of.withdraw(request(70)));
    assert_eq!(pages(of.next_job()), [20]);
    of.written();
    assert_eq!(of.grant(), Some(request(80)));
    of.release();
    assert_eq!(of.room(), 1);
}

#[test]
fn consecutive_pages_in_order_are_one_write() {
    let mut of = controller();
    for page in [5, 6, 7, 9] {
        of.offer(request(page), 1);
    }
    assert_eq!(pages(of.next_job()), [5, 6, 7]);
    of.written();
    assert_eq!(pages(of.next_job()), [9]);
    of.written();
    for page in [7, 6, 31, 32] {
        of.offer(request(page), 2);
    }
    for page in [7, 6, 31, 32] {
        assert_eq!(pages(of.next_job()), [page], "32 is on another disk than 31");
        of.written();
    }
}

#[test]
fn reads_and_writes_are_done_in_the_order_in_which_they_came() {
    let mut of = controller();
    of.read(100);
    of.offer(request(5), 1);
    of.read(101);
    assert_eq!(of.next_job(), Some(Job::Read(100)));
    assert_eq!(pages(of.next_job()), [5]);
    of.written();
    assert_eq!((of.next_job(), of.next_job()), (Some(Job::Read(101)), None));
}

#[test]
fn an_arm_can_prefer_one_kind() {
    let of = |first| {
        let mut of = preferring(first);
        of.offer(request(5), 1);
        of.read(100);
        of.offer(request(7), 1);
        (0..3)
            .map(|_| {
                let job = of.next_job();
                of.written();
                matches!(job, Some(Job::Read(_)))
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(of(First::WhatCame), [false, true, false]);
    assert_eq!(of(First::Reads), [true, false, false]);
    assert_eq!(of(First::Writes), [false, false, true]);
}

#[test]
fn new_contents_replace_what_waits_and_follow_what_is_written() {
    let mut of = controller();
    of.offer(request(5), 1);
    of.offer(request(5), 2);
    assert_eq!((of.room(), of.find(5)), (3, Some(2)));
    of.next_job();
    of.offer(request(5), 3);
    assert_eq!((of.room(), of.find(5)), (2, Some(3)));
    of.written();
    assert_eq!((of.room(), of.find(5)), (3, Some(3)), "the older ones are gone");
    assert_eq!(pages(of.next_job()), [5]);
}

#[test]
fn what_is_read_ahead_gives_way_to_writes() {
    let mut of = controller();
    of.offer(request(5), 1);
    let began = of.clock();
    assert!([8, 9, 10].iter().all(|&page| of.read_ahead(page, 0, began)));
    assert!(!of.read_ahead(11, 0, began), "pages of one sweep do not chase each other");
    assert_eq!((of.room(), of.find(8)), (3, Some(0)));
    assert_eq!(of.offer(request(6), 1), Answer::Ack);
    assert_eq!((of.find(8), of.find(9)), (None, Some(0)));
    let began = of.clock();
    assert!(of.read_ahead(20, 0, began));
    assert_eq!((of.find(9), of.find(10)), (None, Some(0)));
    assert_eq!(of.offer(request(10), 4), Answer::Ack);
    assert_eq!(of.find(10), Some(4), "an older copy that was read goes");
}
