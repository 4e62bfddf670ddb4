//! What a sweep found, for people and for programs.

use super::parameters::unit_of;
use super::parse::Plan;
use super::sweep::{Column, Role, Row};
use super::{Point, Value, parquet};
use crate::report::{Axis, Bars, Cell, Figure, Html, Scale, Series, Table, Unit};

/// Figures of one report; lines of one figure; bars of one figure.
const FIGURES_MAX: usize = 24;
const LINES_MAX: usize = 8;
const BARS_MAX: usize = 96;
/// Rows of a report's table; the CSV has all.
const ROWS_MAX: usize = 2_000;

/// A plan, its points and their rows.
#[derive(Debug)]
pub struct Results<'a> {
    plan: &'a Plan,
    columns: &'a [Column],
    points: Vec<Point>,
    rows: &'a [Row],
}

/// Points that share a line, or bars of one group: what they have in common, and which they are.
struct Line {
    name: String,
    points: Vec<usize>,
}

impl<'a> Results<'a> {
    /// All rows of `plan`, in order.
    ///
    /// # Panics
    /// If there is not one row for each point.
    pub fn new(plan: &'a Plan, columns: &'a [Column], rows: &'a [Row]) -> Self {
        let points = plan.points();
        assert!(
            points.iter().map(|point| point.index).eq(rows.iter().map(|row| row.index)),
            "rows of a plan"
        );
        Self { plan, columns, points, rows }
    }

    /// How many points could not be simulated, and why the first could not.
    pub fn errors(&self) -> (usize, Option<&str>) {
        let mut errors = self.rows.iter().filter_map(|row| row.outcome.as_ref().err());
        let first = errors.next();
        (usize::from(first.is_some()) + errors.count(), first.map(String::as_str))
    }

    fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = Vec::new();
        // A point may have a parameter that another has not.
        for (name, _) in self.points.iter().flat_map(Point::values) {
            if !names.contains(name) {
                names.push(name);
            }
        }
        names
    }

    /// One row a point: its parameters, its results, and the reason if there are none.
    pub fn table(&self) -> Table {
        let parameters = self.names();
        let results = self.columns.iter().map(|column| column.name);
        let mut table = Table::new(parameters.iter().copied().chain(results).chain(["error"]));
        for (point, row) in self.points.iter().zip(self.rows) {
            let given = parameters.iter().map(|name| cell(point.get(name), unit_of(name)));
            let found =
                self.columns.iter().enumerate().map(|(at, column)| {
                    cell(row.outcome.as_ref().ok().map(|values| &values[at]), column.unit)
                });
            let error = row.outcome.as_ref().err().map_or(Cell::Empty, |error| error.as_str().into());
            table.push(given.chain(found).chain([error]).collect());
        }
        table
    }

    /// The same as a Parquet file.
    pub fn parquet(&self) -> Vec<u8> {
        parquet::file(&self.table())
    }

    /// The table for a terminal: what is swept, and what has a figure.
    pub fn short_table(&self) -> Table {
        let swept = self.plan.swept();
        let shown: Vec<(usize, &Column)> =
            self.columns.iter().enumerate().filter(|(_, column)| column.role == Role::Figure).collect();
        let mut table = Table::new(swept.iter().copied().chain(shown.iter().map(|(_, column)| column.name)));
        for (point, row) in self.points.iter().zip(self.rows) {
            let given = swept.iter().map(|name| cell(point.get(name), unit_of(name)));
            let found = shown
                .iter()
                .map(|(at, column)| cell(row.outcome.as_ref().ok().map(|values| &values[*at]), column.unit));
            table.push(given.chain(found).map(for_people).collect());
        }
        table
    }

    /// A figure for each result that is to have one, and one of the parts of the first.
    pub fn figures(&self) -> Vec<Figure> {
        let swept = self.plan.swept();
        let x = swept.iter().copied().find(|name| {
            self.plan.values(name).is_some_and(|values| values.iter().all(|value| value.number().is_some()))
        });
        let mut figures = Vec::new();
        for (title, lines) in self.split(x.or(swept.first().copied())) {
            for (at, column) in
                self.columns.iter().enumerate().filter(|(_, column)| column.role == Role::Figure)
            {
                figures.push(match x {
                    Some(x) => self.lines(&title, x, &lines, at, column),
                    None => self.bars(&title, swept.first().copied(), &lines, &[(at, column)]),
                });
                if figures.len() == 1 || (at == 0 && figures.len() < FIGURES_MAX) {
                    let parts =
                        self.columns.iter().enumerate().filter(|(_, column)| column.role == Role::Part);
                    let parts: Vec<(usize, &Column)> = parts.filter(|(at, _)| !self.is_zero(*at)).collect();
                    let bars = lines.iter().map(|line| line.points.len()).sum::<usize>();
                    if parts.len() > 1 && bars <= BARS_MAX {
                        figures.push(self.bars(&title, x.or(swept.first().copied()), &lines, &parts));
                    }
                }
            }
            if figures.len() >= FIGURES_MAX {
                figures.truncate(FIGURES_MAX);
                break;
            }
        }
        figures
    }

    fn is_zero(&self, column: usize) -> bool {
        let counts =
            |row: &Row| row.outcome.as_ref().is_ok_and(|values| values[column].number() != Some(0.0));
        !self.rows.iter().any(counts)
    }

    /// The points, a line for each combination of what is swept beside `x`. If that is too many for one figure, there is one for each
    /// combination of those that stand first in the plan.
    fn split(&self, x: Option<&str>) -> Vec<(String, Vec<Line>)> {
        let others: Vec<&str> = self.plan.swept().into_iter().filter(|name| Some(*name) != x).collect();
        // As many of the last ones as fit into one figure, but at least one.
        let mut lines = 1;
        let fits = |name: &&&str| {
            lines *= self.plan.values(name).map_or(1, <[Value]>::len);
            lines <= LINES_MAX
        };
        let within = others.iter().rev().take_while(fits).count().max(1).min(others.len());
        let (between, within) = others.split_at(others.len() - within);
        let mut found: Vec<(String, Vec<Line>)> = Vec::new();
        for (at, point) in self.points.iter().enumerate() {
            let (title, name) = (said(point, between), said(point, within));
            let lines = match found.iter().position(|(own, _)| *own == title) {
                Some(at) => &mut found[at].1,
                None => {
                    // What is beyond the most figures is in the tables only.
                    if found.len() == FIGURES_MAX {
                        continue;
                    }
                    found.push((title, Vec::new()));
                    &mut found.last_mut().expect("just pushed").1
                }
            };
            match lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(at),
                None => lines.push(Line { name, points: vec![at] }),
            }
        }
        found
    }

    fn value(&self, point: usize, column: usize) -> Option<f64> {
        self.rows[point].outcome.as_ref().ok()?[column].number()
    }

    fn title(&self, what: &str, of: &str) -> String {
        let mut what = what.to_owned();
        if let Some(first) = what.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        if of.is_empty() { what } else { format!("{what}: {of}") }
    }

    fn lines(&self, title: &str, x: &'static str, lines: &[Line], at: usize, column: &Column) -> Figure {
        let numbers: Vec<f64> =
            self.plan.values(x).unwrap_or_default().iter().filter_map(Value::number).collect();
        let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
        let most = numbers.iter().copied().fold(0.0, f64::max);
        let wide = least > 0.0 && most / least >= 8.0;
        let scale = if wide { Scale::Log2 } else { Scale::Linear };
        // Ticks at powers of two would have odd percentages beside them.
        let scale = if unit_of(x) == Unit::Share { Scale::Linear } else { scale };
        let x_axis = Axis::new(said_name(x), unit_of(x)).scale(scale);
        let y_axis = Axis::new(column.label, column.unit).include(0.0);
        let mut figure = Figure::new(self.title(column.label, title), x_axis, y_axis);
        for line in lines {
            let place = |&point: &usize| Some((self.points[point].get(x)?.number()?, self.value(point, at)?));
            let mut points: Vec<(f64, f64)> = line.points.iter().filter_map(place).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            figure = figure.series(Series::line(line.name.as_str(), points).markers());
        }
        figure
    }

    /// Bars: a group for each line, in it a bar for each value of `x`, of these columns.
    fn bars(
        &self,
        title: &str,
        x: Option<&'static str>,
        lines: &[Line],
        columns: &[(usize, &Column)],
    ) -> Figure {
        let of_x = x.and_then(|x| self.plan.values(x).map(|values| (x, values)));
        let named = |(x, values): (&str, &[Value])| -> Vec<String> {
            values.iter().map(|value| written(value, unit_of(x))).collect()
        };
        let names = of_x.map_or_else(|| vec![String::new()], named);
        let many = columns.len() > 1;
        let labels = columns.iter().map(|(_, column)| if many { column.label } else { "" });
        let mut bars = Bars::stacked(names.clone(), labels);
        for line in lines {
            let mut values = vec![Vec::new(); names.len()];
            for &point in &line.points {
                let place = of_x.and_then(|(x, values)| {
                    values.iter().position(|value| Some(value) == self.points[point].get(x))
                });
                let heights: Option<Vec<f64>> =
                    columns.iter().map(|(at, _)| self.value(point, *at)).collect();
                values[place.unwrap_or(0)] = heights.unwrap_or_default();
            }
            bars = bars.group(line.name.as_str(), values);
        }
        let first = columns[0].1;
        let (what, axis) = if many {
            let by = x.map_or_else(String::new, |x| format!(", by {}", said_name(x)));
            (format!("{} and its parts{by}", self.columns[0].label), self.columns[0].label)
        } else {
            (first.label.to_owned(), first.label)
        };
        Figure::bars(self.title(&what, title), Axis::new(axis, first.unit), bars)
    }

    /// The report: figures, table, plan.
    pub fn html(&self) -> String {
        let title = if self.plan.title().is_empty() { "Loam: a sweep" } else { self.plan.title() };
        let mut html = Html::new(title);
        let swept = self.plan.swept();
        let swept = if swept.is_empty() { "nothing".into() } else { swept.join(", ") };
        html.paragraph(&format!(
            "{} points; swept: {swept}. Simulated by Loam {}.",
            self.points.len(),
            env!("CARGO_PKG_VERSION")
        ));
        if let (count @ 1.., Some(first)) = self.errors() {
            html.paragraph(&format!("{count} of them could not be simulated, the first because: {first}"));
        }
        html.heading("Figures");
        for figure in self.figures() {
            html.figure(&figure);
        }
        html.heading("Results");
        let table = self.short_table();
        if self.points.len() > ROWS_MAX {
            html.paragraph(&format!(
                "The first {ROWS_MAX} of {} rows; results.csv has all.",
                self.points.len()
            ));
            let mut first = Table::new(table.header().iter().cloned());
            table.rows().iter().take(ROWS_MAX).for_each(|row| first.push(row.clone()));
            html.table(&first);
        } else {
            html.table(&table);
        }
        html.heading("Plan");
        html.preformatted(self.plan.text());
        html.page()
    }
}

