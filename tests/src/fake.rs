//! A lender that lies: it stores pages as a real one does, and breaks the protocol where it was told to.

use loam_core::ids::Version;
use loam_wire::limits::{FRAME_BYTES_MAX, PAGE_FRAME_PAGES_MAX};
use loam_wire::{
    Decoded, Frame, PageAck, PageMeta, PageRef, PutStatus, decode, encode, error_code, page_hash,
};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

const PAGE_BYTES: usize = 4096;
/// Says that it has this much; it never gets that far.
const CAPACITY_BYTES: u64 = 1 << 30;

/// What it does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Nothing: proves that the fake lender itself is sound.
    None,
    /// A bit of the contents is turned; the hash is the right one.
    WrongBytes,
    /// Other contents with the hash that fits them.
    WrongHash,
    /// The right contents under the name of another page.
    WrongId,
    /// The right contents under another version.
    WrongVersion,
    /// The stream ends in the middle of an answer.
    CutFrame,
    /// A frame with a wrong checksum.
    BadChecksum,
    /// An answer to something that nobody asked.
    WrongRequest,
    /// Getpages are read and never answered.
    NoAnswer,
    /// Putpages are read and never acknowledged.
    NoAck,
    /// Connections are taken and the hello is never answered.
    NoWelcome,
    /// All that is asked for is missing.
    Misses,
    /// All that is asked for is missing, each under another version than the one asked for.
    MissesWrongVersion,
    /// No page is taken.
    NoRoom,
    /// The hello is answered with bytes that are no frame.
    NotLoam,
    /// The hello is refused for its version.
    OtherVersion,
}

/// Pages by space and index.
type Pages = HashMap<(u64, u64), (Version, Vec<u8>)>;

#[derive(Debug)]
struct Shared {
    lie: Lie,
    pages: Mutex<Pages>,
    /// Times that it did what it was told to do wrong.
    lied: AtomicU64,
    ended: AtomicBool,
}

/// A lender in threads of the test.
#[derive(Debug)]
pub struct FakeLender {
    /// Where it listens.
    pub addr: SocketAddr,
    shared: Arc<Shared>,
}

impl FakeLender {
    /// Starts one.
    ///
    /// # Panics
    /// If loopback has no free port.
    pub fn start(lie: Lie) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let addr = listener.local_addr().expect("just bound");
        let shared = Arc::new(Shared {
            lie,
            pages: Mutex::default(),
            lied: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.ended.load(Ordering::Relaxed) {
                    break;
                }
                let (Ok(stream), shared) = (stream, Arc::clone(&serving)) else { continue };
                // A connection's end is the borrower's to notice; a lender that lies reports nothing.
                thread::spawn(move || drop(serve(stream, &shared)));
            }
        });
        Self { addr, shared }
    }

    /// Times that it did its wrong. A test in which it never came to that has tested nothing.
    pub fn lied(&self) -> u64 {
        self.shared.lied.load(Ordering::Relaxed)
    }
}

impl Drop for FakeLender {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(self.addr);
    }
}

/// What to do after a frame.
enum Next {
    Send,
    Cut { bytes: usize },
    Hang,
}

fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut space) = (Vec::with_capacity(FRAME_BYTES_MAX), 0);
    let mut chunk = vec![0; 256 << 10];
    loop {
        let got = stream.read(&mut chunk)?;
        if got == 0 {
            return Ok(());
        }
        input.extend_from_slice(&chunk[..got]);
        loop {
            let mut answer = Vec::new();
            let (consumed, next) = match decode(&input) {
                Ok(Decoded::NeedMore { .. }) => break,
                Ok(Decoded::Whole { frame, consumed }) => {
                    (consumed, respond(&frame, &mut space, shared, &mut answer))
                }
                Err(error) => return Err(io::Error::other(error)),
            };
            input.drain(..consumed);
            match next {
                Next::Send => stream.write_all(&answer)?,
                Next::Cut { bytes } => {
                    shared.lied.fetch_add(1, Ordering::Relaxed);
                    return stream.write_all(&answer[..bytes]);
                }
                Next::Hang => {
                    shared.lied.fetch_add(1, Ordering::Relaxed);
                    // Keeps on reading, so that the borrower's writes succeed; nothing is answered any more.
                    while stream.read(&mut chunk)? > 0 {}
                    return Ok(());
                }
            }
        }
    }
}

