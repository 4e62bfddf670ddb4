//! Reading Loam's own format, from anyone: every length has a limit and every block a checksum.

use super::recent::{self, ENTRIES, FAR, Recent, Told};
use super::{
    BLOCK_HEAD_BYTES, COUNT_BYTES_MAX, DISTANCE_BYTES_MAX, FOOTER_BYTES, HEADER_BYTES_MAX, Header, MAGIC,
    RUNS_PER_BLOCK, TOKEN_REFERENCES_MAX, WINDOW_LOG, totals,
};
use crate::trace::summary::Totals;
use crate::trace::{GRAIN_BYTES, Run, Source, TraceError};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// Longest time that a reference may be said to take: a millisecond.
const REFERENCE_NS_MAX: f64 = 1e6;

/// What to do about a file that is not whole.
const CUT: &str = "the trace was cut or damaged; copy or record it again";

/// Counts the bytes that are taken, so that a message can say where.
struct Counted<R> {
    reader: R,
    taken: u64,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.reader.read(into)?;
        self.taken += bytes as u64;
        Ok(bytes)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.reader.consume(bytes);
        self.taken += bytes as u64;
    }
}

type Unpacked<R> = zstd::stream::read::Decoder<'static, Counted<R>>;

/// Reads Loam's own format.
pub struct Reader<R: BufRead> {
    trace: String,
    header: Header,
    /// None: the end was seen.
    packed: Option<Unpacked<R>>,
    recent: Recent,
    block: Vec<u8>,
    /// What was read so far.
    seen: Totals,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header from `reader`; `trace` is its name in messages.
    ///
    /// # Errors
    /// [`TraceError`], if this is not such a trace.
    pub fn new(reader: R, trace: &str) -> Result<Self, TraceError> {
        let mut reader = Counted { reader, taken: 0 };
        let header = header(&mut reader, trace)?;
        let cannot = |error: io::Error| TraceError::at_byte(trace, 0, format_args!("zstd: {error}"));
        let mut packed = Unpacked::with_buffer(reader).map_err(cannot)?.single_frame();
        packed.window_log_max(WINDOW_LOG).map_err(cannot)?;
        Ok(Self {
            trace: trace.into(),
            header,
            packed: Some(packed),
            recent: Recent::new(),
            block: Vec::new(),
            seen: Totals::default(),
        })
    }

    /// What the trace is of.
    pub fn header(&self) -> &Header {
        &self.header
    }

    fn error(&self, what: impl Display) -> TraceError {
        let byte = self.packed.as_ref().map_or(0, |packed| packed.get_ref().taken);
        let what = format!("in the block of run {}: {what}", self.seen.runs);
        TraceError::at_byte(&self.trace, byte, what)
    }

    /// Reads exactly, or nothing at all if the packed part ends here.
    fn take(&mut self, into: &mut [u8]) -> Result<bool, TraceError> {
        let Some(packed) = &mut self.packed else { return Ok(false) };
        let mut got = 0;
        while got < into.len() {
            match packed.read(&mut into[got..]) {
                Ok(0) if got == 0 => return Ok(false),
                Ok(0) => return Err(self.error(format_args!("it ends within: {CUT}"))),
                Ok(bytes) => got += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(format_args!("{error}: {CUT}"))),
            }
        }
        Ok(true)
    }

    /// The packed part is over: the footer follows, and nothing else.
    fn end(&mut self) -> Result<(), TraceError> {
        let Some(packed) = self.packed.take() else { return Ok(()) };
        let mut rest = packed.finish();
        let start = rest.taken;
        let mut bytes = [0; FOOTER_BYTES];
        let error = |byte, what: String| Err(TraceError::at_byte(&self.trace, byte, what));
        if let Err(what) = rest.read_exact(&mut bytes) {
            return error(start, format!("expected a footer of {FOOTER_BYTES} bytes ({what}): {CUT}"));
        }
        let Some(totals) = totals(&bytes) else {
            return error(start, format!("this is not the footer that was expected: {CUT}"));
        };
        let seen = &self.seen;
        if (totals.runs, totals.references, totals.writing_runs)
            != (seen.runs, seen.references, seen.writing_runs)
        {
            let (expected, got) = (totals.references, seen.references);
            return error(
                start,
                format!("the footer counts {expected} references, the trace has {got}: {CUT}"),
            );
        }
        match rest.fill_buf() {
            Ok([]) => Ok(()),
            Ok(_) => error(start + FOOTER_BYTES as u64, "expected the file's end after the footer".into()),
            Err(what) => error(start, format!("cannot be read on: {what}")),
        }
    }

    /// Reads the next block into `self.block`: its runs and the lengths of its parts.
    fn next_block(&mut self) -> Result<Option<[usize; 4]>, TraceError> {
        let mut head = [0; BLOCK_HEAD_BYTES];
        if !self.take(&mut head)? {
            return Ok(None);
        }
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let [runs, near, far, counts] = [word(0), word(4), word(8), word(12)].map(|length| length as usize);
        if runs == 0
            || runs > RUNS_PER_BLOCK
            || near > runs * DISTANCE_BYTES_MAX
            || far > runs * DISTANCE_BYTES_MAX
            || counts > runs * COUNT_BYTES_MAX
        {
            return Err(self.error(format_args!(
                "a head of {runs} runs with {near}, {far} and {counts} bytes: expected 1 to {RUNS_PER_BLOCK} runs"
            )));
        }
        let lengths = [2 * runs, near, far, counts];
        let mut block = std::mem::take(&mut self.block);
        block.resize(lengths.iter().sum(), 0);
        let taken = self.take(&mut block);
        self.block = block;
        // A block has a token at least, so the end within it is the end too early.
        if !taken? {
            return Err(self.error(format_args!("it ends after its head: {CUT}")));
        }
        if crc32c::crc32c(&self.block) != word(16) {
            return Err(self.error(format_args!("its checksum is wrong: {CUT}")));
        }
        Ok(Some(lengths))
    }

    /// Appends the block's runs. Err: number of the first that is malformed.
    fn decode(&mut self, lengths: [usize; 4], into: &mut Vec<Run>) -> Result<(), usize> {
        let (tokens, rest) = self.block.split_at(lengths[0]);
        let (mut near, rest) = rest.split_at(lengths[1]);
        let (mut far, mut counts) = rest.split_at(lengths[2]);
        into.reserve(lengths[0] / 2);
        for (at, token) in tokens.chunks_exact(2).enumerate() {
            let place = usize::from(token[0]);
            let told = if place < ENTRIES {
                Told::Known(place)
            } else if token[0] < FAR {
                Told::Near(place - ENTRIES, recent::take_number(&mut near).ok_or(at)?)
            } else if token[0] == FAR {
                Told::Far(recent::take_number(&mut far).ok_or(at)?)
            } else {
                return Err(at);
            };
            let mut references = u32::from(token[1] >> 1) + 1;
            if references == TOKEN_REFERENCES_MAX {
                let more = recent::take_number(&mut counts).and_then(|more| u32::try_from(more).ok());
                references = more.and_then(|more| references.checked_add(more)).ok_or(at)?;
            }
            let writes = token[1] & 1 != 0;
            let grain = self.recent.told(told);
            self.recent.front(told, grain);
            self.seen.references += u64::from(references);
            self.seen.writing_runs += u64::from(writes);
            into.push(Run { grain, references, writes });
        }
        if near.is_empty() && far.is_empty() && counts.is_empty() { Ok(()) } else { Err(tokens.len() / 2) }
    }
}

