//! Finds dead files: every `.rs` file must belong to a target through a chain of `mod` lines.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::Finding;
use super::edges::TargetKind;
use super::source::modules;

/// Returns all files that belong to the targets with these root files, each with the kind of its target. `read`
/// returns the text of a file, or `None` if the file does not exist.
pub(crate) fn reach(
    roots: &[(PathBuf, TargetKind)],
    read: &impl Fn(&Path) -> Option<String>,
) -> BTreeMap<PathBuf, TargetKind> {
    let mut reached = BTreeMap::new();
    let mut waiting: Vec<_> = roots
        .iter()
        .map(|(root, kind)| (root.clone(), *kind, true))
        .collect();
    while let Some((file, kind, is_root)) = waiting.pop() {
        // A file that is used by tests and by shipped code counts as shipped.
        let known = reached.get(&file);
        if known.is_some_and(|&known| known == kind || known == TargetKind::Shipped) {
            continue;
        }
        let Some(source) = read(&file) else { continue };
        reached.insert(file.clone(), kind);
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        let stem = file.file_stem().unwrap_or_default();
        let base = if is_root || stem == "mod" {
            folder.to_path_buf()
        } else {
            folder.join(stem)
        };
        for module in modules(&source) {
            let kind = if module.test_only {
                TargetKind::TestsOnly
            } else {
                kind
            };
            // A file that `#[path]` names looks for its modules in its own folder, like a root file.
            let candidates = match module.file {
                Some(named) => vec![(without_dots(&folder.join(named)), true)],
                None => {
                    let path = base.join(module.path.join("/"));
                    vec![
                        (path.with_extension("rs"), false),
                        (path.join("mod.rs"), false),
                    ]
                }
            };
            for (candidate, is_root) in candidates {
                waiting.push((candidate, kind, is_root));
            }
        }
    }
    reached
}

/// Returns the path with each `folder/..` removed, so that a file has one path.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = plain.pop(),
            part => plain.push(part),
        }
    }
    plain
}

/// Returns a finding for each `.rs` file that belongs to no target.
pub(crate) fn dead(sources: &[PathBuf], reached: &BTreeMap<PathBuf, TargetKind>) -> Vec<Finding> {
    sources
        .iter()
        .filter(|source| !reached.contains_key(*source))
        .map(|source| {
            let what = "this file belongs to no target".to_owned();
            Finding::new(
                "dead file",
                source.display(),
                what,
                "add a `mod` line for it or delete it",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &str); 10] = [
        (
            "c/src/lib.rs",
            "pub mod a; #[cfg(test)] mod t; mod inline { mod deep; }",
        ),
        ("c/src/a.rs", "mod b;"),
        ("c/src/a/b.rs", ""),
        ("c/src/t.rs", ""),
        ("c/src/inline/deep/mod.rs", ""),
        (
            "c/tests/whole.rs",
            "mod common; #[path = \"odd.rs\"] mod o;",
        ),
        ("c/tests/common/mod.rs", ""),
        (
            "c/tests/odd.rs",
            "mod e; #[path = \"e/../../shared/s.rs\"] mod s;",
        ),
        ("c/tests/e.rs", ""),
        ("c/shared/s.rs", ""),
    ];

    fn reached() -> BTreeMap<PathBuf, TargetKind> {
        let roots = [
            (PathBuf::from("c/src/lib.rs"), TargetKind::Shipped),
            (PathBuf::from("c/tests/whole.rs"), TargetKind::TestsOnly),
        ];
        reach(&roots, &|file| {
            let found = FILES.iter().find(|(name, _)| Path::new(name) == file);
            found.map(|(_, source)| (*source).to_owned())
        })
    }

    #[test]
    fn every_form_of_a_module_declaration_finds_its_file() {
        let reached = reached();
        for (name, _) in FILES {
            assert!(
                reached.contains_key(Path::new(name)),
                "{name} was not reached"
            );
        }
    }

    #[test]
    fn a_module_that_only_tests_declare_is_not_shipped() {
        let reached = reached();
        let kind = |name: &str| reached[Path::new(name)];
        assert_eq!(kind("c/src/a/b.rs"), TargetKind::Shipped);
        assert_eq!(kind("c/src/t.rs"), TargetKind::TestsOnly);
        assert_eq!(kind("c/tests/common/mod.rs"), TargetKind::TestsOnly);
    }

    #[test]
    fn a_file_that_no_module_declares_is_dead() {
        let sources = [
            PathBuf::from("c/src/a.rs"),
            PathBuf::from("c/src/forgotten.rs"),
        ];
        let dead = dead(&sources, &reached());
        assert_eq!(dead.len(), 1);
        assert_eq!(dead[0].position, "c/src/forgotten.rs");
    }
}
