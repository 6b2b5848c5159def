//! Disk hits that the fast path serves: the edge's own HTTP/1.1 server, which passes requests that it does not support
//! to hyper. Clients get the same responses from both, also if the disk fails.

use std::fs::File;
use std::path::Path;

use crate::support::{Answer, TestBed, pattern};
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::DiskConfig;
use edgeward_store::disk::{DiskSettings, FILE_NAME};
use edgeward_testkit::Answer as Scripted;
use edgeward_types::ByteSize;

/// Configures an edge whose memory tier admits no object. Every miss is written to a disk tier of 64 MiB in
/// `folder`.
fn on_disk(folder: &Path) -> impl FnOnce(&mut EdgeConfig) + use<> {
    let settings = DiskSettings::new(folder, ByteSize::mib(64));
    move |config| {
        // The charge of even an empty object exceeds one byte, so memory admits no object.
        config.hot.policy = "threshold:1B".parse().expect("the policy is valid");
        let mut disk = DiskConfig::with(settings);
        disk.admission = "always".parse().expect("the rule is valid");
        config.disk = Some(disk);
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("the folder can be created")
}

fn wait_until_stored(bed: &TestBed, objects: u64) {
    bed.wait_until("the objects are on disk", |status| {
        status["disk"]["devices"][0]["stored_objects"] == objects
    });
}

/// A request field that makes the fast path pass the request to hyper.
const HYPER_FIELD: &[(&str, &str)] = &[("pragma", "x-nothing")];

/// Returns the status and the fields that must be equal in both responses. `age` and the value of `ttl` are
/// removed, because they change between two requests.
fn comparable(answer: &Answer) -> (u16, Vec<(String, String)>) {
    let mut fields: Vec<_> = answer
        .headers
        .iter()
        .filter(|(name, _)| name != "age")
        .map(|(name, value)| match value.split_once("ttl=") {
            Some((before, after)) => {
                let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
                (name.clone(), format!("{before}ttl=_{rest}"))
            }
            None => (name.clone(), value.clone()),
        })
        .collect();
    fields.sort();
    (answer.status, fields)
}

/// Returns the number of bytes that the kernel has sent directly from the page cache so far.
fn mapped_bytes(bed: &TestBed) -> u64 {
    let status = bed.status();
    let device = &status["disk"]["devices"][0];
    device["mapped_bytes"]
        .as_u64()
        .expect("the value is a count")
}

/// Method: store bodies with lengths around every boundary: the end of the first read, of a block (which has a
/// checksum), and of a piece (which is sent at once). The first read includes the head. The longest body has many
/// pieces. For each body, compare the responses of the fast path and of hyper to GET and HEAD, before and after the
/// store has verified the object.
#[test]
fn the_fast_path_answers_a_disk_hit_like_hyper() {
    let folder = folder();
    let bed = TestBed::with_config(on_disk(folder.path()));
    let sizes = [
        0, 1, 2000, 2049, 5000, 16_384, 65_535, 65_536, 65_537, 300_000, 1_048_576, 1_048_577,
        5_000_000,
    ];
    let mut stored = 0;
    for size in sizes {
        let path = format!("/{size}");
        bed.origin.on(
            &path,
            Scripted::pattern(size)
                .header("cache-control", "max-age=600")
                .header("etag", "\"v\"")
                .header("x-two", "a")
                .header("x-two", "b"),
        );
        bed.get(&path);
        stored += 1;
        wait_until_stored(&bed, stored);
        let by_hyper = bed.get_with(&path, HYPER_FIELD);
        assert!(by_hyper.body == pattern(0..size), "{size}");
        let mut client = bed.connect();
        for round in 0..3 {
            let by_fast_path = client.get(&path, &[]);
            assert!(
                by_fast_path.complete && by_fast_path.body == by_hyper.body,
                "{size}"
            );
            assert_eq!(
                comparable(&by_fast_path),
                comparable(&by_hyper),
                "{size}: {round}"
            );
            assert!(by_fast_path.cache_status().ends_with("detail=disk"));
        }
        let head_by_fast_path = client.request("HEAD", &path, &[], b"");
        let head_by_hyper = bed.connect().request("HEAD", &path, HYPER_FIELD, b"");
        assert_eq!(comparable(&head_by_fast_path), comparable(&head_by_hyper));
        let after_head = client.get(&path, &[]);
        assert!(after_head.body == by_hyper.body, "{size}: after a HEAD");
        assert_eq!(bed.origin.requests(&path), 1, "{size}");
    }
    assert!(mapped_bytes(&bed) > 10_000_000, "{}", mapped_bytes(&bed));
    let hits = sizes.len() as u64 * 7;
    assert_eq!(bed.status()["disk_lookups"]["hit"], hits);
    assert_eq!(
        bed.metric("edgeward_requests_total{outcome=\"hit\"}"),
        hits as f64
    );
}

/// Method: send the same requests to two edges. One verifies an object at each read. The other verifies the object at
/// its first reads and later sends the body from a memory mapping of the store. The counters must be equal.
#[test]
fn counters_do_not_depend_on_how_a_body_is_sent() {
    let counted = [
        std::time::Duration::ZERO,
        std::time::Duration::from_secs(600),
    ]
    .map(|every| {
        let folder = folder();
        let bed = TestBed::with_config(|config| {
            on_disk(folder.path())(config);
            config
                .disk
                .as_mut()
                .expect("the disk tier is configured")
                .settings
                .verify_every = every;
        });
        bed.origin.on(
            "/a",
            Scripted::pattern(400_000).header("cache-control", "max-age=600"),
        );
        for _ in 0..4 {
            assert!(bed.get("/a").body == pattern(0..400_000));
            wait_until_stored(&bed, 1);
        }
        bed.connect().request("HEAD", "/a", &[], b"");
        assert_eq!(mapped_bytes(&bed) > 0, !every.is_zero());
        // Bytes are counted after the socket has accepted them, possibly after the client has read them.
        bed.wait_for_metric("edgeward_response_bytes_total", 1_600_000.0);
        [
            "edgeward_requests_total{outcome=\"hit\"}",
            "edgeward_requests_total{outcome=\"uri-miss\"}",
            "edgeward_disk_lookups_total{result=\"hit\"}",
            "edgeward_disk_lookups_total{result=\"absent\"}",
            "edgeward_disk_response_bytes_total",
            "edgeward_response_bytes_total",
            "edgeward_responses_aborted_total{by=\"client\"}",
        ]
        .map(|series| (series, bed.metric(series)))
    });
    assert_eq!(counted[0], counted[1]);
    let value = |series| {
        counted[0]
            .iter()
            .find(|(name, _)| *name == series)
            .map(|(_, n)| *n)
    };
    assert_eq!(
        value("edgeward_disk_response_bytes_total"),
        Some(1_200_000.0)
    );
    assert_eq!(
        value("edgeward_disk_lookups_total{result=\"absent\"}"),
        Some(1.0)
    );
}

/// Method: request a stale object, so that the fast path finds it on disk but must pass the request to hyper.
/// The counters show one lookup and one read, because the fast path also passes the result of its lookup. Then request
/// two variants of a second object, and check that the stored variant is a hit.
#[test]
fn a_request_that_the_fast_path_passes_to_hyper_is_looked_up_once() {
    let folder = folder();
    let bed = TestBed::with_config(on_disk(folder.path()));
    bed.origin.on(
        "/stale",
        Scripted::pattern(20_000)
            .header("cache-control", "max-age=0")
            .header("etag", "\"v1\""),
    );
    bed.get("/stale");
    wait_until_stored(&bed, 1);
    let again = bed.get("/stale");
    assert!(
        again.cache_status().starts_with("edgeward; fwd=stale"),
        "{again:?}"
    );
    let status = bed.status();
    assert_eq!(status["disk_lookups"]["stale"], 1);
    assert_eq!(status["disk_lookups"]["absent"], 1);
    let device = &status["disk"]["devices"][0];
    assert_eq!(device["read_objects"], 1, "{device:#}");

    bed.origin.on(
        "/v",
        Scripted::pattern(20_000)
            .header("cache-control", "max-age=600")
            .header("vary", "accept-language"),
    );
    bed.get_with("/v", &[("accept-language", "de")]);
    bed.wait_until("the variant and its marker are on disk", |status| {
        status["disk"]["devices"][0]["objects"] == 3
    });
    for _ in 0..2 {
        let hit = bed.get_with("/v", &[("accept-language", "de")]);
        assert!(hit.is_hit() && hit.body == pattern(0..20_000), "{hit:?}");
        assert!(
            !bed.get_with("/v", &[("accept-language", "fr")])
                .body
                .is_empty()
        );
    }
}

/// Method: restart the edge with a memory tier that admits the object at its first disk hit. The fast path
/// serves all requests.
#[test]
fn a_promoted_hit_is_complete_for_its_client_and_in_memory() {
    let folder = folder();
    let bed = TestBed::with_config(on_disk(folder.path()));
    bed.origin.on(
        "/a",
        Scripted::pattern(300_000).header("cache-control", "max-age=600"),
    );
    bed.get("/a");
    wait_until_stored(&bed, 1);
    // These hits are on disk, because the memory of this edge admits no object. The next edge starts with the same
    // store, and its memory admits the object: its first hit is on disk and also copies the bytes to memory.
    (0..3).for_each(|_| assert!(bed.get("/a").is_hit()));
    let origin = bed.stop();
    let bed = TestBed::with_origin(origin, |config| {
        on_disk(folder.path())(config);
        config.hot.policy = "lru".parse().expect("the policy is valid");
    });
    let mut client = bed.connect();
    let first = client.get("/a", &[]);
    assert!(first.body == pattern(0..300_000));
    assert!(first.cache_status().ends_with("detail=disk"));
    let second = client.get("/a", &[]);
    assert!(second.body == pattern(0..300_000));
    assert!(!second.cache_status().contains("detail"), "{second:?}");
    assert_eq!(bed.metric("edgeward_disk_promoted_total"), 1.0);
    assert_eq!(bed.status()["disk_lookups"]["hit"], 1);
}

/// Method: truncate the file of the store while a client has read only the head of a body of 12 MB, which the
/// edge sends from the mapping of the file. The edge closes the connection before the first missing byte. It
/// continues to serve, and fetches the object from the origin for the next request.
#[test]
fn a_file_truncated_during_a_response_ends_only_this_response() {
    let folder = folder();
    let bed = TestBed::with_config(on_disk(folder.path()));
    let size = 12_000_000;
    bed.origin.on(
        "/big",
        Scripted::pattern(size).header("cache-control", "max-age=600"),
    );
    bed.get("/big");
    wait_until_stored(&bed, 1);
    bed.get("/big");
    assert!(bed.get("/big").body == pattern(0..size));
    let mapped = mapped_bytes(&bed);
    assert!(mapped >= size, "{mapped}");
    let mut client = bed.connect();
    client.send_head("GET", "/big", &[]);
    let mut answer = client.head();
    let path = folder.path().join(FILE_NAME);
    let file = File::options()
        .write(true)
        .open(path)
        .expect("the file can be opened");
    file.set_len(8192).expect("the file is truncated");
    client.body("GET", &mut answer);
    assert!(!answer.complete);
    assert!(pattern(0..size).starts_with(&answer.body));
    assert_eq!(
        bed.metric("edgeward_disk_bodies_broken_total{end=\"cut\"}"),
        1.0
    );
    assert_eq!(
        bed.metric("edgeward_responses_aborted_total{by=\"client\"}"),
        0.0
    );
    let again = bed.get("/big");
    assert!(!again.is_hit() && again.body == pattern(0..size));
}

/// Method: flip a bit of a small object on disk. The edge detects the corruption before it sends the head, and
/// fetches the object again.
#[test]
fn a_small_corrupt_object_is_a_miss() {
    use std::os::unix::fs::FileExt as _;
    let folder = folder();
    let bed = TestBed::with_config(on_disk(folder.path()));
    let body: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
    bed.origin.on(
        "/a",
        Scripted::ok(body.clone()).header("cache-control", "max-age=600"),
    );
    bed.get("/a");
    wait_until_stored(&bed, 1);
    let path = folder.path().join(FILE_NAME);
    let content = std::fs::read(&path).expect("the file can be read");
    let at = content
        .windows(64)
        .position(|window| window == &body[8000..8064])
        .expect("the object is on the disk");
    let file = File::options()
        .write(true)
        .open(&path)
        .expect("the file can be opened");
    file.write_all_at(&[content[at] ^ 1], at as u64)
        .expect("the file can be written");
    let answer = bed.get("/a");
    assert!(
        answer.complete && answer.body == body && !answer.is_hit(),
        "{}",
        answer.cache_status()
    );
    assert_eq!(bed.status()["disk_lookups"]["unreadable"], 1);
}

/// Method: send 40 requests before reading a response. All responses are complete and in the order of the
/// requests.
#[test]
fn requests_sent_at_once_are_answered_in_order() {
    let folder = folder();
    let bed = TestBed::with_config(on_disk(folder.path()));
    let sizes = [100_u64, 20_000, 700_000, 3_000_000];
    for (n, size) in sizes.into_iter().enumerate() {
        let path = format!("/{size}");
        bed.origin.on(
            &path,
            Scripted::pattern(size).header("cache-control", "max-age=600"),
        );
        bed.get(&path);
        wait_until_stored(&bed, n as u64 + 1);
    }
    let mut client = bed.connect();
    let order: Vec<u64> = (0..40).map(|n| sizes[n * 7 % 4]).collect();
    for size in &order {
        client.send_head("GET", &format!("/{size}"), &[]);
    }
    for size in order {
        let answer = client.answer("GET");
        assert!(answer.body == pattern(0..size), "{size}");
        assert!(answer.is_hit());
    }
}
