//! The metrics of requests and the access log describe the same requests: each request is counted once, under one
//! outcome and one status, and has one line.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::codecs::{H2Request, for_hyper, send_h1, send_h2};
use crate::support::{TIMEOUT, TestBed};
use edgeward_proxy::config::{AccessLogConfig, LogDestination, LogFormat, OriginConfig};
use edgeward_sites::{Settings, Site, Sites};
use edgeward_testkit::{Answer, Gate, ScriptedOrigin};
use serde_json::Value;

/// The sum of the values of all series of a metric whose labels contain `label`.
fn sum(metrics: &str, name: &str, label: &str) -> u64 {
    let values = metrics.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let labels = series.strip_prefix(name)?.strip_prefix('{')?;
        labels.contains(label).then(|| value.parse::<f64>())?.ok()
    });
    values.sum::<f64>() as u64
}

/// The counts of `edgeward_requests_total` that are not zero, by outcome.
fn counted_outcomes(metrics: &str) -> BTreeMap<String, u64> {
    let counts = metrics.lines().filter_map(|line| {
        let series = line.strip_prefix("edgeward_requests_total{outcome=\"")?;
        let (outcome, count) = series.split_once("\"} ")?;
        Some((outcome.to_owned(), count.parse::<f64>().ok()? as u64))
    });
    counts.filter(|(_, count)| *count > 0).collect()
}

/// An edge whose requests are logged in JSON, and the log's file in a temporary folder.
fn bed_with_log() -> (TestBed, tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("the folder can be created");
    let path = folder.path().join("access.log");
    let bed = TestBed::with_config(|config| {
        let destination = LogDestination::File(path.clone());
        config.access_log = Some(AccessLogConfig::new(destination, LogFormat::Json));
    });
    (bed, folder, path)
}

/// Waits until no request is under way, and returns the metrics.
fn metrics_at_rest(bed: &TestBed) -> String {
    bed.wait_for_metric("edgeward_client_connections", 0.0);
    bed.metrics()
}

