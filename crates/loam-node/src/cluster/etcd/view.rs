//! Who is there, by the keys in etcd. Whoever may write to etcd may write anything: a key or a value without meaning is no node.

use super::super::peer::Peer;
use super::{Change, VALUE_BYTES_MAX};
use loam_core::ids::NodeId;
use loam_core::units::{Duration, Instant};
use loam_wire::limits::{NAME_BYTES_MAX, VIEW_NODES_MAX};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Keys without meaning that are remembered, so that each is told of once.
const STRANGE_MAX: usize = 16;

/// The value of a key.
#[derive(Serialize, Deserialize)]
struct Record {
    addr: SocketAddr,
    name: String,
}

/// The key of a life, below the prefix.
pub(super) fn key_of(id: NodeId) -> String {
    format!("{:016x}", id.0)
}

/// The value of a node's key.
pub(super) fn value_of(peer: &Peer) -> String {
    let record = Record { addr: peer.addr, name: peer.name.to_string() };
    serde_json::to_string(&record).expect("an address and a name can be written")
}

/// The life that a key stands for.
fn id_of(key: &[u8]) -> Option<NodeId> {
    let text = std::str::from_utf8(key).ok().filter(|text| text.len() == 16)?;
    let id = NodeId(u64::from_str_radix(text, 16).ok()?);
    // One life has one key.
    (id != NodeId::default() && key_of(id) == text).then_some(id)
}

fn peer_of(id: NodeId, value: &[u8]) -> Option<Peer> {
    if value.len() > VALUE_BYTES_MAX {
        return None;
    }
    let Record { addr, name } = serde_json::from_slice(value).ok()?;
    let (reachable, short) = (addr.port() > 0 && !addr.ip().is_unspecified(), name.len() <= NAME_BYTES_MAX);
    let printable = !name.chars().any(char::is_control);
    (reachable && short && printable).then(|| Peer { id, renewal: 0, addr, name: name.into() })
}

/// What became of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A node is there that was not.
    Came(Peer),
    /// Nothing that matters.
    Nothing,
    /// This node's own key: whether it says what it should.
    Own(bool),
    /// It has no meaning, or there is no room for it; to be told to people.
    Strange(String),
}

#[derive(Clone, Debug)]
struct Other {
    peer: Peer,
    /// It was in an earlier list, and not in the last one: until then it may come again.
    held_until: Option<Instant>,
}

/// The other nodes.
#[derive(Debug, Default)]
pub(super) struct View {
    others: BTreeMap<NodeId, Other>,
    strange: BTreeSet<Vec<u8>>,
    crowded: bool,
}

impl View {
    /// The keys at one moment. Who is not among them any more is held for `grace`: an etcd that has lost its data knows a node only when that one has written its key again.
    pub(super) fn list(&mut self, now: Instant, me: &Peer, keys: &[Change], grace: Duration) -> Vec<Seen> {
        let listed: BTreeSet<NodeId> = keys.iter().filter_map(|change| id_of(&change.key)).collect();
        for other in self.others.values_mut().filter(|other| !listed.contains(&other.peer.id)) {
            other.held_until.get_or_insert(now + grace);
        }
        let mut seen: Vec<Seen> = keys.iter().map(|change| self.change(me, change)).collect();
        if !listed.contains(&me.id) {
            seen.push(Seen::Own(false));
        }
        seen
    }

    /// One key is written or removed.
    pub(super) fn change(&mut self, me: &Peer, change: &Change) -> Seen {
        let Some(id) = id_of(&change.key) else { return self.strange(&change.key) };
        if id == me.id {
            return Seen::Own(change.value.as_deref() == Some(value_of(me).as_bytes()));
        }
        let Some(value) = &change.value else {
            self.others.remove(&id);
            return Seen::Nothing;
        };
        let Some(peer) = peer_of(id, value) else {
            self.others.remove(&id);
            return self.strange(&change.key);
        };
        // Only one process listens at an address.
        self.others.retain(|_, other| {
            other.held_until.is_none() || other.peer.id == id || other.peer.addr != peer.addr
        });
        if self.others.len() >= VIEW_NODES_MAX - 1 && !self.others.contains_key(&id) {
            let first = !std::mem::replace(&mut self.crowded, true);
            let text =
                format!("etcd has more than {VIEW_NODES_MAX} nodes of this cluster: some are not used");
            return if first { Seen::Strange(text) } else { Seen::Nothing };
        }
        let before = self.others.insert(id, Other { peer: peer.clone(), held_until: None });
        if before.is_some_and(|before| before.peer == peer) { Seen::Nothing } else { Seen::Came(peer) }
    }

    fn strange(&mut self, key: &[u8]) -> Seen {
        let told =
            self.strange.len() >= STRANGE_MAX || !self.strange.insert(key[..key.len().min(64)].to_vec());
        if told {
            return Seen::Nothing;
        }
        let key = loam_wire::printable_name(&String::from_utf8_lossy(key));
        Seen::Strange(format!("the key {key} in etcd is not a node's: it is ignored"))
    }

    /// Nobody can be asked for now: whoever was held is held for longer.
    pub(super) fn interrupted(&mut self) {
        self.others.values_mut().for_each(|other| other.held_until = None);
    }

    /// Gives up those who were held long enough.
    pub(super) fn pass_time(&mut self, now: Instant) {
        self.others.retain(|_, other| other.held_until.is_none_or(|until| now < until));
    }

    /// When somebody will have been held long enough.
    pub(super) fn due(&self) -> Option<Instant> {
        self.others.values().filter_map(|other| other.held_until).min()
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.others.clear();
    }

