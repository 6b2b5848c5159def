//! Box plots: the distribution of a value in each category, with horizontal boxes.

use std::fmt::{self, Write as _};

use crate::colour;
use crate::scale::Axis;
use crate::text::Html;

/// A box plot. The box of a category extends from the 25th to the 75th percentile, with a gap at the median. A line
/// extends from the 5th to the 95th percentile.
#[derive(Clone, Debug)]
pub struct Boxes {
    title: String,
    axis: Axis,
    note: Option<String>,
    boxes: Vec<(String, Percentiles)>,
}

/// The 5th, 25th, 50th, 75th and 95th percentile.
type Percentiles = [f64; 5];

impl Boxes {
    /// Makes a plot without boxes. `axis` is the horizontal axis of the values.
    pub fn new(title: impl Into<String>, axis: Axis) -> Self {
        Self {
            title: title.into(),
            axis,
            note: None,
            boxes: Vec::new(),
        }
    }

    /// Sets the explanation below the title.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Adds a box with the 5th, 25th, 50th, 75th and 95th percentile of a category.
    pub fn add(&mut self, category: impl Into<String>, percentiles: [f64; 5]) -> &mut Self {
        self.boxes.push((category.into(), percentiles));
        self
    }

    pub(crate) fn render(&self, out: &mut String) -> fmt::Result {
        let values = self.boxes.iter().flat_map(|(_, percentiles)| percentiles);
        let scale = self.axis.horizontal(values.copied());
        writeln!(
            out,
            "<figure class=\"bars\">\n<figcaption>{}</figcaption>",
            Html(&self.title)
        )?;
        if let Some(note) = &self.note {
            writeln!(out, "<p class=\"note\">{}</p>", Html(note))?;
        }
        for (n, (category, percentiles)) in self.boxes.iter().enumerate() {
            writeln!(out, "<p class=\"category\">{}</p>", Html(category))?;
            let text = |value: f64| self.axis.unit.exact(value);
            let [p5, p25, p50, p75, p95] = percentiles.map(text);
            let description = format!(
                "{category}: 5th percentile {p5}, 25th {p25}, median {p50}, 75th {p75}, 95th {p95}"
            );
            writeln!(
                out,
                "<div class=\"bar\"><svg viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" \
                 role=\"img\" aria-label=\"{}\">",
                Html(&description)
            )?;
            if percentiles.iter().all(|&value| self.axis.can_show(value)) {
                let [p5, p25, p50, p75, p95] =
                    percentiles.map(|value| scale.position(value) * 1000.0);
                let colour = n % colour::SLOTS;
                write!(
                    out,
                    "<path class=\"line c{colour}\" d=\"M{p5:.1} 5H{p95:.1}\"/>\
                     <path class=\"fill c{colour}\" d=\"M{p25:.1} 1H{p75:.1}V9H{p25:.1}Z\"/>\
                     <path class=\"median\" d=\"M{p50:.1} 1V9\"/>"
                )?;
            }
            writeln!(
                out,
                "</svg><span class=\"n\">{}</span></div>",
                Html(&self.axis.unit.short(percentiles[2]))
            )?;
        }
        out.push_str("<div class=\"bar\"><div class=\"ruler\">\n");
        for (n, &tick) in scale.ticks.iter().enumerate() {
            let left = scale.position(tick) * 100.0;
            let class = if n.is_multiple_of(2) { "xt" } else { "xt odd" };
            writeln!(
                out,
                "<span class=\"{class}\" style=\"left:{left:.2}%\">{}</span>",
                Html(&self.axis.unit.short(tick))
            )?;
        }
        writeln!(
            out,
            "</div><span></span></div>\n<p class=\"xlabel\">{}</p>\n</figure>",
            Html(&self.axis.label)
        )
    }
}
