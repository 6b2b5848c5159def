//! Placeholders such as `@port@` in commands and files of a benchmark.

use std::collections::BTreeMap;

/// The values of placeholders, by name.
pub(super) type Values = BTreeMap<String, String>;

/// Replaces each placeholder that has a value. A value may contain placeholders. Text between two `@` that is not the
/// name of a value remains.
pub(super) fn expand(text: &str, values: &Values) -> String {
    let mut text = text.to_owned();
    for _ in 0..DEPTH_MAX {
        let expanded = expand_once(&text, values);
        if expanded == text {
            break;
        }
        text = expanded;
    }
    text
}

fn expand_once(text: &str, values: &Values) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, name, after)) = next(rest) {
        expanded.push_str(before);
        match values.get(name) {
            Some(value) => expanded.push_str(value),
            None => {
                expanded.push('@');
                expanded.push_str(name);
                expanded.push('@');
            }
        }
        rest = after;
    }
    expanded + rest
}

/// Returns the names of all placeholders in the text.
pub(super) fn names(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some((_, name, after)) = next(rest) {
        names.push(name);
        rest = after;
    }
    names
}

/// Returns the first placeholder, with the text before and after it.
fn next(text: &str) -> Option<(&str, &str, &str)> {
    let mut start = 0;
    loop {
        let at = start + text.get(start..)?.find('@')?;
        let inner = &text[at + 1..];
        let end = inner
            .find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c)))?;
        if end > 0 && inner[end..].starts_with('@') {
            return Some((&text[..at], &inner[..end], &inner[end + 1..]));
        }
        start = at + 1;
    }
}

/// The maximum depth of values that contain placeholders. It also ends the replacement of a value that contains itself.
const DEPTH_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_placeholders_are_replaced_and_other_text_remains() {
        let values = [("port", "80"), ("url", "http://h:@port@/"), ("a.b", "x")];
        let values: Values = values
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        for (text, expected) in [
            ("@url@k", "http://h:80/k"),
            ("@@port@@", "@80@"),
            ("me@port.example, @port", "me@port.example, @port"),
            ("@unknown@ @a.b@", "@unknown@ x"),
            ("ü@port@ü", "ü80ü"),
            ("", ""),
        ] {
            assert_eq!(expand(text, &values), expected, "{text}");
        }
        assert_eq!(names("@a@ @b c@ @d.e@"), ["a", "d.e"]);
    }

    #[test]
    fn a_value_that_contains_itself_is_replaced_a_limited_number_of_times() {
        let values = Values::from([("a".to_owned(), "-@a@".to_owned())]);
        assert_eq!(expand("@a@", &values), "----@a@");
    }
}
