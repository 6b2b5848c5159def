//! The service that hyper calls with each request that it has parsed. It passes the request to the request path.

use std::rc::Rc;

use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::Service;

use crate::exchange::canonical::RawHead;
use crate::exchange::heads::{self, HeadCharge};
use crate::exchange::{Client, RequestError};
use crate::path::body::EdgeBody;
use crate::path::worker::Worker;
use crate::path::{self, Serving};

/// The service of one connection.
pub(super) struct EdgeService {
    pub(super) worker: Rc<Worker>,
    pub(super) client: Client,
}

impl Service<Request<Incoming>> for EdgeService {
    type Response = Response<EdgeBody>;
    type Error = std::convert::Infallible;
    type Future = Serving;

    fn call(&self, request: Request<Incoming>) -> Serving {
        let Self { worker, client } = self;
        let (parts, body) = request.into_parts();
        let mut head = RawHead::new(parts.method, parts.uri, parts.version, parts.headers);
        if head.version == Version::HTTP_11 {
            head.interims = Some(client.conn.begin_interims()); // for 1xx responses
        }
        if head.version == Version::HTTP_2 {
            match admit(worker, client, &head) {
                Ok(charge) => head.charge = Some(charge),
                Err(refusal) => return path::refuse(worker, client, head, &refusal),
            }
        }
        path::serve(worker, client, head, Some(body), None)
    }
}

/// Charges the head of an HTTP/2 request to the memory budget of heads, or refuses the request.
fn admit(worker: &Worker, client: &Client, head: &RawHead) -> Result<HeadCharge, RequestError> {
    let limits = &worker.config().limits;
    let counters = &worker.counters;
    if head.headers.len() > limits.headers_max.get() {
        counters.h2_refused_fields.increment();
        return Err(RequestError::too_many_fields());
    }
    if client.conn.is_full_of_orphans(limits.h2_streams_max.get()) {
        counters.h2_refused_orphans.increment();
        return Err(RequestError::overloaded(
            "the origin still works on requests of this connection that were cancelled",
        ));
    }
    let bytes = heads::decoded_bytes(&head.uri, &head.headers);
    let budget = &worker.shared.head_budget;
    let conn_bytes_max = limits.h2_heads_bytes_max.bytes();
    HeadCharge::new(budget, &client.conn, conn_bytes_max, bytes).ok_or_else(|| {
        counters.h2_refused_heads.increment();
        RequestError::overloaded("the heads of the requests under way take too much memory")
    })
}
