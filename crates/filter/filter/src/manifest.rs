//! The statements of a publisher: a manifest lists the published files, and a proof states which manifest is the
//! newest.
//!
//! The two documents are separate because they are distributed differently. A **manifest** changes with each
//! publication and may be cached like any file. A **proof** answers one request of one client and contains 16
//! random bytes of that request. It states: "at the time of this answer the newest manifest is number `serial`.
//! Each id that was committed at least `lag_ms` ago is in the journal up to `head`, or in every snapshot from epoch
//! `epoch_min` on." Only the publisher can sign a proof, and only after it received the request. A proof fits into an
//! HTTP header field, so that a 304 response without a body can also have one.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::signed::{Document, SignedError, Signer, Trust, parse, unsigned, verify};

/// The files that together contain every id up to journal number `head`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the document: 2.
    pub format: u32,
    /// The name of the set of ids: a manifest of another set is refused.
    pub set: String,
    /// The number of the manifest. Each manifest has the next number.
    pub serial: u64,
    /// The lineage of the publisher's journal. Each start of the publisher begins a new lineage.
    pub lineage: u64,
    /// Wall-clock time, in milliseconds since 1970. Each id committed until then is in the journal up to `head`, or
    /// in every snapshot from epoch `epoch_min` on.
    pub covers_ms: u64,
    /// The epoch of the oldest snapshot for which the statement of `covers_ms` holds.
    pub epoch_min: u64,
    /// The newest number of the journal.
    pub head: u64,
    /// The newest snapshot.
    pub snapshot: Snapshot,
    /// The deltas that the publisher still serves, without gaps, the last one up to `head`.
    pub deltas: Vec<DeltaEntry>,
}

/// A snapshot: the filter of one whole scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// The epoch, as in the header of the filter.
    pub epoch: u64,
    /// All ids up to this number of the journal are in the snapshot.
    pub base: u64,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The digest of the file.
    pub sha256: Digest,
}

/// A published delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeltaEntry {
    /// The last journal number before the delta.
    pub from: u64,
    /// The last journal number that the delta covers.
    pub to: u64,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The digest of the file.
    pub sha256: Digest,
}

/// A publisher's answer to one client's challenge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// The version of the document: 2.
    pub format: u32,
    /// The name of the set of ids.
    pub set: String,
    /// The number of the newest manifest.
    pub serial: u64,
    /// The lineage of the publisher's journal.
    pub lineage: u64,
    /// Each id that was committed at least `lag_ms` ago is in the journal up to `head`, or in every snapshot from this
    /// epoch on.
    pub epoch_min: u64,
    /// The newest number of the journal.
    pub head: u64,
    /// The age of the data in milliseconds: all ids that were committed this long before the proof are published.
    /// Measured on the publisher's monotonic clock.
    pub lag_ms: u64,
    /// The client's challenge, in hex.
    pub echo: String,
}

// The 1 is a fixed part of both signed texts. The version of the documents is `FORMAT`.
impl Document for Manifest {
    const KIND: &'static str = "edgeward filter manifest 1";
}

impl Document for Proof {
    const KIND: &'static str = "edgeward filter proof 1";
}

impl Manifest {
    /// Encodes the manifest as a line, signed if there is a signer.
    pub fn to_line(&self, signer: Option<&Signer>) -> String {
        signer.map_or_else(|| unsigned(self), |signer| signer.sign(self))
    }

    /// Verifies and decodes a manifest, and checks that its deltas leave no gap.
    pub fn from_line(line: &[u8], trust: &Trust) -> Result<Self, ManifestError> {
        let manifest: Self = read_document(line, trust)?;
        manifest.check()?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), ManifestError> {
        if self.deltas.len() > DELTAS_MAX {
            return Err(ManifestError::TooManyDeltas {
                found: self.deltas.len(),
            });
        }
        let mut end = None;
        for delta in &self.deltas {
            if delta.from >= delta.to || end.is_some_and(|end| end != delta.from) {
                return Err(ManifestError::Gap { at: delta.from });
            }
            end = Some(delta.to);
        }
        // The snapshot and the deltas must cover the journal up to the head.
        let first = self.deltas.first().map_or(self.head, |delta| delta.from);
        if end.unwrap_or(self.head) != self.head || first > self.snapshot.base {
            return Err(ManifestError::Gap { at: first });
        }
        if self.snapshot.base > self.head {
            return Err(ManifestError::Gap { at: self.head });
        }
        if self.epoch_min > self.snapshot.epoch {
            return Err(ManifestError::Epoch {
                min: self.epoch_min,
                newest: self.snapshot.epoch,
            });
        }
        Ok(())
    }
}

impl Proof {
    /// Encodes the proof as a line, signed if there is a signer.
    pub fn to_line(&self, signer: Option<&Signer>) -> String {
        signer.map_or_else(|| unsigned(self), |signer| signer.sign(self))
    }

    /// Verifies and decodes a proof.
    pub fn from_line(line: &[u8], trust: &Trust) -> Result<Self, ManifestError> {
        read_document(line, trust)
    }
}

/// Verifies a line and decodes a document of the version that this edgeward supports.
///
/// Documents of version 1 have no `epoch_min`: they do not state which snapshot contains the covered ids. They are
/// refused, so that they cannot make a filter fresh.
fn read_document<D: Document>(line: &[u8], trust: &Trust) -> Result<D, ManifestError> {
    #[derive(Deserialize)]
    struct FormatField {
        #[serde(default = "format_1")]
        format: u32,
    }
    let json = verify::<D>(line, trust)?;
    let format: FormatField = parse(json)?;
    if format.format != FORMAT {
        return Err(ManifestError::Format {
            found: format.format,
        });
    }
    Ok(parse(json)?)
}

/// Proofs of version 1 have no version field.
const fn format_1() -> u32 {
    1
}

/// The version of documents that this edgeward writes and reads.
pub const FORMAT: u32 = 2;

/// The largest number of deltas in a manifest. A publisher merges old deltas.
pub const DELTAS_MAX: usize = 128;

/// Why a manifest or proof is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The line is not accepted, or is not a document of this kind.
    #[error(transparent)]
    Signed(#[from] SignedError),
    /// The document was written by an earlier or later edgeward.
    #[error("the document has version {found}, and this edgeward reads version {FORMAT}")]
    Format {
        /// The version of the document.
        found: u32,
    },
    /// The manifest lists more than [`DELTAS_MAX`] deltas.
    #[error("the manifest lists {found} deltas, more than {DELTAS_MAX}")]
    TooManyDeltas {
        /// The number of deltas.
        found: usize,
    },
    /// The deltas do not follow each other without gaps and overlaps up to `head`, or the first delta begins after the
    /// snapshot's `base`, or `base` is above `head`.
    #[error("the manifest's deltas leave a gap at journal number {at}")]
    Gap {
        /// The journal number at which the check failed. It is next to the gap or in it.
        at: u64,
    },
    /// The manifest requires a newer snapshot than it lists.
    #[error("the manifest requires snapshot {min}, but its newest snapshot is {newest}")]
    Epoch {
        /// The epoch that the manifest requires.
        min: u64,
        /// The newest epoch.
        newest: u64,
    },
}
