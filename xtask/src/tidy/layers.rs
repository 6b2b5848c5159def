//! Checks the order of `proxy`'s modules. Imports point down the layers, a layer has no cycles, and no file is too
//! long.
//!
//! ARCHITECTURE.md lists the layers, the highest first. A layer is a folder of `crates/edge/proxy/src`; a module is
//! a file or a folder in the layer. A module may import from every lower layer. Within its own layer, a module
//! must import the other modules by name and not through the layer's `mod.rs`, because the check needs to know
//! the imported module.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::Context as _;

use super::Finding;
use super::source::{with_uses_expanded, without_tests};
use super::tokens::{Kind, Token};

/// The folder whose modules have an order.
pub(crate) const ROOT: &str = "crates/edge/proxy/src";

/// The layers, the highest first. Layers in one row do not import each other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layers(Vec<Vec<String>>);

/// The layers with their modules, lowest layer and lowest module first.
pub(crate) type Order = Vec<(String, Vec<String>)>;

/// The findings of the check, and the order of the modules.
#[derive(Debug)]
pub(crate) struct Report {
    pub(super) findings: Vec<Finding>,
    pub(crate) order: Order,
}

/// Reads the table under [`HEADING`].
pub(crate) fn parse_table(document: &str) -> anyhow::Result<Layers> {
    let (_, section) = document
        .split_once(HEADING)
        .with_context(|| format!("ARCHITECTURE.md has no `{}`", HEADING.trim()))?;
    let rows: Vec<Vec<String>> = section
        .lines()
        .take_while(|line| !line.starts_with('#'))
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|row| {
            let cell = row.split('|').next().unwrap_or_default();
            // The first backtick is removed already, so the parts number 1, 3, 5 and so on are names.
            let names = cell.split('`').step_by(2);
            names
                .filter(|name| !name.trim().is_empty())
                .map(str::to_owned)
                .collect()
        })
        .collect();
    anyhow::ensure!(
        !rows.is_empty(),
        "the table of the layers of proxy has no rows"
    );
    Ok(Layers(rows))
}

/// Checks the imports of the given files, whose paths are relative to [`ROOT`].
pub(crate) fn check(layers: &Layers, files: &[(PathBuf, String)]) -> Report {
    let rank: BTreeMap<&str, usize> = layers
        .0
        .iter()
        .rev()
        .zip(0..)
        .flat_map(|(row, rank)| row.iter().map(move |name| (name.as_str(), rank)))
        .collect();
    let mut report = Report {
        findings: Vec::new(),
        order: Vec::new(),
    };
    let modules: BTreeSet<(String, String)> = files
        .iter()
        .filter_map(|(file, _)| Some((segment(file, 0)?, segment(file, 1)?)))
        .collect();
    let mut imports: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for (file, source) in files {
        let place = Path::new(ROOT).join(file);
        let lines = source.lines().count();
        if lines > LINES_MAX {
            let what = format!("{lines} lines, more than {LINES_MAX}");
            report.findings.push(finding(&place, what, SPLIT));
        }
        let Some(layer) = segment(file, 0) else {
            continue;
        };
        let Some(&own_rank) = rank.get(layer.as_str()) else {
            if file.as_os_str() != "lib.rs" {
                report
                    .findings
                    .push(finding(&place, format!("`{layer}` is not a layer"), LISTED));
            }
            continue;
        };
        let module = segment(file, 1);
        for path in paths(file, source) {
            let Some(target) = path.first() else { continue };
            if *target != layer {
                match rank.get(target.as_str()) {
                    Some(other) if *other < own_rank => {}
                    Some(_) => {
                        let what = format!(
                            "imports `{}`, which is not below `{layer}`",
                            path.join("::")
                        );
                        report.findings.push(finding(&place, what, DOWNWARD));
                    }
                    None => {
                        let what = format!("imports `{}`, which is in no layer", path.join("::"));
                        report.findings.push(finding(&place, what, DOWNWARD));
                    }
                }
                continue;
            }
            // The `mod.rs` of a layer has no module and only lists the modules, so its imports are not checked.
            let (Some(module), true) = (&module, path.len() > 1) else {
                continue;
            };
            match path
                .get(1)
                .filter(|name| modules.contains(&(layer.clone(), (*name).clone())))
            {
                Some(other) if other != module => {
                    let of_module = imports.entry((layer.clone(), module.clone())).or_default();
                    of_module.insert(other.clone());
                }
                Some(_) => {}
                None => {
                    let what = format!(
                        "imports `{}` through the layer, not by its module",
                        path.join("::")
                    );
                    report.findings.push(finding(&place, what, BY_MODULE));
                }
            }
        }
    }
    // Puts the modules of each layer in order: a module follows when all modules that it imports are in `order`.
    for layer in layers.0.iter().rev().flatten() {
        let of_layer = modules.iter().filter(|(name, _)| name == layer);
        let mut left: BTreeSet<&String> = of_layer.map(|(_, module)| module).collect();
        let mut order = Vec::new();
        while !left.is_empty() {
            let is_free = |module: &&&String| {
                let key = (layer.clone(), (**module).clone());
                let needs = imports.get(&key);
                needs.is_none_or(|needs| needs.iter().all(|other| !left.contains(other)))
            };
            let free: Vec<&String> = left.iter().filter(is_free).copied().collect();
            if free.is_empty() {
                let cycle: Vec<_> = left.iter().map(|module| format!("`{module}`")).collect();
                let what = format!("a cycle of imports among {}", cycle.join(", "));
                report
                    .findings
                    .push(finding(&Path::new(ROOT).join(layer), what, DOWNWARD));
                break;
            }
            for module in free {
                left.remove(module);
                order.push(module.clone());
            }
        }
        report.order.push((layer.clone(), order));
    }
    report
}

