//! Fetch plans: what a thread waits for overtakes the rest of a page.

use crate::support::*;
use loam_core::ids::{Urgency, Version};
use loam_wire::{Frame, PageRef, encode};
use std::collections::BTreeMap;
use std::io::Write;
use std::thread;
use std::time::Duration;

fn behind(indexes: impl Iterator<Item = u64>) -> Vec<PageRef> {
    indexes.map(|index| PageRef::planned(index, Version(1), Urgency::Behind, 1)).collect()
}

/// Reads answers until so many pages have been answered: which, in their order, and how many came in each frame.
fn answers(borrower: &mut Borrower, pages: usize) -> (Vec<u64>, Vec<usize>) {
    let (space, mut order, mut frames) = (borrower.space, Vec::new(), Vec::new());
    while order.len() < pages {
        match borrower.client.receive().unwrap() {
            Frame::Page { pages: some, payload, .. } => {
                for (meta, page) in some.iter().zip(payload.chunks(PAGE)) {
                    assert!(page == contents(space, meta.index(), 1), "page {}", meta.index());
                    order.push(meta.index());
                }
                frames.push(some.len());
            }
            Frame::Miss { pages: some, .. } => order.extend(some.iter().map(PageRef::index)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(order.len(), pages);
    (order, frames)
}

/// Waits until the lender has put into the socket what it can.
fn wait_until_full(borrower: &Borrower) {
    let mut before = 0;
    loop {
        let there = rustix::io::ioctl_fionread(borrower.client.stream()).unwrap();
        if there > 0 && there == before {
            return;
        }
        before = there;
        thread::sleep(Duration::from_millis(50));
    }
}

/// A slow reader has asked for a page of 1 MiB; then it faults elsewhere, and on the last of what is under way.
#[test]
fn a_fault_elsewhere_overtakes_the_rest_of_a_page() {
    let lender = lender(8);
    let mut borrower = Borrower::new(&lender, 1);
    borrower.put(0..256, 1);
    borrower.put([1000], 1);
    rustix::net::sockopt::set_socket_recv_buffer_size(borrower.client.stream(), 32 << 10).unwrap();
    borrower.client.send(&[], |out| encode::getpage(out, 5, &behind(0..256))).unwrap();
    wait_until_full(&borrower);
    let waited = [PageRef::new(1000, Version(1))];
    borrower.client.send(&[], |out| encode::getpage(out, 6, &waited)).unwrap();
    borrower.client.send(&[], |out| encode::hurry(out, &behind(255..256))).unwrap();
    let (order, frames) = answers(&mut borrower, 257);
    let place = |index: u64| order.iter().position(|&i| i == index).unwrap();
    assert!(place(1000) < 160, "{} pages came before what a thread waited for", place(1000));
    assert!(place(255) > place(1000) && place(255) < 160, "moved forward to place {}", place(255));
    let rest: Vec<u64> = order.into_iter().filter(|&index| index < 255).collect();
    assert!(rest.is_sorted(), "the others are in the order of the plan: {rest:?}");
    assert_eq!(rest.len(), 255, "each came once");
    assert!(frames.iter().all(|&pages| pages <= 16), "{frames:?}");
    // What has come is not sent again.
    borrower.client.send(&[], |out| encode::hurry(out, &behind(0..256))).unwrap();
    assert_eq!(borrower.get([7], 1), [7]);
}

/// The messages of a plan travel in frames of their own, what is waited for first, whatever the order of the request.
#[test]
fn a_plan_is_answered_message_by_message() {
    let lender = lender(8);
    let mut borrower = Borrower::new(&lender, 1);
    borrower.put(0..32, 1);
    let step = |index, urgency, message| PageRef::planned(index, Version(1), urgency, message);
    let mut plan =
        vec![step(6, Urgency::Behind, 1), step(4, Urgency::Behind, 2), step(5, Urgency::Waited, 0)];
    plan.extend((7..27).map(|index| step(index, Urgency::Behind, 3)));
    plan.push(step(99, Urgency::Behind, 3));
    borrower.client.send(&[], |out| encode::getpage(out, 5, &plan)).unwrap();
    let (order, frames) = answers(&mut borrower, plan.len());
    let wanted: Vec<u64> = [5, 6, 4].into_iter().chain(7..27).chain([99]).collect();
    assert_eq!((order, frames), (wanted, vec![1, 1, 1, 16, 4]));
}

/// Far more is asked for than is read: the lender keeps a bounded part of it, and answers all in the end, once each.
#[test]
fn what_is_asked_for_behind_is_bounded() {
    let lender = lender(8);
    let mut borrower = Borrower::new(&lender, 1);
    borrower.put(0..256, 1);
    let mut request = Vec::new();
    encode::getpage(&mut request, 77, &behind(0..256));
    // 400 MiB of answers. A thread asks, as far as the lender lets it; nothing is read until it is held back.
    const REQUESTS: usize = 400;
    let mut socket = borrower.client.stream().try_clone().unwrap();
    let writer = thread::spawn(move || socket.write_all(&request.repeat(REQUESTS)).unwrap());
    wait_until_full(&borrower);
    let (order, _) = answers(&mut borrower, REQUESTS * 256);
    writer.join().unwrap();
    let mut count = BTreeMap::new();
    order.into_iter().for_each(|index| *count.entry(index).or_insert(0) += 1);
    assert!(count.len() == 256 && count.values().all(|&n| n == REQUESTS), "each once: {count:?}");
}
