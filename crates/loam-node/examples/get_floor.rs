//! How close a getpage comes to bare TCP on this machine: latency of one 4 KiB page, throughput of 256 KiB
//! requests, each beside a bare socket in the same run.
//!
//!     cargo run --release -p loam-node --example get_floor

use loam_core::ids::Version;
use loam_core::units::Bytes;
use loam_node::{LendConfig, spawn};
use loam_wire::{Decoded, Frame, PageMeta, PageRef, client, decode, encode, page_hash};
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const PAGES: u64 = 32 * 1024;
const BATCH: u64 = 64;
const IN_FLIGHT: u64 = 4;
const STREAM_BYTES: u64 = 256 << 20;
/// Short streams in turn, the best of each: other load on the machine hits them alike.
const STREAMS: usize = 12;
const ROUNDS: usize = 30_000;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Reads without sleeping.
fn spin_read(mut socket: &TcpStream, buffer: &mut [u8]) -> Result<usize> {
    loop {
        match socket.read(buffer) {
            Ok(0) => return Err("closed".into()),
            Ok(bytes) => return Ok(bytes),
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
}

fn spin_read_exact(socket: &TcpStream, buffer: &mut [u8]) -> Result<()> {
    let mut have = 0;
    while have < buffer.len() {
        have += spin_read(socket, &mut buffer[have..])?;
    }
    Ok(())
}

fn next_page(random: &mut u64, pages: u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*random >> 33) % pages
}

fn pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let a = TcpStream::connect(listener.local_addr()?)?;
    let (b, _) = listener.accept()?;
    a.set_nodelay(true)?;
    b.set_nodelay(true)?;
    Ok((a, b))
}

fn percentiles(mut us: Vec<f64>) -> [f64; 3] {
    us.sort_by(f64::total_cmp);
    let at = |share: f64| us[((us.len() - 1) as f64 * share) as usize];
    [at(0.1), at(0.5), at(0.9)]
}

/// `pages`: answers come from that many pages in turn of a random walk; 1 keeps them in the cache.
fn bare_latency(pages: u64) -> Result<Vec<f64>> {
    let (client, server) = pair()?;
    client.set_nonblocking(true)?;
    server.set_nonblocking(true)?;
    let answering = thread::spawn(move || {
        let (mut ask, answers) = ([0; 64], vec![7; pages as usize * PAGE]);
        let mut random = 1;
        while spin_read_exact(&server, &mut ask).is_ok() {
            let at = next_page(&mut random, pages) as usize * PAGE;
            (&server).write_all(&answers[at..at + PAGE]).expect("the answer fits the socket");
        }
    });
    let (ask, mut answer) = ([0; 64], [0; PAGE]);
    let mut us = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        (&client).write_all(&ask)?;
        spin_read_exact(&client, &mut answer)?;
        us.push(start.elapsed().as_secs_f64() * 1e6);
    }
    drop(client);
    answering.join().map_err(|_| "the answering thread failed")?;
    Ok(us)
}

