//! Places for connections: so many of each kind, so that none of them keeps another out.
//!
//! Who comes over the network is a *stranger*, until its hello says that it is a *guest*, which borrows or asks. A guest that says what only nodes say is a
//! *link*. A node has said hello as who only asks does, so one of those for whom there is no place as a guest stays a stranger for a while.
//! Programs of this machine have places of their own, and no user of it has all of them.

use crate::limits::{CONNECTIONS_MAX, LINKS_MAX, LOCAL_CONNECTIONS_MAX, LOCAL_USER_CONNECTIONS_MAX};
use crate::service::Refusal;
use crate::shared::Shared;
use loam_wire::{Frame, error_code};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// What peers that find no place are told.
pub(crate) const NO_PLACE: &str = "this lender has too many connections: try another";

/// Who has a place. See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Stranger,
    Guest,
    Link,
    /// A program of this user.
    Local(u32),
}

/// How many have one.
#[derive(Debug, Default)]
struct Taken {
    strangers: usize,
    guests: usize,
    links: usize,
    locals: usize,
    users: BTreeMap<u32, usize>,
}

impl Taken {
    fn take(&mut self, kind: Kind) -> bool {
        let (taken, most) = match kind {
            Kind::Stranger => (&mut self.strangers, CONNECTIONS_MAX),
            Kind::Guest => (&mut self.guests, CONNECTIONS_MAX),
            Kind::Link => (&mut self.links, LINKS_MAX),
            Kind::Local(user) => {
                if self.locals >= LOCAL_CONNECTIONS_MAX {
                    return false;
                }
                let of_user = self.users.entry(user).or_default();
                if *of_user >= LOCAL_USER_CONNECTIONS_MAX {
                    return false;
                }
                *of_user += 1;
                (&mut self.locals, LOCAL_CONNECTIONS_MAX)
            }
        };
        let takes = *taken < most;
        *taken += usize::from(takes);
        takes
    }

    fn give_back(&mut self, kind: Kind) {
        match kind {
            Kind::Stranger => self.strangers -= 1,
            Kind::Guest => self.guests -= 1,
            Kind::Link => self.links -= 1,
            Kind::Local(user) => {
                self.locals -= 1;
                let of_user = self.users.get_mut(&user).expect("it has taken one");
                *of_user -= 1;
                if *of_user == 0 {
                    self.users.remove(&user);
                }
            }
        }
    }
}

/// All places of a lender.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Taken>);

impl Places {
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().expect("nothing panics under it")
    }

    /// Connections that are open.
    pub(crate) fn taken(&self) -> usize {
        let taken = self.lock();
        taken.strangers + taken.guests + taken.links + taken.locals
    }
}

/// Counts a connection for as long as it lives.
#[derive(Debug)]
pub(crate) struct Place {
    shared: Arc<Shared>,
    kind: Kind,
}

impl Place {
    /// A place for one more connection, if there is one.
    pub(crate) fn take(shared: &Arc<Shared>, kind: Kind) -> Option<Self> {
        shared.places.lock().take(kind).then(|| Self { shared: Arc::clone(shared), kind })
    }

    /// Its peer may go any moment for want of a better one.
    pub(crate) fn is_strangers(&self) -> bool {
        self.kind == Kind::Stranger
    }

    /// The place of who says this.
    pub(crate) fn settle(&mut self, frame: &Frame<'_>) -> Result<(), Refusal> {
        let has = match frame {
            // A node, perhaps.
            Frame::Hello { space: 0, .. } => self.becomes(Kind::Guest) || self.is_strangers(),
            Frame::Cluster { .. } => self.becomes(Kind::Link),
            _ => self.becomes(Kind::Guest),
        };
        let refusal = || Refusal { code: error_code::BUSY, text: NO_PLACE.to_owned() };
        has.then_some(()).ok_or_else(refusal)
    }

    fn becomes(&mut self, kind: Kind) -> bool {
        // A node may ask, too.
        let is_that = matches!(self.kind, Kind::Local(_) | Kind::Link) || self.kind == kind;
        if !is_that {
            let mut taken = self.shared.places.lock();
            if !taken.take(kind) {
                return false;
            }
            taken.give_back(std::mem::replace(&mut self.kind, kind));
        }
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.places.lock().give_back(self.kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_kind_and_no_user_keeps_another_out() {
        let mut taken = Taken::default();
        let all = |taken: &mut Taken, kind| (0..10_000).take_while(|_| taken.take(kind)).count();
        for (kind, most) in [
            (Kind::Stranger, CONNECTIONS_MAX),
            (Kind::Guest, CONNECTIONS_MAX),
            (Kind::Link, LINKS_MAX),
            (Kind::Local(1000), LOCAL_USER_CONNECTIONS_MAX),
            (Kind::Local(1001), LOCAL_CONNECTIONS_MAX - LOCAL_USER_CONNECTIONS_MAX),
            (Kind::Local(1002), 0),
        ] {
            assert_eq!(all(&mut taken, kind), most, "{kind:?}");
        }
        taken.give_back(Kind::Local(1001));
        assert_eq!(all(&mut taken, Kind::Local(1000)), 0);
        assert_eq!(all(&mut taken, Kind::Local(1002)), 1);
    }
}
