//! Sends one request to one cache, and returns its answer with the hash of its body.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, HOST, HeaderName, HeaderValue};
use http::{HeaderMap, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;

use edgeward_shadow::{Answer, ErrorKind, Head, MARK, Method, Request, Side, Verdict};

use super::Shared;
use super::body_hash::BodyHash;
use crate::client::{Client, TimedOut, error_with_source};
use crate::load::Class;
use crate::load::cache_status::CacheStatus;
use crate::load::tally;

/// A connection to one of the two caches.
pub(super) struct Connection {
    client: Client,
    side: Side,
}

/// A request without an answer.
#[derive(Debug)]
pub(super) struct ShadowFailure {
    pub(super) kind: ErrorKind,
    pub(super) message: String,
}

impl Connection {
    /// Returns the connection to a cache. Returns `None` if the plan does not have the cache.
    pub(super) fn new(shared: &Shared, side: Side) -> Option<Self> {
        let plan = &shared.plan;
        let (target, tls) = match side {
            Side::Edge => (plan.edge.clone(), plan.edge_tls.clone()),
            Side::Incumbent => (plan.incumbent.clone()?, plan.incumbent_tls.clone()),
        };
        Some(Self {
            client: Client::new(target, tls, plan.timeout),
            side,
        })
    }

    /// Closes the connection. The next request opens a new one.
    pub(super) fn close(&mut self) {
        self.client.close();
    }

    /// Sends a request. `started` is the time from which the answer's time counts.
    pub(super) async fn perform(
        &mut self,
        request: &Request,
        started: Instant,
    ) -> Result<Answer, ShadowFailure> {
        let sent = Instant::now();
        let head = self.head_of(request)?;
        let response = self.client.send(|| head.clone()).await?;
        let (parts, body) = response.into_parts();
        let coding = parts.headers.get(CONTENT_ENCODING);
        let hash = BodyHash::new(coding.and_then(|value| value.to_str().ok()));
        let (bytes, body_hash) = self.read(body, hash).await?;
        let mut answer = Answer {
            at: started.elapsed(),
            status: parts.status.as_u16(),
            bytes: Some(bytes),
            latency: Some(sent.elapsed()),
            head: Some(Head {
                fields: fields(&parts.headers),
                // A response to HEAD has no body to compare.
                body_hash: body_hash.filter(|_| request.method == Method::Get),
            }),
            ..Answer::default()
        };
        add_verdict(&mut answer, &parts.headers);
        Ok(answer)
    }

    fn head_of(&self, request: &Request) -> Result<http::Request<Empty<Bytes>>, ShadowFailure> {
        let invalid = |what: &str| ShadowFailure {
            kind: ErrorKind::Protocol,
            message: format!("the request has a {what} that cannot be sent"),
        };
        let target = self.client.target();
        let uri = format!("{}{}", target.prefix(), request.target);
        let mut head = http::Request::new(Empty::new());
        *head.uri_mut() = Uri::try_from(uri).map_err(|_| invalid("target"))?;
        *head.method_mut() = match request.method {
            Method::Get => http::Method::GET,
            Method::Head => http::Method::HEAD,
        };
        let host = match &request.host[..] {
            "" => target.host().clone(),
            host => HeaderValue::from_str(host).map_err(|_| invalid("host"))?,
        };
        head.headers_mut().insert(HOST, host);
        for (name, value) in &request.fields {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid("field"))?;
            let value = HeaderValue::from_str(value).map_err(|_| invalid("field"))?;
            head.headers_mut().append(name, value);
        }
        if self.side == Side::Incumbent {
            // The incumbent mirrors this request, too. The mark keeps it from being sent again.
            let mark = HeaderValue::from_static("1");
            head.headers_mut().insert(OWN_REQUEST, mark);
        }
        Ok(head)
    }

    /// Reads a body. Returns its length and the hash without its coding.
    async fn read(
        &mut self,
        mut body: Incoming,
        mut hash: BodyHash,
    ) -> Result<(u64, Option<u128>), ShadowFailure> {
        let mut bytes = 0;
        loop {
            match self.client.drive(body.frame()).await {
                Ok(None) => return Ok((bytes, hash.finish())),
                Ok(Some(Ok(frame))) => {
                    self.client.note_activity();
                    if let Some(part) = frame.data_ref() {
                        bytes += part.len() as u64;
                        hash.add(part);
                    }
                }
                Ok(Some(Err(error))) => {
                    self.client.close();
                    return Err(ShadowFailure {
                        kind: ErrorKind::Incomplete,
                        message: format!("after {bytes} bytes: {}", error_with_source(&error)),
                    });
                }
                Err(TimedOut) => {
                    let failure = self.client.timed_out(&format!("after {bytes} bytes"));
                    self.client.close();
                    return Err(failure.into());
                }
            }
        }
    }
}

