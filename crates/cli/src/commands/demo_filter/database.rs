//! A table of UUIDs in SQLite, and lookups of absent ids and of one present id.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use edgeward_types::mix64;
use rusqlite::Connection;

use edgeward_idsync::{Ledger, Options, Scan, ScanConfig, SourceError};
use edgeward_publish::{IdSource, ScanError};

/// The database table, and the parameters from which its ids are computed.
pub(super) struct IdTable {
    address: String,
    ids: u64,
    seed: u64,
}

/// Creates the table.
pub(super) fn create(path: &Path, ids: u64, seed: u64) -> anyhow::Result<IdTable> {
    let mut connection = Connection::open(path).context("SQLite cannot create its file")?;
    // The table need not survive a crash, so SQLite writes it without a journal and without syncs.
    connection.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
         CREATE TABLE resource (id TEXT NOT NULL);",
    )?;
    let transaction = connection.transaction()?;
    {
        let mut insert = transaction.prepare("INSERT INTO resource (id) VALUES (?1)")?;
        for n in 0..ids {
            insert.execute([uuid(seed, n)])?;
        }
    }
    transaction.commit()?;
    Ok(IdTable {
        address: format!("sqlite://{}", path.display()),
        ids,
        seed,
    })
}

impl IdTable {
    /// All ids in the table.
    pub(super) fn ids(&self) -> impl Iterator<Item = String> {
        let seed = self.seed;
        (0..self.ids).map(move |n| uuid(seed, n))
    }

    /// Returns ids that are not in the table, `absent` in number, and in the middle one id that is in the table.
    pub(super) fn lookups(&self, absent: u64) -> Vec<String> {
        let first = self.ids;
        let mut lookups: Vec<_> = (first..first + absent)
            .map(|n| uuid(self.seed, n))
            .collect();
        let middle = lookups.len() / 2;
        lookups.insert(middle, uuid(self.seed, self.ids / 3));
        lookups
    }

    /// The source of ids for the publisher.
    pub(super) fn source(&self) -> anyhow::Result<TableSource> {
        let options = Options::new("SELECT id FROM resource");
        Ok(TableSource(edgeward_idsync::open(&self.address, options)?))
    }
}

/// The publisher's source of ids. Each scan reads the whole table.
pub(super) struct TableSource(Arc<dyn edgeward_idsync::Source>);

impl IdSource for TableSource {
    fn scan(
        &mut self,
        each: &mut dyn FnMut(&[u8]) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        let failed = |error: SourceError| ScanError::Source(error.into());
        let source = Arc::clone(&self.0);
        // An empty ledger records no progress of an earlier scan, so the scan reads the whole table.
        let mut scan =
            Scan::begin(source, Ledger::default(), ScanConfig::default()).map_err(failed)?;
        while let Some(batch) = scan.next_batch().map_err(failed)? {
            batch.ids().try_for_each(&mut *each)?;
        }
        Ok(())
    }
}

/// The `n`th UUID of a seed: version 4 (RFC 9562 §5.4), with SplitMix64 as the random generator.
fn uuid(seed: u64, n: u64) -> String {
    let draw = |k: u64| mix64(seed.wrapping_add((2 * n + k).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let (high, low) = (draw(1), draw(2));
    let third = high & 0xfff | 0x4000;
    let fourth = low >> 48 & 0x3fff | 0x8000;
    format!(
        "{:08x}-{:04x}-{third:04x}-{fourth:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        low & 0xffff_ffff_ffff
    )
}
