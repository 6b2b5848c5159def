//! Serialises the index as a checkpoint, which is written periodically and at shutdown, and read at start.
//!
//! `docs/reference/disk-format.md`, "The index checkpoint", describes the bytes: a header, the buckets in
//! blocks, a trailer. Each part has a checksum that also depends on the epoch and on the number of the part. A
//! block of an older checkpoint is therefore detected.
//!
//! [`Index::save`] may run while lookups and the writer continue. It copies a block of buckets under the
//! writers' lock, for about 20 µs, and hashes and writes the copy without the lock. The checkpoint is therefore
//! not the state at one moment: each entry has the content that it had at some time during the save. The checkpoint
//! contains an epoch. Recovery replays the log from this epoch on, which corrects every entry that changed during the
//! save. [`Index::retain`] drops entries whose segment was reused meanwhile. The trailer lists the *moved* entries:
//! those that moved during the save from an unsaved bucket to a bucket that will not be saved again.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::atomic::Ordering::Relaxed;

use edgeward_types::xxh3::xxh3_64_with_seed;

use super::bucket::{BUCKET_BYTES, CacheLine, EMPTY};
use super::config::IndexConfig;
use super::geometry::{Identity, Shape};
use super::locations::{BLOCK_BUCKETS, Index};
use super::table::Table;
use super::writer::SaveProgress;
use crate::disk::location::Location;

/// The result of a save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveSummary {
    /// The number of bytes written.
    pub bytes: u64,
    /// The number of entries saved.
    pub entries: u64,
}

impl Index {
    /// Writes a checkpoint of the index with the caller's `epoch`. After a restart, the log must be replayed from
    /// the segment of this epoch on.
    ///
    /// # Errors
    ///
    /// Fails with the error of `out`, or if another save is in progress.
    pub fn save(&self, epoch: u64, out: &mut impl Write) -> io::Result<SaveSummary> {
        let (_in_progress, shape) = SaveGuard::begin(self)?;
        let buckets = shape.buckets(self.geometry.bases);
        let mut out = CountingWriter { out, bytes: 0 };
        out.write_all(&Header::for_index(self, epoch, buckets).to_bytes())?;

        let mut entries = 0;
        let mut block = Vec::with_capacity(BLOCK_BYTES_MAX);
        for start in (0..buckets).step_by(BLOCK_BUCKETS as usize) {
            block.clear();
            entries += self.copy_block(start, buckets, &mut block);
            out.write_all(&block)?;
            out.write_all(&checksum_bytes(&block, epoch, start))?;
        }

        let moved_entries = self.take_moved_entries();
        block.clear();
        block.extend(TRAILER_MAGIC);
        block.extend((moved_entries.len() as u64).to_le_bytes());
        out.write_all(&block)?;
        out.write_all(&checksum_bytes(&block, epoch, TRAILER_HEAD))?;
        block.clear();
        for &(base, slot) in &moved_entries {
            block.extend(base.to_le_bytes());
            block.extend(slot.to_le_bytes());
        }
        out.write_all(&block)?;
        out.write_all(&checksum_bytes(&block, epoch, TRAILER_BODY))?;
        Ok(SaveSummary {
            bytes: out.bytes,
            entries: entries + moved_entries.len() as u64,
        })
    }

