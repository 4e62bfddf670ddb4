//! Real programs, started from a small agent in a process of its own: signals concern whole processes, and the test
//! runner is not to get them.

use super::program::{find, shebang};
use super::signals::Received;
use super::*;
use crate::procfs::is_descendant;
use crate::uffd::FORKING;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is removed again.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir =
            Self(std::env::temp_dir().join(format!("loam-launch-test-{}-{number}", std::process::id())));
        std::fs::create_dir(&dir.0).unwrap();
        dir
    }

    fn file(&self, name: &str, contents: &[u8], mode: u32) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, contents).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn check(path: impl AsRef<OsStr>) -> Result<PathBuf, LaunchError> {
    let result = check_program(path.as_ref());
    if let Err(error) = &result {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    result
}

/// A 64-bit ELF file with the given program header kinds; `change` may spoil it.
fn elf(kinds: &[u32], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut file = vec![0; 64 + 56 * kinds.len()];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[16] = 3;
    file[18] = 62;
    file[32] = 64;
    file[54] = 56;
    file[56] = kinds.len() as u8;
    for (index, kind) in kinds.iter().enumerate() {
        file[64 + 56 * index..][..4].copy_from_slice(&kind.to_le_bytes());
    }
    change(&mut file);
    file
}

#[test]
fn programs_are_found_as_the_shell_finds_them() {
    let dir = Dir::new();
    dir.file("tool", b"#!/bin/sh\n", 0o755);
    let hidden = Dir::new();
    hidden.file("tool", b"#!/bin/sh\n", 0o644);
    let path = OsString::from(format!("/nonexistent:{}:{}", hidden.0.display(), dir.0.display()));
    assert_eq!(find(OsStr::new("tool"), Some(&path)).unwrap(), dir.0.join("tool"));
    let error = find(OsStr::new("tool"), Some(hidden.0.as_os_str())).unwrap_err();
    assert!(matches!(error, LaunchError::NotExecutable { .. }), "{error}");
    assert_eq!(find(OsStr::new("sh"), None).unwrap(), Path::new("/bin/sh"));
    for name in ["", "no-such-tool", "/no/such/tool", "/bin/sh/tool"] {
        let error = find(OsStr::new(name), Some(&path)).unwrap_err();
        assert!(matches!(error, LaunchError::NotFound { .. }), "{error}");
    }
    let error = check(&dir.0).unwrap_err();
    assert!(matches!(error, LaunchError::NotExecutable { .. }), "a directory: {error}");
}

#[test]
fn what_the_shim_cannot_enter_is_refused_with_the_reason() {
    let dir = Dir::new();
    let refused = |name, contents: Vec<u8>| check(dir.file(name, &contents, 0o755)).unwrap_err();
    assert!(check(dir.file("dynamic", &elf(&[1, 3], |_| ()), 0o755)).is_ok());
    let error = refused("static", elf(&[1, 2], |_| ()));
    assert!(matches!(error, LaunchError::Static { .. }));
    assert_eq!(
        error.to_string(),
        format!(
            "{} is statically linked: Loam enters a program through the dynamic loader (LD_PRELOAD) and cannot help \
             it; use a dynamically linked build",
            dir.0.join("static").display()
        )
    );
    assert!(refused("small", elf(&[3], |file| file[4] = 1)).to_string().contains("32-bit"));
    assert!(matches!(refused("arm", elf(&[3], |file| file[18] = 183)), LaunchError::OtherMachine { .. }));
    for (name, contents) in [
        ("cut", elf(&[1, 3], |file| file.truncate(40))),
        ("cut-table", elf(&[1, 3], |file| file.truncate(64 + 57))),
        ("no-table", elf(&[], |_| ())),
        ("far-table", elf(&[1, 3], |file| file[32..40].fill(0xFF))),
        ("wide-entries", elf(&[1, 3], |file| file[54] = 57)),
        ("class", elf(&[1, 3], |file| file[4] = 9)),
    ] {
        assert!(matches!(refused(name, contents), LaunchError::Damaged { .. }), "{name}");
    }
}

#[test]
fn a_real_static_program_is_told_from_a_dynamic_one() {
    let dir = Dir::new();
    let source = dir.file("main.c", b"int main(void) { return 0; }\n", 0o644);
    for (kind, is_static) in [("-static", true), ("-static-pie", true), ("-pie", false), ("-no-pie", false)] {
        let output = dir.0.join(kind);
        let built =
            Command::new("cc").arg(kind).arg(&source).arg("-o").arg(&output).stderr(Stdio::null()).status();
        if !built.is_ok_and(|status| status.success()) {
            println!("skipped: no C compiler that can {kind}");
            continue;
        }
        match check(&output) {
            Err(LaunchError::Static { .. }) => assert!(is_static, "{kind}"),
            other => assert!(other.is_ok() && !is_static, "{kind}: {other:?}"),
        }
    }
}

#[test]
fn scripts_are_judged_by_their_interpreter() {
    let dir = Dir::new();
    let script = |name: &str, interpreter: &Path| {
        dir.file(name, format!("#! {} -x\necho\n", interpreter.display()).as_bytes(), 0o755)
    };
    let good = script("good", Path::new("/bin/sh"));
    assert_eq!(check(&good).unwrap(), good, "the script is what is started");
    let bare = dir.file("bare", b"echo no first line\n", 0o755);
    assert_eq!(check(&bare).unwrap(), bare);
    let fixed = dir.file("fixed", &elf(&[1], |_| ()), 0o755);
    assert!(
        matches!(check(script("over-static", &fixed)), Err(LaunchError::Static { path }) if path == fixed)
    );
    let error = check(script("lost", Path::new("/no/such/interpreter"))).unwrap_err();
    assert!(matches!(&error, LaunchError::NoInterpreter { .. }), "{error}");
    let mut last = good;
    for depth in 0..3 {
        last = script(&format!("deep{depth}"), &last);
    }
    assert!(check(&last).is_ok(), "four interpreters");
    assert!(matches!(check(script("too-deep", &last)), Err(LaunchError::TooManyInterpreters { .. })));
    let own = dir.0.join("own");
    assert!(matches!(check(script("own", &own)), Err(LaunchError::TooManyInterpreters { .. })));

    assert_eq!(shebang(b"/bin/sh\nrest"), Some("/bin/sh".into()));
    assert_eq!(shebang(b" \t/usr/bin/env python3\n"), Some("/usr/bin/env".into()));
    assert_eq!(shebang(b"  \n/bin/sh"), None);
}

#[test]
fn programs_that_change_rights_are_refused() {
    let dir = Dir::new();
    let chown = |path: &Path, uid, gid| std::os::unix::fs::chown(path, uid, gid).is_ok();
    let set_mode =
        |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let program = dir.file("program", &elf(&[3], |_| ()), 0o755);
    set_mode(&program, 0o6755);
    assert!(check(&program).is_ok(), "our own ids change nothing");
    let flags = rustix::fs::statvfs(&program).unwrap().f_flag;
    let ignored =
        flags.contains(rustix::fs::StatVfsMountFlags::NOSUID) || rustix::thread::no_new_privs().unwrap();
    if !chown(&program, Some(12345), None) || ignored {
        println!("skipped: only root can give files away, and set-user-id must count here");
        return;
    }
    set_mode(&program, 0o4755);
    assert!(matches!(check(&program), Err(LaunchError::Privileged { what: "set-user-id", .. })));
    let script = dir.file("script", format!("#!{}\n", program.display()).as_bytes(), 0o755);
    assert!(matches!(check(&script), Err(LaunchError::Privileged { path, .. }) if path == program));
    assert!(chown(&program, Some(0), Some(12345)));
    set_mode(&program, 0o2755);
    assert!(matches!(check(&program), Err(LaunchError::Privileged { what: "set-group-id", .. })));
    set_mode(&program, 0o2745);
    assert!(check(&program).is_ok(), "without the group's x bit it is no set-group-id");
}

#[test]
fn the_shim_comes_before_what_the_user_preloads() {
    for bad in ["/a b/shim.so", "/a:b/shim.so"] {
        assert!(matches!(preload_list(Path::new(bad)), Err(LaunchError::PreloadPath { .. })), "{bad}");
    }
    let mine = preload_list(Path::new("/opt/shim.so")).unwrap();
    assert!(mine.as_bytes().starts_with(b"/opt/shim.so"));
}

#[test]
fn who_gets_which_signal() {
    let pid = Pid::from_raw(1234);
    let received = |signal, by_process| Received { signal, by_process, sender: pid.filter(|_| by_process) };
    assert_eq!(received(libc::SIGCHLD, false).action(|_| false), Action::Reap);
    assert_eq!(received(libc::SIGTERM, true).action(|_| false), Action::Forward(libc::SIGTERM));
    assert_eq!(received(libc::SIGTERM, true).action(|sender| Some(sender) == pid), Action::Nothing);
    assert_eq!(received(libc::SIGINT, false).action(|_| false), Action::Nothing);
    assert_eq!(received(libc::SIGWINCH, false).action(|_| false), Action::Nothing);
}

/// The small agent: runs `$LOAM_TEST_SCRIPT` and its orphans to their end, with an exit status as `loam run`'s.
#[test]
#[ignore = "the other tests run it, in a process of its own"]
fn small_agent() {
    let script = std::env::var_os("LOAM_TEST_SCRIPT").expect("run by the other tests only");
    let own = rustix::process::getpid();
    // What the program must find: one signal that is blocked already, children that are ignored. The test runner's
    // own thread has all signals blocked (see `start`), so none of them ends up there.
    // SAFETY: a set on our stack, emptied before its use; no handler is installed.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGALRM);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
    become_subreaper().unwrap();
    let signals = Signals::block().unwrap();
    let (name, library) = (OsStr::new("sh"), std::env::var_os("LOAM_TEST_PRELOAD").unwrap());
    let path = check_program(name).unwrap();
    let variables = [(OsStr::new("LOAM_TEST_VARIABLE"), OsStr::new("given"))];
    let environment = Environment { preload: Path::new(&library), variables: &variables };
    let program = spawn(&path, name, &["-c".into(), script], environment, &signals).unwrap();
    let (mut status, mut ended, mut children_left) = (None, 0, true);
    while children_left {
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(signals.fd(), rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, None).unwrap();
        while let Some(received) = signals.read().unwrap() {
            match received.action(|sender| is_descendant(sender, own)) {
                Action::Forward(signal) => forward(program, signal),
                Action::Nothing => {}
                Action::Reap => {
                    children_left = reap(|pid, change| match change {
                        Change::Stopped { signal } if pid == program => assert!(stop_with(program, signal)),
                        Change::Stopped { .. } => {}
                        Change::Exited { code } if pid == program => {
                            (status, ended) = (Some(code), ended + 1)
                        }
                        Change::Killed { signal } if pid == program => {
                            (status, ended) = (Some(128 + signal), ended + 1)
                        }
                        Change::Exited { .. } | Change::Killed { .. } => ended += 1,
                    });
                }
            }
        }
    }
    println!("ended={ended}");
    std::process::exit(status.expect("the program never ended"));
}

/// A library that may be preloaded without harm: the one that everybody has loaded anyway.
fn harmless_library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.contains("/libc.so")).expect("a dynamically linked libc");
    line[line.find('/').unwrap()..].into()
}

