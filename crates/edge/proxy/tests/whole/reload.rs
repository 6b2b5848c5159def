//! Changes of the configuration while an edge serves.

use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{Client, TestBed, config_for};
use edgeward_proxy::config::{
    AccessLogConfig, AdminToken, ListenerConfig, LogDestination, LogFormat, OriginConfig, Token,
};
use edgeward_proxy::{EdgeConfig, ReloadError};
use edgeward_semantics::upgrade::Upgrades;
use edgeward_sites::{Settings, Site, Sites, Stated};
use edgeward_testkit::client::until;
use edgeward_testkit::{Answer, Gate};
use http::StatusCode;

use crate::handshake::handshake;
use crate::identity::SelfSigned;

/// Returns sites with one site for these hosts.
fn site(hosts: &[&str], settings: Settings) -> Arc<Sites> {
    let mut sites = Sites::default();
    let patterns: Vec<_> = hosts
        .iter()
        .map(|host| host.parse().expect("a host"))
        .collect();
    sites
        .add(Site::new(hosts[0], settings), &patterns, false)
        .expect("the only site");
    Arc::new(sites)
}

fn denying() -> Settings {
    Settings {
        deny: Stated::On(StatusCode::FORBIDDEN),
        ..Settings::default()
    }
}

/// The connection was open before the reload, and the fast path remembers the site of its host.
#[test]
fn a_reload_changes_sites_for_open_connections_and_keeps_the_cache() {
    let bed = TestBed::start();
    let origin = bed.origin.addr();
    bed.origin
        .otherwise(|_| Answer::ok("page").header("cache-control", "max-age=600"));
    let mut client = bed.connect();
    assert_eq!(client.get("/", &[]).status, 200);
    assert!(client.get("/", &[]).is_hit());
    let reload = |change: &dyn Fn(&mut EdgeConfig)| {
        let mut config = config_for(origin);
        change(&mut config);
        bed.edge.reloader().reload(&config)
    };
    reload(&|config| config.sites = site(&["test.example"], denying())).expect("valid");
    assert_eq!(client.get("/", &[]).status, 403);
    reload(&|config| config.sites = site(&["other.example"], Settings::default())).expect("valid");
    assert_eq!(client.get("/", &[]).status, 421);
    reload(&|_| {}).expect("valid");
    assert!(client.get("/", &[]).is_hit());
    assert_eq!(bed.origin.requests_total(), 1);
    assert_eq!(
        bed.metric("edgeward_reloads_total{result=\"applied\"}"),
        3.0
    );
}

#[test]
fn a_reload_with_an_unusable_part_changes_nothing() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("page"));
    let mut config = config_for(bed.origin.addr());
    config.sites = site(
        &["test.example"],
        Settings {
            origin: Some(1),
            ..denying()
        },
    );
    let error = bed
        .edge
        .reloader()
        .reload(&config)
        .expect_err("there is no such origin");
    assert!(matches!(error, ReloadError::Origin { .. }), "{error}");
    assert_eq!(bed.get("/").status, 200);
}

/// Returns the certificate that a client gets.
fn certificate_of(bed: &TestBed) -> Vec<u8> {
    handshake(bed.addr()).certificate
}

#[test]
fn a_reload_reads_certificates_again_and_an_unreadable_one_is_refused() {
    let (first, second) = (SelfSigned::new(), SelfSigned::new());
    let files = first.files();
    let listener = files.clone();
    let bed = TestBed::with_config(|config| config.listeners[0].tls = Some(listener));
    bed.origin.otherwise(|_| Answer::ok("page"));
    let before = certificate_of(&bed);
    assert_eq!(certificate_of(&bed), before);
    let mut config = config_for(bed.origin.addr());
    config.listeners[0].tls = Some(files.clone());
    for (from, to) in [
        (second.files().certificates, &files.certificates),
        (second.files().key, &files.key),
    ] {
        std::fs::copy(from, to).expect("the file can be replaced");
    }
    assert_eq!(certificate_of(&bed), before);
    bed.edge.reloader().reload(&config).expect("valid");
    let after = certificate_of(&bed);
    assert_ne!(after, before);
    std::fs::write(&files.certificates, "nonsense").expect("the file can be replaced");
    let error = bed
        .edge
        .reloader()
        .reload(&config)
        .expect_err("no certificate");
    assert!(matches!(error, ReloadError::Tls { .. }), "{error}");
    assert_eq!(certificate_of(&bed), after);
}

/// Method: the certificate is replaced first, so that for a moment it does not belong to the key.
#[test]
fn changed_files_of_certificates_are_read_and_a_pair_that_does_not_match_is_not_used() {
    let (first, second) = (SelfSigned::new(), SelfSigned::new());
    let files = first.files();
    let listener = files.clone();
    let bed = TestBed::with_config(|config| {
        config.listeners[0].tls = Some(listener);
        config.certificate_interval = Duration::from_millis(1);
    });
    bed.origin.otherwise(|_| Answer::ok("page"));
    let before = certificate_of(&bed);
    std::fs::copy(second.files().certificates, &files.certificates).expect("replaced");
    bed.wait_for_metric("edgeward_certificate_reads_total{result=\"refused\"}", 1.0);
    assert_eq!(certificate_of(&bed), before);
    std::fs::copy(second.files().key, &files.key).expect("replaced");
    bed.wait_for_metric("edgeward_certificate_reads_total{result=\"applied\"}", 1.0);
    assert_ne!(certificate_of(&bed), before);
}