/// Returns a component of a file's path, without the extension: number 0 is the layer, number 1 the module. Returns
/// `None` for `mod.rs` and the root file of the crate.
fn segment(file: &Path, number: usize) -> Option<String> {
    let Some(Component::Normal(name)) = file.components().nth(number) else {
        return None;
    };
    let name = name.to_str()?;
    let name = name.strip_suffix(".rs").unwrap_or(name);
    (!matches!(name, "mod" | "lib" | "main")).then(|| name.to_owned())
}

/// Returns the module of a file, as a path from the root of its crate.
pub(super) fn segments_of(file: &Path) -> Vec<String> {
    (0..).map_while(|number| segment(file, number)).collect()
}

/// Returns the paths that begin with `crate` or `super` in a file, each from the root of its crate.
pub(super) fn paths(file: &Path, source: &str) -> Vec<Vec<String>> {
    let own = segments_of(file);
    let code = without_tests(source);
    let tokens = with_uses_expanded(&code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let before = at.checked_sub(1).map(|before| tokens[before].text);
        // `pub(in crate::path)` imports nothing.
        let is_visibility = before == Some("in") && at > 2 && tokens[at - 3].text == "pub";
        let is_start = before != Some("::") && !is_visibility;
        let in_path = tokens.get(at + 1).is_some_and(|next| next.text == "::");
        if is_start && in_path && matches!(tokens[at].text, "crate" | "super") {
            let mut path = if tokens[at].text == "crate" {
                Vec::new()
            } else {
                own.clone()
            };
            let segments = segments(&tokens[at..]);
            at += segments.len() * 2 - 1;
            for name in segments {
                match name {
                    "crate" | "self" => {}
                    "super" => _ = path.pop(),
                    name => path.push(name.to_owned()),
                }
            }
            found.push(path);
        } else {
            at += 1;
        }
    }
    found
}

/// Returns the segments of the path at the start of `tokens`.
fn segments<'a>(tokens: &[Token<'a>]) -> Vec<&'a str> {
    let mut found = Vec::new();
    for pair in tokens.chunks(2) {
        if pair[0].kind != Kind::Word {
            break;
        }
        found.push(pair[0].text);
        if pair.get(1).is_none_or(|mark| mark.text != "::") {
            break;
        }
    }
    found
}

