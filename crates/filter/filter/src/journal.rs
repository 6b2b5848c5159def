//! The journal of a publisher: numbered batches of added ids, and the deltas made of them.
//!
//! Each batch of new ids gets the next number. Deltas form a logarithmic ladder, as in a log-structured merge
//! tree: if the newest delta has at least half as many ids as the delta before, the two are merged. A journal of
//! ten million ids has two dozen deltas. A client that is up to date fetches only the last delta. Merges rewrite
//! each id at most about twenty times.
//!
//! A snapshot contains the journal up to a number, the base of the snapshot. The journal keeps some deltas before the
//! base, so that clients with the previous snapshot stay fresh while they fetch the new one.

use crate::delta::Delta;
use crate::digest::Digest;
use crate::id::IdHash;
use crate::manifest::{DELTAS_MAX, DeltaEntry, FORMAT, Manifest, Proof, Snapshot};

/// The journal of a publisher, from which manifests and proofs are made.
#[derive(Clone, Debug)]
pub struct Journal {
    set: String,
    lineage: u64,
    hash_seed: u64,
    serial: u64,
    head: u64,
    snapshot: Option<Snapshot>,
    deltas: Vec<PublishedDelta>,
    /// The ids added after the newest snapshot's base, each with its journal number. Deltas do not have the numbers
    /// of single ids, because deltas are merged.
    since_base: Vec<(IdHash, u64)>,
}

/// A delta and its entry in the manifest.
#[derive(Clone, Debug)]
pub struct PublishedDelta {
    /// The entry in the manifest.
    pub entry: DeltaEntry,
    /// The bytes of the file.
    pub bytes: Vec<u8>,
    delta: Delta,
}

impl PublishedDelta {
    /// The number of ids in the delta.
    pub fn ids(&self) -> usize {
        self.delta.ids().len()
    }
}

impl Journal {
    /// Creates an empty journal.
    ///
    /// `lineage` must be a new random number. `serial` must not be below the number of any earlier manifest of
    /// this set, or clients treat the next manifests as replays. Milliseconds since 1970 are suitable. `hash_seed`
    /// is the seed of the ids' hashes.
    pub fn new(set: impl Into<String>, lineage: u64, serial: u64, hash_seed: u64) -> Self {
        Self {
            set: set.into(),
            lineage,
            hash_seed,
            serial,
            head: 0,
            snapshot: None,
            deltas: Vec::new(),
            since_base: Vec::new(),
        }
    }

    /// Restores a journal from its newest snapshot and the stored deltas, in order.
    ///
    /// `serial` is as for [`Self::new`]. Returns `None` if the deltas leave a gap, belong to another journal,
    /// or end before the snapshot's base.
    pub fn resume(
        set: impl Into<String>,
        lineage: u64,
        serial: u64,
        hash_seed: u64,
        snapshot: Option<Snapshot>,
        deltas: Vec<Delta>,
    ) -> Option<Self> {
        let base = snapshot.map_or(0, |snapshot| snapshot.base);
        let mut journal = Self::new(set, lineage, serial, hash_seed);
        journal.snapshot = snapshot;
        journal.head = deltas.first().map_or(base, |first| first.from);
        if journal.head > base {
            return None;
        }
        // A stored delta does not have the numbers of its ids. Each id gets the last number of its delta. A delta that
        // begins before the base is left out of `since_base`, because some of its ids may be in the snapshot.
        for delta in deltas {
            let is_of_this_journal = (delta.lineage, delta.hash_seed) == (lineage, hash_seed);
            if !is_of_this_journal || delta.from != journal.head || delta.to <= delta.from {
                return None;
            }
            journal.head = delta.to;
            if delta.from >= base {
                let ids = delta.ids().iter().map(|id| (*id, delta.to));
                journal.since_base.extend(ids);
            }
            journal.deltas.push(PublishedDelta::new(delta));
            journal.merge();
        }
        (journal.head >= base).then_some(journal)
    }

