//! The transform of some lines side by side (Stockham's, which needs no reordering).

use std::f64::consts::TAU;

/// Lines that are transformed together, as many as NPB's `fftblock`.
pub(super) const BLOCK: usize = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Complex {
    pub(super) re: f64,
    pub(super) im: f64,
}

impl Complex {
    /// exp(2 pi i turn).
    pub(super) fn turn(turn: f64) -> Self {
        let (im, re) = (TAU * turn).sin_cos();
        Self { re, im }
    }

    #[inline(always)]
    pub(super) fn plus(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }

    #[inline(always)]
    pub(super) fn minus(self, other: Self) -> Self {
        Self { re: self.re - other.re, im: self.im - other.im }
    }

    #[inline(always)]
    pub(super) fn times(self, other: Self) -> Self {
        Self { re: self.re * other.re - self.im * other.im, im: self.re * other.im + self.im * other.re }
    }

    #[inline(always)]
    pub(super) fn scaled(self, factor: f64) -> Self {
        Self { re: self.re * factor, im: self.im * factor }
    }

    pub(super) fn size(self) -> f64 {
        self.re.hypot(self.im)
    }
}

/// Roots of unity and scratch space for lines of one length.
#[derive(Clone, Debug)]
pub(super) struct Line {
    roots: Vec<Complex>,
    from: Vec<Complex>,
    to: Vec<Complex>,
}

impl Line {
    pub(super) fn new(length: usize) -> Self {
        assert!(length.is_power_of_two(), "a line's length is a power of two");
        Self {
            roots: (0..length / 2).map(|at| Complex::turn(-(at as f64) / length as f64)).collect(),
            from: vec![Complex::default(); length * BLOCK],
            to: vec![Complex::default(); length * BLOCK],
        }
    }

    /// Where the lines have to be put: element by element, [`BLOCK`] lines side by side.
    pub(super) fn scratch(&mut self) -> &mut [Complex] {
        &mut self.from
    }

    /// Transforms what is in the scratch space. The inverse is not scaled.
    pub(super) fn transform(&mut self, inverse: bool) -> &[Complex] {
        let length = self.from.len() / BLOCK;
        let (mut half, mut stride) = (length / 2, BLOCK);
        while half > 0 {
            for place in 0..half {
                let mut root = self.roots[place * (length / 2 / half)];
                if inverse {
                    root.im = -root.im;
                }
                let low = &self.from[place * stride..][..stride];
                let high = &self.from[(place + half) * stride..][..stride];
                let (sums, differences) = self.to[2 * place * stride..][..2 * stride].split_at_mut(stride);
                for at in 0..stride {
                    sums[at] = low[at].plus(high[at]);
                    differences[at] = low[at].minus(high[at]).times(root);
                }
            }
            std::mem::swap(&mut self.from, &mut self.to);
            (half, stride) = (half / 2, stride * 2);
        }
        &self.from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_transformed_as_the_sum_says_and_back() {
        for length in [1_usize, 2, 8, 64] {
            let mut line = Line::new(length);
            let value = |place: usize, of: usize| Complex {
                re: (place * place + of) as f64,
                im: of as f64 - place as f64,
            };
            for place in 0..length {
                for of in 0..BLOCK {
                    line.scratch()[place * BLOCK + of] = value(place, of);
                }
            }
            let out = line.transform(false).to_vec();
            for at in 0..length {
                let mut sum = Complex::default();
                for place in 0..length {
                    let turn = -((at * place % length) as f64) / length as f64;
                    sum = sum.plus(value(place, 3).times(Complex::turn(turn)));
                }
                assert!(sum.minus(out[at * BLOCK + 3]).size() < 1e-9 * (1.0 + sum.size()));
            }
            let back = line.transform(true);
            for place in 0..length {
                let found = back[place * BLOCK + 7].scaled(1.0 / length as f64);
                assert!(found.minus(value(place, 7)).size() < 1e-9 * (1.0 + found.size()));
            }
        }
    }
}
