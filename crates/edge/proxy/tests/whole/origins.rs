//! Origins with several servers: balancing, failures, health, retries, and host names.
//!
//! Servers are killed by dropping the scripted origin, and return when another starts at the same address.

use std::collections::HashSet;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{Client, TIMEOUT, TestBed, config_for};
use edgeward_proxy::config::{AllDown, Balance, OriginConfig, OriginUrl};
use edgeward_proxy::{Edge, Resolve, Resolved, UrlName};
use edgeward_testkit::{Answer, Gate, ScriptedOrigin, Step};

fn url(addr: SocketAddr) -> OriginUrl {
    format!("http://{addr}").parse().expect("a URL")
}

/// Starts a server that answers each path with its address, and no response is stored.
fn start_at(addr: SocketAddr) -> ScriptedOrigin {
    let server = ScriptedOrigin::start_at(addr);
    let text = server.addr().to_string();
    server.otherwise(move |_| Answer::ok(text.clone()).header("cache-control", "no-store"));
    server
}

fn start() -> ScriptedOrigin {
    start_at(SocketAddr::from(([127, 0, 0, 1], 0)))
}

/// An answer that resets the connection after the request was read.
fn reset() -> Answer {
    Answer::script(vec![Step::Reset])
}

/// Starts an edge with one worker and an origin of these servers. The first is the origin of the test bed.
fn bed_of(
    mut servers: Vec<ScriptedOrigin>,
    change: impl FnOnce(&mut OriginConfig),
) -> (TestBed, Vec<ScriptedOrigin>) {
    let urls = servers.iter().map(|server| url(server.addr())).collect();
    let bed = TestBed::with_origin(servers.remove(0), |config| {
        config.workers = NonZeroUsize::MIN;
        config.origins[0].servers = urls;
        change(&mut config.origins[0]);
    });
    (bed, servers)
}

/// Sends `count` requests for different paths, and expects that all succeed.
fn all_succeed(bed: &TestBed, count: usize) {
    for n in 0..count {
        let answer = bed.get(&format!("/{n}"));
        assert_eq!(answer.status, 200, "request {n}: {}", answer.text());
    }
}

/// Returns the state of each server in `/status`.
fn states(status: &serde_json::Value) -> Vec<(String, String)> {
    let servers = status["origins"][0]["servers"].as_array();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let state = |server: &serde_json::Value| (text(&server["server"]), text(&server["state"]));
    servers.into_iter().flatten().map(state).collect()
}

fn wait_for_state(bed: &TestBed, server: SocketAddr, expected: &str) {
    let expected = (server.to_string(), expected.to_owned());
    bed.wait_until(&format!("{expected:?}"), |status| {
        states(status).contains(&expected)
    });
}

/// Sends requests until `holds` returns true, and expects that all succeed.
fn send_until(bed: &TestBed, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(
            Instant::now() < deadline,
            "timeout while waiting until {what}"
        );
        all_succeed(bed, 1);
    }
}

/// Method: kill one of two servers while it has idle connections, and let it return. No client gets an error.
#[test]
fn a_killed_server_costs_clients_no_errors_and_gets_requests_when_it_returns() {
    let (bed, mut others) = bed_of(vec![start(), start()], |origin| {
        origin.ejection_time = Duration::from_millis(50);
        origin.slow_start = Duration::ZERO;
    });
    all_succeed(&bed, 20);
    let killed = others.remove(0);
    let addr = killed.addr();
    assert!(killed.requests_total() > 0);
    drop(killed);
    all_succeed(&bed, 50);
    assert!(bed.metric("edgeward_origin_failovers_total") >= 1.0);
    let returned = start_at(addr);
    send_until(&bed, "the server gets requests", || {
        returned.requests_total() > 0
    });
    wait_for_state(&bed, addr, "up");
}

/// Method: kill and start one of two servers ten times, with requests all the time.
#[test]
fn a_flapping_server_costs_clients_no_errors() {
    let (bed, mut others) = bed_of(vec![start(), start()], |origin| {
        origin.ejection_time = Duration::from_millis(1);
        origin.ejection_time_max = Duration::from_millis(1);
        origin.slow_start = Duration::ZERO;
        origin.balance = Balance::RoundRobin;
    });
    let addr = others[0].addr();
    for _ in 0..10 {
        let server = others.pop().expect("the server runs");
        send_until(&bed, "the server gets requests", || {
            server.requests_total() > 0
        });
        drop(server);
        all_succeed(&bed, 10);
        others.push(start_at(addr));
    }
}

