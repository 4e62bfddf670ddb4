//! The closing lines of a run, in words that need no manual.

use crate::text::{count, micros, percent, printable, seconds};
use loam_agent::summary::{RegionSummary, ReservationSummary, Summary};
use loam_core::units::{BASE_PAGE_BYTES, Bytes};
use std::fmt::Write;

/// Longest part of the command that is shown.
const COMMAND_CHARS_MAX: usize = 60;

/// Lenders that are listed one by one; the summary file has more.
const LENDERS_SHOWN_MAX: usize = 20;
/// Changes of page sizes that are listed.
const CHANGES_SHOWN_MAX: usize = 5;

/// Everything that a person should know about a run that has ended.
pub(crate) fn lines(summary: &Summary) -> String {
    let mut out = String::new();
    let mut say = |line: String| writeln!(out, "{line}").expect("a String takes what is written");
    let ended = match summary.exit_code {
        Some(code @ 129..=192) => format!("was ended by signal {}", code - 128),
        Some(code) => format!("exited with status {code}"),
        None => "still runs".into(),
    };
    let command = printable(&summary.command, COMMAND_CHARS_MAX);
    say(format!("loam: {command} {ended} after {}", seconds(summary.wall_s)));
    say(format!(
        "  memory    at most {} here, limit {}",
        Bytes(summary.local_peak_bytes),
        Bytes(summary.local_limit_bytes)
    ));
    if summary.evictions.moved == 0 {
        say("            it fitted: nothing was borrowed".into());
    } else {
        borrowed(summary, &mut say);
    }
    if let Some(region) = &summary.region {
        lines_of_region(region, &mut say);
    }
    if let Some(reservation) = &summary.reservation {
        line_of_reservation(reservation, &mut say);
    }
    if summary.shared_local_bytes > 0 {
        say(format!(
            "  shared    {} of shared memory stayed here, outside of Loam",
            Bytes(summary.shared_local_bytes)
        ));
    }
    if summary.mapped_files_bytes > 0 {
        say(format!(
            "  files     {} of mapped files were here besides: the kernel takes them back when it needs the room",
            Bytes(summary.mapped_files_bytes)
        ));
    }
    if summary.processes_without_loam > 0 {
        say(format!(
            "  processes {} served; {} ran without Loam (static, set-user-id, a cleaned environment, under valgrind, in a sandbox without Loam's library or a way to the agent, or a child made past libc): {}",
            count(summary.processes),
            count(summary.processes_without_loam),
            printable(&summary.programs_without_loam.join(", "), 200)
        ));
    }
    for warning in &summary.warnings {
        say(format!("  WARNING   {}", printable(warning, 400)));
    }
    out
}

/// What was set aside, and whether it still was at the end.
fn line_of_reservation(reservation: &ReservationSummary, say: &mut impl FnMut(String)) {
    let ReservationSummary { bytes, copies, promised_bytes, reserved_bytes } = *reservation;
    let copies = if copies > 1 { format!(", {copies} copies of each page") } else { String::new() };
    let lost = match promised_bytes.saturating_sub(reserved_bytes) {
        0 => String::new(),
        lost => format!("; {} of that were LOST with lenders", Bytes(lost)),
    };
    say(format!("  reserved  {}{copies}: lenders kept {} for it{lost}", Bytes(bytes), Bytes(promised_bytes)));
}

/// What was allocated in the region, and what was not.
fn lines_of_region(region: &RegionSummary, say: &mut impl FnMut(String)) {
    say(format!(
        "  region    {}: {} allocations of {} and more, {} in all, at most {} at a time in one process",
        Bytes(region.size_bytes),
        count(region.allocations),
        Bytes(region.min_alloc_bytes),
        Bytes(region.allocated_bytes),
        Bytes(region.peak_bytes)
    ));
    if let Some(direct) = &region.direct {
        say(format!(
            "            direct: at most {} of it in use at a time, by all processes together; {} copied for forked children",
            Bytes(direct.peak_bytes),
            Bytes(direct.copied_bytes)
        ));
        if direct.private_bytes > 0 {
            say(format!(
                "            {} of these are the children's own memory, as the region was full: give --region more",
                Bytes(direct.private_bytes)
            ));
        }
    }
    if region.full > 0 {
        say(format!(
            "            FULL: it had no room for {} allocations of {} in all, which the C library served: give --region more",
            count(region.full),
            Bytes(region.full_bytes)
        ));
    }
    if region.processes_not_calling > 0 {
        say(format!(
            "            {} processes never called the C library's allocator: they have one of their own, or none, and nothing of them was borrowed",
            count(region.processes_not_calling)
        ));
    }
}

