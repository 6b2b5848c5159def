//! A plot as an SVG file for papers.

use std::fmt;

use super::{DrawnSeries, PathStyle, Plot, SeriesShape};
use crate::figure::{
    Anchor, FONT_SIZE, Frame, LINE_HEIGHT, MARGIN, WIDTH, dots, file, fill, legend, line, rule,
    text, width_of,
};

impl Plot {
    /// Returns the plot as an SVG file. It needs no style sheet and no script. The title is only the description of the
    /// file: it is not drawn, because a paper has captions.
    pub fn to_svg(&self) -> String {
        let mut content = String::new();
        let height = self
            .draw(&mut content)
            .expect("writing into a String does not fail");
        file(&self.title, height, &content)
    }

    /// Draws the plot. Returns its height.
    fn draw(&self, out: &mut String) -> Result<f64, fmt::Error> {
        let drawn = self.drawn();
        let (x, y) = self.scales(&drawn);
        let names = drawn.iter().map(|item| item.series.name.as_str());
        let legend_height = legend(out, MARGIN, names, |out, number, frame| {
            sample(out, &drawn[number], frame)
        })?;
        let y_labels: Vec<String> = y.ticks.iter().map(|&t| self.y.unit.short(t)).collect();
        let gutter = y_labels
            .iter()
            .map(|label| width_of(label))
            .fold(0.0, f64::max);
        let left = MARGIN + LINE_HEIGHT + gutter + 6.0;
        let frame = Frame {
            left,
            top: MARGIN + legend_height + 8.0,
            // The last label of the horizontal axis is centred at the end of the axis, so half of it is beyond.
            width: WIDTH - left - MARGIN - 20.0,
            height: PLOT_HEIGHT,
        };
        let (right, bottom) = (frame.x(1.0), frame.y(0.0));
        for (&tick, label) in y.ticks.iter().zip(&y_labels) {
            let at = frame.y(y.position(tick));
            rule(out, &format!("M{left:.1} {at:.1}H{right:.1}"), false)?;
            text(out, left - 6.0, at + FONT_SIZE * 0.35, Anchor::End, label)?;
        }
        for &tick in &x.ticks {
            let at = frame.x(x.position(tick));
            rule(out, &format!("M{at:.1} {bottom:.1}v5"), true)?;
            text(
                out,
                at,
                bottom + LINE_HEIGHT,
                Anchor::Middle,
                &self.x.unit.short(tick),
            )?;
        }
        let top = frame.top;
        rule(
            out,
            &format!("M{left:.1} {top:.1}V{bottom:.1}H{right:.1}"),
            true,
        )?;
        for (position, label) in self.markers.iter().filter(|m| self.x.can_show(m.0)) {
            let at = x.position(*position);
            let (anchor, gap) = if at > 0.5 {
                (Anchor::End, -4.0)
            } else {
                (Anchor::Start, 4.0)
            };
            let at = frame.x(at);
            rule(out, &format!("M{at:.1} {top:.1}V{bottom:.1}"), true)?;
            text(out, at + gap, top + FONT_SIZE, anchor, label)?;
        }
        for item in &drawn {
            let (style, path) = item.path(&x, &y, frame)?;
            match style {
                _ if path.is_empty() => {}
                PathStyle::Line => line(out, item.slot, item.series.dashed, &path)?,
                PathStyle::Dots => dots(out, item.slot, &path)?,
                PathStyle::Fill => fill(out, item.slot, &path)?,
            }
        }
        let below = bottom + 2.2 * LINE_HEIGHT;
        text(out, frame.x(0.5), below, Anchor::Middle, &self.x.label)?;
        // The label of the vertical axis is turned by a right angle around its position.
        let (at_x, at_y) = (MARGIN + FONT_SIZE * 0.8, frame.y(0.5));
        out.push_str(&format!(
            "<g transform=\"rotate(-90 {at_x:.1} {at_y:.1})\">\n"
        ));
        text(out, at_x, at_y, Anchor::Middle, &self.y.label)?;
        out.push_str("</g>\n");
        Ok(below + MARGIN)
    }
}

/// Draws the sample of a series in the legend.
fn sample(out: &mut String, item: &DrawnSeries<'_>, frame: Frame) -> fmt::Result {
    let (left, right) = (frame.x(0.0), frame.x(1.0));
    let (middle, top, bottom) = (frame.y(0.5), frame.y(1.0), frame.y(0.0));
    match item.series.shape {
        SeriesShape::Columns => fill(
            out,
            item.slot,
            &format!("M{left:.1} {top:.1}H{right:.1}V{bottom:.1}H{left:.1}Z"),
        ),
        SeriesShape::Dots => dots(
            out,
            item.slot,
            &format!("M{:.1} {middle:.1}h0", frame.x(0.5)),
        ),
        _ => {
            let path = format!("M{left:.1} {middle:.1}H{right:.1}");
            line(out, item.slot, item.series.dashed, &path)
        }
    }
}

/// The height of the drawing without labels, in CSS pixels.
const PLOT_HEIGHT: f64 = 280.0;

#[cfg(test)]
mod tests {
    use crate::{Axis, Plot, Series, Unit};

    fn plot(names: &[&str]) -> Plot {
        let mut plot = Plot::new(
            "OHR < 1 & more",
            Axis::new("cache size", Unit::Bytes).log(),
            Axis::new("object hit ratio", Unit::Share),
        );
        for (n, name) in names.iter().enumerate() {
            let points = [(1e6, 0.2), (1e7, 0.4), (1e8, 0.5 + n as f64 / 100.0)];
            plot.add(Series::line(*name, points));
        }
        plot
    }

    /// All coordinates of paths lie inside the file, and the file has all names and labels of ticks as texts.
    #[test]
    fn a_file_has_all_series_within_its_size() {
        let svg = plot(&["lru", "a<b"]).to_svg();
        assert!(
            svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"),
            "{svg}"
        );
        assert!(
            svg.contains("<title>OHR &lt; 1 &amp; more</title>"),
            "{svg}"
        );
        for text in [
            ">lru<",
            ">a&lt;b<",
            ">cache size<",
            ">object hit ratio<",
            ">16 MiB<",
            ">40 %<",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        let number = |text: &str| text.parse::<f64>().ok();
        let height = svg
            .split("height=\"")
            .nth(1)
            .and_then(|rest| number(rest.split('"').next()?));
        let height = height.expect("the file has a height");
        for path in svg
            .split(" d=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
        {
            // Numbers of relative commands, such as `v5`, are checked too; they are small.
            let numbers = path.split(|c: char| !c.is_ascii_digit() && c != '.');
            let largest = numbers.filter_map(number).fold(0.0, f64::max);
            assert!(
                largest <= height.max(640.0),
                "{path} in a height of {height}"
            );
        }
    }

    /// A long legend gets further lines, and the file becomes higher.
    #[test]
    fn a_long_legend_is_wrapped() {
        let names = ["adaptsize-horizon+gdsf"; 9];
        let (short, long) = (plot(&names[..2]).to_svg(), plot(&names).to_svg());
        let height = |svg: &str| {
            svg.split("viewBox=\"0 0 640 ")
                .nth(1)
                .map(|rest| rest[..3].to_owned())
        };
        assert!(
            height(&long) > height(&short),
            "{:?} {:?}",
            height(&long),
            height(&short)
        );
    }

    #[test]
    fn a_plot_without_points_is_a_file_without_lines() {
        let svg = plot(&[]).to_svg();
        assert!(
            svg.contains("cache size") && !svg.contains("stroke-width"),
            "{svg}"
        );
    }
}
