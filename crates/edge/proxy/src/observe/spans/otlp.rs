//! The JSON encoding of spans in OTLP over HTTP (OpenTelemetry protocol 1.x, `ExportTraceServiceRequest`), with the
//! attribute names of OpenTelemetry's semantic conventions for HTTP.
//!
//! Ids are hexadecimal, numbers of 64 bits are strings, and enumerations are numbers. The structures have the names of
//! the protocol, and are written without a tree of JSON values in between.

use std::borrow::Cow;
use std::time::Duration;

use edgeward_types::hidden::visible_json;
use serde::{Serialize, Serializer};

use super::sampled::SampledRequest;
use crate::observe::labels::Label as _;
use crate::observe::site_counters::CLIENT_LEFT;

/// Returns the body of a request to the collector. `name` is the name of this edge.
pub(crate) fn export_request(requests: &[Box<SampledRequest>], name: &str) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let body = ExportTraceServiceRequest {
        resource_spans: [ResourceSpans {
            resource: Resource {
                attributes: [
                    text("service.name", "edgeward"),
                    text("service.version", version),
                    text("service.instance.id", name),
                ],
            },
            scope_spans: [ScopeSpans {
                scope: Scope {
                    name: "edgeward",
                    version,
                },
                spans: requests
                    .iter()
                    .flat_map(|request| spans_of(request))
                    .collect(),
            }],
        }],
    };
    let json = serde_json::to_string(&body);
    let json = json.expect("the keys are strings, and the values can be serialized");
    visible_json(&json).into_owned().into()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExportTraceServiceRequest<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: Resource<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct Resource<'a> {
    attributes: [KeyValue<'a>; 3],
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Scope,
    spans: Vec<Span<'a>>,
}

#[derive(Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Span<'a> {
    #[serde(serialize_with = "trace_id")]
    trace_id: u128,
    #[serde(serialize_with = "span_id")]
    span_id: u64,
    #[serde(
        serialize_with = "span_id_or_nothing",
        skip_serializing_if = "Option::is_none"
    )]
    parent_span_id: Option<u64>,
    name: Cow<'a, str>,
    kind: u32,
    #[serde(serialize_with = "decimal")]
    start_time_unix_nano: u128,
    #[serde(serialize_with = "decimal")]
    end_time_unix_nano: u128,
    /// The low byte has the flags of `traceparent`.
    flags: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<KeyValue<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

#[derive(Serialize)]
struct KeyValue<'a> {
    key: &'static str,
    value: AnyValue<'a>,
}

#[derive(Serialize)]
enum AnyValue<'a> {
    #[serde(rename = "stringValue")]
    Text(Cow<'a, str>),
    #[serde(rename = "intValue")]
    Number(#[serde(serialize_with = "decimal")] u128),
    #[serde(rename = "boolValue")]
    Flag(bool),
}

#[derive(Serialize)]
struct Status {
    code: u32,
}

/// The kinds of spans, `SpanKind`.
const INTERNAL: u32 = 1;
const SERVER: u32 = 2;
const CLIENT: u32 = 3;

/// The flag of `traceparent`.
const SAMPLED: u32 = 1;

/// `StatusCode.STATUS_CODE_ERROR`.
const ERROR: u32 = 2;

fn spans_of(request: &SampledRequest) -> Vec<Span<'_>> {
    let own_id = request.own.span_id();
    let (facts, mut fields) = request.text.read();
    let lossy = String::from_utf8_lossy;
    // Semantic conventions: the span's name is the method, because targets are too many for names.
    let method = lossy(facts.method.unwrap_or(b"HTTP"));
    let end = &request.end;
    let span = |span_id, parent_span_id, kind, [start, end]: [Duration; 2]| Span {
        trace_id: request.own.trace_id(),
        span_id,
        parent_span_id,
        name: method.clone(),
        kind,
        start_time_unix_nano: (request.started_unix + start).as_nanos(),
        end_time_unix_nano: (request.started_unix + end).as_nanos(),
        flags: SAMPLED,
        attributes: Vec::new(),
        status: None,
    };
    let (path, query) = match facts.target.iter().position(|&byte| byte == b'?') {
        Some(at) => (lossy(&facts.target[..at]), lossy(&facts.target[at + 1..])),
        None => (lossy(facts.target), Cow::Borrowed("")),
    };
    let mut server = span(
        own_id,
        request.parent.map(|parent| parent.span_id()),
        SERVER,
        [Duration::ZERO, end.duration],
    );
    server.attributes = vec![
        text("http.request.method", method.clone()),
        text("url.scheme", if facts.is_tls { "https" } else { "http" }),
        text("url.path", path.clone()),
        text("server.address", lossy(facts.host)),
        text("client.address", facts.peer.to_string()),
        text("network.protocol.name", "http"),
        text("edgeward.cache", end.outcome.as_str()),
        number("http.response.body.size", end.body_bytes),
    ];
    let attributes = &mut server.attributes;
    if !query.is_empty() {
        attributes.push(text("url.query", query));
    }
    if let Some(agent) = fields.next().flatten() {
        attributes.push(text("user_agent.original", lossy(agent)));
    }
    if end.status != CLIENT_LEFT {
        attributes.push(number("http.response.status_code", end.status.into()));
    }
    if end.is_collapsed {
        attributes.push(is_true("edgeward.collapsed"));
    }
    if end.is_aborted {
        attributes.push(is_true("edgeward.aborted"));
    }
    // Semantic conventions: an error of the client is no error of the server.
    let is_error = end.status >= 500 || (end.is_aborted && end.status != CLIENT_LEFT);
    server.status = is_error.then_some(Status { code: ERROR });
    let mut spans = vec![server];
    if let Some(times) = request.lookup {
        spans.push(Span {
            name: "lookup".into(),
            ..span(request.lookup_id, Some(own_id), INTERNAL, times)
        });
    }
    if let Some((start, head)) = request.fetch {
        let times = [start, head.unwrap_or(end.duration)];
        let attributes = vec![
            text("http.request.method", method.clone()),
            text("url.path", path),
        ];
        spans.push(Span {
            attributes,
            ..span(request.fetch_id, Some(own_id), CLIENT, times)
        });
    }
    spans
}

