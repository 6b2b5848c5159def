//! The errors of received documents (manifests and proofs) and files (snapshots and deltas). After an error the client
//! keeps its filter, its ids and its deadline.

use crate::delta::DeltaError;
use crate::format::OpenError;
use crate::manifest::ManifestError;

/// Why a manifest, proof, snapshot or delta was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// The manifest or proof is not trusted, cannot be read or is invalid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The snapshot is invalid although its digest matches: the publisher published an invalid file.
    #[error(transparent)]
    Snapshot(#[from] OpenError),
    /// The delta is invalid although its digest matches.
    #[error(transparent)]
    Delta(#[from] DeltaError),
    /// The document belongs to another set.
    #[error("the document belongs to the set `{set}`")]
    OtherSet {
        /// The name of that set.
        set: String,
    },
    /// A newer manifest or proof was received before. The refused one is a replay, or comes from a cache that lags.
    #[error("manifest {serial} is older than manifest {newest}, which was received before")]
    Replayed {
        /// The serial number of the refused manifest or proof.
        serial: u64,
        /// The highest serial number that was accepted before, or `serial_min` of the configuration.
        newest: u64,
    },
    /// A number decreased within one lineage. Either the publisher's state was restored from a backup, or two
    /// publishers share a key.
    #[error("the publisher's {what} decreased from {newest} to {found} within a lineage")]
    Decreased {
        /// The name of the number: `head` and `base` are numbers of the journal, `epoch` and `epoch_min` of snapshots.
        what: &'static str,
        /// The stated number.
        found: u64,
        /// The highest number stated before.
        newest: u64,
    },
    /// No request in flight carried the challenge that the proof echoes. The proof is a replay or arrived late.
    #[error("the proof answers no request in flight")]
    UnknownChallenge,
    /// No accepted manifest lists the file.
    #[error("no manifest lists a file with this digest")]
    Unlisted,
    /// The client lacks ids before the delta: an earlier delta, or the snapshot of this lineage.
    #[error("the delta cannot be applied: an earlier delta or the snapshot is missing")]
    MissingEarlierIds,
    /// The snapshot in use has the same epoch or a higher one, a higher base, or another hash seed. A snapshot has all
    /// ids up to its base, which is a number of the journal.
    #[error("the snapshot is not newer than the one in use")]
    Older,
    /// Two statements of the publisher contradict each other, for example two manifests with one serial number.
    #[error("the publisher's statements contradict each other")]
    Contradiction,
    /// The snapshot is larger than the operator allows.
    #[error("the snapshot has {bytes} bytes, more than the {bytes_max} allowed")]
    SnapshotTooLarge {
        /// The size of the snapshot.
        bytes: u64,
        /// The largest size allowed.
        bytes_max: u64,
    },
    /// Too many ids were added since the snapshot.
    #[error("more than {ids_max} ids were added since the snapshot; waiting for the next snapshot")]
    OverlayFull {
        /// The largest number allowed.
        ids_max: usize,
    },
}
