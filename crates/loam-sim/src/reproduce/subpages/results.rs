//! Ours beside each printed result, and the claims.

use super::experiments::{Experiments, Memory, Scheme};
use super::{PAGE_BYTES, SUBPAGES, printed, rows};
use crate::machine::Outcome;
use crate::model::{Emulation, Place};
use crate::report::Check;
use crate::reproduce::{Compared, Kind, Published};

/// Table 1: the PALcode's emulation.
pub(super) fn table_1() -> Emulation {
    let ns = |access| printed("table 1", access, "time") as u64;
    Emulation {
        fast_load_ns: ns("fast load"),
        slow_load_ns: ns("slow load"),
        fast_store_ns: ns("fast store"),
        slow_store_ns: ns("slow store"),
        source: "table 1".into(),
    }
}

/// The program on which the paper shows everything in detail.
pub(super) const COMPILER: &str = "Modula-3";

fn percent(part: f64) -> f64 {
    part * 100.0
}

fn speedup(slow: &Outcome, fast: &Outcome) -> f64 {
    slow.total_ns() as f64 / fast.total_ns() as f64
}

fn gain(e: &Experiments, app: usize, memory: Memory, scheme: Scheme) -> f64 {
    percent(e.get(app, memory, scheme).gain_over(e.get(app, memory, Scheme::Full)))
}

/// The smallest and the largest.
fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
}

/// Of what was hidden behind a page's rest, the part that was other pages' waiting (section 4.4).
fn io_share(outcome: &Outcome) -> f64 {
    let hidden = outcome.io_overlap_ns + outcome.run_overlap_ns;
    percent(outcome.io_overlap_ns as f64 / hidden.max(1) as f64)
}

/// Table 2's two potentials, in percent of a whole page's latency: (overlapped execution, sender pipelining).
pub(super) fn potentials(e: &Experiments, subpage_bytes: u64) -> (f64, f64) {
    let find = |bytes| e.table_2.iter().find(|row| row.0 == bytes).expect("every size was run");
    let (_, first, rest) = *find(subpage_bytes);
    let full = find(PAGE_BYTES).1 as f64;
    // The program runs until the rest's receiving takes its processor.
    let receive = e.network.stages.iter().filter(|s| s.at == Place::Processor);
    let receive_ns: u64 =
        receive.map(|s| s.fixed_ns + s.ps_per_byte * (PAGE_BYTES - subpage_bytes) / 1000).sum();
    let overlapped = (rest as f64 - receive_ns as f64 - first as f64).max(0.0);
    (percent(overlapped / full), percent((full - rest as f64).max(0.0) / full))
}

const OTHER_PROGRAM: &str = "another program and input";
const OWN_MODEL: &str =
    "the stages' times are derived from the table's ends; between them they are a few percent off";

/// All `result` rows that can be run here.
pub(super) fn results(e: &Experiments) -> Vec<Compared> {
    let rows = rows();
    let mut compared = Vec::new();
    for row in rows.into_iter().filter(|row| row.kind == Kind::Result) {
        let Some((ours, note)) = ours(e, &row) else { continue };
        compared.push(Compared { published: row, ours, note });
    }
    compared
}

/// Ours for one row; None: the program that it is about was not recorded.
fn ours(e: &Experiments, row: &Published) -> Option<((f64, f64), &'static str)> {
    use Scheme::{Disk, Eager, Emulated, Full, Pipelined};
    let one = |value: f64| (value, value);
    let compiler = e.app(COMPILER);
    let all = || 0..e.apps().len();
    let half = Memory::Half;
    let (ours, note) = match (row.item.as_str(), row.case.as_str(), row.metric.as_str()) {
        ("table 2", case, metric) => {
            let bytes: u64 = case.split(' ').next()?.parse().ok()?;
            let (overlapped, sender) = potentials(e, bytes);
            (one(if metric.starts_with("overlapped") { overlapped } else { sender }), OWN_MODEL)
        }
        ("section 4", program, "page faults over the memory configurations") => {
            let app = e.app(program)?;
            (span(Memory::ALL.into_iter().map(|m| e.get(app, m, Full).faults as f64)), OTHER_PROGRAM)
        }
        ("figure 3", _, "speedup of full-page global memory over disk") => {
            let app = compiler?;
            let speedups = Memory::ALL.into_iter().map(|m| speedup(e.get(app, m, Disk), e.get(app, m, Full)));
            (
                span(speedups),
                "every miss of ours is charged 14 ms unless it is sequential; the paper's disk was between 4 and 14",
            )
        }
        ("figure 3", case, "gain over full page") => {
            let app = compiler?;
            let memory = Memory::ALL.into_iter().find(|m| case.contains(m.name()))?;
            let bytes = if case.contains("256 B") {
                256
            } else if case.contains("2 KiB") {
                2048
            } else {
                1024
            };
            (one(gain(e, app, memory, Eager(bytes))), OTHER_PROGRAM)
        }
        ("figure 4", case, metric) => {
            let outcome = e.get(compiler?, half, Eager(if case.contains("4096") { 4096 } else { 256 }));
            let part = if metric.starts_with("sp_") { outcome.sp_latency_ns } else { outcome.page_wait_ns };
            (one(percent(outcome.share(part))), OTHER_PROGRAM)
        }
        ("figure 8", _, metric) => {
            let (eager, piped) =
                (e.get(compiler?, half, Eager(1024)), e.get(compiler?, half, Pipelined(1024)));
            let reduction = if metric.ends_with("page_wait") {
                1.0 - piped.page_wait_ns as f64 / eager.page_wait_ns.max(1) as f64
            } else {
                piped.gain_over(eager)
            };
            (one(percent(reduction)), OTHER_PROGRAM)
        }
        ("figure 9", _, "gain, eager full page") => {
            (span(all().map(|app| gain(e, app, half, Eager(1024)))), OTHER_PROGRAM)
        }
        ("figure 9", _, "gain, pipelining") => {
            (span(all().map(|app| gain(e, app, half, Pipelined(1024)))), OTHER_PROGRAM)
        }
        ("section 4.4", ..) => (
            span(all().map(|app| io_share(e.get(app, half, Eager(1024))))),
            "ours: of the time hidden behind the rest of a page, the part in which the program waited for another page",
        ),
        ("abstract", case, _) => {
            let base = if case.contains("disk") { Disk } else { Full };
            let best = all().flat_map(|app| {
                Memory::ALL.into_iter().flat_map(move |m| {
                    let schemes = [Eager(1024), Pipelined(1024)];
                    schemes.map(|scheme| speedup(e.get(app, m, base), e.get(app, m, scheme)))
                })
            });
            (one(span(best).1), "the largest over programs, memory sizes, eager and pipelined")
        }
        ("section 5", ..) => {
            let app = e.app("Render")?;
            (
                one(gain(e, app, half, Emulated(2048))),
                "simulated with table 1's emulation, half memory; another program and scene",
            )
        }
        _ => return None,
    };
    Some((ours, note))
}

