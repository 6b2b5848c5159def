//! The state of the certificates for an operator, read from the folder. No process needs to run.

use std::io;

use edgeward_acme::{Name, Scheduler};
use serde::Serialize;

use crate::clocks;
use crate::load::{self, LoadError, REQUESTS};
use crate::settings::AcmeSettings;
use crate::store::{FolderStore, StateStore as _};

/// The state of one name.
#[derive(Clone, Debug, Serialize)]
pub struct NameReport {
    /// The name.
    pub name: String,
    /// The URL of the directory of the issuer that gets the next order.
    pub issuer: String,
    /// The end of the certificate, in seconds since 1970.
    pub not_after_at: Option<u64>,
    /// The time of the next order, in seconds since 1970.
    pub next_order_at: Option<u64>,
    /// The time of the next order, if the only reason to wait is that the issuer has failed.
    pub issuer_wait_until: Option<u64>,
    /// True while an order is under way.
    pub is_ordered: bool,
    /// Failures since the last success.
    pub failures: u32,
    /// The last error.
    pub last_error: Option<String>,
}

/// The reason why the state cannot be reported or changed.
#[derive(Debug, thiserror::Error)]
#[error("the folder {folder} cannot be used")]
pub struct StatusError {
    folder: String,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl StatusError {
    fn new(
        settings: &AcmeSettings,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self {
            folder: settings.folder.display().to_string(),
            source: Box::new(source),
        }
    }
}

/// Returns the state of each name.
pub fn report(settings: &AcmeSettings) -> Result<Vec<NameReport>, StatusError> {
    let store = FolderStore::new(&settings.folder);
    let ledger = load::load_ledger(&store);
    let ledger = ledger.map_err(|error: LoadError| StatusError::new(settings, error))?;
    let scheduler = Scheduler::view(settings.plan(), ledger);
    let facts = load::facts(&scheduler, clocks::read().wall_at);
    let reports = scheduler
        .status(clocks::read().wall_at)
        .zip(facts)
        .map(|(status, facts)| {
            let record = status.record;
            NameReport {
                name: facts.name,
                issuer: status.issuer.to_owned(),
                not_after_at: facts.not_after_at,
                next_order_at: facts.next_order_at,
                issuer_wait_until: status.issuer_wait_until,
                is_ordered: record.is_some_and(|record| record.pending.is_some()),
                failures: facts.failures,
                last_error: record
                    .and_then(|record| record.last_error.as_deref().map(str::to_owned)),
            }
        });
    Ok(reports.collect())
}

/// Lets the process that holds the lease renew a certificate, now or when it starts.
pub fn request_renewal(settings: &AcmeSettings, name: &Name) -> Result<(), StatusError> {
    let store = FolderStore::new(&settings.folder);
    let stored = store.store(&format!("{REQUESTS}/{}", name.file_stem()), b"");
    stored.map_err(|error: io::Error| StatusError::new(settings, error))
}
