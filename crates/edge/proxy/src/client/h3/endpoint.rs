//! The endpoint of QUIC of one worker and listener: it accepts connections within the limits.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use edgeward_h3::ErrorCode;
use edgeward_httpd::is_bbr_default;
use quinn::congestion::BbrConfig;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, IdleTimeout, Incoming, ServerConfig, TokioRuntime, TransportConfig};
use tokio::sync::{Notify, watch};

use super::attempt::{Answer, Attempt};
use super::connection::{self, Handshake};
use super::receive_window::{WINDOW_BYTES_MAX, WINDOW_BYTES_MIN};
use super::responder::SEND_WINDOW_BYTES;
use super::routes::{Inbox, Routes};
use super::socket::{EndpointParts, EndpointSocket};
use super::state::{varint, window};
use crate::client::listener::{is_full, make_room};
use crate::config::LimitsConfig;
use crate::path::worker::{CurrentWorker, Worker};

/// Opens an endpoint.
pub(crate) fn open(
    worker: &Worker,
    parts: &EndpointParts,
    crypto: &Arc<QuicServerConfig>,
) -> io::Result<Endpoint> {
    let routes = &parts.inbox.routes;
    Endpoint::new_with_abstract_socket(
        routes.endpoint_config(&parts.inbox),
        Some(server_config(crypto, routes, &worker.config().limits)),
        EndpointSocket::open(parts, &worker.counters)?,
        Arc::new(TokioRuntime),
    )
}

/// Closes all connections of an endpoint. Waits shortly until the clients know it.
pub(crate) async fn close(endpoint: &Endpoint) {
    endpoint.close(varint(ErrorCode::H3_NO_ERROR), b"");
    _ = tokio::time::timeout(CLOSE_TIME_MAX, endpoint.wait_idle()).await;
}

/// Accepts connections until `closing` is notified or this future is dropped. The connections of the endpoint then
/// drain: they answer the requests under way, and no others.
pub(crate) async fn accept(
    workers: Rc<CurrentWorker>,
    endpoint: Endpoint,
    crypto: Arc<QuicServerConfig>,
    inbox: Arc<Inbox>,
    closing: Rc<Notify>,
) {
    let open = OpenEndpoint(endpoint);
    let (_accepts, ending) = watch::channel(());
    let mut settings = Settings::new(&workers.get(), &crypto, &inbox.routes);
    loop {
        let incoming = tokio::select! {
            incoming = open.0.accept() => incoming,
            () = closing.notified() => None,
        };
        let Some(incoming) = incoming else { return };
        let worker = workers.get();
        if settings.generation != worker.shared.generation {
            settings = Settings::new(&worker, &crypto, &inbox.routes);
        }
        answer(&workers, &worker, incoming, &settings, &inbox, &ending).await;
        // The task of a new connection registers it, so that the limit of connections applies to a burst. Connections
        // of other clients make progress during a flood of first datagrams, which would else fill the budget of a poll.
        tokio::task::yield_now().await;
    }
}

/// An endpoint that accepts connections until this value is dropped. It then refuses them, and stays open until its
/// connections have ended.
struct OpenEndpoint(Endpoint);

impl Drop for OpenEndpoint {
    fn drop(&mut self) {
        self.0.set_server_config(None);
    }
}

/// The settings of new connections, which a reload may change.
struct Settings {
    generation: u64,
    config: Arc<ServerConfig>,
    /// With BBR instead of Cubic. `None` unless BBR is the system's default for TCP.
    bbr: Option<Arc<ServerConfig>>,
}

impl Settings {
    fn new(worker: &Worker, crypto: &Arc<QuicServerConfig>, routes: &Routes) -> Self {
        let limits = &worker.config().limits;
        let config = server_config(crypto, routes, limits);
        let bbr = is_bbr_default().then(|| {
            let mut transport = transport_config(limits);
            transport.congestion_controller_factory(Arc::new(BbrConfig::default()));
            let mut config = config.clone();
            config.transport_config(Arc::new(transport));
            Arc::new(config)
        });
        Self {
            generation: worker.shared.generation,
            config: Arc::new(config),
            bbr,
        }
    }

    fn of_peer(&self, peer: IpAddr) -> &Arc<ServerConfig> {
        let bbr = self.bbr.as_ref().filter(|_| may_lose_packets(peer));
        bbr.unwrap_or(&self.config)
    }
}

/// Returns true if the path to a client may lose packets although it is not congested. Cubic sends less after each
/// loss, BBR does not. On loopback, which loses none, connections of TCP do not use BBR either.
fn may_lose_packets(peer: IpAddr) -> bool {
    !peer.to_canonical().is_loopback()
}

