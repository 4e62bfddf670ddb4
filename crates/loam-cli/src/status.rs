//! `loam status`: what this user's runs say of themselves, and what nodes and lenders say when they are asked.

use crate::args::StatusArgs;
use crate::cluster::{self, Asked, ClusterStatus};
use crate::failure::Failure;
use crate::target;
use crate::text::{count, micros, percent, printable, seconds, table};
use loam_agent::summary::Summary;
use loam_core::units::{BASE_PAGE_BYTES, Bytes};
use loam_wire::client::{Client, Status, Target};
use loam_wire::{FEATURES_KNOWN, MemoryFigures, feature};
use serde::Serialize;
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long a run or a lender may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Longest answer of a run that is read.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// Most runs that are asked.
const RUNS_MAX: usize = 256;

/// This user's runs, lowest process id first.
#[derive(Default)]
struct Runs {
    answered: Vec<Summary>,
    silent: Vec<SilentRun>,
}

/// A run that listens, and gave no answer that can be read.
#[derive(Serialize)]
struct SilentRun {
    pid: u32,
    error: String,
}

/// One lender's answer.
#[derive(Serialize)]
struct LenderStatus {
    addr: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    capacity_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    pages: u64,
    gets: u64,
    puts: u64,
    misses: u64,
    uptime_s: u64,
    connections: u64,
    /// `None`: a lender of before it gave memory back.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryStatus>,
    /// `None`: a lender of before there were reservations.
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved: Option<ReservedStatus>,
    /// `None`: it has no disk store.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<StoreStatus>,
    /// What may fail together with it; empty if nobody has said.
    #[serde(skip_serializing_if = "String::is_empty")]
    zone: String,
    borrowers: Vec<BorrowerStatus>,
}

/// A lender's disk store.
#[derive(Serialize)]
struct StoreStatus {
    capacity_bytes: u64,
    free_bytes: u64,
}

/// What runs have reserved at a lender.
#[derive(Serialize)]
struct ReservedStatus {
    reserved_bytes: u64,
    /// What may be, in all.
    reservable_bytes: u64,
    /// What one more run could reserve now.
    free_bytes: u64,
}

/// How much a lender lends now, and why.
#[derive(Serialize)]
struct MemoryStatus {
    limit_bytes: u64,
    reserve_bytes: u64,
    available_bytes: u64,
    slab_bytes: u64,
    dropped_pages: u64,
    recalled_pages: u64,
    kept_pages: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

/// One borrower of a lender.
#[derive(Serialize)]
struct BorrowerStatus {
    name: String,
    pages: u64,
    bytes: u64,
    connections: u32,
}

/// Asks and prints.
pub(crate) fn status(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let folder = loam_agent::control_dir().map_err(Failure::new)?;
    let runs = folder.map_or_else(|| Ok(Runs::default()), |folder| runs(&folder))?;
    let tls = args.tls.as_deref();
    let lenders: Vec<LenderStatus> =
        target::targets(&args.lender, tls, &[])?.into_iter().map(ask_lender).collect();
    let asked: Vec<Asked> = match args.nodes[..] {
        [] => cluster::local(args.socket.as_deref()).into_iter().collect(),
        _ => target::targets(&args.nodes, tls, &[])?.into_iter().map(Asked::Target).collect(),
    };
    let clusters: Vec<ClusterStatus> = asked.iter().map(cluster::ask).collect();
    if args.json {
        let object = serde_json::json!({
            "runs": runs.answered, "silent_runs": runs.silent, "clusters": clusters, "lenders": lenders
        });
        println!("{object:#}");
    } else {
        print!("{}", runs_text(&runs));
        for cluster in &clusters {
            print!("{}", cluster::text(cluster));
        }
        for lender in &lenders {
            print!("{}", lender_text(lender));
        }
    }
    let unanswered = lenders.iter().filter(|lender| lender.error.is_some()).count()
        + clusters.iter().filter(|cluster| cluster.error.is_some()).count();
    Ok(if unanswered > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Every live run whose socket is in `dir`.
fn runs(dir: &Path) -> Result<Runs, Failure> {
    let mut runs = Runs::default();
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        // No run has ever made it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(runs),
        Err(error) => return Err(Failure::new(format!("cannot read {} ({error})", dir.display()))),
    };
    let pid = |path: &Path| -> Option<u32> {
        path.file_name()?.to_str()?.strip_prefix("run-")?.strip_suffix(".sock")?.parse().ok()
    };
    let paths = entries.flatten().map(|entry| entry.path());
    for (pid, path) in paths.filter_map(|path| Some((pid(&path)?, path))).take(RUNS_MAX) {
        match ask_run(&path) {
            Ok(run) => runs.answered.extend(run),
            Err(error) => runs.silent.push(SilentRun { pid, error: silence(&error) }),
        }
    }
    runs.answered.sort_by_key(|run| run.pid);
    runs.silent.sort_by_key(|run| run.pid);
    Ok(runs)
}

/// None: there is none any more. A socket without a listener is what a killed run left behind; one that ends just now says nothing.
fn ask_run(path: &Path) -> std::io::Result<Option<Summary>> {
    match answer_of_run(path) {
        Ok(answer) if answer.is_empty() => Ok(None),
        Ok(answer) => Ok(Some(serde_json::from_slice(&answer)?)),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => Ok(None),
            _ => Err(error),
        },
    }
}

fn answer_of_run(path: &Path) -> std::io::Result<Vec<u8>> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

fn silence(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("it does not answer within {} s", ANSWER_WITHIN.as_secs())
        }
        _ => format!("its answer cannot be read: {error}"),
    }
}

