//! The parts of a report page. `--plots` also writes the plots as files.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use edgeward_report::{Bars, Page, Plot, Table};

/// A part of a page. Plots and bar charts have a name for their file.
pub(super) enum Part {
    Heading(String),
    Plot(String, Plot),
    Bars(String, Bars),
    Table(Table),
}

/// Adds the parts to a page. The headings begin with `prefix`.
pub(super) fn add_all(page: &mut Page, prefix: &str, parts: Vec<Part>) {
    for part in parts {
        match part {
            Part::Heading(heading) => _ = page.section(format!("{prefix}{heading}")),
            Part::Plot(_, plot) => _ = page.plot(plot),
            Part::Bars(_, bars) => _ = page.bars(bars),
            Part::Table(table) => _ = page.table(table),
        }
    }
}

/// Writes each plot and bar chart as an SVG file into `folder`. The names of the files begin with `prefix`.
pub(super) fn write_plots(folder: &Path, prefix: &str, parts: &[Part]) -> anyhow::Result<()> {
    let cannot_write = |path: &Path| format!("cannot write {}", path.display());
    fs::create_dir_all(folder).with_context(|| cannot_write(folder))?;
    for part in parts {
        let (name, svg) = match part {
            Part::Plot(name, plot) => (name, plot.to_svg()),
            Part::Bars(name, bars) => (name, bars.to_svg()),
            Part::Heading(_) | Part::Table(_) => continue,
        };
        let path = folder.join(format!("{}.svg", file_name(&format!("{prefix}{name}"))));
        fs::write(&path, svg).with_context(|| cannot_write(&path))?;
    }
    Ok(())
}

/// Returns the name with `_` instead of characters that have a meaning in paths or shells.
fn file_name(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_.+".contains(c);
    let plain = name.chars().map(|c| if is_plain(c) { c } else { '_' });
    plain.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_file_is_no_path() {
        assert_eq!(file_name("over-time-64 MiB"), "over-time-64_MiB");
        assert_eq!(file_name("../web: by-size"), ".._web__by-size");
    }
}
