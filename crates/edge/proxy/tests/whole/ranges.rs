//! Requests for ranges of bytes (RFC 9110 §14): of responses in memory and on disk, and of a body that is arriving.

use std::ops::Range;
use std::path::Path;

use crate::codecs::{H2Request, send_h2};
use crate::support::{Answer, Client, TestBed, pattern};
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::DiskConfig;
use edgeward_store::disk::DiskSettings;
use edgeward_testkit::{Answer as Scripted, Gate};
use edgeward_types::ByteSize;

/// Configures an edge whose memory tier admits no object. Every miss is written to disk.
fn on_disk(folder: &Path) -> impl FnOnce(&mut EdgeConfig) + use<> {
    let settings = DiskSettings::new(folder, ByteSize::mib(64));
    move |config| {
        config.hot.policy = "threshold:1B".parse().expect("the policy is valid");
        let mut disk = DiskConfig::with(settings);
        disk.admission = "always".parse().expect("the rule is valid");
        config.disk = Some(disk);
    }
}

const LENGTH: u64 = 2_000_000;

fn film() -> Scripted {
    Scripted::pattern(LENGTH)
        .header("cache-control", "max-age=60")
        .header("content-type", "video/mp4")
        .header("etag", "\"a\"")
}

/// Sends a GET for ranges over HTTP/1.1 and over HTTP/2.
fn over_both(bed: &TestBed, path: &str, ranges: &str) -> [Answer; 2] {
    let headers = [("range", ranges)];
    let host = "test.example";
    let request = H2Request {
        authority: Some(host),
        path,
        headers: &headers,
        ..H2Request::default()
    };
    let h2 = send_h2(bed.addr(), &request).expect("the stream is not reset");
    [bed.get_with(path, &headers), h2]
}

/// The fields and the bytes of one part.
type Part = (Vec<String>, Vec<u8>);

/// Splits a multipart body at its boundary (RFC 2046 §5.1.1).
fn parts(answer: &Answer) -> Vec<Part> {
    let content_type = answer.header("content-type").expect("a content type");
    let boundary = content_type
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap_or_else(|| panic!("{content_type}"));
    let length = answer.header("content-length").expect("a length");
    assert_eq!(length, answer.body.len().to_string());
    let body = [b"\r\n", &answer.body[..]].concat();
    let delimiter = format!("\r\n--{boundary}");
    let mut rest = &body[..];
    let mut parts = Vec::new();
    let next = |rest: &[u8]| {
        let mut windows = rest.windows(delimiter.len());
        windows.position(|window| window == delimiter.as_bytes())
    };
    assert_eq!(next(rest), Some(0), "the body begins with a delimiter");
    loop {
        rest = &rest[delimiter.len()..];
        if rest == b"--\r\n" {
            return parts;
        }
        let end = next(rest).expect("each part ends with a delimiter");
        let part = &rest[..end];
        let head_end = part.windows(4).position(|window| window == b"\r\n\r\n");
        let head_end = head_end.expect("each part has a head");
        let head = std::str::from_utf8(&part[..head_end]).expect("the head is UTF-8");
        let fields = head.split("\r\n").skip(1).map(str::to_owned).collect();
        parts.push((fields, part[head_end + 4..].to_vec()));
        rest = &rest[end..];
    }
}

fn part(range: Range<u64>) -> Part {
    let fields = vec![
        "Content-Type: video/mp4".to_owned(),
        format!(
            "Content-Range: bytes {}-{}/{LENGTH}",
            range.start,
            range.end - 1
        ),
    ];
    (fields, pattern(range))
}

