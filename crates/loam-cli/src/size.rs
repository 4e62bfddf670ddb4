//! Sizes as people write them: `512M`, `4G`, `25%` (of this machine's memory), plain bytes.

use loam_core::units::Bytes;
use std::fmt;
use std::str::FromStr;

/// A size from the command line, before it is known which machine it is meant for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Size {
    /// So many bytes.
    Absolute(Bytes),
    /// Hundredths of a percent of the machine's memory: 2500 is 25%.
    OfMemory(u32),
}

impl Size {
    /// The size on a machine with `total` bytes of memory.
    pub(crate) fn on(self, total: Bytes) -> Bytes {
        match self {
            Self::Absolute(bytes) => bytes,
            Self::OfMemory(hundredths) => {
                let bytes = u128::from(total.0) * u128::from(hundredths) / 10_000;
                Bytes(u64::try_from(bytes).expect("a part of a u64 fits into a u64"))
            }
        }
    }
}

/// Why a text is not a size.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotASize(&'static str);

impl fmt::Display for NotASize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; write a size as 512M, 4G, 25% (of this machine's memory) or plain bytes", self.0)
    }
}

impl std::error::Error for NotASize {}

/// Splits `12.5` into 12 and 5000 ten-thousandths. More than four decimals are refused, not rounded.
fn decimal(text: &str) -> Result<(u64, u64), NotASize> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return Err(NotASize("not a number"));
    }
    if fraction.len() > 4 {
        return Err(NotASize("too many decimals"));
    }
    let whole = whole.parse().map_err(|_| NotASize("too large"))?;
    let padded: u64 = format!("{fraction:0<4}").parse().map_err(|_| NotASize("not a number"))?;
    Ok((whole, padded))
}

impl FromStr for Size {
    type Err = NotASize;

    fn from_str(text: &str) -> Result<Self, NotASize> {
        let text = text.trim();
        if let Some(number) = text.strip_suffix('%') {
            let (whole, fraction) = decimal(number)?;
            if fraction % 100 > 0 {
                return Err(NotASize("a percentage has two decimals at most"));
            }
            let hundredths = whole.checked_mul(100).map(|part| part + fraction / 100);
            return match hundredths {
                Some(0) => Err(NotASize("0% is no memory")),
                Some(part @ 1..=10_000) => Ok(Self::OfMemory(part as u32)),
                _ => Err(NotASize("more than 100%")),
            };
        }
        let split = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let shift = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(NotASize("unknown unit")),
        };
        let (whole, fraction) = decimal(number)?;
        if shift == 0 && fraction > 0 {
            return Err(NotASize("there is no part of a byte"));
        }
        // What a larger unit leaves of a byte, as 1.1G does, is not missed.
        let scale = 1_u128 << shift;
        let bytes = u128::from(whole) * scale + u128::from(fraction) * scale / 10_000;
        match u64::try_from(bytes) {
            Ok(0) => Err(NotASize("0 is no memory")),
            Ok(bytes) => Ok(Self::Absolute(Bytes(bytes))),
            Err(_) => Err(NotASize("too large")),
        }
    }
}

/// `NxSIZE` of `--embedded`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Embedded {
    /// How many lenders.
    pub(crate) count: u32,
    /// How much each of them lends.
    pub(crate) size: Size,
}

/// `SIZE` of `--reservable`, which may be 0.
pub(crate) fn or_nothing(text: &str) -> Result<Size, NotASize> {
    if text.trim() == "0" { Ok(Size::Absolute(Bytes(0))) } else { text.parse() }
}

/// `--reserve[=SIZE]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reserve {
    /// As much as the region.
    Region,
    /// So much.
    Size(Size),
}

impl FromStr for Reserve {
    type Err = NotASize;

    fn from_str(text: &str) -> Result<Self, NotASize> {
        if text == "region" { Ok(Self::Region) } else { text.parse().map(Self::Size) }
    }
}

/// `SIZE[:paged|:direct]` of `--region`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Region {
    /// How much address space, or memory.
    pub(crate) size: Size,
    /// Of this machine's node's memory; else what is there comes and goes by faults.
    pub(crate) is_direct: bool,
}

impl FromStr for Region {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (size, kind) = text.split_once(':').unwrap_or((text, "paged"));
        let is_direct = match kind {
            "paged" => false,
            "direct" => true,
            _ => {
                return Err(format!("there is no such kind of region: write {size}:paged, or {size}:direct"));
            }
        };
        let size = size.parse().map_err(|error: NotASize| error.to_string())?;
        Ok(Self { size, is_direct })
    }
}

/// Most lenders that one run may start by itself.
const EMBEDDED_MAX: u32 = 64;

impl FromStr for Embedded {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (count, size) = text
            .split_once(['x', 'X', '*'])
            .ok_or_else(|| "write a count and a size, such as 3x1G".to_string())?;
        let count: u32 =
            count.trim().parse().map_err(|_| "the count before the x is not a number".to_string())?;
        if !(1..=EMBEDDED_MAX).contains(&count) {
            return Err(format!("from 1 to {EMBEDDED_MAX} lenders can be started"));
        }
        let size = size.parse().map_err(|error: NotASize| error.to_string())?;
        Ok(Self { count, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> u64 {
        text.parse::<Size>().expect(text).on(Bytes(8 << 30)).0
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(bytes("4096"), 4096);
        assert_eq!(bytes("64K"), 65_536);
        assert_eq!(bytes("512M"), 512 << 20);
        assert_eq!(bytes("4g"), 4 << 30);
        assert_eq!(bytes("1.5GiB"), 3 << 29);
        assert_eq!(bytes("2T"), 2 << 40);
        assert_eq!(bytes("25%"), 2 << 30);
        assert_eq!(bytes("12.5%"), 1 << 30);
        assert_eq!(bytes("100%"), 8 << 30);
        assert_eq!("0.5100%".parse(), Ok(Size::OfMemory(51)));
        assert_eq!([bytes("7.0"), bytes("1.1K")], [7, 1126]);
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "G",
            "lots",
            "-1G",
            "1X",
            "0",
            "0M",
            "0%",
            "101%",
            "1.23456G",
            "1.5",
            "4096.5B",
            "0.001%",
            "12.345%",
            "1e9",
            "1 2",
            "99999999999999T",
            "١G",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text:?} passed");
        }
    }

    #[test]
    fn a_region_is_paged_or_direct() {
        let region = |text: &str| text.parse::<Region>();
        let size = |text: &str| region(text).expect(text).size.on(Bytes(8 << 30)).0;
        assert_eq!([size("4G"), size("512M:paged"), size("50%")], [4 << 30, 512 << 20, 4 << 30]);
        let is_direct = |text: &str| region(text).expect(text).is_direct;
        assert_eq!([is_direct("4G"), is_direct("4G:paged"), is_direct("4G:direct")], [false, false, true]);
        assert!(region("4G:cxl").expect_err("refused").contains("4G:direct"));
        for text in ["", ":paged", "4G:", "4G:paged:paged", "4G:cxl", "0", "lots:paged"] {
            assert!(region(text).is_err(), "{text:?} passed");
        }
    }

    #[test]
    fn embedded_lenders_are_a_count_and_a_size() {
        let three: Embedded = "3x1G".parse().expect("a count and a size");
        assert_eq!((three.count, three.size.on(Bytes(0))), (3, Bytes(1 << 30)));
        for text in ["3", "x1G", "0x1G", "65x1G", "3x", "3x0"] {
            assert!(text.parse::<Embedded>().is_err(), "{text:?} passed");
        }
    }
}
