//! A folder of this process's own, removed at the end.

use crate::failure::Failure;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// See the module's documentation.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    /// A new one in the temporary folder, that nobody else can read.
    pub(crate) fn new(name: &str) -> Result<Self, Failure> {
        let dir = std::env::temp_dir().join(format!("loam-{name}-{}", std::process::id()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .map_err(|error| Failure::new(format!("cannot make {} ({error}): set TMPDIR", dir.display())))?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Some small files in the temporary folder, if this fails.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
