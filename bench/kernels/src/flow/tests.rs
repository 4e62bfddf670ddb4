use super::*;
use crate::memory::Plain;
use crate::{Run, info};

#[test]
fn each_iteration_takes_its_part_of_the_error() {
    for name in ["bt", "sp"] {
        for edge in [EDGE_MIN, 23, 32] {
            for iterations in [1, 2, 5, 30] {
                let mut run = Run::new(info(name).unwrap(), edge, iterations, Plain::default());
                while run.step() {}
                let report = run.finish();
                assert!(report.passed(), "{report:#?}");
            }
        }
    }
}

/// Enough iterations take all of the error away, down to rounding: the solvers solve what the right-hand side says.
#[test]
fn iterations_converge_to_the_solution() {
    for name in ["bt", "sp"] {
        let mut run = Run::new(info(name).unwrap(), EDGE_MIN, 200, Plain::default());
        while run.step() {}
        let report = run.finish();
        assert!(report.passed(), "{report:#?}");
    }
}

#[test]
fn the_solution_has_no_right_hand_side() {
    let mut flow: Flow<Plain, ByCell> = Flow::new(&Plain::default(), 14);
    flow.fill(0.0);
    flow.compute_rhs();
    assert!((0..flow.rhs.len()).all(|at| flow.rhs.get(at).abs() < 1e-12));
    flow.fill(0.1);
    flow.compute_rhs();
    assert!((0..flow.rhs.len()).any(|at| flow.rhs.get(at).abs() > 1e-3));
}