/// The paper's claims, one line each.
pub(super) fn checks(e: &Experiments) -> Vec<Check> {
    vec![best_size(e), three_sections(e), next_is_most_frequent(e)]
}

fn best_of(e: &Experiments, app: usize, memory: Memory) -> u64 {
    SUBPAGES
        .into_iter()
        .min_by_key(|&bytes| e.get(app, memory, Scheme::Eager(bytes)).total_ns())
        .expect("there are sizes")
}

/// Figure 3: "over all the applications, subpage sizes of 1K or 2K were best".
fn best_size(e: &Experiments) -> Check {
    let mut found = Vec::new();
    let mut pass = true;
    for (n, app) in e.apps().iter().enumerate() {
        let best = Memory::ALL.map(|memory| best_of(e, n, memory));
        pass &= best.iter().all(|bytes| (1024..=2048).contains(bytes));
        found.push(format!("{} {}, {}, {}", app.name, best[0], best[1], best[2]));
    }
    Check::new(
        pass,
        format!(
            "figure 3: the best subpage has 1024 to 2048 B for every program (full, 1/2, 1/4 memory: {})",
            found.join("; ")
        ),
    )
}

/// The three sections of one curve of figure 5: parts of the faults that waited about as long as the subpage takes (a lone fault's
/// latency), about as long as the whole page does, and something between.
pub(super) fn sections(e: &Experiments, app: usize, subpage_bytes: u64) -> (f64, f64, f64) {
    let waits = &e.get(app, Memory::Half, Scheme::Eager(subpage_bytes)).waits_ns;
    let (_, first, rest) = *e.table_2.iter().find(|row| row.0 == subpage_bytes).expect("every size was run");
    // An eighth of the way between the two counts as the end that it is next to.
    let slack = (rest - first) / 8;
    let best = waits.iter().filter(|&&w| w <= first + slack).count();
    let worst = waits.iter().filter(|&&w| w + slack >= rest).count();
    let all = waits.len().max(1) as f64;
    let (best, worst) = (best as f64 / all, worst as f64 / all);
    (best, (1.0 - best - worst).max(0.0), worst)
}

/// Figure 5: a horizontal segment at the right (subpage latency), one at the left (the whole page's), "a small region in the middle".
fn three_sections(e: &Experiments) -> Check {
    let Some(app) = e.app(COMPILER) else {
        return Check::new(false, "figure 5: no compiler was recorded");
    };
    let mut found = Vec::new();
    let mut pass = true;
    for bytes in SUBPAGES {
        let (best, middle, worst) = sections(e, app, bytes);
        // A section is one where some twentieth of the faults lies; the middle's seven eighths of the height hold less than the ends.
        pass &= best >= 0.05 && worst >= 0.05 && middle > 0.0 && middle < best + worst;
        found.push(format!("{bytes} B {:.0}/{:.0}/{:.0}%", percent(best), percent(middle), percent(worst)));
    }
    Check::new(
        pass,
        format!(
            "figure 5: sorted waits form three sections at every subpage size (best/overlap/worst: {})",
            found.join(", ")
        ),
    )
}

/// Parts of all next subpages by their distance, most frequent first.
pub(super) fn distances(e: &Experiments, app: usize, subpage_bytes: u64) -> Vec<(i32, f64)> {
    let seen = &e.get(app, Memory::Half, Scheme::Eager(subpage_bytes)).distances;
    let all: u64 = seen.values().sum();
    let mut parts: Vec<(i32, f64)> =
        seen.iter().map(|(&distance, &count)| (distance, count as f64 / all.max(1) as f64)).collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    parts
}

/// Figure 7: "a high likelihood that the next subpage faulted on the same page will be the next consecutive subpage".
fn next_is_most_frequent(e: &Experiments) -> Check {
    let mut found = Vec::new();
    let mut pass = true;
    for (n, app) in e.apps().iter().enumerate() {
        for bytes in [2048, 1024] {
            let parts = distances(e, n, bytes);
            let (distance, part) = parts.first().copied().unwrap_or((0, 0.0));
            pass &= distance == 1;
            found.push(format!("{} {bytes} B: {distance:+} {:.0}%", app.name, percent(part)));
        }
    }
    Check::new(
        pass,
        format!("figure 7: distance +1 is the most frequent next subpage ({})", found.join(", ")),
    )
}