/// Checks that the bed answers ranges of the stored film with parts, over each protocol.
fn check_parts(bed: &TestBed) {
    let end = LENGTH;
    for (ranges, expected) in [
        ("bytes=0-9,20-29,-5", &[0..10, 20..30, end - 5..end][..]),
        ("bytes=500-600, 0-0", &[500..601, 0..1]),
        ("bytes=1000000-,10-400000", &[1_000_000..end, 10..400_001]),
        ("bytes=0-9,3000000-,20-29,25-39", &[0..10, 20..40]),
    ] {
        for answer in over_both(bed, "/film", ranges) {
            assert_eq!(answer.status, 206, "{ranges}");
            assert!(answer.complete && answer.is_hit(), "{ranges}");
            assert_eq!(answer.header("content-range"), None, "{ranges}");
            assert_eq!(answer.header("etag"), Some("\"a\""), "{ranges}");
            let expected: Vec<_> = expected.iter().cloned().map(part).collect();
            assert!(parts(&answer) == expected, "{ranges}");
        }
    }
    // One range remains, so the response has no parts (RFC 9110 §15.3.7).
    for ranges in ["bytes=0-9,5-99", "bytes=2000000-,0-99"] {
        for answer in over_both(bed, "/film", ranges) {
            assert_eq!(answer.status, 206, "{ranges}");
            assert_eq!(answer.header("content-type"), Some("video/mp4"));
            assert_eq!(answer.header("content-range"), Some("bytes 0-99/2000000"));
            assert!(answer.body == pattern(0..100));
        }
    }
    for answer in over_both(bed, "/film", "bytes=2000000-,-0") {
        assert_eq!(answer.status, 416);
        assert_eq!(answer.header("content-range"), Some("bytes */2000000"));
    }
    let many: Vec<_> = (0..17).map(|n| format!("{n}00-{n}01")).collect();
    for answer in over_both(bed, "/film", &format!("bytes={}", many.join(","))) {
        assert_eq!(answer.status, 200, "more than 16 ranges");
        assert!(answer.body == pattern(0..LENGTH));
    }
    let failed = [("range", "bytes=0-9,20-29"), ("if-range", "\"b\"")];
    assert_eq!(bed.get_with("/film", &failed).status, 200);
    assert_eq!(bed.origin.requests("/film"), 1);
}

#[test]
fn several_ranges_of_a_body_in_memory_are_parts_of_one_response() {
    let bed = TestBed::start();
    bed.origin.on("/film", film());
    bed.get("/film");
    check_parts(&bed);
}

#[test]
fn several_ranges_of_a_body_on_disk_are_parts_of_one_response() {
    let folder = tempfile::tempdir().expect("the folder can be created");
    let bed = TestBed::with_config(on_disk(folder.path()));
    bed.origin.on("/film", film());
    bed.get("/film");
    bed.wait_until("the object is on disk", |status| {
        status["disk"]["devices"][0]["stored_objects"] == 1
    });
    check_parts(&bed);
}

/// A client might decode the multipart body as a whole, but its text is not encoded.
#[test]
fn several_ranges_of_an_encoded_body_are_answered_with_the_whole() {
    let bed = TestBed::start();
    bed.origin
        .on("/film", film().header("content-encoding", "gzip"));
    bed.get("/film");
    for answer in over_both(&bed, "/film", "bytes=0-9,20-29") {
        assert_eq!(answer.status, 200);
        assert!(answer.is_hit() && answer.body == pattern(0..LENGTH));
    }
}

/// Method: the origin stops after 200,000 bytes. Ranges that begin before this point, or shortly after it, are read
/// from the fetch. The origin gets only the range that lies far beyond.
#[test]
fn ranges_near_the_arrived_bytes_are_read_from_the_fetch_under_way() {
    let bed = TestBed::start();
    let gate = Gate::new();
    let body = film().wait_at(200_000, &gate);
    bed.origin
        .on_call("/film", move |request| match request.header("range") {
            Some(_) => Scripted::ok("from the origin").with_status(206),
            None => body.clone(),
        });
    let mut leader = bed.connect();
    leader.send_head("GET", "/film", &[]);
    assert_eq!(leader.head().status, 200);
    assert!(leader.read_up_to(200_000) == pattern(0..200_000));

    let [early, early_h2] = over_both(&bed, "/film", "bytes=50000-99999");
    for answer in [early, early_h2] {
        assert_eq!(answer.status, 206);
        assert!(answer.cache_status().ends_with("stored; collapsed"));
        assert_eq!(
            answer.header("content-range"),
            Some("bytes 50000-99999/2000000")
        );
        assert!(answer.complete && answer.body == pattern(50_000..100_000));
    }
    for answer in over_both(&bed, "/film", "bytes=0-9,100000-100009") {
        assert_eq!(answer.status, 206);
        assert!(parts(&answer) == [part(0..10), part(100_000..100_010)]);
    }
    let far = bed.get_with("/film", &[("range", "bytes=-5")]);
    assert_eq!(far.text(), "from the origin");
    let begin = |ranges| {
        let mut client = bed.connect();
        client.send_head("GET", "/film", &[("range", ranges)]);
        let head = client.head();
        assert_eq!(head.status, 206, "{ranges}");
        (client, head)
    };
    let (mut across, _) = begin("bytes=150000-249999");
    assert!(across.read_up_to(50_000) == pattern(150_000..200_000));
    let (mut ahead, _) = begin("bytes=1000000-");
    let (mut several, mut several_head) = begin("bytes=0-9,300000-300009");
    // Parts in another order would need released bytes, so the client gets the whole body.
    let mut whole = bed.connect();
    whole.send_head("GET", "/film", &[("range", "bytes=300-309,0-9")]);
    assert_eq!(whole.head().status, 200);
    assert_eq!(
        bed.origin.requests("/film"),
        2,
        "the body and the far range"
    );
    gate.open();
    let rest = |client: &mut Client, range: Range<u64>| {
        let length = usize::try_from(range.end - range.start).expect("the length fits");
        assert!(client.read_up_to(length) == pattern(range));
    };
    rest(&mut across, 200_000..250_000);
    rest(&mut ahead, 1_000_000..LENGTH);
    rest(&mut whole, 0..LENGTH);
    several.body("GET", &mut several_head);
    assert!(parts(&several_head) == [part(0..10), part(300_000..300_010)]);
    rest(&mut leader, 200_000..LENGTH);
    bed.wait_until("the fetch ends", |status| status["fills"]["under_way"] == 0);
    assert!(bed.get("/film").is_hit());
    assert_eq!(bed.origin.requests("/film"), 2);
}

