//! The table of the latest different grains, and how a grain is told with it.

/// Entries. More of them find more grains and yet make larger files: the places get less regular, and zstd
/// finds less. Measured on a compiler, a linker and a debugger with 16 to 120: 32 is best or within 2% of it.
pub(super) const ENTRIES: usize = 32;
/// A grain so near to an entry is told by its distance from it.
pub(super) const NEAR_MAX: u64 = 32;
/// Place of a grain that is near no entry.
pub(super) const FAR: u8 = 2 * ENTRIES as u8;

/// The latest different grains, the latest first. Both sides begin with zeros.
#[derive(Debug)]
pub(super) struct Recent {
    grains: [u64; ENTRIES],
}

/// How a grain is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// By the entry that holds it.
    Known(usize),
    /// By an entry near it and the distance.
    Near(usize, u64),
    /// By the distance from the first entry.
    Far(u64),
}

impl Recent {
    pub(super) fn new() -> Self {
        Self { grains: [0; ENTRIES] }
    }

    /// How to tell this grain.
    pub(super) fn tell(&self, grain: u64) -> Told {
        let place = |found: &dyn Fn(u64) -> bool| self.grains.iter().position(|&entry| found(entry));
        if let Some(place) = place(&|entry| entry == grain) {
            return Told::Known(place);
        }
        let near = place(&|entry| entry.abs_diff(grain) <= NEAR_MAX);
        match near {
            Some(place) => Told::Near(place, distance(self.grains[place], grain)),
            None => Told::Far(distance(self.grains[0], grain)),
        }
    }

    /// The grain that was told so.
    #[inline]
    pub(super) fn told(&self, told: Told) -> u64 {
        match told {
            Told::Known(place) => self.grains[place],
            Told::Near(place, distance) => moved(self.grains[place], distance),
            Told::Far(distance) => moved(self.grains[0], distance),
        }
    }

    /// Moves the grain to the front: from its entry, or over the last one.
    #[inline]
    pub(super) fn front(&mut self, told: Told, grain: u64) {
        let place = match told {
            Told::Known(place) => place,
            Told::Near(..) | Told::Far(_) => ENTRIES - 1,
        };
        // Mostly a handful of entries: a loop is faster than a call of memmove.
        if place < 8 {
            let mut carried = grain;
            for entry in &mut self.grains[..=place] {
                std::mem::swap(entry, &mut carried);
            }
        } else {
            self.grains.copy_within(..place, 1);
            self.grains[0] = grain;
        }
    }
}

/// From one grain to another, small distances of either direction as small numbers: 0, -1, 1, -2, 2.
fn distance(from: u64, to: u64) -> u64 {
    let signed = to.wrapping_sub(from).cast_signed();
    ((signed << 1) ^ (signed >> 63)).cast_unsigned()
}

/// The other end of a distance.
#[inline]
fn moved(from: u64, distance: u64) -> u64 {
    from.wrapping_add((distance >> 1) ^ 0_u64.wrapping_sub(distance & 1))
}

/// Appends a number, seven bits a byte, the lowest first; all but the last byte have the highest bit.
pub(super) fn put_number(into: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// Takes a number off the front. None: the bytes end in it, or it is larger than 64 bits.
#[inline]
pub(super) fn take_number(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        let bits = u64::from(byte & 0x7F);
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}
