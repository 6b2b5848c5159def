//! Files in memory, for tests.

use std::collections::BTreeMap;

use crate::source::Sources;

/// Files by their paths.
pub(crate) struct Files(BTreeMap<String, String>);

impl Files {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
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

    /// Supports one `*` in the name of the file.
    fn glob(&self, pattern: &str) -> Vec<String> {
        let (start, end) = pattern.split_once('*').expect("a pattern with *");
        let matches = |path: &&String| {
            let middle = path
                .strip_prefix(start)
                .and_then(|rest| rest.strip_suffix(end));
            middle.is_some_and(|middle| !middle.contains('/'))
        };
        self.0.keys().filter(matches).cloned().collect()
    }
}
