//! What a run tells: warnings as they come, a live line, the summary, and the control socket behind `loam status`.

use super::pause::is_want;
use super::program::Status;
use super::region::Regions;
use super::{Agent, Token};
use crate::config::RunConfig;
use crate::control::Folder;
use crate::recording::{Recording, SizeChange, Sizes};
use crate::stderr;
use crate::summary::{
    Evictions, Faults, Forks, PageSizeChange, Percentiles, Staging, Summary, TimeSplit, Traffic,
};
use hdrhistogram::Histogram;
use loam_core::borrower::{FaultKind, LenderIndex};
use loam_core::units::{BASE_PAGE_BYTES, Bytes, Duration, Instant};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::SocketType;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

/// Between two states of the live line.
const LIVE_INTERVAL: Duration = Duration::from_millis(500);
/// Different warnings that are kept; more are counted only.
const WARNINGS_MAX: usize = 64;
/// Largest latency that is told apart: ten minutes, in nanoseconds.
const LATENCY_MAX_NS: u64 = 600_000_000_000;
/// Latest changes of page sizes that a living run tells: all of its answer has to fit into a socket's buffer.
const LIVE_CHANGES_MAX: usize = 64;
/// And so much of its command line, which may be of megabytes.
const LIVE_COMMAND_BYTES_MAX: usize = 4 << 10;

/// See the module's documentation.
pub(super) struct Report {
    quiet: bool,
    live: bool,
    command: String,
    warnings: Vec<String>,
    latency_ns: Histogram<u64>,
    swap_out_ns: Histogram<u64>,
    pub bytes: Traffic,
    pub processes: u64,
    pub regions: Regions,
    control: Option<(UnixListener, PathBuf)>,
    live_due: Instant,
    live_faults: u64,
    live_shown: bool,
    pub recording: Option<Box<Recording>>,
    /// Which page sizes were used when. Where sizes change, each change is recorded here.
    pub sizes: Sizes,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("bounds are in order")
}

/// The begin of a command line that is too long for a living run to tell.
fn live_command(command: &str) -> String {
    if command.len() <= LIVE_COMMAND_BYTES_MAX {
        return command.to_owned();
    }
    let ends = command.char_indices().map(|(at, letter)| at + letter.len_utf8());
    let end = ends.take_while(|&end| end <= LIVE_COMMAND_BYTES_MAX).last().unwrap_or(0);
    format!("{}…", &command[..end])
}

impl Report {
    pub(super) fn new(config: &RunConfig) -> Self {
        let words = std::iter::once(&config.program).chain(&config.args);
        let command = words.map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ");
        Self {
            quiet: config.quiet,
            live: config.live_line && !config.quiet,
            command,
            warnings: Vec::new(),
            latency_ns: histogram(),
            swap_out_ns: histogram(),
            bytes: Traffic::default(),
            processes: 0,
            regions: Regions::default(),
            control: None,
            live_due: Instant(0),
            live_faults: 0,
            live_shown: false,
            recording: config.record.then(Box::default),
            sizes: Sizes::new(config.page.first().base_pages()),
        }
    }

    /// Opens the control socket; a run without one still runs.
    pub(super) fn listen(&mut self, folder: &Folder) {
        match folder.listen(&format!("run-{}.sock", std::process::id()), SocketType::STREAM, 0o600) {
            Ok((listener, path)) => self.control = Some((UnixListener::from(listener), path)),
            Err(error) => tracing::debug!("no control socket: {error}"),
        }
    }

    pub(super) fn control_fd(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().map(|(listener, _)| listener.as_fd())
    }

    /// A line for a person, at once and in the summary; the same line is told once.
    pub(super) fn warn(&mut self, line: &str) {
        if self.warnings.iter().any(|w| w == line) || self.warnings.len() >= WARNINGS_MAX {
            return;
        }
        self.warnings.push(line.to_owned());
        if !self.quiet {
            self.clear_live();
            stderr::tell(line);
        }
    }

    /// What is known of why pages are lost, for the closing line.
    pub(super) fn why_lost(&self) -> String {
        self.warnings
            .iter()
            .rev()
            .find(|w| w.contains("lost"))
            .map_or_else(String::new, |w| format!(" ({w})"))
    }

    fn clear_live(&mut self) {
        if std::mem::take(&mut self.live_shown) {
            stderr::show("\r\x1b[K");
        }
    }

    /// The run is over.
    pub(super) fn end(&mut self) {
        self.clear_live();
        if let Some((_, path)) = self.control.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.end();
    }
}

