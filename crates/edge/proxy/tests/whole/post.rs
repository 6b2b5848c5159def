//! Responses to POST that answer later GETs (RFC 9110 §9.3.3).

use crate::support::{Client, TestBed};
use edgeward_proxy::config::DiskConfig;
use edgeward_store::disk::DiskSettings;
use edgeward_testkit::{Answer, Gate};
use edgeward_types::ByteSize;

fn page(text: &'static str) -> Answer {
    Answer::ok(text).header("cache-control", "max-age=600")
}

/// Returns the response to a POST whose target has `text` from now on.
fn result(text: &'static str) -> Answer {
    page(text).header("content-location", "/a")
}

fn post(bed: &TestBed) -> crate::support::Answer {
    let mut client = bed.connect();
    client.request("POST", "/a", &[("content-length", "3")], b"new")
}

#[test]
fn a_response_to_post_that_describes_its_target_answers_later_gets() {
    let bed = TestBed::start();
    bed.origin.once("/a", page("old"));
    bed.get("/a");
    assert!(bed.get("/a").is_hit());
    bed.origin.once("/a", result("new"));
    let answer = post(&bed);
    assert_eq!((answer.status, answer.text()), (200, "new"));
    assert_eq!(
        answer.cache_status(),
        "edgeward; fwd=method; fwd-status=200; stored"
    );
    for method in ["GET", "HEAD", "GET"] {
        let hit = bed.connect().request(method, "/a", &[], b"");
        assert!(hit.is_hit(), "{hit:?}");
        assert_eq!(hit.text(), if method == "GET" { "new" } else { "" });
    }
    let part = bed.get_with("/a", &[("range", "bytes=1-1")]);
    assert_eq!((part.status, part.text()), (206, "e"));
    assert_eq!(bed.origin.requests("/a"), 2);
    assert_eq!(bed.metric("edgeward_invalidations_total"), 1.0);
}

/// Each row: a response to POST that does not describe its target, or may not be stored.
#[test]
fn other_responses_to_post_are_not_stored() {
    let bed = TestBed::start();
    for answer in [
        page("new"),
        page("new").header("content-location", "/b"),
        page("new").header("content-location", "http://other.example/a"),
        result("new").with_status(201),
        result("new").header("vary", "*"),
        result("new").header("set-cookie", "a=b"),
        Answer::ok("new")
            .header("content-location", "/a")
            .header("etag", "\"a\""),
    ] {
        bed.origin.once("/a", answer);
        bed.origin.once("/a", page("next"));
        assert_eq!(post(&bed).text(), "new");
        let next = bed.get("/a");
        assert!(!next.is_hit() && next.text() == "next", "{next:?}");
    }
}

/// The origin may have executed the second POST after the first, so the response to the first one is outdated.
#[test]
fn a_response_to_post_is_not_stored_if_its_target_was_changed_meanwhile() {
    let bed = TestBed::start();
    let gate = Gate::new();
    bed.origin
        .once("/a", result("first").wait_before_head(&gate));
    let mut first = bed.connect();
    first.send_head("POST", "/a", &[("content-length", "0")]);
    gate.wait_reached(1);
    bed.origin.once("/a", Answer::status(204));
    let second = bed
        .connect()
        .request("DELETE", "/a", &[("content-length", "0")], b"");
    assert_eq!(second.status, 204);
    gate.open();
    assert_eq!(first.answer("POST").text(), "first");
    bed.origin.once("/a", page("gone"));
    let next = bed.get("/a");
    assert!(!next.is_hit() && next.text() == "gone", "{next:?}");
}

/// The request fields of the POST select the variant.
#[test]
fn a_response_to_post_that_varies_answers_only_equal_requests() {
    let bed = TestBed::start();
    bed.origin
        .once("/a", result("new").header("vary", "accept-language"));
    let fields = [("content-length", "0"), ("accept-language", "de")];
    assert_eq!(
        bed.connect().request("POST", "/a", &fields, b"").text(),
        "new"
    );
    assert!(bed.get_with("/a", &[("accept-language", "de")]).is_hit());
    bed.origin.once("/a", page("english"));
    let other = bed.get_with("/a", &[("accept-language", "en")]);
    assert!(!other.is_hit() && other.text() == "english", "{other:?}");
}

/// Method: the client leaves when the head has arrived. A body that ended early is not stored.
#[test]
fn the_rest_of_a_response_to_post_is_stored_after_its_client_has_left() {
    let bed = TestBed::start();
    let gate = Gate::new();
    let large = || Answer::pattern(300_000).header("cache-control", "max-age=600");
    let answer = large().header("content-location", "/a");
    bed.origin
        .once("/a", answer.clone().wait_at(100_000, &gate));
    let mut client = bed.connect();
    client.send_head("POST", "/a", &[("content-length", "0")]);
    assert_eq!(client.head().status, 200);
    client.reset();
    gate.open();
    bed.wait_until("the fill ends", |status| status["fills"]["under_way"] == 0);
    let hit = bed.get("/a");
    assert!(
        hit.is_hit() && hit.body == crate::support::pattern(0..300_000),
        "{}",
        hit.cache_status()
    );

    bed.origin.once("/a", answer.close_at(100_000));
    assert!(!post(&bed).complete);
    bed.origin.once("/a", page("next"));
    assert!(!bed.get("/a").is_hit());
}

/// Method: the old response and the new one are on disk. After a restart, the new one is found.
#[test]
fn a_response_to_post_replaces_the_response_on_disk() {
    let folder = tempfile::tempdir().expect("the folder can be created");
    let addr = edgeward_testkit::ScriptedOrigin::unused_addr();
    let config = || {
        let settings = DiskSettings::new(folder.path(), ByteSize::mib(64));
        move |config: &mut edgeward_proxy::EdgeConfig| {
            config.listeners[0].addr = addr.into();
            let mut disk = DiskConfig::with(settings);
            disk.admission = "always".parse().expect("the rule is valid");
            config.disk = Some(disk);
        }
    };
    let bed = TestBed::with_config(config());
    bed.origin.once("/a", page("old"));
    bed.get("/a");
    bed.origin.once("/a", result("new"));
    assert_eq!(post(&bed).text(), "new");
    let origin = bed.stop();
    let bed = TestBed::with_origin(origin, config());
    let hit = Client::connect(bed.addr()).get("/a", &[]);
    assert!(hit.is_hit() && hit.text() == "new", "{hit:?}");
}
