//! What Loam does not do, it says in one line on stderr and with a status that is not zero, before anything is started.

use loam_tests::borrow::Borrow;
use loam_tests::place::{self, Scratch};
use loam_tests::shell::{self, Ended};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
/// A user without any rights.
const NOBODY: &str = "65534";

fn loam(args: &[&str], dir: &Path) -> Ended {
    shell::run(Command::new(place::loam()).args(args), dir, "loam", LIMIT)
}

/// One line, which has all of `words` (in any case).
fn assert_refused(ended: &Ended, words: &[&str], what: &str) {
    assert_ne!(ended.code(), 0, "{what}: not refused; stdout: {:?}", String::from_utf8_lossy(&ended.stdout));
    assert!(ended.code() < 128, "{what}: ended by a signal or a panic: {}: {}", ended.code(), ended.stderr);
    assert_eq!(ended.stdout, b"", "{what}: stdout is the program's");
    let lines = ended.error_lines();
    assert_eq!(lines.len(), 1, "{what}: one line is due, got: {}", ended.stderr);
    let line = lines[0].to_lowercase();
    for word in words {
        assert!(line.contains(&word.to_lowercase()), "{what}: no '{word}' in: {line}");
    }
}

#[test]
fn a_missing_program() {
    let _alone = place::alone();
    let scratch = Scratch::new("missing");
    let run = |program: &str| loam(&["run", "--local", "64M", "--quiet", "--", program], scratch.path());
    for program in ["/no/such/program", "no-such-program-anywhere", "./neither"] {
        let ended = run(program);
        assert_refused(&ended, &[program, "not found"], program);
        assert_eq!(ended.code(), 127, "as shells have it");
    }
    let file = scratch.join("file");
    fs::write(&file, "no program").expect("writable");
    let ended = run(file.to_str().expect("UTF-8"));
    assert_refused(&ended, &["file", "executable"], "a file that is no program");
    assert_eq!(ended.code(), 126, "as shells have it");
    assert_refused(&run("/tmp"), &["/tmp"], "a folder");
}

#[test]
fn a_static_program() {
    let _alone = place::alone();
    let scratch = Scratch::new("static");
    let mut walk = Command::new(place::static_program("memwalk"));
    walk.args(["1", "1", "random"]);
    let plain = shell::run(&mut walk, scratch.path(), "plain", LIMIT);
    assert_eq!(plain.code(), 0, "it runs by itself: {}", plain.stderr);
    let ended = Borrow::new(scratch.path()).run(&walk, None, LIMIT).ended;
    assert_refused(&ended, &["static"], "a static program");
}

#[test]
fn a_set_user_id_program() {
    let _alone = place::alone();
    if !place::is_root() {
        println!("passed over: only root can make a program of another user");
        return;
    }
    let scratch = Scratch::new("setuid");
    let copy = scratch.join("walk");
    fs::copy(place::program("memwalk"), &copy).expect("the scratch folder is writable");
    let uid: u32 = NOBODY.parse().expect("a number");
    std::os::unix::fs::chown(&copy, Some(uid), Some(uid)).expect("root may");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).expect("root may");
    let mut walk = Command::new(&copy);
    walk.args(["1", "1", "random"]);
    let ended = Borrow::new(scratch.path()).run(&walk, None, LIMIT).ended;
    assert_refused(&ended, &["set-user-id"], "a set-user-id program");
}

#[test]
fn too_little_local_memory() {
    let _alone = place::alone();
    let scratch = Scratch::new("local");
    for local in ["1M", "4K"] {
        let ended = loam(&["run", "--quiet", "--local", local, "--", "true"], scratch.path());
        // The least that works is said.
        assert_refused(&ended, &["--local", "M"], local);
        assert!(ended.stderr.chars().any(|c| c.is_ascii_digit()), "the least that works: {}", ended.stderr);
    }
}

#[test]
fn sizes_that_are_none() {
    let _alone = place::alone();
    let scratch = Scratch::new("sizes");
    let refused = |args: &[&str]| {
        let ended = loam(args, scratch.path());
        assert!(ended.code() > 0 && ended.code() < 128, "{args:?}: {}: {}", ended.code(), ended.stderr);
        assert!(!ended.error_lines().is_empty() && ended.stdout.is_empty(), "{args:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("panicked"), "{args:?}: {}", ended.stderr);
    };
    for size in ["", "x", "-1", "12Q", "0", "101%", "99999999999999999999G", "1.5.2G", "G"] {
        refused(&["run", "--local", size, "--", "true"]);
        refused(&["lend", size]);
    }
    for page in ["3K", "2K", "2M", "0"] {
        refused(&["run", "--page", page, "--", "true"]);
    }
    for embedded in ["3", "x1G", "0x1G", "3x", "100000x1G", "1x999999G"] {
        refused(&["run", "--embedded", embedded, "--", "true"]);
    }
    for lender in ["localhost", "1.2.3.4", "1.2.3.4:99999", ":7070"] {
        refused(&["run", "--lender", lender, "--", "true"]);
    }
    refused(&["run", "--durability", "perhaps", "--", "true"]);
    refused(&["run", "--no-such-flag", "--", "true"]);
    refused(&["run"]);
    refused(&["no-such-command"]);
}

#[test]
fn no_durability_without_a_lender() {
    let _alone = place::alone();
    let scratch = Scratch::new("none");
    let ended =
        loam(&["run", "--quiet", "--local", "64M", "--durability", "none", "--", "true"], scratch.path());
    assert_refused(&ended, &["none", "lender"], "--durability none alone");
}

#[test]
fn a_disk_folder_that_cannot_be_written() {
    let _alone = place::alone();
    let scratch = Scratch::new("disk");
    let file = scratch.join("file");
    fs::write(&file, "not a folder").expect("writable");
    let name = file.to_str().expect("UTF-8");
    // Not even root can make a folder in a file, or in /proc.
    for place in [name, &format!("{name}/below"), "/proc/loam"] {
        let ended =
            loam(&["run", "--quiet", "--local", "64M", "--disk", place, "--", "true"], scratch.path());
        assert_refused(&ended, &[place], place);
    }
}

#[test]
fn a_summary_that_cannot_be_written() {
    let _alone = place::alone();
    let scratch = Scratch::new("summary");
    let place = "/proc/loam.json";
    let ended = loam(&["run", "--quiet", "--local", "64M", "--summary", place, "--", "true"], scratch.path());
    assert_refused(&ended, &[place], "--summary");
}

/// Copies of the executable and the shim where another user can reach them.
fn reachable(scratch: &Scratch) -> PathBuf {
    let from = place::loam();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).expect("our folder");
    for name in ["loam", "libloam_shim.so"] {
        let copy = scratch.join(name);
        fs::copy(from.with_file_name(name), &copy)
            .unwrap_or_else(|error| panic!("{name}: {error}: build it first"));
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("our file");
    }
    scratch.join("loam")
}

