//! Serves the manifest, with a date for caches or with a proof of freshness for one client. A client can request that
//! the response waits, for a limited time, until the publisher has newer ids or a newer snapshot than the client.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use edgeward_filter::complete::CoveredUntil;
use edgeward_filter::from_hex;
use edgeward_filter::manifest::{FORMAT, Proof};
use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, VARY};
use http::{Method, Response, StatusCode, Uri};
use http_body_util::Full;
use tokio::sync::oneshot;

use super::{ContentHeaders, NO_STORE, Routes, content_response, full_response, refuse};
use crate::writer::{Command, PublishedState};

/// The parameters of a request for the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ManifestQuery {
    /// The lineage, epoch and journal number that the client has.
    have: Option<(u64, u64, u64)>,
    /// The longest time to wait for a newer state; zero for an immediate response.
    wait: Duration,
    /// Random bytes of the client. If present, the response has a proof that repeats them.
    challenge: Option<[u8; 16]>,
}

impl Routes {
    pub(super) async fn manifest(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Response<Full<Bytes>> {
        let requested = match ManifestQuery::parse(uri.query().unwrap_or_default(), headers) {
            Ok(requested) => requested,
            Err(text) => return refuse(StatusCode::BAD_REQUEST, text),
        };
        let mut published = self.wait_for_newer(&requested).await;
        if requested.challenge.is_none() && self.is_old(&published) {
            let (done, refreshed) = oneshot::channel();
            // If the writer's queue is full, the response has the previous date.
            if self
                .commands
                .try_send(Command::RefreshDate { done })
                .is_ok()
            {
                _ = refreshed.await;
                published = Arc::clone(&self.published.borrow());
            }
        }
        let Some(manifest) = &published.manifest else {
            return refuse(
                StatusCode::SERVICE_UNAVAILABLE,
                "the first snapshot is not built yet; a scan is in progress",
            );
        };
        self.counters.manifests.increment();
        let proof = requested
            .challenge
            .and_then(|echo| self.make_proof(&published, echo));
        let cache_control = if requested == ManifestQuery::default() {
            // A response to a request without parameters and challenge is the same for all clients.
            let secs = self.config.manifest_max_age.as_secs();
            HeaderValue::try_from(format!("public, max-age={secs}"))
                .expect("digits are a valid field")
        } else {
            // This response is valid only for this client and at this time.
            NO_STORE
        };
        let mut response = if requested.have == Some(position(&published)) {
            // The client already has the newest manifest.
            full_response(StatusCode::NO_CONTENT, HeaderMap::new(), Bytes::new())
        } else {
            let content_headers = ContentHeaders {
                media_type: HeaderValue::from_static("text/plain; charset=utf-8"),
                cache_control: NO_STORE,
                modified: None,
            };
            content_response(manifest, method, headers, content_headers)
        };
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, cache_control);
        headers.append(VARY, HeaderValue::from_static("edgeward-challenge"));
        if let Some(proof) = proof {
            headers.insert(PROOF, proof);
        }
        response
    }

    /// Returns the published state. If requested, first waits until it differs from the client's, at most for the
    /// requested time and the configured maximum.
    async fn wait_for_newer(&self, requested: &ManifestQuery) -> Arc<PublishedState> {
        let (mut watching, mut stopping) = (self.published.clone(), self.stopping.clone());
        let is_newer = |published: &Arc<PublishedState>| {
            published.manifest.is_some() && requested.have != Some(position(published))
        };
        let wait = requested.wait.min(self.config.limits.wait_max);
        if !wait.is_zero() {
            tokio::select! {
                _ = watching.wait_for(is_newer) => {}
                () = tokio::time::sleep(wait) => {}
                _ = stopping.wait_for(|stop| *stop) => {}
            }
        }
        let published = self.published.borrow();
        Arc::clone(&published)
    }

    /// Returns true if the published manifest was made longer ago than a cache may keep a manifest.
    fn is_old(&self, published: &PublishedState) -> bool {
        let age = (self.config.clock)()
            .monotonic
            .saturating_sub(published.made_at);
        published.manifest.is_some() && age > self.config.manifest_max_age
    }

    /// Returns a proof, signed if the publisher has a key. Returns `None` if it is unknown up to which time all ids are
    /// published. The writer publishes ids before it acknowledges them. `published` was read after the request arrived,
    /// so it has every id that was acknowledged before the client sent the request.
    fn make_proof(&self, published: &PublishedState, echo: [u8; 16]) -> Option<HeaderValue> {
        let now = (self.config.clock)().monotonic;
        // The time since the last moment up to which all committed ids are published.
        let lag = match published.covered_until {
            CoveredUntil::Unknown => return None,
            CoveredUntil::At(at) => now.saturating_sub(at),
            CoveredUntil::Always => Duration::ZERO,
        };
        let proof = Proof {
            format: FORMAT,
            set: self.config.set.clone(),
            serial: published.serial,
            lineage: published.lineage,
            epoch_min: published.epoch_min?,
            head: published.head,
            // Rounded up: a proof must not state a smaller lag.
            lag_ms: u64::try_from(lag.as_nanos().div_ceil(1_000_000)).ok()?,
            echo: edgeward_filter::to_hex(&echo),
        };
        self.counters.proofs.increment();
        HeaderValue::try_from(proof.to_line(self.config.signer.as_ref())).ok()
    }
}

fn position(published: &PublishedState) -> (u64, u64, u64) {
    (published.lineage, published.epoch, published.head)
}

impl ManifestQuery {
    fn parse(query: &str, headers: &HeaderMap) -> Result<Self, &'static str> {
        let mut requested = Self::default();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("have", have)) => {
                    let mut numbers = have.split('-').map(str::parse::<u64>);
                    let mut next = || numbers.next().and_then(Result::ok);
                    let read = next().zip(next()).zip(next());
                    let ((lineage, epoch), head) = read.ok_or("have=LINEAGE-EPOCH-HEAD")?;
                    requested.have = Some((lineage, epoch, head));
                }
                Some(("wait", wait)) => {
                    let wait = wait.parse().map_err(|_| "wait=MILLISECONDS")?;
                    requested.wait = Duration::from_millis(wait);
                }
                // Unknown parameters are ignored, so that clients of later versions can send them.
                _ => {}
            }
        }
        if let Some(value) = headers.get(&CHALLENGE) {
            let echo = value.to_str().ok().and_then(|hex| from_hex(hex).ok());
            requested.challenge = Some(echo.ok_or("Edgeward-Challenge takes 32 hex digits")?);
        }
        Ok(requested)
    }
}

const CHALLENGE: HeaderName = HeaderName::from_static("edgeward-challenge");
const PROOF: HeaderName = HeaderName::from_static("edgeward-proof");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_parsed_or_refused() {
        let read = |query| ManifestQuery::parse(query, &HeaderMap::new());
        assert_eq!(read(""), Ok(ManifestQuery::default()));
        let requested = read("have=7-8-9&wait=250&later=1").expect("the query is valid");
        assert_eq!(requested.have, Some((7, 8, 9)));
        assert_eq!(requested.wait, Duration::from_millis(250));
        for wrong in ["have=1-2", "have=a-b-c", "have=", "wait=-1", "wait=1.5"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(CHALLENGE, HeaderValue::from_static("00112233"));
        assert!(ManifestQuery::parse("", &headers).is_err());
    }
}
