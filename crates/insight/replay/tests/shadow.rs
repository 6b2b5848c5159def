//! The shadow over sockets: mirrored requests, the bound of the queue, the budget of the origin.

use std::num::NonZeroUsize;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use edgeward_replay::load::{Stop, Target};
use edgeward_replay::shadow::{FeederMode, Shadow, ShadowPlan, ShadowProgress, listen};
use edgeward_shadow::{Answer as LoggedAnswer, LineMark, Request, Settings, ShadowReport, Skip};
use edgeward_testkit::client::{Client, until};
use edgeward_testkit::{Answer, ScriptedOrigin};

fn plan(edge: &ScriptedOrigin, incumbent: &ScriptedOrigin) -> ShadowPlan {
    let target = |origin: &ScriptedOrigin| -> Target {
        origin.url("").parse().expect("the URL is a target")
    };
    ShadowPlan {
        edge: target(edge),
        edge_tls: None,
        incumbent: Some(target(incumbent)),
        incumbent_tls: None,
        incumbent_per_second: None,
        connections: NonZeroUsize::MIN,
        queue_max: NonZeroUsize::new(4).expect("the number is not zero"),
        origin_per_second: None,
        origin_bytes_per_second: None,
        sample: 1.0,
        has_credentials: false,
        timeout: Duration::from_secs(60),
        settings: Settings::default(),
        stop: Stop::default(),
    }
}

/// A shadow that receives mirrored requests.
struct Mirror {
    addr: std::net::SocketAddr,
    stop: Stop,
    progress: ShadowProgress,
    running: JoinHandle<()>,
}

impl Mirror {
    fn start(plan: ShadowPlan) -> Self {
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = listen(any).expect("the listener is open");
        let addr = listener.local_addr().expect("the listener has an address");
        let stop = plan.stop.clone();
        let shadow = Shadow::new(plan);
        let progress = shadow.progress();
        let running = thread::spawn(move || shadow.run(Some(listener)).expect("the shadow runs"));
        Self {
            addr,
            stop,
            progress,
            running,
        }
    }

    /// Sends a request as nginx mirrors it.
    fn send(&self, method: &str, path: &str, fields: &[(&str, &str)]) {
        let mut client = Client::connect(self.addr);
        let fields = [&[("Host", "a.example"), ("Connection", "close")], fields].concat();
        let answer = client.request(method, path, &fields, b"");
        assert_eq!(answer.status, 204);
    }

    fn stop(self) -> ShadowReport {
        self.stop.request();
        self.running.join().expect("the shadow ends");
        self.progress.report()
    }
}

fn origin(body: &'static str) -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    origin.otherwise(move |_| Answer::ok(body));
    origin
}

/// Method: the edge never answers. One request is sent, four wait, and all others are dropped.
#[test]
fn a_mirrored_request_is_answered_though_the_edge_hangs_and_the_queue_is_full() {
    let (edge, incumbent) = (ScriptedOrigin::start(), origin("x"));
    edge.otherwise(|_| Answer::never());
    let mirror = Mirror::start(plan(&edge, &incumbent));
    mirror.send("GET", "/first", &[]);
    edge.wait_until("the first request arrives", |edge| {
        edge.requests_total() == 1
    });
    for _ in 0..10 {
        mirror.send("GET", "/", &[]);
    }
    let report = mirror.stop();
    assert_eq!(report.requests, 11);
    assert_eq!(report.skipped[&Skip::QueueFull], 6);
    assert_eq!(edge.requests_total(), 1);
}

#[test]
fn unsafe_methods_own_requests_and_credentials_are_not_sent() {
    let (edge, incumbent) = (origin("x"), origin("x"));
    let mirror = Mirror::start(plan(&edge, &incumbent));
    mirror.send("POST", "/", &[("Content-Length", "0")]);
    mirror.send("GET", "/", &[("edgeward-shadow", "1")]);
    let fields = [("Cookie", "a=1"), ("Authorization", "x"), ("X-Lang", "de")];
    mirror.send("GET", "/page", &fields);
    mirror.send("GET", "/last", &[]);
    edge.wait_until("the last request arrives", |edge| {
        edge.requests("/last") == 1
    });
    let report = mirror.stop();
    assert_eq!(edge.requests_total(), 2);
    let received = edge.last("/page").expect("the request was sent");
    assert_eq!(received.header("x-lang"), Some("de"));
    assert_eq!(received.header("host"), Some("a.example"));
    assert_eq!(
        (received.header("cookie"), received.header("authorization")),
        (None, None)
    );
    // The incumbent can recognise the request, which it mirrors, too.
    let asked = incumbent.last("/page").expect("the incumbent was asked");
    assert_eq!(asked.header("edgeward-shadow"), Some("1"));
    assert_eq!(report.skipped[&Skip::Method], 1);
    assert_eq!(report.skipped[&Skip::Own], 1);
    assert_eq!(report.without_credentials, 1);
}

/// Method: an edge without `Cache-Status` may have asked the origin each time. The budget has one request, and its
/// next one comes after a day.
#[test]
fn no_request_is_sent_without_a_place_in_the_budget() {
    let (edge, incumbent) = (origin("x"), origin("x"));
    let mut plan = plan(&edge, &incumbent);
    plan.origin_per_second = Some(1.0 / 86_400.0);
    let (stop, shadow) = (plan.stop.clone(), Shadow::new(plan));
    let (progress, feeder) = (shadow.progress(), shadow.feeder(FeederMode::Wait));
    let running = thread::spawn(move || shadow.run(None));
    for path in ["/a", "/b"] {
        let request = Request::new(b"GET", b"a.example", path.as_bytes());
        let request = request.expect("the request is valid");
        assert!(
            feeder
                .push(request, LoggedAnswer::default(), LineMark::Unknown)
                .is_continue()
        );
    }
    until("the second request waits", || {
        (progress.report().budget.waited_seconds > 0.0).then_some(())
    });
    stop.request();
    running.join().expect("no panic").expect("the shadow runs");
    assert_eq!(edge.requests_total(), 1);
    assert_eq!(progress.report().budget.origin_requests, 1);
}
