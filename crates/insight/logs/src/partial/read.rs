//! Reads a partial result: the statistics of one machine's logs in a file. Its bytes are untrusted, so all lengths and
//! checksums are verified.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use edgeward_types::xxh3::xxh3_64;

use edgeward_analysis::wire::{DecodeError, Reader};
use edgeward_analysis::{Object, Sample, Tally};

use super::write::header;
use super::{
    Block, Description, FOOTER_BYTES, HEADER_BYTES, KEY_BYTES, KEY_ROW_BYTES_MAX, KEYS_PER_BLOCK,
    MAGIC, PartialError, VERSION,
};
use crate::analyze::Depth;
use crate::spill::PARTITIONS;

/// An open partial result. All sections are verified except the blocks and the figures, which are verified when
/// they are read.
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    bytes: Bytes,
    pub(crate) description: Description,
    /// The number of logs. It stays valid after a merge has taken the list of logs out of `description`.
    files: u64,
    /// The section with the tally and the sample; empty if the logs were only counted.
    figures: Section,
    /// The blocks of each partition, which contain its URLs.
    blocks: Vec<Vec<Block>>,
    /// The footer, whose checksums identify this partial result.
    footer: [u8; FOOTER_BYTES],
}

/// The bytes of a partial result, in a file or in memory.
enum Bytes {
    File(File),
    Memory(Vec<u8>),
}

#[derive(Clone, Copy)]
struct Section {
    /// The offset in the file.
    at: u64,
    /// The length.
    bytes: u64,
    checksum: u64,
}

impl Bytes {
    fn len(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => Ok(file.metadata()?.len()),
            Self::Memory(bytes) => Ok(bytes.len() as u64),
        }
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_exact_at(out, at),
            Self::Memory(bytes) => {
                let from = usize::try_from(at).ok().and_then(|at| bytes.get(at..));
                let from = from.and_then(|from| from.get(..out.len()));
                out.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }
}

/// Checks a complete partial result in memory and returns its number of URLs.
///
/// # Errors
///
/// Returns an error if the bytes are not a partial result, or are corrupt.
pub fn check(bytes: Vec<u8>) -> Result<u64, PartialError> {
    let part = Part::from_bytes(Path::new("memory"), Bytes::Memory(bytes))?;
    part.figures()?;
    let mut urls = 0;
    for partition in 0..PARTITIONS {
        let mut cursor = part.cursor(partition);
        while cursor.next()?.is_some() {
            urls += 1;
        }
    }
    Ok(urls)
}

impl Part {
    pub(crate) fn open(path: &Path) -> Result<Self, PartialError> {
        let file = File::open(path).map_err(|source| PartialError::Read {
            path: path.into(),
            source,
        })?;
        Self::from_bytes(path, Bytes::File(file))
    }

    fn from_bytes(path: &Path, bytes: Bytes) -> Result<Self, PartialError> {
        let read_error = |source| PartialError::Read {
            path: path.into(),
            source,
        };
        let corrupt = |what: &str| PartialError::Corrupt {
            path: path.into(),
            what: what.to_owned(),
        };
        let length = bytes.len().map_err(read_error)?;
        let mut header_read = [0; HEADER_BYTES];
        // A file that is shorter than the header may be a truncated partial result, so its magic number is checked.
        let header_bytes =
            usize::try_from(length).map_or(HEADER_BYTES, |length| length.min(HEADER_BYTES));
        bytes
            .read(0, &mut header_read[..header_bytes])
            .map_err(read_error)?;
        if header_read[..MAGIC.len()] != *MAGIC {
            return Err(PartialError::NotPartialResult { path: path.into() });
        }
        let version = u32::from_le_bytes([
            header_read[8],
            header_read[9],
            header_read[10],
            header_read[11],
        ]);
        if header_bytes == HEADER_BYTES && version != VERSION {
            return Err(PartialError::Version {
                path: path.into(),
                found: version,
            });
        }
        let cut_short = || PartialError::Truncated { path: path.into() };
        let footer_at = length
            .checked_sub(FOOTER_BYTES as u64)
            .filter(|at| *at >= HEADER_BYTES as u64)
            .ok_or_else(cut_short)?;
        let mut footer = [0; FOOTER_BYTES];
        bytes.read(footer_at, &mut footer).map_err(read_error)?;
        // The lengths and checksums of three sections; then the checksum of the header and these, and the magic number.
        let (covered, rest) = footer.split_at(6 * 8);
        if rest[8..] != *MAGIC {
            return Err(cut_short());
        }
        let sum = xxh3_64(&[&header_read, covered].concat()).to_le_bytes();
        if rest[..8] != sum || header_read != header() {
            return Err(corrupt("the checksum of its footer does not agree"));
        }
        let mut numbers = covered
            .chunks_exact(8)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("chunks of eight")));
        let mut section = || {
            let (bytes, checksum) = (numbers.next()?, numbers.next()?);
            let at = 0;
            Some(Section {
                at,
                bytes,
                checksum,
            })
        };
        let (Some(mut figures), Some(mut description), Some(mut index)) =
            (section(), section(), section())
        else {
            return Err(corrupt("its footer is corrupt"));
        };
        // The sections are adjacent and end at the footer. The index is the last one.
        let mut end = footer_at;
        for section in [&mut index, &mut description, &mut figures] {
            end = end.checked_sub(section.bytes).ok_or_else(cut_short)?;
            section.at = end;
        }
        let mut part = Self {
            path: path.into(),
            bytes,
            description: Description {
                depth: Depth::Counts,
                query: Default::default(),
                options: String::new(),
                files: Vec::new(),
            },
            files: 0,
            figures,
            blocks: Vec::new(),
            footer,
        };
        let bytes = part.section(description, "description")?;
        let mut reader = Reader::new(&bytes, "description");
        let read = Description::read_from(&mut reader)
            .and_then(|description| reader.end().map(|()| description));
        part.description = read.map_err(|error| part.decode_error(error))?;
        part.files = part.description.files.len() as u64;
        let bytes = part.section(index, "index")?;
        part.blocks = blocks(&bytes, figures.at).map_err(|error| part.decode_error(error))?;
        Ok(part)
    }

    /// Returns true if both files are copies of one partial result.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.footer == other.footer
    }

    fn corrupt(&self, what: String) -> PartialError {
        PartialError::Corrupt {
            path: self.path.clone(),
            what,
        }
    }

    fn decode_error(&self, error: DecodeError) -> PartialError {
        self.corrupt(error.to_string())
    }

    fn section(&self, section: Section, what: &str) -> Result<Vec<u8>, PartialError> {
        // The section lies within the file, so its length is limited by the length of the file.
        let length = usize::try_from(section.bytes)
            .map_err(|_| self.corrupt(format!("its {what} is too long")))?;
        let mut bytes = vec![0; length];
        self.read(section.at, &mut bytes)?;
        if xxh3_64(&bytes) != section.checksum {
            return Err(self.corrupt(format!("the checksum of its {what} does not agree")));
        }
        Ok(bytes)
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), PartialError> {
        self.bytes
            .read(at, out)
            .map_err(|source| PartialError::Read {
                path: self.path.clone(),
                source,
            })
    }

    /// Decodes the tally and the sample.
    pub(crate) fn figures(&self) -> Result<Option<(Tally, Sample)>, PartialError> {
        let bytes = self.section(self.figures, "figures")?;
        if self.description.depth == Depth::Counts {
            return Ok(None);
        }
        let mut reader = Reader::new(&bytes, "figures");
        let read = |reader: &mut Reader<'_>| {
            let full = (Tally::read_from(reader)?, Sample::read_from(reader)?);
            // The sample refers to the logs by their numbers.
            if !reader.is_empty() || u64::from(full.1.log_max()) >= self.files.max(1) {
                return Err(reader.decode_error());
            }
            Ok(full)
        };
        read(&mut reader)
            .map(Some)
            .map_err(|error| self.decode_error(error))
    }

    /// Returns a cursor over a partition's URLs in order.
    pub(super) fn cursor(&self, partition: usize) -> Cursor<'_> {
        Cursor {
            part: self,
            partition,
            next_block: 0,
            rows: Vec::new(),
            at: 0,
            last: None,
        }
    }
}

