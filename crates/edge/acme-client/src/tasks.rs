//! Carries out the tasks of the scheduler.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use edgeward_acme::{Answer, DemandOutcome, Failure, Name, SuggestedWindow, Task};
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
        match self.try_take_requests() {
            Ok(is_any) => {
                self.requests_failed.set(false);
                is_any
            }
            Err(error) => {
                if !self.requests_failed.replace(true) {
                    tracing::error!(%error, "demanded renewals cannot be taken");
                }
                false
            }
        }
    }

    fn try_take_requests(&self) -> io::Result<bool> {
        let requests = self.store.list(REQUESTS)?;
        if requests.is_empty() {
            return Ok(false);
        }
        if self.requests_failed.get() {
            // While nothing can be persisted, a demand does not end the back-off again and again.
            self.save()?;
        }
        for request in &requests {
            let mut scheduler = self.scheduler.borrow_mut();
            let known = scheduler.names().cloned();
            let requested: Vec<_> = known.filter(|name| name.file_stem() == *request).collect();
            for name in requested {
                tracing::info!(%name, "a renewal was demanded");
                scheduler.request_renewal(&name);
            }
        }
        // A process that is killed after this has the demands in its ledger.
        self.save()?;
        for request in &requests {
            self.store.remove(&format!("{REQUESTS}/{request}"))?;
        }
        Ok(true)
    }

    /// Carries out a task, and records its result. `saved` is the result of persisting it before.
    pub(crate) async fn carry_out(&self, task: Task, saved: io::Result<()>) {
        let mut ordered = None;
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
                    Ok(()) if !self.is_renewal_allowed(&name).await => None,
                    Ok(()) => {
                        self.step("task recorded");
                        let (resumed, replaces) = (resumed.as_deref(), replaces.as_deref());
                        Some(self.order(&name, &issuer, resumed, replaces).await)
                    }
                    Err(error) => Some(Err(OrderError::local(
                        "the ledger cannot be persisted",
                        &error,
                    ))),
                };
                match result {
                    Some(result) => self.record(&name, &issuer, result),
                    None => {
                        let mut scheduler = self.scheduler.borrow_mut();
                        scheduler.on_renewal_refused(&name, clocks::read());
                        self.waiting.end(&name, DemandOutcome::Refused);
                    }
                }
                self.remove_dropped();
                ordered = Some(name);
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
                drop(scheduler);
                // A thousand names are queried after a start, and a ledger of them has 800 kB.
                let saved_at = self.window_saved_at.get();
                if saved_at.is_some_and(|at| at.elapsed() < WINDOW_SAVE_INTERVAL) {
                    return;
                }
                self.window_saved_at.set(Some(Instant::now()));
            }
        }
        let is_saved = self.save_result();
        if let Some(name) = ordered.filter(|_| is_saved) {
            self.remove_ended_key(&name);
        }
    }

    /// Removes the key of an order that has ended, as the persisted ledger says. A process that is killed before this
    /// continues the order, and needs its key.
    fn remove_ended_key(&self, name: &Name) {
        if !self.scheduler.borrow().has_order(name) {
            self.remove_pending_key(name);
        }
    }

    /// Records the failure of a task that has panicked, so that its name is tried again after a back-off.
    pub(crate) fn record_panic(&self, task: TaskId) {
        let message = "the order has panicked".to_owned();
        let mut ordered = None;
        match task {
            TaskId::Order { name, issuer } => {
                let failure = Failure::Local;
                self.record(&name, &issuer, Err(OrderError { failure, message }));
                self.remove_dropped();
                ordered = Some(name);
            }
            TaskId::Query { name } => self.record_answer(&name, Answer::Missing),
            TaskId::Window { name } => {
                let mut scheduler = self.scheduler.borrow_mut();
                scheduler.on_window(&name, None, None, clocks::read());
            }
        }
        let is_saved = self.save_result();
        if let Some(name) = ordered.filter(|_| is_saved) {
            self.remove_ended_key(&name);
        }
    }

    /// Persists the result of a task. Returns false after an error, which is logged.
    fn save_result(&self) -> bool {
        let saved = self.save();
        if let Err(error) = &saved {
            tracing::error!(%error, "the ledger of the certificates cannot be persisted");
        }
        saved.is_ok()
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
                self.waiting.end(name, DemandOutcome::Issued);
            }
            Err(OrderError { failure, message }) => {
                counts.failures[failure.index()].fetch_add(1, Ordering::Relaxed);
                let cause = failure.label();
                tracing::warn!(%name, issuer, cause, error = message, "no certificate was issued");
                scheduler.on_failed(name, failure, &message, clocks::read());
                self.waiting.end(name, DemandOutcome::Failed);
            }
        }
    }

    async fn query_window(
        &self,
        name: &Name,
        issuer: &str,
        window_id: &str,
    ) -> Result<(SuggestedWindow, Duration), OrderError> {
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

/// A task under way.
pub(crate) enum TaskId {
    Order { name: Name, issuer: Box<str> },
    Window { name: Name },
    Query { name: Name },
}

impl From<&Task> for TaskId {
    fn from(task: &Task) -> Self {
        match task {
            Task::Order { name, issuer, .. } => Self::Order {
                name: name.clone(),
                issuer: issuer.clone(),
            },
            Task::QueryWindow { name, .. } => Self::Window { name: name.clone() },
        }
    }
}

/// The least time between two times that the ledger is persisted because of windows. A process that is killed queries
/// again what it has not persisted.
const WINDOW_SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// Returns the settings of a name and of its issuer.
fn find<'s>(
    settings: &'s AcmeSettings,
    name: &Name,
    issuer: &str,
) -> Result<(&'s NameGroup, &'s IssuerSettings), OrderError> {
    let found = settings.group_of(name).and_then(|group| {
        let mut issuers = group.issuers.iter();
        let issuer = issuers.find(|known| *known.directory == *issuer)?;
        Some((group, issuer))
    });
    found.ok_or_else(|| OrderError {
        failure: Failure::Local,
        message: "the name or its issuer is not configured any more".to_owned(),
    })
}
