//! What may happen to a program that connects by itself; the end-to-end tests run it (tests/tests/library.rs).
//!
//!     attached full [FLAG...]          more than the region has room for, and the C interface's reallocation
//!     attached refused [FLAG...]       a region for which there is no address space, then one for which there is
//!     attached grown [FLAG...]         a child of a program that has grown outside of its region, and uses that in fork handlers
//!     attached leaves [FLAG...]        ends at once; a daemon that it has started goes on, and forks
//!     attached stays [FLAG...]         the same, and waits for the daemon's end
//!     attached advises [FLAG...]       says what it will need, and what not

use loam::paged::{self, Advice, Options, PagedError, PagedVec};
use std::ffi::c_void;
use std::io::{BufRead, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

const MIB: usize = 1 << 20;

type Outcome = Result<(), Box<dyn std::error::Error>>;

unsafe extern "C" {
    fn loam_realloc(memory: *mut c_void, bytes: usize) -> *mut c_void;
    fn loam_free(memory: *mut c_void);
}

fn connect(local_mib: usize, region_mib: usize, flags: &[String]) -> Result<(), PagedError> {
    paged::connect(&Options::new((local_mib * MIB) as u64, (region_mib * MIB) as u64).flags(flags))
}

fn fill(words: &mut [u64], seed: u64) {
    words.iter_mut().zip(seed..).for_each(|(word, value)| *word = value);
}

fn is_right(words: &[u64], seed: u64) -> bool {
    words.iter().zip(seed..).all(|(word, value)| *word == value)
}

fn filled(mib: usize, seed: u64) -> Result<PagedVec<u64>, PagedError> {
    let mut words = PagedVec::<u64>::zeroed(mib * MIB / 8)?;
    assert!(words.iter().all(|&word| word == 0), "fresh memory is zeros");
    fill(&mut words, seed);
    Ok(words)
}

/// `loam_realloc`, and the words that are in there.
fn reallocated(memory: *mut c_void, bytes: usize) -> &'static mut [u64] {
    // SAFETY: null, or from there; words that are no longer there are not used any more.
    unsafe {
        let memory = loam_realloc(memory, bytes).cast::<u64>();
        assert!(!memory.is_null(), "{bytes} bytes");
        std::slice::from_raw_parts_mut(memory, bytes / 8)
    }
}

/// The tests count: five requests are served by the region, two find it full.
fn full(flags: &[String]) -> Outcome {
    connect(32, 8, flags)?;
    let mut small = PagedVec::<u64>::zeroed(100)?;
    small[99] = 1;
    let (first, second, outside) = (filled(3, 1)?, filled(4, 2)?, filled(4, 3)?);
    assert!(is_right(&first, 1) && is_right(&second, 2) && is_right(&outside, 3));
    assert!(small[..99].iter().all(|&word| word == 0) && small[99] == 1);
    drop((first, small, outside));
    // By the C interface: from nothing, in its place, out of the region, which has no room any more, and in again.
    let words = reallocated(std::ptr::null_mut(), 2 * MIB);
    fill(words, 4);
    let words = reallocated(words.as_mut_ptr().cast(), 6 * MIB);
    assert!(is_right(&words[..2 * MIB / 8], 4));
    drop(second);
    let words = reallocated(words.as_mut_ptr().cast(), 5 * MIB);
    assert!(is_right(&words[..2 * MIB / 8], 4));
    let words = reallocated(words.as_mut_ptr().cast(), 800);
    assert!(is_right(words, 4));
    let words = reallocated(words.as_mut_ptr().cast(), MIB);
    assert!(is_right(&words[..100], 4));
    // SAFETY: from there, and not used any more.
    unsafe { loam_free(words.as_mut_ptr().cast()) };
    println!("right");
    Ok(())
}

fn refused(flags: &[String]) -> Outcome {
    let limit = libc::rlimit { rlim_cur: 16 << 30, rlim_max: 16 << 30 };
    // SAFETY: it reads the limits.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    let error = connect(32, 64 << 10, flags).expect_err("there is no address space for that");
    assert!(!paged::is_connected());
    println!("refused: {error}");
    std::io::stdin().lock().read_line(&mut String::new())?;
    connect(32, 64, flags)?;
    let words = filled(48, 5)?;
    assert!(is_right(&words, 5));
    println!("right");
    Ok(())
}

/// A fork handler that allocates, fills and frees memory of the region.
extern "C" fn in_a_fork() {
    assert!(!paged::is_connected() || filled(1, 8).is_ok_and(|words| is_right(&words, 8)));
}

