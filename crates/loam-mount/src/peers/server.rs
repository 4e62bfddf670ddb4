//! Answers other mounts: runs of this mount's cache, and its part of the directory. A thread for each connection, which waits
//! for nothing but its own socket.

use super::NodeId;
use super::group::Shared;
use crate::run::RunKey;
use loam_core::ids::Version;
use loam_core::units::BASE_PAGE_BYTES;
use loam_wire::client::{ClientError, read_frame};
use loam_wire::mount::{self, FileVersion, Holders, RUN_PAGES};
use loam_wire::tls::{Role, TlsError};
use loam_wire::{Frame, PROTOCOL_VERSION, PageMeta, PageRef, Stream, Until, encode, error_code};
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 512;
/// A stranger has so long for all of its hello, and for the handshake of TLS before it.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// A peer that takes none of its answers for so long is given up.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);
/// How long to leave the listener alone when the system has no descriptor or thread for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long, and how often, bytes of somebody who is refused are thrown away.
const FAREWELL: Duration = Duration::from_millis(500);
const FAREWELL_READS_MAX: usize = 64;

/// Takes connections until the process ends.
pub(crate) fn run(shared: &Arc<Shared>, listener: &TcpListener) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((socket, from)) = listener.accept() else {
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            // Whoever speaks TLS learns by the end of the connection.
            refuse(&mut Stream::Plain(socket), error_code::BUSY, "too many connections to this mount");
            continue;
        }
        let credentials = shared.card.credentials.as_ref().map(|watched| watched.current());
        let (shared, counted) = (Arc::clone(shared), Counted(Arc::clone(&open)));
        let serving = thread::Builder::new().name("loam-serving".into()).spawn(move || {
            let _counted = counted;
            let Ok(mut stream) = Stream::accepted(socket, credentials.as_deref()) else { return };
            if let Err(error) = serve(&shared, &mut stream, from) {
                answer_error(&mut stream, from, &error);
            }
        });
        if serving.is_err() {
            thread::sleep(ACCEPT_PAUSE);
        }
    }
}

/// Counts its connection until it is dropped, however the thread ends.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn refuse(stream: &mut Stream, code: u16, text: &str) {
    let mut out = Vec::new();
    encode::error(&mut out, code, text);
    // Whoever does not take it learns by the end of the connection.
    let _ = stream.socket().set_write_timeout(Some(ACCEPT_PAUSE));
    let _ = stream.write_all(&out).and_then(|()| stream.flush());
}

fn answer_error(stream: &mut Stream, from: SocketAddr, error: &ClientError) {
    match error {
        ClientError::Wire(error) => refuse(stream, error_code::BAD_FRAME, &error.to_string()),
        ClientError::Unexpected => refuse(stream, error_code::BAD_FRAME, "that frame is not expected now"),
        ClientError::Tls(TlsError::Truncated) => {}
        // It was told already. Closing with unread bytes would lose that.
        ClientError::Tls(why) => {
            tracing::info!("refused {from}: no TLS: {why}");
            stream.end();
            let _ = stream.socket().set_read_timeout(Some(FAREWELL));
            let mut thrown_away = [0; 4096];
            for _ in 0..FAREWELL_READS_MAX {
                if !matches!(stream.socket().read(&mut thrown_away), Ok(1..)) {
                    break;
                }
            }
        }
        _ => {}
    }
}

