//! Process trees: many processes at once, processes that end in a way of their own, and such as are not of the tree or lie to its agent.

use loam_tests::borrow::Borrow;
use loam_tests::place::{self, Scratch};
use loam_tests::{procfs, shell};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Each process takes five descriptors of the agent: these take more than the limit that most shells give, and live at the same time.
#[test]
fn more_processes_than_the_limit_of_open_files_has_room_for() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("many");
    let script = "ulimit -n; mkfifo gate; exec 3<>gate; n=0
        while [ $n -lt 300 ]; do (read _ <gate) & n=$((n+1)); done
        while [ $n -gt 0 ]; do echo >&3; n=$((n-1)); done
        wait; echo all";
    let mut program = shell::sh(script);
    program.current_dir(scratch.path());
    let inner = Borrow::new(scratch.path()).command(&program);
    let mut limited = shell::sh("ulimit -Sn 1024; exec \"$@\"");
    limited.arg("sh").arg(inner.get_program()).args(inner.get_args()).current_dir(scratch.path());
    let ended = shell::run(&mut limited, scratch.path(), "loam", LIMIT);
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    assert_eq!(
        String::from_utf8_lossy(&ended.stdout),
        "1024\nall\n",
        "the program has the limit that it would have"
    );
    assert_eq!(ended.stderr, "");
}

/// Where there are no more to be had, a fork waits until other processes have ended, and nobody is ended for it. (Children without a hand take one.)
#[test]
fn forks_that_wait_for_a_descriptor() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("few");
    let mut program = Command::new(place::program("rawforks"));
    program.arg("200").current_dir(scratch.path());
    let inner = Borrow::new(scratch.path()).command(&program);
    let mut limited = shell::sh("ulimit -n 100; exec \"$@\"");
    limited.arg("sh").arg(inner.get_program()).args(inner.get_args()).current_dir(scratch.path());
    let ended = shell::run(&mut limited, scratch.path(), "loam", LIMIT);
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "200 ended well\n");
    let summary = std::fs::read_to_string(scratch.join("summary.json")).expect("a summary");
    assert!(summary.contains("gets no more descriptors"), "it had enough, and nothing was tested: {summary}");
}

