//! The content of the cache after concurrent requests, invalidations and revalidations, tested with responses
//! that clients receive.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Client, TestBed, pattern};
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::DiskConfig;
use edgeward_store::disk::{Device, DiskSettings};
use edgeward_testkit::disk::{Errno, Fault, Harm, SimulatedDisk};
use edgeward_testkit::{Answer, Gate, ScriptedOrigin, Step};
use edgeward_types::{ByteSize, Seed};
use http::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};

fn page(text: &'static str) -> Answer {
    Answer::ok(text).header("cache-control", "max-age=600")
}

/// Returns a response that has to be validated at each use.
fn stale(body: Answer) -> Answer {
    body.header("cache-control", "max-age=0")
        .header("etag", "\"a\"")
}

/// Returns a 304 that makes the response of [`stale`] fresh.
fn not_modified() -> Answer {
    Answer::status(304)
        .header("cache-control", "max-age=600")
        .header("etag", "\"a\"")
}

fn post(bed: &TestBed, path: &str) {
    bed.origin.once(path, Answer::status(204));
    let answer = bed
        .connect()
        .request("POST", path, &[("content-length", "0")], b"");
    assert_eq!(answer.status, 204);
}

/// Configures an edge with a disk tier of 64 MiB in `folder`, and a memory tier of `hot` bytes.
fn on_disk(folder: &Path, admission: &str, hot: ByteSize) -> impl FnOnce(&mut EdgeConfig) + use<> {
    let settings = DiskSettings::new(folder, ByteSize::mib(64));
    let admission = admission.parse().expect("the rule is valid");
    move |config| {
        config.hot.capacity = hot;
        let mut disk = DiskConfig::with(settings);
        disk.admission = admission;
        config.disk = Some(disk);
    }
}

fn wait_until_stored(bed: &TestBed, objects: u64) {
    bed.wait_until("the objects are on disk", |status| {
        status["disk"]["devices"][0]["stored_objects"] == objects
    });
}

fn wait_until_no_fill(bed: &TestBed) {
    bed.wait_until("the fills end", |status| status["fills"]["under_way"] == 0);
}

/// A field that is not in the cache key causes the error, and the origin states a lifetime for the error. If the
/// error were stored, one client could replace a page for all other clients.
#[test]
fn an_error_that_one_request_caused_is_not_served_to_the_next() {
    let bed = TestBed::start();
    for (path, status) in [
        ("/400", 400),
        ("/413", 413),
        ("/414", 414),
        ("/431", 431),
        ("/501", 501),
    ] {
        bed.origin.on_call(path, move |request| {
            if request.header("x-bad").is_some() {
                Answer::status(status).header("cache-control", "public, max-age=600")
            } else {
                page("page")
            }
        });
        let refused = bed.get_with(path, &[("x-bad", "1")]);
        assert_eq!(refused.status, status);
        let next = bed.get(path);
        assert_eq!((next.status, next.text()), (200, "page"), "{path}");
        assert!(bed.get(path).is_hit());
    }
}

/// The error concerns one request only, so the stored response stays.
#[test]
fn an_error_that_one_request_caused_does_not_remove_the_stored_response() {
    let bed = TestBed::start();
    bed.origin.on_call("/page", |request| {
        if request.header("x-bad").is_some() {
            Answer::status(400)
        } else {
            stale(Answer::ok("page")).revalidates()
        }
    });
    bed.get("/page");
    assert_eq!(bed.get_with("/page", &[("x-bad", "1")]).status, 400);
    let next = bed.get("/page");
    assert!(next.cache_status().contains("fwd-status=304"), "{next:?}");
    assert_eq!(next.text(), "page");
}

#[test]
fn errors_with_a_lifetime_are_stored_if_configured() {
    let bed = TestBed::with_config(|config| config.caching.rules.store_request_errors = true);
    let error = Answer::status(400);
    bed.origin
        .on("/a", error.clone().header("cache-control", "max-age=600"));
    bed.origin.on("/b", error.header("etag", "\"b\""));
    for (path, requests) in [("/a", 1), ("/b", 2)] {
        for _ in 0..2 {
            assert_eq!(bed.get(path).status, 400);
        }
        assert_eq!(bed.origin.requests(path), requests, "{path}");
    }
}

