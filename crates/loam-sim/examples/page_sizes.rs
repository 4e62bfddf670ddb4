//! How long kernels take with pages of each size, and with sizes that are found: `page_sizes KERNEL... [-- RATIO...]`.

use loam_core::page_size::PageSize;
use loam_core::units::{BasePages, Bytes};
use loam_sim::paging::{Config, Path, Sizing, run};
use loam_sim::workload::kernels::Recording;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mib: u64 = args.first().map_or(32, |a| a.parse().expect("MiB"));
    let iterations: u32 = args.get(1).map_or(4, |a| a.parse().expect("iterations"));
    let names: Vec<&str> = args.iter().skip(2).map(String::as_str).collect();
    let ratios = [5, 10, 25, 50];
    let path = Path {
        latency_ns: 12_000,
        ps_per_byte: 800,
        message_bytes: 64,
        message_ns: 3_000,
        install_ns: 1_200,
        evict_ns: 1_200,
        puts_share_link: false,
    };
    let s = |kib: u64| PageSize::new(BasePages(kib / 4)).expect("a size");
    for name in names {
        let info = loam_kernels::info(name).expect("a kernel");
        let problem = info.problem(loam_kernels::Size::Bytes(mib << 20)).expect("a size");
        let recording = Recording::new(info, problem, iterations, Bytes(4096), 1 << 28).expect("it computes");
        for ratio in ratios {
            let local = BasePages((u64::from(recording.base_pages()) * ratio / 100).max(256));
            print!("{name:7} {:4} MiB {ratio:3}%:", recording.base_pages() / 256);
            let (least, start, most) = (s(4), s(32), s(1024));
            let sizings = [4, 16, 64, 256, 1024]
                .map(|kib| Sizing::Fixed(s(kib)))
                .into_iter()
                .chain([Sizing::Aapc { basic: s(4), start, most }, Sizing::Auto { least, start, most }]);
            let mut best = f64::MAX;
            for sizing in sizings {
                let config = Config {
                    path,
                    local,
                    sizing,
                    fetch_plan: "eager",
                    prefetch: (std::env::var("PREFETCH").is_ok()).then_some(BasePages(1024)),
                    replacement: "second-chance",
                    parts: std::env::var("NOPARTS").is_err(),
                };
                let out = run(&config, &recording);
                let time = out.relative_time();
                if matches!(sizing, Sizing::Fixed(_)) {
                    best = best.min(time);
                }
                print!(" {time:8.2}");
                if !matches!(sizing, Sizing::Fixed(_)) {
                    print!(" ({:.2}, {})", time / best, out.changes.len());
                }
                if std::env::var("CHANGES").is_ok() && !matches!(sizing, Sizing::Fixed(_)) {
                    for c in &out.changes {
                        println!(
                            "\n   {:.3} part {} {:?} {} -> {} {}",
                            c.at.0 as f64 / 1e9,
                            c.part,
                            c.scope,
                            c.from,
                            c.to,
                            c.reason
                        );
                    }
                }
            }
            println!();
        }
    }
}
