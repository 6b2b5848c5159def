//! Parts that the laws of all translations share: files in memory, the corpora, the comparison with the listed losses,
//! and damaged texts.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use edgeward_migrate::{Entry, MigrateError, Migration, Outcome, Sources};
use proptest::prelude::*;

/// Files in memory.
pub(crate) struct Files(BTreeMap<String, String>);

impl Files {
    /// Returns the files with these names and texts.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        Self(files.iter().map(owned).collect())
    }
}

impl Sources for Files {
    fn read(&self, path: &str) -> Result<String, String> {
        self.0
            .get(path)
            .cloned()
            .ok_or_else(|| "no such file".to_owned())
    }

    fn glob(&self, _pattern: &str) -> Vec<String> {
        Vec::new()
    }
}

/// Returns the path of a file or folder beside the tests.
pub(crate) fn beside(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(path)
}

/// Returns the configurations of a folder, with their names, in order.
pub(crate) fn corpus(folder: &str) -> Vec<(String, String)> {
    let mut files: Vec<_> = fs::read_dir(beside(folder))
        .expect("the folder exists")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    let read = |path: PathBuf| {
        let name = path.file_name().expect("a file").to_string_lossy();
        let text = fs::read_to_string(&path).expect("the file is read");
        (name.into_owned(), text)
    };
    files.into_iter().map(read).collect()
}

/// For a configuration: its directives of caching, how many of them are translated, and the lines that are lost.
pub(crate) type Listed = (&'static str, usize, usize, &'static [usize]);

/// Asserts that the losses of each configuration are those that are listed, and that at least four of five directives
/// of caching are translated. `check` gets each configuration with its entries.
pub(crate) fn assert_listed(
    folder: &str,
    translate: impl Fn(&str, &str) -> Result<Migration, MigrateError>,
    is_of_cache: impl Fn(&Entry) -> bool,
    check: impl Fn(&str, &str, &[Entry]),
    expected: &[Listed],
) {
    let mut found = Vec::new();
    for (name, text) in corpus(folder) {
        let migration = translate(&name, &text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let entries = &migration.report.entries;
        check(&name, &text, entries);
        let of_cache: Vec<&Entry> = entries.iter().filter(|entry| is_of_cache(entry)).collect();
        let translated = of_cache
            .iter()
            .filter(|entry| entry.outcome != Outcome::LeftOut)
            .count();
        assert!(
            translated * 10 >= of_cache.len() * 8,
            "{name}: {translated} of {}",
            of_cache.len()
        );
        let losses: Vec<usize> = migration
            .report
            .losses()
            .map(|entry| entry.at.line)
            .collect();
        found.push((name, of_cache.len(), translated, losses));
    }
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, all, translated, losses)| {
            ((*name).to_owned(), *all, *translated, losses.to_vec())
        })
        .collect();
    assert!(found == expected, "found: {found:#?}");
}

/// A change of a text: a part that is removed, or replaced by a text.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The place, as a part of the length.
    at: f64,
    /// The bytes that are removed.
    removed: usize,
    added: &'static str,
}

/// Returns one to seven changes that add texts of this list.
pub(crate) fn changes(added: &[&'static str]) -> impl Strategy<Value = Vec<Change>> + use<> {
    let added = prop::sample::select(added.to_vec());
    let one = (0.0..1.0, prop_oneof![Just(0_usize), 0..40_usize], added);
    let change = one.prop_map(|(at, removed, added)| Change { at, removed, added });
    prop::collection::vec(change, 1..8)
}

/// Returns a text after changes.
pub(crate) fn changed(text: &str, changes: &[Change]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for Change { at, removed, added } in changes {
        let start = (chars.len() as f64 * at) as usize;
        let end = (start + removed).min(chars.len());
        chars.splice(start..end, added.chars());
    }
    chars.into_iter().collect()
}
