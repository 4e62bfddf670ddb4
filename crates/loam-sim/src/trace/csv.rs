//! Comma-separated values: `address[,op][,size]`, one access a line.
//!
//! The address is decimal or 0x-hexadecimal, the op one of `r`, `w`, `read`, `write` (in any case; `r` where
//! it is left out), the size in bytes (1 where it is left out). A first line of names (`address`, `op`,
//! `size`) is optional and may put the columns into another order; columns of other names are passed over.
//! Lines that begin with `#` are comments.

use super::collapse::{ACCESS_BYTES_MAX, Collapse};
use super::lines::{self, Lines};
use super::{RUNS_PER_CALL, Run, Source, TraceError};
use std::io::BufRead;

/// Most columns of a line.
const COLUMNS_MAX: usize = 64;

/// Where which column is.
#[derive(Clone, Copy, Debug)]
struct Columns {
    address: usize,
    op: Option<usize>,
    size: Option<usize>,
    count: usize,
}

/// Reads comma-separated values.
pub struct Csv<R> {
    lines: Lines<R>,
    columns: Option<Columns>,
    collapse: Collapse,
}

impl<R: BufRead> Csv<R> {
    /// Reads from `reader`; `trace` is its name in messages.
    pub fn new(reader: R, trace: &str) -> Self {
        Self { lines: Lines::new(reader, trace), columns: None, collapse: Collapse::default() }
    }
}

impl<R: BufRead> Source for Csv<R> {
    fn next_runs(&mut self, into: &mut Vec<Run>) -> Result<bool, TraceError> {
        let before = into.len();
        while into.len() - before < RUNS_PER_CALL {
            let Some((line, _)) = self.lines.next()? else {
                self.collapse.end(into);
                break;
            };
            if line.trim_ascii().is_empty() || line.starts_with(b"#") {
                continue;
            }
            let read = match self.columns {
                Some(columns) => access(line, columns).map(Some),
                None => first_line(line).and_then(|(columns, is_names)| {
                    self.columns = Some(columns);
                    if is_names { Ok(None) } else { access(line, columns).map(Some) }
                }),
            };
            match read {
                Ok(None) => {}
                Ok(Some((address, bytes, writes))) => self.collapse.access(address, bytes, writes, into),
                Err(what) => {
                    let shown = self.lines.shown();
                    return Err(self.lines.error(format_args!("{shown}: {what}")));
                }
            }
        }
        Ok(into.len() > before)
    }
}

fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&letter| letter == b',').map(<[u8]>::trim_ascii)
}

/// The columns, and whether this line names them.
fn first_line(line: &[u8]) -> Result<(Columns, bool), String> {
    let count = fields(line).count();
    if count > COLUMNS_MAX {
        return Err(format!("{count} columns: expected at most {COLUMNS_MAX}"));
    }
    let named = |names: &[&str]| {
        fields(line).position(|field| names.iter().any(|name| field.eq_ignore_ascii_case(name.as_bytes())))
    };
    if let Some(address) = named(&["address", "addr"]) {
        return Ok((
            Columns { address, op: named(&["op", "rw"]), size: named(&["size", "bytes"]), count },
            true,
        ));
    }
    if count > 3 {
        return Err(format!(
            "{count} columns without names: expected address[,op][,size], or a first line of names"
        ));
    }
    // Two columns: the second one is a size if it is a number.
    let second_is_size = count == 2 && fields(line).nth(1).is_some_and(|field| number(field).is_some());
    let (op, size) = match (count, second_is_size) {
        (1, _) => (None, None),
        (2, true) => (None, Some(1)),
        (2, false) => (Some(1), None),
        _ => (Some(1), Some(2)),
    };
    Ok((Columns { address: 0, op, size, count }, false))
}

fn number(field: &[u8]) -> Option<u64> {
    match field {
        [b'0', b'x' | b'X', digits @ ..] => lines::hex(digits),
        digits => lines::decimal(digits),
    }
}

fn access(line: &[u8], columns: Columns) -> Result<(u64, u64, bool), String> {
    let (mut address, mut bytes, mut writes, mut count) = (None, 1, false, 0);
    for (at, field) in fields(line).enumerate() {
        count += 1;
        if at == columns.address {
            address = number(field);
        } else if Some(at) == columns.op {
            writes = op(field).ok_or("expected r or w as the op")?;
        } else if Some(at) == columns.size {
            bytes = number(field)
                .filter(|bytes| (1..=ACCESS_BYTES_MAX).contains(bytes))
                .ok_or_else(|| format!("expected a size from 1 to {ACCESS_BYTES_MAX} bytes"))?;
        }
    }
    if count != columns.count {
        return Err(format!("expected {} columns as in the first line, not {count}", columns.count));
    }
    let address = address.ok_or("expected an address, decimal or with 0x")?;
    Ok((address, bytes, writes))
}

fn op(field: &[u8]) -> Option<bool> {
    let is = |names: [&str; 2]| names.iter().any(|name| field.eq_ignore_ascii_case(name.as_bytes()));
    if is(["r", "read"]) {
        Some(false)
    } else if is(["w", "write"]) {
        Some(true)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::summary::all_runs;

    fn read(text: &str) -> Result<Vec<Run>, TraceError> {
        all_runs(&mut Csv::new(text.as_bytes(), "t.csv"))
    }

    fn run(grain: u64, references: u32, writes: bool) -> Run {
        Run { grain, references, writes }
    }

    #[test]
    fn columns_may_be_left_out_and_named() {
        let expected = [run(1, 2, true), run(2, 1, false)];
        for text in [
            "256,w\n0x1ff,r\n512,r\n",
            "256,w,8\n0x1f8,r,8\n512,r,4",
            "# comment\nSize, time ,OP,Address\n8,1,write,256\n8,2,read,0x1F8\n\n1,3,R,512\r\n",
        ] {
            assert_eq!(read(text).expect(text), expected, "{text}");
        }
        assert_eq!(read("256\n256,\n").expect_err("columns").place, "line 2");
        assert_eq!(read("250,16\n").expect("sizes"), [run(0, 1, false), run(1, 1, false)]);
    }

    #[test]
    fn a_malformed_or_cut_line_is_named() {
        for (text, expected) in [
            ("1,r\nx,r\n", "line 2: `x,r`: expected an address"),
            ("1,r\n2,q\n", "line 2: `2,q`: expected r or w"),
            ("1,r,8\n2,r,0\n", "line 2: `2,r,0`: expected a size from 1 to 4096"),
            ("1,r,8\n2,r", "line 2: `2,r`: expected 3 columns as in the first line, not 2"),
            ("1,2,3,4\n", "line 1: `1,2,3,4`: 4 columns without names"),
            ("0x10000000000000000\n", "line 1: `0x10000000000000000`: expected an address"),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("t.csv: {expected}")), "{error}");
        }
    }
}
