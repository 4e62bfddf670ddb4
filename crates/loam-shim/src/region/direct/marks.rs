//! Which pages of the region may hold something: one bit a page. What is not marked is zeros, or has no memory.

use core::ops::Range;

/// Pages of one word.
const WORD: usize = u64::BITS as usize;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Marks<'a> {
    words: &'a mut [u64],
}

impl<'a> Marks<'a> {
    /// Words for so many pages.
    pub(crate) const fn words_for(pages: usize) -> usize {
        pages.div_ceil(WORD)
    }

    /// `words` are zeros: nothing is marked.
    pub(crate) fn new(words: &'a mut [u64]) -> Self {
        Self { words }
    }

    /// The words that a range touches, each with the bits of it.
    fn words(range: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
        let end = if range.is_empty() { 0 } else { range.end.div_ceil(WORD) };
        (range.start / WORD..end).map(move |word| {
            let from = range.start.saturating_sub(word * WORD);
            let to = (range.end - word * WORD).min(WORD);
            (word, (u64::MAX >> (WORD - (to - from))) << from)
        })
    }

    pub(crate) fn set(&mut self, range: Range<usize>) {
        Self::words(range).for_each(|(word, bits)| self.words[word] |= bits);
    }

    pub(crate) fn clear(&mut self, range: Range<usize>) {
        Self::words(range).for_each(|(word, bits)| self.words[word] &= !bits);
    }

    pub(crate) fn has_any(&self, range: Range<usize>) -> bool {
        Self::words(range).any(|(word, bits)| self.words[word] & bits != 0)
    }

    pub(crate) fn has_all(&self, range: Range<usize>) -> bool {
        Self::words(range).all(|(word, bits)| self.words[word] & bits == bits)
    }

    /// The first run of pages in `range` that are marked, or are not.
    pub(crate) fn next_run(&self, range: Range<usize>, marked: bool) -> Option<Range<usize>> {
        let first = self.next(range.clone(), marked)?;
        let end = self.next(first..range.end, !marked).unwrap_or(range.end);
        Some(first..end)
    }

    /// The first page in `range` that is marked, or is not.
    fn next(&self, range: Range<usize>, marked: bool) -> Option<usize> {
        Self::words(range).find_map(|(word, bits)| {
            let found = if marked { self.words[word] } else { !self.words[word] } & bits;
            (found != 0).then(|| word * WORD + found.trailing_zeros() as usize)
        })
    }
}
