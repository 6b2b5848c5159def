//! `Expect: 100-continue` (RFC 9110 §10.1.1): the origin accepts or refuses a body before the client sends it.
//!
//! hyper's server sends `100 Continue` to a client when the edge reads the request's body for the first time. hyper's
//! client reads the body as soon as it has sent the head to the origin. A [`Gate`] between the two delays this read.
//! It opens when the origin sends `100 Continue`, or after `origin.expect_timeout`. It stays closed if the origin's
//! final response arrives first.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::time::Sleep;

use crate::rt::panics::lock;

/// Delays the read of a body until the origin requests the body.
pub(super) struct Gate {
    expectation: Arc<Expectation>,
    timeout: Duration,
    /// The timer of `timeout`, which starts when the body is polled for the first time, after the head was sent.
    sleep: Option<Pin<Box<Sleep>>>,
}

/// The reason why a gate opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GateOpened {
    /// The origin sent `100 Continue`.
    Continue,
    /// The origin sent nothing before the timeout.
    TimedOut,
}

/// The origin's decision about the body, shared by the body, the request and hyper's callback for interim responses.
/// hyper requires that the callback is `Sync`.
#[derive(Debug, Default)]
pub(crate) struct Expectation(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    stage: Stage,
    /// The task that reads the body.
    task: Option<Waker>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// The origin has sent nothing.
    #[default]
    Waiting,
    /// The body may be sent.
    Continue,
    /// The final response arrived first, so the body is not sent.
    Refused,
    /// After `Refused`: the final response was read completely or dropped.
    Ended,
}

/// The error of a body that the origin did not request before it answered.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the origin answered without asking for the body")]
pub(crate) struct BodyRefused;

impl Gate {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            expectation: Arc::default(),
            timeout,
            sleep: None,
        }
    }

    pub(super) fn expectation(&self) -> &Arc<Expectation> {
        &self.expectation
    }

    /// Resolves when the body may be sent. A refused body stays pending until the response was read, because hyper's
    /// client would abort the response if the body returned an error earlier.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<GateOpened, BodyRefused>> {
        let polled = self.expectation.poll(cx);
        if polled.is_ready() || self.expectation.stage() == Stage::Refused {
            return polled.map_ok(|()| GateOpened::Continue);
        }
        let timeout = self.timeout;
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(sleep.as_mut().poll(cx));
        self.expectation.continue_body();
        Poll::Ready(Ok(GateOpened::TimedOut))
    }
}

impl Expectation {
    /// Records that the body may be sent.
    pub(super) fn continue_body(&self) {
        self.change_stage(Stage::Waiting, Stage::Continue);
    }

    /// Records that the final response arrived.
    pub(super) fn refuse(&self) {
        self.change_stage(Stage::Waiting, Stage::Refused);
    }

    /// Records that the response to a refused body was read or dropped.
    pub(super) fn end(&self) {
        self.change_stage(Stage::Refused, Stage::Ended);
    }

    /// Returns true if the final response arrived before the origin requested the body.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.stage(), Stage::Refused | Stage::Ended)
    }

    fn change_stage(&self, from: Stage, to: Stage) {
        let mut state = lock(&self.0);
        if state.stage == from {
            state.stage = to;
            let task = state.task.take();
            drop(state);
            if let Some(task) = task {
                task.wake();
            }
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Result<(), BodyRefused>> {
        let mut state = lock(&self.0);
        match state.stage {
            Stage::Continue => Poll::Ready(Ok(())),
            Stage::Ended => Poll::Ready(Err(BodyRefused)),
            Stage::Waiting | Stage::Refused => {
                state.task = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn stage(&self) -> Stage {
        lock(&self.0).stage
    }
}
