//! The JSON encoding of spans in OTLP over HTTP (OpenTelemetry protocol 1.x, `ExportTraceServiceRequest`), with the
//! attribute names of OpenTelemetry's semantic conventions for HTTP.
//!
//! Ids are hexadecimal, numbers of 64 bits are strings, and enumerations are numbers.

use std::time::Duration;

use serde_json::{Value, json};

use super::SampledRequest;
use crate::base::site_counters::CLIENT_LEFT;

/// Returns the body of a request to the collector. `name` is the name of this edge.
pub(crate) fn export_request(requests: &[Box<SampledRequest>], name: &str) -> Vec<u8> {
    let spans: Vec<Value> = requests
        .iter()
        .flat_map(|request| spans_of(request))
        .collect();
    let version = env!("CARGO_PKG_VERSION");
    let body = json!({
        "resourceSpans": [{
            "resource": { "attributes": [
                text("service.name", "edgeward"),
                text("service.version", version),
                text("service.instance.id", name),
            ] },
            "scopeSpans": [{
                "scope": { "name": "edgeward", "version": version },
                "spans": spans,
            }],
        }],
    });
    body.to_string().into_bytes()
}

/// The kinds of spans, `SpanKind`.
const INTERNAL: u32 = 1;
const SERVER: u32 = 2;
const CLIENT: u32 = 3;

/// `StatusCode.STATUS_CODE_ERROR`.
const ERROR: u32 = 2;

fn spans_of(request: &SampledRequest) -> Vec<Value> {
    let trace_id = format!("{:032x}", request.own.trace_id());
    let own_id = request.own.span_id();
    let span =
        |id: u64, parent: Option<u64>, name: &str, kind: u32, [start, end]: [Duration; 2]| {
            let mut span = json!({
                "traceId": trace_id,
                "spanId": format!("{id:016x}"),
                "name": name,
                "kind": kind,
                "startTimeUnixNano": (request.started_unix + start).as_nanos().to_string(),
                "endTimeUnixNano": (request.started_unix + end).as_nanos().to_string(),
                // The low byte has the flags of `traceparent`: sampled.
                "flags": 1,
            });
            if let Some(parent) = parent {
                span["parentSpanId"] = json!(format!("{parent:016x}"));
            }
            span
        };
    let (facts, mut fields) = request.text.read();
    let lossy = String::from_utf8_lossy;
    // Semantic conventions: the span's name is the method, because targets are too many for names.
    let method = lossy(facts.method.unwrap_or(b"HTTP"));
    let end = &request.end;
    let target = lossy(facts.target);
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut server = span(
        own_id,
        request.parent.map(|parent| parent.span_id()),
        &method,
        SERVER,
        [Duration::ZERO, end.duration],
    );
    let mut attributes = vec![
        text("http.request.method", &method),
        text("url.scheme", if facts.is_tls { "https" } else { "http" }),
        text("url.path", path),
        text("server.address", &lossy(facts.host)),
        text("client.address", &facts.peer.to_string()),
        text("network.protocol.name", "http"),
        text("edgeward.cache", end.outcome.as_str()),
        number("http.response.body.size", end.body_bytes),
    ];
    if !query.is_empty() {
        attributes.push(text("url.query", query));
    }
    if let Some(agent) = fields.next().flatten() {
        attributes.push(text("user_agent.original", &lossy(agent)));
    }
    if end.status != CLIENT_LEFT {
        attributes.push(number("http.response.status_code", end.status.into()));
    }
    if end.is_collapsed {
        attributes.push(json!({ "key": "edgeward.collapsed", "value": { "boolValue": true } }));
    }
    if end.is_aborted {
        attributes.push(json!({ "key": "edgeward.aborted", "value": { "boolValue": true } }));
    }
    server["attributes"] = attributes.into();
    // Semantic conventions: an error of the client is no error of the server.
    if end.status >= 500 || (end.is_aborted && end.status != CLIENT_LEFT) {
        server["status"] = json!({ "code": ERROR });
    }
    let mut spans = vec![server];
    if let Some(times) = request.lookup {
        spans.push(span(
            request.lookup_id,
            Some(own_id),
            "lookup",
            INTERNAL,
            times,
        ));
    }
    if let Some((start, head)) = request.fetch {
        let times = [start, head.unwrap_or(end.duration)];
        let mut fetch = span(request.fetch_id, Some(own_id), &method, CLIENT, times);
        fetch["attributes"] =
            json!([text("http.request.method", &method), text("url.path", path),]);
        spans.push(fetch);
    }
    spans
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use edgeward_semantics::TraceParent;

    use super::super::RequestEnd;
    use super::super::tests::text as request_text;
    use super::*;

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