fn start(script: &str) -> (Child, BufReader<ChildStdout>) {
    let _alone = FORKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut command = Command::new(std::env::current_exe().unwrap());
    // SAFETY: between fork and exec: system calls on a set of its own stack, filled before its use.
    unsafe {
        command.pre_exec(|| {
            let mut all = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
            Ok(())
        });
    }
    let mut agent = command
        .args(["--ignored", "--exact", "launch::tests::small_agent", "--test-threads=1", "--nocapture", "-q"])
        .env("LOAM_TEST_SCRIPT", script)
        .env("LOAM_TEST_PRELOAD", harmless_library())
        // A group of its own, whose parent is outside: otherwise stop signals from a terminal do nothing.
        .process_group(0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(agent.stdout.take().unwrap());
    (agent, output)
}

/// The agent's exit status and what it and the program printed from here on.
fn finish((mut agent, mut output): (Child, BufReader<ChildStdout>)) -> (Option<i32>, String) {
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    (agent.wait().unwrap().code(), text)
}

fn wait_for(output: &mut BufReader<ChildStdout>, wanted: &str) {
    let mut line = String::new();
    while !line.contains(wanted) {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "it ended before {wanted:?}");
    }
}

#[test]
fn status_and_environment_pass_through() {
    let (status, text) = finish(start("echo \"$LOAM_TEST_VARIABLE $LD_PRELOAD\"; exit 7"));
    assert_eq!(status, Some(7));
    assert!(text.contains(&format!("given {}\n", harmless_library().display())), "{text}");
    assert_eq!(finish(start("kill -SEGV $$")).0, Some(128 + libc::SIGSEGV));
}

