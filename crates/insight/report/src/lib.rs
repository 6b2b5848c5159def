//! Self-contained report pages: one HTML file with findings, tables and plots.
//!
//! A [`Page`] starts with the findings in plain words. Tables and plots follow. The page loads no other file,
//! so it can be sent by mail, archived, printed and read on a phone. Plots are inline SVG that is scaled to the
//! available width. Their labels are HTML and keep their size. The exact values of a plot are shown at the
//! pointer, and in a table below the plot for readers without a pointer. [`Plot::to_svg`] and [`Bars::to_svg`] return
//! SVG files for papers.
//!
//! ```
//! use edgeward_report::{Axis, Page, Plot, Series, Unit};
//!
//! let mut plot = Plot::new(
//!     "Object hit ratio by cache size",
//!     Axis::new("cache size", Unit::Bytes).log(),
//!     Axis::new("object hit ratio", Unit::Share),
//! );
//! plot.add(Series::line("lru", [(1e6, 0.31), (1e7, 0.44), (1e8, 0.58)]));
//! plot.add(Series::line("adaptsize", [(1e6, 0.45), (1e7, 0.57), (1e8, 0.66)]));
//! let mut page = Page::new("Which policy for this site?");
//! page.finding("AdaptSize hits 13 points more often than LRU at 10 MB.");
//! page.plot(plot);
//! assert!(page.render().starts_with("<!doctype html>"));
//! ```
#![forbid(unsafe_code)]

mod bars;
mod colour;
mod figure;
mod page;
mod plot;
mod scale;
mod table;
mod text;
mod unit;

pub use bars::Bars;
pub use page::Page;
pub use plot::{Plot, Series};
pub use scale::Axis;
pub use table::{Column, Table};
pub use unit::Unit;
