//! Regions of a node in this process, and the example in other processes.

use loam::region::{Advice, Options, Refusal};
use loam::{Region, RegionError, RegionVec, Regions, SharedRegion};
use loam_core::units::Bytes;
use loam_node::{LendConfig, LendHandle, LocalSocket};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

struct Node {
    socket: PathBuf,
    handle: Option<LendHandle>,
}

impl Node {
    fn start(mib: u64) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let socket = std::env::temp_dir().join(format!("loam-region-{}-{number}.sock", std::process::id()));
        let mut config = LendConfig::new(Bytes::from_mib(mib));
        config.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        config.socket = Some(LocalSocket { path: socket.clone(), mode: 0o600, required: true });
        config.loops = Some(1);
        // This machine keeps nothing: the test is not about what it has.
        config.keep = Some(Bytes(0));
        Self { socket, handle: Some(loam_node::spawn(&config).expect("a node")) }
    }
    fn options(&self) -> Options {
        Options::new().socket(&self.socket)
    }
    /// The example, in a shell that has set this limit.
    fn example(&self, limit: &str, args: &[&str]) -> Output {
        let example = std::env::current_exe().expect("/proc is mounted");
        let example = example.ancestors().nth(2).expect("TARGET/PROFILE").join("examples/region");
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{limit} && exec \"$0\" \"$@\"")).arg(example).arg("--socket");
        command.arg(&self.socket).args(args).output().expect("there is a shell")
    }
    fn connect(&self) -> Regions {
        Regions::connect(Some(&self.socket)).expect("it listens")
    }
}

/// The kernel tells the node of a connection's end after the program went on.
fn soon(what: &str, mut so: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("not within ten seconds: {what}");
}

fn refusal<T>(answer: Result<T, RegionError>) -> Option<Refusal> {
    match answer {
        Err(RegionError::Refused { why, .. }) => Some(why),
        Err(other) => panic!("{other}"),
        Ok(_) => None,
    }
}

fn faults() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: it fills in a rusage of this thread (others of the test take theirs); zeros are one, too.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    (usage.ru_minflt + usage.ru_majflt) as u64
}

#[test]
fn contents_outlive_who_wrote_them() {
    let node = Node::start(64);
    let mut region = Region::create_with("a", 5000, &node.options()).expect("room");
    assert_eq!(region.len(), 8192, "whole pages");
    assert!(region.as_slice().iter().all(|byte| *byte == 0));
    region.as_mut_slice()[4990..4995].copy_from_slice(b"hello");
    assert_eq!(refusal(Region::open_on(node.connect(), "a")), Some(Refusal::InUse));
    assert_eq!(refusal(SharedRegion::open_on(node.connect(), "a")), Some(Refusal::InUse));
    drop(region);
    soon("closed", || node.connect().list().expect("a list").regions[0].opens == 0);
    let one = SharedRegion::open_on(node.connect(), "a").expect("it is there");
    let other = SharedRegion::open_on(node.connect(), "a").expect("together");
    let mut bytes = [0; 5];
    one.read_at(4990, &mut bytes);
    assert_eq!(&bytes, b"hello");
    other.write_at(4990, b"there");
    one.read_at(4990, &mut bytes);
    assert_eq!(&bytes, b"there");
}

#[test]
fn regions_grow_and_shrink_with_their_contents() {
    let node = Node::start(64);
    let mut region = Region::create_with("a", 1 << 20, &node.options()).expect("room");
    let byte = |at: usize| (at / 7) as u8 ^ 0x5a;
    let fill = |region: &mut Region| {
        region.as_mut_slice().iter_mut().enumerate().for_each(|(at, to)| *to = byte(at));
    };
    let kept = |region: &Region, bytes: usize| (0..bytes).all(|at| region.as_slice()[at] == byte(at));
    fill(&mut region);
    region.resize(3 << 20).expect("room");
    assert!(kept(&region, 1 << 20) && region.as_slice()[1 << 20..].iter().all(|byte| *byte == 0));
    assert_eq!((region.len(), region.statistics().spans), (3 << 20, 2));
    fill(&mut region);
    // Within the second stretch, then within the first.
    for bytes in [(2 << 20) + 4096, 8192] {
        region.resize(bytes as u64).expect("smaller");
        assert_eq!(region.len(), bytes);
        assert!(kept(&region, bytes));
    }
    region.resize(16384).expect("room");
    assert!(
        kept(&region, 8192) && region.as_slice()[8192..].iter().all(|byte| *byte == 0),
        "no old contents"
    );
    assert_eq!(node.connect().list().expect("a list").reserved_bytes, 16384);
}