#[test]
fn half_of_a_pool_can_be_gone() {
    let servers = (0..4).map(|_| start()).collect();
    let (bed, mut others) = bed_of(servers, |_| {});
    all_succeed(&bed, 20);
    others.truncate(1);
    all_succeed(&bed, 100);
    assert_eq!(
        bed.metric("edgeward_origin_errors_total{cause=\"no-server\"}"),
        0.0
    );
}

/// Method: one server reads requests and never answers. After three timeouts it gets no more requests.
#[test]
fn a_hung_server_is_ejected_and_costs_clients_no_errors() {
    let (bed, others) = bed_of(vec![start(), start()], |origin| {
        // The other server answers within this time, also on a machine that runs other tests.
        origin.first_byte_timeout = Duration::from_secs(3);
        origin.balance = Balance::RoundRobin;
    });
    others[0].otherwise(|_| Answer::never());
    all_succeed(&bed, 20);
    assert_eq!(others[0].requests_total(), 3);
    wait_for_state(&bed, others[0].addr(), "ejected");
    let series = format!(
        "edgeward_origin_server_ejections_total{{origin=\"default\",server=\"{}\"}}",
        others[0].addr()
    );
    assert_eq!(bed.metric(&series), 1.0);
}

/// Method: a request waits at the slow server until the test ends. All others then go to the other server.
#[test]
fn a_slow_server_gets_fewer_requests() {
    let (bed, others) = bed_of(vec![start(), start()], |_| {});
    let gate = Gate::new();
    let held = gate.clone();
    others[0].otherwise(move |_| Answer::ok("slow").wait_before_head(&held));
    let mut waiting = Vec::new();
    while others[0].requests_total() == 0 {
        let mut client = bed.connect();
        let path = format!("/wait/{}", waiting.len());
        client.send_head("GET", &path, &[]);
        waiting.push(client);
        assert!(waiting.len() < 100, "the slow server gets a request");
        bed.wait_until("the request arrives", |_| {
            bed.origin.requests(&path) + others[0].requests(&path) == 1
        });
    }
    all_succeed(&bed, 30);
    assert_eq!(others[0].requests_total(), 1);
    gate.open();
}

#[test]
fn a_request_that_cannot_be_repeated_is_sent_again_only_if_it_reached_no_server() {
    let (bed, mut others) = bed_of(vec![start(), start()], |origin| {
        origin.balance = Balance::RoundRobin;
    });
    let post = |bed: &TestBed| {
        let mut client = bed.connect();
        client.request("POST", "/form", &[("content-length", "5")], b"hello")
    };
    others[0].otherwise(|_| reset());
    let mut statuses = vec![post(&bed).status, post(&bed).status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 502]);
    assert_eq!(bed.origin.requests("/form"), 1);
    others.clear();
    for _ in 0..4 {
        let answer = post(&bed);
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let last = bed.origin.last("/form").expect("a request");
    assert_eq!(last.body(), b"hello");
}

/// Method: all servers reset all requests, so that each request fails. The servers get the requests and the budget.
#[test]
fn retries_stay_within_the_budget() {
    let (bed, others) = bed_of(vec![start(), start()], |origin| {
        origin.retry_percent = 20;
        origin.retries_per_second = 1;
        origin.failures_max = NonZeroU32::MAX;
    });
    for server in [&bed.origin, &others[0]] {
        server.otherwise(|_| reset());
    }
    for n in 0..100 {
        assert_eq!(bed.get(&format!("/{n}")).status, 502);
    }
    let sent = bed.origin.requests_total() + others[0].requests_total();
    let denied = bed.metric("edgeward_origin_retries_denied_total");
    // 20 % of 100 requests and ten seconds of one retry each. The window may lose requests on a slow machine.
    assert!((110..=130).contains(&sent), "{sent}");
    assert_eq!(denied as usize, 200 - sent);
}

#[test]
fn without_a_budget_a_failed_request_is_not_sent_again() {
    let (bed, others) = bed_of(vec![start(), start()], |origin| {
        origin.retry_percent = 0;
        origin.retries_per_second = 0;
        origin.balance = Balance::RoundRobin;
    });
    others[0].otherwise(|_| reset());
    let failed = (0..4).filter(|n| bed.get(&format!("/{n}")).status == 502);
    assert_eq!(failed.count(), 2);
}

