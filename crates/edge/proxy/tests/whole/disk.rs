//! The disk tier, tested with responses that clients receive and with the status of the edge.

use std::path::Path;
use std::sync::Arc;

use crate::support::{TestBed, pattern};
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::{DiskConfig, HostAdmission};
use edgeward_semantics::ClientDirectives;
use edgeward_store::disk::{Device, DiskSettings};
use edgeward_testkit::disk::{Errno, Fault, SimulatedDisk};
use edgeward_testkit::{Answer, Gate, ScriptedOrigin};
use edgeward_types::ByteSize;

/// Configures an edge with a disk tier of 64 MiB in `folder`, to which every miss is written. The memory tier
/// has 4 KiB, enough for Vary markers but not for the objects of these tests.
fn on_disk(folder: &Path) -> impl FnOnce(&mut EdgeConfig) + use<> {
    let settings = DiskSettings::new(folder, ByteSize::mib(64));
    move |config| {
        config.hot.capacity = ByteSize::kib(4);
        let mut disk = DiskConfig::with(settings);
        disk.admission = "always".parse().expect("the rule is valid");
        config.disk = Some(disk);
    }
}

/// Returns a cacheable response that is too large for the memory tier of [`on_disk`].
fn cached(bytes: u64) -> Answer {
    Answer::pattern(bytes).header("cache-control", "max-age=600")
}

/// Waits until `objects` objects have been written to disk since the start of the edge.
fn wait_until_stored(bed: &TestBed, objects: u64) {
    bed.wait_until("the objects are on disk", |status| {
        status["disk"]["devices"][0]["stored_objects"] == objects
    });
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("the folder can be created")
}

/// Method: store an object on disk. Then a request with `no-cache` fetches a newer response, which is too large
/// for both tiers.
#[test]
fn a_response_that_no_tier_takes_removes_the_older_one_from_disk() {
    let folder = folder();
    let bed = TestBed::with_config(|config| {
        on_disk(folder.path())(config);
        config.caching.rules.client_directives = ClientDirectives::Honour;
    });
    bed.origin.on("/a", cached(20_000));
    bed.get("/a");
    wait_until_stored(&bed, 1);
    assert!(bed.get("/a").is_hit());
    let object_max = bed.status()["disk"]["object_bytes_max"].as_u64();
    let large = object_max.expect("the value is a number") + 1;
    bed.origin.on("/a", cached(large));
    let answer = bed.get_with("/a", &[("cache-control", "no-cache")]);
    assert_eq!(answer.body.len() as u64, large);
    assert!(!bed.get("/a").is_hit());
}

#[test]
fn a_response_is_written_at_its_second_request_and_served_from_disk() {
    let folder = folder();
    let bed = TestBed::with_config(|config| {
        on_disk(folder.path())(config);
        config
            .disk
            .as_mut()
            .expect("the disk tier is configured")
            .admission = "second-hit".parse().expect("the rule is valid");
    });
    bed.origin.on("/a", cached(100_000));
    for _ in 0..2 {
        assert!(bed.get("/a").body == pattern(0..100_000));
    }
    wait_until_stored(&bed, 1);
    let third = bed.get("/a");
    assert!(third.body == pattern(0..100_000));
    assert_eq!(
        third.cache_status(),
        "edgeward; hit; ttl=599; detail=disk".replace("599", &ttl(&third))
    );
    assert_eq!(bed.origin.requests("/a"), 2);
    assert_eq!(third.header("content-length"), Some("100000"));
    assert_eq!(bed.status()["disk_lookups"]["hit"], 1);
}

/// Returns the remaining lifetime in `Cache-Status`, which depends on the duration of the test.
fn ttl(answer: &crate::support::Answer) -> String {
    let status = answer.cache_status();
    let (_, rest) = status
        .split_once("ttl=")
        .unwrap_or_else(|| panic!("no ttl in {status}"));
    rest.split(';').next().unwrap_or_default().to_owned()
}

