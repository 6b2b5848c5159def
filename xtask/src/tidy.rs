//! Rules of this repository that the compiler does not check: `cargo xtask tidy`.
//!
//! Each rule is a function from text to findings in its own file, with a test on a bad example. This file lists the
//! files of the checkout and applies the rules. It also runs as a test, so `cargo test --workspace` enforces the
//! rules.

mod circles; // files that import each other
mod edges; // imports between crates
mod examples; // libraries without examples
mod layers; // imports between the modules of `proxy`
mod modules; // files that no target includes
mod pure; // pure crates do no I/O
mod source; // a helper: parts of a source file
mod statements; // settings, metrics and limits that pages name
mod systems; // imports between systems
mod text; // module docs, lengths of files, `allow` attributes, paths of one machine
mod tokens; // a helper: words outside comments and strings
mod words; // replaced words, sentences, lengths of lines

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::options::Options;
use crate::say;
use edges::TargetKind;

pub(crate) const HELP: &str = "\
Checks imports and words, and pure crates for I/O.

usage: cargo xtask tidy

  --words FOLDER   only words and line lengths of the files in this folder
";

/// Files that must exist, because newcomers and packagers look for them first.
const MUST_EXIST: [&str; 12] = [
    ".ci/run",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "LICENSE",
    "Makefile",
    "README.md",
    "docs/adr/README.md",
    "rust-toolchain.toml",
    "scripts/ensure-debian",
    "scripts/ensure-rust",
];

/// The extensions of files with prose or code. Other files are data and are not checked for words.
const TEXT: [&str; 9] = [
    "conf", "lua", "md", "rs", "sh", "toml", "vcl", "yaml", "yml",
];

/// A violation of a rule: the position, the problem and a hint.
#[derive(Debug)]
struct Finding {
    rule: &'static str,
    position: String,
    problem: String,
    hint: String,
    /// True for an error. A warning is printed and does not fail the run.
    is_error: bool,
}

impl Finding {
    fn new(rule: &'static str, position: impl Display, problem: String, hint: &str) -> Self {
        Self {
            rule,
            position: position.to_string(),
            problem,
            hint: hint.to_owned(),
            is_error: true,
        }
    }

    fn warning(self) -> Self {
        Self {
            is_error: false,
            ..self
        }
    }
}

/// Prints the order of the modules of `proxy` and all findings; with `--words`, only findings about words. Returns true
/// if there are no errors.
pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    if let Some(prefix) = options.value("--words") {
        return words_below(root, prefix);
    }
    let (findings, order) = check(root)?;
    say("modules of proxy, lowest first:\n");
    for (layer, modules) in order {
        say(format!("  {layer}: {}\n", modules.join(", ")));
    }
    Ok(print(&findings))
}

/// Prints the findings about words in files whose path begins with `prefix`. Returns true if there are no findings.
fn words_below(root: &Path, prefix: &str) -> anyhow::Result<bool> {
    let replaced = replaced_words(root)?;
    let mut findings = Vec::new();
    for file in files(root)?.iter().filter(|file| file.starts_with(prefix)) {
        if let Some(text) = text_if_present(&root.join(file)) {
            findings.extend(words::check(&replaced, file, &text));
        }
    }
    Ok(print(&findings))
}

/// Prints findings and their number. Returns true if there are no errors.
fn print(findings: &[Finding]) -> bool {
    for finding in findings {
        let level = if finding.is_error { "error" } else { "warning" };
        say(format!(
            "{level}: {}: {} [{}]\n  hint: {}\n",
            finding.position, finding.problem, finding.rule, finding.hint
        ));
    }
    let errors = findings.iter().filter(|finding| finding.is_error).count();
    say(format!(
        "tidy: {errors} errors, {} warnings\n",
        findings.len() - errors
    ));
    errors == 0
}

fn replaced_words(root: &Path) -> anyhow::Result<words::ReplacedWords> {
    let glossary = fs::read_to_string(root.join(words::GLOSSARY)).context(words::GLOSSARY)?;
    words::ReplacedWords::parse(&glossary)
}

