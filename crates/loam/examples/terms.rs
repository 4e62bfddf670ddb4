//! Memory on terms of its own: the size of its pages, its fetch plan, how much of it stays here. The end-to-end tests run it (tests/tests/library.rs).
//!
//!     terms budget [FLAG...]     one array has a budget of its own, and another one stays
//!     terms pages [FLAG...]      faults over the same in pages of 64 KiB, by two plans, and of 4 KiB

mod words;

use loam::paged::{self, Advice, Options, PagedError, PagedVec, Plan, Terms};
use words::{fill, here, is_right, wait_until};

const MIB: usize = 1 << 20;
/// Words of a base page.
const PAGE: usize = 512;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn connect(flags: &[String]) -> Result<(), PagedError> {
    paged::connect(&Options::new((64 * MIB) as u64, (256 * MIB) as u64).flags(flags))
}

fn filled(mib: usize, seed: u64) -> Result<PagedVec<u64>, PagedError> {
    let mut words = PagedVec::<u64>::zeroed(mib * MIB / 8)?;
    fill(&mut words, seed);
    Ok(words)
}

/// One of the agent's figures.
fn faults() -> Result<u64, Box<dyn std::error::Error>> {
    let all = paged::statistics()?;
    let of = all.split_once("\"faults\":").ok_or("no such group")?.1;
    let number = of.split_once("\"total\":").ok_or("no such figure")?.1;
    Ok(number.trim_start().split(|c: char| !c.is_ascii_digit()).next().ok_or("no number")?.parse()?)
}

/// A sixteenth of what there is room for, in a program that has room for all of it.
fn budget(flags: &[String]) -> Outcome {
    assert!(matches!(paged::set_terms(&[0_u8; 64], &Terms::new()), Err(PagedError::NotConnected)));
    connect(flags)?;
    let kept = filled(16, 1)?;
    let mut capped = filled(24, 2)?;
    assert_eq!((here(&kept), here(&capped)), (4096, 6144), "there is room for all");
    paged::set_terms(&capped, &Terms::new().local(4 * MIB as u64))?;
    wait_until("what is here already leaves", || here(&capped) <= 1024);
    // With what is leaving, of which there are three commands at most, and what has been fetched ahead.
    for turn in 0..3 {
        assert!(is_right(&capped, 2 + turn), "turn {turn}");
        for (number, part) in capped.chunks_mut(MIB / 8).enumerate() {
            fill(part, 3 + turn + (number * MIB / 8) as u64);
        }
        let now = here(&capped);
        assert!(now <= 1024 + 768 + 64, "turn {turn}: {now} of 1024");
        wait_until("it comes to rest", || here(&capped) <= 1024);
        assert!(here(&capped) >= 768, "turn {turn}: {} of 1024", here(&capped));
    }
    assert_eq!(here(&kept), 4096, "nothing gives way for it");
    assert!(is_right(&kept, 1) && is_right(&capped, 5));
    // Taken back, all of it has room.
    paged::set_terms(&capped, &Terms::new())?;
    assert!(is_right(&capped, 5));
    assert_eq!(here(&capped), 6144);
    // More budgets than there may be are told, and what is freed takes its own with it.
    let small = filled(1, 6)?;
    for number in 0..64 {
        paged::set_terms(&small[number * 2 * PAGE..][..PAGE], &Terms::new().local(1))?;
    }
    let more = || paged::set_terms(&kept, &Terms::new().local(MIB as u64));
    assert!(matches!(more(), Err(PagedError::TooManyBudgets)));
    assert!(is_right(&small, 6));
    drop(small);
    more()?;
    println!("right");
    Ok(())
}

/// Faults of a pass over `words`, all of which is away and used in no order.
fn faults_over(words: &[u64], terms: &Terms) -> Result<u64, Box<dyn std::error::Error>> {
    paged::advise(words, Advice::WillNotNeed)?;
    wait_until("it leaves", || here(words) == 0);
    paged::advise(words, Advice::Random)?;
    paged::set_terms(words, terms)?;
    let before = faults()?;
    std::hint::black_box(words.iter().step_by(PAGE).fold(0, |sum, &word| sum ^ word));
    assert_eq!(here(words), words.len() / PAGE);
    Ok(faults()? - before)
}

fn pages(flags: &[String]) -> Outcome {
    connect(flags)?;
    // More than there is room for, so that it is borrowed for.
    let words = filled(96, 7)?;
    assert!(matches!(
        paged::set_terms(&words, &Terms::new().page_size(5000)),
        Err(PagedError::PageSize { bytes: 5000 })
    ));
    // Eight MiB, which begin and end with a page of 1 MiB.
    let at = words.as_ptr().addr().next_multiple_of(MIB) - words.as_ptr().addr();
    let part = &words[at / 8..][..8 * MIB / 8];
    let large = Terms::new().page_size(64 << 10);
    let full = faults_over(part, &large.clone().plan(Plan::Full))?;
    let lazy = faults_over(part, &large.plan(Plan::Lazy))?;
    let small = faults_over(part, &Terms::new().page_size(4096))?;
    assert!(is_right(&words, 7));
    println!("right, {full} {lazy} {small}");
    Ok(())
}

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first().map(|(what, flags)| (what.as_str(), flags)) {
        Some(("budget", flags)) => budget(flags),
        Some(("pages", flags)) => pages(flags),
        _ => Err("budget or pages".into()),
    }
}
