//! The codings with a dictionary: `dcz` (RFC 9842 §5) and `dcb` (§4).
//!
//! Both begin with a magic number and the SHA-256 of the dictionary. The rest is a frame of zstd with the dictionary as
//! prefix, or a Brotli stream with the dictionary as shared LZ77 dictionary (RFC 9841).

use std::io;

use edgeward_semantics::content_coding::Coding;
use edgeward_semantics::dictionary::{DICTIONARY_BYTES_MAX, DictionaryHash};
use zstd::zstd_safe::{CCtx, CParameter};

use super::encode::{Bounded, Levels, window_bits};

/// Encodes a body with a dictionary. Returns `None` if the delta exceeds [`DELTA_SHARE_MAX`] of the body, and if the
/// dictionary and the body do not fit into the window.
pub(super) fn encode_delta(
    coding: Coding,
    levels: Levels,
    hash: &DictionaryHash,
    dictionary: &[u8],
    body: &[u8],
) -> Option<Vec<u8>> {
    if dictionary.len().max(body.len()) as u64 > DICTIONARY_BYTES_MAX {
        return None;
    }
    let mut out = Bounded {
        bytes: Vec::new(),
        max: body.len() / DELTA_SHARE_MAX,
    };
    let magic: &[u8] = match coding {
        Coding::DictionaryZstd => &ZSTD_MAGIC,
        _ => &BROTLI_MAGIC,
    };
    io::Write::write_all(&mut out, magic).ok()?;
    io::Write::write_all(&mut out, hash).ok()?;
    match coding {
        Coding::DictionaryZstd => {
            let mut frame = Vec::with_capacity(out.max - out.bytes.len());
            let mut context = CCtx::create();
            let parameters = [
                CParameter::CompressionLevel(levels.zstd),
                // The frame states the length of the body as its window, which is at most the 8 MiB of §5.
                CParameter::WindowLog(window_log(dictionary.len() + body.len())),
            ];
            for parameter in parameters {
                context.set_parameter(parameter).ok()?;
            }
            context.ref_prefix(dictionary).ok()?;
            // The only error is that the frame exceeds its bound.
            context.compress2(&mut frame, body).ok()?;
            io::Write::write_all(&mut out, &frame).ok()?;
        }
        Coding::DictionaryBrotli => {
            // The encoder puts the dictionary before the body, so both have to be within the window. A decoder puts it
            // behind the window, which is then the same distance.
            let window = window_bits(dictionary.len() + body.len(), BROTLI_WINDOW_BITS_MAX);
            if dictionary.len() + body.len() > (1 << window) - 16 {
                return None;
            }
            let params = brotli::enc::BrotliEncoderParams {
                // Lower levels of the crate use no dictionary.
                quality: i32::try_from(levels.brotli).unwrap_or(6).max(5),
                lgwin: window,
                size_hint: body.len(),
                ..Default::default()
            };
            let (mut input, mut output) = ([0; 4096], [0; 4096]);
            brotli::BrotliCompressCustomIoCustomDict(
                &mut brotli::IoReaderWrapper(&mut &*body),
                &mut brotli::IoWriterWrapper(&mut out),
                &mut input,
                &mut output,
                &params,
                brotli::enc::StandardAlloc::default(),
                &mut |_, _, _, _| (),
                dictionary,
                io::ErrorKind::UnexpectedEof.into(),
            )
            .ok()?;
        }
        Coding::Brotli | Coding::Zstd | Coding::Gzip => return None,
    }
    out.bytes.shrink_to_fit();
    Some(out.bytes)
}

/// Returns the binary logarithm of the smallest window of zstd that holds this many bytes.
fn window_log(bytes: usize) -> u32 {
    bytes.next_power_of_two().ilog2().clamp(10, 24)
}

/// A skippable frame of zstd with 32 bytes of content (§5).
const ZSTD_MAGIC: [u8; 8] = [0x5e, 0x2a, 0x4d, 0x18, 0x20, 0, 0, 0];

const BROTLI_MAGIC: [u8; 4] = [0xff, b'D', b'C', b'B'];

/// The largest window of Brotli (RFC 7932 §9.1), 16 MiB, which §4 allows.
const BROTLI_WINDOW_BITS_MAX: i32 = 24;

