//! `loam-kernel`: runs a kernel in the process's own memory, checks its result, and says how long it took.
#![forbid(unsafe_code)]

use loam_kernels::{INFOS, Info, Plain, Report, Run, Size, info};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Part marks that were given.
static MARKS: AtomicU64 = AtomicU64::new(0);

/// Where part marks go. They are counted, too.
fn on_part(part: u32) {
    loam::part(part);
    MARKS.fetch_add(1, Ordering::Relaxed);
}

struct Settings {
    info: &'static Info,
    size: Size,
    iterations: u32,
    parts: bool,
    json: bool,
    corrupt: bool,
}

fn usage() -> String {
    let mut text = String::from(
        "usage: loam-kernel NAME [--size small|medium|large | --bytes SIZE | --problem N] [--iterations N]\n\
         \x20                  [--parts on|off] [--threads 1] [--json] [--corrupt]\n\
         SIZE is in bytes, or with K, M or G. --corrupt damages the result, so that the check must fail.\n\n",
    );
    for info in INFOS {
        text.push_str(&format!("  {:8}{}; parts: {}\n", info.name, info.about, info.parts.join(", ")));
    }
    text
}

fn bytes(text: &str) -> Option<u64> {
    let (number, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn settings(args: impl Iterator<Item = String>) -> Result<Settings, String> {
    let mut args = args;
    let name = args.next().ok_or_else(usage)?;
    let info = info(&name).ok_or_else(|| format!("there is no kernel {name}\n{}", usage()))?;
    let mut settings = Settings {
        info,
        size: Size::Small,
        iterations: info.iterations,
        parts: true,
        json: false,
        corrupt: false,
    };
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value"));
        let wrong = |value: &str| format!("{flag}: {value} is not understood");
        match flag.as_str() {
            "--size" => {
                let text = value()?;
                settings.size = match text.as_str() {
                    "small" => Size::Small,
                    "medium" => Size::Medium,
                    "large" => Size::Large,
                    _ => return Err(wrong(&text)),
                };
            }
            "--bytes" => {
                let text = value()?;
                settings.size = Size::Bytes(bytes(&text).ok_or_else(|| wrong(&text))?);
            }
            "--problem" => {
                let text = value()?;
                settings.size = Size::Problem(text.parse().map_err(|_| wrong(&text))?);
            }
            "--iterations" => {
                let text = value()?;
                settings.iterations =
                    text.parse().ok().filter(|n| (1..=1_000_000).contains(n)).ok_or_else(|| wrong(&text))?;
            }
            "--parts" => {
                let text = value()?;
                settings.parts = match text.as_str() {
                    "on" => true,
                    "off" => false,
                    _ => return Err(wrong(&text)),
                };
            }
            "--threads" => {
                let text = value()?;
                if text != "1" {
                    return Err(format!("--threads {text}: kernels have one thread"));
                }
            }
            "--json" => settings.json = true,
            "--corrupt" => settings.corrupt = true,
            _ => return Err(format!("{flag} is not understood\n{}", usage())),
        }
    }
    Ok(settings)
}

/// Nothing in it differs from run to run.
fn print(report: &Report, json: bool) {
    let Report { name, problem, bytes, iterations, checksum, checks } = report;
    if json {
        // Texts are our own and have nothing to escape.
        let checks: Vec<String> = checks
            .iter()
            .map(|check| format!("{{\"check\": \"{}\", \"passed\": {}}}", check.text, check.passed))
            .collect();
        println!(
            "{{\"kernel\": \"{name}\", \"problem\": {problem}, \"bytes\": {bytes}, \"iterations\": {iterations}, \
             \"checksum\": \"{checksum:016x}\", \"passed\": {}, \"checks\": [{}]}}",
            report.passed(),
            checks.join(", ")
        );
        return;
    }
    println!("{name}: problem {problem}, {bytes} bytes, {iterations} iterations");
    for check in checks {
        println!("{}: {}", if check.passed { "ok" } else { "WRONG" }, check.text);
    }
    println!("checksum {checksum:016x}");
}

fn main() -> ExitCode {
    let settings = match settings(std::env::args().skip(1)) {
        Ok(settings) => settings,
        Err(message) => {
            eprintln!("loam-kernel: {message}");
            return ExitCode::from(2);
        }
    };
    let problem = match settings.info.problem(settings.size) {
        Ok(problem) => problem,
        Err(error) => {
            eprintln!("loam-kernel: {error}");
            return ExitCode::from(2);
        }
    };
    let begin = Instant::now();
    let memory = Plain::new(settings.parts.then_some(on_part as fn(u32)));
    let mut run = Run::new(settings.info, problem, settings.iterations, memory);
    let set_up = begin.elapsed();
    let begin = Instant::now();
    while run.step() {}
    let main = begin.elapsed();
    if settings.corrupt {
        run.corrupt(1);
    }
    let begin = Instant::now();
    let report = run.finish();
    print(&report, settings.json);
    eprintln!(
        "loam-kernel: main phase {:.3} s, before it {:.3} s, checking {:.3} s, {} part marks",
        main.as_secs_f64(),
        set_up.as_secs_f64(),
        begin.elapsed().as_secs_f64(),
        MARKS.load(Ordering::Relaxed)
    );
    if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
