//! The constructor, and what the shim takes from libc.
//!
//! All of libc's symbols are weak and looked up through the global offset table, so that the object loads into programs
//! of any libc. On glibc a constructor gets `main`'s arguments; elsewhere the environment is read from `environ`.

use core::arch::asm;
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use crate::connect::PATH_BYTES_MAX;
use crate::join::{self, Reason};
use crate::message::{self, Piece};
use crate::sys::SignalsBlocked;
use crate::{fork, process, region};

/// Address of a weak symbol; 0: this libc has none.
macro_rules! weak {
    ($symbol:literal) => {{
        let address: usize;
        // SAFETY: reads one entry of this object's global offset table.
        unsafe {
            asm!(
                // In every object file that uses it, or the linker takes the strongest.
                concat!(".weak ", $symbol),
                concat!("mov {}, qword ptr [rip + ", $symbol, "@GOTPCREL]"),
                out(reg) address,
                options(nostack, preserves_flags, readonly),
            );
        }
        address
    }};
}

type Handler = extern "C" fn();

/// Where the calling thread's `errno` is.
pub(crate) fn errno_location() -> *mut c_int {
    let address = weak!("__errno_location");
    assert_ne!(address, 0, "every libc of Linux has __errno_location");
    // SAFETY: that is its type in glibc and musl alike.
    let location: extern "C" fn() -> *mut c_int = unsafe { core::mem::transmute(address) };
    location()
}

/// Where `dlsym` is; 0: this libc has none.
pub(crate) fn dlsym_address() -> usize {
    weak!("dlsym")
}

/// Whether an address is in this object. (The address of one of its own exported functions cannot be asked for by its name: the dynamic linker
/// answers with whatever object comes first.)
pub(crate) fn is_own(address: usize) -> bool {
    let (first, end): (usize, usize);
    // SAFETY: two addresses, relative to this code; the linker defines both symbols in every object.
    unsafe {
        asm!(
            ".hidden __ehdr_start",
            ".hidden _end",
            "lea {}, [rip + __ehdr_start]",
            "lea {}, [rip + _end]",
            out(reg) first,
            out(reg) end,
            options(nomem, nostack, preserves_flags, pure),
        );
    }
    (first..end).contains(&address)
}

/// Runs before the program's own constructors and `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = construct;

extern "C" fn construct(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
    begin(environment);
    region::settle();
}

fn begin(environment: *const *const c_char) {
    let environment = if is_glibc() { environment } else { environ() };
    // SAFETY: glibc passes the environment, a list of strings that ends with a null pointer.
    let value_of = |prefix: &[u8]| unsafe { variable(environment, prefix) };
    if value_of(b"LD_PRELOAD=").is_some_and(is_under_valgrind) {
        UNDER_VALGRIND.store(true, Relaxed);
        return;
    }
    let Some(path) = value_of(b"LOAM_SOCKET=") else { return };
    if !process::set_path(path) {
        message::exit(&[
            Piece::Text(b"LOAM_SOCKET must be the path of the agent's socket, 1 to "),
            Piece::Number(PATH_BYTES_MAX as u64 - 1),
            Piece::Text(b" bytes; start the program by `loam run`"),
        ]);
    }
    {
        let _blocked = SignalsBlocked::new();
        if let Err(refusal) = join::join(Reason::Started) {
            refusal.end_program();
        }
    }
    if process::is_under_loam() && !register_fork_handlers() {
        message::exit(&[Piece::Text(b"this program's libc has no fork handlers; run it without Loam")]);
    }
}

