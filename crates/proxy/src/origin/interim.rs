//! Interim responses (RFC 9110 §15.2) to requests with a body, on their way from hyper's client to the request's task.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use edgeward_semantics::hop_by_hop;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap};
use http::{Request, StatusCode};

use super::expect::Expectation;
use crate::exchange::conn::{INTERIM_BYTES_MAX, InterimSink};

/// Holds the lines of interim responses until the request's task takes them. hyper's callback has to be `Sync`.
#[derive(Debug, Default)]
pub(crate) struct InterimRelay(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    lines: Vec<u8>,
    /// The task of the request.
    task: Option<Waker>,
}

impl InterimRelay {
    /// Gives what has come to the client's connection, and wakes the task when more comes.
    pub(crate) fn forward(&self, interims: &InterimSink, cx: &Context<'_>) {
        let mut state = self.state();
        if !state.lines.is_empty() {
            interims.push(&std::mem::take(&mut state.lines));
        }
        if !matches!(&state.task, Some(task) if task.will_wake(cx.waker())) {
            state.task = Some(cx.waker().clone());
        }
    }

    fn take(&self, lines: &[u8]) {
        let mut state = self.state();
        if state.lines.len() + lines.len() <= INTERIM_BYTES_MAX {
            state.lines.extend_from_slice(lines);
        }
        let task = state.task.take();
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has hyper's client report interim responses to this request.
pub(super) fn listen<B>(
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
                expectation.go_on();
            }
        } else if let Some(relay) = &relay
            && let Some(lines) = lines(status, response.headers())
        {
            relay.take(&lines);
        }
    });
}

/// An interim response as it is passed on: its end-to-end fields. A response with connection options is left out.
fn lines(status: StatusCode, headers: &HeaderMap) -> Option<Vec<u8>> {
    if headers.contains_key(CONNECTION) {
        return None;
    }
    let reason = status.canonical_reason().unwrap_or("");
    let mut lines = format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).into_bytes();
    for (name, value) in headers {
        if !hop_by_hop::is_of_connection(name) && name != CONTENT_LENGTH {
            lines.extend_from_slice(name.as_str().as_bytes());
            lines.extend_from_slice(b": ");
            lines.extend_from_slice(value.as_bytes());
            lines.extend_from_slice(b"\r\n");
        }
    }
    lines.extend_from_slice(b"\r\n");
    Some(lines)
}
