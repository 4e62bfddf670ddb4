//! An etcd of the tests: keys, leases, revisions, and no network.

use super::{Answer, Call, Change, Trouble};
use loam_core::units::{Duration, Instant};
use std::collections::BTreeMap;

/// An etcd, as far as nodes can tell.
#[derive(Default)]
pub(super) struct FakeEtcd {
    pub(super) down: bool,
    pub(super) revision: u64,
    pub(super) compacted: u64,
    keys: BTreeMap<Vec<u8>, (Vec<u8>, u64)>,
    leases: BTreeMap<u64, (Duration, Instant)>,
    last_lease: u64,
    pub(super) history: Vec<(u64, Change)>,
}

impl FakeEtcd {
    fn happens(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        self.revision += 1;
        self.history.push((self.revision, Change { key: key.to_vec(), value }));
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8], lease: u64) {
        self.keys.insert(key.to_vec(), (value.to_vec(), lease));
        self.happens(key, Some(value.to_vec()));
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if self.keys.remove(key).is_some() {
            self.happens(key, None);
        }
    }

    fn end_lease(&mut self, lease: u64) {
        self.leases.remove(&lease);
        let of_it = |(key, (_, of)): (&Vec<u8>, &(Vec<u8>, u64))| (*of == lease).then(|| key.clone());
        let keys: Vec<Vec<u8>> = self.keys.iter().filter_map(of_it).collect();
        keys.iter().for_each(|key| self.remove(key));
    }

    pub(super) fn pass_time(&mut self, now: Instant) {
        let over = |(lease, (_, until)): (&u64, &(Duration, Instant))| (*until <= now).then_some(*lease);
        let over: Vec<u64> = self.leases.iter().filter_map(over).collect();
        over.into_iter().for_each(|lease| self.end_lease(lease));
    }

    /// It starts: leases have all their time again; or it knows nothing.
    pub(super) fn start(&mut self, now: Instant, with_data: bool) {
        if with_data {
            self.leases.values_mut().for_each(|(ttl, until)| *until = now + *ttl);
        } else {
            *self = Self { revision: 1, last_lease: self.last_lease, ..Self::default() };
        }
        self.down = false;
    }

    pub(super) fn answer(&mut self, now: Instant, call: &Call) -> Result<Answer, Trouble> {
        match call {
            Call::Grant { ttl_s } => {
                self.last_lease += 1;
                self.leases.insert(
                    self.last_lease,
                    (Duration::from_millis(ttl_s * 1000), now + Duration::from_millis(ttl_s * 1000)),
                );
                Ok(Answer::Granted { lease: self.last_lease })
            }
            Call::Keep { lease } => {
                let kept = self.leases.get_mut(lease).map(|(ttl, until)| *until = now + *ttl);
                Ok(Answer::Kept(kept.is_some()))
            }
            Call::Put { lease, .. } | Call::Revoke { lease } if !self.leases.contains_key(lease) => {
                Err(Trouble::LeaseGone)
            }
            Call::Put { lease, key, value } => {
                self.put(key.as_bytes(), value.as_bytes(), *lease);
                Ok(Answer::Done)
            }
            Call::Remove { key } => {
                self.remove(key.as_bytes());
                Ok(Answer::Done)
            }
            Call::List => {
                let keys = self.keys.iter();
                let keys =
                    keys.map(|(key, (value, _))| Change { key: key.clone(), value: Some(value.clone()) });
                Ok(Answer::Listed { revision: self.revision.max(1), keys: keys.collect() })
            }
            Call::Revoke { lease } => {
                self.end_lease(*lease);
                Ok(Answer::Done)
            }
            Call::Watch { .. } => Ok(Answer::Watching),
        }
    }
}
