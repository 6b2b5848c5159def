//! The options of a connection to NATS.

use std::time::Duration;

use async_nats::ConnectOptions;

use crate::settings::{NatsCredentials, NatsSettings};

/// Returns the options of a connection, which is established in the background and again after a loss.
pub(crate) fn options(settings: &NatsSettings) -> ConnectOptions {
    // All parts of the program use this provider; an earlier call has installed it.
    _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut options = ConnectOptions::new()
        .name(&settings.node)
        .retry_on_initial_connect()
        .connection_timeout(CONNECT_TIMEOUT)
        .ping_interval(PING_INTERVAL)
        .request_timeout(Some(REQUEST_TIMEOUT))
        .subscription_capacity(SUBSCRIPTION_CAPACITY)
        .reconnect_delay_callback(|attempts| {
            let doubled = RECONNECT_AFTER * 2_u32.pow(attempts.min(5) as u32);
            doubled.min(RECONNECT_AFTER_MAX)
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

/// The longest time to connect to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A server that does not answer two pings is lost. Queries every second find a lost server earlier.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// The longest wait for an answer of JetStream.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Half of the pause before the first attempt to connect; the pause doubles with each attempt.
const RECONNECT_AFTER: Duration = Duration::from_millis(50);

/// The longest pause between two attempts.
const RECONNECT_AFTER_MAX: Duration = Duration::from_secs(1);

/// The most messages that wait in the client. The server sends at most 32 MiB ahead, by flow control.
const SUBSCRIPTION_CAPACITY: usize = 4096;
