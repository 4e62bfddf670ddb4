//! Members of which a process that was stopped does not know whether they live.
//!
//! News of a death goes round for about a period of the protocol and is then told no more. Who was stopped meanwhile would find each dead
//! member when it is its turn to be probed, as many periods later as there are members. So whoever is not heard of by itself is asked;
//! who does not answer is suspected, and down if it does not object, as after a probe. All this begins a little later: what was
//! sent before, by some that are dead now, is read first. Who hears nobody at all is cut off itself, and leaves it to the protocol.

use super::peer::Peer;
use foca::Incarnation;
use loam_core::ids::NodeId;
use loam_core::units::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

/// Members that are asked in the time that one may take to answer, at most: each answers over a connection, and at length.
const ASKED_MAX: usize = 8;

/// A member that is asked, once and once more: what was sent first may have gone to a connection that nobody knew was broken.
#[derive(Debug)]
struct Asked {
    peer: Peer,
    due: Instant,
    again: bool,
    answered: bool,
}

/// What is to be done about a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Ask(Peer),
    /// To be told of by [`Doubts::suspected`], also if somebody else suspects it: nobody here may wait for what it says to that.
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

impl Patience {
    /// Of an answer's time, for each of two questions.
    fn answer_again(self) -> Duration {
        Duration(self.answer.0 / 2)
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    from: Instant,
    /// Somebody has been heard since.
    hears: bool,
    waiting: VecDeque<Peer>,
    asked: BTreeMap<NodeId, Asked>,
    /// By when they are to object.
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
            self.hears = true;
            self.waiting.retain(|peer| peer.id != id);
            if let Some(asked) = self.asked.get_mut(&id) {
                asked.answered = true;
            }
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
        while let Some((&id, asked)) = self.asked.iter_mut().find(|(_, asked)| late(&asked.due)) {
            if !asked.answered && !asked.again {
                (asked.again, asked.due) = (true, now + patience.answer_again());
                return Some(Step::Ask(asked.peer.clone()));
            }
            let Asked { peer, answered, .. } = self.asked.remove(&id).expect("just found");
            if !answered && self.hears {
                return Some(Step::Suspect(peer));
            }
        }
        if self.asked.len() >= ASKED_MAX || now < self.from {
            return None;
        }
        let peer = self.waiting.pop_front()?;
        let due = now + patience.answer_again();
        self.asked.insert(peer.id, Asked { peer: peer.clone(), due, again: false, answered: false });
        Some(Step::Ask(peer))
    }

    /// When something is next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let next = self.waiting.front().filter(|_| self.asked.len() < ASKED_MAX).map(|_| self.from);
        let answers = self.asked.values().map(|asked| asked.due);
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

    const ANSWER_AGAIN: Duration = Duration::from_millis(500);

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
        let again = doubts.poll_timeout().expect("one is asked");
        assert_eq!(again, start + ANSWER_AGAIN);
        assert_eq!(doubts.poll(again, PATIENCE), Some(Step::Ask(peer(2))));
        assert_eq!(doubts.poll(again, PATIENCE), None);
        let late = doubts.poll_timeout().expect("one is asked");
        assert_eq!(late, start + PATIENCE.answer);
        assert_eq!(doubts.poll(late, PATIENCE), Some(Step::Suspect(peer(2))));
        doubts.suspected(late + PATIENCE.objection, peer(2), 5);
        doubts.heard(late, NodeId(2));
        let down = doubts.poll_timeout().expect("one is suspected");
        assert_eq!(down, late + PATIENCE.objection);
        assert_eq!(doubts.poll(down, PATIENCE), Some(Step::Down(peer(2), 5)));
        assert_eq!((doubts.poll(down, PATIENCE), doubts.poll_timeout()), (None, None));
        // Stopped again while some are asked and some suspected: those are asked anew.
        doubts.begin(down, [peer(1), peer(2)]);
        assert_eq!(doubts.poll(down, PATIENCE), Some(Step::Ask(peer(1))));
        doubts.suspected(down, peer(2), 5);
        doubts.begin(down + PATIENCE.answer, [peer(9)]);
        let again = down + PATIENCE.answer;
        assert_eq!(doubts.poll_timeout(), Some(again));
        assert_eq!(doubts.poll(again, PATIENCE), Some(Step::Ask(peer(9))));
    }

    #[test]
    fn who_hears_nobody_suspects_nobody() {
        let mut doubts = Doubts::default();
        doubts.begin(Instant(0), (1..=20).map(peer));
        let (mut now, mut asked) = (Instant(0), 0);
        while let Some(timeout) = doubts.poll_timeout() {
            now = now.max(timeout);
            while let Some(step) = doubts.poll(now, PATIENCE) {
                assert!(matches!(step, Step::Ask(_)), "{step:?}");
                asked += 1;
            }
        }
        assert_eq!(asked, 2 * 20);
    }

    #[test]
    fn few_are_asked_at_a_time_and_all_in_the_end() {
        let mut doubts = Doubts::default();
        let all = 10 * ASKED_MAX as u64;
        doubts.begin(Instant(0), (1..=all).map(peer));
        let mut first_asked: BTreeMap<u64, Instant> = BTreeMap::new();
        let (mut now, mut late, mut down) = (Instant(0), 0, 0);
        while let Some(timeout) = doubts.poll_timeout() {
            now = now.max(timeout);
            match doubts.poll(now, PATIENCE) {
                Some(Step::Ask(peer)) => {
                    first_asked.entry(peer.id.0).or_insert(now);
                    if !peer.id.0.is_multiple_of(3) {
                        doubts.heard(now, peer.id);
                    }
                }
                Some(Step::Suspect(peer)) => {
                    late += 1;
                    doubts.suspected(now + PATIENCE.objection, peer, 0);
                }
                Some(Step::Down(..)) => down += 1,
                None => {}
            }
        }
        assert_eq!((first_asked.len() as u64, late, down), (all, all / 3, all / 3));
        // However quickly they answer.
        for &from in first_asked.values() {
            let soon = |at: &&Instant| from <= **at && **at < from + ANSWER_AGAIN;
            assert!(first_asked.values().filter(soon).count() <= ASKED_MAX);
        }
    }
}
