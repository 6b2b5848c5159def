//! Ranges without a complete stored response, fetched in slices: tested with what clients and the origin receive.

mod support;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::{DiskConfig, Token};
use edgeward_store::disk::DiskSettings;
use edgeward_testkit::{Answer, Gate, ScriptedOrigin, pattern_byte};
use edgeward_types::ByteSize;
use support::{Client, TestBed};

const SLICE: u64 = 64 << 10;
const LENGTH: u64 = 10 * SLICE + 1000;

fn sliced(config: &mut EdgeConfig) {
    config.ranges.slice_bytes = ByteSize(SLICE);
    config.ranges.read_ahead_slices = 0;
}

/// Returns a configuration with 64 MiB of disk in `folder`, and memory for a few entries but no slice.
fn on_disk(folder: &Path) -> impl FnOnce(&mut EdgeConfig) + use<> {
    let settings = DiskSettings::new(folder, ByteSize::mib(64));
    move |config| {
        sliced(config);
        config.purge.token = Token::new(TOKEN).ok();
        config.hot.capacity = ByteSize::kib(4);
        let mut disk = DiskConfig::with(settings);
        disk.admission = "always".parse().expect("the rule is valid");
        config.disk = Some(disk);
    }
}

const TOKEN: &str = "correct-horse-battery";

/// A representation of [`LENGTH`] bytes that an origin changes by increasing its version.
#[derive(Clone, Default)]
struct Representation {
    version: Arc<AtomicU64>,
    /// Fields of each response, in addition to the entity tag.
    fields: Vec<(&'static str, &'static str)>,
}

impl Representation {
    fn with(fields: &[(&'static str, &'static str)]) -> Self {
        Self {
            version: Arc::default(),
            fields: fields.to_vec(),
        }
    }

    fn cached() -> Self {
        Self::with(&[("cache-control", "max-age=600")])
    }

