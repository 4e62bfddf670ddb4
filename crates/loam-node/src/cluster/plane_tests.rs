use super::*;
use crate::cluster::Front;
use crate::cluster::etcd::{Told, Trouble};
use crate::limits::{BORROWERS_MAX, GRACE};
use crate::regions::Desk;
use crate::slab::Slab;
use loam_core::lender::Lender;
use loam_core::units::Bytes;
use rustix::event::{EventfdFlags, eventfd};

/// The plane of a node whose site has an etcd, which is not there.
fn plane() -> Plane {
    let size = Bytes::from_mib(1);
    let lender = Lender::new(size.base_pages(), GRACE, BORROWERS_MAX);
    let (front, packets) = Front::new(NodeId(1), "test".to_owned(), "127.0.0.1:1".parse().unwrap(), true);
    let (slab, _) = Slab::create(size).unwrap();
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let shared = Arc::new(Shared::new(lender, slab, None, String::new(), front, bell, Desk::new().0));
    let site = Some("etcd://127.0.0.1:1".parse().unwrap());
    let config = ClusterConfig { etcd: site, ..ClusterConfig::default() };
    let dialer = Dialer::new("test", None);
    Plane::new(&shared, Vec::new(), &config, packets.expect("it is in a cluster"), dialer, 1)
}

/// Packets that come more quickly than they are handled kept the plane from hearing who had answered, and what etcd said, for as long as they came.
#[test]
fn a_flood_of_packets_keeps_no_answer_waiting() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut plane = plane();
        let addr = "127.0.0.1:2".parse().unwrap();
        plane.meetings.insert(addr);
        plane.met.0.try_send((addr, Ok(NodeId(5)))).unwrap();
        let wire = plane.wire.as_mut().expect("there is a site");
        wire.teller().try_send(Told { number: 0, answer: Err(Trouble::Failed("nobody".into())) }).unwrap();
        while plane.packets.len() < 2 * TURN_PACKETS_MAX {
            let packet = Packet { sender: NodeId(9), class: 99, bytes: Box::default() };
            assert!(plane.shared.front.deliver(packet));
        }
        let (_stop, mut stopped) = oneshot::channel();
        assert!(plane.turn(&mut stopped).await);
        assert!(!plane.packets.is_empty(), "there are always some");
        assert!(plane.meetings.is_empty(), "the answer was not heard");
        assert_eq!(plane.wire.as_mut().and_then(Wire::told_by_now), None, "etcd's word was not heard");
    });
}
