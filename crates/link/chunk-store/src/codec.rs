//! Compresses and decompresses with zstd and LZ4 for the link. `edgeward-dedup` defines only the trait `Codec`,
//! because it does not depend on C code.
//!
//! zstd runs at level 1, which is about twice as fast as level 3; the output is a tenth longer. A dictionary is
//! passed to zstd as the prefix of the frame. LZ4 uses the block format without a frame, because both lengths
//! are known.

use std::cell::RefCell;
use std::io::Cursor;

use lz4_flex::block::{CompressTable, get_maximum_output_size};
use zstd::zstd_safe::{CCtx, CParameter, DCtx};

use edgeward_dedup::codec::{Codec, Method, Undecodable};

/// The compressors. All values share the working memory of their thread, some hundred KiB, so that a gateway with
/// thousands of peers does not have it once for each of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compressors(());

/// The working memory of a thread.
struct Contexts {
    zstd: CCtx<'static>,
    unzstd: DCtx<'static>,
    lz4: CompressTable,
    /// A buffer for a dictionary followed by the bytes to compress.
    joined: Vec<u8>,
}

thread_local! {
    static CONTEXTS: RefCell<Contexts> = RefCell::new(Contexts::new());
}

/// The compression level of zstd.
const LEVEL: i32 = 1;

impl Compressors {
    /// Returns the compressors. The first use on a thread allocates the working memory, and panics if it cannot be
    /// allocated. Compression with a dictionary also allocates a buffer for the dictionary and the input.
    pub fn new() -> Self {
        Self(())
    }
}

impl Contexts {
    fn new() -> Self {
        Self {
            zstd: compressor(),
            unzstd: DCtx::create(),
            lz4: CompressTable::large(),
            joined: Vec::new(),
        }
    }
}

fn compressor<'a>() -> CCtx<'a> {
    let mut zstd = CCtx::create();
    let level = zstd.set_parameter(CParameter::CompressionLevel(LEVEL));
    level.expect("zstd supports level 1");
    zstd
}

/// Returns a cursor after the content of `out`, with space for at least `bytes`. The space is not zeroed.
fn cursor_after(out: &mut Vec<u8>, bytes: usize) -> Cursor<&mut Vec<u8>> {
    out.reserve(bytes);
    let start = out.len() as u64;
    let mut cursor = Cursor::new(out);
    cursor.set_position(start);
    cursor
}