/// Decodes the index: the blocks of each partition. The last block must end at `end`, where the figures begin.
fn blocks(index: &[u8], end: u64) -> Result<Vec<Vec<Block>>, DecodeError> {
    let mut reader = Reader::new(index, "index");
    let mut blocks = vec![Vec::new(); PARTITIONS];
    let mut at = HEADER_BYTES as u64;
    // A row has at least 11 bytes: one each for partition, keys and bytes, and eight for the checksum.
    for _ in 0..reader.count(11)? {
        let partition = reader.byte()?;
        let keys = reader.number()?;
        let bytes = reader.number()?;
        let plausible =
            (1..=KEYS_PER_BLOCK as u64).contains(&keys) && bytes <= keys * KEY_ROW_BYTES_MAX as u64;
        if !plausible {
            return Err(reader.decode_error());
        }
        blocks[usize::from(partition)].push(Block {
            partition,
            at,
            bytes: bytes as u32,
            keys: keys as u32,
            checksum: reader.fixed()?,
        });
        at += bytes;
    }
    if at != end {
        return Err(reader.decode_error());
    }
    reader.end()?;
    Ok(blocks)
}

/// Iterates over the URLs of a partition. One block at a time is in memory.
pub(super) struct Cursor<'p> {
    part: &'p Part,
    partition: usize,
    next_block: usize,
    rows: Vec<(u128, Object)>,
    at: usize,
    last: Option<u128>,
}

impl Cursor<'_> {
    pub(super) fn next(&mut self) -> Result<Option<(u128, Object)>, PartialError> {
        if self.at == self.rows.len() {
            let Some(block) = self.part.blocks[self.partition].get(self.next_block) else {
                return Ok(None);
            };
            self.load(*block)?;
            self.next_block += 1;
        }
        let row = self.rows[self.at];
        self.at += 1;
        if self.last.is_some_and(|last| last >= row.0) {
            return Err(self.part.corrupt("its URLs are not in order".to_owned()));
        }
        self.last = Some(row.0);
        Ok(Some(row))
    }

    fn load(&mut self, block: Block) -> Result<(), PartialError> {
        let section = Section {
            at: block.at,
            bytes: u64::from(block.bytes),
            checksum: block.checksum,
        };
        let bytes = self.part.section(section, "block of URLs")?;
        self.rows.clear();
        self.at = 0;
        self.decode(block, &bytes)
            .map_err(|error| self.part.decode_error(error))
    }

    fn decode(&mut self, block: Block, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut reader = Reader::new(bytes, "URLs");
        for _ in 0..block.keys {
            // A block omits the first byte of its keys, which is the partition.
            let mut key = [block.partition; KEY_BYTES + 1];
            key[1..].copy_from_slice(reader.raw(KEY_BYTES)?);
            let mut object = Object {
                requests: reader.counted()?,
                ..Object::default()
            };
            if object.requests == 0 {
                return Err(reader.decode_error());
            }
            if self.part.description.depth == Depth::Full {
                object.bytes = reader.number()?;
                // The lowest bit is 1 if the size is that of a complete response.
                let size = reader.number()?;
                object.size = size >> 1;
                object.complete = size & 1 == 1;
            }
            self.rows.push((u128::from_be_bytes(key), object));
        }
        reader.end()
    }
}
