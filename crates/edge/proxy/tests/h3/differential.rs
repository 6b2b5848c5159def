//! Sends requests to the edge by HTTP/2 and by HTTP/3, and compares what the origin gets.
//!
//! A request is a list of fields, and content in pieces. Most lists are valid, and some have a part that RFC 9113 §8
//! and RFC 9114 §4 forbid in the same words. Either both protocols forward the same request line, fields and content,
//! or none forwards the request. HTTP/3 also refuses what the library of HTTP/2 repairs.

use std::cell::RefCell;

use edgeward_h3::FrameType;
use edgeward_proxy::config::ListenerConfig;
use edgeward_testkit::{Answer, RecordedRequest};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use quinn::VarInt;

use crate::Http3Bed;
use crate::client::{H3Client, frame, headers};
use crate::h2_frames::{self as h2, H2Client};
use crate::support::run;

/// A field of a request.
type Field = (&'static str, String);

/// A request, before it is encoded for a protocol.
#[derive(Clone, Debug)]
struct GeneratedRequest {
    /// With the pseudo-header fields. `{scheme}` stands for the scheme of the listener, `{}` for a salt.
    fields: Vec<Field>,
    content: Vec<&'static str>,
    trailers: Option<Vec<Field>>,
}

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The origin got no request, and the client this status. 400 if the stream or the connection was reset.
    Refused(u16),
    /// The origin got this request line, these fields, sorted, and this content.
    Forwarded(Vec<String>, Vec<u8>),
}

fn pseudo_fields() -> impl Strategy<Value = Vec<Field>> {
    let method = prop_oneof![
        6 => select(vec!["GET", "POST", "HEAD", "PUT", "OPTIONS"]),
        1 => select(vec!["CONNECT", "get", "G T", "", "G\u{7f}", "POST "]),
    ];
    let scheme = prop_oneof![
        9 => Just("{scheme}"),
        1 => select(vec!["ftp", "", "HTTP", "ht tp", "1a"]),
    ];
    let path = prop_oneof![
        6 => select(vec!["/{}", "/{}?q=1", "/%41{}", "//{}", "/{}\"<"]),
        1 => select(vec![
            "{}", "", "*", "/{}#f", "/{} x", "/{}\u{1}", "http://test.example/{}", "/{}\t", "?{}", "/{}\u{e9}",
        ]),
    ];
    let authority = prop_oneof![
        6 => select(vec!["test.example", "TEST.example", "test.example:8080", "[::1]"]),
        1 => select(vec![
            "", "user@test.example", "test example", "test.example:x", "test.example:99999", "a/b", "a?b", "a,b",
            "test.example ", "\u{1}",
        ]),
    ];
    (method, scheme, path, authority).prop_map(|(method, scheme, path, authority)| {
        let fields = [
            (":method", method),
            (":scheme", scheme),
            (":path", path),
            (":authority", authority),
        ];
        fields.map(|(name, value)| (name, value.to_owned())).into()
    })
}

/// A field that every request may have, or one that makes it malformed.
fn field() -> impl Strategy<Value = Field> {
    let valid = select(vec![
        ("accept", "text/html"),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
        ("host", "test.example"),
        ("te", "trailers"),
        ("x-any", ""),
        ("x-any", "\u{e9}"),
        ("x-any", "a\tb"),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-forwarded-proto", "gopher"),
        ("forwarded", "for=192.0.2.1"),
        ("via", "1.1 other"),
        ("max-forwards", "7"),
        ("priority", "u=1"),
        ("range", "bytes=0-1"),
        ("content-length", "5"),
    ]);
    let other = select(vec![
        ("connection", "close"),
        ("connection", "x-any"),
        ("keep-alive", "5"),
        ("proxy-connection", "close"),
        ("transfer-encoding", "chunked"),
        ("transfer-encoding", "identity"),
        ("upgrade", "websocket"),
        ("te", "gzip"),
        ("te", "trailers, deflate"),
        ("host", "other.example"),
        ("host", ""),
        ("content-length", "05"),
        ("content-length", "+5"),
        ("content-length", "5, 5"),
        ("content-length", "5 "),
        ("content-length", "-1"),
        ("content-length", ""),
        ("content-length", "18446744073709551617"),
        ("content-length", "0"),
        ("X-Upper", "a"),
        ("x any", "a"),
        ("x:any", "a"),
        ("", "a"),
        ("x\u{e9}", "a"),
        ("x-any", " a"),
        ("x-any", "a\t"),
        ("x-any", "a\rb"),
        ("x-any", "a\r\nb: c"),
        ("x-any", "a\0"),
        ("x-any", "a\u{7f}"),
        (":status", "200"),
        (":any", "a"),
        (":path", "/other"),
        (":protocol", "any"),
    ]);
    prop_oneof![3 => valid, 1 => other].prop_map(|(name, value)| (name, value.to_owned()))
}

