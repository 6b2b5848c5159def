//! Watches the servers of one origin: resolves host names again, runs the active health checks, and connects again to
//! servers that are down. One worker does this for all, because the workers share the state of the servers.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use super::error::OriginError;
use super::h1;
use super::s3::Signing;
use super::servers::{Server, Servers};
use crate::config::{ChecksConfig, LimitsConfig, OriginConfig, OriginProtocol};
use crate::exchange::field_bytes::push_field;
use crate::observe::log::ErrorChain;
use crate::rt::clock::Clock;
use crate::rt::tasks::{LocalExecutor, TaskSet};

/// Watches the servers until the future is dropped.
pub(crate) async fn watch_servers(
    servers: Arc<Servers>,
    config: Rc<OriginConfig>,
    limits: Rc<LimitsConfig>,
    clock: Arc<Clock>,
) {
    let resolving = async {
        if !servers.has_names() {
            std::future::pending::<()>().await;
        }
        loop {
            let next = servers.resolve().await.unwrap_or_else(|error| {
                let (origin, error) = (&config.name, ErrorChain(&error));
                tracing::warn!(origin, %error, "the name of the origin cannot be resolved");
                config.resolve_interval
            });
            tokio::time::sleep(next).await;
        }
    };
    let checking = async {
        let Some(path) = &config.checks.path else {
            return std::future::pending::<()>().await;
        };
        let mut interval = tokio::time::interval(config.checks.interval);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            check_all(&servers, &config, &limits, &clock, path).await;
        }
    };
    let reconnecting = async {
        if config.checks.path.is_some() {
            return std::future::pending::<()>().await; // the checks show if a server is up again
        }
        let mut interval = tokio::time::interval(RECONNECT_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            reconnect(&servers, config.connect_timeout).await;
        }
    };
    tokio::join!(resolving, checking, reconnecting);
}

/// Connects to all servers to which the last connection failed, and closes the connections. Without this, the metric
/// of a quiet site would show the failure until its next request.
async fn reconnect(servers: &Servers, timeout: Duration) {
    let mut tries = JoinSet::new();
    for server in servers.list() {
        if !server.connector.health().is_down() {
            continue;
        }
        tries.spawn_local(async move {
            let tried = tokio::time::timeout(timeout, server.connector.connect(None)).await;
            let (health, now) = (server.connector.health(), Instant::now());
            match tried {
                Ok(Ok(_)) => health.record_connection(now),
                Ok(Err(error)) => health.record_failure(&error, now),
                Err(_) => health.record_failure(&OriginError::ConnectTimeout, now),
            }
        });
    }
    tries.join_all().await;
}

/// Checks all servers at the same time, so that slow ones do not delay the others.
async fn check_all(
    servers: &Arc<Servers>,
    config: &Rc<OriginConfig>,
    limits: &Rc<LimitsConfig>,
    clock: &Arc<Clock>,
    path: &str,
) {
    let mut checks = JoinSet::new();
    for server in servers.list() {
        let (servers, path) = (Arc::clone(servers), path.to_owned());
        let (config, limits, clock) = (Rc::clone(config), Rc::clone(limits), Arc::clone(clock));
        checks.spawn_local(async move {
            let timeout = config.checks.timeout;
            let signer = servers.signer();
            let signing = signer.map(|signer| Signing::new(signer, &clock));
            let checked = check(&server, &config, &limits, &path, signing);
            let checked = tokio::time::timeout(timeout, checked).await;
            let checked = checked.unwrap_or_else(|_| Err(format!("no response in {timeout:?}")));
            servers.record_check(&server, checked.err().as_deref());
        });
    }
    checks.join_all().await;
}

/// Sends one request on a connection of its own. Returns the reason why the server does not count as healthy.
async fn check(
    server: &Server,
    config: &OriginConfig,
    limits: &LimitsConfig,
    path: &str,
    signing: Option<Signing<'_>>,
) -> Result<(), String> {
    let stream = server
        .connector
        .connect(None)
        .await
        .map_err(|error| ErrorChain(&error).to_string())?;
    let host = config.own_host();
    let (path, signature) = match signing {
        Some(signing) => signing.sign_check(&host, path)?,
        None => (path.to_owned(), HeaderMap::new()),
    };
    let status = match config.protocol {
        OriginProtocol::Http1 => {
            let head = format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {USER_AGENT}\r\nConnection: close\r\n"
            );
            let mut head = head.into_bytes();
            for (name, value) in &signature {
                push_field(&mut head, name, value.as_bytes());
            }
            head.extend_from_slice(b"\r\n");
            let limits = h1::HeadLimits::of(limits, config);
            let connection = h1::Connection::new(stream);
            let exchange =
                connection.exchange(&head, &Method::GET, limits, config.checks.timeout, None);
            let (parts, _) = exchange
                .await
                .map_err(|failed| ErrorChain(&failed.error).to_string())?;
            parts.status
        }
        OriginProtocol::Http2 => {
            let error_text = |error: hyper::Error| ErrorChain(&error).to_string();
            let tasks = TaskSet::default();
            let (mut sender, connection) = http2::Builder::new(LocalExecutor(tasks))
                .handshake(TokioIo::new(stream))
                .await
                .map_err(error_text)?;
            let scheme = if config.url().tls { "https" } else { "http" };
            let mut request = http::Request::get(format!("{scheme}://{host}{path}"))
                .version(Version::HTTP_2)
                .header("user-agent", HeaderValue::from_static(USER_AGENT))
                .body(Empty::<bytes::Bytes>::new())
                .map_err(|error| error.to_string())?;
            request.headers_mut().extend(signature);
            tokio::select! {
                response = sender.send_request(request) => response.map_err(error_text)?.status(),
                ended = connection => {
                    return Err(ended.err().map_or_else(|| "the connection was closed".to_owned(), error_text));
                }
            }
        }
    };
    match is_expected(&config.checks, status) {
        true => Ok(()),
        false => Err(format!("status {status}")),
    }
}

fn is_expected(checks: &ChecksConfig, status: StatusCode) -> bool {
    match checks.status {
        Some(expected) => status.as_u16() == expected,
        None => status.is_success() || status.is_redirection(),
    }
}

/// The time between two connections to a server that is down. A connection takes an operator's server microseconds, and
/// an alert that waits for a minute sees several results.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(2);

const USER_AGENT: &str = "edgeward-health-check";