#[test]
fn no_permission_for_userfaultfd() {
    let _alone = place::alone();
    let unprivileged = fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
    let device = fs::metadata("/dev/userfaultfd").map_or(0, |meta| meta.permissions().mode());
    if !place::is_root() || unprivileged.trim() == "1" || device & 0o007 != 0 {
        println!("passed over: needs root, on a machine that keeps userfaultfd from ordinary users");
        return;
    }
    let scratch = Scratch::new("nobody");
    let loam = reachable(&scratch);
    let disk = scratch.join("disk");
    fs::create_dir(&disk).expect("writable");
    let uid: u32 = NOBODY.parse().expect("a number");
    std::os::unix::fs::chown(&disk, Some(uid), Some(uid)).expect("root may");
    fs::set_permissions(&disk, fs::Permissions::from_mode(0o700)).expect("our folder");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]).arg(&loam);
    command.args(["run", "--quiet", "--local", "64M", "--disk"]).arg(&disk).args(["--", "echo", "hello"]);
    let ended = shell::run(&mut command, scratch.path(), "nobody", LIMIT);
    assert_refused(&ended, &["userfaultfd"], "a user without userfaultfd");
}

/// The folder of the control sockets: a program's userfaultfd goes to whoever listens there.
#[test]
fn a_folder_of_sockets_that_others_can_change() {
    let _alone = place::alone();
    let scratch = Scratch::new("sockets");
    let uid = rustix::process::getuid().as_raw();
    let folder = scratch.join(&format!("loam-{uid}"));
    fs::create_dir(&folder).expect("writable");
    let refused = |args: &[&str], what: &str| {
        let mut command = Command::new(place::loam());
        command.args(args).env("TMPDIR", scratch.path());
        let ended = shell::run(&mut command, scratch.path(), "sockets", LIMIT);
        assert_refused(&ended, &[folder.to_str().expect("UTF-8"), "TMPDIR"], what);
        assert_eq!(ended.code(), 125, "{what}");
    };
    let run = ["run", "--quiet", "--local", "64M", "--", "echo", "hello"];
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("our folder");
    refused(&run, "a folder that anybody can write");
    refused(&["status"], "its status");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("our folder");
    if place::is_root() {
        let nobody: u32 = NOBODY.parse().expect("a number");
        std::os::unix::fs::chown(&folder, Some(nobody), None).expect("root may");
        refused(&run, "a folder of another user");
        refused(&["status"], "its status");
    }
    fs::rename(&folder, scratch.join("elsewhere")).expect("our folder");
    std::os::unix::fs::symlink(scratch.join("elsewhere"), &folder).expect("our folder");
    refused(&run, "a link to a folder");
}

/// No refusal: what a cautious user sets must not keep a program from its agent that runs as somebody else.
#[test]
fn a_program_of_another_user_under_a_umask() {
    let _alone = place::alone();
    if !place::is_root() {
        println!("passed over: only root can be another user");
        return;
    }
    let scratch = Scratch::new("umask");
    let loam = reachable(&scratch);
    let script = "umask 077; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(&loam).args(["run", "--quiet", "--local", "64M", "--disk"]);
    command.arg(scratch.join("disk")).arg("--");
    command.args(["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "id", "-u"]);
    command.env("TMPDIR", scratch.path());
    let ended = shell::run(&mut command, scratch.path(), "umask", LIMIT);
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    assert_eq!(String::from_utf8_lossy(&ended.stdout), format!("{NOBODY}\n"));
}

#[test]
fn more_than_the_machine_has_is_not_lent() {
    let _alone = place::alone();
    let scratch = Scratch::new("lend");
    let ended = loam(&["lend", "15T", "--listen", "127.0.0.1:0"], scratch.path());
    assert_refused(&ended, &["available"], "15T");
}

#[test]
fn an_open_address_needs_a_word() {
    let _alone = place::alone();
    let scratch = Scratch::new("open");
    let ended = loam(&["lend", "64M", "--listen", "0.0.0.0:0"], scratch.path());
    assert_refused(&ended, &["--insecure"], "0.0.0.0");
}

#[test]
fn an_address_in_use() {
    let _alone = place::alone();
    let scratch = Scratch::new("port");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let addr = taken.local_addr().expect("bound").to_string();
    let ended = loam(&["lend", "64M", "--listen", &addr], scratch.path());
    assert_refused(&ended, &[&addr], "an address in use");
}