    /// Returns the journal with a new lineage, which must be a new random number. Ids and numbers stay.
    ///
    /// A publisher that starts cannot know whether its state is the newest: the state may have been restored
    /// from a backup. With a new lineage, a number never refers to two different batches.
    pub fn with_lineage(mut self, lineage: u64) -> Self {
        self.lineage = lineage;
        for published in &mut self.deltas {
            published.delta.lineage = lineage;
            *published = PublishedDelta::new(published.delta.clone());
        }
        self
    }

    /// The random number of this journal. Journal numbers are compared only within one lineage.
    pub fn lineage(&self) -> u64 {
        self.lineage
    }

    /// Adds ids, which are published with the next manifest. Returns their journal number.
    pub fn append(&mut self, ids: Vec<IdHash>) -> u64 {
        if ids.is_empty() {
            return self.head;
        }
        let from = self.head;
        self.head += 1;
        self.since_base
            .extend(ids.iter().map(|id| (*id, self.head)));
        let delta = Delta::new(self.lineage, from, self.head, self.hash_seed, ids);
        self.deltas.push(PublishedDelta::new(delta));
        self.merge();
        self.head
    }

    fn merge(&mut self) {
        while let [.., older, newer] = &self.deltas[..]
            && (newer.delta.ids().len() * 2 >= older.delta.ids().len()
                || self.deltas.len() > DELTAS_MAX)
        {
            let ids = [older.delta.ids(), newer.delta.ids()].concat();
            let (from, to) = (older.entry.from, newer.entry.to);
            let merged = Delta::new(self.lineage, from, to, self.hash_seed, ids);
            self.deltas.truncate(self.deltas.len() - 2);
            self.deltas.push(PublishedDelta::new(merged));
        }
    }

    /// Publishes a snapshot with the sequence number `epoch`, which contains all ids up to the journal number `base`.
    /// Drops the deltas that only clients with a position before `keep_from` need.
    ///
    /// Panics if `base` is greater than the newest number.
    pub fn publish(&mut self, snapshot: &[u8], epoch: u64, base: u64, keep_from: u64) {
        let snapshot = Snapshot {
            epoch,
            base,
            bytes: snapshot.len() as u64,
            sha256: Digest::compute(snapshot),
        };
        self.publish_with_digest(snapshot, keep_from);
    }

    /// Like [`Self::publish`], for a snapshot whose digest is already known. Computing it for 100 MB takes
    /// noticeable time.
    ///
    /// Panics if the snapshot's base is greater than the newest number.
    pub fn publish_with_digest(&mut self, snapshot: Snapshot, keep_from: u64) {
        assert!(
            snapshot.base <= self.head,
            "the base of a snapshot is a number of the journal"
        );
        let keep_from = keep_from.min(snapshot.base);
        self.deltas.retain(|delta| delta.entry.to > keep_from);
        self.since_base
            .retain(|(_, number)| *number > snapshot.base);
        self.since_base.shrink_to_fit();
        self.snapshot = Some(snapshot);
    }

    /// Returns the next manifest, or `None` before the first snapshot.
    ///
    /// The manifest states that each id committed before `covers_ms`, in milliseconds since 1970, is in this
    /// journal, or in every snapshot from epoch `epoch_min` on. If `epoch_min` is `None`, the manifest has the epoch of
    /// the newest snapshot.
    pub fn manifest(&mut self, covers_ms: u64, epoch_min: Option<u64>) -> Option<Manifest> {
        let snapshot = self.snapshot?;
        self.serial += 1;
        Some(Manifest {
            format: FORMAT,
            set: self.set.clone(),
            serial: self.serial,
            lineage: self.lineage,
            covers_ms,
            epoch_min: epoch_min.unwrap_or(snapshot.epoch),
            head: self.head,
            snapshot,
            deltas: self.deltas.iter().map(|delta| delta.entry).collect(),
        })
    }

