//! Memory that is filled and looked at, and how much of it is here: what several examples do.

use std::time::Duration;

/// Each word another number.
pub(crate) fn fill(words: &mut [u64], seed: u64) {
    words.iter_mut().zip(seed..).for_each(|(word, value)| *word = value);
}

/// They are as [`fill`] has left them.
pub(crate) fn is_right(words: &[u64], seed: u64) -> bool {
    words.iter().zip(seed..).all(|(word, value)| *word == value)
}

/// Base pages of `words` that are here.
pub(crate) fn here(words: &[u64]) -> usize {
    let mut pages = vec![0_u8; size_of_val(words) / 4096];
    // SAFETY: it fills in a byte for each page. It is asked of memory, not of its contents.
    let done =
        unsafe { libc::mincore(words.as_ptr().cast_mut().cast(), pages.len() * 4096, pages.as_mut_ptr()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    pages.iter().filter(|&&page| page & 1 == 1).count()
}

/// Until it is so.
///
/// # Panics
/// If it takes longer than twenty seconds.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not within 20 s");
}