fn ask_lender(target: Target) -> LenderStatus {
    let addr = target.addr;
    let asked = Client::connect_with(target, FEATURES_KNOWN, 0, "loam status", ANSWER_WITHIN).and_then(
        |mut client| {
            let status = client.status()?;
            let knows = client.welcome().features() & feature::RECALL != 0;
            let memory = if knows { Some(client.memory()?) } else { None };
            let reserves = client.welcome().features() & feature::RESERVE != 0;
            let reservation = if reserves { Some(client.reserve(0)?) } else { None };
            let store = client.store().cloned();
            Ok((status, memory, reservation, store))
        },
    );
    match asked {
        Ok((status, memory, reservation, news)) => {
            let zone = news.as_ref().map_or_else(String::new, |news| news.zone.clone());
            let store = news.filter(|news| news.store_bytes > 0).map(|news| StoreStatus {
                capacity_bytes: news.store_bytes,
                free_bytes: news.store_free_bytes,
            });
            let reserved = reservation.map(|reservation| ReservedStatus {
                reserved_bytes: reservation.all_bytes(),
                reservable_bytes: reservation.reservable_bytes(),
                free_bytes: reservation.most_bytes(),
            });
            LenderStatus {
                memory: memory.map(memory_status),
                reserved,
                store,
                zone,
                ..answered(addr, &status)
            }
        }
        Err(error) => LenderStatus { error: Some(error.to_string()), ..silent(addr) },
    }
}

fn memory_status((figures, reason): (MemoryFigures, String)) -> MemoryStatus {
    MemoryStatus {
        limit_bytes: figures.limit_bytes.get(),
        reserve_bytes: figures.reserve_bytes.get(),
        available_bytes: figures.available_bytes.get(),
        slab_bytes: figures.slab_bytes.get(),
        dropped_pages: figures.dropped.get(),
        recalled_pages: figures.recalled.get(),
        kept_pages: figures.kept.get(),
        reason,
    }
}

fn silent(addr: SocketAddr) -> LenderStatus {
    LenderStatus {
        addr: addr.to_string(),
        error: None,
        capacity_bytes: 0,
        used_bytes: 0,
        free_bytes: 0,
        pages: 0,
        gets: 0,
        puts: 0,
        misses: 0,
        uptime_s: 0,
        connections: 0,
        memory: None,
        reserved: None,
        store: None,
        zone: String::new(),
        borrowers: Vec::new(),
    }
}

