//! Figures as people read them.

use std::fmt::Write;

/// `1234567` as `1,234,567`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A part of a whole in percent; `-` of nothing.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    if whole <= 0.0 {
        return "-".into();
    }
    let percent = 100.0 * part / whole;
    if percent > 0.0 && percent < 1.0 { format!("{percent:.1}%") } else { format!("{percent:.0}%") }
}

/// Microseconds, with the digits that matter.
pub(crate) fn micros(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.1} us"),
        us if us < 10_000.0 => format!("{us:.0} us"),
        us if us < 1_000_000.0 => format!("{:.1} ms", us / 1_000.0),
        us => format!("{:.1} s", us / 1_000_000.0),
    }
}

/// Seconds of a run.
pub(crate) fn seconds(s: f64) -> String {
    if s < 100.0 {
        return format!("{s:.1} s");
    }
    // Negative and non-finite times do not reach this line; saturating is right for the rest.
    let whole = s.round() as u64;
    if whole < 3600 {
        format!("{} min {:02} s", whole / 60, whole % 60)
    } else {
        format!("{} h {:02} min", whole / 3600, whole % 3600 / 60)
    }
}

/// Rows under a heading, each column as wide as its widest cell; the first column is left-aligned, the others right.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let wide = widths.get(column).copied().unwrap_or(0);
            let written = match column {
                0 => write!(line, "{cell:<wide$}"),
                _ => write!(line, "  {cell:>wide$}"),
            };
            written.expect("a String takes what is written");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// What a peer or a program sent, safe to print: no control characters, at most `max` characters.
pub(crate) fn printable(text: &str, max: usize) -> String {
    let mut clean: String =
        text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(max).collect();
    if text.chars().nth(max).is_some() {
        clean.push('…');
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"].map(String::from)
        );
    }

    #[test]
    fn parts_of_nothing_have_no_percentage() {
        assert_eq!(percent(1.0, 0.0), "-");
        assert_eq!(percent(1.0, 4.0), "25%");
        assert_eq!(percent(0.5, 100.0), "0.5%");
    }

    #[test]
    fn times_keep_the_digits_that_matter() {
        assert_eq!(
            [7.25, 43.2, 12_345.0, 2_500_000.0].map(micros),
            ["7.2 us", "43 us", "12.3 ms", "2.5 s"].map(String::from)
        );
        assert_eq!(
            [1.26, 119.6, 7_384.0].map(seconds),
            ["1.3 s", "2 min 00 s", "2 h 03 min"].map(String::from)
        );
    }

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["name".into(), "n".into()], vec!["a".into(), "1000".into()]];
        assert_eq!(table(&rows), "name     n\na     1000\n");
    }

    #[test]
    fn nothing_from_outside_reaches_the_terminal_raw() {
        assert_eq!(printable("a\x1b[31mb\n", 20), "a [31mb ");
        assert_eq!(printable("abcdef", 3), "abc…");
    }
}
