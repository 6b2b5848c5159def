//! What a publisher says: the manifest names what there is, a proof says that it is the newest.
//!
//! They are two documents because they travel differently. A **manifest** changes when something is
//! published and may be cached like any file. A **proof** answers one question of one client, which
//! put 16 random bytes into it: "as I answer you, the newest manifest is number `serial`, and all ids
//! committed up to `lag_ms` ago are in snapshot `epoch_min` or a later one, together with the journal
//! up to `head`". Nobody but the publisher can have said that, and not before
//! it was asked. It is small enough for an HTTP header, on a 304 too.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::signed::{Document, SignedError, Signer, Trust, believe, parse, unsigned};

/// What a client needs to have, to know of every id up to journal number `head`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The document's form: 2.
    pub format: u32,
    /// The name of the set of ids: a manifest of another set is refused.
    pub set: String,
    /// Goes up by one with each manifest, whatever else happens.
    pub serial: u64,
    /// The publisher's journal. A new one begins at each start of the publisher.
    pub lineage: u64,
    /// Wall-clock time, in milliseconds since 1970, up to which all committed ids are in a snapshot of
    /// `epoch_min` or later, together with the journal up to `head`.
    pub covers_ms: u64,
    /// Epoch of the oldest snapshot that suffices for that.
    pub epoch_min: u64,
    /// The journal's newest number.
    pub head: u64,
    /// The newest build.
    pub snapshot: Snapshot,
    /// Deltas from the oldest one kept to `head`, each beginning where the one before ends.
    pub deltas: Vec<DeltaEntry>,
}

/// A built filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// Its epoch, as in its header.
    pub epoch: u64,
    /// All ids up to this number of the journal are in it.
    pub base: u64,
    /// Its size.
    pub bytes: u64,
    /// Of the file.
    pub sha256: Digest,
}

/// A published delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeltaEntry {
    /// The last journal number it does not cover.
    pub from: u64,
    /// The last it covers.
    pub to: u64,
    /// Its size.
    pub bytes: u64,
    /// Of the file.
    pub sha256: Digest,
}

/// A publisher's answer to one client's challenge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// The document's form: 2.
    pub format: u32,
    /// The name of the set.
    pub set: String,
    /// The newest manifest's number.
    pub serial: u64,
    /// The journal.
    pub lineage: u64,
    /// Epoch of the oldest snapshot that, together with the journal up to `head`, has all ids committed
    /// up to `lag_ms` ago.
    pub epoch_min: u64,
    /// The journal's newest number.
    pub head: u64,
    /// How long ago that was last known to be so, by the publisher's monotonic clock.
    pub lag_ms: u64,
    /// The client's challenge, in hex.
    pub echo: String,
}

impl Document for Manifest {
    const KIND: &'static str = "edgeward filter manifest 1";
}

impl Document for Proof {
    const KIND: &'static str = "edgeward filter proof 1";
}

impl Manifest {
    /// As it is published.
    pub fn to_line(&self, signer: Option<&Signer>) -> String {
        signer.map_or_else(|| unsigned(self), |signer| signer.sign(self))
    }

    /// Reads one and holds it against what a manifest must be.
    pub fn from_line(line: &[u8], trust: &Trust) -> Result<Self, ManifestError> {
        let manifest: Self = read_form(line, trust)?;
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
        // With the snapshot and the deltas everything up to the head must be had.
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
    /// As it is answered.
    pub fn to_line(&self, signer: Option<&Signer>) -> String {
        signer.map_or_else(|| unsigned(self), |signer| signer.sign(self))
    }

    /// Reads one.
    pub fn from_line(line: &[u8], trust: &Trust) -> Result<Self, ManifestError> {
        read_form(line, trust)
    }
}

/// Reads a document of the form that this edgeward knows.
///
/// A statement of form 1 does not name the snapshot that it is about: it must make no filter fresh.
fn read_form<D: Document>(line: &[u8], trust: &Trust) -> Result<D, ManifestError> {
    #[derive(Deserialize)]
    struct Form {
        #[serde(default = "first_form")]
        format: u32,
    }
    let json = believe::<D>(line, trust)?;
    let form: Form = parse(json)?;
    if form.format != FORMAT {
        return Err(ManifestError::Format { found: form.format });
    }
    Ok(parse(json)?)
}

/// Proofs of form 1 do not state their form.
const fn first_form() -> u32 {
    1
}

/// The form this edgeward writes and reads.
pub const FORMAT: u32 = 2;

/// Deltas of a manifest, at most: a publisher merges old ones into larger ones.
pub const DELTAS_MAX: usize = 128;

/// Why a manifest or proof is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// It is not believed, or no document of this kind.
    #[error(transparent)]
    Signed(#[from] SignedError),
    /// Written by an earlier or a later edgeward.
    #[error("the document has form {found}, and this edgeward reads form {FORMAT}")]
    Format {
        /// The form it has.
        found: u32,
    },
    /// More than a publisher ever lists.
    #[error("the manifest lists {found} deltas, more than {DELTAS_MAX}")]
    TooManyDeltas {
        /// How many.
        found: usize,
    },
    /// Some numbers of the journal are in nothing it lists.
    #[error("the manifest's deltas leave a gap at journal number {at}")]
    Gap {
        /// Where.
        at: u64,
    },
    /// No snapshot suffices for what it states.
    #[error("the manifest requires snapshot {min}, and its newest is {newest}")]
    Epoch {
        /// The oldest that suffices.
        min: u64,
        /// The newest there is.
        newest: u64,
    },
}