/// Returns all findings in the checkout at `root`, and the order of the modules of `proxy`.
fn check(root: &Path) -> anyhow::Result<(Vec<Finding>, layers::Order)> {
    let files = files(root)?;
    let read = |path: &Path| fs::read_to_string(root.join(path)).ok();
    let mut findings = Vec::new();

    for file in MUST_EXIST {
        if !root.join(file).exists() {
            let hint = "write the file, or remove it from the list in xtask";
            findings.push(Finding::new(
                "missing",
                file,
                "this file is missing".to_owned(),
                hint,
            ));
        }
    }

    let document = read(Path::new("ARCHITECTURE.md")).context("ARCHITECTURE.md is not readable")?;
    let table = edges::parse_table(&document)?;
    let mut packages = edges::packages(root)?;
    for package in &mut packages {
        // Paths are printed relative to the root.
        let relative = |path: &Path| path.strip_prefix(root).unwrap_or(path).to_path_buf();
        package.folder = relative(&package.folder);
        for (path, _) in &mut package.roots {
            *path = relative(path);
        }
    }
    findings.extend(edges::check(&table, &packages));
    findings.extend(systems::check(&systems::parse_table(&document)?, &packages));

    let mut reached = BTreeMap::new();
    for package in &packages {
        // The crates of ring 0 in ARCHITECTURE.md are pure: they use no clock, files or threads.
        let package_files = modules::reach(&package.roots, &read);
        if table.get(&package.name).is_some_and(|row| row.ring == "0") {
            for (file, _) in package_files
                .iter()
                .filter(|(_, kind)| **kind == TargetKind::Shipped)
            {
                let source = read(file).context("the file was read a moment ago")?;
                findings.extend(pure::check(&file.display().to_string(), &source));
            }
        }
        reached.extend(package_files);
    }

    let is_source = |file: &&PathBuf| file.extension().is_some_and(|extension| extension == "rs");
    let is_in_package = |file: &&PathBuf| packages.iter().any(|p| file.starts_with(&p.folder));
    let sources: Vec<_> = files
        .iter()
        .filter(is_source)
        .filter(is_in_package)
        .cloned()
        .collect();
    findings.extend(modules::dead(&sources, &reached));
    findings.extend(dependencies(root, &packages)?);
    for package in &packages {
        let library = package.folder.join("src");
        if !sources.contains(&library.join("lib.rs")) {
            continue;
        }
        let place = package.folder.join("Cargo.toml");
        let manifest = read(&place).context("a manifest is not readable")?;
        let texts: Vec<_> = sources
            .iter()
            .filter(|file| file.starts_with(&library))
            .filter_map(|file| Some((file.to_str()?, read(file)?)))
            .collect();
        let texts = texts.iter().map(|(file, text)| (*file, text.as_str()));
        let place = place.display().to_string();
        findings.extend(examples::check(&place, &manifest, texts));
    }

    let shipped_below = |root: &str| -> Vec<_> {
        let shipped = reached
            .iter()
            .filter(|(_, kind)| **kind == TargetKind::Shipped);
        let below = shipped
            .filter_map(|(file, _)| Some((file.strip_prefix(root).ok()?.to_owned(), read(file)?)));
        below.collect()
    };
    let proxy_files = shipped_below(layers::ROOT);
    let layers = layers::check(&layers::parse_table(&document)?, &proxy_files);
    findings.extend(layers.findings);
    for root in circles::ROOTS {
        findings.extend(circles::check(root, &shipped_below(root)));
    }

    let replaced = replaced_words(root)?;
    let named =
        |path: &str| read(Path::new(path)).with_context(|| format!("{path} is not readable"));
    let mut status = String::new();
    for path in statements::STATUS {
        status.push_str(&named(path)?);
    }
    let names = statements::Names::parse(
        &named(statements::SETTINGS)?,
        &named(statements::METRICS)?,
        &status,
        packages.iter().map(|package| package.name.as_str()),
    );
    for file in &files {
        let extension = file.extension().and_then(|extension| extension.to_str());
        let is_text = extension.map_or_else(
            || !file.starts_with("bench/runs") && !file.ends_with("LICENSE"),
            |extension| TEXT.contains(&extension),
        );
        let Some(text) = is_text.then(|| read(file)).flatten() else {
            continue;
        };
        let place = file.display().to_string();
        findings.extend(text::no_machine_paths(&place, &text));
        findings.extend(text::no_conflict_marks(&place, &text));
        findings.extend(words::check(&replaced, file, &text));
        match extension {
            Some("rs") => {
                findings.extend(text::no_allow(&place, &text));
                findings.extend(text::module_doc(&place, &text));
                findings.extend(text::length(&place, &text));
            }
            Some("md") => {
                findings.extend(statements::check(&names, file, &text));
            }
            _ => {}
        }
    }
    findings.sort_by(|a, b| (a.is_error, &a.position).cmp(&(b.is_error, &b.position)));
    Ok((findings, layers.order))
}

