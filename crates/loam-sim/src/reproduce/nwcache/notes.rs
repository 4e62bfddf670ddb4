//! Why a figure of ours is far from the printed one, as far as we know.

use crate::reproduce::{Compared, Value};

/// "Far": more than so many times as much, or as little.
const FAR: f64 = 1.5;

const FITS: &str = "our data fit, or nearly, in memory and ring together, so pages are read back before a disk has written them; \
    the fewer frames are for them the less so (table `assumed`)";
const HOT: &str = "what our em3d writes to is used in every step, so LRU never lets it go";
const CHANNELS: &str = "our channels are full for less of the time";
const BURSTS: &str = "our fft swaps only some thousand pages out in all, in short bursts";
const ARM: &str =
    "our arm does reads and writes in the order in which they came; what the paper's preferred is not told";
const KEEPS_UP: &str =
    "with naive prefetching our disks keep up with the swap-outs: the channels are nearly empty";
const CLEAN: &str = "more of what our mg reads was never written";
const SHORT: &str = "a short run: with what else could be assumed it is anything from 2% slower to 41% faster (table `assumed`)";
const ALONE: &str = "a disk that seeks for most reads gives few pages to the network, so nothing is in a hit's way; \
    what was in the paper's is not told";

/// The likely cause, where it is far.
pub(super) fn note(compared: &Compared) -> &'static str {
    let (low, high) = compared.ratios();
    let near = |ratio: f64| ratio < FAR && ratio > 1.0 / FAR;
    let row = &compared.published;
    let ends = !matches!(row.value, Value::One(_));
    if near(low) && (!ends || near(high)) {
        return "";
    }
    let (name, which) = row.case.split_once(' ').unwrap_or((&row.case, ""));
    let table = row.item.split(' ').nth(1).unwrap_or("");
    match (table, name, which) {
        ("3", ..) if row.item.starts_with("figure") => FITS,
        ("4", "fft", _) if row.item.starts_with("figure") => SHORT,
        ("4", ..) if row.item.starts_with("figure") => KEEPS_UP,
        ("8", ..) => ALONE,
        ("3" | "4" | "5" | "6" | "7", "em3d", _) => HOT,
        ("3", "fft", "standard") => BURSTS,
        ("3", "lu" | "radix" | "sor", "nwcache") => CHANNELS,
        ("3", _, "nwcache") => FITS,
        ("4", _, "standard") => ARM,
        ("4", _, "nwcache") => KEEPS_UP,
        ("7", "mg", "optimal") => CLEAN,
        ("7", _, "optimal") => FITS,
        ("7", "lu", "naive") => FITS,
        ("7", "fft" | "mg" | "radix" | "sor", "naive") => KEEPS_UP,
        _ => "",
    }
}
