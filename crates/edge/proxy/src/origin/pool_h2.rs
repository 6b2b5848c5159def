//! HTTP/2 to the origin by hyper's client, with one connection for each worker. A malformed response ends its own
//! stream only: its frames pass the gate of [`H2Io`] before hyper.

use std::sync::Arc;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::Instant;

use super::pool::OriginPool;
use crate::exchange::h2_io::H2Io;
use crate::origin::error::OriginError;
use crate::origin::lease::Lease;
use crate::origin::upload::Upload;
use crate::rt::tasks::LocalExecutor;

impl OriginPool {
    /// Returns the HTTP/2 connection. The first request opens the connection, and requests that arrive meanwhile wait.
    pub(super) async fn h2_sender(&self) -> Result<http2::SendRequest<Upload>, OriginError> {
        let usable = || {
            self.h2
                .borrow()
                .clone()
                .filter(|sender| !sender.is_closed())
        };
        if let Some(sender) = usable() {
            return Ok(sender);
        }
        let _first = self.h2_connecting.lock().await;
        if let Some(sender) = usable() {
            return Ok(sender);
        }
        let lease = Lease::open(&self.shared, self.server.id, None);
        let deadline = Instant::now() + self.config.connect_timeout;
        let stream = self.connect(None).await?;
        let executor = LocalExecutor(self.shared.tasks.clone());
        let mut builder = http2::Builder::new(executor);
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(H2_STREAM_WINDOW_BYTES)
            .initial_connection_window_size(H2_CONNECTION_WINDOW_BYTES)
            .max_header_list_size(
                u32::try_from(self.limits.head_bytes_max.bytes()).unwrap_or(u32::MAX),
            );
        if let Some(interval) = self.config.ping_interval {
            builder
                .keep_alive_interval(interval)
                .keep_alive_timeout(interval.saturating_mul(PING_INTERVALS_MAX));
        }
        builder.max_local_error_reset_streams(None); // `H2Io` bounds the RST_STREAM frames that wait
        let stream = H2Io::of_server(stream, Arc::clone(&self.shared.clock));
        let handshake = builder.handshake(TokioIo::new(stream));
        let (sender, connection) = tokio::time::timeout_at(deadline, handshake)
            .await
            .map_err(|_| OriginError::ConnectTimeout)?
            .map_err(OriginError::from_hyper)?;
        self.shared.tasks.spawn(|member| async move {
            _ = connection.await;
            drop((lease, member));
        });
        *self.h2.borrow_mut() = Some(sender.clone());
        Ok(sender)
    }
}

/// The intervals of pings within which a server answers one. A busy machine answers late.
const PING_INTERVALS_MAX: u32 = 4;

/// The receive window of a stream. It allows 10 MB per second at a round-trip time of 100 ms.
const H2_STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// The receive window of a connection, which all requests of a worker share.
const H2_CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