#[test]
fn a_restarted_edge_serves_from_disk() {
    let folder = folder();
    let origin = ScriptedOrigin::start();
    origin.on("/a", cached(50_000));
    origin.on("/v", cached(60_000).header("vary", "accept-language"));
    let german = [("accept-language", "de")];
    let bed = TestBed::with_origin(origin, on_disk(folder.path()));
    bed.get("/a");
    bed.get_with("/v", &german);
    // The store has three objects: two responses and one Vary marker.
    wait_until_stored(&bed, 3);
    let origin = bed.stop();
    let bed = TestBed::with_origin(origin, on_disk(folder.path()));
    assert!(bed.get("/a").is_hit());
    let hit = bed.get_with("/v", &german);
    assert!(hit.is_hit() && hit.body == pattern(0..60_000), "{hit:?}");
    assert!(!bed.get_with("/v", &[("accept-language", "fr")]).is_hit());
    assert_eq!(bed.origin.requests("/a"), 1);
    assert_eq!(bed.origin.requests("/v"), 2);
}

#[test]
fn a_range_reads_only_its_bytes_and_a_304_reads_no_body() {
    let folder = folder();
    let bed = TestBed::with_config(on_disk(folder.path()));
    bed.origin
        .on("/big", cached(8_000_000).header("etag", "\"v1\""));
    bed.get("/big");
    wait_until_stored(&bed, 1);
    let before = bed.metric("edgeward_disk_response_bytes_total");
    let part = bed.get_with("/big", &[("range", "bytes=5000000-5000099")]);
    assert_eq!(part.status, 206);
    assert!(part.body == pattern(5_000_000..5_000_100));
    assert_eq!(
        part.header("content-range"),
        Some("bytes 5000000-5000099/8000000")
    );
    let unchanged = bed.get_with("/big", &[("if-none-match", "\"v1\"")]);
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    let head = bed.connect().request("HEAD", "/big", &[], b"");
    assert_eq!(head.header("content-length"), Some("8000000"));
    let beyond = bed.get_with("/big", &[("range", "bytes=8000000-")]);
    assert_eq!(beyond.status, 416);
    let read = bed.metric("edgeward_disk_response_bytes_total") - before;
    assert_eq!(read, 100.0);
    assert_eq!(bed.origin.requests("/big"), 1);
}

/// Method: fetch two responses with a body of 12 MB, one with `Content-Length` and one chunked. The memory tier has
/// 4 KiB, and fills may use 1 MiB.
#[test]
fn a_body_larger_than_memory_is_streamed_and_stored_on_disk() {
    for chunked in [false, true] {
        let folder = folder();
        let bed = TestBed::with_config(|config| {
            on_disk(folder.path())(config);
            config.limits.fill_bytes_max = ByteSize::mib(1);
        });
        let mut answer = cached(12_000_000);
        if chunked {
            answer = answer.chunked(100_000);
        }
        bed.origin.on("/huge", answer);
        let first = bed.get("/huge");
        assert!(first.complete && first.body == pattern(0..12_000_000));
        wait_until_stored(&bed, 1);
        let hit = bed.get("/huge");
        assert!(hit.is_hit() && hit.complete && hit.body == pattern(0..12_000_000));
        let part = bed.get_with("/huge", &[("range", "bytes=11999990-")]);
        assert!(part.body == pattern(11_999_990..12_000_000));
        assert_eq!(bed.origin.requests("/huge"), 1);
    }
}

#[test]
fn a_post_removes_an_object_from_disk_and_aborts_a_write_under_way() {
    let folder = folder();
    let bed = TestBed::with_config(on_disk(folder.path()));
    let gate = Gate::new();
    bed.origin.once("/a", cached(30_000));
    bed.get("/a");
    wait_until_stored(&bed, 1);
    assert!(bed.get("/a").is_hit());
    bed.origin.once("/a", Answer::status(204));
    bed.connect()
        .request("POST", "/a", &[("content-length", "0")], b"");
    bed.origin.once("/a", cached(40_000).wait_at(20_000, &gate));
    let mut slow = bed.connect();
    slow.send_head("GET", "/a", &[]);
    let mut answer = slow.head();
    assert_eq!(
        answer.cache_status(),
        "edgeward; fwd=uri-miss; fwd-status=200; stored"
    );
    gate.wait_reached(1);
    bed.origin.once("/a", Answer::status(204));
    bed.connect()
        .request("POST", "/a", &[("content-length", "0")], b"");
    gate.open();
    slow.body("GET", &mut answer);
    assert!(answer.complete);
    bed.origin.on("/a", cached(50_000));
    let after = bed.get("/a");
    assert!(!after.is_hit() && after.body.len() == 50_000);
    wait_until_stored(&bed, 2);
    assert_eq!(bed.get("/a").body.len(), 50_000);
}

