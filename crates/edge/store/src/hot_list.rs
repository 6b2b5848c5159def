//! The list of the objects in RAM, by which the next process fills its RAM from the disk.
//!
//! The list has hashes, not objects. It is only a hint: each object is read from the disk, where purges and newer
//! responses apply. An outdated list therefore costs useless reads, and never a wrong response. A file that is corrupt
//! or belongs to another store is ignored. `docs/reference/disk-format.md` describes the bytes.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use edgeward_policy::{Object, RESIDENTS_MAX};
use edgeward_types::KeyHash;
use edgeward_types::xxh3::xxh3_64_with_seed;

/// The objects of a RAM tier, the most valuable first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotList {
    /// The seed with which the keys were hashed.
    pub key_seed: u64,
    /// The objects in the reverse order of eviction.
    pub objects: Vec<HotObject>,
}

/// An object of a [`HotList`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotObject {
    /// The hash of the key, and the charge in the RAM tier, below 2^63.
    pub object: Object,
    /// True if the object was hit in RAM.
    pub was_hit: bool,
}

/// The reason why a list is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HotListError {
    /// The file cannot be read.
    #[error("it cannot be read")]
    Read(#[from] io::Error),
    /// The file does not start as a list of hot objects.
    #[error("it does not start as a list of hot objects")]
    Magic,
    /// The version is unknown.
    #[error("its version is {0}, and only {VERSION} is known")]
    Version(u64),
    /// The length of the file does not match the number of objects, or the number exceeds the limit of a tier.
    #[error("its length is {bytes} bytes, which does not match its {objects} objects")]
    Length {
        /// The length of the file, or the part of it that was read.
        bytes: u64,
        /// The number of objects in the header.
        objects: u64,
    },
    /// The checksum does not match the bytes.
    #[error("its checksum does not match its bytes")]
    Checksum,
}

impl HotList {
    /// Reads a list. Returns `None` if the file does not exist.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or is not a valid list.
    pub fn read(path: &Path) -> Result<Option<Self>, HotListError> {
        let length = match fs::metadata(path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // A file of any size may lie at the path. It is read only if a list can have this length.
        if length > (FIXED_BYTES + RESIDENTS_MAX * OBJECT_BYTES) as u64 {
            return Err(HotListError::Magic);
        }
        Self::parse(&fs::read(path)?).map(Some)
    }

    /// Writes the list under a temporary name and renames it, so that an interrupted write leaves the old file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".new");
        let mut file = File::create(&temporary)?;
        file.write_all(&self.bytes())?;
        file.sync_data()?;
        fs::rename(&temporary, path)
    }

    /// Returns the bytes of the list.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED_BYTES + self.objects.len() * OBJECT_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.key_seed.to_le_bytes());
        bytes.extend_from_slice(&(self.objects.len() as u64).to_le_bytes());
        for HotObject { object, was_hit } in &self.objects {
            bytes.extend_from_slice(&object.key.0.to_le_bytes());
            let charge_and_hit = object.size_bytes << 1 | u64::from(*was_hit);
            bytes.extend_from_slice(&charge_and_hit.to_le_bytes());
        }
        let checksum = xxh3_64_with_seed(&bytes, CHECKSUM_SEED);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Parses a list.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not a valid list.
    pub fn parse(bytes: &[u8]) -> Result<Self, HotListError> {
        if bytes.get(..8) != Some(MAGIC) {
            return Err(HotListError::Magic);
        }
        let length_error = |objects| HotListError::Length {
            bytes: bytes.len() as u64,
            objects,
        };
        let header = bytes.get(8..HEADER_BYTES).ok_or_else(|| length_error(0))?;
        let number_at =
            |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let version = number_at(0);
        if version != u64::from(VERSION) {
            return Err(HotListError::Version(version));
        }
        let (key_seed, count) = (number_at(8), number_at(16));
        let expected_bytes = usize::try_from(count)
            .ok()
            .filter(|&count| count <= RESIDENTS_MAX)
            .map(|count| FIXED_BYTES + count * OBJECT_BYTES);
        if expected_bytes != Some(bytes.len()) {
            return Err(length_error(count));
        }
        let (content, checksum) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
        if xxh3_64_with_seed(content, CHECKSUM_SEED).to_le_bytes() != checksum {
            return Err(HotListError::Checksum);
        }
        let objects = content[HEADER_BYTES..].chunks_exact(OBJECT_BYTES);
        let objects = objects.map(|object| {
            let (key, charge_and_hit) = object.split_at(8);
            let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            let charge_and_hit = number(charge_and_hit);
            HotObject {
                object: Object {
                    key: KeyHash(number(key)),
                    size_bytes: charge_and_hit >> 1,
                },
                was_hit: charge_and_hit & 1 == 1,
            }
        });
        Ok(Self {
            key_seed,
            objects: objects.collect(),
        })
    }
}

