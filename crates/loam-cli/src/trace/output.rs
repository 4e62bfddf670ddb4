//! A file that is there when it is whole, and not before.

use crate::failure::Failure;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// What is being written. Dropped before [`Output::keep`], it leaves nothing.
pub(crate) struct Output {
    sink: BufWriter<Box<dyn Write>>,
    /// Where it is written, and its name once it is whole. None: a pipe or device, which cannot be renamed.
    names: Option<(PathBuf, PathBuf)>,
    bytes: u64,
}

impl Output {
    /// Begins a file; `-` is stdout.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let special = path.metadata().is_ok_and(|meta| !meta.is_file());
        let (sink, names): (Box<dyn Write>, _) = if path == Path::new("-") {
            (Box::new(io::stdout()), None)
        } else if special {
            (Box::new(File::options().write(true).open(path)?), None)
        } else {
            let mut part = path.as_os_str().to_owned();
            part.push(".part");
            let part = PathBuf::from(part);
            (Box::new(File::create(&part)?), Some((part, path.to_owned())))
        };
        Ok(Self { sink: BufWriter::with_capacity(256 << 10, sink), names, bytes: 0 })
    }

    /// It is whole: gives it its name, and how many bytes it has.
    pub(crate) fn keep(mut self) -> io::Result<u64> {
        self.sink.flush()?;
        if let Some((part, path)) = &self.names {
            fs::rename(part, path)?;
        }
        self.names = None;
        Ok(self.bytes)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.sink.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some((part, _)) = &self.names {
            let _ = fs::remove_file(part);
        }
    }
}

/// The file cannot be written.
pub(crate) fn failure(path: &Path, error: &io::Error) -> Failure {
    let shown = if path == Path::new("-") { "stdout".into() } else { path.display().to_string() };
    Failure::new(format!("{shown}: cannot be written ({error}): give another -o"))
}
