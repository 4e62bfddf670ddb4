//! The checkers: DESIGN.md section 2, rules 1 and 2, that everybody is answered, that everything comes back, that counts agree.
//!
//! What a thread reads and what is installed is checked where it happens ([`super::threads`], [`super::effects`]).

use super::hand::hash_of;
use super::kernel::{Page, Process, Waits};
use super::node::Node;
use super::seat::Seat;
use super::sim::{FailureKind, Sim};
use loam_core::borrower::{BaseState, CopyView, LenderIndex};
use loam_core::units::{BasePages, Duration};

/// What everybody refused is offered again this often.
const STUCK_AGAIN: Duration = Duration::from_millis(1_000);

/// Rule 2, for every page of every process, and the borrowers' own counts.
pub(crate) fn everything(seats: &mut [Seat], sim: &mut Sim) {
    for seat in seats {
        seat.borrower.audit();
        let mut mended = Vec::new();
        for process in seat.processes.values().filter(|p| p.known && !p.ended && !p.is_changing()) {
            for (i, page) in process.pages.iter().enumerate() {
                let missing = page.mapped && page.registered && page.present.is_none();
                if missing && page.truth != 0 && page.also.is_none() {
                    let base = process.base_of(i);
                    if let Err(why) = page_is_safe(seat, process, base, page, sim) {
                        let (index, key, value) = (seat.index, process.key.0, page.truth);
                        sim.fail(FailureKind::Unsafe, || {
                            format!("borrower {index}: page {base} of process {key} (value {value}) {why}")
                        });
                        return;
                    }
                    let copy = seat.borrower.copy_of(process.key, base);
                    let harmed = copy.filter(|copy| seat.harmed.get(&copy.index) == Some(&copy.version));
                    mended.extend(harmed.filter(|copy| has_its_places(seat, copy, page.truth, sim)));
                }
            }
        }
        mended.into_iter().for_each(|copy| seat.is_mended((copy.index, copy.version)));
    }
}

/// With the write cache: what has lost a lender is with as many as it is to be with, a while after the last fault, or nobody has room for it. What is missing
/// without anybody knowing (a disk's slot that has rotted) is not mended before it is read.
pub(crate) fn mended(seats: &[Seat], nodes: &[Node], sim: &mut Sim) {
    if sim.settings.cache.is_none() || sim.settings.disk {
        return;
    }
    for seat in seats {
        for process in seat.processes.values().filter(|p| p.known && !p.ended && !p.is_changing()) {
            for (i, page) in process.pages.iter().enumerate() {
                let base = process.base_of(i);
                let missing = page.mapped && page.registered && page.present.is_none() && page.also.is_none();
                let away = missing && seat.borrower.state(process.key, base) == BaseState::Away;
                let Some(copy) = seat.borrower.copy_of(process.key, base).filter(|_| away) else { continue };
                if has_its_places(seat, &copy, page.truth, sim) || has_rotten_place(seat, &copy, sim) {
                    continue;
                }
                if copy.buffer.is_none() && !copy.on_disk && named(&copy).next().is_none() {
                    continue; // gone, by a fault: that is looked at above
                }
                let next = seat.borrower.poll_timeout().filter(|&at| at <= sim.now + STUCK_AGAIN);
                if seat.borrower.is_stuck(copy.index, copy.version) && next.is_some() {
                    continue; // it was refused, and is offered again in a moment: nobody told of the room that there is now
                }
                let Some(taker) = who_could_take(seat, &copy, page.truth, nodes, sim) else { continue };
                sim.fail(FailureKind::Unsafe, || {
                    let (index, key, value) = (seat.index, process.key.0, page.truth);
                    format!(
                        "borrower {index}: page {base} of process {key} (value {value}) is not mended, and lender {taker} has room: {copy:?}"
                    )
                });
                return;
            }
        }
    }
}