#[test]
fn no_more_is_lent_than_there_is() {
    let node = Node::start(8);
    let held = Region::create_with("a", 6 << 20, &node.options()).expect("room");
    assert_eq!(refusal(Region::create_with("b", 3 << 20, &node.options())), Some(Refusal::NoRoom));
    let mut regions = node.connect();
    assert_eq!(refusal(regions.resize("a", 9 << 20)), Some(Refusal::NoRoom));
    // Removed, but open: its memory is nobody else's yet.
    regions.remove("a").expect("it is ours");
    assert_eq!(refusal(Region::create_with("b", 3 << 20, &node.options())), Some(Refusal::NoRoom));
    drop(held);
    soon("free", || regions.list().expect("a list").reserved_bytes == 0);
    Region::create_with("b", 8 << 20, &node.options()).expect("all of it");
}

#[test]
fn a_name_that_is_given_anew_is_another_region() {
    let node = Node::start(8);
    let mut held = Region::create_with("a", 1 << 20, &node.options()).expect("room");
    held.as_mut_slice().fill(1);
    let mut regions = node.connect();
    regions.remove("a").expect("it is ours");
    regions.create("a", 1 << 20, &Options::new()).expect("room");
    // What its holder asks for is done to what it holds.
    held.resize(2 << 20).expect("room");
    assert!(held.as_slice()[..1 << 20].iter().all(|byte| *byte == 1));
    held.remove().expect("a second time is no harm");
    let list = regions.list().expect("a list");
    assert_eq!((list.regions.len(), list.regions[0].bytes), (1, 1 << 20), "the new one is as it was");
}

#[test]
fn temporary_ones_go_with_who_made_them() {
    let node = Node::start(8);
    let region = Region::create_with("a", 4096, &node.options().temporary(true)).expect("room");
    assert!(node.connect().list().expect("a list").regions[0].is_temporary);
    drop(region);
    soon("gone", || node.connect().list().expect("a list").regions.is_empty());
}

/// After the first touch of a page there is no fault, and after advice not even that one.
#[test]
fn no_faults_after_the_first_touch() {
    let node = Node::start(64);
    let mut region = Region::create_with("a", 16 << 20, &node.options()).expect("room");
    let touch = |region: &mut Region| {
        let before = faults();
        for page in region.as_mut_slice().chunks_exact_mut(4096) {
            page[17] = page[17].wrapping_add(1);
        }
        faults() - before
    };
    // None where the kernel has put it together into large pages, which maps them.
    touch(&mut region);
    // The kernel may unmap some for a moment, to move them.
    let fewest = |region: &mut Region| (0..5).map(|_| touch(region)).min();
    assert_eq!(fewest(&mut region), Some(0));
    region.advise(0..16 << 20, Advice::WillNotNeed).expect("advice");
    assert!(touch(&mut region) > 0, "they were unmapped, and the counter counts");
    assert!(region.as_slice().chunks_exact(4096).all(|page| page[17] == 7), "and kept what they were");
    region.advise(0..16 << 20, Advice::WillNotNeed).expect("advice");
    region.advise(0..16 << 20, Advice::WillNeed).expect("advice");
    assert_eq!(touch(&mut region), 0);
    region.advise(0..4096, Advice::Sequential).expect("advice");
    region.advise(0..4096, Advice::Random).expect("advice");
    let beyond = region.advise(0..(16 << 20) + 1, Advice::Random);
    assert!(matches!(beyond, Err(RegionError::Range { bytes: 16_777_216, .. })), "{beyond:?}");
}

#[test]
fn the_nodes_end_leaves_what_is_mapped() {
    let mut node = Node::start(8);
    let mut region = Region::create_with("a", 1 << 20, &node.options()).expect("room");
    region.as_mut_slice().fill(3);
    node.handle = None;
    assert!(region.as_slice().iter().all(|byte| *byte == 3));
    region.as_mut_slice().fill(4);
    assert!(matches!(region.resize(4096), Err(RegionError::Lost(_))));
    assert!(region.as_slice().iter().all(|byte| *byte == 4));
    assert!(matches!(Regions::connect(Some(&node.socket)), Err(RegionError::Connect { .. })));
}

#[test]
fn a_vector_grows_and_is_opened_again() {
    let node = Node::start(64);
    let mut vec = RegionVec::<u64>::create("v", 10, &node.options()).expect("room");
    for number in 0..100_000 {
        vec.push(number * 3).expect("room");
    }
    assert_eq!((vec.len(), vec.pop()), (100_000, Some(299_997)));
    vec[5] = 1;
    drop(vec);
    soon("closed", || node.connect().list().expect("a list").regions[0].opens == 0);
    let other = RegionVec::<u32>::open_on(node.connect(), "v");
    assert!(matches!(other, Err(RegionError::NoVec { .. })), "of another size");
    soon("closed", || node.connect().list().expect("a list").regions[0].opens == 0);
    let mut vec = RegionVec::<u64>::open_on(node.connect(), "v").expect("it is one");
    assert_eq!((vec.len(), vec[5], vec[99_998]), (99_999, 1, 299_994));
    vec.truncate(2);
    assert_eq!(&vec[..], &[0, 3]);
    node.connect().create("w", 4096, &Options::new()).expect("room");
    let other = RegionVec::<u64>::open_on(node.connect(), "w");
    assert!(matches!(other, Err(RegionError::NoVec { .. })), "zeros are no vector");
}