#[test]
fn a_post_removes_all_variants_from_disk() {
    let folder = folder();
    let bed = TestBed::with_config(on_disk(folder.path()));
    bed.origin.on_call("/v", |request| match request.method() {
        "POST" => Answer::status(204),
        _ => cached(10_000).header("vary", "accept-language"),
    });
    let get = |language| bed.get_with("/v", &[("accept-language", language)]);
    get("de");
    get("fr");
    // Each of the two requests may write the Vary marker: a request writes the marker if a lookup on disk does not
    // find it yet, even if memory has it. The test therefore counts objects, not writes.
    bed.wait_until("both variants and the marker are on disk", |status| {
        status["disk"]["devices"][0]["objects"] == 3
    });
    assert!(get("de").is_hit() && get("fr").is_hit());
    bed.connect()
        .request("POST", "/v", &[("content-length", "0")], b"");
    assert!(!get("de").is_hit());
    assert!(!get("fr").is_hit());
}

#[test]
fn a_304_freshens_an_object_on_disk_across_a_restart() {
    let folder = folder();
    let origin = ScriptedOrigin::start();
    origin.once(
        "/page",
        Answer::pattern(20_000)
            .header("cache-control", "max-age=0")
            .header("etag", "\"v1\""),
    );
    origin.once(
        "/page",
        Answer::status(304)
            .header("cache-control", "max-age=600")
            .header("etag", "\"v1\"")
            .header("x-new", "yes"),
    );
    let bed = TestBed::with_origin(origin, on_disk(folder.path()));
    bed.get("/page");
    wait_until_stored(&bed, 1);
    let validated = bed.get("/page");
    assert!(
        validated
            .cache_status()
            .starts_with("edgeward; fwd=stale; fwd-status=304"),
        "{validated:?}"
    );
    assert!(validated.body == pattern(0..20_000));
    wait_until_stored(&bed, 2);
    let origin = bed.stop();
    let bed = TestBed::with_origin(origin, on_disk(folder.path()));
    let hit = bed.get("/page");
    assert!(hit.is_hit() && hit.body == pattern(0..20_000), "{hit:?}");
    assert_eq!(hit.header("x-new"), Some("yes"));
    assert_eq!(bed.origin.requests("/page"), 2);
}

/// Method: the origin closes its connection after half of a body with `Content-Length`, and resets its connection
/// after half of a chunked body.
#[test]
fn a_body_that_ended_early_is_not_stored_on_disk() {
    let folder = folder();
    let bed = TestBed::with_config(on_disk(folder.path()));
    bed.origin.once("/a", cached(300_000).close_at(150_000));
    bed.origin
        .once("/a", cached(300_000).chunked(10_000).reset_at(150_000));
    for _ in 0..2 {
        let incomplete = bed.get("/a");
        assert!(
            !incomplete.complete && incomplete.body.len() <= 150_000,
            "{}",
            incomplete.body.len()
        );
    }
    bed.wait_until("both writes are aborted", |status| {
        status["disk_fills"]["aborted"] == 2
    });
    bed.origin.on("/a", cached(300_000));
    assert!(!bed.get("/a").is_hit());
    wait_until_stored(&bed, 1);
    assert!(bed.get("/a").body == pattern(0..300_000));
}

#[test]
fn a_hit_on_disk_is_promoted_if_memory_admits_it() {
    let folder = folder();
    let origin = ScriptedOrigin::start();
    origin.on("/a", cached(100_000));
    let bed = TestBed::with_origin(origin, on_disk(folder.path()));
    bed.get("/a");
    wait_until_stored(&bed, 1);
    let origin = bed.stop();
    let bed = TestBed::with_origin(origin, |config| {
        on_disk(folder.path())(config);
        config.hot.capacity = ByteSize::mib(1);
    });
    assert!(bed.get("/a").cache_status().ends_with("detail=disk"));
    let second = bed.get("/a");
    assert!(
        second.is_hit() && !second.cache_status().contains("detail"),
        "{second:?}"
    );
    assert!(second.body == pattern(0..100_000));
    assert_eq!(bed.metric("edgeward_disk_promoted_total"), 1.0);
}

