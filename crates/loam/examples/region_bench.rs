//! What a direct region costs beside plain memory: random loads, faults and system calls.
//!
//! `region_bench [--socket PATH] [MIB] [ROUNDS] [--large-pages]`: chases pointers through MIB mebibytes of plain memory (in pages of 4 KiB, or in
//! large ones) and of a region, in turns; prints the median of ROUNDS each, and the faults of the region's rounds.

use loam::Region;
use loam::region::{Advice, Options};
use std::hint::black_box;
use std::time::Instant;

const LOADS: usize = 1_000_000;
const STEP: usize = 64;

/// Makes one cycle through all lines of `memory` in random order: each load has to wait for the one before.
fn shuffle(memory: &mut [u8]) {
    let lines = memory.len() / STEP;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut state = 88_172_645_463_325_252_u64;
    for at in (1..lines).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(at, (state % (at as u64 + 1)) as usize);
    }
    for at in 0..lines {
        let (from, to) = (order[at] as usize, order[(at + 1) % lines]);
        memory[from * STEP..from * STEP + 4].copy_from_slice(&to.to_le_bytes());
    }
}

/// Nanoseconds a load.
fn chase(memory: &[u8]) -> f64 {
    let begun = Instant::now();
    let mut at = 0_usize;
    for _ in 0..LOADS {
        let bytes = memory[at * STEP..at * STEP + 4].try_into().expect("four bytes");
        at = u32::from_le_bytes(bytes) as usize;
    }
    black_box(at);
    begun.elapsed().as_nanos() as f64 / LOADS as f64
}

/// Faults of this thread so far, small and large.
fn faults() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: it fills in a rusage of this thread; zeros are one, too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_minflt + usage.ru_majflt
}

/// Of memory files that this process has mapped, as the kernel tells it.
fn in_large_pages() -> String {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("ShmemPmdMapped:"));
    line.map_or_else(|| "?".to_owned(), |kib| kib.trim().to_owned())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut options = Options::new().temporary(true).huge(args.iter().any(|arg| arg == "--huge"));
    args.retain(|arg| arg != "--huge");
    if args.first().map(String::as_str) == Some("--socket") && args.len() > 1 {
        options = options.socket(args.remove(1));
        args.remove(0);
    }
    let mib: usize = args.first().map_or(Ok(256), |text| text.parse())?;
    let rounds: usize = args.get(1).map_or(Ok(9), |text| text.parse())?;
    let mut plain = vec![0_u8; mib << 20];
    let large_pages = args.iter().any(|arg| arg == "--large-pages");
    let advice = if large_pages { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    let start = plain.as_mut_ptr().addr().next_multiple_of(4096);
    let skip = start - plain.as_ptr().addr();
    let length = (plain.len() - skip) / 4096 * 4096;
    // SAFETY: whole pages of this vector's own memory; what they contain does not change.
    unsafe { libc::madvise(plain.as_mut_ptr().add(skip).cast(), length, advice) };
    let name = format!("bench-{}", std::process::id());
    let begun = Instant::now();
    let mut region = Region::create_with(&name, (mib << 20) as u64, &options)?;
    println!("made and opened in {:.0} ms", begun.elapsed().as_secs_f64() * 1e3);
    region.advise(0..region.len(), Advice::WillNeed)?;
    println!("{:?}, {} of it in large pages", region.statistics(), in_large_pages());
    shuffle(&mut plain);
    region.as_mut_slice().copy_from_slice(&plain);
    let (mut plain_ns, mut region_ns, mut region_faults) = (Vec::new(), Vec::new(), 0);
    for _ in 0..rounds {
        plain_ns.push(chase(&plain));
        let before = faults();
        region_ns.push(chase(region.as_slice()));
        region_faults += faults() - before;
    }
    let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    println!("fastest rounds: plain {:.2} ns, region {:.2} ns", least(&plain_ns), least(&region_ns));
    let (plain_ns, region_ns) = (median(plain_ns), median(region_ns));
    println!(
        "plain memory {plain_ns:.2} ns a load, region {region_ns:.2} ns ({:+.2}%)",
        (region_ns / plain_ns - 1.0) * 100.0
    );
    println!("{region_faults} faults in {} loads of the region", rounds * LOADS);
    Ok(())
}
