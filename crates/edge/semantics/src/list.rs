//! Parsing of comma-separated field values (RFC 9110 §5.6.1).

use http::{HeaderMap, HeaderName};

/// Yields the trimmed members of all lines of one field, without empty members (§5.6.1.2).
pub(crate) fn members<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> {
    headers
        .get_all(name)
        .into_iter()
        .flat_map(|line| Members::new(line.as_bytes()))
}

/// Returns true if a list field has a member that equals `token`, ignoring case.
pub(crate) fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    members(headers, name).any(|member| member.eq_ignore_ascii_case(token.as_bytes()))
}

/// Removes every field for which `is_removed` returns true. Usually no field matches, so the names are checked
/// once and the function returns.
pub(crate) fn remove_where(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    while let Some(name) = headers.keys().find(|name| is_removed(name)).cloned() {
        headers.remove(name);
    }
}

/// Removes optional whitespace (§5.6.3) at both ends.
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Returns the index of the quote that closes the quoted string that begins at `open` (§5.6.4), or `None` if
/// the string is not closed.
pub(crate) fn closing_quote(bytes: &[u8], open: usize) -> Option<usize> {
    let mut position = open + 1;
    while let Some(&byte) = bytes.get(position) {
        match byte {
            b'"' => return Some(position),
            b'\\' => position += 2,
            _ => position += 1,
        }
    }
    None
}

/// Returns true for a non-empty sequence of token bytes (§5.6.2).
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_token_byte(byte))
}

pub(crate) const fn is_token_byte(byte: u8) -> bool {
    matches!(byte,
        b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z')
}

/// Splits one line at the commas outside quoted strings.
///
/// An unclosed quote is an ordinary byte. Therefore `no-store` in `no-cache="a, no-store` is a member of its
/// own and not part of a string.
pub(crate) struct Members<'a> {
    rest: Option<&'a [u8]>,
    /// False after an unclosed quote. Later quotes are then ordinary bytes too, so that parsing a line of
    /// `"\"\"\"` takes linear time.
    quotes_close: bool,
}

impl<'a> Members<'a> {
    pub(crate) fn new(line: &'a [u8]) -> Self {
        Self {
            rest: Some(line),
            quotes_close: true,
        }
    }

    fn member_end(&mut self, bytes: &[u8]) -> usize {
        let mut position = 0;
        while let Some(&byte) = bytes.get(position) {
            match byte {
                b',' => return position,
                b'"' if self.quotes_close => match closing_quote(bytes, position) {
                    Some(close) => position = close + 1,
                    None => {
                        self.quotes_close = false;
                        position += 1;
                    }
                },
                _ => position += 1,
            }
        }
        bytes.len()
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let bytes = self.rest?;
            let end = self.member_end(bytes);
            self.rest = bytes.get(end + 1..);
            let member = trim(&bytes[..end]);
            if !member.is_empty() {
                return Some(member);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Vec<&str> {
        Members::new(line.as_bytes())
            .map(|member| std::str::from_utf8(member).expect("the line is cut at an ASCII byte"))
            .collect()
    }

    #[test]
    fn a_comma_inside_quotes_does_not_split() {
        assert_eq!(split(r#"a="1,2", b"#), [r#"a="1,2""#, "b"]);
        assert_eq!(split(r#"a="1\",2", b"#), [r#"a="1\",2""#, "b"]);
    }

    #[test]
    fn empty_members_are_dropped() {
        assert_eq!(split(" , ,a,,\tb , "), ["a", "b"]);
        assert!(split("").is_empty());
        assert!(split(",").is_empty());
    }

    #[test]
    fn an_unclosed_quote_hides_no_member() {
        assert_eq!(
            split(r#"no-cache="a, no-store"#),
            [r#"no-cache="a"#, "no-store"]
        );
        assert_eq!(split(r#""\", b"#), [r#""\""#, "b"]);
    }

    /// A line of unclosed quotes is parsed in one pass.
    ///
    /// Method: parse 2^17 quotes, where each quote but the first is escaped. A search for the end of the string
    /// from each quote would take about 2^34 steps.
    #[test]
    fn many_open_quotes_are_linear() {
        let line = r#""\"#.repeat(1 << 17);
        assert_eq!(split(&line).len(), 1);
    }
}
