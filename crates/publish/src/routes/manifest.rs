//! Serves the manifest: with a date for caches, or with a proof for one client; immediately, or when there is
//! news.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use edgeward_filter::complete::Covers;
use edgeward_filter::from_hex;
use edgeward_filter::manifest::{FORMAT, Proof};
use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, VARY};
use http::{Method, Response, StatusCode, Uri};
use http_body_util::Full;
use tokio::sync::oneshot;

use super::{Kept, NO_STORE, Routes, refuse, represent, whole};
use crate::writer::{Command, Shown};

/// The parameters of a request for the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Question {
    /// The lineage, epoch and journal number that the client has.
    have: Option<(u64, u64, u64)>,
    /// How long to wait for a newer state.
    wait: Duration,
    challenge: Option<[u8; 16]>,
}

impl Routes {
    pub(super) async fn manifest(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Response<Full<Bytes>> {
        let question = match Question::read(uri.query().unwrap_or_default(), headers) {
            Ok(question) => question,
            Err(text) => return refuse(StatusCode::BAD_REQUEST, text),
        };
        let mut shown = self.news(&question).await;
        if question.challenge.is_none() && self.is_old(&shown) {
            let (done, dated) = oneshot::channel();
            // If the writer's queue is full, the date stays as it is for now.
            if self.commands.try_send(Command::Redate { done }).is_ok() {
                _ = dated.await;
                shown = Arc::clone(&self.shown.borrow());
            }
        }
        let Some(manifest) = &shown.manifest else {
            return refuse(
                StatusCode::SERVICE_UNAVAILABLE,
                "the first snapshot is not built yet; a scan is in progress",
            );
        };
        self.counters.manifests.one();
        let proof = question.challenge.and_then(|echo| self.prove(&shown, echo));
        let cache_control = if question == Question::default() {
            let secs = self.config.manifest_max_age.as_secs();
            HeaderValue::try_from(format!("public, max-age={secs}")).expect("digits")
        } else {
            // This response is valid only for this client and this moment.
            NO_STORE
        };
        let mut response = if question.have == Some(position(&shown)) {
            whole(StatusCode::NO_CONTENT, HeaderMap::new(), Bytes::new())
        } else {
            let kept = Kept {
                media_type: HeaderValue::from_static("text/plain; charset=utf-8"),
                cache_control: NO_STORE,
                modified: None,
            };
            represent(manifest, method, headers, kept)
        };
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, cache_control);
        headers.append(VARY, HeaderValue::from_static("edgeward-challenge"));
        if let Some(proof) = proof {
            headers.insert(PROOF, proof);
        }
        response
    }

    /// Returns the published state. If requested, waits until the client does not have it yet.
    async fn news(&self, question: &Question) -> Arc<Shown> {
        let (mut watching, mut stopping) = (self.shown.clone(), self.stopping.clone());
        let is_news =
            |shown: &Arc<Shown>| shown.manifest.is_some() && question.have != Some(position(shown));
        let wait = question.wait.min(self.config.limits.wait_max);
        if !wait.is_zero() {
            tokio::select! {
                _ = watching.wait_for(is_news) => {}
                () = tokio::time::sleep(wait) => {}
                _ = stopping.wait_for(|stop| *stop) => {}
            }
        }
        let shown = self.shown.borrow();
        Arc::clone(&shown)
    }

    fn is_old(&self, shown: &Shown) -> bool {
        let age = (self.config.clock)().monotonic.saturating_sub(shown.made);
        shown.manifest.is_some() && age > self.config.manifest_max_age
    }

    /// Signs a proof. Every id acknowledged before this request was sent is in `shown`.
    fn prove(&self, shown: &Shown, echo: [u8; 16]) -> Option<HeaderValue> {
        let now = (self.config.clock)().monotonic;
        let lag = match shown.covers {
            Covers::Unknown => return None,
            Covers::At(at) => now.saturating_sub(at),
            Covers::Always => Duration::ZERO,
        };
        let proof = Proof {
            format: FORMAT,
            set: self.config.set.clone(),
            serial: shown.serial,
            lineage: shown.lineage,
            epoch_min: shown.epoch_min?,
            head: shown.head,
            // Rounded up: a proof must not state a smaller lag.
            lag_ms: u64::try_from(lag.as_nanos().div_ceil(1_000_000)).ok()?,
            echo: edgeward_filter::to_hex(&echo),
        };
        self.counters.proofs.one();
        HeaderValue::try_from(proof.to_line(self.config.signer.as_ref())).ok()
    }
}

fn position(shown: &Shown) -> (u64, u64, u64) {
    (shown.lineage, shown.epoch, shown.head)
}

impl Question {
    fn read(query: &str, headers: &HeaderMap) -> Result<Self, &'static str> {
        let mut question = Self::default();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("have", have)) => {
                    let mut numbers = have.split('-').map(str::parse::<u64>);
                    let mut next = || numbers.next().and_then(Result::ok);
                    let read = next().zip(next()).zip(next());
                    let ((lineage, epoch), head) = read.ok_or("have=LINEAGE-EPOCH-HEAD")?;
                    question.have = Some((lineage, epoch, head));
                }
                Some(("wait", wait)) => {
                    let wait = wait.parse().map_err(|_| "wait=MILLISECONDS")?;
                    question.wait = Duration::from_millis(wait);
                }
                // Unknown parameters are ignored, for later clients.
                _ => {}
            }
        }
        if let Some(value) = headers.get(&CHALLENGE) {
            let echo = value.to_str().ok().and_then(|hex| from_hex(hex).ok());
            question.challenge = Some(echo.ok_or("Edgeward-Challenge takes 32 hex digits")?);
        }
        Ok(question)
    }
}

const CHALLENGE: HeaderName = HeaderName::from_static("edgeward-challenge");
const PROOF: HeaderName = HeaderName::from_static("edgeward-proof");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_parsed_or_refused() {
        let read = |query| Question::read(query, &HeaderMap::new());
        assert_eq!(read(""), Ok(Question::default()));
        let question = read("have=7-8-9&wait=250&later=1").expect("well formed");
        assert_eq!(question.have, Some((7, 8, 9)));
        assert_eq!(question.wait, Duration::from_millis(250));
        for wrong in ["have=1-2", "have=a-b-c", "have=", "wait=-1", "wait=1.5"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(CHALLENGE, HeaderValue::from_static("00112233"));
        assert!(Question::read("", &headers).is_err());
    }
}