fn text<'a>(key: &'static str, value: impl Into<Cow<'a, str>>) -> KeyValue<'a> {
    let value = AnyValue::Text(value.into());
    KeyValue { key, value }
}

fn number(key: &'static str, value: u64) -> KeyValue<'static> {
    let value = AnyValue::Number(value.into());
    KeyValue { key, value }
}

fn is_true(key: &'static str) -> KeyValue<'static> {
    let value = AnyValue::Flag(true);
    KeyValue { key, value }
}

fn trace_id<S: Serializer>(id: &u128, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{id:032x}"))
}

fn span_id<S: Serializer>(id: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{id:016x}"))
}

fn span_id_or_nothing<S: Serializer>(id: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    span_id(&id.unwrap_or_default(), serializer)
}

fn decimal<S: Serializer>(number: &u128, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use edgeward_semantics::TraceParent;
    use serde_json::Value;

    use super::*;
    use crate::observe::spans::RequestEnd;
    use crate::observe::spans::tests::text as request_text;

    #[test]
    fn a_sampled_request_becomes_its_spans() {
        let parent = TraceParent::new(0xa, 0xb, true);
        let millis = Duration::from_millis;
        let request = SampledRequest {
            text: request_text(),
            parent: Some(parent),
            own: parent.with_span(0xc, true),
            fetch_id: 0xd,
            lookup_id: 0xe,
            started_at: Instant::now(),
            started_unix: Duration::from_secs(951_827_696),
            lookup: Some([Duration::ZERO, millis(1)]),
            fetch: Some((millis(2), Some(millis(5)))),
            end: RequestEnd {
                status: 502,
                body_bytes: 5,
                duration: millis(9),
                ..RequestEnd::default()
            },
        };
        let body = export_request(&[Box::new(request)], "edge-1");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
        let ids: Vec<_> = spans
            .as_array()
            .expect("a list")
            .iter()
            .map(|span| {
                assert_eq!(span["traceId"], "0000000000000000000000000000000a");
                (
                    span["spanId"].as_str().expect("text"),
                    span["parentSpanId"].as_str().expect("text"),
                    span["kind"].as_u64().expect("a number"),
                    span["endTimeUnixNano"].as_str().expect("text"),
                )
            })
            .collect();
        assert_eq!(
            ids,
            [
                (
                    "000000000000000c",
                    "000000000000000b",
                    2,
                    "951827696009000000"
                ),
                (
                    "000000000000000e",
                    "000000000000000c",
                    1,
                    "951827696001000000"
                ),
                (
                    "000000000000000d",
                    "000000000000000c",
                    3,
                    "951827696005000000"
                ),
            ]
        );
        assert_eq!(spans[0]["status"]["code"], 2);
        let attributes = spans[0]["attributes"].to_string();
        for expected in [
            r#"{"key":"http.response.status_code","value":{"intValue":"502"}}"#,
            r#"{"key":"url.query","value":{"stringValue":"b=\"c\""}}"#,
            r#"{"key":"user_agent.original","value":{"stringValue":"curl"}}"#,
        ] {
            assert!(attributes.contains(expected), "{attributes}");
        }
    }
}
