//! The bytes of the log of purges. `docs/reference/purge-log.md` describes them.
//!
//! A log is a header and then records, each with a checksum. After a crash the last record may be incomplete. Its purge
//! was not acknowledged, because the file is synced before an acknowledgement. The caller cuts off such a tail. Other
//! damage is an error with its offset, because the record may be an acknowledged purge; the caller then treats the log
//! as lost. One exception: if the length of the last record is corrupt and exceeds the rest of the file, this record
//! looks like a tail.

use edgeward_types::xxh3::xxh3_64_with_seed;

use crate::scope::{Purge, Scope, ScopeError, Stamp, TEXT_BYTES_MAX};

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A purge of a URL, host or tag.
    Hashed {
        /// The sequence number of the purge.
        stamp: Stamp,
        /// True for a soft purge.
        soft: bool,
        /// The hash of the URL, host or tag.
        hash: u64,
    },
    /// A purge of a prefix or pattern.
    Compared {
        /// The sequence number of the purge.
        stamp: Stamp,
        /// The purge.
        purge: Purge,
    },
    /// The newest sequence number and the floor of the table when the log was rewritten, or numbers that are left out.
    State {
        /// The newest sequence number, used or left out.
        latest: Stamp,
        /// The floor: objects with an older stamp count as purged.
        floor: Stamp,
    },
    /// The position of the node in the stream of its fleet.
    Position {
        /// The newest sequence number when the position was reached.
        stamp: Stamp,
        /// The stamp of the stream's purge up to which all purges are applied.
        position: Stamp,
    },
}

/// The header of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The stamp before the first purge.
    pub start: Stamp,
    /// The seed of the hashes and of the records' checksums. It is secret, so no client can construct tags with
    /// equal hashes.
    pub hash_seed: u64,
}

/// A parsed log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedLog {
    /// The header.
    pub header: Header,
    /// The records, oldest first.
    pub records: Vec<Record>,
    /// The length of header and complete records in bytes. The rest is the tail of an interrupted write.
    pub valid_bytes: usize,
}

/// The reason why bytes are not a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log of purges is corrupt at offset {offset}: {reason}")]
pub struct LogError {
    /// The offset of the header or record in bytes.
    pub offset: usize,
    /// The reason.
    pub reason: LogErrorReason,
}

/// The part of a header or record that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogErrorReason {
    /// The file does not begin with a complete header of a log of purges.
    #[error("the file does not start as a log of purges")]
    Magic,
    /// The version is unknown.
    #[error("its version is {0}, and only 1 is known")]
    Version(u32),
    /// The checksum differs.
    #[error("checksum {stored:#018x} stored, {computed:#018x} computed")]
    Checksum {
        /// The checksum in the file.
        stored: u64,
        /// The checksum computed from the bytes.
        computed: u64,
    },
    /// The kind of a record is unknown, or its length does not fit the kind.
    #[error("a record has kind {kind} and {bytes} bytes")]
    Kind {
        /// The kind.
        kind: u8,
        /// The length of the payload in bytes.
        bytes: usize,
    },
    /// The length of a record exceeds the limit, or the record would cover complete records.
    #[error("a record cannot have a payload of {0} bytes")]
    Length(usize),
    /// The soft flag of a record is neither 0 nor 1, or a reserved byte is not 0. The value is that of the flag.
    #[error("a flag is {0}")]
    Flag(u8),
    /// A stamp has the epoch of another log, or the stamp of a prefix or pattern is not newer than the one before it.
    /// In a header: the sequence number, or a reserved byte, is not 0.
    #[error("the sequence number {0:#018x} does not follow")]
    Sequence(u64),
    /// A prefix or pattern is not valid.
    #[error("{0}")]
    Scope(ScopeError),
    /// A prefix or pattern is not UTF-8.
    #[error("a prefix or pattern is not UTF-8")]
    Text,
}

impl Header {
    /// Returns the encoded header.
    pub fn bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.start.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.hash_seed.to_le_bytes());
        let checksum = xxh3_64_with_seed(&bytes[..32], 0);
        bytes[32..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<Self, LogErrorReason> {
        if bytes.get(..8) != Some(MAGIC) || bytes.len() < HEADER_BYTES {
            return Err(LogErrorReason::Magic);
        }
        let version = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
        if version != VERSION {
            return Err(LogErrorReason::Version(version));
        }
        check(&bytes[..32], u64_at(bytes, 32), 0)?;
        let start = Stamp(u64_at(bytes, 16));
        if bytes[12..16] != [0; 4] || start != Stamp::start_of(start.epoch()) {
            return Err(LogErrorReason::Sequence(start.0));
        }
        Ok(Self {
            start,
            hash_seed: u64_at(bytes, 24),
        })
    }
}