    fn change(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the bytes of a range of one version.
    fn bytes(version: u64, range: Range<u64>) -> Vec<u8> {
        range.map(|at| pattern_byte(at + version * 17)).collect()
    }

    /// Answers a request as an origin that follows RFC 9110 §13 and §14.
    fn answer(&self, request: &edgeward_testkit::RecordedRequest) -> Answer {
        let version = self.version.load(Ordering::SeqCst);
        let tag = format!("\"v{version}\"");
        let with_fields = |answer: Answer| {
            let answer = answer.header("etag", &tag);
            self.fields
                .iter()
                .fold(answer, |answer, (name, value)| answer.header(name, value))
        };
        if request.header("if-none-match") == Some(&tag) {
            return with_fields(Answer::status(304));
        }
        let is_current = request.header("if-range").is_none_or(|value| value == tag);
        let range = request.header("range").filter(|_| is_current);
        let Some(range) = range.and_then(|range| range.strip_prefix("bytes=")) else {
            return with_fields(Answer::ok(Self::bytes(version, 0..LENGTH)));
        };
        let (first, last) = range.split_once('-').expect("a range has a dash");
        let (first, last): (u64, u64) = if first.is_empty() {
            (LENGTH - last.parse::<u64>().expect("a number"), LENGTH - 1)
        } else {
            let last = last.parse().unwrap_or(u64::MAX);
            (first.parse().expect("a number"), last.min(LENGTH - 1))
        };
        if first >= LENGTH {
            let range = format!("bytes */{LENGTH}");
            return Answer::status(416).header("content-range", &range);
        }
        let part = Answer::ok(Self::bytes(version, first..last + 1)).with_status(206);
        with_fields(part).header("content-range", &format!("bytes {first}-{last}/{LENGTH}"))
    }

    fn serve(&self, origin: &ScriptedOrigin, path: &str) {
        let this = self.clone();
        origin.on_call(path, move |request| this.answer(request));
    }
}

/// Returns an edge whose origin has a [`Representation`] at `/a`.
fn bed_with(representation: &Representation) -> TestBed {
    let bed = TestBed::with_config(sliced);
    representation.serve(&bed.origin, "/a");
    bed
}

fn get_range(bed: &TestBed, range: Range<u64>) -> support::Answer {
    let value = format!("bytes={}-{}", range.start, range.end - 1);
    bed.get_with("/a", &[("range", &value)])
}

/// Requests a range and checks the response.
#[track_caller]
fn expect_range(bed: &TestBed, version: u64, range: Range<u64>) -> support::Answer {
    let answer = get_range(bed, range.clone());
    let content = format!("bytes {}-{}/{LENGTH}", range.start, range.end - 1);
    assert_eq!(answer.status, 206, "{answer:?}");
    assert_eq!(answer.header("content-range"), Some(content.as_str()));
    assert!(
        answer.complete && answer.body == Representation::bytes(version, range.clone()),
        "{range:?} of version {version}"
    );
    answer
}

/// Returns the ranges that the origin was asked for.
fn ranges_requested(bed: &TestBed) -> Vec<String> {
    let recorded = bed.origin.recorded();
    recorded
        .iter()
        .map(|request| request.header("range").unwrap_or("none").to_owned())
        .collect()
}

fn slice_value(index: u64) -> String {
    let last = ((index + 1) * SLICE).min(LENGTH) - 1;
    format!("bytes={}-{last}", index * SLICE)
}

#[test]
fn a_range_on_a_miss_fetches_only_its_slices() {
    let bed = bed_with(&Representation::cached());
    let first = expect_range(&bed, 0, SLICE + 100..SLICE + 200);
    assert_eq!(
        first.cache_status(),
        "edgeward; fwd=uri-miss; fwd-status=206; stored"
    );
    let again = expect_range(&bed, 0, SLICE..SLICE + 150);
    assert!(again.is_hit(), "{}", again.cache_status());
    let across = expect_range(&bed, 0, SLICE + 5..4 * SLICE + 7);
    assert_eq!(across.cache_status(), "edgeward; fwd=partial");
    assert!(expect_range(&bed, 0, SLICE + 5..4 * SLICE + 7).is_hit());
    let expected: Vec<String> = (1..5).map(slice_value).collect();
    assert_eq!(ranges_requested(&bed), expected);
    let last = bed.origin.last("/a").expect("a request");
    assert_eq!(last.header("if-range"), Some("\"v0\""));
    assert_eq!(bed.metric("edgeward_requests_total{outcome=\"hit\"}"), 2.0);
    assert_eq!(
        bed.metric("edgeward_requests_total{outcome=\"partial\"}"),
        1.0
    );
    assert_eq!(
        bed.metric("edgeward_slice_fetches_total{result=\"slice\"}"),
        4.0
    );
}

#[test]
fn a_response_in_slices_answers_requests_of_all_kinds() {
    let bed = bed_with(&Representation::cached());
    expect_range(&bed, 0, 0..10);
    let head = bed.connect().request("HEAD", "/a", &[], b"");
    assert!(head.is_hit() && head.status == 200, "{head:?}");
    let length = LENGTH.to_string();
    assert_eq!(head.header("content-length"), Some(length.as_str()));
    assert_eq!(head.header("content-range"), None);
    let unchanged = bed.get_with("/a", &[("if-none-match", "\"v0\"")]);
    assert!(unchanged.is_hit() && unchanged.status == 304);
    let beyond = bed.get_with("/a", &[("range", &format!("bytes={LENGTH}-"))]);
    assert_eq!(beyond.status, 416);
    let content = format!("bytes */{LENGTH}");
    assert_eq!(beyond.header("content-range"), Some(content.as_str()));
    let other = [("range", "bytes=0-1"), ("if-range", "\"other\"")];
    for fields in [&[][..], &other] {
        let whole = bed.get_with("/a", fields);
        assert_eq!((whole.status, whole.complete), (200, true));
        assert!(whole.body == Representation::bytes(0, 0..LENGTH));
    }
    let suffix = bed.get_with("/a", &[("range", "bytes=-5")]);
    assert!(suffix.is_hit() && suffix.body == Representation::bytes(0, LENGTH - 5..LENGTH));
    let expected: Vec<String> = (0..11).map(slice_value).collect();
    assert_eq!(ranges_requested(&bed), expected);
}

#[test]
fn a_first_suffix_is_requested_as_it_is() {
    let bed = bed_with(&Representation::cached());
    let get = |length: u64| {
        let answer = bed.get_with("/a", &[("range", &format!("bytes=-{length}"))]);
        assert_eq!((answer.status, answer.complete), (206, true));
        assert!(answer.body == Representation::bytes(0, LENGTH - length..LENGTH));
        answer
    };
    get(600);
    assert!(get(500).is_hit());
    get(800); // The part that is stored is shorter, so the whole slice is fetched.
    assert!(get(1000).is_hit());
    assert_eq!(ranges_requested(&bed), ["bytes=-600", &slice_value(10)]);
}

/// Method: the part of the first suffix has bytes of two slices, so only the head of the response is of use.
#[test]
fn a_suffix_across_slices_is_answered_and_its_target_is_sliced() {
    let bed = bed_with(&Representation::cached());
    let answer = bed.get_with("/a", &[("range", "bytes=-2000")]);
    assert_eq!((answer.status, answer.complete), (206, true));
    assert!(answer.body == Representation::bytes(0, LENGTH - 2000..LENGTH));
    let again = expect_range(&bed, 0, LENGTH - 900..LENGTH);
    assert_eq!(again.cache_status(), "edgeward; fwd=partial");
    assert!(expect_range(&bed, 0, LENGTH - 900..LENGTH).is_hit());
    assert_eq!(ranges_requested(&bed), ["bytes=-2000", &slice_value(10)]);
}

#[test]
fn a_206_with_the_whole_representation_is_stored_as_a_complete_response() {
    let bed = TestBed::with_config(sliced);
    let answer = Answer::ok("0123456789")
        .with_status(206)
        .header("content-range", "bytes 0-9/10")
        .header("cache-control", "max-age=600");
    bed.origin.on("/a", answer);
    let first = bed.get_with("/a", &[("range", "bytes=2-4")]);
    assert_eq!((first.status, first.text()), (206, "234"));
    assert_eq!(first.header("content-range"), Some("bytes 2-4/10"));
    assert_eq!(first.header("content-length"), Some("3"));
    let whole = bed.get("/a");
    assert!(whole.is_hit() && whole.status == 200);
    assert_eq!(
        (whole.text(), whole.header("content-range")),
        ("0123456789", None)
    );
    assert_eq!(bed.origin.requests("/a"), 1);
}

/// Method: a follower joins while the origin sends the complete response.
#[test]
fn a_200_to_a_range_is_stored_while_clients_get_their_parts() {
    let bed = TestBed::with_config(sliced);
    let gate = Gate::new();
    let answer = Answer::pattern(LENGTH)
        .header("cache-control", "max-age=600")
        .wait_at(SLICE, &gate);
    bed.origin.on("/a", answer);
    let get = |range: &'static str| {
        let mut client = bed.connect();
        client.send_head("GET", "/a", &[("range", range)]);
        client
    };
    let mut leader = get("bytes=100000-100009");
    gate.wait_reached(1);
    let mut follower = get("bytes=5-9");
    let early = follower.answer("GET");
    assert_eq!(
        (early.status, early.body),
        (206, Representation::bytes(0, 5..10))
    );
    gate.open();
    let late = leader.answer("GET");
    assert_eq!(late.status, 206);
    assert_eq!(late.body, Representation::bytes(0, 100_000..100_010));
    let unsatisfied = format!("bytes={LENGTH}-");
    bed.wait_for_metric("edgeward_fills_total{end=\"stored\"}", 1.0);
    assert_eq!(bed.get_with("/a", &[("range", &unsatisfied)]).status, 416);
    assert!(bed.get("/a").is_hit());
    assert_eq!(bed.origin.requests("/a"), 1);
}