/// Method: the same client connection before and after; one request waits for the first origin meanwhile.
#[test]
fn a_reload_changes_origins_and_running_requests_keep_theirs() {
    let bed = TestBed::start();
    let second = edgeward_testkit::ScriptedOrigin::start();
    bed.origin
        .otherwise(|_| Answer::ok("first").header("cache-control", "no-store"));
    second.otherwise(|_| Answer::ok("second").header("cache-control", "no-store"));
    let mut client = bed.connect();
    assert_eq!(client.get("/", &[]).text(), "first");
    let gate = Gate::new();
    bed.origin
        .on("/slow", Answer::ok("first").wait_before_head(&gate));
    let mut waiting = bed.connect();
    waiting.send_head("GET", "/slow", &[]);
    gate.wait_reached(1);
    bed.edge
        .reloader()
        .reload(&config_for(second.addr()))
        .expect("valid");
    assert_eq!(client.get("/", &[]).text(), "second");
    gate.open();
    assert_eq!(waiting.answer("GET").text(), "first");
    assert_eq!(waiting.get("/", &[]).text(), "second");
}

#[test]
fn a_reload_keeps_the_counts_of_servers_that_stay() {
    let bed = TestBed::start();
    bed.origin
        .otherwise(|_| Answer::ok("page").header("cache-control", "no-store"));
    for _ in 0..3 {
        bed.get("/");
    }
    let mut config = config_for(bed.origin.addr());
    config.origins[0].retries_max += 1;
    bed.edge.reloader().reload(&config).expect("valid");
    bed.get("/");
    let status = bed.status();
    assert_eq!(
        status["origins"][0]["servers"][0]["requests"], 4,
        "{status}"
    );
}

/// Method: the configuration in use is applied again, with an origin that takes descriptors from clients, and without
/// it. No process has as many descriptors as clients are allowed.
#[test]
fn an_origin_that_leaves_returns_its_descriptors_and_the_others_keep_their_connections() {
    let wanted = NonZeroUsize::new(1 << 40).expect("not zero");
    let bed = TestBed::with_config(|config| {
        config.workers = NonZeroUsize::MIN;
        config.limits.connections_max = wanted;
        config.forwarding.upgrades = Upgrades::None;
    });
    bed.origin
        .otherwise(|_| Answer::ok("page").header("cache-control", "no-store"));
    let clients_max = || {
        bed.get("/");
        bed.metric("edgeward_client_connections_max")
    };
    let reloader = bed.edge.reloader();
    let before = clients_max();
    let mut config = reloader.config();
    assert_eq!(config.limits.connections_max, wanted);
    config.origins.push(OriginConfig {
        name: "second".to_owned(),
        ..OriginConfig::new("http://127.0.0.1:1".parse().expect("a URL"))
    });
    reloader.reload(&config).expect("valid");
    let with_second = clients_max();
    let is_limited = before < wanted.get() as f64;
    assert_eq!(with_second < before, is_limited);
    let mut config = reloader.config();
    config.origins.pop();
    reloader.reload(&config).expect("valid");
    assert_eq!(clients_max(), before);
    assert_eq!(bed.origin.accepted_connections(), 1);
}

/// Method: a listener is added, the first one is removed, and then a port that is in use is added.
#[test]
fn a_reload_changes_listeners_and_is_refused_as_a_whole_if_a_port_is_in_use() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("page"));
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = free.local_addr().expect("bound");
    drop(free);
    let mut open = bed.connect();
    let mut config = config_for(bed.origin.addr());
    config.listeners.push(ListenerConfig::plain(addr));
    bed.edge.reloader().reload(&config).expect("valid");
    assert_eq!(Client::connect(addr).get("/", &[]).status, 200);
    assert_eq!(bed.get("/").status, 200);
    config.listeners.remove(0);
    bed.edge.reloader().reload(&config).expect("valid");
    assert_eq!(Client::connect(addr).get("/", &[]).status, 200);
    // The listener closes after the reload has returned. Its connections stay.
    until("the listener is closed", || {
        TcpStream::connect(bed.addr()).is_err().then_some(())
    });
    assert_eq!(open.get("/", &[]).status, 200);
    let used = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let used_addr = used.local_addr().expect("bound");
    config.listeners.push(ListenerConfig::plain(used_addr));
    config.limits.headers_max = 1.try_into().expect("not zero");
    let error = bed.edge.reloader().reload(&config).expect_err("in use");
    assert!(error.to_string().contains("cannot listen on"), "{error}");
    assert_eq!(open.get("/", &[("x-field", "1")]).status, 200);
}