/// Method: memory admits no object, and the body is larger than what followers share, so the fetch keeps only a window
/// of the body for the disk and its readers. A range far ahead of the others does not stop or corrupt the window.
#[test]
fn a_range_of_a_fetch_for_the_disk_alone_is_read_from_its_window() {
    let folder = tempfile::tempdir().expect("the folder can be created");
    let disk = on_disk(folder.path());
    let bed = TestBed::with_config(|config| {
        disk(config);
        config.caching.collapse_bytes_max = ByteSize::kib(64);
    });
    let gate = Gate::new();
    bed.origin.on("/film", film().wait_before_head(&gate));
    let mut leader = bed.connect();
    leader.send_head("GET", "/film", &[]);
    gate.wait_reached(1);
    let mut ranged = bed.connect();
    ranged.send_head("GET", "/film", &[("range", "bytes=1000000-1500000")]);
    bed.wait_until("the range waits for the head", |status| {
        status["requests"]["uri-miss"] == 2
    });
    gate.open();
    let follower = std::thread::spawn(move || ranged.answer("GET"));
    let whole = leader.answer("GET");
    assert!(whole.complete && whole.body == pattern(0..LENGTH));
    let part = follower.join().expect("the thread does not panic");
    assert_eq!(part.status, 206);
    assert!(part.complete && part.body == pattern(1_000_000..1_500_001));
    assert_eq!(bed.origin.requests("/film"), 1);
}

/// The rule: the origin that ignores ranges sends the response once. Method: the origin stops after 200,000 bytes of
/// the first response, and answers ranges with complete responses. The fetch may have shown this, by a 200 to its own
/// range or by `Accept-Ranges: none`. Otherwise one of the requests finds it out.
#[test]
fn ranges_far_ahead_are_cut_from_the_fetch_if_the_origin_ignores_ranges() {
    let last = LENGTH - 10;
    let own_range = format!("bytes={last}-");
    for (leader_range, accepts, requests) in [
        (None, None, 2),
        (None, Some("none"), 1),
        (Some("bytes=0-"), None, 1),
    ] {
        let bed = TestBed::start();
        let gate = Gate::new();
        let body = match accepts {
            Some(value) => film().header("accept-ranges", value),
            None => film(),
        };
        bed.origin
            .once("/film", body.clone().wait_at(200_000, &gate));
        bed.origin.on("/film", body);
        let fields: Vec<_> = leader_range
            .map(|range| ("range", range))
            .into_iter()
            .collect();
        let mut leader = bed.connect();
        leader.send_head("GET", "/film", &fields);
        gate.wait_reached(1);
        let mut clients: Vec<_> = (0..5).map(|_| bed.connect()).collect();
        for client in &mut clients {
            client.send_head("GET", "/film", &[("range", &own_range)]);
        }
        for client in &mut clients {
            let head = client.head();
            assert_eq!(head.status, 206, "{head:?}");
            assert!(head.cache_status().ends_with("collapsed"), "{head:?}");
        }
        gate.open();
        for client in &mut clients {
            assert!(client.read_up_to(10) == pattern(last..LENGTH));
        }
        let whole = leader.answer("GET");
        assert!(whole.complete && whole.body == pattern(0..LENGTH));
        let sent = bed.origin.requests("/film");
        assert_eq!(sent, requests, "{leader_range:?} {accepts:?}");
    }
}
