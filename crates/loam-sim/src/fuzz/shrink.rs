//! Making a failure small: actions are taken out of the script for as long as it still fails in the same way (delta debugging).

use super::sim::FailureKind;

/// The smallest set of actions found that still fails as `kind`, as indexes into the script. `attempt` runs the script with these
/// actions alone; `attempts_max` bounds how often.
pub fn shrink(
    actions: usize,
    kind: FailureKind,
    attempts_max: usize,
    mut attempt: impl FnMut(&[usize]) -> Option<FailureKind>,
) -> Vec<usize> {
    let mut keep: Vec<usize> = (0..actions).collect();
    let mut attempts = 0;
    let mut piece = actions.div_ceil(2).max(1);
    loop {
        let before = keep.len();
        // From the end: what came after the failure goes at once.
        let mut end = keep.len();
        while end > 0 {
            if attempts >= attempts_max {
                return keep;
            }
            let start = end.saturating_sub(piece);
            let mut fewer = keep.clone();
            fewer.drain(start..end);
            attempts += 1;
            if attempt(&fewer) == Some(kind) {
                keep = fewer;
            }
            end = start;
        }
        if piece > 1 {
            piece = piece.div_ceil(2);
        } else if keep.len() == before {
            return keep;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_stays() {
        let needs = |keep: &[usize]| [3, 40, 77].iter().all(|n| keep.contains(n));
        let kept = shrink(100, FailureKind::Leak, 1_000, |keep| needs(keep).then_some(FailureKind::Leak));
        assert_eq!(kept, [3, 40, 77]);
    }

    #[test]
    fn another_failure_is_not_the_same() {
        let kept = shrink(10, FailureKind::Leak, 1_000, |_| Some(FailureKind::Assert));
        assert_eq!(kept.len(), 10);
    }
}
