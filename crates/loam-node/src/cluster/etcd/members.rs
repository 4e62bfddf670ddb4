//! What to ask of etcd next, and who lives by its answers.
//!
//! One question is on its way at a time, and one watch. What is asked next follows from what is missing: a lease, its time begun anew, this
//! node's key under it, a list, a watch from the list's revision on. Any failure ends the *session*: list and watch are missing again, of the next server. Lease and key are
//! believed in until etcd says otherwise, so a node that was cut off, or stood still for longer than its lease, comes back as the life that it is.

use super::super::membership::{MemberEffect, Membership};
use super::super::peer::Peer;
use super::view::{Seen, View, key_of, value_of};
use super::{Answer, Ask, Call, Change, EtcdSite, Told, Trouble};
use loam_core::ids::NodeId;
use loam_core::units::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// Lives with our name or address that are remembered.
const NAMESAKES_MAX: usize = 64;
/// How long members are kept while no server answers. Borrowers find out by themselves which of them are dead.
const KEPT: Duration = Duration::from_millis(3_600_000);
const KEPT_TEXT: &str = "an hour";

/// All times, from one.
#[derive(Clone, Copy, Debug)]
struct Times {
    ttl_s: u64,
}

impl Times {
    fn ttl(self) -> Duration {
        Duration::from_millis(self.ttl_s * 1000)
    }
    /// A lease survives two that are lost.
    fn keep_interval(self) -> Duration {
        Duration(self.ttl().0 / 4)
    }
    /// The key is written again no sooner, whoever removes it.
    fn put_again(self) -> Duration {
        Duration(self.ttl().0 / 5)
    }
    /// Between two servers of one round.
    fn next_server(self) -> Duration {
        Duration(self.ttl().0 / 100)
    }
    fn retry_min(self) -> Duration {
        Duration(self.ttl().0 / 20)
    }
    /// All nodes that live have written their keys again so long after etcd has come back.
    fn retry_max(self) -> Duration {
        Duration(self.ttl().0 * 3 / 10)
    }
}

/// No server answers.
#[derive(Clone, Copy, Debug)]
struct Away {
    since: Instant,
    /// The members have been given up.
    forgotten: bool,
}

/// Membership by etcd, of one node. [`Membership::handle_told`] takes the answers to each [`MemberEffect::Ask`]; there is exactly one, but a watch has many, and
/// the driver loses none.
#[derive(Debug)]
pub(crate) struct EtcdMembers {
    me: Peer,
    named: bool,
    times: Times,
    site: EtcdSite,
    /// Counts servers that were tried.
    turn: usize,
    session: u64,
    number: u64,
    pending: Option<Ask>,
    watch: Option<u64>,
    watching: bool,
    lease: Option<u64>,
    keep_due: Instant,
    /// The key is written under the lease, as far as is known.
    registered: bool,
    put_due: Instant,
    /// Of the list.
    revision: Option<u64>,
    joined: bool,
    removals: Vec<NodeId>,
    /// Lives with our name or address, and whether it was said of them that they live beside us.
    namesakes: BTreeMap<NodeId, bool>,
    retry_due: Instant,
    /// Since the last session that was whole.
    failures: usize,
    away: Option<Away>,
    view: View,
    effects: VecDeque<MemberEffect>,
    told: Vec<Peer>,
    left: bool,
}

impl EtcdMembers {
    /// A membership of one, which asks the servers of `site` from `now` on. Leases last ten times `period`, whole seconds and two at least. `named` as of
    /// [`super::super::swim::Swim::new`].
    pub(crate) fn new(now: Instant, me: Peer, site: EtcdSite, period: Duration, named: bool) -> Self {
        let ttl_s = (period.as_micros() / 100_000).clamp(2, 600);
        let mut members = Self {
            told: vec![me.clone()],
            me,
            named,
            times: Times { ttl_s },
            site,
            turn: 0,
            session: 0,
            number: 0,
            pending: None,
            watch: None,
            watching: false,
            lease: None,
            keep_due: now,
            registered: false,
            put_due: now,
            revision: None,
            joined: false,
            removals: Vec::new(),
            namesakes: BTreeMap::new(),
            retry_due: now,
            failures: 0,
            away: None,
            view: View::default(),
            effects: VecDeque::new(),
            left: false,
        };
        members.ask_next(now);
        members
    }

