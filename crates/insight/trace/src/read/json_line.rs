//! Parses a JSON object of one line without copying its strings.

use std::ops::Range;

/// A parser of JSON lines. Its buffers are reused for each line.
#[derive(Clone, Debug, Default)]
pub struct JsonLine {
    /// The path of the current value, such as `request.uri`.
    path: Vec<u8>,
    /// The strings with escapes, unescaped.
    unescaped: Vec<u8>,
}

/// A string, number or Boolean of a JSON line.
#[derive(Clone, Debug)]
pub enum JsonValue {
    /// The bytes of the line that hold the value: a number, or a string without escapes.
    Line(Range<usize>),
    /// The bytes of the parser's buffer that hold an unescaped string.
    Unescaped(Range<usize>),
    /// A Boolean.
    Bool(bool),
}

impl JsonLine {
    /// Parses a line that has one JSON value. Calls `visit` with the path and the location of each string, number and
    /// Boolean. The path of a nested value has the names of all its objects, separated by dots; the values of a list
    /// have the path of the list. Returns `None` if the line is not valid JSON or if its values are nested too deeply.
    pub fn walk(&mut self, line: &[u8], visit: impl FnMut(&[u8], JsonValue)) -> Option<()> {
        self.path.clear();
        self.unescaped.clear();
        let mut walker = Walker {
            line,
            at: 0,
            state: self,
            visit,
        };
        walker.value(0)?;
        walker.skip_blanks();
        (walker.at == line.len()).then_some(())
    }

    /// Returns the bytes of a value of the line that was parsed last.
    pub fn bytes<'a>(&'a self, line: &'a [u8], value: &JsonValue) -> &'a [u8] {
        match value {
            JsonValue::Line(range) => &line[range.clone()],
            JsonValue::Unescaped(range) => &self.unescaped[range.clone()],
            JsonValue::Bool(true) => b"true",
            JsonValue::Bool(false) => b"false",
        }
    }
}

struct Walker<'w, V> {
    line: &'w [u8],
    at: usize,
    state: &'w mut JsonLine,
    visit: V,
}

