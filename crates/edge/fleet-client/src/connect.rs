//! The options of a connection to NATS.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_nats::{ConnectOptions, ReconnectToServer, Server};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::settings::{NatsCredentials, NatsSettings};

/// Returns the options of a connection, which is established in the background and again after a loss.
pub(crate) fn options(settings: &NatsSettings) -> ConnectOptions {
    // All parts of the program use this provider; an earlier call has installed it.
    _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let accepted = Arc::<AtomicU32>::default();
    let mut options = ConnectOptions::new()
        .name(&settings.node)
        .retry_on_initial_connect()
        .connection_timeout(CONNECT_TIMEOUT)
        .ping_interval(PING_INTERVAL)
        .request_timeout(Some(REQUEST_TIMEOUT))
        .subscription_capacity(SUBSCRIPTION_CAPACITY)
        .reconnect_to_server_callback(move |servers, _| {
            next_server(servers, Arc::clone(&accepted))
        });
    options = match &settings.credentials {
        NatsCredentials::None => options,
        NatsCredentials::Token(token) => options.token(token.clone()),
        NatsCredentials::User { user, password } => {
            options.user_and_password(user.clone(), password.clone())
        }
    };
    if let Some(tls) = &settings.tls {
        options = options.require_tls(true);
        if let Some(authorities) = &tls.authorities {
            options = options.add_root_certificates(authorities.clone());
        }
        if let Some((certificate, key)) = &tls.identity {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
    }
    options
}

/// Returns the server for the next attempt to connect.
///
/// A server that has not failed since its last connection is next at once. If all have failed, they are probed until
/// one accepts a connection of TCP, so that a node returns within a fraction of a second after a cut. An attempt of the
/// client itself lasts for up to [`CONNECT_TIMEOUT`], in which TCP sends two packets.
///
/// `accepted` counts the probes that succeeded since the last connection. The pause before an attempt grows with these
/// alone: such a server refuses the node, for example because of its password.
async fn next_server(
    mut servers: Vec<Server>,
    accepted: Arc<AtomicU32>,
) -> Option<ReconnectToServer> {
    let random = RandomState::new().hash_one(()) as usize;
    let middle = random.checked_rem(servers.len())?;
    servers.rotate_left(middle);
    servers.sort_by_key(|server| server.failed_attempts);
    let next = servers.first()?;
    if next.failed_attempts == 0 {
        accepted.store(0, Ordering::Relaxed);
        return Some(reconnect(next, RECONNECT_AFTER));
    }
    for _ in 0..PROBES_MAX {
        if let Some(reachable) = probe(&servers).await {
            let accepted = accepted.fetch_add(1, Ordering::Relaxed);
            let pause = RECONNECT_AFTER * 2_u32.pow(accepted.min(5));
            return Some(reconnect(reachable, pause.min(RECONNECT_AFTER_MAX)));
        }
        sleep(PROBE_PAUSE).await;
    }
    // The attempt fails and states the reason.
    Some(reconnect(next, Duration::ZERO))
}

fn reconnect(server: &Server, pause: Duration) -> ReconnectToServer {
    ReconnectToServer {
        addr: server.addr.clone(),
        delay: Some(pause),
    }
}

/// Connects to all servers at once. Returns the first that accepts.
async fn probe(servers: &[Server]) -> Option<&Server> {
    let mut probes = JoinSet::new();
    for (at, server) in servers.iter().enumerate() {
        let (host, port) = (server.addr.host().to_owned(), server.addr.port());
        probes.spawn(async move {
            let connected = timeout(PROBE_TIMEOUT, TcpStream::connect((host, port))).await;
            matches!(connected, Ok(Ok(_))).then_some(at)
        });
    }
    while let Some(probed) = probes.join_next().await {
        if let Ok(Some(at)) = probed {
            return servers.get(at);
        }
    }
    None
}

/// The longest time to connect to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A server that does not answer two pings is lost. Queries every second find a lost server earlier.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// The longest wait for an answer of JetStream.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause before the first attempt to connect. It doubles with each attempt that a server has refused.
const RECONNECT_AFTER: Duration = Duration::from_millis(100);

/// The longest pause between two attempts.
const RECONNECT_AFTER_MAX: Duration = Duration::from_secs(1);

/// The longest wait for a server to accept a probe: a round trip between continents.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);

/// The pause between two probes of all servers.
const PROBE_PAUSE: Duration = Duration::from_millis(200);

/// The probes between two attempts whose errors are reported: about ten seconds.
const PROBES_MAX: u32 = 20;

/// The most messages that wait in the client. The server sends at most 32 MiB ahead, by flow control.
const SUBSCRIPTION_CAPACITY: usize = 4096;
