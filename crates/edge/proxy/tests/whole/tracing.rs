//! Traces: a stand-in of a collector receives the spans of sampled requests, and the origin gets `traceparent`.

use std::time::Instant;

use crate::support::{Client, TIMEOUT, TestBed};
use edgeward_proxy::config::{SampledFlag, TracingConfig};
use edgeward_testkit::{Answer, ScriptedOrigin};
use serde_json::Value;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// An edge that exports spans, and its collector.
struct Traced {
    bed: TestBed,
    collector: ScriptedOrigin,
}

impl Traced {
    fn start(sample: f64, sampled_flag: SampledFlag) -> Self {
        let collector = ScriptedOrigin::start();
        collector.on("/v1/traces", Answer::ok("{}"));
        let bed = TestBed::with_config(|config| {
            let endpoint = format!("http://{}", collector.addr());
            let mut tracing = TracingConfig::new(endpoint.parse().expect("a URL"));
            (tracing.sample, tracing.sampled_flag) = (sample, sampled_flag);
            config.tracing = Some(tracing);
        });
        let page = Answer::ok("hello").header("cache-control", "max-age=60");
        bed.origin.on("/page", page);
        Self { bed, collector }
    }

    /// Waits until the collector has at least `count` spans, and returns all spans.
    fn spans(&self, count: usize) -> Vec<Value> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let spans: Vec<Value> = self
                .collector
                .recorded()
                .iter()
                .filter(|request| {
                    // The collector records a request before its body has arrived.
                    let length = request.body().len().to_string();
                    request.header("content-length") == Some(&length)
                })
                .flat_map(|request| {
                    assert_eq!(request.header("content-type"), Some("application/json"));
                    let body: Value = serde_json::from_slice(request.body()).expect("JSON");
                    let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].clone();
                    spans.as_array().expect("a list of spans").clone()
                })
                .collect();
            if spans.len() >= count {
                return spans;
            }
            assert!(Instant::now() < deadline, "{count} spans, only {spans:?}");
            std::thread::park_timeout(std::time::Duration::from_millis(5));
        }
    }
}

fn text<'a>(span: &'a Value, key: &str) -> &'a str {
    span[key].as_str().unwrap_or_default()
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let attributes = span["attributes"].as_array().expect("a list");
    let found = attributes.iter().find(|attribute| attribute["key"] == key);
    found.map_or(&Value::Null, |attribute| &attribute["value"])
}

/// A miss has the spans request, lookup and fetch; a hit of the fast path has request and lookup.
#[test]
fn a_sampled_request_has_spans_from_the_client_to_the_origin() {
    let traced = Traced::start(1.0, SampledFlag::Trusted);
    for _ in 0..2 {
        let fields = [
            ("traceparent", PARENT),
            ("tracestate", "a=b"),
            ("user-agent", "x"),
        ];
        traced.bed.get_with("/page", &fields);
    }
    let spans = traced.spans(5);
    assert_eq!(spans.len(), 5, "{spans:?}");
    let of_kind = |kind: u64| spans.iter().filter(move |span| span["kind"] == kind);
    let servers: Vec<_> = of_kind(2).collect();
    assert_eq!(servers.len(), 2);
    for span in &spans {
        assert_eq!(text(span, "traceId"), &PARENT[3..35]);
        assert!(text(span, "startTimeUnixNano") <= text(span, "endTimeUnixNano"));
    }
    for server in &servers {
        assert_eq!(text(server, "parentSpanId"), &PARENT[36..52]);
        assert_eq!(text(server, "name"), "GET");
        assert_eq!(attribute(server, "url.path")["stringValue"], "/page");
        assert_eq!(
            attribute(server, "http.response.status_code")["intValue"],
            "200"
        );
        assert_eq!(
            attribute(server, "http.response.body.size")["intValue"],
            "5"
        );
        assert_eq!(attribute(server, "user_agent.original")["stringValue"], "x");
        let children = spans
            .iter()
            .filter(|span| span["parentSpanId"] == server["spanId"]);
        let expected = match attribute(server, "edgeward.cache")["stringValue"].as_str() {
            Some("hit") => 1,
            Some("uri-miss") => 2,
            other => panic!("{other:?}"),
        };
        assert_eq!(children.count(), expected);
    }
    let fetch = of_kind(3).next().expect("the miss has a fetch");
    let at_origin = traced.bed.origin.last("/page").expect("a request");
    let sent = at_origin.header("traceparent").expect("the origin gets it");
    let expected = format!("{}-{}-01", &PARENT[..35], text(fetch, "spanId"));
    assert_eq!(sent, expected);
    assert_eq!(at_origin.header("tracestate"), Some("a=b"));
    traced
        .bed
        .wait_for_metric("edgeward_traces_total{result=\"sent\"}", 2.0);
}