fn trailers() -> impl Strategy<Value = Option<Vec<Field>>> {
    let trailer = select(vec![
        ("x-sum", "1"),
        ("content-length", "5"),
        ("transfer-encoding", "chunked"),
        ("connection", "close"),
        ("X-Upper", "a"),
        ("host", "other.example"),
        ("x-any", "a\nb"),
    ]);
    let trailer = trailer.prop_map(|(name, value)| (name, value.to_owned()));
    prop::option::weighted(0.2, prop::collection::vec(trailer, 1..3))
}

fn generated() -> impl Strategy<Value = GeneratedRequest> {
    // A pseudo-header field may be missing, or follow the other fields.
    let change = prop_oneof![8 => Just(None), 1 => (0..4_usize, any::<bool>()).prop_map(Some)];
    let content = prop::collection::vec(select(vec!["hello", "h", ""]), 0..3);
    let fields = prop::collection::vec(field(), 0..4);
    (pseudo_fields(), change, fields, content, trailers()).prop_map(
        |(mut all, change, fields, content, trailers)| {
            let moved = change.map(|(index, is_kept)| (all.remove(index), is_kept));
            all.push(("x-salt", "{}".to_owned()));
            all.extend(fields);
            all.extend(moved.and_then(|(field, is_kept)| is_kept.then_some(field)));
            GeneratedRequest {
                fields: all,
                content,
                trailers,
            }
        },
    )
}

impl GeneratedRequest {
    /// Returns true for requests that HTTP/3 refuses, and that HTTP/2 repairs: an empty or repeated Content-Length,
    /// spaces around a value, a path with a fragment or without `/`, and content after a Content-Length of 0. HTTP/2
    /// drops the part, or forwards it as it came.
    fn has_part_that_h2_accepts(&self) -> bool {
        let has_content = self.content.iter().any(|piece| !piece.is_empty());
        let lengths = self
            .fields
            .iter()
            .filter(|(name, _)| *name == "content-length");
        if lengths.count() > 1 {
            return true;
        }
        self.fields.iter().any(|(name, value)| match *name {
            ":path" => value.starts_with('?') || value.contains('#'),
            "content-length" => value.is_empty() || (value == "0" && has_content),
            "x-any" => value.trim_matches([' ', '\t']) != value,
            _ => false,
        })
    }

    fn fields(&self, scheme: &str, salt: &str) -> Vec<Field> {
        let fields = self.fields.iter();
        let fields = fields.map(|(name, value)| {
            let value = value.replace("{scheme}", scheme).replace("{}", salt);
            (*name, value)
        });
        fields.collect()
    }
}

fn texts(fields: &[Field]) -> Vec<(&str, &str)> {
    let fields = fields.iter();
    fields
        .map(|(name, value)| (*name, value.as_str()))
        .collect()
}

