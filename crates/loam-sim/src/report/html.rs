//! A report: one HTML file that needs neither a network nor a script, and is livelier with one.

use super::escape::escape;
use super::figure::Figure;
use super::table::Table;
use std::fmt::Write;

/// A statement that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Whether it holds.
    pub pass: bool,
    /// What was said, and what was found.
    pub text: String,
}

impl Check {
    /// A checked statement.
    pub fn new(pass: bool, text: impl Into<String>) -> Self {
        Self { pass, text: text.into() }
    }

    /// The line for a terminal: begins with PASS or FAIL.
    pub fn line(&self) -> String {
        format!("{}  {}", self.word(), self.text)
    }

    fn word(&self) -> &'static str {
        if self.pass { "PASS" } else { "FAIL" }
    }
}

/// A report in the making.
#[derive(Clone, Debug)]
pub struct Html {
    title: String,
    pub(super) body: String,
}

impl Html {
    /// A report with a title and nothing else.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), body: String::new() }
    }

    /// A heading of a section.
    pub fn heading(&mut self, text: &str) {
        self.element("h2", text);
    }

    /// A paragraph of plain text.
    pub fn paragraph(&mut self, text: &str) {
        self.element("p", text);
    }

    /// Text as it is, line by line: a plan, a command.
    pub fn preformatted(&mut self, text: &str) {
        self.element("pre", text);
    }

    fn element(&mut self, tag: &str, text: &str) {
        let _ = writeln!(self.body, "<{tag}>{}</{tag}>", escape(text));
    }

    /// A table.
    pub fn table(&mut self, table: &Table) {
        self.body.push_str(&table.html());
    }

    /// A figure.
    pub fn figure(&mut self, figure: &Figure) {
        let _ = write!(self.body, "<figure>\n{}</figure>\n", figure.svg());
    }

    /// A figure with paragraphs under it, each with what it is about in front.
    pub fn explained(&mut self, figure: &Figure, paragraphs: &[(&str, &str)]) {
        let _ = write!(self.body, "<figure>\n{}<figcaption>\n", figure.svg());
        for (about, text) in paragraphs {
            let _ = writeln!(self.body, "<p><b>{}</b> {}</p>", escape(about), escape(text));
        }
        self.body.push_str("</figcaption>\n</figure>\n");
    }

    /// Checked statements, a line each.
    pub fn checks<'a>(&mut self, checks: impl IntoIterator<Item = &'a Check>) {
        self.body.push_str("<ul class=\"checks\">\n");
        for check in checks {
            let (word, text) = (check.word(), escape(&check.text));
            let class = if check.pass { "pass" } else { "fail" };
            let _ = writeln!(self.body, "<li><b class=\"{class}\">{word}</b> {text}</li>");
        }
        self.body.push_str("</ul>\n");
    }

    /// The file.
    pub fn page(&self) -> String {
        let title = escape(&self.title);
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{}</style>\n</head>\n\
             <body>\n<main>\n<h1>{title}</h1>\n{}</main>\n<script>\n{}</script>\n</body>\n</html>\n",
            include_str!("report.css"),
            self.body,
            include_str!("report.js")
        )
    }
}
