//! Certificates for names that clients ask for: the handshake waits, and the thread of the certificates decides.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use edgeward_acme::{Answer, Demand, DemandOutcome, Name};
use http::{StatusCode, Uri};
use tokio::sync::{mpsc, oneshot};

use crate::certificates::Certificates;
use crate::clocks;
use crate::http::status_of;
use crate::load::certificate_path;
use crate::settings::AcmeSettings;
use crate::state::State;

/// A name for which a client waits.
pub(crate) struct DemandRequest {
    name: Name,
    outcome: oneshot::Sender<DemandOutcome>,
}

/// The way of handshakes to the thread of the certificates.
#[derive(Clone, Debug)]
pub(crate) struct DemandGate {
    requests: mpsc::Sender<DemandRequest>,
    timeout: Duration,
}

impl DemandGate {
    /// Returns a gate, and the requests that pass it.
    pub(crate) fn new(timeout: Duration) -> (Self, mpsc::Receiver<DemandRequest>) {
        let (requests, received) = mpsc::channel(WAITING_MAX);
        (Self { requests, timeout }, received)
    }

    /// Returns the gate with another timeout.
    pub(crate) fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }
}

impl Certificates {
    /// Returns true if names get certificates when clients ask for them.
    pub fn is_on_demand(&self) -> bool {
        self.gate().is_some()
    }

    /// Demands a certificate for a name in SNI. Returns a future that ends when the certificate is there, or when the
    /// client gets none. `None`: nothing is to be waited for, because the name has a certificate or cannot get one.
    pub fn demand(
        self: &Arc<Self>,
        server_name: &str,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let gate = self.gate()?;
        if self.keys().has_any(server_name) {
            return None;
        }
        let sent = match server_name.parse::<Name>() {
            Err(_) => Err(DemandOutcome::Invalid),
            Ok(_) if !self.counts.has_lease() => Err(DemandOutcome::NoLease),
            Ok(name) => {
                let (outcome, receiver) = oneshot::channel();
                let request = DemandRequest { name, outcome };
                let sent = gate.requests.try_send(request);
                sent.map(|()| receiver)
                    .map_err(|_| DemandOutcome::PendingLimit)
            }
        };
        match sent {
            Err(outcome) => {
                self.counts.count_demand(outcome);
                None
            }
            Ok(receiver) => {
                let certificates = Arc::clone(self);
                Some(async move {
                    let outcome = match tokio::time::timeout(gate.timeout, receiver).await {
                        Ok(Ok(outcome)) => outcome,
                        Ok(Err(_)) => DemandOutcome::NoLease,
                        Err(_) => DemandOutcome::Timeout,
                    };
                    certificates.counts.count_demand(outcome);
                })
            }
        }
    }
}

/// The clients that wait for certificates.
#[derive(Default)]
pub(crate) struct Waiting(RefCell<HashMap<Name, Vec<oneshot::Sender<DemandOutcome>>>>);

impl Waiting {
    /// Adds a client, unless too many wait.
    fn add(&self, request: DemandRequest) {
        let mut waiting = self.0.borrow_mut();
        waiting.retain(|_, clients| {
            clients.retain(|client| !client.is_closed());
            !clients.is_empty()
        });
        if waiting.values().map(Vec::len).sum::<usize>() >= WAITING_MAX {
            _ = request.outcome.send(DemandOutcome::PendingLimit);
            return;
        }
        let clients = waiting.entry(request.name).or_default();
        clients.push(request.outcome);
    }

    /// Ends the wait of all clients for a name.
    pub(crate) fn end(&self, name: &Name, outcome: DemandOutcome) {
        let clients = self.0.borrow_mut().remove(name);
        for client in clients.into_iter().flatten() {
            // A client that has left needs no outcome.
            _ = client.send(outcome);
        }
    }
}

impl State {
    /// Takes the demand of a client. Returns the name if the program of the operator has to be queried about it.
    pub(crate) fn demand(&self, request: DemandRequest) -> Option<Name> {
        // Another client may have got the certificate since this one asked for it.
        if self.certificates.keys().of_planned(&request.name).is_some() {
            _ = request.outcome.send(DemandOutcome::Issued);
            return None;
        }
        let demand = self
            .scheduler
            .borrow_mut()
            .demand(&request.name, clocks::read());
        match demand {
            Demand::Refuse(outcome) => {
                _ = request.outcome.send(outcome);
                None
            }
            Demand::Wait => {
                self.waiting.add(request);
                None
            }
            Demand::Query => {
                let name = request.name.clone();
                self.waiting.add(request);
                Some(name)
            }
        }
    }