/// As many lenders have it as have to, or one has it on its disk, or the slot file does.
fn has_its_places(seat: &Seat, copy: &CopyView, value: u64, sim: &Sim) -> bool {
    if sim.settings.cache.is_none() {
        return false;
    }
    let page = (copy.index, copy.version);
    let places = places(seat, copy, value, sim);
    let told = places.iter().any(|&n| seat.conns[n].told.contains(&page));
    let on_disk = copy.on_disk && seat.disk.has(copy.index, value);
    let firm = places.iter().filter(|&&n| !seat.conns[n].spared.contains(&page)).count();
    told || on_disk || firm >= usize::from(sim.settings.replicas)
}

/// What a lender's disk has of it is lost, and the record says that it is there.
fn has_rotten_place(seat: &Seat, copy: &CopyView, sim: &Sim) -> bool {
    named(copy).any(|n| seat.is_rotten_at(n, (copy.index, copy.version), sim))
}

/// A lender that is there, does not have it, and has room for it.
fn who_could_take(seat: &Seat, copy: &CopyView, value: u64, nodes: &[Node], sim: &Sim) -> Option<usize> {
    let having = places(seat, copy, value, sim);
    (0..seat.conns.len()).find(|&n| {
        let conn = &seat.conns[n];
        let room = nodes[conn.lender].core.room(sim.settings.terms()).base_pages();
        conn.up && nodes[conn.lender].up && room > BasePages(0) && !having.contains(&n)
    })
}

/// The lenders that the record names, by their `LenderIndex`.
fn named(copy: &CopyView) -> impl Iterator<Item = usize> {
    copy.at_others.into_iter().flatten().chain(copy.at_lender).map(|lender| usize::from(lender.0))
}

/// Which of those that the record names really have it. Where there is a write cache, what lenders have is known exactly: what one has said that it
/// gave up counts no more, though the record may name it until it has answered.
fn places(seat: &Seat, copy: &CopyView, value: u64, sim: &Sim) -> Vec<usize> {
    let page = (copy.index, copy.version);
    let has = |&n: &usize| {
        let conn = &seat.conns[n];
        let there = if sim.settings.cache.is_some() { seat.has_at(n, page, sim) } else { conn.up };
        there && conn.stored.get(&page) == Some(&value)
    };
    named(copy).filter(has).collect()
}

/// A page that is not in local memory can be had again.
fn page_is_safe(seat: &Seat, process: &Process, base: u64, page: &Page, sim: &Sim) -> Result<(), String> {
    let value = page.truth;
    match seat.borrower.state(process.key, base) {
        BaseState::Leaving => {
            let taken = process.hand.as_ref().and_then(|h| h.taken(base));
            if taken == Some(value) { Ok(()) } else { Err(format!("is leaving, and the hand has {taken:?}")) }
        }
        BaseState::Away | BaseState::Fetching => {
            let copy = seat.borrower.copy_of(process.key, base).expect("audited: it has a copy");
            if copy.hash != hash_of(value) {
                return Err(format!("has a record of other contents: {copy:?}"));
            }
            if let Some(buffer) = copy.buffer {
                let held = seat.buffers[buffer.0 as usize];
                return if held == value {
                    Ok(())
                } else {
                    Err(format!("is in buffer {}, which has {held}", buffer.0))
                };
            }
            if copy.on_disk && seat.disk.has(copy.index, value) || lenders_have(seat, &copy, value, sim) {
                Ok(())
            } else {
                Err(format!("has no safe copy: {copy:?}"))
            }
        }
        BaseState::Lost if is_gone(seat, page, sim) => Ok(()),
        BaseState::Lost => Err("is called lost".into()),
        state @ (BaseState::Local | BaseState::Empty) => {
            Err(format!("is called {state:?}, and is not there"))
        }
    }
}

/// A fault has taken it: it may be lost.
fn is_gone(seat: &Seat, page: &Page, sim: &Sim) -> bool {
    if sim.settings.cache.is_some() { !seat.has_page(page, sim) } else { sim.is_harmed(page.truth) }
}

