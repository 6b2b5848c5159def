//! Pinned memory: bodies that have left the cache while slow clients still read them. Tests of its limit, its effect on
//! admission, and its release.

#[path = "support/closed_windows.rs"]
mod closed_windows;
#[expect(dead_code, reason = "this binary uses a part of the helpers")]
mod support;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use closed_windows::ClosedWindows;
use edgeward_proxy::EdgeConfig;
use edgeward_sites::{Page, Replacement, Replacements, Settings, Site, Sites, StatusSet, Template};
use edgeward_testkit::Answer;
use edgeward_types::ByteSize;
use http::Request;
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use support::{TestBed, pattern};

const MIB: u64 = 1 << 20;
const HOT_BYTES: ByteSize = ByteSize::mib(64);
const FILL_BYTES: ByteSize = ByteSize::mib(16);
/// The limit of pinned bytes.
const PINNED_MAX: u64 = 16 * MIB;
/// The size of the object that a reader requests: two objects reach the limit of pinned bytes.
const OBJECT_BYTES: u64 = 8 * MIB;
const READER_COUNT: usize = 40;

/// The maximum growth of the process's memory: the budgets of the memory tier and of fills, plus 64 MiB for the
/// allocator, the bodies of the scripted origin and a copy of one body. The objects of all readers have 320
/// MiB together, so the test fails if the readers pin all of them.
const MEMORY_MAX: u64 = HOT_BYTES.bytes() + FILL_BYTES.bytes() + 64 * MIB;

/// A lock that lets the tests of this file run one after the other, because they measure the memory of the
/// whole process.
static MEMORY_TEST_LOCK: Mutex<()> = Mutex::new(());

fn bed() -> TestBed {
    TestBed::with_config(|config: &mut EdgeConfig| {
        config.hot.capacity = HOT_BYTES;
        config.hot.pinned_bytes_max = Some(ByteSize(PINNED_MAX));
        config.limits.fill_bytes_max = FILL_BYTES;
    })
}

fn set_response(bed: &TestBed, path: &str, length: u64) {
    let answer = Answer::pattern(length).header("cache-control", "max-age=600");
    bed.origin.on(path, answer);
}

/// Configures one site for all hosts with these settings.
fn set_site(config: &mut EdgeConfig, settings: Settings) {
    let mut sites = Sites::default();
    let site = Site::new("*", settings);
    sites.add(site, &[], true).expect("the only site");
    config.sites = Arc::new(sites);
}

fn memory(bed: &TestBed) -> u64 {
    bed.status()["memory_bytes"]
        .as_u64()
        .expect("Linux reports the memory of the process")
}

fn pinned(bed: &TestBed) -> u64 {
    bed.status()["hot"]["pinned_bytes"]
        .as_u64()
        .expect("the value is a number of bytes")
}

/// Waits until the pinned bytes are within their limit. Returns the number of connections that the edge has
/// closed for this.
fn wait_until_pinned_fits(bed: &TestBed) -> f64 {
    let deadline = Instant::now() + Duration::from_secs(30);
    while pinned(bed) > PINNED_MAX {
        assert!(Instant::now() < deadline, "{:#}", bed.status());
        std::thread::yield_now();
    }
    bed.metric("edgeward_client_connections_closed_total{cause=\"pinned-memory\"}")
}

/// Checks that the memory tier admits new objects again.
fn assert_admits_again(bed: &TestBed) {
    set_response(bed, "/after", 10_000);
    bed.get("/after");
    assert!(bed.get("/after").is_hit());
}

/// Method: each of 40 clients requests an object of its own and reads only the head. An active client gets hits
/// on a small object and on `/resident` all the time, so both stay in the cache. A further client requests `/resident`
/// and reads only the head. Bytes of an object in the cache are not pinned, so the edge must not close this client.
#[test]
fn http1_clients_that_stop_reading_cannot_pin_more_than_the_limit() {
    let _lock = MEMORY_TEST_LOCK
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let bed = bed();
    set_response(&bed, "/small", 1000);
    set_response(&bed, "/resident", OBJECT_BYTES);
    let mut active_client = bed.connect();
    active_client.get("/small", &[]);
    active_client.get("/resident", &[]);
    let mut reader_of_resident = bed.connect();
    reader_of_resident.send_head("GET", "/resident", &[]);
    let mut resident = reader_of_resident.head();
    let before = memory(&bed);
    let mut readers = Vec::new();
    let mut growth_max = 0;
    for n in 0..READER_COUNT {
        let path = format!("/{n}");
        set_response(&bed, &path, OBJECT_BYTES);
        let mut reader = bed.connect();
        reader.send_head("GET", &path, &[]);
        assert_eq!(reader.head().status, 200);
        // After the fetch has ended, the object is stored, and the next object can evict it.
        bed.wait_until("the fetch ends", |status| status["fills"]["under_way"] == 0);
        readers.push(reader);
        assert!(active_client.get("/small", &[]).is_hit());
        assert!(
            active_client
                .request("HEAD", "/resident", &[], b"")
                .is_hit()
        );
        growth_max = growth_max.max(memory(&bed).saturating_sub(before));
    }
    assert!(
        growth_max <= MEMORY_MAX,
        "{} MiB more than before",
        growth_max / MIB
    );
    let closed = wait_until_pinned_fits(&bed);
    assert!(
        closed >= 1.0,
        "no slow reader was closed: {:#}",
        bed.status()
    );
    assert!(closed < READER_COUNT as f64, "all readers were closed");
    assert!(bed.metric("edgeward_not_stored_total{reason=\"pinned-memory\"}") >= 1.0);
    assert_admits_again(&bed);
    reader_of_resident.body("GET", &mut resident);
    assert!(resident.complete && resident.body == pattern(0..OBJECT_BYTES));
    drop(readers);
    bed.wait_until("no bytes are pinned", |status| {
        status["hot"]["pinned_bytes"] == 0 && status["fills"]["bytes"] == 0
    });
}