#[test]
fn a_backup_serves_while_the_primary_is_down_and_not_after() {
    let backup = start();
    let backup_url = url(backup.addr());
    let (bed, _) = bed_of(vec![start()], |origin| {
        origin.backup_servers = vec![backup_url];
        origin.ejection_time = Duration::from_millis(50);
        origin.ejection_time_max = Duration::from_millis(50);
        origin.slow_start = Duration::ZERO;
    });
    all_succeed(&bed, 10);
    assert_eq!(backup.requests_total(), 0);
    let TestBed { edge, origin } = bed;
    let addr = origin.addr();
    drop(origin);
    let bed = TestBed {
        edge,
        origin: backup,
    };
    all_succeed(&bed, 20);
    assert!(bed.origin.requests_total() >= 20);
    let primary = start_at(addr);
    send_until(&bed, "the primary gets requests", || {
        primary.requests_total() > 0
    });
    wait_for_state(&bed, addr, "up");
    let before = bed.origin.requests_total();
    all_succeed(&bed, 20);
    assert_eq!(bed.origin.requests_total(), before);
}

/// Method: with a slow start of an hour, a server that has recovered stays at a tenth of its share.
#[test]
fn a_server_that_returns_gets_no_burst() {
    let (bed, mut others) = bed_of(vec![start(), start()], |origin| {
        origin.ejection_time = Duration::from_millis(20);
        origin.ejection_time_max = Duration::from_millis(20);
        origin.slow_start = Duration::from_secs(3600);
        origin.balance = Balance::RoundRobin;
    });
    let addr = others.remove(0).addr();
    all_succeed(&bed, 10);
    let returned = start_at(addr);
    send_until(&bed, "the server gets a probe", || {
        returned.requests_total() > 0
    });
    let before = returned.requests_total();
    all_succeed(&bed, 100);
    let share = returned.requests_total() - before;
    assert!((1..=10).contains(&share), "{share} of 100 requests");
}

/// Method: the server answers requests, but its health path has status 503.
#[test]
fn failed_checks_take_a_server_out_and_successful_checks_return_it() {
    let (bed, others) = bed_of(vec![start(), start()], |origin| {
        origin.checks.path = Some("/health?deep".to_owned());
        origin.checks.interval = Duration::from_millis(20);
        origin.slow_start = Duration::ZERO;
    });
    let addr = others[0].addr();
    others[0].on("/health", Answer::status(503));
    wait_for_state(&bed, addr, "check-failed");
    let requests = || others[0].requests_total() - others[0].requests("/health");
    let before = requests();
    all_succeed(&bed, 20);
    assert_eq!(requests(), before);
    let check = others[0].last("/health").expect("a check");
    assert_eq!(check.target(), "/health?deep");
    assert_eq!(
        check.header("host"),
        Some(bed.origin.addr().to_string().as_str())
    );
    others[0].on("/health", Answer::ok("well"));
    wait_for_state(&bed, addr, "up");
    send_until(&bed, "the server gets requests", || requests() > before);
}

/// The metric follows the checks in both directions, although no request comes.
#[test]
fn an_origin_is_down_while_the_checks_of_all_servers_fail() {
    let (bed, others) = bed_of(vec![start(), start()], |origin| {
        origin.checks.path = Some("/health".to_owned());
        origin.checks.interval = Duration::from_millis(20);
    });
    let up = "edgeward_origin_up{origin=\"default\"}";
    assert_eq!(bed.metric(up), 1.0);
    bed.origin.on("/health", Answer::status(503));
    wait_for_state(&bed, bed.origin.addr(), "check-failed");
    assert_eq!(bed.metric(up), 1.0, "one of two servers works");
    others[0].on("/health", Answer::status(503));
    bed.wait_for_metric(up, 0.0);
    assert_eq!(bed.status()["origins"][0]["up"], false);
    others[0].on("/health", Answer::ok("well"));
    bed.wait_for_metric(up, 1.0);
    assert_eq!(bed.status()["origins"][0]["up"], true);
}

/// Without checks the edge connects again to a server that is down, so that an alert ends on a quiet site.
#[test]
fn an_origin_that_is_up_again_is_noticed_without_a_request() {
    let addr = ScriptedOrigin::unused_addr();
    let bed = TestBed::with_config(|config| config.origins[0].servers = vec![url(addr)]);
    let up = "edgeward_origin_up{origin=\"default\"}";
    assert_eq!(bed.get("/page").status, 502);
    assert_eq!(bed.metric(up), 0.0);
    let returned = ScriptedOrigin::start_at(addr);
    bed.wait_for_metric(up, 1.0);
    assert_eq!(returned.requests_total(), 0);
}

