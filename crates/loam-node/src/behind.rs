//! Pages of one connection that were asked for, that no thread waits for, and that are not sent yet.
//!
//! What a thread waits for is answered as its request is read. The rest of its page stands here, in the order of the fetch plan, and goes out
//! in small frames, one when the socket has taken the one before: so little is in front of the next page that a thread waits for,
//! wherever that is. What is asked for again urgently ([`loam_wire::Frame::Hurry`]) leaves the queue for the front.
//! (subpages-1996, section 2.1: "the remaining subpages" follow; that others may overtake them is ours.)

use crate::limits::{BEHIND_FRAME_PAGES, BEHIND_PAGES_MAX};
use loam_wire::PageRef;
use loam_wire::limits::REQUEST_PAGES_MAX;
use std::collections::VecDeque;

/// One page and the request that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) request: u64,
    pub(crate) page: PageRef,
}

impl Asked {
    /// Both may travel in one frame.
    fn goes_with(&self, next: &Self) -> bool {
        self.request == next.request && self.page.message() == next.page.message()
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    pages: VecDeque<Asked>,
}

impl Behind {
    /// Nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Another request fits. While none does, requests wait in the receive buffer and in the borrower's socket.
    pub(crate) fn has_room(&self) -> bool {
        self.pages.len() + REQUEST_PAGES_MAX <= BEHIND_PAGES_MAX
    }

    /// One more, at the end.
    pub(crate) fn push(&mut self, request: u64, page: PageRef) {
        assert!(self.pages.len() < BEHIND_PAGES_MAX, "requests are taken only while there is room");
        self.pages.push_back(Asked { request, page });
    }

    /// Takes the pages of the next frame out into `into`, which is cleared first.
    pub(crate) fn next_frame(&mut self, into: &mut Vec<Asked>) {
        into.clear();
        while let Some(next) = self.pages.front().filter(|_| into.len() < BEHIND_FRAME_PAGES) {
            if into.last().is_some_and(|last| !last.goes_with(next)) {
                break;
            }
            into.extend(self.pages.pop_front());
        }
    }

    /// Takes those that are named out into `into`, which is cleared first, in the queue's order. What is not here has been sent, or was
    /// never asked for.
    pub(crate) fn hurry(&mut self, named: &[PageRef], into: &mut Vec<Asked>) {
        take_named(&mut self.pages, named, into);
    }

    /// Gives memory back if nothing is in it.
    pub(crate) fn shrink(&mut self) {
        if self.pages.is_empty() {
            self.pages.shrink_to_fit();
        }
    }
}

/// Takes those that are named out into `into`, which is cleared first, in their order.
pub(crate) fn take_named(pages: &mut VecDeque<Asked>, named: &[PageRef], into: &mut Vec<Asked>) {
    into.clear();
    if pages.is_empty() {
        return;
    }
    // One pass, however many are named.
    let name = |page: &PageRef| (page.index(), page.version());
    let mut wanted: Vec<_> = named.iter().map(name).collect();
    wanted.sort_unstable();
    pages.retain(|asked| {
        // A page may stand here several times: a borrower that asks so gets no more at once than one that asks properly.
        let stays = into.len() >= named.len() || wanted.binary_search(&name(&asked.page)).is_err();
        if !stays {
            into.push(*asked);
        }
        stays
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_core::ids::{Urgency, Version};
    use proptest::prelude::*;

    fn page(index: u64, message: u16) -> PageRef {
        PageRef::planned(index, Version(1), Urgency::Behind, message)
    }

    #[derive(Clone, Debug)]
    enum Op {
        /// A request for so many pages from an index on, cut into messages of so many.
        Ask {
            index: u64,
            pages: u16,
            message_pages: u16,
        },
        Hurry {
            indexes: Vec<u64>,
        },
        Send,
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            3 => (0u64..300, 1u16..=REQUEST_PAGES_MAX as u16, 1u16..64)
                .prop_map(|(index, pages, message_pages)| Op::Ask { index, pages, message_pages }),
            2 => proptest::collection::vec(0u64..600, 1..20).prop_map(|indexes| Op::Hurry { indexes }),
            8 => Just(Op::Send),
        ];
        proptest::collection::vec(op, 1..200)
    }

    proptest! {
        /// Against a list in which everything is looked for: each page that was asked for leaves once, those that were hurried at that
        /// moment, the others in the order in which they came, in frames of one request and one message.
        #[test]
        fn each_page_leaves_once_and_in_its_place(ops in ops()) {
            let (mut behind, mut model, mut out) = (Behind::default(), Vec::new(), Vec::new());
            for (request, op) in ops.into_iter().enumerate() {
                match op {
                    Op::Ask { index, pages, message_pages } if behind.has_room() => {
                        for n in 0..pages {
                            let page = page(index + u64::from(n), n / message_pages);
                            behind.push(request as u64, page);
                            model.push(Asked { request: request as u64, page });
                        }
                    }
                    Op::Ask { .. } => prop_assert!(model.len() > BEHIND_PAGES_MAX - REQUEST_PAGES_MAX),
                    Op::Hurry { indexes } => {
                        let named: Vec<_> = indexes.iter().map(|&index| page(index, 0)).collect();
                        behind.hurry(&named, &mut out);
                        // No more than were named, however often they stand here.
                        let mut most = named.len();
                        let (hurried, left): (Vec<Asked>, Vec<Asked>) = model.into_iter().partition(|a| {
                            let goes = most > 0 && indexes.contains(&a.page.index());
                            most -= usize::from(goes);
                            goes
                        });
                        prop_assert_eq!(&out, &hurried);
                        model = left;
                    }
                    Op::Send => {
                        behind.next_frame(&mut out);
                        prop_assert_eq!(out.is_empty(), model.is_empty());
                        prop_assert!(out.len() <= BEHIND_FRAME_PAGES);
                        prop_assert_eq!(&out[..], &model[..out.len()]);
                        let one = |a: &Asked| (a.request, a.page.message());
                        prop_assert!(out.windows(2).all(|two| one(&two[0]) == one(&two[1])));
                        // And it is as much as one frame can be.
                        let next = model.get(out.len());
                        prop_assert!(
                            out.is_empty() || out.len() == BEHIND_FRAME_PAGES || next.map(one) != Some(one(&out[0]))
                        );
                        model.drain(..out.len());
                    }
                }
                prop_assert_eq!(behind.is_empty(), model.is_empty());
                prop_assert!(model.len() <= BEHIND_PAGES_MAX);
            }
        }
    }

    #[test]
    #[should_panic(expected = "while there is room")]
    fn no_more_than_the_limit_is_kept() {
        let mut behind = Behind::default();
        for index in 0..=BEHIND_PAGES_MAX as u64 {
            behind.push(1, page(index, 0));
        }
    }
}
