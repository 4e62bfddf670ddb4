//! Members of which a process that was stopped does not know whether they live.
//!
//! News of a death goes round for about a period of the protocol and is then told no more. Who was stopped meanwhile would find each dead
//! member when it is its turn to be probed, as many periods later as there are members. So whoever is not heard of by itself is asked;
//! who does not answer is suspected, and down if it does not object, as after a probe. All this begins a little later: what was
//! sent before, by some that are dead now, is read first.

use super::peer::Peer;
use foca::Incarnation;
use loam_core::ids::NodeId;
use loam_core::units::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

/// Members that have not answered yet, at most: each may need a connection, and few are made at once.
const ASKED_MAX: usize = 8;

/// What is to be done about a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Ask(Peer),
    /// To be told of by [`Doubts::suspected`], if it was not suspected already.
    Suspect(Peer),
    /// It is down, if it is still suspected in this incarnation.
    Down(Peer, Incarnation),
}

/// How long a member may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// To answer whether it lives.
    pub answer: Duration,
    /// To object that it is suspected.
    pub objection: Duration,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    from: Instant,
    waiting: VecDeque<Peer>,
    /// By when they are to answer, and to object.
    asked: BTreeMap<NodeId, (Instant, Peer)>,
    suspected: BTreeMap<NodeId, (Instant, Peer, Incarnation)>,
}

impl Doubts {
    /// Doubts these from then on, and nobody else: what others have answered since they were asked may not be read yet.
    pub(super) fn begin(&mut self, from: Instant, members: impl IntoIterator<Item = Peer>) {
        *self = Self { from, waiting: members.into_iter().collect(), ..Self::default() };
    }

    /// A life has sent something. (That it is suspected it must deny by itself, so that others believe it, too.)
    pub(super) fn heard(&mut self, now: Instant, id: NodeId) {
        if now >= self.from {
            self.waiting.retain(|peer| peer.id != id);
            self.asked.remove(&id);
        }
    }

    /// A member is suspected for our doubt.
    pub(super) fn suspected(&mut self, object_by: Instant, peer: Peer, incarnation: Incarnation) {
        self.suspected.insert(peer.id, (object_by, peer, incarnation));
    }

    /// What is next.
    pub(super) fn poll(&mut self, now: Instant, patience: Patience) -> Option<Step> {
        let late = |due: &Instant| *due <= now;
        if let Some((&id, _)) = self.suspected.iter().find(|(_, (due, ..))| late(due)) {
            let (_, peer, incarnation) = self.suspected.remove(&id).expect("just found");
            return Some(Step::Down(peer, incarnation));
        }
        if let Some((&id, _)) = self.asked.iter().find(|(_, (due, _))| late(due)) {
            let (_, peer) = self.asked.remove(&id).expect("just found");
            return Some(Step::Suspect(peer));
        }
        if self.asked.len() >= ASKED_MAX || now < self.from {
            return None;
        }
        let peer = self.waiting.pop_front()?;
        self.asked.insert(peer.id, (now + patience.answer, peer.clone()));
        Some(Step::Ask(peer))
    }

    /// When something is next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let next = self.waiting.front().filter(|_| self.asked.len() < ASKED_MAX).map(|_| self.from);
        let answers = self.asked.values().map(|(due, _)| *due);
        let objections = self.suspected.values().map(|(due, ..)| *due);
        answers.chain(objections).chain(next).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience =
        Patience { answer: Duration::from_millis(1000), objection: Duration::from_millis(2000) };

    fn peer(id: u64) -> Peer {
        Peer { id: NodeId(id), renewal: 0, addr: ([10, 0, 0, 1], id as u16).into(), name: "n".into() }
    }

    #[test]
    fn who_does_not_answer_is_suspected_and_then_down_and_who_does_is_left_alone() {
        let mut doubts = Doubts::default();
        let start = Instant(7);
        doubts.begin(start, [peer(1), peer(2), peer(3)]);
        doubts.heard(Instant(6), NodeId(2)); // sent before
        assert_eq!((doubts.poll(Instant(6), PATIENCE), doubts.poll_timeout()), (None, Some(start)));
        doubts.heard(start, NodeId(3));
        assert_eq!(doubts.poll(start, PATIENCE), Some(Step::Ask(peer(1))));
        assert_eq!(doubts.poll(start, PATIENCE), Some(Step::Ask(peer(2))));
        assert_eq!(doubts.poll(start, PATIENCE), None);
        doubts.heard(start, NodeId(1));
        let late = doubts.poll_timeout().expect("one is asked");
        assert_eq!(late, start + PATIENCE.answer);
        assert_eq!(doubts.poll(late, PATIENCE), Some(Step::Suspect(peer(2))));
        doubts.suspected(late + PATIENCE.objection, peer(2), 5);
        doubts.heard(late, NodeId(2));
        let down = doubts.poll_timeout().expect("one is suspected");
        assert_eq!(down, late + PATIENCE.objection);
        assert_eq!(doubts.poll(down, PATIENCE), Some(Step::Down(peer(2), 5)));
        assert_eq!((doubts.poll(down, PATIENCE), doubts.poll_timeout()), (None, None));
        // Stopped again while some are asked and some suspected.
        doubts.begin(down, [peer(1), peer(2)]);
        assert_eq!(doubts.poll(down, PATIENCE), Some(Step::Ask(peer(1))));
        doubts.suspected(down, peer(2), 5);
        doubts.begin(down + PATIENCE.answer, [peer(9)]);
        let again = down + PATIENCE.answer;
        assert_eq!(doubts.poll_timeout(), Some(again));
        assert_eq!(doubts.poll(again, PATIENCE), Some(Step::Ask(peer(9))));
    }

    #[test]
    fn few_are_asked_at_once_and_all_in_the_end() {
        let mut doubts = Doubts::default();
        let all = 10 * ASKED_MAX as u64;
        doubts.begin(Instant(0), (1..=all).map(peer));
        let (mut now, mut asked, mut late, mut out) = (Instant(0), 0, 0, 0);
        while let Some(timeout) = doubts.poll_timeout() {
            now = now.max(timeout);
            match doubts.poll(now, PATIENCE) {
                Some(Step::Ask(peer)) => {
                    (asked, out) = (asked + 1, out + 1);
                    assert!(out <= ASKED_MAX);
                    if asked % 3 > 0 {
                        doubts.heard(now, peer.id);
                        out -= 1;
                    }
                }
                Some(Step::Suspect(_)) => (late, out) = (late + 1, out - 1),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((asked, late), (all, all / 3));
    }
}
