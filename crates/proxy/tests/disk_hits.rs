//! Hits on disk that the fast path answers: the same to a client as those that hyper answers, whatever the disk does.

mod support;

use std::fs::File;
use std::path::Path;

use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::DiskConfig;
use edgeward_store::disk::{DiskSettings, FILE_NAME};
use edgeward_testkit::Answer as Scripted;
use edgeward_types::ByteSize;
use support::{Answer, Bed, pattern};

/// An edge whose memory takes nothing, with 64 MiB in `folder` written to at every miss.
fn on_disk(folder: &Path) -> impl FnOnce(&mut EdgeConfig) + use<> {
    let settings = DiskSettings::new(folder, ByteSize::mib(64));
    move |config| {
        // Memory takes nothing: not even an empty body is one byte to it.
        config.hot.policy = "threshold:1B".parse().expect("a policy");
        let mut disk = DiskConfig::with(settings);
        disk.admission = "always".parse().expect("a rule");
        config.disk = Some(disk);
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn until_stored(bed: &Bed, objects: u64) {
    bed.until("objects on disk", |status| {
        status["disk"]["devices"][0]["stored_objects"] == objects
    });
}

/// By a field that the fast path does not know, so that hyper answers.
const BY_HYPER: &[(&str, &str)] = &[("pragma", "x-nothing")];

/// Status and fields that must agree; ages and lifetimes move on between two requests.
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

fn mapped_bytes(bed: &Bed) -> u64 {
    let status = bed.status();
    let device = &status["disk"]["devices"][0];
    device["mapped_bytes"].as_u64().expect("a count")
}

/// Method: bodies on both sides of every boundary (in the head's read, a block, a piece, many pieces) and heads of
/// several kinds; each asked for by the fast path, first compared and then lent, and by hyper, with GET and HEAD.
#[test]
fn the_lane_answers_a_disk_hit_as_hyper_does() {
    let folder = folder();
    let bed = Bed::with(on_disk(folder.path()));
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
        until_stored(&bed, stored);
        let by_hyper = bed.get_with(&path, BY_HYPER);
        assert!(by_hyper.body == pattern(0..size), "{size}");
        let mut client = bed.connect();
        for turn in 0..3 {
            let by_lane = client.get(&path, &[]);
            assert!(by_lane.complete && by_lane.body == by_hyper.body, "{size}");
            assert_eq!(
                comparable(&by_lane),
                comparable(&by_hyper),
                "{size}: {turn}"
            );
            assert!(by_lane.cache_status().ends_with("detail=disk"));
        }
        let head_by_lane = client.request("HEAD", &path, &[], b"");
        let head_by_hyper = bed.connect().request("HEAD", &path, BY_HYPER, b"");
        assert_eq!(comparable(&head_by_lane), comparable(&head_by_hyper));
        let after = client.get(&path, &[]);
        assert!(after.body == by_hyper.body, "{size}: after a HEAD");
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

/// Method: the same requests before an edge that compares at each read and one that does not; what is counted agrees.
#[test]
fn what_is_counted_does_not_depend_on_how_it_was_sent() {
    let counted = [
        std::time::Duration::ZERO,
        std::time::Duration::from_secs(600),
    ]
    .map(|every| {
        let folder = folder();
        let bed = Bed::with(|config| {
            on_disk(folder.path())(config);
            config.disk.as_mut().expect("a disk").settings.verify_every = every;
        });
        bed.origin.on(
            "/a",
            Scripted::pattern(400_000).header("cache-control", "max-age=600"),
        );
        for _ in 0..4 {
            assert!(bed.get("/a").body == pattern(0..400_000));
            until_stored(&bed, 1);
        }
        bed.connect().request("HEAD", "/a", &[], b"");
        assert_eq!(mapped_bytes(&bed) > 0, !every.is_zero());
        // Counted when the socket has taken them, which a client may notice first.
        bed.until_metric("edgeward_response_bytes_total", 1_600_000.0);
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

/// Method: the fast path reads the head, finds that it may not be used, and hands on what it found.
#[test]
fn what_the_lane_finds_and_cannot_use_is_looked_up_once() {
    let folder = folder();
    let bed = Bed::with(on_disk(folder.path()));
    bed.origin.on(
        "/stale",
        Scripted::pattern(20_000)
            .header("cache-control", "max-age=0")
            .header("etag", "\"v1\""),
    );
    bed.get("/stale");
    until_stored(&bed, 1);
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
    bed.until("the variant and its marker", |status| {
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

/// Method: an object that memory takes at its first hit on disk; all of it by the fast path.
#[test]
fn a_hit_that_goes_to_memory_as_well_is_whole_in_both_places() {
    let folder = folder();
    let bed = Bed::with(on_disk(folder.path()));
    bed.origin.on(
        "/a",
        Scripted::pattern(300_000).header("cache-control", "max-age=600"),
    );
    bed.get("/a");
    until_stored(&bed, 1);
    // Three times: the third would be lent.
    (0..3).for_each(|_| assert!(bed.get("/a").is_hit()));
    let origin = bed.stop();
    let bed = Bed::before(origin, |config| {
        on_disk(folder.path())(config);
        config.hot.policy = "lru".parse().expect("a policy");
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

/// Method: 12 MB whose last part a client leaves in the socket; meanwhile the file is cut off beneath the mapping. The
/// connection ends before a byte that is not there, the edge goes on, and asks the origin.
#[test]
fn a_file_cut_off_under_a_response_cuts_the_response_and_nothing_else() {
    let folder = folder();
    let bed = Bed::with(on_disk(folder.path()));
    let size = 12_000_000;
    bed.origin.on(
        "/big",
        Scripted::pattern(size).header("cache-control", "max-age=600"),
    );
    bed.get("/big");
    until_stored(&bed, 1);
    bed.get("/big");
    assert!(bed.get("/big").body == pattern(0..size));
    let lent = mapped_bytes(&bed);
    assert!(lent >= size, "{lent}");
    let mut client = bed.connect();
    client.send_head("GET", "/big", &[]);
    let mut answer = client.head();
    let path = folder.path().join(FILE_NAME);
    let file = File::options().write(true).open(path).expect("opens");
    file.set_len(8192).expect("cuts");
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

/// Method: a bit turns in a small object before it is asked for. It is found before anything is sent, so the client sees a miss.
#[test]
fn a_small_object_that_is_damaged_is_a_miss_to_the_client() {
    use std::os::unix::fs::FileExt as _;
    let folder = folder();
    let bed = Bed::with(on_disk(folder.path()));
    let body: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
    bed.origin.on(
        "/a",
        Scripted::ok(body.clone()).header("cache-control", "max-age=600"),
    );
    bed.get("/a");
    until_stored(&bed, 1);
    let path = folder.path().join(FILE_NAME);
    let content = std::fs::read(&path).expect("reads");
    let at = content
        .windows(64)
        .position(|window| window == &body[8000..8064])
        .expect("it lies there");
    let file = File::options().write(true).open(&path).expect("opens");
    file.write_all_at(&[content[at] ^ 1], at as u64)
        .expect("writes");
    let answer = bed.get("/a");
    assert!(
        answer.complete && answer.body == body && !answer.is_hit(),
        "{}",
        answer.cache_status()
    );
    assert_eq!(bed.status()["disk_lookups"]["unreadable"], 1);
}

/// Method: many requests in one write; the answers come in their order, byte for byte.
#[test]
fn requests_sent_at_once_are_answered_in_order() {
    let folder = folder();
    let bed = Bed::with(on_disk(folder.path()));
    let sizes = [100_u64, 20_000, 700_000, 3_000_000];
    for (n, size) in sizes.into_iter().enumerate() {
        let path = format!("/{size}");
        bed.origin.on(
            &path,
            Scripted::pattern(size).header("cache-control", "max-age=600"),
        );
        bed.get(&path);
        until_stored(&bed, n as u64 + 1);
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
