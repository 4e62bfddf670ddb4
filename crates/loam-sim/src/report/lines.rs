//! Lines and points.

use super::draw::{
    Anchor, Canvas, FONT_PX, Key, Plot, Swatch, colour, dash, px, shortened, width_px, y_axis, y_ticks,
};
use super::escape::escape;
use super::figure::{Join, Series};
use super::ticks::{Axis, Ruler, Ticks, ticks};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Most points of one line in the file: more than pixels across are not seen.
const POINTS_MAX: usize = 2_000;
/// Most markers of one series with a tooltip each.
const MARKERS_MAX: usize = 400;

pub(super) fn keys(series: &[Series]) -> Vec<Key> {
    let key = |(index, one): (usize, &Series)| {
        let swatch = match one.published_of {
            Some(of) => Swatch::Published { colour: colour(of) },
            None => Swatch::Line { index, joined: one.join != Join::Scatter, markers: marked(one) },
        };
        Key { name: one.name.clone(), swatch, toggles: index }
    };
    series.iter().enumerate().map(key).collect()
}

fn marked(series: &Series) -> bool {
    // A line of one point would be invisible without.
    series.join == Join::Scatter
        || series.points.len() == 1
        || (series.markers && series.points.len() <= MARKERS_MAX)
}

pub(super) fn left_out(x: &Axis, y: &Axis, series: &[Series]) -> usize {
    let shown = |point: &(f64, f64)| x.shows(point.0) && y.shows(point.1);
    series.iter().flat_map(|one| &one.points).filter(|point| !shown(point)).count()
}

pub(super) fn draw(canvas: &mut Canvas, free: Plot, x: &Axis, y: &Axis, series: &[Series]) {
    let shown: Vec<Vec<(f64, f64)>> = series
        .iter()
        .map(|one| one.points.iter().copied().filter(|point| x.shows(point.0) && y.shows(point.1)).collect())
        .collect();
    let all = || shown.iter().flatten();
    let label = if x.label.is_empty() { 0.0 } else { FONT_PX + 8.0 };
    let free = Plot { bottom: free.bottom - label - FONT_PX - 8.0, ..free };
    let found = y_ticks(y, y.span(all().map(|point| point.1)), free);
    let (y_ruler, plot) = y_axis(canvas, free, y, &found);
    let found = x_ticks(x, x.span(all().map(|point| point.0)), plot.width());
    let x_ruler = Ruler::new(x.scale, &found, plot.left, plot.right);
    x_axis(canvas, plot, x, &found, &x_ruler, label);
    canvas.raw(&format!(
        "<g class=\"plot\" data-x=\"{}\" data-y=\"{}\">\n",
        x_ruler.attribute(x.unit),
        y_ruler.attribute(y.unit)
    ));
    for (index, (one, points)) in series.iter().zip(&shown).enumerate() {
        canvas.raw(&format!("<g data-mark=\"{index}\" data-name=\"{}\">\n", escape(&one.name)));
        let place = |&(left, up): &(f64, f64)| (x_ruler.at(left), y_ruler.at(up));
        if one.join != Join::Scatter && points.len() > 1 {
            let d = path(&thinned(points).iter().map(place).collect::<Vec<_>>(), one.join == Join::Step);
            canvas.raw(&format!("<path {} d=\"{d}\"/>\n", stroke(index)));
        }
        if marked(one) {
            let mut taken = BTreeSet::new();
            for point in points {
                let (left, up) = place(point);
                // Points that fall onto one pixel are drawn once.
                if !taken.insert((left.round() as i64, up.round() as i64)) {
                    continue;
                }
                let tip = format!("{}: {} at {}", one.name, y.unit.write(point.1), x.unit.write(point.0));
                match one.published_of {
                    Some(of) => canvas.diamond((left, up), colour(of), &tip),
                    None => marker(canvas, index, (left, up), &tip),
                }
            }
        }
        canvas.raw("</g>\n");
    }
    canvas.raw("</g>\n");
}

/// As many ticks as fit beside each other.
fn x_ticks(axis: &Axis, (low, high): (f64, f64), width: f64) -> Ticks {
    let mut most = 12;
    loop {
        let found = ticks(axis, low, high, most, false);
        let widest = found.ticks.iter().map(|tick| width_px(&tick.text, FONT_PX)).fold(0.0, f64::max);
        let ruler = Ruler::new(axis.scale, &found, 0.0, width);
        let nearest = found.ticks.windows(2).map(|two| ruler.at(two[1].at) - ruler.at(two[0].at));
        if most <= 2 || nearest.fold(f64::INFINITY, f64::min) >= widest + 8.0 {
            return found;
        }
        most -= 1;
    }
}

