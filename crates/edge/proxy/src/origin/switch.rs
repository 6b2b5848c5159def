//! Requests that ask the origin for another protocol, and the connections that switch to it (RFC 9110 §7.8).
//!
//! Such a request opens a connection of its own, which is not part of the pool: a tunnel may be idle for hours, and
//! must not take the connections of requests. `limits.tunnels_max` limits these connections. It uses HTTP/1.1 even if
//! other requests use HTTP/2. A server that knows only HTTP/2 stays healthy when it refuses such a request.
//!
//! If the connection cannot be opened, another server gets the request. After that the request is sent once.

use std::sync::Arc;

use bytes::BytesMut;
use http::StatusCode;
use http::response::Parts;
use tokio::time::Instant;

use super::body::{BodySource, OriginBody};
use super::connect::OriginStream;
use super::error::OriginError;
use super::group::{OriginGroup, may_retry};
use super::h1::{Connection, HeadLimits};
use super::location;
use super::outbound::Outbound;
use super::pool::OriginResponse;
use super::servers::Chosen;
use super::share_limit::ShareSlot;
use crate::observe::site_counters::FetchClass;

/// The origin's answer to a request for another protocol.
pub(crate) enum SwitchResponse {
    /// The origin answered 101. The caller checks the fields.
    Switched(Box<Parts>, SwitchedConnection),
    /// The origin answered with an ordinary response.
    Other(OriginResponse),
}

/// A connection to the origin that has switched to another protocol.
pub(crate) struct SwitchedConnection {
    pub(crate) stream: Box<dyn OriginStream>,
    /// The bytes of the new protocol that arrived with the head of the 101.
    pub(crate) received: BytesMut,
    _slot: ShareSlot,
    /// Counts the tunnel as under way at its server.
    _server: Chosen,
}

impl OriginGroup {
    /// Sends a request with `Upgrade` on a new connection, and waits for the head of the response.
    pub(crate) async fn switch(
        &self,
        outbound: &Outbound<'_>,
    ) -> Result<SwitchResponse, OriginError> {
        let counters = &self.counters;
        let Some(slot) = self.tunnels.take(outbound.request.peer.ip()) else {
            counters.upgrades_limit.increment();
            if let Some(unlogged) = self.tunnel_log.record(self.slots.clock.now()) {
                tracing::warn!(
                    origin = self.config.name,
                    unlogged,
                    tunnels_max = self.tunnels.max(),
                    "a request for a tunnel was refused: limits.tunnels_max is reached, or the share of its client"
                );
            }
            return Err(OriginError::TooManyTunnels);
        };
        let sent = async {
            let (chosen, stream) = self.connect(outbound).await?;
            self.switch_on(chosen, stream, outbound, slot).await
        };
        let sent = sent.await;
        if sent.is_err() {
            counters.upgrades_failed.increment();
        }
        sent
    }

    /// Opens a connection to a server. If it cannot be opened, another server is tried.
    async fn connect(
        &self,
        outbound: &Outbound<'_>,
    ) -> Result<(Chosen, Box<dyn OriginStream>), OriginError> {
        let hash = self.servers.hash(outbound.request);
        let client = outbound.request.client_addr();
        let mut retries_left = self.config.retries_max;
        let mut tried = Vec::new();
        let mut last_error = None;
        loop {
            // The request has no content and a safe method, so it may probe a server.
            let Some(chosen) = self.servers.choose(hash, true, &tried) else {
                if self.servers.is_empty() {
                    self.resolve().await?;
                    continue;
                }
                return Err(last_error.unwrap_or_else(|| {
                    let error = OriginError::NoServer;
                    error.count(&self.counters);
                    error
                }));
            };
            if last_error.take().is_some() {
                self.counters.origin_failovers.increment();
            }
            self.counters.origin_requests.increment();
            let error = match self.pool(&chosen.server).connect_for_upgrade(client).await {
                Ok(stream) => return Ok((chosen, stream)),
                Err(error) => error,
            };
            error.count(&self.counters);
            if !self.is_h2() {
                chosen.fail(&error);
            }
            tried.push(chosen.server.id);
            drop(chosen);
            if !may_retry(&error, false, &mut retries_left) || !self.servers.has_untried(&tried) {
                return Err(error);
            }
            last_error = Some(error);
        }
    }

    async fn switch_on(
        &self,
        chosen: Chosen,
        stream: Box<dyn OriginStream>,
        outbound: &Outbound<'_>,
        slot: ShareSlot,
    ) -> Result<SwitchResponse, OriginError> {
        let head = outbound.head();
        let limits = HeadLimits {
            accepts_switch: true,
            ..HeadLimits::of(&self.limits, &self.config)
        };
        let timeout = self.config.first_byte_timeout;
        let sent_at = Instant::now();
        let exchanged = Connection::new(stream)
            .exchange(&head, outbound.method, limits, timeout, outbound.interims())
            .await;
        let (mut parts, body) = match exchanged {
            Ok(response) => response,
            Err(failed) => {
                let error = OriginError::from_h1(failed.error);
                error.count(&self.counters);
                if error.is_failure_of_server() && !self.is_h2() {
                    chosen.fail(&error);
                }
                return Err(error);
            }
        };
        chosen.succeed();
        let (fetch, latency) = (FetchClass::Pass, sent_at.elapsed());
        self.slots
            .record_first_byte(outbound, fetch, parts.status, latency);
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            let (stream, received) = body.into_switched();
            let connection = SwitchedConnection {
                stream,
                received,
                _slot: slot,
                _server: chosen,
            };
            return Ok(SwitchResponse::Switched(parts, connection));
        }
        location::rewrite(&self.config, outbound.request, &mut parts);
        // The body keeps the slot, so that ordinary responses to such requests are limited too.
        let source = BodySource::Direct(body);
        let silence_max = self.config.read_idle_timeout;
        let body = OriginBody::new(source, None, silence_max, Arc::clone(&self.counters));
        let mut body = Box::new(body.with_slot(slot));
        body.set_server(chosen);
        Ok(SwitchResponse::Other((parts, body)))
    }
}