/// Method: a fetch of the complete response has sent its first bytes. A range far behind them does not wait for it.
#[test]
fn a_range_far_from_a_fill_under_way_is_passed() {
    let bed = TestBed::with_config(sliced);
    let gate = Gate::new();
    let wait = gate.clone();
    let length = 3 << 20;
    bed.origin
        .on_call("/a", move |request| match request.header("range") {
            Some(_) => Answer::ok("0123456789")
                .with_status(206)
                .header("content-range", &format!("bytes 2500000-2500009/{length}")),
            None => Answer::pattern(length)
                .header("cache-control", "max-age=600")
                .wait_at(100, &wait),
        });
    let mut whole = bed.connect();
    whole.send_head("GET", "/a", &[]);
    gate.wait_reached(1);
    let part = bed.get_with("/a", &[("range", "bytes=2500000-2500009")]);
    assert_eq!((part.status, part.text()), (206, "0123456789"));
    assert_eq!(
        bed.metric("edgeward_ranges_passed_total{reason=\"fill\"}"),
        1.0
    );
    gate.open();
    assert_eq!(whole.answer("GET").body.len() as u64, length);
    bed.wait_for_metric("edgeward_fills_total{end=\"stored\"}", 1.0);
    assert!(bed.get("/a").is_hit());
}