fn serve(shared: &Shared, stream: &mut Stream, from: SocketAddr) -> Result<(), ClientError> {
    stream.socket().set_nodelay(true)?;
    let deadline = Instant::now() + HELLO_WITHIN;
    stream.socket().set_write_timeout(Some(TAKEN_WITHIN))?;
    let mut buffer = Vec::new();
    let mut out = Vec::new();
    let Some(peer) = greet(shared, stream, from, deadline, &mut buffer)? else { return Ok(()) };
    stream.socket().set_read_timeout(None)?;
    // A machine that vanished says nothing any more; the kernel asks.
    rustix::net::sockopt::set_socket_keepalive(&*stream, true).map_err(io::Error::from)?;
    loop {
        let frame = match read_frame(&mut *stream, &mut buffer) {
            Err(ClientError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            frame => frame?,
        };
        out.clear();
        match frame {
            Frame::SharedGetPage { request, file, pages } => {
                send_pages(shared, stream, request, *file, pages, &mut out)?;
                continue;
            }
            Frame::Locate { request, extents } => {
                let holders: Vec<Holders> = extents
                    .iter()
                    .map(|extent| {
                        let found: Vec<(u64, u8)> = shared
                            .locate(extent, peer)
                            .into_iter()
                            .map(|(node, runs)| (node.0, runs))
                            .collect();
                        Holders::new(&found)
                    })
                    .collect();
                mount::located(&mut out, request, &holders);
            }
            Frame::Register { extents } => shared.register(peer, extents),
            Frame::Unregister { extents } => shared.unregister(peer, extents),
            Frame::LastCopy { extents } => shared.have_last(extents),
            Frame::Ping { request } => encode::pong(&mut out, request),
            _ => return Err(ClientError::Unexpected),
        }
        stream.write_all(&out)?;
        stream.flush()?;
    }
}

/// Hears who it is, by `deadline`, and says who we are. `None`: refused.
pub(super) fn greet(
    shared: &Shared,
    stream: &mut Stream,
    from: SocketAddr,
    deadline: Instant,
    buffer: &mut Vec<u8>,
) -> Result<Option<NodeId>, ClientError> {
    let hello = read_frame(Until::new(stream, deadline), buffer)?;
    // Each mount answers others and is answered by them, as nodes do.
    if let Some(identity) = stream.identity().filter(|identity| !identity.is(Role::Node)) {
        let text = format!(
            "the certificate of {identity} has not the role node: issue one with --role node or both"
        );
        refuse(stream, error_code::DENIED, &text);
        return Ok(None);
    }
    let mut refused = |code, text: &str| {
        refuse(stream, code, text);
        Ok(None)
    };
    let (node, port) = match hello {
        Frame::MountHello { body, .. } if body.version() != PROTOCOL_VERSION => {
            let text = format!("this mount speaks version {PROTOCOL_VERSION}: use the same Loam on both");
            return refused(error_code::VERSION, &text);
        }
        Frame::MountHello { body, name } if body.group() != shared.card.group => {
            let text =
                format!("this mount shows {:?}, not {name:?}: give both the same --name", shared.card.name);
            return refused(error_code::OTHER_SOURCE, &text);
        }
        Frame::MountHello { body, .. } if body.node() != 0 => (NodeId(body.node()), body.port()),
        Frame::Hello { .. } => {
            return refused(
                error_code::OTHER_SOURCE,
                "this is a mount, not a lender: give a lender's address",
            );
        }
        _ => return Err(ClientError::Unexpected),
    };
    let mut out = Vec::new();
    mount::welcome(&mut out, shared.card.group, shared.card.node.0);
    stream.write_all(&out)?;
    stream.flush()?;
    if port != 0 && node != shared.card.node {
        shared.know(SocketAddr::new(from.ip(), port));
    }
    Ok(Some(node))
}

/// Sends those pages that are here, a frame for each run, then says which are not: all in one write, from where they lie.
fn send_pages(
    shared: &Shared,
    stream: &mut Stream,
    request: u64,
    file: FileVersion,
    pages: &[PageRef],
    out: &mut Vec<u8>,
) -> Result<(), ClientError> {
    let run_of = |page: &PageRef| page.index() / RUN_PAGES as u64;
    let mut missing = Vec::new();
    // Each with where its head ends in `out`, and which of its pages are to be sent.
    let mut parts = Vec::new();
    for group in pages.chunk_by(|one, next| run_of(one) == run_of(next) && one.index() < next.index()) {
        let Some(run) = shared.cache.lend(RunKey { file, run: run_of(&group[0]) }) else {
            missing.extend_from_slice(group);
            continue;
        };
        let at = |page: &PageRef| (page.index() % RUN_PAGES as u64) as usize;
        let (here, beyond): (Vec<PageRef>, Vec<PageRef>) =
            group.iter().partition(|page| at(page) < run.hashes().len());
        missing.extend(beyond);
        if here.is_empty() {
            continue;
        }
        let metas: Vec<PageMeta> =
            here.iter().map(|page| PageMeta::new(page.index(), Version(0), run.hashes()[at(page)])).collect();
        encode::page(out, request, &metas);
        let places: Vec<usize> = here.iter().map(at).collect();
        parts.push((out.len(), run, places));
    }
    shared.figures.runs_served.add(parts.len() as u64);
    if !missing.is_empty() {
        shared.figures.runs_missed.add(missing.len().div_ceil(RUN_PAGES) as u64);
        encode::miss(out, request, &missing);
    }
    let mut slices = Vec::new();
    let mut sent = 0;
    for (head_end, run, places) in &parts {
        slices.push(IoSlice::new(&out[sent..*head_end]));
        sent = *head_end;
        for stretch in places.chunk_by(|one, next| one + 1 == *next) {
            let (first, last) = (stretch[0], stretch[stretch.len() - 1]);
            slices.push(IoSlice::new(&run.pages()[first * BASE_PAGE_BYTES..(last + 1) * BASE_PAGE_BYTES]));
        }
    }
    slices.push(IoSlice::new(&out[sent..]));
    let mut rest = &mut slices[..];
    while rest.iter().any(|slice| !slice.is_empty()) {
        match stream.write_vectored(rest) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
            Ok(bytes) => IoSlice::advance_slices(&mut rest, bytes),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(stream.flush()?)
}
