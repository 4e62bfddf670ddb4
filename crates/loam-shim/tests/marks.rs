//! Marks against a model that has one entry a page.

#[path = "../src/region/direct/marks.rs"]
mod marks;

use marks::Marks;
use proptest::prelude::*;
use std::ops::Range;

const PAGES: usize = 300;

fn range() -> impl Strategy<Value = Range<usize>> {
    (0..=PAGES, 0..=PAGES).prop_map(|(a, b)| a.min(b)..a.max(b))
}

proptest! {
    #[test]
    fn marks_are_those_of_the_model(steps in prop::collection::vec((range(), any::<bool>(), range()), 1..60)) {
        let mut words = vec![0; Marks::words_for(PAGES)];
        let mut marks = Marks::new(&mut words);
        let mut model = [false; PAGES];
        for (change, set, look) in steps {
            if set {
                marks.set(change.clone());
            } else {
                marks.clear(change.clone());
            }
            model[change].fill(set);
            let part = &model[look.clone()];
            prop_assert_eq!(marks.has_any(look.clone()), part.contains(&true));
            prop_assert_eq!(marks.has_all(look.clone()), !part.contains(&false));
            for marked in [true, false] {
                let first = part.iter().position(|page| *page == marked);
                let run = first.map(|first| {
                    let length = part[first..].iter().take_while(|page| **page == marked).count();
                    look.start + first..look.start + first + length
                });
                prop_assert_eq!(marks.next_run(look.clone(), marked), run);
            }
        }
    }
}