    /// Returns the proof for the challenge `echo`. The proof states that each id committed `lag_ms` milliseconds ago or
    /// earlier is in this journal, or in every snapshot from epoch `epoch_min` on.
    ///
    /// A publisher must answer only while it is the active publisher of the set. The journal of a replaced publisher
    /// lacks the ids of its successor, so its proof would be false and clients would answer "absent" for these ids.
    pub fn prove(&self, echo: [u8; 16], lag_ms: u64, epoch_min: u64) -> Proof {
        Proof {
            format: FORMAT,
            set: self.set.clone(),
            serial: self.serial,
            lineage: self.lineage,
            epoch_min,
            head: self.head,
            lag_ms,
            echo: crate::digest::to_hex(&echo),
        }
    }

    /// The deltas that the manifest lists now.
    pub fn deltas(&self) -> &[PublishedDelta] {
        &self.deltas
    }

    /// The newest number of the journal.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The newest snapshot.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }

    /// The number of the newest manifest.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// The ids that were added after the newest snapshot's base. A client with this snapshot and the journal up
    /// to its head has all these ids.
    ///
    /// Ids with numbers up to the base may be absent from the snapshot, because they were deleted before the scan
    /// reached them. If one of these ids is added again, it needs a new number.
    pub fn ids_after_snapshot(&self) -> impl Iterator<Item = IdHash> {
        self.since_base.iter().map(|(id, _)| *id)
    }

    /// The ids in all stored deltas. An id that was added several times may appear several times.
    pub fn delta_ids(&self) -> impl Iterator<Item = IdHash> {
        self.deltas
            .iter()
            .flat_map(|delta| delta.delta.ids().iter().copied())
    }
}

