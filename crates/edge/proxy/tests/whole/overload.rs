//! Load that the edge sheds, workers that are stuck, and panics.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use crate::support::{Client, TIMEOUT, TestBed};
use edgeward_proxy::EdgeConfig;
use edgeward_testkit::Answer;
use edgeward_types::ByteSize;

/// The time between two levels, in which a test sends the requests for one level.
const STEP: Duration = Duration::from_secs(1);

/// Sheds load from the start on: each process has more than one byte of memory.
fn always_overloaded(config: &mut EdgeConfig) {
    config.workers = NonZeroUsize::MIN;
    config.overload.step = STEP;
    config.overload.memory_max = Some(ByteSize(1));
}

fn wait_for_level(admin: &mut Admin, level: &str) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let shown = admin.level();
        if shown == level {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "the level is {shown}, not {level}"
        );
    }
}

/// A connection to the admin server.
struct Admin(Client);

impl Admin {
    fn of(bed: &TestBed) -> Self {
        Self(Client::connect(
            bed.edge.admin_addr().expect("it is configured"),
        ))
    }

    fn level(&mut self) -> String {
        let status = self.0.get("/status", &[]);
        let status: serde_json::Value = serde_json::from_slice(&status.body).expect("JSON");
        status["overload"]["level"]
            .as_str()
            .expect("a word")
            .to_owned()
    }
}

/// Lets the origin answer with a page that is fresh for ten minutes.
fn page(bed: &TestBed) {
    bed.origin
        .otherwise(|_| Answer::ok("page").header("cache-control", "max-age=600"));
}

fn assert_shed(answer: &crate::support::Answer) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.cache_status(), "edgeward; detail=overload");
    assert_eq!(answer.header("retry-after"), Some("10"));
}

/// Method: the memory of the process is always above the bound, so the levels follow each other. At the last level a
/// new connection takes the place of an idle one, and is closed if none is idle.
#[test]
fn memory_above_its_bound_sheds_passes_then_misses_then_newcomers_and_never_hits() {
    let bed = TestBed::with_config(always_overloaded);
    bed.origin.otherwise(|request| match request.target() {
        "/never" => Answer::never(),
        _ => Answer::ok("page").header("cache-control", "max-age=600"),
    });
    let (mut admin, mut client) = (Admin::of(&bed), bed.connect());
    assert_eq!(client.get("/hit", &[]).status, 200);
    let mut busy = bed.connect();
    busy.send_head("GET", "/never", &[]);
    wait_for_level(&mut admin, "connections");
    assert!(bed.get("/hit").is_hit(), "a new connection is served");
    assert_eq!(
        client
            .request("POST", "/", &[("content-length", "0")], b"")
            .status,
        200
    );
    wait_for_level(&mut admin, "passes");
    assert_shed(&client.request("POST", "/", &[("content-length", "0")], b""));
    assert_eq!(client.get("/miss-1", &[]).status, 200);
    wait_for_level(&mut admin, "misses");
    assert_shed(&client.get("/miss-2", &[]));
    assert_shed(&client.request("POST", "/", &[("content-length", "0")], b""));
    assert!(client.get("/hit", &[]).is_hit());
    assert!(client.get("/miss-1", &[]).is_hit());
    for (work, count) in [("pass", 2.0), ("miss", 1.0), ("hit", 0.0)] {
        assert_eq!(
            bed.metric(&format!("edgeward_shed_total{{work=\"{work}\"}}")),
            count,
            "{work}"
        );
    }
    assert_eq!(bed.metric("edgeward_shed_total{work=\"connection\"}"), 0.0);
    let mut newcomer = bed.connect();
    assert!(newcomer.get("/hit", &[]).is_hit());
    assert!(client.is_closed(), "the idle connection has made room");
    assert_eq!(
        bed.metric("edgeward_client_connections_closed_total{cause=\"crowded\"}"),
        1.0
    );
    drop(newcomer);
    bed.wait_until("one busy connection is left", |status| {
        status["connections"]["clients"] == 1
    });
    let mut refused = Client::connect(bed.addr());
    assert!(refused.try_head().is_none(), "a new connection is closed");
    assert_eq!(bed.metric("edgeward_shed_total{work=\"connection\"}"), 1.0);
    drop(busy);
    assert_eq!(bed.metric("edgeward_overload_level"), 3.0);
    assert_eq!(bed.metric("edgeward_overload_raised_total"), 3.0);
    assert!(bed.metric("edgeward_overload_used_ratio{resource=\"memory\"}") > 1.0);
    bed.wait_until("the last rise has its resource and its bound", |status| {
        let rise = &status["overload"]["last_rise"];
        let is_exceeded = rise["used"].as_u64() > rise["bound"].as_u64();
        rise["level"] == "misses" && rise["resource"] == "memory" && is_exceeded
    });
}