/// Method: the log is replaced while a request waits. Its line has the format of its own log.
#[test]
fn a_reload_replaces_the_access_log_and_no_line_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = |name: &str, format| {
        AccessLogConfig::new(LogDestination::File(folder.path().join(name)), format)
    };
    let bed = TestBed::with_config(|config| {
        config.access_log = Some(log("first", LogFormat::Json));
    });
    bed.origin.otherwise(|_| Answer::ok("page"));
    let gate = Gate::new();
    bed.origin
        .on("/slow", Answer::ok("slow").wait_before_head(&gate));
    bed.get("/a");
    let mut waiting = bed.connect();
    waiting.send_head("GET", "/slow", &[]);
    gate.wait_reached(1);
    let mut config = config_for(bed.origin.addr());
    config.access_log = Some(log("second", LogFormat::Combined));
    bed.edge.reloader().reload(&config).expect("valid");
    bed.get("/b");
    gate.open();
    assert_eq!(waiting.answer("GET").status, 200);
    drop(waiting);
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("a file");
    bed.stop();
    let (first, second) = (read("first"), read("second"));
    assert_eq!(first.lines().count(), 2, "{first}");
    assert!(first.lines().all(|line| line.starts_with('{')), "{first}");
    assert!(first.contains("/a") && first.contains("/slow"), "{first}");
    assert_eq!(second.lines().count(), 1, "{second}");
    assert!(second.contains("\"GET /b HTTP/1.1\""), "{second}");
}

/// Method: each reload has other hosts in part, and each host gets one request. The labels are read from the metrics.
#[test]
fn the_labels_of_sites_are_bounded_over_reloads_and_sites_that_stay_keep_their_counts() {
    let sites_of = |hosts: &[String]| {
        let mut sites = Sites::default();
        for host in hosts {
            let pattern = host.parse().expect("a host");
            sites
                .add(Site::new(host, Settings::default()), &[pattern], false)
                .expect("a new site");
        }
        Arc::new(sites)
    };
    let hosts_of = |first: usize| -> Vec<String> {
        let others = (first..first + 5).map(|n| format!("{n}.example"));
        std::iter::once("stays.example".to_owned())
            .chain(others)
            .collect()
    };
    let bed = TestBed::with_config(|config| {
        config.metric_labels_max = 3;
        config.sites = sites_of(&hosts_of(0));
    });
    bed.origin.otherwise(|_| Answer::ok("page"));
    let mut requests = 0_u64;
    for first in [0, 2, 20, 2, 40] {
        let hosts = hosts_of(first);
        let mut config = config_for(bed.origin.addr());
        config.sites = sites_of(&hosts);
        bed.edge.reloader().reload(&config).expect("valid");
        let mut client = bed.connect();
        for host in &hosts {
            client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes());
            assert_eq!(client.answer("GET").status, 200);
            requests += 1;
        }
        drop(client);
        bed.wait_for_metric("edgeward_client_connections", 0.0);
        let metrics = bed.metrics();
        let series = metrics
            .lines()
            .filter_map(|line| line.strip_prefix("edgeward_responses_total{site=\""));
        let series: Vec<_> = series
            .map(|series| series.split_once("\",status=\"200\"} ").expect("a count"))
            .collect();
        assert_eq!(series.len(), 4, "{series:?}"); // three sites and `other`
        let count = |site: &str| {
            let found = series.iter().find(|(name, _)| *name == site);
            found.map_or(0, |(_, count)| count.parse().expect("a number"))
        };
        assert_eq!(count("stays.example"), requests / 6, "{series:?}");
        let total: u64 = series.iter().map(|(name, _)| count(name)).sum();
        assert_eq!(total, requests, "{series:?}");
        assert_eq!(bed.metric("edgeward_metric_labels{label=\"site\"}"), 3.0);
    }
    assert_eq!(bed.metric("edgeward_metric_labels_max"), 3.0);
}

/// A connection to the admin server may be older than the process that has replaced this one. A reload of the old
/// process would be lost.
#[test]
fn a_process_that_another_one_has_replaced_reloads_nothing() {
    let bed = TestBed::with_config(|config| {
        config.admin.tokens = vec![AdminToken {
            name: "operator".to_owned(),
            token: Token::new("correct-horse-battery").expect("the token is long enough"),
            roles: "reload".parse().expect("the role exists"),
        }];
    });
    let reloads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reloads);
    bed.edge.reloader().on_request(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(Vec::new())
    });
    let reload = || {
        let admin = bed.edge.admin_addr().expect("configured");
        let fields = [
            ("authorization", "Bearer correct-horse-battery"),
            ("content-length", "2"),
        ];
        Client::connect(admin).request("POST", "/reload", &fields, b"{}")
    };
    assert_eq!(reload().status, 200);
    bed.edge.upgrade_source().forward_changes(|_, _| ());
    let answer = reload();
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains(edgeward_proxy::REPLACED));
    assert_eq!(reloads.load(Ordering::Relaxed), 1);
}
