//! Characters that a reader of a text does not see, or that control the reader's terminal.

use std::borrow::Cow;

/// Returns true for a character that is not shown as itself: a control character (C0, DEL, C1), a character that
/// changes the direction or the shaping of the text after it, a separator of lines, or one without width.
///
/// The list has the general categories Cc, Cf, Zl and Zp of Unicode.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{600}'..='\u{605}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{890}'..='\u{891}'
                | '\u{8e2}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{110bd}'
                | '\u{110cd}'
                | '\u{13430}'..='\u{1343f}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0001}'
                | '\u{e0020}'..='\u{e007f}'
        )
}

/// Returns a JSON document with the hidden characters of its strings as `\uXXXX`, so that a terminal that shows the
/// document obeys no client. The document has the same meaning. White space between its values stays.
pub fn visible_json(document: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| !c.is_ascii_control() && is_hidden(c) || c == '\u{7f}';
    if document.is_ascii() && !document.contains('\u{7f}') || !document.contains(is_escaped) {
        return Cow::Borrowed(document);
    }
    let mut visible = String::with_capacity(document.len() + 64);
    for c in document.chars() {
        if is_escaped(c) {
            push_escaped(c, &mut visible);
        } else {
            visible.push(c);
        }
    }
    Cow::Owned(visible)
}

/// Appends the escape of a character in a JSON string (RFC 8259 §7).
fn push_escaped(c: char, out: &mut String) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        out.push_str(&format!("\\u{unit:04x}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_of_a_document_are_escaped_and_all_others_stay() {
        for (document, visible) in [
            ("{\"a\": \"b\"}\n", "{\"a\": \"b\"}\n"),
            ("\"é日本\u{1f600}\"", "\"é日本\u{1f600}\""),
            ("\"\u{9b}31m\"", "\"\\u009b31m\""),
            ("\"\u{7f}\u{202e}\u{2028}\"", "\"\\u007f\\u202e\\u2028\""),
            ("\"\u{feff}\u{e0041}\"", "\"\\ufeff\\udb40\\udc41\""),
        ] {
            assert_eq!(visible_json(document), visible);
        }
    }
}
