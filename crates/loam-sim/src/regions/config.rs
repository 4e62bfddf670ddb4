//! The prototype's times (sections III to V).

use crate::multiprocessor::config::Rate;
use crate::multiprocessor::mesh::Mesh;
use loam_core::units::Duration;

/// What the paper prints: the `input` rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inputs {
    /// Nodes of the mesh.
    pub nodes: usize,
    /// A load from a neighbour in the benchmark that draws a random place each time (figure 6).
    pub random: Duration,
    /// The same with a fixed stride.
    pub stride: Duration,
    /// What each further hop adds, there and back.
    pub hop: Duration,
    /// Loads that a core may have under way to remote memory.
    pub remote_loads: usize,
    /// And to local memory.
    pub local_loads: usize,
    /// Bits of an address that name a node.
    pub node_bits: u32,
}

/// Where the part of a load is spent that is neither network nor memory. The paper prints the whole only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Division {
    /// A server's controller takes for a pass a third of what a hop takes in one direction, since it is one crossing of the same FPGA, without a fibre; the client's
    /// side takes the rest. A client's controller has room for one request beside the one in hand; another one is refused, which takes as long as a server's
    /// pass, and asked again at once.
    Rest,
    /// The same, but a server's pass is half of a hop in one direction.
    RestSlowServers,
    /// The same as the first, but a client's controller has no room beside the request in hand.
    RestNoRoom,
    /// Both: no room, and slow servers.
    RestNoRoomSlowServers,
    /// The same as the first, but there is always room.
    RestQueued,
    /// The same as the first, but a server has one engine for both directions.
    RestOneEngine,
    /// The same as the first, but links are half as fast.
    RestSlowLinks,
    /// The same as the first, but a core that was refused asks again a client's pass later.
    RestLater,
    /// The same as the first, but a refusal costs twice as much.
    RestDearRefusals,
    /// Client and server take the same.
    Equal,
}

impl Division {
    /// The first is what the reproduction takes.
    pub const ALL: [Self; 10] = [
        Self::Rest,
        Self::RestSlowServers,
        Self::RestNoRoom,
        Self::RestNoRoomSlowServers,
        Self::RestQueued,
        Self::RestOneEngine,
        Self::RestSlowLinks,
        Self::RestLater,
        Self::RestDearRefusals,
        Self::Equal,
    ];

    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rest => "as assumed",
            Self::RestSlowServers => "a server's pass is half of a hop",
            Self::RestNoRoom => "no room beside the request in hand",
            Self::RestNoRoomSlowServers => "both of these",
            Self::RestQueued => "no request is refused",
            Self::RestOneEngine => "one engine in a server",
            Self::RestSlowLinks => "links half as fast",
            Self::RestLater => "asks again a pass later",
            Self::RestDearRefusals => "refusals cost twice as much",
            Self::Equal => "client and server take the same",
        }
    }
}

/// From a server's controller to its motherboard's memory and back: a load in an Opteron's own node takes about 100 ns.
pub const MEMORY: Duration = Duration(100);
/// Bytes of a read request: an 8-byte HyperTransport command with a 4-byte address extension.
pub const REQUEST_BYTES: u64 = 12;
/// And of its answer: a line and its header.
pub const RESPONSE_BYTES: u64 = 76;
/// A link carries what HTX does at 16 bits and 800 million transfers a second. Only how long it is in use depends on it: what a hop takes is printed.
const LINK_MB_PER_S: f64 = 1600.0;
/// Requests that a client's controller has room for: the one that it works on, and one that waits.
const ROOM: usize = 2;

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Nodes of the mesh.
    pub nodes: usize,
    /// What the random benchmark takes to draw a place: the mean. It is anything from half to one and a half of that, since places are in other pages and the
    /// processor finds their addresses sooner or later; threads in step would meet either always or never.
    pub draw: Duration,
    /// A hop, in one direction.
    pub hop: Duration,
    /// A link's rate.
    pub link: Rate,
    /// What a client's controller takes for a request, and as much again for its answer. It does one thing at a time.
    pub client_pass: Duration,
    /// What a server's takes, in each direction.
    pub server_pass: Duration,
    /// A server has one engine for each direction.
    pub server_duplex: bool,
    /// The memory behind it.
    pub memory: Duration,
    /// Requests that a client's controller has room for.
    pub room: usize,
    /// What it takes to refuse one.
    pub refusal: Duration,
    /// So long after it was refused a core asks again.
    pub again: Duration,
}

impl Config {
    /// What follows from the inputs under a division.
    ///
    /// # Panics
    /// If the inputs leave nothing for the controllers, or are another machine's.
    pub fn of(inputs: &Inputs, division: Division) -> Self {
        assert_eq!(inputs.remote_loads, 1, "a thread waits for its load before the next one");
        assert!(
            inputs.nodes < 1 << inputs.node_bits,
            "each node has a name in an address, and 0 is nobody's"
        );
        let hop = Duration(inputs.hop.0 / 2);
        let controllers =
            inputs.stride.0.checked_sub(inputs.hop.0 + MEMORY.0).expect("a load takes more than its way");
        let server_pass = match division {
            Division::Equal => controllers / 4,
            Division::RestSlowServers | Division::RestNoRoomSlowServers => hop.0 / 2,
            _ => hop.0 / 3,
        };
        let client_pass =
            (controllers / 2).checked_sub(server_pass).expect("a client's controller takes something");
        let rate = if division == Division::RestSlowLinks { LINK_MB_PER_S / 2.0 } else { LINK_MB_PER_S };
        let dear = if division == Division::RestDearRefusals { 2 } else { 1 };
        Self {
            nodes: inputs.nodes,
            draw: Duration(inputs.random.0 - inputs.stride.0),
            hop,
            link: Rate::mb_per_s(rate),
            client_pass: Duration(client_pass),
            server_pass: Duration(server_pass),
            server_duplex: division != Division::RestOneEngine,
            memory: MEMORY,
            room: match division {
                Division::RestQueued => usize::MAX,
                Division::RestNoRoom | Division::RestNoRoomSlowServers => ROOM - 1,
                _ => ROOM,
            },
            refusal: Duration(server_pass * dear),
            again: Duration(if division == Division::RestLater { client_pass } else { 0 }),
        }
    }

    /// The nodes' mesh, with nothing under way.
    pub fn mesh(&self) -> Mesh {
        Mesh::new(self.nodes, self.link, self.hop)
    }

    /// A load over so many hops with nobody else about.
    pub fn unloaded(&self, hops: u64) -> Duration {
        Duration(2 * (self.client_pass.0 + self.server_pass.0 + hops * self.hop.0) + self.memory.0)
    }
}
