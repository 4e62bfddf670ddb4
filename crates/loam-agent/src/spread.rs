//! How a reservation is spread over lenders: as evenly as their room allows, so that as much as can be stays where it is if one of them is lost, and
//! all of them serve.

/// What each of `offers` gives of `total`; none gives more than it has, nor more than `most` (two copies of a page cannot be with one lender).
/// `None`: together they have less.
pub(crate) fn spread(offers: &[u64], total: u64, most: u64) -> Option<Vec<u64>> {
    let has = |at: usize| offers[at].min(most);
    let mut order: Vec<usize> = (0..offers.len()).collect();
    order.sort_by_key(|&at| has(at));
    let (mut left, mut shares) = (total, vec![0; offers.len()]);
    // Those with the least first: what they cannot give the others must.
    for (nth, &at) in order.iter().enumerate() {
        let others = (order.len() - nth) as u64;
        shares[at] = has(at).min(left.div_ceil(others));
        left -= shares[at];
    }
    (left == 0).then_some(shares)
}

/// What is missing of `total`.
pub(crate) fn missing(offers: &[u64], total: u64, most: u64) -> u64 {
    let have = offers.iter().fold(0_u64, |sum, &offer| sum.saturating_add(offer.min(most)));
    total.saturating_sub(have)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn those_with_little_give_what_they_have() {
        assert_eq!(spread(&[10, 2, 10], 12, 12), Some(vec![5, 2, 5]));
        assert_eq!(spread(&[10, 10, 10], 20, 10), Some(vec![7, 7, 6]));
        assert_eq!(spread(&[30, 5], 20, 10), None, "the second copy of five pages has no place");
        assert_eq!((spread(&[], 0, 9), spread(&[], 1, 9)), (Some(vec![]), None));
        assert_eq!((missing(&[30, 5], 20, 10), missing(&[u64::MAX, u64::MAX], 5, u64::MAX)), (5, 0));
    }

    proptest! {
        #[test]
        fn all_of_it_or_nothing_and_as_even_as_can_be(
            offers in prop::collection::vec(0..100_u64, 0..8), total in 0..300_u64, most in 0..120_u64,
        ) {
            let have: u64 = offers.iter().map(|offer| offer.min(&most)).sum();
            prop_assert_eq!(missing(&offers, total, most), total.saturating_sub(have));
            let Some(shares) = spread(&offers, total, most) else {
                prop_assert!(have < total);
                return Ok(());
            };
            prop_assert!(have >= total);
            prop_assert_eq!(shares.iter().sum::<u64>(), total);
            let largest = shares.iter().max().copied().unwrap_or(0);
            for (share, offer) in shares.iter().zip(&offers) {
                let has = *offer.min(&most);
                prop_assert!(*share <= has);
                prop_assert!(*share == has || *share + 1 >= largest, "{:?} of {:?}", shares, offers);
            }
        }
    }
}
