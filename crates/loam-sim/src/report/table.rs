//! Tables: aligned text for a terminal, CSV, HTML.

use super::escape::escape;
use super::unit::Unit;
use std::fmt::Write;

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Nothing.
    Empty,
    /// Text.
    Text(String),
    /// A whole number, written with all its digits everywhere.
    Whole(i128),
    /// A whole number with a unit: three digits and the unit for people, every digit and no unit in CSV.
    Scaled(i128, Unit),
    /// A number: three digits and a unit for people, every digit and no unit in CSV.
    Number(f64, Unit),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(whole: u64) -> Self {
        Self::Whole(whole.into())
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number, Unit::Number)
    }
}

impl Cell {
    /// As people read it.
    pub fn text(&self) -> String {
        match self {
            Self::Empty => String::new(),
            Self::Text(text) => text.clone(),
            Self::Whole(whole) => whole.to_string(),
            Self::Scaled(whole, unit) => unit.write(*whole as f64),
            Self::Number(number, unit) => unit.write(*number),
        }
    }

    /// As programs read it, not yet quoted. Every digit that tells the number from its neighbours is there.
    pub fn exact(&self) -> String {
        match self {
            Self::Scaled(whole, _) => whole.to_string(),
            Self::Number(number, _) => number.to_string(),
            other => other.text(),
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Whole(_) | Self::Scaled(..) | Self::Number(..))
    }
}

/// A table with a header.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// Panics if it has not as many cells as the header.
    pub fn push(&mut self, row: Vec<Cell>) {
        assert_eq!(row.len(), self.header.len(), "cells of a row");
        self.rows.push(row);
    }

    /// The names of the columns.
    pub fn header(&self) -> &[String] {
        &self.header
    }

    /// The rows.
    pub fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    /// Whether a column is set to the right: it has numbers and no text.
    fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().map(|row| &row[column]);
        cells.clone().any(Cell::is_number) && cells.all(|cell| cell.is_number() || *cell == Cell::Empty)
    }

    /// For a terminal: columns aligned, numbers to the right, no space at a line's end.
    pub fn text(&self) -> String {
        let texts: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(|cell| one_line(&cell.text())).collect()).collect();
        let width = |column: usize| {
            let cells = texts.iter().map(|row| row[column].chars().count());
            cells.chain([self.header[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let right: Vec<bool> = (0..self.header.len()).map(|column| self.is_numeric(column)).collect();
        let mut out = String::new();
        let mut write_row = |cells: &[String]| {
            let mut line = String::new();
            for (column, cell) in cells.iter().enumerate() {
                let pad = " ".repeat(widths[column] - cell.chars().count());
                let gap = if column == 0 { "" } else { "  " };
                let _ = if right[column] {
                    write!(line, "{gap}{pad}{cell}")
                } else {
                    write!(line, "{gap}{cell}{pad}")
                };
            }
            out.push_str(line.trim_end());
            out.push('\n');
        };
        write_row(&self.header);
        write_row(&widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>());
        for row in &texts {
            write_row(row);
        }
        out
    }

    /// CSV as in RFC 4180, but with a plain newline after each line.
    pub fn csv(&self) -> String {
        let mut out = String::new();
        let mut line = |cells: &mut dyn Iterator<Item = String>| {
            for (column, cell) in cells.enumerate() {
                let comma = if column == 0 { "" } else { "," };
                let _ = write!(out, "{comma}{}", quoted(&cell));
            }
            out.push('\n');
        };
        line(&mut self.header.iter().cloned());
        for row in &self.rows {
            line(&mut row.iter().map(Cell::exact));
        }
        out
    }

    /// An HTML table.
    pub fn html(&self) -> String {
        let mut out = String::from("<div class=\"wide\"><table>\n<thead><tr>");
        let right: Vec<&str> = (0..self.header.len())
            .map(|column| if self.is_numeric(column) { " class=\"number\"" } else { "" })
            .collect();
        for (name, class) in self.header.iter().zip(&right) {
            let _ = write!(out, "<th{class}>{}</th>", escape(name));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            out.push_str("<tr>");
            for (cell, class) in row.iter().zip(&right) {
                let _ = match cell {
                    Cell::Number(..) | Cell::Scaled(..) => {
                        write!(out, "<td{class} title=\"{}\">{}</td>", cell.exact(), escape(&cell.text()))
                    }
                    _ => write!(out, "<td{class}>{}</td>", escape(&cell.text())),
                };
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
        out
    }
}

fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// A CSV field: quoted only if it has to be.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) || field.starts_with(' ') || field.ends_with(' ') {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(["plan, of fetch", "faults", "time"]);
        table.push(vec!["eager \"1\"".into(), 5_655_u64.into(), Cell::Number(1_480_000.0, Unit::Ns)]);
        table.push(vec!["a\nb <i>".into(), Cell::Empty, Cell::Number(0.1, Unit::Ns)]);
        table
    }

    #[test]
    fn csv_is_quoted_and_exact() {
        assert_eq!(
            sample().csv(),
            "\"plan, of fetch\",faults,time\n\"eager \"\"1\"\"\",5655,1480000\n\"a\nb <i>\",,0.1\n"
        );
    }

    #[test]
    fn text_is_aligned() {
        let expected = "plan, of fetch  faults     time\n\
                        --------------  ------  -------\n\
                        eager \"1\"         5655  1.48 ms\n\
                        a b <i>                  0.1 ns\n";
        assert_eq!(sample().text(), expected);
    }

    #[test]
    fn html_is_escaped() {
        let html = sample().html();
        assert!(html.contains("<td>a\nb &lt;i&gt;</td>"), "{html}");
        assert!(html.contains("<td class=\"number\" title=\"1480000\">1.48 ms</td>"), "{html}");
    }
}