/// A child that has ended stays in the tree until somebody waits for it. It is none that runs without Loam.
#[test]
fn a_child_that_nobody_waits_for() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("unwaited");
    let ended = Borrow::new(scratch.path()).run(&shell::sh("(exit 0) & exec sleep 1"), None, LIMIT).ended;
    assert_eq!((ended.code(), ended.stderr.as_str()), (0, ""));
    let summary = std::fs::read_to_string(scratch.join("summary.json")).expect("a summary");
    assert!(summary.contains(r#""processes_without_loam": 0"#), "{summary}");
}

/// A program that takes long to start, as one does that has hundreds of libraries, is not there yet; it is none that runs without Loam. A static one is, and is named.
#[test]
fn who_runs_without_loam_is_named_and_who_only_starts_is_not() {
    let _alone = place::alone_here();
    let run = |path: &Path, before_ms: &str, after_ms: &str| {
        let scratch = Scratch::new("starting");
        let mut script = shell::sh("\"$0\" \"$1\" \"$2\"; exit $?");
        script.arg(path).args([before_ms, after_ms]);
        let run = Borrow::new(scratch.path()).run(&script, None, LIMIT);
        assert_eq!((run.ended.code(), run.ended.stderr.as_str()), (0, ""));
        assert_eq!(String::from_utf8_lossy(&run.ended.stdout), "started\n");
        (run.number("/processes_without_loam"), run.summary["programs_without_loam"].clone())
    };
    let named = |names: &[&str]| serde_json::json!(names);
    let starts = place::program("slowstart");
    assert_eq!(run(&starts, "500", "0"), (0.0, named(&[])));
    // So long that it was counted, and it has come after all.
    assert_eq!(run(&starts, "1500", "200"), (0.0, named(&[])));
    let is_static = place::static_program("slowstart");
    let name =
        is_static.file_name().and_then(OsStr::to_str).expect("a name").chars().take(15).collect::<String>();
    assert_eq!(run(&is_static, "0", "500"), (1.0, named(&[&name])));
}

/// In a sandbox the agent's socket may not be seen, and process ids are others than the agent's; what runs there is served all the same, and what it forks.
#[test]
fn what_runs_in_a_sandbox_is_served() {
    if !place::is_root() {
        println!("passed over: only root may mount");
        return;
    }
    let _alone = place::alone_here();
    // The child and its own child see what stood at each place. They are made past libc and by it, and all three are the first of a pid namespace of their own where there is one.
    let python = r#"
import ctypes, os
memory = bytearray(96 << 20)
for at in range(0, len(memory), 4096): memory[at] = 1 + at // 4096 % 251
def check(): return all(memory[at] == 1 + at // 4096 % 251 for at in range(0, len(memory), 4096))
def status(child): return os.waitpid(child, 0)[1]
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWPID, SIGCHLD = 0x20000000, 17
child = libc.syscall(56, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0)
if child == 0:
    grandchild = os.fork()
    if grandchild == 0: os._exit(not check())
    os._exit(2 * (status(grandchild) != 0) + (not check()))
raw = status(child)
child = os.fork()
if child == 0: os._exit(not check())
print(raw, status(child), check(), os.path.exists(os.environ["LOAM_SOCKET"]), os.getpid())"#;
    let hides = r#"mount -t tmpfs none "${LOAM_SOCKET%/*}""#;
    let chroots = r#"mkdir root && mount --rbind / root && mount -t tmpfs none "root${LOAM_SOCKET%/*}"
        exec chroot root sh -c 'python3 -c "$0"; exit $?' "$0""#;
    for (sandbox, script, sees) in [
        ("-mpf --mount-proc", format!(r#"{hides}; exec python3 -c "$0""#), "False 1"),
        ("-m", format!(r#"{hides}; python3 -c "$0"; exit $?"#), "False"),
        ("-m", chroots.into(), "False"),
        ("-mnpf --mount-proc", r#"python3 -c "$0"; exit $?"#.into(), "True"),
    ] {
        let scratch = Scratch::new("sandbox");
        let mut program = Command::new("unshare");
        program.args(sandbox.split(' ')).args(["sh", "-c", &script, python]).current_dir(scratch.path());
        let run = Borrow::new(scratch.path()).local_mib(48).run(&program, None, LIMIT);
        assert_eq!((run.ended.code(), run.ended.stderr.as_str()), (0, ""), "{sandbox} {script}");
        let said = String::from_utf8_lossy(&run.ended.stdout);
        assert!(said.starts_with(&format!("0 0 True {sees}")), "{sandbox} {script}: {said}");
        // The child that was made past libc.
        assert!(run.number("/processes_without_loam") <= 1.0, "{sandbox} {script}: {}", run.summary);
        let adopted = run.number("/adopted_bytes");
        assert!(adopted > f64::from(80 << 20), "{sandbox} {script}: it borrowed: {}", run.summary);
    }
}

/// What takes a process of one thread (Charliecloud and Apptainer begin so where they are not root) a program can do with its memory elsewhere, and goes on borrowing; what it forks and starts then does, too.
#[test]
fn who_leaves_its_user_namespace_goes_on_borrowing() {
    let _alone = place::alone_here();
    let python = r#"
import ctypes, os, sys
memory = bytearray(96 << 20)
def fill(seed):
    for at in range(0, len(memory), 4096): memory[at] = 1 + (seed + at // 4096) % 251
def check(seed): return all(memory[at] == 1 + (seed + at // 4096) % 251 for at in range(0, len(memory), 4096))
fill(0)
libc = ctypes.CDLL(None, use_errno=True)
left = libc.unshare(int(sys.argv[1], 0))
right = check(0)
fill(7)
child = os.fork()
if child == 0: os._exit(not check(7))
print(left, right, os.waitpid(child, 0)[1], check(7), len(os.listdir("/proc/self/task")))"#;
    const NEWUSER: u32 = 0x1000_0000;
    const NEWNS: u32 = 0x2_0000;
    const NEWPID: u32 = 0x2000_0000;
    for (flags, hears_of_forks) in
        [(NEWUSER | NEWNS, true), (NEWUSER | NEWPID, true), (NEWUSER | NEWPID, false)]
    {
        if !hears_of_forks && !place::is_root() {
            continue; // it takes root to give a capability up, and to have it
        }
        let scratch = Scratch::new("namespaces");
        let mut program = Command::new("python3");
        program.args(["-c", python, &flags.to_string()]);
        let borrow = Borrow::new(scratch.path()).local_mib(48);
        let borrow = if hears_of_forks { borrow } else { borrow.without_fork_events() };
        let run = borrow.run(&program, None, LIMIT);
        let what = format!("{flags:#x} {hears_of_forks}");
        assert_eq!((run.ended.code(), run.ended.stderr.as_str()), (0, ""), "{what}");
        assert_eq!(String::from_utf8_lossy(&run.ended.stdout), "0 True 0 True 2\n", "{what}");
        assert!(run.number("/evictions/moved") > 10_000.0, "{what}: {}", run.summary);
    }
    // The usual way there: a program that leaves all of them, and starts another.
    let scratch = Scratch::new("namespaces");
    let mut program = Command::new("unshare");
    program.args(["-Urmpf", "--mount-proc", "python3", "-c", python, &NEWUSER.to_string()]);
    let run = Borrow::new(scratch.path()).local_mib(48).run(&program, None, LIMIT);
    assert_eq!((run.ended.code(), run.ended.stderr.as_str()), (0, ""));
    assert_eq!(String::from_utf8_lossy(&run.ended.stdout), "0 True 0 True 2\n");
    assert!(run.number("/adopted_bytes") > f64::from(80 << 20), "it borrowed: {}", run.summary);
    assert_eq!(run.number("/processes_without_loam"), 0.0, "{}", run.summary);
}

/// Where the network is another one, too, nobody can come to the agent. Who starts there runs without Loam, and is named. A forked child may need what its parent has elsewhere: it is ended with a line.
#[test]
fn what_runs_where_the_agent_cannot_be_reached() {
    if !place::is_root() {
        println!("passed over: only root may mount");
        return;
    }
    let _alone = place::alone_here();
    let run = |last: &str| {
        let scratch = Scratch::new("unreachable");
        let mut program = Command::new("unshare");
        let script = format!(r#"mount -t tmpfs none "${{LOAM_SOCKET%/*}}"; {last}"#);
        program.args(["-m", "unshare", "-n", "sh", "-c", &script]);
        // `mount` is a child of that shell's, and must still see the folder.
        Borrow::new(scratch.path()).run(&program, None, LIMIT)
    };
    let starts = run("exec sleep 2.5");
    assert_eq!((starts.ended.code(), starts.ended.stderr.as_str()), (0, ""));
    assert_eq!(starts.summary["programs_without_loam"], serde_json::json!(["sleep"]), "{}", starts.summary);
    let forks = run("(exit 0); exit $?");
    assert_eq!(forks.ended.code(), 125, "{}", forks.ended.stderr);
    assert!(
        forks.ended.stderr.contains("cannot reach the agent (loam run): a sandbox must show"),
        "{}",
        forks.ended.stderr
    );
}

/// Valgrind ends what makes a process as the shim does. It preloads a library of its own, by whose name it is known; what it runs is not served, and said to be so. What that starts is served again.
#[test]
fn what_valgrind_runs_is_left_alone() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("valgrind");
    // The dynamic linker says that there is no such library, and goes on.
    let script = r#"own=$LD_PRELOAD
LD_PRELOAD="$own:/nowhere/vgpreload_core-amd64-linux.so" OWN=$own python3 -c '
import os, subprocess, time
time.sleep(1.5)
maps = open("/proc/self/maps").read()
print("here" in subprocess.run(["python3", "-c", "import ctypes; print(\"here\" if ctypes.CDLL(None).loam_is_served() else \"not\")"],
    env=dict(os.environ, LD_PRELOAD=os.environ["OWN"]), stdout=subprocess.PIPE, text=True).stdout, "loam" in maps)
import ctypes
print(ctypes.CDLL(None).loam_is_served())'"#;
    let run = Borrow::new(scratch.path()).run(&shell::sh(script), None, LIMIT);
    assert_eq!(run.ended.code(), 0, "{}", run.ended.stderr);
    assert_eq!(String::from_utf8_lossy(&run.ended.stdout), "True True\n0\n", "{}", run.ended.stderr);
    // (Its child is seen, too, if it joins late.)
    assert!(run.number("/processes_without_loam") >= 1.0, "{}", run.summary);
}

/// The first process has ended, and the one that is left executes another program: for a moment nobody is there.
#[test]
fn a_program_that_is_left_in_the_background() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("background");
    let python = r#"x = bytearray(80 << 20)
for at in range(0, len(x), 4096): x[at] = 1 + at // 4096 % 251
print(sum(x[::4096]), flush=True)"#;
    // Forked and executed, and at once by way of vfork.
    for script in [r#"sh -c 'sleep 0.1; exec python3 -c "$0"' "$0" &"#, r#"python3 -c "$0" &"#] {
        let mut program = Command::new("sh");
        program.args(["-c", script, python]).current_dir(scratch.path());
        let run = Borrow::new(scratch.path()).run(&program, None, LIMIT);
        assert_eq!((run.ended.code(), run.ended.stderr.as_str()), (0, ""));
        let sum: usize = (0..80 << 8).map(|page| 1 + page % 251).sum();
        assert_eq!(
            String::from_utf8_lossy(&run.ended.stdout),
            format!("{sum}\n"),
            "the run lasted until the last one"
        );
        assert!(run.number("/adopted_bytes") > f64::from(64 << 20), "it borrowed: {}", run.summary);
        assert_eq!(run.number("/processes_without_loam"), 0.0);
    }
}

/// What several processes have is counted once: shared memory, what a child has of its parent's, what a child has that was made by `vfork`. All of it fits here, and none of it leaves. (Counted for each it
/// would be 784 MiB, and 224 with the `vfork`.)
#[test]
fn what_several_processes_have_counts_once() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("together");
    let (shared, children, own) = (64, 6, 48);
    let mut program = Command::new(place::program("together"));
    program.args([shared, children, own].map(|number| number.to_string()));
    let run = Borrow::new(scratch.path()).local_mib(200).embedded("1x1G").run(&program, None, LIMIT);
    let sum = |mib: u64| (0..mib << 8).map(|page| 1 + page % 251).sum::<u64>();
    let right = children * (sum(shared) + sum(own)) + sum(own);
    assert_eq!((run.ended.code(), run.ended.stderr.as_str()), (0, ""));
    assert_eq!(String::from_utf8_lossy(&run.ended.stdout), format!("{right}\n"));
    // What a child and its parent share, and nobody has adopted, is found out a little later.
    assert!(run.number("/evictions/moved") < f64::from(16 << 8), "it fits: {}", run.summary);
    assert!(run.number("/shared_local_bytes") < f64::from(100 << 20), "{}", run.summary);
    assert_eq!(run.number("/processes_without_loam"), 0.0);
}

/// Four processes that begin at once, and read all of one another's memory by `process_vm_readv`: what is read is pinned, up to 4 MiB at a time, and cannot leave for a moment. (Where pinned pages were put aside
/// for as long as shared ones, and where the four were looked at one after the other before any of their memory was adopted, they had 94 to 105 MiB here.)
#[test]
fn processes_that_read_one_another_keep_to_the_limit() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("messages");
    let (processes, mib, rounds): (usize, u64, u32) = (4, 24, 3);
    let mut program = Command::new(place::program("messages"));
    program.args([processes as u64, mib, u64::from(rounds)].map(|number| number.to_string()));
    let run = Borrow::new(scratch.path()).local_mib(64).embedded("2x512M").run(&program, None, LIMIT);
    let mut sums = vec![0_u64; processes];
    for page in 0..mib << 8 {
        let mut words: Vec<u64> = (0..processes as u64).map(|me| me * 1_000_003 + page * 31).collect();
        for _ in 0..rounds {
            words = (0..processes).map(|me| 3 * words[me] + words[(me + 1) % processes]).collect();
        }
        sums.iter_mut().zip(words).for_each(|(sum, word)| *sum += word);
    }
    run.assert_right(&sums.iter().map(|sum| format!("{sum}\n")).collect::<String>(), "messages");
    let peak = run.number("/local_peak_bytes");
    assert!(peak < f64::from(88 << 20), "{peak}: {}", run.summary);
}

/// The kernel would fill these at once, before anybody can adopt a page of them.
#[test]
fn memory_that_is_to_be_filled_at_once() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("filled");
    let python = "import mmap
for flags in 0x8022, 0x22:
    m = mmap.mmap(-1, 120 << 20, flags=flags)
    if flags == 0x22: m.madvise(23)
    print(sum(m[::4096]), len(m))
    m[::4096] = bytes(i % 251 for i in range(120 << 8))
    print(sum(m[::4096]))";
    let mut program = Command::new("python3");
    program.args(["-c", python]);
    let run = Borrow::new(scratch.path()).local_mib(64).embedded("1x1G").run(&program, None, LIMIT);
    let sum: usize = (0..120 << 8).map(|page| page % 251).sum();
    run.assert_right(&format!("0 {bytes}\n{sum}\n", bytes = 120 << 20).repeat(2), "filled");
    let peak = run.number("/local_peak_bytes");
    assert!(peak < f64::from((64 << 20) * 21 / 20 + (32 << 20)), "{peak}: {}", run.summary);
}

/// Its parent's hand has ended, and its memory has not: it is the child's as well until that executes another program. In some rounds the hand is in the middle of an eviction: pages that it had
/// moved and not copied yet were zeros, or what had been copied before. (The build before that was mended fails two of three runs.)
#[test]
fn vforked_children_that_outlive_their_parents() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("vforked");
    let mut program = Command::new(place::program("vforkleft"));
    program.args(["4", "20"]);
    let borrow = Borrow::new(scratch.path()).embedded("1x256M").not_durable();
    let run = borrow.run(&program, None, LIMIT);
    assert_eq!((run.ended.code(), run.ended.stderr.as_str()), (0, ""));
    assert_eq!(String::from_utf8_lossy(&run.ended.stdout), "20 of 20 right\n");
    assert!(
        run.number("/faults/remote") + run.number("/faults/prefetched_hit") > 500.0,
        "it was all here: {}",
        run.summary
    );
}

/// Of each of these processes pages are taken while it leaves all of its memory, its hand first. What had been begun there was never over, and when that had happened three times no page left
/// any more, and everybody waited.
#[test]
fn processes_that_execute_another_program_while_their_threads_take_memory() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("execs");
    let mut program = Command::new(place::program("execs"));
    program.args(["64", "120"]).current_dir(scratch.path());
    let borrow = Borrow::new(scratch.path()).local_mib(40).embedded("2x1G");
    borrow.run(&program, None, 2 * LIMIT).assert_right("120 ended, 0 wrong\n", "execs");
}

/// A job that somebody has put aside (Ctrl-Z in a shell) has most of `--local`: others do not wait until it goes on, and it finds all that it had.
#[test]
fn a_process_that_is_stopped_holds_nobody_up() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("stopped");
    let script = "import hashlib, os, random, signal
def fill(seed, mib):
    r = random.Random(seed)
    return [r.randbytes(1 << 20) for _ in range(mib)]
def digest(pieces):
    h = hashlib.md5()
    for piece in pieces: h.update(piece)
    return h.hexdigest()
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    pieces = fill(1, 80)
    before = digest(pieces)
    os.kill(os.getpid(), signal.SIGSTOP)
    print('stopped', digest(pieces) == before, flush=True)
    os._exit(0)
os.waitpid(child, os.WUNTRACED)
pieces = fill(2, 80)
before = digest(pieces)
print('other', digest(pieces) == before, flush=True)
os.kill(child, signal.SIGCONT)
print(os.waitpid(child, 0)[1])";
    let mut program = Command::new("python3");
    program.args(["-c", script]).current_dir(scratch.path());
    let run = Borrow::new(scratch.path()).local_mib(48).run(&program, None, LIMIT);
    assert_eq!(run.ended.code(), 0, "{}", run.ended.stderr);
    assert_eq!(String::from_utf8_lossy(&run.ended.stdout), "other True\nstopped True\n0\n");
}

#[test]
fn a_process_whose_only_thread_ends_by_itself() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("thread");
    let program = Command::new(place::program("lastthread"));
    let ended = Borrow::new(scratch.path()).run(&program, None, LIMIT).ended;
    assert_eq!(ended.code(), 7, "as it ends without Loam: {}", ended.stderr);
    let mut program = Command::new(place::program("lastthread"));
    program.arg("child");
    let ended = Borrow::new(scratch.path()).run(&program, None, LIMIT).ended;
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "child 9\n");
}

/// A job that was handed to a scheduler from inside a run: it has the run's environment, and nothing else of it.
#[test]
fn a_program_from_outside_runs_by_itself() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("outside");
    let script = "echo \"$LOAM_SOCKET\"; echo \"$LD_PRELOAD\"; echo ready; exec sleep 600";
    let mut run = Borrow::new(scratch.path()).start(&shell::sh(script), None);
    run.run.wait_for_line("ready", LIMIT);
    let told = run.run.stdout_so_far();
    let [socket, shim, ..] = told.lines().collect::<Vec<_>>()[..] else { panic!("{told}") };
    // More than are heard at a time, and one that says nothing.
    let silent: Vec<_> = (0..20)
        .map(|_| {
            let address = rustix::net::SocketAddrUnix::new(socket).expect("a path");
            let fd = rustix::net::socket(
                rustix::net::AddressFamily::UNIX,
                rustix::net::SocketType::SEQPACKET,
                None,
            );
            let fd = fd.expect("a socket");
            rustix::net::connect(&fd, &address).expect("anybody may");
            fd
        })
        .collect();
    let mut outside = Command::new("sh");
    outside.args(["-c", "echo \"$(echo by itself)\""]).env("LOAM_SOCKET", socket).env("LD_PRELOAD", shim);
    let ended = shell::run(&mut outside, scratch.path(), "outside", LIMIT);
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "by itself\n");
    drop(silent);
    assert!(run.run.runs(), "{}", run.run.stderr_so_far());
    assert_eq!(
        run.status()["processes"],
        2,
        "the shell, and what it has become: those from outside are not served"
    );
    procfs::kill_tree(run.run.pid());
}

