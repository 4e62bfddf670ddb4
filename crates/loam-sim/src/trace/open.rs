//! Opening a trace of whatever format.

use super::csv::Csv;
use super::lackey::{Lackey, is_valgrinds};
use super::native::{Header, MAGIC, Reader};
use super::oracle::{Objects, Pages, RECORD_BYTES, Request};
use super::{Source, TraceError};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// Size of the readers' buffers.
const BUFFER_BYTES: usize = 256 << 10;
/// So much of a file is looked at to recognise its format.
const LOOK_BYTES: usize = 4096;
/// First bytes of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Formats of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Loam's own.
    Loam,
    /// Text of valgrind's lackey.
    Lackey,
    /// libCacheSim's oracleGeneral.
    Oracle,
    /// Comma-separated values.
    Csv,
}

/// How to read what a format leaves open.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Take instruction fetches too (lackey).
    pub instructions: bool,
    /// Bytes of the page that an object is (oracleGeneral): a power of two, at least a grain.
    pub page_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { instructions: false, page_bytes: 4096 }
    }
}

/// A trace that was opened.
pub struct Opened {
    /// Its format.
    pub format: Format,
    /// What it says of itself (Loam's own format).
    pub header: Option<Header>,
    /// Its references.
    pub source: Box<dyn Source + Send>,
}

/// Opens a trace; its content tells the format. Any format but Loam's own may be packed with zstd.
///
/// # Errors
/// [`TraceError`], if the file cannot be read or is in no known format.
pub fn open(path: &Path) -> Result<Box<dyn Source + Send>, TraceError> {
    Ok(open_as(path, None, Options::default())?.source)
}

/// Opens a trace of a format that is given, or recognised.
///
/// # Errors
/// [`TraceError`], if the file cannot be read or is in no known format.
pub fn open_as(path: &Path, format: Option<Format>, options: Options) -> Result<Opened, TraceError> {
    let trace = path.display().to_string();
    let mut reader = unpacked(path)?;
    let format = match format {
        Some(format) => format,
        None => recognise(look(&mut reader, &trace)?).ok_or_else(|| unknown(&trace))?,
    };
    let mut header = None;
    let source: Box<dyn Source + Send> = match format {
        Format::Loam => {
            let reader = Reader::new(reader, &trace)?;
            header = Some(reader.header().clone());
            Box::new(reader)
        }
        Format::Lackey => Box::new(Lackey::new(reader, &trace, options.instructions)),
        Format::Oracle => Box::new(Pages::new(reader, &trace, options.page_bytes)),
        Format::Csv => Box::new(Csv::new(reader, &trace)),
    };
    Ok(Opened { format, header, source })
}

/// Opens oracleGeneral, plain or packed with zstd, for a replay that knows objects only.
///
/// # Errors
/// [`TraceError`], if the file cannot be read.
pub fn open_objects(path: &Path) -> Result<Objects<Box<dyn BufRead + Send>>, TraceError> {
    Ok(Objects::new(unpacked(path)?, &path.display().to_string()))
}

/// The file's bytes, unpacked if they are a zstd stream.
fn unpacked(path: &Path) -> Result<Box<dyn BufRead + Send>, TraceError> {
    let trace = path.display().to_string();
    let cannot = |error: io::Error| TraceError::at_byte(&trace, 0, format_args!("cannot be read: {error}"));
    let mut file = BufReader::with_capacity(BUFFER_BYTES, File::open(path).map_err(cannot)?);
    if !look(&mut file, &trace)?.starts_with(&ZSTD_MAGIC) {
        return Ok(Box::new(file));
    }
    let packed = zstd::stream::read::Decoder::with_buffer(file).map_err(cannot)?;
    Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, packed)))
}

/// The first bytes, which stay to be read: of a pipe perhaps fewer than there are.
fn look<'r>(reader: &'r mut impl BufRead, trace: &str) -> Result<&'r [u8], TraceError> {
    let bytes = reader
        .fill_buf()
        .map_err(|error| TraceError::at_byte(trace, 0, format_args!("cannot be read: {error}")))?;
    if bytes.is_empty() {
        return Err(TraceError::at_byte(trace, 0, "the file is empty: expected a trace"));
    }
    Ok(&bytes[..bytes.len().min(LOOK_BYTES)])
}

