//! Text of errors and bytes, for messages, logs and file names.

use std::error::Error;
use std::fmt::Write as _;

/// Returns the message of an error and the messages of its causes on one line.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Writing to a `String` does not fail.
        _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

/// Returns the bytes as lower-case hex digits.
pub fn to_hex(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from(b"0123456789abcdef"[usize::from(n)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

#[cfg(test)]
mod tests {
    use std::{fmt, io};

    use super::*;

    #[derive(Debug)]
    struct Failed(io::Error);

    impl fmt::Display for Failed {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("cannot open a.txt")
        }
    }

    impl Error for Failed {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn the_causes_of_an_error_follow_its_message() {
        let error = Failed(io::Error::other("no such file"));
        assert_eq!(with_causes(&error), "cannot open a.txt: no such file");
    }

    #[test]
    fn each_byte_becomes_two_digits() {
        assert_eq!(to_hex(&[0x00, 0x0f, 0xa5, 0xff]), "000fa5ff");
    }
}
