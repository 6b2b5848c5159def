//! Decompresses a trace that is read, and compresses a trace that is written. The compression of an input is
//! recognised by its magic number.

use std::fmt;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read, Write};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::GzDecoder;

use crate::Problem;

/// The compression of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Uncompressed.
    #[default]
    None,
    /// gzip (RFC 1952), any number of members.
    Gzip,
    /// Zstandard (RFC 8878), any number of frames.
    Zstd,
    /// bzip2, any number of streams. Slow to decode; old logs use it.
    Bzip2,
}

impl Compression {
    /// Classifies an error of the decoder: a truncated stream, a corrupt stream, or a failed device.
    pub fn problem_of(self, source: io::Error) -> Problem {
        match (self, source.kind()) {
            (Self::None, _) => Problem::Io(source),
            (_, io::ErrorKind::UnexpectedEof) => Problem::Truncated {
                compression: self,
                source,
            },
            // The decoders report corruption as one of these kinds; other kinds come from the input.
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

/// An input that is decompressed while it is read.
pub struct Decoder<'a> {
    input: DecodedInput<'a>,
    compression: Compression,
}

impl<'a> Decoder<'a> {
    /// Recognises the compression of `input` by its first bytes. The window of a zstd frame may have up to
    /// `2^zstd_window_log_max` bytes.
    ///
    /// # Errors
    ///
    /// Fails if reading fails, or if the compression is not supported.
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
            MagicNumber::Supported(compression) => compression,
            MagicNumber::Unsupported { name, tool } => {
                return Err(Problem::UnsupportedCompression { name, tool });
            }
        };
        let input =
            DecodedInput::new(head, input, compression, zstd_window_log_max).map_err(|source| {
                Problem::Undecodable {
                    compression,
                    source,
                }
            })?;
        Ok(Self { input, compression })
    }

    /// The compression of the input.
    pub const fn compression(&self) -> Compression {
        self.compression
    }

    /// Classifies an error of the decoder: a truncated stream, a corrupt stream, or a failed device.
    pub fn problem_of(&self, source: io::Error) -> Problem {
        self.compression.problem_of(source)
    }
}

impl Read for Decoder<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.input.read(out)
    }
}

/// The result of recognising a magic number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MagicNumber {
    Supported(Compression),
    /// A compression without a decoder here, and the command that decodes it.
    Unsupported {
        name: &'static str,
        tool: &'static str,
    },
}

fn recognise(head: &[u8]) -> MagicNumber {
    let unsupported = |name, tool| MagicNumber::Unsupported { name, tool };
    match head {
        [0x1f, 0x8b, ..] => MagicNumber::Supported(Compression::Gzip),
        // RFC 8878, 3.1.1: magic number 0xFD2FB528, little-endian; 3.1.2: skippable frames.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            MagicNumber::Supported(Compression::Zstd)
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => unsupported("xz", "xz -dc"),
        // The magic number of a block, 0x314159…, or of the end of an empty stream, 0x177245….
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..]
        | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, ..] => {
            MagicNumber::Supported(Compression::Bzip2)
        }
        [0x04, 0x22, 0x4d, 0x18, ..] => unsupported("lz4", "lz4 -dc"),
        [b'P', b'K', 3, 4, ..] => unsupported("zip", "unzip -p"),
        _ => MagicNumber::Supported(Compression::None),
    }
}

/// The input with the decoder of its compression.
enum DecodedInput<'a> {
    Uncompressed(RawInput<'a>),
    Gzip(Box<GzipMembers<BufReader<RawInput<'a>>>>),
    #[cfg(not(target_family = "wasm"))]
    Zstd(zstd::stream::read::Decoder<'static, BufReader<RawInput<'a>>>),
    Bzip2(Box<MultiBzDecoder<BufReader<RawInput<'a>>>>),
}

/// The bytes that were read to recognise the compression, then the rest of the input.
type RawInput<'a> = Chain<Cursor<Vec<u8>>, Box<dyn Read + Send + 'a>>;

impl<'a> DecodedInput<'a> {
    /// `window_log_max` bounds the window of a zstd frame, to `2^window_log_max` bytes.
    fn new(
        head: Vec<u8>,
        rest: Box<dyn Read + Send + 'a>,
        compression: Compression,
        window_log_max: u32,
    ) -> io::Result<Self> {
        let raw = Cursor::new(head).chain(rest);
        let buffered = |raw| BufReader::with_capacity(COMPRESSED_BUFFER_BYTES, raw);
        Ok(match compression {
            Compression::None => Self::Uncompressed(raw),
            Compression::Gzip => Self::Gzip(Box::new(GzipMembers::new(buffered(raw)))),
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
                    "this build does not support zstd",
                ));
            }
        })
    }
}

impl Read for DecodedInput<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Uncompressed(raw) => raw.read(out),
            Self::Gzip(decoder) => decoder.read(out),
            #[cfg(not(target_family = "wasm"))]
            Self::Zstd(decoder) => decoder.read(out),
            Self::Bzip2(decoder) => decoder.read(out),
        }
    }
}

