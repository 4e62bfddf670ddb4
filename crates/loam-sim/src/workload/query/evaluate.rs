//! One query.

use super::index::{DOCUMENT_BYTES, Index, WORD_BYTES};
use super::{DICTIONARY, DOCUMENTS, LISTS, TEXT};
use crate::workload::Object;
use crate::workload::recorder::Recorder;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Documents that are shown.
const SHOWN: usize = 10;
/// What is shown of a document: the head of its text.
const HEAD_BYTES: u64 = 512;
/// A document that may be an answer, in the server's own memory: document and score.
const CANDIDATE_BYTES: u64 = 8;
/// To compare with an entry of the dictionary.
const WORD_INSTRUCTIONS: u64 = 40;
/// To go on to the next entry of a list.
const POSTING_INSTRUCTIONS: u64 = 20;
/// To score a document, and to keep the ten best.
const CANDIDATE_INSTRUCTIONS: u64 = 25;
/// To make a line of the answer.
const SHOW_INSTRUCTIONS: u64 = 4000;
/// To take a query in, and to send its answer.
const QUERY_INSTRUCTIONS: u64 = 100_000;

/// How many documents have all words, and the best of them, each with its score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub found: usize,
    pub best: Vec<(u32, u32)>,
}

/// The server's own memory: the candidates of a query, which are at most as many as the shortest of its lists.
pub(super) fn private_bytes(index: &Index, queries: &[Vec<u32>]) -> u64 {
    let candidates = |query: &Vec<u32>| query.iter().map(|&word| index.list(word).len()).min().unwrap_or(0);
    queries.iter().map(candidates).max().unwrap_or(0).max(1) as u64 * CANDIDATE_BYTES
}

/// A rare word counts more: by the power of two by which it is rarer than the documents.
fn weight(index: &Index, word: u32) -> u32 {
    (index.documents() / (index.list(word).len() as u32).max(1)).max(1).ilog2() + 1
}

pub(super) fn evaluate(index: &Index, query: &[u32], recorder: &mut Recorder) -> Answer {
    recorder.work(QUERY_INSTRUCTIONS);
    for &word in query {
        look_up(index, word, recorder);
    }
    let candidates = intersect(index, query, recorder);
    let best = best(&candidates);
    for (at, &(document, _)) in best.iter().enumerate() {
        let (begin, bytes) = index.text(document);
        recorder.work(SHOW_INSTRUCTIONS);
        recorder.private(at as u64 * CANDIDATE_BYTES, CANDIDATE_BYTES, false);
        read(recorder, DOCUMENTS, u64::from(document) * DOCUMENT_BYTES, DOCUMENT_BYTES);
        read(recorder, TEXT, begin, bytes.min(HEAD_BYTES));
    }
    Answer { found: candidates.len(), best }
}

fn read(recorder: &mut Recorder, file: u16, offset: u64, bytes: u64) {
    recorder.touch(Object::File(file), offset, bytes, false);
}

/// Bisection in the dictionary.
fn look_up(index: &Index, word: u32, recorder: &mut Recorder) {
    let wanted = index.place(word);
    let (mut low, mut high) = (0, index.words());
    while low < high {
        let middle = low.midpoint(high);
        recorder.work(WORD_INSTRUCTIONS);
        read(recorder, DICTIONARY, u64::from(middle) * WORD_BYTES, WORD_BYTES);
        if middle == wanted {
            return;
        }
        if middle < wanted { low = middle + 1 } else { high = middle }
    }
    unreachable!("the dictionary has every word that is asked for");
}

/// Goes along all lists at a time, document by document: those that have all words, each with its score.
fn intersect(index: &Index, query: &[u32], recorder: &mut Recorder) -> Vec<(u32, u32)> {
    let mut lists: Vec<_> = query
        .iter()
        .map(|&word| (word, weight(index, word), index.list(word).iter().copied().peekable()))
        .collect();
    let mut candidates = Vec::new();
    // Where the lists stand there is a document that at least one of them has; when one list is over there is nothing more to find.
    while let Some(furthest) = lists
        .iter_mut()
        .map(|(_, _, list)| list.peek().map(|posting| posting.document))
        .collect::<Option<Vec<_>>>()
        .and_then(|documents| documents.into_iter().max())
    {
        let (mut words, mut score) = (0, 0);
        for (word, weight, list) in &mut lists {
            while let Some(posting) = list.next_if(|posting| posting.document <= furthest) {
                recorder.work(POSTING_INSTRUCTIONS);
                read(recorder, LISTS, index.offset(*word, posting), posting.bytes());
                if posting.document == furthest {
                    words += 1;
                    score += posting.count * *weight;
                }
            }
        }
        if words == query.len() {
            recorder.work(CANDIDATE_INSTRUCTIONS);
            recorder.private(candidates.len() as u64 * CANDIDATE_BYTES, CANDIDATE_BYTES, true);
            candidates.push((furthest, score));
        }
    }
    candidates
}

fn best(candidates: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut all = candidates.to_vec();
    all.sort_unstable_by_key(|&(document, score)| (Reverse(score), document));
    all.truncate(SHOWN);
    all
}

/// The same answer by counting each document's words along all lists.
pub(super) fn by_counting(index: &Index, query: &[u32]) -> Answer {
    let mut scores: BTreeMap<u32, (usize, u32)> = BTreeMap::new();
    for &word in query {
        for posting in index.list(word) {
            let (words, score) = scores.entry(posting.document).or_default();
            *words += 1;
            *score += posting.count * weight(index, word);
        }
    }
    scores.retain(|_, (words, _)| *words == query.len());
    let candidates: Vec<_> = scores.into_iter().map(|(document, (_, score))| (document, score)).collect();
    Answer { found: candidates.len(), best: best(&candidates) }
}
