//! The ledger against a model that has one cell a base page.

use crate::region::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const ROOM: u64 = 24;

#[derive(Clone, Debug)]
enum Step {
    Reserve { borrower: u64, pages: u64, align: u64 },
    Keep { borrower: u64, lease: u64, keep: u64 },
    End { borrower: u64 },
    Limit { pages: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let borrower = 0..3_u64;
    prop_oneof![
        6 => (borrower.clone(), 1..8_u64, prop::sample::select(vec![1_u64, 2, 4]))
            .prop_map(|(borrower, pages, align)| Step::Reserve { borrower, pages, align }),
        5 => (borrower.clone(), 0..12_u64, 0..5_u64)
            .prop_map(|(borrower, lease, keep)| Step::Keep { borrower, lease, keep }),
        1 => borrower.prop_map(|borrower| Step::End { borrower }),
        1 => (0..=ROOM).prop_map(|pages| Step::Limit { pages }),
    ]
}

/// Each base page: which lease of which borrower has it.
type Cells = Vec<Option<(u64, LeaseNumber)>>;

fn gaps(cells: &Cells) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut at = 0;
    while at < ROOM {
        let long = (at..ROOM).take_while(|&page| cells[page as usize].is_none()).count() as u64;
        if long > 0 {
            gaps.push((at, long));
        }
        at += long.max(1);
    }
    gaps
}

proptest! {
    #[test]
    fn it_is_as_the_model(steps in vec(step(), 1..60)) {
        let mut spans = Spans::new(ROOM, ROOM);
        let mut cells: Cells = vec![None; ROOM as usize];
        let mut limit = ROOM;
        let mut given = 0;
        for step in steps {
            match step {
                Step::Reserve { borrower, pages, align } => {
                    let used = cells.iter().flatten().count() as u64;
                    let fits = |&(at, long): &(u64, u64)| at.next_multiple_of(align) + pages <= at + long;
                    let best = gaps(&cells).into_iter().filter(fits).map(|(_, long)| long).min();
                    let may = used + pages <= limit;
                    match spans.reserve(BorrowerId(borrower), pages, align) {
                        Ok((number, span)) => {
                            given += 1;
                            prop_assert_eq!(number, LeaseNumber(given), "no number comes twice");
                            prop_assert!(may && span.pages == pages && span.first % align == 0);
                            let around = gaps(&cells).into_iter()
                                .find(|(at, long)| *at <= span.first && span.end() <= at + long);
                            prop_assert_eq!(around.map(|(_, long)| long), best, "the smallest gap");
                            for page in span.first..span.end() {
                                prop_assert_eq!(cells[page as usize].replace((borrower, number)), None);
                            }
                        }
                        Err(NoRoom) => prop_assert!(!may || best.is_none()),
                    }
                }
                Step::Keep { borrower, lease, keep } => {
                    let number = LeaseNumber(lease);
                    let mine = |cell: &Option<(u64, LeaseNumber)>| *cell == Some((borrower, number));
                    let has = cells.iter().filter(|cell| mine(cell)).count() as u64;
                    let first = cells.iter().position(mine).unwrap_or_default() as u64;
                    let freed = spans.keep(BorrowerId(borrower), number, keep);
                    let expected = (keep < has).then(|| Span { first: first + keep, pages: has - keep });
                    prop_assert_eq!(freed, expected);
                    for page in freed.map_or(0..0, |span| span.first..span.end()) {
                        cells[page as usize] = None;
                    }
                }
                Step::End { borrower } => {
                    let freed: u64 = spans.end(BorrowerId(borrower)).iter().map(|span| span.pages).sum();
                    let mine = cells.iter_mut().filter(|cell| cell.is_some_and(|(of, _)| of == borrower));
                    prop_assert_eq!(freed, mine.map(|cell| *cell = None).count() as u64);
                }
                Step::Limit { pages } => {
                    spans.set_limit(pages);
                    limit = pages;
                }
            }
            spans.audit();
            prop_assert_eq!(spans.used(), cells.iter().flatten().count() as u64);
            for (number, borrower, span) in spans.leases() {
                for page in span.first..span.end() {
                    prop_assert_eq!(cells[page as usize], Some((borrower.0, number)));
                }
            }
        }
    }
}
