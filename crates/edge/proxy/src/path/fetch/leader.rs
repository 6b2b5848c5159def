//! The leader's side of a fetch: its task polls the fetch until the fetch reports a result.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use edgeward_semantics::{CacheStatus, Forward};
use http::Response;

use super::lead::fetch_state::{Fetch, FetchResult};
use super::lead::post::PostUpdate;
use super::respond::report_stored;
use crate::cache::fill::Fill;
use crate::exchange::Request;
use crate::origin::OriginResponse;
use crate::path::body::{EdgeBody, Source};
use crate::path::deliver::Reply;
use crate::path::detachable::Detachable;
use crate::path::lookup::key_of;
use crate::path::pass;

/// Polls a fetch until it reports the result for its leader. A task continues the fetch if it has not ended by then, or
/// if the client leaves earlier.
pub(super) async fn leader_result(
    reply: &Reply,
    request: &Request,
    fill: Arc<Fill>,
    result: &Cell<Option<FetchResult>>,
    fetch: Pin<Box<impl Future<Output = ()> + 'static>>,
) -> FetchResult {
    let worker = &reply.worker;
    let is_reported = Cell::new(false);
    let mut fetch = Detachable::new(fetch, |fetch| {
        let (origin, tasks) = (worker.origin(request), &worker.fetch_tasks);
        if is_reported.get() {
            let is_wanted = move || fill.has_readers();
            return origin.orphans().spawn(tasks, fetch, is_wanted);
        }
        // The client has left before the response began. HTTP/2 limits count such a fetch.
        let orphan = reply.in_flight.conn().begin_orphan();
        let fetch = async move {
            fetch.await;
            drop(orphan);
        };
        let has_begun = {
            let fill = Arc::clone(&fill);
            move || fill.has_begun()
        };
        let is_wanted = move || fill.has_readers();
        origin.abandon(tasks, fetch, worker.abandoned(), is_wanted, has_begun);
    });
    let outcome = poll_fn(|cx| {
        let has_ended = fetch.poll(cx).is_ready();
        match result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                debug_assert!(!has_ended, "every fetch reports a result");
                Poll::Pending
            }
        }
    });
    let outcome = outcome.await;
    is_reported.set(true);
    // If the fetch has not ended, dropping it spawns a task that reads the rest of the body.
    drop(fetch);
    outcome
}

/// Responds with the response to a POST, and stores it for later GETs.
pub(in crate::path) async fn store_post(
    reply: Reply,
    request: Rc<Request>,
    response: OriginResponse,
    update: PostUpdate,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    let (leader, reader) = worker.cache.collapse.lead_uncollapsed();
    let result = Rc::new(Cell::new(None));
    let fill = Arc::clone(&leader.fill);
    let fetch = Fetch {
        worker: Rc::clone(&worker),
        request: Rc::clone(&request),
        key: key_of(&worker, &request),
        leader,
        part: None,
        result: Some(Rc::clone(&result)),
    };
    let fetch = Box::pin(fetch.run_post(response, update));
    let mut status = CacheStatus::forward(Forward::Method);
    match leader_result(&reply, &request, fill, &result, fetch).await {
        FetchResult::Shared { head, mut headers } => {
            status.fwd_status = Some(head.status.as_u16());
            report_stored(&mut status, &head);
            status.append_to(&mut headers, &worker.config().name);
            let source = Source::Fill(reader, head.length);
            reply.respond(&request, head.status, headers, source, &status)
        }
        FetchResult::Direct((parts, body), _) => {
            pass::respond(reply, &request, *parts, body, status)
        }
        FetchResult::Failed(error) => pass::refuse(reply, &error, status),
        FetchResult::Found { .. } | FetchResult::Sliced { .. } | FetchResult::Unsliced(_) => {
            unreachable!("the response to a POST validates no stored response and is no slice")
        }
    }
}