/// Sends a request on a new connection of HTTP/2. Returns the status of the response, or `None` without one.
fn send_h2(addr: std::net::SocketAddr, request: &GeneratedRequest, salt: &str) -> Option<u16> {
    let block = |fields: &[Field]| {
        let mut block = Vec::new();
        for (name, value) in fields {
            h2::literal(&mut block, 0, name, value);
        }
        block
    };
    let has_content = !request.content.is_empty();
    let end = |is_last| if is_last { h2::END_STREAM } else { 0 };
    let ends = end(!has_content && request.trailers.is_none());
    let head = block(&request.fields("http", salt));
    let mut bytes = h2::frame(h2::HEADERS, h2::END_HEADERS | ends, 1, &head);
    for (number, piece) in request.content.iter().enumerate() {
        let is_last = number + 1 == request.content.len() && request.trailers.is_none();
        bytes.extend(h2::frame(h2::DATA, end(is_last), 1, piece.as_bytes()));
    }
    if let Some(trailers) = &request.trailers {
        let flags = h2::END_HEADERS | h2::END_STREAM;
        bytes.extend(h2::frame(h2::HEADERS, flags, 1, &block(trailers)));
    }
    let mut client = H2Client::connect(addr);
    if !client.try_send(&bytes) {
        return None;
    }
    loop {
        let frame = client.frame()?;
        match frame.kind {
            h2::HEADERS => return Some(h2::status_of(&frame.payload)),
            h2::RST_STREAM | h2::GOAWAY => return None,
            _ => {}
        }
    }
}

/// Like [`send_h2`], on a new stream of HTTP/3.
async fn send_h3(client: &H3Client, request: &GeneratedRequest, salt: &str) -> Option<u16> {
    let mut bytes = headers(&texts(&request.fields("https", salt)));
    for piece in &request.content {
        bytes.extend(frame(FrameType::DATA, piece.as_bytes()));
    }
    if let Some(trailers) = &request.trailers {
        bytes.extend(headers(&texts(trailers)));
    }
    let mut stream = client.open().await;
    stream.write(&bytes).await;
    _ = stream.sending.finish();
    let answer = stream.read_all().await.ok()?;
    Some(answer.status)
}

/// Returns the outcome of the request with this salt. A request that the edge has aborted is not complete.
///
/// The scheme and the version in fields of the edge depend on the listener and the protocol.
fn outcome(status: Option<u16>, recorded: &[RecordedRequest], salt: &str) -> Outcome {
    let mut requests = recorded.iter();
    let request =
        requests.find(|request| request.header("x-salt") == Some(salt) && request.is_complete());
    let Some(request) = request else {
        return Outcome::Refused(status.unwrap_or(400));
    };
    let lines = request.head().trim_end().split("\r\n");
    let mut lines: Vec<String> = lines
        .map(|line| {
            let line = line.replace("3 edgeward-", "2 edgeward-");
            let line = line.replace(salt, "");
            line.replace("proto=https", "proto=http")
                .replace("Proto: https", "Proto: http")
                .replace("proto: https", "proto: http")
        })
        .collect();
    lines.sort();
    Outcome::Forwarded(lines, request.body().to_vec())
}

#[test]
fn http2_and_http3_forward_the_same_requests() {
    let http3 = Http3Bed::with_config(|config| {
        let plain = ListenerConfig {
            tls: None,
            http3: false,
            ..config.listeners[0].clone()
        };
        config.listeners.push(plain);
    });
    http3
        .bed
        .origin
        .otherwise(|_| Answer::ok("hello").header("cache-control", "no-store"));
    let plain_addr = http3.bed.edge.addrs()[1];
    let count = RefCell::new(0);
    let seed = std::env::var("PROPTEST_RNG_SEED");
    let config = Config {
        cases: 250,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let checked = runner.run(&generated(), |generated| {
        let salt = count.replace_with(|count| *count + 1);
        let by_h2 = {
            let salt = format!("h2-{salt}");
            let status = send_h2(plain_addr, &generated, &salt);
            outcome(status, &http3.bed.origin.recorded(), &salt)
        };
        let by_h3 = {
            let salt = format!("h3-{salt}");
            let status = run(async {
                let client = http3.connect().await;
                let status = send_h3(&client, &generated, &salt).await;
                client.quic.close(VarInt::from_u32(0x100), b"");
                status
            });
            outcome(status, &http3.bed.origin.recorded(), &salt)
        };
        match generated.has_part_that_h2_accepts() {
            true => prop_assert!(matches!(by_h3, Outcome::Refused(_)), "{by_h3:?}"),
            false => prop_assert_eq!(by_h3, by_h2),
        }
        Ok::<_, TestCaseError>(())
    });
    if let Err(error) = checked {
        panic!("PROPTEST_RNG_SEED={seed:?}: {error}");
    }
}