fn answered(addr: SocketAddr, status: &Status) -> LenderStatus {
    let figures = &status.figures;
    let borrowers = status.borrowers.iter().map(|borrower| BorrowerStatus {
        name: borrower.name().to_string(),
        pages: borrower.pages(),
        bytes: borrower.pages().saturating_mul(BASE_PAGE_BYTES as u64),
        connections: borrower.connections(),
    });
    LenderStatus {
        capacity_bytes: figures.capacity_bytes.get(),
        used_bytes: figures.used_bytes.get(),
        free_bytes: figures.free_bytes.get(),
        pages: figures.pages.get(),
        gets: figures.gets.get(),
        puts: figures.puts.get(),
        misses: figures.misses.get(),
        uptime_s: figures.uptime_s.get(),
        connections: figures.connections.get(),
        borrowers: borrowers.collect(),
        ..silent(addr)
    }
}

fn runs_text(runs: &Runs) -> String {
    let mut out = match (&runs.answered[..], &runs.silent[..]) {
        ([], []) => "no run of this user\n".into(),
        ([], _) => String::new(),
        (answered, _) => answered_text(answered),
    };
    for run in &runs.silent {
        out.push_str(&format!("run {}: {}\n", run.pid, run.error));
    }
    out
}

fn answered_text(runs: &[Summary]) -> String {
    let heading =
        ["program", "pid", "for", "here", "limit", "elsewhere", "faults", "remote", "disk", "p50", "p99"];
    let mut rows = vec![heading.map(String::from).to_vec()];
    for run in runs {
        rows.push(vec![
            printable(&run.command, 32),
            run.pid.to_string(),
            seconds(run.wall_s),
            Bytes(run.local_bytes).to_string(),
            Bytes(run.local_limit_bytes).to_string(),
            Bytes(run.remote_bytes).to_string(),
            count(run.faults.total),
            count(run.faults.remote),
            count(run.faults.disk),
            micros(run.fault_latency_us.p50),
            micros(run.fault_latency_us.p99),
        ]);
    }
    let mut out = table(&rows);
    for run in runs {
        if run.faults.total > 0 {
            let time = &run.time_s;
            let part = |part: f64| percent(part, time.whole());
            out.push_str(&format!(
                "run {}: {} of its time no thread waited for memory, {} for the page touched, {} for one already asked for, {} for room\n",
                run.pid,
                part(time.exec),
                part(time.sp_latency),
                part(time.page_wait),
                part(time.put_wait)
            ));
        }
        for lender in run.lenders.iter().filter(|lender| lender.lost) {
            let (addr, why) = (printable(&lender.addr, 64), printable(&lender.why, 200));
            out.push_str(&format!("run {} lost lender {addr}: {why}\n", run.pid));
        }
        for warning in &run.warnings {
            out.push_str(&format!("run {}: {}\n", run.pid, printable(warning, 400)));
        }
    }
    out
}

fn lender_text(lender: &LenderStatus) -> String {
    if let Some(error) = &lender.error {
        return format!("lender {}: {}\n", lender.addr, printable(error, 400));
    }
    let mut out = format!(
        "lender {}: {} of {} used, {} free; {} pages stored, {} fetched, {} missed since {} ago\n",
        lender.addr,
        Bytes(lender.used_bytes),
        Bytes(lender.capacity_bytes),
        Bytes(lender.free_bytes),
        count(lender.puts),
        count(lender.gets),
        count(lender.misses),
        seconds(lender.uptime_s as f64),
    );
    if let Some(memory) = &lender.memory {
        out.push_str(&memory_text(memory));
    }
    if let Some(reserved) = lender.reserved.as_ref().filter(|reserved| reserved.reserved_bytes > 0) {
        out.push_str(&format!(
            "  {} are reserved until those runs end, of {} that may be; {} could be now\n",
            Bytes(reserved.reserved_bytes),
            Bytes(reserved.reservable_bytes),
            Bytes(reserved.free_bytes)
        ));
    }
    if let Some(store) = &lender.store {
        let (free, all) = (Bytes(store.free_bytes), Bytes(store.capacity_bytes));
        out.push_str(&format!("  a disk store for {all} of pages, {free} free\n"));
    }
    if !lender.zone.is_empty() {
        out.push_str(&format!("  in zone {}\n", printable(&lender.zone, 64)));
    }
    for borrower in &lender.borrowers {
        let away = if borrower.connections == 0 { ", away" } else { "" };
        out.push_str(&format!("  {}: {}{away}\n", printable(&borrower.name, 64), Bytes(borrower.bytes)));
    }
    out
}

