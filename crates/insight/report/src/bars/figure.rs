//! A bar chart as an SVG file for papers.

use std::fmt;

use super::Bars;
use crate::figure::{
    Anchor, FONT_SIZE, LINE_HEIGHT, MARGIN, WIDTH, file, fill, legend, rule, text, width_of,
};

impl Bars {
    /// Returns the chart as an SVG file. It needs no style sheet and no script. The title is only the description of
    /// the file: it is not drawn, because a paper has captions.
    pub fn to_svg(&self) -> String {
        let mut content = String::new();
        let height = self
            .draw(&mut content)
            .expect("writing into a String does not fail");
        file(&self.title, height, &content)
    }

    /// Draws the chart. Returns its height.
    fn draw(&self, out: &mut String) -> Result<f64, fmt::Error> {
        let values = self.groups.iter().flat_map(|(_, values)| values);
        let scale = self.axis.vertical(values.copied());
        let mut top = MARGIN;
        if self.series.len() > 1 {
            let names = self.series.iter().map(String::as_str);
            top += legend(out, MARGIN, names, |out, number, frame| {
                let (left, right) = (frame.x(0.0), frame.x(1.0));
                let (top, bottom) = (frame.y(1.0), frame.y(0.0));
                let path = format!("M{left:.1} {top:.1}H{right:.1}V{bottom:.1}H{left:.1}Z");
                fill(out, number, &path)
            })?;
            top += 8.0;
        }
        let widest = |labels: &mut dyn Iterator<Item = String>| {
            labels.map(|label| width_of(&label)).fold(0.0, f64::max)
        };
        let names = widest(&mut self.groups.iter().map(|(name, _)| name.clone()));
        let left = MARGIN + names.min(WIDTH / 3.0) + 6.0;
        // The value is written to the right of its bar.
        let width = WIDTH - left - MARGIN - width_of("100.0 MiB");
        let group_height = self.series.len() as f64 * BAR_HEIGHT + GROUP_GAP;
        let bottom = top + self.groups.len() as f64 * group_height;
        for &tick in &scale.ticks {
            let at = left + scale.position(tick) * width;
            rule(out, &format!("M{at:.1} {top:.1}V{bottom:.1}"), false)?;
            let label = self.axis.unit.short(tick);
            text(out, at, bottom + LINE_HEIGHT, Anchor::Middle, &label)?;
        }
        let floor = left + scale.floor() * width;
        for (number, (category, values)) in self.groups.iter().enumerate() {
            let group_top = top + number as f64 * group_height + GROUP_GAP / 2.0;
            let middle = group_top + values.len() as f64 * BAR_HEIGHT / 2.0;
            text(
                out,
                left - 6.0,
                middle + FONT_SIZE * 0.35,
                Anchor::End,
                category,
            )?;
            for (slot, &value) in values.iter().enumerate() {
                if !self.axis.can_show(value) {
                    continue;
                }
                let end = left + scale.position(value) * width;
                let (from, to) = (floor.min(end), floor.max(end));
                let y = group_top + slot as f64 * BAR_HEIGHT;
                let (upper, lower) = (y + 1.0, y + BAR_HEIGHT - 1.0);
                let path = format!("M{from:.1} {upper:.1}H{to:.1}V{lower:.1}H{from:.1}Z");
                fill(out, slot, &path)?;
                let figure = self.axis.unit.short(value);
                text(out, to + 4.0, lower - 2.0, Anchor::Start, &figure)?;
            }
        }
        rule(out, &format!("M{floor:.1} {top:.1}V{bottom:.1}"), true)?;
        let below = bottom + 2.2 * LINE_HEIGHT;
        text(
            out,
            left + width / 2.0,
            below,
            Anchor::Middle,
            &self.axis.label,
        )?;
        Ok(below + MARGIN)
    }
}

/// The height of a bar in CSS pixels.
const BAR_HEIGHT: f64 = 15.0;
/// The distance between two groups of bars.
const GROUP_GAP: f64 = 9.0;

#[cfg(test)]
mod tests {
    use crate::{Axis, Bars, Unit};

    #[test]
    fn each_bar_has_its_value_and_a_missing_value_has_no_bar() {
        let axis = Axis::new("hit ratio", Unit::Share);
        let mut bars = Bars::new("hit ratios", axis, ["objects", "bytes"]);
        bars.group("lru", [0.25, f64::NAN])
            .group("gdsf", [0.375, 0.125]);
        let svg = bars.to_svg();
        for text in [
            ">lru<",
            ">gdsf<",
            ">objects<",
            ">25 %<",
            ">37.5 %<",
            ">12.5 %<",
            ">hit ratio<",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        // Two samples in the legend and three bars.
        assert_eq!(svg.matches("<path fill=\"#").count(), 5, "{svg}");
    }
}