impl From<tally::Failure> for ShadowFailure {
    fn from(failure: tally::Failure) -> Self {
        Self {
            kind: match failure.kind {
                tally::ErrorKind::Timeout => ErrorKind::Timeout,
                tally::ErrorKind::Protocol => ErrorKind::Protocol,
                // `send` has tried a new connection before it reports this failure.
                _ => ErrorKind::Connect,
            },
            message: failure.detail,
        }
    }
}

/// Adds how the cache served the answer.
fn add_verdict(answer: &mut Answer, headers: &HeaderMap) {
    if let Some(status) = CacheStatus::from_headers(headers) {
        answer.verdict = match status.class {
            Class::Hit => Some(Verdict::Hit),
            Class::Stale => Some(Verdict::StaleHit),
            Class::Revalidated => Some(Verdict::Revalidated),
            Class::Miss if status.is_expired => Some(Verdict::Expired),
            Class::Miss | Class::Collapsed => Some(Verdict::Miss),
            Class::Pass => Some(Verdict::Pass),
            Class::Unknown => None,
        };
        // A follower does not state if the fetch that it shares is stored.
        answer.is_stored = status.is_stored || status.class == Class::Collapsed;
        answer.ttl_seconds = status.ttl_seconds;
        answer.detail = status.detail;
        return;
    }
    let texts = VERDICT_FIELDS.iter().filter_map(|name| headers.get(*name));
    let verdict = texts
        .filter_map(|value| Verdict::from_text(value.as_bytes()))
        .next();
    // Varnish adds the number of the request that stored the response.
    let varnish = headers
        .get("x-varnish")
        .and_then(|value| value.to_str().ok());
    let has_two_numbers = varnish.is_some_and(|value| value.split_ascii_whitespace().count() == 2);
    answer.verdict = verdict.or_else(|| has_two_numbers.then_some(Verdict::StaleHit));
}

/// Returns the fields with the values of equal names joined, except those of `set-cookie`.
fn fields(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::with_capacity(headers.keys_len());
    for name in headers.keys() {
        let mut values = headers
            .get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        if name == http::header::SET_COOKIE {
            fields.extend(values.map(|value| (name.as_str().to_owned(), value)));
            continue;
        }
        let first = values.next().unwrap_or_default();
        let joined = values.fold(first, |joined, value| format!("{joined}, {value}"));
        fields.push((name.as_str().to_owned(), joined));
    }
    fields
}

/// Returns true if a request came from a shadow.
pub(super) fn is_own(headers: &HeaderMap) -> bool {
    headers.contains_key(OWN_REQUEST)
}

/// The mark of requests to the incumbent.
const OWN_REQUEST: HeaderName = HeaderName::from_static(MARK);

/// The fields in which caches state their verdict, beside `Cache-Status`.
const VERDICT_FIELDS: [&str; 5] = [
    "x-cache-status",
    "x-cache",
    "x-proxy-cache",
    "cf-cache-status",
    "x-varnish-cache",
];

/// The first and the longest wait after failed requests.
pub(super) const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(5));

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(fields: &[(&'static str, &'static str)]) -> Answer {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let mut answer = Answer::default();
        add_verdict(&mut answer, &headers);
        answer
    }

    #[test]
    fn the_verdict_of_a_cache_is_in_one_of_its_fields() {
        for (field, expected) in [
            (("cache-status", "edgeward; hit; ttl=7"), Some(Verdict::Hit)),
            (
                (
                    "cache-status",
                    "edgeward; fwd=stale; fwd-status=200; stored",
                ),
                Some(Verdict::Expired),
            ),
            (("x-cache-status", "EXPIRED"), Some(Verdict::Expired)),
            (("x-cache", "HIT"), Some(Verdict::Hit)),
            (("x-varnish", "32770 3"), Some(Verdict::StaleHit)),
            (("x-varnish", "32770"), None),
            (("age", "7"), None),
        ] {
            assert_eq!(verdict(&[field]).verdict, expected, "{field:?}");
        }
        let stored = verdict(&[("cache-status", "edgeward; fwd=uri-miss; stored")]);
        assert!(stored.is_stored);
        let refused = verdict(&[("cache-status", "edgeward; fwd=uri-miss; detail=no-store")]);
        assert_eq!(
            (refused.is_stored, &refused.detail[..]),
            (false, "no-store")
        );
    }

    #[test]
    fn the_values_of_one_field_are_joined_and_cookies_are_not() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("vary", "a"),
            ("vary", "b"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let expected = [
            ("vary", "a, b"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
        ];
        assert_eq!(fields(&headers), expected.map(owned));
    }
}