impl Codec for Compressors {
    fn compress(
        &mut self,
        method: Method,
        dictionary: &[u8],
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> bool {
        CONTEXTS.with_borrow_mut(|contexts| contexts.compress(method, dictionary, raw, out))
    }

    fn decompress(
        &mut self,
        method: Method,
        dictionary: &[u8],
        packed: &[u8],
        raw_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Undecodable> {
        CONTEXTS.with_borrow_mut(|contexts| {
            contexts.decompress(method, dictionary, packed, raw_bytes, out)
        })
    }
}

impl Codec for Contexts {
    fn compress(
        &mut self,
        method: Method,
        dictionary: &[u8],
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        let packed_bytes = match method {
            Method::None => None,
            Method::Lz4 => {
                // The LZ4 encoder requires space for the longest possible output.
                out.resize(start + get_maximum_output_size(raw.len()), 0);
                let target = &mut out[start..];
                let packed = if dictionary.is_empty() {
                    lz4_flex::block::compress_into_with_table(raw, target, &mut self.lz4)
                } else {
                    lz4_flex::block::compress_into_with_dict(raw, target, dictionary)
                };
                packed.ok()
            }
            Method::Zstd if dictionary.is_empty() => self
                .zstd
                .compress2(&mut cursor_after(out, raw.len()), raw)
                .ok(),
            Method::Zstd => {
                // The dictionary is copied in front of the input, so that zstd searches one contiguous buffer.
                // If both are in separate buffers, zstd takes a tenth longer, although no copy is needed.
                self.joined.clear();
                self.joined.extend_from_slice(dictionary);
                self.joined.extend_from_slice(raw);
                let (dictionary, raw) = self.joined.split_at(dictionary.len());
                // A context holds a reference to the prefix for its lifetime, so a new context is created for
                // this call.
                let mut zstd = compressor();
                let prefix = zstd.ref_prefix(dictionary);
                let packed =
                    prefix.and_then(|_| zstd.compress2(&mut cursor_after(out, raw.len()), raw));
                packed.ok()
            }
        };
        let packed_bytes = packed_bytes.filter(|bytes| *bytes < raw.len());
        out.truncate(start + packed_bytes.unwrap_or(0));
        packed_bytes.is_some()
    }

    fn decompress(
        &mut self,
        method: Method,
        dictionary: &[u8],
        packed: &[u8],
        raw_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Undecodable> {
        let start = out.len();
        let decoded_bytes = match method {
            Method::None => None,
            Method::Lz4 => {
                out.resize(start + raw_bytes, 0);
                let target = &mut out[start..];
                let raw = if dictionary.is_empty() {
                    lz4_flex::block::decompress_into(packed, target)
                } else {
                    lz4_flex::block::decompress_into_with_dict(packed, target, dictionary)
                };
                raw.ok()
            }
            Method::Zstd if dictionary.is_empty() => {
                let mut cursor = cursor_after(out, raw_bytes);
                self.unzstd.decompress(&mut cursor, packed).ok()
            }
            Method::Zstd => {
                let mut unzstd = DCtx::create();
                let prefix = unzstd.ref_prefix(dictionary);
                let raw = prefix
                    .and_then(|_| unzstd.decompress(&mut cursor_after(out, raw_bytes), packed));
                raw.ok()
            }
        };
        if decoded_bytes == Some(raw_bytes) {
            return Ok(());
        }
        out.truncate(start);
        Err(Undecodable)
    }
}

// A value has no memory of its own, because a gateway has one for each peer.
const _: () = assert!(size_of::<Compressors>() == 0);

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    const METHODS: [Method; 2] = [Method::Lz4, Method::Zstd];

    proptest! {
        /// Compressed input is restored, with and without a dictionary. If the input does not become shorter, the
        /// output stays unchanged.
        #[test]
        fn compressed_bytes_are_restored(
            noise in vec(any::<u8>(), 0..3000),
            dictionary in vec(any::<u8>(), 0..2000),
            times in 1_usize..6,
        ) {
            let raw = [noise.repeat(times), dictionary[dictionary.len() / 3..].to_vec()].concat();
            let mut codec = Compressors::new();
            for method in METHODS {
                for dictionary in [&[][..], &dictionary[..]] {
                    let mut packed = b"before".to_vec();
                    if !codec.compress(method, dictionary, &raw, &mut packed) {
                        prop_assert_eq!(packed, b"before");
                        continue;
                    }
                    let packed = &packed[6..];
                    prop_assert!(packed.len() < raw.len());
                    let mut back = b"before".to_vec();
                    prop_assert_eq!(codec.decompress(method, dictionary, packed, raw.len(), &mut back), Ok(()));
                    prop_assert_eq!(&back[6..], &raw[..]);
                    // Decompression fails if the expected length is wrong.
                    for wrong in [raw.len() - 1, raw.len() + 1] {
                        let mut restored = Vec::new();
                        prop_assert_eq!(
                            codec.decompress(method, dictionary, packed, wrong, &mut restored),
                            Err(Undecodable)
                        );
                        prop_assert!(restored.is_empty());
                    }
                }
            }
        }

        /// Random input is decompressed to the expected number of bytes, or refused.
        #[test]
        fn random_input_is_refused_or_has_the_expected_length(
            packed in vec(any::<u8>(), 0..400),
            raw_bytes in 0_usize..5000,
        ) {
            let mut codec = Compressors::new();
            for method in METHODS {
                for dictionary in [&[][..], &packed[..]] {
                    let mut out = Vec::new();
                    let unpacked = codec.decompress(method, dictionary, &packed, raw_bytes, &mut out);
                    prop_assert_eq!(out.len(), if unpacked.is_ok() { raw_bytes } else { 0 });
                }
            }
        }
    }

    /// Text is compressed to less than a third of its size, and to even fewer bytes with a similar text as a
    /// dictionary.
    #[test]
    fn every_method_compresses() {
        let text = |words: std::ops::Range<u32>| {
            let word = |n: u32| {
                format!(
                    "a line of text that is like the others, but for {}\n",
                    n % 977
                )
            };
            words.map(word).collect::<String>().into_bytes()
        };
        let (dictionary, raw) = (text(0..3000), text(2000..6000));
        for method in METHODS {
            let mut codec = Compressors::new();
            let mut packed = |dictionary: &[u8]| {
                let mut packed = Vec::new();
                assert!(
                    codec.compress(method, dictionary, &raw, &mut packed),
                    "{method:?}"
                );
                packed.len()
            };
            let (alone, with_dictionary) = (packed(&[]), packed(&dictionary));
            assert!(alone * 3 < raw.len(), "{method:?}: {alone} bytes");
            assert!(
                with_dictionary < alone,
                "{method:?}: {with_dictionary} bytes, {alone} alone"
            );
        }
    }

    /// Random bytes are not compressed alone. With an earlier version as a dictionary, they are compressed to
    /// less than a twentieth of their size.
    #[test]
    fn a_dictionary_is_used() {
        let mut word = 1_u32;
        let mut next = || {
            word = word.wrapping_mul(0x915f_77f5).wrapping_add(1);
            (word >> 24) as u8
        };
        let dictionary: Vec<u8> = (0..100_000).map(|_| next()).collect();
        let mut raw = dictionary.clone();
        raw.splice(40_000..40_010, *b"edited");
        let mut codec = Compressors::new();
        let (mut alone, mut with_dictionary) = (Vec::new(), Vec::new());
        assert!(!codec.compress(Method::Zstd, &[], &raw, &mut alone));
        assert!(codec.compress(Method::Zstd, &dictionary, &raw, &mut with_dictionary));
        assert!(
            with_dictionary.len() < 5000,
            "{} bytes",
            with_dictionary.len()
        );
    }
}
