//! redis-server far beyond its local memory, read and written while BGSAVE's child writes the snapshot; the snapshot is loaded into a
//! plain server and compared key by key with what the moment of the fork says.

use loam_tests::borrow::Borrow;
use loam_tests::place::{self, Scratch};
use loam_tests::plain::LOCAL_MIB_MIN;
use loam_tests::redis::{Answer, Client};
use loam_tests::{procfs, shell};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const KEYS: u64 = 40_000;
/// Which keys the second snapshot holds at which version.
const SECOND: [(std::ops::Range<u64>, u64); 5] = [
    (0..KEYS / 10, 2),
    (KEYS / 10..KEYS / 10 * 5, 1),
    (KEYS / 10 * 5..KEYS / 10 * 6, 1),
    (KEYS / 10 * 6..KEYS / 10 * 9, 1),
    (KEYS / 10 * 9..KEYS, 3),
];
const START_LIMIT: Duration = Duration::from_secs(30);
const SAVE_LIMIT: Duration = Duration::from_secs(240);
const END_LIMIT: Duration = Duration::from_secs(60);

struct Server {
    dir: PathBuf,
    command: Command,
}

impl Server {
    fn new(dir: &Path, dump: &str) -> Self {
        let mut command = Command::new("redis-server");
        command.current_dir(dir).args([
            "--port",
            "0",
            "--unixsocket",
            "redis.sock",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        // The delay (a short sleep at every second key) makes sure that the child is still saving while its parent is written to.
        command.args([
            "--daemonize",
            "no",
            "--dbfilename",
            dump,
            "--rdbcompression",
            "no",
            "--rdb-key-save-delay",
            "-2",
        ]);
        Self { dir: dir.to_owned(), command }
    }

    /// Waits until it answers, which is after it has loaded its file.
    fn client(&self) -> Client {
        let socket = self.dir.join("redis.sock");
        let ready = procfs::wait_until(START_LIMIT, || {
            Client::connect(&socket).and_then(|mut client| client.call(&[b"PING"])).is_ok()
        });
        ready.expect("redis-server answers within its time");
        Client::connect(&socket).expect("it answered just now")
    }
}

/// Begins a snapshot and returns when the child has been forked.
fn begin_save(client: &mut Client) {
    let answer = client.call(&[b"BGSAVE"]).expect("BGSAVE is possible");
    assert!(matches!(answer, Answer::Line(_)), "{answer:?}");
}

fn saving(client: &mut Client) -> bool {
    client.info("persistence", "rdb_bgsave_in_progress").expect("INFO has it") == "1"
}

fn end_save(client: &mut Client) {
    procfs::wait_until(SAVE_LIMIT, || !saving(client)).expect("BGSAVE ends within its time");
    assert_eq!(
        client.info("persistence", "rdb_last_bgsave_status").expect("INFO has it"),
        "ok",
        "the child failed"
    );
}

/// What the client does; ends the server. Leaves `first.rdb` (all keys at version 1) and `second.rdb` ([`SECOND`]).
fn drive(server: &Server) {
    let mut client = server.client();
    client.fill(0..KEYS, 1).expect("filled");

    begin_save(&mut client);
    client.fill(0..KEYS / 10, 2).expect("written beside the child");
    assert!(saving(&mut client), "the child was done before its parent wrote: nothing was tested");
    client.check(KEYS / 10 * 9..KEYS, 1).expect("read beside the child");
    client.check(0..KEYS / 10, 2).expect("rewritten right");
    end_save(&mut client);
    std::fs::rename(server.dir.join("dump.rdb"), server.dir.join("first.rdb"))
        .expect("the child has written it");

    client.fill(KEYS / 10 * 9..KEYS, 3).expect("written");
    begin_save(&mut client);
    client.fill(KEYS / 10 * 5..KEYS / 10 * 6, 4).expect("written beside the second child");
    end_save(&mut client);
    std::fs::rename(server.dir.join("dump.rdb"), server.dir.join("second.rdb"))
        .expect("the child has written it");
    for (keys, version) in SECOND {
        let version = if keys.start == KEYS / 10 * 5 { 4 } else { version };
        client.check(keys, version).expect("the parent holds what was written last");
    }
    // It closes the connection instead of answering.
    let _ = client.call(&[b"SHUTDOWN", b"NOSAVE"]);
}

/// Loads a snapshot into a plain server and compares every key.
fn compare_snapshot(dir: &Path, file: &str, versions: &[(std::ops::Range<u64>, u64)]) {
    let mut server = Server::new(dir, file);
    let started = shell::start(server.command.stdin(Stdio::null()), dir, "loaded");
    let mut client = server.client();
    assert_eq!(client.call(&[b"DBSIZE"]).expect("DBSIZE"), Answer::Number(KEYS as i64), "{file}");
    for (keys, version) in versions {
        client.check(keys.clone(), *version).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
    let _ = client.call(&[b"SHUTDOWN", b"NOSAVE"]);
    assert_eq!(started.finish(END_LIMIT).code(), 0, "plain redis-server");
}

fn compare_snapshots(dir: &Path) {
    compare_snapshot(dir, "first.rdb", &[(0..KEYS, 1)]);
    compare_snapshot(dir, "second.rdb", &SECOND);
}

#[test]
fn redis_with_bgsave() {
    let _alone = place::alone_here();
    let plain = Scratch::new("redis-plain");
    // The plain run: proves the test itself, and says how much memory the server wants.
    let server = Server::new(plain.path(), "dump.rdb");
    let mut wrapped = Command::new(place::program("peak"));
    wrapped.arg(plain.join("peak")).arg(server.command.get_program()).args(server.command.get_args());
    let started = shell::start(wrapped.current_dir(plain.path()).stdin(Stdio::null()), plain.path(), "plain");
    drive(&server);
    let ended = started.finish(END_LIMIT);
    assert_eq!(ended.code(), 0, "plain redis-server: {}", ended.stderr);
    compare_snapshots(plain.path());
    let peak = std::fs::read_to_string(plain.join("peak")).expect("written by peak");
    let peak_kib: u64 = peak.split(' ').next().and_then(|kib| kib.parse().ok()).expect("a number");

    let scratch = Scratch::new("redis");
    let server = Server::new(scratch.path(), "dump.rdb");
    let local_mib = (peak_kib / 1024 / 4).max(LOCAL_MIB_MIN);
    println!("redis: plain {peak_kib} KiB in {:?}, borrowing at {local_mib} MiB", ended.wall);
    let borrow = Borrow::new(scratch.path()).local_mib(local_mib).embedded("2x1G");
    let running = borrow.start(&server.command, None);
    drive(&server);
    let borrowed = running.finish(END_LIMIT);
    println!("redis: borrowing {:?}, largest {} bytes", borrowed.ended.wall, borrowed.samples.peak_bytes);
    borrowed.assert_ended_well("redis");
    borrowed.assert_memory_left("redis");
    compare_snapshots(scratch.path());
    borrowed.samples.assert_below_bar("redis");
}

/// The same with a region for what it allocates in large blocks; the rest, which is most of it, may stay here.
#[test]
fn redis_with_a_region() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("redis-region");
    let server = Server::new(scratch.path(), "dump.rdb");
    let flags = ["--region", "1G", "--min-alloc", "256K"];
    let borrow = Borrow::new(scratch.path()).local_mib(512).embedded("2x1G").flags(&flags);
    let running = borrow.start(&server.command, None);
    drive(&server);
    let borrowed = running.finish(END_LIMIT);
    borrowed.assert_ended_well("redis");
    assert!(borrowed.number("/region/allocations") > 0.0, "{}", borrowed.summary["region"]);
    compare_snapshots(scratch.path());
}
