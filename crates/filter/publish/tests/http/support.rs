//! Helpers: a publisher on a loopback port, a source in memory, and a client that sends given requests.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edgeward_filter::Signer;
use edgeward_filter_client::system_clock;
use edgeward_publish::{IdSource, PublishConfig, Publisher, RunningPublisher, ScanError, Token};
use edgeward_testkit::client::Client;
pub(crate) use edgeward_testkit::client::{Answer, until as wait_until};

/// A table of ids that tests write to.
#[derive(Clone, Default)]
pub(crate) struct Table(pub(crate) Arc<Mutex<Vec<String>>>);

impl Table {
    pub(crate) fn with(ids: impl IntoIterator<Item = u64>) -> Self {
        let ids = ids.into_iter().map(|id| id.to_string()).collect();
        Self(Arc::new(Mutex::new(ids)))
    }
}

impl IdSource for Table {
    fn scan(
        &mut self,
        each: &mut dyn FnMut(&[u8]) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        let ids = self
            .0
            .lock()
            .expect("no thread panics while it has the lock")
            .clone();
        ids.iter().try_for_each(|id| each(id.as_bytes()))
    }
}

pub(crate) const TOKEN: &str = "a-token-for-tests";

pub(crate) fn signer() -> Signer {
    Signer::from_secret([9; 32])
}

pub(crate) fn config(state: &Path) -> PublishConfig {
    let mut config = PublishConfig::new(
        "resource",
        ([127, 0, 0, 1], 0).into(),
        state,
        system_clock(),
    );
    config.signer = Some(signer());
    config.token = Token::new(TOKEN).ok();
    config
}

pub(crate) fn start(config: PublishConfig, table: &Table) -> RunningPublisher {
    let publisher =
        Publisher::start(config, Box::new(table.clone())).expect("the publisher starts");
    // The epoch of each snapshot is above 0, so this waits for the first snapshot.
    assert!(
        publisher.wait_published(0, WAIT_MAX),
        "no snapshot was made"
    );
    publisher
}

/// Sends one request on a new connection.
pub(crate) fn send_request(
    addr: SocketAddr,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut client = Client::connect(addr);
    let length = body.len().to_string();
    let length = (method == "POST").then_some(("content-length", &*length));
    let fields = [("connection", "close")]
        .iter()
        .chain(fields)
        .copied()
        .chain(length);
    client.send_head(method, path, &fields.collect::<Vec<_>>());
    // This may fail: a server that refuses a body by its length may close the connection without reading the body.
    client.try_send(body);
    client.answer(method)
}

pub(crate) fn get(addr: SocketAddr, path: &str, fields: &[(&str, &str)]) -> Answer {
    send_request(addr, "GET", path, fields, b"")
}

/// Posts ids, one per line, with the token.
pub(crate) fn post(addr: SocketAddr, path: &str, ids: &str) -> Answer {
    let token = format!("Bearer {TOKEN}");
    send_request(
        addr,
        "POST",
        path,
        &[("authorization", &token)],
        ids.as_bytes(),
    )
}

pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);
