//! Direct regions from the outside: one program writes, another reads.
//!
//! ```text
//! region [--socket PATH] write NAME SEED      fill it with numbers that SEED begins
//! region [--socket PATH] check NAME SEED      are they there? (opened together with others)
//! region [--socket PATH] hold NAME SEED       fill it, say "ready", then check at each line of stdin that it is as it was
//! region [--socket PATH] make NAME BYTES      make one and open it
//! region [--socket PATH] resize NAME BYTES    open it and resize it; say how long it is here then
//! region [--socket PATH] temporary NAME BYTES make one that goes with this program, say "ready", wait for the end of stdin
//! ```

use loam::region::Options;
use loam::{Region, RegionError, Regions, SharedRegion};
use std::io::{BufRead, Write};
use std::process::ExitCode;

/// The number of the word at `at`: any word that is lost or moved shows.
fn word(seed: u64, at: u64) -> [u8; 8] {
    seed.wrapping_add(at).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

fn fill(region: &mut Region, seed: u64) {
    for (at, chunk) in region.as_mut_slice().chunks_exact_mut(8).enumerate() {
        chunk.copy_from_slice(&word(seed, at as u64));
    }
}

fn wrong(bytes: &[u8], seed: u64) -> usize {
    bytes.chunks_exact(8).enumerate().filter(|(at, chunk)| **chunk != word(seed, *at as u64)).count()
}

fn say(line: &str) {
    println!("{line}");
    std::io::stdout().flush().expect("somebody reads it");
}

fn run(socket: Option<&str>, what: &str, name: &str, number: u64) -> Result<bool, RegionError> {
    let connect = || Regions::connect(socket.map(AsRef::as_ref));
    match what {
        "write" => {
            fill(&mut Region::open_on(connect()?, name)?, number);
            Ok(true)
        }
        "check" => {
            let region = SharedRegion::open_on(connect()?, name)?;
            let mut bytes = vec![0; region.len()];
            region.read_at(0, &mut bytes);
            let wrong = wrong(&bytes, number);
            say(&format!("{} bytes, {wrong} words wrong", bytes.len()));
            Ok(wrong == 0)
        }
        "hold" => {
            let mut region = Region::open_on(connect()?, name)?;
            fill(&mut region, number);
            say("ready");
            for _ in std::io::stdin().lock().lines() {
                if wrong(region.as_slice(), number) > 0 {
                    return Ok(false);
                }
                // Writing, too.
                fill(&mut region, number);
                say("as it was");
            }
            Ok(true)
        }
        "resize" => {
            let mut region = Region::open_on(connect()?, name)?;
            let resized = region.resize(number);
            say(&format!("{} bytes", region.len()));
            resized.map(|()| true)
        }
        "make" | "temporary" => {
            let mut options = Options::new().temporary(what == "temporary");
            if let Some(path) = socket {
                options = options.socket(path);
            }
            let _region = Region::create_with(name, number, &options)?;
            if what == "make" {
                return Ok(true);
            }
            say("ready");
            std::io::stdin().lock().lines().for_each(drop);
            Ok(true)
        }
        _ => {
            eprintln!("write, check, hold, make, resize or temporary");
            Ok(false)
        }
    }
}

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let socket = (args.first().map(String::as_str) == Some("--socket")).then(|| {
        args.remove(0);
        if args.is_empty() { String::new() } else { args.remove(0) }
    });
    let [what, name, number] = &args[..] else {
        eprintln!(
            "usage: region [--socket PATH] write|check|hold NAME SEED, or make|resize|temporary NAME BYTES"
        );
        return ExitCode::from(2);
    };
    match run(socket.as_deref(), what, name, number.parse().unwrap_or(0)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("region: {error}");
            ExitCode::FAILURE
        }
    }
}