/// A delta has at most one in this many bytes of the body. Text without a dictionary has about this share, so a longer
/// delta shows that the dictionary is of other content.
const DELTA_SHARE_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use proptest::prelude::*;
    use zstd::zstd_safe::DCtx;

    use super::*;
    use crate::config::CompressionConfig;

    fn decode_zstd(delta: &[u8], hash: &[u8; 32], dictionary: &[u8], length: usize) -> Vec<u8> {
        assert_eq!((&delta[..8], &delta[8..40]), (&ZSTD_MAGIC[..], &hash[..]));
        let mut out = Vec::with_capacity(length);
        let mut context = DCtx::create();
        context.ref_prefix(dictionary).expect("a prefix");
        context
            .decompress(&mut out, &delta[40..])
            .expect("a valid frame");
        out
    }

    fn decode_brotli(delta: &[u8], hash: &[u8; 32], dictionary: &[u8], length: usize) -> Vec<u8> {
        assert_eq!((&delta[..4], &delta[4..36]), (&BROTLI_MAGIC[..], &hash[..]));
        let dictionary = dictionary.to_vec().into();
        let mut decoder =
            brotli::Decompressor::new_with_custom_dict(&delta[36..], 4096, dictionary);
        let mut out = Vec::with_capacity(length);
        decoder.read_to_end(&mut out).expect("a valid stream");
        out
    }

    /// Returns a text of this many lines. Two seeds differ in one of 50 lines.
    fn script(seed: usize, lines: usize) -> Vec<u8> {
        let line = |at: usize| match at % 50 {
            7 => format!(
                "function f{at}(a) {{ return a * {} + {seed}; }}\n",
                at * 31 + seed
            ),
            _ => format!(
                "export const value{at} = call({}, \"text {}\");\n",
                at * 7919 % 6151,
                at * 31 % 977
            ),
        };
        (0..lines).map(line).collect::<String>().into_bytes()
    }

    fn encode(coding: Coding, dictionary: &[u8], body: &[u8]) -> Option<Vec<u8>> {
        let levels = Levels::of(&CompressionConfig::default());
        encode_delta(coding, levels, &[7; 32], dictionary, body)
    }

    fn decode(coding: Coding, delta: &[u8], dictionary: &[u8], length: usize) -> Vec<u8> {
        match coding {
            Coding::DictionaryZstd => decode_zstd(delta, &[7; 32], dictionary, length),
            _ => decode_brotli(delta, &[7; 32], dictionary, length),
        }
    }

    #[test]
    fn a_delta_of_a_similar_body_is_small_and_decodes_to_it() {
        for coding in Coding::WITH_DICTIONARY {
            for lines in [50, 1000, 20_000] {
                let (dictionary, body) = (script(1, lines), script(2, lines));
                let delta = encode(coding, &dictionary, &body).expect("a delta");
                assert!(
                    delta.len() < 200 + body.len() / 50,
                    "{coding:?} {lines}: {}",
                    delta.len()
                );
                assert_eq!(
                    decode(coding, &delta, &dictionary, body.len()),
                    body,
                    "{coding:?} {lines}"
                );
            }
        }
    }

    #[test]
    fn a_delta_that_is_long_is_not_made() {
        let mut state = 1_u64;
        let next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 40) as u8
        };
        let noise: Vec<u8> = std::iter::repeat_with(next).take(40_000).collect();
        for coding in Coding::WITH_DICTIONARY {
            assert_eq!(encode(coding, &script(1, 100), &noise), None, "{coding:?}");
            assert_eq!(encode(coding, b"x", b""), None);
            let long = vec![b'a'; usize::try_from(DICTIONARY_BYTES_MAX).expect("small") + 1];
            assert_eq!(encode(coding, &long, &script(1, 100)), None);
            assert_eq!(encode(coding, &script(1, 100), &long), None);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Method: bodies that are random cuts of a dictionary, with random insertions.
        #[test]
        fn each_delta_decodes_to_its_body(
            lines in 1_usize..3000,
            cuts in prop::collection::vec((0.0_f64..1.0, 1_usize..5000, "[a-z ]{0,30}"), 1..12),
        ) {
            let dictionary = script(1, lines);
            let mut body = Vec::new();
            for (at, length, text) in cuts {
                let start = (at * dictionary.len() as f64) as usize;
                let end = dictionary.len().min(start + length);
                body.extend_from_slice(&dictionary[start..end]);
                body.extend_from_slice(text.as_bytes());
            }
            for coding in Coding::WITH_DICTIONARY {
                if let Some(delta) = encode(coding, &dictionary, &body) {
                    prop_assert!(decode(coding, &delta, &dictionary, body.len()) == body, "{:?}", coding);
                }
            }
        }
    }
}
