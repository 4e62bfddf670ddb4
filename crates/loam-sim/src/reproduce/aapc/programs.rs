//! What is run, and on what path.

use crate::paging::{Config, Path, Sizing};
use loam_core::page_size::PageSize;
use loam_core::units::{BasePages, Duration};
use loam_kernels::{INFOS, Info, Size, info};

/// An iteration that takes more than so many times what it computes is stopped.
pub(super) const STOP_AT: u64 = 150;
/// The same on today's path.
pub(super) const STOP_TODAY_AT: u64 = 50;
/// Iterations of a run whose sizes are fixed; the last one is measured.
pub(super) const FIXED_ITERATIONS: u32 = 2;
/// Iterations of a run whose sizes are found; the last one is measured (AAPC's sizes have come to rest, or to their swing, by the third).
pub(super) const FOUND_ITERATIONS: u32 = 4;

/// A program of the paper, or one on today's path.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) info: &'static Info,
    pub(super) problem: usize,
    /// Local memory, in percent of what it needs.
    pub(super) percents: Vec<u64>,
    /// Steps of its outer loops.
    pub(super) steps: u32,
    /// On the paper's path; else on today's.
    pub(super) paper: bool,
    /// AAPC is run, on the paper's path.
    pub(super) adaptive: bool,
}

impl Program {
    fn of_paper(name: &str, problem: usize, steps: usize, percents: &[u64], adaptive: bool) -> Self {
        let info = info(name).expect("a kernel");
        let steps = u32::try_from(steps).expect("a number of planes");
        Self { info, problem, percents: percents.to_vec(), steps, paper: true, adaptive }
    }

    /// The paper's four, at its sizes (or at others): edges of BT, SP and Himeno, and the logarithm of FT's elements. Himeno's outer loop goes along its
    /// long edge.
    pub(super) fn paper(bt: usize, sp: usize, himeno: usize, ft: usize) -> Vec<Self> {
        vec![
            Self::of_paper("sp", sp, sp, &[10], true),
            Self::of_paper("bt", bt, bt, &[5], true),
            Self::of_paper("ft", ft, 1, &[5, 10], false),
            Self::of_paper("himeno", himeno, 2 * himeno, &[10], true),
        ]
    }

    /// All kernels, as large as fits in so many bytes, or smaller where a recording would be too long.
    pub(super) fn today(bytes: u64) -> Vec<Self> {
        let today = |info: &'static Info| Self {
            info,
            problem: info.problem(Size::Bytes(bytes)).expect("it is large enough"),
            percents: vec![5, 10, 25, 50],
            steps: 1,
            paper: false,
            adaptive: true,
        };
        INFOS.iter().map(today).collect()
    }

    pub(super) fn iterations(&self) -> u32 {
        if self.adaptive { FOUND_ITERATIONS } else { FIXED_ITERATIONS }
    }

    /// How many periods AAPC counts in a part: as many as a loop has steps, and others to see what that does.
    pub(super) fn periods(&self) -> impl Iterator<Item = u32> + use<> {
        let mut periods = vec![1, 16, self.steps];
        periods.dedup();
        periods.into_iter()
    }

    /// What is run of it.
    pub(super) fn runs(&self) -> Vec<(u64, Sizes)> {
        let fixed: Vec<u64> = if self.paper { super::sizes_kib() } else { TODAY_KIB.to_vec() };
        let mut sizes: Vec<Sizes> = fixed.into_iter().map(Sizes::Fixed).collect();
        if self.paper && self.adaptive {
            sizes.extend(self.periods().map(Sizes::Aapc));
        } else if !self.paper {
            sizes.extend([Sizes::Aapc(1), Sizes::Auto, Sizes::AutoUnmarked]);
        }
        self.percents.iter().flat_map(|&percent| sizes.iter().map(move |&sizes| (percent, sizes))).collect()
    }
}

/// What each kernel has on today's path, but for those of which a recording that large would be [too long](super::pool).
pub(super) const TODAY_BYTES: u64 = 64 << 20;

/// Fixed sizes on today's path.
pub(super) const TODAY_KIB: [u64; 5] = [4, 16, 64, 256, 1024];

