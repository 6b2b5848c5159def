//! The service that hyper calls with each request that it has parsed. It passes the request to the request path, and
//! takes tunnels out of the responses.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::BytesMut;
use http::header::{CONNECTION, CONTENT_LENGTH, UPGRADE};
use http::{HeaderValue, Request, Response, Version};
use hyper::body::{Body as _, Incoming};
use hyper::ext::Protocol;
use hyper::service::Service;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::admission::{RefusalCounters, admit};
use super::hyper_body::HyperBody;
use crate::client::io::ClientIo;
use crate::client::stream::ClientStream;
use crate::exchange::canonical::RawHead;
use crate::exchange::h2_frames::take_path;
use crate::exchange::{Client, RequestBody};
use crate::path::body::EdgeBody;
use crate::path::tunnel::Tunnel;
use crate::path::worker::CurrentWorker;
use crate::path::{self, Serving};

/// The service of one connection.
pub(super) struct EdgeService {
    workers: Rc<CurrentWorker>,
    pub(super) client: Client,
    /// For HTTP/1.1: the tunnel that the connection becomes after the last response.
    pub(super) tunnel: Rc<RefCell<Option<Box<Tunnel>>>>,
}

impl EdgeService {
    pub(super) fn new(workers: &Rc<CurrentWorker>, client: &Client) -> Self {
        Self {
            workers: Rc::clone(workers),
            client: client.clone(),
            tunnel: Rc::default(),
        }
    }

    /// Takes the tunnel out of a response of HTTP/1.1. The connection runs it after hyper has sent the head.
    fn keep_tunnel(&self, serving: Serving) -> Serving {
        let slot = Rc::clone(&self.tunnel);
        Serving::after(async move {
            let mut response = serving.response().await;
            *slot.borrow_mut() = response.body_mut().take_tunnel();
            response
        })
    }

    /// Runs the tunnel of a response of HTTP/2 on its stream, when hyper has sent the head.
    fn spawn_tunnel(&self, serving: Serving, stream: OnUpgrade) -> Serving {
        let (worker, conn) = (self.workers.get(), Rc::clone(&self.client.conn));
        Serving::after(async move {
            let mut response = serving.response().await;
            if let Some(tunnel) = response.body_mut().take_tunnel() {
                let in_flight = conn.begin_request();
                worker.connection_tasks.spawn(|member| async move {
                    if let Ok(stream) = stream.await {
                        tunnel
                            .run(TokioIo::new(stream), BytesMut::new(), in_flight)
                            .await;
                    }
                    drop(member); // The set of tasks counts this one until here.
                });
            }
            response
        })
    }
}

impl Service<Request<Incoming>> for EdgeService {
    type Response = Response<EdgeBody>;
    type Error = std::convert::Infallible;
    type Future = Serving;

    fn call(&self, request: Request<Incoming>) -> Serving {
        let (worker, client) = (&self.workers.get(), &self.client);
        let (mut parts, body) = request.into_parts();
        let protocol = parts.extensions.remove::<Protocol>();
        let stream = protocol
            .is_some()
            .then(|| parts.extensions.remove::<OnUpgrade>())
            .flatten();
        let mut head = RawHead::new(parts.method, parts.uri, parts.version, parts.headers);
        head.connect_protocol = protocol.map(|protocol| protocol.as_str().into());
        let is_http1 = head.version < Version::HTTP_2;
        let body = if is_http1 {
            HyperBody::of_h1(body)
        } else {
            HyperBody::of_h2(body, &worker.connection_tasks, &client.conn)
        };
        if head.version == Version::HTTP_11 {
            head.interims = Some(client.conn.begin_interims()); // for 1xx responses
        }
        if head.version == Version::HTTP_2 {
            take_path(&mut head.uri, &mut head.headers);
            head.has_unsized_content =
                !body.is_end_stream() && !head.headers.contains_key(CONTENT_LENGTH);
            match admit(
                worker,
                client,
                &head,
                &RefusalCounters::of_h2(&worker.counters),
            ) {
                Ok(charge) => head.charge = Some(charge),
                Err(refusal) => return path::refuse(worker, client, head, &refusal),
            }
        }
        let may_upgrade = head.version == Version::HTTP_11 && head.headers.contains_key(UPGRADE);
        let serving = path::serve(worker, client, head, Some(RequestBody::new(body)), None);
        match stream {
            Some(stream) => self.spawn_tunnel(serving, stream),
            None if may_upgrade => self.keep_tunnel(serving),
            None if is_http1 && client.conn.is_leaving() => closing(serving),
            None => serving,
        }
    }
}

/// Adds `Connection: close` to the response.
fn closing(serving: Serving) -> Serving {
    Serving::after(async move {
        let mut response = serving.response().await;
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
        response
    })
}

/// Runs a tunnel on a connection that has switched to another protocol. `read_by_hyper` has the bytes after the request
/// that hyper has read.
pub(super) async fn run_tunnel<S: ClientStream>(
    client: &Client,
    tunnel: Box<Tunnel>,
    io: ClientIo<S>,
    read_by_hyper: &[u8],
) {
    let (stream, inbox) = io.into_tunnel();
    let mut early = BytesMut::from(read_by_hyper);
    early.extend_from_slice(&inbox);
    let mut running = pin!(tunnel.run(stream, early, client.conn.begin_request()));
    poll_fn(|cx| {
        client.conn.register_task(cx);
        match client.conn.close_reason() {
            Some(_) => Poll::Ready(()),
            None => running.as_mut().poll(cx),
        }
    })
    .await;
}
