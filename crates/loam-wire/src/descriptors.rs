//! How many connections a process may have.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Lets this process have as many descriptors as it is allowed at most: who serves others has one for each connection. If that is not given, there can be
/// fewer. Answers how many there may be now.
pub fn allow_many_files() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_allowed_is_asked_for() {
        let before = getrlimit(Resource::Nofile);
        let few = before.current.map_or(512, |now| now.min(512));
        setrlimit(Resource::Nofile, rustix::process::Rlimit { current: Some(few), ..before }).unwrap();
        let most = allow_many_files();
        let after = getrlimit(Resource::Nofile);
        assert_eq!(most, after.maximum.unwrap_or(u64::MAX));
        assert_eq!(after.current, before.maximum);
        assert_eq!(after.maximum, before.maximum);
    }
}
