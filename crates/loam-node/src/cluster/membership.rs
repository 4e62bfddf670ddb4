//! What the node needs of a membership service: who lives, and what to do so that this stays known.
//!
//! As the machines of `loam-core` it does no I/O: inputs by `handle_*`, effects by `poll_effect`, time as an argument. [`super::swim::Swim`] is the
//! one that is built in; [`super::etcd::EtcdMembers`] has a site's own service.

use super::etcd::{Ask, Told};
use super::peer::Peer;
use loam_core::ids::NodeId;
use loam_core::units::Instant;
use std::net::SocketAddr;

/// What the driver shall do for the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemberEffect {
    /// Bring these bytes to a member. They may be lost.
    Send {
        /// To whom.
        to: Peer,
        /// What.
        bytes: Vec<u8>,
    },
    /// Ask who listens there, and tell by [`Membership::handle_met`] if somebody answers.
    Meet(SocketAddr),
    /// Ask the site's service, and tell by [`Membership::handle_told`] what it says.
    Ask(Ask),
    /// [`Membership::members`] has changed.
    Changed,
    /// Something that the people who run the cluster should see.
    Warn(String),
}

/// A membership service, as its driver sees it.
pub(crate) trait Membership {
    /// Bytes that another node's membership sent.
    fn handle_packet(&mut self, now: Instant, bytes: &[u8]);
    /// Life `id` answered at `addr`.
    fn handle_met(&mut self, now: Instant, addr: SocketAddr, id: NodeId);
    /// The site's service has answered. Who asks nothing hears nothing.
    fn handle_told(&mut self, _now: Instant, _told: Told) {}
    /// Time has come to [`Membership::poll_timeout`].
    fn handle_timeout(&mut self, now: Instant);
    /// This node ends: tells the others.
    fn handle_leave(&mut self, now: Instant);
    /// When to call [`Membership::handle_timeout`].
    fn poll_timeout(&self) -> Option<Instant>;
    /// The next thing to do; call until there is none.
    fn poll_effect(&mut self) -> Option<MemberEffect>;
    /// The living, this node among them, by ascending id.
    fn members(&self) -> Vec<Peer>;
    /// Whether the site's service answers, so that the members are those of now.
    fn answers(&self) -> bool {
        true
    }
}
