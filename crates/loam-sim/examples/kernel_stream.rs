//! What a kernel asks of memory: `kernel_stream NAME BYTES ITERATIONS BASE_PAGE_BYTES` prints, for each part, its references, the base pages
//! among them and its processor time; and for pages of 1 to 64 base pages, what each iteration would fetch under LRU with 5 and 10% of the
//! memory local (the question of aapc-2012, figure 2).

use loam_core::units::Bytes;
use loam_kernels::{Size, info};
use loam_sim::mrc::exact;
use loam_sim::replay::Stream;
use loam_sim::workload::kernels::{Event, KernelStream};
use std::collections::BTreeMap;
use std::time::Instant;

#[derive(Default)]
struct Part {
    times: u64,
    references: u64,
    writes: u64,
    ns: u64,
    pages: Vec<bool>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, bytes, iterations, base_page] = args.as_slice() else {
        return Err("usage: kernel_stream NAME BYTES ITERATIONS BASE_PAGE_BYTES".into());
    };
    let info = info(name).ok_or("no such kernel")?;
    let begin = Instant::now();
    let problem = info.problem(Size::Bytes(bytes.parse()?))?;
    let mut stream = KernelStream::new(info, problem, iterations.parse()?, Bytes(base_page.parse()?));
    let (mut parts, mut now, mut events) = (BTreeMap::<u32, Part>::new(), 0, Vec::new());
    let mut iterated = Vec::new();
    while stream.next_events(&mut events) {
        for event in events.drain(..) {
            let part = match event {
                Event::Part(number) => {
                    now = number;
                    parts.entry(number).or_default().times += 1;
                    continue;
                }
                Event::Reference { .. } => parts.entry(now).or_default(),
            };
            let Event::Reference { page, cpu_ns, write, .. } = event else { continue };
            if now > 0 {
                iterated.push(u64::from(page));
            }
            part.references += 1;
            part.writes += u64::from(write);
            part.ns += u64::from(cpu_ns);
            part.pages.resize(stream.base_pages() as usize, false);
            part.pages[page as usize] = true;
        }
    }
    let report = stream.report().ok_or("the run is not over")?;
    println!(
        "{name}: problem {problem}, {} base pages, {:.1} s here",
        stream.base_pages(),
        begin.elapsed().as_secs_f64()
    );
    for (number, part) in parts {
        let name = if number == 0 { "(setup)" } else { info.parts[number as usize - 1] };
        println!(
            "{number:2} {name:12} each time {:9} references, {:9} that write, {:7} base pages, {:8.1} ms",
            part.references / part.times,
            part.writes / part.times,
            part.pages.iter().filter(|&&page| page).count(),
            part.ns as f64 / part.times as f64 / 1e6
        );
    }
    let (iterations, base_page): (f64, u64) = (iterations.parse()?, base_page.parse()?);
    let memory = u64::from(stream.base_pages()) * base_page;
    println!("for an iteration, page size: faults and MiB fetched with 5% local, with 10%");
    for factor in (0..=6).map(|shift| 1 << shift) {
        let curve = exact(&Stream::of(iterated.iter().map(|page| page / factor)));
        let page_bytes = base_page * factor;
        print!("{:8} KiB", page_bytes >> 10);
        for share in [20, 10] {
            let faults = curve.misses(memory / share / page_bytes) / iterations;
            print!(" {:10.0} {:10.1}", faults, faults * page_bytes as f64 / (1 << 20) as f64);
        }
        println!();
    }
    println!("checksum {:016x}, {}", report.checksum, if report.passed() { "checked" } else { "WRONG" });
    Ok(())
}