fn x_axis(canvas: &mut Canvas, plot: Plot, axis: &Axis, found: &Ticks, ruler: &Ruler, label_px: f64) {
    for tick in &found.ticks {
        let x = ruler.at(tick.at);
        canvas.line("axis", (x, plot.bottom), (x, plot.bottom + 5.0));
        // Text at the very edge would be cut: the axis leaves 20 pixels on the right.
        let half = width_px(&tick.text, FONT_PX) / 2.0;
        let x = x.min(plot.right + 18.0 - half);
        canvas.text(x, plot.bottom + FONT_PX + 7.0, Anchor::Middle, 0, "soft", &tick.text);
    }
    canvas.line("axis", (plot.left, plot.bottom), (plot.right, plot.bottom));
    if label_px > 0.0 {
        let middle = (plot.left + plot.right) / 2.0;
        let label = shortened(&axis.label, (plot.width() / (FONT_PX * 0.6)) as usize);
        canvas.text(middle, plot.bottom + FONT_PX + 8.0 + label_px, Anchor::Middle, 0, "", &label);
    }
}

pub(super) fn stroke(index: usize) -> String {
    let dash = match dash(index) {
        "" => String::new(),
        dash => format!(" stroke-dasharray=\"{dash}\""),
    };
    format!("fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-linejoin=\"round\"{dash}", colour(index))
}

/// A marker whose form goes with its colour, so that neither alone has to tell series apart.
pub(super) fn marker(canvas: &mut Canvas, index: usize, (x, y): (f64, f64), tip: &str) {
    let (x, y, fill) = (x, y, colour(index));
    let tip = if tip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tip)) };
    let from = |dx: f64, dy: f64, rest: &str| format!("<path d=\"M{} {}{rest}z\"", px(x + dx), px(y + dy));
    let form = match index % 6 {
        0 => format!("<circle cx=\"{}\" cy=\"{}\" r=\"4\"", px(x), px(y)),
        1 => from(-3.5, -3.5, "h7v7h-7"),
        2 => from(0.0, -4.5, "l4.5 8h-9"),
        3 => from(0.0, 4.5, "l4.5 -8h-9"),
        4 => from(0.0, -5.0, "l5 5l-5 5l-5 -5"),
        _ => from(-1.5, -4.5, "h3v3h3v3h-3v3h-3v-3h-3v-3h3"),
    };
    canvas.raw(&format!("{form} fill=\"{fill}\">{tip}"));
    canvas.raw(if form.starts_with("<circle") { "</circle>\n" } else { "</path>\n" });
}

fn path(points: &[(f64, f64)], step: bool) -> String {
    let mut d = String::new();
    for (index, &(x, y)) in points.iter().enumerate() {
        let _ = match (index, step) {
            (0, _) => write!(d, "M{} {}", px(x), px(y)),
            (_, false) => write!(d, "L{} {}", px(x), px(y)),
            (_, true) => write!(d, "H{}V{}", px(x), px(y)),
        };
    }
    d
}

/// At most [`POINTS_MAX`] points that look the same: of each run of neighbours the first, the lowest, the highest and the last.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= POINTS_MAX {
        return points.to_vec();
    }
    let run = points.len().div_ceil(POINTS_MAX / 4);
    let mut kept = Vec::with_capacity(POINTS_MAX);
    for points in points.chunks(run) {
        let by_height = |a: &usize, b: &usize| points[*a].1.total_cmp(&points[*b].1);
        let lowest = (0..points.len()).min_by(by_height).unwrap_or(0);
        let highest = (0..points.len()).max_by(by_height).unwrap_or(0);
        let of_run = BTreeSet::from([0, lowest, highest, points.len() - 1]);
        kept.extend(of_run.into_iter().map(|index| points[index]));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_ends_and_peaks() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|x| (f64::from(x), 1.0)).collect();
        points[54_321].1 = 9.0;
        points[12_345].1 = -9.0;
        let kept = thinned(&points);
        assert!(kept.len() <= POINTS_MAX, "{}", kept.len());
        assert!(kept.contains(&(54_321.0, 9.0)) && kept.contains(&(12_345.0, -9.0)));
        assert_eq!((kept[0], kept[kept.len() - 1]), (points[0], points[99_999]));
        assert!(kept.windows(2).all(|two| two[0].0 < two[1].0), "out of order");
        assert_eq!(thinned(&points[..2_000]), &points[..2_000]);
    }

    #[test]
    fn steps_hold_their_value() {
        assert_eq!(path(&[(0.0, 1.0), (2.0, 3.5)], true), "M0 1H2V3.5");
        assert_eq!(path(&[(0.0, 1.0), (2.0, 3.5)], false), "M0 1L2 3.5");
    }
}