#[test]
fn the_admission_history_survives_a_restart() {
    let folder = folder();
    let origin = ScriptedOrigin::start();
    origin.on("/a", cached(100_000));
    let second_hit = |config: &mut EdgeConfig| {
        on_disk(folder.path())(config);
        config
            .disk
            .as_mut()
            .expect("the disk tier is configured")
            .admission = "second-hit".parse().expect("the rule is valid");
    };
    let bed = TestBed::with_origin(origin, second_hit);
    bed.get("/a");
    let origin = bed.stop();
    let bed = TestBed::with_origin(origin, second_hit);
    bed.get("/a");
    wait_until_stored(&bed, 1);
    assert!(bed.get("/a").is_hit());
}

/// Configures an edge with this simulated disk, and a memory tier of 4 KiB.
fn on_simulated_disk(disk: &Arc<SimulatedDisk>) -> impl FnOnce(&mut EdgeConfig) + use<> {
    let device: Arc<dyn Device> = Arc::<SimulatedDisk>::clone(disk);
    move |config| {
        config.hot.capacity = ByteSize::kib(4);
        let mut disk = DiskConfig::with(DiskSettings {
            retry_interval: std::time::Duration::from_secs(3600),
            ..DiskSettings::default()
        });
        disk.opened = vec![device];
        disk.admission = "always".parse().expect("the rule is valid");
        config.disk = Some(disk);
    }
}

/// Method: let writes fail with each kind of error. Clients get their responses, the status reports that the
/// device is read-only, and older objects on disk are served.
#[test]
fn no_request_fails_if_the_disk_cannot_be_written() {
    for errno in [Errno::Io, Errno::NoSpace, Errno::ReadOnly] {
        let disk = SimulatedDisk::new(64 << 20);
        let bed = TestBed::with_config(on_simulated_disk(&disk));
        bed.origin.on("/before", cached(50_000));
        bed.get("/before");
        wait_until_stored(&bed, 1);
        disk.inject(Fault::Writes(errno));
        for n in 0..3 {
            let path = format!("/after/{n}");
            bed.origin.on(&path, cached(50_000));
            assert!(bed.get(&path).body == pattern(0..50_000));
            bed.wait_until("the device is read only", |status| {
                status["disk"]["devices"][0]["state"] == "read-only"
            });
        }
        assert!(bed.get("/before").is_hit());
        let status = bed.status();
        assert_eq!(status["disk_fills"]["refused"], 2, "{errno:?}: {status:#}");
        assert_eq!(status["disk"]["devices"][0]["write_errors"], 1);
    }
}

#[test]
fn a_disk_that_cannot_be_read_is_a_miss() {
    let disk = SimulatedDisk::new(64 << 20);
    let bed = TestBed::with_config(on_simulated_disk(&disk));
    bed.origin.on("/a", cached(50_000));
    bed.get("/a");
    wait_until_stored(&bed, 1);
    disk.inject(Fault::Reads(Errno::Io));
    let miss = bed.get("/a");
    assert!(!miss.is_hit() && miss.body == pattern(0..50_000));
    assert_eq!(bed.status()["disk_lookups"]["unreadable"], 1);
    disk.heal();
    assert!(bed.get("/a").body == pattern(0..50_000));
}

/// Method: let the simulated disk return no bytes to reads that must not wait, as if heads and bodies were not
/// in the page cache. The edge reads them on other threads, and the responses are complete.
#[test]
fn reads_that_have_to_wait_run_on_other_threads() {
    let disk = SimulatedDisk::new(64 << 20);
    let bed = TestBed::with_config(on_simulated_disk(&disk));
    bed.origin.on("/a", cached(700_000));
    bed.origin
        .on("/v", cached(60_000).header("vary", "accept-language"));
    bed.get("/a");
    bed.get("/v");
    wait_until_stored(&bed, 3);
    disk.inject(Fault::ReadsWait);
    for path in ["/a", "/v"] {
        let hit = bed.get(path);
        assert!(hit.is_hit() && hit.complete, "{hit:?}");
        assert!(hit.body == pattern(0..hit.body.len() as u64));
    }
    assert_eq!(bed.get("/a").body.len(), 700_000);
    assert!(bed.metric("edgeward_disk_waits_total{of=\"head\"}") >= 2.0);
    assert!(bed.metric("edgeward_disk_waits_total{of=\"body\"}") >= 2.0);
}

