//! The report's figures, each with what one sees in it and what to do about that; or why there is none.

use super::words;
use crate::text::percent;
use loam_agent::recording::{Moment, Recording};
use loam_agent::summary::Summary;
use loam_core::units::{BASE_PAGE_BYTES, Bytes};
use loam_sim::report::{Axis, Bars, Figure, Scale, Series, Unit};
use std::collections::BTreeMap;

/// Longest run that is drawn: thirty years.
const WALL_NS_MAX: f64 = 1e18;
/// Bars of the run's time.
const BARS: usize = 40;
/// Pieces of the run in which faults are counted to see how clustered they are.
const PIECES: usize = 200;
/// Faults that come in bursts have this part of them in the busiest tenth of the run.
const BURSTS: f64 = 0.3;
/// Distances that are drawn one by one.
const NEAR: i32 = 8;
/// Parts of the program that are drawn.
const PARTS_MAX: usize = 8;

/// A figure and its caption.
pub(super) struct Drawn {
    pub(super) figure: Figure,
    pub(super) sees: String,
    pub(super) does: String,
}

type Drawing = Result<Drawn, String>;

/// The length of the run, such that arithmetic with it stays finite.
fn wall_ns(summary: &Summary) -> f64 {
    (summary.wall_s * 1e9).clamp(1.0, WALL_NS_MAX)
}

/// The run's moments, the last one at its end.
fn moments(summary: &Summary, recording: &Recording) -> Vec<(f64, Moment)> {
    let wall = wall_ns(summary);
    recording.timeline.moments().map(|(at, moment)| ((at.0 as f64).min(wall), moment)).collect()
}

/// What `of` had grown to at `at`: straight lines between moments, from nothing at the start.
fn grown(moments: &[(f64, Moment)], of: &impl Fn(&Moment) -> f64, at: f64) -> f64 {
    let next = moments.partition_point(|moment| moment.0 < at);
    let before = next.checked_sub(1).map_or((0.0, 0.0), |index| (moments[index].0, of(&moments[index].1)));
    let Some(after) = moments.get(next).map(|moment| (moment.0, of(&moment.1))) else { return before.1 };
    if after.0 <= before.0 {
        return after.1;
    }
    before.1 + (after.1 - before.1) * (at - before.0) / (after.0 - before.0)
}

/// How much `of` grew in each of `pieces` equal pieces of the run.
fn growth(moments: &[(f64, Moment)], wall: f64, pieces: usize, of: impl Fn(&Moment) -> f64) -> Vec<f64> {
    let at = |piece: usize| grown(moments, &of, wall * piece as f64 / pieces as f64);
    (0..pieces).map(|piece| (at(piece + 1) - at(piece)).max(0.0)).collect()
}

fn time_axis() -> Axis {
    Axis::new("time since the start", Unit::Ns).include(0.0)
}

/// Where the time went, piece by piece (subpages-1996, figure 4's parts, over time).
pub(super) fn time(summary: &Summary, recording: &Recording) -> Drawing {
    let (wall, moments) = (wall_ns(summary), moments(summary, recording));
    let grow = |of: fn(&Moment) -> u64| growth(&moments, wall, BARS, |moment| of(moment) as f64);
    let (first, rest, room) = (grow(|m| m.sp_latency.0), grow(|m| m.page_wait.0), grow(|m| m.put_wait.0));
    let piece = wall / BARS as f64;
    let names = ["computing", "waiting for the first bytes", "waiting for the rest", "waiting for room"];
    let mut bars = Bars::stacked([""], names);
    for at in 0..BARS {
        let waits = [first[at], rest[at], room[at]].map(|wait| (wait / piece).min(1.0));
        let computing = (1.0 - waits.iter().sum::<f64>()).max(0.0);
        let name = if at % 5 == 0 { Unit::Ns.write(piece * at as f64) } else { String::new() };
        bars = bars.group(name, vec![vec![computing, waits[0], waits[1], waits[2]]]);
    }
    let title = "Parts of the time, from the start of the run to its end";
    Ok(Drawn {
        figure: Figure::bars(title, Axis::new("part of the time", Unit::Share), bars),
        sees: format!(
            "The run in {BARS} equal pieces from left to right. The more of a bar is blue, the less the program was held up then."
        ),
        does: "Look for pieces where waiting begins or ends: often another phase of the program, which uses more memory or another order. If \
               only some phases wait, more --local for these alone would be enough; if all do, the program uses more memory all the time than \
               it has here."
            .into(),
    })
}

