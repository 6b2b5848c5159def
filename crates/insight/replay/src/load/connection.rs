//! One connection of the load generator. It sends one request at a time and verifies the response while the response
//! arrives.

use std::time::Instant;

use bytes::Bytes;
use http::header::HOST;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;

use super::cache_status::Class;
use super::plan::ReplayPlan;
use super::queue::Job;
use super::tally::{ErrorKind, Failure};
use crate::client::{Client, TimedOut, error_with_source, failure};
use crate::pattern::Pattern;

/// A connection to the target.
pub(super) struct Connection(Client);

/// A correct response.
#[derive(Debug)]
pub(super) struct CheckedResponse {
    /// How the cache handled the request, as the response's headers state.
    pub(super) class: Class,
    /// The time when the head was complete.
    pub(super) first_byte: Instant,
    /// The time when the last byte of the body had arrived.
    pub(super) end: Instant,
}

impl Connection {
    pub(super) fn new(plan: &ReplayPlan) -> Self {
        Self(Client::new(
            plan.target.clone(),
            plan.tls.clone(),
            plan.timeout,
        ))
    }

    /// Returns the number of times that a connection was opened.
    pub(super) const fn opened(&self) -> u64 {
        self.0.opened
    }

    /// Sends the request of a job and verifies the response.
    pub(super) async fn perform(&mut self, job: &Job) -> Result<CheckedResponse, Failure> {
        let id = job.key.to_string();
        let uri = format!("{}/o/{id}?size={}", self.0.target().prefix(), job.size);
        let uri = Uri::try_from(uri).expect("a prefix from a URL with letters and digits is a URI");
        let host = self.0.target().host().clone();
        let request = || {
            let mut request = Request::new(Empty::new());
            *request.uri_mut() = uri.clone();
            request.headers_mut().insert(HOST, host.clone());
            request
        };
        let response = self.0.send(request).await?;
        let first_byte = Instant::now();
        let class = Class::from_headers(response.headers());
        let (head, body) = response.into_parts();
        if head.status != StatusCode::OK {
            self.discard(body).await;
            return Err(failure(
                ErrorKind::Status,
                format!("status {}", head.status),
            ));
        }
        self.check(body, Pattern::for_id(&id), job.size).await?;
        Ok(CheckedResponse {
            class,
            first_byte,
            end: Instant::now(),
        })
    }

    /// Reads the whole body and compares it with the object's bytes.
    async fn check(
        &mut self,
        mut body: Incoming,
        pattern: Pattern,
        size: u64,
    ) -> Result<(), Failure> {
        let mut received = 0;
        let mut wrong_offset = None;
        loop {
            let bytes = match self.0.drive(body.frame()).await {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => bytes,
                    // The frame contains trailers.
                    Err(_) => continue,
                },
                Ok(Some(Err(error))) => {
                    self.0.close();
                    let detail = format!(
                        "error after {received} of {size} bytes: {}",
                        error_with_source(&error)
                    );
                    return Err(failure(ErrorKind::ShortBody, detail));
                }
                Err(TimedOut) => {
                    let moment = format!("after {received} of {size} bytes");
                    let failure = self.0.timed_out(&moment);
                    self.0.close();
                    return Err(failure);
                }
            };
            self.0.note_activity();
            if wrong_offset.is_none() {
                wrong_offset = pattern.first_wrong(received, &bytes);
            }
            received += bytes.len() as u64;
            if received > size {
                // The rest of the response is not read.
                self.0.close();
                break;
            }
        }
        // A body that is too long is reported as such, because its bytes beyond the end of the object are always wrong
        // bytes too.
        if received > size {
            let detail = format!("the body is longer than {size} bytes");
            return Err(failure(ErrorKind::LongBody, detail));
        }
        if let Some(offset) = wrong_offset {
            let detail = format!("byte {offset} of {size} is wrong");
            return Err(failure(ErrorKind::WrongBytes, detail));
        }
        if received < size {
            let detail = format!("the body ends after {received} of {size} bytes");
            return Err(failure(ErrorKind::ShortBody, detail));
        }
        Ok(())
    }

    /// Reads and drops the body of an error response, so that the connection can be used for the next request.
    /// Closes the connection if the body is longer than `DISCARDED_BYTES_MAX`.
    async fn discard(&mut self, mut body: Incoming) {
        let mut remaining = DISCARDED_BYTES_MAX;
        while self.0.is_open() {
            match self.0.drive(body.frame()).await {
                Ok(None) => return,
                Ok(Some(Ok(frame))) => {
                    let bytes = frame.data_ref().map_or(0, Bytes::len);
                    match remaining.checked_sub(bytes) {
                        Some(less) => remaining = less,
                        None => self.0.close(),
                    }
                }
                Ok(Some(Err(_))) | Err(TimedOut) => self.0.close(),
            }
        }
    }
}

/// The longest body of an error response that is read to keep the connection.
const DISCARDED_BYTES_MAX: usize = 1 << 20;
