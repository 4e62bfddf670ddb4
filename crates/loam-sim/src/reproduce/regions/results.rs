//! Ours beside each printed result.

use super::claims::{DOUBLED, factor};
use super::experiments::Experiments;
use super::rows;
use crate::reproduce::{Compared, Kind};

const CHILDREN: &str =
    "a key, a record and a child take 24 bytes here, so 171 fit in a page; the paper's nodes are not told";
const DOUBLED_BY: &str = "the mean of the two; a page over the paper's NBD is not told (table `figure-11` has each, and the equations)";

/// All `result` rows.
pub(super) fn results(e: &Experiments) -> Vec<Compared> {
    let of_kind = rows().into_iter().filter(|row| row.kind == Kind::Result);
    of_kind
        .map(|row| {
            let (ours, note) = match row.item.as_str() {
                "figure 9" => (e.best_children() as f64, CHILDREN),
                "figure 11" => {
                    (DOUBLED.iter().map(|&of| factor(e, of)).sum::<f64>() / DOUBLED.len() as f64, DOUBLED_BY)
                }
                item => panic!("{item}: what is ours?"),
            };
            let near = (ours / row.value.ends().0 - 1.0).abs() < 0.05;
            Compared { published: row, ours: (ours, ours), note: if near { "" } else { note } }
        })
        .collect()
}
