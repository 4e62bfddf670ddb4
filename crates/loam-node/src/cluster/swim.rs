//! The built-in membership: SWIM with incarnations and suspicion (the foca crate), and what it leaves to its user.
//!
//! - **Finding each other.** Seeds are addresses, members are lives, so an address is *met* first: whoever answers there says which life
//!   it is. Seeds that are not among the living are tried for ever, and so are, for an hour, the addresses of members that were
//!   lost: halves of a cluster find each other again however long they were apart.
//! - **Former lives.** Only one process listens at an address: a member that is said to live at ours is our own former life, and is declared
//!   down. The same goes for a member with our name that was there when we joined; if it objects, it lives, and both stay.
//! - **Having been stopped.** Time goes on while a process is stopped. Timers that are much too late are put off, so that what came
//!   in the meantime is read before anybody is suspected for not having answered. What was told meanwhile is told no more: [`Doubts`].

use super::doubts::{Doubts, Patience, Step};
use super::membership::{MemberEffect, Membership};
use super::peer::{Peer, PeerCodec, sender};
use foca::{
    Config, Foca, Incarnation, Member, NoCustomBroadcast, Notification, OwnedNotification, PeriodicParams,
    Runtime, State, Timer,
};
use loam_core::ids::NodeId;
use loam_core::units::{Duration, Instant};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroUsize};

/// Longest packet that is made or taken.
pub(crate) const PACKET_BYTES_MAX: usize = 32 * 1024;
/// Addresses of lost members that are remembered.
const LOST_MAX: usize = 256;
/// Lives with our name that are remembered.
const NAMESAKES_MAX: usize = 64;

/// The times of the protocol, all from one: how often a member is probed.
#[derive(Clone, Copy, Debug)]
struct Pace(Duration);

impl Pace {
    fn times(self, numerator: u64, denominator: u64) -> Duration {
        Duration(self.0.0 * numerator / denominator)
    }
    /// First wait before an address is tried again.
    fn retry_min(self) -> Duration {
        self.times(1, 2)
    }
    /// Longest wait before an address is tried again.
    fn retry_max(self) -> Duration {
        self.times(5, 1)
    }
    /// How long the address of a lost member is tried.
    fn lost_for(self) -> Duration {
        self.times(7200, 1)
    }
    /// How long after joining a member with our name is taken for our former life.
    fn namesake_for(self) -> Duration {
        self.times(10, 1)
    }

    /// How long a suspected member may object.
    fn objection(self) -> Duration {
        self.times(4, 1)
    }
    /// How long one that is asked whether it lives may take to answer.
    fn answer(self) -> Duration {
        self.times(2, 1)
    }

    /// A dead member is suspected one or two periods after it was picked, and down when it has not objected.
    fn config(self) -> Config {
        let std = |duration: Duration| std::time::Duration::from_nanos(duration.0);
        let count = |n| NonZeroUsize::new(n).expect("not zero");
        let periodic = |every: Duration, members| {
            Some(PeriodicParams { frequency: std(every), num_members: count(members) })
        };
        Config {
            probe_period: std(self.0),
            probe_rtt: std(self.times(2, 5)),
            num_indirect_probes: count(3),
            max_transmissions: NonZeroU8::new(10).expect("not zero"),
            suspect_to_down_after: std(self.objection()),
            remove_down_after: Some(std(self.times(600, 1))),
            max_packet_size: count(PACKET_BYTES_MAX),
            notify_down_members: true,
            periodic_announce: periodic(self.times(20, 1), 1),
            periodic_announce_to_down_members: periodic(self.times(2, 1), 3),
            periodic_gossip: periodic(self.times(2, 5), 3),
        }
    }
}

/// An address to try while nobody who is known to live listens there.
#[derive(Clone, Copy, Debug)]
struct Contact {
    due: Instant,
    wait: Duration,
    /// Seeds have no end.
    until: Option<Instant>,
    /// Who answered there last, which may be us.
    answered: Option<NodeId>,
}

/// Takes what foca wants done.
#[derive(Debug, Default)]
struct Wishes {
    sends: Vec<(Peer, Vec<u8>)>,
    timers: Vec<(Timer<Peer>, std::time::Duration)>,
    notifications: Vec<OwnedNotification<Peer>>,
}

impl Runtime<Peer> for Wishes {
    fn notify(&mut self, notification: Notification<'_, Peer>) {
        self.notifications.push(notification.to_owned());
    }
    fn send_to(&mut self, to: Peer, data: &[u8]) {
        self.sends.push((to, data.to_vec()));
    }
    fn submit_after(&mut self, event: Timer<Peer>, after: std::time::Duration) {
        self.timers.push((event, after));
    }
}

type Gossip = Foca<Peer, PeerCodec, SmallRng, NoCustomBroadcast>;

/// SWIM membership of one node.
pub(crate) struct Swim {
    foca: Gossip,
    pace: Pace,
    timers: BTreeMap<(Instant, u64), Timer<Peer>>,
    timer_last: u64,
    contacts: BTreeMap<SocketAddr, Contact>,
    named: bool,
    /// When we first had company.
    joined: Option<Instant>,
    /// Lives with our name, and whether they are known to live beside us.
    namesakes: BTreeMap<NodeId, bool>,
    doubts: Doubts,
    effects: VecDeque<MemberEffect>,
    told: Vec<Peer>,
    left: bool,
}

