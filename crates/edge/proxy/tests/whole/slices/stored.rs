//! Stored slices: changed representations, validation, variants, purges and restarts.

use std::sync::Arc;

use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::{DiskConfig, Token};
use edgeward_store::disk::{Device, DiskSettings};
use edgeward_testkit::disk::{Fault, SimulatedDisk};
use edgeward_testkit::{Answer, Gate, ScriptedOrigin};
use edgeward_types::ByteSize;

use super::representation::{
    LENGTH, Representation, SLICE, TOKEN, bed_with, expect_range, get_range, on_disk,
    ranges_requested, slice_value, sliced,
};
use crate::support::{Client, TestBed};

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
    assert_eq!(first.cache_status(), "edgeward; fwd=partial; detail=slices");
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
    assert_eq!(other.cache_status(), "edgeward; fwd=partial; detail=slices");
}

/// Method: the disk writer waits at its first write, with a queue that takes one of four slices. Memory has room for
/// all. Then the disk works again, and other objects evict the slices, which had no hit.
#[test]
fn a_slice_that_found_the_queue_full_is_written_when_memory_evicts_it() {
    let disk = SimulatedDisk::new(64 << 20);
    let device: Arc<dyn Device> = Arc::<SimulatedDisk>::clone(&disk);
    let bed = TestBed::with_config(move |config| {
        sliced(config);
        config.hot.capacity = ByteSize(6 * SLICE);
        config.hot.policy = "lru".parse().expect("the policy is valid");
        let mut disk = DiskConfig::with(DiskSettings {
            queue_bytes: ByteSize(SLICE + SLICE / 2),
            ..DiskSettings::default()
        });
        disk.opened = vec![device];
        disk.admission = "always".parse().expect("the rule is valid");
        config.disk = Some(disk);
    });
    let is_queue_empty =
        |status: &serde_json::Value| status["disk"]["devices"][0]["queue_bytes"] == 0;
    Representation::cached().serve(&bed.origin, "/a");
    let other = Answer::pattern(SLICE).header("cache-control", "max-age=600");
    bed.origin.otherwise(move |_| other.clone());
    let gate = Gate::new();
    disk.inject(Fault::WritesWait(gate.clone()));
    for slice in 0..4 {
        expect_range(&bed, 0, slice * SLICE..slice * SLICE + 10);
    }
    let fills = bed.status()["disk_fills"].clone();
    let count = |result: &str| fills[result].as_u64().unwrap_or_default();
    let refused = count("dropped") + count("refused");
    assert!(refused >= 2, "{fills}");
    gate.open();
    disk.heal();
    for n in 0..6 {
        bed.wait_until("the queue is empty", is_queue_empty);
        bed.get(&format!("/other/{n}"));
    }
    bed.wait_until("the queue is empty", is_queue_empty);
    // The entry of the response may be evicted and counted as well.
    assert!(bed.metric("edgeward_disk_evicted_from_memory_total") >= refused as f64);
    for slice in 0..4 {
        let hit = expect_range(&bed, 0, slice * SLICE..(slice + 1) * SLICE);
        assert!(
            hit.is_hit() && hit.cache_status().ends_with("detail=disk"),
            "slice {slice}: {hit:?}"
        );
    }
    assert_eq!(bed.origin.requests("/a"), 4);
}