/// As many lenders have it as have to, or a fault has taken it.
fn lenders_have(seat: &Seat, copy: &CopyView, value: u64, sim: &Sim) -> bool {
    let page = (copy.index, copy.version);
    let in_cache = sim.settings.cache.is_some();
    let places = places(seat, copy, value, sim);
    let harmed = if in_cache { seat.is_harmed(page, sim) } else { sim.is_harmed(value) };
    // One that is lost is made good by and by.
    let one_will_do = if in_cache {
        harmed || places.iter().any(|&n| seat.conns[n].told.contains(&page))
    } else {
        sim.lenders_harmed()
    };
    let wanted = if one_will_do { 1 } else { usize::from(sim.settings.replicas) };
    let gone = harmed && (!in_cache || !seat.is_at_lender(page, None, sim));
    gone || !sim.settings.disk && places.len() >= wanted
}

/// Work is left, and no thread has waited longer than this.
pub(crate) fn goes_on(seats: &[Seat], sim: &Sim, most: Duration) -> bool {
    let processes = seats.iter().flat_map(|seat| seat.processes.values()).filter(|p| !p.ended);
    let mut busy = processes.flat_map(|p| &p.threads).filter(|t| !t.is_idle()).peekable();
    busy.peek().is_some() && busy.all(|t| t.waits == Waits::Nothing || sim.now - t.since < most)
}

/// No thread waits, no work is left.
pub(crate) fn answered(seats: &[Seat], sim: &mut Sim) {
    for seat in seats {
        for process in seat.processes.values().filter(|p| !p.ended) {
            for (n, thread) in process.threads.iter().enumerate().filter(|(_, t)| !t.is_idle()) {
                let state = match thread.waits {
                    Waits::Page(base) => Some(seat.borrower.state(process.key, base)),
                    _ => None,
                };
                sim.fail(FailureKind::Liveness, || {
                    format!(
                        "borrower {}: thread {n} of process {} is not answered: {:?} since {} ns, page {state:?}",
                        seat.index, process.key.0, thread.waits, thread.since.0
                    )
                });
            }
        }
    }
}

/// The programs have ended: nothing of theirs is left with their borrowers, nor more at lenders than is known of.
pub(crate) fn settled(seats: &[Seat], nodes: &[Node], sim: &mut Sim) {
    for seat in seats {
        let b = &seat.borrower;
        b.audit();
        let left = [
            ("frames", b.frames().0),
            ("copies", b.copies_in_use().0),
            ("adopted pages", b.adopted().0),
            ("waiting threads", b.waiting().0),
            ("fetches", b.fetches_in_flight() as u64),
            ("disk operations", seat.disk.in_flight() as u64),
            ("processes", seat.processes.len() as u64),
        ];
        for (what, n) in left.into_iter().filter(|&(_, n)| n > 0) {
            sim.fail(FailureKind::Leak, || {
                format!("borrower {}: {n} {what} are left at the end", seat.index)
            });
        }
        // On datagrams a lost drop is made good by the goodbye.
        let connected = !sim.settings.datagram;
        for (n, conn) in seat.conns.iter().enumerate().filter(|(_, c)| c.up && connected) {
            let space = sim.wires[conn.wire].space;
            let there = nodes[conn.lender].core.borrowers().find(|b| b.space == space).map_or(0, |b| b.pages);
            let held = b.held_by(LenderIndex(n as u8)).0;
            // Who came back over another connection may have left pages in memory that it does not count on.
            let there = if conn.met_before || conn.returns > 0 { there.min(held) } else { there };
            // A lender that lied has less than it said, never more.
            if there > held || held > 0 {
                sim.fail(FailureKind::Leak, || {
                    format!("borrower {}: lender {n} has {there} pages of it, known are {held}", seat.index)
                });
            }
        }
    }
}

/// Everybody has said goodbye: lenders hold nothing.
pub(crate) fn returned(nodes: &[Node], sim: &mut Sim) {
    for node in nodes {
        let stats = node.core.stats();
        let on_disk = node.store.as_ref().map_or(0, super::store::Store::live);
        if stats.pages > 0 || stats.free != stats.capacity || stats.on_disk > 0 || on_disk > 0 {
            sim.fail(FailureKind::Leak, || {
                format!(
                    "lender {} is not empty at the end, {on_disk} pages in its store: {stats:?}",
                    node.index
                )
            });
        }
    }
}