#[test]
fn huge_pages_where_there_are_some() {
    let node = Node::start(64);
    match Region::create_with("a", 1 << 20, &node.options().huge(true)) {
        Ok(region) => assert_eq!((region.len(), region.statistics().is_huge), (2 << 20, true)),
        Err(RegionError::Refused { why: Refusal::Unavailable, text }) => {
            assert!(text.contains("nr_hugepages"), "{text}");
            assert_eq!(node.connect().list().expect("a list").reserved_bytes, 0, "given back");
            println!("this machine has set no huge pages aside: only the refusal was tested");
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn the_example_writes_and_another_process_reads() {
    let node = Node::start(64);
    node.connect().create("a", 1 << 20, &Options::new()).expect("room");
    let run = |what: &str, seed: &str| node.example("true", &[what, "a", seed]);
    soon("written", || run("write", "7").status.success());
    soon("closed", || node.connect().list().expect("a list").regions[0].opens == 0);
    assert!(run("check", "7").status.success());
    soon("closed", || node.connect().list().expect("a list").regions[0].opens == 0);
    assert!(!run("check", "8").status.success(), "the check can fail");
}

/// A child has neither the memory of a region that is open alone, nor a right to speak of it: something else may be at its addresses by then.
#[test]
fn a_child_that_forks_off_does_nothing_to_a_region() {
    const PAGE: usize = 4096;
    let node = Node::start(8);
    let mut region = Region::create_with("a", 16 * PAGE as u64, &node.options()).expect("room");
    region.as_mut_slice().fill(5);
    let place = region.as_slice().as_ptr().cast_mut();
    // SAFETY: the child does nothing that another thread could have left half done but freeing memory, which the C library sees to.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: nothing of this process is mapped there (it is checked: no replacing), and nothing but `theirs` looks there.
        let theirs = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(place.cast(), PAGE, protection, flags, -1, 0).cast::<u8>()
        };
        let mut wrong = i32::from(theirs != place);
        if wrong == 0 {
            // SAFETY: it was just mapped.
            unsafe { theirs.write_volatile(9) };
            wrong += 2 * i32::from(!matches!(region.resize(PAGE as u64), Err(RegionError::OtherProcess)));
            drop(region);
            // SAFETY: it ends the test by SIGSEGV if it is not mapped any more, as it should.
            wrong += 4 * i32::from(unsafe { theirs.read_volatile() } != 9);
        }
        // SAFETY: it ends the child, without what the test harness has left to do.
        unsafe { libc::_exit(wrong) };
    }
    let mut status = 0;
    // SAFETY: it waits for our own child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "exit code (from bit 8 on) or signal");
    assert!(region.as_slice().iter().all(|byte| *byte == 5));
    region.resize(32 * PAGE as u64).expect("it is open, and the parent's");
    region.remove().expect("it is ours");
}

#[test]
fn too_few_descriptors_are_told() {
    let node = Node::start(8);
    let mut regions = node.connect();
    regions.create("a", 4096, &Options::new()).expect("room");
    for pages in 2..=30 {
        regions.resize("a", pages * 4096).expect("room");
    }
    let output = node.example("ulimit -n 16", &["check", "a", "1"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("ulimit -n"), "{text}");
    let output = node.example("ulimit -n 64", &["check", "a", "1"]);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("122880 bytes"), "{output:?}");
}

/// What cannot be mapped leaves nothing behind.
#[test]
fn what_cannot_be_mapped_is_given_back() {
    let node = Node::start(256);
    let mut regions = node.connect();
    let said = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let told = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let few = "ulimit -v 65536"; // KiB
    let output = node.example(few, &["make", "a", "134217728"]);
    assert!(told(&output).contains("cannot map"), "{output:?}");
    soon("given back", || regions.list().expect("a list").reserved_bytes == 0);
    assert!(regions.list().expect("a list").regions.is_empty());
    // One that is open and was to grow is as it was, here and there.
    regions.create("b", 40 << 20, &Options::new()).expect("room");
    let output = node.example(few, &["resize", "b", "83886080"]);
    assert!(told(&output).contains("cannot map"), "{output:?}");
    assert_eq!(said(&output), "41943040 bytes\n");
    let list = regions.list().expect("a list");
    assert_eq!((list.regions[0].bytes, list.regions[0].spans), (40 << 20, 1));
    // One that was to shrink has shrunk: what is mapped here would be no part of it.
    soon("closed", || regions.list().expect("a list").regions[0].opens == 0);
    let output = node.example(few, &["resize", "b", "31457280"]);
    assert!(told(&output).contains("cannot map"), "{output:?}");
    assert_eq!(said(&output), "0 bytes\n");
    assert_eq!(regions.list().expect("a list").regions[0].bytes, 30 << 20);
}
