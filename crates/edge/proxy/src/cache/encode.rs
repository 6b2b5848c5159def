//! The codings without a dictionary.

use std::io::{self, Write as _};

use edgeward_semantics::content_coding::Coding;

use crate::config::CompressionConfig;

/// The levels of the codings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    pub(super) gzip: u32,
    pub(super) brotli: u32,
    pub(super) zstd: i32,
}

impl Levels {
    pub(crate) fn of(config: &CompressionConfig) -> Self {
        Self {
            gzip: config.gzip_level,
            brotli: config.brotli_level,
            zstd: config.zstd_level,
        }
    }
}

/// Encodes a body. Returns `None` if the coding saves less than [`SAVED_SHARE_MIN`] of it.
pub(super) fn encode(coding: Coding, levels: Levels, body: &[u8]) -> Option<Vec<u8>> {
    let max = body.len() - body.len().div_ceil(SAVED_SHARE_MIN);
    let mut out = Bounded {
        bytes: Vec::with_capacity(max.min(body.len() / 3)),
        max,
    };
    let encoded = match coding {
        Coding::Gzip => {
            let level = flate2::Compression::new(levels.gzip);
            let mut encoder = flate2::write::GzEncoder::new(&mut out, level);
            encoder
                .write_all(body)
                .and_then(|()| encoder.finish().map(|_| ()))
        }
        Coding::Brotli => {
            let params = brotli::enc::BrotliEncoderParams {
                quality: i32::try_from(levels.brotli).unwrap_or(6),
                lgwin: window_bits(body.len(), WINDOW_BITS_MAX),
                size_hint: body.len(),
                ..Default::default()
            };
            brotli::BrotliCompress(&mut &*body, &mut out, &params).map(|_| ())
        }
        Coding::DictionaryZstd | Coding::DictionaryBrotli => return None,
        Coding::Zstd => zstd::bulk::Compressor::new(levels.zstd).and_then(|mut compressor| {
            // The size of the frame's content is known, which bounds its window by the body.
            out.bytes.reserve_exact(max);
            compressor
                .compress_to_buffer(body, &mut out.bytes)
                .map(|_| ())
        }),
    };
    // The only error is that the output exceeds its bound. zstd may use all of the capacity.
    encoded.ok().filter(|()| out.bytes.len() <= max)?;
    out.bytes.shrink_to_fit();
    Some(out.bytes)
}

/// Returns the binary logarithm of the smallest window of Brotli (RFC 7932 §9.1) that holds the body. A smaller window
/// takes less memory.
pub(super) fn window_bits(length: usize, max: i32) -> i32 {
    let bits = usize::BITS - length.saturating_add(16).leading_zeros();
    i32::try_from(bits)
        .unwrap_or(max)
        .clamp(WINDOW_BITS_MIN, max)
}

/// A buffer that refuses bytes above a maximum, so that incompressible input is detected early.
pub(super) struct Bounded {
    pub(super) bytes: Vec<u8>,
    pub(super) max: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.max {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A coding must save one in this many bytes. The encoded body takes space in the cache beside the plain body, which a
/// smaller gain does not pay for.
const SAVED_SHARE_MIN: usize = 16;

/// The smallest window, 128 KiB. From level 5 on, the crate searches smaller windows by a binary tree, which takes
/// twenty times as long for no gain.
const WINDOW_BITS_MIN: i32 = 17;

/// The largest window of Brotli, 4 MiB, which all clients support.
const WINDOW_BITS_MAX: i32 = 22;

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn decode(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(bytes)
                .read_to_end(&mut plain)
                .map(|_| ()),
            Coding::Brotli => brotli::BrotliDecompress(&mut &*bytes, &mut plain),
            _ => zstd::stream::copy_decode(bytes, &mut plain),
        }
        .expect("valid bytes");
        plain
    }

    /// Returns bytes that no coding shortens.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        std::iter::repeat_with(next).take(length).collect()
    }

    #[test]
    fn an_encoded_body_decodes_to_the_plain_body_at_each_level() {
        let text = include_str!("encoders.rs").repeat(2);
        for coding in Coding::GENERAL {
            for (gzip, brotli, zstd) in [(1, 0, 1), (6, 5, 9), (9, 11, 19)] {
                let levels = Levels { gzip, brotli, zstd };
                for length in [300, 4096, text.len()] {
                    let body = &text.as_bytes()[..length];
                    let encoded = encode(coding, levels, body).expect("text is compressible");
                    assert!(encoded.len() < length, "{coding:?}");
                    assert_eq!(decode(coding, &encoded), body, "{coding:?} {levels:?}");
                }
            }
        }
    }

    /// Method: bodies with more and more text before noise, so that the saved part grows from none to half.
    #[test]
    fn a_body_that_a_coding_hardly_shortens_is_not_encoded() {
        let levels = Levels::of(&CompressionConfig::default());
        for coding in Coding::GENERAL {
            assert_eq!(encode(coding, levels, &noise(4096)), None);
            assert_eq!(encode(coding, levels, b""), None);
            let mut body = noise(4096);
            body.splice(..0, std::iter::repeat_n(b'a', 4096));
            assert!(encode(coding, levels, &body).is_some(), "{coding:?}");
        }
    }
}