/// Nothing, while all that was offered may be lent and nothing ever had to go.
fn memory_text(memory: &MemoryStatus) -> String {
    let bytes = |pages: u64| Bytes(pages.saturating_mul(BASE_PAGE_BYTES as u64));
    let mut out = String::new();
    if !memory.reason.is_empty() {
        let (limit, reason) = (Bytes(memory.limit_bytes), printable(&memory.reason, 256));
        out.push_str(&format!("  lends {limit} at most now: {reason}\n"));
    }
    if memory.dropped_pages + memory.recalled_pages > 0 {
        let (dropped, recalled) = (bytes(memory.dropped_pages), bytes(memory.recalled_pages));
        out.push_str(&format!("  gave back {dropped} of spare copies, and {recalled} that went home\n"));
    }
    if memory.kept_pages > 0 {
        let kept = bytes(memory.kept_pages);
        out.push_str(&format!(
            "  {kept} above that are only copies that their borrowers have not taken home\n"
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    #[test]
    fn live_runs_answer_and_stale_sockets_are_skipped() {
        let dir = std::env::temp_dir().join(format!("loam-status-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary folder can be made");
        drop(UnixListener::bind(dir.join("run-1.sock")).expect("bound"));
        std::fs::write(dir.join("notes.txt"), "not a socket").expect("writable");
        let listener = UnixListener::bind(dir.join("run-2.sock")).expect("bound");
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("one asks");
            let summary = Summary { pid: 2, command: "sort\x1b[2J".into(), ..Summary::default() };
            stream.write_all(&serde_json::to_vec(&summary).expect("JSON")).expect("written");
        });
        let found = runs(&dir).expect("readable");
        answering.join().expect("no panic");
        std::fs::remove_dir_all(&dir).expect("our own folder");
        assert_eq!(found.answered.iter().map(|run| run.pid).collect::<Vec<_>>(), [2]);
        assert!(found.silent.is_empty());
        let text = runs_text(&found);
        assert!(text.contains("sort [2J") && !text.contains('\x1b'), "{text}");
    }

    #[test]
    fn a_run_whose_answer_is_cut_is_no_run_that_has_ended() {
        let dir = std::env::temp_dir().join(format!("loam-status-cut-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary folder can be made");
        let answering = [(3, ""), (4, "{\"pid\": 4, \"comm")].map(|(pid, answer)| {
            let listener = UnixListener::bind(dir.join(format!("run-{pid}.sock"))).expect("bound");
            std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("one asks");
                stream.write_all(answer.as_bytes()).expect("written");
            })
        });
        let found = runs(&dir).expect("readable");
        answering.into_iter().for_each(|thread| thread.join().expect("no panic"));
        std::fs::remove_dir_all(&dir).expect("our own folder");
        let text = runs_text(&found);
        assert!(text.starts_with("run 4: its answer cannot be read: EOF"), "{text}");
        assert_eq!(text.lines().count(), 1, "run 3 has ended: {text}");
    }

    #[test]
    fn a_run_that_waits_says_for_what() {
        use loam_agent::summary::{Faults, TimeSplit};
        let time_s = TimeSplit { exec: 6.0, sp_latency: 2.0, put_wait: 1.5, page_wait: 0.5 };
        let waits = Summary { pid: 7, time_s, ..Summary::default() };
        let faults = Faults { total: 9, ..Faults::default() };
        let text = answered_text(&[Summary { faults, ..waits.clone() }]);
        let line = "run 7: 60% of its time no thread waited for memory, 20% for the page touched, 5% for one already asked for, 15% for room";
        assert!(text.contains(line), "{text}");
        assert!(!answered_text(&[waits]).contains("run 7:"), "nothing was borrowed yet");
    }

    #[test]
    fn without_runs_it_says_so() {
        let found = runs(Path::new("/no/such/folder")).expect("nothing there is no error");
        assert_eq!(runs_text(&found), "no run of this user\n");
    }

    #[test]
    fn a_lender_that_is_not_there_is_told() {
        // Bound, never accepted from with our protocol: closed at once.
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("bound");
        let addr = listener.local_addr().expect("bound");
        drop(listener);
        let asked = ask_lender(addr.into());
        assert!(asked.error.is_some());
        assert!(lender_text(&asked).contains(&addr.to_string()));
    }
}