impl<R: BufRead> Source for Reader<R> {
    fn next_runs(&mut self, into: &mut Vec<Run>) -> Result<bool, TraceError> {
        if self.packed.is_none() {
            return Ok(false);
        }
        let Some(lengths) = self.next_block()? else {
            self.end()?;
            return Ok(false);
        };
        if let Err(at) = self.decode(lengths, into) {
            return Err(self.error(format_args!("its run {at} is malformed: written by another version?")));
        }
        self.seen.runs += lengths[0] as u64 / 2;
        Ok(true)
    }
}

fn header<R: BufRead>(reader: &mut Counted<R>, trace: &str) -> Result<Header, TraceError> {
    let mut exactly = |into: &mut [u8]| {
        let start = reader.taken;
        let cut =
            |error| TraceError::at_byte(trace, start, format_args!("within the header: {error}: {CUT}"));
        reader.read_exact(into).map_err(cut)
    };
    let mut magic = [0; 8];
    exactly(&mut magic)?;
    if magic != MAGIC {
        let what = if magic[..7] == MAGIC[..7] {
            format!("version {} of the format: this program reads version {}", magic[7], MAGIC[7])
        } else {
            "not a trace in Loam's format, which begins with LOAMTRC: give --format".into()
        };
        return Err(TraceError::at_byte(trace, 0, what));
    }
    let mut word = [0; 4];
    exactly(&mut word)?;
    let length = u32::from_le_bytes(word) as usize;
    if length > HEADER_BYTES_MAX {
        let what = format!("a header of {length} bytes: expected at most {HEADER_BYTES_MAX}");
        return Err(TraceError::at_byte(trace, 8, what));
    }
    let mut json = vec![0; length];
    exactly(&mut json)?;
    exactly(&mut word)?;
    if crc32c::crc32c(&json) != u32::from_le_bytes(word) {
        return Err(TraceError::at_byte(trace, 12, format_args!("the header's checksum is wrong: {CUT}")));
    }
    let header: Header = serde_json::from_slice(&json)
        .map_err(|error| TraceError::at_byte(trace, 12, format_args!("the header's JSON: {error}")))?;
    if header.grain_bytes != GRAIN_BYTES {
        let what = format!("grains of {} bytes: this program reads {GRAIN_BYTES}", header.grain_bytes);
        return Err(TraceError::at_byte(trace, 12, what));
    }
    if let Some(ns) = header.ns_per_reference.filter(|ns| !(*ns > 0.0 && *ns <= REFERENCE_NS_MAX)) {
        let what = format_args!(
            "{ns} ns for a reference, where more than 0 and at most {REFERENCE_NS_MAX} are possible: {CUT}"
        );
        return Err(TraceError::at_byte(trace, 12, what));
    }
    Ok(header)
}

/// Header and totals of a file, without reading what is between: a plan needs them before the replay begins.
///
/// # Errors
/// [`TraceError`], if the file is no trace in Loam's own format, or cut.
pub fn peek(path: &Path) -> Result<(Header, Totals), TraceError> {
    let trace = path.display().to_string();
    let cannot = |error: io::Error| TraceError::at_byte(&trace, 0, format_args!("cannot be read: {error}"));
    let file = File::open(path).map_err(cannot)?;
    let mut reader = Counted { reader: BufReader::new(file), taken: 0 };
    let header = header(&mut reader, &trace)?;
    let size = reader.reader.get_ref().metadata().map_err(cannot)?.len();
    let start = size.saturating_sub(FOOTER_BYTES as u64).max(reader.taken);
    reader.reader.seek(SeekFrom::Start(start)).map_err(cannot)?;
    let mut bytes = [0; FOOTER_BYTES];
    let footer = reader.read_exact(&mut bytes).ok().and_then(|()| totals(&bytes));
    match footer {
        Some(totals) => Ok((header, totals)),
        None => Err(TraceError::at_byte(&trace, start, format_args!("expected the footer here: {CUT}"))),
    }
}
