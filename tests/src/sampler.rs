//! Looks at the resident memory of a borrowing process tree every 10 ms, from outside.

use crate::procfs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(10);
/// What the tree may use beyond the limit and 5% of it.
const SLACK_BYTES: u64 = 32 << 20;
/// A tree that took too long to read is read so often.
const LOOKS_AGAIN_MAX: u32 = 4;
/// Time between the first sight of a tree near its limit and the first sample that counts.
const SETTLE: Duration = Duration::from_millis(100);

/// An agent that was kept from a processor for so long between two looks, by others or by the machine's host, could not have held any limit, and has some
/// time to do so again.
const STARVED: Duration = Duration::from_millis(20);
const RECOVERY: Duration = Duration::from_millis(500);

/// What the samples showed.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Looks at a tree with at least one process.
    pub count: u64,
    /// Of those: looks that counted, after adoption.
    pub counted: u64,
    /// And looks that would have, had the agent not been starved just before.
    pub excused: u64,
    /// Largest of those that counted, and of those before the tree came near its limit.
    pub peak_bytes: u64,
    /// Longest time between two looks.
    pub gap_max: Duration,
    /// Most processes at a time.
    pub processes_max: usize,
    /// The largest look above the bar, in words.
    pub worst: Option<String>,
    /// Looks above the bar.
    pub above: u64,
    /// The bar.
    pub bar_bytes: u64,
}

impl Samples {
    /// Largest size that counted, beyond the limit itself; the bar allows 5% and 32 MiB.
    pub fn overshoot_bytes(&self, limit_bytes: u64) -> i64 {
        self.peak_bytes as i64 - limit_bytes as i64
    }

    /// The bar of the issue: no sample above `--local` plus 5% plus 32 MiB.
    ///
    /// # Panics
    /// If one was, or if nothing was sampled.
    pub fn assert_below_bar(&self, what: &str) {
        assert!(self.count > 0, "{what}: the process tree was never seen");
        assert!(self.counted > 0 || self.excused == 0, "{what}: the agent had no processor all the time");
        if let Some(worst) = &self.worst {
            panic!("{what}: {} of {} samples above the bar, the largest: {worst}", self.above, self.counted);
        }
    }
}

/// A thread that samples until it is stopped.
#[derive(Debug)]
pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Samples>,
}

impl Sampler {
    /// Starts to sample the program that this test runs by `loam`, process `agent`.
    pub fn start(loam: PathBuf, agent: u32, limit_bytes: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || sample(&loam, agent, limit_bytes, &stopped));
        Self { stop, thread }
    }

    /// Ends it.
    ///
    /// # Panics
    /// If the thread has.
    pub fn finish(self) -> Samples {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the sampler only reads /proc")
    }
}

fn sample(loam: &std::path::Path, agent: u32, limit_bytes: u64, stop: &AtomicBool) -> Samples {
    let bar_bytes = limit_bytes + limit_bytes / 20 + SLACK_BYTES;
    let mut samples = Samples { bar_bytes, ..Samples::default() };
    let mut adopted: Option<Instant> = None;
    let mut next = Instant::now();
    let mut last = next;
    let waited_by_now = || procfs::waited_for_a_processor(agent) + procfs::stolen_from_us();
    let mut waited = waited_by_now();
    let mut excused_until = next;
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        let tree = procfs::program_tree(loam);
        let resident: u64 = tree.iter().filter_map(|&pid| procfs::resident_bytes(pid)).sum();
        if resident > 0 {
            samples.gap_max = samples.gap_max.max(now - last);
            samples.count += 1;
            samples.processes_max = samples.processes_max.max(tree.len());
            if resident > limit_bytes / 10 * 6 {
                adopted.get_or_insert(now);
            }
            let waited_before = std::mem::replace(&mut waited, waited_by_now());
            if waited.saturating_sub(waited_before) >= STARVED {
                excused_until = now + RECOVERY;
            }
            if adopted.is_some_and(|at| now - at > SETTLE) && now < excused_until {
                samples.excused += 1;
            } else if adopted.is_some_and(|at| now - at > SETTLE) {
                samples.counted += 1;
                consider(&mut samples, &tree, resident);
            } else if adopted.is_none() {
                // Never near its limit so far.
                samples.peak_bytes = samples.peak_bytes.max(resident);
            }
        }
        last = now;
        next += PERIOD;
        let after = Instant::now();
        if next > after {
            thread::sleep(next - after);
        } else {
            next = after;
        }
    }
    samples
}

/// The exact figure of a tree. Its processes are read one after the other: a page that leaves the first and one that comes to the last meanwhile
/// are both counted. So one that is above the bar and took longer to read than looks are apart is of no moment, and read again.
fn proportional_bytes_at_once(tree: &[u32], bar_bytes: u64) -> u64 {
    let mut bytes = 0;
    for _ in 0..LOOKS_AGAIN_MAX {
        let began = Instant::now();
        bytes = procfs::proportional_bytes_of(tree);
        if bytes <= bar_bytes || began.elapsed() < PERIOD {
            break;
        }
    }
    bytes
}

/// Books one look. Plain sizes count a page that a forked child shares with its parent twice; the exact figure is dear,
/// so it is asked for only where it decides.
fn consider(samples: &mut Samples, tree: &[u32], resident: u64) {
    let mut bytes = resident;
    if bytes > samples.peak_bytes.min(samples.bar_bytes) && tree.len() > 1 {
        bytes = bytes.min(proportional_bytes_at_once(tree, samples.bar_bytes));
    }
    let larger = bytes > samples.peak_bytes;
    samples.peak_bytes = samples.peak_bytes.max(bytes);
    if bytes > samples.bar_bytes {
        samples.above += 1;
        if larger {
            let parts: Vec<String> = tree.iter().map(|&pid| procfs::resident_parts(pid)).collect();
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            samples.worst = Some(format!(
                "{:.1} MiB where {:.1} are allowed, in {} processes (just after: {})",
                mib(bytes),
                mib(samples.bar_bytes),
                tree.len(),
                parts.join("; ")
            ));
        }
    }
}