/// RFC 9110 §15.3.7.3: without a strong validator, parts must not be combined.
#[test]
fn ranges_that_cannot_be_sliced_are_passed_unchanged() {
    let cases: [(&str, &[(&str, &str)]); 5] = [
        (
            "/weak",
            &[("etag", "W/\"a\""), ("content-range", "bytes 0-4/1000")],
        ),
        ("/none", &[("content-range", "bytes 0-4/1000")]),
        (
            "/unknown",
            &[("etag", "\"a\""), ("content-range", "bytes 0-4/*")],
        ),
        (
            "/length",
            &[("etag", "\"a\""), ("content-range", "bytes 0-5/1000")],
        ),
        (
            "/private",
            &[
                ("etag", "\"a\""),
                ("content-range", "bytes 0-4/1000"),
                ("cache-control", "private"),
            ],
        ),
    ];
    let bed = TestBed::with_config(sliced);
    for (path, fields) in cases {
        let answer = Answer::ok("01234").with_status(206);
        let answer = fields
            .iter()
            .fold(answer, |answer, (name, value)| answer.header(name, value));
        bed.origin
            .on(path, answer.header("cache-control", "max-age=60"));
        for requests in 1..4 {
            let answer = bed.get_with(path, &[("range", "bytes=0-4"), ("if-range", "\"a\"")]);
            assert_eq!((answer.status, answer.text()), (206, "01234"), "{path}");
            // The first request is sent twice. The target is then remembered.
            assert_eq!(bed.origin.requests(path), requests + 1, "{path}");
            let last = bed.origin.last(path).expect("a request");
            assert_eq!(last.header("range"), Some("bytes=0-4"), "{path}");
            assert_eq!(last.header("if-range"), Some("\"a\""), "{path}");
        }
    }
    let passed = |reason: &str| {
        bed.metric(&format!(
            "edgeward_ranges_passed_total{{reason=\"{reason}\"}}"
        ))
    };
    assert_eq!((passed("unusable"), passed("marked")), (5.0, 10.0));
}

#[test]
fn several_ranges_and_disabled_slices_are_passed() {
    let bed = bed_with(&Representation::cached());
    bed.origin.on("/a", Answer::ok("whole"));
    bed.get_with("/a", &[("range", "bytes=0-1,5-6")]);
    assert_eq!(ranges_requested(&bed), ["bytes=0-1,5-6"]);
    let representation = Representation::cached();
    let bed = TestBed::with_config(|config| config.ranges.slice_bytes = ByteSize(0));
    representation.serve(&bed.origin, "/a");
    expect_range(&bed, 0, 5..10);
    expect_range(&bed, 0, 5..10);
    assert_eq!(ranges_requested(&bed), ["bytes=5-9", "bytes=5-9"]);
    assert_eq!(
        bed.metric("edgeward_ranges_passed_total{reason=\"form\"}"),
        2.0
    );
}

#[test]
fn other_statuses_are_answered_as_without_slices() {
    let bed = TestBed::with_config(sliced);
    bed.origin.on(
        "/gone",
        Answer::ok("gone")
            .with_status(404)
            .header("cache-control", "max-age=60"),
    );
    let range = [("range", "bytes=0-1")];
    let gone = bed.get_with("/gone", &range);
    assert_eq!((gone.status, gone.text()), (404, "gone"));
    assert!(bed.get("/gone").is_hit());
    Representation::cached().serve(&bed.origin, "/a");
    let beyond = bed.get_with("/a", &[("range", &format!("bytes={}-", 20 * SLICE))]);
    assert_eq!(beyond.status, 416);
    // The slice of this range exists, but the range begins after its last byte.
    let beyond = bed.get_with("/a", &[("range", &format!("bytes={LENGTH}-"))]);
    assert_eq!(beyond.status, 416);
    let content = format!("bytes */{LENGTH}");
    assert_eq!(beyond.header("content-range"), Some(content.as_str()));
}

/// Method: twenty clients request ranges of four slices of a cold object. The origin waits until all have joined.
#[test]
fn clients_share_the_fetch_of_each_slice() {
    let representation = Representation::cached();
    let bed = TestBed::with_config(sliced);
    let gate = Gate::new();
    let (this, wait) = (representation, gate.clone());
    bed.origin.on_call("/a", move |request| {
        this.answer(request).wait_before_head(&wait)
    });
    let clients: Vec<(Client, Range<u64>)> = (0..20)
        .map(|number| {
            let start = (number % 4) * 2 * SLICE + number;
            let range = start..start + SLICE / 2;
            let value = format!("bytes={}-{}", range.start, range.end - 1);
            let mut client = bed.connect();
            client.send_head("GET", "/a", &[("range", &value)]);
            (client, range)
        })
        .collect();
    bed.wait_for_metric("edgeward_requests_total{outcome=\"uri-miss\"}", 20.0);
    gate.open();
    for (mut client, range) in clients {
        let answer = client.answer("GET");
        assert_eq!(answer.status, 206);
        assert!(answer.body == Representation::bytes(0, range));
    }
    let mut requested = ranges_requested(&bed);
    requested.sort();
    let mut expected: Vec<String> = [0, 2, 4, 6].map(slice_value).to_vec();
    expected.sort();
    assert_eq!(requested, expected);
}

