//! Forwards the interim responses (RFC 9110 §15.2) of the origin from hyper's client to the task of the request.

use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use edgeward_semantics::hop_by_hop;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName};
use http::{Request, StatusCode};

use super::expect::Expectation;
use crate::exchange::conn::{INTERIM_BYTES_MAX, InterimSink};
use crate::exchange::field_bytes::push_field;
use crate::rt::panics::lock;

/// The lines of interim responses that the request's task has not forwarded yet. hyper's callback appends lines. hyper
/// requires that the callback is `Sync`, hence the mutex. Lines beyond [`INTERIM_BYTES_MAX`] are dropped.
#[derive(Debug, Default)]
pub(crate) struct InterimRelay(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    lines: Vec<u8>,
    /// The task of the request.
    task: Option<Waker>,
}

impl InterimRelay {
    /// Moves the lines to the client's connection. Registers the calling task to be woken when more lines arrive.
    pub(crate) fn forward(&self, interims: &InterimSink, cx: &Context<'_>) {
        let mut state = lock(&self.0);
        if !state.lines.is_empty() {
            interims.push(&std::mem::take(&mut state.lines));
        }
        if !matches!(&state.task, Some(task) if task.will_wake(cx.waker())) {
            state.task = Some(cx.waker().clone());
        }
    }

    fn append(&self, lines: &[u8]) {
        let mut state = lock(&self.0);
        if state.lines.len() + lines.len() <= INTERIM_BYTES_MAX {
            state.lines.extend_from_slice(lines);
        }
        let task = state.task.take();
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// Makes hyper's client report each interim response of `request`: 100 to `expectation`, and any other to `relay`.
pub(super) fn report_to<B>(
    request: &mut Request<B>,
    expectation: Option<Arc<Expectation>>,
    relay: Option<Arc<InterimRelay>>,
) {
    if expectation.is_none() && relay.is_none() {
        return;
    }
    hyper::ext::on_informational(request, move |response| {
        let status = response.status();
        if status == StatusCode::CONTINUE {
            if let Some(expectation) = &expectation {
                expectation.continue_body();
            }
        } else if let Some(relay) = &relay {
            let fields = response.headers().iter();
            let fields = fields.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
            let Some(lines) = lines(status, fields) else {
                return;
            };
            relay.append(&lines);
        }
    });
}

/// Returns the head of an interim response as lines, without hop-by-hop fields. Returns `None` if the response is not
/// forwarded because it has `Connection`.
pub(super) fn lines<'a>(
    status: StatusCode,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Option<Vec<u8>> {
    let reason = status.canonical_reason().unwrap_or("");
    let mut lines = format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).into_bytes();
    for (name, value) in fields {
        let parsed = HeaderName::from_bytes(name).ok();
        if parsed == Some(CONNECTION) {
            return None;
        }
        let is_dropped =
            |name: &HeaderName| hop_by_hop::is_hop_by_hop(name) || name == CONTENT_LENGTH;
        if !parsed.as_ref().is_some_and(is_dropped) {
            push_field(&mut lines, name, value);
        }
    }
    lines.extend_from_slice(b"\r\n");
    Some(lines)
}