    /// Queries the program about a name, and records its answer.
    pub(crate) async fn query_name(&self, name: Name) {
        let answer = self.query(&name).await;
        self.record_answer(&name, answer);
    }

    pub(crate) fn record_answer(&self, name: &Name, answer: Answer) {
        let mut scheduler = self.scheduler.borrow_mut();
        if let Err(outcome) = scheduler.on_answer(name, answer, clocks::read()) {
            self.waiting.end(name, outcome);
        }
    }

    /// Returns false if the program refuses the renewal of a name on demand. One that does not answer has allowed the
    /// name before.
    pub(crate) async fn is_renewal_allowed(&self, name: &Name) -> bool {
        let needs_answer = self.scheduler.borrow().needs_answer(name);
        if !needs_answer {
            return true;
        }
        let is_allowed = self.query(name).await != Answer::Refused;
        if is_allowed {
            self.scheduler.borrow_mut().on_renewal_allowed(name);
        }
        is_allowed
    }

    async fn query(&self, name: &Name) -> Answer {
        let settings = Arc::clone(&self.settings.borrow());
        match query(&settings, name).await {
            Ok(StatusCode::OK) => Answer::Allowed,
            Ok(status) if !status.is_server_error() => {
                tracing::info!(%name, %status, "`on_demand` refuses a name");
                Answer::Refused
            }
            Ok(status) => {
                tracing::warn!(%name, %status, "`on_demand` fails");
                Answer::Missing
            }
            Err(error) => {
                tracing::warn!(%name, %error, "`on_demand` does not answer");
                Answer::Missing
            }
        }
    }

    /// Removes the certificates of names that are no longer on demand.
    pub(crate) fn remove_dropped(&self) {
        let dropped = self.scheduler.borrow_mut().take_dropped();
        for name in &dropped {
            tracing::info!(%name, "a name on demand was dropped");
            if let Err(error) = self.store.remove(&certificate_path(name)) {
                tracing::error!(%name, %error, "a certificate cannot be removed");
            }
            self.remove_pending_key(name);
        }
        if !dropped.is_empty() {
            self.certificates.remove_keys(&dropped);
        }
    }
}

/// Requests the URL with the name, and returns the status.
async fn query(settings: &AcmeSettings, name: &Name) -> io::Result<StatusCode> {
    let (Some(on_demand), Some(group)) = (&settings.on_demand, settings.group_of(name)) else {
        return Err(io::Error::other("it is not configured any more"));
    };
    let url = with_domain(&on_demand.url, name).map_err(io::Error::other)?;
    let queried = status_of(url, group.roots.as_deref());
    tokio::time::timeout(QUERY_TIMEOUT, queried).await?
}

/// Adds the parameter `domain`. A name has no character that a query has to escape.
fn with_domain(url: &Uri, name: &Name) -> Result<Uri, http::Error> {
    let mut parts = url.clone().into_parts();
    let path = url.path();
    let target = match url.query() {
        Some(query) => format!("{path}?{query}&domain={name}"),
        None => format!("{path}?domain={name}"),
    };
    parts.path_and_query = Some(target.parse()?);
    Ok(Uri::from_parts(parts)?)
}

/// The most clients that wait. Each one has an open connection, so this is small beside it.
const WAITING_MAX: usize = 256;

/// The longest wait for an answer. A program that knows its customers answers within milliseconds.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_a_parameter_of_the_url() {
        let name = "a.example".parse().expect("valid");
        let with =
            |url: &str| with_domain(&url.parse().expect("a URL"), &name).map(|url| url.to_string());
        for (url, expected) in [
            (
                "http://127.0.0.1:5555",
                "http://127.0.0.1:5555/?domain=a.example",
            ),
            ("https://h/ask?k=1", "https://h/ask?k=1&domain=a.example"),
        ] {
            assert_eq!(with(url).expect("a URL"), expected);
        }
    }

    /// The clients that wait are bounded, and those that have left make room.
    #[test]
    fn the_clients_that_wait_are_bounded() {
        let waiting = Waiting::default();
        let name: Name = "a.example".parse().expect("valid");
        let add = || {
            let (outcome, receiver) = oneshot::channel();
            let name = name.clone();
            waiting.add(DemandRequest { name, outcome });
            receiver
        };
        let mut clients: Vec<_> = (0..WAITING_MAX).map(|_| add()).collect();
        assert_eq!(add().try_recv(), Ok(DemandOutcome::PendingLimit));
        clients.pop();
        clients.push(add());
        waiting.end(&name, DemandOutcome::Issued);
        for client in &mut clients {
            assert_eq!(client.try_recv(), Ok(DemandOutcome::Issued));
        }
    }
}