#[test]
fn the_program_finds_the_signals_that_we_found() {
    let (_, text) = finish(start("while read -r line; do echo \"$line\"; done < /proc/$$/status"));
    let bits = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_else(|| panic!("{text}"));
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    assert_eq!(bits("SigBlk:"), 1 << (libc::SIGALRM - 1));
    assert_eq!(bits("SigIgn:") & (1 << (libc::SIGPIPE - 1)), 0);
}

#[test]
fn orphans_are_waited_for() {
    let (status, text) = finish(start("(sleep 0.1 & sleep 0.2 &); exit 3"));
    assert_eq!(status, Some(3));
    // The subshell was the program's own child, the two sleepers became ours.
    assert!(text.contains("ended=3"), "{text}");
}

#[test]
fn kill_is_passed_on_and_not_what_the_program_itself_sends() {
    let mut running =
        start("trap 'exit 42' TERM; trap 'echo again' USR1; echo ready; while :; do sleep 0.01; done");
    wait_for(&mut running.1, "ready");
    let agent = Pid::from_child(&running.0);
    rustix::process::kill_process(agent, rustix::process::Signal::USR1).unwrap();
    wait_for(&mut running.1, "again");
    rustix::process::kill_process(agent, rustix::process::Signal::TERM).unwrap();
    assert_eq!(finish(running).0, Some(42));

    // A trap that signals its whole group would go on for ever if its signal came back.
    let script =
        "n=0; trap 'n=$((n+1)); [ $n -lt 5 ] && kill -USR1 0' USR1; kill -USR1 $$; sleep 0.3; exit $n";
    let (status, _) = finish(start(script));
    // Its own `kill 0` reaches it, once for each; from us it got nothing.
    assert_eq!(status, Some(5));
    let script = "n=0; trap 'n=$((n+1))' USR1; kill -USR1 $PPID; sleep 0.3; exit $n";
    assert_eq!(finish(start(script)).0, Some(0));
}

#[test]
fn a_stop_by_the_terminal_stops_the_job_and_it_goes_on() {
    let running = start("kill -TSTP $$; echo on; exit 5");
    let agent = Pid::from_child(&running.0);
    let (_, status) =
        rustix::process::waitpid(Some(agent), rustix::process::WaitOptions::UNTRACED).unwrap().unwrap();
    assert_eq!(status.stopping_signal(), Some(libc::SIGSTOP), "{status:?}");
    rustix::process::kill_process(agent, rustix::process::Signal::CONT).unwrap();
    let (status, text) = finish(running);
    assert_eq!(status, Some(5));
    assert!(text.contains("on\n"), "{text}");
}