/// Method: requests of all kinds by all codecs, also requests that are refused, that fail and whose clients leave.
#[test]
fn metrics_and_access_log_agree_to_the_request_and_to_the_byte() {
    let (bed, _folder, path) = bed_with_log();
    let cacheable = |answer: Answer| answer.header("cache-control", "max-age=600");
    bed.origin.on(
        "/page",
        cacheable(Answer::ok("0123456789")).header("etag", "\"1\""),
    );
    bed.origin.on("/empty", cacheable(Answer::ok("")));
    bed.origin.on("/big", cacheable(Answer::pattern(8 << 20)));
    bed.origin.on(
        "/chunked",
        cacheable(Answer::pattern(300_000).chunked(7_000)),
    );
    bed.origin.on(
        "/private",
        Answer::pattern(5_000).header("cache-control", "no-store"),
    );
    bed.origin.on("/gone", cacheable(Answer::status(410)));
    bed.origin.on("/teapot", Answer::status(418));
    bed.origin
        .on("/broken", Answer::pattern(9_000).close_at(4_000));
    bed.origin
        .on("/never", Answer::never().wait_before_head(&Gate::new()));
    let addr = bed.addr();
    let mut requests = 0_u64;
    for path in [
        "/page", "/empty", "/chunked", "/private", "/gone", "/teapot", "/page?q",
    ] {
        for method in ["GET", "HEAD", "GET", "POST"] {
            let plain = format!(
                "{method} {path} HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 0\r\n\r\n"
            );
            let plain = match method {
                "POST" => plain,
                _ => plain.replace("content-length: 0\r\n", ""),
            };
            send_h1(addr, &plain);
            send_h1(addr, &for_hyper(&plain));
            let h2 = H2Request {
                method,
                path,
                ..H2Request::default()
            };
            send_h2(addr, &h2).expect("a response");
            requests += 3;
        }
    }
    // Conditions, ranges and pipelined requests of one connection.
    let mut client = bed.connect();
    for fields in [
        &[("if-none-match", "\"1\"")][..],
        &[("range", "bytes=2-4")],
        &[("range", "bytes=99-")],
        &[("cache-control", "no-cache")],
        &[("cache-control", "only-if-cached")],
        &[],
    ] {
        client.get("/page", fields);
        requests += 1;
    }
    client.send(
        "GET /page HTTP/1.1\r\nhost: test.example\r\n\r\n"
            .repeat(3)
            .as_bytes(),
    );
    (0..3).for_each(|_| _ = client.answer("GET"));
    requests += 3;
    drop(client);
    // Requests that are refused: by the parsers, by the edge, and by a final recipient that needs no lookup.
    for request in [
        "GET / HTTP/1.1\r\nhost: a\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET /#fragment HTTP/1.1\r\nhost: a\r\n\r\n",
        "TRACE / HTTP/1.1\r\nhost: a\r\n\r\n",
        "OPTIONS / HTTP/1.1\r\nhost: a\r\nmax-forwards: 0\r\n\r\n",
        "GET /absent HTTP/1.1\r\nhost: a\r\ncache-control: only-if-cached\r\n\r\n",
        "PURGE /page HTTP/1.1\r\nhost: a\r\n\r\n",
    ] {
        send_h1(addr, request);
        requests += 1;
    }
    metrics_at_rest(&bed);
    // Responses that end early: by the origin, and by clients that leave during and before the response.
    for fields in [&[][..], &[("range", "bytes=0-")]] {
        let mut client = bed.connect();
        client.send_head("GET", "/broken", fields);
        // The edge may close the connection before it has sent the head.
        if client.try_head().is_some() {
            client.read_up_to(9_000);
        }
        drop(client);
        metrics_at_rest(&bed);
        let mut client = bed.connect();
        client.send_head("GET", "/big", fields);
        client.read_up_to(100_000);
        client.reset();
        metrics_at_rest(&bed);
        bed.get("/big");
        let mut client = bed.connect();
        client.send_head("GET", "/big", fields);
        client.read_up_to(100_000);
        client.reset();
        metrics_at_rest(&bed);
        requests += 4;
    }
    // hyper would notice that the client has left only when the origin answers.
    let mut client = bed.connect();
    client.send_head("GET", "/never", &[]);
    bed.origin.wait_until("the request arrived", |origin| {
        origin.requests("/never") == 1
    });
    client.reset();
    requests += 1;

    let metrics = metrics_at_rest(&bed);
    bed.edge.shutdown(TIMEOUT);
    let log = std::fs::read_to_string(&path).expect("the log can be read");
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("one JSON object per line"))
        .collect();
    let bytes: u64 = lines.iter().filter_map(|line| line["bytes"].as_u64()).sum();
    let mut statuses = BTreeMap::new();
    let mut outcomes = BTreeMap::new();
    for line in &lines {
        *statuses.entry(line["status"].as_u64()).or_insert(0_u64) += 1;
        let outcome = line["cache"].as_str().expect("a word").to_owned();
        *outcomes.entry(outcome).or_insert(0_u64) += 1;
    }
    // The word of each line is the outcome under which its request was counted.
    assert_eq!(outcomes, counted_outcomes(&metrics), "{metrics}");
    assert_eq!(lines.len() as u64, requests, "{statuses:?}");
    for name in [
        "edgeward_requests_total",
        "edgeward_responses_total",
        "edgeward_request_duration_seconds_count",
    ] {
        assert_eq!(sum(&metrics, name, ""), requests, "{name} in\n{metrics}");
    }
    for (status, count) in statuses {
        let status = status.expect("a status");
        let label = match status {
            418 => "4xx".to_owned(),
            status => status.to_string(),
        };
        let label = format!("status=\"{label}\"");
        assert_eq!(
            sum(&metrics, "edgeward_responses_total", &label),
            count,
            "{status}"
        );
    }
    assert_eq!(
        sum(&metrics, "edgeward_responses_total", "status=\"499\""),
        1
    );
    assert_eq!(
        sum(&metrics, "edgeward_response_body_bytes_total", ""),
        bytes
    );
    let counted = metrics
        .lines()
        .find_map(|line| line.strip_prefix("edgeward_response_bytes_total "));
    assert_eq!(
        counted.and_then(|count| count.parse().ok()),
        Some(bytes as f64)
    );
    // The outcomes of the durations are classes of the outcomes of the requests.
    let durations = |outcome: &str| {
        let label = format!("outcome=\"{outcome}\"");
        sum(&metrics, "edgeward_request_duration_seconds_count", &label)
    };
    let of = |outcome: &str| {
        let label = format!("outcome=\"{outcome}\"");
        sum(&metrics, "edgeward_requests_total", &label)
    };
    assert!(of("hit") > 20, "{metrics}");
    assert_eq!(durations("hit"), of("hit"));
    assert_eq!(durations("pass"), of("method") + of("bypass"));
    assert_eq!(durations("refused"), of("refused") + of("only-if-cached"));
    assert_eq!(durations("none"), of("none"));
}

