//! From which memory nodes of its machine a region gets its memory (NUMA; mbind(2)).

use std::fmt;
use std::str::FromStr;

/// Memory nodes have numbers below this: they are bits of a mask on the wire.
pub const MEMORY_NODES_MAX: u8 = 64;

/// Where the memory of a region comes from. Prints as it is parsed: `bind:0,2`, `interleave:0,1`, `preferred:1`, `local`; nothing said is `unset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemoryPolicy {
    /// As the kernel does without being told.
    #[default]
    Unset,
    /// Of the memory node of whoever takes the memory: the processor on which the node's thread of regions runs then.
    Local,
    /// Of these memory nodes (a bit each, not none) and of no other.
    Bind(u64),
    /// Of these memory nodes (a bit each, not none) by turns.
    Interleave(u64),
    /// Of this memory node, as far as it has some.
    Preferred(u8),
}

impl MemoryPolicy {
    /// The memory nodes that it names: a bit each.
    pub fn nodes(self) -> u64 {
        match self {
            Self::Unset | Self::Local => 0,
            Self::Bind(nodes) | Self::Interleave(nodes) => nodes,
            Self::Preferred(node) => 1 << node,
        }
    }

    /// Its number on the wire; with [`Self::nodes`] it is all of it.
    pub(crate) fn mode(self) -> u8 {
        match self {
            Self::Unset => 0,
            Self::Local => 1,
            Self::Bind(_) => 2,
            Self::Interleave(_) => 3,
            Self::Preferred(_) => 4,
        }
    }

    pub(crate) fn from_wire(mode: u8, nodes: u64) -> Option<Self> {
        match (mode, nodes.count_ones()) {
            (0, 0) => Some(Self::Unset),
            (1, 0) => Some(Self::Local),
            (2, 1..) => Some(Self::Bind(nodes)),
            (3, 1..) => Some(Self::Interleave(nodes)),
            (4, 1) => Some(Self::Preferred(nodes.trailing_zeros() as u8)),
            _ => None,
        }
    }
}

/// Numbers of the bits that are set, with commas between.
pub fn memory_nodes(mask: u64) -> String {
    let set = (0..MEMORY_NODES_MAX).filter(|node| mask >> node & 1 == 1);
    set.map(|node| node.to_string()).collect::<Vec<_>>().join(",")
}

impl fmt::Display for MemoryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset => f.write_str("unset"),
            Self::Local => f.write_str("local"),
            Self::Bind(nodes) => write!(f, "bind:{}", memory_nodes(*nodes)),
            Self::Interleave(nodes) => write!(f, "interleave:{}", memory_nodes(*nodes)),
            Self::Preferred(node) => write!(f, "preferred:{node}"),
        }
    }
}

/// That is no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Another word, or one without its memory nodes.
    #[error("not a policy: say bind:0, interleave:0,1, preferred:1 or local")]
    Word,
    /// What is there is no number of a memory node.
    #[error(
        "not numbers of memory nodes: say them as 0,1, each once and below {MEMORY_NODES_MAX} (/sys/devices/system/node shows them)"
    )]
    Nodes,
    /// More than one is preferred.
    #[error("one memory node can be preferred: say preferred:0, or interleave:0,1 for several")]
    Several,
}

impl FromStr for MemoryPolicy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        if text == "local" {
            return Ok(Self::Local);
        }
        let (word, list) = text.split_once(':').ok_or(PolicyError::Word)?;
        if !["bind", "interleave", "preferred"].contains(&word) {
            return Err(PolicyError::Word);
        }
        let mut nodes = 0_u64;
        for number in list.split(',') {
            // ("+1" and "01" are numbers for the parser, and for nobody else.)
            let plain = number.bytes().all(|byte| byte.is_ascii_digit())
                && !(number.len() > 1 && number.starts_with('0'));
            let node = number.parse().ok().filter(|node: &u8| plain && *node < MEMORY_NODES_MAX);
            let bit = 1 << node.ok_or(PolicyError::Nodes)?;
            if nodes & bit != 0 {
                return Err(PolicyError::Nodes);
            }
            nodes |= bit;
        }
        match word {
            "bind" => Ok(Self::Bind(nodes)),
            "interleave" => Ok(Self::Interleave(nodes)),
            _ if nodes.count_ones() > 1 => Err(PolicyError::Several),
            _ => Ok(Self::Preferred(nodes.trailing_zeros() as u8)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_as_they_are_written() {
        for (text, policy) in [
            ("local", MemoryPolicy::Local),
            ("bind:0", MemoryPolicy::Bind(1)),
            ("bind:0,2,63", MemoryPolicy::Bind(1 << 63 | 0b101)),
            ("interleave:0,1", MemoryPolicy::Interleave(0b11)),
            ("preferred:1", MemoryPolicy::Preferred(1)),
        ] {
            assert_eq!(text.parse(), Ok(policy));
            assert_eq!(policy.to_string(), text);
        }
        assert_eq!("bind:2,0".parse(), Ok(MemoryPolicy::Bind(0b101)));
        for (text, why) in [
            ("", PolicyError::Word),
            ("unset", PolicyError::Word),
            ("bind", PolicyError::Word),
            ("Bind:0", PolicyError::Word),
            ("local:0", PolicyError::Word),
            ("bind:", PolicyError::Nodes),
            ("bind:0,", PolicyError::Nodes),
            ("bind:0,0", PolicyError::Nodes),
            ("bind:+1", PolicyError::Nodes),
            ("bind:01", PolicyError::Nodes),
            ("bind:64", PolicyError::Nodes),
            ("bind:0-1", PolicyError::Nodes),
            ("bind: 0", PolicyError::Nodes),
            ("preferred:0,1", PolicyError::Several),
        ] {
            assert_eq!(text.parse::<MemoryPolicy>(), Err(why), "{text:?}");
        }
    }

    #[test]
    fn what_comes_by_wire_is_whole_or_nothing() {
        use MemoryPolicy::{Bind, Interleave, Local, Preferred, Unset};
        for policy in [Unset, Local, Bind(5), Interleave(u64::MAX), Preferred(63)] {
            assert_eq!(MemoryPolicy::from_wire(policy.mode(), policy.nodes()), Some(policy));
        }
        for (mode, nodes) in [(0, 1), (1, 1), (2, 0), (3, 0), (4, 0), (4, 3), (5, 0), (5, 1)] {
            assert_eq!(MemoryPolicy::from_wire(mode, nodes), None, "{mode} {nodes}");
        }
    }
}
