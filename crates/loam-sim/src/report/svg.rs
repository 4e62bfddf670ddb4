//! Line charts as SVG: axes with units, ticks at round numbers, a legend. No script, no font, nothing from a network.

mod scale;

pub use scale::Scale;

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 88.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 64.0;
const LEGEND_LINE: f64 = 18.0;
/// Told apart also by those who see no red or green (Okabe, Ito, "Color universal design", 2008), and by their dashes.
const COLORS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
const DASHES: [&str; 3] = ["", "8 4", "2 3"];

/// One axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it shows, with its unit.
    pub label: String,
    /// How numbers are placed on it.
    pub scale: Scale,
}

impl Axis {
    /// An axis with this label.
    pub fn new(label: impl Into<String>, scale: Scale) -> Self {
        Self { label: label.into(), scale }
    }
}

/// One line.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Points from left to right.
    pub points: Vec<(f64, f64)>,
    /// From point to point in steps, as what it shows stays the same between them.
    pub steps: bool,
}

/// A place on the x axis that is worth a line and a word.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Where.
    pub x: f64,
    /// What.
    pub label: String,
}

/// A line chart.
#[derive(Clone, Debug)]
pub struct LineChart {
    /// Above it.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// The lines; a legend tells them apart if there are several.
    pub series: Vec<Series>,
    /// Places to point out.
    pub marks: Vec<Mark>,
}

impl LineChart {
    /// The chart as an SVG document. What cannot be shown on an axis (0 on a logarithmic one) is left out.
    pub fn to_svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = self.x.scale.over(points().map(|point| point.0).chain(self.marks.iter().map(|mark| mark.x)));
        let y = self.y.scale.over(points().map(|point| point.1));
        let place_x = |value: f64| x.place(value).map(|part| LEFT + part * (WIDTH - LEFT - RIGHT));
        let place_y =
            |value: f64| y.place(value).map(|part| HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM));
        let mut out = Document::default();
        out.frame(&self.title, &self.x.label, &self.y.label);
        for (value, label) in x.ticks() {
            if let Some(at) = place_x(value) {
                out.line((at, TOP), (at, HEIGHT - BOTTOM), "#ddd");
                out.text(at, HEIGHT - BOTTOM + 18.0, "middle", &label);
            }
        }
        for (value, label) in y.ticks() {
            if let Some(at) = place_y(value) {
                out.line((LEFT, at), (WIDTH - RIGHT, at), "#ddd");
                out.text(LEFT - 8.0, at + 4.0, "end", &label);
            }
        }
        out.line((LEFT, TOP), (LEFT, HEIGHT - BOTTOM), "#333");
        out.line((LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM), "#333");
        for (number, series) in self.series.iter().enumerate() {
            let mut path: Vec<(f64, f64)> = Vec::new();
            for &(px, py) in &series.points {
                let (Some(px), Some(py)) = (place_x(px), place_y(py)) else { continue };
                if let Some(&(_, before)) = path.last().filter(|_| series.steps) {
                    path.push((px, before));
                }
                path.push((px, py));
            }
            out.path(&thinned(&path), number);
            if self.series.len() > 1 {
                out.legend(number, &series.name);
            }
        }
        for mark in &self.marks {
            if let Some(at) = place_x(mark.x) {
                out.line((at, TOP), (at, HEIGHT - BOTTOM), "#555");
                // On the side where there is room.
                let right = at < WIDTH / 2.0;
                let (at, anchor) = if right { (at + 6.0, "start") } else { (at - 6.0, "end") };
                out.text(at, TOP + 14.0, anchor, &mark.label);
            }
        }
        out.0.push_str("</svg>\n");
        out.0
    }
}

/// Without the points that nobody would see: those within half a pixel of the last one that was kept, in both directions.
fn thinned(path: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for (at, &point) in path.iter().enumerate() {
        let near = kept.last().is_some_and(|k| (k.0 - point.0).abs() < 0.5 && (k.1 - point.1).abs() < 0.5);
        if !near || at + 1 == path.len() {
            kept.push(point);
        }
    }
    kept
}

#[derive(Default)]
struct Document(String);

impl Document {
    fn add(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("a String takes what is written");
    }

    fn frame(&mut self, title: &str, x: &str, y: &str) {
        self.add(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
            escaped(title)
        ));
        self.add(format_args!(
            "<text x=\"{}\" y=\"26\" text-anchor=\"middle\" font-size=\"15\">{}</text>\n",
            WIDTH / 2.0,
            escaped(title)
        ));
        self.text((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 20.0, "middle", x);
        let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
        self.add(format_args!(
            "<text transform=\"translate(20 {middle}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
            escaped(y)
        ));
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), color: &str) {
        self.add(format_args!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{color}\"/>\n",
            from.0, from.1, to.0, to.1
        ));
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
            escaped(text)
        ));
    }

    fn path(&mut self, points: &[(f64, f64)], number: usize) {
        if points.is_empty() {
            return;
        }
        self.0.push_str("<polyline points=\"");
        for point in points {
            self.add(format_args!("{:.1},{:.1} ", point.0, point.1));
        }
        self.add(format_args!("\" {}/>\n", stroke(number)));
    }

    fn legend(&mut self, number: usize, name: &str) {
        let (x, y) = (WIDTH - RIGHT - 170.0, TOP + 14.0 + LEGEND_LINE * number as f64);
        self.add(format_args!(
            "<polyline points=\"{:.1},{y:.1} {:.1},{y:.1}\" {}/>\n",
            x,
            x + 28.0,
            stroke(number)
        ));
        self.text(x + 36.0, y + 4.0, "start", name);
    }
}

fn stroke(number: usize) -> String {
    let color = COLORS[number % COLORS.len()];
    let dash = DASHES[number / COLORS.len() % DASHES.len()];
    format!("fill=\"none\" stroke=\"{color}\" stroke-width=\"1.8\" stroke-dasharray=\"{dash}\"")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> LineChart {
        LineChart {
            title: "misses of <a & b>".into(),
            x: Axis::new("local memory, MiB", Scale::Linear),
            y: Axis::new("misses, %", Scale::Log10),
            series: vec![
                Series {
                    name: "lru".into(),
                    points: vec![(0.0, 100.0), (10.0, 1.0), (20.0, 0.0)],
                    steps: true,
                },
                Series { name: "fifo".into(), points: vec![(0.0, 100.0), (20.0, 3.0)], steps: false },
            ],
            marks: vec![Mark { x: 10.0, label: "10 MiB".into() }],
        }
    }

    #[test]
    fn a_chart_has_axes_units_and_a_legend() {
        let svg = chart().to_svg();
        for part in [
            "local memory, MiB",
            "misses, %",
            ">lru<",
            ">fifo<",
            "misses of &lt;a &amp; b&gt;",
            ">10<",
            ">100<",
        ] {
            assert!(svg.contains(part), "{part} is missing in {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert_eq!(svg.matches("<polyline").count(), 4);
    }

    #[test]
    fn nothing_to_show_is_shown_as_such() {
        let svg = LineChart { series: Vec::new(), marks: Vec::new(), ..chart() }.to_svg();
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn long_lines_become_short() {
        let points = (0..1_000_000).map(|n| (f64::from(n), 1.0 + f64::from(n))).collect();
        let series = vec![Series { name: "long".into(), points, steps: true }];
        assert!(LineChart { series, ..chart() }.to_svg().len() < 100_000);
    }
}