/// The memory tier has one byte and stores no object, not even Vary markers. Only the disk's admission decides
/// if a response is stored. With `Vary`, each URL has two objects on disk: the Vary marker and the variant.
#[test]
fn a_variant_is_written_at_its_second_request_like_other_responses() {
    for vary in [false, true] {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let bed = TestBed::with_config(on_disk(folder.path(), "second-hit", ByteSize(1)));
        bed.origin.otherwise(move |_| {
            let answer = Answer::pattern(1000).header("cache-control", "max-age=600");
            if vary {
                answer.header("vary", "accept-encoding")
            } else {
                answer
            }
        });
        let mut client = bed.connect();
        let mut round = || {
            let get = |n| client.get(&format!("/{n}"), &[("accept-encoding", "gzip, br")]);
            (0..20)
                .map(get)
                .filter(crate::support::Answer::is_hit)
                .count()
        };
        assert_eq!((round(), round()), (0, 0), "vary: {vary}");
        bed.wait_until("all objects are on disk", |status| {
            let objects = status["disk"]["devices"][0]["objects"].as_u64();
            objects == Some(if vary { 40 } else { 20 })
        });
        assert_eq!(round(), 20, "vary: {vary}");
        assert_eq!(bed.origin.requests_total(), 40, "vary: {vary}");
    }
}

/// Method: while a revalidation waits at the origin, a POST invalidates the page and a GET stores the new page.
/// Then the origin sends the 304.
#[test]
fn a_late_304_does_not_restore_an_invalidated_response() {
    let bed = TestBed::start();
    let gate = Gate::new();
    bed.origin.once("/page", stale(Answer::ok("old")));
    bed.get("/page");
    bed.origin
        .once("/page", not_modified().wait_before_head(&gate));
    let mut reader = bed.connect();
    reader.send_head("GET", "/page", &[]);
    gate.wait_reached(1);
    post(&bed, "/page");
    bed.origin.on("/page", page("new"));
    assert_eq!(bed.get("/page").text(), "new");
    gate.open();
    // The reader may get the old page, because its request began before the POST.
    assert_eq!(reader.answer("GET").text(), "old");
    let after = bed.get("/page");
    assert_eq!((after.text(), after.is_hit()), ("new", true));
    let dropped = r#"edgeward_changes_dropped_total{change="refresh"}"#;
    assert_eq!(bed.metric(dropped), 1.0);
}

/// Method: like the previous test, with a disk tier and a restart. Both pages have the same length. The test
/// runs with a memory tier that stores the pages and with one that stores none, so that the stale page is once
/// read from memory and once from disk.
#[test]
fn a_late_304_does_not_give_the_old_head_to_the_new_body_on_disk() {
    for hot in [ByteSize::mib(1), ByteSize(1)] {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let start = |origin| TestBed::with_origin(origin, on_disk(folder.path(), "always", hot));
        let gate = Gate::new();
        let bed = start(ScriptedOrigin::start());
        bed.origin.once("/page", stale(Answer::ok("old")));
        bed.get("/page");
        wait_until_stored(&bed, 1);
        bed.origin
            .once("/page", not_modified().wait_before_head(&gate));
        let mut reader = bed.connect();
        reader.send_head("GET", "/page", &[]);
        gate.wait_reached(1);
        post(&bed, "/page");
        bed.origin.on("/page", page("new").header("etag", "\"b\""));
        assert_eq!(bed.get("/page").text(), "new");
        wait_until_stored(&bed, 2);
        gate.open();
        assert_eq!(reader.answer("GET").text(), "old");
        wait_until_no_fill(&bed);
        let bed = start(bed.stop());
        let after = bed.get("/page");
        assert_eq!(
            (after.text(), after.header("etag"), after.is_hit()),
            ("new", Some("\"b\""), true),
            "hot: {hot}"
        );
    }
}