/// Method: two responses are stale. One may be served after an error, the other may not.
#[test]
fn while_misses_are_shed_a_stale_response_is_served_if_it_may_be() {
    let bed = TestBed::with_config(always_overloaded);
    bed.origin.otherwise(|request| {
        let fresh = "max-age=0, stale-if-error=600";
        let strict = "max-age=0, must-revalidate";
        let is_strict = request.target().starts_with("/strict");
        let cache_control = if is_strict { strict } else { fresh };
        Answer::ok("old")
            .header("cache-control", cache_control)
            .header("etag", "\"1\"")
    });
    let mut client = bed.connect();
    for path in ["/lenient", "/strict"] {
        assert_eq!(client.get(path, &[]).status, 200);
    }
    wait_for_level(&mut Admin::of(&bed), "misses");
    let stale = client.get("/lenient", &[]);
    assert_eq!((stale.status, stale.text()), (200, "old"));
    assert!(
        stale.cache_status().ends_with("detail=overload"),
        "{}",
        stale.cache_status()
    );
    assert_shed(&client.get("/strict", &[]));
    assert_eq!(bed.metric("edgeward_shed_stale_total"), 1.0);
}

/// Method: a request blocks the only worker for eight seconds.
#[test]
fn a_worker_that_lags_sheds_hits_last_and_recovers_by_itself() {
    let bed = TestBed::with_config(|config| {
        config.workers = NonZeroUsize::MIN;
        config.overload.step = Duration::from_millis(1);
        config.overload.lag_max = Duration::from_millis(200);
        config.watchdog.deadline = Duration::ZERO;
    });
    page(&bed);
    let (mut admin, mut client, mut blocking) = (Admin::of(&bed), bed.connect(), bed.connect());
    assert_eq!(client.get("/hit", &[]).status, 200);
    // A hit of the fast path would not reach the fault.
    blocking.send_head("GET", "/miss", &[("edgeward-debug-fault", "block-8000")]);
    wait_for_level(&mut admin, "hits");
    // The worker answers after it was blocked, and before its average delay has fallen.
    assert_shed(&client.get("/hit", &[]));
    assert!(
        client.try_head().is_none(),
        "the connection of a shed hit is closed"
    );
    // The admin server has closed the idle connection.
    wait_for_level(&mut Admin::of(&bed), "normal");
    assert!(bed.get("/hit").is_hit());
    assert!(bed.metric("edgeward_shed_total{work=\"hit\"}") >= 1.0);
}

#[test]
fn a_panic_ends_its_connection_alone_and_is_counted() {
    let bed = TestBed::with_config(|config| config.workers = NonZeroUsize::MIN);
    page(&bed);
    let (mut other, mut broken) = (bed.connect(), bed.connect());
    assert_eq!(other.get("/a", &[]).status, 200);
    broken.send_head("GET", "/b", &[("edgeward-debug-fault", "panic-request")]);
    assert!(broken.try_head().is_none(), "the connection is closed");
    assert!(other.get("/a", &[]).is_hit());
    assert_eq!(bed.get("/b").status, 200);
    assert_eq!(
        bed.metric("edgeward_panics_total{task=\"connection\"}"),
        1.0
    );
    bed.wait_until("the ended connection is not counted", |status| {
        status["connections"]["clients"]
            .as_u64()
            .is_some_and(|clients| clients <= 2)
    });
    drop(other);
    bed.edge.shutdown(TIMEOUT);
}

/// Method: a follower joins the fetch while the origin holds its response. Then the leader's fetch panics.
#[test]
fn a_fetch_that_panics_releases_its_followers() {
    let bed = TestBed::with_config(|config| config.workers = NonZeroUsize::MIN);
    let gate = edgeward_testkit::Gate::new();
    let held = gate.clone();
    bed.origin.otherwise(move |_| {
        Answer::ok("page")
            .header("cache-control", "max-age=600")
            .wait_before_head(&held)
    });
    let mut leader = bed.connect();
    leader.send_head("GET", "/a", &[("edgeward-debug-fault", "panic-fetch")]);
    bed.wait_until("the leader's fetch is under way", |status| {
        status["fills"]["under_way"] == 1
    });
    let mut follower = bed.connect();
    follower.send_head("GET", "/a", &[]);
    bed.wait_for_metric("edgeward_requests_total{outcome=\"uri-miss\"}", 2.0);
    gate.open();
    assert_eq!(follower.answer("GET").status, 200);
    assert!(
        leader.try_head().is_none(),
        "the leader's connection is closed"
    );
    assert_eq!(bed.metric("edgeward_fills"), 0.0);
    assert!(bed.get("/a").is_hit());
}

#[test]
fn a_stuck_worker_is_found_and_its_recovery_too() {
    let bed = TestBed::with_config(|config| {
        config.workers = NonZeroUsize::MIN;
        config.watchdog.deadline = Duration::from_secs(2);
    });
    page(&bed);
    let health = bed.edge.health();
    assert!(health.is_alive());
    let mut blocking = bed.connect();
    blocking.send_head("GET", "/", &[("edgeward-debug-fault", "block-12000")]);
    bed.wait_for_metric("edgeward_workers_stuck", 1.0);
    assert!(!health.is_alive());
    bed.wait_for_metric("edgeward_workers_stuck", 0.0);
    assert!(health.is_alive());
    assert_eq!(blocking.answer("GET").status, 200);
    assert_eq!(bed.metric("edgeward_workers_stuck_total"), 1.0);
}
