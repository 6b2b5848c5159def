//! Variants that clients with different `Accept-Encoding` or `Accept` share, and the limit of variants.

use std::num::NonZeroU32;
use std::path::Path;

use crate::support::TestBed;
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::DiskConfig;
use edgeward_store::disk::DiskSettings;
use edgeward_testkit::{Answer, Gate, RecordedRequest};
use edgeward_types::ByteSize;

const SHARED: &str = "edgeward_variants_shared_total";

/// Answers with the first of `codings` that the request lists, else without a coding. The body is the coding's name.
fn compress(request: &RecordedRequest, codings: &[&'static str]) -> Answer {
    let offered = request.header("accept-encoding").unwrap_or_default();
    let accepted = |coding: &&&'static str| offered.split(',').any(|member| member == **coding);
    let coding = codings.iter().find(accepted);
    let answer = Answer::ok(*coding.unwrap_or(&"identity"))
        .header("cache-control", "max-age=600")
        .header("vary", "accept-encoding");
    match coding {
        Some(coding) => answer.header("content-encoding", coding),
        None => answer,
    }
}

fn bed_that_compresses(change: impl FnOnce(&mut EdgeConfig)) -> TestBed {
    let bed = TestBed::with_config(change);
    bed.origin
        .otherwise(|request| compress(request, &["br", "gzip"]));
    bed
}

fn get(bed: &TestBed, path: &str, accepted: &str) -> crate::support::Answer {
    bed.get_with(path, &[("accept-encoding", accepted)])
}

/// Method: the values of several clients, in turn. Each row: the value, the coding of the response, and true if the
/// response is a hit.
fn clients_share(bed: &TestBed, path: &str) {
    for (accepted, coding, is_hit) in [
        ("gzip, deflate, br, zstd", "br", false),
        ("gzip, deflate, br", "br", true),
        ("br", "br", true),
        ("gzip, deflate", "gzip", false),
        ("gzip", "gzip", true),
        ("deflate", "identity", false),
        ("", "identity", true),
        ("br, gzip, x-new", "br", false),
        ("gzip, deflate, br, zstd", "br", true),
    ] {
        let answer = get(bed, path, accepted);
        assert_eq!(answer.text(), coding, "{accepted}");
        assert_eq!(
            answer.is_hit(),
            is_hit,
            "{accepted}: {}",
            answer.cache_status()
        );
    }
}

#[test]
fn clients_that_accept_different_codings_share_a_variant() {
    let bed = bed_that_compresses(|_| {});
    clients_share(&bed, "/a");
    assert_eq!(bed.origin.requests("/a"), 4);
    assert_eq!(bed.metric(SHARED), 4.0);
    assert_eq!(bed.metric("edgeward_variants_stored_total"), 4.0);
    // The values of other clients are known for all URLs.
    get(&bed, "/b", "gzip, deflate, br, zstd");
    assert!(get(&bed, "/b", "gzip, br").is_hit());
}

fn on_disk(folder: &Path) -> impl FnOnce(&mut EdgeConfig) + use<> {
    let settings = DiskSettings::new(folder, ByteSize::mib(64));
    move |config| {
        config.hot.capacity = ByteSize(1);
        let mut disk = DiskConfig::with(settings);
        disk.admission = "always".parse().expect("the rule is valid");
        config.disk = Some(disk);
    }
}

/// Memory has one byte, so all variants and their markers are on disk only.
#[test]
fn variants_on_disk_are_shared_as_well() {
    let folder = tempfile::tempdir().expect("the folder can be created");
    let bed = bed_that_compresses(on_disk(folder.path()));
    let settled = || {
        bed.wait_until("the objects are on disk", |status| {
            status["fills"]["under_way"] == 0 && status["disk"]["devices"][0]["queue_messages"] == 0
        });
    };
    get(&bed, "/a", "gzip, deflate, br, zstd");
    settled();
    let hit = get(&bed, "/a", "gzip, br");
    assert!(hit.is_hit() && hit.text() == "br", "{hit:?}");
    let other = get(&bed, "/a", "gzip");
    assert!(!other.is_hit() && other.text() == "gzip", "{other:?}");
}

/// Method: clients with two values request a cold object. The origin answers when both have joined the fetch.
#[test]
fn clients_that_accept_different_codings_share_a_fetch() {
    let bed = TestBed::start();
    let gate = Gate::new();
    let waiting = gate.clone();
    bed.origin
        .otherwise(move |request| compress(request, &["br", "gzip"]).wait_before_head(&waiting));
    let mut clients: Vec<_> = ["gzip, deflate, br, zstd", "gzip, br", "gzip"]
        .into_iter()
        .map(|accepted| {
            let mut client = bed.connect();
            client.send_head("GET", "/a", &[("accept-encoding", accepted)]);
            gate.wait_reached(1);
            client
        })
        .collect();
    bed.wait_for_metric("edgeward_requests_total{outcome=\"uri-miss\"}", 3.0);
    gate.open();
    let answers: Vec<_> = clients
        .iter_mut()
        .map(|client| client.answer("GET"))
        .collect();
    let texts: Vec<_> = answers.iter().map(crate::support::Answer::text).collect();
    assert_eq!(texts, ["br", "br", "gzip"]);
    assert_eq!(bed.origin.requests("/a"), 2);
}

/// An error, a response with an unknown coding, or other request fields in `Vary` do not answer other values.
#[test]
fn responses_that_the_law_does_not_cover_answer_only_equal_requests() {
    let bed = TestBed::start();
    bed.origin.otherwise(|request| {
        let answer = match request.path() {
            "/error" => Answer::status(404),
            "/unknown" => Answer::ok("").header("content-encoding", "x-own"),
            _ => Answer::ok("identity"),
        };
        answer
            .header("cache-control", "max-age=600")
            .header("vary", "accept-encoding, cookie")
    });
    for path in ["/error", "/unknown"] {
        get(&bed, path, "gzip, br");
        assert!(get(&bed, path, "br, gzip").is_hit(), "{path}");
        assert!(!get(&bed, path, "gzip").is_hit(), "{path}");
    }
    let with_cookie = |accepted, cookie| {
        let fields = [("accept-encoding", accepted), ("cookie", cookie)];
        bed.get_with("/page", &fields).is_hit()
    };
    assert!(!with_cookie("gzip, br", "a=1"));
    assert!(with_cookie("gzip", "a=1"));
    assert!(!with_cookie("gzip", "a=2"));
}

#[test]
fn variants_are_not_shared_if_disabled() {
    let bed = bed_that_compresses(|config| config.caching.share_variants = false);
    get(&bed, "/a", "gzip, br");
    assert!(get(&bed, "/a", "br, gzip").is_hit());
    assert!(!get(&bed, "/a", "br").is_hit());
}

/// Image formats: an older browser gets the response that a newer one got, if the origin did not use the new format.
#[test]
fn browsers_with_different_image_formats_share_a_variant() {
    let bed = TestBed::start();
    bed.origin.otherwise(|request| {
        let accepted = request.header("accept").unwrap_or_default();
        let format = match accepted.contains("image/webp") {
            true => "image/webp",
            false => "image/jpeg",
        };
        Answer::ok(format)
            .header("content-type", format)
            .header("cache-control", "max-age=600")
            .header("vary", "accept")
    });
    for (accepted, format, is_hit) in [
        (
            "image/avif,image/webp,image/apng,image/*,*/*;q=0.8",
            "image/webp",
            false,
        ),
        (
            "image/webp,image/apng,image/*,*/*;q=0.8",
            "image/webp",
            true,
        ),
        ("image/apng,image/*,*/*;q=0.8", "image/jpeg", false),
        ("image/*,*/*;q=0.8", "image/jpeg", true),
        (
            "image/jxl,image/webp,image/*,*/*;q=0.8",
            "image/webp",
            false,
        ),
    ] {
        let answer = bed.get_with("/a", &[("accept", accepted)]);
        assert_eq!(answer.text(), format, "{accepted}");
        assert_eq!(
            answer.is_hit(),
            is_hit,
            "{accepted}: {}",
            answer.cache_status()
        );
    }
}

/// A stale variant is validated for the client that shares it. The origin compares entity tags of the coding it would
/// choose, so its 304 is about this variant.
#[test]
fn a_shared_variant_is_validated_like_an_own_one() {
    let bed = TestBed::start();
    bed.origin.otherwise(|request| {
        let answer = compress(request, &["br", "gzip"]);
        if request.header("if-none-match") == Some("\"br\"") {
            return Answer::status(304)
                .header("etag", "\"br\"")
                .header("cache-control", "max-age=600");
        }
        answer
            .header("etag", "\"br\"")
            .header("cache-control", "max-age=0")
    });
    get(&bed, "/a", "gzip, br, zstd");
    let validated = get(&bed, "/a", "gzip, br");
    assert!(
        validated
            .cache_status()
            .contains("fwd=stale; fwd-status=304"),
        "{validated:?}"
    );
    assert_eq!(validated.text(), "br");
    assert!(get(&bed, "/a", "gzip, br, zstd").is_hit());
}

/// Method: one more variant than the limit. The URL begins again with the last one, and other URLs are unaffected.
#[test]
fn the_variants_of_a_url_are_limited() {
    let bed = TestBed::with_config(|config| {
        config.caching.variants_max = NonZeroU32::new(3).expect("3 is not zero");
    });
    bed.origin.otherwise(|_| {
        Answer::ok("page")
            .header("cache-control", "max-age=600")
            .header("vary", "user-agent")
    });
    let get = |path, client| bed.get_with(path, &[("user-agent", client)]).is_hit();
    assert!(!get("/other", "a"));
    for client in ["a", "b", "c"] {
        assert!(!get("/a", client));
    }
    assert!(["a", "b", "c"].into_iter().all(|client| get("/a", client)));
    assert_eq!(bed.metric("edgeward_variants_full_total"), 0.0);
    assert!(!get("/a", "d"));
    assert_eq!(bed.metric("edgeward_variants_full_total"), 1.0);
    assert!(get("/a", "d"));
    assert!(
        !get("/a", "a"),
        "the variant was stored before the limit was reached"
    );
    assert!(get("/a", "a") && get("/a", "d") && get("/other", "a"));
    assert_eq!(bed.metric("edgeward_variants_stored_total"), 6.0);
}

/// A variant that is stored again does not count.
#[test]
fn a_variant_that_is_replaced_does_not_count_towards_the_limit() {
    let bed = TestBed::with_config(|config| {
        config.caching.variants_max = NonZeroU32::new(1).expect("1 is not zero");
    });
    bed.origin.otherwise(|_| {
        Answer::ok("page")
            .header("cache-control", "max-age=0")
            .header("etag", "\"a\"")
            .header("vary", "user-agent")
    });
    for _ in 0..3 {
        bed.get_with("/a", &[("user-agent", "a")]);
    }
    assert_eq!(bed.metric("edgeward_variants_full_total"), 0.0);
    assert_eq!(bed.metric("edgeward_variants_stored_total"), 1.0);
}
