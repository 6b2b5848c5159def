//! Checks that the file and the heading of each link between documents exist.

use std::path::{Component, Path, PathBuf};

use super::Finding;

/// Checks every relative link of a Markdown file. `read` returns the text of a file, an empty text for a folder, or
/// `None` if the path does not exist.
pub(crate) fn check(
    file: &Path,
    text: &str,
    read: &impl Fn(&Path) -> Option<String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, target) in targets(text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let linked_file = if path.is_empty() {
            file.to_path_buf()
        } else {
            normalise(&file.parent().unwrap_or_else(|| Path::new("")).join(path))
        };
        let place = || format!("{}:{line}", file.display());
        let Some(linked_text) = read(&linked_file) else {
            let what = format!("the target of the link to {target} does not exist");
            findings.push(Finding::new(
                "links",
                place(),
                what,
                "correct the path or remove the link",
            ));
            continue;
        };
        let is_document = linked_file
            .extension()
            .is_some_and(|extension| extension == "md");
        if !anchor.is_empty() && is_document && !headings(&linked_text).any(|slug| slug == anchor) {
            let what = format!("{} has no heading #{anchor}", linked_file.display());
            let hint = "an anchor is the heading in lower case with - for spaces";
            findings.push(Finding::new("links", place(), what, hint));
        }
    }
    findings
}

/// Returns the target of every `[..](target)` and `[..]: target` outside code, with its line number.
fn targets(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().flat_map(move |(at, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        let mut found = Vec::new();
        if !fenced {
            if let Some((_, target)) = line.split_once("]: ").filter(|_| line.starts_with('[')) {
                found.extend(target.split_whitespace().next());
            }
            // The first, third, fifth … part is prose. The parts between them are code in backticks.
            for prose in line.split('`').step_by(2) {
                found.extend(prose.split("](").skip(1).filter_map(|rest| {
                    let target = rest.split(')').next()?;
                    target.split_whitespace().next()
                }));
            }
        }
        found.into_iter().map(move |target| (at + 1, target))
    })
}

/// Returns the anchors that GitHub generates for the headings of a document.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let mut fenced = false;
    text.lines().filter_map(move |line| {
        if line.starts_with("```") {
            fenced = !fenced;
        }
        let title = line.trim_start_matches('#');
        (!fenced && line.starts_with('#')).then(|| {
            let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
            title
                .trim()
                .to_lowercase()
                .chars()
                .filter(kept)
                .collect::<String>()
                .replace(' ', "-")
        })
    })
}

/// Removes `.` and `..` from a path without file-system access.
fn normalise(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => _ = normal.pop(),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let read = |path: &Path| match path.to_str() {
            Some("docs/a.md") => Some(text.to_owned()),
            Some("README.md") => Some("# Read me\n## Two words, and more\n".to_owned()),
            Some("docs") => Some(String::new()),
            _ => None,
        };
        let findings = check(Path::new("docs/a.md"), text, &read);
        findings
            .into_iter()
            .map(|finding| finding.problem)
            .collect()
    }

    #[test]
    fn good_links_pass() {
        let text = "# Here\n[a](../README.md) [b](../README.md#two-words-and-more) [c](#here)\n\
                    [d](https://example.com/x) [e](.) ![f](../README.md \"title\")\n[g]: ../README.md\n";
        assert_eq!(found(text), [""; 0]);
    }

    #[test]
    fn a_link_to_a_missing_file_is_found() {
        assert_eq!(
            found("[a](gone.md)"),
            ["the target of the link to gone.md does not exist"]
        );
        assert_eq!(found("![plot](img/gone.png)").len(), 1);
        assert_eq!(found("[a]: gone.md").len(), 1);
    }

    #[test]
    fn a_link_to_a_missing_heading_is_found() {
        assert_eq!(
            found("[a](../README.md#three)"),
            ["README.md has no heading #three"]
        );
    }

    #[test]
    fn code_is_not_a_link() {
        assert_eq!(found("`[a](gone.md)`\n```\n[b](gone.md)\n```\n"), [""; 0]);
    }
}
