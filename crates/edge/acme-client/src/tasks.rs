//! Carries out the tasks of the scheduler.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use edgeward_acme::{Name, SuggestedWindow, Task};
use instant_acme::CertificateIdentifier;

use crate::account::OrderError;
use crate::certificates::{KeyTable, StoredCertificate, TableKey};
use crate::clocks;
use crate::http::Client;
use crate::load::REQUESTS;
use crate::order::NameOrder;
use crate::settings::{AcmeSettings, IssuerSettings, NameGroup};
use crate::state::State;

impl State {
    /// Takes the renewals that operators have demanded. Returns true if there are any.
    pub(crate) fn take_requests(&self) -> bool {
        let requests = self.store.list(REQUESTS).unwrap_or_default();
        for request in &requests {
            let mut scheduler = self.scheduler.borrow_mut();
            let planned = scheduler
                .plan()
                .names
                .iter()
                .map(|planned| planned.name.clone());
            let requested: Vec<_> = planned
                .filter(|name| name.file_stem() == *request)
                .collect();
            for name in requested {
                tracing::info!(%name, "a renewal was demanded");
                scheduler.request_renewal(&name);
            }
            drop(scheduler);
            _ = self.store.remove(&format!("{REQUESTS}/{request}"));
        }
        !requests.is_empty()
    }

    /// Carries out a task, and records its result. `saved` is the result of persisting it.
    pub(crate) async fn carry_out(&self, task: Task, saved: io::Result<()>) {
        let mut stored = None;
        match task {
            Task::Order {
                name,
                issuer,
                resumed,
                replaces,
            } => {
                self.certificates
                    .counts
                    .orders
                    .fetch_add(1, Ordering::Relaxed);
                let result = match saved {
                    Ok(()) => {
                        self.step("task recorded");
                        self.order(&name, &issuer, resumed.as_deref(), replaces.as_deref())
                            .await
                    }
                    Err(error) => Err(OrderError::local("the ledger cannot be persisted", &error)),
                };
                if result.is_ok() {
                    stored = Some(name.clone());
                }
                self.record(&name, &issuer, result);
            }
            Task::QueryWindow {
                name,
                issuer,
                window_id,
            } => {
                let queried = self.query_window(&name, &issuer, &window_id).await;
                if let Err(error) = &queried {
                    tracing::info!(%name, %error, "the renewal window of a certificate is unknown");
                }
                let (window, retry_after) = queried.ok().unzip();
                let mut scheduler = self.scheduler.borrow_mut();
                scheduler.on_window(&name, window, retry_after, clocks::read());
            }
        }
        match (self.save(), stored) {
            // A process that is killed before this continues the order, and needs its key.
            (Ok(()), Some(name)) => self.remove_pending_key(&name),
            (Ok(()), None) => {}
            (Err(error), _) => {
                tracing::error!(%error, "the ledger of the certificates cannot be persisted");
            }
        }
    }

    async fn order(
        &self,
        name: &Name,
        issuer: &str,
        resumed: Option<&str>,
        replaces: Option<&str>,
    ) -> Result<StoredCertificate, OrderError> {
        let settings = Arc::clone(&self.settings.borrow());
        let (group, issuer) = find(&settings, name, issuer)?;
        let order = NameOrder {
            state: self,
            group,
            issuer,
            name,
        };
        order.run(resumed, replaces).await
    }

    fn record(&self, name: &Name, issuer: &str, result: Result<StoredCertificate, OrderError>) {
        let counts = &self.certificates.counts;
        let mut scheduler = self.scheduler.borrow_mut();
        match result {
            Ok(stored) => {
                let not_after_at = stored.validity.not_after_at;
                tracing::info!(%name, issuer, not_after_at, "a certificate was issued");
                let mut table = KeyTable::clone(&self.certificates.keys());
                let key = TableKey {
                    key: stored.key,
                    is_issued: true,
                };
                table.insert(name, key);
                self.certificates.set_keys(table);
                counts.stored.fetch_add(1, Ordering::Release);
                scheduler.on_stored(name, stored.validity, stored.window_id, clocks::read());
            }
            Err(OrderError { failure, message }) => {
                counts.failures[failure.index()].fetch_add(1, Ordering::Relaxed);
                let cause = failure.label();
                tracing::warn!(%name, issuer, cause, error = message, "no certificate was issued");
                scheduler.on_failed(name, failure, &message, clocks::read());
            }
        }
    }

    async fn query_window(
        &self,
        name: &Name,
        issuer: &str,
        window_id: &str,
    ) -> Result<(SuggestedWindow, std::time::Duration), OrderError> {
        let settings = Arc::clone(&self.settings.borrow());
        let (group, issuer) = find(&settings, name, issuer)?;
        let client = Client::new(group.roots.as_deref());
        let client =
            client.map_err(|error| OrderError::local("the roots of the issuer", &error))?;
        let account = self.account(issuer, group, &client).await?;
        let (authority, serial) = window_id.split_once('.').unwrap_or_default();
        let id = CertificateIdentifier {
            authority_key_identifier: authority.into(),
            serial: serial.into(),
        };
        let queried = account.renewal_info(&id).await;
        let (info, retry_after) =
            queried.map_err(|error| OrderError::of_request(&error, &client))?;
        let seconds = |time: i64| u64::try_from(time).unwrap_or(0);
        let window = SuggestedWindow {
            start_at: seconds(info.suggested_window.start.unix_timestamp()),
            end_at: seconds(info.suggested_window.end.unix_timestamp()),
        };
        if let Some(url) = info.explanation_url {
            tracing::info!(%name, url, "the issuer explains the renewal window");
        }
        Ok((window, retry_after))
    }
}

/// Returns the settings of a name and of its issuer.
fn find<'s>(
    settings: &'s AcmeSettings,
    name: &Name,
    issuer: &str,
) -> Result<(&'s NameGroup, &'s IssuerSettings), OrderError> {
    let group = settings
        .groups
        .iter()
        .find(|group| group.names.contains(name));
    let found = group.and_then(|group| {
        let mut issuers = group.issuers.iter();
        let issuer = issuers.find(|known| *known.directory == *issuer)?;
        Some((group, issuer))
    });
    found.ok_or_else(|| OrderError {
        failure: edgeward_acme::Failure::Local,
        message: "the name or its issuer is not configured any more".to_owned(),
    })
}
