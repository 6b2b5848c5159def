//! The thread that sends the spans of sampled requests to a collector, by OTLP over HTTP/1.1 in JSON.
//!
//! OpenTelemetry's SDK is not used: it would add timers, queues and crates of its own, and `observe/spans/otlp.rs`
//! writes the message in a page.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::config::{OriginConfig, TracingConfig};
use crate::observe::spans::{SampledRequest, otlp};
use crate::origin::{ConnectorError, Endpoint};
use crate::path::worker::TraceExports;
use crate::rt::background::Background;

/// The exporting thread. Dropping this value sends what is queued.
pub(super) struct SpanExport {
    _thread: Background,
}

impl SpanExport {
    pub(super) fn start(
        config: &TracingConfig,
        queues: Vec<rtrb::Consumer<Box<SampledRequest>>>,
        edge: String,
        exports: Arc<TraceExports>,
    ) -> Result<Self, ExportError> {
        let collector = OriginConfig::new(config.endpoint.clone());
        let connector = Endpoint::new(&collector).map_err(ExportError::Connector)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ExportError::Thread)?;
        let mut exporter = Exporter {
            connector,
            host: config.endpoint.authority(),
            queues,
            edge,
            exports,
            is_failing: false,
        };
        let thread = Background::start("edgeward-spans", INTERVAL, move || {
            runtime.block_on(exporter.run());
        });
        Ok(Self {
            _thread: thread.map_err(ExportError::Thread)?,
        })
    }
}

/// The reason why the export cannot be started.
#[derive(Debug)]
pub(super) enum ExportError {
    Connector(ConnectorError),
    Thread(io::Error),
}

struct Exporter {
    connector: Endpoint,
    /// The value of `Host`.
    host: String,
    queues: Vec<rtrb::Consumer<Box<SampledRequest>>>,
    /// The name of the edge.
    edge: String,
    exports: Arc<TraceExports>,
    is_failing: bool,
}

impl Exporter {
    /// Sends all requests that are queued.
    async fn run(&mut self) {
        loop {
            let mut batch = Vec::new();
            for queue in &mut self.queues {
                while batch.len() < BATCH_MAX
                    && let Ok(request) = queue.pop()
                {
                    batch.push(request);
                }
            }
            if batch.is_empty() {
                return;
            }
            let sent = tokio::time::timeout(TIMEOUT, self.send(&batch)).await;
            let error = match sent {
                Ok(Ok(status)) if status.is_success() => None,
                Ok(Ok(status)) => Some(format!("the collector answered {status}")),
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the collector did not answer in time".to_owned()),
            };
            let counter = match error {
                None => &self.exports.sent,
                Some(_) => &self.exports.failed,
            };
            counter.fetch_add(batch.len() as u64, Relaxed);
            if let Some(error) = &error
                && !self.is_failing
            {
                tracing::error!(
                    collector = self.host,
                    error,
                    "spans cannot be exported; they are lost"
                );
            }
            self.is_failing = error.is_some();
            if self.is_failing {
                return; // The next batch waits for the next interval.
            }
        }
    }

    async fn send(&self, batch: &[Box<SampledRequest>]) -> io::Result<StatusCode> {
        let body = Full::new(Bytes::from(otlp::export_request(batch, &self.edge)));
        let request = Request::post("/v1/traces")
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(io::Error::other)?;
        let stream = TokioIo::new(self.connector.connect().await?);
        let (mut sender, connection) = http1::handshake(stream).await.map_err(io::Error::other)?;
        let response = std::pin::pin!(sender.send_request(request));
        tokio::select! {
            biased;
            response = response => Ok(response.map_err(io::Error::other)?.status()),
            ended = connection => Err(match ended {
                Ok(()) => io::ErrorKind::UnexpectedEof.into(),
                Err(error) => io::Error::other(error),
            }),
        }
    }
}

/// The interval of exports. A worker's default queue of 2048 requests is full after a second at 1 % of 200 000 requests
/// per second.
const INTERVAL: Duration = Duration::from_millis(500);

/// The most requests in one message: about 1 MB.
const BATCH_MAX: usize = 512;

/// The longest time for a message. The stop of the edge waits for one message.
const TIMEOUT: Duration = Duration::from_secs(2);
