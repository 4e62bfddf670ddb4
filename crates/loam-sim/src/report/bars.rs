//! Groups of bars, plain or stacked.

use super::draw::{
    Anchor, Canvas, FONT_PX, Key, Plot, Swatch, colour, px, shortened, width_px, wrapped, y_axis, y_ticks,
};
use super::escape::escape;
use super::figure::{Bars, Group};
use super::ticks::{Axis, Ruler};

const LETTERS_MAX: usize = 28;
/// Colour of published values on bars of any colour.
const PUBLISHED: &str = "#D5006D";

pub(super) fn keys(bars: &Bars) -> Vec<Key> {
    let names = if bars.is_stacked() { &bars.components } else { &bars.bars };
    let key = |(index, name): (usize, &String)| Key {
        name: name.clone(),
        swatch: Swatch::Bar { index },
        toggles: index,
    };
    let mut keys: Vec<Key> = names.iter().enumerate().map(key).collect();
    if bars.has_published() {
        let swatch = Swatch::Published { colour: PUBLISHED };
        keys.push(Key { name: "published".into(), swatch, toggles: names.len() });
    }
    keys
}

pub(super) fn left_out(y: &Axis, bars: &Bars) -> usize {
    let heights = |group: &Group| group.values.iter().flatten().filter(|height| !y.shows(**height)).count();
    bars.groups.iter().map(heights).sum()
}

/// The tops of a bar's components that can be shown. What is negative grows downwards.
fn tops(y: &Axis, heights: &[f64]) -> Vec<(f64, f64)> {
    let (mut up, mut down) = (0.0, 0.0);
    let mut place = |height: &f64| {
        let height = if y.shows(*height) { *height } else { 0.0 };
        let side = if height < 0.0 { &mut down } else { &mut up };
        let from = *side;
        *side += height;
        (from, *side)
    };
    heights.iter().map(&mut place).collect()
}

pub(super) fn draw(canvas: &mut Canvas, free: Plot, y: &Axis, bars: &Bars) {
    let ends = bars.groups.iter().flat_map(|group| {
        let stacks = group.values.iter().flat_map(|heights| tops(y, heights)).map(|(_, end)| end);
        stacks.chain(group.published.iter().flatten().copied())
    });
    let span = y.span(ends);
    let named = |name: &String| width_px(&shortened(name, LETTERS_MAX), FONT_PX);
    let widest_bar = bars.bars.iter().map(named).fold(0.0, f64::max);
    let groups = bars.groups.len().max(1) as f64;

    // How wide a group is depends on the y axis, which depends on the height that the names leave: names are laid out for a guess
    // that is a little too narrow.
    let slot = (free.width() - 70.0) / groups;
    let bar = slot * 0.86 / bars.bars.len() as f64;
    let bar_names =
        if !bars.is_stacked() || widest_bar == 0.0 { Names::none() } else { Names::lay(widest_bar, bar) };
    let group_names = Names::lay_groups(bars, slot, 50.0 + slot / 2.0);
    let names = bar_names.height + group_names.height;
    let free = Plot { bottom: free.bottom - names - 6.0, ..free };
    let found = y_ticks(y, span, free);
    let (ruler, plot) = y_axis(canvas, free, y, &found);
    let slot = plot.width() / groups;
    let bar = slot * 0.86 / bars.bars.len() as f64;

    canvas.raw("<g class=\"bars\">\n");
    let series = if bars.is_stacked() { bars.components.len() } else { bars.bars.len() };
    for index in 0..series {
        canvas.raw(&format!("<g data-mark=\"{index}\">\n"));
        for (at, group) in bars.groups.iter().enumerate() {
            let left = plot.left + slot * (at as f64 + 0.07);
            one_colour(canvas, y, &ruler, bars, group, index, (left, bar));
        }
        canvas.raw("</g>\n");
    }
    published(canvas, y, &ruler, bars, series, (plot.left, slot, bar));
    canvas.raw("</g>\n");
    canvas.line("axis", (plot.left, ruler.at(0.0)), (plot.right, ruler.at(0.0)));

    for (at, group) in bars.groups.iter().enumerate() {
        let left = plot.left + slot * at as f64;
        for (index, name) in bars.bars.iter().enumerate().step_by(bar_names.every.max(1)) {
            let x = left + slot * 0.07 + bar * (index as f64 + 0.5);
            bar_names.write(canvas, x, plot.bottom, name, "soft");
        }
        if at % group_names.every.max(1) == 0 {
            group_names.write(canvas, left + slot / 2.0, plot.bottom + bar_names.height, &group.name, "");
        }
        if at > 0 && !group.name.is_empty() {
            canvas.line("grid", (left, plot.bottom), (left, plot.bottom + names));
        }
    }
}

