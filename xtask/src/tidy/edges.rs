//! Checks the imports between crates, the edges of the import graph: compares the table in ARCHITECTURE.md with
//! `cargo metadata`.
//!
//! A ring is a layer of crates, from 0 (no I/O) to 3 (the programs). The check reads the table from the document, so
//! the code has no second copy of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::Finding;

const HEADING: &str = "### Who may import whom";
const DOCUMENT: &str = "ARCHITECTURE.md";
const PREFIX: &str = "edgeward-";
const REPORT: &str = "edgeward-report";

/// Libraries for I/O, threads, async code, logging and random numbers. A crate of ring 0 must not depend on them.
const NEED_AN_OPERATING_SYSTEM: [&str; 14] = [
    "async-trait",
    "crossbeam-channel",
    "futures",
    "futures-util",
    "getrandom",
    "hyper",
    "hyper-util",
    "libc",
    "log",
    "mio",
    "rand",
    "socket2",
    "tokio",
    "tracing",
];

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// `0` to `3`, or `tests`.
    pub(crate) ring: String,
    /// True for a crate that is planned and does not exist yet.
    planned: bool,
    may_import: Imports,
}

#[derive(Debug, PartialEq, Eq)]
enum Imports {
    Only(BTreeSet<String>),
    /// Permits all crates except those of the ring `tests`.
    Everything,
}

/// The properties of a workspace package that the rules need.
#[derive(Debug)]
pub(crate) struct Package {
    /// The name without the prefix of the project: `types`, not `edgeward-types`.
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    /// The root file of each target: `lib.rs`, `main.rs`, each file of `tests/`.
    pub(crate) roots: Vec<(PathBuf, TargetKind)>,
    dependencies: Vec<Dependency>,
}

impl Package {
    /// Returns the folder of `crates/` in which the crate stands with others.
    pub(crate) fn system(&self) -> Option<&str> {
        let mut folders = self.folder.iter().map(|name| name.to_str());
        match (folders.next()?, folders.next()?, folders.next()) {
            (Some("crates"), system, Some(_)) => system,
            _ => None,
        }
    }

    /// Returns the crates of the project that this one imports, except for tests.
    pub(crate) fn imports(&self) -> impl Iterator<Item = &str> {
        self.dependencies
            .iter()
            .filter(|dependency| !dependency.for_tests_only)
            .filter_map(|dependency| dependency.name.strip_prefix(PREFIX))
    }

    /// Returns true if the package has a dependency `name` of any kind, for example for tests or for one platform.
    pub(crate) fn depends_on(&self, name: &str) -> bool {
        self.dependencies
            .iter()
            .any(|dependency| dependency.name == name)
    }
}

/// Distinguishes the targets that users get from the other targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetKind {
    /// A library, a program or a procedural macro.
    Shipped,
    /// Any other target: a test, a benchmark, an example or a build script.
    TestsOnly,
}

#[derive(Debug)]
struct Dependency {
    name: String,
    for_tests_only: bool,
}

pub(crate) type Table = BTreeMap<String, Row>;

/// Parses the table below the heading.
pub(crate) fn parse_table(document: &str) -> anyhow::Result<Table> {
    let (_, after) = document
        .split_once(HEADING)
        .with_context(|| format!("{DOCUMENT} has no heading `{HEADING}`"))?;
    let rows = after
        .lines()
        .skip(1)
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        // Skips the column names and the separator row.
        .skip(2);
    let mut table = Table::new();
    for line in rows {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [ring, name, imports] = cells[..] else {
            bail!("{DOCUMENT}: a row of `{HEADING}` must have three cells: {line}");
        };
        let names: Vec<_> = quoted(name).collect();
        let [name_alone] = names[..] else {
            bail!("{DOCUMENT}: the second cell must name one crate in backticks: {line}");
        };
        let may_import = if imports.starts_with("everything") {
            Imports::Everything
        } else {
            Imports::Only(quoted(imports).map(str::to_owned).collect())
        };
        let row = Row {
            ring: ring.to_owned(),
            planned: name.contains("planned"),
            may_import,
        };
        table.insert(name_alone.to_owned(), row);
    }
    if table.is_empty() {
        bail!("{DOCUMENT} has no table under `{HEADING}`");
    }
    Ok(table)
}

