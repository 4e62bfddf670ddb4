//! The frame of a figure: title, legend, axes, notes; and the small tools that lines and bars draw with.

use super::escape::escape;
use super::figure::{Figure, Marks};
use super::ticks::{Axis, Ruler, Ticks, ticks};
use super::{bars, lines};
use std::fmt::Write;

/// Okabe and Ito's colours, which people who see fewer colours can tell apart too; those that read well on both white and black first.
const COLOURS: [&str; 8] =
    ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#7F7F7F", "#F0E442"];
/// Of series beyond the colours: no two of the first 32 have both in common.
const DASHES: [&str; 4] = ["", "6 3", "2 3", "8 3 2 3"];

/// Width of a letter as a part of the font's size. Fonts differ: this is on the wide side, so that text has room.
const LETTER: f64 = 0.6;
pub(super) const FONT_PX: f64 = 12.0;
const TITLE_PX: f64 = 15.0;
/// Longest name in a legend or under a bar, in letters; the tooltip has all of it.
const NAME_MAX: usize = 36;
const GAP_PX: f64 = 8.0;
/// Width of what stands before a name in the legend.
const SWATCH_PX: f64 = 24.0;

pub(super) fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

pub(super) fn dash(index: usize) -> &'static str {
    DASHES[(index / COLOURS.len()) % DASHES.len()]
}

pub(super) fn width_px(text: &str, font_px: f64) -> f64 {
    text.chars().count() as f64 * font_px * LETTER
}

/// `text`, or its beginning and an ellipsis.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// A place in pixels, to a tenth: finer is not seen and would carry the last bits of floating point into the file.
pub(super) fn px(value: f64) -> String {
    super::unit::without_zeros(format!("{value:.1}"))
}

/// How text lies around its place.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// The file in the making.
#[derive(Default)]
pub(super) struct Canvas {
    out: String,
}

impl Canvas {
    /// Adds markup that is already escaped.
    pub(super) fn raw(&mut self, markup: &str) {
        self.out.push_str(markup);
    }

    /// Text; `turned` turns it by so many degrees around its place.
    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, turned: i32, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y) = (px(x), px(y));
        let turn =
            if turned == 0 { String::new() } else { format!(" transform=\"rotate({turned} {x} {y})\"") };
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let text = escape(text);
        let _ = writeln!(
            self.out,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\"{turn}{class}>{text}</text>"
        );
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = writeln!(
            self.out,
            "<line class=\"{class}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
            px(from.0),
            px(from.1),
            px(to.0),
            px(to.1)
        );
    }

    /// Published values: a hollow diamond, the same in every figure.
    pub(super) fn diamond(&mut self, (x, y): (f64, f64), colour: &str, tip: &str) {
        let path = format!("M{} {}l6 6l-6 6l-6 -6z", px(x), px(y - 6.0));
        let tip = if tip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tip)) };
        // The wider stroke beneath keeps the diamond in sight on a bar of the same colour.
        let _ = writeln!(
            self.out,
            "<g fill=\"none\"><path class=\"edge\" stroke-width=\"4\" d=\"{path}\"/><path stroke=\"{colour}\" \
             stroke-width=\"1.8\" d=\"{path}\"/><path fill=\"#000\" fill-opacity=\"0\" d=\"{path}\">{tip}</path></g>"
        );
    }
}

/// What stands before a name in the legend.
pub(super) enum Swatch {
    Line { index: usize, joined: bool, markers: bool },
    Bar { index: usize },
    Published { colour: &'static str },
}

/// One entry of the legend; `toggles` is the mark group that a click hides.
pub(super) struct Key {
    pub(super) name: String,
    pub(super) swatch: Swatch,
    pub(super) toggles: usize,
}

/// The rectangle between the axes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plot {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Plot {
    pub(super) fn width(&self) -> f64 {
        self.right - self.left
    }
}

/// Draws `figure`.
pub(super) fn svg(figure: &Figure) -> String {
    let mut canvas = Canvas::default();
    let (width, height) = (f64::from(figure.width), f64::from(figure.height));
    let title = escape(&figure.title);
    let _ = write!(
        canvas.out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"loam-fig\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" \
         role=\"img\" aria-label=\"{title}\">\n<style>\n{2}</style>\n<rect class=\"paper\" width=\"{0}\" height=\"{1}\" \
         fill=\"#fff\"/>\n",
        figure.width,
        figure.height,
        include_str!("figure.css")
    );
    let mut top = 8.0;
    for line in wrapped(&figure.title, width - 32.0, TITLE_PX, 3) {
        top += TITLE_PX + 5.0;
        let line = escape(&line);
        let x = px(width / 2.0);
        let _ = writeln!(
            canvas.out,
            "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" font-size=\"{TITLE_PX}\" font-weight=\"bold\">{line}</text>",
            px(top)
        );
    }
    let keys = match &figure.marks {
        Marks::Series { series, .. } => lines::keys(series),
        Marks::Bars(bars) => bars::keys(bars),
    };
    top = legend(&mut canvas, &keys, width, top + 6.0);

    let notes = wrapped(&notes(figure), width - 32.0, FONT_PX - 1.0, 3);
    let mut bottom = height - 8.0;
    for line in notes.iter().rev() {
        canvas.text(16.0, bottom, Anchor::Start, 0, "soft", line);
        bottom -= FONT_PX + 3.0;
    }
    let free = Plot { left: 12.0, right: width - 20.0, top: top + 16.0, bottom: bottom - 4.0 };
    match &figure.marks {
        Marks::Series { x, series } => lines::draw(&mut canvas, free, x, &figure.y, series),
        Marks::Bars(bars) => bars::draw(&mut canvas, free, &figure.y, bars),
    }
    canvas.raw("</svg>\n");
    canvas.out
}

