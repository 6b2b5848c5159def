//! Reads files with the files that they include, as one tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::parse::{Directive, parse};
use crate::error::MigrateError;
use crate::source::Sources;
use crate::syntax::{INCLUDES_NESTING_MAX, ParseError, ParseErrorReason};

/// The directives of all files. Behind an `include` follow the directives of its files.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) directives: Vec<Directive>,
    /// Why the files of an `include` were not read, by the number of the directive.
    pub(super) unread: BTreeMap<usize, String>,
}

/// Reads the files and all that they include. Relative paths of `include` start at `prefix`.
pub(super) fn read(
    sources: &dyn Sources,
    files: &[String],
    prefix: &str,
) -> Result<Tree, MigrateError> {
    let mut reader = Reader {
        sources,
        prefix: prefix.trim_end_matches('/'),
        next_id: 0,
        unread: BTreeMap::new(),
    };
    let mut directives = Vec::new();
    for file in files {
        let text = sources
            .read(file)
            .map_err(|reason| MigrateError::Unreadable {
                file: file.clone(),
                reason,
            })?;
        let parsed = parse(&Arc::from(file.as_str()), &text, &mut reader.next_id)?;
        directives.extend(reader.expand(parsed, 0)?);
    }
    Ok(Tree {
        directives,
        unread: reader.unread,
    })
}

struct Reader<'a> {
    sources: &'a dyn Sources,
    prefix: &'a str,
    next_id: usize,
    unread: BTreeMap<usize, String>,
}

impl Reader<'_> {
    /// Adds the directives of included files. `depth` is the number of files around these directives.
    fn expand(
        &mut self,
        directives: Vec<Directive>,
        depth: usize,
    ) -> Result<Vec<Directive>, ParseError> {
        let mut expanded = Vec::with_capacity(directives.len());
        for mut directive in directives {
            if let Some(block) = directive.block.take() {
                directive.block = Some(self.expand(block, depth)?);
            }
            let included = match directive.name.as_str() {
                "include" => self.included(&directive, depth)?,
                _ => Vec::new(),
            };
            expanded.push(directive);
            expanded.extend(included);
        }
        Ok(expanded)
    }

    fn included(
        &mut self,
        directive: &Directive,
        depth: usize,
    ) -> Result<Vec<Directive>, ParseError> {
        if depth >= INCLUDES_NESTING_MAX {
            return Err(ParseError {
                at: directive.at.clone(),
                reason: ParseErrorReason::Includes,
            });
        }
        let pattern = match directive.arg(0) {
            path if path.starts_with('/') => path.to_owned(),
            path => format!("{}/{path}", self.prefix),
        };
        let is_pattern = pattern.contains(['*', '?', '[']);
        let files = match is_pattern {
            true => self.sources.glob(&pattern),
            false => vec![pattern],
        };
        let mut all = Vec::new();
        for file in files {
            match self.sources.read(&file) {
                Ok(text) => {
                    let parsed = parse(&Arc::from(file.as_str()), &text, &mut self.next_id)?;
                    all.extend(self.expand(parsed, depth + 1)?);
                }
                Err(reason) => {
                    self.unread
                        .insert(directive.id, format!("{file}: {reason}"));
                }
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Files;

    #[test]
    fn files_are_included_by_path_and_by_pattern_in_their_order() {
        let files = Files::new(&[
            (
                "/e/nginx.conf",
                "a; include conf.d/*.conf; include /x/one; z;",
            ),
            ("/e/conf.d/2.conf", "c;"),
            ("/e/conf.d/1.conf", "b { include leaf; }"),
            ("/e/conf.d/other", "never;"),
            ("/e/leaf", "l;"),
            ("/x/one", "d;"),
        ]);
        let tree = read(&files, &["/e/nginx.conf".to_owned()], "/e/").expect("readable");
        let names: Vec<_> = tree.directives.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(names, ["a", "include", "b", "c", "include", "d", "z"]);
        assert_eq!(tree.directives[2].children()[1].name, "l");
        assert!(tree.unread.is_empty());
    }

    #[test]
    fn a_missing_included_file_is_noted_and_a_missing_root_is_an_error() {
        let files = Files::new(&[("/a", "include none; include none/*;")]);
        let tree = read(&files, &["/a".to_owned()], "/").expect("readable");
        assert_eq!(tree.unread.len(), 1);
        assert!(read(&files, &["/b".to_owned()], "/").is_err());
    }

    #[test]
    fn a_file_that_includes_itself_is_an_error() {
        let files = Files::new(&[("/a", "include a;")]);
        let error = read(&files, &["/a".to_owned()], "/").expect_err("a circle");
        assert!(error.to_string().contains("include itself"), "{error}");
    }
}
