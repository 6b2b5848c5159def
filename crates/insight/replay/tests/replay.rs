//! Whole replays over real sockets, against the synthetic origin and against a faulty one.

use std::convert::Infallible;
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use edgeward_replay::load::{self, Class, ErrorKind, LiveCounts, Pacing, ReplayPlan, Target};
use edgeward_replay::origin::{OriginConfig, RunningOrigin, SyntheticOrigin};
use edgeward_replay::{Pattern, ReplayReport};
use edgeward_testkit::{Answer, RecordedRequest, ScriptedOrigin};
use edgeward_trace::Record;
use edgeward_types::Timestamp;

fn record(key: u64, size: u64) -> Record {
    Record {
        time: Timestamp::ZERO,
        key,
        size,
    }
}

fn replay(plan: &ReplayPlan, records: &[Record]) -> ReplayReport {
    load::run(plan, records.iter().copied().map(Ok::<_, Infallible>)).expect("the replay succeeds")
}

fn plan(url: &str) -> ReplayPlan {
    let target: Target = url.parse().expect("the URL is valid");
    ReplayPlan {
        timeout: Duration::from_secs(5),
        ..ReplayPlan::new("test", target)
    }
}

fn one_connection(origin: &ScriptedOrigin) -> ReplayPlan {
    ReplayPlan {
        connections: NonZeroUsize::MIN,
        ..plan(&origin.url(""))
    }
}

fn synthetic() -> RunningOrigin {
    SyntheticOrigin::start(OriginConfig::default()).expect("a loopback port is free")
}

/// Returns the correct body for the request.
fn correct_body(request: &RecordedRequest) -> Vec<u8> {
    let id = request
        .path()
        .strip_prefix("/o/")
        .expect("the path is that of an object");
    let (_, size) = request
        .target()
        .split_once("size=")
        .expect("the URL has a size");
    let mut body = Vec::new();
    let size = size.parse().expect("the size is a number");
    Pattern::for_id(id).append(0, size, &mut body);
    body
}

#[test]
fn without_a_cache_every_response_is_correct_and_none_is_a_hit() {
    let origin = synthetic();
    let sizes = [0, 1, 7, 100, 5000, 70_000, 1_000_001];
    let records: Vec<Record> = (0..350)
        .map(|n| record(n, sizes[n as usize % sizes.len()]))
        .collect();
    let plan = ReplayPlan {
        connections: NonZeroUsize::new(5).expect("the number is not zero"),
        workers: NonZeroUsize::new(2).expect("the number is not zero"),
        ..plan(&format!("http://{}", origin.addr()))
    };
    let report = replay(&plan, &records);
    assert_eq!(report.errors_total, 0, "{:?}", report.error_samples);
    assert_eq!((report.requests, report.hits), (350, 0));
    assert_eq!(report.object_hit_ratio, 0.0);
    let bytes: u64 = records.iter().map(|record| record.size).sum();
    assert_eq!(report.body_bytes, bytes);
    assert_eq!(report.classes[&Class::Unknown].requests, 350);
    assert_eq!(report.client.connections_opened, 5);
    let counts = origin.stats().counts();
    assert_eq!((counts.requests, counts.body_bytes), (350, bytes));
    assert!(report.latency_ms.max >= report.latency_ms.p50);
    assert!(report.latency_ms.p50 > 0.0);
}

#[test]
fn one_connection_keeps_the_order_of_the_trace_and_the_path_prefix_of_the_target() {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|_| Answer::ok(""));
    let keys = [5, 3, 5, 9, 1, 3];
    let records = keys.map(|key| record(key, 0));
    let plan = ReplayPlan {
        connections: NonZeroUsize::MIN,
        ..plan(&origin.url("/cdn/"))
    };
    replay(&plan, &records);
    let asked: Vec<String> = origin
        .recorded()
        .iter()
        .map(|request| request.target().to_owned())
        .collect();
    let expected = keys.map(|key| format!("/cdn/o/{key}?size=0"));
    assert_eq!(asked, expected);
    let first = &origin.recorded()[0];
    assert_eq!(first.header("host"), Some(&*origin.addr().to_string()));
}