/// Returns the words in backticks.
pub(super) fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Reads the packages of the workspace from cargo. Needs no network, because cargo does not resolve the dependencies.
pub(crate) fn packages(root: &Path) -> anyhow::Result<Vec<Package>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(root)
        .output()
        .context("cargo metadata cannot be started")?;
    if !output.status.success() {
        bail!(
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let metadata = serde_json::from_slice(&output.stdout).context("the JSON of cargo metadata")?;
    parse_packages(&metadata)
}

pub(super) fn parse_packages(metadata: &Value) -> anyhow::Result<Vec<Package>> {
    let text = |value: &Value, key: &str| -> anyhow::Result<String> {
        let text = value[key].as_str();
        Ok(text
            .with_context(|| format!("cargo metadata has no {key}"))?
            .to_owned())
    };
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let mut packages = Vec::new();
    for package in list(metadata, "packages") {
        let name = text(&package, "name")?;
        let manifest = PathBuf::from(text(&package, "manifest_path")?);
        let folder = manifest
            .parent()
            .context("the path of a manifest has no folder")?
            .to_path_buf();
        let mut roots = Vec::new();
        for target in list(&package, "targets") {
            let ships = list(&target, "kind")
                .iter()
                .any(|kind| matches!(kind.as_str(), Some("lib" | "bin" | "proc-macro")));
            let kind = if ships {
                TargetKind::Shipped
            } else {
                TargetKind::TestsOnly
            };
            roots.push((PathBuf::from(text(&target, "src_path")?), kind));
        }
        let mut dependencies = Vec::new();
        for dependency in list(&package, "dependencies") {
            dependencies.push(Dependency {
                name: text(&dependency, "name")?,
                for_tests_only: dependency["kind"] == "dev",
            });
        }
        packages.push(Package {
            name: name.strip_prefix(PREFIX).unwrap_or(&name).to_owned(),
            folder,
            roots,
            dependencies,
        });
    }
    Ok(packages)
}

/// Checks every package against the table.
pub(crate) fn check(table: &Table, packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let place = format!("{}/Cargo.toml", package.folder.display());
        let mut finding = |what: String, hint: &str| {
            findings.push(Finding::new("edges", &place, what, hint));
        };
        if package.name == "xtask" {
            // xtask runs cargo and the binary from outside, like a user. The only exception is `report`,
            // because it only renders results.
            for dependency in package
                .dependencies
                .iter()
                .filter(|d| d.name.starts_with(PREFIX) && d.name != REPORT)
            {
                finding(
                    format!("xtask imports {}", dependency.name),
                    "run the binary instead",
                );
            }
            continue;
        }
        let Some(row) = table.get(&package.name) else {
            finding(
                format!("`{}` is not in the table of {DOCUMENT}", package.name),
                "add a row with the ring of the crate and the crates that it may import",
            );
            continue;
        };
        if row.planned {
            finding(
                format!("`{}` exists, but {DOCUMENT} calls it planned", package.name),
                "remove the word planned",
            );
        }
        for dependency in package.dependencies.iter().filter(|d| !d.for_tests_only) {
            let name = dependency.name.as_str();
            if let Some(ours) = name.strip_prefix(PREFIX) {
                if !may_import(table, row, ours) {
                    finding(
                        format!("`{}` may not import `{ours}`", package.name),
                        "see ARCHITECTURE.md, who may import whom",
                    );
                }
            } else if name == "anyhow" && package.name != "cli" {
                finding(
                    format!("`{}` depends on anyhow", package.name),
                    "a library needs its own error types: one enum per operation",
                );
            } else if row.ring == "0" && NEED_AN_OPERATING_SYSTEM.contains(&name) {
                finding(
                    format!("`{}` is pure, but depends on {name}", package.name),
                    "ring 0 is pure: take the values that this library would provide as arguments",
                );
            }
        }
    }
    for (name, row) in table {
        if !row.planned && !packages.iter().any(|package| package.name == *name) {
            let what = format!("`{name}` is in the table, but the crate does not exist");
            findings.push(Finding::new(
                "edges",
                DOCUMENT,
                what,
                "call it planned or remove the row",
            ));
        }
    }
    findings.extend(
        packages
            .iter()
            .flat_map(|package| unused_names(table, package)),
    );
    findings
}

/// Warns about names of a row that the crate does not import.
fn unused_names(table: &Table, package: &Package) -> Vec<Finding> {
    let names = match table.get(&package.name).map(|row| &row.may_import) {
        Some(Imports::Only(names)) => names.iter(),
        Some(Imports::Everything) | None => return Vec::new(),
    };
    names
        .filter(|name| !package.imports().any(|other| other == *name))
        .map(|other| {
            let what = format!("`{}` does not import `{other}`", package.name);
            Finding::new("edges", DOCUMENT, what, "remove the name from the row").warning()
        })
        .collect()
}

