//! Answers misses by a fetch. Requests for one key share one fetch, and get the body while it arrives from the origin.
//!
//! The leader's task polls the fetch, which needs no other task and no channel until the leader's response begins.
//! After that, or if the leader's client disconnects earlier, a new task continues the fetch and reads the body.

mod background;
mod follow;
mod head;
mod lead;
mod leader;
mod miss;
mod part;
mod ranges;
mod respond;
mod sliced;
mod steps;

use std::rc::Rc;
use std::sync::Arc;

use edgeward_semantics::{CacheStatus, Forward};
use http::Response;

use super::deliver::Reply;
use super::lookup::Hit;
use super::pass;
use super::stale::StaleCause;
use crate::cache::CacheKey;
use crate::cache::stored::Stored;
use crate::exchange::{Request, RequestBody};
use crate::path::body::EdgeBody;
pub(super) use background::revalidate_in_background;
pub(super) use lead::post::{PostBegin, PostUpdate};
pub(super) use leader::store_post;
use miss::Miss;
pub(super) use sliced::LOOKED_UP_MAX;
use sliced::{Answered, OutdatedSlices};

/// Answers a request that needs the origin for `reason`. `stale` is the stored response to validate, if any.
pub(super) fn fetch(
    reply: Reply,
    request: Rc<Request>,
    incoming: Option<RequestBody>,
    key: CacheKey,
    reason: Forward,
    stale: Option<Arc<Stored>>,
) -> impl Future<Output = Response<EdgeBody>> {
    let miss = Miss::new(reply, request, key, reason, stale);
    or_begin_again(miss.carry_out(incoming))
}

/// Answers a hit whose body is in slices. `stored` is its response.
pub(super) async fn answer_sliced(
    reply: Reply,
    request: Rc<Request>,
    hit: Hit,
    stored: Arc<Stored>,
) -> Response<EdgeBody> {
    or_begin_again(sliced::answer(reply, request, hit, stored)).await
}

/// Answers a request with a stale response in place of an error. `reason` is why the request was to be forwarded.
pub(super) async fn respond_stale(
    reply: Reply,
    request: Rc<Request>,
    key: CacheKey,
    stale: Arc<Stored>,
    cause: StaleCause,
    reason: Forward,
) -> Response<EdgeBody> {
    or_begin_again(sliced::respond_stale(
        reply, request, key, stale, cause, reason,
    ))
    .await
}

/// Returns the response of an answer. If the stored slices are outdated, begins the request again.
async fn or_begin_again(answer: impl Future<Output = Answered>) -> Response<EdgeBody> {
    match answer.await {
        Ok(response) => response,
        Err(outdated) => Box::pin(begin_again(outdated)).await,
    }
}

/// Begins a request again without a stored response, [`RESTARTS_MAX`] times. Then passes it to the origin.
async fn begin_again(mut outdated: Box<OutdatedSlices>) -> Response<EdgeBody> {
    for _ in 0..RESTARTS_MAX {
        let OutdatedSlices {
            reply,
            request,
            key,
            reason,
        } = *outdated;
        let miss = Miss::new(reply, request, key, reason, None);
        match miss.carry_out(None).await {
            Ok(response) => return response,
            Err(again) => outdated = again,
        }
    }
    let status = CacheStatus::forward(outdated.reason).with_detail("changes");
    pass::pass(outdated.reply, outdated.request, None, status).await
}

/// The times that a request begins again. A representation that changes with each request cannot be sliced.
const RESTARTS_MAX: u32 = 2;