/// Method: let the disk writer wait at its first write, with a write queue of 1 MiB. Then request 20 objects of
/// 500 kB. A write is refused before its first byte or dropped during its body.
#[test]
fn a_slow_disk_delays_no_response_and_dropped_writes_are_counted() {
    let disk = SimulatedDisk::new(64 << 20);
    let bed = TestBed::with_config(|config| {
        on_simulated_disk(&disk)(config);
        config
            .disk
            .as_mut()
            .expect("the disk tier is configured")
            .settings
            .queue_bytes = ByteSize::mib(1);
    });
    let gate = Gate::new();
    disk.inject(Fault::WritesWait(gate.clone()));
    bed.origin.otherwise(|_| cached(500_000));
    for n in 0..20 {
        let answer = bed.get(&format!("/{n}"));
        assert!(answer.complete && answer.body == pattern(0..500_000));
    }
    let fills = bed.status()["disk_fills"].clone();
    let count = |result: &str| fills[result].as_u64().unwrap_or_default();
    assert!(count("dropped") + count("refused") >= 15, "{fills}");
    gate.open();
    disk.heal();
}

/// Method: flip a bit in the middle of a large body on disk. The client gets correct bytes up to the corrupt
/// block, and then the connection closes.
#[test]
fn a_flipped_bit_on_disk_is_never_served() {
    let disk = SimulatedDisk::new(64 << 20);
    let bed = TestBed::with_config(on_simulated_disk(&disk));
    // Every four bytes are a different number, so that the test can find a position of the body in the disk's
    // content.
    let body: Vec<u8> = (0..500_000_u32).flat_map(u32::to_be_bytes).collect();
    let answer = Answer::ok(body.clone()).header("cache-control", "max-age=600");
    bed.origin.on("/a", answer);
    bed.get("/a");
    wait_until_stored(&bed, 1);
    let content = disk.content();
    let middle = &body[1_000_000..1_000_064];
    let at = content
        .windows(middle.len())
        .position(|bytes| bytes == middle)
        .expect("the body is on the disk");
    disk.flip(at as u64, 1);
    let incomplete = bed.get("/a");
    assert!(!incomplete.complete && incomplete.body.len() >= 500_000);
    assert!(body.starts_with(&incomplete.body));
    assert_eq!(
        bed.metric("edgeward_disk_bodies_broken_total{end=\"cut\"}"),
        1.0
    );
    let again = bed.get("/a");
    assert!(!again.is_hit() && again.complete && again.body == body);
}

/// Method: request an object twice, the second time as a hit in memory, then evict it by other objects. The
/// disk's admission has seen only the first request. At the eviction it also gets the hit count of the memory tier,
/// so second-hit admission accepts the object.
#[test]
fn an_evicted_object_that_had_a_hit_is_written_to_disk() {
    let folder = folder();
    let bed = TestBed::with_config(|config| {
        on_disk(folder.path())(config);
        config.hot.capacity = ByteSize::kib(200);
        config
            .disk
            .as_mut()
            .expect("the disk tier is configured")
            .admission = "second-hit".parse().expect("the rule is valid");
    });
    bed.origin.otherwise(|_| cached(60_000));
    bed.get("/a");
    assert!(bed.get("/a").is_hit());
    for n in 0..4 {
        bed.get(&format!("/other/{n}"));
    }
    wait_until_stored(&bed, 1);
    let hit = bed.get("/a");
    assert!(hit.cache_status().ends_with("detail=disk"), "{hit:?}");
    assert!(hit.body == pattern(0..60_000));
    assert_eq!(bed.origin.requests("/a"), 1);
    assert_eq!(bed.metric("edgeward_disk_evicted_from_memory_total"), 1.0);
}

