//! Loads the ledger and the certificates of a folder.

use std::io;
use std::sync::Arc;

use edgeward_acme::{Ledger, LedgerError, Name, Scheduler};
use rcgen::KeyPair;

use crate::answers;
use crate::certificates::{CertificateFacts, Certificates, KeyTable, StoredCertificate, TableKey};
use crate::settings::AcmeSettings;
use crate::store::StateStore;

/// The reason why no certificates can be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A self-signed certificate cannot be made.
    #[error("a self-signed certificate cannot be made")]
    Placeholder(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The thread cannot be started.
    #[error("the thread of the certificates cannot be started")]
    Thread(#[source] io::Error),
}

/// The reason why the state cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum LoadError {
    #[error("the ledger cannot be read")]
    Read(#[source] io::Error),
    #[error("the ledger cannot be persisted")]
    Write(#[source] io::Error),
    #[error("{LEDGER} is damaged: move it away to begin with an empty one")]
    Parse(#[source] LedgerError),
    #[error(transparent)]
    Placeholder(StartError),
}

/// A name with its stored certificate.
pub(crate) type LoadedName = (Name, Loaded);

/// The result of loading the certificate of one name.
pub(crate) enum Loaded {
    Stored(StoredCertificate),
    /// The store has none, or one that cannot be used.
    Absent,
    /// The store failed, and may have a valid certificate. `is_in_use`: handshakes have the earlier one.
    Unreadable {
        is_in_use: bool,
    },
}

/// Loads the certificates of all names, and of those that clients have asked for: `demanded`. Configured names without
/// a usable certificate get a self-signed one.
pub(crate) fn load_keys(
    store: &dyn StateStore,
    settings: &AcmeSettings,
    demanded: &[Name],
    certificates: &Certificates,
) -> Result<Vec<LoadedName>, StartError> {
    let placeholder_error =
        |error: &dyn std::fmt::Display| StartError::Placeholder(error.to_string().into());
    let mut placeholder_key = None;
    let mut table = KeyTable::default();
    let mut loaded = Vec::new();
    let mut unreadable: Vec<(String, io::Error)> = Vec::new();
    let before = certificates.keys();
    let configured = settings.names().map(|name| (name, true));
    let demanded = demanded.iter().map(|name| (name, false));
    for (name, is_configured) in configured.chain(demanded) {
        let path = certificate_path(name);
        let earlier = before.of_planned(name);
        let stored = match load_key(store, &path) {
            Ok(Some(stored)) => Loaded::Stored(stored),
            Ok(None) => Loaded::Absent,
            Err(error) if is_unusable(&error) => {
                tracing::error!(%name, path, %error, "a certificate cannot be used, and is ordered again");
                Loaded::Absent
            }
            Err(error) => {
                unreadable.push((path, error));
                let is_in_use = earlier.is_some_and(|earlier| earlier.is_issued);
                Loaded::Unreadable { is_in_use }
            }
        };
        let key = match (&stored, earlier) {
            (Loaded::Stored(stored), _) => TableKey {
                key: Arc::clone(&stored.key),
                is_issued: true,
            },
            (_, Some(earlier)) => earlier.clone(),
            (_, None) if !is_configured => {
                loaded.push((name.clone(), stored));
                continue;
            }
            (_, None) => {
                let key = match placeholder_key.take() {
                    Some(key) => key,
                    None => KeyPair::generate().map_err(|error| placeholder_error(&error))?,
                };
                let made = answers::placeholder(&name.to_string(), &key);
                placeholder_key = Some(key);
                TableKey {
                    key: Arc::new(made.map_err(|error| placeholder_error(&error))?),
                    is_issued: false,
                }
            }
        };
        table.insert(name, key);
        loaded.push((name.clone(), stored));
    }
    certificates.set_keys(table);
    if let Some((path, error)) = unreadable.first() {
        let count = unreadable.len();
        tracing::error!(count, path, %error, "certificates cannot be read; this is tried again");
    }
    Ok(loaded)
}

fn load_key(store: &dyn StateStore, path: &str) -> io::Result<Option<StoredCertificate>> {
    let bytes = store.load(path)?;
    let parsed = bytes.map(|bytes| StoredCertificate::parse(&bytes));
    parsed.transpose()
}

/// Returns true if the file was read, and no later attempt can use it.
fn is_unusable(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, InvalidData};
    matches!(error.kind(), InvalidData | FileTooLarge)
}

pub(crate) fn load_ledger(store: &dyn StateStore) -> Result<Ledger, LoadError> {
    match store.load(LEDGER).map_err(LoadError::Read)? {
        Some(bytes) => Ledger::parse(&bytes).map_err(LoadError::Parse),
        None => Ok(Ledger::default()),
    }
}

/// Returns the names that clients have asked for, and that the configuration lacks.
pub(crate) fn demanded_names(scheduler: &Scheduler) -> Vec<Name> {
    scheduler.demanded_names().cloned().collect()
}

/// Returns the state of each name.
pub(crate) fn facts(scheduler: &Scheduler, now: u64) -> Vec<CertificateFacts> {
    let facts = scheduler.status(now).map(|status| {
        let certificate = status.record.and_then(|record| record.certificate.as_ref());
        CertificateFacts {
            name: status.name.to_string(),
            not_after_at: certificate.map(|certificate| certificate.validity.not_after_at),
            next_order_at: Some(status.next_order_at).filter(|&at| at < u64::MAX),
            failures: status.record.map_or(0, |record| record.backoff.failures),
        }
    });
    facts.collect()
}

pub(crate) fn certificate_path(name: &Name) -> String {
    format!("{CERTIFICATES}/{}.pem", name.file_stem())
}

pub(crate) fn pending_key_path(name: &Name) -> String {
    format!("{ORDERS}/{}.key", name.file_stem())
}

/// The folder of certificates with their keys.
pub(crate) const CERTIFICATES: &str = "certificates";

/// The folder of the keys of orders under way.
pub(crate) const ORDERS: &str = "orders";

pub(crate) const LEDGER: &str = "ledger.json";

/// The folder of demanded renewals: a file for each, named like the files of the name.
pub(crate) const REQUESTS: &str = "requests";