impl Record {
    /// Appends the encoded record to `bytes`. `header` is the header of its log.
    pub fn write(&self, header: &Header, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        let (kind, soft, stamp, payload): (u8, bool, Stamp, &[u8]) = match self {
            Self::Hashed { stamp, soft, hash } => (HASHED, *soft, *stamp, &hash.to_le_bytes()),
            Self::Compared { stamp, purge } => match &purge.scope {
                Scope::Pattern(pattern) => {
                    (PATTERN, purge.soft, *stamp, pattern.as_str().as_bytes())
                }
                // A table compares prefixes and patterns only.
                Scope::Group { group: text, .. }
                | Scope::Url(text)
                | Scope::Host(text)
                | Scope::Tag(text)
                | Scope::Prefix(text) => (PREFIX, purge.soft, *stamp, text.as_bytes()),
            },
            Self::State { latest, floor } => (STATE, false, *latest, &floor.0.to_le_bytes()),
            Self::Position { stamp, position } => {
                (POSITION, false, *stamp, &position.0.to_le_bytes())
            }
        };
        let length = u16::try_from(payload.len()).expect("a scope has at most 8192 bytes");
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&[kind, u8::from(soft), 0, 0, 0, 0]);
        bytes.extend_from_slice(&stamp.0.to_le_bytes());
        bytes.extend_from_slice(payload);
        let checksum = xxh3_64_with_seed(&bytes[start..], header.hash_seed);
        bytes.extend_from_slice(&checksum.to_le_bytes());
    }

    fn parse(bytes: &[u8], header: &Header, last_compared: Stamp) -> Result<Self, LogErrorReason> {
        let (body, checksum) = bytes.split_at(bytes.len() - 8);
        check(body, u64_at(checksum, 0), header.hash_seed)?;
        let (kind, flag, payload) = (body[2], body[3], &body[RECORD_HEADER_BYTES..]);
        let stamp = Stamp(u64_at(body, 8));
        if stamp.epoch() != header.start.epoch() {
            return Err(LogErrorReason::Sequence(stamp.0));
        }
        if flag > 1 || body[4..8] != [0; 4] {
            return Err(LogErrorReason::Flag(flag));
        }
        let soft = flag == 1;
        let compared = |scope: fn(&str) -> Result<Scope, ScopeError>| {
            let text = std::str::from_utf8(payload).map_err(|_| LogErrorReason::Text)?;
            let scope = scope(text).map_err(LogErrorReason::Scope)?;
            if stamp <= last_compared {
                return Err(LogErrorReason::Sequence(stamp.0));
            }
            let purge = Purge { scope, soft };
            Ok(Self::Compared { stamp, purge })
        };
        match (kind, payload.len()) {
            (HASHED, 8) => Ok(Self::Hashed {
                stamp,
                soft,
                hash: u64_at(payload, 0),
            }),
            (PREFIX, _) => compared(Scope::prefix),
            (PATTERN, _) => compared(Scope::pattern),
            (STATE, 8) if !soft => Ok(Self::State {
                latest: stamp,
                floor: Stamp(u64_at(payload, 0)),
            }),
            (POSITION, 8) if !soft => Ok(Self::Position {
                stamp,
                position: Stamp(u64_at(payload, 0)),
            }),
            (kind, bytes) => Err(LogErrorReason::Kind { kind, bytes }),
        }
    }
}

/// Parses a log. An empty file is an error.
pub fn parse(bytes: &[u8]) -> Result<ParsedLog, LogError> {
    let header = Header::parse(bytes).map_err(|reason| LogError { offset: 0, reason })?;
    let mut records = Vec::new();
    let mut offset = HEADER_BYTES;
    let mut last_compared = Stamp::NONE;
    while let Some(length) = record_bytes(&bytes[offset..]) {
        let record = Record::parse(&bytes[offset..offset + length], &header, last_compared)
            .map_err(|reason| LogError { offset, reason })?;
        if let Record::Compared { stamp, .. } = record {
            last_compared = stamp;
        }
        records.push(record);
        offset += length;
    }
    if let Some(reason) = damage_in_tail(&bytes[offset..], &header) {
        return Err(LogError { offset, reason });
    }
    Ok(ParsedLog {
        header,
        records,
        valid_bytes: offset,
    })
}

/// Returns the length of the record at the start of `rest`, or `None` if `rest` is the tail of an interrupted write:
/// shorter than the record, or zeros only. A crash leaves zeros if the file system stored the file's new length, but
/// not its bytes.
fn record_bytes(rest: &[u8]) -> Option<usize> {
    let length = u16::from_le_bytes([*rest.first()?, *rest.get(1)?]);
    let bytes = RECORD_BYTES_MIN + usize::from(length);
    if rest.len() < bytes || rest.iter().all(|byte| *byte == 0) {
        return None;
    }
    Some(bytes)
}

