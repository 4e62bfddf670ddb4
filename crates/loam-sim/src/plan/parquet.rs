//! Parquet, as little of it as a table needs: one row group, one plain page a column, nothing compressed.
//!
//! Written here because the public crate brings a hundred others. Format: <https://parquet.apache.org/docs/file-format/>. The metadata is
//! thrift in its compact protocol: a field is its distance from the last one in the high half of a byte, its type in the low half.

use crate::report::{Cell, Table};

const MAGIC: &[u8; 4] = b"PAR1";
/// Physical types of Parquet.
const INT64: i64 = 2;
const DOUBLE: i64 = 5;
const BYTE_ARRAY: i64 = 6;
/// Types of thrift's compact protocol.
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;
/// Encodings.
const PLAIN: i64 = 0;
const RLE: i64 = 3;

/// A thrift struct in the making.
#[derive(Default)]
struct Thrift {
    out: Vec<u8>,
    last: u8,
}

impl Thrift {
    fn varint(out: &mut Vec<u8>, mut value: u64) {
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }

    fn field(&mut self, id: u8, kind: u8) -> &mut Vec<u8> {
        let away = id - self.last;
        assert!((1..16).contains(&away), "fields of a struct stand in order");
        self.last = id;
        self.out.push(away << 4 | kind);
        &mut self.out
    }

    fn zigzag(value: i64) -> u64 {
        (value << 1 ^ value >> 63) as u64
    }

    fn int(mut self, id: u8, kind: u8, value: i64) -> Self {
        Self::varint(self.field(id, kind), Self::zigzag(value));
        self
    }

    fn text(mut self, id: u8, text: &str) -> Self {
        let out = self.field(id, BINARY);
        Self::varint(out, text.len() as u64);
        out.extend_from_slice(text.as_bytes());
        self
    }

    fn inner(mut self, id: u8, inner: Self) -> Self {
        let inner = inner.end();
        self.field(id, STRUCT).extend_from_slice(&inner);
        self
    }

    /// A list of what is already encoded.
    fn list(mut self, id: u8, kind: u8, items: &[Vec<u8>]) -> Self {
        let out = self.field(id, LIST);
        if items.len() < 15 {
            out.push((items.len() as u8) << 4 | kind);
        } else {
            out.push(0xf0 | kind);
            Self::varint(out, items.len() as u64);
        }
        items.iter().for_each(|item| out.extend_from_slice(item));
        self
    }

    fn end(mut self) -> Vec<u8> {
        self.out.push(0);
        self.out
    }

    fn encoded_int(value: i64) -> Vec<u8> {
        let mut out = Vec::new();
        Self::varint(&mut out, Self::zigzag(value));
        out
    }

    fn encoded_text(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        Self::varint(&mut out, text.len() as u64);
        out.extend_from_slice(text.as_bytes());
        out
    }
}

fn kind_of<'a>(cells: impl Iterator<Item = &'a Cell>) -> i64 {
    let mut kind = None;
    for cell in cells {
        let own = match cell {
            Cell::Empty => continue,
            Cell::Text(_) => BYTE_ARRAY,
            Cell::Number(..) => DOUBLE,
            Cell::Whole(whole) | Cell::Scaled(whole, _) => {
                if i64::try_from(*whole).is_ok() {
                    INT64
                } else {
                    DOUBLE
                }
            }
        };
        kind = Some(match kind {
            None => own,
            Some(kind) if kind == own => own,
            Some(BYTE_ARRAY) => BYTE_ARRAY,
            Some(_) if own == BYTE_ARRAY => BYTE_ARRAY,
            Some(_) => DOUBLE,
        });
    }
    kind.unwrap_or(BYTE_ARRAY)
}

fn plain(cell: &Cell, kind: i64, out: &mut Vec<u8>) {
    match (kind, cell) {
        (_, Cell::Empty) => {}
        (INT64, Cell::Whole(whole) | Cell::Scaled(whole, _)) => {
            let whole = i64::try_from(*whole).expect("the column's type has been chosen so");
            out.extend_from_slice(&whole.to_le_bytes());
        }
        (DOUBLE, Cell::Whole(whole) | Cell::Scaled(whole, _)) => {
            out.extend_from_slice(&(*whole as f64).to_le_bytes());
        }
        (DOUBLE, Cell::Number(number, _)) => out.extend_from_slice(&number.to_le_bytes()),
        (_, other) => {
            let text = other.exact();
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// Which cells are there: a bit each, in one run of Parquet's hybrid encoding, its length before it.
fn levels<'a>(cells: impl ExactSizeIterator<Item = &'a Cell>) -> Vec<u8> {
    let groups = cells.len().div_ceil(8);
    let mut bits = vec![0_u8; groups];
    for (at, cell) in cells.enumerate() {
        bits[at / 8] |= u8::from(*cell != Cell::Empty) << (at % 8);
    }
    let mut run = Vec::new();
    Thrift::varint(&mut run, (groups as u64) << 1 | 1);
    run.extend_from_slice(&bits);
    let mut out = (run.len() as u32).to_le_bytes().to_vec();
    out.extend_from_slice(&run);
    out
}

/// The table as a file. Every column may have gaps; the names are the header's.
pub(super) fn file(table: &Table) -> Vec<u8> {
    let rows = table.rows().len() as i64;
    let mut out = MAGIC.to_vec();
    let root = Thrift::default().text(4, "loam").int(5, I32, table.header().len() as i64);
    let (mut schema, mut chunks, mut bytes) = (vec![root.end()], Vec::new(), 0);
    for (column, name) in table.header().iter().enumerate() {
        let cells = || table.rows().iter().map(move |row| &row[column]);
        let kind = kind_of(cells());
        let mut page = levels(cells());
        cells().for_each(|cell| plain(cell, kind, &mut page));
        let data = Thrift::default().int(1, I32, rows).int(2, I32, PLAIN).int(3, I32, RLE).int(4, I32, RLE);
        let size = page.len() as i64;
        let header =
            Thrift::default().int(1, I32, 0).int(2, I32, size).int(3, I32, size).inner(5, data).end();
        let (at, size) = (out.len() as i64, size + header.len() as i64);
        out.extend_from_slice(&header);
        out.extend_from_slice(&page);
        bytes += size;

        // 1: optional; converted type 0: UTF-8.
        let element = Thrift::default().int(1, I32, kind).int(3, I32, 1).text(4, name);
        schema.push(if kind == BYTE_ARRAY { element.int(6, I32, 0) } else { element }.end());
        let encodings = [Thrift::encoded_int(PLAIN), Thrift::encoded_int(RLE)];
        let meta = Thrift::default()
            .int(1, I32, kind)
            .list(2, I32, &encodings)
            .list(3, BINARY, &[Thrift::encoded_text(name)])
            .int(4, I32, 0)
            .int(5, I64, rows)
            .int(6, I64, size)
            .int(7, I64, size)
            .int(9, I64, at);
        chunks.push(Thrift::default().int(2, I64, at).inner(3, meta).end());
    }
    let group = Thrift::default().list(1, STRUCT, &chunks).int(2, I64, bytes).int(3, I64, rows).end();
    let by = format!("loam {}", env!("CARGO_PKG_VERSION"));
    let footer = Thrift::default()
        .int(1, I32, 1)
        .list(2, STRUCT, &schema)
        .int(3, I64, rows)
        .list(4, STRUCT, &[group])
        .text(6, &by)
        .end();
    out.extend_from_slice(&footer);
    out.extend_from_slice(&(footer.len() as u32).to_le_bytes());
    out.extend_from_slice(MAGIC);
    out
}