fn loam_latency(socket: &TcpStream, pages: u64) -> Result<Vec<f64>> {
    socket.set_nonblocking(true)?;
    let mut random = 1_u64;
    let (mut out, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    let mut us = Vec::with_capacity(ROUNDS);
    for request in 0..ROUNDS as u64 {
        let index = next_page(&mut random, pages);
        let start = Instant::now();
        out.clear();
        encode::getpage(&mut out, request, &[PageRef::new(index, Version(1))]);
        let mut socket_ref = socket;
        socket_ref.write_all(&out)?;
        let mut have = 0;
        loop {
            have += spin_read(socket, &mut buffer[have..])?;
            if let Decoded::Whole { frame, .. } = decode(&buffer[..have])? {
                let Frame::Page { pages, payload, .. } = frame else {
                    return Err(format!("{frame:?}").into());
                };
                if page_hash(payload) != pages[0].hash() {
                    return Err("wrong hash".into());
                }
                break;
            }
        }
        us.push(start.elapsed().as_secs_f64() * 1e6);
    }
    socket.set_nonblocking(false)?;
    Ok(us)
}

fn bare_stream() -> Result<f64> {
    let (mut client, mut server) = pair()?;
    let sending = thread::spawn(move || {
        let block = vec![7; 256 * 1024];
        for _ in 0..STREAM_BYTES / block.len() as u64 {
            server.write_all(&block).expect("the peer reads");
        }
    });
    let mut buffer = vec![0; 1 << 20];
    let start = Instant::now();
    let mut left = STREAM_BYTES;
    while left > 0 {
        left -= client.read(&mut buffer)? as u64;
    }
    let seconds = start.elapsed().as_secs_f64();
    sending.join().map_err(|_| "the sending thread failed")?;
    Ok(STREAM_BYTES as f64 / seconds / 1e9)
}

fn loam_stream(mut socket: &TcpStream, proved: bool) -> Result<f64> {
    let requests = STREAM_BYTES / (BATCH * PAGE as u64);
    let mut buffer = vec![0; 1 << 20];
    let (mut from, mut to) = (0, 0);
    let (mut asked, mut got_pages) = (0, 0);
    let mut out = Vec::new();
    let start = Instant::now();
    while got_pages < requests * BATCH {
        while asked < requests && asked * BATCH < got_pages + IN_FLIGHT * BATCH {
            let first = asked * BATCH % PAGES;
            let pages: Vec<_> = (first..first + BATCH).map(|i| PageRef::new(i, Version(1))).collect();
            out.clear();
            encode::getpage(&mut out, asked, &pages);
            socket.write_all(&out)?;
            asked += 1;
        }
        if buffer.len() - to < 512 * 1024 {
            buffer.copy_within(from..to, 0);
            (from, to) = (0, to - from);
        }
        to += match socket.read(&mut buffer[to..])? {
            0 => return Err("closed".into()),
            bytes => bytes,
        };
        while let Decoded::Whole { frame, consumed } = decode(&buffer[from..to])? {
            let Frame::Page { pages, payload, .. } = frame else { return Err(format!("{frame:?}").into()) };
            if proved {
                for (page, contents) in pages.iter().zip(payload.chunks(PAGE)) {
                    if page_hash(contents) != page.hash() {
                        return Err("wrong hash".into());
                    }
                }
            }
            got_pages += pages.len() as u64;
            from += consumed;
        }
        if from == to {
            (from, to) = (0, 0);
        }
    }
    Ok(STREAM_BYTES as f64 / start.elapsed().as_secs_f64() / 1e9)
}

fn put_all(client: &mut client::Client) -> Result<f64> {
    let start = Instant::now();
    for first in (0..PAGES).step_by(BATCH as usize) {
        let payload: Vec<u8> = (0..BATCH as usize * PAGE)
            .map(|at| (at as u64 * 31 + first * 7 + (at / PAGE) as u64) as u8)
            .collect();
        let pages: Vec<_> = payload
            .chunks(PAGE)
            .zip(first..)
            .map(|(page, index)| PageMeta::new(index, Version(1), page_hash(page)))
            .collect();
        client.send(&payload, |out| encode::putpage(out, first, &pages))?;
        match client.receive()? {
            Frame::Ack { .. } => {}
            other => return Err(format!("{other:?}").into()),
        }
    }
    Ok((PAGES * PAGE as u64) as f64 / start.elapsed().as_secs_f64() / 1e9)
}

fn main() -> Result<()> {
    let mut config = LendConfig::new(Bytes::from_mib(256));
    config.listen = "127.0.0.1:0".parse()?;
    let lender = spawn(&config)?;
    let mut client = client::Client::connect(lender.addr(), 1, "get_floor", Duration::from_secs(5))?;
    println!("put, 64 pages, one at a time, made and hashed here: {:.2} GB/s", put_all(&mut client)?);
    for _ in 0..std::env::args().nth(1).map_or(Ok(3), |n| n.parse())? {
        for (name, pages) in [("one page", 1), ("random pages", PAGES)] {
            let bare = percentiles(bare_latency(pages)?);
            let loam = percentiles(loam_latency(client.stream(), pages)?);
            let ratios = [loam[0] / bare[0], loam[1] / bare[1]];
            println!(
                "{name}: latency us, p10 p50 p90: bare {bare:.1?}, getpage {loam:.1?}, ratios of p10 p50 {ratios:.2?}"
            );
        }
        let (mut bare, mut plain, mut proved) = (0.0_f64, 0.0_f64, 0.0_f64);
        for _ in 0..STREAMS {
            bare = bare.max(bare_stream()?);
            plain = plain.max(loam_stream(client.stream(), false)?);
            proved = proved.max(loam_stream(client.stream(), true)?);
        }
        println!(
            "throughput GB/s: bare {bare:.2}, getpage {plain:.2} ({:.0}%), and hashed by the client {proved:.2}",
            plain / bare * 100.0
        );
    }
    Ok(())
}