/// The origin acts as a cache and sends `Cache-Status`.
#[test]
fn hit_ratios_are_computed_from_cache_status() {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|request| {
        let status = match request.target() {
            "/o/1?size=10" => "edge; hit",
            "/o/2?size=30" => "edge; hit; ttl=-3",
            "/o/3?size=60" => "edge; fwd=uri-miss; stored",
            "/o/4?size=60" => "edge; fwd=uri-miss; collapsed",
            "/o/5?size=40" => "edge; fwd=stale; fwd-status=304",
            _ => "edge; fwd=bypass",
        };
        Answer::ok(correct_body(request)).header("Cache-Status", status)
    });
    let records = [(1, 10), (2, 30), (3, 60), (4, 60), (5, 40), (6, 0)];
    let records = records.map(|(key, size)| record(key, size));
    let report = replay(&plan(&origin.url("")), &records);
    assert_eq!(report.hits, 2);
    assert!((report.object_hit_ratio - 2.0 / 6.0).abs() < 1e-12);
    assert!((report.byte_hit_ratio - 40.0 / 200.0).abs() < 1e-12);
    for class in Class::ALL {
        let expected = u64::from(class != Class::Unknown);
        assert_eq!(report.classes[&class].requests, expected, "{class:?}");
    }
}

#[test]
fn requests_of_the_warm_up_are_sent_but_not_counted() {
    let origin = synthetic();
    let records: Vec<Record> = (0..100).map(|key| record(key, 10)).collect();
    let plan = ReplayPlan {
        warmup_requests: 30,
        ..plan(&format!("http://{}", origin.addr()))
    };
    let report = replay(&plan, &records);
    assert_eq!((report.requests, report.warmup_requests), (70, 30));
    assert_eq!(report.body_bytes, 700);
    assert_eq!(origin.stats().counts().requests, 100);
    assert_eq!(plan.live.requests(), 100);
    // A second run starts with counters at zero.
    let report = replay(&plan, &records);
    assert_eq!((report.requests, report.warmup_requests), (70, 30));
    assert_eq!(plan.live.requests(), 100);
}

/// Each way in which a response can be wrong has its own error kind, and a wrong response does not affect the next
/// response.
#[test]
fn each_kind_of_wrong_response_is_counted() {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|request| {
        let mut body = correct_body(request);
        match request.path() {
            "/o/1" => {
                body[70_000] ^= 1;
                Answer::ok(body)
            }
            "/o/2" => Answer::ok(body).claiming_length(100_001),
            "/o/3" => Answer::ok(body).reset_at(500),
            "/o/4" => Answer::ok(body[..99_999].to_vec()),
            "/o/5" => {
                body.push(0);
                Answer::ok(body)
            }
            "/o/6" => Answer::ok(body).with_status(500),
            "/o/7" => Answer::garbage("not HTTP at all\r\n\r\n"),
            "/o/8" => Answer::status(200).reset_at(0),
            "/o/9" => Answer::ok(body).chunked(7000).close_at(50_000),
            // The body of another object, with the correct length.
            "/o/10" => Answer::pattern(100_000),
            _ => Answer::ok(body),
        }
    });
    let records: Vec<Record> = (0..=11).map(|key| record(key, 100_000)).collect();
    let report = replay(&one_connection(&origin), &records);
    let kinds: Vec<(u64, ErrorKind)> = report
        .error_samples
        .iter()
        .map(|sample| (sample.object, sample.kind))
        .collect();
    let expected = [
        (1, ErrorKind::WrongBytes),
        (2, ErrorKind::ShortBody),
        (3, ErrorKind::ShortBody),
        (4, ErrorKind::ShortBody),
        (5, ErrorKind::LongBody),
        (6, ErrorKind::Status),
        (7, ErrorKind::Protocol),
        (8, ErrorKind::ShortBody),
        (9, ErrorKind::ShortBody),
        (10, ErrorKind::WrongBytes),
    ];
    assert_eq!(kinds, expected, "{:?}", report.error_samples);
    assert_eq!(
        report.error_samples[0].detail,
        "byte 70000 of 100000 is wrong"
    );
    assert_eq!(report.errors[&ErrorKind::WrongBytes], 2);
    assert_eq!(report.errors[&ErrorKind::ShortBody], 5);
    assert_eq!((report.requests, report.errors_total), (12, 10));
    assert_eq!(report.body_bytes, 200_000);
    assert!(!report.stopped_early);
}

