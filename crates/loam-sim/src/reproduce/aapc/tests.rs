use super::programs::{library_ps_per_byte, paper_path};
use super::*;
use crate::reproduce::Kind;

#[test]
fn the_printed_sizes_are_the_seven_of_section_2() {
    assert_eq!(sizes_kib(), [16, 32, 64, 128, 256, 512, 1024]);
    assert_eq!(page_sizes_kib(), [16, 128, 1024]);
}

#[test]
fn every_claim_is_looked_at_and_every_figure_drawn() {
    let experiments = Experiments::run(Extent::Small, 2, &|_, _| ()).unwrap();
    let reproduction = reproduce(&experiments);
    assert_eq!(reproduction.checks.len(), rows().iter().filter(|row| row.kind == Kind::Claim).count());
    assert!(
        rows().iter().all(|row| row.kind != Kind::Result),
        "no results are printed that could be compared"
    );
    let names: Vec<&str> = reproduction.figures.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["figure-2", "figure-5", "figure-6", "figure-7", "figure-8"]);
    let today = &reproduction.tables.iter().find(|table| table.0 == "today").unwrap().2;
    assert_eq!(today.rows().len(), 2 * 4);
}

/// What one rate of STREAM leaves for the library predicts the other rate.
#[test]
fn both_rates_of_stream_follow_from_one_cost_of_the_library() {
    for (link, published) in [(2_500, 493.0), (5_000, 613.0)] {
        let ps = 2 * paper_path(link).ps_per_byte + library_ps_per_byte();
        let mb_per_s = 1e6 / ps as f64;
        assert!((mb_per_s / published - 1.0).abs() < 0.005, "{mb_per_s} {published}");
    }
}