impl<V: FnMut(&[u8], JsonValue)> Walker<'_, V> {
    fn value(&mut self, depth: usize) -> Option<()> {
        self.skip_blanks();
        match *self.line.get(self.at)? {
            b'{' if depth < DEPTH_MAX => self.object(depth),
            b'[' if depth < DEPTH_MAX => self.list(depth),
            b'"' => {
                let value = self.string()?;
                (self.visit)(&self.state.path, value);
                Some(())
            }
            _ => {
                let begin = self.at;
                while let Some(byte) = self.line.get(self.at)
                    && (byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.'))
                {
                    self.at += 1;
                }
                let word = &self.line[begin..self.at];
                let value = match word {
                    b"" => return None,
                    b"null" => return Some(()),
                    b"true" => JsonValue::Bool(true),
                    b"false" => JsonValue::Bool(false),
                    _ if !(word[0].is_ascii_digit() || word[0] == b'-') => return None,
                    _ => JsonValue::Line(begin..self.at),
                };
                (self.visit)(&self.state.path, value);
                Some(())
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        self.at += 1;
        self.skip_blanks();
        if self.skip_byte(b'}') {
            return Some(());
        }
        loop {
            self.skip_blanks();
            if self.line.get(self.at) != Some(&b'"') {
                return None;
            }
            let name = self.string()?;
            let outer = self.state.path.len();
            if outer > 0 {
                self.state.path.push(b'.');
            }
            match name {
                JsonValue::Line(range) => self.state.path.extend_from_slice(&self.line[range]),
                JsonValue::Unescaped(range) => {
                    let JsonLine { path, unescaped } = &mut *self.state;
                    path.extend_from_slice(&unescaped[range]);
                }
                JsonValue::Bool(_) => unreachable!("a string is not a Boolean"),
            }
            self.skip_blanks();
            if !self.skip_byte(b':') {
                return None;
            }
            self.value(depth + 1)?;
            self.state.path.truncate(outer);
            self.skip_blanks();
            if self.skip_byte(b'}') {
                return Some(());
            }
            if !self.skip_byte(b',') {
                return None;
            }
        }
    }

    /// Parses a list.
    fn list(&mut self, depth: usize) -> Option<()> {
        self.at += 1;
        self.skip_blanks();
        if self.skip_byte(b']') {
            return Some(());
        }
        loop {
            self.value(depth + 1)?;
            self.skip_blanks();
            if self.skip_byte(b']') {
                return Some(());
            }
            if !self.skip_byte(b',') {
                return None;
            }
        }
    }

    /// Parses a string from its opening quote.
    fn string(&mut self) -> Option<JsonValue> {
        let begin = self.at + 1;
        let end = begin + memchr::memchr2(b'"', b'\\', &self.line[begin..])?;
        if self.line[end] == b'"' {
            self.at = end + 1;
            return Some(JsonValue::Line(begin..end));
        }
        let start = self.state.unescaped.len();
        self.state
            .unescaped
            .extend_from_slice(&self.line[begin..end]);
        self.at = end;
        loop {
            let rest = &self.line[self.at..];
            let plain = memchr::memchr2(b'"', b'\\', rest)?;
            self.state.unescaped.extend_from_slice(&rest[..plain]);
            self.at += plain + 1;
            if rest[plain] == b'"' {
                return Some(JsonValue::Unescaped(start..self.state.unescaped.len()));
            }
            let escaped = *self.line.get(self.at)?;
            self.at += 1;
            let byte = match escaped {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'b' => 8,
                b'f' => 12,
                b'"' | b'\\' | b'/' => escaped,
                b'u' => {
                    let c = self.unicode()?;
                    let mut utf8 = [0; 4];
                    let utf8 = c.encode_utf8(&mut utf8);
                    self.state.unescaped.extend_from_slice(utf8.as_bytes());
                    continue;
                }
                _ => return None,
            };
            self.state.unescaped.push(byte);
        }
    }

    /// Parses the four hexadecimal digits after `\u`. If they are the first half of a surrogate pair, also parses the
    /// second half, which is `\u` and four digits again (RFC 8259, section 7).
    fn unicode(&mut self) -> Option<char> {
        let first = self.hex()?;
        if !(0xd800..0xdc00).contains(&first) {
            return Some(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        if !self.line[self.at..].starts_with(b"\\u") {
            return Some(char::REPLACEMENT_CHARACTER);
        }
        self.at += 2;
        let second = self.hex()?;
        let pair = 0x10000 + ((first - 0xd800) << 10) + second.wrapping_sub(0xdc00) % 0x400;
        Some(char::from_u32(pair).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.line.get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |value, digit| {
            Some(value * 16 + char::from(*digit).to_digit(16)?)
        })
    }

    fn skip_blanks(&mut self) {
        while matches!(self.line.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn skip_byte(&mut self, byte: u8) -> bool {
        let matches = self.line.get(self.at) == Some(&byte);
        self.at += usize::from(matches);
        matches
    }
}

/// The maximum depth of nested values. Logs are flat: the headers of a request in a log line have depth three.
const DEPTH_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn values(line: &str) -> Option<Vec<String>> {
        let mut json = JsonLine::default();
        let mut found = Vec::new();
        json.walk(line.as_bytes(), |path, value| {
            found.push((String::from_utf8_lossy(path).into_owned(), value));
        })?;
        let text = |value| String::from_utf8_lossy(json.bytes(line.as_bytes(), value)).into_owned();
        Some(
            found
                .iter()
                .map(|(path, value)| format!("{path}={}", text(value)))
                .collect(),
        )
    }

    #[test]
    fn each_value_is_visited_with_its_path() {
        let line = r#"{"a":1,"b":{"c\n":"x\"y","d":[true,"z"]},"e":null,"f":-2.5e3}"#;
        let expected = ["a=1", "b.c\n=x\"y", "b.d=true", "b.d=z", "f=-2.5e3"];
        assert_eq!(values(line).expect("the line is JSON"), expected);
    }

    #[test]
    fn invalid_json_has_no_values() {
        let deep = format!("{}1{}", "{\"a\":".repeat(40), "}".repeat(40));
        for line in [
            "",
            "x",
            "{",
            "{\"a\":}",
            "{\"a\":1}x",
            "{\"a\":[1,]}",
            "{\"a\":nul}",
            &deep,
        ] {
            assert_eq!(values(line), None, "{line}");
        }
    }
}
