//! The access log: the number of bytes that clients received, the log lines of rejected requests, and the
//! formats.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{Client, TestBed};
use edgeward_proxy::config::{AccessLogConfig, LogDestination, LogFormat};
use edgeward_testkit::Answer;
use edgeward_testkit::client::until;
use serde_json::Value;

/// The size of a body that does not fit in the socket buffers of edge and client.
const BODY_BYTES: u64 = 32 << 20;

/// The maximum number of bytes that the edge sends to a client that reads 100 000 bytes and disconnects. The unread
/// bytes are in the socket buffers of edge and client.
const SOCKETS_BYTES_MAX: u64 = 20 << 20;

/// Header lines of two requests. The fast path, which answers simple HTTP/1.1 requests without hyper, serves the
/// request without fields. hyper serves the range request.
const REQUEST_FIELDS: [&[(&str, &str)]; 2] = [&[], &[("range", "bytes=0-")]];

#[test]
fn an_aborted_hit_is_logged_with_the_bytes_that_were_sent() {
    for headers in REQUEST_FIELDS {
        let log = AccessLog::new();
        let bed = log.bed(LogFormat::Json);
        let mut client = request_stored(&bed, headers);
        let start = Instant::now();
        assert_eq!(client.read_up_to(100_000).len(), 100_000);
        let read = start.elapsed();
        client.reset();
        let line = &log.wait_for_json_lines(2)[1];
        let bytes = line["bytes"]
            .as_u64()
            .expect("the value is a number of bytes");
        assert_eq!(line["aborted"], true, "{line}");
        assert_eq!(line["cache"], "hit", "{line}");
        assert!(
            (100_000..SOCKETS_BYTES_MAX).contains(&bytes),
            "{headers:?}: {line}"
        );
        assert!(
            duration(line) >= read,
            "{line}, and the client read for {read:?}"
        );
    }
}

#[test]
fn a_hit_is_logged_after_its_last_byte_was_sent() {
    for headers in REQUEST_FIELDS {
        let log = AccessLog::new();
        let bed = log.bed(LogFormat::Json);
        let mut client = request_stored(&bed, headers);
        let began = Instant::now();
        // The client does not read during these requests, so the socket buffers are full and the hit waits.
        for _ in 0..50 {
            bed.connect().get("/other", &[]);
        }
        let pause = began.elapsed();
        assert_eq!(
            client.read_up_to(BODY_BYTES as usize).len() as u64,
            BODY_BYTES
        );
        // One miss that stored the body, 50 requests for `/other`, and the hit.
        let lines = log.wait_for_json_lines(52);
        let line = lines.last().expect("the log has a line");
        assert_eq!(line["bytes"], BODY_BYTES, "{headers:?}: {line}");
        assert!(
            line["target"] == "/big" && line.get("aborted").is_none(),
            "{line}"
        );
        assert!(
            duration(line) >= pause,
            "{line}, and the client paused for {pause:?}"
        );
    }
}

#[test]
fn bytes_of_a_hit_are_counted_when_they_are_sent() {
    for with_log in [false, true] {
        for headers in REQUEST_FIELDS {
            let log = AccessLog::new();
            let bed = if with_log {
                log.bed(LogFormat::Json)
            } else {
                TestBed::start()
            };
            let mut client = request_stored(&bed, headers);
            let read = client.read_up_to(100_000).len() as u64;
            client.reset();
            bed.wait_for_metric("edgeward_client_connections", 0.0);
            // The request that stored the body has received the whole body.
            let counted = bed.metric("edgeward_response_bytes_total") as u64 - BODY_BYTES;
            assert!(
                (read..SOCKETS_BYTES_MAX).contains(&counted),
                "{headers:?}, log {with_log}: {counted}"
            );
        }
    }
}