fn respond(frame: &Frame<'_>, space: &mut u64, shared: &Shared, answer: &mut Vec<u8>) -> Next {
    let mut pages = shared.pages.lock().unwrap_or_else(PoisonError::into_inner);
    match *frame {
        Frame::Hello { space: theirs, .. } => {
            *space = theirs;
            match shared.lie {
                Lie::NoWelcome => return Next::Hang,
                Lie::NotLoam => {
                    answer.extend_from_slice(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
                }
                Lie::OtherVersion => encode::error(answer, error_code::VERSION, "speaks version 99 only"),
                _ => {
                    encode::welcome(answer, 0, 7, CAPACITY_BYTES, CAPACITY_BYTES);
                    return Next::Send;
                }
            }
            Next::Cut { bytes: answer.len() }
        }
        Frame::PutPage { request, pages: metas, payload } => {
            if shared.lie == Lie::NoAck {
                return Next::Hang;
            }
            let mut acks = Vec::with_capacity(metas.len());
            for (meta, contents) in metas.iter().zip(payload.chunks_exact(PAGE_BYTES)) {
                let status = if shared.lie == Lie::NoRoom {
                    shared.lied.fetch_add(1, Ordering::Relaxed);
                    PutStatus::NoRoom
                } else {
                    pages.insert((*space, meta.index()), (meta.version(), contents.to_vec()));
                    PutStatus::Stored
                };
                acks.push(PageAck::new(meta.index(), meta.version(), status));
            }
            let free_bytes = if shared.lie == Lie::NoRoom { 0 } else { CAPACITY_BYTES / 2 };
            encode::ack(answer, request, &acks, free_bytes);
            Next::Send
        }
        Frame::GetPage { request, pages: wanted } => give(request, wanted, *space, &pages, shared, answer),
        Frame::Drop { pages: dropped } => {
            for page in dropped {
                if pages.get(&(*space, page.index())).is_some_and(|held| held.0 == page.version()) {
                    pages.remove(&(*space, page.index()));
                }
            }
            Next::Send
        }
        Frame::Ping { request } => {
            encode::pong(answer, request);
            Next::Send
        }
        _ => Next::Send,
    }
}

/// Answers a getpage, wrongly where it was told to.
fn give(
    request: u64,
    wanted: &[PageRef],
    space: u64,
    pages: &Pages,
    shared: &Shared,
    answer: &mut Vec<u8>,
) -> Next {
    if shared.lie == Lie::NoAnswer {
        return Next::Hang;
    }
    for group in wanted.chunks(PAGE_FRAME_PAGES_MAX) {
        let (mut metas, mut payload, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        for want in group {
            let held = pages.get(&(space, want.index())).filter(|held| held.0 == want.version());
            match held {
                Some((version, contents)) if !matches!(shared.lie, Lie::Misses | Lie::MissesWrongVersion) => {
                    let (meta, contents) = twist(shared.lie, want.index(), *version, contents);
                    metas.push(meta);
                    payload.extend_from_slice(&contents);
                }
                _ if shared.lie == Lie::MissesWrongVersion => {
                    missing.push(PageRef::new(want.index(), Version(want.version().0.wrapping_add(1))));
                }
                _ => missing.push(*want),
            }
        }
        // Lies about single pages, and misses of pages that it was given, count here.
        let one_page_lies =
            matches!(shared.lie, Lie::WrongBytes | Lie::WrongHash | Lie::WrongId | Lie::WrongVersion)
                && !metas.is_empty();
        if one_page_lies
            || (matches!(shared.lie, Lie::Misses | Lie::MissesWrongVersion) && !missing.is_empty())
        {
            shared.lied.fetch_add(1, Ordering::Relaxed);
        }
        if !missing.is_empty() {
            encode::miss(answer, request, &missing);
        }
        if metas.is_empty() {
            continue;
        }
        let start = answer.len();
        match shared.lie {
            Lie::WrongRequest => {
                shared.lied.fetch_add(1, Ordering::Relaxed);
                encode::page(answer, request ^ 0x5555_0000, &metas);
            }
            _ => encode::page(answer, request, &metas),
        }
        if shared.lie == Lie::BadChecksum {
            shared.lied.fetch_add(1, Ordering::Relaxed);
            *answer.last_mut().expect("a head has bytes") ^= 0x10;
        }
        answer.extend_from_slice(&payload);
        if shared.lie == Lie::CutFrame {
            return Next::Cut { bytes: start + (answer.len() - start) / 2 };
        }
    }
    Next::Send
}

/// One page of an answer.
fn twist(lie: Lie, index: u64, version: Version, contents: &[u8]) -> (PageMeta, Vec<u8>) {
    let hash = page_hash(contents);
    let mut sent = contents.to_vec();
    match lie {
        Lie::WrongBytes => {
            sent[1234] ^= 0x40;
            (PageMeta::new(index, version, hash), sent)
        }
        Lie::WrongHash => {
            sent[1234] ^= 0x40;
            (PageMeta::new(index, version, page_hash(&sent)), sent)
        }
        Lie::WrongId => (PageMeta::new(index ^ 1, version, hash), sent),
        Lie::WrongVersion => (PageMeta::new(index, Version(version.0.wrapping_add(1)), hash), sent),
        _ => (PageMeta::new(index, version, hash), sent),
    }
}

/// Speaks to a fake lender that does not lie, as a borrower does, so that the others can be believed.
///
/// # Errors
/// What went wrong, in words.
pub fn prove_sound(lender: &FakeLender) -> Result<(), String> {
    let mut stream = TcpStream::connect(lender.addr).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(|error| error.to_string())?;
    let page = vec![0x5A; PAGE_BYTES];
    let mut out = Vec::new();
    encode::hello(&mut out, 42, "test");
    encode::putpage(&mut out, 1, &[PageMeta::new(9, Version(3), page_hash(&page))]);
    out.extend_from_slice(&page);
    encode::getpage(&mut out, 2, &[PageRef::new(9, Version(3)), PageRef::new(9, Version(4))]);
    stream.write_all(&out).map_err(|error| error.to_string())?;
    let (mut input, mut chunk, mut seen) = (Vec::new(), vec![0; 65536], Vec::new());
    while seen.len() < 4 {
        let got = stream.read(&mut chunk).map_err(|error| format!("after {seen:?}: {error}"))?;
        input.extend_from_slice(&chunk[..got]);
        while let Decoded::Whole { frame, consumed } = decode(&input).map_err(|error| error.to_string())? {
            seen.push(match frame {
                Frame::Welcome(_) => "welcome",
                Frame::Ack { request: 1, pages, .. } if pages[0].status() == PutStatus::Stored => "stored",
                Frame::Miss { request: 2, pages } if pages[0].version() == Version(4) => "miss",
                Frame::Page { request: 2, payload, .. } if payload == page => "page",
                other => return Err(format!("unexpected {other:?}")),
            });
            input.drain(..consumed);
        }
    }
    if seen == ["welcome", "stored", "miss", "page"] { Ok(()) } else { Err(format!("got {seen:?}")) }
}
