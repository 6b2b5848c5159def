//! `Expect: 100-continue` (RFC 9110 §10.1.1): the origin decides about a body before the client sends it.
//!
//! hyper's server sends `100 Continue` to a client when the body of its request is read for the first time, and hyper's
//! client reads a body as soon as it has sent the head. A [`Gate`] stands between the two. It opens when the origin sends
//! `100 Continue`, or after `origin.expect_timeout`. It stays closed when the origin's final response comes first.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::time::Sleep;

/// Holds a body back until the origin asks for it.
pub(super) struct Gate {
    expectation: Arc<Expectation>,
    timeout: Duration,
    /// Begins when the head is sent.
    sleep: Option<Pin<Box<Sleep>>>,
}

/// Why a gate is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// The origin sent `100 Continue`.
    Asked,
    /// The origin sent nothing in time.
    TimedOut,
}

/// What the origin said about the body. The body and the request share it with hyper's callback, which has to be `Sync`.
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
    Waits,
    /// The body is sent.
    Continues,
    /// The final response came first: the body is not sent.
    Refused,
    /// The refusal was read, or nobody reads it.
    Ended,
}

/// The origin did not ask for the body.
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

    /// Ready when the body may be sent. A body that the origin refused waits until the response was read, because hyper's
    /// client ends the response together with the body.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Opened, BodyRefused>> {
        let polled = self.expectation.poll(cx);
        if polled.is_ready() || self.expectation.stage() == Stage::Refused {
            return polled.map_ok(|()| Opened::Asked);
        }
        let timeout = self.timeout;
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(sleep.as_mut().poll(cx));
        self.expectation.go_on();
        Poll::Ready(Ok(Opened::TimedOut))
    }
}

impl Expectation {
    /// The origin asked for the body.
    pub(super) fn go_on(&self) {
        self.change(Stage::Waits, Stage::Continues);
    }

    /// The final response has come.
    pub(super) fn answer(&self) {
        self.change(Stage::Waits, Stage::Refused);
    }

    /// The response's connection is free, or nobody reads the response any more.
    pub(super) fn end(&self) {
        self.change(Stage::Refused, Stage::Ended);
    }

    /// The final response came before the origin asked for the body.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.stage(), Stage::Refused | Stage::Ended)
    }

    fn change(&self, from: Stage, to: Stage) {
        let mut state = self.state();
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
        let mut state = self.state();
        match state.stage {
            Stage::Continues => Poll::Ready(Ok(())),
            Stage::Ended => Poll::Ready(Err(BodyRefused)),
            Stage::Waits | Stage::Refused => {
                state.task = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn stage(&self) -> Stage {
        self.state().stage
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