#[test]
fn a_target_that_stops_sending_causes_a_timeout_and_the_replay_continues() {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|request| Answer::ok(correct_body(request)));
    origin.on("/o/1", Answer::never());
    origin.on("/o/2", Answer::pattern(10).hang_at(5));
    let plan = ReplayPlan {
        timeout: Duration::from_millis(50),
        ..one_connection(&origin)
    };
    let report = replay(&plan, &[1, 2, 3].map(|key| record(key, 10)));
    assert_eq!(
        report.errors[&ErrorKind::Timeout],
        2,
        "{:?}",
        report.error_samples
    );
    assert_eq!((report.requests, report.body_bytes), (3, 10));
}

/// The target may close a kept connection between two requests. This is not a failure.
#[test]
fn a_kept_connection_that_was_closed_is_opened_again() {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|request| Answer::ok(correct_body(request)).then_close());
    let report = replay(&one_connection(&origin), &[record(1, 10); 20]);
    assert_eq!(report.errors_total, 0, "{:?}", report.error_samples);
    assert_eq!(report.requests, 20);
    // The client may notice the close only when it sends the next request. Each request opens at most two
    // connections.
    assert!((20..=39).contains(&report.client.connections_opened));
}

#[test]
fn an_unreachable_target_is_an_error_at_the_start() {
    let unused_addr = ScriptedOrigin::unused_addr();
    let error = load::run(
        &plan(&format!("http://{unused_addr}")),
        [Ok::<_, Infallible>(record(1, 1))].into_iter(),
    );
    let error = error.expect_err("the port is closed").to_string();
    assert_eq!(error, format!("cannot connect to {unused_addr}"));
}

#[test]
fn too_many_failures_in_a_row_end_the_run() {
    let origin = ScriptedOrigin::start();
    let asked = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&asked);
    // Every fifth request succeeds, except at the end.
    origin.otherwise(move |request| {
        let n = counted.fetch_add(1, Ordering::Relaxed);
        if n < 50 && n.is_multiple_of(5) {
            Answer::ok(correct_body(request))
        } else {
            Answer::status(503)
        }
    });
    let plan = ReplayPlan {
        failures_in_a_row_max: NonZeroU64::new(10).expect("the number is not zero"),
        ..one_connection(&origin)
    };
    let report = replay(&plan, &[record(1, 10); 1000]);
    assert!(report.stopped_early);
    // The last success is request 45, counted from 0. Ten failures follow.
    assert_eq!(report.requests, 56);
    assert_eq!(report.errors[&ErrorKind::Status], 46);
}

#[test]
fn an_error_of_the_trace_ends_the_replay() {
    let origin = synthetic();
    let records = [Ok(record(1, 1)), Err("line 2 is incomplete".to_owned())];
    let plan = plan(&format!("http://{}", origin.addr()));
    let error = load::run(&plan, records.into_iter()).expect_err("the trace has an error");
    assert_eq!(error.to_string(), "cannot read the trace after 1 requests");
    let source = std::error::Error::source(&error).map(ToString::to_string);
    assert_eq!(source.as_deref(), Some("line 2 is incomplete"));
}

/// Twenty requests with an interval of one millisecond take at least nineteen milliseconds, because no request
/// is sent early.
#[test]
fn an_open_loop_sends_at_its_rate() {
    let origin = synthetic();
    let plan = ReplayPlan {
        pacing: Pacing::Rate(1000.0),
        ..plan(&format!("http://{}", origin.addr()))
    };
    let report = replay(&plan, &[record(1, 10); 20]);
    assert!(
        report.duration_seconds >= 0.019,
        "{}",
        report.duration_seconds
    );
    assert_eq!(report.errors_total, 0);
}

/// Three requests are due within two milliseconds on one connection. The target takes 40 ms per request. The third
/// request waits for two responses, and both its latency and its send delay include the wait.
#[test]
fn waiting_for_a_connection_is_latency_in_an_open_loop() {
    let origin = SyntheticOrigin::start(OriginConfig {
        latency: Duration::from_millis(40),
        ..OriginConfig::default()
    });
    let origin = origin.expect("a loopback port is free");
    let plan = ReplayPlan {
        pacing: Pacing::TraceTime { speedup: 1.0 },
        connections: NonZeroUsize::MIN,
        ..plan(&format!("http://{}", origin.addr()))
    };
    let records = [0, 1, 2].map(|ms| Record {
        time: Timestamp::from_millis(ms),
        ..record(1, 0)
    });
    let report = replay(&plan, &records);
    // The second request is due at 1 ms and answered at 80 ms. The third is due at 2 ms, sent at 80 ms and answered
    // at 120 ms. The limits leave 0.1 ms for rounding.
    assert!(
        report.send_delay_ms.max >= 77.9,
        "{:?}",
        report.send_delay_ms
    );
    assert!(report.latency_ms.max >= 117.9, "{:?}", report.latency_ms);
    assert!(report.latency_ms.p50 >= 78.9, "{:?}", report.latency_ms);
}

