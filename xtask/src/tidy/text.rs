//! Rules for the text of any file.

use super::Finding;
use super::tokens::tokenize;

/// The maximum number of lines of a file. A longer file usually has two topics.
const LINES_MAX: usize = 800;

/// Finds allow attributes in the file at the path `place`. They hide a lint permanently; an expect attribute warns when
/// the lint no longer applies.
pub(crate) fn no_allow(place: &str, source: &str) -> Vec<Finding> {
    let tokens = tokenize(source);
    let mut findings = Vec::new();
    for window in tokens.windows(5) {
        let texts: Vec<_> = window.iter().map(|token| token.text).collect();
        let line = match texts[..] {
            ["#", "[", "allow", "(", _] | ["#", "!", "[", "allow", "("] => window[0].line,
            _ => continue,
        };
        let place = format!("{place}:{line}");
        let hint = "remove the cause, or write `#[expect(.., reason = \"..\")]`";
        findings.push(Finding::new(
            "allow",
            place,
            "`allow` hides a lint".to_owned(),
            hint,
        ));
    }
    findings
}

/// Checks that a file begins with a module doc. `x/tests.rs` needs no module doc, because `x.rs` has one.
pub(crate) fn module_doc(place: &str, source: &str) -> Option<Finding> {
    if place.ends_with("/tests.rs") {
        return None;
    }
    let opens_with_doc = source
        .lines()
        .find(|line| !line.trim().is_empty())?
        .starts_with("//!");
    (!opens_with_doc).then(|| {
        let what = "the file does not begin with a module doc".to_owned();
        Finding::new(
            "module-doc",
            place,
            what,
            "begin with `//!` and the purpose of the file",
        )
    })
}

pub(crate) fn length(place: &str, source: &str) -> Option<Finding> {
    let lines = source.lines().count();
    (lines > LINES_MAX).then(|| {
        let what = format!("{lines} lines, more than {LINES_MAX}");
        Finding::new(
            "length",
            place,
            what,
            "move one topic of the file to a new file",
        )
        .warning()
    })
}

/// Finds paths that exist on one machine only, such as a home folder.
pub(crate) fn no_machine_paths(place: &str, text: &str) -> Vec<Finding> {
    // The paths are put together here, so that this file does not violate its own rule.
    let banned = ["root", "work", "Users"].map(|top| format!("/{top}/"));
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for path in &banned {
            // A match within a URL or a relative path is no absolute path, so the character before the match is
            // checked.
            let from_the_top = line.match_indices(path.as_str()).any(|(start, _)| {
                let before = line[..start].chars().next_back();
                before.is_none_or(|c| c.is_whitespace() || "\"'`=(<[:".contains(c))
            });
            if from_the_top {
                let what = format!("{path} is a path that exists on one machine only");
                let hint = "write the path relative to the checkout, or take it as an argument";
                findings.push(Finding::new(
                    "paths",
                    format!("{place}:{}", at + 1),
                    what,
                    hint,
                ));
            }
        }
    }
    findings
}

/// Finds the marks that a merge leaves around a conflict.
pub(crate) fn no_conflict_marks(place: &str, text: &str) -> Vec<Finding> {
    let marks = ["<", ">"].map(|mark| format!("{} ", mark.repeat(7)));
    let has_mark = |line: &str| marks.iter().any(|mark| line.starts_with(mark.as_str()));
    let lines = text.lines().enumerate().filter(|(_, line)| has_mark(line));
    lines
        .map(|(at, _)| {
            let what = "the mark of a conflict".to_owned();
            let hint = "choose one of the versions, or combine them";
            Finding::new("conflicts", format!("{place}:{}", at + 1), what, hint)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_of_a_conflict_is_found_at_the_start_of_a_line() {
        let mark = "<".repeat(7);
        assert_eq!(
            no_conflict_marks("a", &format!("x\n{mark} HEAD\ny")).len(),
            1
        );
        assert_eq!(
            no_conflict_marks("a", &format!("a shift {mark} by")).len(),
            0
        );
    }

    #[test]
    fn allow_is_found_on_items_and_on_files() {
        assert_eq!(
            no_allow("x.rs", concat!("#[", "allow(dead_code)] fn f() {}")).len(),
            1
        );
        assert_eq!(no_allow("x.rs", "#![allow(dead_code)] fn f() {}").len(), 1);
        assert_eq!(
            no_allow(
                "x.rs",
                concat!("// #[", "allow(x)]\n#[expect(x)] fn allow() {}")
            )
            .len(),
            0
        );
    }

    #[test]
    fn a_file_without_a_module_doc_is_found() {
        assert!(module_doc("x.rs", "\n//! A doc.\nfn f() {}").is_none());
        assert!(module_doc("x.rs", "// Not one.\nfn f() {}").is_some());
        assert!(module_doc("x.rs", "").is_none());
        assert!(module_doc("x/tests.rs", "use super::*;").is_none());
    }

    #[test]
    fn a_file_beyond_the_limit_of_lines_causes_a_warning() {
        let lines = |n: usize| "x\n".repeat(n);
        assert!(length("x.rs", &lines(LINES_MAX)).is_none());
        let finding = length("x.rs", &lines(LINES_MAX + 1)).expect("the file is too long");
        assert!(!finding.is_error, "a long file is a warning, not an error");
    }

    #[test]
    fn machine_paths_are_found_and_urls_are_not() {
        let path = |top: &str| format!("/{top}/x");
        assert_eq!(
            no_machine_paths("a", &format!("see {}", path("root"))).len(),
            1
        );
        assert_eq!(
            no_machine_paths("a", &format!("open(\"{}\")", path("Users"))).len(),
            1
        );
        assert_eq!(
            no_machine_paths("a", &format!("https://a.b{}", path("work"))).len(),
            0
        );
    }
}
