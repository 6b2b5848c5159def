//! Checks statements of the documentation against the program: every setting, metric and missing feature that a page
//! names must exist, as a row of the pages that are generated from the code or as a section of [`LIMITS`].
//!
//! Without this check a page continues to deny a feature that was added, and names a key that was renamed.

use std::collections::BTreeSet;
use std::path::Path;

use super::Finding;

/// The generated page of all settings. A test of `cli` fails if it is not fresh.
pub(crate) const SETTINGS: &str = "docs/reference/configuration.md";
/// The generated page of all metrics. A test of `cli` fails if it is not fresh.
pub(crate) const METRICS: &str = "docs/reference/metrics.md";
/// The one list of features that the program lacks.
pub(crate) const LIMITS: &str = "docs/reference/limits.md";
/// The sources with the members of the JSON document `/status`, which pages write like settings: `hot.used_bytes`.
pub(crate) const STATUS: [&str; 2] = [
    "crates/edge/proxy/src/edge/status.rs",
    "crates/edge/proxy/src/cache/disk/report.rs",
];

/// Words by which a page says that a feature is missing.
const DENIALS: [&str; 3] = ["not available", "not supported", "not yet available"];

/// The names that documentation may use.
pub(crate) struct Names {
    /// Settings with their section: `caching.heuristic`, and keys of rules without it: `query.keep`.
    settings: BTreeSet<String>,
    /// The first words of settings with a section: `caching`.
    sections: BTreeSet<String>,
    /// The last words of members of `/status`.
    status: BTreeSet<String>,
    metrics: BTreeSet<String>,
    /// Names of crates as Rust writes them, such as `edgeward_store`.
    crates: BTreeSet<String>,
}

impl Names {
    /// Reads the names from the texts of [`SETTINGS`], [`METRICS`] and [`STATUS`], and from the names of the packages
    /// without the prefix of the project.
    pub(crate) fn parse<'a>(
        settings: &str,
        metrics: &str,
        status: &str,
        packages: impl Iterator<Item = &'a str>,
    ) -> Self {
        let mut names = Self {
            settings: BTreeSet::new(),
            sections: BTreeSet::new(),
            status: BTreeSet::new(),
            metrics: metric_names(metrics).map(str::to_owned).collect(),
            crates: packages
                .map(|name| format!("edgeward_{}", name.replace('-', "_")))
                .collect(),
        };
        let mut section = "";
        for line in settings.lines() {
            if let Some(title) = line.strip_prefix("## `[") {
                section = title.trim_matches(['[', ']', '`']);
                names.settings.insert(section.to_owned());
                names
                    .sections
                    .extend(section.split('.').next().map(str::to_owned));
            } else if let Some(key) = line.strip_prefix("### `") {
                let key = key.trim_end_matches('`');
                names.settings.insert(format!("{section}.{key}"));
                if section == "site.rule" {
                    // A page writes the key of a rule alone, or as a key of its site.
                    names.settings.insert(key.to_owned());
                    names.settings.insert(format!("site.{key}"));
                    if let Some((table, _)) = key.split_once('.') {
                        names.sections.insert(table.to_owned());
                    }
                }
            }
        }
        for line in status.lines() {
            // In `json!`, a member is a string before a colon.
            names.status.extend(
                line.split('"')
                    .skip(1)
                    .step_by(2)
                    .filter(|word| line.contains(&format!("\"{word}\":")))
                    .map(str::to_owned),
            );
        }
        names
    }

    fn has_setting(&self, name: &str) -> bool {
        self.settings.contains(name)
            || name
                .rsplit('.')
                .next()
                .is_some_and(|last| self.status.contains(last))
    }

    /// Returns true for a metric, a series of a histogram, a family such as `edgeward_link_`, and a crate.
    fn has_metric(&self, name: &str) -> bool {
        let series = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix));
        self.metrics.contains(name)
            || series.is_some_and(|metric| self.metrics.contains(metric))
            || name.ends_with('_') && self.metrics.iter().any(|metric| metric.starts_with(name))
            || self.crates.contains(name)
    }
}

/// Checks the statements of one page.
pub(crate) fn check(names: &Names, file: &Path, text: &str) -> Vec<Finding> {
    // Records of decisions and changes keep their words; the glossary names words of other programs.
    let is_history = file.starts_with("docs/adr")
        || file == Path::new("CHANGELOG.md")
        || file == Path::new("docs/words.md");
    let is_for_users = file.starts_with("docs") || file.parent() == Some(Path::new(""));
    if is_history || !is_for_users {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut fenced = false;
    for (at, line) in text.lines().enumerate() {
        let place = || format!("{}:{}", file.display(), at + 1);
        for name in metric_names(line).filter(|name| !names.has_metric(name)) {
            let what = format!("there is no metric {name}");
            let hint = "docs/reference/metrics.md lists all metrics";
            findings.push(Finding::new("statements", place(), what, hint));
        }
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced || file == Path::new(SETTINGS) {
            continue;
        }
        for name in settings_in(line, names).filter(|name| !names.has_setting(name)) {
            let what = format!("there is no setting and no member of /status {name}");
            let hint = "docs/reference/configuration.md lists all settings";
            findings.push(Finding::new("statements", place(), what, hint));
        }
    }
    if file != Path::new(LIMITS) {
        for (line, paragraph) in paragraphs(text) {
            let lower = paragraph.to_lowercase();
            let denies = DENIALS.iter().any(|words| lower.contains(words));
            if denies && !paragraph.contains("limits.md") {
                let what = "this text denies a feature without a link to the list of limits";
                let hint = "link to a section of docs/reference/limits.md, or say what the program does instead";
                let place = format!("{}:{line}", file.display());
                findings.push(Finding::new("statements", place, what.to_owned(), hint));
            }
        }
    }
    findings
}

/// Returns the words of a text that look like metrics of this project.
fn metric_names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-' | '/' | '.'))
        .flat_map(|word| word.split(['-', '/', '.']))
        .filter(|word| word.starts_with("edgeward_") || word.starts_with("process_"))
        // The name of a Debian package: `edgeward_0.1.0_amd64.deb`.
        .filter(|word| !word.ends_with(|c: char| c.is_ascii_digit()))
}

