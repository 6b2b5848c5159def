//! Escapes untrusted text for HTML and JSON.

use std::fmt::{self, Write as _};

/// Formats a text for HTML, as the content of an element or as an attribute value in quotes.
pub(crate) struct Html<'a>(pub(crate) &'a str);

impl fmt::Display for Html<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c if is_unprintable(c) => f.write_char(char::REPLACEMENT_CHARACTER)?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Formats a text as a JSON string with quotes, for use inside a `<script>` element. Tabs and line feeds become spaces.
///
/// The HTML parser searches the content of a `<script>` element for `</script` and `<!--` before the JSON is
/// parsed, so `<` is always escaped.
pub(crate) struct Json<'a>(pub(crate) &'a str);

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => write!(f, "\\u{:04x}", u32::from(c))?,
                c if is_unprintable(c) => f.write_char(char::REPLACEMENT_CHARACTER)?,
                '\t' | '\n' => f.write_char(' ')?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// Returns true for the control characters that the output replaces by U+FFFD: all except line feeds and tabs.
fn is_unprintable(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
}