/// A late response to the revalidation of the old page says nothing about the new page, so the new page stays.
#[test]
fn a_late_response_that_is_not_storable_does_not_remove_a_newer_one() {
    for hot in [ByteSize::mib(1), ByteSize(1)] {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let bed = TestBed::with_config(on_disk(folder.path(), "always", hot));
        let gate = Gate::new();
        bed.origin.once("/page", stale(Answer::ok("old")));
        bed.get("/page");
        wait_until_stored(&bed, 1);
        let private = Answer::ok("mine").header("cache-control", "private, max-age=600");
        bed.origin.once("/page", private.wait_before_head(&gate));
        let mut reader = bed.connect();
        reader.send_head("GET", "/page", &[]);
        gate.wait_reached(1);
        post(&bed, "/page");
        bed.origin.on("/page", page("new"));
        assert_eq!(bed.get("/page").text(), "new");
        wait_until_stored(&bed, 2);
        gate.open();
        assert_eq!(reader.answer("GET").text(), "mine");
        assert!(bed.get("/page").is_hit(), "hot: {hot}");
        let dropped = r#"edgeward_changes_dropped_total{change="removal"}"#;
        assert_eq!(bed.metric(dropped), 1.0);
    }
}

/// Requests for a URL whose last response was private are not collapsed, so an invalidation cannot find their
/// fetches in the table of collapsed fetches.
#[test]
fn an_uncollapsed_fetch_that_began_before_an_invalidation_is_not_stored() {
    let bed = TestBed::start();
    let gate = Gate::new();
    let private = Answer::ok("mine").header("cache-control", "private");
    bed.origin.once("/page", private);
    bed.get("/page");
    bed.origin
        .once("/page", page("old").wait_before_head(&gate));
    let mut reader = bed.connect();
    reader.send_head("GET", "/page", &[]);
    gate.wait_reached(1);
    post(&bed, "/page");
    gate.open();
    assert_eq!(reader.answer("GET").text(), "old");
    wait_until_no_fill(&bed);
    bed.origin.on("/page", page("new"));
    let after = bed.get("/page");
    assert_eq!((after.text(), after.is_hit()), ("new", false));
    let dropped = r#"edgeward_changes_dropped_total{change="insert"}"#;
    assert_eq!(bed.metric(dropped), 1.0);
}

/// The invalidation uses the primary key of the URL, but the fetch has the key of a variant.
#[test]
fn a_fetch_of_a_variant_that_began_before_an_invalidation_is_not_stored() {
    let bed = TestBed::start();
    let gate = Gate::new();
    let variant = |text| page(text).header("vary", "accept-language");
    let german = [("accept-language", "de")];
    bed.origin.once("/page", variant("page"));
    bed.get_with("/page", &[("accept-language", "fr")]);
    bed.origin
        .once("/page", variant("alt").wait_before_head(&gate));
    let mut reader = bed.connect();
    reader.send_head("GET", "/page", &german);
    gate.wait_reached(1);
    post(&bed, "/page");
    gate.open();
    assert_eq!(reader.answer("GET").text(), "alt");
    wait_until_no_fill(&bed);
    bed.origin.on("/page", variant("neu"));
    let after = bed.get_with("/page", &german);
    assert_eq!((after.text(), after.is_hit()), ("neu", false));
}

/// Method: while a large body is promoted from disk to memory, a POST invalidates it and a GET stores a new
/// response.
#[test]
fn a_promotion_that_began_before_an_invalidation_is_not_stored() {
    const BYTES: u64 = 12_000_000;
    let folder = tempfile::tempdir().expect("the folder can be created");
    let start =
        |origin| TestBed::with_origin(origin, on_disk(folder.path(), "always", ByteSize::mib(64)));
    let bed = start(ScriptedOrigin::start());
    let old = Answer::pattern(BYTES).header("cache-control", "max-age=600");
    bed.origin.once("/big", old);
    bed.get("/big");
    wait_until_stored(&bed, 1);
    let bed = start(bed.stop());
    let mut reader = bed.connect();
    reader.send_head("GET", "/big", &[]);
    let mut answer = reader.head();
    post(&bed, "/big");
    bed.origin.on("/big", page("new"));
    assert_eq!(bed.get("/big").text(), "new");
    reader.body("GET", &mut answer);
    // The client gets the old body, or its beginning if the store has overwritten the rest.
    assert!(answer.body == pattern(0..answer.body.len() as u64));
    let after = bed.get("/big");
    assert_eq!((after.text(), after.is_hit()), ("new", true));
}

