//! Who a member of the cluster is, and the bytes of the membership's packets.
//!
//! The identity that is gossiped is a *life* of a node ([`NodeId`]), never an address: a restarted node is another member, and
//! nothing that is still said of its former life can touch it. A member that was declared down although it lives comes back
//! under the next `renewal` of the same life, so its pages stay where the others know them.

use bytes::{Buf, BufMut};
use foca::{Codec, Header, Identity, Member, Message, State};
use loam_core::ids::NodeId;
use loam_wire::limits::NAME_BYTES_MAX;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// A member, as it is gossiped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Which life of which node.
    pub(crate) id: NodeId,
    /// How often this life was wrongly declared down and came back.
    pub(crate) renewal: u32,
    /// Where it listens.
    pub(crate) addr: SocketAddr,
    /// What people call it; at most [`NAME_BYTES_MAX`] bytes without control characters.
    pub(crate) name: Arc<str>,
}

impl Identity for Peer {
    type Addr = NodeId;

    fn renew(&self) -> Option<Self> {
        Some(Self { renewal: self.renewal.checked_add(1)?, ..self.clone() })
    }

    fn addr(&self) -> NodeId {
        self.id
    }

    /// The later renewal is the right one. Equal ones that differ otherwise are a lie; any fixed order will do.
    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        let rank = |peer: &Self| (peer.renewal, peer.addr, Arc::clone(&peer.name));
        rank(self) > rank(adversary)
    }
}

/// A packet that is not the membership's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PacketError {
    /// It ends too early, or there is no room to write on.
    #[error("the packet is too short")]
    Short,
    /// A number without meaning, or a name that is not printable.
    #[error("the packet has a field without meaning")]
    Field,
}

/// The membership's packets. All numbers are big endian, as foca's own counts in between are.
///
/// ```text
/// peer    8 id · 4 renewal · 16 address (IPv4 mapped) · 2 port · 1 bytes of the name · the name
/// header  peer (from) · 2 incarnation · peer (to) · 1 message · what the message names
/// member  peer · 2 incarnation · 1 state: 0 alive, 1 suspect, 2 down
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerCodec;

const PEER_BYTES_MIN: usize = 8 + 4 + 16 + 2 + 1;

fn put_peer(peer: &Peer, out: &mut Vec<u8>) {
    let v6 = match peer.addr.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    assert!(peer.name.len() <= NAME_BYTES_MAX, "names are cut when they come in");
    out.put_u64(peer.id.0);
    out.put_u32(peer.renewal);
    out.put_slice(&v6.octets());
    out.put_u16(peer.addr.port());
    out.put_u8(peer.name.len() as u8);
    out.put_slice(peer.name.as_bytes());
}

fn get_peer(from: &mut impl Buf) -> Result<Peer, PacketError> {
    if from.remaining() < PEER_BYTES_MIN {
        return Err(PacketError::Short);
    }
    let id = NodeId(from.get_u64());
    let renewal = from.get_u32();
    let mut ip = [0; 16];
    from.copy_to_slice(&mut ip);
    let addr = SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), from.get_u16());
    let name_bytes = usize::from(from.get_u8());
    if name_bytes > NAME_BYTES_MAX || id == NodeId::default() {
        return Err(PacketError::Field);
    }
    if from.remaining() < name_bytes {
        return Err(PacketError::Short);
    }
    let mut name = [0; NAME_BYTES_MAX];
    from.copy_to_slice(&mut name[..name_bytes]);
    let name = std::str::from_utf8(&name[..name_bytes]).map_err(|_| PacketError::Field)?;
    if name.chars().any(char::is_control) {
        return Err(PacketError::Field);
    }
    Ok(Peer { id, renewal, addr, name: name.into() })
}

fn get_u8(from: &mut impl Buf) -> Result<u8, PacketError> {
    if from.has_remaining() { Ok(from.get_u8()) } else { Err(PacketError::Short) }
}

fn get_u16(from: &mut impl Buf) -> Result<u16, PacketError> {
    if from.remaining() < 2 { Err(PacketError::Short) } else { Ok(from.get_u16()) }
}

/// Writes whole or not at all.
fn put_whole(item: &[u8], mut out: impl BufMut) -> Result<(), PacketError> {
    if out.remaining_mut() < item.len() {
        return Err(PacketError::Short);
    }
    out.put_slice(item);
    Ok(())
}

/// The life that a packet says it comes from.
pub(crate) fn sender(mut packet: &[u8]) -> Option<NodeId> {
    get_peer(&mut packet).ok().map(|peer| peer.id)
}

impl Codec<Peer> for PeerCodec {
    type Error = PacketError;

    fn encode_header(&mut self, header: &Header<Peer>, out: impl BufMut) -> Result<(), PacketError> {
        let mut item = Vec::with_capacity(256);
        put_peer(&header.src, &mut item);
        item.put_u16(header.src_incarnation);
        put_peer(&header.dst, &mut item);
        let (tag, peer, number) = match &header.message {
            Message::Ping(number) => (0, None, Some(*number)),
            Message::Ack(number) => (1, None, Some(*number)),
            Message::PingReq { target, probe_number } => (2, Some(target), Some(*probe_number)),
            Message::IndirectPing { origin, probe_number } => (3, Some(origin), Some(*probe_number)),
            Message::IndirectAck { target, probe_number } => (4, Some(target), Some(*probe_number)),
            Message::ForwardedAck { origin, probe_number } => (5, Some(origin), Some(*probe_number)),
            Message::Announce => (6, None, None),
            Message::Feed => (7, None, None),
            Message::Gossip => (8, None, None),
            Message::Broadcast => (9, None, None),
            Message::TurnUndead => (10, None, None),
        };
        item.put_u8(tag);
        if let Some(peer) = peer {
            put_peer(peer, &mut item);
        }
        if let Some(number) = number {
            item.put_u8(number);
        }
        put_whole(&item, out)
    }