impl Swim {
    /// A membership of one, which tries `seeds` from `now` on. `period` is how often a member is probed; the other times follow from it.
    /// `named`: its name was given on purpose, so that a member with the same name is its former life.
    pub(crate) fn new(
        now: Instant,
        me: Peer,
        seeds: &[SocketAddr],
        period: Duration,
        named: bool,
        random: u64,
    ) -> Self {
        let pace = Pace(period);
        let contact = Contact { due: now, wait: pace.retry_min(), until: None, answered: None };
        let foca = Foca::new(me.clone(), pace.config(), SmallRng::seed_from_u64(random), PeerCodec);
        Self {
            foca,
            pace,
            timers: BTreeMap::new(),
            timer_last: 0,
            named,
            contacts: seeds.iter().map(|&seed| (seed, contact)).collect(),
            joined: None,
            namesakes: BTreeMap::new(),
            doubts: Doubts::default(),
            effects: VecDeque::new(),
            told: vec![me],
            left: false,
        }
    }

    /// Asks foca, then carries out what it wishes, and what follows from that.
    fn ask(
        &mut self,
        now: Instant,
        question: impl FnOnce(&mut Gossip, &mut Wishes) -> Result<(), foca::Error>,
    ) {
        let mut wishes = Wishes::default();
        if let Err(error) = question(&mut self.foca, &mut wishes) {
            // A packet that is damaged or meant for another; or a probe that was interrupted, from which foca recovers.
            tracing::debug!(%error, "membership");
        }
        for (to, bytes) in wishes.sends {
            self.effects.push_back(MemberEffect::Send { to, bytes });
        }
        for (timer, after) in wishes.timers {
            self.timer_last += 1;
            let due = now + Duration(u64::try_from(after.as_nanos()).expect("periods are short"));
            assert!(self.timers.insert((due, self.timer_last), timer).is_none());
        }
        for notification in wishes.notifications {
            match notification {
                OwnedNotification::MemberUp(peer) | OwnedNotification::Rename(_, peer) => {
                    self.came(now, &peer)
                }
                OwnedNotification::MemberDown(peer) => self.went(now, &peer),
                OwnedNotification::Active => self.joined = self.joined.or(Some(now)),
                _ => {}
            }
        }
        let members = self.members();
        let same = |(a, b): (&Peer, &Peer)| (a.id, a.addr, &a.name) == (b.id, b.addr, &b.name);
        if members.len() != self.told.len() || !members.iter().zip(&self.told).all(same) {
            self.told = members;
            self.effects.push_back(MemberEffect::Changed);
        }
    }

    fn me(&self) -> &Peer {
        self.foca.identity()
    }

    /// A member is said to live.
    fn came(&mut self, now: Instant, peer: &Peer) {
        let me = self.me();
        let (same_addr, same_name) = (peer.addr == me.addr, peer.name == me.name);
        let newly_here = self.joined.is_none_or(|joined| now - joined < self.pace.namesake_for());
        if same_addr {
            self.declare_down(now, peer);
        } else if same_name && (self.namesakes.len() < NAMESAKES_MAX || self.namesakes.contains_key(&peer.id))
        {
            let met = self.namesakes.get(&peer.id).copied();
            let lives = met.is_some() || !newly_here || !self.named;
            self.namesakes.insert(peer.id, lives);
            if !lives {
                self.declare_down(now, peer);
            } else if met != Some(true) {
                self.effects.push_back(MemberEffect::Warn(format!(
                    "another node, at {}, is called {} too: start one of the two with another --name",
                    peer.addr, peer.name
                )));
            }
        }
    }

    fn declare_down(&mut self, now: Instant, peer: &Peer) {
        tracing::info!(node = format_args!("{:016x}", peer.id.0), addr = %peer.addr, "replaces a former life");
        let down = Member::down(peer.clone());
        self.ask(now, |foca, wishes| foca.apply_many(std::iter::once(down), true, wishes));
    }

    /// A member is said to be down.
    fn went(&mut self, now: Instant, peer: &Peer) {
        let full = self.contacts.len() >= LOST_MAX;
        if peer.addr == self.me().addr || full && !self.contacts.contains_key(&peer.addr) {
            return;
        }
        let (wait, until) = (self.pace.retry_min(), Some(now + self.pace.lost_for()));
        let fresh = Contact { due: now + wait, wait, until, answered: None };
        let contact = self.contacts.entry(peer.addr).or_insert(fresh);
        (contact.due, contact.wait) = (fresh.due, wait);
        contact.until = contact.until.and(until);
    }