/// Bytes here, with lenders and on the disk over time.
pub(super) fn memory(summary: &Summary, recording: &Recording) -> Drawing {
    let (wall, moments) = (wall_ns(summary), moments(summary, recording));
    let line = |of: fn(&Moment) -> Bytes| {
        moments.iter().map(|(at, moment)| (*at, of(moment).0 as f64)).collect::<Vec<_>>()
    };
    let limit = summary.local_limit_bytes as f64;
    let axis = Axis::new("memory", Unit::Bytes).include(0.0);
    let figure = Figure::new("Where the program's memory was", time_axis(), axis)
        .series(Series::line("here", line(|m| m.local)))
        .series(Series::line("with lenders", line(|m| m.lent)))
        .series(Series::line("on the disk", line(|m| m.on_disk)))
        .series(Series::line("limit here (--local)", vec![(0.0, limit), (wall, limit)]));
    let also = if summary.durability == "disk" && summary.lenders_joined > 0 {
        " What lenders hold is on the disk too, so that a lender may die: the two lines count the same pages, and only one is seen where they are equal."
    } else if summary.durability != "none" && summary.lenders_joined > 1 {
        " Several lenders have each page, so that one may die: it counts for each of them."
    } else {
        ""
    };
    Ok(Drawn {
        figure,
        sees: format!(
            "How much of the program's memory was on this machine, and how much elsewhere. What came back and has not changed since is \
             counted on both sides, since it need not be sent again.{also} Each point is the most in a small piece of time."
        ),
        does: "With as much more --local as the line of elsewhere is high the program would wait for nothing; where that line is flat, no \
               more was needed. Where “here” stays far under the limit, the program has given memory back itself. A little above the limit are \
               libraries and files, which do not count; far above it is memory that cannot be lent (see the warnings, if there are any)."
            .into(),
    })
}

fn total(moment: &Moment) -> f64 {
    moment.answered.iter().sum::<u64>() as f64
}

/// The part of all faults that the busiest tenth of the run has.
pub(super) fn in_busiest_tenth(summary: &Summary, recording: &Recording) -> f64 {
    let mut counts = growth(&moments(summary, recording), wall_ns(summary), PIECES, total);
    counts.sort_unstable_by(|a, b| b.total_cmp(a));
    let all: f64 = counts.iter().sum();
    if all > 0.0 { counts[..PIECES / 10].iter().sum::<f64>() / all } else { 0.0 }
}

/// Faults so far over time (subpages-1996, figures 6 and 10).
pub(super) fn clusters(summary: &Summary, recording: &Recording) -> Drawing {
    let moments = moments(summary, recording);
    if moments.last().is_none_or(|(_, last)| total(last) == 0.0) {
        return Err("No thread ever touched memory that was away: there are no faults to draw.".into());
    }
    let axis = Axis::new("faults so far", Unit::Number).include(0.0);
    let mut figure = Figure::new("Faults so far, by how they were answered", time_axis(), axis);
    let mut line = |name: &str, of: &dyn Fn(&Moment) -> f64| {
        let points: Vec<_> =
            std::iter::once((0.0, 0.0)).chain(moments.iter().map(|(at, m)| (*at, of(m)))).collect();
        if points.last().is_some_and(|last| last.1 > 0.0) {
            figure = figure.clone().series(Series::line(name, points));
        }
    };
    for kind in words::KINDS {
        line(words::kind(kind), &move |m| m.answered[kind as usize] as f64);
    }
    line("all", &total);
    let busiest = in_busiest_tenth(summary, recording);
    let does = if busiest >= BURSTS {
        "Bursts are good for a program that borrows: pages that are wanted together can be fetched together, so larger pages, fetching ahead \
         (--prefetch on) and pipelined fetch plans help. A burst is often the beginning of a new phase."
    } else {
        "Faults that come evenly leave little to overlap: each wait stands for itself. Shorter answers (a nearer lender, smaller subpages) help, or \
         more --local, so that there are fewer."
    };
    Ok(Drawn {
        figure,
        sees: format!(
            "Each fault lifts the line by one. A flat piece is computing, a steep one a burst of faults. The busiest tenth of this run had {} of its \
             faults.",
            percent(busiest, 1.0)
        ),
        does: does.into(),
    })
}