/// A duration lasts until the client has read the response. The origin's first byte is measured without its body.
#[test]
fn durations_are_counted_in_the_bucket_of_their_length() {
    let bed = TestBed::start();
    let (head, body) = (Gate::new(), Gate::new());
    let answer = Answer::pattern(100)
        .wait_before_head(&head)
        .wait_at(50, &body);
    bed.origin
        .on("/slow", answer.header("cache-control", "max-age=60"));
    let mut client = bed.connect();
    client.send_head("GET", "/slow", &[]);
    head.wait_reached(1);
    std::thread::park_timeout(std::time::Duration::from_millis(21));
    head.open();
    client.head();
    std::thread::park_timeout(std::time::Duration::from_millis(31));
    body.open();
    assert_eq!(client.read_up_to(100).len(), 100);
    drop(client);
    bed.get("/slow");
    let metrics = metrics_at_rest(&bed);
    let bucket = |name: &str, outcome: &str, le: &str| {
        let series = format!("{name}_bucket{{site=\"default\",outcome=\"{outcome}\",le=\"{le}\"}}");
        bed.metric(&series)
    };
    let first_byte = "edgeward_origin_first_byte_seconds";
    assert_eq!(bucket(first_byte, "miss", "0.02"), 0.0, "{metrics}");
    assert_eq!(bucket(first_byte, "miss", "50"), 1.0, "{metrics}");
    let duration = "edgeward_request_duration_seconds";
    assert_eq!(bucket(duration, "miss", "0.05"), 0.0, "{metrics}");
    assert_eq!(bucket(duration, "miss", "50"), 1.0, "{metrics}");
    assert_eq!(bucket(duration, "hit", "50"), 1.0, "{metrics}");
    let sum = bed.metric(&format!(
        "{duration}_sum{{site=\"default\",outcome=\"miss\"}}"
    ));
    assert!(sum >= 0.05, "{sum}");
}

/// Method: two sites with an origin each. The second origin has no label, because the bound is 1.
#[test]
fn each_site_and_origin_has_its_label_up_to_the_bound() {
    let second = ScriptedOrigin::start();
    second.otherwise(|_| Answer::status(404));
    let url = format!("http://{}", second.addr()).parse().expect("a URL");
    let bed = TestBed::with_config(|config| {
        config.metric_labels_max = 1;
        config.origins[0].name = "first".parse().expect("a name");
        let mut origin = OriginConfig::new(url);
        origin.name = "second".parse().expect("a name");
        config.origins.push(origin);
        let mut sites = Sites::default();
        for (host, origin) in [("a.example", 0), ("b.example", 1)] {
            let settings = Settings {
                origin: Some(origin),
                ..Settings::default()
            };
            let pattern = host.parse().expect("a host");
            sites
                .add(Site::new(host, settings), &[pattern], false)
                .expect("a new site");
        }
        config.sites = Arc::new(sites);
    });
    bed.origin.otherwise(|_| Answer::ok("12345"));
    let mut client = bed.connect();
    for host in ["a.example", "a.example", "b.example", "unknown.example"] {
        client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes());
        client.answer("GET");
    }
    drop(client);
    let metrics = metrics_at_rest(&bed);
    for (series, value) in [
        (
            "edgeward_responses_total{site=\"a.example\",status=\"200\"}",
            2.0,
        ),
        (
            "edgeward_responses_total{site=\"other\",status=\"404\"}",
            1.0,
        ),
        (
            "edgeward_responses_total{site=\"other\",status=\"421\"}",
            1.0,
        ),
        (
            "edgeward_response_body_bytes_total{site=\"a.example\",outcome=\"miss\"}",
            10.0,
        ),
        (
            "edgeward_origin_responses_total{origin=\"first\",status=\"2xx\"}",
            2.0,
        ),
        (
            "edgeward_origin_responses_total{origin=\"other\",status=\"4xx\"}",
            1.0,
        ),
        (
            "edgeward_origin_latency_seconds_count{origin=\"first\"}",
            2.0,
        ),
        ("edgeward_metric_labels{label=\"site\"}", 1.0),
        ("edgeward_metric_labels{label=\"origin\"}", 1.0),
    ] {
        assert_eq!(bed.metric(series), value, "{series} in\n{metrics}");
    }
}

/// Method: two pipelined requests, by the fast path and by hyper. The client reads a part of both responses and leaves,
/// also when the first response is nearly or just complete.
#[test]
fn the_log_and_the_counter_have_the_same_bytes_if_a_client_leaves_between_pipelined_responses() {
    const BODY_BYTES: usize = 3 << 20;
    let (bed, _folder, path) = bed_with_log();
    let body = Answer::pattern(BODY_BYTES as u64).header("cache-control", "max-age=600");
    bed.origin.on("/body", body);
    bed.get("/body");
    for field in ["", "range: bytes=0-\r\n"] {
        for read in [
            1,
            100_000,
            BODY_BYTES - 1000,
            BODY_BYTES,
            BODY_BYTES + 100_000,
            BODY_BYTES + 2000,
        ] {
            let request = format!("GET /body HTTP/1.1\r\nhost: test.example\r\n{field}\r\n");
            let mut client = bed.connect();
            client.send(request.repeat(4).as_bytes());
            client.read_up_to(read);
            client.reset();
            bed.wait_for_metric("edgeward_client_connections", 0.0);
        }
    }
    let metrics = metrics_at_rest(&bed);
    let counted = bed.metric("edgeward_response_bytes_total");
    bed.edge.shutdown(TIMEOUT);
    let log = std::fs::read_to_string(&path).expect("the log can be read");
    let bytes = log.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("one JSON object per line");
        line["bytes"].as_u64().expect("a number")
    });
    assert_eq!(bytes.sum::<u64>(), counted as u64, "{metrics}\n{log}");
}
