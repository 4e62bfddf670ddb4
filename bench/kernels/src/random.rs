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

/// All numbers below a limit in an order that looks random, which can be asked both ways: a Feistel network of four rounds on as many bits as the
/// limit has (one more if that is odd), taken again until it is below the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    seed: u64,
    limit: u64,
    half_bits: u32,
}

/// Rounds of the network.
const ROUNDS: u64 = 4;

impl Order {
    /// # Panics
    /// If there are no numbers, or more than 2^32.
    pub(crate) fn new(seed: u64, limit: usize) -> Self {
        assert!((1..=1 << 32).contains(&limit), "the limit has 32 bits");
        let bits = 64 - (limit as u64 - 1).leading_zeros();
        Self { seed, limit: limit as u64, half_bits: bits.div_ceil(2) }
    }

    fn mixed(self, round: u64, half: u64) -> u64 {
        at(self.seed + round, half) & ((1 << self.half_bits) - 1)
    }

    /// The number at a place.
    pub(crate) fn number(self, place: usize) -> usize {
        let mut number = place as u64;
        loop {
            let (mut high, mut low) = (number >> self.half_bits, number & ((1 << self.half_bits) - 1));
            for round in 0..ROUNDS {
                (high, low) = (low, high ^ self.mixed(round, low));
            }
            number = high << self.half_bits | low;
            if number < self.limit {
                return number as usize;
            }
        }
    }

    /// Where a number is.
    pub(crate) fn place(self, number: usize) -> usize {
        let mut place = number as u64;
        loop {
            let (mut high, mut low) = (place >> self.half_bits, place & ((1 << self.half_bits) - 1));
            for round in (0..ROUNDS).rev() {
                (high, low) = (low ^ self.mixed(round, high), high);
            }
            place = high << self.half_bits | low;
            if place < self.limit {
                return place as usize;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_each_number_once_and_can_be_asked_both_ways() {
        for limit in [1, 2, 3, 64, 1000, 1 << 12] {
            let order = Order::new(7, limit);
            let mut numbers: Vec<usize> = (0..limit).map(|place| order.number(place)).collect();
            assert!(numbers.iter().enumerate().all(|(place, &number)| order.place(number) == place));
            let in_place = numbers.iter().enumerate().filter(|(place, number)| place == *number).count();
            assert!(limit < 64 || in_place < 16, "{in_place} of {limit} are where they would be anyway");
            numbers.sort_unstable();
            assert!(numbers.iter().enumerate().all(|(at, &number)| at == number));
        }
    }

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
