//! The bytes of what coordinators tell each other (`loam_core::global`), inside cluster frames of class 2.
//!
//! Each message is a tag and fields of fixed size, then lists with their counts; nothing may follow. Whatever comes out of [`decode`] is
//! safe to give to a coordinator: numbers that grow are far from their end, lists are in order, nobody is node 0.

use crate::limits::VIEW_NODES_MAX;
use loam_core::global::{
    AGE_BUCKETS, AgeSummary, EndReason, Epoch, EpochId, Message, Pod, PodVersion, Rates,
};
use loam_core::ids::NodeId;
use loam_core::units::Duration;

/// Numbers of epochs and PODs end below this: one a second for nine million years.
const NUMBER_MAX: u64 = 1 << 48;
/// Buckets of a POD, as a power of two: sixteen for each of [`VIEW_NODES_MAX`] nodes.
const POD_BUCKETS_LOG2_MAX: u8 = 14;

mod tag {
    pub(super) const EPOCH_REQUEST: u8 = 1;
    pub(super) const SUMMARY: u8 = 2;
    pub(super) const EPOCH_BEGINS: u8 = 3;
    pub(super) const EPOCH_ENDS: u8 = 4;
    pub(super) const POD: u8 = 5;
    pub(super) const POD_REQUEST: u8 = 6;
}

/// A message that is refused. The connection is whole; only this message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Its kind is not one of this version.
    #[error("unknown coordinator's message {0}: the peer may be a newer Loam")]
    Tag(u8),
    /// Its length is not what its kind and counts make it.
    #[error("a coordinator's message is cut or too long")]
    Length,
    /// A field has a value that has no meaning, or a list is too long or out of order.
    #[error("a coordinator's message has a field without meaning")]
    Field,
}

/// Appends `message`. Answers whether it could be said at all: a cluster beyond the limits (1024 nodes) has epochs and PODs that are too long.
#[must_use]
pub fn encode(out: &mut Vec<u8>, message: &Message) -> bool {
    match message {
        Message::EpochRequest { id } => {
            out.push(tag::EPOCH_REQUEST);
            put_epoch_id(out, *id);
        }
        Message::Summary { id, summary } => {
            out.push(tag::SUMMARY);
            put_epoch_id(out, *id);
            put(out, summary.replaced.to_le_bytes());
            put(out, summary.consumed.to_le_bytes());
            put(out, summary.cpu_busy_permille.to_le_bytes());
            summary.counts().iter().for_each(|count| put(out, count.to_le_bytes()));
        }
        Message::EpochBegins(epoch) => {
            if epoch.weights.len() > VIEW_NODES_MAX {
                return false;
            }
            out.push(tag::EPOCH_BEGINS);
            put_epoch_id(out, epoch.id);
            let Rates { replaced_milli, consumed_milli } = epoch.rates;
            let (duration, min_age) = (epoch.duration.0, epoch.min_age.0);
            let next = epoch.next_initiator.0;
            for number in [duration, epoch.replacements, min_age, next, replaced_milli, consumed_milli] {
                put(out, number.to_le_bytes());
            }
            put(out, (epoch.weights.len() as u16).to_le_bytes());
            for (node, weight) in &epoch.weights {
                put(out, node.0.to_le_bytes());
                put(out, weight.to_le_bytes());
            }
        }
        Message::EpochEnds { id, why } => {
            out.push(tag::EPOCH_ENDS);
            put_epoch_id(out, *id);
            out.push(match why {
                EndReason::Replaced => 0,
                EndReason::Inaccurate => 1,
            });
        }
        Message::Pod(pod) => return put_pod(out, pod),
        Message::PodRequest { version } => {
            out.push(tag::POD_REQUEST);
            put_pod_version(out, *version);
        }
    }
    true
}

/// Decodes one message, which must be all of `bytes`.
///
/// # Errors
/// [`MessageError`].
pub fn decode(bytes: &[u8]) -> Result<Message, MessageError> {
    let mut from = Reader(bytes);
    let message = match from.u8()? {
        tag::EPOCH_REQUEST => Message::EpochRequest { id: from.epoch_id()? },
        tag::SUMMARY => {
            let id = from.epoch_id()?;
            let (replaced, consumed, cpu_busy_permille) = (from.u32()?, from.u32()?, from.u16()?);
            if cpu_busy_permille > 1000 {
                return Err(MessageError::Field);
            }
            let mut counts = [0; AGE_BUCKETS];
            for count in &mut counts {
                *count = from.u32()?;
            }
            let mut summary = Box::new(AgeSummary::from_counts(counts));
            (summary.replaced, summary.consumed) = (replaced, consumed);
            summary.cpu_busy_permille = cpu_busy_permille;
            Message::Summary { id, summary }
        }
        tag::EPOCH_BEGINS => Message::EpochBegins(from.epoch()?.into()),
        tag::EPOCH_ENDS => {
            let id = from.epoch_id()?;
            let why = match from.u8()? {
                0 => EndReason::Replaced,
                1 => EndReason::Inaccurate,
                _ => return Err(MessageError::Field),
            };
            Message::EpochEnds { id, why }
        }
        tag::POD => Message::Pod(from.pod()?.into()),
        tag::POD_REQUEST => Message::PodRequest { version: from.pod_version()? },
        other => return Err(MessageError::Tag(other)),
    };
    if from.0.is_empty() { Ok(message) } else { Err(MessageError::Length) }
}

