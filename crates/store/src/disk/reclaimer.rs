//! Making room: what the oldest segment holds is written again or forgotten.

use edgeward_policy::log::{Aged, SegmentId};
use edgeward_types::KeyHash;

use super::format::{Entry, Kind};
use super::location::Location;
use super::writer::{Draft, Move, WriteFailure, Writer};

impl Writer {
    /// Empties the oldest segment.
    pub(super) fn reclaim(&mut self, victim: SegmentId) -> Result<(), WriteFailure> {
        let volume = std::sync::Arc::clone(&self.volume);
        let entries = volume.entries_of(victim);
        let mut live: Vec<(Entry, Location)> = Vec::new();
        let mut aged = Vec::new();
        for entry in entries {
            if !matches!(entry.kind, Kind::Object | Kind::Commit) {
                continue;
            }
            let at = volume.segments.location(victim, u64::from(entry.offset));
            if let Some(hits) = volume.index.hits(KeyHash(entry.hash), at) {
                live.push((entry, at));
                aged.push(Aged {
                    bytes: u64::from(entry.record_bytes),
                    hits,
                });
            }
        }
        let mut chosen = Vec::new();
        let reinsertion = volume.settings.reinsertion;
        reinsertion.choose(&aged, volume.shape.segment_bytes, &mut chosen);
        let mut kept = vec![false; live.len()];
        for number in chosen {
            let (entry, from) = live[number];
            kept[number] = entry.kind == Kind::Object && self.write_again(&entry, from)?;
        }
        for ((entry, at), kept) in live.into_iter().zip(kept) {
            if !kept && volume.index.remove(KeyHash(entry.hash), at) {
                volume.counters.evicted_objects.one();
            }
        }
        self.flush_records()?;
        self.log.reclaimed(victim);
        volume.counters.reclaimed_segments.one();
        Ok(())
    }

    /// False if it could not be read, or there is no room.
    fn write_again(&mut self, entry: &Entry, from: Location) -> Result<bool, WriteFailure> {
        let bytes = u64::from(entry.record_bytes);
        let Ok(record) = self.volume.load_record(from, bytes) else {
            return Ok(false);
        };
        let head = record.head();
        let body = record.body();
        let draft = Draft {
            kind: record.header.kind,
            hash: KeyHash(record.header.hash),
            object: record.header.object,
            key: record.key(),
            head: &head,
            table: &[],
            items: record.header.items,
            body_bytes: record.header.body_bytes,
            body_offset: record.header.body_offset,
        };
        match self.append_again(&draft, &[body]) {
            Ok(extent) => {
                self.moves_pending.push(Move {
                    hash: draft.hash,
                    from,
                    to: Location::from_offset(extent.at),
                });
                self.volume.counters.reinserted_bytes.add(bytes);
                Ok(true)
            }
            Err(WriteFailure::NoRoom) => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}
