//! `loam doctor`: what this machine and this user can do, and what to do about the rest.

pub(crate) mod credentials;
mod faults;
mod limits;
mod speed;

pub(crate) use speed::DMA_LATENCY;
mod storage;

use crate::args::DoctorArgs;
use crate::failure::Failure;
use crate::machine;
use serde::Serialize;
use std::process::ExitCode;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// As it should be.
    Ok,
    /// Works, with a limit that is told.
    Warn,
    /// `loam run` cannot work.
    Fail,
}

/// One finding.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    /// What was looked at.
    pub(crate) name: &'static str,
    /// How it came out.
    pub(crate) verdict: Verdict,
    /// What was seen.
    pub(crate) found: String,
    /// What to do; empty if nothing.
    pub(crate) advice: String,
}

impl Check {
    pub(crate) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, found: found.into(), advice: String::new() }
    }
    pub(crate) fn warn(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Warn, found: found.into(), advice: advice.into() }
    }
    pub(crate) fn fail(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Fail, found: found.into(), advice: advice.into() }
    }
}

/// Runs every check and prints it.
pub(crate) fn doctor(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let disk = args.disk.clone().unwrap_or_else(machine::default_disk_dir);
    let mut checks = faults::checks();
    checks.extend(limits::checks());
    checks.extend(storage::checks(&disk));
    checks.extend(speed::checks());
    checks.extend(args.tls.iter().flat_map(|dir| credentials::checks(dir)));
    let failed = checks.iter().filter(|check| check.verdict == Verdict::Fail).count();
    let warned = checks.iter().filter(|check| check.verdict == Verdict::Warn).count();
    if args.json {
        let object = serde_json::json!({ "failed": failed, "warned": warned, "checks": checks });
        println!("{object:#}");
    } else {
        print!("{}", report(&checks));
        println!();
        match (failed, warned) {
            (0, 0) => println!("Everything that Loam needs is there."),
            (0, _) => println!("Loam works here; {warned} finding(s) above could be better."),
            _ => println!("`loam run` cannot work here yet: mend what is marked FAIL ({failed})."),
        }
    }
    Ok(ExitCode::from(u8::from(failed > 0)))
}

fn report(checks: &[Check]) -> String {
    let wide = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for check in checks {
        let mark = match check.verdict {
            Verdict::Ok => "ok  ",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        out.push_str(&format!("{mark}  {:<wide$}  {}\n", check.name, check.found));
        for line in check.advice.lines() {
            out.push_str(&format!("      {:wide$}  {line}\n", ""));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_not_well_comes_with_advice() {
        let dir = std::env::temp_dir();
        let all = [faults::checks(), limits::checks(), storage::checks(&dir), speed::checks()].concat();
        assert!(all.len() >= 12, "{} checks", all.len());
        for check in &all {
            assert_eq!(check.verdict == Verdict::Ok, check.advice.is_empty(), "{check:?}");
            assert!(!check.found.is_empty() && !check.found.contains('\n'), "{check:?}");
        }
    }

    #[test]
    fn advice_stands_under_its_finding() {
        let text = report(&[Check::fail("kernel", "5.4", "boot 6.8\nor newer")]);
        assert_eq!(text, "FAIL  kernel  5.4\n              boot 6.8\n              or newer\n");
    }
}