/// Returns the names with dots that begin a code span and whose first word is a section of the settings.
fn settings_in<'a>(line: &'a str, names: &'a Names) -> impl Iterator<Item = &'a str> {
    line.split('`').skip(1).step_by(2).filter_map(|span| {
        let name = span.split(" = ").next()?;
        let is_name =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '.');
        let (first, rest) = name.split_once('.')?;
        // Names of files are no settings.
        let is_file = ["list", "log", "rs", "toml", "md"].contains(&rest);
        (names.sections.contains(first)
            && !is_file
            && !rest.is_empty()
            && name.chars().all(is_name))
        .then_some(name)
    })
}

/// Returns the paragraphs and rows of tables outside code blocks, each with the number of its first line. Headings are
/// left out.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut fenced = false;
    let mut goes_on = false;
    for (at, line) in text.lines().enumerate() {
        let begin = line.trim_start();
        if begin.starts_with("```") {
            fenced = !fenced;
        }
        if fenced || begin.is_empty() || begin.starts_with('#') || begin.starts_with("```") {
            goes_on = false;
            continue;
        }
        let is_item = begin.starts_with("- ") || begin.starts_with('|');
        match found.last_mut().filter(|_| goes_on && !is_item) {
            Some((_, paragraph)) => {
                paragraph.push(' ');
                paragraph.push_str(begin);
            }
            None => found.push((at + 1, begin.to_owned())),
        }
        goes_on = true;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(file: &str, text: &str) -> usize {
        let settings = "## `[caching]`\n### `heuristic`\n## `[[site.rule]]`\n### `query.keep`\n";
        let metrics =
            "| `edgeward_hits_total` | counter |\n| `edgeward_wait_seconds` | histogram |\n";
        let status = "\"hot\": { \"used_bytes\": used(\"else\"),";
        let names = Names::parse(settings, metrics, status, ["store"].into_iter());
        check(&names, Path::new(file), text).len()
    }

    /// A setting that a page names exists; words with dots that belong to no section are no settings.
    #[test]
    fn a_setting_of_a_page_exists() {
        for good in [
            "caching.heuristic",
            "caching.heuristic = false",
            "query.keep",
            "site.query.keep",
            "example.org",
        ] {
            assert_eq!(
                problems("docs/a.md", &format!("Set `{good}`.")),
                0,
                "{good}"
            );
        }
        for bad in ["caching.heuristics", "query.only", "caching.else"] {
            assert_eq!(problems("docs/a.md", &format!("Set `{bad}`.")), 1, "{bad}");
        }
    }

    /// A metric that a page names exists, also in code; a series, a family and a crate are known names.
    #[test]
    fn a_metric_of_a_page_exists() {
        for good in [
            "edgeward_hits_total",
            "edgeward_wait_seconds_bucket",
            "edgeward_wait_",
            "edgeward_store",
        ] {
            assert_eq!(
                problems("docs/a.md", &format!("```\nrate({good}[5m])\n```")),
                0,
                "{good}"
            );
        }
        for bad in [
            "edgeward_hit_total",
            "edgeward_hits_bucket",
            "edgeward_walk_",
        ] {
            assert_eq!(
                problems("docs/a.md", &format!("```\nrate({bad}[5m])\n```")),
                1,
                "{bad}"
            );
        }
    }

    /// A paragraph that denies a feature links to the list of limits, on any of its lines. Records of decisions and the
    /// list itself may deny.
    #[test]
    fn a_denied_feature_is_in_the_list_of_limits() {
        assert_eq!(
            problems(
                "docs/a.md",
                "ESI is not\navailable.\n\nBans are\nNot available"
            ),
            2
        );
        assert_eq!(
            problems("docs/a.md", "ESI is not available\n([why](limits.md#esi))."),
            0
        );
        assert_eq!(
            problems(
                "docs/a.md",
                "| ESI | not available |\n| x | [y](limits.md#esi) |"
            ),
            1
        );
        assert_eq!(problems("docs/a.md", "## Not available\n"), 0);
        assert_eq!(problems("docs/adr/0001.md", "ESI is not available."), 0);
        assert_eq!(
            problems("docs/reference/limits.md", "ESI is not available."),
            0
        );
    }
}