fn may_import(table: &Table, row: &Row, other: &str) -> bool {
    match &row.may_import {
        Imports::Only(names) => names.contains(other),
        Imports::Everything => table.get(other).is_some_and(|row| row.ring != "tests"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
# x
### Who may import whom

Some words.

| ring | crate | may import |
|---|---|---|
| 0 | `types` | nothing |
| 0 | `policy` | `types` |
| 0 | `dedup` (planned) | `types` |
| 2 | `proxy` | `types`, `policy` |
| 3 | `cli` | everything that ships |
| tests | `testkit` | `types` |
";

    fn package(name: &str, dependencies: &[(&str, bool)]) -> Package {
        Package {
            name: name.to_owned(),
            folder: PathBuf::from("crates").join(name),
            roots: Vec::new(),
            dependencies: dependencies
                .iter()
                .map(|&(name, for_tests_only)| Dependency {
                    name: name.to_owned(),
                    for_tests_only,
                })
                .collect(),
        }
    }

    /// Returns the findings for a workspace that matches the table and also has `package_under_test`.
    fn found(package_under_test: Package) -> Vec<String> {
        let table = parse_table(TABLE).expect("the table above is well-formed");
        let mut packages: Vec<_> = ["types", "policy", "proxy", "cli", "testkit"]
            .into_iter()
            .filter(|name| *name != package_under_test.name)
            .map(|name| package(name, &[]))
            .collect();
        packages.push(package_under_test);
        let findings = check(&table, &packages).into_iter();
        findings
            .filter(|finding| finding.is_error)
            .map(|finding| finding.problem)
            .collect()
    }

    #[test]
    fn imports_that_the_table_allows_pass() {
        let ours = [
            ("edgeward-policy", false),
            ("edgeward-types", false),
            ("tokio", false),
        ];
        assert_eq!(found(package("proxy", &ours)), [""; 0]);
        assert_eq!(
            found(package(
                "cli",
                &[("edgeward-proxy", false), ("anyhow", false)]
            )),
            [""; 0]
        );
    }

    #[test]
    fn an_import_against_the_table_is_found() {
        let wrong = found(package("policy", &[("edgeward-proxy", false)]));
        assert_eq!(wrong, ["`policy` may not import `proxy`"]);
    }

    #[test]
    fn a_name_of_a_row_that_is_not_imported_is_a_warning() {
        let table = parse_table(TABLE).expect("the table above is well-formed");
        let unused = unused_names(&table, &package("proxy", &[("edgeward-types", false)]));
        assert_eq!(unused.len(), 1);
        assert_eq!(unused[0].problem, "`proxy` does not import `policy`");
        assert!(!unused[0].is_error);
    }

    #[test]
    fn the_testkit_is_only_for_tests() {
        assert_eq!(
            found(package("proxy", &[("edgeward-testkit", true)])),
            [""; 0]
        );
        assert_eq!(
            found(package("cli", &[("edgeward-testkit", false)])),
            ["`cli` may not import `testkit`"]
        );
    }

    #[test]
    fn only_cli_may_depend_on_anyhow() {
        assert_eq!(
            found(package("proxy", &[("anyhow", false)])),
            ["`proxy` depends on anyhow"]
        );
        assert_eq!(found(package("proxy", &[("anyhow", true)])), [""; 0]);
    }

    #[test]
    fn a_pure_crate_must_not_depend_on_a_runtime() {
        assert_eq!(
            found(package("policy", &[("tokio", false)])),
            ["`policy` is pure, but depends on tokio"]
        );
    }

    #[test]
    fn crates_and_rows_of_the_table_must_match() {
        assert_eq!(
            found(package("common", &[])),
            ["`common` is not in the table of ARCHITECTURE.md"]
        );
        assert_eq!(
            found(package("dedup", &[])),
            ["`dedup` exists, but ARCHITECTURE.md calls it planned"]
        );
        let table = parse_table(TABLE).expect("the table above is well-formed");
        let gone = check(&table, &[]);
        assert_eq!(gone.len(), 5, "each unplanned row: {gone:?}");
    }

    #[test]
    fn a_malformed_table_is_an_error() {
        assert!(parse_table("# no such heading").is_err());
        assert!(parse_table("### Who may import whom\n\nno table\n## next\n").is_err());
        let two_cells = "### Who may import whom\n| a | b |\n|---|---|\n| 0 | `types` |\n";
        assert!(parse_table(two_cells).is_err());
    }
}