/// Sorted waits, longest first (subpages-1996, figure 5).
pub(super) fn waits(recording: &Recording) -> Drawing {
    let x = Axis::new("part of the faults, those that waited longest first", Unit::Share)
        .include(0.0)
        .include(1.0);
    let y = Axis::new("time that a fault waited", Unit::Ns).scale(Scale::Log10);
    let mut figure = Figure::new("Waits, sorted", x, y);
    let mut any = false;
    for way in words::KINDS {
        let faults = recording.waits.faults(way) as f64;
        let mut points = Vec::new();
        let mut from = 0.0;
        for (rank, wait) in recording.waits.sorted(way) {
            points.push((from, wait.0 as f64));
            from = rank as f64 / faults;
        }
        if let Some(&(_, shortest)) = points.last() {
            points.push((1.0, shortest));
            any = true;
            let name = format!("{} ({})", words::kind(way), Unit::Number.write(faults));
            figure = figure.series(Series::step(name, points));
        }
    }
    if !any {
        return Err("No thread ever waited for a page: there are no waits to draw.".into());
    }
    Ok(Drawn {
        figure,
        sees: "All waits side by side, the longest on the left, a line for each way to answer (how many there were is in brackets). The height \
               at 50% is what half of them exceed. The scale is logarithmic: each line across is ten times as long as the one below, or two or \
               five times where it says so."
            .into(),
        does: "A long flat piece on the right is the best case: a wait for the first bytes alone, as fast as the network goes. A high piece on the \
               left are faults that waited for much more than the bytes that they wanted: behind other pages, for the rest of a page, or for \
               room. If that piece is wide, try smaller pages or subpages; if only a few percent, it hardly matters. Waits for the disk that are far above those \
               for lenders say that more memory of lenders would pay."
            .into(),
    })
}

/// Distances from a faulted subpage to the next one wanted of its page (subpages-1996, figure 7).
pub(super) fn distances(summary: &Summary, recording: &Recording) -> Drawing {
    let seen: u64 = recording.next_distances.iter().map(|&(_, times)| times).sum();
    if seen == 0 {
        let why = if summary.subpage_bytes >= summary.page_bytes {
            "pages were fetched whole, so nothing in them is missing any more when the program goes on"
        } else {
            "no page of which a part was still missing was wanted at another place"
        };
        return Err(format!(
            "Which part of a page a program wants after the one that it faulted on cannot be told from this run: {why}. With subpages smaller \
             than the page and a plan that does not fetch all at once this figure shows it."
        ));
    }
    let of = |wanted: &dyn Fn(i32) -> bool| {
        let found = recording.next_distances.iter().filter(|&&(distance, _)| wanted(distance));
        found.map(|&(_, times)| times).sum::<u64>() as f64 / seen as f64
    };
    let mut bars = Bars::plain([""]).plain_group(format!("< -{NEAR}"), [of(&|d| d < -NEAR)]);
    for distance in (-NEAR..=NEAR).filter(|&distance| distance != 0) {
        bars = bars.plain_group(format!("{distance:+}"), [of(&|d| d == distance)]);
    }
    bars = bars.plain_group(format!("> +{NEAR}"), [of(&|d| d > NEAR)]);
    let note = format!(
        "{} cases, in subpages of {}.",
        Unit::Number.write(seen as f64),
        Bytes(summary.subpage_bytes)
    );
    let (next, before) = (of(&|d| d == 1), of(&|d| d == -1));
    let does = if next + before >= 0.5 {
        "The neighbours are what is wanted most: plans that send them right behind the faulted subpage (pipelined) fit this program."
    } else {
        "The neighbours are not what is wanted most: a plan that learns the order (learned), or one that fetches only what is touched (lazy), may fit \
         this program better than one that sends neighbours first."
    };
    Ok(Drawn {
        figure: Figure::bars(
            "Distance to the next wanted part of the same page",
            Axis::new("part of the cases", Unit::Share),
            bars,
        )
        .note(note),
        sees: format!(
            "A thread faulted in one part (subpage) of a page, and later wanted another part that was not there yet: so many subpages further on \
             (+) or back (-). Here {} wanted the next one, {} the one before. What was there already raises no fault, so touches of it \
             are not in the figure.",
            percent(next, 1.0),
            percent(before, 1.0)
        ),
        does: does.into(),
    })
}