/// Answers an attempt to open a connection.
async fn answer(
    workers: &Rc<CurrentWorker>,
    worker: &Worker,
    incoming: Incoming,
    settings: &Settings,
    inbox: &Inbox,
    ending: &watch::Receiver<()>,
) {
    let config = worker.config();
    let handshakes_max = config.limits.quic_handshakes_max.get();
    let health = &worker.shared.health;
    let attempt = Attempt {
        handshakes: worker.counters.quic_handshakes.value(),
        handshakes_max: handshakes_max.div_ceil(config.workers.get()) as u64,
        is_validated: incoming.remote_address_validated(),
        is_full: is_full(worker) || health.lacks_descriptors() || health.lacks_memory(),
    };
    match attempt.answer() {
        Answer::Accept if make_room(worker).await => {
            let peer = incoming.remote_address();
            match incoming.accept_with(Arc::clone(settings.of_peer(peer.ip()))) {
                Ok(connecting) => {
                    let (workers, ending) = (Rc::clone(workers), ending.clone());
                    let handshake = Handshake::begin(&worker.counters, connecting);
                    worker
                        .connection_tasks
                        .spawn(|member| connection::run(workers, handshake, peer, ending, member));
                }
                // The first datagram is malformed, or an attack.
                Err(error) => tracing::debug!(%peer, %error, "a QUIC connection is not accepted"),
            }
        }
        Answer::Accept | Answer::Refuse => {
            worker.counters.quic_refused.increment();
            incoming.refuse();
        }
        Answer::Retry => {
            worker.counters.quic_retries.increment();
            inbox.makes_retry.store(true, Ordering::Relaxed);
            let _made = RetryMade(&inbox.makes_retry);
            if let Err(error) = incoming.retry() {
                error.into_incoming().ignore();
            }
        }
        Answer::Ignore => {
            worker.counters.quic_ignored.increment();
            incoming.ignore();
        }
    }
}

/// Clears the flag that an endpoint makes a Retry, also after a panic.
struct RetryMade<'a>(&'a AtomicBool);

impl Drop for RetryMade<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn server_config(
    crypto: &Arc<QuicServerConfig>,
    routes: &Routes,
    limits: &LimitsConfig,
) -> ServerConfig {
    let mut config = ServerConfig::new(Arc::clone(crypto) as _, routes.token_key());
    config
        .transport_config(Arc::new(transport_config(limits)))
        .max_incoming(ATTEMPTS_MAX)
        .incoming_buffer_size(ATTEMPT_BYTES_MAX)
        .incoming_buffer_size_total(ATTEMPT_BYTES_MAX * ATTEMPTS_MAX as u64);
    config
}

fn transport_config(limits: &LimitsConfig) -> TransportConfig {
    let mut transport = TransportConfig::default();
    let silence_max = IdleTimeout::try_from(silence_max(limits));
    transport
        .max_concurrent_bidi_streams(limits.h2_streams_max.get().into())
        .max_concurrent_uni_streams(UNI_STREAMS_MAX.into())
        .max_idle_timeout(silence_max.ok())
        // The window of the connection is less, and grows.
        .stream_receive_window(window(WINDOW_BYTES_MAX))
        .receive_window(window(WINDOW_BYTES_MIN))
        .send_window(SEND_WINDOW_BYTES)
        .datagram_receive_buffer_size(None);
    transport
}

/// Returns the time after which the transport drops a connection whose client sends no packet, not even
/// acknowledgements. It is longer than the timeouts of idle connections and of responses: the sweep applies these with
/// regard to the requests under way.
fn silence_max(limits: &LimitsConfig) -> Duration {
    let longest = limits.idle_timeout.max(limits.body_idle_timeout);
    longest.saturating_add(SILENCE_MARGIN)
}

/// The time in which the sweep finds a connection that has reached a timeout.
const SILENCE_MARGIN: Duration = Duration::from_secs(5);

/// The unidirectional streams that a client may have open: one for control, two for QPACK, and others that the edge
/// ignores (RFC 9114 §6.2 asks for at least three).
const UNI_STREAMS_MAX: u32 = 8;

/// The longest wait until clients know that their connections are closed.
const CLOSE_TIME_MAX: Duration = Duration::from_millis(200);

/// The attempts that may wait for the worker, and the bytes that each may send while it waits.
const ATTEMPTS_MAX: usize = 1024;
const ATTEMPT_BYTES_MAX: u64 = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_on_loopback_get_no_bbr() {
        let cases = [
            ("127.0.0.1", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("192.0.2.1", true),
            ("::ffff:192.0.2.1", true),
            ("2001:db8::1", true),
        ];
        for (peer, expected) in cases {
            let peer = peer.parse().expect("an address");
            assert_eq!(may_lose_packets(peer), expected, "{peer}");
        }
    }

    #[test]
    fn the_transport_drops_a_connection_after_the_sweep_would() {
        let seconds = |idle_timeout, body_idle_timeout| {
            let limits = LimitsConfig {
                idle_timeout: Duration::from_secs(idle_timeout),
                body_idle_timeout: Duration::from_secs(body_idle_timeout),
                ..LimitsConfig::default()
            };
            silence_max(&limits).as_secs()
        };
        assert_eq!(seconds(75, 60), 80);
        assert_eq!(seconds(1, 60), 65);
    }
}