    /// What is missing and when it may be asked for, the most urgent first.
    fn missing(&self) -> impl Iterator<Item = (Instant, Call)> {
        let soon = self.retry_due;
        let grant = self.lease.is_none().then_some((soon, Call::Grant { ttl_s: self.times.ttl_s }));
        let keep = self.lease.map(|lease| (self.keep_due.max(soon), Call::Keep { lease }));
        let (key, value) = (key_of(self.me.id), || value_of(&self.me));
        let put = self.lease.filter(|_| !self.registered);
        let put = put.map(|lease| (self.put_due.max(soon), Call::Put { lease, key, value: value() }));
        // Who has no key yet would only be told of it.
        let list = (self.revision.is_none() && self.lease.is_some()).then_some((soon, Call::List));
        let watch = self.revision.filter(|_| self.watch.is_none());
        let watch = watch.map(|revision| (soon, Call::Watch { from: revision + 1 }));
        let remove = self.removals.last().map(|id| (soon, Call::Remove { key: key_of(*id) }));
        let can_ask = self.pending.is_none() && !self.left;
        [grant, keep, put, list, watch, remove].into_iter().flatten().filter(move |_| can_ask)
    }

    fn ask_next(&mut self, now: Instant) {
        loop {
            let next = self.missing().find(|(due, _)| *due <= now);
            let Some((_, call)) = next else { return };
            self.ask(call);
        }
    }

    fn ask(&mut self, call: Call) {
        self.number += 1;
        let endpoint = self.turn % self.site.endpoints().len();
        let ask = Ask { number: self.number, session: self.session, endpoint, call };
        match &ask.call {
            Call::Watch { .. } => self.watch = Some(self.number),
            _ => self.pending = Some(ask.clone()),
        }
        self.effects.push_back(MemberEffect::Ask(ask));
    }

    /// The session is over.
    fn fail(&mut self, now: Instant, why: &str) {
        let servers = self.site.endpoints().len();
        let server = &self.site.endpoints()[self.turn % servers];
        tracing::debug!(server, why, "etcd");
        self.failures += 1;
        // Any connection may break once.
        let rounds = (self.failures - 1) / servers;
        let wait = match rounds.checked_sub(1) {
            None => self.times.next_server(),
            Some(before) => Duration(self.times.retry_min().0 << before.min(16)).min(self.times.retry_max()),
        };
        if rounds > 0 && self.away.is_none() {
            self.away = Some(Away { since: now, forgotten: false });
            let others = self.told.len() - 1;
            let meanwhile = match others {
                0 => "is alone until it does".to_owned(),
                _ => format!("keeps the {others} other members for {KEPT_TEXT}"),
            };
            self.warn(format!(
                "etcd at {server} does not answer: {why}; this node goes on trying, and {meanwhile}"
            ));
        }
        (self.session, self.turn) = (self.session + 1, self.turn + 1);
        (self.pending, self.watch, self.watching, self.revision) = (None, None, false, None);
        self.retry_due = now + wait;
        self.view.interrupted();
    }

    fn warn(&mut self, text: String) {
        self.effects.push_back(MemberEffect::Warn(text));
    }

    fn lease_gone(&mut self) {
        (self.lease, self.registered) = (None, false);
    }

    fn listed(&mut self, now: Instant, revision: u64, keys: &[Change]) {
        self.revision = Some(revision);
        for seen in self.view.list(now, &self.me, keys, self.times.ttl()) {
            self.seen(seen);
        }
        self.joined = true;
    }

    fn seen(&mut self, seen: Seen) {
        match seen {
            Seen::Nothing => {}
            Seen::Strange(text) => self.warn(text),
            Seen::Own(right) => {
                if self.registered && !right {
                    tracing::info!("this node's key is not in etcd: it is written again");
                }
                self.registered = self.registered && right;
            }
            Seen::Came(peer) => self.came(&peer),
        }
    }

    /// A member with our address or the name that we were given, there when we joined, is our own former life.
    fn came(&mut self, peer: &Peer) {
        let same_addr = peer.addr == self.me.addr;
        if !same_addr && peer.name != self.me.name {
            return;
        }
        if self.namesakes.len() >= NAMESAKES_MAX && !self.namesakes.contains_key(&peer.id) {
            return;
        }
        let told = self.namesakes.get(&peer.id).copied();
        let former = told.is_none() && !self.joined && (same_addr || self.named);
        self.namesakes.insert(peer.id, !former);
        if former {
            let (id, addr) = (format_args!("{:016x}", peer.id.0), peer.addr);
            tracing::info!(node = id, %addr, "replaces a former life");
            self.removals.push(peer.id);
        } else if told == Some(true) {
            // They know.
        } else if same_addr {
            self.warn(format!("another node says that it is at {} too: --advertise must differ", peer.addr));
        } else {
            self.warn(format!(
                "another node, at {}, is called {} too: start one of the two with another --name",
                peer.addr, peer.name
            ));
        }
    }