const MAGIC: &[u8; 8] = b"EWHOTLST";
const VERSION: u32 = 1;

/// Magic, version, four bytes of zero, key seed, number of objects.
const HEADER_BYTES: usize = 8 + 4 + 4 + 8 + 8;
const CHECKSUM_BYTES: usize = 8;
const FIXED_BYTES: usize = HEADER_BYTES + CHECKSUM_BYTES;

/// The hash of the key; the charge and one bit.
const OBJECT_BYTES: usize = 8 + 8;

const CHECKSUM_SEED: u64 = 0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list() -> impl Strategy<Value = HotList> {
        let objects =
            proptest::collection::vec((any::<u64>(), 0..1_u64 << 63, any::<bool>()), 0..20);
        (any::<u64>(), objects).prop_map(|(key_seed, objects)| HotList {
            key_seed,
            objects: objects
                .into_iter()
                .map(|(key, size_bytes, was_hit)| HotObject {
                    object: Object {
                        key: KeyHash(key),
                        size_bytes,
                    },
                    was_hit,
                })
                .collect(),
        })
    }

    proptest! {
        /// Method: write and parse a list. Then cut it anywhere, and change one byte anywhere: both are errors.
        #[test]
        fn a_list_parses_to_what_was_written_and_damage_is_detected(
            list in list(),
            at: prop::sample::Index,
            change in 1..=255_u8,
        ) {
            let bytes = list.bytes();
            prop_assert_eq!(HotList::parse(&bytes).expect("valid"), list);
            let at = at.index(bytes.len());
            prop_assert!(HotList::parse(&bytes[..at]).is_err());
            let mut damaged = bytes;
            damaged[at] ^= change;
            prop_assert!(HotList::parse(&damaged).is_err());
        }
    }

    /// Later releases must parse lists of this version, so their bytes must not change.
    #[test]
    fn the_bytes_of_version_1_are_fixed() {
        let list = HotList {
            key_seed: 7,
            objects: vec![HotObject {
                object: Object {
                    key: KeyHash(0x0102),
                    size_bytes: 3,
                },
                was_hit: true,
            }],
        };
        let mut expected = b"EWHOTLST\x01\0\0\0\0\0\0\0".to_vec();
        for number in [7_u64, 1, 0x0102, 7] {
            expected.extend_from_slice(&number.to_le_bytes());
        }
        let bytes = list.bytes();
        assert_eq!(bytes[..expected.len()], expected);
        assert_eq!(bytes.len(), expected.len() + 8);
    }

    #[test]
    fn an_absent_file_is_no_error_and_each_problem_has_its_own_message() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("hot.list");
        assert!(matches!(HotList::read(&path), Ok(None)));
        let list = HotList::default();
        list.write(&path).expect("written");
        assert_eq!(HotList::read(&path).expect("valid"), Some(list.clone()));
        let bytes = list.bytes();
        let with = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            HotList::parse(&bytes).expect_err("invalid").to_string()
        };
        assert_eq!(with(0, 0), "it does not start as a list of hot objects");
        assert_eq!(with(8, 2), "its version is 2, and only 1 is known");
        assert_eq!(
            with(24, 1),
            "its length is 40 bytes, which does not match its 1 objects"
        );
        assert_eq!(
            with(39, bytes[39] ^ 1),
            "its checksum does not match its bytes"
        );
        assert!(HotList::parse(b"").is_err() && HotList::parse(&bytes[..20]).is_err());
    }
}