/// The histogram of durations names the trace of a sampled request, for clients that accept OpenMetrics. Others get the
/// text format of Prometheus, which has no exemplars.
#[test]
fn a_duration_of_open_metrics_has_the_trace_of_its_request() {
    let traced = Traced::start(1.0, SampledFlag::Trusted);
    for _ in 0..2 {
        traced.bed.get_with("/page", &[("traceparent", PARENT)]);
    }
    traced.spans(5);
    let scrape = |accept: &[(&str, &str)]| traced.bed.admin_client().get("/metrics", accept);
    let prometheus =
        "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    let open = scrape(&[("accept", prometheus)]);
    let media = open.field("content-type");
    assert_eq!(
        media,
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    let traces = open
        .text()
        .lines()
        .filter_map(|line| line.split_once(" # {trace_id=\""));
    let traces: Vec<_> = traces.collect();
    for outcome in ["hit", "miss"] {
        let series = format!(
            "edgeward_request_duration_seconds_bucket{{site=\"default\",outcome=\"{outcome}\",le="
        );
        let of_series = traces
            .iter()
            .filter(|(sample, _)| sample.starts_with(&series));
        let ids: Vec<_> = of_series.map(|(_, exemplar)| &exemplar[..32]).collect();
        assert_eq!(ids, [&PARENT[3..35]], "{}", open.text());
    }
    assert_eq!(traces.len(), 2);
    let text = scrape(&[("accept", "text/plain")]);
    assert!(
        text.field("content-type")
            .starts_with("text/plain; version=0.0.4")
    );
    assert!(!text.text().contains("trace_id") && !text.text().contains("# EOF"));
}

/// Without traces there are no exemplars, so that all clients get the format of Prometheus.
#[test]
fn without_traces_no_client_gets_open_metrics() {
    let bed = TestBed::start();
    let accept = [("accept", "application/openmetrics-text;version=1.0.0")];
    let metrics = bed.admin_client().get("/metrics", &accept);
    let media = metrics.field("content-type");
    assert!(media.starts_with("text/plain; version=0.0.4"), "{media}");
    assert!(!metrics.text().contains("# EOF"));
}

/// An invalid `traceparent` begins a new trace. Without sampling, the field is forwarded like any other.
#[test]
fn an_invalid_traceparent_is_replaced_only_if_the_request_is_sampled() {
    let invalid = PARENT.to_uppercase();
    let fields = [("traceparent", invalid.as_str()), ("tracestate", "a=b")];
    let traced = Traced::start(1.0, SampledFlag::Never);
    traced.bed.get_with("/page", &fields);
    let sent = traced.bed.origin.last("/page").expect("a request");
    let server = &traced.spans(3)[0];
    let trace_id = text(server, "traceId");
    assert!(
        sent.header("traceparent")
            .expect("sampled")
            .starts_with(&format!("00-{trace_id}-"))
    );
    assert_ne!(trace_id, &PARENT[3..35]);
    assert_eq!(server.get("parentSpanId"), None);
    assert_eq!(sent.header("tracestate"), None);

    let untraced = Traced::start(0.0, SampledFlag::Never);
    untraced.bed.get_with("/page", &fields);
    let sent = untraced.bed.origin.last("/page").expect("a request");
    assert_eq!(sent.header("traceparent"), Some(invalid.as_str()));
    assert_eq!(sent.header("tracestate"), Some("a=b"));
}

/// With the share 0, only the flag of the client samples a request, if the setting allows it.
#[test]
fn the_sampled_flag_decides_as_the_setting_says() {
    for (flag, expected) in [
        (SampledFlag::Always, 2),
        (SampledFlag::Never, 0),
        (SampledFlag::Trusted, 0),
    ] {
        let traced = Traced::start(0.0, flag);
        let mut client = traced.bed.connect();
        for (fields, _) in [(&[("traceparent", PARENT)][..], true), (&[], false)] {
            client.get("/page", fields);
            client.get("/page", fields);
        }
        drop(client);
        traced
            .bed
            .wait_for_metric("edgeward_client_connections", 0.0);
        traced.bed.edge.shutdown(TIMEOUT);
        let exported = traced.collector.recorded().len();
        assert_eq!(exported > 0, expected > 0, "{flag:?}");
    }
}

/// A full queue drops, an unreachable collector fails, and requests are answered.
#[test]
fn requests_do_not_wait_for_a_collector_that_does_not_answer() {
    let bed = TestBed::with_config(|config| {
        let endpoint = format!("http://{}", ScriptedOrigin::unused_addr());
        let mut tracing = TracingConfig::new(endpoint.parse().expect("a URL"));
        tracing.sample = 1.0;
        tracing.queue_requests_max = std::num::NonZeroUsize::new(4).expect("not zero");
        config.tracing = Some(tracing);
        config.workers = std::num::NonZeroUsize::MIN;
    });
    bed.origin.on(
        "/page",
        Answer::ok("hello").header("cache-control", "max-age=60"),
    );
    let request = "GET /page HTTP/1.1\r\nhost: test.example\r\n\r\n";
    let mut client = Client::connect(bed.addr());
    for _ in 0..20 {
        client.send(request.repeat(30).as_bytes());
        (0..30).for_each(|_| assert_eq!(client.answer("GET").status, 200));
    }
    drop(client);
    bed.wait_until("every sampled request is counted", |_| {
        let failed = bed.metric("edgeward_traces_total{result=\"failed\"}");
        failed > 0.0 && failed + bed.metric("edgeward_traces_dropped_total") == 600.0
    });
}
