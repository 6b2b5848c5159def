//! Tests the help of all commands: `-h` begins with the purpose and fits a screen, `--help` has examples.

use super::run::{output, text};

#[test]
fn every_command_s_short_help_fits_a_screen_of_80_by_24() {
    let mut too_large = Vec::new();
    for path in commands() {
        let out = output(&with(&path, "-h"));
        let help = text(&out.stdout);
        assert!(out.status.success(), "{path:?} -h");
        let lines = help.lines().count();
        let columns = help.lines().map(|line| line.chars().count()).max();
        if lines > 24 || columns > Some(80) {
            too_large.push(format!("{path:?}: {lines} lines, {columns:?} columns"));
        }
    }
    assert!(too_large.is_empty(), "{too_large:#?}");
}

#[test]
fn every_command_s_long_help_has_examples() {
    for path in commands() {
        let help = text(&output(&with(&path, "--help")).stdout);
        assert!(help.contains("edgeward "), "{path:?}: {help}");
        assert!(help.contains("Example"), "{path:?}: {help}");
        assert!(
            help.len() >= text(&output(&with(&path, "-h")).stdout).len(),
            "{path:?}"
        );
    }
}

#[test]
fn every_command_s_help_begins_with_its_purpose() {
    for path in commands() {
        let help = text(&output(&with(&path, "-h")).stdout);
        let first = help.lines().next().unwrap_or_default();
        assert!(
            first.len() > 20 && !first.starts_with("Usage"),
            "{path:?}: {first}"
        );
    }
}

/// All commands and subcommands, as the help lists them.
fn commands() -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = vec![Vec::new()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        let help = text(&output(&with(&path, "-h")).stdout);
        let list = help
            .lines()
            .skip_while(|line| *line != "Commands:")
            .skip(1)
            .take_while(|line| !line.is_empty());
        for line in list {
            // A continuation line of a description is indented further than a name.
            let Some(name) = line.strip_prefix("  ").filter(|l| !l.starts_with(' ')) else {
                continue;
            };
            let name = name.split_whitespace().next().expect("the line has a name");
            let mut inner = path.clone();
            inner.push(name.to_owned());
            found.push(inner);
        }
    }
    assert!(found.len() > 6, "the help lists no commands: {found:?}");
    found
}

fn with<'a>(path: &'a [String], flag: &'a str) -> Vec<&'a str> {
    path.iter().map(String::as_str).chain([flag]).collect()
}
