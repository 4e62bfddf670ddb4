//! What may happen to a program that connects by itself; the end-to-end tests run it (tests/tests/library.rs).
//!
//!     attached full [FLAG...]          more than the region has room for, and the C interface's reallocation
//!     attached refused [FLAG...]       a region for which there is no address space, then one for which there is
//!     attached grown [FLAG...]         a child of a program that has grown outside of its region, and uses that in fork handlers
//!     attached leaves [FLAG...]        ends at once; a daemon that it has started goes on, and forks
//!     attached stays [FLAG...]         the same, and waits for the daemon's end
//!     attached advises [FLAG...]       says what it will need, and what not
//!     attached random [FLAG...]        uses memory in no order, and says so
//!     attached sequential [FLAG...]    reads more than fits, and says so
//!     attached prioritizes [FLAG...]   says what is worth more, and what less

mod words;

use loam::paged::{self, Advice, Options, PagedError, PagedVec, Priority};
use std::ffi::c_void;
use std::io::{BufRead, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;
use words::{fill, here, is_right, wait_until};

const MIB: usize = 1 << 20;

type Outcome = Result<(), Box<dyn std::error::Error>>;

unsafe extern "C" {
    fn loam_realloc(memory: *mut c_void, bytes: usize) -> *mut c_void;
    fn loam_free(memory: *mut c_void);
}

fn connect(local_mib: usize, region_mib: usize, flags: &[String]) -> Result<(), PagedError> {
    paged::connect(&Options::new((local_mib * MIB) as u64, (region_mib * MIB) as u64).flags(flags))
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

/// One of the agent's figures.
fn figure(group: &str, name: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let all = paged::statistics()?;
    let of = all.split_once(&format!("\"{group}\":")).ok_or("no such group")?.1;
    let number = of.split_once(&format!("\"{name}\":")).ok_or("no such figure")?.1;
    Ok(number.trim_start().split(|c: char| !c.is_ascii_digit()).next().ok_or("no number")?.parse()?)
}

/// Touches each of its pages, in order.
fn touch(words: &[u64]) -> u64 {
    std::hint::black_box(words.iter().step_by(PAGE).fold(0, |sum, &word| sum.wrapping_add(word)))
}

/// All of it leaves.
fn leave(words: &[u64]) -> Outcome {
    paged::advise(words, Advice::WillNotNeed)?;
    wait_until("it leaves", || here(words) < 100);
    Ok(())
}

const PAGE: usize = 512;

/// With pages of 64 KiB.
fn random(flags: &[String]) -> Outcome {
    connect(64, 256, flags)?;
    let words = filled(96, 10)?;
    leave(&words)?;
    let (plain, said) = words.split_at(48 * MIB / 8);
    // Far apart: what lies between is not touched, and does not come.
    let (four, eight) = (4 * MIB / 8, 8 * MIB / 8);
    let faults = || figure("faults", "total");
    paged::advise(said, Advice::Random)?;
    let mut before = faults()?;
    let far: u64 = said[..four].iter().step_by(16 * PAGE).sum();
    assert!(far > 0 && here(&said[..eight]) == 64, "{} of 64", here(&said[..eight]));
    assert_eq!(faults()? - before, 64);
    // Side by side: one fault each, and nothing is fetched ahead.
    before = faults()?;
    touch(&said[four..eight]);
    assert_eq!(here(&said[four..2 * eight]), 1024);
    assert_eq!(faults()? - before, 1024);
    // Where nothing is said whole pages come, and what lies ahead.
    before = faults()?;
    touch(&plain[..four]);
    let few = faults()? - before;
    assert!(few <= 64 && here(&plain[..eight]) > 1040, "{few} faults, {} pages", here(&plain[..eight]));
    // It is taken back.
    paged::advise(said, Advice::Normal)?;
    before = faults()?;
    touch(&said[2 * eight..3 * eight]);
    assert!(faults()? - before <= 128);
    assert!(is_right(&words, 10));
    // More than can be remembered is told, and what is freed makes room for others.
    for number in 0..4096 {
        paged::advise(&words[number * 2 * PAGE..][..PAGE], Advice::Random)?;
    }
    let more = &words[4096 * 2 * PAGE..][..PAGE];
    assert!(matches!(paged::advise(more, Advice::Random), Err(PagedError::TooMuch)));
    assert!(matches!(paged::prioritize(more, Priority::Low), Err(PagedError::TooMuch)));
    paged::prioritize(more, Priority::Normal)?;
    assert!(is_right(&words, 10));
    drop(words);
    let words = filled(1, 11)?;
    paged::prioritize(&words, Priority::High)?;
    println!("right");
    Ok(())
}

/// With pages of 4 KiB.
fn sequential(flags: &[String]) -> Outcome {
    connect(64, 256, flags)?;
    let kept = filled(24, 12)?;
    let read = filled(96, 13)?;
    leave(&read)?;
    touch(&kept);
    let here_first = here(&kept);
    assert!(here_first > 6_000, "{here_first}");
    // One touch alone.
    assert_ne!(read[80 * MIB / 8], 0);
    std::thread::sleep(Duration::from_millis(200));
    let alone = here(&read[80 * MIB / 8..82 * MIB / 8]);
    assert!(alone <= 2, "nothing is known of what it will read: {alone}");
    paged::advise(&read, Advice::Sequential)?;
    assert_ne!(read[84 * MIB / 8], 0);
    wait_until("what lies ahead comes", || here(&read[84 * MIB / 8..86 * MIB / 8]) > 32);
    let before = (figure("faults", "remote")?, figure("faults", "prefetched_hit")?);
    assert!(is_right(&read, 13));
    let waits = (figure("faults", "remote")? - before.0, figure("faults", "prefetched_hit")? - before.1);
    assert!(waits.1 > 20 && waits.0 < 2_000, "{waits:?}");
    // Half as much again as there is room for has passed, and pushed out nothing but itself.
    let here_then = here(&kept);
    assert!(here_then + 600 > here_first, "{here_then} of {here_first} stay");
    assert!(is_right(&kept, 12));
    println!("right, {here_then} of {here_first} stay, {waits:?}");
    Ok(())
}

fn prioritizes(flags: &[String]) -> Outcome {
    assert!(matches!(paged::prioritize(&[0_u8; 64], Priority::Low), Err(PagedError::NotConnected)));
    connect(64, 256, flags)?;
    let (mut high, mut low) =
        (PagedVec::<u64>::zeroed(24 * MIB / 8)?, PagedVec::<u64>::zeroed(24 * MIB / 8)?);
    paged::prioritize(&high, Priority::High)?;
    fill(&mut high, 14);
    fill(&mut low, 15);
    // Of what is here already as well.
    paged::prioritize(&low, Priority::Low)?;
    let normal = filled(48, 16)?;
    wait_until("low memory leaves", || here(&low) < 1_500);
    let left = [here(&high), here(&normal), here(&low)];
    // A third of all has left: low memory first, and of high memory what was used longest ago, one in sixteen of the rest, and what
    // left while nothing else was adopted yet.
    assert!(left[0] > 4_500 && left[1] > 7_000 && left[2] < 1_500, "{left:?}");
    assert!(is_right(&high, 14) && is_right(&low, 15) && is_right(&normal, 16));
    // More high memory than there is room for is like any other, and the budget is kept.
    paged::prioritize(&normal, Priority::High)?;
    paged::prioritize(&low, Priority::High)?;
    for _ in 0..2 {
        assert!(is_right(&low, 15) && is_right(&high, 14) && is_right(&normal, 16));
        let all = here(&high) + here(&normal) + here(&low);
        assert!(all < 17_500, "{all} pages are here");
    }
    println!("right, {left:?}");
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
    const ALL: &str = "full, refused, grown, leaves, stays, advises, random, sequential or prioritizes";
    let (what, flags) = args.split_first().ok_or(ALL)?;
    match what.as_str() {
        "full" => full(flags),
        "refused" => refused(flags),
        "grown" => grown(flags),
        "leaves" => daemon(flags, false),
        "stays" => daemon(flags, true),
        "advises" => advises(flags),
        "random" => random(flags),
        "sequential" => sequential(flags),
        "prioritizes" => prioritizes(flags),
        _ => Err(format!("{what}: {ALL}").into()),
    }
}
