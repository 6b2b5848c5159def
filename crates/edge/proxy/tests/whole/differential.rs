//! Sends each request to the three codecs of the edge and compares the results: the fast path, hyper's
//! HTTP/1.1, and HTTP/2.
//!
//! A request is combined from lists of valid and invalid parts. Characters are inserted into some of the parts. Either
//! all codecs use the same cache key and forward the same request line and fields, or no codec forwards the request.
//! HTTP/2 is left out if it cannot express the request.
//!
//! `EDGEWARD_DIFFERENTIAL_CASES` sets the number of cases. A failed run prints its seed. To repeat the run, set
//! `EDGEWARD_DIFFERENTIAL_SEED` to this seed.

use std::sync::{Arc, Mutex};

use crate::codecs::{H2Request, for_hyper, send_h1, send_h2};
use crate::support::TestBed;
use edgeward_testkit::Answer;
use edgeward_types::ByteSize;
use http::Uri;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// A generated request, before it is encoded for a codec.
#[derive(Clone, Debug)]
struct GeneratedRequest {
    method: &'static str,
    authority: String,
    /// True if the target has a scheme and an authority.
    is_absolute: bool,
    /// Path and query. They start with `/` or `?`, unless the mutation has inserted another character at the front.
    /// `{}` is replaced by the salt, a text that differs from case to case.
    path: String,
    fields: Vec<(&'static str, String)>,
}

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The origin got no request.
    Refused,
    /// The origin got this request line and these fields, sorted.
    Forwarded(Vec<String>),
}

fn authority() -> impl Strategy<Value = String> {
    let host = prop::sample::select(vec![
        "shop.example",
        "SHOP.Example",
        "shop.example.",
        "127.0.0.1",
        "[::1]",
        "[2001:DB8::1]",
        "a_b",
    ]);
    let port = prop::sample::select(vec![
        "", ":", ":80", ":080", ":8080", ":443", ":65535", ":65536",
    ]);
    (host, port, mutation())
        .prop_map(|(host, port, mutation)| mutation.apply(format!("{host}{port}")))
}

fn path() -> impl Strategy<Value = String> {
    let path = prop::sample::select(vec![
        "/{}",
        "/{}?x=1",
        "?{}",
        "//{}",
        "/{}/../%2e/a",
        "/%41{}?a#b",
        "/{}*",
    ]);
    (path, mutation()).prop_map(|(path, mutation)| mutation.apply(path.to_owned()))
}

fn field() -> impl Strategy<Value = (&'static str, String)> {
    let name = prop::sample::select(vec![
        "accept",
        "accept-encoding",
        "accept-language",
        "cookie",
        "x-any",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-original-url",
        "forwarded",
        "te",
        "user-agent",
        "max-forwards",
        "via",
        "connection",
        "keep-alive",
        "range",
        "if-none-match",
    ]);
    let value = prop::sample::select(vec![
        "de",
        "DE, en;q=0.50",
        "d e",
        "x-gzip, br;q=1.0",
        "trailers",
        "a=1",
        "x-any",
        "accept-language, x-any",
        "bytes=0-1",
        "\"a\"",
        "1.1 other",
        "7",
        "",
    ]);
    (name, value, mutation()).prop_map(|(name, value, mutation)| {
        (name, mutation.apply(value.to_owned()).trim().to_owned())
    })
}

/// An additional character at a random position of a text, or no change.
#[derive(Clone, Copy, Debug)]
struct Mutation(Option<(char, prop::sample::Index)>);

impl Mutation {
    fn apply(self, mut text: String) -> String {
        if let Self(Some((character, index))) = self {
            let positions: Vec<usize> = (0..=text.len())
                .filter(|&at| text.is_char_boundary(at))
                .collect();
            text.insert(positions[index.index(positions.len())], character);
        }
        text
    }
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let character = prop::sample::select(vec![
        '@', ':', '.', '/', '?', '#', '%', '*', ' ', '\t', '\\', '"', '<', '[', ',', ';', 'A', 'é',
        '\u{7f}',
    ]);
    let some = (character, any::<prop::sample::Index>()).prop_map(Some);
    prop_oneof![4 => Just(None), 1 => some].prop_map(Mutation)
}