/// For a program that has loaded the shim by itself and was not started by an agent: joins the one at this socket. 0: it is served from here on, or
/// was already. Else nothing has changed, and `line` says why, as a string of at most `line_bytes`. By one thread at a time, that may allocate.
///
/// # Safety
/// `path` is a string, `line` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn loam_join_at(path: *const c_char, line: *mut c_char, line_bytes: usize) -> c_int {
    // SAFETY: the caller's promise.
    let (path, line) =
        unsafe { (CStr::from_ptr(path), core::slice::from_raw_parts_mut(line.cast::<u8>(), line_bytes)) };
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if process::is_under_loam() {
        return 0;
    }
    let mut refused = |why: &[u8]| {
        message::write_into(line, &[Piece::Text(why)]);
        1
    };
    if UNDER_VALGRIND.load(Relaxed) {
        return refused(b"valgrind runs this program, and would end it: run it without, to borrow");
    }
    if !process::set_path(path.to_bytes()) {
        return refused(b"the agent's socket has too long a path: set TMPDIR to a shorter one");
    }
    // They do nothing in a program that is not served.
    if !REGISTERED.load(Relaxed) && !register_fork_handlers() {
        return refused(b"this program's libc has no fork handlers: it cannot borrow");
    }
    REGISTERED.store(true, Relaxed);
    let joined = {
        let _blocked = SignalsBlocked::new();
        join::join(Reason::Started)
    };
    match joined {
        Ok(()) if process::is_under_loam() => {
            region::serve_late();
            0
        }
        Ok(()) => refused(b"the agent has ended before it could be joined, or its socket is hidden from here: connect again"),
        Err(refusal) => {
            refusal.write_into(line);
            1
        }
    }
}

/// 1: an agent serves this process.
#[unsafe(no_mangle)]
extern "C" fn loam_is_served() -> c_int {
    c_int::from(process::is_under_loam())
}

/// As the constructor has found it ([`is_under_valgrind`]).
static UNDER_VALGRIND: AtomicBool = AtomicBool::new(false);

/// Valgrind runs the program, and this: it ends all of it at a `clone` that is not libc's own, and has put a library of its own before what is preloaded. So the program runs without Loam, as a static one does.
fn is_under_valgrind(preloaded: &[u8]) -> bool {
    const CORE: &[u8] = b"/vgpreload_core";
    preloaded.windows(CORE.len()).any(|part| part == CORE)
}

fn is_glibc() -> bool {
    weak!("__register_atfork") != 0
}

fn environ() -> *const *const c_char {
    let address = weak!("environ") as *const *const *const c_char;
    if address.is_null() {
        return core::ptr::null();
    }
    // SAFETY: libc's variable of that type.
    unsafe { *address }
}

/// The value of the variable that `prefix` (name and `=`) names.
///
/// # Safety
/// `environment` is null or a list of strings that ends with a null pointer, all of which stay as they are.
unsafe fn variable(mut environment: *const *const c_char, prefix: &[u8]) -> Option<&'static [u8]> {
    if environment.is_null() {
        return None;
    }
    // SAFETY: the caller's promise; the walk ends at the null pointer.
    unsafe {
        while !(*environment).is_null() {
            if let Some(value) = CStr::from_ptr(*environment).to_bytes().strip_prefix(prefix) {
                return Some(value);
            }
            environment = environment.add(1);
        }
    }
    None
}

/// `prepare` runs before the handlers that were registered before these, and `child` after them: those of libraries that start before the shim, which
/// are most, and all that were there before the program has loaded it by itself. They find the region's lock held by their own thread, which gets it
/// again (see [`crate::lock`]); that they must not wait for others who want it is said in docs/regions.md.
fn register_fork_handlers() -> bool {
    let glibc = weak!("__register_atfork");
    if glibc != 0 {
        type Register = extern "C" fn(Handler, Handler, Handler, usize) -> c_int;
        // SAFETY: glibc's own signature; pthread_atfork is a static function around it. The last argument names the object whose
        // unloading takes the handlers back: this one, which is never unloaded (0: never).
        let register: Register = unsafe { core::mem::transmute(glibc) };
        return register(fork::prepare, fork::parent, fork::child, 0) == 0;
    }
    let other = weak!("pthread_atfork");
    if other == 0 {
        return false;
    }
    // SAFETY: the signature of POSIX.
    let register: extern "C" fn(Handler, Handler, Handler) -> c_int = unsafe { core::mem::transmute(other) };
    register(fork::prepare, fork::parent, fork::child) == 0
}