impl PublishedDelta {
    fn new(delta: Delta) -> Self {
        let bytes = delta.to_bytes();
        Self {
            entry: DeltaEntry {
                from: delta.from,
                to: delta.to,
                bytes: bytes.len() as u64,
                sha256: Digest::compute(&bytes),
            },
            bytes,
            delta,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signed::{Signer, Trust};

    fn journal(batches: u64) -> Journal {
        let mut journal = Journal::new("resource", 5, 0, 0);
        for n in 0..batches {
            journal.append(vec![IdHash(n * 3), IdHash(n * 3 + 1)]);
        }
        journal
    }

    #[test]
    fn many_batches_become_few_deltas_that_hold_all_ids() {
        let mut journal = journal(10_000);
        assert!(journal.deltas().len() <= 15, "{}", journal.deltas().len());
        let ids: usize = journal.deltas().iter().map(|d| d.delta.ids().len()).sum();
        assert_eq!((ids, journal.head()), (20_000, 10_000));
        assert_eq!(journal.append(vec![]), 10_000);
        assert!(journal.manifest(0, None).is_none());
        journal.publish(b"a snapshot", 1, 9_000, 0);
        let manifest = journal.manifest(0, None).expect("a snapshot was published");
        let line = manifest.to_line(None);
        assert_eq!(
            Manifest::from_line(line.as_bytes(), &Trust::Transport),
            Ok(manifest)
        );
    }

    #[test]
    fn publishing_a_snapshot_drops_old_deltas_and_leaves_no_gap() {
        for base in [0, 1, 63, 64, 99, 100] {
            let mut journal = journal(100);
            journal.publish(b"a snapshot", 1, base, base);
            let line = journal
                .manifest(0, None)
                .expect("a snapshot was published")
                .to_line(None);
            let manifest = Manifest::from_line(line.as_bytes(), &Trust::Transport);
            let first = manifest
                .expect("the deltas leave no gap")
                .deltas
                .first()
                .map(|delta| delta.to);
            assert!(first.is_none_or(|to| to > base));
        }
    }

    /// A journal restored from its stored deltas equals the original and continues with larger numbers.
    #[test]
    fn a_journal_continues_after_a_restart() {
        let mut journal = journal(100);
        journal.publish(b"a snapshot", 1, 90, 40);
        let stored_deltas = |journal: &Journal| -> Vec<Delta> {
            let deltas = journal.deltas().iter();
            deltas
                .map(|delta| Delta::from_bytes(&delta.bytes).expect("the journal wrote it"))
                .collect()
        };
        let deltas = stored_deltas(&journal);
        let resume = |deltas| {
            let (lineage, seed) = (journal.lineage, journal.hash_seed);
            Journal::resume("resource", lineage, 500, seed, journal.snapshot, deltas)
        };
        let mut resumed = resume(deltas.clone()).expect("no delta is missing");
        assert_eq!(resumed.head(), 100);
        assert_eq!(resumed.append(vec![IdHash(7)]), 101);
        let manifest = resumed.manifest(0, None).expect("a snapshot was published");
        assert_eq!(manifest.serial, 501);
        let line = manifest.to_line(None);
        assert!(Manifest::from_line(line.as_bytes(), &Trust::Transport).is_ok());
        let mut gap = deltas.clone();
        gap.remove(1);
        assert!(resume(gap).is_none());
        assert!(resume(Vec::new()).is_some_and(|journal| journal.head() == 90));
        assert!(
            resume(deltas[..1].to_vec()).is_none(),
            "ends before the snapshot"
        );
    }

    /// A wrong key, a flipped byte, a proof in place of a manifest and a missing signature are refused.
    #[test]
    fn only_documents_signed_with_the_key_are_accepted() {
        let (signer, other) = (Signer::from_secret([1; 32]), Signer::from_secret([2; 32]));
        let trust = Trust::Keys(vec![signer.public()]);
        let mut journal = journal(3);
        journal.publish(b"a snapshot", 1, 3, 3);
        let manifest = journal.manifest(0, None).expect("a snapshot was published");
        let line = manifest.to_line(Some(&signer));
        assert_eq!(
            Manifest::from_line(line.as_bytes(), &trust).as_ref(),
            Ok(&manifest)
        );
        for at in 0..line.len() {
            let mut changed = line.clone().into_bytes();
            changed[at] ^= 1;
            assert!(Manifest::from_line(&changed, &trust).is_err(), "byte {at}");
        }
        assert!(Manifest::from_line(manifest.to_line(Some(&other)).as_bytes(), &trust).is_err());
        assert!(Manifest::from_line(manifest.to_line(None).as_bytes(), &trust).is_err());
        let proof = journal.prove([7; 16], 0, 1).to_line(Some(&signer));
        assert!(Proof::from_line(proof.as_bytes(), &trust).is_ok());
        assert!(Manifest::from_line(proof.as_bytes(), &trust).is_err());
        let key: crate::PublicKey = signer.public().to_string().parse().expect("a key");
        assert_eq!(key, signer.public());
    }

    #[test]
    fn a_manifest_with_a_gap_is_refused() {
        let mut journal = journal(100);
        journal.publish(b"a snapshot", 1, 10, 0);
        let whole = journal.manifest(0, None).expect("a snapshot was published");
        let read = |manifest: &Manifest| {
            Manifest::from_line(manifest.to_line(None).as_bytes(), &Trust::Transport)
        };
        assert!(read(&whole).is_ok());
        let mut head = whole.clone();
        head.head += 1;
        assert!(read(&head).is_err());
        let mut base = whole.clone();
        base.snapshot.base = 200;
        assert!(read(&base).is_err());
        for n in 0..whole.deltas.len() {
            let mut missing = whole.clone();
            missing.deltas.remove(n);
            assert!(read(&missing).is_err(), "{n}");
        }
        let mut many = whole.clone();
        many.deltas = vec![whole.deltas[0]; DELTAS_MAX + 1];
        assert!(read(&many).is_err());
    }
}