/// Returns the text of a file, or an empty text for a file that is not UTF-8, such as a picture. Returns `None`
/// if the file does not exist.
fn text_if_present(file: &Path) -> Option<String> {
    file.is_file()
        .then(|| fs::read_to_string(file).unwrap_or_default())
}

/// Checks that each external crate is used, and that docs/adr gives the reason for it.
fn dependencies(root: &Path, packages: &[edges::Package]) -> anyhow::Result<Vec<Finding>> {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).context("Cargo.toml")?;
    let mut records = String::new();
    for entry in fs::read_dir(root.join("docs/adr")).context("docs/adr")? {
        records.push_str(&text_if_present(&entry?.path()).unwrap_or_default());
    }
    let mut findings = without_reason(&manifest, &records);
    findings.extend(unused(&manifest, packages));
    Ok(findings)
}

fn without_reason(manifest: &str, records: &str) -> Vec<Finding> {
    shared_dependencies(manifest)
        .filter(|name| !records.contains(&format!("`{name}`")))
        .map(|name| {
            let what = format!("docs/adr does not say why {name} was chosen");
            Finding::new(
                "reasons",
                "Cargo.toml",
                what,
                "add a row to docs/adr/README.md",
            )
        })
        .collect()
}

/// Warns about dependencies of the workspace that no crate uses. This is no error, because a crate may need the
/// dependency soon.
fn unused(manifest: &str, packages: &[edges::Package]) -> Vec<Finding> {
    shared_dependencies(manifest)
        .filter(|name| !packages.iter().any(|package| package.depends_on(name)))
        .map(|name| {
            let what = format!("no crate of the workspace uses {name}");
            let hint = "remove the line, and its row in docs/adr/README.md";
            Finding::new("unused", "Cargo.toml", what, hint).warning()
        })
        .collect()
}

/// Returns the external crates under `[workspace.dependencies]`.
fn shared_dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let after = manifest
        .split_once("[workspace.dependencies]")
        .map_or("", |(_, after)| after);
    after
        .lines()
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once(" = ").map(|(name, _)| name.trim()))
        .filter(|name| !name.starts_with('#') && !name.starts_with("edgeward-"))
}

/// Returns all files that are or could be committed, relative to the root.
fn files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "-z",
        ])
        .current_dir(root)
        .output();
    let mut files: Vec<_> = match listed {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.split_terminator('\0').map(PathBuf::from).collect()
        }
        // A source archive has no .git folder.
        _ => {
            let mut found = Vec::new();
            walk(root, Path::new(""), &mut found)?;
            found
        }
    };
    // Skips files that were deleted and not yet committed.
    files.retain(|file| root.join(file).is_file());
    files.sort();
    if files.is_empty() {
        bail!("{} has no files", root.display());
    }
    Ok(files)
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(root.join(folder)).context("reading the checkout")? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            if !matches!(path.to_str(), Some("target" | ".git" | "bench/scratch")) {
                walk(root, &path, found)?;
            }
        } else {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This checkout has no errors.
    #[test]
    fn this_checkout_is_tidy() {
        let (findings, _) = check(&crate::workspace_root()).expect("the checkout can be read");
        let errors: Vec<_> = findings.iter().filter(|finding| finding.is_error).collect();
        assert!(errors.is_empty(), "cargo xtask tidy finds: {errors:#?}");
    }

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let manifest = "[workspace.dependencies]\n# why\nedgeward-x = { }\na = \"1\"\nb = \"2\"\n\n[x]\nc = 1\n";
        let findings = without_reason(manifest, "| `a` | because |");
        assert_eq!(findings.len(), 1);
        assert!(
            findings[0].problem.contains(" b "),
            "{}",
            findings[0].problem
        );
    }

    #[test]
    fn a_dependency_without_a_user_is_a_warning() {
        let metadata = serde_json::json!({ "packages": [{
            "name": "edgeward-x",
            "manifest_path": "crates/x/Cargo.toml",
            "dependencies": [{ "name": "a", "kind": "dev" }],
        }]});
        let packages = edges::parse_packages(&metadata).expect("the JSON has the format of cargo");
        let manifest = "[workspace.dependencies]\na = \"1\"\nb = \"2\"\n";
        let findings = unused(manifest, &packages);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].problem, "no crate of the workspace uses b");
        assert!(!findings[0].is_error);
    }
}