fn recognise(start: &[u8]) -> Option<Format> {
    if start.starts_with(&MAGIC[..7]) {
        return Some(Format::Loam);
    }
    if start.iter().all(|&byte| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {
        let own = |line: &&[u8]| !is_valgrinds(line) && !line.is_empty();
        let first = start.split(|&byte| byte == b'\n').find(own).unwrap_or_default();
        let lackey = [&b" L "[..], b" S ", b" M ", b"I  "].iter().any(|begin| first.starts_with(begin));
        let valgrind = first.is_empty() && is_valgrinds(start);
        return Some(if lackey || valgrind { Format::Lackey } else { Format::Csv });
    }
    // Nothing marks oracleGeneral: a first request must make sense. Its object has a size, its next one comes
    // later.
    let mut record = [0; RECORD_BYTES];
    record.copy_from_slice(start.get(..RECORD_BYTES)?);
    let request = Request::from_bytes(&record);
    (request.bytes > 0 && (request.next == -1 || request.next > 0)).then_some(Format::Oracle)
}

fn unknown(trace: &str) -> TraceError {
    let what =
        "neither Loam's format, nor lackey's text, oracleGeneral or csv, plain or in zstd: give --format";
    TraceError::at_byte(trace, 0, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Run;
    use crate::trace::native::Writer;
    use crate::trace::summary::all_runs;
    use std::path::PathBuf;

    struct Temporary(PathBuf);

    impl Temporary {
        fn new(name: &str, bytes: &[u8]) -> Self {
            let path = std::env::temp_dir().join(format!("loam-trace-{}-{name}", std::process::id()));
            std::fs::write(&path, bytes).expect("temporary folder");
            Self(path)
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn opened(name: &str, bytes: &[u8]) -> Result<(Format, Vec<Run>), TraceError> {
        let file = Temporary::new(name, bytes);
        let mut opened = open_as(&file.0, None, Options::default())?;
        Ok((opened.format, all_runs(&mut opened.source)?))
    }

    #[test]
    fn content_tells_the_format() {
        let run = Run { grain: 16, references: 1, writes: false };
        let mut writer = Writer::new(Vec::new(), &Header::new("p")).expect("memory");
        writer.add(&[run]).expect("memory");
        let own = writer.finish().expect("memory").1;
        let request = Request { time: 0, object: 1, bytes: 4096, next: -1 }.to_bytes();
        for (name, bytes, format) in [
            ("own", own.as_slice(), Format::Loam),
            ("lackey", b"==1== Lackey\n\n L 1000,8\n", Format::Lackey),
            ("valgrind", b"--1-- a warning\n**1** a message\n==1== Lackey\n L 1000,8\n", Format::Lackey),
            ("csv", b"4096,r\n", Format::Csv),
            ("oracle", &request, Format::Oracle),
        ] {
            assert_eq!(opened(name, bytes).expect(name), (format, vec![run]), "{name}");
            let packed = zstd::stream::encode_all(bytes, 3).expect("memory");
            assert_eq!(opened(name, &packed).expect(name), (format, vec![run]), "{name} in zstd");
        }
    }

    #[test]
    fn what_is_no_trace_is_told() {
        let message = |name, bytes: &[u8]| opened(name, bytes).expect_err(name).to_string();
        assert!(message("empty", b"").contains("the file is empty"));
        assert!(message("elf", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0").contains("give --format"));
        let packed = zstd::stream::encode_all(&b" L 1000,8\n L 2000,8\n"[..], 3).expect("memory");
        assert!(message("cut", &packed[..packed.len() - 4]).contains("cannot be read"));
        let missing = open(Path::new("/nonexistent/trace")).err().expect("missing").to_string();
        assert!(missing.starts_with("/nonexistent/trace: byte 0: cannot be read: No such file"), "{missing}");
    }
}
