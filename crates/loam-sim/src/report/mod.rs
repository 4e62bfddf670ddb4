//! Figures, tables and reports of results. The same data gives the same bytes, on any machine.
//!
//! - [`Figure`]: lines, points or grouped bars, as SVG.
//! - [`Table`]: text for a terminal, CSV, HTML.
//! - [`Html`]: one file with both, which opens without a network and works without a script.
//!
//! Every text from outside is escaped here and nowhere else.

mod bars;
mod draw;
mod escape;
mod figure;
mod html;
mod lines;
mod shares;
mod table;
#[cfg(test)]
mod tests;
mod ticks;
mod unit;

pub use escape::escape;
pub use figure::{Bars, Figure, Join, Series};
pub use html::{Check, Html};
pub use shares::Share;
pub use table::{Cell, Table};
pub use ticks::{Axis, Scale};
pub use unit::Unit;