fn put<const N: usize>(out: &mut Vec<u8>, bytes: [u8; N]) {
    out.extend_from_slice(&bytes);
}

fn put_epoch_id(out: &mut Vec<u8>, id: EpochId) {
    put(out, id.number.to_le_bytes());
    put(out, id.initiator.0.to_le_bytes());
}

fn put_pod_version(out: &mut Vec<u8>, version: PodVersion) {
    put(out, version.number.to_le_bytes());
    put(out, version.master.0.to_le_bytes());
}

/// The owners once each, ascending, then which of them has each bucket.
fn put_pod(out: &mut Vec<u8>, pod: &Pod) -> bool {
    let mut owners = pod.owners().to_vec();
    owners.sort_unstable();
    owners.dedup();
    let buckets = pod.owners().len();
    if owners.len() > VIEW_NODES_MAX || !buckets.is_power_of_two() || buckets > 1 << POD_BUCKETS_LOG2_MAX {
        return false;
    }
    out.push(tag::POD);
    put_pod_version(out, pod.version());
    put(out, (owners.len() as u16).to_le_bytes());
    out.push(buckets.ilog2() as u8);
    owners.iter().for_each(|owner| put(out, owner.0.to_le_bytes()));
    for owner in pod.owners() {
        let place = owners.binary_search(owner).expect("it is among them");
        put(out, (place as u16).to_le_bytes());
    }
    true
}