/// All rectangles of one colour in a group.
fn one_colour(
    canvas: &mut Canvas,
    y: &Axis,
    ruler: &Ruler,
    bars: &Bars,
    group: &Group,
    index: usize,
    (left, width): (f64, f64),
) {
    for (at, heights) in group.values.iter().enumerate() {
        let component = if bars.is_stacked() { index } else { 0 };
        let Some(&(from, to)) = tops(y, heights).get(component) else { continue };
        if from == to || (!bars.is_stacked() && at != index) {
            continue;
        }
        let (low, high) = (ruler.at(from.min(to)), ruler.at(from.max(to)));
        let names = [&group.name, &bars.bars[at], &bars.components[component]];
        let names: Vec<&str> =
            names.into_iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
        let mut tip = format!("{}: {}", names.join(", "), y.unit.write(heights[component]));
        if bars.is_stacked() {
            let whole: f64 = heights.iter().filter(|height| y.shows(**height)).sum();
            tip.push_str(&format!(" of {}", y.unit.write(whole)));
        }
        canvas.raw(&format!(
            "<rect class=\"edge\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke-width=\"0.6\">\
             <title>{}</title></rect>\n",
            px(left + width * (at as f64 + 0.06)),
            px(high),
            px(width * 0.88),
            px(low - high),
            colour(index),
            escape(&tip)
        ));
    }
}

fn published(
    canvas: &mut Canvas,
    y: &Axis,
    ruler: &Ruler,
    bars: &Bars,
    series: usize,
    (left, slot, bar): (f64, f64, f64),
) {
    if !bars.has_published() {
        return;
    }
    canvas.raw(&format!("<g data-mark=\"{series}\">\n"));
    for (at, group) in bars.groups.iter().enumerate() {
        for (index, height) in group.published.iter().enumerate() {
            let Some(height) = height.filter(|height| y.shows(*height)) else { continue };
            let x = left + slot * (at as f64 + 0.07) + bar * (index as f64 + 0.5);
            let tip = format!("{}, {}: published {}", group.name, bars.bars[index], y.unit.write(height));
            canvas.diamond((x, ruler.at(height)), PUBLISHED, &tip);
        }
    }
    canvas.raw("</g>\n");
}

/// How a row of names under the axis is written: level if they fit, else turned, and thinned where even that is too much.
struct Names {
    height: f64,
    turned: i32,
    every: usize,
    /// A name has so many lines, each so wide.
    lines: usize,
    width: f64,
}

/// Height of a line.
const LINE_PX: f64 = FONT_PX + 2.0;
/// Sine and cosine of the angle at which names of groups are turned, 35°.
const SLOPE: (f64, f64) = (0.574, 0.819);

impl Names {
    fn none() -> Self {
        Self { height: 0.0, turned: 0, every: usize::MAX, lines: 1, width: 0.0 }
    }

    /// Names of bars: upright if they do not fit.
    fn lay(widest: f64, slot: f64) -> Self {
        let width = LETTERS_MAX as f64 * FONT_PX;
        if widest + 6.0 <= slot {
            return Self { height: LINE_PX + 4.0, turned: 0, every: 1, lines: 1, width };
        }
        Self { height: widest + 8.0, turned: -90, every: every(slot), lines: 1, width }
    }

    /// Names of groups: in up to three lines, level if all words fit, else turned; `room` is what the first has on its left.
    fn lay_groups(bars: &Bars, slot: f64, room: f64) -> Self {
        let names = || bars.groups.iter().map(|group| group.name.as_str());
        let words = names().flat_map(str::split_whitespace);
        let widest_word = words.map(|word| width_px(word, FONT_PX)).fold(0.0, f64::max);
        if widest_word == 0.0 {
            return Self::none();
        }
        let lines =
            |width: f64| names().map(|name| wrapped(name, width, FONT_PX, 9).len()).max().unwrap_or(1);
        let level = slot - 6.0;
        if widest_word <= level && lines(level) <= 3 {
            let lines = lines(level);
            return Self { height: LINE_PX * lines as f64 + 4.0, turned: 0, every: 1, lines, width: level };
        }
        let width = (room / SLOPE.1).max(80.0);
        let fit = (slot * SLOPE.0 / LINE_PX) as usize;
        let lines = lines(width).min(fit.clamp(1, 3));
        let widest = names().flat_map(|name| wrapped(name, width, FONT_PX, lines));
        let widest = widest.map(|line| width_px(&line, FONT_PX)).fold(0.0, f64::max);
        let height = widest * SLOPE.0 + LINE_PX * lines as f64 + 4.0;
        Self { height, turned: -35, every: every(slot), lines, width }
    }

    fn write(&self, canvas: &mut Canvas, x: f64, top: f64, name: &str, class: &str) {
        if self.every == usize::MAX {
            return;
        }
        if self.turned == -90 {
            let name = shortened(name, LETTERS_MAX);
            return canvas.text(x + 4.0, top + 5.0, Anchor::End, -90, class, &name);
        }
        let lines = wrapped(name, self.width, FONT_PX, self.lines);
        let middle = (lines.len() as f64 - 1.0) / 2.0;
        for (at, line) in lines.iter().enumerate() {
            if self.turned == 0 {
                canvas.text(x, top + 1.0 + LINE_PX * (at + 1) as f64, Anchor::Middle, 0, class, line);
            } else {
                let x = x + 4.0 + (at as f64 - middle) * LINE_PX / SLOPE.0;
                canvas.text(x, top + FONT_PX, Anchor::End, self.turned, class, line);
            }
        }
    }
}

/// Turned names are so high: every so many of them has room.
fn every(slot: f64) -> usize {
    (LINE_PX / slot.max(0.1)).ceil().max(1.0) as usize
}
