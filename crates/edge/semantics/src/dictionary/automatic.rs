//! The patterns of dictionaries whose origin states none.

/// Returns the pattern for the URLs under which other versions of a response are expected. `path` is its canonical
/// path.
///
/// Versions and hashes in the name of a file, and in the names of folders, become `*`: `/js/app.3f9c2d1e.js` gives
/// `/js/app.*.js`, and `/react@18.2.0/react.js` gives `/react@*/react.js`. A path without them stands for itself,
/// because later versions have the same URL.
///
/// Returns `None` for a path with characters that have a meaning in URL patterns.
pub fn automatic_pattern(path: &str) -> Option<String> {
    let is_literal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/@,=%!$&".contains(&byte);
    if !path.starts_with('/') || !path.bytes().all(is_literal) {
        return None;
    }
    let (folders, name) = path.rsplit_once('/')?;
    // A name without an extension may be the number of a document, whose neighbours are not its versions.
    let has_extension = name.rsplit_once('.').is_some_and(|(stem, extension)| {
        !stem.is_empty() && !extension.bytes().any(|byte| byte.is_ascii_digit())
    });
    if !has_extension {
        return Some(path.to_owned());
    }
    let mut pattern: Vec<String> = folders.split('/').map(generalise_folder).collect();
    let general = generalise(name);
    let stem = general.rsplit_once('.').map_or("", |(stem, _)| stem);
    // `*.js` would match each script of the folder.
    let is_distinct = stem.bytes().any(|byte| byte.is_ascii_alphanumeric());
    pattern.push(if is_distinct {
        general
    } else {
        name.to_owned()
    });
    Some(pattern.join("/"))
}

/// Replaces the versions in the name of a folder. A number alone is often the id of a document.
fn generalise_folder(name: &str) -> String {
    match name.bytes().all(|byte| byte.is_ascii_digit()) {
        true => name.to_owned(),
        false => generalise(name),
    }
}

/// Replaces each run of versions and hashes, with the delimiters inside the run, by `*`.
fn generalise(name: &str) -> String {
    let mut out = String::new();
    let mut rest = name;
    let mut after_version = false;
    let mut delimiter = "";
    while !rest.is_empty() {
        let word_end = rest.find(is_delimiter).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(word_end);
        let is_version = is_version(word);
        if !(is_version && after_version) {
            out.push_str(delimiter);
            out.push_str(if is_version { "*" } else { word });
        }
        after_version = is_version;
        let delimiter_end = tail.find(|char| !is_delimiter(char)).unwrap_or(tail.len());
        (delimiter, rest) = tail.split_at(delimiter_end);
    }
    out.push_str(delimiter);
    out
}

fn is_delimiter(char: char) -> bool {
    !char.is_ascii_alphanumeric()
}

/// Returns true for a number, for `v` and a number, and for a text that looks like a hash.
fn is_version(word: &str) -> bool {
    let number = word.strip_prefix('v').unwrap_or(word);
    if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
        return true;
    }
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let is_hex = word.bytes().all(|byte| byte.is_ascii_hexdigit());
    // `bootstrap5` and `base64` are names.
    word.len() >= 8 && (digits >= 2 || (is_hex && digits >= 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dictionary::MatchPattern;

    #[test]
    fn versions_and_hashes_become_wildcards() {
        for (path, pattern) in [
            ("/app.js", "/app.js"),
            ("/js/app.3f9c2d1e.js", "/js/app.*.js"),
            ("/js/app-3f9c2d1e.min.js", "/js/app-*.min.js"),
            ("/assets/index-BX3kQ9aZ.css", "/assets/index-*.css"),
            ("/react@18.2.0/umd/react.js", "/react@*/umd/react.js"),
            ("/static/v2.3.1/app.js", "/static/*/app.js"),
            ("/jquery-3.7.1.min.js", "/jquery-*.min.js"),
            ("/bootstrap5.css", "/bootstrap5.css"),
            ("/base64.js", "/base64.js"),
            ("/3f9c2d1e.js", "/3f9c2d1e.js"),
            ("/api/items/12345", "/api/items/12345"),
            ("/api/12345/data.json", "/api/12345/data.json"),
            ("/", "/"),
            ("/a/.2", "/a/.2"),
        ] {
            assert_eq!(automatic_pattern(path).as_deref(), Some(pattern), "{path}");
        }
        for path in ["/a:b.js", "/a*b.js", "/a(b).js", "/a+b.js", "a.js", "*", ""] {
            assert_eq!(automatic_pattern(path), None, "{path}");
        }
    }

    proptest! {
        /// The pattern of a path always matches this path, and parses.
        #[test]
        fn a_path_matches_its_own_pattern(path in "/[a-z0-9./@~_-]{0,24}") {
            let pattern = automatic_pattern(&path).expect("a path of literals");
            let has_dots = path.split('/').any(|part| matches!(part, "." | ".."));
            if !has_dots && !path.starts_with("//") {
                let parsed = MatchPattern::parse(&pattern, "https://a", &path).expect("a pattern");
                prop_assert!(parsed.matches(&path), "{}", pattern);
            }
        }
    }
}