fn grown(flags: &[String]) -> Outcome {
    // Before the shim's own.
    let handler = Some(in_a_fork as unsafe extern "C" fn());
    // SAFETY: it stays, and may run whenever this program, which has one thread, forks.
    assert_eq!(unsafe { libc::pthread_atfork(handler, handler, handler) }, 0);
    connect(256, 64, flags)?;
    let mut words = vec![0; 96 * MIB / 8];
    fill(&mut words, 6);
    in_a_child(|| {
        std::thread::sleep(Duration::from_secs(1));
        assert!(is_right(&words, 6));
    });
    println!("right");
    Ok(())
}

fn daemon(flags: &[String], stays: bool) -> Outcome {
    connect(32, 256, flags)?;
    let words = filled(64, 7)?;
    let mut pipe = [0; 2];
    // SAFETY: two descriptors are written.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // SAFETY: just made, and nobody else's.
    let [mut reads, writes] = pipe.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).map(std::fs::File::from);
    in_a_child(|| {
        let parent = std::process::id() as libc::pid_t;
        // SAFETY: this program has one thread of its own.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            0 => {
                // SAFETY: it asks.
                while unsafe { libc::getppid() } == parent {
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(Duration::from_secs(2));
                assert!(is_right(&words, 7));
                in_a_child(|| assert!(is_right(&words, 7)));
                println!("the daemon is right");
            }
            _ => {}
        }
    });
    drop(writes);
    if stays {
        reads.read_to_end(&mut Vec::new())?;
        assert!(is_right(&words, 7));
        println!("right");
    }
    Ok(())
}

/// Base pages of `words` that are here.
fn here(words: &[u64]) -> usize {
    let mut pages = vec![0_u8; size_of_val(words) / 4096];
    // SAFETY: it fills in a byte for each page. It is asked of memory, not of its contents.
    let done =
        unsafe { libc::mincore(words.as_ptr().cast_mut().cast(), pages.len() * 4096, pages.as_mut_ptr()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    pages.iter().filter(|&&page| page & 1 == 1).count()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not within 20 s");
}

fn advises(flags: &[String]) -> Outcome {
    assert!(matches!(paged::advise(&[0_u8; 64], Advice::WillNeed), Err(PagedError::NotConnected)));
    connect(64, 256, flags)?;
    // Two thirds of it have room here.
    let words = filled(96, 9)?;
    wait_until("the budget", || here(&words) < 17_000);
    assert!(here(&words) > 10_000, "{} of 24576 pages", here(&words));
    paged::advise(&words, Advice::WillNotNeed)?;
    wait_until("it leaves", || here(&words) < 100);
    let next = &words[..8 * MIB / 8];
    paged::advise(next, Advice::WillNeed)?;
    wait_until("it comes", || here(next) == 2048);
    assert!(here(&words) < 3_000, "and nothing else does: {}", here(&words));
    assert!(is_right(next, 9) && is_right(&words, 9));
    // What is not borrowed, and what is no memory at all.
    paged::advise(&vec![0_u8; 5000], Advice::WillNotNeed)?;
    paged::raw::advise(0..usize::MAX, Advice::WillNeed)?;
    paged::raw::advise(usize::MAX - 4096..usize::MAX, Advice::WillNotNeed)?;
    // As often as one likes.
    for turn in 0..300 {
        let some = &words[turn * 8192..(turn + 40) * 8192];
        paged::advise(some, if turn % 2 == 0 { Advice::WillNotNeed } else { Advice::WillNeed })?;
    }
    assert!(is_right(&words, 9));
    println!("right");
    Ok(())
}

/// Does something in a forked child, and waits for it to end well.
fn in_a_child(does: impl FnOnce()) {
    // SAFETY: this program has one thread of its own.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(does));
            std::process::exit(i32::from(done.is_err()));
        }
        child => {
            let mut status = 0;
            // SAFETY: one integer is written.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0, "the child failed");
        }
    }
}

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (what, flags) = args.split_first().ok_or("full, refused, grown, leaves, stays or advises")?;
    match what.as_str() {
        "full" => full(flags),
        "refused" => refused(flags),
        "grown" => grown(flags),
        "leaves" => daemon(flags, false),
        "stays" => daemon(flags, true),
        "advises" => advises(flags),
        _ => Err(format!("{what}: full, refused, grown, leaves, stays or advises").into()),
    }
}