fn generated() -> impl Strategy<Value = GeneratedRequest> {
    let method = prop::sample::select(vec!["GET", "GET", "GET", "HEAD", "OPTIONS", "DELETE"]);
    let fields = prop::collection::vec(field(), 0..4);
    (method, authority(), any::<bool>(), path(), fields).prop_map(
        |(method, authority, is_absolute, path, fields)| GeneratedRequest {
            method,
            authority,
            is_absolute,
            path,
            fields,
        },
    )
}

impl GeneratedRequest {
    fn path(&self, salt: &str) -> String {
        self.path.replace("{}", salt)
    }

    fn as_h1(&self, salt: &str) -> String {
        let (method, authority, path) = (self.method, &self.authority, self.path(salt));
        let scheme = if self.is_absolute {
            format!("http://{authority}")
        } else {
            String::new()
        };
        let mut head = format!("{method} {scheme}{path} HTTP/1.1\r\nHost: {authority}\r\n");
        for (name, value) in &self.fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head + "\r\n"
    }

    /// Returns true if the HTTP/2 client can send the request. The request must have no connection options and
    /// no bytes that are invalid in a URI or a field value. It must have no fragment, because the HTTP/2
    /// library removes fragments. A target without authority must start with `/`.
    fn has_h2_form(&self, salt: &str) -> bool {
        let path = self.path(salt);
        let uri: Result<Uri, _> = format!("http://{}{path}", self.authority).parse();
        uri.is_ok_and(|uri| {
            uri.authority()
                .is_some_and(|authority| *authority == *self.authority)
                && uri.path_and_query().is_some_and(|target| *target == *path)
        }) && (self.is_absolute || path.starts_with('/'))
            && self.fields.iter().all(|(name, value)| {
                !matches!(*name, "connection" | "keep-alive")
                    && (*name != "te" || value == "trailers")
                    && http::HeaderValue::from_str(value).is_ok()
            })
    }
}

/// The heads that the origin got since the last call of [`forwarded`].
type Heads = Arc<Mutex<Vec<String>>>;

/// Returns the request that the origin got. The fields are sorted because their order has no meaning, and the
/// HTTP version in `Via` is normalized because it depends on the codec.
fn forwarded(heads: &Heads) -> Outcome {
    let heads = std::mem::take(&mut *heads.lock().expect("no holder of the lock panics"));
    assert!(heads.len() <= 1, "one request is forwarded at most once");
    let Some(head) = heads.first() else {
        return Outcome::Refused;
    };
    let mut lines: Vec<String> = head
        .trim_end()
        .split("\r\n")
        .map(|line| line.replace("2 edgeward-", "1.1 edgeward-"))
        .collect();
    lines.sort();
    Outcome::Forwarded(lines)
}