/// The part about pages that left and came back.
fn borrowed(summary: &Summary, say: &mut impl FnMut(String)) {
    let pages = |pages: u64| Bytes(pages.saturating_mul(BASE_PAGE_BYTES as u64));
    let evictions = &summary.evictions;
    say(format!(
        "  left      {} in {} pages: {} unchanged since an earlier copy, {} all zeros (dropped), the rest sent away",
        pages(evictions.moved),
        count(evictions.moved),
        percent(evictions.clean as f64, evictions.moved as f64),
        percent(evictions.zero as f64, evictions.moved as f64),
    ));
    if evictions.busy > 0 {
        say(format!(
            "            {} pages were in use by a device or shared with a child, and stayed",
            count(evictions.busy)
        ));
    }
    if summary.forks.copied > 0 {
        say(format!(
            "            {} pages that parent and child had in common were written, and got memory of their own",
            count(summary.forks.copied)
        ));
    }
    if summary.token_given > 0 {
        let times = if summary.token_given == 1 {
            "once".into()
        } else {
            format!("{} times", count(summary.token_given))
        };
        say(format!(
            "            processes took memory from one another: {times} one of them kept what it had until it had got on"
        ));
    }
    let traffic = &summary.bytes;
    let lost = match summary.lenders_lost {
        0 => String::new(),
        lost => format!(", {} lost", count(lost)),
    };
    say(format!(
        "  lenders   {} joined{lost}; {} sent to them, {} fetched back",
        count(summary.lenders_joined),
        Bytes(traffic.sent),
        Bytes(traffic.received)
    ));
    safety(summary, say);
    if summary.lenders.len() > LENDERS_SHOWN_MAX {
        say(format!("            the first {LENDERS_SHOWN_MAX} of them:"));
    }
    for lender in summary.lenders.iter().take(LENDERS_SHOWN_MAX) {
        let addr = printable(&lender.addr, 64);
        let lost = if lender.lost { format!("LOST: {}", printable(&lender.why, 200)) } else { String::new() };
        let [holds, sent, received] =
            [lender.bytes, lender.sent_bytes, lender.received_bytes].map(|bytes| Bytes(bytes).to_string());
        let line =
            format!("            {addr:<21} holds {holds:>10}, sent {sent:>10}, back {received:>10}  {lost}");
        say(line.trim_end().into());
    }
    if traffic.disk_written + traffic.disk_read > 0 {
        say(format!(
            "  disk      {} written, {} read back",
            Bytes(traffic.disk_written),
            Bytes(traffic.disk_read)
        ));
    }
    let faults = &summary.faults;
    if faults.total == 0 {
        say("  faults    none: what left was not wanted again".into());
        return;
    }
    say(format!(
        "  faults    the program waited {} times for a page that was away, answered",
        count(faults.total)
    ));
    let ways = [
        (faults.remote, "by a lender"),
        (faults.disk, "by the disk"),
        (faults.prefetched_hit, "at once: it had been fetched ahead"),
        (faults.rescued, "at once: it was still on its way out"),
        (faults.zero, "at once: fresh memory or zeros"),
    ];
    for (number, how) in ways.into_iter().filter(|(number, _)| *number > 0) {
        let part = percent(number as f64, faults.total as f64);
        say(format!("            {:>12} {part:>5}  {how}", count(number)));
    }
    let latency = &summary.fault_latency_us;
    say(format!(
        "  latency   half of them within {}, 9 of 10 within {}, 99 of 100 within {}, longest {}",
        micros(latency.p50),
        micros(latency.p90),
        micros(latency.p99),
        micros(latency.max)
    ));
    let time = &summary.time_s;
    say(format!(
        "  time      {} with no thread waiting for memory ({}), {} waiting for the page touched, {} for one already asked for, {} for room",
        seconds(time.exec),
        percent(time.exec, time.whole()),
        seconds(time.sp_latency),
        seconds(time.page_wait),
        seconds(time.put_wait)
    ));
    sizes(summary, say);
}

