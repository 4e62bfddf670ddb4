//! Lines of a text, without trusting that it has any.

use super::TraceError;
use std::io::{BufRead, Read};

/// Longest line that is believed to be one.
const LINE_BYTES_MAX: u64 = 4096;

/// Numbered lines of a text.
pub(super) struct Lines<R> {
    reader: R,
    trace: String,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(reader: R, trace: &str) -> Self {
        Self { reader, trace: trace.into(), line: Vec::with_capacity(256), number: 0 }
    }

    /// The next line without its end, and whether it had one: the last line of a cut text has not.
    pub(super) fn next(&mut self) -> Result<Option<(&[u8], bool)>, TraceError> {
        self.line.clear();
        self.number += 1;
        match self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line) {
            Ok(0) => return Ok(None),
            Ok(bytes) if bytes as u64 == LINE_BYTES_MAX && self.line.last() != Some(&b'\n') => {
                return Err(
                    self.error(format_args!("a line of more than {LINE_BYTES_MAX} bytes: this is no text"))
                );
            }
            Ok(_) => {}
            Err(error) => return Err(self.error(format_args!("cannot be read: {error}"))),
        }
        let ended = self.line.last() == Some(&b'\n');
        let mut text = self.line.as_slice();
        while let [rest @ .., b'\n' | b'\r'] = text {
            text = rest;
        }
        Ok(Some((text, ended)))
    }

    /// Something is wrong in the line that was given last.
    pub(super) fn error(&self, what: impl std::fmt::Display) -> TraceError {
        TraceError::at_line(&self.trace, self.number, what)
    }

    /// The line that was given last, as far as it can be shown.
    pub(super) fn shown(&self) -> String {
        let text = String::from_utf8_lossy(&self.line);
        let text = text.trim_end();
        let short: String = text.chars().take(60).flat_map(char::escape_debug).collect();
        format!("`{short}`")
    }
}

/// A number in hexadecimal digits only.
pub(super) fn hex(text: &[u8]) -> Option<u64> {
    number(text, 16)
}

/// A number in decimal digits only.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    number(text, 10)
}

fn number(text: &[u8], radix: u8) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value = 0_u64;
    for &letter in text {
        let digit = char::from(letter).to_digit(u32::from(radix))?;
        value = value.checked_mul(u64::from(radix))?.checked_add(u64::from(digit))?;
    }
    Some(value)
}
