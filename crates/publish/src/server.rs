//! Connections: taken, bounded in number and time, and ended in good order.

use std::convert::Infallible;
use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::config::PublishLimits;
use crate::counters::Counters;
use crate::places::{Entered, Places};
use crate::stall::Stall;

/// Answers requests; cheap to clone, one for each connection.
pub(crate) trait Answers: Clone + Send + 'static {
    fn answer(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Full<Bytes>>> + Send;
}

/// One listener and how its connections are treated.
pub(crate) struct Server<A> {
    pub(crate) answers: A,
    pub(crate) limits: PublishLimits,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stopping: watch::Receiver<bool>,
}

impl<A: Answers> Server<A> {
    /// Serves until it is stopped, and lets requests under way finish for a few seconds.
    pub(crate) async fn run(mut self, listener: StdListener) {
        let listener = match TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(%error, "a listener cannot be watched");
                return;
            }
        };
        let places = Places::new(self.limits.connections());
        let mut connections = JoinSet::new();
        loop {
            // Ended ones are swept out as new ones come.
            while connections.try_join_next().is_some() {}
            let accepted = async {
                places.room().await;
                listener.accept().await
            };
            let (stream, from) = tokio::select! {
                accepted = accepted => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        // Usually too many open files: some will be closed.
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                },
                _ = self.stopping.wait_for(|stop| *stop) => break,
            };
            self.counters.connections.one();
            let Ok(entered) = places.enter(from.ip()) else {
                self.counters.connections_refused.one();
                continue;
            };
            if entered.displaces {
                self.counters.connections_displaced.one();
            }
            connections.spawn(self.connection(stream, entered));
        }
        drop(listener);
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIME, all).await.is_err() {
            connections.shutdown().await;
        }
    }

    fn connection(
        &self,
        stream: TcpStream,
        entered: Entered,
    ) -> impl Future<Output = ()> + Send + 'static {
        let Entered {
            place,
            mut displaced,
            ..
        } = entered;
        _ = stream.set_nodelay(true);
        let limits = &self.limits;
        let first_byte_timeout = limits.first_byte_timeout;
        let (stall_timeout, counters) = (limits.stall_timeout, Arc::clone(&self.counters));
        let (answers, mut stopping) = (self.answers.clone(), self.stopping.clone());
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_timeout)
            .max_headers(HEADERS_MAX)
            .max_buf_size(limits.head_bytes_max.max(HYPER_BUFFER_MIN));
        async move {
            let mut byte = [0];
            let first = tokio::time::timeout(first_byte_timeout, stream.peek(&mut byte));
            let came = tokio::select! {
                first = first => first.is_ok(),
                _ = &mut displaced => return,
                _ = stopping.wait_for(|stop| *stop) => return,
            };
            if !came {
                counters.connections_silent.one();
                return;
            }
            let stream = Stall::new(stream, stall_timeout, Arc::clone(&place), counters);
            let service = service_fn(move |request: Request<Incoming>| {
                let (answers, place) = (answers.clone(), Arc::clone(&place));
                async move {
                    place.begin_answer();
                    let response = answers.answer(request).await;
                    place.end_answer();
                    Ok::<_, Infallible>(response)
                }
            });
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            let mut connection = std::pin::pin!(connection);
            let stopped = async move { _ = stopping.wait_for(|stop| *stop).await };
            let served = tokio::select! {
                served = connection.as_mut() => Some(served),
                () = stopped => None,
                _ = &mut displaced => return,
            };
            let served = match served {
                Some(served) => served,
                None => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = served {
                tracing::debug!(%error, "a connection ended");
            }
        }
    }
}

const HEADERS_MAX: usize = 64;

/// hyper insists on it.
const HYPER_BUFFER_MIN: usize = 8192;

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a snapshot of a few MB takes on a slow line; a larger one is resumed by range.
const DRAIN_TIME: Duration = Duration::from_secs(5);
