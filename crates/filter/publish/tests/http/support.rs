//! Helpers: a publisher on a loopback port, a source in memory, and a client that sends given requests.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use edgeward_filter::Signer;
use edgeward_filter_client::system_clock;
use edgeward_publish::{IdSource, PublishConfig, Publisher, RunningPublisher, ScanError, Token};

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

#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) fields: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl HttpResponse {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends one request on a new connection.
pub(crate) fn send_request(
    addr: SocketAddr,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &[u8],
) -> HttpResponse {
    let mut stream = TcpStream::connect(addr).expect("the publisher listens");
    stream
        .set_read_timeout(Some(WAIT_MAX))
        .expect("the socket is configured");
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: publisher\r\nconnection: close\r\n");
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if method == "POST" {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    stream
        .write_all(head.as_bytes())
        .expect("the bytes are sent");
    // This may fail: a server that refuses a body by its length may close the connection without reading the body.
    _ = stream.write_all(body);
    let mut response = Vec::new();
    _ = stream.read_to_end(&mut response);
    parse(&response)
}

pub(crate) fn get(addr: SocketAddr, path: &str, fields: &[(&str, &str)]) -> HttpResponse {
    send_request(addr, "GET", path, fields, b"")
}

/// Posts ids, one per line, with the token.
pub(crate) fn post(addr: SocketAddr, path: &str, ids: &str) -> HttpResponse {
    let token = format!("Bearer {TOKEN}");
    send_request(
        addr,
        "POST",
        path,
        &[("authorization", &token)],
        ids.as_bytes(),
    )
}

fn parse(response: &[u8]) -> HttpResponse {
    let end = response
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap_or_else(|| panic!("no head in {:?}", String::from_utf8_lossy(response)));
    let head = String::from_utf8_lossy(&response[..end]);
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let fields = lines.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    });
    HttpResponse {
        status: status
            .and_then(|status| status.parse().ok())
            .expect("the response has a status"),
        fields: fields.collect(),
        body: response[end + 4..].to_vec(),
    }
}

/// Calls `attempt` until it returns a result. Fails the test after a time limit.
pub(crate) fn wait_until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(Instant::now() < deadline, "waited too long: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);