#[test]
fn a_response_that_has_not_begun_restarts_with_the_new_version() {
    let representation = Representation::cached();
    let bed = bed_with(&representation);
    expect_range(&bed, 0, 0..10);
    representation.change();
    // The edge cannot know yet that the stored slice is outdated.
    assert!(expect_range(&bed, 0, 0..10).is_hit());
    expect_range(&bed, 1, SLICE..SLICE + 10);
    assert!(expect_range(&bed, 1, SLICE..SLICE + 10).is_hit());
    let first = expect_range(&bed, 1, 0..10);
    assert_eq!(first.cache_status(), "edgeward; fwd=partial");
    let changed = |end| bed.metric(&format!("edgeward_slices_changed_total{{end=\"{end}\"}}"));
    assert_eq!((changed("restarted"), changed("broken")), (1.0, 0.0));
}

#[test]
fn a_response_under_way_ends_when_the_representation_changes() {
    let representation = Representation::cached();
    let bed = bed_with(&representation);
    expect_range(&bed, 0, 0..10);
    representation.change();
    let answer = get_range(&bed, 5..3 * SLICE);
    assert_eq!((answer.status, answer.complete), (206, false));
    assert!(answer.body == Representation::bytes(0, 5..SLICE));
    assert_eq!(
        bed.metric("edgeward_slices_changed_total{end=\"broken\"}"),
        1.0
    );
    // The entry is removed, so the next response is complete.
    expect_range(&bed, 1, 5..3 * SLICE);
}

/// Method: random ranges of an object that changes at random. Each response has the bytes of one version, or ends
/// early.
#[test]
fn versions_never_mix() {
    let representation = Representation::cached();
    let bed = TestBed::with_config(|config| {
        sliced(config);
        config.ranges.read_ahead_slices = 2;
    });
    representation.serve(&bed.origin, "/a");
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut whole = 0;
    for _ in 0..300 {
        if random(10) == 0 {
            representation.change();
        }
        let start = random(LENGTH);
        let end = (start + 1 + random(3 * SLICE)).min(LENGTH);
        let answer = get_range(&bed, start..end);
        assert_eq!(answer.status, 206);
        let tag = answer.header("etag").expect("a tag").trim_matches('"');
        let version: u64 = tag[1..].parse().expect("a version");
        let bytes = Representation::bytes(version, start..start + answer.body.len() as u64);
        assert!(answer.body == bytes, "{start}..{end} of version {version}");
        whole += u64::from(answer.complete);
    }
    assert!(whole > 250, "{whole} of 300 responses were complete");
}

#[test]
fn a_304_freshens_all_slices() {
    let representation = Representation::with(&[("cache-control", "max-age=0")]);
    let bed = bed_with(&representation);
    expect_range(&bed, 0, 0..10);
    let again = expect_range(&bed, 0, 5..20);
    assert!(
        again
            .cache_status()
            .starts_with("edgeward; fwd=stale; fwd-status=304"),
        "{}",
        again.cache_status()
    );
    let last = bed.origin.last("/a").expect("a request");
    assert_eq!(last.header("if-none-match"), Some("\"v0\""));
    representation.change();
    let changed = expect_range(&bed, 1, 3 * SLICE..3 * SLICE + 5);
    assert_eq!(
        changed.cache_status(),
        "edgeward; fwd=stale; fwd-status=206; stored"
    );
    // The new version was fetched in slices, too.
    assert_eq!(ranges_requested(&bed)[2..], [slice_value(3)]);
    representation.change();
    let whole = bed.get("/a");
    assert!(whole.complete && whole.body == Representation::bytes(2, 0..LENGTH));
}