fn finding(place: &Path, what: String, hint: &str) -> Finding {
    Finding::new("layers", place.display(), what, hint)
}

/// The maximum number of lines of a file.
const LINES_MAX: usize = 500;

const HEADING: &str = "\n### The layers of `proxy`\n";
const LISTED: &str = "move it into a layer, or list the layer in ARCHITECTURE.md";
const DOWNWARD: &str = "move the shared code to a lower module, or pass a value as an argument";
const SPLIT: &str = "move one topic of the file to a new file";
const BY_MODULE: &str = "name the module: `super::module::Item`";

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\n### The layers of `proxy`\n\n| layer | holds |\n|---|---|\n| `top` | – |\n\
        | `left`, `right` | – |\n| `base` | – |\n\n## Next\n";

    fn report(files: &[(&str, &str)]) -> Report {
        let layers = parse_table(TABLE).expect("the table is valid");
        let files: Vec<_> = files
            .iter()
            .map(|(file, source)| (PathBuf::from(file), (*source).to_owned()))
            .collect();
        check(&layers, &files)
    }

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        report(files)
            .findings
            .into_iter()
            .map(|finding| finding.problem)
            .collect()
    }

    #[test]
    fn the_lowest_layer_and_module_come_first() {
        let report = report(&[
            ("top/mod.rs", "mod a; pub use a::A;"),
            ("top/a.rs", "use crate::{base::clock::Clock, left::Left};"),
            ("left/mod.rs", ""),
            ("base/clock.rs", ""),
            ("base/worker.rs", "use super::clock::Clock;"),
            ("base/z.rs", "fn f() { crate::base::worker::g() }"),
            ("base/b/deep.rs", "use super::super::z;"),
        ]);
        assert!(report.findings.is_empty(), "{report:?}");
        let order: Vec<_> = report
            .order
            .iter()
            .map(|(layer, modules)| (layer.as_str(), modules.join(" ")))
            .collect();
        assert_eq!(
            order,
            [
                ("base", "clock worker z b".to_owned()),
                ("left", String::new()),
                ("right", String::new()),
                ("top", "a".to_owned())
            ]
        );
    }

    #[test]
    fn an_import_upward_or_sideways_is_found() {
        for (file, source) in [
            ("base/clock.rs", "use crate::top::a::A;"),
            ("base/clock.rs", "fn f() { crate::left::g() }"),
            ("left/x.rs", "use crate::right::R;"),
            ("left/x.rs", "use crate::unlisted::R;"),
            ("unlisted/x.rs", ""),
        ] {
            assert_eq!(found(&[(file, source)]).len(), 1, "{file}: {source}");
        }
    }

    #[test]
    fn a_cycle_within_a_layer_is_found() {
        let files = [
            ("base/a.rs", "use super::b::B;"),
            ("base/b.rs", "use crate::base::c::C;"),
            ("base/c/deep.rs", "use super::super::a::A;"),
        ];
        assert_eq!(found(&files), ["a cycle of imports among `a`, `b`, `c`"]);
    }

    #[test]
    fn a_module_imports_other_modules_of_its_layer_by_name() {
        let files = [("base/a.rs", "use super::{B, b};"), ("base/b.rs", "")];
        assert_eq!(
            found(&files),
            ["imports `base::B` through the layer, not by its module"]
        );
    }

    #[test]
    fn a_file_has_at_most_500_lines() {
        let long = "\n".repeat(500);
        assert_eq!(found(&[("base/a.rs", &long)]), [""; 0]);
        let longer = "\n".repeat(501);
        assert_eq!(
            found(&[("base/a.rs", &longer)]),
            ["501 lines, more than 500"]
        );
    }

    #[test]
    fn tests_may_import_anything() {
        assert!(
            found(&[("base/a.rs", "#[cfg(test)] mod tests { use crate::top::T; }")]).is_empty()
        );
    }
}
