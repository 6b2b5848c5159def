//! Rules that state the tiers that store bodies, and the id filters that answer.

use std::path::Path;
use std::sync::Arc;

use crate::one_site::set_site;
use crate::support::{Client, TestBed};
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::{DiskConfig, Token};
use edgeward_proxy::negative::{FilterFacts, IdFilter, Judgement, NegativeRule};
use edgeward_sites::{Condition, DiskPlacement, IdFilters, PathPattern, Rule, Settings};
use edgeward_store::disk::DiskSettings;
use edgeward_testkit::Answer;
use edgeward_types::ByteSize;

const TOKEN: &str = "correct-horse-battery";

/// Configures one site with a rule for each of these paths.
fn with_rules(rules: Vec<(&str, Settings)>) -> impl FnOnce(&mut EdgeConfig) + use<> {
    let rules = rules.into_iter().map(|(glob, settings)| Rule {
        condition: Condition {
            paths: vec![PathPattern::glob(glob).expect("a glob")],
            ..Condition::default()
        },
        settings,
        line: 1,
    });
    let rules: Vec<_> = rules.collect();
    move |config| set_site(config, Settings::default(), rules)
}

fn on_disk(config: &mut EdgeConfig, folder: &Path, admission: &str, memory: ByteSize) {
    config.hot.capacity = memory;
    let mut disk = DiskConfig::with(DiskSettings::new(folder, ByteSize::mib(64)));
    disk.admission = admission.parse().expect("the rule is valid");
    config.disk = Some(disk);
}

fn cached(bytes: u64) -> Answer {
    Answer::pattern(bytes).header("cache-control", "max-age=600")
}

fn wait_until_stored(bed: &TestBed, objects: u64) {
    bed.wait_until("the objects are on disk", |status| {
        status["disk"]["devices"][0]["stored_objects"] == objects
    });
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("the folder can be created")
}

fn on_disk_only() -> Settings {
    Settings {
        memory: Some(false),
        ..Settings::default()
    }
}

fn disk(placement: DiskPlacement) -> Settings {
    Settings {
        disk: Some(placement),
        ..Settings::default()
    }
}

/// Method: memory has space for all bodies, and the disk stores each one. A hit without the rule promotes the body to
/// memory at the latest at its second request; a hit under the rule never does, with a range, in HTTP/1.0 or chunked.
#[test]
fn a_rule_keeps_bodies_out_of_memory() {
    let folder = folder();
    let bed = TestBed::with_config(|config| {
        with_rules(vec![("/large/*", on_disk_only())])(config);
        on_disk(config, folder.path(), "always", ByteSize::mib(16));
    });
    bed.origin.on("/large/a", cached(20_000));
    bed.origin
        .on("/large/chunked", cached(20_000).chunked(1000));
    bed.origin.on("/small", cached(20_000));
    for path in ["/large/a", "/large/chunked", "/small"] {
        assert!(!bed.get(path).is_hit());
    }
    wait_until_stored(&bed, 3);
    for _ in 0..4 {
        for path in ["/large/a", "/large/chunked"] {
            for fields in [&[][..], &[("range", "bytes=0-9")][..], &[("x-a", "b")][..]] {
                let answer = bed.get_with(path, fields);
                let status = answer.cache_status();
                assert!(
                    answer.is_hit() && status.contains("detail=disk"),
                    "{path} {answer:?}"
                );
            }
        }
    }
    assert!(!bed.get("/small").cache_status().contains("disk"));
    let metric = "edgeward_not_stored_total{reason=\"memory-rule\"}";
    assert_eq!(bed.metric(metric), 2.0);
}

#[test]
fn without_a_disk_a_rule_against_memory_stores_nothing() {
    let bed = TestBed::with_config(with_rules(vec![("/a", on_disk_only())]));
    bed.origin.on("/a", cached(100));
    for _ in 0..3 {
        assert!(!bed.get("/a").is_hit());
    }
}

/// Method: the disk writes a body at its second request, and memory has no space for the bodies. Then the same with
/// bodies that memory evicts, which the disk would otherwise write because of their hits.
#[test]
fn a_rule_writes_a_body_at_its_first_request_or_never() {
    let folder = folder();
    let bed = TestBed::with_config(|config| {
        with_rules(vec![
            ("/first", disk(DiskPlacement::FirstRequest)),
            ("/never", disk(DiskPlacement::Never)),
            ("/normal", disk(DiskPlacement::Normal)),
        ])(config);
        on_disk(config, folder.path(), "second-hit", ByteSize::kib(4));
    });
    for path in ["/first", "/never", "/normal"] {
        bed.origin.on(path, cached(20_000));
    }
    assert!(!bed.get("/first").is_hit());
    wait_until_stored(&bed, 1);
    assert!(bed.get("/first").is_hit());
    for path in ["/never", "/normal"] {
        assert!(!bed.get(path).is_hit() && !bed.get(path).is_hit(), "{path}");
    }
    wait_until_stored(&bed, 2);
    assert!(bed.get("/normal").is_hit());
    for _ in 0..3 {
        assert!(!bed.get("/never").is_hit());
    }
    let metric = "edgeward_disk_admission_total{verdict=\"rule\"}";
    assert!(bed.metric(metric) >= 5.0);
}