#[test]
fn each_variant_has_slices_of_its_own() {
    let bed = TestBed::with_config(sliced);
    let representations = ["de", "en"].map(|language| {
        let representation = Representation::with(&[
            ("cache-control", "max-age=600"),
            ("vary", "accept-language"),
        ]);
        if language == "en" {
            representation.change();
        }
        representation
    });
    bed.origin.on_call("/a", move |request| {
        let is_english = request.header("accept-language") == Some("en");
        representations[usize::from(is_english)].answer(request)
    });
    for round in 0..2 {
        for (version, language) in ["de", "en"].into_iter().enumerate() {
            let fields = [
                ("accept-language", language),
                ("range", "bytes=70000-70009"),
            ];
            let answer = bed.get_with("/a", &fields);
            let bytes = Representation::bytes(version as u64, 70_000..70_010);
            assert_eq!((answer.status, answer.body.clone()), (206, bytes));
            assert_eq!(answer.is_hit(), round == 1, "{}", answer.cache_status());
        }
    }
}

/// Method: clients of two variants request a cold object. They join one fetch, because the edge does not know yet that
/// the response varies. The origin waits until all have joined.
#[test]
fn clients_of_another_variant_do_not_get_the_slices_of_a_shared_fetch() {
    let bed = TestBed::with_config(sliced);
    let gate = Gate::new();
    let wait = gate.clone();
    let fields = [
        ("cache-control", "max-age=600"),
        ("vary", "accept-language"),
    ];
    let representations = [Representation::with(&fields), Representation::with(&fields)];
    representations[1].change();
    bed.origin.on_call("/a", move |request| {
        let is_english = request.header("accept-language") == Some("en");
        representations[usize::from(is_english)]
            .answer(request)
            .wait_before_head(&wait)
    });
    let clients: Vec<(Client, u64)> = (0..10)
        .map(|number| {
            let version = number % 2;
            let language = ["de", "en"][usize::from(version == 1)];
            let fields = [
                ("accept-language", language),
                ("range", "bytes=70000-70009"),
            ];
            let mut client = bed.connect();
            client.send_head("GET", "/a", &fields);
            (client, version)
        })
        .collect();
    bed.wait_for_metric("edgeward_requests_total{outcome=\"uri-miss\"}", 10.0);
    gate.open();
    for (mut client, version) in clients {
        let answer = client.answer("GET");
        assert_eq!(answer.status, 206);
        assert!(answer.body == Representation::bytes(version, 70_000..70_010));
    }
    assert_eq!(bed.origin.requests("/a"), 2);
}

/// Method: a URL with another tracking parameter joins the entry of the first one, and both share the slices.
#[test]
fn urls_that_are_equivalent_under_no_vary_search_share_slices() {
    let bed = TestBed::with_config(sliced);
    let representation = Representation::with(&[
        ("cache-control", "max-age=600"),
        ("no-vary-search", "params=(\"utm\")"),
    ]);
    for path in ["/a?v=1&utm=x", "/a?utm=y&v=1", "/a?v=2"] {
        representation.serve(&bed.origin, path);
    }
    let get = |path: &str| {
        let answer = bed.get_with(path, &[("range", "bytes=70000-70009")]);
        assert_eq!(answer.status, 206);
        assert!(answer.body == Representation::bytes(0, 70_000..70_010));
        answer.is_hit()
    };
    assert!(!get("/a?v=1&utm=x"));
    assert!(get("/a?v=1&utm=y") && get("/a?utm=z&v=1"));
    assert!(!get("/a?v=2"));
    assert_eq!(bed.origin.recorded().len(), 2);
}

/// Method: read a whole response slowly enough to see which slices the origin was asked for.
#[test]
fn slices_are_fetched_ahead_of_a_client_that_reads_in_order() {
    let bed = TestBed::with_config(|config| {
        sliced(config);
        config.ranges.read_ahead_slices = 2;
    });
    let gate = Gate::new();
    let (this, wait) = (Representation::cached(), gate.clone());
    bed.origin.on_call("/a", move |request| {
        let answer = this.answer(request);
        match request.header("range") {
            Some(range) if range == slice_value(2) => answer.wait_before_head(&wait),
            _ => answer,
        }
    });
    expect_range(&bed, 0, 10..SLICE);
    assert_eq!(bed.origin.requests("/a"), 1, "no slice after the range");
    let mut client = bed.connect();
    client.send_head("GET", "/a", &[("range", "bytes=0-")]);
    let mut answer = client.head();
    // Slice 2 waits, but slice 3 is fetched nevertheless.
    bed.origin
        .wait_until("slice 3 is fetched", |origin| origin.requests("/a") >= 4);
    gate.open();
    client.body("GET", &mut answer);
    assert!(answer.complete && answer.body == Representation::bytes(0, 0..LENGTH));
    assert_eq!(bed.origin.requests("/a"), 11);
}

