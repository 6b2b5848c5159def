//! The parts of SVG files for papers: sizes, fonts, colours, texts and legends.
//!
//! A file is self-contained: it has no style sheet and no script, because many programs for vector graphics ignore
//! both. The background is transparent.

use std::fmt::{self, Write as _};

use crate::colour;
use crate::text::Html;

/// The rectangle of a drawing in an SVG.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Frame {
    /// The frame of a drawing in an HTML page, which stretches it to the available space.
    pub(crate) const PAGE: Self = Self {
        left: 0.0,
        top: 0.0,
        width: 1000.0,
        height: 1000.0,
    };

    /// Returns the coordinate of a horizontal position: 0 at the left, 1 at the right.
    pub(crate) fn x(self, position: f64) -> f64 {
        self.left + position * self.width
    }

    /// Returns the coordinate of a vertical position: 0 at the bottom, 1 at the top.
    pub(crate) fn y(self, position: f64) -> f64 {
        self.top + (1.0 - position) * self.height
    }
}

/// The part of a text that lies at its position.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// Writes a text whose baseline is at `y`.
pub(crate) fn text(out: &mut String, x: f64, y: f64, anchor: Anchor, text: &str) -> fmt::Result {
    let anchor = match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    let text = Html(text);
    writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
    )
}

/// Writes a thin grey line: dark for an axis, light for the grid.
pub(crate) fn rule(out: &mut String, path: &str, is_axis: bool) -> fmt::Result {
    let colour = if is_axis { "#333333" } else { "#dddddd" };
    writeln!(
        out,
        "<path fill=\"none\" stroke=\"{colour}\" d=\"{path}\"/>"
    )
}

/// Returns the colour of the series in this slot. The colours repeat if a chart has more series than colours.
pub(crate) fn colour_of(slot: usize) -> &'static str {
    colour::LIGHT[slot % colour::SLOTS]
}

/// Returns the SVG file with this content. `height` is in CSS pixels.
pub(crate) fn file(title: &str, height: f64, content: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {WIDTH} {height:.0}\" font-family=\"{FONTS}\" font-size=\"{FONT_SIZE}\" \
         fill=\"#222222\">\n<title>{}</title>\n{content}</svg>\n",
        Html(title)
    )
}

/// Returns the estimated width of a text in CSS pixels. Fonts differ, so each character counts as a digit of Helvetica.
pub(crate) fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * FONT_SIZE * 0.56
}

/// Draws a legend below `top`: a sample and a name for each item, in one or more lines. `sample` draws the sample of
/// the item with this number into a frame. Returns the height of the legend.
pub(crate) fn legend<'a>(
    out: &mut String,
    top: f64,
    names: impl Iterator<Item = &'a str>,
    mut sample: impl FnMut(&mut String, usize, Frame) -> fmt::Result,
) -> Result<f64, fmt::Error> {
    let (mut x, mut line) = (MARGIN, 0.0);
    for (number, name) in names.enumerate() {
        let width = SAMPLE_WIDTH + 6.0 + width_of(name) + 14.0;
        if x > MARGIN && x + width > WIDTH - MARGIN {
            (x, line) = (MARGIN, line + 1.0);
        }
        let y = top + line * LINE_HEIGHT;
        let frame = Frame {
            left: x,
            top: y + 3.0,
            width: SAMPLE_WIDTH,
            height: 10.0,
        };
        sample(out, number, frame)?;
        text(out, x + SAMPLE_WIDTH + 6.0, y + 12.0, Anchor::Start, name)?;
        x += width;
    }
    Ok((line + 1.0) * LINE_HEIGHT)
}

/// Writes the solid or dashed line of a series.
pub(crate) fn line(out: &mut String, slot: usize, is_dashed: bool, path: &str) -> fmt::Result {
    let mut dash = String::new();
    if is_dashed {
        write!(dash, " stroke-dasharray=\"6 4\"")?;
    }
    let colour = colour_of(slot);
    writeln!(
        out,
        "<path fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-linejoin=\"round\"{dash} d=\"{path}\"/>"
    )
}

/// Writes dots. The path has a stroke of zero length for each dot.
pub(crate) fn dots(out: &mut String, slot: usize, path: &str) -> fmt::Result {
    let colour = colour_of(slot);
    writeln!(
        out,
        "<path fill=\"none\" stroke=\"{colour}\" stroke-width=\"6\" stroke-linecap=\"round\" d=\"{path}\"/>"
    )
}

/// Writes filled areas.
pub(crate) fn fill(out: &mut String, slot: usize, path: &str) -> fmt::Result {
    writeln!(out, "<path fill=\"{}\" d=\"{path}\"/>", colour_of(slot))
}

/// The width of a figure in CSS pixels, for two columns of a paper.
pub(crate) const WIDTH: f64 = 640.0;
/// The space between the drawing and the edges of the file.
pub(crate) const MARGIN: f64 = 12.0;
pub(crate) const FONT_SIZE: f64 = 13.0;
/// The distance between two lines of text.
pub(crate) const LINE_HEIGHT: f64 = 18.0;
const SAMPLE_WIDTH: f64 = 22.0;
const FONTS: &str = "Helvetica, Arial, 'DejaVu Sans', sans-serif";
