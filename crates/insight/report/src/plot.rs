//! Plots with two axes. The points of a series are drawn as a line, steps, dots or columns.
//!
//! The drawing is an SVG of 1000 by 1000 units, which is stretched to the available space. Strokes keep their
//! width. Labels are HTML elements that are positioned by percentage, so they keep their size.

mod figure;

use std::fmt::{self, Write as _};

use crate::colour;
use crate::figure::Frame;
use crate::scale::{Axis, Scale};
use crate::table::{Column, Table};
use crate::text::{Html, Json};

/// A plot of several series with common axes.
#[derive(Clone, Debug)]
pub struct Plot {
    title: String,
    x: Axis,
    y: Axis,
    note: Option<String>,
    series: Vec<Series>,
    markers: Vec<(f64, String)>,
}

impl Plot {
    /// Makes a plot without series.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self {
            title: title.into(),
            x,
            y,
            note: None,
            series: Vec::new(),
            markers: Vec::new(),
        }
    }

    /// Adds a series. The series without a colour get the colours 0, 1, 2 and so on.
    pub fn add(&mut self, series: Series) -> &mut Self {
        self.series.push(series);
        self
    }

    /// Adds a vertical marker at `x`, for example for the end of the warm-up.
    pub fn mark(&mut self, x: f64, label: impl Into<String>) -> &mut Self {
        self.markers.push((x, label.into()));
        self
    }

    /// Sets an explanation below the title.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    pub(crate) fn render(&self, out: &mut String) -> fmt::Result {
        let drawn: Vec<DrawnSeries<'_>> = self.drawn();
        let (x, y) = self.scales(&drawn);

        writeln!(
            out,
            "<figure class=\"plot{}\" tabindex=\"0\">\n<figcaption>{}</figcaption>",
            if drawn.len() > FEW_SERIES {
                " many"
            } else {
                ""
            },
            Html(&self.title)
        )?;
        if let Some(note) = &self.note {
            writeln!(out, "<p class=\"note\">{}</p>", Html(note))?;
        }
        legend(out, &drawn)?;
        let labels: Vec<String> = y.ticks.iter().map(|&t| self.y.unit.short(t)).collect();
        let gutter = labels.iter().map(|l| l.chars().count()).max().unwrap_or(0);
        write!(
            out,
            "<p class=\"ylabel\">{}</p>\n<div class=\"area\" style=\"margin-left:{gutter}ch\">\n",
            Html(&self.y.label)
        )?;
        self.svg(out, &drawn, &x, &y)?;
        for (tick, label) in y.ticks.iter().zip(&labels) {
            let top = 100.0 - y.position(*tick) * 100.0;
            writeln!(
                out,
                "<span class=\"yt\" style=\"top:{top:.2}%\">{}</span>",
                Html(label)
            )?;
        }
        for (n, &tick) in x.ticks.iter().enumerate() {
            let left = x.position(tick) * 100.0;
            let label = self.x.unit.short(tick);
            // Narrow screens hide every second label.
            let class = if n.is_multiple_of(2) { "xt" } else { "xt odd" };
            writeln!(
                out,
                "<span class=\"{class}\" style=\"left:{left:.2}%\">{}</span>",
                Html(&label)
            )?;
        }
        for (position, label) in &self.markers {
            if self.x.can_show(*position) {
                let left = x.position(*position) * 100.0;
                // In the right half of the plot, the label is left of its marker, so that it stays inside the
                // plot.
                let class = if left > 50.0 { "mark before" } else { "mark" };
                writeln!(
                    out,
                    "<span class=\"{class}\" style=\"left:{left:.2}%\">{}</span>",
                    Html(label)
                )?;
            }
        }
        if drawn.iter().all(DrawnSeries::is_empty) {
            out.push_str("<span class=\"empty\">nothing to show</span>\n");
        }
        write!(
            out,
            "<div class=\"cursor\" hidden></div><div class=\"tip\" hidden></div>\n</div>\n\
             <p class=\"xlabel\">{}</p>\n",
            Html(&self.x.label)
        )?;
        self.values(out, &drawn)?;
        self.data(out, &drawn, &x, &y)?;
        out.push_str("</figure>\n");
        Ok(())
    }

    /// Returns the scales of both axes, which show all points, levels and markers.
    fn scales(&self, drawn: &[DrawnSeries<'_>]) -> (Scale, Scale) {
        let xs = drawn.iter().flat_map(|d| d.points.iter().map(|p| p.0));
        let markers = self.markers.iter().map(|m| m.0);
        let mut x = self.x.horizontal(xs.chain(markers));
        let columns = drawn
            .iter()
            .filter(|d| d.series.shape == SeriesShape::Columns);
        // The first and the last column need space at both ends of the axis.
        if let Some(most) = columns.map(|d| d.points.len()).max() {
            x = x.inset(0.5 / (most.max(1) as f64 + 1.0));
        }
        let ys = drawn.iter().flat_map(|d| d.points.iter().map(|p| p.1));
        let levels = drawn.iter().filter_map(|d| d.series.level_at());
        (x, self.y.vertical(ys.chain(levels)))
    }

    /// Returns each series with its colour and at most [`MAX_POINTS`] points that the axes can show.
    fn drawn(&self) -> Vec<DrawnSeries<'_>> {
        let mut next = 0;
        let mut drawn = Vec::with_capacity(self.series.len());
        for series in &self.series {
            let slot = series.colour.unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            drawn.push(DrawnSeries {
                series,
                slot: slot % colour::SLOTS,
                turn: slot / colour::SLOTS,
                points: self.visible_points(series),
            });
        }
        drawn
    }

    fn visible_points(&self, series: &Series) -> Vec<(f64, f64)> {
        let visible_points = series
            .points
            .iter()
            .copied()
            .filter(|&(x, y)| self.x.can_show(x) && self.y.can_show(y));
        thin(visible_points.collect())
    }

    fn svg(
        &self,
        out: &mut String,
        drawn: &[DrawnSeries<'_>],
        x: &Scale,
        y: &Scale,
    ) -> fmt::Result {
        let names: Vec<&str> = drawn.iter().map(|d| d.series.name.as_str()).collect();
        let description = format!(
            "{}: {} by {}; {}",
            self.title,
            self.y.label,
            self.x.label,
            names.join(", ")
        );
        writeln!(
            out,
            "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{}\">",
            Html(&description)
        )?;
        for &tick in &y.ticks {
            let position = 1000.0 - y.position(tick) * 1000.0;
            writeln!(out, "<path class=\"grid\" d=\"M0 {position:.1}H1000\"/>")?;
        }
        for &tick in &x.ticks {
            let position = x.position(tick) * 1000.0;
            writeln!(out, "<path class=\"tick\" d=\"M{position:.1} 1000V985\"/>")?;
        }
        out.push_str("<path class=\"axis\" d=\"M0 0V1000H1000\"/>\n");
        for (position, _) in self.markers.iter().filter(|m| self.x.can_show(m.0)) {
            let position = x.position(*position) * 1000.0;
            writeln!(out, "<path class=\"marker\" d=\"M{position:.1} 0V1000\"/>")?;
        }
        for (number, item) in drawn.iter().enumerate() {
            item.svg(out, number, x, y)?;
        }
        out.push_str("</svg>\n");
        Ok(())
    }

    /// Writes the values of all series as a table, for readers without a pointer.
    fn values(&self, out: &mut String, drawn: &[DrawnSeries<'_>]) -> fmt::Result {
        let mut xs: Vec<f64> = drawn
            .iter()
            .flat_map(|d| d.points.iter().map(|p| p.0))
            .collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        if xs.is_empty() {
            return Ok(());
        }
        let every = xs.len().div_ceil(MAX_ROWS);
        let heading = Column::figures(self.x.label.clone());
        let columns = drawn.iter().map(|d| Column::figures(d.series.name.clone()));
        let mut table = Table::new(std::iter::once(heading).chain(columns));
        for &x in xs.iter().step_by(every) {
            let cells = drawn.iter().map(|d| match d.series.level_at() {
                Some(level) => self.y.unit.exact(level),
                None => d
                    .points
                    .iter()
                    .find(|p| p.0 == x)
                    .map_or_else(String::new, |p| self.y.unit.exact(p.1)),
            });
            table.row(std::iter::once(self.x.unit.exact(x)).chain(cells));
        }
        let summary = if every == 1 {
            "Values".to_owned()
        } else {
            format!("Values (one of every {every} rows)")
        };
        writeln!(out, "<details><summary>{summary}</summary>")?;
        table.render(out)?;
        out.push_str("</details>\n");
        Ok(())
    }

    /// Writes the data for the script: the positions of all points in thousandths of the plot, and their values
    /// as text.
    fn data(
        &self,
        out: &mut String,
        drawn: &[DrawnSeries<'_>],
        x: &Scale,
        y: &Scale,
    ) -> fmt::Result {
        out.push_str("<script type=\"application/json\">[");
        for (n, item) in drawn.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            let name = Json(&item.series.name);
            write!(out, "{comma}\n{{\"name\":{name},\"slot\":{},", item.slot)?;
            if let Some(level) = item.series.level_at() {
                let label = self.y.unit.exact(level);
                write!(out, "\"level\":{},", Json(&label))?;
            }
            out.push_str("\"points\":[");
            for (n, &(px, py)) in item.points.iter().enumerate() {
                let comma = if n == 0 { "" } else { "," };
                write!(
                    out,
                    "{comma}[{:.1},{:.1},{},{}]",
                    x.position(px) * 1000.0,
                    1000.0 - y.position(py) * 1000.0,
                    Json(&self.x.unit.exact(px)),
                    Json(&self.y.unit.exact(py))
                )?;
            }
            out.push_str("]}");
        }
        out.push_str("\n]</script>\n");
        Ok(())
    }
}

/// A set of points with a name, a form and a colour.
#[derive(Clone, Debug)]
pub struct Series {
    name: String,
    shape: SeriesShape,
    dashed: bool,
    colour: Option<usize>,
    points: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum SeriesShape {
    Line,
    Step,
    Dots,
    Columns,
    Level(f64),
}

impl Series {
    /// Returns a series whose points are connected by straight lines.
    pub fn line(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self::new(name, SeriesShape::Line, points)
    }

    /// Returns a series of steps: each value applies until the next point.
    pub fn steps(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self::new(name, SeriesShape::Step, points)
    }

    /// Returns a series of points without lines.
    pub fn dots(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self::new(name, SeriesShape::Dots, points)
    }

    /// Returns a series with a column from the axis to each point, as in a histogram.
    pub fn columns(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self::new(name, SeriesShape::Columns, points)
    }

    /// Returns a series that is a horizontal line across the plot: a prediction, a limit or a goal.
    pub fn level(name: impl Into<String>, value: f64) -> Self {
        Self::new(name, SeriesShape::Level(value), [])
    }

    /// Draws the series dashed, for example predicted values beside measured ones.
    #[must_use]
    pub fn dashed(mut self) -> Self {
        self.dashed = true;
        self
    }

    /// Sets the colour by its number, so that related series can have the same colour.
    #[must_use]
    pub fn colour(mut self, number: usize) -> Self {
        self.colour = Some(number);
        self
    }

    fn new(
        name: impl Into<String>,
        shape: SeriesShape,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        Self {
            name: name.into(),
            shape,
            dashed: false,
            colour: None,
            points: points.into_iter().collect(),
        }
    }

    /// Returns the value of a horizontal line. Returns `None` for other series, and if the value is not finite.
    fn level_at(&self) -> Option<f64> {
        match self.shape {
            SeriesShape::Level(value) if value.is_finite() => Some(value),
            _ => None,
        }
    }
}

/// A series with the number of its colour and its visible points.
struct DrawnSeries<'a> {
    series: &'a Series,
    slot: usize,
    /// How often all colours were used before. A line of a later turn has another pattern.
    turn: usize,
    points: Vec<(f64, f64)>,
}

impl DrawnSeries<'_> {
    /// Returns the classes of a line.
    fn line_class(&self) -> &'static str {
        match self.turn {
            _ if self.series.dashed => "line dashed",
            0 => "line",
            1 => "line second",
            _ => "line third",
        }
    }

    fn is_empty(&self) -> bool {
        self.points.is_empty() && self.series.level_at().is_none()
    }

    fn svg(&self, out: &mut String, number: usize, x: &Scale, y: &Scale) -> fmt::Result {
        let (style, path) = self.path(x, y, Frame::PAGE)?;
        if path.is_empty() {
            return Ok(());
        }
        let class = match style {
            PathStyle::Fill => "fill",
            PathStyle::Dots => "dots",
            PathStyle::Line => self.line_class(),
        };
        writeln!(
            out,
            "<path class=\"{class} c{}\" data-series=\"{number}\" d=\"{path}\"/>",
            self.slot
        )
    }

    /// Returns the drawing of the series as the path of an SVG, which is empty without points.
    fn path(&self, x: &Scale, y: &Scale, frame: Frame) -> Result<(PathStyle, String), fmt::Error> {
        let position = |(px, py): (f64, f64)| (frame.x(x.position(px)), frame.y(y.position(py)));
        let positions = self.points.iter().copied().map(position);
        let (start, end) = (frame.x(0.0), frame.x(1.0));
        let mut path = String::new();
        let mut style = PathStyle::Line;
        match self.series.shape {
            SeriesShape::Line => {
                for (n, (px, py)) in positions.enumerate() {
                    let letter = if n == 0 { 'M' } else { 'L' };
                    write!(path, "{letter}{px:.1} {py:.1}")?;
                }
                // A line through a single point would be invisible, so the point is drawn as a dot.
                if self.points.len() == 1 {
                    path.push_str("h0");
                    style = PathStyle::Dots;
                }
            }
            SeriesShape::Step => {
                for (n, (px, py)) in positions.enumerate() {
                    if n == 0 {
                        write!(path, "M{px:.1} {py:.1}")?;
                    } else {
                        write!(path, "H{px:.1}V{py:.1}")?;
                    }
                }
                // The last value applies up to the right edge.
                if !self.points.is_empty() {
                    write!(path, "H{end:.0}")?;
                }
            }
            // Each point is a stroke of zero length with round caps: a dot that stays round when the drawing is
            // stretched.
            SeriesShape::Dots => {
                style = PathStyle::Dots;
                for (px, py) in positions {
                    write!(path, "M{px:.1} {py:.1}h0")?;
                }
            }
            SeriesShape::Columns => {
                style = PathStyle::Fill;
                let positions: Vec<(f64, f64)> = positions.collect();
                // A column takes 80 % of the smallest distance between two columns, at most 16 % of the width.
                let narrowest = positions
                    .windows(2)
                    .map(|pair| (pair[1].0 - pair[0].0).abs())
                    .filter(|&gap| gap > 0.0)
                    .fold((end - start) * 0.2, f64::min);
                let half = narrowest * 0.4;
                let floor = frame.y(y.floor());
                for (px, py) in positions {
                    let (left, right) = ((px - half).max(start), (px + half).min(end));
                    write!(path, "M{left:.1} {floor:.1}V{py:.1}H{right:.1}V{floor:.1}Z")?;
                }
            }
            SeriesShape::Level(_) => {
                if let Some(level) = self.series.level_at() {
                    let position = frame.y(y.position(level));
                    write!(path, "M{start:.0} {position:.1}H{end:.0}")?;
                }
            }
        }
        Ok((style, path))
    }
}

