//! Members of which a process that was stopped does not know whether they live.
//!
//! News of a death goes round for about a period of the protocol and is then told no more. Who was stopped meanwhile would find each dead
//! member when it is its turn to be probed, as many periods later as there are members. So each is asked at once; who does not answer is
//! suspected, and down if it does not object, as after a probe. They are asked a little later: what was sent before, by some that are dead now, is
//! read first.

use super::peer::Peer;
use loam_core::ids::NodeId;
use loam_core::units::{Duration, Instant};
use std::collections::BTreeMap;

/// Members that are asked at once: an answer is a packet of all that the other knows.
const ASKED_MAX: usize = 64;

/// What is to be done about a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Ask(Peer),
    Suspect(Peer),
    /// It is down, if it has not objected.
    Down(Peer),
}

#[derive(Clone, Debug)]
struct Doubt {
    peer: Peer,
    suspected: bool,
    due: Instant,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    waiting: Vec<Peer>,
    begin: Instant,
    asked: BTreeMap<NodeId, Doubt>,
}

impl Doubts {
    /// Doubts these from then on, and nobody else.
    pub(super) fn begin(&mut self, at: Instant, members: impl IntoIterator<Item = Peer>) {
        *self = Self { waiting: members.into_iter().collect(), begin: at, asked: BTreeMap::new() };
    }

    /// A life has sent something. (That it is suspected it must deny by itself, so that others believe it, too.)
    pub(super) fn heard(&mut self, id: NodeId) {
        if self.asked.get(&id).is_some_and(|doubt| !doubt.suspected) {
            self.asked.remove(&id);
        }
    }

    /// What is next. An answer may take so long, and so may an objection.
    pub(super) fn poll(&mut self, now: Instant, answer: Duration, objection: Duration) -> Option<Step> {
        let due = self.asked.values_mut().find(|doubt| doubt.due <= now);
        if let Some(doubt) = due {
            let peer = doubt.peer.clone();
            if !doubt.suspected {
                (doubt.suspected, doubt.due) = (true, now + objection);
                return Some(Step::Suspect(peer));
            }
            self.asked.remove(&peer.id);
            return Some(Step::Down(peer));
        }
        if self.asked.len() >= ASKED_MAX || now < self.begin {
            return None;
        }
        let peer = self.waiting.pop()?;
        let doubt = Doubt { peer: peer.clone(), suspected: false, due: now + answer };
        self.asked.insert(peer.id, doubt);
        Some(Step::Ask(peer))
    }

    /// When something is next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let next = self.waiting.first().filter(|_| self.asked.len() < ASKED_MAX).map(|_| self.begin);
        self.asked.values().map(|doubt| doubt.due).chain(next).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: Duration = Duration::from_millis(1000);
    const OBJECTION: Duration = Duration::from_millis(2000);

    fn peer(id: u64) -> Peer {
        Peer { id: NodeId(id), renewal: 0, addr: ([10, 0, 0, 1], id as u16).into(), name: "n".into() }
    }

    fn poll(doubts: &mut Doubts, now: Instant) -> Option<Step> {
        doubts.poll(now, ANSWER, OBJECTION)
    }

    #[test]
    fn who_does_not_answer_is_suspected_and_then_down_and_who_does_is_left_alone() {
        let mut doubts = Doubts::default();
        let start = Instant(7);
        doubts.begin(start, [peer(1), peer(2)]);
        doubts.heard(NodeId(2));
        assert_eq!((poll(&mut doubts, Instant(6)), doubts.poll_timeout()), (None, Some(start)));
        assert_eq!(poll(&mut doubts, start), Some(Step::Ask(peer(2))));
        assert_eq!(poll(&mut doubts, start), Some(Step::Ask(peer(1))));
        assert_eq!(poll(&mut doubts, start), None);
        doubts.heard(NodeId(1));
        let suspected = doubts.poll_timeout().expect("one is asked");
        assert_eq!(suspected, start + ANSWER);
        assert_eq!(poll(&mut doubts, suspected), Some(Step::Suspect(peer(2))));
        doubts.heard(NodeId(2));
        let down = doubts.poll_timeout().expect("one is suspected");
        assert_eq!(down, suspected + OBJECTION);
        assert_eq!(poll(&mut doubts, down), Some(Step::Down(peer(2))));
        assert_eq!((poll(&mut doubts, down), doubts.poll_timeout()), (None, None));
    }

    #[test]
    fn many_are_asked_in_turns() {
        let mut doubts = Doubts::default();
        let all = ASKED_MAX as u64 + 10;
        doubts.begin(Instant(0), (1..=all).map(peer));
        let mut now = Instant(0);
        let (mut asked, mut at_once) = (0, 0);
        while let Some(timeout) = doubts.poll_timeout() {
            now = now.max(timeout);
            while let Some(step) = poll(&mut doubts, now) {
                let Step::Ask(peer) = step else { panic!("all answer: {step:?}") };
                (asked, at_once) = (asked + 1, at_once + 1);
                assert!(at_once <= ASKED_MAX);
                if asked % 2 == 0 {
                    doubts.heard(peer.id);
                    at_once -= 1;
                }
            }
            let left: Vec<NodeId> = doubts.asked.keys().copied().collect();
            left.into_iter().for_each(|id| doubts.heard(id));
            at_once = 0;
        }
        assert_eq!(asked, all);
    }
}
