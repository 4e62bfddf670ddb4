//! One whole and its parts: a bar across the page, and what each part means in words.

use super::Html;
use super::draw::colour;
use super::escape::escape;
use std::fmt::Write;

/// Parts narrower than this have no number on the bar.
const LABEL_SHARE: f64 = 0.07;

/// A part of a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// What it is.
    pub name: String,
    /// How large; the unit is the caller's, the same for all.
    pub value: f64,
    /// The same with its unit, for people.
    pub text: String,
    /// What it means, in a sentence or two.
    pub words: String,
}

impl Html {
    /// A bar that is cut into `parts`, and a line for each of them. What is not a number above zero takes no room.
    pub fn shares(&mut self, name: &str, parts: &[Share]) {
        let size = |part: &Share| if part.value.is_finite() { part.value.max(0.0) } else { 0.0 };
        let whole: f64 = parts.iter().map(size).sum();
        let of_whole = |part: &Share| if whole > 0.0 { size(part) / whole } else { 0.0 };
        let _ = writeln!(self.body, "<div class=\"shares\" role=\"img\" aria-label=\"{}\">", escape(name));
        for (index, part) in parts.iter().enumerate().filter(|(_, part)| of_whole(part) > 0.0) {
            let share = of_whole(part);
            let label = if share >= LABEL_SHARE { percent(share) } else { String::new() };
            let _ = writeln!(
                self.body,
                "<span style=\"width:{:.3}%;background:{};color:{}\" title=\"{}: {} ({})\">{label}</span>",
                100.0 * share,
                colour(index),
                ink(index),
                escape(&part.name),
                escape(&part.text),
                percent(share)
            );
        }
        self.body.push_str("</div>\n<ul class=\"parts\">\n");
        for (index, part) in parts.iter().enumerate() {
            let _ = writeln!(
                self.body,
                "<li><span class=\"swatch\" style=\"background:{}\"></span><b>{}</b> {} ({}). {}</li>",
                colour(index),
                escape(&part.name),
                escape(&part.text),
                percent(of_whole(part)),
                escape(&part.words)
            );
        }
        self.body.push_str("</ul>\n");
    }
}

fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent {
        _ if percent > 0.0 && percent < 0.1 => "under 0.1%".into(),
        _ if percent > 0.0 && percent < 10.0 => format!("{percent:.1}%"),
        _ => format!("{percent:.0}%"),
    }
}

/// Text that reads well on the colour of that index.
fn ink(index: usize) -> &'static str {
    let channel = |at: usize| u32::from_str_radix(&colour(index)[at..at + 2], 16).expect("#RRGGBB");
    // The usual weights of red, green and blue in brightness.
    let brightness = 299 * channel(1) + 587 * channel(3) + 114 * channel(5);
    if brightness > 140_000 { "#111" } else { "#fff" }
}
