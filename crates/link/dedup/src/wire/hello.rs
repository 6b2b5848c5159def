//! The handshake: each endpoint sends a HELLO with its properties, and both compute the same terms from the two
//! HELLOs.

use thiserror::Error;

use crate::chunker::{ChunkerError, ChunkerParams};
use crate::codec::Methods;
use crate::id::{ChunkId, IdKey};

use super::WireError;
use super::decode::Fields;

/// The newest version of the protocol that this endpoint supports.
pub const VERSION: u16 = 3;

/// The oldest version of the protocol that this endpoint supports. Older versions number streams with 32 bits.
pub const VERSION_MIN: u16 = 3;

/// The byte of HELLO in which earlier versions state the scheme of chunk hashes. This version has one scheme, and an
/// endpoint of an earlier version reads this number as the same scheme.
const ID_SCHEME: u8 = 1;

const MAGIC: [u8; 8] = *b"\x89EWL\r\n\x1a\n";

/// The properties that an endpoint announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The oldest supported version.
    pub version_min: u16,
    /// The newest supported version.
    pub version_max: u16,
    /// A random number, which the endpoint draws when it starts. A changed number tells the peer that the
    /// endpoint has restarted and that its earlier streams have ended.
    pub session: u64,
    /// The epoch of the endpoint's store. A changed number tells the peer that the store has lost its chunks.
    pub epoch: u64,
    /// A value by which the peers compare their store keys without revealing them ([`IdKey::check`]).
    pub key_check: ChunkId,
    /// The parameters of the chunker that the endpoint prefers.
    pub chunker: ChunkerParams,
    /// The compression methods that the endpoint supports.
    pub methods: Methods,
    /// The highest number of open streams that the endpoint accepts.
    pub streams_max: u32,
    /// The initial credit of each stream: how many bytes the peer may send before it gets more credit.
    pub credit: u64,
}

/// The role of an endpoint in the connection. If preferences differ, those of the listener apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The endpoint that opened the connection.
    Connector,
    /// The endpoint that accepted the connection.
    Listener,
}

/// The terms that both endpoints agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgreedTerms {
    /// The version in use.
    pub version: u16,
    /// The parameters of the chunker of both endpoints: those that the listener prefers.
    pub chunker: ChunkerParams,
    /// The compression methods that both endpoints support.
    pub methods: Methods,
}

/// Why two endpoints cannot communicate. The endpoint that detects this closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Disagreement {
    /// The peers have no version in common.
    #[error(
        "the peer supports versions {min} to {max} of the link protocol, this endpoint versions {VERSION_MIN} to {VERSION}: upgrade the older endpoint"
    )]
    Version {
        /// The peer's oldest version.
        min: u16,
        /// The peer's newest version.
        max: u16,
    },
    /// The keys differ, so that no chunk hashes would be equal.
    #[error("the peer has another store key: configure the same store key on both endpoints")]
    Key,
}

impl Hello {
    /// Returns the terms that follow from both HELLOs. Both endpoints compute the same terms.
    pub fn agree(&self, role: Role, theirs: &Self) -> Result<AgreedTerms, Disagreement> {
        let version = self.version_max.min(theirs.version_max);
        if version < self.version_min.max(theirs.version_min) {
            return Err(Disagreement::Version {
                min: theirs.version_min,
                max: theirs.version_max,
            });
        }
        if theirs.key_check != self.key_check {
            return Err(Disagreement::Key);
        }
        Ok(AgreedTerms {
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
        out.push(ID_SCHEME);
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
            return Err(fields.field_error("magic", u64::from_le_bytes(magic)));
        }
        let (version_min, version_max) = (fields.u16()?, fields.u16()?);
        let (_id_scheme, kind) = (fields.u8()?, fields.u8()?);
        let (average_log2, methods) = (fields.u8()?, fields.u8()?);
        let seed = fields.u64()?;
        let chunker = ChunkerParams::from_wire(kind, average_log2, seed);
        let chunker = chunker.map_err(|error| match error {
            ChunkerError::Kind(kind) => fields.field_error("chunker", kind),
            ChunkerError::Average(_) => fields.field_error("average", average_log2),
        })?;
        Ok(Self {
            version_min,
            version_max,
            chunker,
            methods: Methods::from_bits(methods),
            session: fields.u64()?,
            epoch: fields.u64()?,
            key_check: fields.id()?,
            streams_max: fields.u32()?,
            credit: fields.u64()?,
        })
    }

    /// Returns a HELLO with the versions of this endpoint, default limits and no compression methods.
    pub fn new(key: &IdKey, chunker: ChunkerParams, session: u64, epoch: u64) -> Self {
        Self {
            version_min: VERSION_MIN,
            version_max: VERSION,
            session,
            epoch,
            key_check: key.check(),
            chunker,
            methods: Methods::NONE,
            streams_max: 1024,
            credit: 256 << 10,
        }
    }
}
