use crate::region::*;
use std::string::ToString;
use std::vec::Vec;

fn node(number: u16) -> RegionNode {
    RegionNode::new(number).expect("a number that a node can have")
}

/// Section III.B: node 1 has reserved memory that begins at 0x000041000000 of node 3.
#[test]
fn the_papers_example() {
    let sent_back = Layout::PAPER.prefixed(node(3), 0x0000_4100_0000).expect("within 16 GiB");
    assert_eq!(sent_back.to_string(), "0x000c41000000");
    assert_eq!(Layout::PAPER.route(node(1), sent_back), Ok(Route::There(node(3))));
    assert_eq!(Layout::PAPER.received(node(3), sent_back), Ok(0x0000_4100_0000));
    assert_eq!(Layout::PAPER.received(node(2), sent_back), Err(Refusal::NotMine));
    // "if node 1 addresses memory between 0x000400000000 and 0x0007ffffffff, it will be referring to its own local memory".
    for own in [0x0004_0000_0000, 0x0007_ffff_ffff] {
        assert_eq!(Layout::PAPER.route(node(1), Address(own)), Err(Refusal::Loopback));
        assert_eq!(Layout::PAPER.route(node(2), Address(own)), Ok(Route::There(node(1))));
    }
    assert_eq!(Layout::PAPER.route(node(1), Address(0x41)), Ok(Route::Here(0x41)));
}

#[test]
fn numbers_of_nodes_and_widths_of_addresses_have_ends() {
    assert_eq!(RegionNode::new(0), None);
    assert_eq!(RegionNode::new(1 << 14), None);
    let last = node((1 << 14) - 1);
    for layout in [Layout::PAPER, Layout::WIDE] {
        assert_eq!(layout.prefixed(last, layout.node_bytes()), None);
        let top = layout.prefixed(last, layout.node_bytes() - 1).expect("the last byte of the last node");
        assert_eq!(layout.received(last, top), Ok(layout.node_bytes() - 1));
    }
    assert_eq!(Layout::PAPER.node_bytes(), 16 << 30);
    // 48 bits are all that there is: an address above them is nobody's.
    assert_eq!(Layout::PAPER.route(node(1), Address(1 << 48)), Err(Refusal::NotMine));
    assert_eq!(Layout::PAPER.route(node(1), Address(u64::MAX)), Err(Refusal::NotMine));
}

fn send(effect: Option<Effect>) -> ToLender {
    match effect {
        Some(Effect::Send(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_does_not_borrow_from_itself() {
    let mut lender = Lending::new(Layout::WIDE, node(3), 1, 10);
    let mut borrower = Borrowing::new(Layout::WIDE, BorrowerId(1), node(3), node(3), 1, []);
    let answer = lender.handle(send(borrower.poll_effect())).expect("an answer");
    borrower.handle(answer);
    assert_eq!(borrower.poll_effect(), Some(Effect::TurnedAway(TurnedAway::Loopback)));
    assert_eq!(borrower.ask(1), Err(Busy));
    assert_eq!(lender.spans().used(), 0);
}

/// What a lender that lies (or has another number) grants is not used.
#[test]
fn an_address_of_another_node_is_not_taken() {
    let mut lender = Lending::new(Layout::WIDE, node(4), 1, 10);
    let mut borrower = Borrowing::new(Layout::WIDE, BorrowerId(1), node(1), node(3), 1, []);
    let asked = send(borrower.poll_effect());
    borrower.handle(lender.handle(asked).expect("an answer"));
    borrower.ask(2).expect("room for a wish");
    let asked = send(borrower.poll_effect());
    borrower.handle(lender.handle(asked).expect("an answer"));
    assert!(matches!(borrower.poll_effect(), Some(Effect::Refused { pages: 2, .. })));
    assert_eq!(borrower.held().count(), 0);
}

#[test]
fn wishes_have_a_limit() {
    let mut borrower = Borrowing::new(Layout::WIDE, BorrowerId(1), node(1), node(3), 1, []);
    let taken: Vec<_> = (0..=WISHES_MAX).map(|_| borrower.ask(1)).collect();
    assert_eq!(taken.iter().filter(|answer| answer.is_ok()).count(), WISHES_MAX);
    assert_eq!(taken.last(), Some(&Err(Busy)));
}

#[test]
fn borrowers_have_a_limit() {
    let mut lender = Lending::new(Layout::WIDE, node(3), 1, 10);
    let mut present = |id: u64| {
        let (borrower, node, leases) = (BorrowerId(id), node(1), Vec::new());
        lender.handle(ToLender::Present { borrower, node, incarnation: 1, leases })
    };
    for id in 0..BORROWERS_MAX as u64 {
        assert!(matches!(present(id), Some(ToBorrower::Presented { .. })));
    }
    let turned = Some(ToBorrower::TurnedAway { incarnation: 1, why: TurnedAway::TooMany });
    assert_eq!(present(BORROWERS_MAX as u64), turned);
    assert!(matches!(present(0), Some(ToBorrower::Presented { .. })), "one that it knows");
}
