//! Tells the directory's keepers what this mount has and has no longer, and holders that theirs is the last copy: on a thread of
//! its own, many at once, so that no reader waits for it. When there is more news than can be told, the rest is
//! dropped: hints.

use super::NodeId;
use super::group::{Members, Shared};
use super::rendezvous::keeper;
use crate::run::RunKey;
use loam_wire::limits::REGISTER_EXTENTS_MAX;
use loam_wire::mount::{self, ExtentRef, ExtentRuns};
use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

/// News that may wait.
pub(crate) const NEWS_MAX: usize = 1 << 16;
/// News that is told at once.
const BATCH_MAX: usize = 4096;
/// How long the first piece of news waits for others.
const GATHER: Duration = Duration::from_millis(3);

/// Something to be told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum News {
    /// This mount has it.
    Have(RunKey),
    /// This mount has it no longer.
    Gone(RunKey),
    /// The node has the last copy of these.
    Last(NodeId, ExtentRuns),
}

/// Runs by extent.
type Masks = BTreeMap<ExtentRef, u8>;

/// Tells news until the other end of `news` is dropped.
pub(crate) fn run(shared: &Shared, news: &Receiver<News>) {
    while let Ok(first) = news.recv() {
        let mut own = BTreeMap::new();
        let mut last: BTreeMap<NodeId, Vec<ExtentRuns>> = BTreeMap::new();
        let mut next = Some(first);
        let mut taken = 0;
        // Asleep: who has news wakes nobody meanwhile.
        thread::sleep(GATHER);
        while let Some(news_item) = next {
            // What comes later counts: a run may come and go within one batch.
            match news_item {
                News::Have(key) => drop(own.insert(key, true)),
                News::Gone(key) => drop(own.insert(key, false)),
                News::Last(node, runs) => last.entry(node).or_default().push(runs),
            }
            taken += 1;
            next = if taken < BATCH_MAX { news.try_recv().ok() } else { None };
        }
        let members = shared.members();
        tell_own(shared, &members, &own);
        for (node, runs) in last {
            tell_last(shared, node, &runs);
        }
    }
}

fn tell_own(shared: &Shared, members: &Members, own: &BTreeMap<RunKey, bool>) {
    let mut by_keeper: BTreeMap<NodeId, (Masks, Masks)> = BTreeMap::new();
    for (key, &have) in own {
        let (registered, given_up) = by_keeper.entry(keeper(key.extent(), members)).or_default();
        *(if have { registered } else { given_up }).entry(key.extent()).or_default() |= key.bit();
    }
    for (node, (registered, given_up)) in by_keeper {
        let listed = |masks: &Masks| -> Vec<ExtentRuns> {
            masks.iter().map(|(extent, runs)| ExtentRuns::new(*extent, *runs)).collect()
        };
        let (registered, given_up) = (listed(&registered), listed(&given_up));
        if node == shared.card.node {
            shared.register(node, &registered);
            shared.unregister(node, &given_up);
            continue;
        }
        let Some(peer) = shared.peer_of(node) else { continue };
        // Nobody who does not answer is asked again here: the news is lost.
        let _ = peer.ask(|link| {
            for chunk in registered.chunks(REGISTER_EXTENTS_MAX) {
                link.send(|out| mount::register(out, chunk))?;
            }
            for chunk in given_up.chunks(REGISTER_EXTENTS_MAX) {
                link.send(|out| mount::unregister(out, chunk))?;
            }
            Ok(())
        });
    }
}

fn tell_last(shared: &Shared, node: NodeId, runs: &[ExtentRuns]) {
    if node == shared.card.node {
        shared.have_last(runs);
    } else if let Some(peer) = shared.peer_of(node) {
        let _ = peer.ask(|link| {
            runs.chunks(REGISTER_EXTENTS_MAX)
                .try_for_each(|chunk| link.send(|out| mount::last_copy(out, chunk)))
        });
    }
}