/// Method: memory has space for few bodies. All get hits there, and later bodies evict them. The disk gets those
/// without the rule.
#[test]
fn a_body_that_memory_evicts_is_not_written_if_a_rule_forbids_it() {
    let folder = folder();
    let bed = TestBed::with_config(|config| {
        with_rules(vec![("/never/*", disk(DiskPlacement::Never))])(config);
        on_disk(config, folder.path(), "second-hit", ByteSize::kib(64));
    });
    let mut written = 0;
    for n in 0..20 {
        for group in ["never", "normal"] {
            let path = format!("/{group}/{n}");
            bed.origin.on(&path, cached(8_000));
            assert!(!bed.get(&path).is_hit());
            bed.get(&path);
        }
    }
    for n in 0..20 {
        let answer = bed.get(&format!("/never/{n}"));
        assert!(!answer.cache_status().contains("disk"), "{answer:?}");
    }
    for n in 0..20 {
        let answer = bed.get(&format!("/normal/{n}"));
        written += u32::from(answer.cache_status().contains("detail=disk"));
    }
    assert!(written > 0, "no body without the rule was written");
}

/// Knows no id.
#[derive(Debug)]
struct NoIds;

impl IdFilter for NoIds {
    fn judge(&self, _: &[u8]) -> Judgement {
        Judgement::Absent
    }

    fn facts(&self) -> FilterFacts {
        FilterFacts::default()
    }
}

/// Method: the rules of all three settings apply to one request.
#[test]
fn an_explanation_shows_the_tiers_and_the_filters() {
    let settings = Settings {
        memory: Some(false),
        disk: Some(DiskPlacement::FirstRequest),
        id_filters: Some(IdFilters::Off),
        ..Settings::default()
    };
    let bed = TestBed::with_config(|config| {
        with_rules(vec![("/a", settings)])(config);
        config.purge.token = Token::new(TOKEN).ok();
    });
    let question = r#"{ "url": "http://test.example/a" }"#;
    let length = question.len().to_string();
    let authorization = format!("Bearer {TOKEN}");
    let fields = [
        ("authorization", &*authorization),
        ("content-length", &*length),
    ];
    let admin = bed.edge.admin_addr().expect("configured");
    let answer = Client::connect(admin).request("POST", "/explain", &fields, question.as_bytes());
    let explained: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    let steps = explained["steps"].as_array().expect("a list");
    for (name, decision) in [
        ("memory", "the body is not stored there"),
        ("disk", "the body is stored at the first request"),
        ("id filter", "no filter counts"),
    ] {
        let step = steps.iter().find(|step| step["step"] == name);
        assert_eq!(step.expect(name)["decision"], decision);
    }
}

#[test]
fn a_rule_selects_the_id_filters_that_answer() {
    let filters = |filters| Settings {
        id_filters: Some(filters),
        ..Settings::default()
    };
    let bed = TestBed::with_config(|config| {
        with_rules(vec![
            ("/r/off*", filters(IdFilters::Off)),
            ("/r/a*", filters(IdFilters::Named("a".into()))),
            ("/r/b*", filters(IdFilters::Named("b".into()))),
            ("/r/all*", filters(IdFilters::All)),
        ])(config);
        let rule = NegativeRule {
            name: Some("a".into()),
            pattern: "/r/{id}".parse().expect("the pattern is valid"),
            filter: Arc::new(NoIds),
        };
        config.negative = vec![rule];
    });
    bed.origin.otherwise(|_| cached(10));
    for (path, status) in [
        ("/r/x", 404),
        ("/r/all", 404),
        ("/r/a", 404),
        ("/r/b", 200),
        ("/r/off", 200),
    ] {
        for fields in [&[][..], &[("range", "bytes=0-")][..]] {
            let answer = bed.get_with(path, fields);
            let is_expected = match answer.status {
                206 => status == 200,
                other => other == status,
            };
            assert!(is_expected, "{path}: {answer:?}");
        }
    }
}