/// When pages were safe, and what became of them where that was at several lenders.
fn safety(summary: &Summary, say: &mut impl FnMut(String)) {
    let (staging, swap_out) = (&summary.staging, &summary.swap_out_us);
    let durability = printable(&summary.durability, 40);
    let stored = match staging.stored {
        0 => String::new(),
        stored => format!("; lenders wrote {} pages to their disks", count(stored)),
    };
    let mended = match staging.mended {
        0 => String::new(),
        mended => format!("; {} pages had lost a lender and were sent to another", count(mended)),
    };
    say(format!(
        "  safe      by {durability}: half of what left within {}, 9 of 10 within {}{stored}{mended}",
        micros(swap_out.p50),
        micros(swap_out.p90)
    ));
}

/// Which plan and sizes were used, and when.
fn sizes(summary: &Summary, say: &mut impl FnMut(String)) {
    let (page, subpage) = (Bytes(summary.page_bytes), Bytes(summary.subpage_bytes));
    let plan = printable(&summary.fetch_plan, 40);
    say(format!("  pages     of {page}, fetched by the plan {plan} in subpages of {subpage}"));
    let changes = &summary.page_size_changes;
    for change in changes.iter().take(CHANGES_SHOWN_MAX) {
        say(format!(
            "            {} after {}: {}part {} had {} until then ({})",
            Bytes(change.to_bytes),
            seconds(change.at_s),
            if change.extents == 0 { "" } else { "a place in " },
            change.part,
            Bytes(change.from_bytes),
            printable(&change.reason, 80)
        ));
    }
    let more = changes.len().saturating_sub(CHANGES_SHOWN_MAX) as u64 + summary.page_size_changes_left_out;
    if more > 0 {
        say(format!("            and {} more changes (--summary, --report)", count(more)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_agent::summary::{DirectSummary, Evictions, Faults, Forks, LenderSummary};
    use loam_agent::summary::{PageSizeChange, TimeSplit};

    fn summary() -> Summary {
        Summary {
            command: "sort big.txt".into(),
            exit_code: Some(0),
            wall_s: 12.3,
            local_limit_bytes: 256 << 20,
            local_peak_bytes: 250 << 20,
            ..Summary::default()
        }
    }

    #[test]
    fn a_program_that_fits_is_told_in_few_words() {
        let text = lines(&summary());
        assert!(text.contains("sort big.txt exited with status 0 after 12.3 s"), "{text}");
        assert!(text.contains("nothing was borrowed") && !text.contains("faults"), "{text}");
    }

    #[test]
    fn a_region_that_was_full_or_not_used_is_told() {
        let region = RegionSummary {
            size_bytes: 64 << 20,
            min_alloc_bytes: 256 << 10,
            allocations: 1234,
            allocated_bytes: 3 << 30,
            peak_bytes: 60 << 20,
            ..RegionSummary::default()
        };
        let text = lines(&Summary { region: Some(region.clone()), ..summary() });
        assert!(text.contains("1,234 allocations") && !text.contains("FULL"), "{text}");
        let region = RegionSummary { full: 7, full_bytes: 70 << 20, processes_not_calling: 2, ..region };
        let text = lines(&Summary { region: Some(region), ..summary() });
        for part in ["FULL", "7 allocations of 70.0 MiB", "2 processes never called"] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
        assert!(!lines(&summary()).contains("region"));
        let direct = DirectSummary { peak_bytes: 48 << 20, copied_bytes: 20 << 20, private_bytes: 6 << 20 };
        let region = RegionSummary { direct: Some(direct), ..RegionSummary::default() };
        let text = lines(&Summary { region: Some(region), ..summary() });
        for part in ["at most 48.0 MiB of it", "20.0 MiB copied", "6.0 MiB of these"] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
    }

    #[test]
    fn where_the_time_went_and_which_sizes_were_used_is_told() {
        let mut summary = summary();
        summary.evictions.moved = 1;
        summary.faults.total = 1;
        summary.time_s = TimeSplit { exec: 5.0, sp_latency: 3.0, put_wait: 1.5, page_wait: 0.5 };
        (summary.page_bytes, summary.subpage_bytes, summary.fetch_plan) = (65536, 4096, "eager".into());
        let change = |at: u32| PageSizeChange {
            at_s: f64::from(at),
            part: at,
            from_bytes: 65536,
            to_bytes: 8192,
            // Every second one of a whole part.
            extents: if at.is_multiple_of(2) { 0 } else { 3 },
            reason: "it fits".into(),
        };
        summary.page_size_changes = (1..=7).map(change).collect();
        summary.page_size_changes_left_out = 1000;
        let text = lines(&summary);
        for part in [
            "5.0 s with no thread waiting for memory (50%), 3.0 s waiting for the page touched, 0.5 s for one already asked for, 1.5 s for room",
            "of 64.0 KiB, fetched by the plan eager in subpages of 4.0 KiB",
            "8.0 KiB after 4.0 s: part 4 had 64.0 KiB until then (it fits)",
            "8.0 KiB after 5.0 s: a place in part 5 had 64.0 KiB until then (it fits)",
            "and 1,002 more changes",
        ] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
        assert!(!text.contains("part 6"), "{text}");
    }

    #[test]
    fn what_was_set_aside_is_told_and_what_was_lost_of_it() {
        let mut summary = summary();
        assert!(!lines(&summary).contains("reserved"));
        let mut reservation = ReservationSummary {
            bytes: 4 << 30,
            copies: 2,
            promised_bytes: 8 << 30,
            reserved_bytes: 8 << 30,
        };
        summary.reservation = Some(reservation.clone());
        let text = lines(&summary);
        let line = "  reserved  4.0 GiB, 2 copies of each page: lenders kept 8.0 GiB for it\n";
        assert!(text.contains(line), "{text}");
        reservation.reserved_bytes = 5 << 30;
        summary.reservation = Some(reservation);
        let text = lines(&summary);
        assert!(text.contains("for it; 3.0 GiB of that were LOST with lenders"), "{text}");
    }

    #[test]
    fn every_answered_fault_and_every_lost_lender_is_told() {
        let mut summary = summary();
        summary.exit_code = Some(139);
        summary.evictions = Evictions { moved: 1000, clean: 250, zero: 5, busy: 3, advised: 0 };
        summary.forks = Forks { writes: 7, copied: 1234 };
        summary.token_given = 2;
        summary.faults = Faults { total: 100, remote: 60, disk: 40, ..Faults::default() };
        summary.lenders.push(LenderSummary {
            addr: "10.0.0.7:7070".into(),
            lost: true,
            why: "hung\nfor 2 s".into(),
            sent_bytes: 3 << 20,
            ..LenderSummary::default()
        });
        (summary.lenders_joined, summary.lenders_lost) = (2, 1);
        summary.warnings.push("disk full\x1b[2J".into());
        let text = lines(&summary);
        for part in [
            "signal 11",
            "25%",
            "1,234 pages that parent and child had in common were written",
            "2 times one of them kept what it had",
            "60%  by a lender",
            "40%  by the disk",
            "LOST: hung for 2 s",
            "WARNING",
            "2 joined, 1 lost;",
            "sent    3.0 MiB",
        ] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
        assert!(!text.contains("fetched ahead"), "{text}");
        assert!(!text.contains('\x1b'), "control characters were passed on");
    }
}
