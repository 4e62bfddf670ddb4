//! Radix: sorting of 320 K integer keys, radix 1024 (nwcache-1999, table 2).
//!
//! The algorithm is that of SPLASH-2's Radix (Woo and others, ISCA 1995, section 3; Blelloch and others, *A
//! comparison of sorting algorithms for the Connection Machine CM-2*, 1991): a pass for each digit, the last one
//! first. In a pass each processor counts the digits of its share of the keys | the counts become ranks by sums over
//! processors, digit by digit | each processor sends its keys, in order, to their places in the other array. A
//! barrier follows each. Keys are below 2^19 and means of four random numbers, SPLASH-2's defaults, so there are two
//! passes. (SPLASH-2 adds the counts up along a tree of pairs of processors, which needs a power of two of them. Here
//! each adds up its share of the digits over all processors, as in the older program.)
//!
//! Keys are 4 bytes: two arrays of them are 2.62 MB, table 2's 2.6; counts are 4 KB a processor and 4 KB of sums. The
//! counts of a processor while it counts, and its ranks while it sends, are its own and not shared memory. Keys are
//! read some at a time, a cache line's, between which those of before are written one by one.

use super::memory::{Recorder, Shared, Space};
use super::program::{Algorithm, share, uniform};
use crate::fuzz::dice::Dice;
use crate::workload::Scale;

/// Keys that are read at a time: 32 bytes.
const LINE_KEYS: usize = 8;
/// A key counted: load, shift, and; address of the count (shift, add), load, increment, store; the next key's
/// address, the loop's branch.
const COUNT_INSTRUCTIONS: usize = 10;
/// A count made a rank: loads of it and of the sum, store of the sum as rank, add, store of the sum, two addresses,
/// the loop's branch.
const RANK_INSTRUCTIONS: usize = 8;
/// A digit's sum stored: load, store, two addresses, the loop's branch.
const SUM_INSTRUCTIONS: usize = 5;
/// A digit's first place: loads of its sum and of the processor's rank, add, store, add to the running sum, three
/// addresses, the loop's branch.
const FIRST_INSTRUCTIONS: usize = 9;
/// A key sent: as counted, and the address of its place (shift, add), and its store.
const SEND_INSTRUCTIONS: usize = 13;

/// See the module.
pub(super) struct Radix {
    /// Of a digit.
    bits: u32,
    passes: usize,
    processors: usize,
    /// From one to the other and back.
    keys: [Shared<u32>; 2],
    /// Each processor's counts of each digit in a row, and then its ranks among equal digits.
    counts: Shared<u32>,
    /// Of all processors.
    sums: Shared<u32>,
    /// As they were.
    input: Vec<u32>,
}

impl Radix {
    fn radix(&self) -> usize {
        1 << self.bits
    }

    fn digit(&self, key: u32, pass: usize) -> usize {
        (key >> (self.bits * pass as u32)) as usize & (self.radix() - 1)
    }

    /// A processor's row of the counts.
    fn row(&self, processor: usize) -> std::ops::Range<usize> {
        processor * self.radix()..(processor + 1) * self.radix()
    }

    fn count(&mut self, pass: usize, processor: usize, recorder: &mut Recorder<'_>) {
        let own = share(self.input.len(), self.processors, processor);
        let mut counts = vec![0; self.radix()];
        for &key in recorder.read(&self.keys[pass % 2], own.clone()) {
            counts[self.digit(key, pass)] += 1;
        }
        recorder.work(own.len() * COUNT_INSTRUCTIONS);
        let row = self.row(processor);
        recorder.write(&mut self.counts, row).copy_from_slice(&counts);
        recorder.work(counts.len() * SUM_INSTRUCTIONS);
    }

    fn rank(&mut self, processor: usize, recorder: &mut Recorder<'_>) {
        let digits = share(self.radix(), self.processors, processor);
        let mut sums = vec![0; digits.len()];
        for other in 0..self.processors {
            let begin = self.row(other).start;
            let counts = recorder.update(&mut self.counts, begin + digits.start..begin + digits.end);
            for (count, sum) in counts.iter_mut().zip(&mut sums) {
                (*count, *sum) = (*sum, *sum + *count);
            }
            recorder.work(sums.len() * RANK_INSTRUCTIONS);
        }
        recorder.write(&mut self.sums, digits).copy_from_slice(&sums);
        recorder.work(sums.len() * SUM_INSTRUCTIONS);
    }

    fn send(&mut self, pass: usize, processor: usize, recorder: &mut Recorder<'_>) {
        let mut before = 0;
        let sums = recorder.read(&self.sums, 0..self.radix());
        let ranks = recorder.read(&self.counts, self.row(processor));
        let first = |(sum, rank): (&u32, &u32)| {
            before += sum;
            before - sum + rank
        };
        let mut places: Vec<u32> = sums.iter().zip(ranks).map(first).collect();
        recorder.work(places.len() * FIRST_INSTRUCTIONS);
        let own = share(self.input.len(), self.processors, processor);
        for begin in own.clone().step_by(LINE_KEYS) {
            let line = begin..own.end.min(begin + LINE_KEYS);
            let keys = recorder.read(&self.keys[pass % 2], line).to_vec();
            for key in keys {
                let digit = self.digit(key, pass);
                let place = places[digit] as usize;
                places[digit] += 1;
                recorder.write(&mut self.keys[1 - pass % 2], place..place + 1)[0] = key;
                recorder.work(SEND_INSTRUCTIONS);
            }
        }
    }
}

impl Algorithm for Radix {
    const NAME: &'static str = "radix";

    fn new(scale: Scale, processors: usize, space: &mut Space) -> Self {
        let (keys, bits, key_bits) = match scale {
            Scale::Small => (3000, 6, 11),
            Scale::Paper => (320 << 10, 10, 19),
        };
        let mut dice = Dice::new(1, 67);
        let key = |_| {
            let mean = (0..4).map(|_| uniform(&mut dice) + 1.0).sum::<f64>() / 8.0;
            (mean * f64::from(1_u32 << key_bits)) as u32
        };
        let input: Vec<u32> = (0..keys).map(key).collect();
        Self {
            bits,
            passes: 2,
            processors,
            keys: [space.array(input.clone()), space.array(vec![0; keys])],
            counts: space.array(vec![0; processors << bits]),
            sums: space.array(vec![0; 1 << bits]),
            input,
        }
    }

    /// Three for each pass.
    fn phases(&self) -> usize {
        3 * self.passes
    }

    fn run(&mut self, phase: usize, processor: usize, recorder: &mut Recorder<'_>) {
        let pass = phase / 3;
        match phase % 3 {
            0 => self.count(pass, processor, recorder),
            1 => self.rank(processor, recorder),
            _ => self.send(pass, processor, recorder),
        }
    }

    /// The keys are those of the input, in order.
    fn check(&self) -> Result<Vec<String>, String> {
        let found = self.keys[self.passes % 2].values();
        if let Some(at) = found.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(format!("keys {at} and {} are out of order", at + 1));
        }
        let mut expected = self.input.clone();
        expected.sort_unstable();
        if found != expected {
            return Err("the keys are in order, but not those of the input".into());
        }
        Ok(vec![format!("{} keys are in order, and those of the input", found.len())])
    }
}