/// The sizes that single places got, by part of the program.
fn in_places(recording: &Recording, wall: f64) -> BTreeMap<u32, Vec<(f64, f64)>> {
    let mut parts: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
    for change in recording.sizes.changes().iter().filter(|change| change.extents > 0) {
        let point = ((change.at.0 as f64).min(wall), change.to.bytes().0 as f64);
        parts.entry(change.part).or_default().push(point);
    }
    parts
}

/// Page size over time by part of the program (aapc-2012, figure 7).
pub(super) fn sizes(summary: &Summary, recording: &Recording) -> Drawing {
    let wall = wall_ns(summary);
    let parts = recording.sizes.by_part();
    let fixed = recording.sizes.changes().is_empty();
    let mut most_changed: Vec<_> = parts.iter().collect();
    most_changed.sort_by_key(|(part, sizes)| (std::cmp::Reverse(sizes.len()), **part));
    let axis = Axis::new("page size", Unit::Bytes).scale(Scale::Log2).include(BASE_PAGE_BYTES as f64);
    let mut figure = Figure::new("Page size over time", time_axis(), axis);
    for (part, sizes) in most_changed.iter().take(PARTS_MAX) {
        let name = if fixed { "all pages".to_owned() } else { format!("part {part}") };
        let mut points: Vec<(f64, f64)> =
            sizes.iter().map(|(at, size)| ((at.0 as f64).min(wall), size.bytes().0 as f64)).collect();
        points.extend(points.last().map(|&(_, size)| (wall, size)));
        figure = figure.series(Series::step(name, points));
    }
    for (part, points) in in_places(recording, wall).into_iter().take(PARTS_MAX) {
        figure = figure.series(Series::scatter(format!("part {part}, single places"), points));
    }
    let mut note = match most_changed.len().saturating_sub(PARTS_MAX) {
        0 => String::new(),
        more => format!("{more} parts with fewer changes are not drawn. "),
    };
    match recording.sizes.left_out() {
        0 => {}
        left_out => note.push_str(&format!("{left_out} changes that lie close together are not drawn.")),
    }
    let (sees, does) = if fixed {
        (
            "The unit in which memory left and came back was the same from start to end.",
            "Try the same run with another --page and compare: larger pages help programs that go through memory in order, smaller ones those that \
             jump about, since a page that is used at one place takes the room of many.",
        )
    } else {
        (
            "Parts are stretches of the program's run that come again, such as the phases of an iteration. The line of a part steps when all its \
             pages got another size; a mark is a size that single places (of 1 MiB and more) got. The list below says why.",
            "A size that goes up and down all the time has found no best: the parts may be too long or differ from one time to the next. Where a part \
             stays at the smallest or the largest size from early on, that size can be given by --page for a program that is all like it.",
        )
    };
    let reasons: Vec<String> = recording
        .sizes
        .changes()
        .iter()
        .take(5)
        .map(|change| {
            format!(
                "after {}, part {}: {} to {} {} ({})",
                Unit::Ns.write(change.at.0 as f64),
                change.part,
                change.from.bytes(),
                change.to.bytes(),
                match change.extents {
                    0 => "everywhere".to_owned(),
                    1 => "in one place of 1 MiB".to_owned(),
                    extents => format!("in {extents} MiB side by side"),
                },
                crate::text::printable(&change.reason, 100)
            )
        })
        .collect();
    let first = if reasons.is_empty() {
        String::new()
    } else {
        format!(" The first changes: {}.", reasons.join("; "))
    };
    let sees = sees.replace(" The list below says why.", &first);
    let height = if fixed { 260 } else { 460 };
    Ok(Drawn { figure: figure.note(note).size(800, height), sees, does: does.into() })
}
