//! The report's sentences and tables.

use super::LINE_CHARS_MAX;
use crate::text::{micros, percent, printable, seconds};
use loam_agent::recording::Recording;
use loam_agent::summary::{Summary, TimeSplit};
use loam_core::borrower::FaultKind;
use loam_core::units::Bytes;
use loam_sim::report::{Cell, Share, Table, Unit};

/// Under this part of the run waiting is not worth a thought.
const LITTLE: f64 = 0.05;
/// Lenders that are listed.
const LENDERS_MAX: usize = 64;

/// What ran, for how long, in how much memory.
pub(super) fn opening(summary: &Summary) -> Vec<String> {
    let ended = match summary.exit_code {
        Some(0) => "ended well".into(),
        Some(code @ 129..=192) => format!("was ended by signal {}", code - 128),
        Some(code) => format!("ended with status {code}"),
        None => "still runs".into(),
    };
    let command = printable(&summary.command, LINE_CHARS_MAX);
    let mut paragraphs = vec![format!("{command} {ended} after {}.", seconds(summary.wall_s))];
    let (limit, peak) = (Bytes(summary.local_limit_bytes), Bytes(summary.local_peak_bytes));
    let mut memory =
        format!("It could keep {limit} of its memory on this machine, and had at most {peak} here.");
    if summary.evictions.moved == 0 {
        memory.push_str(" That was enough: nothing was borrowed.");
    } else {
        let lenders = match summary.lenders_joined {
            0 => "the disk".to_owned(),
            1 => "another machine's memory".to_owned(),
            n => format!("the memory of {n} lenders"),
        };
        let disk = if summary.lenders_joined > 0 && summary.bytes.disk_written > 0 {
            ", and for safety to the disk"
        } else {
            ""
        };
        memory.push_str(&format!(
            " Of what did not fit {} went to {lenders}{disk}; {} came back over the network, {} from the disk.",
            Bytes(if summary.lenders_joined > 0 { summary.bytes.sent } else { summary.bytes.disk_written }),
            Bytes(summary.bytes.received),
            Bytes(summary.bytes.disk_read)
        ));
        let (page, subpage) = (Bytes(summary.page_bytes), Bytes(summary.subpage_bytes));
        let subpages = if page == subpage { String::new() } else { format!(", in subpages of {subpage}") };
        let (plan, size) = (
            printable(&summary.fetch_plan, 40),
            match changes(summary) {
                0 => "",
                _ => " at first",
            },
        );
        memory.push_str(&format!(" Pages were of {page}{size}, fetched by the plan “{plan}”{subpages}."));
    }
    paragraphs.push(memory);
    paragraphs
}

fn changes(summary: &Summary) -> u64 {
    summary.page_size_changes.len() as u64 + summary.page_size_changes_left_out
}

/// The four parts of the run's time, each with what it means.
pub(super) fn parts(time: &TimeSplit) -> Vec<Share> {
    let part = |name: &str, value: f64, words: &str| Share {
        name: name.into(),
        value,
        text: seconds(value),
        words: words.into(),
    };
    vec![
        part(
            "Computing",
            time.exec,
            "No thread waited for memory. What the program needs by itself is in here, and what Loam does beside it.",
        ),
        part(
            "Waiting for the first bytes",
            time.sp_latency,
            "A thread had touched a page that was away, and waited for the part of it that it had touched (sp_latency). More --local makes such \
             waits fewer; a nearer lender or smaller subpages make them shorter.",
        ),
        part(
            "Waiting for the rest",
            time.page_wait,
            "Threads waited only for what was already on its way: the rest of a page, or what had been fetched ahead (page_wait). Smaller pages or \
             another fetch plan make these waits shorter; that they are much shorter than those for the first bytes is what plans are for.",
        ),
        part(
            "Waiting for room",
            time.put_wait,
            "Threads waited because nothing had left yet that would make room for them (put_wait). The program changes more memory than lenders or \
             the disk take: more lenders or a faster disk help, and more --local.",
        ),
    ]
}

/// What all that comes to.
pub(super) fn verdict(summary: &Summary) -> String {
    let time = &summary.time_s;
    let waited = time.whole() - time.exec;
    if waited <= LITTLE * time.whole() {
        return format!(
            "In short: memory that was away hardly slowed this program ({} of its time). More --local would gain no more than that.",
            percent(waited, time.whole())
        );
    }
    let parts = [
        (time.sp_latency, "for the first bytes of pages", "figures 3 and 4 tell when, and for what"),
        (time.page_wait, "for the rest of pages that were on their way", "figures 4 and 5 tell more"),
        (time.put_wait, "for room", "figures 1 and 2 tell when: look at what was written then"),
    ];
    let (most, what, look) = parts.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("there are three");
    format!(
        "In short: a thread waited for memory in {} of the time, most of that ({}) {what}; {look}. With all of its \
         memory here about {} would remain, and more where other threads computed meanwhile.",
        percent(waited, time.whole()),
        percent(most, waited),
        seconds(time.exec)
    )
}

/// Ways to answer a fault in the order in which they are told: so each has the same colour in every figure.
pub(super) const KINDS: [FaultKind; 5] =
    [FaultKind::Remote, FaultKind::Disk, FaultKind::PrefetchedHit, FaultKind::Rescued, FaultKind::Zero];

/// How a fault was answered, for people.
pub(super) fn kind(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Zero => "fresh memory",
        FaultKind::Rescued => "still here, on its way out",
        FaultKind::PrefetchedHit => "fetched ahead",
        FaultKind::Remote => "by a lender",
        FaultKind::Disk => "by the disk",
    }
}

/// Faults by how they were answered.
pub(super) fn faults(summary: &Summary, recording: &Recording) -> Table {
    let header = [
        "answered",
        "faults",
        "waited in all",
        "half within",
        "9 of 10 within",
        "99 of 100 within",
        "longest",
    ];
    let mut table = Table::new(header);
    for way in KINDS {
        let faults = recording.waits.faults(way);
        if faults == 0 {
            continue;
        }
        let sorted = recording.waits.sorted(way);
        // The shortest wait that at most so many of 100 faults exceed.
        let within = |longer_percent: u64| {
            let longer = faults / 100 * longer_percent + faults % 100 * longer_percent / 100;
            let at = sorted.partition_point(|&(rank, _)| rank <= longer);
            Cell::Scaled(sorted[at.min(sorted.len() - 1)].1.0.into(), Unit::Ns)
        };
        table.push(vec![
            kind(way).into(),
            faults.into(),
            Cell::Scaled(recording.waits.total(way).0.into(), Unit::Ns),
            within(50),
            within(10),
            within(1),
            within(0),
        ]);
    }
    if table.rows().is_empty() {
        let longest = micros(summary.fault_latency_us.max);
        table.push(vec![
            "".into(),
            summary.faults.total.into(),
            "".into(),
            "".into(),
            "".into(),
            "".into(),
            longest.into(),
        ]);
    }
    table
}

/// Who lent, and what became of them.
pub(super) fn lenders(summary: &Summary) -> Table {
    let mut table = Table::new(["lender", "sent to it", "came back", "state"]);
    for lender in summary.lenders.iter().take(LENDERS_MAX) {
        let state = match lender.lost {
            true => format!("lost: {}", printable(&lender.why, LINE_CHARS_MAX)),
            false => "well".to_owned(),
        };
        let bytes = |bytes: u64| Cell::Scaled(bytes.into(), Unit::Bytes);
        table.push(vec![
            printable(&lender.addr, 64).into(),
            bytes(lender.sent_bytes),
            bytes(lender.received_bytes),
            state.into(),
        ]);
    }
    table
}