    fn decode_header(&mut self, mut from: impl Buf) -> Result<Header<Peer>, PacketError> {
        let src = get_peer(&mut from)?;
        let src_incarnation = get_u16(&mut from)?;
        let dst = get_peer(&mut from)?;
        let tag = get_u8(&mut from)?;
        let peer = if (2..=5).contains(&tag) { Some(get_peer(&mut from)?) } else { None };
        let probe_number = if tag <= 5 { get_u8(&mut from)? } else { 0 };
        let message = match (tag, peer) {
            (0, None) => Message::Ping(probe_number),
            (1, None) => Message::Ack(probe_number),
            (2, Some(target)) => Message::PingReq { target, probe_number },
            (3, Some(origin)) => Message::IndirectPing { origin, probe_number },
            (4, Some(target)) => Message::IndirectAck { target, probe_number },
            (5, Some(origin)) => Message::ForwardedAck { origin, probe_number },
            (6, None) => Message::Announce,
            (7, None) => Message::Feed,
            (8, None) => Message::Gossip,
            (9, None) => Message::Broadcast,
            (10, None) => Message::TurnUndead,
            _ => return Err(PacketError::Field),
        };
        Ok(Header { src, src_incarnation, dst, message })
    }

    fn encode_member(&mut self, member: &Member<Peer>, out: impl BufMut) -> Result<(), PacketError> {
        let mut item = Vec::with_capacity(PEER_BYTES_MIN + NAME_BYTES_MAX + 3);
        put_peer(member.id(), &mut item);
        item.put_u16(member.incarnation());
        item.put_u8(match member.state() {
            State::Alive => 0,
            State::Suspect => 1,
            State::Down => 2,
        });
        put_whole(&item, out)
    }

    fn decode_member(&mut self, mut from: impl Buf) -> Result<Member<Peer>, PacketError> {
        let peer = get_peer(&mut from)?;
        let incarnation = get_u16(&mut from)?;
        let state = match get_u8(&mut from)? {
            0 => State::Alive,
            1 => State::Suspect,
            2 => State::Down,
            _ => return Err(PacketError::Field),
        };
        Ok(Member::new(peer, incarnation, state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn peers() -> impl Strategy<Value = Peer> {
        (1..u64::MAX, any::<u32>(), any::<[u8; 16]>(), any::<u16>(), "[a-zä0-9.:-]{0,24}").prop_map(
            |(id, renewal, ip, port, name)| {
                let addr = SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port);
                Peer { id: NodeId(id), renewal, addr, name: name.into() }
            },
        )
    }

    fn headers() -> impl Strategy<Value = Header<Peer>> {
        (peers(), any::<u16>(), peers(), peers(), any::<u8>(), 0..11_u8).prop_map(
            |(src, src_incarnation, dst, other, probe_number, which)| {
                let message = match which {
                    0 => Message::Ping(probe_number),
                    1 => Message::Ack(probe_number),
                    2 => Message::PingReq { target: other, probe_number },
                    3 => Message::IndirectPing { origin: other, probe_number },
                    4 => Message::IndirectAck { target: other, probe_number },
                    5 => Message::ForwardedAck { origin: other, probe_number },
                    6 => Message::Announce,
                    7 => Message::Feed,
                    8 => Message::Gossip,
                    9 => Message::Broadcast,
                    _ => Message::TurnUndead,
                };
                Header { src, src_incarnation, dst, message }
            },
        )
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(header in headers(), peer in peers(), incarnation in any::<u16>(), which in 0..3) {
            let state = [State::Alive, State::Suspect, State::Down][which as usize];
            let member = Member::new(peer, incarnation, state);
            let mut bytes = Vec::new();
            PeerCodec.encode_header(&header, &mut bytes).unwrap();
            PeerCodec.encode_member(&member, &mut bytes).unwrap();
            let mut from = &bytes[..];
            prop_assert_eq!(PeerCodec.decode_header(&mut from).unwrap(), header);
            prop_assert_eq!(PeerCodec.decode_member(&mut from).unwrap(), member);
            prop_assert!(from.is_empty());
        }

        #[test]
        fn garbage_and_cut_packets_are_errors(header in headers(), cut in any::<u16>(), junk in vec(any::<u8>(), 0..200)) {
            let mut bytes = Vec::new();
            PeerCodec.encode_header(&header, &mut bytes).unwrap();
            let end = usize::from(cut) % bytes.len();
            prop_assert!(PeerCodec.decode_header(&bytes[..end]).is_err());
            let _ = PeerCodec.decode_header(&junk[..]);
            let _ = PeerCodec.decode_member(&junk[..]);
        }

        #[test]
        fn nothing_is_written_where_not_all_fits(header in headers(), room in 0..60_usize) {
            let mut out = Vec::new().limit(room);
            prop_assert!(PeerCodec.encode_header(&header, &mut out).is_err());
            prop_assert!(out.get_ref().is_empty());
        }

        #[test]
        fn one_of_two_lives_wins(a in peers(), b in peers()) {
            prop_assume!(a != b);
            prop_assert_ne!(a.win_addr_conflict(&b), b.win_addr_conflict(&a));
            prop_assert!(a.renew().is_none_or(|renewed| renewed.win_addr_conflict(&a)));
        }
    }
}
