//! Kernel features and permissions that serving another program's faults needs.

use super::Check;
use crate::machine;
use loam_agent::probe::{self, Source, UserfaultProbe};

/// Oldest kernel with `UFFDIO_MOVE`.
const KERNEL_MIN: (u32, u32) = (6, 8);

/// How to let a group use userfaultfd.
const GRANT: &str = "\
let a group use it (as root; members log in again afterwards):
  groupadd -f loam && usermod -aG loam USER
  echo 'KERNEL==\"userfaultfd\", GROUP=\"loam\", MODE=\"0660\"' > /etc/udev/rules.d/60-loam.rules
  chgrp loam /dev/userfaultfd && chmod 660 /dev/userfaultfd";

pub(crate) fn checks() -> Vec<Check> {
    let probe = probe::userfaultfd();
    let mut checks = vec![kernel(&machine::kernel()), permission(&probe)];
    if probe.source().is_some() {
        checks.push(moving(&probe));
        checks.push(events(&probe));
        checks.push(forks(&probe));
    }
    checks.push(pagemap());
    checks
}

/// `6.8.0-40-generic` as (6, 8).
fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|letter: char| !letter.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn kernel(release: &str) -> Check {
    match parse_release(release) {
        Some(version) if version >= KERNEL_MIN => Check::ok("kernel", format!("Linux {release}")),
        Some(_) => Check::fail(
            "kernel",
            format!("Linux {release}"),
            "boot Linux 6.8 or newer: UFFDIO_MOVE came with it",
        ),
        None => Check::warn(
            "kernel",
            format!("unknown release {release:?}"),
            "the next lines tell what it can do",
        ),
    }
}

fn permission(probe: &UserfaultProbe) -> Check {
    let name = "userfaultfd";
    match (probe.source(), probe.device, probe.syscall) {
        (Some(Source::Device), ..) => Check::ok(name, "allowed through /dev/userfaultfd"),
        (Some(Source::Syscall), Err(error), _) => {
            Check::ok(name, format!("allowed by the system call (/dev/userfaultfd: {error})"))
        }
        (_, Err(device), Err(call)) => {
            let setting =
                machine::setting("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_else(|| "?".into());
            let found = format!(
                "not allowed (/dev/userfaultfd: {device}; system call: {call}; vm.unprivileged_userfaultfd = {setting})"
            );
            Check::fail(name, found, GRANT)
        }
        _ => unreachable!("a source is one of the two ways that answered"),
    }
}

fn moving(probe: &UserfaultProbe) -> Check {
    match probe.move_page {
        Ok(()) => Check::ok("UFFDIO_MOVE", "moved a page"),
        Err(error) => Check::fail(
            "UFFDIO_MOVE",
            format!("not usable ({error})"),
            "boot Linux 6.8 or newer with CONFIG_USERFAULTFD",
        ),
    }
}

fn events(probe: &UserfaultProbe) -> Check {
    let known = format!("features {:#x}", probe.features);
    if !probe.has_events() {
        Check::fail(
            "events",
            known,
            "the kernel does not report remap, remove and unmap: boot a stock kernel",
        )
    } else if !probe.has_poison() {
        Check::warn(
            "events",
            known,
            "no UFFDIO_POISON: a page that is lost ends the program at once; Linux 6.6 has it",
        )
    } else {
        Check::ok("events", "fork, remap, remove, unmap, poison")
    }
}

fn forks(probe: &UserfaultProbe) -> Check {
    match probe.fork_events {
        Ok(()) => Check::ok("fork events", "allowed"),
        Err(error) => Check::warn(
            "fork events",
            format!("not allowed ({error})"),
            "a program that forks first fetches home what the child could read, or is ended with a clear line.\n\
             To lift this, give the capability to the executable (as root):\n  setcap cap_sys_ptrace+ep $(command -v loam)",
        ),
    }
}

fn pagemap() -> Check {
    match probe::pagemap_scan() {
        Ok(()) => Check::ok("PAGEMAP_SCAN", "works"),
        Err(error) => Check::fail(
            "PAGEMAP_SCAN",
            format!("{error}"),
            "boot Linux 6.8 or newer with CONFIG_PROC_PAGE_MONITOR",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn releases_are_compared_as_numbers() {
        for (release, verdict) in [
            ("6.8.0-40-generic", Verdict::Ok),
            ("6.10", Verdict::Ok),
            ("7.0.0", Verdict::Ok),
            ("6.7.12", Verdict::Fail),
            ("5.15.0", Verdict::Fail),
            ("strange", Verdict::Warn),
        ] {
            assert_eq!(kernel(release).verdict, verdict, "{release}");
        }
    }
}
