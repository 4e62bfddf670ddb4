//! Room that is set aside at lenders before the program starts (regions-2010, section III.B): all of it, or the run does not begin. Whoever loses what
//! it had promised, because it was started anew, is asked again; if it refuses, the run goes on without.

use super::Agent;
use super::lenders::Lender;
use crate::spread::{missing, spread};
use crate::summary::ReservationSummary;
use loam_core::borrower::LenderIndex;
use loam_core::units::Bytes;
use loam_wire::Reservation;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long a lender may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
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

/// One lender's answer; or why it is none.
type Answer = Result<Reservation, String>;

/// Asks them all at once.
fn ask(lenders: &mut [Lender], wanted: &[u64]) -> Vec<Answer> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = lenders
            .iter_mut()
            .zip(wanted)
            .map(|(lender, &bytes)| {
                scope.spawn(move || {
                    let conn = lender.conn.as_mut().expect("none is lost before the program starts");
                    conn.reserve_now(bytes, ANSWER_WITHIN)
                })
            })
            .collect();
        asked.into_iter().map(|thread| thread.join().expect("it answers or says why not")).collect()
    })
}

fn most(answers: &[Answer]) -> Vec<u64> {
    answers.iter().map(|answer| answer.as_ref().map_or(0, Reservation::most_bytes)).collect()
}

/// Reserves room for `bytes` of pages, `copies` of each, at lenders that are connected; a page's copies are with as many lenders.
///
/// # Errors
/// One line: what is missing, and what each of them has. Nothing is reserved then.
pub(super) fn reserve(lenders: &mut [Lender], bytes: Bytes, copies: u8) -> Result<Promised, String> {
    let total = bytes.0.saturating_mul(copies.into());
    let nothing = vec![0; lenders.len()];
    let deadline = Instant::now() + PATIENCE;
    loop {
        // What an earlier try has got is given back by it.
        let answers = ask(lenders, &nothing);
        let offers = most(&answers);
        if let Some(shares) = spread(&offers, total, bytes.0) {
            let granted = ask(lenders, &shares);
            if granted.iter().all(|answer| answer.as_ref().is_ok_and(Reservation::granted)) {
                for ((lender, answer), share) in lenders.iter_mut().zip(&granted).zip(&shares) {
                    let answer = answer.as_ref().expect("all of them have");
                    lender.reserved_bytes = *share;
                    lender.conn.as_mut().expect("it has just answered").free_bytes = answer.free_bytes();
                }
                let shares = lenders.iter().map(|lender| lender.addr).zip(shares).collect();
                return Ok(Promised { bytes, copies, shares });
            }
        } else if Instant::now() >= deadline || answers.iter().all(Result::is_err) {
            return Err(refusal(lenders, &answers, bytes, copies));
        }
        if Instant::now() >= deadline {
            let answers = ask(lenders, &nothing);
            return Err(refusal(lenders, &answers, bytes, copies));
        }
        let chance = super::random_space().0 % AGAIN.as_millis() as u64;
        std::thread::sleep(AGAIN + Duration::from_millis(chance));
    }
}

/// What is missing, in one line.
fn refusal(lenders: &[Lender], answers: &[Answer], bytes: Bytes, copies: u8) -> String {
    let total = bytes.0.saturating_mul(copies.into());
    let of_each = if copies > 1 { format!(", {copies} copies of each page") } else { String::new() };
    let has: Vec<String> = lenders
        .iter()
        .zip(answers)
        .map(|(lender, answer)| match answer {
            Ok(answer) => format!("{} has {}", lender.addr, Bytes(answer.most_bytes())),
            Err(why) => format!("{} has none ({why})", lender.addr),
        })
        .collect();
    let has = if has.is_empty() { "there is no lender".to_owned() } else { has.join(", ") };
    let short = match missing(&most(answers), total, bytes.0) {
        0 => "others were quicker".to_owned(),
        short => format!("{} are missing", Bytes(short)),
    };
    format!(
        "cannot reserve {bytes}{of_each}: {short}; {has}; the program was not started: ask for less (--reserve=SIZE), add lenders, or let \
         more be reserved there (loam lend --reservable SIZE)"
    )
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

    /// It has answered.
    pub(super) fn take_reserved(&mut self, lender: LenderIndex, reservation: &Reservation) {
        let entry = &mut self.lenders[usize::from(lender.0)];
        entry.reserved_bytes = reservation.own_bytes();
        let addr = entry.addr;
        if !reservation.granted() {
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
            reserved_bytes: self.lenders.iter().map(|lender| lender.reserved_bytes).sum(),
        })
    }
}