/// Method: request all objects on one HTTP/2 connection with stream windows of zero, so that the edge cannot
/// send a byte of their bodies.
#[test]
fn streams_with_closed_windows_cannot_pin_more_than_the_limit() {
    let _lock = MEMORY_TEST_LOCK
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let bed = bed();
    for n in 0..READER_COUNT {
        set_response(&bed, &format!("/{n}"), OBJECT_BYTES);
    }
    let before = memory(&bed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the runtime can be built");
    let growth_max = runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(bed.addr()).await;
        let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(0)
            .handshake::<_, Empty<Bytes>>(TokioIo::new(stream.expect("the server listens")))
            .await
            .expect("the HTTP/2 handshake succeeds");
        let connection = tokio::spawn(connection);
        let mut growth_max = 0;
        let mut bodies = Vec::new();
        for n in 0..READER_COUNT {
            let uri = format!("http://test.example/{n}");
            let request = Request::get(uri)
                .body(Empty::new())
                .expect("the request is valid");
            // The request fails when the edge has closed the connection.
            let Ok(response) = sender.send_request(request).await else {
                break;
            };
            bodies.push(response);
            growth_max = growth_max.max(memory(&bed).saturating_sub(before));
        }
        let timeout = Duration::from_secs(30);
        let ended = tokio::time::timeout(timeout, connection).await;
        assert!(
            ended.is_ok(),
            "the edge did not close the connection: {:#}",
            bed.status()
        );
        growth_max
    });
    assert!(
        growth_max <= MEMORY_MAX,
        "{} MiB more than before",
        growth_max / MIB
    );
    assert_eq!(wait_until_pinned_fits(&bed), 1.0);
    bed.wait_until("all bodies are freed", |status| {
        status["hot"]["pinned_bytes"] == 0 && status["fills"]["bytes"] == 0
    });
    assert_admits_again(&bed);
}

/// Method: 100 HTTP/2 streams get a page of 1 MiB each, and the edge cannot send a byte of it.
#[test]
fn all_responses_with_an_error_page_share_its_memory() {
    let _lock = MEMORY_TEST_LOCK
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let bed = TestBed::with_config(|config: &mut EdgeConfig| {
        let mut settings = Settings::default();
        let page = Page {
            content_type: "text/html".into(),
            body: vec![b'x'; MIB as usize].into(),
        };
        settings
            .error_pages
            .insert(StatusSet::Class(5), Arc::new(page));
        set_site(config, settings);
    });
    bed.origin.otherwise(|_| Answer::status(503));
    let mut whole = bed.connect();
    assert_eq!(whole.get("/first", &[]).body.len() as u64, MIB);
    let before = memory(&bed);
    let readers = ClosedWindows::request(&bed, 100);
    let growth = memory(&bed).saturating_sub(before);
    assert!(growth < 32 * MIB, "{} MiB more than before", growth / MIB);
    drop(readers);
}

/// Method: each byte of the bodies becomes 500 bytes, 125 MiB for each of eight HTTP/2 streams, and the edge cannot
/// send any of them. Half of the responses are stored.
#[test]
fn the_replacements_in_a_body_take_no_more_memory_than_another_body() {
    let _lock = MEMORY_TEST_LOCK
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let bed = TestBed::with_config(|config: &mut EdgeConfig| {
        config.limits.fill_bytes_max = FILL_BYTES;
        let replacement = Replacement {
            from: "a".into(),
            to: Template::new(&"b".repeat(500), None).expect("a template"),
        };
        let list = Replacements::new(vec![replacement]).expect("one string");
        let settings = Settings {
            replace: Some(Arc::new(list)),
            ..Settings::default()
        };
        set_site(config, settings);
    });
    for n in 0..8 {
        let answer = Answer::ok("a".repeat(256 << 10)).header("content-type", "text/html");
        let control = ["max-age=600", "no-store"][n % 2];
        bed.origin
            .on(&format!("/{n}"), answer.header("cache-control", control));
    }
    let before = memory(&bed);
    let readers = ClosedWindows::request(&bed, 8);
    bed.wait_until("the origin has sent all bytes that the edge reads", |_| {
        bed.origin.requests_total() == 8
    });
    let growth = memory(&bed).saturating_sub(before);
    assert!(growth < 96 * MIB, "{} MiB more than before", growth / MIB);
    drop(readers);
}
