//! Compression around a trace, recognised by its first bytes.

use std::fmt;
use std::io::{self, BufReader, Chain, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

/// How the bytes of a trace are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip (RFC 1952), any number of members.
    Gzip,
    /// Zstandard (RFC 8878), any number of frames.
    Zstd,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        })
    }
}

/// What the first bytes of an input say about its compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrapping {
    Known(Compression),
    /// A compression we know by sight but do not read, and the tool that does.
    Foreign {
        name: &'static str,
        tool: &'static str,
    },
}

pub(crate) fn recognise(head: &[u8]) -> Wrapping {
    let foreign = |name, tool| Wrapping::Foreign { name, tool };
    match head {
        [0x1f, 0x8b, ..] => Wrapping::Known(Compression::Gzip),
        // RFC 8878, 3.1.1: magic number 0xFD2FB528, little-endian; 3.1.2: skippable frames.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            Wrapping::Known(Compression::Zstd)
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => foreign("xz", "xz -dc"),
        [b'B', b'Z', b'h', b'1'..=b'9', b'1', b'A', ..] => foreign("bzip2", "bzip2 -dc"),
        [0x04, 0x22, 0x4d, 0x18, ..] => foreign("lz4", "lz4 -dc"),
        [b'P', b'K', 3, 4, ..] => foreign("zip", "unzip -p"),
        _ => Wrapping::Known(Compression::None),
    }
}

/// An input with its compression taken off.
pub(crate) enum Decoded<'a> {
    Plain(Raw<'a>),
    Gzip(Box<MultiGzDecoder<BufReader<Raw<'a>>>>),
    #[cfg(not(target_family = "wasm"))]
    Zstd(zstd::stream::read::Decoder<'static, BufReader<Raw<'a>>>),
}

/// The bytes looked at to recognise the compression, and then the rest.
pub(crate) type Raw<'a> = Chain<Cursor<Vec<u8>>, Box<dyn Read + Send + 'a>>;

impl<'a> Decoded<'a> {
    /// `window_log_max` bounds the memory a zstd frame may claim: 2 to its power bytes.
    pub(crate) fn new(
        head: Vec<u8>,
        rest: Box<dyn Read + Send + 'a>,
        compression: Compression,
        window_log_max: u32,
    ) -> io::Result<Self> {
        let raw = Cursor::new(head).chain(rest);
        let buffered = |raw| BufReader::with_capacity(COMPRESSED_BUFFER_BYTES, raw);
        Ok(match compression {
            Compression::None => Self::Plain(raw),
            Compression::Gzip => Self::Gzip(Box::new(MultiGzDecoder::new(buffered(raw)))),
            #[cfg(not(target_family = "wasm"))]
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(buffered(raw))?;
                decoder.window_log_max(window_log_max)?;
                Self::Zstd(decoder)
            }
            #[cfg(target_family = "wasm")]
            Compression::Zstd => {
                let _ = (raw, window_log_max, buffered);
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "zstd is not part of this build",
                ));
            }
        })
    }
}

impl Read for Decoded<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(raw) => raw.read(out),
            Self::Gzip(decoder) => decoder.read(out),
            #[cfg(not(target_family = "wasm"))]
            Self::Zstd(decoder) => decoder.read(out),
        }
    }
}

/// What the decoders read at a time: zstd's own advice is 128 KiB plus a block header.
const COMPRESSED_BUFFER_BYTES: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_is_recognised_by_magic_number() {
        let known = |c| Wrapping::Known(c);
        assert_eq!(recognise(&[0x1f, 0x8b, 8]), known(Compression::Gzip));
        assert_eq!(
            recognise(&[0x28, 0xb5, 0x2f, 0xfd]),
            known(Compression::Zstd)
        );
        assert_eq!(
            recognise(&[0x5a, 0x2a, 0x4d, 0x18]),
            known(Compression::Zstd)
        );
        assert_eq!(recognise(b"0 1 2\n"), known(Compression::None));
        assert_eq!(recognise(b""), known(Compression::None));
        assert!(matches!(
            recognise(b"\xfd7zXZ\0"),
            Wrapping::Foreign { name: "xz", .. }
        ));
    }
}