    /// All who are there, `me` among them, by ascending id. Whoever is said to listen at our address is our own former life.
    pub(super) fn members(&self, me: &Peer) -> Vec<Peer> {
        let others = self.others.values().map(|other| &other.peer).filter(|peer| peer.addr != me.addr);
        let mut members: Vec<Peer> = others.chain(std::iter::once(me)).cloned().collect();
        members.sort_by_key(|peer| peer.id);
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn peer(id: u64) -> Peer {
        let addr = SocketAddr::from(([10, 0, (id >> 8) as u8, id as u8], 7070));
        Peer { id: NodeId(id), renewal: 0, addr, name: format!("n{id}").as_str().into() }
    }

    fn put(key: &str, value: &str) -> Change {
        Change { key: key.into(), value: Some(value.into()) }
    }

    fn there(id: u64) -> Change {
        put(&key_of(NodeId(id)), &value_of(&peer(id)))
    }

    #[test]
    fn keys_and_values_are_what_the_documentation_says() {
        assert_eq!(
            (key_of(NodeId(0xabc)).as_str(), id_of(b"0000000000000abc")),
            ("0000000000000abc", Some(NodeId(0xabc)))
        );
        assert_eq!(value_of(&peer(7)), r#"{"addr":"10.0.0.7:7070","name":"n7"}"#);
        assert_eq!(peer_of(NodeId(7), value_of(&peer(7)).as_bytes()), Some(peer(7)));
        let more = br#"{"addr":"10.0.0.7:7070","name":"n7","zone":"a"}"#;
        assert_eq!(peer_of(NodeId(7), more), Some(peer(7)), "a later version may say more");
    }

    #[test]
    fn what_has_no_meaning_is_told_once_and_is_nobody() {
        let (mut view, me) = (View::default(), peer(1));
        let long = format!(r#"{{"addr":"10.0.0.2:1","name":"{}"}}"#, "n".repeat(NAME_BYTES_MAX + 1));
        let longer = format!(r#"{{"addr":"10.0.0.2:1","name":"n","x":"{}"}}"#, "n".repeat(VALUE_BYTES_MAX));
        let values = [
            "",
            "{}",
            "x",
            r#"{"addr":"10.0.0.2:0","name":"n"}"#,
            r#"{"addr":"0.0.0.0:1","name":"n"}"#,
            r#"{"addr":"here:1","name":"n"}"#,
            r#"{"addr":"10.0.0.2:1","name":"a\u001b[2J"}"#,
            &long,
            &longer,
        ];
        for (id, value) in values.iter().enumerate() {
            let change = put(&key_of(NodeId(id as u64 + 100)), value);
            assert!(matches!(view.change(&me, &change), Seen::Strange(_)), "{value}");
            assert_eq!(view.change(&me, &change), Seen::Nothing, "{value}");
        }
        for key in ["", "1", "0000000000000000", "0000000000000ABC", "+000000000000abc", "0000000000000abc/x"]
        {
            assert!(matches!(view.change(&me, &put(key, &value_of(&peer(5)))), Seen::Strange(_)), "{key}");
        }
        for key in 0..100 {
            view.change(&me, &put(&format!("key-{key}"), ""));
        }
        assert_eq!(view.members(&me), [me]);
        assert!(view.strange.len() <= STRANGE_MAX);
    }

    #[test]
    fn more_nodes_than_a_view_takes_are_left_out() {
        let (mut view, me) = (View::default(), peer(1));
        let keys: Vec<Change> = (2..1100).map(there).collect();
        let seen = view.list(Instant(0), &me, &keys, Duration::from_millis(1));
        assert_eq!(view.members(&me).len(), VIEW_NODES_MAX);
        assert_eq!(seen.iter().filter(|seen| matches!(seen, Seen::Strange(_))).count(), 1);
    }

    #[test]
    fn who_is_missing_in_a_list_is_held_for_a_while() {
        let (mut view, me, grace) = (View::default(), peer(1), Duration::from_millis(5000));
        let at = |ms| Instant(0) + Duration::from_millis(ms);
        view.list(at(0), &me, &[there(1), there(2), there(3)], grace);
        assert_eq!(view.list(at(1000), &me, &[], grace), [Seen::Own(false)]);
        assert_eq!((view.members(&me).len(), view.due()), (3, Some(at(6000))));
        assert_eq!(view.change(&me, &there(2)), Seen::Nothing, "it was there all the time");
        // Somebody else listens where 3 did.
        let heir = Peer { id: NodeId(4), ..peer(3) };
        assert_eq!(view.change(&me, &put(&key_of(heir.id), &value_of(&heir))), Seen::Came(heir.clone()));
        view.pass_time(at(6000));
        assert_eq!(view.members(&me), [me, peer(2), heir]);
    }

    proptest! {
        /// Whatever is in etcd: nothing panics, this node is a member, and all members can be told to others.
        #[test]
        fn anything_may_be_in_etcd(
            keys in prop::collection::vec(("[0-9a-f]{0,17}|.{0,8}", prop::option::of(".{0,80}|\\{\"addr\":\"[0-9]\\.0\\.0\\.1:[0-9]{1,3}\",\"name\":\"[a-c]\"\\}")), 0..40)
        ) {
            let (mut view, me) = (View::default(), peer(1));
            let keys: Vec<Change> =
                keys.into_iter().map(|(key, value)| Change { key: key.into_bytes(), value: value.map(String::into_bytes) }).collect();
            view.list(Instant(0), &me, &keys[..keys.len() / 2], Duration::from_millis(1));
            for change in &keys {
                view.change(&me, change);
            }
            let members = view.members(&me);
            prop_assert!(members.iter().any(|peer| peer.id == me.id));
            prop_assert!(members.windows(2).all(|pair| pair[0].id < pair[1].id));
            prop_assert!(members.iter().all(|peer| peer.name.len() <= NAME_BYTES_MAX && peer.addr.port() > 0));
        }
    }
}