#[test]
fn without_a_usable_server_the_answer_is_503_if_the_setting_says_so() {
    let bed = TestBed::with_config(|config| {
        config.origins[0].all_down = AllDown::Refuse;
        config.origins[0].servers = vec![url(ScriptedOrigin::unused_addr())];
        config.workers = NonZeroUsize::MIN;
    });
    for n in 0..3 {
        assert_eq!(bed.get(&format!("/{n}")).status, 502);
    }
    let refused = bed.get("/refused");
    assert_eq!(refused.status, 503);
    let detail = "detail=destination_unavailable";
    assert!(
        refused.cache_status().contains(detail),
        "{}",
        refused.cache_status()
    );
    assert_eq!(
        bed.metric("edgeward_origin_errors_total{cause=\"no-server\"}"),
        1.0
    );
}

/// A resolver whose answer the test changes.
#[derive(Debug, Default)]
struct TestResolver {
    answer: Mutex<Option<Vec<SocketAddr>>>,
    calls: AtomicUsize,
}

impl TestResolver {
    fn set(&self, servers: &[SocketAddr]) {
        *self.answer.lock().expect("no test panicked here") = Some(servers.to_vec());
    }

    fn fail(&self) {
        *self.answer.lock().expect("no test panicked here") = None;
    }
}

impl Resolve for TestResolver {
    fn resolve(&self, name: &UrlName<'_>) -> io::Result<Resolved> {
        assert!(
            matches!(
                name,
                UrlName::Host {
                    host: "app.internal",
                    port: 8080
                }
            ),
            "{name:?}"
        );
        let answer = self.answer.lock().expect("no test panicked here").clone();
        self.calls.fetch_add(1, SeqCst);
        let answer = answer.map(Resolved::from_iter);
        answer.ok_or_else(|| io::Error::other("the test lets the resolver fail"))
    }
}

fn bed_with_name(resolver: &Arc<TestResolver>, change: impl FnOnce(&mut OriginConfig)) -> TestBed {
    TestBed::with_config(|config| {
        config.workers = NonZeroUsize::MIN;
        let origin = &mut config.origins[0];
        origin.servers = vec!["http://app.internal:8080".parse().expect("a URL")];
        origin.resolve_interval = Duration::from_millis(20);
        origin.resolver = Some(Arc::clone(resolver) as Arc<dyn Resolve>);
        change(origin);
    })
}

/// Method: the name moves from one server to two others. Then the resolver fails, and the last answer remains in use.
#[test]
fn servers_follow_the_answers_of_dns_and_the_last_good_answer_is_kept() {
    let (old, new, other) = (start(), start(), start());
    let resolver = Arc::new(TestResolver::default());
    resolver.set(&[old.addr()]);
    let bed = bed_with_name(&resolver, |origin| origin.slow_start = Duration::ZERO);
    all_succeed(&bed, 5);
    assert_eq!(old.requests_total(), 5);
    resolver.set(&[other.addr(), new.addr()]);
    bed.wait_until("the servers change", |status| states(status).len() == 2);
    all_succeed(&bed, 20);
    assert_eq!(old.requests_total(), 5);
    assert!(new.requests_total() > 0 && other.requests_total() > 0);
    old.wait_until("the idle connections close", |old| {
        old.open_connections() == 0
    });
    resolver.fail();
    let calls = resolver.calls.load(SeqCst);
    bed.wait_until("two resolutions began, so that one has failed", |_| {
        resolver.calls.load(SeqCst) >= calls + 2
    });
    all_succeed(&bed, 20);
}

#[test]
fn a_name_that_was_never_resolved_is_an_error_until_it_is() {
    let resolver = Arc::new(TestResolver::default());
    let bed = bed_with_name(&resolver, |_| {});
    assert_eq!(bed.get("/a").status, 502);
    let server = start();
    resolver.set(&[server.addr()]);
    all_succeed(&bed, 3);
    assert_eq!(server.requests_total(), 3);
}

#[test]
fn addresses_beyond_the_limit_are_not_used() {
    let servers = [start(), start(), start()];
    let resolver = Arc::new(TestResolver::default());
    resolver.set(&servers.each_ref().map(ScriptedOrigin::addr));
    let bed = bed_with_name(&resolver, |origin| {
        origin.servers_max = NonZeroUsize::new(2).expect("2 is not zero");
        origin.balance = Balance::RoundRobin;
    });
    all_succeed(&bed, 30);
    let used = servers.iter().filter(|server| server.requests_total() > 0);
    assert_eq!(used.count(), 2);
    assert_eq!(states(&bed.status()).len(), 2);
}

