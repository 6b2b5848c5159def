//! The hash of a body without its content coding.
//!
//! Two caches may compress one body differently, so the decoded bytes are compared. The body is hashed while it
//! arrives, in the memory of one decoder.

use std::io::{self, Write};

use brotli::DecompressorWriter;
use flate2::write::MultiGzDecoder;
use twox_hash::XxHash3_128;
use zstd::stream::write::Decoder as ZstdDecoder;

/// Computes the hash of one body.
pub(super) struct BodyHash {
    /// `None` after an error.
    decoder: Option<BodyDecoder>,
}

enum BodyDecoder {
    Identity(Box<Hasher>),
    Gzip(Box<MultiGzDecoder<Hasher>>),
    Brotli(Box<DecompressorWriter<Hasher>>),
    Zstd(Box<ZstdDecoder<'static, Hasher>>),
}

impl BodyHash {
    /// Starts the hash of a body with this value of `Content-Encoding`. A body with an unknown coding has no hash.
    pub(super) fn new(coding: Option<&str>) -> Self {
        let hasher = Hasher::default();
        let decoder = match coding.map(str::trim) {
            None | Some("" | "identity") => Some(BodyDecoder::Identity(Box::new(hasher))),
            Some("gzip" | "x-gzip") => {
                Some(BodyDecoder::Gzip(Box::new(MultiGzDecoder::new(hasher))))
            }
            Some("br") => {
                let decoder = DecompressorWriter::new(hasher, BROTLI_BUFFER_BYTES);
                Some(BodyDecoder::Brotli(Box::new(decoder)))
            }
            Some("zstd") => ZstdDecoder::new(hasher)
                .ok()
                .map(|decoder| BodyDecoder::Zstd(Box::new(decoder))),
            Some(_) => None,
        };
        Self { decoder }
    }

    /// Adds bytes of the body. A body that cannot be decoded, or whose decoded length exceeds the limit, has no hash.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let result = match &mut self.decoder {
            None => return,
            Some(BodyDecoder::Identity(hasher)) => hasher.write_all(bytes),
            Some(BodyDecoder::Gzip(decoder)) => decoder.write_all(bytes),
            Some(BodyDecoder::Brotli(decoder)) => decoder.write_all(bytes),
            Some(BodyDecoder::Zstd(decoder)) => decoder.write_all(bytes),
        };
        if result.is_err() {
            self.decoder = None;
        }
    }

    /// Returns the hash of the complete body.
    pub(super) fn finish(self) -> Option<u128> {
        let hasher = match self.decoder? {
            BodyDecoder::Identity(hasher) => *hasher,
            BodyDecoder::Gzip(decoder) => decoder.finish().ok()?,
            BodyDecoder::Brotli(decoder) => decoder.into_inner().ok()?,
            BodyDecoder::Zstd(mut decoder) => {
                decoder.flush().ok()?;
                decoder.into_inner()
            }
        };
        Some(hasher.hash.finish_128())
    }
}

#[derive(Default)]
struct Hasher {
    hash: XxHash3_128,
    bytes: u64,
}

impl Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
        if self.bytes > DECODED_BYTES_MAX {
            return Err(io::Error::other("the body is too long"));
        }
        self.hash.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The longest body that is compared: 1 GiB takes about a second. It also bounds the work for a body that decodes to
/// far more bytes than it has.
const DECODED_BYTES_MAX: u64 = 1 << 30;

const BROTLI_BUFFER_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(coding: Option<&str>, bytes: &[u8]) -> Option<u128> {
        let mut hash = BodyHash::new(coding);
        // The parts of a body arrive in any sizes.
        bytes.chunks(7).for_each(|part| hash.add(part));
        hash.finish()
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).expect("the text can be encoded");
        encoder.finish().expect("the text can be encoded")
    }

    #[test]
    fn a_body_has_the_same_hash_in_every_coding() {
        let text = "The body of a page. ".repeat(500).into_bytes();
        let expected = hash(None, &text);
        assert!(expected.is_some());
        assert_ne!(hash(None, &text[1..]), expected);
        let zstd = zstd::encode_all(&text[..], 3).expect("the text can be encoded");
        let mut brotli = Vec::new();
        brotli::CompressorWriter::new(&mut brotli, 4096, 5, 20)
            .write_all(&text)
            .expect("the text can be encoded");
        for (coding, bytes) in [
            ("identity", text.clone()),
            ("gzip", gzip(&text)),
            ("zstd", zstd),
            ("br", brotli),
        ] {
            assert_eq!(hash(Some(coding), &bytes), expected, "{coding}");
        }
    }

    #[test]
    fn a_corrupt_or_unknown_coding_has_no_hash() {
        assert_eq!(hash(Some("gzip"), b"no gzip at all"), None);
        assert_eq!(hash(Some("compress"), b"abc"), None);
        let text = gzip(&b"abc".repeat(500));
        assert_eq!(hash(Some("gzip"), &text[..text.len() - 9]), None);
    }

    #[test]
    fn a_body_beyond_the_limit_has_no_hash() {
        let mut hash = BodyHash::new(None);
        let part = vec![0; 16 << 20];
        for _ in 0..=DECODED_BYTES_MAX / part.len() as u64 {
            if let Some(BodyDecoder::Identity(hasher)) = &mut hash.decoder {
                // The bytes are not hashed, to save the time.
                hasher.bytes += part.len() as u64;
            }
        }
        hash.add(b"x");
        assert_eq!(hash.finish(), None);
    }
}