/// How pages are sized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sizes {
    /// All alike, in KiB.
    Fixed(u64),
    /// AAPC, with so many periods in a part: 1, or steps of a part's outer loop.
    Aapc(u32),
    /// Loam's own, with the program's marks.
    Auto,
    /// And without.
    AutoUnmarked,
}

fn size(kib: u64) -> PageSize {
    PageSize::new(BasePages(kib / 4)).expect("a power of two of base pages")
}

/// Picoseconds for a byte at so many GB/s.
const fn ps_per_byte(mb_per_s: u64) -> u64 {
    1_000_000 / mb_per_s
}

/// DLM's rate with STREAM on 2.5 GB/s, and on 5 GB/s, in MB/s (the paper's reference [1], abstract).
const STREAM_MB_PER_S: [(u64, u64); 2] = [(2_500, 493), (5_000, 613)];

/// What the library costs for a byte that comes and a byte that leaves, beside the link. The two rates of STREAM differ by what two crossings of the link do
/// (2,028 - 1,631 = 397 ps beside 2 × (400 - 200)), so a page goes out and one comes in, one after the other; what is left, 1,230 ps, is
/// copying and the processor's.
pub(super) fn library_ps_per_byte() -> u64 {
    let left = STREAM_MB_PER_S.map(|(link, rate)| ps_per_byte(rate) - 2 * ps_per_byte(link));
    left.iter().sum::<u64>() / left.len() as u64
}

/// The paper's path at one end of table I's range, or the other.
pub(super) fn paper_path(link_mb_per_s: u64) -> Path {
    // Half of it for a page that comes, half for one that leaves.
    let base_page_ns = 4096 * library_ps_per_byte() / 2 / 1000;
    Path {
        // Assumed: a signal and the return from it (3 us), MPI there and back (2 x 3 us over MX), the server's and the library's turns (6 us).
        latency_ns: 15_000,
        ps_per_byte: ps_per_byte(link_mb_per_s),
        message_bytes: 64,
        // Assumed: two changes of protection.
        message_ns: 2_000,
        install_ns: base_page_ns,
        evict_ns: base_page_ns,
        serial: true,
    }
}

/// 10 Gb/s TCP, with Loam's agent.
pub(super) const TODAY: Path = Path {
    // docs/benchmarks.md: a remote fault of 4 KiB takes 18 to 25 us where the wire takes next to nothing; less what is below.
    latency_ns: 15_000,
    // 1,448 of each 1,538 bytes.
    ps_per_byte: 850,
    message_bytes: 64,
    // models/tcp-10g.toml, and DESIGN.md, section 3: COPY 1.9 us for a page by itself and 1.1 in spans, MOVE 1.2 us and 0.2 in spans.
    message_ns: 1_000,
    install_ns: 1_100,
    evict_ns: 300,
    serial: false,
};

/// What a run is like, of a program with so many base pages that computes for so long in an iteration.
pub(super) fn config(program: &Program, percent: u64, sizes: Sizes, base_pages: u64, exec_ns: u64) -> Config {
    let [basic, start, most] = super::page_sizes_kib().map(size);
    let sizing = match sizes {
        Sizes::Fixed(kib) => Sizing::Fixed(size(kib)),
        Sizes::Aapc(_) => {
            Sizing::Aapc { basic: if program.paper { basic } else { PageSize::SMALLEST }, start, most }
        }
        Sizes::Auto | Sizes::AutoUnmarked => {
            Sizing::Auto { least: PageSize::SMALLEST, start: size(256), most: PageSize::LARGEST }
        }
    };
    let fixed = matches!(sizes, Sizes::Fixed(_));
    Config {
        path: if program.paper { paper_path(2_500) } else { TODAY },
        local: BasePages(base_pages * percent / 100),
        sizing,
        fetch_plan: if program.paper { "full" } else { "eager" },
        prefetch: None,
        replacement: if program.paper { "fifo" } else { "second-chance" },
        parts: sizes != Sizes::AutoUnmarked,
        periods: if let Sizes::Aapc(periods) = sizes { periods } else { 1 },
        rescue: !program.paper,
        buffers_are_local: !program.paper,
        set_up_once: true,
        iterations_max: if fixed { FIXED_ITERATIONS } else { FOUND_ITERATIONS },
        stop_after: Some(Duration(exec_ns * if program.paper { STOP_AT } else { STOP_TODAY_AT })),
    }
}
