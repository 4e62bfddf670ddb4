//! What TLS costs a stream of large frames on loopback: speed, and processor time of both sides together, plain and with TLS in turns.
//!
//! `cargo run --release -p loam-wire --example tls_cost --features test-credentials [GIB]`

use loam_wire::Stream;
use loam_wire::client::{Target, secure};
use loam_wire::tls::testing::Authority;
use loam_wire::tls::{Credentials, Role};
use rustix::time::{ClockId, clock_gettime};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// As a lender answers a getpage, and as an agent reads.
const FRAME_BYTES: usize = 64 * 4096 + 2048;
const ROOM_BYTES: usize = 384 * 1024;
const TURNS: usize = 5;

fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn turn(credentials: Option<&Arc<Credentials>>, bytes: usize) -> (f64, f64) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let addr = listener.local_addr().expect("bound");
    let server = credentials.cloned();
    let (began, began_s) = (Instant::now(), processor_s());
    let sender = std::thread::spawn(move || {
        let (socket, _) = listener.accept().expect("somebody comes");
        socket.set_nodelay(true).expect("TCP");
        let mut stream = Stream::accepted(socket, server.as_deref()).expect("credentials");
        let mut asked = [0; 1];
        stream.read_exact(&mut asked).expect("the other begins");
        let frame = vec![7; FRAME_BYTES];
        for _ in 0..bytes / FRAME_BYTES {
            stream.write_all(&frame).expect("it reads");
        }
        stream.flush().expect("it reads");
    });
    let socket = TcpStream::connect(addr).expect("it listens");
    socket.set_nodelay(true).expect("TCP");
    let target = Target { addr, name: None, credentials: credentials.cloned() };
    let mut stream = secure(socket, &target, Duration::from_secs(5)).expect("a handshake");
    stream.socket().set_read_timeout(None).expect("a socket");
    stream.write_all(&[1]).expect("it listens");
    let mut room = vec![0; ROOM_BYTES];
    let mut left = bytes / FRAME_BYTES * FRAME_BYTES;
    while left > 0 {
        left -= stream.read(&mut room).expect("it sends");
    }
    sender.join().expect("it ends");
    (began.elapsed().as_secs_f64(), processor_s() - began_s)
}

fn main() {
    let gib: usize = std::env::args().nth(1).map_or(2, |arg| arg.parse().expect("a number of GiB"));
    let ca = Authority::new("here");
    let dir = std::env::temp_dir().join(format!("loam-tls-cost-{}", std::process::id()));
    ca.issue("node", &Role::ALL, -1, 1).write(&dir, &[&ca]);
    let credentials = Arc::new(Credentials::load(&dir).expect("just written"));
    let _ = std::fs::remove_dir_all(&dir);
    let bytes = gib << 30;
    for _ in 0..TURNS {
        for (what, credentials) in [("plain", None), ("TLS", Some(&credentials))] {
            let (wall_s, processor_s) = turn(credentials, bytes);
            let (gb_per_s, ns_per_byte) = (bytes as f64 / wall_s / 1e9, processor_s * 1e9 / bytes as f64);
            println!("{what:>5}: {gb_per_s:.2} GB/s, {ns_per_byte:.3} ns of processor a byte, both sides");
        }
    }
}
