//! Whether numbers that were computed are right.

/// How far they are from what was expected: the norm of the differences, relative to that of what was expected. Not a
/// number if any of them is none.
///
/// # Panics
/// If there are not as many.
pub(super) fn distance(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len(), "each has its expected value");
    let off: f64 = found.iter().zip(expected).map(|(found, expected)| (found - expected).powi(2)).sum();
    let size: f64 = expected.iter().map(|expected| expected.powi(2)).sum();
    (off / size).sqrt()
}

/// A line that tells how near something is.
///
/// # Errors
/// If it is too far, or no distance at all.
pub(super) fn near(what: &str, distance: f64, most: f64) -> Result<String, String> {
    if distance <= most {
        Ok(format!("{what}: within {distance:.1e}"))
    } else {
        Err(format!("{what}: off by {distance:.1e}, more than {most:.1e}"))
    }
}

#[test]
fn a_distance_is_relative_and_none_is_not_near() {
    assert_eq!(distance(&[3.0, 4.5], &[3.0, 4.0]), 0.1);
    assert_eq!(near("it", 0.1, 0.1), Ok("it: within 1.0e-1".into()));
    assert_eq!(near("it", 0.2, 0.1), Err("it: off by 2.0e-1, more than 1.0e-1".into()));
    for (found, expected) in
        [([f64::NAN, 1.0], [0.0, 1.0]), ([0.0, 1.0], [0.0, f64::INFINITY]), ([0.0; 2], [0.0; 2])]
    {
        assert!(near("it", distance(&found, &expected), 1e9).is_err(), "{found:?}, {expected:?}");
    }
}
