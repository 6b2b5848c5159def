//! Compression around a trace, recognised by its first bytes.

use std::fmt;
use std::io::{self, BufReader, Chain, Cursor, Read, Write};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;

use crate::Problem;

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
    /// bzip2, any number of streams. Slow to decode, and old logs are kept in it.
    Bzip2,
}

impl Compression {
    /// Tells a stream so compressed that broke off from one that is damaged and from a device that
    /// failed, by what its decoder said.
    pub fn problem_of(self, source: io::Error) -> Problem {
        match (self, source.kind()) {
            (Self::None, _) => Problem::Io(source),
            (_, io::ErrorKind::UnexpectedEof) => Problem::CutShort {
                compression: self,
                source,
            },
            // The decoders report damage as one of these; anything else came from below them.
            (
                _,
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Other,
            ) => Problem::Undecodable {
                compression: self,
                source,
            },
            _ => Problem::Io(source),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
        })
    }
}

/// An input with its compression taken off, whichever it was.
pub struct Decoder<'a> {
    input: Decoded<'a>,
    compression: Compression,
}

impl<'a> Decoder<'a> {
    /// Looks at the first bytes. A zstd frame may claim 2 to the power `zstd_window_log_max` bytes.
    ///
    /// # Errors
    ///
    /// If the input fails, or is compressed in a way that is known by sight and not read.
    pub fn open(
        mut input: Box<dyn Read + Send + 'a>,
        zstd_window_log_max: u32,
    ) -> Result<Self, Problem> {
        let mut head = Vec::with_capacity(MAGIC_BYTES);
        input
            .by_ref()
            .take(MAGIC_BYTES as u64)
            .read_to_end(&mut head)
            .map_err(Problem::Io)?;
        let compression = match recognise(&head) {
            Wrapping::Known(compression) => compression,
            Wrapping::Foreign { name, tool } => {
                return Err(Problem::ForeignCompression { name, tool });
            }
        };
        let input =
            Decoded::new(head, input, compression, zstd_window_log_max).map_err(|source| {
                Problem::Undecodable {
                    compression,
                    source,
                }
            })?;
        Ok(Self { input, compression })
    }

    /// What was taken off.
    pub const fn compression(&self) -> Compression {
        self.compression
    }

    /// Tells a stream that broke off from one that is damaged and from a device that failed.
    pub fn problem_of(&self, source: io::Error) -> Problem {
        self.compression.problem_of(source)
    }
}

impl Read for Decoder<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.input.read(out)
    }
}

/// What the first bytes of an input say about its compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrapping {
    Known(Compression),
    /// A compression we know by sight but do not read, and the tool that does.
    Foreign {
        name: &'static str,
        tool: &'static str,
    },
}

fn recognise(head: &[u8]) -> Wrapping {
    let foreign = |name, tool| Wrapping::Foreign { name, tool };
    match head {
        [0x1f, 0x8b, ..] => Wrapping::Known(Compression::Gzip),
        // RFC 8878, 3.1.1: magic number 0xFD2FB528, little-endian; 3.1.2: skippable frames.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            Wrapping::Known(Compression::Zstd)
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => foreign("xz", "xz -dc"),
        // The magic number of a block, 0x314159…, or of the end of an empty stream, 0x177245….
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..]
        | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, ..] => Wrapping::Known(Compression::Bzip2),
        [0x04, 0x22, 0x4d, 0x18, ..] => foreign("lz4", "lz4 -dc"),
        [b'P', b'K', 3, 4, ..] => foreign("zip", "unzip -p"),
        _ => Wrapping::Known(Compression::None),
    }
}

/// An input with its compression taken off.
enum Decoded<'a> {
    Plain(Raw<'a>),
    Gzip(Box<MultiGzDecoder<BufReader<Raw<'a>>>>),
    #[cfg(not(target_family = "wasm"))]
    Zstd(zstd::stream::read::Decoder<'static, BufReader<Raw<'a>>>),
    Bzip2(Box<MultiBzDecoder<BufReader<Raw<'a>>>>),
}

/// The bytes looked at to recognise the compression, and then the rest.
type Raw<'a> = Chain<Cursor<Vec<u8>>, Box<dyn Read + Send + 'a>>;

impl<'a> Decoded<'a> {
    /// `window_log_max` bounds the memory a zstd frame may claim: 2 to its power bytes.
    fn new(
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
            Compression::Bzip2 => Self::Bzip2(Box::new(MultiBzDecoder::new(buffered(raw)))),
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
            Self::Bzip2(decoder) => decoder.read(out),
        }
    }
}

/// An output with a compression put on.
pub struct Encoder<W: Write>(Sink<W>);

impl<W: Write> Encoder<W> {
    /// Begins.
    ///
    /// # Errors
    ///
    /// If this build does not have the compression, or its first bytes cannot be written.
    pub fn new(output: W, compression: Compression) -> io::Result<Self> {
        Sink::new(output, compression).map(Self)
    }

    /// Writes all of it.
    ///
    /// # Errors
    ///
    /// If the output fails.
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Brings the last bytes out.
    ///
    /// # Errors
    ///
    /// If the output fails.
    pub fn finish(self) -> io::Result<W> {
        self.0.finish()
    }
}

enum Sink<W: Write> {
    Plain(W),
    Gzip(flate2::write::GzEncoder<W>),
    #[cfg(not(target_family = "wasm"))]
    Zstd(zstd::stream::write::Encoder<'static, W>),
    Bzip2(bzip2::write::BzEncoder<W>),
}

impl<W: Write> Sink<W> {
    fn new(output: W, compression: Compression) -> io::Result<Self> {
        Ok(match compression {
            Compression::None => Self::Plain(output),
            Compression::Gzip => Self::Gzip(flate2::write::GzEncoder::new(
                output,
                flate2::Compression::default(),
            )),
            Compression::Bzip2 => Self::Bzip2(bzip2::write::BzEncoder::new(
                output,
                bzip2::Compression::default(),
            )),
            #[cfg(not(target_family = "wasm"))]
            Compression::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(output, ZSTD_LEVEL)?;
                // A damaged trace should be found out, not simulated.
                encoder.include_checksum(true)?;
                Self::Zstd(encoder)
            }
            #[cfg(target_family = "wasm")]
            Compression::Zstd => {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "zstd is not part of this build",
                ));
            }
        })
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(output) => output.write_all(bytes),
            Self::Gzip(encoder) => encoder.write_all(bytes),
            #[cfg(not(target_family = "wasm"))]
            Self::Zstd(encoder) => encoder.write_all(bytes),
            Self::Bzip2(encoder) => encoder.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<W> {
        let mut output = match self {
            Self::Plain(output) => output,
            Self::Gzip(encoder) => encoder.finish()?,
            #[cfg(not(target_family = "wasm"))]
            Self::Zstd(encoder) => encoder.finish()?,
            Self::Bzip2(encoder) => encoder.finish()?,
        };
        output.flush()?;
        Ok(output)
    }
}

/// zstd's own default: traces halve again at 19, at a twentieth of the speed.
#[cfg(not(target_family = "wasm"))]
const ZSTD_LEVEL: i32 = 3;

/// The longest magic number we know.
const MAGIC_BYTES: usize = 6;

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
        assert_eq!(recognise(b"BZh91AY&SY"), known(Compression::Bzip2));
        assert_eq!(recognise(b"0 1 2\n"), known(Compression::None));
        assert_eq!(recognise(b""), known(Compression::None));
        assert!(matches!(
            recognise(b"\xfd7zXZ\0"),
            Wrapping::Foreign { name: "xz", .. }
        ));
    }
}
