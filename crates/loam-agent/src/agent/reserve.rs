//! Room that is set aside at lenders before the program starts (regions-2010, section III.B): all of it, or the run does not begin. Whoever loses what
//! it had promised, because it was started anew, is asked again; if it refuses, the run goes on without.

use super::Agent;
use super::lenders::Lender;
use crate::conn::Conn;
use crate::spread::{missing, spread};
use crate::summary::ReservationSummary;
use loam_core::borrower::LenderIndex;
use loam_core::units::Bytes;
use loam_wire::Reservation;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// How long a lender may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 3_000 });
/// What is missing may be on its way out at a lender whose last run has just ended, or another run may ask for the same room at the same time.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two tries, at least; and as much again by chance, so that two that meet do not meet for ever.
const AGAIN: Duration = Duration::from_millis(100);

/// What was reserved before the program started.
#[derive(Debug)]
pub(super) struct Promised {
    /// Of the program's pages, one copy of each.
    bytes: Bytes,
    copies: u8,
    /// By lender, in bytes: what it is asked for again if it was started anew.
    shares: BTreeMap<SocketAddr, u64>,
}

/// Lenders that the run does not use yet. If it does not come to that they are told, so that what they have set aside waits out no grace.
#[derive(Debug)]
pub(super) struct Waiting(pub(super) Vec<Lender>);

impl Waiting {
    /// The run begins.
    pub(super) fn take(&mut self) -> Vec<Lender> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.iter_mut().filter_map(|lender| lender.conn.as_mut()).for_each(Conn::bye_now);
    }
}

/// Of each lender: why it has not answered, if it was asked and has not. It is not asked (and waited for) again.
type Silent = Vec<Option<String>>;

/// Asks those at once for whom something is `wanted`.
fn ask(lenders: &mut [Lender], wanted: &[Option<u64>], silent: &mut Silent) -> Vec<Option<Reservation>> {
    let answers = std::thread::scope(|scope| {
        let asked: Vec<_> = (lenders.iter_mut().zip(wanted).zip(&*silent))
            .map(|((lender, bytes), silent)| {
                let bytes = bytes.filter(|_| silent.is_none())?;
                let conn = lender.conn.as_mut().expect("none is lost before the program starts");
                let thread = std::thread::Builder::new();
                Some(thread.spawn_scoped(scope, move || conn.reserve_now(bytes, ANSWER_WITHIN)))
            })
            .collect();
        let answer = |thread: std::io::Result<ScopedJoinHandle<'_, _>>| match thread {
            Ok(thread) => thread.join().expect("it answers or says why not"),
            Err(error) => Err(format!("no thread can be made to ask it: {error}")),
        };
        asked.into_iter().map(|asked| asked.map(answer)).collect::<Vec<_>>()
    });
    let take = |(answer, silent): (Option<Result<_, _>>, &mut Option<String>)| match answer? {
        Ok(reservation) => Some(reservation),
        Err(why) => {
            *silent = Some(why);
            None
        }
    };
    answers.into_iter().zip(silent).map(take).collect()
}

fn most(answers: &[Option<Reservation>]) -> Vec<u64> {
    answers.iter().map(|answer| answer.as_ref().map_or(0, Reservation::most_bytes)).collect()
}

/// It has set aside what it was asked for, and says so.
fn has_granted(reservation: &Reservation, share: u64) -> bool {
    reservation.granted() && reservation.own_bytes() >= share
}

/// Reserves room for `bytes` of pages, `copies` of each, at lenders that are connected; a page's copies are with as many lenders. One that does not
/// answer has none.
///
/// # Errors
/// One line: what is missing, and what each of them has. Nothing is reserved then.
pub(super) fn reserve(lenders: &mut [Lender], bytes: Bytes, copies: u8) -> Result<Promised, String> {
    let total = bytes.0.saturating_mul(copies.into());
    let nothing = vec![Some(0); lenders.len()];
    let mut silent: Silent = vec![None; lenders.len()];
    let mut deadline = None;
    loop {
        // What an earlier try has got is given back by it.
        let offers = ask(lenders, &nothing, &mut silent);
        // Waiting for one that does not answer takes nothing of the patience with the others.
        let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
        let answering = silent.iter().filter(|silent| silent.is_none()).count();
        if let Some(shares) = spread(&most(&offers), total, bytes.0) {
            let wanted: Vec<_> = shares.iter().map(|&share| (share > 0).then_some(share)).collect();
            let answers = ask(lenders, &wanted, &mut silent);
            let granted = |(answer, &share): (&Option<Reservation>, &u64)| {
                share == 0 || answer.as_ref().is_some_and(|answer| has_granted(answer, share))
            };
            if answers.iter().zip(&shares).all(granted) {
                return Ok(promised(lenders, offers, answers, shares, (bytes, copies)));
            }
            if silent.iter().filter(|silent| silent.is_none()).count() < answering {
                // Perhaps the others have enough.
                continue;
            }
        } else if Instant::now() >= deadline || answering == 0 {
            return Err(refusal(lenders, &offers, &silent, bytes, copies));
        }
        if Instant::now() >= deadline {
            let offers = ask(lenders, &nothing, &mut silent);
            return Err(refusal(lenders, &offers, &silent, bytes, copies));
        }
        let chance = super::start::random_space().0 % AGAIN.as_millis() as u64;
        std::thread::sleep(AGAIN + Duration::from_millis(chance));
    }
}

