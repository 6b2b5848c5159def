//! Handles posted lists of added or removed ids: authorization, limits, and the response after the writer has processed
//! the list.

use std::time::Duration;

use bytes::Bytes;
use edgeward_filter::{IdHash, id_in_line};
use edgeward_httpd::RequestBody;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue,
    WWW_AUTHENTICATE,
};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use tokio::sync::oneshot;

use super::{NO_STORE, Routes, full_response, refuse};
use crate::writer::{Command, JournalError};

/// The response to a rejected request. It is boxed, because a response is much larger than the usual return values.
type ErrorResponse = Box<Response<Full<Bytes>>>;

fn error_response(status: StatusCode, text: &str) -> ErrorResponse {
    Box::new(refuse(status, text))
}

impl Routes {
    /// Handles `POST /sets/NAME/ids`. Responds when the ids are on the device and published.
    pub(super) async fn add(&self, request: Request<RequestBody>) -> Response<Full<Bytes>> {
        self.post(request, |ids, done| Command::Add { ids, done })
            .await
            .unwrap_or_else(|response| {
                self.counters.posts_refused.increment();
                *response
            })
    }

    /// Handles `POST /sets/NAME/removed`. Responds when the writer has recorded the removal.
    pub(super) async fn remove(&self, request: Request<RequestBody>) -> Response<Full<Bytes>> {
        self.post(request, |ids, done| Command::Remove { ids, done })
            .await
            .unwrap_or_else(|response| *response)
    }

    async fn post(
        &self,
        request: Request<RequestBody>,
        command: impl FnOnce(Vec<IdHash>, oneshot::Sender<Result<u64, JournalError>>) -> Command,
    ) -> Result<Response<Full<Bytes>>, ErrorResponse> {
        self.check_token(request.headers())?;
        let Ok(_permit) = self.post_permits.try_acquire() else {
            let text = "too many lists of ids are being processed; try again later";
            return Err(error_response(StatusCode::SERVICE_UNAVAILABLE, text));
        };
        let body = self.body(request).await?;
        let ids = self.ids(&body)?;
        let count = ids.len();
        let (done, journaled) = oneshot::channel();
        let stopped =
            || error_response(StatusCode::SERVICE_UNAVAILABLE, "the publisher is stopping");
        let sent = self.commands.send(command(ids, done)).await;
        sent.map_err(|_| stopped())?;
        match journaled.await.map_err(|_| stopped())? {
            Ok(journal_head) => {
                let mut headers = HeaderMap::with_capacity(2);
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                headers.insert(CACHE_CONTROL, NO_STORE);
                let text = format!("{{\"ids\":{count},\"head\":{journal_head}}}\n");
                Ok(full_response(StatusCode::OK, headers, Bytes::from(text)))
            }
            Err(JournalError::Full) => Err(error_response(
                StatusCode::SERVICE_UNAVAILABLE,
                "the journal is full until the next snapshot, which is being built",
            )),
            Err(JournalError::Device) => Err(error_response(
                StatusCode::SERVICE_UNAVAILABLE,
                "cannot write the journal; see the publisher's log",
            )),
        }
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<(), ErrorResponse> {
        let Some(token) = &self.config.token else {
            let text = "this publisher accepts no ids: it was started without a token";
            return Err(error_response(StatusCode::FORBIDDEN, text));
        };
        let authorization = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        if authorization.is_some_and(|authorization| token.matches_authorization(authorization)) {
            return Ok(());
        }
        let text = "send `Authorization: Bearer TOKEN` with this publisher's token";
        let mut response = error_response(StatusCode::UNAUTHORIZED, text);
        let bearer = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
        Err(response)
    }

    async fn body(&self, request: Request<RequestBody>) -> Result<Bytes, ErrorResponse> {
        let bytes_max = self.config.limits.post_bytes_max;
        let too_large = || {
            let text = format!("a list may have at most {bytes_max} bytes; split it");
            error_response(StatusCode::PAYLOAD_TOO_LARGE, &text)
        };
        let stated_length = request.headers().get(CONTENT_LENGTH);
        let stated_length =
            stated_length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if stated_length.is_some_and(|stated_length| stated_length > bytes_max) {
            return Err(too_large());
        }
        let body = Limited::new(request.into_body(), bytes_max).collect();
        match tokio::time::timeout(BODY_TIME_MAX, body).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
            Ok(Err(_)) => Err(error_response(
                StatusCode::BAD_REQUEST,
                "the list is incomplete",
            )),
            Err(_) => Err(error_response(
                StatusCode::REQUEST_TIMEOUT,
                "timeout: the list took too long",
            )),
        }
    }

    /// Parses one id per line. An invalid line rejects the whole list.
    fn ids(&self, body: &[u8]) -> Result<Vec<IdHash>, ErrorResponse> {
        let mut ids = Vec::new();
        for (line, id) in (1..).zip(body.split(|byte| *byte == b'\n')) {
            let rejected = |error: &dyn std::fmt::Display| {
                let text = format!("line {line}: {error}; the whole list is rejected");
                error_response(StatusCode::BAD_REQUEST, &text)
            };
            let id = id_in_line(id).map_err(|error| rejected(&error))?;
            if id.is_empty() {
                continue;
            }
            let hash = self.config.hasher.hash_spelling(id);
            let hash = hash.map_err(|error| rejected(&error))?;
            ids.push(hash);
        }
        Ok(ids)
    }
}

/// The maximum time in which a client must send the body of its request.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);
