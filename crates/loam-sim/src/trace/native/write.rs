//! Writing Loam's own format.

use super::recent::{self, ENTRIES, FAR, Recent, Told};
use super::{HEADER_BYTES_MAX, Header, MAGIC, RUNS_PER_BLOCK, TOKEN_REFERENCES_MAX, WINDOW_LOG, footer};
use crate::trace::Run;
use crate::trace::summary::{Counter, Totals};
use std::io::{self, Write};

/// zstd's level: from here on, more time finds next to nothing (22 instead of 19: 0.3%).
const LEVEL: i32 = 19;

/// Writes a trace in Loam's own format. The same runs and header give the same bytes.
pub struct Writer<W: Write> {
    packed: zstd::stream::write::Encoder<'static, W>,
    recent: Recent,
    counter: Counter,
    runs: usize,
    tokens: Vec<u8>,
    near: Vec<u8>,
    far: Vec<u8>,
    counts: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// What the sink says; a header that is too long.
    pub fn new(mut sink: W, header: &Header) -> io::Result<Self> {
        let json = serde_json::to_vec(header)?;
        if json.len() > HEADER_BYTES_MAX {
            return Err(io::Error::other(format!(
                "the command line makes a header of {} bytes, and {HEADER_BYTES_MAX} is the most: shorten it",
                json.len()
            )));
        }
        let length = u32::try_from(json.len()).expect("below the header's limit");
        sink.write_all(&MAGIC)?;
        sink.write_all(&length.to_le_bytes())?;
        sink.write_all(&json)?;
        sink.write_all(&crc32c::crc32c(&json).to_le_bytes())?;
        let mut packed = zstd::stream::write::Encoder::new(sink, LEVEL)?;
        packed.window_log(WINDOW_LOG)?;
        packed.long_distance_matching(true)?;
        packed.include_checksum(true)?;
        Ok(Self {
            packed,
            recent: Recent::new(),
            counter: Counter::default(),
            runs: 0,
            tokens: Vec::with_capacity(2 * RUNS_PER_BLOCK),
            near: Vec::new(),
            far: Vec::new(),
            counts: Vec::new(),
        })
    }

    /// Appends runs. Neighbours on one grain stay what they are: [`crate::trace::Collapse`] joins them.
    ///
    /// # Errors
    /// What the sink says; a trace that touches too much memory.
    ///
    /// # Panics
    /// If a run has no reference.
    pub fn add(&mut self, runs: &[Run]) -> io::Result<()> {
        self.counter.add(runs).map_err(io::Error::other)?;
        for run in runs {
            self.put(*run);
            if self.runs == RUNS_PER_BLOCK {
                self.end_block()?;
            }
        }
        Ok(())
    }

    /// Ends the trace and gives its totals and the sink.
    ///
    /// # Errors
    /// What the sink says.
    pub fn finish(mut self) -> io::Result<(Totals, W)> {
        if self.runs > 0 {
            self.end_block()?;
        }
        let mut sink = self.packed.finish()?;
        let totals = self.counter.totals();
        sink.write_all(&footer(&totals))?;
        sink.flush()?;
        Ok((totals, sink))
    }

    fn put(&mut self, run: Run) {
        assert!(run.references > 0, "a run has a reference");
        let told = self.recent.tell(run.grain);
        let place = match told {
            Told::Known(place) => place,
            Told::Near(place, distance) => {
                recent::put_number(&mut self.near, distance);
                ENTRIES + place
            }
            Told::Far(distance) => {
                recent::put_number(&mut self.far, distance);
                usize::from(FAR)
            }
        };
        self.tokens.push(u8::try_from(place).expect("twice the entries are below 256"));
        let counted = run.references.min(TOKEN_REFERENCES_MAX);
        self.tokens.push(((counted - 1) << 1) as u8 | u8::from(run.writes));
        if counted == TOKEN_REFERENCES_MAX {
            recent::put_number(&mut self.counts, u64::from(run.references - counted));
        }
        self.recent.front(told, run.grain);
        self.runs += 1;
    }

    fn end_block(&mut self) -> io::Result<()> {
        let length = |bytes: usize| u32::try_from(bytes).expect("a block is below a few MiB").to_le_bytes();
        let sections = [&mut self.tokens, &mut self.near, &mut self.far, &mut self.counts];
        let checksum = sections.iter().fold(0, |sum, section| crc32c::crc32c_append(sum, section));
        self.packed.write_all(&length(self.runs))?;
        for section in &sections[1..] {
            self.packed.write_all(&length(section.len()))?;
        }
        self.packed.write_all(&checksum.to_le_bytes())?;
        for section in sections {
            self.packed.write_all(section)?;
            section.clear();
        }
        self.runs = 0;
        Ok(())
    }
}
