//! The folder of `--tls`.

use super::Check;
use loam_wire::tls::{Credentials, Role};
use std::path::Path;
use std::time::Duration;

/// Whoever has less time left should issue another.
pub(crate) const ENDS_SOON: Duration = Duration::from_secs(30 * 24 * 3600);

pub(crate) fn checks(dir: &Path) -> Vec<Check> {
    let name = "credentials";
    let failed = |error: loam_wire::tls::CredentialsError| {
        let line = error.to_string();
        // What is wrong, then what to do.
        let (found, advice) =
            line.split_once(": ").unwrap_or((&line, "issue them again with `loam ca issue`"));
        Check::fail(name, found, advice)
    };
    let credentials = match Credentials::load(dir) {
        Ok(credentials) => credentials,
        Err(error) => return vec![failed(error)],
    };
    if let Err(error) = credentials.check(&[]) {
        return vec![failed(error)];
    }
    let identity = credentials.identity();
    let may = match (identity.is(Role::Node), identity.is(Role::Borrower)) {
        (true, true) => "may lend and borrow",
        (true, false) => "may lend",
        _ => "may borrow",
    };
    let found = format!("{identity} in {}: valid, {may}", dir.display());
    if credentials.end_within(ENDS_SOON) {
        let advice =
            format!("issue another (`loam ca issue {} --force`) and copy the folder here", identity.name);
        return vec![Check::warn(name, format!("{found}; ends within 30 days"), advice)];
    }
    vec![Check::ok(name, found)]
}
