//! Why something that came was not used. What was there before stays in use.

use crate::delta::DeltaError;
use crate::format::OpenError;
use crate::manifest::ManifestError;

/// Why a manifest, proof, snapshot or delta was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// It is not believed or cannot be read.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The snapshot is broken although its digest is right: the publisher built it so.
    #[error(transparent)]
    Snapshot(#[from] OpenError),
    /// The delta is broken although its digest is right.
    #[error(transparent)]
    Delta(#[from] DeltaError),
    /// It speaks of other ids.
    #[error("this is about the set `{set}`")]
    OtherSet {
        /// Which.
        set: String,
    },
    /// A newer statement was seen: a replay, or a cache that lags.
    #[error("manifest {serial} is older than {newest}, which was seen before")]
    Replayed {
        /// Its number.
        serial: u64,
        /// The newest seen.
        newest: u64,
    },
    /// Within one lineage numbers only grow: the publisher's state was put back, or two publishers share
    /// a key.
    #[error("the publisher's {what} fell from {newest} to {found} within a lineage")]
    Falling {
        /// Which number.
        what: &'static str,
        /// The number it states.
        found: u64,
        /// The highest it stated before.
        newest: u64,
    },
    /// No request that is under way carried these bytes: a replay, or an answer that took very long.
    #[error("the proof answers no request that is under way")]
    NotAsked,
    /// No believed manifest names it.
    #[error("no manifest names a file with this content")]
    Unlisted,
    /// Something before it is missing.
    #[error("the delta comes before what it follows")]
    Early,
    /// What is here is as new.
    #[error("the snapshot is not newer than the one in use")]
    Older,
    /// Two statements of the publisher cannot both be true.
    #[error("the publisher contradicts itself")]
    Contradiction,
    /// Larger than the operator allows.
    #[error("a snapshot of {bytes} bytes is larger than the {bytes_max} allowed")]
    SnapshotTooLarge {
        /// Its size.
        bytes: u64,
        /// What is allowed.
        bytes_max: u64,
    },
    /// Too many ids were added since the snapshot.
    #[error("more than {ids_max} ids were added since the snapshot; waiting for the next one")]
    OverlayFull {
        /// What is allowed.
        ids_max: usize,
    },
}
