//! Requests with unsafe methods. They are passed, and may remove or replace stored responses.

use std::rc::Rc;

use edgeward_semantics::CacheStatus;
use http::Response;

use super::body::EdgeBody;
use super::deliver::Reply;
use super::{fetch, invalidate, pass};
use crate::exchange::{Request, RequestBody};
use crate::observe::spans::SampledRequest;

/// Forwards a request to the origin, and responds with the origin's response. `status` says why.
pub(super) async fn pass(
    mut reply: Reply,
    request: Rc<Request>,
    incoming: Option<RequestBody>,
    status: CacheStatus,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    let (upload, attempt) = match pass::upload(&reply, &request, incoming).await {
        Ok(upload) => upload,
        Err(error) => return pass::refuse(reply, &error, status),
    };
    let progress = attempt.upload.clone();
    let conn = Rc::clone(reply.in_flight.conn());
    let exchange = invalidate::send(worker, Rc::clone(&request), conn, attempt, upload);
    reply.observation.trace(SampledRequest::begin_fetch);
    let (sent, update) = Box::pin(exchange).await;
    reply.observation.trace(SampledRequest::end_fetch);
    let is_refused = progress.as_ref().is_some_and(|upload| upload.is_refused());
    match (sent, update) {
        (Ok(response), Some(update)) if !is_refused => {
            fetch::store_post(reply, request, response, update).await
        }
        (sent, _) => pass::finish(reply, &request, sent, progress.as_deref(), status),
    }
}
