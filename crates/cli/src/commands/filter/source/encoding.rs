//! Decodes a file of ids to UTF-8: gzip, zstd and bzip2 by their magic numbers, UTF-16 by its byte order mark.
//!
//! Other compressions and UTF-32 are refused. UTF-16 without a byte order mark and one-byte encodings cannot be
//! recognised here; [`edgeward_filter::id_in_line`] refuses their lines.

use std::io::{self, BufRead, BufReader, Read};

use edgeward_trace::raw::Decoder;

use crate::diagnostic::Diagnostic;

use super::file::FileSource;

/// Returns a reader of the decoded text.
pub(super) fn decoded(
    source: &FileSource,
    input: Box<dyn Read + Send>,
) -> anyhow::Result<Box<dyn BufRead>> {
    let refused = |message: String| Diagnostic::new(message).in_file(source.label());
    let decoder = Decoder::open(input, ZSTD_WINDOW_LOG_MAX)
        .map_err(|problem| refused(problem.to_string()))?;
    let mut input = BufReader::with_capacity(BUFFER_BYTES, decoder);
    let head = input
        .fill_buf()
        .map_err(|error| refused(format!("cannot read the ids: {error}")))?;
    let big_endian = match head {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => {
            let hint = "convert the list with `iconv -f UTF-32 -t UTF-8`";
            return Err(refused("the ids are in UTF-32".to_owned())
                .hint(hint)
                .into());
        }
        [0xff, 0xfe, ..] => false,
        [0xfe, 0xff, ..] => true,
        _ => return Ok(Box::new(input)),
    };
    let utf16 = Utf16 {
        input,
        big_endian,
        decoded: Vec::new(),
        taken: 0,
    };
    Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, utf16)))
}

/// Converts UTF-16 to UTF-8. A surrogate without its partner, or half a code unit at the end, is an error.
struct Utf16<R> {
    input: R,
    big_endian: bool,
    /// Text in UTF-8. Its first `taken` bytes were read.
    decoded: Vec<u8>,
    taken: usize,
}

impl<R: BufRead> Utf16<R> {
    /// Reads a code unit. Returns `None` at the end of the input.
    fn unit(&mut self) -> io::Result<Option<u16>> {
        if self.input.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let mut bytes = [0; 2];
        self.input.read_exact(&mut bytes)?;
        Ok(Some(if self.big_endian {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        }))
    }
}

impl<R: BufRead> Read for Utf16<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.decoded.len() {
            (self.taken, _) = (0, self.decoded.clear());
            while self.decoded.len() < BUFFER_BYTES
                && let Some(unit) = self.unit()?
            {
                let mut units = vec![unit];
                if (0xd800..0xdc00).contains(&unit) {
                    units.extend(self.unit()?);
                }
                let text = String::from_utf16(&units)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                self.decoded.extend_from_slice(text.as_bytes());
            }
        }
        let length = out.len().min(self.decoded.len() - self.taken);
        out[..length].copy_from_slice(&self.decoded[self.taken..][..length]);
        self.taken += length;
        Ok(length)
    }
}

/// A decoder of zstd may use a window of 128 MiB, the largest one of `zstd` without `--ultra --long`.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

const BUFFER_BYTES: usize = 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;

    fn utf8(bytes: &[u8]) -> io::Result<String> {
        let mut utf16 = Utf16 {
            input: bytes,
            big_endian: true,
            decoded: Vec::new(),
            taken: 0,
        };
        let mut text = String::new();
        utf16.read_to_string(&mut text).map(|_| text)
    }

    #[test]
    fn utf_16_is_converted_and_incomplete_text_is_an_error() {
        let units = "k1\né\u{1f600}".encode_utf16().collect::<Vec<_>>();
        let bytes: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
        assert_eq!(utf8(&bytes).expect("the text is valid"), "k1\né\u{1f600}");
        for end in [bytes.len() - 1, bytes.len() - 2] {
            assert!(utf8(&bytes[..end]).is_err(), "{end}");
        }
        assert!(utf8(&[0xdc, 0, 0, b'k']).is_err());
    }
}