/// Method: the client disconnects while the origin waits within the second slice.
#[test]
fn a_slice_is_fetched_to_its_end_although_its_client_leaves() {
    let bed = TestBed::with_config(sliced);
    let gate = Gate::new();
    let (this, wait) = (Representation::cached(), gate.clone());
    bed.origin.on_call("/a", move |request| {
        let answer = this.answer(request);
        match request.header("if-range") {
            Some(_) => answer.wait_at(1000, &wait),
            None => answer,
        }
    });
    expect_range(&bed, 0, 0..10);
    let mut client = bed.connect();
    client.send_head("GET", "/a", &[]);
    gate.wait_reached(1);
    client.reset();
    bed.wait_for_metric("edgeward_responses_aborted_total{by=\"client\"}", 1.0);
    gate.open();
    bed.wait_for_metric("edgeward_fills_total{end=\"stored\"}", 2.0);
    assert!(expect_range(&bed, 0, SLICE..2 * SLICE).is_hit());
    assert_eq!(bed.origin.requests("/a"), 2);
}

/// Method: the first fetch of the slice breaks after its head, so the rest of the slice is fetched by another request.
#[test]
fn a_slice_that_ended_early_is_fetched_again() {
    let bed = TestBed::with_config(sliced);
    let this = Representation::cached();
    let breaks = AtomicU64::new(0);
    bed.origin.on_call("/a", move |request| {
        let answer = this.answer(request);
        let is_second = request.header("range") == Some(&slice_value(1));
        if is_second && breaks.fetch_add(1, Ordering::SeqCst) == 0 {
            return answer.reset_at(1000);
        }
        answer
    });
    expect_range(&bed, 0, 0..2 * SLICE);
    assert_eq!(bed.origin.requests("/a"), 3);
}

#[test]
fn an_origin_that_ignores_if_range_gets_the_requests_unchanged() {
    let bed = TestBed::with_config(sliced);
    let this = Representation::cached();
    bed.origin.on_call("/a", move |request| {
        if request.header("if-range").is_some() {
            return Answer::ok(Representation::bytes(0, 0..LENGTH)).header("etag", "\"v0\"");
        }
        this.answer(request)
    });
    expect_range(&bed, 0, 0..10);
    expect_range(&bed, 0, SLICE..SLICE + 10);
    expect_range(&bed, 0, 5 * SLICE..5 * SLICE + 10);
    let requested = ranges_requested(&bed);
    assert_eq!(
        requested.last().map(String::as_str),
        Some("bytes=327680-327689")
    );
}

