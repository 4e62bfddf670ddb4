//! Where things are: the executable under test, our C programs, scratch folders, and the lock that keeps tests apart.

use crate::procfs;
use rustix::fs::FlockOperation;
use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The `loam` to test: `$LOAM_BIN`, else the release build of the target folder that holds this test.
///
/// # Panics
/// If there is none.
pub fn loam() -> PathBuf {
    if let Some(path) = std::env::var_os("LOAM_BIN") {
        let path = PathBuf::from(path);
        return fs::canonicalize(&path)
            .unwrap_or_else(|error| panic!("LOAM_BIN={}: {error}", path.display()));
    }
    let target = target_dir();
    ["release/loam", "debug/loam"]
        .iter()
        .map(|name| target.join(name))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("no loam in {}: build it first, or set LOAM_BIN", target.display()))
}

/// The target folder: the tests are in `PROFILE/deps` of it.
fn target_dir() -> PathBuf {
    let test = std::env::current_exe().expect("/proc is mounted");
    test.ancestors().nth(3).expect("a test lies in TARGET/PROFILE/deps").to_owned()
}

/// An example of the crate `loam`, of the build that holds this test.
///
/// # Panics
/// If it is not built.
pub fn example(name: &str) -> PathBuf {
    let path = target_dir().join("debug/examples").join(name);
    assert!(path.is_file(), "no {}: cargo build -p loam --example {name}", path.display());
    path
}

/// A C example of the crate `loam`, linked with `libloam.so` of the build that holds this test.
///
/// # Panics
/// If that is not built, or the example does not compile without a warning.
pub fn c_example(name: &str) -> PathBuf {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/loam");
    let libraries = target_dir().join("debug");
    assert!(libraries.join("libloam.so").is_file(), "no libloam.so: cargo build -p loam");
    let program = target_dir().join(format!("loam-tests-programs/{name}-c"));
    std::fs::create_dir_all(program.parent().expect("just joined")).expect("the target folder is writable");
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    compile.arg(library.join("examples").join(format!("{name}.c"))).arg("-I").arg(library.join("include"));
    compile.arg("-L").arg(&libraries).arg("-lloam").arg(format!("-Wl,-rpath,{}", libraries.display()));
    assert!(compile.status().expect("cc runs").success(), "{compile:?} failed");
    program
}

/// A file of `tests/programs`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// Builds one of our C programs (a file, or a folder of files) and gives its path; built once per contents.
///
/// # Panics
/// If the compiler fails.
pub fn program(name: &str) -> PathBuf {
    build(name, &[])
}

/// The same without shared libraries.
///
/// # Panics
/// If the compiler fails.
pub fn static_program(name: &str) -> PathBuf {
    build(name, &["-static"])
}

/// The same with the compiler's address sanitizer.
///
/// # Panics
/// If the compiler fails.
pub fn sanitized_program(name: &str) -> PathBuf {
    build(name, &["-g", "-fsanitize=address"])
}

fn build(name: &str, flags: &[&str]) -> PathBuf {
    let place = source(name);
    let mut sources = Vec::new();
    if place.is_dir() {
        for entry in fs::read_dir(&place).expect("tests/programs is readable") {
            sources.push(entry.expect("readable").path());
        }
        sources.sort();
    } else {
        sources.push(source(&format!("{name}.c")));
    }
    let mut hasher = DefaultHasher::new();
    flags.hash(&mut hasher);
    for path in &sources {
        fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).hash(&mut hasher);
    }
    let dir = target_dir().join("loam-tests-programs");
    fs::create_dir_all(&dir).expect("the target folder is writable");
    let built = dir.join(format!("{name}-{:016x}", hasher.finish()));
    if built.is_file() {
        return built;
    }
    sources.retain(|path| path.extension() == Some(OsStr::new("c")));
    // Under another name first: a build that is interrupted must not be taken for a whole one.
    static BUILDS: AtomicU32 = AtomicU32::new(0);
    let number = BUILDS.fetch_add(1, Ordering::Relaxed);
    let unfinished = built.with_extension(format!("{}-{number}", std::process::id()));
    let output = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .args(flags)
        .arg("-o")
        .arg(&unfinished)
        .args(&sources)
        .output()
        .expect("cc is installed: run tests/setup.sh");
    assert!(output.status.success(), "cc of {name}: {}", String::from_utf8_lossy(&output.stderr));
    keep_first(&unfinished, &built);
    built
}

/// Gives a file its name, unless there is one of that name: another test has built it meanwhile, and perhaps runs it. (In its place that one would be called "(deleted)", and who looks for processes
/// by what they execute would not find it.)
fn keep_first(unfinished: &Path, built: &Path) {
    match fs::hard_link(unfinished, built) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            panic!("{}: {error}", built.display())
        }
        _ => fs::remove_file(unfinished).expect("the target folder is writable"),
    }
}

/// A folder of one test, removed at its end.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one on a real disk.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let base = std::env::var_os("LOAM_TEST_DIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = base.join(format!("loam-test-{name}-{}-{number}", std::process::id()));
        // Of a run that was killed and had the same process id.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir)
            .unwrap_or_else(|error| panic!("{}: {error}: set LOAM_TEST_DIR", dir.display()));
        Self(dir)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A path inside.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("LOAM_TEST_KEEP").is_some() {
            return;
        }
        // What is left behind harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Held by a test that runs `loam`: figures of two at once on two cores would mean nothing. ([`alone_here`]: it has none.)
#[derive(Debug)]
pub struct Alone {
    _file: File,
    _guard: RwLockWriteGuard<'static, ()>,
}

/// Held by a test that mostly waits, for leases to end and nodes to be missed, and measures nothing.
#[derive(Debug)]
pub struct Beside {
    _file: File,
    _guard: RwLockReadGuard<'static, ()>,
}

static WITHIN: RwLock<()> = RwLock::new(());

/// Waits until no other test runs, in this executable or in another.
///
/// # Panics
/// If the lock file cannot be made.
pub fn alone() -> Alone {
    // A test that failed while it held the lock has nothing behind it that others could find broken.
    let guard = WITHIN.write().unwrap_or_else(PoisonError::into_inner);
    Alone { _file: locked(FlockOperation::LockExclusive), _guard: guard }
}

/// Waits until no other test of this executable runs, and in others none but those that mostly wait, or take this. For a test that looks at all of its own
/// executable's processes, and mostly waits as well, or measures nothing that one test beside it could spoil.
///
/// # Panics
/// If the lock file cannot be made.
pub fn alone_here() -> Alone {
    let guard = WITHIN.write().unwrap_or_else(PoisonError::into_inner);
    Alone { _file: locked(FlockOperation::LockShared), _guard: guard }
}

/// Waits until no other test runs but those that wait like this one.
///
/// # Panics
/// If the lock file cannot be made.
pub fn beside() -> Beside {
    let guard = WITHIN.read().unwrap_or_else(PoisonError::into_inner);
    Beside { _file: locked(FlockOperation::LockShared), _guard: guard }
}

fn locked(how: FlockOperation) -> File {
    procfs::adopt_orphans();
    let path = target_dir().join("loam-tests.lock");
    let file = File::create(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    rustix::fs::flock(&file, how).expect("locks of whole files work here");
    file
}

/// Whether the tests run as root; those that need it say so and pass over.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
