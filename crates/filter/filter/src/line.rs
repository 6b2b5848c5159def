//! Ids in lines of text: files of ids, and lists that writers post to a publisher.
//!
//! **A line is an id, or the list is refused.** A line that is stored with bytes that do not belong to its id makes a
//! filter answer "absent" for the id. The white space around an id is therefore removed: `psql` pads columns, and files
//! have line ends of other systems. Text that no id has is refused: it shows that the list is compressed, in UTF-16 or
//! Latin-1, has several columns, or has quotes around its ids.

/// Returns the id in a line without its line end. Returns an empty id for a line without one.
///
/// Removes white space around the id and a byte order mark before it: the first line of a file, and the first line of
/// each further file if several were joined.
pub fn id_in_line(line: &[u8]) -> Result<&[u8], LineError> {
    let text = std::str::from_utf8(line).map_err(|_| LineError::NotUtf8)?;
    let id = text.trim_start_matches('\u{feff}').trim();
    if let Some(control) = id.chars().find(|character| character.is_control()) {
        return Err(LineError::Control(control));
    }
    if id.len() > 1 && id.starts_with('"') && id.ends_with('"') {
        return Err(LineError::Quoted);
    }
    Ok(id.as_bytes())
}

/// Why a line is not an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The line has bytes that are not UTF-8.
    #[error("the line is not text in UTF-8")]
    NotUtf8,
    /// The line has a control character.
    #[error("the line has the control character U+{:04X}, which no id has", u32::from(*.0))]
    Control(char),
    /// The line begins and ends with a quote.
    #[error("the line is in quotes")]
    Quoted,
}

impl LineError {
    /// Returns advice on how to convert the list.
    pub fn hint(self) -> &'static str {
        match self {
            Self::NotUtf8 => "convert the list, for example with `iconv -f ISO-8859-1 -t UTF-8`",
            Self::Control('\t') => "write one id per line and no other column",
            Self::Control(_) => "write one id per line, as text in UTF-8",
            Self::Quoted => "write ids without quotes (`jq -r`), or read the list as CSV",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both sides of each rule: the text of an id is unchanged, and other text is removed or refused.
    #[test]
    fn a_line_is_an_id_without_padding_or_it_is_refused() {
        for (line, expected) in [
            ("k1", Ok("k1")),
            ("  k1       ", Ok("k1")),
            ("k1\r", Ok("k1")),
            ("\tk1\t", Ok("k1")),
            ("\u{a0}k1\u{3000}", Ok("k1")),
            ("\u{feff}k1", Ok("k1")),
            ("\u{feff}", Ok("")),
            ("   ", Ok("")),
            ("", Ok("")),
            ("New York;7", Ok("New York;7")),
            ("\"", Ok("\"")),
            ("12\"", Ok("12\"")),
            ("né", Ok("né")),
            ("k1\tname", Err(LineError::Control('\t'))),
            ("k\x00001", Err(LineError::Control('\0'))),
            ("k1\rk2", Err(LineError::Control('\r'))),
            ("k1\u{85}k2", Err(LineError::Control('\u{85}'))),
            ("\"k1\"", Err(LineError::Quoted)),
            ("\"\"", Err(LineError::Quoted)),
        ] {
            let found = id_in_line(line.as_bytes());
            assert_eq!(found, expected.map(str::as_bytes), "{line:?}");
        }
        assert_eq!(id_in_line(b"caf\xe9"), Err(LineError::NotUtf8));
        assert_eq!(id_in_line(b"\x1f\x8b\x08"), Err(LineError::NotUtf8));
    }
}