/// Returns an error if the tail starts with a length that no record has, or if a complete record follows in it. Then
/// the length is corrupt, and the records behind it are acknowledged purges.
fn damage_in_tail(tail: &[u8], header: &Header) -> Option<LogErrorReason> {
    let length = usize::from(u16::from_le_bytes([*tail.first()?, *tail.get(1)?]));
    let is_record = |rest: &[u8]| {
        record_bytes(rest)
            .is_some_and(|bytes| Record::parse(&rest[..bytes], header, Stamp::NONE).is_ok())
    };
    let is_damaged =
        length > TEXT_BYTES_MAX || (1..tail.len()).any(|start| is_record(&tail[start..]));
    is_damaged.then_some(LogErrorReason::Length(length))
}

fn check(bytes: &[u8], stored: u64, seed: u64) -> Result<(), LogErrorReason> {
    let computed = xxh3_64_with_seed(bytes, seed);
    match stored == computed {
        true => Ok(()),
        false => Err(LogErrorReason::Checksum { stored, computed }),
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The length of a header in bytes: magic, version, four zeros, start, seed, checksum.
pub const HEADER_BYTES: usize = 40;

/// The length of a record in bytes without its payload: header and checksum.
pub(crate) const RECORD_BYTES_MIN: usize = RECORD_HEADER_BYTES + 8;

/// The length of a record's header in bytes: length of the payload, kind, flag, four zeros, stamp.
const RECORD_HEADER_BYTES: usize = 16;

const MAGIC: &[u8] = b"EDGEPURG";
const VERSION: u32 = 1;

const HASHED: u8 = 1;
const PREFIX: u8 = 2;
const PATTERN: u8 = 3;
const STATE: u8 = 4;
const POSITION: u8 = 5;

const _: () = assert!(TEXT_BYTES_MAX <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADER: Header = Header {
        start: Stamp(7 << 40),
        hash_seed: 99,
    };

    fn purge(text: &str, soft: bool) -> Purge {
        let scope = Scope::prefix(text).expect("a prefix");
        Purge { scope, soft }
    }

    fn log() -> (Vec<u8>, Vec<Record>) {
        let stamp = |n| Stamp(HEADER.start.0 + n);
        let pattern = Scope::pattern("*.example.com/*.png").expect("a pattern");
        let records = vec![
            Record::State {
                latest: stamp(4),
                floor: stamp(2),
            },
            Record::Hashed {
                stamp: stamp(5),
                soft: true,
                hash: 17,
            },
            Record::Compared {
                stamp: stamp(6),
                purge: purge("example.com/a", false),
            },
            Record::Compared {
                stamp: stamp(7),
                purge: Purge {
                    scope: pattern,
                    soft: true,
                },
            },
            Record::Position {
                stamp: stamp(7),
                position: Stamp::at(3, 12),
            },
        ];
        let mut bytes = HEADER.bytes().to_vec();
        records
            .iter()
            .for_each(|record| record.write(&HEADER, &mut bytes));
        (bytes, records)
    }

    #[test]
    fn a_log_parses_to_its_records() {
        let (bytes, records) = log();
        let valid_bytes = bytes.len();
        assert_eq!(
            parse(&bytes),
            Ok(ParsedLog {
                header: HEADER,
                records,
                valid_bytes
            })
        );
    }

    /// Method: cut the log at each byte. A cut header is an error. A cut record leaves the records before it.
    #[test]
    fn an_incomplete_last_record_is_cut_off_and_the_records_before_it_stay() {
        let (bytes, records) = log();
        for end in 0..bytes.len() {
            let parsed = parse(&bytes[..end]);
            let Ok(parsed) = parsed else {
                assert!(end < HEADER_BYTES);
                continue;
            };
            assert!(end >= HEADER_BYTES && parsed.valid_bytes <= end);
            assert_eq!(parsed.records, records[..parsed.records.len()]);
            let mut zeros = bytes[..parsed.valid_bytes].to_vec();
            zeros.resize(zeros.len() + 100, 0);
            assert_eq!(parse(&zeros), Ok(parsed), "a tail of zeros");
        }
    }

    proptest! {
        /// A changed byte is an error, unless it makes the length of the last record exceed the rest of the log. Then
        /// this record counts as the tail.
        #[test]
        fn a_changed_byte_is_an_error_with_the_offset_of_its_record(at in 0_usize..200, xor in 1_u8..) {
            let (mut bytes, records) = log();
            let at = at % bytes.len();
            bytes[at] ^= xor;
            match parse(&bytes) {
                Err(error) => prop_assert!(error.offset <= at),
                Ok(parsed) => {
                    prop_assert!(parsed.valid_bytes <= at, "the changed record is in the tail");
                    prop_assert!(at < parsed.valid_bytes + 2, "only a length can make a tail");
                    prop_assert_eq!(&parsed.records[..], &records[..records.len() - 1]);
                }
            }
        }
    }
}
