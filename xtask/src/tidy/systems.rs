//! Checks the imports between systems: compares the table in ARCHITECTURE.md with the folders of the crates.
//!
//! A system is a folder of `crates/` with several crates. A crate that stands alone there combines systems, and may
//! import all of them; `edges` checks its imports.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail};

use super::Finding;
use super::edges::{Package, quoted};

const HEADING: &str = "### The systems";
const DOCUMENT: &str = "ARCHITECTURE.md";

/// The systems, and those that each of them may import.
pub(crate) type Systems = BTreeMap<String, BTreeSet<String>>;

/// Parses the table below the heading.
pub(crate) fn parse_table(document: &str) -> anyhow::Result<Systems> {
    let (_, after) = document
        .split_once(HEADING)
        .with_context(|| format!("{DOCUMENT} has no heading `{HEADING}`"))?;
    let rows = after
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        // Skips the column names and the separator row.
        .skip(2);
    let mut systems = Systems::new();
    for line in rows {
        let cells: Vec<_> = line.trim_matches('|').split('|').collect();
        let [name, _, imports] = cells[..] else {
            bail!("{DOCUMENT}: a row of `{HEADING}` must have three cells: {line}");
        };
        let name = quoted(name).next();
        let name = name.with_context(|| format!("{DOCUMENT}: a system in backticks: {line}"))?;
        systems.insert(
            name.to_owned(),
            quoted(imports).map(str::to_owned).collect(),
        );
    }
    if systems.is_empty() {
        bail!("{DOCUMENT} has no table under `{HEADING}`");
    }
    Ok(systems)
}

/// Checks every package against the table.
pub(crate) fn check(systems: &Systems, packages: &[Package]) -> Vec<Finding> {
    let of: BTreeMap<&str, &str> = packages
        .iter()
        .filter_map(|package| Some((package.name.as_str(), package.system()?)))
        .collect();
    let mut findings = Vec::new();
    for package in packages {
        let Some(&own) = of.get(package.name.as_str()) else {
            continue;
        };
        let place = format!("{}/Cargo.toml", package.folder.display());
        let Some(allowed) = systems.get(own) else {
            let what = format!("the system `{own}` is not in the table of {DOCUMENT}");
            let hint = "add a row with the systems that it may import";
            findings.push(Finding::new("systems", place, what, hint));
            continue;
        };
        for other in package.imports() {
            if let Some(&system) = of.get(other)
                && system != own
                && !allowed.contains(system)
            {
                let name = &package.name;
                let what = format!("`{name}` of `{own}` may not import `{other}` of `{system}`");
                let hint = "let the crate own a trait or a value, and combine both in `cli`";
                findings.push(Finding::new("systems", &place, what, hint));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::edges::parse_packages;
    use super::*;

    const TABLE: &str = "\
### The systems

| system | is | may import |
|---|---|---|
| `base` | what all use | nothing |
| `edge` | the cache | `base` |

text
";

    fn found(folder: &str, imports: &[(&str, Option<&str>)]) -> Vec<String> {
        let package = |name: &str, folder: &str, imports: &[(&str, Option<&str>)]| {
            let dependencies: Vec<_> = imports
                .iter()
                .map(|(name, kind)| json!({ "name": format!("edgeward-{name}"), "kind": kind }))
                .collect();
            json!({
                "name": format!("edgeward-{name}"),
                "manifest_path": format!("crates/{folder}/Cargo.toml"),
                "dependencies": dependencies,
            })
        };
        let metadata = json!({ "packages": [
            package("types", "base/types", &[]),
            package("proxy", "edge/proxy", &[("types", None)]),
            package("cli", "cli", &[("types", None), ("proxy", None)]),
            package("new", folder, imports),
        ]});
        let packages = parse_packages(&metadata).expect("the JSON has the format of cargo");
        let systems = parse_table(TABLE).expect("the table above is well-formed");
        let findings = check(&systems, &packages);
        findings
            .into_iter()
            .map(|finding| finding.problem)
            .collect()
    }

    #[test]
    fn a_system_imports_itself_and_the_systems_of_its_row() {
        assert_eq!(
            found("edge/new", &[("types", None), ("proxy", None)]),
            [""; 0]
        );
        assert_eq!(
            found("base/new", &[("types", None), ("proxy", None)]),
            ["`new` of `base` may not import `proxy` of `edge`"]
        );
    }

    #[test]
    fn tests_and_crates_that_stand_alone_import_any_system() {
        assert_eq!(found("base/new", &[("proxy", Some("dev"))]), [""; 0]);
        assert_eq!(found("new", &[("types", None), ("proxy", None)]), [""; 0]);
    }

    #[test]
    fn a_folder_without_a_row_is_found() {
        assert_eq!(
            found("other/new", &[]),
            ["the system `other` is not in the table of ARCHITECTURE.md"]
        );
    }

    #[test]
    fn a_malformed_table_is_an_error() {
        assert!(parse_table("no heading").is_err());
        assert!(parse_table("### The systems\n\nno table\n").is_err());
        assert!(parse_table("### The systems\n| a | b |\n|---|---|\n| `x` | y |\n").is_err());
    }
}
