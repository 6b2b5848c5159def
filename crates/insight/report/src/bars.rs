//! Horizontal bar charts. Each category has a group of bars, with the value beside each bar.
//!
//! The bars are horizontal, because names are long and the screens of phones are narrow.

mod figure;

use std::fmt::{self, Write as _};

use crate::colour;
use crate::scale::Axis;
use crate::text::Html;

/// A bar chart that compares the values of several series in each category.
#[derive(Clone, Debug)]
pub struct Bars {
    title: String,
    axis: Axis,
    note: Option<String>,
    series: Vec<String>,
    groups: Vec<(String, Vec<f64>)>,
}

impl Bars {
    /// Makes a chart without groups, with bars along `axis`. Each group has one bar for each series.
    pub fn new<S: Into<String>>(
        title: impl Into<String>,
        axis: Axis,
        series: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            title: title.into(),
            axis,
            note: None,
            series: series.into_iter().map(Into::into).collect(),
            groups: Vec::new(),
        }
    }

    /// Sets an explanation below the title.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Adds a group with one value for each series. `NAN` is a missing value.
    ///
    /// # Panics
    /// Panics if the number of values differs from the number of series.
    pub fn group(
        &mut self,
        category: impl Into<String>,
        values: impl IntoIterator<Item = f64>,
    ) -> &mut Self {
        let values: Vec<f64> = values.into_iter().collect();
        assert_eq!(
            values.len(),
            self.series.len(),
            "a group needs one value for each series"
        );
        self.groups.push((category.into(), values));
        self
    }

    pub(crate) fn render(&self, out: &mut String) -> fmt::Result {
        let values = self.groups.iter().flat_map(|(_, values)| values);
        // Bars need the scale of a vertical axis, which begins at zero, although the bars are horizontal.
        let scale = self.axis.vertical(values.copied());
        // A scale has positions from 0 to 1; the view box of a bar is 1000 wide.
        let floor = scale.floor() * 1000.0;
        writeln!(
            out,
            "<figure class=\"bars\">\n<figcaption>{}</figcaption>",
            Html(&self.title)
        )?;
        if let Some(note) = &self.note {
            writeln!(out, "<p class=\"note\">{}</p>", Html(note))?;
        }
        if self.series.len() > 1 {
            out.push_str("<ul class=\"legend\">\n");
            for (n, name) in self.series.iter().enumerate() {
                writeln!(
                    out,
                    "<li><svg viewBox=\"0 0 24 10\" aria-hidden=\"true\"><path \
                     class=\"fill c{}\" d=\"M2 0H22V10H2Z\"/></svg>{}</li>",
                    n % colour::SLOTS,
                    Html(name)
                )?;
            }
            out.push_str("</ul>\n");
        }
        for (category, values) in &self.groups {
            writeln!(out, "<p class=\"category\">{}</p>", Html(category))?;
            for (n, (&value, name)) in values.iter().zip(&self.series).enumerate() {
                // A missing value gets a bar of length zero.
                let position = if self.axis.can_show(value) {
                    scale.position(value) * 1000.0
                } else {
                    floor
                };
                let (left, right) = (floor.min(position), floor.max(position));
                let figure = self.axis.unit.exact(value);
                let description = format!("{category}, {name}: {figure}");
                writeln!(
                    out,
                    "<div class=\"bar\"><svg viewBox=\"0 0 1000 10\" \
                     preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">\
                     <path class=\"fill c{}\" d=\"M{left:.1} 0H{right:.1}V10H{left:.1}Z\"/></svg>\
                     <span class=\"n\">{}</span></div>",
                    Html(&description),
                    n % colour::SLOTS,
                    Html(&self.axis.unit.aligned(value))
                )?;
            }
        }
        out.push_str("<div class=\"bar\"><div class=\"ruler\">\n");
        for (n, &tick) in scale.ticks.iter().enumerate() {
            let left = scale.position(tick) * 100.0;
            // The style sheet hides every second label (class `odd`) on narrow screens.
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