#[test]
fn with_hashing_a_url_stays_at_its_server() {
    let servers = vec![start(), start(), start()];
    let (bed, _others) = bed_of(servers, |origin| {
        origin.balance = Balance::Hash;
        origin.hash_excess_percent = 1000;
    });
    let mut servers = HashSet::new();
    for n in 0..20 {
        let path = format!("/{n}");
        let answers: HashSet<_> = (0..3).map(|_| bed.get(&path).text().to_owned()).collect();
        assert_eq!(answers.len(), 1, "{path}");
        servers.extend(answers);
    }
    assert_eq!(servers.len(), 3);
}

/// Method: one slot for all servers. A request at the second server needs the slot of an idle connection to the first.
#[test]
fn the_limit_of_connections_counts_those_to_all_servers() {
    let (bed, others) = bed_of(vec![start(), start()], |origin| {
        origin.connections_per_worker_max = NonZeroUsize::MIN;
        origin.balance = Balance::RoundRobin;
    });
    all_succeed(&bed, 10);
    assert_eq!(bed.metric("edgeward_origin_connections"), 1.0);
    assert_eq!(bed.origin.requests_total(), 5);
    assert_eq!(others[0].requests_total(), 5);
}

#[test]
fn a_server_can_be_a_unix_socket() {
    let folder = tempfile::tempdir().expect("the folder can be created");
    let path = folder.path().join("app.sock");
    let listener = UnixListener::bind(&path).expect("the socket can be bound");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the edge connects");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("the edge sends a head");
            head.push(byte[0]);
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
            .expect("the edge reads");
        String::from_utf8(head).expect("the head is text")
    });
    let mut config = config_for(ScriptedOrigin::unused_addr());
    let url = format!("unix:{}", path.display());
    config.origins[0].servers = vec![url.parse().expect("a URL")];
    let edge = Edge::start(config).expect("the edge starts");
    assert_eq!(Client::connect(edge.addrs()[0]).get("/a", &[]).text(), "hi");
    let head = server.join().expect("the server does not panic");
    assert!(head.contains("test.example"), "{head}");
}

#[test]
fn locations_at_the_origin_itself_are_rewritten_to_the_site() {
    for (rewrites, expected) in [(true, "http://test.example/in?a"), (false, "origin")] {
        let bed = TestBed::with_config(|config| config.origins[0].rewrites_location = rewrites);
        let own = bed.origin.url("/in?a");
        let redirect = Answer::status(302).header("location", &own);
        bed.origin.on("/own", redirect);
        let other = Answer::status(302).header("location", "http://other.example/");
        bed.origin.on("/other", other);
        let expected = match expected {
            "origin" => own.as_str(),
            expected => expected,
        };
        assert_eq!(bed.get("/own").header("location"), Some(expected));
        let other = bed.get("/other");
        assert_eq!(other.header("location"), Some("http://other.example/"));
    }
}

#[test]
fn via_can_be_left_out_and_loops_are_still_detected() {
    let bed = TestBed::with_config(|config| config.origins[0].via = false);
    bed.origin
        .on("/a", Answer::ok("x").header("cache-control", "no-store"));
    assert_eq!(bed.get_with("/a", &[("Via", "1.1 other")]).status, 200);
    let sent = bed.origin.last("/a").expect("a request");
    assert_eq!(sent.header("via"), None);
    let own = sent
        .header("cdn-loop")
        .expect("the edge adds itself")
        .to_owned();
    let chain = format!("other.example; a=\"b\", {own}; c");
    for headers in [
        vec![("CDN-Loop", chain.as_str())],
        // A client cannot remove the field by `Connection`.
        vec![("CDN-Loop", chain.as_str()), ("Connection", "cdn-loop")],
    ] {
        assert_eq!(bed.get_with("/a", &headers).status, 508);
    }
    let refused = "edgeward_requests_refused_total{status=\"508\"}";
    assert_eq!(bed.metric(refused), 2.0);
    let others = bed.get_with("/a", &[("CDN-Loop", "other.example")]);
    assert_eq!(others.status, 200);
    let sent = bed.origin.last("/a").expect("a request");
    assert_eq!(
        sent.header("cdn-loop"),
        Some(format!("other.example, {own}").as_str())
    );
}
