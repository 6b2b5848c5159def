//! The encoding of statistics for files and transfer: `docs/reference/partial-format.md`.
//!
//! Numbers are LEB128, or little-endian if their size is fixed. The reader does not trust its input: each
//! length is compared with the remaining bytes before memory is allocated.

use std::fmt;

/// The error of decoding invalid bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// The name of the part that was being decoded.
    pub what: &'static str,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // "its" refers to the file, which the caller names before this text.
        write!(f, "its {} cannot be decoded", self.what)
    }
}

impl std::error::Error for DecodeError {}

/// Encodes values one after the other.
#[derive(Clone, Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Returns an empty writer.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns all written bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Removes all written bytes.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Writes bytes without their length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Writes one byte.
    pub fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Writes a number as LEB128, with seven bits per byte.
    #[inline]
    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Writes a number in eight bytes, little-endian.
    pub fn fixed(&mut self, number: u64) {
        self.raw(&number.to_le_bytes());
    }

    /// Writes the number of bytes and the bytes.
    pub fn text(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.raw(bytes);
    }
}

/// Decodes the values of a [`Writer`].
#[derive(Clone, Copy, Debug)]
pub struct Reader<'b> {
    rest: &'b [u8],
    what: &'static str,
}

impl<'b> Reader<'b> {
    /// Returns a reader. Its errors contain `what`, the name of the decoded part.
    pub const fn new(bytes: &'b [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    /// Returns the error for invalid bytes in this part.
    pub const fn decode_error(&self) -> DecodeError {
        DecodeError { what: self.what }
    }

    /// Reads this number of bytes.
    ///
    /// # Errors
    ///
    /// Fails if fewer bytes remain.
    #[inline]
    pub fn raw(&mut self, length: usize) -> Result<&'b [u8], DecodeError> {
        let error = self.decode_error();
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(error)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads one byte.
    ///
    /// # Errors
    ///
    /// Fails if no byte remains.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.raw(1)?[0])
    }

    /// Reads a LEB128 number in its shortest form.
    ///
    /// # Errors
    ///
    /// Fails if the number is truncated, too large, or not in its shortest form.
    #[inline]
    pub fn number(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if (bits << shift) >> shift != bits || (byte == 0 && shift > 0) {
                return Err(self.decode_error());
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.decode_error())
    }

    /// Reads the count of a statistic, such as a number of requests. A count is at most 2^40, so that the sum
    /// over thousands of results does not overflow.
    ///
    /// # Errors
    ///
    /// Fails if the number is truncated or above the limit.
    #[inline]
    pub fn counted(&mut self) -> Result<u64, DecodeError> {
        let counted = self.number()?;
        if counted > COUNTED_MAX {
            return Err(self.decode_error());
        }
        Ok(counted)
    }

    /// Reads a number of eight bytes, little-endian.
    ///
    /// # Errors
    ///
    /// Fails if fewer bytes remain.
    pub fn fixed(&mut self) -> Result<u64, DecodeError> {
        let bytes = self.raw(8)?;
        Ok(u64::from_le_bytes(
            bytes.try_into().expect("the slice has eight bytes"),
        ))
    }

    /// Reads a length and this number of bytes.
    ///
    /// # Errors
    ///
    /// Fails if fewer bytes remain.
    pub fn text(&mut self) -> Result<&'b [u8], DecodeError> {
        let length = self.number()?;
        let length = usize::try_from(length).map_err(|_| self.decode_error())?;
        self.raw(length)
    }

    /// Reads a count of items that take at least `bytes_min` bytes each.
    ///
    /// # Errors
    ///
    /// Fails if the remaining bytes are too few for this number of items.
    pub fn count(&mut self, bytes_min: usize) -> Result<usize, DecodeError> {
        let count = self.number()?;
        let count = usize::try_from(count).map_err(|_| self.decode_error())?;
        if count > self.rest.len() / bytes_min.max(1) {
            return Err(self.decode_error());
        }
        Ok(count)
    }

    /// Returns true if all bytes were read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Ends the decoding.
    ///
    /// # Errors
    ///
    /// Fails if bytes remain.
    pub fn end(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(self.decode_error())
    }
}

/// The largest count, about 10^12. The sum of 16 million such counts fits in 64 bits.
const COUNTED_MAX: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn written_values_are_read_back(
            numbers in prop::collection::vec(any::<u64>(), 0..9), text in any::<Vec<u8>>(),
        ) {
            let mut writer = Writer::new();
            numbers.iter().for_each(|n| writer.number(*n));
            numbers.iter().for_each(|n| writer.number(*n >> 40));
            writer.text(&text);
            writer.fixed(7);
            let bytes = writer.into_bytes();
            let mut reader = Reader::new(&bytes, "figures");
            for number in &numbers {
                prop_assert_eq!(reader.number(), Ok(*number));
            }
            for number in &numbers {
                prop_assert_eq!(reader.number(), Ok(*number >> 40));
            }
            prop_assert_eq!(reader.text(), Ok(&text[..]));
            prop_assert_eq!(reader.fixed(), Ok(7));
            prop_assert_eq!(reader.end(), Ok(()));
        }
    }

    #[test]
    fn invalid_bytes_are_rejected() {
        let number = |bytes: &[u8]| Reader::new(bytes, "figures").number();
        assert_eq!(
            number(&[0xff; 9]),
            Err(DecodeError { what: "figures" }),
            "cut"
        );
        assert!(number(&[0xff; 11]).is_err(), "without an end");
        assert!(number(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).is_err());
        assert!(number(&[0x80, 0]).is_err(), "zero takes one byte");
        assert!(Reader::new(&[5, 1, 2], "x").text().is_err());
        assert!(Reader::new(&[3, 1, 2, 3, 4, 5], "x").count(2).is_err());
        assert_eq!(Reader::new(&[2, 1, 2, 3, 4], "x").count(2), Ok(2));
        assert!(Reader::new(&[1], "x").end().is_err());
    }
}