fn purge(bed: &TestBed, body: &str) {
    let addr = bed
        .edge
        .admin_addr()
        .expect("the admin server is configured");
    let authorization = format!("Bearer {TOKEN}");
    let length = body.len().to_string();
    let fields = [
        ("authorization", authorization.as_str()),
        ("content-length", &length),
    ];
    let answer = Client::connect(addr).request("POST", "/purge", &fields, body.as_bytes());
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// Method: purge while the validator stays the same, so that only the generation keeps old slices from being served.
#[test]
fn a_purge_covers_all_slices() {
    let folder = tempfile::tempdir().expect("the folder can be created");
    let fields = [("cache-control", "max-age=600"), ("surrogate-key", "video")];
    for (name, config) in [("memory", false), ("disk", true)] {
        let bed = TestBed::with_config(|edge| {
            if config {
                on_disk(folder.path())(edge);
            } else {
                sliced(edge);
                edge.purge.token = Token::new(TOKEN).ok();
            }
        });
        Representation::with(&fields).serve(&bed.origin, "/a");
        let purges = [
            r#"{"tags": ["video"]}"#,
            r#"{"hosts": ["test.example"]}"#,
            r#"{"urls": ["http://test.example/a"]}"#,
        ];
        for request in purges {
            expect_range(&bed, 0, 0..2 * SLICE);
            let requests = bed.origin.requests("/a");
            purge(&bed, request);
            expect_range(&bed, 0, SLICE..SLICE + 10);
            expect_range(&bed, 0, 0..10);
            assert_eq!(bed.origin.requests("/a"), requests + 2, "{name} {request}");
        }
    }
}

/// Method: the slices are only in memory when the edge stops, because the disk takes an object at its second miss.
#[test]
fn slices_in_memory_survive_a_restart() {
    let folder = tempfile::tempdir().expect("the folder can be created");
    let config = |edge: &mut EdgeConfig| {
        on_disk(folder.path())(edge);
        edge.hot.capacity = ByteSize::mib(8);
        let disk = edge.disk.as_mut().expect("the disk is configured");
        disk.admission = "second-hit".parse().expect("the rule is valid");
    };
    let bed = TestBed::with_config(config);
    Representation::with(&[
        ("cache-control", "max-age=600"),
        ("vary", "accept-language"),
    ])
    .serve(&bed.origin, "/a");
    expect_range(&bed, 0, 3 * SLICE..5 * SLICE);
    let bed = TestBed::with_origin(bed.stop(), config);
    assert!(expect_range(&bed, 0, 3 * SLICE + 5..5 * SLICE).is_hit());
    assert_eq!(bed.origin.requests("/a"), 2);
}

#[test]
fn slices_on_disk_survive_a_restart() {
    let folder = tempfile::tempdir().expect("the folder can be created");
    let origin = ScriptedOrigin::start();
    Representation::cached().serve(&origin, "/a");
    let bed = TestBed::with_origin(origin, on_disk(folder.path()));
    expect_range(&bed, 0, 3 * SLICE..5 * SLICE);
    // Two slices and their entry.
    bed.wait_until("the slices are on disk", |status| {
        status["disk"]["devices"][0]["objects"] == 3
    });
    assert!(expect_range(&bed, 0, 3 * SLICE + 5..4 * SLICE + 9).is_hit());
    let origin = bed.stop();
    let bed = TestBed::with_origin(origin, on_disk(folder.path()));
    let hit = expect_range(&bed, 0, 3 * SLICE + 5..5 * SLICE);
    assert!(
        hit.is_hit() && hit.cache_status().ends_with("detail=disk"),
        "{hit:?}"
    );
    assert_eq!(bed.origin.requests("/a"), 2);
    let other = expect_range(&bed, 0, SLICE..SLICE + 1);
    assert_eq!(other.cache_status(), "edgeward; fwd=partial");
}

/// Method: the second and third slice are stored. Before each request, the edge explains it.
#[test]
fn an_explanation_predicts_which_slices_are_fetched() {
    let representation = Representation::cached();
    let bed = TestBed::with_config(|config| {
        sliced(config);
        config.purge.token = Token::new(TOKEN).ok();
    });
    representation.serve(&bed.origin, "/a");
    get_range(&bed, SLICE..3 * SLICE);
    let api = |page: &str, range: &str| {
        let headers = if range.is_empty() {
            vec![]
        } else {
            vec![["range", range]]
        };
        let url = "http://test.example/a";
        let body = serde_json::json!({ "url": url, "headers": headers }).to_string();
        let authorization = format!("Bearer {TOKEN}");
        let length = body.len().to_string();
        let fields = [
            ("authorization", &*authorization),
            ("content-length", &*length),
        ];
        let addr = bed.edge.admin_addr().expect("configured");
        let answer = Client::connect(addr).request("POST", page, &fields, body.as_bytes());
        serde_json::from_slice::<serde_json::Value>(&answer.body).expect("JSON")
    };
    let shown = api("/cache", "");
    let slices = &shown["stored"]["slices"];
    assert_eq!(
        (
            &slices["count"],
            &slices["in_memory"],
            &slices["on_disk_only"]
        ),
        (&11.into(), &2.into(), &0.into()),
        "{shown}"
    );
    let second = format!("bytes={}-{}", SLICE, 2 * SLICE - 1);
    let fourth = format!("bytes={}-{}", 2 * SLICE, 3 * SLICE);
    for (range, cache_status, status) in [
        (second.as_str(), "edgeward; hit; ttl=", Some(206)),
        (&fourth, "edgeward; fwd=partial", None),
        (&fourth, "edgeward; hit; ttl=", Some(206)),
        ("bytes=99999999-", "edgeward; hit; ttl=", Some(416)),
        ("bytes=0-0,9-9", "edgeward; fwd=partial", None),
        ("bytes=0-0,9-9", "edgeward; hit; ttl=", Some(200)),
    ] {
        let explained = api("/explain", range);
        let predicted = explained["cache_status"].as_str().expect("text");
        assert!(predicted.starts_with(cache_status), "{range}: {explained}");
        assert_eq!(explained["status"].as_u64(), status, "{range}: {explained}");
        let answer = bed.get_with("/a", &[("range", range)]);
        let outcome = |text: &str| text.split("; ").nth(1).map(str::to_owned);
        assert_eq!(
            outcome(predicted),
            outcome(answer.cache_status()),
            "{range}: {explained}"
        );
    }
}
