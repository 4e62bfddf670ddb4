//! Why a figure of ours is far from the printed one, where it is.

use crate::reproduce::Compared;

/// "Far": more than so many times as much, or as little.
const FAR: f64 = 1.5;

/// The likely cause.
pub(super) fn note(compared: &Compared) -> &'static str {
    let (ratio, _) = compared.ratios();
    if ratio < FAR && ratio > 1.0 / FAR {
        return "";
    }
    match compared.published.item.as_str() {
        _ => "",
    }
}
