//! The first words on each connection: who is there, and what both understand.

use thiserror::Error;

use crate::chunker::{ChunkerError, ChunkerParams};
use crate::codec::Methods;
use crate::id::{ChunkId, IdKey};

use super::decode::Fields;
use super::{Checksum, WireError};

/// The newest version of the protocol that is spoken here.
pub const VERSION: u16 = 2;

/// The oldest.
pub const VERSION_MIN: u16 = 1;

/// From this one on, lines that let nothing through that was changed on the way have no checksums of bodies' bytes.
const VERSION_OF_FIELDS: u16 = 2;

const MAGIC: [u8; 8] = *b"\x89EWL\r\n\x1a\n";

/// What an end says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version it still speaks.
    pub version_min: u16,
    /// The newest it speaks.
    pub version_max: u16,
    /// Drawn when it began to talk to this peer: another number means that streams from before are gone.
    pub session: u64,
    /// Drawn when its store was made: another number means that what it had is gone.
    pub epoch: u64,
    /// How it names chunks ([`IdKey::scheme`]).
    pub id_scheme: u8,
    /// [`IdKey::check`].
    pub key_check: ChunkId,
    /// How it would cut.
    pub chunker: ChunkerParams,
    /// What it can decompress.
    pub methods: Methods,
    /// Streams it takes at the same time.
    pub streams_max: u32,
    /// Up to where a body may be sent at once.
    pub credit: u64,
}

/// Who waited for the connection decides where two preferences differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It asked for the connection.
    Connector,
    /// It was asked.
    Listener,
}

/// What two ends have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// What is spoken.
    pub version: u16,
    /// How both cut: as the listener would.
    pub chunker: ChunkerParams,
    /// What both can decompress.
    pub methods: Methods,
}

/// Why two ends cannot talk. Whoever finds out closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Disagreement {
    /// One is too old.
    #[error(
        "the peer speaks versions {min} to {max} of the protocol, and here they are {VERSION_MIN} to {VERSION}"
    )]
    Version {
        /// Its oldest.
        min: u16,
        /// Its newest.
        max: u16,
    },
    /// It names chunks in another way.
    #[error(
        "the peer names chunks by scheme {theirs}, and here it is {ours} (1 is blake3, 2 is gmac): both ends must be given the same `ids`"
    )]
    IdScheme {
        /// Here.
        ours: u8,
        /// There.
        theirs: u8,
    },
    /// Its names would never be ours.
    #[error("the peer names chunks under another key: both ends must be given the same store key")]
    Key,
}

impl Agreed {
    /// What checksums are made of on a line that is `authentic` (what was changed on the way does not come out of it) or not.
    pub fn checksum(&self, authentic: bool) -> Checksum {
        if authentic && self.version >= VERSION_OF_FIELDS {
            Checksum::Fields
        } else {
            Checksum::Whole
        }
    }
}

impl Hello {
    /// What this end and `theirs` have in common; both ends find the same.
    pub fn agree(&self, role: Role, theirs: &Self) -> Result<Agreed, Disagreement> {
        let version = self.version_max.min(theirs.version_max);
        if version < self.version_min.max(theirs.version_min) {
            return Err(Disagreement::Version {
                min: theirs.version_min,
                max: theirs.version_max,
            });
        }
        if theirs.id_scheme != self.id_scheme {
            let (ours, theirs) = (self.id_scheme, theirs.id_scheme);
            return Err(Disagreement::IdScheme { ours, theirs });
        }
        if theirs.key_check != self.key_check {
            return Err(Disagreement::Key);
        }
        Ok(Agreed {
            version,
            chunker: match role {
                Role::Connector => theirs.chunker,
                Role::Listener => self.chunker,
            },
            methods: self.methods.and(theirs.methods),
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.version_min.to_le_bytes());
        out.extend_from_slice(&self.version_max.to_le_bytes());
        out.push(self.id_scheme);
        out.push(ChunkerParams::KIND);
        out.push(self.chunker.average_log2());
        out.push(self.methods.bits());
        out.extend_from_slice(&self.chunker.seed().to_le_bytes());
        out.extend_from_slice(&self.session.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.key_check.0);
        out.extend_from_slice(&self.streams_max.to_le_bytes());
        out.extend_from_slice(&self.credit.to_le_bytes());
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self, WireError> {
        let magic = fields.array::<8>()?;
        if magic != MAGIC {
            return Err(fields.field("magic", u64::from_le_bytes(magic)));
        }
        let (version_min, version_max) = (fields.u16()?, fields.u16()?);
        let (id_scheme, kind) = (fields.u8()?, fields.u8()?);
        let (average_log2, methods) = (fields.u8()?, fields.u8()?);
        let seed = fields.u64()?;
        let chunker = ChunkerParams::from_wire(kind, average_log2, seed);
        let chunker = chunker.map_err(|error| match error {
            ChunkerError::Kind(kind) => fields.field("chunker", kind),
            ChunkerError::Average(_) => fields.field("average", average_log2),
        })?;
        Ok(Self {
            version_min,
            version_max,
            id_scheme,
            chunker,
            methods: Methods::from_bits(methods),
            session: fields.u64()?,
            epoch: fields.u64()?,
            key_check: fields.id()?,
            streams_max: fields.u32()?,
            credit: fields.u64()?,
        })
    }

    /// What an end of today says, before it is told otherwise.
    pub fn new(key: &IdKey, chunker: ChunkerParams, session: u64, epoch: u64) -> Self {
        Self {
            version_min: VERSION_MIN,
            version_max: VERSION,
            session,
            epoch,
            id_scheme: key.scheme(),
            key_check: key.check(),
            chunker,
            methods: Methods::NONE,
            streams_max: 1024,
            credit: 256 << 10,
        }
    }
}