/// Decodes the members of a gzip stream. Zeros after a member are padding and no error, as for gzip itself: tapes and
/// block devices pad files to a whole block.
struct GzipMembers<R: BufRead> {
    /// The decoder of the current member; `None` only while it is replaced.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> GzipMembers<R> {
    fn new(input: R) -> Self {
        Self {
            member: Some(GzDecoder::new(input)),
        }
    }
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let member = self.member.as_mut().expect("it is replaced at once");
            let count = member.read(out)?;
            if count > 0 || out.is_empty() {
                return Ok(count);
            }
            let input = member.get_mut();
            loop {
                let filled = input.fill_buf()?;
                if filled.is_empty() {
                    return Ok(0);
                }
                let (padding, length) = (
                    filled.iter().take_while(|byte| **byte == 0).count(),
                    filled.len(),
                );
                input.consume(padding);
                if padding < length {
                    break;
                }
            }
            self.member = self
                .member
                .take()
                .map(|member| GzDecoder::new(member.into_inner()));
        }
    }
}

/// An output that compresses what is written to it.
pub struct Encoder<W: Write>(Sink<W>);

impl<W: Write> Encoder<W> {
    /// Starts a compressed stream.
    ///
    /// # Errors
    ///
    /// Fails if this build does not support the compression, or if writing fails.
    pub fn new(output: W, compression: Compression) -> io::Result<Self> {
        Sink::new(output, compression).map(Self)
    }

    /// Compresses and writes all bytes.
    ///
    /// # Errors
    ///
    /// Fails if the output fails.
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Ends the compressed stream and flushes the output.
    ///
    /// # Errors
    ///
    /// Fails if the output fails.
    pub fn finish(self) -> io::Result<W> {
        self.0.finish()
    }
}

enum Sink<W: Write> {
    Uncompressed(W),
    Gzip(flate2::write::GzEncoder<W>),
    #[cfg(not(target_family = "wasm"))]
    Zstd(zstd::stream::write::Encoder<'static, W>),
    Bzip2(bzip2::write::BzEncoder<W>),
}

impl<W: Write> Sink<W> {
    fn new(output: W, compression: Compression) -> io::Result<Self> {
        Ok(match compression {
            Compression::None => Self::Uncompressed(output),
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
                // With a checksum, a reader refuses a corrupt trace.
                encoder.include_checksum(true)?;
                Self::Zstd(encoder)
            }
            #[cfg(target_family = "wasm")]
            Compression::Zstd => {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "this build does not support zstd",
                ));
            }
        })
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Uncompressed(output) => output.write_all(bytes),
            Self::Gzip(encoder) => encoder.write_all(bytes),
            #[cfg(not(target_family = "wasm"))]
            Self::Zstd(encoder) => encoder.write_all(bytes),
            Self::Bzip2(encoder) => encoder.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<W> {
        let mut output = match self {
            Self::Uncompressed(output) => output,
            Self::Gzip(encoder) => encoder.finish()?,
            #[cfg(not(target_family = "wasm"))]
            Self::Zstd(encoder) => encoder.finish()?,
            Self::Bzip2(encoder) => encoder.finish()?,
        };
        output.flush()?;
        Ok(output)
    }
}

/// The compression level, which is zstd's default. At level 19 traces have half the size, and compression takes
/// twenty times as long.
#[cfg(not(target_family = "wasm"))]
const ZSTD_LEVEL: i32 = 3;

/// The length of the longest magic number.
const MAGIC_BYTES: usize = 6;

/// The size in bytes of the decoders' reads. zstd advises 128 KiB plus a block header.
const COMPRESSED_BUFFER_BYTES: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = Encoder::new(Vec::new(), Compression::Gzip).expect("gzip is supported");
        encoder.write_all(text).expect("writing to memory succeeds");
        encoder.finish().expect("writing to memory succeeds")
    }

    /// Method: two members with zeros between and after them; then other bytes at the end.
    #[test]
    fn zeros_after_a_gzip_member_are_padding() {
        let read = |bytes: &[u8]| {
            let mut text = Vec::new();
            let input = Box::new(Cursor::new(bytes.to_vec()));
            let mut decoder = Decoder::open(input, 20).expect("the stream is gzip");
            decoder.read_to_end(&mut text).map(|_| text)
        };
        for padding in [0, 1, 512, 300_000] {
            let zeros = vec![0; padding];
            let stream = [gzip(b"a"), zeros.clone(), gzip(b"b"), zeros].concat();
            assert_eq!(
                read(&stream).expect("the stream is valid"),
                b"ab",
                "{padding}"
            );
            let garbage = [&stream[..], b"x"].concat();
            assert!(read(&garbage).is_err(), "{padding}");
        }
        let stream = gzip(b"some text");
        let error = read(&stream[..stream.len() - 9]).expect_err("the stream is truncated");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn compression_is_recognised_by_magic_number() {
        let supported = |c| MagicNumber::Supported(c);
        assert_eq!(recognise(&[0x1f, 0x8b, 8]), supported(Compression::Gzip));
        assert_eq!(
            recognise(&[0x28, 0xb5, 0x2f, 0xfd]),
            supported(Compression::Zstd)
        );
        assert_eq!(
            recognise(&[0x5a, 0x2a, 0x4d, 0x18]),
            supported(Compression::Zstd)
        );
        assert_eq!(recognise(b"BZh91AY&SY"), supported(Compression::Bzip2));
        assert_eq!(recognise(b"0 1 2\n"), supported(Compression::None));
        assert_eq!(recognise(b""), supported(Compression::None));
        assert!(matches!(
            recognise(b"\xfd7zXZ\0"),
            MagicNumber::Unsupported { name: "xz", .. }
        ));
    }
}
