//! The listener for mirrored requests (`mirror` of nginx). It answers 204 before the request is sent to any cache, so
//! it never delays the incumbent. If the queue is full, the request is dropped and counted.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Empty;
use tokio::sync::{mpsc, watch};

use edgeward_httpd::{ConnectionCounters, Handler, RequestBody, Server, ServerConfig};
use edgeward_shadow::{Request, Skip, is_sampled};
use edgeward_types::ConnectionLimits;

use super::connection::is_own;
use super::{Job, Senders, Shared};

/// Returns the server of mirrored requests.
pub(super) fn server(
    shared: Arc<Shared>,
    senders: Senders,
    stopping: watch::Receiver<bool>,
) -> Server<MirrorHandler> {
    Server {
        handler: MirrorHandler { shared, senders },
        config: CONFIG,
        counters: Arc::new(ConnectionCounters::default()),
        stopping,
        tls: None,
    }
}

/// Answers mirrored requests.
#[derive(Clone)]
pub(super) struct MirrorHandler {
    shared: Arc<Shared>,
    senders: Senders,
}

impl Handler for MirrorHandler {
    type Body = Empty<Bytes>;

    async fn handle(&self, request: http::Request<RequestBody>) -> Response<Self::Body> {
        self.accept(&request);
        let mut response = Response::new(Empty::<Bytes>::new());
        *response.status_mut() = StatusCode::NO_CONTENT;
        response
    }
}

impl MirrorHandler {
    fn accept(&self, mirrored: &http::Request<RequestBody>) {
        let mut comparison = self.shared.comparison();
        let headers = mirrored.headers();
        if is_own(headers) {
            comparison.count_skipped(Skip::Own);
            return;
        }
        let host = headers.get(http::header::HOST);
        let target = mirrored.uri().path_and_query();
        let request = Request::new(
            mirrored.method().as_str().as_bytes(),
            host.map_or(b"", |host| host.as_bytes()),
            target.map_or(b"", |target| target.as_str().as_bytes()),
        );
        let mut request = match request {
            Ok(request) => request,
            Err(skip) => {
                comparison.count_request(false);
                comparison.count_skipped(skip);
                return;
            }
        };
        let fields = headers.iter();
        let fields = fields.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        let is_withheld = request.add_fields(fields, self.shared.plan.has_credentials);
        comparison.count_request(is_withheld);
        let url_key = request.url_key();
        if !is_sampled(url_key, self.shared.plan.sample) {
            comparison.count_skipped(Skip::Sample);
            return;
        }
        let job = Job {
            request,
            logged: None,
        };
        // After the end of the run the queue is closed, and the request is not counted as dropped.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.senders.of(url_key).try_send(job) {
            comparison.count_skipped(Skip::QueueFull);
        }
    }
}

/// nginx opens a connection for each mirrored request, unless its upstream keeps connections.
const CONFIG: ServerConfig = ServerConfig {
    connections: ConnectionLimits {
        connections_max: 4096,
        unserved_max: 4096,
        per_client_max: 4096,
    },
    first_byte_timeout: Duration::from_secs(5),
    head_bytes_max: 64 << 10,
    head_timeout: Duration::from_secs(60),
    stall_timeout: Duration::from_secs(15),
    drain_timeout: Duration::from_secs(1),
};