    /// Returns the index of a checkpoint that [`Index::save`] wrote, and the epoch of the checkpoint. Reads no byte
    /// beyond the end of the checkpoint.
    ///
    /// `config` must have the same device size. Its `objects_max` may differ, if the saved buckets fit in an
    /// index of this size.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not a checkpoint, or the checkpoint is incomplete, damaged, or of a device of
    /// another size. The caller then scans the log.
    pub fn load(config: IndexConfig, input: &mut impl Read) -> Result<(Self, u64), LoadError> {
        let header = Header::from_bytes(&read_array(input, CheckpointPart::Header)?)?;
        let buckets = header.check(&config)?;
        let epoch = header.epoch;
        let mut index = Self::new(config);
        let geometry = index.geometry;
        index.table = Table::with_buckets(geometry.bases, buckets, config.buckets_max());

        let units = config.units();
        let valid = |slot: u64| (1..units).contains(&(slot & geometry.location_mask()));
        let mut entries = 0;
        let mut block = Vec::new();
        for start in (0..buckets).step_by(BLOCK_BUCKETS as usize) {
            let end = buckets.min(start + BLOCK_BUCKETS);
            block.resize((end - start) as usize * BUCKET_BYTES, 0);
            read_part(
                input,
                &mut block,
                epoch,
                start,
                CheckpointPart::Buckets { start },
            )?;
            for (number, bytes) in (start..end).zip(block.as_chunks().0) {
                let line =
                    CacheLine::from_bytes(bytes).ok_or(LoadError::Invalid { bucket: number })?;
                for (_, slot) in line.slots() {
                    if !valid(slot) {
                        return Err(LoadError::Invalid { bucket: number });
                    }
                    entries += 1;
                }
                index.table.bucket(number).fill(&line);
            }
        }
        index.counters.entries.store(entries, Relaxed);

        let mut head = [0; 16];
        read_part(
            input,
            &mut head,
            epoch,
            TRAILER_HEAD,
            CheckpointPart::Trailer,
        )?;
        let (magic, count) = head.split_at(8);
        let count = u64::from_le_bytes(count.try_into().expect("the slice has eight bytes"));
        if magic != TRAILER_MAGIC || count > config.moved_entries_max() as u64 {
            return Err(LoadError::Invalid { bucket: buckets });
        }
        block.resize(count as usize * MOVED_ENTRY_BYTES, 0);
        read_part(
            input,
            &mut block,
            epoch,
            TRAILER_BODY,
            CheckpointPart::Trailer,
        )?;
        for pair in block.as_chunks::<MOVED_ENTRY_BYTES>().0 {
            let word = |at: usize| {
                u64::from_le_bytes(
                    pair[at..at + 8]
                        .try_into()
                        .expect("the slice has eight bytes"),
                )
            };
            let (base, slot) = (word(0), word(8));
            if base >= geometry.bases || !valid(slot) || slot >> SLOT_BITS != 0 {
                return Err(LoadError::Invalid { bucket: buckets });
            }
            index.add_moved_entry(base, slot);
        }
        Ok((index, epoch))
    }

    /// Returns an upper bound of the number of bytes that [`Index::save`] writes for an index with this
    /// configuration.
    pub fn checkpoint_bytes_max(config: IndexConfig) -> u64 {
        let buckets = config.buckets_max();
        HEADER_BYTES as u64
            + buckets * BUCKET_BYTES as u64
            + buckets.div_ceil(BLOCK_BUCKETS) * CHECKSUM_BYTES
            + 16
            + (config.moved_entries_max() * MOVED_ENTRY_BYTES) as u64
            + 2 * CHECKSUM_BYTES
    }

    /// Appends one block of buckets, from `start` on. Returns its number of entries.
    fn copy_block(&self, start: u64, buckets: u64, block: &mut Vec<u8>) -> u64 {
        let end = buckets.min(start + BLOCK_BUCKETS);
        let mut writer = self.writer.lock();
        let mut entries = 0;
        for number in start..end {
            let line = self.table.bucket(number).line();
            entries += line.occupied() as u64;
            block.extend(line.to_bytes());
        }
        let saving = writer.saving.as_mut().expect("a save is in progress");
        saving.next_bucket = end;
        entries
    }

    fn take_moved_entries(&self) -> Vec<(u64, u64)> {
        let mut writer = self.writer.lock();
        let saving = writer.saving.as_mut().expect("a save is in progress");
        std::mem::take(&mut saving.moved_entries)
    }

    /// Adds an entry from the trailer, unless a bucket has an entry of the same identity.
    fn add_moved_entry(&self, base: u64, slot: u64) {
        let tag = self.tag(slot);
        let identity = Identity { base, tag };
        let mut writer = self.writer.lock();
        if self.slot_of(identity).is_none() {
            self.add(&mut writer, identity, slot);
        }
    }
}

impl IndexConfig {
    fn units(&self) -> u64 {
        self.device.bytes().div_ceil(Location::UNIT_BYTES)
    }

    /// Returns the largest number of entries in the trailer: one per four buckets, at most [`MOVED_ENTRIES_MAX`].
    pub(super) fn moved_entries_max(&self) -> usize {
        usize::try_from(self.buckets_max() / 4)
            .map_or(MOVED_ENTRIES_MAX, |share| share.min(MOVED_ENTRIES_MAX))
    }
}

