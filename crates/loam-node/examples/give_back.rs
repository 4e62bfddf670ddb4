//! How long a lender takes to give memory back that its machine wants, and what another borrower's getpages cost meanwhile.
//!
//!     cargo run --release -p loam-node --example give_back -- [MIB]
//!
//! Three times: all of it, in the order in which it came; the older half, when that is every second megabyte; the older half, when
//! that is every second page, which is the worst there is. What the machine has is said by a file of ours, as a machine
//! would say it whose programs have just taken everything.

use loam_core::ids::Version;
use loam_core::units::Bytes;
use loam_node::{LendConfig, LendHandle, spawn};
use loam_wire::client::Client;
use loam_wire::{Frame, PageMeta, PageRef, encode, feature, page_hash};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const BATCH: u64 = 64;
/// Pages of the borrower that is served meanwhile.
const OTHERS: u64 = 4096;
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longer than a unit of age.
const OLDER: Duration = Duration::from_millis(2_300);

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn fill(client: &mut Client, pages: u64) -> Result<()> {
    let mut contents = vec![0; PAGE * BATCH as usize];
    for first in (0..pages).step_by(BATCH as usize) {
        let mut metas = Vec::new();
        for (index, page) in (first..).zip(contents.chunks_exact_mut(PAGE)) {
            page[..8].copy_from_slice(&index.to_le_bytes());
            metas.push(PageMeta::new(index, Version(1), page_hash(page)));
        }
        let asked = client.next_request();
        client.send(&contents, |out| encode::putpage(out, asked, &metas))?;
        match client.receive()? {
            Frame::Ack { .. } => {}
            other => return Err(format!("no ack: {other:?}").into()),
        }
    }
    Ok(())
}

/// Makes the pages young for which `young` says so.
fn touch(client: &mut Client, pages: u64, young: impl Fn(u64) -> bool) -> Result<()> {
    let wanted: Vec<PageRef> =
        (0..pages).filter(|index| young(*index)).map(|index| PageRef::new(index, Version(1))).collect();
    for batch in wanted.chunks(BATCH as usize) {
        client.getpages(batch, |_, _| {})?;
    }
    Ok(())
}

fn says(root: &Path, available: u64) -> Result<()> {
    let new = root.join("new");
    std::fs::write(&new, format!("MemTotal: {} kB\nMemAvailable: {} kB\n", 64 << 20, available / 1024))?;
    std::fs::rename(new, root.join("proc/meminfo"))?;
    Ok(())
}

/// Latencies of single getpages until told to stop, in microseconds, with their moments.
fn serve_other(addr: std::net::SocketAddr, stop: &AtomicBool) -> Result<Vec<(Instant, f64)>> {
    let mut client = Client::connect(addr, 2, "other", TIMEOUT)?;
    fill(&mut client, OTHERS)?;
    let mut random = 7_u64;
    let mut all = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let began = Instant::now();
        let missing = client.getpages(&[PageRef::new((random >> 33) % OTHERS, Version(1))], |_, _| {})?;
        if !missing.is_empty() {
            return Err("a page that was not to go has gone".into());
        }
        all.push((began, began.elapsed().as_secs_f64() * 1e6));
    }
    Ok(all)
}

fn percentile(latencies: &[(Instant, f64)], from: Instant, to: Instant, part: f64) -> f64 {
    let mut chosen: Vec<f64> =
        latencies.iter().filter(|(at, _)| *at >= from && *at < to).map(|(_, us)| *us).collect();
    chosen.sort_by(f64::total_cmp);
    chosen.get((chosen.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN)
}

/// Lets the machine want `asked` bytes back, and answers how long until it has them.
fn take(root: &Path, lender: &LendHandle, asked: u64) -> Result<Duration> {
    let (began, slab) = (Instant::now(), lender.memory().0);
    loop {
        // What the lender gives back is available.
        let given = slab.saturating_sub(lender.memory().0);
        says(root, given)?;
        if given >= asked {
            return Ok(began.elapsed());
        }
        if began.elapsed() > TIMEOUT {
            return Err(format!("only {} given back", Bytes(given)).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn measure(what: &str, mib: u64, asked: u64, young: Option<fn(u64) -> bool>) -> Result<()> {
    let root = PathBuf::from(format!("/tmp/loam-give-back-{}", std::process::id()));
    std::fs::create_dir_all(root.join("proc"))?;
    says(&root, 64 << 30)?;
    let pages = mib << 8;
    let mut config = LendConfig::new(Bytes::from_mib(mib + 64));
    config.listen = "127.0.0.1:0".parse()?;
    // An eighth more than the reserve goes.
    config.keep = Some(Bytes(asked / 9 * 8));
    config.machine_root.clone_from(&root);
    let lender = spawn(&config)?;
    let both = feature::RECALL | feature::SPARE;
    let mut client = Client::connect_with(lender.addr(), both, 1, "give_back", TIMEOUT)?;
    fill(&mut client, pages)?;
    if let Some(young) = young {
        std::thread::sleep(OLDER);
        touch(&mut client, pages, young)?;
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| serve_other(lender.addr(), &stop));
        std::thread::sleep(Duration::from_secs(2));
        let began = Instant::now();
        let took = take(&root, &lender, asked - (asked >> 6));
        let ended = Instant::now();
        stop.store(true, Ordering::Relaxed);
        let latencies = other.join().map_err(|_| "the other borrower panicked")??;
        let took = took?;
        let before = began.checked_sub(Duration::from_millis(1500)).unwrap_or(began);
        let at =
            |part| (percentile(&latencies, before, began, part), percentile(&latencies, began, ended, part));
        let ((p50, p50_then), (p99, p99_then)) = (at(0.5), at(0.99));
        println!(
            "{what}: {} of {} in {:.3} s; a getpage of another borrower: p50 {p50:.1} us before, {p50_then:.1} meanwhile \
             ({:.2}x), p99 {p99:.1} and {p99_then:.1} ({:.2}x)",
            Bytes(asked),
            Bytes::from_mib(mib),
            took.as_secs_f64(),
            p50_then / p50,
            p99_then / p99,
        );
        Result::Ok(())
    })?;
    drop(lender);
    std::fs::remove_dir_all(&root)?;
    Ok(())
}

fn main() -> Result<()> {
    let mib: u64 = std::env::args().nth(1).map_or(Ok(1024), |arg| arg.parse())?;
    measure("all of it", mib, mib << 20, None)?;
    measure("every second megabyte", mib, mib << 19, Some(|index| index >> 8 & 1 == 1))?;
    measure("every second page", mib, mib << 19, Some(|index| index & 1 == 1))?;
    Ok(())
}
