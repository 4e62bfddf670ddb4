//! What an epoll event is about.

use loam_core::borrower::SpaceKey;

/// Where shims connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    Path,
    AbstractName,
}

/// Kind in the high byte, number below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// The socket at the path, and the one with the abstract name.
    Listener(Door),
    Control,
    Signals,
    Disk,
    Lender(u8),
    Faults(SpaceKey),
    Hand(SpaceKey),
    Peer(u32),
    Alarm,
    Cluster,
    Away,
    Stranger(u32),
}

impl Token {
    pub(super) const fn data(self) -> u64 {
        let (kind, n) = match self {
            Self::Listener(door) => (0_u64, door as u32),
            Self::Control => (1, 0),
            Self::Signals => (2, 0),
            Self::Disk => (3, 0),
            Self::Lender(n) => (4, n as u32),
            Self::Faults(key) => (5, key.0),
            Self::Hand(key) => (6, key.0),
            Self::Peer(n) => (7, n),
            Self::Alarm => (8, 0),
            Self::Cluster => (9, 0),
            Self::Away => (10, 0),
            Self::Stranger(n) => (11, n),
        };
        kind << 56 | n as u64
    }

    pub(super) fn from_data(data: u64) -> Self {
        let n = data as u32;
        match data >> 56 {
            0 if n == Door::Path as u32 => Self::Listener(Door::Path),
            0 => Self::Listener(Door::AbstractName),
            1 => Self::Control,
            2 => Self::Signals,
            3 => Self::Disk,
            4 => Self::Lender(n as u8),
            5 => Self::Faults(SpaceKey(n)),
            6 => Self::Hand(SpaceKey(n)),
            7 => Self::Peer(n),
            8 => Self::Alarm,
            9 => Self::Cluster,
            10 => Self::Away,
            _ => Self::Stranger(n),
        }
    }
}