/// Why a checkpoint was rejected. In each case the log is scanned instead.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The bytes do not begin with the magic number of an index checkpoint.
    Foreign {
        /// The first eight bytes, which should be the magic number.
        found: [u8; 8],
    },
    /// The checkpoint has another format version.
    Version {
        /// The version of the checkpoint.
        found: u32,
    },
    /// A part does not match its checksum.
    Corrupt {
        /// The corrupt part.
        part: CheckpointPart,
        /// The stored checksum.
        stored: u64,
        /// The checksum of the bytes that were read.
        computed: u64,
    },
    /// The checkpoint is truncated.
    Truncated {
        /// The part that is incomplete.
        part: CheckpointPart,
    },
    /// The checkpoint belongs to a device of another size, or to an index larger than this one may be.
    Mismatch {
        /// The field that differs.
        what: &'static str,
        /// The value in the checkpoint.
        saved: u64,
        /// The value of this index; for the number of buckets, the largest that this index may have.
        here: u64,
    },
    /// The checksum matches but the content is invalid. The cause is a bug or an attack.
    Invalid {
        /// The number of the bucket. If it equals the number of buckets, the trailer is invalid.
        bucket: u64,
    },
    /// The device returned an error.
    Read {
        /// The part that was being read.
        part: CheckpointPart,
        /// The error of the device.
        source: io::Error,
    },
}

/// A part of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointPart {
    /// The first 64 bytes.
    Header,
    /// A block of buckets.
    Buckets {
        /// The number of the first bucket.
        start: u64,
    },
    /// The trailer: the entries that moved during the save.
    Trailer,
}

impl fmt::Display for CheckpointPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("header"),
            Self::Buckets { start } => write!(f, "block of buckets from {start} on"),
            Self::Trailer => f.write_str("trailer"),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign { found } => {
                write!(f, "not an index checkpoint: it begins with {found:02x?}")
            }
            Self::Version { found } => write!(
                f,
                "index checkpoint has format version {found}; this program reads {VERSION}"
            ),
            Self::Corrupt {
                part,
                stored,
                computed,
            } => write!(
                f,
                "index checkpoint, {part}: checksum {stored:#018x} stored, {computed:#018x} computed"
            ),
            Self::Truncated { part } => write!(f, "index checkpoint ends within its {part}"),
            Self::Mismatch { what, saved, here } => {
                write!(f, "index checkpoint has {what} {saved}, not {here}")
            }
            Self::Invalid { bucket } => {
                write!(f, "index checkpoint has invalid content at bucket {bucket}")
            }
            Self::Read { part, .. } => write!(f, "index checkpoint, {part}: cannot be read"),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Makes the writer record moved entries until this value is dropped.
struct SaveGuard<'a>(&'a Index);

impl<'a> SaveGuard<'a> {
    fn begin(index: &'a Index) -> io::Result<(Self, Shape)> {
        let mut writer = index.writer.lock();
        if writer.saving.is_some() {
            return Err(io::Error::other(
                "a checkpoint of this index is being written already",
            ));
        }
        let shape = index.table.shape();
        writer.saving = Some(SaveProgress {
            next_bucket: 0,
            end_bucket: shape.buckets(index.geometry.bases),
            moved_entries: Vec::new(),
            moved_entries_max: index.config.moved_entries_max(),
        });
        Ok((Self(index), shape))
    }
}

impl Drop for SaveGuard<'_> {
    fn drop(&mut self) {
        self.0.writer.lock().saving = None;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    location_bits: u32,
    epoch: u64,
    device_bytes: u64,
    /// The number of buckets in a layer of the table (`geometry`).
    bases: u64,
    buckets: u64,
}