/// Method: after the client has received the response to the POST, compute the content of the disk after a
/// crash that loses all unsynced writes, and start an edge with it.
#[test]
fn an_invalidation_is_durable_before_the_client_gets_its_response() {
    let start = |origin, disk: &Arc<SimulatedDisk>| {
        let device: Arc<dyn Device> = Arc::<SimulatedDisk>::clone(disk);
        TestBed::with_origin(origin, move |config| {
            config.hot.capacity = ByteSize(1);
            let hour = Duration::from_secs(3600);
            let mut disk = DiskConfig::with(DiskSettings {
                flush_interval: hour,
                sync_interval: hour,
                ..DiskSettings::default()
            });
            disk.opened = vec![device];
            disk.admission = "always".parse().expect("the rule is valid");
            config.disk = Some(disk);
        })
    };
    let disk = SimulatedDisk::new(64 << 20);
    let bed = start(ScriptedOrigin::start(), &disk);
    bed.origin.once("/page", page("old"));
    bed.origin.once("/other", page("other"));
    bed.get("/page");
    bed.get("/other");
    wait_until_found(&bed);
    let origin = bed.stop();
    let disk = SimulatedDisk::with_content(disk.content());
    let bed = start(origin, &disk);
    assert!(bed.get("/page").is_hit());
    // `boundary` is the number of writes and syncs so far. The invalidation of a page that is not stored adds none.
    let boundary = disk.boundary();
    post(&bed, "/absent");
    assert_eq!(
        disk.boundary(),
        boundary,
        "no write may have reached the disk"
    );
    post(&bed, "/page");
    let after_response = disk.boundary();
    let crashed = disk
        .crashes(Seed(1))
        .image(after_response, Harm::LoseUnsynced);
    let not_durable = r#"edgeward_invalidations_not_durable_total"#;
    assert_eq!(bed.metric(not_durable), 0.0);
    let bed = start(bed.stop(), &SimulatedDisk::with_content(crashed));
    bed.origin.on("/page", page("new"));
    let after = bed.get("/page");
    assert_eq!((after.text(), after.is_hit()), ("new", false));
    assert!(bed.get("/other").is_hit());
}

/// Waits until the edge finds both objects on disk or in the buffer of the disk writer.
fn wait_until_found(bed: &TestBed) {
    bed.wait_until("both pages are on disk", |_| {
        bed.get("/page").is_hit() && bed.get("/other").is_hit()
    });
}

/// If the sync of an invalidation fails, the client still gets its response, and a counter reports that the
/// invalidation is not durable.
#[test]
fn an_invalidation_that_cannot_be_made_durable_is_counted() {
    let disk = SimulatedDisk::new(64 << 20);
    let device: Arc<dyn Device> = Arc::<SimulatedDisk>::clone(&disk);
    let bed = TestBed::with_config(move |config| {
        config.hot.capacity = ByteSize(1);
        let mut disk = DiskConfig::with(DiskSettings::default());
        disk.opened = vec![device];
        disk.admission = "always".parse().expect("the rule is valid");
        config.disk = Some(disk);
    });
    bed.origin.once("/page", page("old"));
    bed.get("/page");
    wait_until_stored(&bed, 1);
    disk.inject(Fault::Syncs(Errno::Io));
    post(&bed, "/page");
    assert_eq!(bed.metric("edgeward_invalidations_not_durable_total"), 1.0);
    bed.origin.on("/page", page("new"));
    assert_eq!(bed.get("/page").text(), "new");
}