/// A shim that names a window or a probe page that cannot be: its process is not served, and the run goes on.
#[test]
fn a_shim_that_lies_ends_nobody_else() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("lies");
    let script = r#"
import ctypes, os, socket, struct
hello = struct.Struct("=IIQQQIIQQ")
libc = ctypes.CDLL(None, use_errno=True)
# Who comes with another version is told ours, whatever it says besides.
agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
agent.connect(os.environ["LOAM_SOCKET"])
agent.send(struct.pack("=III", 1, 3, 7))
version, _, _, status = struct.unpack("=IIQI", agent.recv(4096)[:20])
print(status, agent.recv(4096), flush=True)
# Nobody knows of a child that is made past libc: it has no hand that could step aside.
child = libc.syscall(57)
if child == 0:
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    agent.connect(os.environ["LOAM_SOCKET"])
    agent.send(hello.pack(version, 3, 0, 0, 0, 0, os.getpid(), 0, 0))
    agent.send(struct.pack("=IIQQQ", 19, 0, 5, 0, 0))
    os.write(1, b"%d %d\n" % struct.unpack("=II", agent.recv(64)))
    os._exit(0)
os.waitpid(child, 0)
for window, probe in [(0, 0x20000), (4097, 0x20000), (4096, 1)]:
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    agent.connect(os.environ["LOAM_SOCKET"])
    agent.send(hello.pack(version, 1, 0, 0, 0, 0, os.getpid(), 0, 0))
    agent.recvmsg(4096, socket.CMSG_LEN(64))
    fd = libc.syscall(323, 0o2004000)
    socket.send_fds(agent, [hello.pack(version, 1, 0x10000, window, probe, 0, os.getpid(), 0, 0)], [fd])
    print(struct.unpack("=II", agent.recv(64)))
