//! The corpus and its inverted index, as files.

use super::QueryConfig;
use crate::fuzz::dice::Dice;
use crate::replay::Zipf;
use std::collections::{BTreeMap, BTreeSet};

/// Popularity of words in texts: Zipf's law itself.
const TEXT_SKEW: f64 = 1.0;
/// An entry of the dictionary: the word, its list's place and length.
pub(super) const WORD_BYTES: u64 = 32;
/// An entry of a list: document and count, and the word's places in the document.
const POSTING_BYTES: u64 = 8;
const OCCURRENCE_BYTES: u64 = 2;
/// What is known of a document: address, title, place of its text.
pub(super) const DOCUMENT_BYTES: u64 = 128;
/// A word of text with its share of spaces and markup.
const TEXT_BYTES_PER_WORD: u64 = 7;

/// A document with a word, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Posting {
    pub document: u32,
    pub count: u32,
    /// Where its entry is in the list, in bytes.
    begin: u32,
}

impl Posting {
    /// Of its entry.
    pub(super) fn bytes(self) -> u64 {
        POSTING_BYTES + u64::from(self.count) * OCCURRENCE_BYTES
    }
}

/// See the module. Words are numbered by popularity, from 0.
#[derive(Debug)]
pub(super) struct Index {
    /// Of the words that are asked for; of the others only the size matters.
    lists: BTreeMap<u32, Vec<Posting>>,
    /// In the alphabet's order, which has nothing to do with popularity: each word's place, and its list's begin.
    places: Vec<u32>,
    begins: Vec<u64>,
    list_bytes: u64,
    /// Each document's text begins here.
    texts: Vec<u64>,
    text_bytes: u64,
}

/// The words of all documents, one document after the other.
pub(super) fn documents(config: &QueryConfig, seed: u64) -> impl Iterator<Item = Vec<u32>> {
    let mut dice = Dice::new(seed, 31);
    let mut words = Zipf::new(config.vocabulary, TEXT_SKEW, seed);
    let mean = u64::from(config.words);
    (0..config.documents).map(move |_| {
        let length = dice.between(mean / 2, mean * 3 / 2).max(1) as usize;
        words.by_ref().take(length).map(|word| word as u32).collect()
    })
}

impl Index {
    /// `asked`: words whose lists will be read.
    pub(super) fn new(config: &QueryConfig, seed: u64, asked: &BTreeSet<u32>) -> Self {
        let vocabulary = config.vocabulary as usize;
        let mut lists: BTreeMap<u32, Vec<Posting>> = asked.iter().map(|&word| (word, Vec::new())).collect();
        let mut sizes = vec![0_u32; vocabulary];
        let is_asked: Vec<bool> = (0..config.vocabulary).map(|word| asked.contains(&word)).collect();
        let (mut texts, mut text_bytes) = (Vec::new(), 0);
        for (document, mut words) in (0..).zip(documents(config, seed)) {
            texts.push(text_bytes);
            text_bytes += words.len() as u64 * TEXT_BYTES_PER_WORD;
            words.sort_unstable();
            for same in words.chunk_by(|a, b| a == b) {
                let (word, count) = (same[0], same.len() as u32);
                let posting = Posting { document, count, begin: sizes[word as usize] };
                sizes[word as usize] += posting.bytes() as u32;
                if is_asked[word as usize] {
                    lists.get_mut(&word).expect("each has a list").push(posting);
                }
            }
        }
        let mut dice = Dice::new(seed, 37);
        let mut alphabet: Vec<u32> = (0..config.vocabulary).collect();
        for at in (1..vocabulary).rev() {
            alphabet.swap(at, dice.below(at as u64 + 1) as usize);
        }
        let (mut places, mut begins, mut list_bytes) = (vec![0; vocabulary], vec![0; vocabulary], 0);
        for (place, word) in (0..).zip(alphabet) {
            places[word as usize] = place;
            begins[word as usize] = list_bytes;
            list_bytes += u64::from(sizes[word as usize]);
        }
        Self { lists, places, begins, list_bytes, texts, text_bytes }
    }

    /// # Panics
    /// If the word is none of those that are asked for.
    pub(super) fn list(&self, word: u32) -> &[Posting] {
        &self.lists[&word]
    }

    /// A word's place in the dictionary.
    pub(super) fn place(&self, word: u32) -> u32 {
        self.places[word as usize]
    }

    pub(super) fn words(&self) -> u32 {
        self.places.len() as u32
    }

    pub(super) fn documents(&self) -> u32 {
        self.texts.len() as u32
    }

    /// Where an entry of a word's list is in the file.
    pub(super) fn offset(&self, word: u32, posting: Posting) -> u64 {
        self.begins[word as usize] + u64::from(posting.begin)
    }

    /// Where a document's text is, and how long.
    pub(super) fn text(&self, document: u32) -> (u64, u64) {
        let begin = self.texts[document as usize];
        let end = self.texts.get(document as usize + 1).copied().unwrap_or(self.text_bytes);
        (begin, end - begin)
    }

    pub(super) fn dictionary_bytes(&self) -> u64 {
        u64::from(self.words()) * WORD_BYTES
    }

    pub(super) fn list_bytes(&self) -> u64 {
        self.list_bytes
    }

    pub(super) fn document_bytes(&self) -> u64 {
        u64::from(self.documents()) * DOCUMENT_BYTES
    }

    pub(super) fn text_bytes(&self) -> u64 {
        self.text_bytes
    }
}