/// What is left of a message.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(MessageError::Length)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, MessageError> {
        self.take().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, MessageError> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, MessageError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, MessageError> {
        self.take().map(u64::from_le_bytes)
    }

    fn number(&mut self) -> Result<u64, MessageError> {
        self.u64().and_then(|number| if number < NUMBER_MAX { Ok(number) } else { Err(MessageError::Field) })
    }

    fn node(&mut self) -> Result<NodeId, MessageError> {
        self.u64().and_then(|id| if id != 0 { Ok(NodeId(id)) } else { Err(MessageError::Field) })
    }

    /// A count of nodes; refused before anything is allocated for them.
    fn nodes(&mut self, bytes_each: usize) -> Result<usize, MessageError> {
        let count = usize::from(self.u16()?);
        if count > VIEW_NODES_MAX {
            return Err(MessageError::Field);
        }
        if self.0.len() < count * bytes_each { Err(MessageError::Length) } else { Ok(count) }
    }

    fn epoch_id(&mut self) -> Result<EpochId, MessageError> {
        Ok(EpochId { number: self.number()?, initiator: self.node()? })
    }

    /// Whoever has no POD yet asks with that of nobody.
    fn pod_version(&mut self) -> Result<PodVersion, MessageError> {
        Ok(PodVersion { number: self.number()?, master: NodeId(self.u64()?) })
    }

    fn epoch(&mut self) -> Result<Epoch, MessageError> {
        let id = self.epoch_id()?;
        let (duration, replacements) = (Duration(self.u64()?), self.u64()?);
        let (min_age, next_initiator) = (Duration(self.u64()?), self.node()?);
        let rates = Rates { replaced_milli: self.u64()?, consumed_milli: self.u64()? };
        let count = self.nodes(12)?;
        let mut weights = Vec::with_capacity(count);
        for _ in 0..count {
            weights.push((self.node()?, self.u32()?));
        }
        if !weights.is_sorted_by(|(a, _), (b, _)| a < b) {
            return Err(MessageError::Field);
        }
        Ok(Epoch { id, duration, replacements, min_age, weights, next_initiator, rates })
    }

    fn pod(&mut self) -> Result<Pod, MessageError> {
        let version = self.pod_version()?;
        let count = self.nodes(8)?;
        let log2 = self.u8()?;
        if log2 > POD_BUCKETS_LOG2_MAX {
            return Err(MessageError::Field);
        }
        let nodes: Vec<NodeId> = (0..count).map(|_| self.node()).collect::<Result<_, _>>()?;
        if self.0.len() != 2 << log2 {
            return Err(MessageError::Length);
        }
        let owner = |place: u16| nodes.get(usize::from(place)).copied().ok_or(MessageError::Field);
        let owners = (0..1 << log2).map(|_| self.u16().and_then(owner)).collect::<Result<_, _>>()?;
        if !nodes.is_sorted_by(|a, b| a < b) {
            return Err(MessageError::Field);
        }
        Pod::from_owners(version, owners).ok_or(MessageError::Field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    fn messages() -> impl Strategy<Value = Message> {
        let id = (0..NUMBER_MAX, 1..u64::MAX)
            .prop_map(|(number, initiator)| EpochId { number, initiator: NodeId(initiator) });
        let version = (0..NUMBER_MAX, any::<u64>())
            .prop_map(|(number, master)| PodVersion { number, master: NodeId(master) });
        let summary = (id.clone(), vec(any::<u32>(), AGE_BUCKETS), any::<[u32; 2]>(), 0..1001_u16).prop_map(
            |(id, counts, [replaced, consumed], cpu_busy_permille)| {
                let mut summary = Box::new(AgeSummary::from_counts(counts.try_into().unwrap()));
                (summary.replaced, summary.consumed) = (replaced, consumed);
                summary.cpu_busy_permille = cpu_busy_permille;
                Message::Summary { id, summary }
            },
        );
        let begins = (id.clone(), any::<[u64; 5]>(), 1..u64::MAX, btree_set(1..u64::MAX, 0..40)).prop_map(
            |(id, [duration, replacements, min_age, replaced_milli, consumed_milli], next, nodes)| {
                Message::EpochBegins(
                    Epoch {
                        id,
                        duration: Duration(duration),
                        replacements,
                        min_age: Duration(min_age),
                        weights: nodes.iter().map(|node| (NodeId(*node), (node >> 7) as u32)).collect(),
                        next_initiator: NodeId(next),
                        rates: Rates { replaced_milli, consumed_milli },
                    }
                    .into(),
                )
            },
        );
        let pod = btree_set(1..u64::MAX, 1..40).prop_map(|nodes| {
            let nodes: Vec<NodeId> = nodes.into_iter().map(NodeId).collect();
            Message::Pod(Pod::default().changed(&nodes, nodes[0]).into())
        });
        prop_oneof![
            id.clone().prop_map(|id| Message::EpochRequest { id }),
            summary,
            begins,
            (id, any::<bool>()).prop_map(|(id, replaced)| {
                let why = if replaced { EndReason::Replaced } else { EndReason::Inaccurate };
                Message::EpochEnds { id, why }
            }),
            pod,
            version.prop_map(|version| Message::PodRequest { version }),
        ]
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(message in messages()) {
            let mut bytes = Vec::new();
            prop_assert!(encode(&mut bytes, &message));
            prop_assert!(bytes.len() <= crate::limits::CLUSTER_BYTES_MAX);
            prop_assert_eq!(decode(&bytes).unwrap(), message);
            for end in 0..bytes.len() {
                prop_assert!(decode(&bytes[..end]).is_err());
            }
            bytes.push(0);
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn garbage_is_refused_or_has_one_meaning(tag in 0..8_u8, mut bytes in vec(any::<u8>(), 0..400)) {
            bytes.insert(0, tag);
            if let Ok(message) = decode(&bytes) {
                let mut again = Vec::new();
                prop_assert!(encode(&mut again, &message));
                prop_assert_eq!(decode(&again).unwrap(), message);
            }
        }
    }

    #[test]
    fn the_largest_cluster_fits_and_a_larger_one_is_not_said() {
        let nodes = |count: u64| (1..=count).map(NodeId).collect::<Vec<_>>();
        let pod = Message::Pod(Pod::default().changed(&nodes(1024), NodeId(1)).into());
        let mut bytes = Vec::new();
        assert!(encode(&mut bytes, &pod));
        assert!(bytes.len() < crate::limits::CLUSTER_BYTES_MAX, "{}", bytes.len());
        assert_eq!(decode(&bytes).unwrap(), pod);
        let pod = Message::Pod(Pod::default().changed(&nodes(1025), NodeId(1)).into());
        assert!(!encode(&mut Vec::new(), &pod));
    }

    /// With these a coordinator that adds one would end.
    #[test]
    fn numbers_near_their_end_and_node_zero_are_refused() {
        let request = |number: u64, initiator: u64| {
            let mut bytes = vec![tag::EPOCH_REQUEST];
            bytes.extend(number.to_le_bytes());
            bytes.extend(initiator.to_le_bytes());
            bytes
        };
        assert!(decode(&request(NUMBER_MAX - 1, 1)).is_ok());
        assert_eq!(decode(&request(NUMBER_MAX, 1)), Err(MessageError::Field));
        assert_eq!(decode(&request(u64::MAX, 1)), Err(MessageError::Field));
        assert_eq!(decode(&request(1, 0)), Err(MessageError::Field));
        assert_eq!(decode(&[99]), Err(MessageError::Tag(99)));
        assert_eq!(decode(&[]), Err(MessageError::Length));
    }
}