/// Sends one generated request to all codecs, and returns an error if they treat it differently.
fn compare(
    bed: &TestBed,
    heads: &Heads,
    number: usize,
    generated: &GeneratedRequest,
) -> Result<(), TestCaseError> {
    let fields: Vec<(&str, &str)> = generated
        .fields
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    // `for_hyper` adds an unknown connection option, so that the fast path passes the request to hyper.
    let senders: [RequestSender<'_>; 3] = [
        &|salt| {
            Some(ResponseSummary::of(Some(send_h1(
                bed.addr(),
                &generated.as_h1(salt),
            ))))
        },
        &|salt| {
            Some(ResponseSummary::of(Some(send_h1(
                bed.addr(),
                &for_hyper(&generated.as_h1(salt)),
            ))))
        },
        &|salt| {
            generated.has_h2_form(salt).then(|| {
                let path = generated.path(salt);
                let request = H2Request {
                    method: generated.method,
                    authority: Some(&generated.authority),
                    path: &path,
                    headers: &fields,
                    body: b"",
                };
                ResponseSummary::of(send_h2(bed.addr(), &request))
            })
        },
    ];
    // An earlier case that failed may have left a recorded head.
    heads.lock().expect("no holder of the lock panics").clear();
    // First comparison: the forwarded requests. The origin forbids storing these responses.
    let salt = format!("uncached{number}");
    let mut first: Option<Outcome> = None;
    for (codec, send) in ["fast", "hyper", "h2"].iter().zip(&senders) {
        let Some(response) = send(&salt) else {
            continue;
        };
        let outcome = forwarded(heads);
        // The edge itself answers an OPTIONS request with `Max-Forwards: 0`.
        if outcome == Outcome::Refused {
            prop_assert!(
                (400..600).contains(&response.status) || generated.method == "OPTIONS",
                "{codec}: {response:?}"
            );
        }
        match &first {
            None => first = Some(outcome),
            Some(first) => prop_assert_eq!(&outcome, first, "{}", codec),
        }
    }
    // Second comparison: the cache keys. The requests of all codecs after the first must hit the response that
    // the first request stored.
    let salt = format!("cacheable{number}");
    let mut is_stored = false;
    for (codec, send) in ["fast", "hyper", "h2"].iter().zip(&senders) {
        let Some(response) = send(&salt) else {
            continue;
        };
        if is_stored {
            // The body of a HEAD that is fetched with GET may still arrive. Requests that share the fetch have its key.
            let status = &response.cache_status;
            let has_key = status.contains("; hit") || status.contains("; collapsed");
            prop_assert!(has_key, "{codec}: {response:?}");
        }
        is_stored = is_stored || response.cache_status.contains("; stored");
        _ = forwarded(heads);
    }
    Ok(())
}

/// Sends the generated request with a salt in its path. Returns `None` if this codec cannot express it.
type RequestSender<'a> = &'a dyn Fn(&str) -> Option<ResponseSummary>;

#[derive(Debug)]
struct ResponseSummary {
    status: u16,
    cache_status: String,
}

impl ResponseSummary {
    /// Converts a response. A reset stream (`None`) counts as status 400.
    fn of(answer: Option<crate::support::Answer>) -> Self {
        Self {
            status: answer.as_ref().map_or(400, |answer| answer.status),
            cache_status: answer
                .map_or_else(String::new, |answer| answer.cache_status().to_owned()),
        }
    }
}

#[test]
fn all_codecs_use_one_key_for_a_request_and_forward_the_same_bytes() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let cases = number("EDGEWARD_DIFFERENTIAL_CASES").unwrap_or(300_u64);
    let seed = number("EDGEWARD_DIFFERENTIAL_SEED").or_else(|| number("PROPTEST_RNG_SEED"));
    let seed = seed.unwrap_or_else(random_seed);
    let mut seed_bytes = [0; 32];
    seed_bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: u32::try_from(cases).expect("the number of cases fits in a u32"),
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed_bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    // With slices, only the first request for a range whose response is not stored asks the origin for a slice. The
    // codecs would forward different ranges.
    let bed = TestBed::with_config(|config| config.ranges.slice_bytes = ByteSize(0));
    let heads = Heads::default();
    let recorded_heads = Arc::clone(&heads);
    bed.origin.otherwise(move |request| {
        let head = request.head().to_owned();
        recorded_heads
            .lock()
            .expect("no holder of the lock panics")
            .push(head);
        let cache_control = if request.target().contains("cacheable") {
            "max-age=600"
        } else {
            "no-store"
        };
        Answer::ok(request.head().to_owned())
            .header("cache-control", cache_control)
            .header(
                "vary",
                "accept, accept-encoding, accept-language, cookie, x-any, host, x-forwarded-proto",
            )
    });
    let count = std::cell::Cell::new(0);
    let result = runner.run(&generated(), |generated| {
        count.set(count.get() + 1);
        compare(&bed, &heads, count.get(), &generated)
    });
    if let Err(error) = result {
        panic!("EDGEWARD_DIFFERENTIAL_SEED={seed}: {error}");
    }
}

/// Returns a random seed. The standard library's hasher has random keys, so even the hash of no bytes is
/// random.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
