//! Sums over arrays that are larger than what may stay here.
//!
//!     sums MIB [FLAG...]      arrays of MIB in all, a quarter of which may be here; flags of `loam run`, such as --embedded 2x1G
//!
//! Prints the same whatever is lent. A child that it forks in the midst of it has its own copy of the arrays.

use loam::paged::{self, Options, PagedVec};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mib: u64 = args.next().ok_or("how many MiB?")?.parse()?;
    paged::connect(&Options::new(mib << 18, mib << 22).flags(args))?;
    let count = (mib << 20) as usize / size_of::<u64>() / 2;
    let mut odd = PagedVec::<u64>::zeroed(count)?;
    let mut even = PagedVec::<u64>::zeroed(count)?;
    assert!(odd.iter().all(|&value| value == 0), "fresh memory is zeros");
    for place in 0..count {
        odd[place] = 2 * place as u64 + 1;
        even[place] = 2 * place as u64;
    }
    let sum = |values: &[u64]| values.iter().fold(0_u64, |sum, value| sum.wrapping_add(*value));
    println!("{} {}", sum(&odd), sum(&even));
    in_a_child(|| {
        odd[0] += 1;
        assert_eq!(sum(&odd), (count * count + 1) as u64, "the child's own");
    });
    assert_eq!(odd[0], 1, "what a child does is not seen here");
    drop(even);
    let between: Vec<u64> = (0..count).step_by(4099).map(|place| odd[place]).collect();
    println!("{} at every 4099th place, {}", between.len(), sum(&between));
    Ok(())
}

/// Does something in a forked child, and waits for it to end well.
fn in_a_child(does: impl FnOnce()) {
    // SAFETY: this program has one thread of its own.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            does();
            std::process::exit(0);
        }
        _ => {
            let mut status = 0;
            // SAFETY: one integer is written. Any child: there is no other, the agent least of all.
            unsafe { libc::wait(&raw mut status) };
            assert_eq!(status, 0, "the child failed");
        }
    }
}
