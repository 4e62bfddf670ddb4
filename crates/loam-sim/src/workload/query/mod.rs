//! Web query server: 150 queries against the full text of a company's pages (gms-1995, section 5.3).
//!
//! The corpus is synthetic: documents of words that follow Zipf's law. Its inverted index is real: a dictionary, and for each word a list of
//! the documents with it, in files that the server maps. A query is some words; the server looks them up, intersects their lists by going along all of
//! them, ranks the documents found, and shows the heads of the ten best.

mod evaluate;
mod index;
#[cfg(test)]
mod tests;

use super::recorder::Recorder;
use super::{Footprint, Reference, WorkFile, Workload};
use crate::fuzz::dice::Dice;
use crate::replay::Zipf;
use evaluate::Answer;
use index::Index;
use loam_core::units::Bytes;
use std::sync::Arc;

/// What is searched.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryConfig {
    /// Documents.
    pub documents: u32,
    /// Their mean length; lengths are from a half to one and a half of it.
    pub words: u32,
    /// Different words.
    pub vocabulary: u32,
    /// Queries.
    pub queries: u32,
}

impl QueryConfig {
    /// The paper's 150 queries. How much text there was is not told. A page of 1995 has some 2 KB, 300 words; a company of 60,000 people
    /// is taken to have four pages for each of them.
    pub fn paper() -> Self {
        Self { documents: 240_000, words: 300, vocabulary: 120_000, queries: 150 }
    }

    /// For tests.
    pub fn small() -> Self {
        Self { documents: 800, words: 60, vocabulary: 2000, queries: 40 }
    }
}

/// Files by number.
const DICTIONARY: u16 = 0;
const LISTS: u16 = 1;
const DOCUMENTS: u16 = 2;
const TEXT: u16 = 3;

/// Nobody asks for the words that nearly every document has: the, and, of.
const STOP_WORDS: u32 = 30;
/// Of the others people ask for those that texts have, as often.
const ASKED_SKEW: f64 = 1.0;

/// See the module.
#[derive(Clone, Debug)]
pub struct Query {
    config: QueryConfig,
    seed: u64,
    page: Bytes,
    footprint: Footprint,
    recorder: Recorder,
    index: Arc<Index>,
    queries: Vec<Vec<u32>>,
    answers: Vec<Answer>,
}

impl Query {
    /// # Panics
    /// If there are fewer words than nobody asks for, or no documents.
    pub fn new(config: QueryConfig, page: Bytes, seed: u64) -> Self {
        assert!(config.vocabulary > 2 * STOP_WORDS && config.documents > 0, "too little text");
        let asked = script(&config, seed).into_iter().flatten().collect();
        let index = Index::new(&config, seed, &asked);
        Self::of(config, page, seed, Arc::new(index))
    }

    fn of(config: QueryConfig, page: Bytes, seed: u64, index: Arc<Index>) -> Self {
        let recorder = Recorder::new(page);
        let queries = script(&config, seed);
        let file =
            |name: &str, bytes| WorkFile { name: name.into(), pages: recorder.pages(bytes), made: false };
        let files = vec![
            file("dictionary", index.dictionary_bytes()),
            file("lists", index.list_bytes()),
            file("documents", index.document_bytes()),
            file("text", index.text_bytes()),
        ];
        let private_pages = recorder.pages(evaluate::private_bytes(&index, &queries));
        let footprint = Footprint { private_pages, files };
        Self { config, seed, page, footprint, recorder, index, queries, answers: Vec::new() }
    }
}

/// The queries: one to four different words.
fn script(config: &QueryConfig, seed: u64) -> Vec<Vec<u32>> {
    let mut dice = Dice::new(seed, 29);
    let mut asked = Zipf::new(config.vocabulary - STOP_WORDS, ASKED_SKEW, seed ^ 1 << 62);
    let mut query = |_| {
        let words = match dice.below(10) {
            0..=2 => 1,
            3..=6 => 2,
            7..=8 => 3,
            _ => 4,
        };
        let mut query = Vec::new();
        while query.len() < words {
            let word = STOP_WORDS + asked.next().expect("it is endless") as u32;
            if !query.contains(&word) {
                query.push(word);
            }
        }
        query
    };
    (0..config.queries).map(&mut query).collect()
}

impl Workload for Query {
    fn name(&self) -> &'static str {
        "query"
    }

    fn footprint(&self) -> &Footprint {
        &self.footprint
    }

    fn next_references(&mut self, into: &mut Vec<Reference>) -> bool {
        while self.recorder.len() == 0
            && let Some(query) = self.queries.get(self.answers.len())
        {
            self.answers.push(evaluate::evaluate(&self.index, query, &mut self.recorder));
        }
        self.recorder.take(into)
    }

    fn restart(&mut self) {
        *self = Self::of(self.config.clone(), self.page, self.seed, Arc::clone(&self.index));
    }

    /// Each answer is compared with one found by another way: a walk along all lists.
    fn check(&self) -> Result<Vec<String>, String> {
        if self.answers.len() < self.queries.len() {
            return Err("the run is not over".into());
        }
        let mut found = 0;
        for (query, answer) in self.queries.iter().zip(&self.answers) {
            let expected = evaluate::by_counting(&self.index, query);
            if *answer != expected {
                return Err(format!("words {query:?}: {answer:?}, expected {expected:?}"));
            }
            found += answer.found;
        }
        Ok(vec![format!("{} queries found {found} documents", self.queries.len())])
    }
}
