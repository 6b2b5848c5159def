//! Requests that ask the origin for another protocol, and the connections that switch to it (RFC 9110 §7.8).
//!
//! Such a request opens a connection of its own, which is not part of the pool: a tunnel may be idle for hours, and
//! must not take the connections of requests. `limits.tunnels_max` limits these connections.

use bytes::BytesMut;
use http::StatusCode;
use http::response::Parts;

use super::body::{BodySource, OriginBody};
use super::connect::OriginStream;
use super::error::OriginError;
use super::h1::{Connection, HeadLimits};
use super::outbound::Outbound;
use super::pool::{OriginPool, OriginResponse};
use super::share_limit::ShareSlot;

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
}

impl OriginPool {
    /// Sends a request with `Upgrade` on a new connection, and waits for the head of the response.
    pub(crate) async fn switch(
        &self,
        outbound: &Outbound<'_>,
    ) -> Result<SwitchResponse, OriginError> {
        let counters = &self.shared.counters;
        let Some(slot) = self.tunnels.take(outbound.request.peer.ip()) else {
            counters.upgrades_limit.increment();
            if let Some(unlogged) = self.tunnel_log.record(self.shared.clock.now()) {
                tracing::warn!(
                    unlogged,
                    tunnels_max = self.tunnels.max(),
                    "a request for a tunnel was refused: limits.tunnels_max is reached, or the share of its client"
                );
            }
            return Err(OriginError::TooManyTunnels);
        };
        counters.origin_requests.increment();
        let sent = self.switch_on_new_connection(outbound, slot).await;
        if let Err(error) = &sent {
            counters.upgrades_failed.increment();
            error.count(counters);
        }
        sent
    }

    async fn switch_on_new_connection(
        &self,
        outbound: &Outbound<'_>,
        slot: ShareSlot,
    ) -> Result<SwitchResponse, OriginError> {
        let stream = self.connect().await?;
        let head = outbound.head();
        let limits = HeadLimits {
            accepts_switch: true,
            ..HeadLimits::of(&self.limits, &self.config)
        };
        let timeout = self.config.first_byte_timeout;
        let (parts, body) = Connection::new(stream)
            .exchange(&head, outbound.method, limits, timeout, outbound.interims())
            .await
            .map_err(|failed| OriginError::from_h1(failed.error))?;
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            let (stream, received) = body.into_switched();
            let connection = SwitchedConnection {
                stream,
                received,
                _slot: slot,
            };
            return Ok(SwitchResponse::Switched(parts, connection));
        }
        // The body keeps the slot, so that ordinary responses to such requests are limited too.
        let source = BodySource::Direct(body);
        let silence_max = self.config.read_idle_timeout;
        let body = OriginBody::new(source, None, silence_max, self.shared.counters.clone());
        Ok(SwitchResponse::Other((
            parts,
            Box::new(body.with_slot(slot)),
        )))
    }
}