impl Header {
    fn for_index(index: &Index, epoch: u64, buckets: u64) -> Self {
        Self {
            location_bits: index.geometry.location_bits,
            epoch,
            device_bytes: index.config.device.bytes(),
            bases: index.geometry.bases,
            buckets,
        }
    }

    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.location_bits.to_le_bytes());
        for field in [self.epoch, self.device_bytes, self.bases, self.buckets, 0] {
            bytes.extend(field.to_le_bytes());
        }
        let sum = xxh3_64_with_seed(&bytes, 0);
        bytes.extend(sum.to_le_bytes());
        bytes.try_into().expect("the fields have 64 bytes")
    }

    fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Self, LoadError> {
        let word = |at: usize| {
            u64::from_le_bytes(
                bytes[at..at + 8]
                    .try_into()
                    .expect("the slice has eight bytes"),
            )
        };
        let half = |at: usize| {
            u32::from_le_bytes(
                bytes[at..at + 4]
                    .try_into()
                    .expect("the slice has four bytes"),
            )
        };
        if bytes[..8] != MAGIC {
            let found = bytes[..8].try_into().expect("the slice has eight bytes");
            return Err(LoadError::Foreign { found });
        }
        // The version is checked before the checksum, because another version may have its checksum elsewhere.
        if half(8) != VERSION {
            return Err(LoadError::Version { found: half(8) });
        }
        let (stored, computed) = (word(56), xxh3_64_with_seed(&bytes[..56], 0));
        if stored != computed {
            return Err(LoadError::Corrupt {
                part: CheckpointPart::Header,
                stored,
                computed,
            });
        }
        Ok(Self {
            location_bits: half(12),
            epoch: word(16),
            device_bytes: word(24),
            bases: word(32),
            buckets: word(40),
        })
    }

    /// Returns the number of buckets, if the header fits an index with this configuration.
    fn check(&self, config: &IndexConfig) -> Result<u64, LoadError> {
        let geometry = config.geometry();
        let differs = |what, saved, here| Err(LoadError::Mismatch { what, saved, here });
        let device = config.device.bytes();
        let max = config.buckets_max();
        if self.device_bytes != device {
            differs("device bytes", self.device_bytes, device)
        } else if self.location_bits != geometry.location_bits {
            let here = geometry.location_bits;
            differs("location bits", self.location_bits.into(), here.into())
        } else if self.bases != geometry.bases {
            differs("bases", self.bases, geometry.bases)
        } else if !(self.bases..=max).contains(&self.buckets) {
            differs("buckets", self.buckets, max)
        } else {
            Ok(self.buckets)
        }
    }
}

struct CountingWriter<'a, W> {
    out: &'a mut W,
    bytes: u64,
}

impl<W: Write> CountingWriter<'_, W> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

fn checksum_bytes(bytes: &[u8], epoch: u64, part: u64) -> [u8; 8] {
    xxh3_64_with_seed(bytes, seed(epoch, part)).to_le_bytes()
}

/// Returns the seed of a part's checksum. Parts of different checkpoints, and different parts of one checkpoint, have
/// different seeds.
fn seed(epoch: u64, part: u64) -> u64 {
    epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ part
}

fn read_array<const N: usize>(
    input: &mut impl Read,
    part: CheckpointPart,
) -> Result<[u8; N], LoadError> {
    let mut bytes = [0; N];
    read_exact(input, &mut bytes, part)?;
    Ok(bytes)
}

fn read_part(
    input: &mut impl Read,
    bytes: &mut [u8],
    epoch: u64,
    number: u64,
    part: CheckpointPart,
) -> Result<(), LoadError> {
    read_exact(input, bytes, part)?;
    let stored = u64::from_le_bytes(read_array(input, part)?);
    let computed = xxh3_64_with_seed(bytes, seed(epoch, number));
    if stored == computed {
        Ok(())
    } else {
        Err(LoadError::Corrupt {
            part,
            stored,
            computed,
        })
    }
}

fn read_exact(
    input: &mut impl Read,
    bytes: &mut [u8],
    part: CheckpointPart,
) -> Result<(), LoadError> {
    input
        .read_exact(bytes)
        .map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => LoadError::Truncated { part },
            _ => LoadError::Read { part, source },
        })
}

const MAGIC: [u8; 8] = *b"EDGEWIDX";
const TRAILER_MAGIC: [u8; 8] = *b"XDIWEGDE";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const CHECKSUM_BYTES: u64 = 8;
const MOVED_ENTRY_BYTES: usize = 16;
const BLOCK_BYTES_MAX: usize = BLOCK_BUCKETS as usize * BUCKET_BYTES;
const SLOT_BITS: u32 = 56;

/// The numbers of the trailer's two parts in the seeds. No bucket has these numbers.
const TRAILER_HEAD: u64 = u64::MAX;
const TRAILER_BODY: u64 = u64::MAX - 1;

/// The largest number of entries in a trailer: 16 MiB. Further moves during a save are not recorded.
const MOVED_ENTRIES_MAX: usize = 1 << 20;

const _: () = assert!(EMPTY == 0, "an empty slot saves as zeroes");
