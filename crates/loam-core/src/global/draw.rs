//! Drawing by chance, from a seed: the stream is the same everywhere and for ever.

/// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[derive(Clone, Debug)]
pub(super) struct Draw(u64);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, each as likely as any other to within one in 2^64.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing to draw from");
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        // The first values of seed 1234567, as the reference implementation prints them.
        let mut draw = Draw::new(1_234_567);
        assert_eq!(draw.next(), 6_457_827_717_110_365_317);
        assert_eq!(draw.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn draws_stay_below_and_reach_everything() {
        let mut draw = Draw::new(7);
        let mut seen = [0u32; 5];
        (0..5_000).for_each(|_| seen[draw.below(5) as usize] += 1);
        assert!(seen.iter().all(|&count| (900..1_100).contains(&count)), "{seen:?}");
    }
}