    /// List, watch, key and lease are there, and proved after the watch began.
    fn whole(&mut self) {
        self.failures = 0;
        if self.away.take().is_some() {
            self.warn("etcd answers again".to_owned());
        }
    }

    fn answered(&mut self, now: Instant, asked: Ask, answer: Result<Answer, Trouble>) {
        let interval = self.times.keep_interval();
        match (asked.call, answer) {
            (_, Err(Trouble::Failed(why))) => self.fail(now, &why),
            (_, Err(Trouble::LeaseGone)) => self.lease_gone(),
            (Call::Grant { .. }, Ok(Answer::Granted { lease })) => {
                (self.lease, self.keep_due, self.registered) = (Some(lease), now + interval, false);
            }
            (Call::Keep { .. }, Ok(Answer::Kept(true))) => {
                self.keep_due = now + interval;
                if self.watching && self.registered {
                    self.whole();
                }
            }
            (Call::Keep { .. }, Ok(Answer::Kept(false))) => self.lease_gone(),
            (Call::Put { .. }, Ok(Answer::Done)) => {
                (self.registered, self.put_due) = (true, now + self.times.put_again());
                if self.watching {
                    self.whole();
                }
            }
            (Call::List, Ok(Answer::Listed { revision, keys })) => self.listed(now, revision, &keys),
            (Call::Remove { key }, Ok(Answer::Done)) => self.removals.retain(|id| key_of(*id) != key),
            (call, Ok(answer)) => unreachable!("{answer:?} is no answer to {call:?}"),
        }
    }

    fn watched(&mut self, now: Instant, answer: Result<Answer, Trouble>) {
        match answer {
            Ok(Answer::Watching) => {
                self.watching = true;
                self.keep_due = now;
            }
            Ok(Answer::Changes(changes)) => {
                for change in &changes {
                    let seen = self.view.change(&self.me, change);
                    self.seen(seen);
                }
            }
            Ok(answer) => unreachable!("{answer:?} is no answer to a watch"),
            Err(Trouble::LeaseGone) => self.fail(now, "the watch ended"),
            Err(Trouble::Failed(why)) => self.fail(now, &why),
        }
    }

    fn away_due(&self) -> Option<Instant> {
        self.away.filter(|away| !away.forgotten).map(|away| away.since + KEPT)
    }

    fn settle(&mut self, now: Instant) {
        self.view.pass_time(now);
        if self.away_due().is_some_and(|due| due <= now) {
            self.away.iter_mut().for_each(|away| away.forgotten = true);
            self.view.clear();
            self.warn(format!("etcd has not answered for {KEPT_TEXT}: this node is alone until it does"));
        }
        self.ask_next(now);
        let members = self.view.members(&self.me);
        if members != self.told {
            self.told = members;
            self.effects.push_back(MemberEffect::Changed);
        }
    }
}

impl Membership for EtcdMembers {
    /// Some node has SWIM for its membership: it is not ours.
    fn handle_packet(&mut self, _now: Instant, _bytes: &[u8]) {}

    /// Nobody is asked who is there.
    fn handle_met(&mut self, _now: Instant, _addr: SocketAddr, _id: NodeId) {}

    fn handle_told(&mut self, now: Instant, told: Told) {
        if self.left {
            return;
        }
        if self.watch == Some(told.number) {
            self.watched(now, told.answer);
        } else if let Some(asked) = self.pending.take_if(|asked| asked.number == told.number) {
            self.answered(now, asked, told.answer);
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if !self.left {
            self.settle(now);
        }
    }

    fn handle_leave(&mut self, _now: Instant) {
        if let (false, Some(lease)) = (self.left, self.lease) {
            self.ask(Call::Revoke { lease });
        }
        self.left = true;
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let missing = self.missing().map(|(due, _)| due).min();
        let due = [missing, self.view.due(), self.away_due()].into_iter().flatten().min();
        due.filter(|_| !self.left)
    }

    fn poll_effect(&mut self) -> Option<MemberEffect> {
        self.effects.pop_front()
    }

    fn members(&self) -> Vec<Peer> {
        self.told.clone()
    }

    fn answers(&self) -> bool {
        self.away.is_none()
    }
}

#[cfg(test)]
#[path = "members_tests.rs"]
mod tests;
