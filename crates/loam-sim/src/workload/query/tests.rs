use super::*;
use crate::workload::tests::run_whole;

/// Compared with a scan of every document, without any index.
#[test]
fn answers_are_those_of_a_scan() {
    let config = QueryConfig::small();
    let mut server = Query::new(config.clone(), Bytes(8192), 3);
    run_whole(&mut server);
    let texts: Vec<Vec<u32>> = index::documents(&config, 3).collect();
    let mut some = 0;
    for (query, answer) in server.queries.iter().zip(&server.answers) {
        let found: Vec<usize> = (0..texts.len())
            .filter(|&document| query.iter().all(|word| texts[document].contains(word)))
            .collect();
        assert_eq!(answer.found, found.len(), "{query:?}");
        assert!(answer.best.iter().all(|&(document, _)| found.contains(&(document as usize))));
        assert_eq!(answer.best.len(), found.len().min(10));
        assert!(answer.best.windows(2).all(|pair| pair[0].1 >= pair[1].1), "the best first");
        some += usize::from(query.len() > 1 && !found.is_empty());
    }
    assert!(some > 3, "queries of several words find something");
}

#[test]
fn a_wrong_answer_is_told() {
    let mut server = Query::new(QueryConfig::small(), Bytes(8192), 3);
    assert!(server.check().is_err(), "it has not run");
    run_whole(&mut server);
    server.answers[7].found += 1;
    assert!(server.check().expect_err("a count").contains("expected"));
}

#[test]
fn words_that_nearly_all_documents_have_are_not_asked_for() {
    let queries = script(&QueryConfig::paper(), 1);
    assert_eq!(queries.len(), 150);
    assert!(queries.iter().flatten().all(|&word| (STOP_WORDS..120_000).contains(&word)));
}
