//! Addresses with the node in front (regions-2010, section III.B, figure 3).

use core::fmt;

/// Bits of an address that name the node (section III.B: "the 14 most significant bits").
pub const NODE_BITS: u32 = 14;
/// The highest number of a node.
pub const NODES_MAX: u16 = (1 << NODE_BITS) - 1;

/// A node's number in addresses: 1 to 2^14 - 1. There is no node 0, since that prefix means "here" on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionNode(u16);

impl RegionNode {
    /// The node of that number; `None` for 0 and for what does not fit into 14 bits.
    pub const fn new(number: u16) -> Option<Self> {
        if number == 0 || number > NODES_MAX { None } else { Some(Self(number)) }
    }
    /// Its number.
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// A byte of the cluster's memory: a node's number in the high bits, its own address below. Prints as `0x000c41000000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#014x}", self.0)
    }
}

/// Who answers for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The node itself, at its own address.
    Here(u64),
    /// Another node; the address goes there as it is.
    There(RegionNode),
}

/// Why an address is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has the node's own number. In the paper it would reach the node's own memory by a detour ("loopback mode"), and "this will never
    /// happen in practice because of the way memory is reserved": here it is refused, so that one byte has one address.
    Loopback,
    /// It came to the wrong node, or has bits above the width of an address.
    NotMine,
}

/// How wide an address is, and so how much memory a node can have (footnote 2 of the paper: it depends on both).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Layout {
    bits: u32,
}

impl Layout {
    /// The paper's processors: 48 bits, 16 GiB a node.
    pub const PAPER: Self = Self { bits: 48 };
    /// 64 bits, 1 PiB a node.
    pub const WIDE: Self = Self { bits: 64 };

    /// Bytes that a node can have.
    pub const fn node_bytes(self) -> u64 {
        1 << (self.bits - NODE_BITS)
    }

    /// What the lender sends back: its own address with its number in front. `None` if the address is not one that a node can have.
    pub fn prefixed(self, node: RegionNode, local: u64) -> Option<Address> {
        let prefix = u64::from(node.number()) << (self.bits - NODE_BITS);
        (local < self.node_bytes()).then_some(Address(prefix | local))
    }

    /// The number in front, and the rest.
    fn split(self, address: Address) -> (u64, u64) {
        (address.0 / self.node_bytes(), address.0 % self.node_bytes())
    }

    /// What node `own` does with a load or store at `address`.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn route(self, own: RegionNode, address: Address) -> Result<Route, Refusal> {
        let (prefix, local) = self.split(address);
        let prefix = u16::try_from(prefix).map_err(|_| Refusal::NotMine)?;
        match RegionNode::new(prefix) {
            Some(node) if node == own => Err(Refusal::Loopback),
            Some(node) => Ok(Route::There(node)),
            None if prefix == 0 => Ok(Route::Here(local)),
            None => Err(Refusal::NotMine),
        }
    }

    /// What node `own` makes of an address that came from another: it sets the prefix to zero (section III.B). No table is needed for it.
    ///
    /// # Errors
    /// [`Refusal::NotMine`].
    pub fn received(self, own: RegionNode, address: Address) -> Result<u64, Refusal> {
        let (prefix, local) = self.split(address);
        if prefix == u64::from(own.number()) { Ok(local) } else { Err(Refusal::NotMine) }
    }
}
