//! Writes the result: TOML with the source of each setting behind it.

use std::fmt::Write as _;

use crate::source::Position;

/// A table of the result with its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// The line of the table, such as `[[origin]]`.
    pub(crate) header: String,
    /// Comments above the table.
    pub(crate) comments: Vec<String>,
    /// The settings in their order.
    pub(crate) settings: Vec<Setting>,
}

/// A line of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) key: String,
    /// The value in TOML.
    pub(crate) value: String,
    /// The line of the source.
    pub(crate) from: Option<Position>,
}

impl Table {
    pub(crate) fn new(header: &str) -> Self {
        Self {
            header: header.to_owned(),
            ..Self::default()
        }
    }

    /// Adds a comment above the table.
    pub(crate) fn comment(&mut self, text: &str) {
        self.comments.push(text.to_owned());
    }

    /// Adds a setting that follows from a line of the source, unless the table has its key.
    pub(crate) fn set(&mut self, key: &str, value: String, from: Option<&Position>) {
        if self.get(key).is_none() {
            self.settings.push(Setting {
                key: key.to_owned(),
                value,
                from: from.cloned(),
            });
        }
    }

    /// Returns the value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let setting = self.settings.iter().find(|setting| setting.key == key);
        setting.map(|setting| setting.value.as_str())
    }
}

/// Returns the text of the file.
pub(crate) fn write(intro: &[String], tables: &[Table]) -> String {
    let mut text = String::new();
    for line in intro {
        comment(&mut text, line);
    }
    for table in tables {
        text.push('\n');
        for line in &table.comments {
            comment(&mut text, line);
        }
        text.push_str(&table.header);
        text.push('\n');
        for Setting { key, value, from } in &table.settings {
            _ = write!(text, "{key} = {value}");
            if let Some(from) = from {
                let from = from.to_string();
                _ = write!(text, "    # from {}", printable(&from));
            }
            text.push('\n');
        }
    }
    text
}

fn comment(text: &mut String, line: &str) {
    _ = writeln!(text, "# {}", printable(line));
}

/// Returns a text without characters that end a comment or that a comment may not have.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Returns a text as a string of TOML.
pub(crate) fn text(value: &str) -> String {
    let is_plain = !value.chars().any(|c| c.is_control() || c == '\'');
    if value.contains(['\\', '"']) && is_plain {
        return format!("'{value}'");
    }
    let mut quoted = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => _ = write!(quoted, "\\u{:04X}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns texts as an array of TOML, and one text as a string.
pub(crate) fn list(values: &[String]) -> String {
    match values {
        [value] => text(value),
        _ => array(values),
    }
}

/// Returns texts as an array of TOML.
pub(crate) fn array(values: &[String]) -> String {
    let texts: Vec<_> = values.iter().map(|value| text(value)).collect();
    format!("[{}]", texts.join(", "))
}

/// Returns a key of TOML, in quotes if it needs them.
pub(crate) fn key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    match !name.is_empty() && name.chars().all(is_bare) {
        true => name.to_owned(),
        false => text(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_have_the_shortest_quotes_that_keep_them() {
        assert_eq!(text("a"), "\"a\"");
        assert_eq!(text(r"^/a\.b$"), r"'^/a\.b$'");
        assert_eq!(text("it's \\"), r#""it's \\""#);
        assert_eq!(text("a\nb"), r#""a\u000Ab""#);
        assert_eq!(list(&["a".to_owned()]), "\"a\"");
        assert_eq!(key("X-A"), "X-A");
        assert_eq!(key("a b"), "\"a b\"");
    }

    #[test]
    fn a_comment_stays_on_its_line() {
        let mut table = Table::new("[hot]");
        table.comment("a\nb = 1");
        assert_eq!(write(&[], &[table]), "\n# a b = 1\n[hot]\n");
    }
}
