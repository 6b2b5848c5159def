//! Finds circles of files: files that import each other, directly or through other files.
//!
//! A file imports the modules that its paths name and the modules that it declares. A module with items that its own
//! submodules need keeps them in one of these.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::Finding;
use super::layers::{paths, segments_of};
use super::source::modules;

/// The folders without circles.
pub(crate) const ROOTS: [&str; 13] = [
    "crates/cli/src",
    "crates/edge/balance/src",
    "crates/edge/h3/src",
    "crates/edge/migrate/src",
    "crates/edge/overload/src",
    "crates/edge/policy/src",
    "crates/edge/proxy-protocol/src",
    "crates/edge/proxy/src",
    "crates/edge/purge/src",
    "crates/edge/s3/src",
    "crates/edge/semantics/src",
    "crates/edge/sites/src",
    "crates/edge/store/src",
];

/// Checks the imports of the given files, whose paths are relative to `root`.
pub(crate) fn check(root: &str, files: &[(PathBuf, String)]) -> Vec<Finding> {
    let of_module: BTreeMap<Vec<String>, &Path> = files
        .iter()
        .map(|(file, _)| (segments_of(file), file.as_path()))
        .collect();
    let file_of = |path: &[String]| {
        let mut prefixes = (0..=path.len()).rev().map(|length| &path[..length]);
        prefixes.find_map(|prefix| of_module.get(prefix).copied())
    };
    let mut imports: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
    for (file, source) in files {
        let declared = modules(source)
            .into_iter()
            .filter(|module| !module.test_only);
        let declared = declared.map(|module| [segments_of(file), module.path].concat());
        let others = paths(file, source).into_iter().chain(declared);
        let others = others
            .filter_map(|path| file_of(&path))
            .filter(|other| other != file);
        imports.insert(file, others.collect());
    }
    let is_in_circle = |file: &Path| {
        let mut reached = BTreeSet::new();
        let mut waiting: Vec<&Path> = imports[file].iter().copied().collect();
        while let Some(other) = waiting.pop() {
            if reached.insert(other) {
                waiting.extend(&imports[other]);
            }
        }
        reached.contains(file)
    };
    let circle: Vec<_> = imports
        .keys()
        .filter(|file| is_in_circle(file))
        .map(|file| format!("`{}`", file.display()))
        .collect();
    if circle.is_empty() {
        return Vec::new();
    }
    let what = format!("a circle of imports among {}", circle.join(", "));
    let hint = "move what both sides need to a file that imports neither";
    vec![Finding::new("circles", root, what, hint)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files
            .iter()
            .map(|(file, source)| (PathBuf::from(file), (*source).to_owned()))
            .collect();
        let findings = check("c/src", &files);
        findings
            .into_iter()
            .map(|finding| finding.problem)
            .collect()
    }

    #[test]
    fn files_that_import_each_other_are_found_through_others() {
        let files = [
            ("main.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::B;"),
            ("b/mod.rs", "fn f() { super::c::g() }"),
            ("c.rs", "use crate::{a::A, d::D};"),
            ("d.rs", "pub(in crate::c) fn d() {}"),
        ];
        assert_eq!(
            found(&files),
            ["a circle of imports among `a.rs`, `b/mod.rs`, `c.rs`"]
        );
        assert_eq!(found(&files[1..3]), [""; 0]);
    }

    #[test]
    fn a_file_that_uses_items_of_the_file_that_declares_it_is_found() {
        let files = [("a.rs", "mod b; struct A;"), ("a/b.rs", "use super::A;")];
        assert_eq!(
            found(&files),
            ["a circle of imports among `a/b.rs`, `a.rs`"]
        );
        let files = [
            ("a.rs", "mod b; mod c;"),
            ("a/b.rs", "use super::c::C;"),
            ("a/c.rs", ""),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn tests_may_import_the_file_that_declares_them() {
        let files = [
            (
                "a.rs",
                "#[cfg(test)] mod tests; #[cfg(test)] mod t { use super::b; }",
            ),
            ("a/b.rs", ""),
        ];
        assert_eq!(found(&files), [""; 0]);
    }
}
