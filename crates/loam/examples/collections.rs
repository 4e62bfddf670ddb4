//! Vectors and boxes in a region: they are ordinary memory while they are small, and grow into it.
//!
//!     collections [FLAG...]      flags of `loam run`, such as --embedded 2x1G

use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use loam::paged::{self, Options, PagedAllocator};

const MIB: usize = 1 << 20;

/// A line of a processor's cache, and a page.
#[repr(align(64))]
struct Line(u64);
#[repr(align(4096))]
struct Page([u8; 4096]);

fn main() -> Result<(), std::boxed::Box<dyn std::error::Error>> {
    assert!(Vec::<u64, _>::new_in(PagedAllocator).try_reserve(1).is_err(), "not connected yet");
    let (local, region) = (32 << 20, 256 << 20);
    paged::connect(&Options::new(local, region).flags(std::env::args().skip(1)))?;
    let region = paged::raw::region().ok_or("start this without `loam run`")?;
    let mut words: Vec<u64, _> = Vec::new_in(PagedAllocator);
    assert!(!region.contains(&words.as_ptr().addr()));
    for word in 0..6 * MIB as u64 {
        words.push(word * 3);
    }
    assert!(region.contains(&words.as_ptr().addr()), "48 MiB");

    let mut lines = Vec::with_capacity_in(1 << 16, PagedAllocator);
    lines.extend((0..1 << 16).map(Line));
    assert!(region.contains(&lines.as_ptr().addr()) && lines.as_ptr().is_aligned(), "4 MiB");
    assert!(lines.iter().enumerate().all(|(place, line)| line.0 == place as u64));

    let mut pages = Vec::new_in(PagedAllocator);
    for page in 0..1000_usize {
        pages.push(Page([page as u8; 4096]));
    }
    pages.truncate(700);
    pages.shrink_to_fit();
    assert!(pages.as_ptr().is_aligned());
    assert!(pages.iter().enumerate().all(|(place, page)| page.0.iter().all(|&byte| byte == place as u8)));

    assert!(words.iter().zip(0..).all(|(&word, place)| word == place * 3));
    words.truncate(10);
    words.shrink_to_fit();
    assert!(!region.contains(&words.as_ptr().addr()) && words[9] == 27, "it is small again");
    let none = Box::new_in([0_u64; 0], PagedAllocator);
    let zeros = Box::<[u64], _>::new_zeroed_slice_in(MIB, PagedAllocator);
    // SAFETY: zeros are valid for integers.
    let zeros = unsafe { zeros.assume_init() };
    assert!(
        none.is_empty() && region.contains(&zeros.as_ptr().addr()) && zeros.iter().all(|&word| word == 0)
    );

    drop((words, lines, pages, none, zeros));
    let all = Vec::<u8, _>::with_capacity_in(250 * MIB, PagedAllocator);
    assert!(region.contains(&all.as_ptr().addr()), "all has come back");
    println!("right");
    Ok(())
}