    /// Tries the addresses whose turn it is.
    fn try_contacts(&mut self, now: Instant) {
        self.contacts.retain(|_, contact| contact.until.is_none_or(|until| now < until));
        let living: Vec<Peer> = self.members();
        let longest = self.pace.retry_max();
        for (addr, contact) in self.contacts.iter_mut().filter(|(_, contact)| contact.due <= now) {
            if living.iter().any(|peer| peer.addr == *addr || Some(peer.id) == contact.answered) {
                (contact.due, contact.wait) = (now + longest, self.pace.retry_min());
            } else {
                contact.due = now + contact.wait;
                contact.wait = Duration(contact.wait.0 * 2).min(longest);
                self.effects.push_back(MemberEffect::Meet(*addr));
            }
        }
    }

    /// Puts timers off that are so late that this process must have been stopped, and begins to doubt that those live who lived then.
    fn forgive(&mut self, now: Instant) {
        let Some(((due, _), _)) = self.timers.first_key_value() else { return };
        let late = now - *due;
        if late > self.pace.times(2, 1) {
            tracing::info!(late_ms = late.as_micros() / 1000, "was stopped for a while");
            let later = Duration(late.0 + self.pace.0.0);
            let timers = std::mem::take(&mut self.timers);
            self.timers =
                timers.into_iter().map(|((due, number), timer)| ((due + later, number), timer)).collect();
            let me = self.me().id;
            let others = self.members().into_iter().filter(|peer| peer.id != me);
            self.doubts.begin(now + self.pace.0, others);
        }
    }

    /// Asks those who are doubted, and goes on as after a probe about those who do not answer.
    fn settle_doubts(&mut self, now: Instant) {
        let patience = Patience { answer: self.pace.answer(), objection: self.pace.objection() };
        while let Some(step) = self.doubts.poll(now, patience) {
            match step {
                Step::Ask(peer) => self.ask(now, |foca, wishes| foca.announce(peer, wishes)),
                Step::Suspect(peer) => {
                    let alive = self.incarnation(&peer, State::Alive);
                    if let Some(incarnation) = alive {
                        self.change(now, Member::new(peer.clone(), incarnation, State::Suspect));
                    }
                    // Whoever else suspects it may have told us so alone, before it died.
                    if let Some(incarnation) = alive.or_else(|| self.incarnation(&peer, State::Suspect)) {
                        self.doubts.suspected(now + patience.objection, peer, incarnation);
                    }
                }
                Step::Down(peer, incarnation) => {
                    if self.incarnation(&peer, State::Suspect) == Some(incarnation) {
                        self.change(now, Member::new(peer, incarnation, State::Down));
                    }
                }
            }
        }
    }

    /// Of a member that is in this state.
    fn incarnation(&self, peer: &Peer, state: State) -> Option<Incarnation> {
        let member = self.foca.iter_members().find(|member| member.id() == peer)?;
        (member.state() == state).then(|| member.incarnation())
    }

    fn change(&mut self, now: Instant, member: Member<Peer>) {
        self.ask(now, |foca, wishes| foca.apply_many(std::iter::once(member), true, wishes));
    }
}

impl Membership for Swim {
    fn handle_packet(&mut self, now: Instant, bytes: &[u8]) {
        if !self.left {
            // Also from one that takes us for dead, whose packet foca does not take.
            if let Some(from) = sender(bytes) {
                self.doubts.heard(now, from);
            }
            self.ask(now, |foca, wishes| foca.handle_data(bytes, wishes));
        }
    }

    fn handle_met(&mut self, now: Instant, addr: SocketAddr, id: NodeId) {
        if let Some(contact) = self.contacts.get_mut(&addr) {
            contact.answered = Some(id);
        }
        if self.left || id == NodeId::default() || self.members().iter().any(|peer| peer.id == id) {
            return;
        }
        // Whatever renewal it has by now: an announcement is for the life.
        let whoever = Peer { id, renewal: 0, addr, name: "".into() };
        self.ask(now, |foca, wishes| foca.announce(whoever, wishes));
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.left {
            return;
        }
        self.forgive(now);
        while let Some(entry) = self.timers.first_entry().filter(|entry| entry.key().0 <= now) {
            let timer = entry.remove();
            self.ask(now, |foca, wishes| foca.handle_timer(timer, wishes));
        }
        self.settle_doubts(now);
        self.try_contacts(now);
    }

    fn handle_leave(&mut self, now: Instant) {
        if !self.left {
            self.ask(now, |foca, wishes| foca.leave_cluster(wishes));
            self.left = true;
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let timer = self.timers.first_key_value().map(|((due, _), _)| *due);
        let contact = self.contacts.values().map(|contact| contact.due).min();
        timer.into_iter().chain(contact).chain(self.doubts.poll_timeout()).min().filter(|_| !self.left)
    }

    fn poll_effect(&mut self) -> Option<MemberEffect> {
        self.effects.pop_front()
    }

    fn members(&self) -> Vec<Peer> {
        let me = self.me();
        let others = self.foca.iter_members().map(Member::id).filter(|peer| peer.addr != me.addr);
        let mut members: Vec<Peer> = others.chain(std::iter::once(me)).cloned().collect();
        members.sort_by_key(|peer| peer.id);
        members
    }
}

#[cfg(test)]
#[path = "swim_tests.rs"]
mod tests;