/// The drawing style of a path.
#[derive(Clone, Copy, PartialEq)]
enum PathStyle {
    Line,
    Dots,
    Fill,
}

/// Writes the legend: the name of each series with a sample of its style.
fn legend(out: &mut String, drawn: &[DrawnSeries<'_>]) -> fmt::Result {
    out.push_str("<ul class=\"legend\">\n");
    for item in drawn {
        let (class, path) = match item.series.shape {
            SeriesShape::Columns => ("fill", "M2 0H22V10H2Z"),
            SeriesShape::Dots => ("dots", "M12 5h0"),
            _ => (item.line_class(), "M0 5H24"),
        };
        writeln!(
            out,
            "<li><svg viewBox=\"0 0 24 10\" aria-hidden=\"true\"><path class=\"{class} c{}\" \
             d=\"{path}\"/></svg>{}</li>",
            item.slot,
            Html(&item.series.name)
        )?;
    }
    out.push_str("</ul>\n");
    Ok(())
}

/// Reduces the number of points to at most [`MAX_POINTS`]. The points are divided into intervals. The first, lowest,
/// highest and last point of each interval remain, so the drawing looks the same on a screen.
fn thin(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    if points.len() <= MAX_POINTS {
        return points;
    }
    let interval_points = points.len().div_ceil(MAX_POINTS / 4);
    let mut thinned = Vec::with_capacity(MAX_POINTS);
    for chunk in points.chunks(interval_points) {
        let by_y = |a: &usize, b: &usize| chunk[*a].1.total_cmp(&chunk[*b].1);
        let mut picked = [
            0,
            (0..chunk.len()).min_by(by_y).unwrap_or(0),
            (0..chunk.len()).max_by(by_y).unwrap_or(0),
            chunk.len() - 1,
        ];
        picked.sort_unstable();
        let mut last = None;
        for n in picked {
            if last != Some(n) {
                thinned.push(chunk[n]);
                last = Some(n);
            }
        }
    }
    thinned
}

/// The maximum number of points per series: more than the width of the plot in pixels, but few enough for a small
/// file.
const MAX_POINTS: usize = 1600;

/// The number of series that a reader can follow at once. With more of them the legend scrolls and a series can be
/// selected, so that the others fade.
const FEW_SERIES: usize = 5;

/// The maximum number of rows in the table below a plot.
const MAX_ROWS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_retains_the_first_last_lowest_and_highest_points() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|n| (f64::from(n), 1.0)).collect();
        points[54_321].1 = 7.0;
        points[12_345].1 = -7.0;
        let (first, last) = (points[0], points[99_999]);
        let thinned = thin(points);
        assert!(thinned.len() <= MAX_POINTS, "{}", thinned.len());
        assert_eq!((thinned[0], thinned[thinned.len() - 1]), (first, last));
        assert!(thinned.contains(&(54_321.0, 7.0)) && thinned.contains(&(12_345.0, -7.0)));
        assert!(thinned.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn points_up_to_the_limit_are_all_retained() {
        let points: Vec<(f64, f64)> = (0..1600).map(|n| (f64::from(n), f64::from(n))).collect();
        assert_eq!(thin(points.clone()), points);
    }
}