/// RFC 9111 §4.4: the origin may change its state although the client has disconnected, so the edge must
/// invalidate the stored response.
#[test]
fn an_unsafe_request_invalidates_although_its_client_left() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the runtime can be built");
    // Requests with and without a body use different code to reach the origin.
    for body in ["", "hello"] {
        let bed = TestBed::start();
        let gate = Gate::new();
        bed.origin.once("/page", page("old"));
        bed.get("/page");
        let changed = Answer::status(204).wait_before_head(&gate);
        bed.origin.once("/page", changed);
        runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(bed.addr()).await;
            let stream = TokioIo::new(stream.expect("the edge listens"));
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream)
                .await
                .expect("the HTTP/2 handshake succeeds");
            let connection = tokio::spawn(connection);
            let request = Request::post("http://test.example/page");
            let request = request.body(body.to_owned()).expect("the request is valid");
            let response = tokio::spawn(sender.send_request(request));
            let reached = gate.clone();
            let reached = tokio::task::spawn_blocking(move || reached.wait_reached(1));
            reached.await.expect("the origin has the request");
            response.abort();
            connection.abort();
            // Awaiting the aborted tasks ensures that they are dropped.
            _ = (response.await, connection.await);
        });
        bed.wait_for_metric("edgeward_client_connections", 0.0);
        gate.open();
        bed.origin.on("/page", page("new"));
        bed.wait_for_metric("edgeward_invalidations_total", 1.0);
        assert_eq!(bed.get("/page").text(), "new", "{body:?}");
    }
}

/// The origin may have changed its state before it closed the connection, so the edge must invalidate the
/// stored response.
#[test]
fn an_unsafe_request_whose_response_is_unknown_invalidates() {
    for body in ["", "hello"] {
        let bed = TestBed::start();
        bed.origin.once("/page", page("old"));
        bed.get("/page");
        bed.origin.once("/page", Answer::script(vec![Step::Close]));
        let length = body.len().to_string();
        let fields = [("content-length", &length[..])];
        let mut client = bed.connect();
        let answer = client.request("POST", "/page", &fields, body.as_bytes());
        assert_eq!(answer.status, 502);
        bed.origin.on("/page", page("new"));
        assert_eq!(bed.get("/page").text(), "new", "{body:?}");
    }
}

/// The edge keeps no idle connection to the origin and cannot open one after the origin has stopped, so it sends no
/// POST.
#[test]
fn an_unsafe_request_that_was_not_sent_invalidates_nothing() {
    let bed = TestBed::with_config(|config| config.origins[0].idle_per_worker_max = 0);
    bed.origin.once("/page", page("old"));
    bed.get("/page");
    let TestBed { edge, origin } = bed;
    drop(origin);
    for body in ["", "hello"] {
        let length = body.len().to_string();
        let fields = [("content-length", &length[..])];
        let mut client = Client::connect(edge.addrs()[0]);
        let answer = client.request("POST", "/page", &fields, body.as_bytes());
        assert_eq!(answer.status, 502);
        assert!(client.get("/page", &[]).is_hit(), "{body:?}");
    }
}

/// The origin has not received the complete request. If an incomplete request invalidated the stored response, any
/// client could remove stored responses with methods that the origin rejects. The edge keeps no idle connection, so
/// the number of origin connections is 0 when the upload has ended.
#[test]
fn an_upload_that_its_client_aborts_invalidates_nothing() {
    let bed = TestBed::with_config(|config| config.origins[0].idle_per_worker_max = 0);
    bed.origin.once("/page", page("old"));
    bed.get("/page");
    bed.origin.once("/page", Answer::status(204));
    let mut client = bed.connect();
    client.send_head("POST", "/page", &[("content-length", "1000000")]);
    client.send(vec![b'x'; 100_000]);
    bed.origin.wait_until("the origin gets the POST", |origin| {
        origin.requests("/page") == 2
    });
    client.reset();
    bed.wait_for_metric("edgeward_client_connections", 0.0);
    bed.wait_for_metric("edgeward_origin_connections", 0.0);
    assert!(bed.get("/page").is_hit());
}