impl Agent<'_> {
    /// Takes in latencies, and shows the live line when it is time.
    pub(super) fn report_tick(&mut self, now: Instant) {
        while let Some((kind, latency)) = self.borrower.poll_latency() {
            self.report.latency_ns.saturating_record(latency.0.max(1));
            self.record_wait(kind, latency);
        }
        while let Some(time) = self.borrower.poll_swap_out() {
            self.report.swap_out_ns.saturating_record(time.0.max(1));
        }
        while let Some(change) = self.borrower.poll_size_change() {
            self.report.sizes.record(SizeChange::from(change));
        }
        self.record_moment(now);
        if !self.report.live || now < self.report.live_due {
            return;
        }
        let faults = self.borrower.stats().faults;
        let per_second = (faults - self.report.live_faults) * 1_000_000_000 / LIVE_INTERVAL.0;
        self.report.live_faults = faults;
        self.report.live_due = now + LIVE_INTERVAL;
        if self.borrower.adopted().0 == 0 {
            return;
        }
        self.report.live_shown = true;
        stderr::show(&format!(
            "\r\x1b[Kloam: local {} of {} | elsewhere {} | {per_second} faults/s | {:.0} us",
            Bytes(self.watch.resident_pages * BASE_PAGE_BYTES as u64),
            self.config.local,
            self.borrower.copies_in_use().bytes(),
            self.report.latency_ns.value_at_quantile(0.5) as f64 / 1e3,
        ));
    }

    /// Answers `loam status`.
    pub(super) fn answer_control(&mut self) {
        while let Some(accepted) = self.report.control.as_ref().map(|(listener, _)| listener.accept()) {
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    if let Some(errno) = Errno::from_io_error(&error).filter(|&errno| is_want(errno)) {
                        self.pause_accepting(Token::Control, Some(errno));
                    }
                    return;
                }
            };
            let mut text = serde_json::to_vec(&self.summary(None)).expect("a summary is plain data");
            text.push(b'\n');
            // Fits into a socket's buffer; a reader that does not read must not hold us up.
            let _ = stream.set_nonblocking(true);
            let _ = (&stream).write_all(&text);
        }
    }

    /// What became of pages at several lenders.
    fn staging(&self) -> Staging {
        let stats = self.borrower.stats();
        Staging { sent: stats.sent, stored: stats.drained, mended: stats.mended }
    }

    /// The figures so far, or of the whole run: the program is over.
    pub(super) fn summary(&mut self, over: Option<Status>) -> Summary {
        let now = self.now();
        self.report_tick(now);
        let stats = self.borrower.stats();
        let answered = |kind: FaultKind| stats.answered[kind as usize];
        let wall_s = now.0 as f64 / 1e9;
        let pages = |n: u64| n * BASE_PAGE_BYTES as u64;
        let changes = self.report.sizes.changes();
        let untold = if over.is_some() { 0 } else { changes.len().saturating_sub(LIVE_CHANGES_MAX) };
        let present = self.lenders.iter().enumerate();
        let present = present.map(|(n, l)| l.summary(self.borrower.held_by(LenderIndex(n as u8))));
        let lenders = present.chain(self.past.lenders.iter().cloned()).collect();
        Summary {
            pid: std::process::id(),
            command: match over {
                Some(_) => self.report.command.clone(),
                None => live_command(&self.report.command),
            },
            exit_code: over.and_then(Status::exit_code),
            wall_s,
            local_limit_bytes: self.config.local.0,
            local_peak_bytes: pages(self.watch.peak_pages),
            local_bytes: pages(self.watch.resident_pages),
            remote_bytes: self.borrower.copies_in_use().bytes().0,
            adopted_bytes: self.watch.adopted_peak.bytes().0,
            shared_local_bytes: self.watch.shared_peak_bytes,
            mapped_files_bytes: pages(self.watch.cached_peak_pages),
            faults: Faults {
                total: stats.faults,
                zero: answered(FaultKind::Zero),
                rescued: answered(FaultKind::Rescued),
                remote: answered(FaultKind::Remote),
                disk: answered(FaultKind::Disk),
                prefetched_hit: answered(FaultKind::PrefetchedHit),
            },
            fault_latency_us: Percentiles::of(&self.report.latency_ns),
            evictions: Evictions {
                moved: stats.moved,
                clean: stats.clean,
                zero: stats.zero,
                busy: stats.busy,
                advised: stats.advised_out,
            },
            forks: Forks { writes: stats.writes, copied: stats.copied },
            token_given: stats.token_given,
            bytes: self.report.bytes.clone(),
            time_s: TimeSplit::of(wall_s, &stats, self.throttle.waited),
            lenders,
            lenders_joined: self.past.joined,
            lenders_lost: self.past.lost,
            placement: self.config.placement.clone(),
            durability: self.config.durability.to_string(),
            staging: self.staging(),
            swap_out_us: Percentiles::of(&self.report.swap_out_ns),
            page_bytes: self.config.page.first().0,
            fetch_plan: self.config.fetch_plan.clone(),
            subpage_bytes: self.borrower.subpage().bytes().0,
            page_size_changes: changes[untold..].iter().map(PageSizeChange::of).collect(),
            page_size_changes_left_out: self.report.sizes.left_out() + untold as u64,
            region: self.config.region.map(|r| {
                let pool = self.direct.as_ref().map(|direct| &direct.pool);
                self.report.regions.summary(r, pool, self.processes.values())
            }),
            reservation: self.reservation_summary(),
            processes: self.report.processes,
            processes_without_loam: self.watch.without_loam(),
            programs_without_loam: self.watch.names_without_loam(),
            agent_bytes: self.own_bytes(),
            warnings: self.report.warnings.clone(),
        }
    }

    /// The agent's own memory beyond page contents.
    fn own_bytes(&self) -> u64 {
        let own = rustix::process::getpid();
        let Ok(anonymous) = crate::procfs::anonymous_bytes(own) else { return 0 };
        anonymous.0.saturating_sub(self.pool.resident_bytes() + self.zeros.resident_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_run_tells_the_begin_of_a_long_command() {
        assert_eq!(live_command("sort -n a"), "sort -n a");
        let long = format!("sort {}", "ä".repeat(1 << 20));
        let told = live_command(&long);
        assert!(told.len() <= LIVE_COMMAND_BYTES_MAX + "…".len() && told.ends_with("ä…"), "{}", told.len());
        assert!(long.starts_with(told.trim_end_matches('…')));
    }
}
