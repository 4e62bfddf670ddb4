//! A small client of redis, and the model that says what each key holds.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Requests that are on their way at once.
const PIPELINE: u64 = 50;
/// Longest answer that is taken.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// An answer of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `+OK` and the like.
    Line(String),
    /// A number.
    Number(i64),
    /// A value; none if there is no such key.
    Value(Option<Vec<u8>>),
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

fn other(text: impl Into<String>) -> io::Error {
    io::Error::other(text.into())
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        stream.set_write_timeout(Some(Duration::from_secs(120)))?;
        Ok(Self { stream: BufReader::with_capacity(1 << 16, stream) })
    }

    /// One request, one answer.
    ///
    /// # Errors
    /// The connection's, or the server's own.
    pub fn call(&mut self, words: &[&[u8]]) -> io::Result<Answer> {
        let mut request = Vec::new();
        encode(&mut request, words);
        self.stream.get_mut().write_all(&request)?;
        self.answer()
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        (&mut self.stream).take(4096).read_until(b'\n', &mut line)?;
        match line.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None => Err(other("the server closed the connection")),
        }
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let line = self.line()?;
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().map_err(|_| other(format!("not a number: {line}")));
        match kind {
            "+" => Ok(Answer::Line(rest.to_owned())),
            "-" => Err(other(format!("the server says: {rest}"))),
            ":" => Ok(Answer::Number(number()?)),
            "$" => match number()? {
                -1 => Ok(Answer::Value(None)),
                bytes => {
                    let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes <= ANSWER_BYTES_MAX);
                    let mut value = vec![0; bytes.ok_or_else(|| other("too long an answer"))? + 2];
                    self.stream.read_exact(&mut value)?;
                    value.truncate(value.len() - 2);
                    Ok(Answer::Value(Some(value)))
                }
            },
            _ => Err(other(format!("unknown answer {line}"))),
        }
    }

    /// Sets the keys of the range to what they hold in this version.
    ///
    /// # Errors
    /// The connection's, or the server's own.
    pub fn fill(&mut self, keys: std::ops::Range<u64>, version: u64) -> io::Result<()> {
        self.batches(
            keys,
            |out, key| encode(out, &[b"SET", &name(key), &value(key, version)]),
            |key, answer| {
                if answer == Answer::Line("OK".into()) {
                    Ok(())
                } else {
                    Err(other(format!("SET of key {key}: {answer:?}")))
                }
            },
        )
    }

    /// Reads the keys of the range and compares.
    ///
    /// # Errors
    /// The first key that does not hold what it should.
    pub fn check(&mut self, keys: std::ops::Range<u64>, version: u64) -> io::Result<()> {
        self.batches(keys, |out, key| encode(out, &[b"GET", &name(key)]), |key, answer| {
            let expected = value(key, version);
            match answer {
                Answer::Value(Some(got)) if got == expected => Ok(()),
                Answer::Value(Some(got)) => {
                    let at = got.iter().zip(&expected).position(|(a, b)| a != b).unwrap_or(got.len().min(expected.len()));
                    Err(other(format!(
                        "key {key} version {version}: {} bytes where {} are due, first difference at {at}",
                        got.len(),
                        expected.len()
                    )))
                }
                answer => Err(other(format!("key {key} version {version}: {answer:?}"))),
            }
        })
    }

    fn batches(
        &mut self,
        keys: std::ops::Range<u64>,
        request: impl Fn(&mut Vec<u8>, u64),
        accept: impl Fn(u64, Answer) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut from = keys.start;
        while from < keys.end {
            let to = (from + PIPELINE).min(keys.end);
            let mut out = Vec::new();
            (from..to).for_each(|key| request(&mut out, key));
            // Answers stay below what a socket holds, so writing all before reading any cannot lock up for long.
            self.stream.get_mut().write_all(&out)?;
            for key in from..to {
                let answer = self.answer()?;
                accept(key, answer)?;
            }
            from = to;
        }
        Ok(())
    }

    /// A field of `INFO SECTION`.
    ///
    /// # Errors
    /// If there is none.
    pub fn info(&mut self, section: &str, field: &str) -> io::Result<String> {
        let Answer::Value(Some(text)) = self.call(&[b"INFO", section.as_bytes()])? else {
            return Err(other("INFO without a value"));
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned))
            .ok_or_else(|| other(format!("no {field} in INFO {section}")))
    }
}

fn encode(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

fn name(key: u64) -> Vec<u8> {
    format!("key:{key:08}").into_bytes()
}

/// What a key holds in a version: 2,048 to 3,072 bytes that depend on both.
fn value(key: u64, version: u64) -> Vec<u8> {
    let mut x = mix(key ^ version << 40);
    let words = 256 + x % 129;
    let mut bytes = Vec::with_capacity(words as usize * 8);
    for _ in 0..words {
        x = mix(x);
        bytes.extend_from_slice(&x.to_le_bytes());
    }
    bytes
}

fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