/// Method: the disk writer waits at its first write, with a queue of 64 KiB, so that the queue takes one of five
/// objects. Memory has room for all. Then the disk works again, and other objects evict the five, which had no hit.
#[test]
fn an_object_that_found_the_queue_full_is_written_when_memory_evicts_it() {
    let disk = SimulatedDisk::new(64 << 20);
    let bed = TestBed::with_config(|config| {
        on_simulated_disk(&disk)(config);
        config.hot.capacity = ByteSize::kib(400);
        let disk = config.disk.as_mut().expect("the disk tier is configured");
        disk.settings.queue_bytes = ByteSize::kib(64);
    });
    let is_queue_empty =
        |status: &serde_json::Value| status["disk"]["devices"][0]["queue_bytes"] == 0;
    let gate = Gate::new();
    disk.inject(Fault::WritesWait(gate.clone()));
    bed.origin.otherwise(|_| cached(60_000));
    for n in 0..5 {
        bed.get(&format!("/{n}"));
    }
    let fills = bed.status()["disk_fills"].clone();
    let count = |result: &str| fills[result].as_u64().unwrap_or_default();
    assert!(count("dropped") + count("refused") >= 4, "{fills}");
    gate.open();
    disk.heal();
    bed.wait_until("the queue is empty", is_queue_empty);
    for n in 0..6 {
        bed.get_with(&format!("/other/{n}"), &[]);
        bed.wait_until("the queue is empty", is_queue_empty);
    }
    assert_eq!(bed.metric("edgeward_disk_evicted_from_memory_total"), 4.0);
    for n in 0..5 {
        assert!(bed.get(&format!("/{n}")).is_hit(), "object {n}");
        assert_eq!(bed.origin.requests(&format!("/{n}")), 1);
    }
}

/// Method: request one path of three hosts with different admission rules. The last request to each host is a
/// hit if the response was written to disk.
#[test]
fn a_host_can_have_its_own_admission_rule() {
    let folder = folder();
    let bed = TestBed::with_config(|config| {
        on_disk(folder.path())(config);
        let disk = config.disk.as_mut().expect("the disk tier is configured");
        disk.admission = "second-hit".parse().expect("the rule is valid");
        disk.hosts = [("once.example", "never"), ("*.wide.example", "always")]
            .map(|(host, rule)| HostAdmission {
                host: host.parse().expect("the host is valid"),
                admission: rule.parse().expect("the rule is valid"),
            })
            .to_vec();
    });
    bed.origin.on("/a", cached(100_000));
    let get = |host: &str| {
        let mut client = bed.connect();
        let head = format!("GET /a HTTP/1.1\r\nHost: {host}\r\n\r\n");
        client.send(head.as_bytes());
        let answer = client.answer("GET");
        assert!(answer.body == pattern(0..100_000), "{host}");
        answer.is_hit()
    };
    assert!(!get("img.wide.example:8080"));
    wait_until_stored(&bed, 1);
    assert!(get("img.wide.example:8080"), "always");
    for host in ["usual.example", "once.example"] {
        assert!(!get(host) && !get(host), "{host}");
    }
    wait_until_stored(&bed, 2);
    assert!(get("usual.example"), "second-hit");
    assert!(!get("once.example"), "never");
    let admission = &bed.status()["disk"]["admission"];
    assert_eq!(admission["rule"], "second-hit");
    assert_eq!(admission["hosts"][0]["hosts"][0], "once.example");
    assert_eq!(admission["hosts"][1]["rule"], "always");
}

/// Method: overwrite the first 64 KiB of the store's file between two runs of the edge.
#[test]
fn an_edge_starts_without_a_store_whose_beginning_is_overwritten() {
    let folder = folder();
    let origin = ScriptedOrigin::start();
    origin.on("/a", cached(50_000));
    let bed = TestBed::with_origin(origin, on_disk(folder.path()));
    bed.get("/a");
    wait_until_stored(&bed, 1);
    assert_eq!(bed.metric("edgeward_disk_devices_damaged"), 0.0);
    let origin = bed.stop();
    let path = folder.path().join(edgeward_store::disk::FILE_NAME);
    let file = std::fs::File::options().write(true).open(&path);
    std::os::unix::fs::FileExt::write_all_at(
        &file.expect("the file can be opened"),
        &[0x5a; 64 << 10],
        0,
    )
    .expect("the file can be written");
    let before = std::fs::read(&path).expect("the file can be read");
    let bed = TestBed::with_origin(origin, on_disk(folder.path()));
    assert!(bed.get("/a").body == pattern(0..50_000));
    let status = bed.status();
    assert_eq!(status["disk"], serde_json::Value::Null);
    assert_eq!(status["disk_damaged"][0], path.display().to_string());
    assert_eq!(bed.metric("edgeward_disk_devices_damaged"), 1.0);
    bed.stop();
    assert!(std::fs::read(&path).expect("the file can be read") == before);
}