#[test]
fn the_latency_includes_the_emulated_round_trip_time() {
    let origin = synthetic();
    let plan = ReplayPlan {
        round_trip: Duration::from_millis(30),
        connections: NonZeroUsize::new(10).expect("the number is not zero"),
        ..plan(&format!("http://{}", origin.addr()))
    };
    let records: Vec<Record> = (0..20).map(|key| record(key, 100)).collect();
    let report = replay(&plan, &records);
    assert_eq!((report.requests, report.errors_total), (20, 0));
    assert!(report.latency_ms.p50 >= 30.0, "{:?}", report.latency_ms);
    let live = plan.live.latencies_after_warmup();
    assert_eq!(live.len(), 20);
    assert!(
        live.quantile(0.5) >= Some(Duration::from_millis(29)),
        "{live:?}"
    );
}

/// Method: replay an endless trace with one request per hour, and stop it after the first request.
#[test]
fn a_stopped_replay_reports_the_results_so_far() {
    let origin = synthetic();
    let plan = ReplayPlan {
        pacing: Pacing::Rate(1.0 / 3600.0),
        ..plan(&format!("http://{}", origin.addr()))
    };
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            // The first request is due at once.
            while plan.live.requests() == 0 {
                std::thread::yield_now();
            }
            plan.stop.request();
        });
        let endless = (0..).map(|key| Ok::<_, Infallible>(record(key, 10)));
        load::run(&plan, endless).expect("the replay succeeds")
    });
    assert_eq!((report.requests, report.errors_total), (1, 0));
    assert!(report.stopped_early);
}

#[test]
fn the_target_is_monitored_from_the_start_to_the_end() {
    let origin = synthetic();
    let url = format!("http://{}", origin.addr());
    let plan = ReplayPlan {
        pid: Some(std::process::id()),
        status: Some(format!("{url}/status").parse().expect("the URL is valid")),
        sample_interval: Duration::from_millis(20),
        pacing: Pacing::Rate(500.0),
        ..plan(&url)
    };
    let report = replay(&plan, &[record(1, 1000); 50]);
    let series = &report.target.series;
    assert!(series.len() >= 3, "{}", series.len());
    assert!(series.is_sorted_by_key(|sample| sample.requests));
    let last = series.last().expect("the series has samples");
    assert_eq!((last.requests, last.body_bytes), (50, 50_000));
    let page = last
        .status
        .as_ref()
        .expect("the sample has the status page");
    assert!(page["body_bytes"].as_u64() >= Some(50_000), "{page}");
    assert!(report.target.rss_bytes_max > Some(1 << 20));
    assert!(report.target.cpu_seconds.is_some());
    let json = serde_json::to_value(&report).expect("the report can be serialised");
    for pointer in [
        "/trace",
        "/requests",
        "/hits",
        "/object_hit_ratio",
        "/byte_hit_ratio",
        "/latency_ms/p50",
        "/latency_ms/p99_9",
        "/throughput/requests_per_second",
        "/throughput/bytes_per_second",
        "/errors/wrong_bytes",
        "/errors_total",
        "/classes/collapsed/requests",
        "/plan/pacing/mode",
        "/target/series/0/rss_bytes",
    ] {
        assert!(json.pointer(pointer).is_some(), "{pointer}: {json:#}");
    }
    let back: ReplayReport = serde_json::from_value(json).expect("the report can be parsed");
    assert_eq!(back, report);
}

#[test]
fn a_process_that_does_not_exist_cannot_be_monitored() {
    let origin = synthetic();
    let plan = ReplayPlan {
        pid: Some(u32::MAX - 1),
        live: Arc::new(LiveCounts::default()),
        ..plan(&format!("http://{}", origin.addr()))
    };
    let error = load::run(&plan, [Ok::<_, Infallible>(record(1, 1))].into_iter());
    let error = error.expect_err("the process does not exist").to_string();
    assert_eq!(error, "cannot monitor process 4294967294");
}