/// All of them have granted their shares.
fn promised(
    lenders: &mut [Lender],
    offers: Vec<Option<Reservation>>,
    answers: Vec<Option<Reservation>>,
    shares: Vec<u64>,
    (bytes, copies): (Bytes, u8),
) -> Promised {
    let last = answers.into_iter().zip(offers).map(|(answer, offer)| answer.or(offer));
    for ((lender, answer), share) in lenders.iter_mut().zip(last).zip(&shares) {
        lender.reserved_bytes = *share;
        let conn = lender.conn.as_mut().expect("none is lost before the program starts");
        match answer {
            Some(answer) => conn.free_bytes = answer.free_bytes(),
            // It may have set something aside all the same.
            None => conn.reserve(0),
        }
    }
    let shares = lenders.iter().map(|lender| lender.addr).zip(shares).collect();
    Promised { bytes, copies, shares }
}

/// What is missing, in one line.
fn refusal(
    lenders: &[Lender],
    answers: &[Option<Reservation>],
    silent: &Silent,
    bytes: Bytes,
    copies: u8,
) -> String {
    let total = bytes.0.saturating_mul(copies.into());
    let of_each = if copies > 1 { format!(", {copies} copies of each page") } else { String::new() };
    let has: Vec<String> = (lenders.iter().zip(answers).zip(silent))
        .map(|((lender, answer), silent)| match (answer, silent) {
            (Some(answer), _) => format!("{} has {}", lender.addr, Bytes(answer.most_bytes())),
            (None, Some(why)) => format!("{} did not answer ({why})", lender.addr),
            (None, None) => format!("{} did not answer", lender.addr),
        })
        .collect();
    let has = if has.is_empty() { "there is no lender".to_owned() } else { has.join(", ") };
    let (short, what_to_do) = match missing(&most(answers), total, bytes.0) {
        0 => (
            "they have it, and have not set it aside".to_owned(),
            "another run may have asked at the same time: try again",
        ),
        short => (
            format!("{} are missing", Bytes(short)),
            "ask for less (--reserve=SIZE), add lenders, or let more be reserved there (loam lend --reservable SIZE)",
        ),
    };
    format!("cannot reserve {bytes}{of_each}: {short}; {has}; the program was not started: {what_to_do}")
}

impl Agent<'_> {
    /// A lender has come (back): what it had promised before, if anything, is asked for again. The answer comes as any other.
    pub(super) fn reserve_again(&mut self, lender: LenderIndex) {
        let addr = self.lenders[usize::from(lender.0)].addr;
        let share = self.promised.as_ref().and_then(|promised| promised.shares.get(&addr)).copied();
        if let (Some(share @ 1..), Some(conn)) = (share, self.conn(lender)) {
            conn.reserve(share);
        }
    }

    /// It has answered. (Late answers from before the program started come here, too; nobody waits for them.)
    pub(super) fn take_reserved(&mut self, lender: LenderIndex, request: u64, reservation: &Reservation) {
        let Some(share) = self.conn(lender).and_then(|conn| conn.take_reserving(request)) else { return };
        let entry = &mut self.lenders[usize::from(lender.0)];
        entry.reserved_bytes = reservation.own_bytes().min(share);
        let addr = entry.addr;
        if !has_granted(reservation, share) {
            let most = Bytes(reservation.most_bytes());
            self.report.warn(&format!(
                "lender {addr} has lost what was reserved there, and has {most} for it now: the run goes on with what is free"
            ));
        }
        self.answered(lender, 0);
        self.heard_room(lender, reservation.free_bytes());
        self.drain();
    }

    /// What was promised, and what of it still is.
    pub(super) fn reservation_summary(&self) -> Option<ReservationSummary> {
        let promised = self.promised.as_ref()?;
        Some(ReservationSummary {
            bytes: promised.bytes.0,
            copies: promised.copies.into(),
            promised_bytes: promised.shares.values().sum(),
            reserved_bytes: self
                .lenders
                .iter()
                .fold(0, |sum, lender| lender.reserved_bytes.saturating_add(sum)),
        })
    }
}

#[cfg(test)]
#[path = "reserve_tests.rs"]
mod tests;