fn cell(value: Option<&Value>, unit: Unit) -> Cell {
    match value {
        None => Cell::Empty,
        Some(Value::Whole(whole)) => Cell::Scaled(i128::from(*whole), unit),
        Some(Value::Real(real)) => Cell::Number(*real, unit),
        Some(other) => other.to_string().into(),
    }
}

/// Counts keep their digits in a table; sizes and times get their prefix.
fn for_people(cell: Cell) -> Cell {
    match cell {
        Cell::Scaled(whole, Unit::Number) => Cell::Whole(whole),
        other => other,
    }
}

fn written(value: &Value, unit: Unit) -> String {
    value.number().map_or_else(|| value.to_string(), |number| unit.write(number))
}

/// `fetch_plan` as people say it, without the unit that the numbers have anyway.
fn said_name(name: &str) -> String {
    name.strip_suffix("_bytes").unwrap_or(name).replace('_', " ")
}

/// The values of these parameters at a point, as a name for it.
fn said(point: &Point, names: &[&str]) -> String {
    let value = |name: &&str| {
        let value = point.get(name)?;
        let text = written(value, unit_of(name));
        Some(if matches!(value, Value::Text(_)) { text } else { format!("{} {text}", said_name(name)) })
    };
    names.iter().filter_map(value).collect::<Vec<_>>().join(", ")
}