for errno in [0, 5000, 0xffffffff]:
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    agent.connect(os.environ["LOAM_SOCKET"])
    agent.send(hello.pack(version, 1, 0, 0, 0, 0, os.getpid(), 0, 0))
    agent.recvmsg(4096, socket.CMSG_LEN(64))
    agent.send(hello.pack(version, 1, 0x10000, 4096, 0x20000, errno, os.getpid(), 0, 0))
    print(struct.unpack("=II", agent.recv(64)))
"#;
    let mut python = Command::new("python3");
    python.args(["-c", script]);
    let ended = Borrow::new(scratch.path()).run(&python, None, LIMIT).ended;
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    let said = format!("0 b''\n3 0\n{}", "(2, 0)\n".repeat(6));
    assert_eq!(String::from_utf8_lossy(&ended.stdout), said, "told to end: {}", ended.stderr);
}

/// Nobody reads what the agent says: it goes on serving faults all the same.
#[test]
fn a_log_that_nobody_reads() {
    let _alone = place::alone_here();
    let scratch = Scratch::new("unread");
    let program = loam_tests::workloads::memwalk(96, 2, "blocks");
    let mut command = Borrow::new(scratch.path()).local_mib(32).command(&program);
    command.env("LOAM_LOG", "trace").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut run = command.spawn().expect("it starts");
    let stderr = run.stderr.take();
    let ended = procfs::wait_until(LIMIT, || run.try_wait().expect("our child").is_some());
    if ended.is_err() {
        procfs::kill_tree(run.id());
    }
    drop(stderr);
    assert_eq!(run.wait().expect("our child").code(), Some(0), "it waits for a reader of its log");
}
