//! Numbers that look random and are a function of their index, so that whoever checks a result can make the input again without keeping it.

/// A bijection of 64-bit numbers that leaves no pattern (the finalizer of SplitMix64).
pub(crate) fn mix(index: u64) -> u64 {
    let mut z = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number of a stream: streams differ by their seed.
pub(crate) fn at(seed: u64, index: u64) -> u64 {
    mix(mix(seed) ^ index)
}

/// A number from 0 up to 1, of 53 bits.
pub(crate) fn unit(seed: u64, index: u64) -> f64 {
    (at(seed, index) >> 11) as f64 / (1_u64 << 53) as f64
}

/// A number below `limit`, by multiplication: its bias is below 2^-32.
pub(crate) fn below(seed: u64, index: u64, limit: usize) -> usize {
    assert!((1..=1 << 32).contains(&limit), "the limit has 32 bits");
    (((at(seed, index) >> 32) * limit as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_and_below_their_limit() {
        let mut counts = [0_u32; 10];
        for index in 0..10_000 {
            counts[below(1, index, 10)] += 1;
            assert!((0.0..1.0).contains(&unit(2, index)));
        }
        assert!(counts.iter().all(|&count| (900..1100).contains(&count)), "{counts:?}");
        assert_ne!(at(1, 5), at(2, 5));
    }
}
