//! Credentials that are replaced while they are in use.

use super::{CA_FILE, CERTIFICATE_FILE, Credentials, CredentialsError, KEY_FILE, Role};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// What tells that a file is another one now: its place, its time and its length.
type Stamp = Option<(u64, i64, i64, u64)>;

/// Credentials, and the folder that they come from. Whoever has them calls [`Self::look`] every second or so; others may share them.
#[derive(Debug)]
pub struct Watched {
    dir: PathBuf,
    roles: Vec<Role>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    current: Arc<Credentials>,
    /// As they were when the files were read last, well or not.
    read: [Stamp; 3],
    /// As they were at the last look.
    seen: [Stamp; 3],
    /// When it was looked last whether they end soon.
    asked: Option<Instant>,
}

impl Watched {
    /// Reads them for the first time.
    ///
    /// # Errors
    /// [`CredentialsError`], also if others would not accept them or a role is missing.
    pub fn load(dir: &Path, roles: &[Role]) -> Result<Self, CredentialsError> {
        // Before the files are read: what changes meanwhile is then seen at the next look.
        let stamps = stamps(dir);
        let current = Arc::new(load(dir, roles)?);
        let state = Mutex::new(State { current, read: stamps, seen: stamps, asked: None });
        Ok(Self { dir: dir.to_owned(), roles: roles.to_vec(), state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under it")
    }

    /// Those that new connections use.
    pub fn current(&self) -> Arc<Credentials> {
        Arc::clone(&self.state().current)
    }

    /// Reads the files again if they have changed and have come to rest: nothing has changed since the last look. `None`: there was
    /// nothing to do. After an error the old ones stay in use, and the error is told once.
    pub fn look(&self) -> Option<Result<Arc<Credentials>, CredentialsError>> {
        let now = stamps(&self.dir);
        {
            let mut state = self.state();
            let rests = std::mem::replace(&mut state.seen, now) == now;
            if !rests || now == state.read {
                return None;
            }
            state.read = now;
        }
        let new = load(&self.dir, &self.roles).map(Arc::new);
        if let Ok(new) = &new {
            self.state().current = Arc::clone(new);
        }
        Some(new)
    }

    /// Once a day, and at first, to be asked as often as [`Self::look`]: a line, if the certificate ends within two weeks.
    pub fn warning(&self) -> Option<String> {
        let mut state = self.state();
        if state.asked.is_some_and(|asked| asked.elapsed() < DAY) {
            return None;
        }
        state.asked = Some(Instant::now());
        let current = Arc::clone(&state.current);
        drop(state);
        let name = &current.identity().name;
        current.end_within(14 * DAY).then(|| {
            format!("the certificate of {name} ends within 14 days: issue another (`loam ca issue {name} --force`) and copy it to {}", self.dir.display())
        })
    }
}

fn load(dir: &Path, roles: &[Role]) -> Result<Credentials, CredentialsError> {
    let credentials = Credentials::load(dir)?;
    credentials.check(roles)?;
    Ok(credentials)
}

fn stamps(dir: &Path) -> [Stamp; 3] {
    [CA_FILE, CERTIFICATE_FILE, KEY_FILE].map(|name| {
        let metadata = std::fs::metadata(dir.join(name)).ok()?;
        // The time of its change of state, too: permissions matter.
        Some((metadata.ino(), metadata.ctime(), metadata.ctime_nsec(), metadata.len()))
    })
}