/// The figure's own note, and how much of the data has no place in it: what is left out is said.
fn notes(figure: &Figure) -> String {
    let left_out = match &figure.marks {
        Marks::Series { x, series } => lines::left_out(x, &figure.y, series),
        Marks::Bars(bars) => bars::left_out(&figure.y, bars),
    };
    let said = match left_out {
        0 => String::new(),
        1 => "1 value that the scale cannot show is left out.".into(),
        _ => format!("{left_out} values that the scale cannot show are left out."),
    };
    format!("{} {said}", figure.note).trim().into()
}

/// `text` in at most `most` lines of at most `width` pixels.
pub(super) fn wrapped(text: &str, width: f64, font_px: f64, most: usize) -> Vec<String> {
    let letters = ((width / (font_px * LETTER)) as usize).max(8);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = shortened(word, letters);
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    if lines.len() > most {
        lines.truncate(most);
        let last = &mut lines[most - 1];
        *last = shortened(&format!("{last} …"), letters);
    }
    lines
}

/// Draws the legend below `top` in as many rows as it needs and gives where it ends. A lone entry without a name needs none.
fn legend(canvas: &mut Canvas, keys: &[Key], width: f64, top: f64) -> f64 {
    let named = keys.iter().filter(|key| !key.name.is_empty());
    let mut rows: Vec<Row> = Vec::new();
    for key in named {
        let name = shortened(&key.name, NAME_MAX);
        let width_px = SWATCH_PX + 5.0 + width_px(&name, FONT_PX) + 14.0;
        let entry = Entry { key, name, width_px };
        match rows.last_mut() {
            Some(row) if row.width_px + width_px <= width - 32.0 => {
                row.width_px += width_px;
                row.entries.push(entry);
            }
            _ => rows.push(Row { width_px, entries: vec![entry] }),
        }
    }
    let mut y = top;
    for row in rows {
        y += FONT_PX + 7.0;
        let mut x = ((width - row.width_px) / 2.0).max(16.0);
        for entry in row.entries {
            let _ = write!(canvas.out, "<g class=\"key\" data-key=\"{}\">", entry.key.toggles);
            let _ = writeln!(canvas.out, "<title>{}</title>", escape(&entry.key.name));
            swatch(canvas, &entry.key.swatch, x, y - 4.0);
            canvas.text(x + SWATCH_PX + 5.0, y, Anchor::Start, 0, "", &entry.name);
            canvas.raw("</g>\n");
            x += entry.width_px;
        }
    }
    y
}

/// A key and the room that it takes.
struct Entry<'a> {
    key: &'a Key,
    name: String,
    width_px: f64,
}

/// One row of the legend.
struct Row<'a> {
    width_px: f64,
    entries: Vec<Entry<'a>>,
}

fn swatch(canvas: &mut Canvas, swatch: &Swatch, x: f64, y: f64) {
    let width = SWATCH_PX;
    match swatch {
        Swatch::Line { index, joined, markers } => {
            if *joined {
                let stroke = lines::stroke(*index);
                let _ = writeln!(canvas.out, "<path {stroke} d=\"M{} {}h{width}\"/>", px(x), px(y));
            }
            if *markers {
                lines::marker(canvas, *index, (x + width / 2.0, y), "");
            }
        }
        Swatch::Bar { index } => {
            let _ = writeln!(
                canvas.out,
                "<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"12\" fill=\"{}\"/>",
                px(x + width - 14.0),
                px(y - 6.0),
                colour(*index)
            );
        }
        Swatch::Published { colour } => canvas.diamond((x + width / 2.0, y), colour, ""),
    }
}

/// The y axis at the left of `free`, as wide as its numbers need: its ruler, and the rectangle that it leaves.
pub(super) fn y_axis(canvas: &mut Canvas, free: Plot, axis: &Axis, found: &Ticks) -> (Ruler, Plot) {
    let numbers = found.ticks.iter().map(|tick| width_px(&tick.text, FONT_PX)).fold(0.0, f64::max);
    let label = if axis.label.is_empty() { 0.0 } else { FONT_PX + 6.0 };
    let plot = Plot { left: free.left + label + numbers + GAP_PX, ..free };
    let ruler = Ruler::new(axis.scale, found, plot.bottom, plot.top);
    for tick in &found.ticks {
        let y = ruler.at(tick.at);
        canvas.line("grid", (plot.left, y), (plot.right, y));
        canvas.text(plot.left - 6.0, y + 4.0, Anchor::End, 0, "soft", &tick.text);
    }
    let middle = (plot.top + plot.bottom) / 2.0;
    let room = ((plot.bottom - plot.top) / (FONT_PX * LETTER)) as usize;
    let label = shortened(&axis.label, room.max(8));
    canvas.text(free.left + FONT_PX - 2.0, middle, Anchor::Middle, -90, "", &label);
    (ruler, plot)
}

/// As many ticks as a y axis of this height has room for.
pub(super) fn y_ticks(axis: &Axis, (low, high): (f64, f64), free: Plot) -> Ticks {
    ticks(axis, low, high, ((free.bottom - free.top) / 38.0) as usize, true)
}