#[test]
fn a_request_that_is_refused_is_logged() {
    let log = AccessLog::new();
    let bed = log.bed(LogFormat::Json);
    let mut statuses = Vec::new();
    for request in [
        "GET / HTTP/1.1\r\nhost: a\r\nno colon\r\n\r\n".to_owned(),
        "GET /a\u{1}b HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        format!(
            "GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n",
            "y".repeat(300_000)
        ),
        format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "y".repeat(300_000)),
    ] {
        let mut client = bed.connect();
        // The edge may send the error response and close the connection before it has read all bytes.
        client.try_send(request.as_bytes());
        statuses.push(u64::from(client.answer("GET").status));
    }
    assert!(
        statuses.iter().all(|status| (400..500).contains(status)),
        "{statuses:?}"
    );
    assert!(statuses.contains(&431), "{statuses:?}");
    let lines = log.wait_for_json_lines(statuses.len());
    let logged: Vec<u64> = lines
        .iter()
        .filter_map(|line| line["status"].as_u64())
        .collect();
    assert_eq!(logged, statuses, "{lines:?}");
    assert_eq!(lines[0]["method"], "-");
    assert_eq!(lines[0]["client"], "127.0.0.1");
}

#[test]
fn a_client_that_sends_half_a_head_is_logged_with_408() {
    let log = AccessLog::new();
    let bed = log.bed_with(LogFormat::Combined, |config| {
        config.limits.request_head_timeout = Duration::from_millis(1);
    });
    let mut client = bed.connect();
    client.send(b"GET / HTT");
    assert_eq!(client.answer("GET").status, 408);
    let line = &log.wait_for_lines(1)[0];
    assert!(line.ends_with("\"-\" 408 0 \"-\" \"-\""), "{line}");
}

#[test]
fn combined_cache_adds_the_outcome() {
    let log = AccessLog::new();
    let bed = log.bed(LogFormat::CombinedCache);
    bed.origin.on("/page", cacheable(Answer::ok("hello")));
    for _ in 0..2 {
        bed.get("/page");
    }
    let lines = log.wait_for_lines(2);
    assert!(
        lines[0].ends_with("\"GET /page HTTP/1.1\" 200 5 \"-\" \"-\" uri-miss"),
        "{lines:?}"
    );
    assert!(
        lines[1].ends_with("\"GET /page HTTP/1.1\" 200 5 \"-\" \"-\" hit"),
        "{lines:?}"
    );
}

/// Stores a large body, requests it again and reads the head of the hit.
fn request_stored(bed: &TestBed, headers: &[(&str, &str)]) -> Client {
    bed.origin
        .on("/big", cacheable(Answer::pattern(BODY_BYTES)));
    assert_eq!(bed.get("/big").body.len() as u64, BODY_BYTES);
    let mut client = bed.connect();
    client.send_head("GET", "/big", headers);
    let head = client.head();
    assert!(head.is_hit(), "{head:?}");
    client
}

fn cacheable(answer: Answer) -> Answer {
    answer.header("cache-control", "max-age=600")
}

fn duration(line: &Value) -> Duration {
    Duration::from_micros(
        line["duration_us"]
            .as_u64()
            .expect("the line has a duration"),
    )
}

/// The access log of an edge, in a temporary folder.
struct AccessLog {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl AccessLog {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let path = folder.path().join("access.log");
        Self {
            _folder: folder,
            path,
        }
    }

    fn bed(&self, format: LogFormat) -> TestBed {
        self.bed_with(format, |_| {})
    }

    fn bed_with(
        &self,
        format: LogFormat,
        change: impl FnOnce(&mut edgeward_proxy::EdgeConfig),
    ) -> TestBed {
        TestBed::with_config(|config| {
            let destination = LogDestination::File(self.path.clone());
            config.access_log = Some(AccessLogConfig::new(destination, format));
            // With several workers, the order of the lines would be random.
            config.workers = NonZeroUsize::MIN;
            change(config);
        })
    }

    /// Waits until the log has `count` lines, and returns all lines.
    fn wait_for_lines(&self, count: usize) -> Vec<String> {
        until("the lines are written", || {
            let lines = complete_lines(&self.path);
            (lines.len() >= count).then_some(lines)
        })
    }

    fn wait_for_json_lines(&self, count: usize) -> Vec<Value> {
        let lines = self.wait_for_lines(count);
        let json = |line: &String| serde_json::from_str(line).expect("one JSON object per line");
        lines.iter().map(json).collect()
    }
}

fn complete_lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(str::to_owned).collect()
}
