//! A Prometheus of Debian scrapes real edges and evaluates all rules. Their waits are removed; the alerts that can be
//! provoked in seconds fire.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use edgeward_testkit::client::Client;
use edgeward_testkit::programs::{self, ServerProcess};
use rustix::process::Signal;
use serde_json::Value;

use super::super::descriptors::with_limits;
use super::super::run::{Server, get, output, until};
use super::{generated, rules};

/// The alerts that this test provokes. promtool makes all others fire.
const PROVOKED: [&str; 14] = [
    "AccessLogLost",
    "CertificateExpires",
    "ClientConnectionsFull",
    "Down",
    "FilterStale",
    "LinkDown",
    "NearOverload",
    "OriginDown",
    "OriginErrors",
    "OriginServerDown",
    "Overloaded",
    "Panicked",
    "ReloadRefused",
    "WorkerStuck",
];

/// No server listens at this address.
const NOWHERE: &str = "127.0.0.1:1";

#[test]
fn a_real_prometheus_evaluates_all_rules_and_alerts_of_real_edges_fire() {
    let Some(program) = programs::find_or_skip("prometheus") else {
        return;
    };
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let origin = Server::start(&["origin", "--json", "--listen=127.0.0.1:0"]);
    let edge = faulty_edge(folder.path(), &origin);
    let stuck = stuck_edge(&origin);
    let overloaded = overloaded_edge(&origin);
    let link = link_without_gateway(folder.path());
    let targets =
        [&edge, &stuck, &overloaded, &link].map(|server| server.addr("/admin").to_string());
    let prometheus = prometheus(&program, &targets);
    let addr = prometheus.addr();
    // `increase` of a counter needs a value from before the event.
    until("Prometheus has scraped all edges", || {
        let targets = api(addr, "/api/v1/targets?state=active")?;
        let targets = targets["activeTargets"].as_array()?.clone();
        let up = targets.iter().filter(|target| target["health"] == "up");
        (up.count() == 4).then_some(())
    });
    let connections = provoke(&edge, &stuck, folder.path());
    let expected: BTreeSet<String> = PROVOKED
        .iter()
        .map(|name| format!("Edgeward{name}"))
        .collect();
    let mut alerts = BTreeMap::new();
    let mut requests = 0;
    until("all provoked alerts fire", || {
        requests += 1;
        // A miss at the origin that is down, and a line of the access log.
        get(edge.addr("/listening/0"), &format!("/dead/{requests}"));
        alerts = firing(addr);
        let missing: Vec<_> = expected
            .iter()
            .filter(|name| !alerts.contains_key(*name))
            .collect();
        missing.is_empty().then_some(())
    });
    drop(connections);
    for (name, annotations) in &alerts {
        for text in annotations {
            let is_expanded = !text.contains("<no value>") && !text.contains("<error");
            assert!(is_expanded, "{name}: {text}");
        }
    }
    until("Prometheus has a trace of a request", || {
        let query = "/api/v1/query_exemplars?query=edgeward_request_duration_seconds_bucket&start=0&end=1e10";
        let series = api(addr, query)?;
        let exemplar = &series.as_array()?.first()?["exemplars"][0];
        let trace = exemplar["labels"]["trace_id"].as_str()?;
        assert_eq!(trace.len(), 32, "{exemplar}");
        Some(())
    });
    let evaluated = evaluated_rules(addr);
    let names: Vec<String> = rules().into_iter().map(|rule| rule.name).collect();
    assert_eq!(evaluated, names);
}

/// An edge with an origin that is down, one with a server that is down, a certificate for two days, a filter without
/// its publisher, and an access log without its daemon. All its requests have traces, without a collector.
fn faulty_edge(folder: &Path, origin: &Server) -> Server {
    certificate_for_two_days(folder);
    let key = output(&[
        "filter",
        "keygen",
        "-o",
        &folder.join("key").display().to_string(),
    ]);
    let config = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\ntls_certificates = \"cert.pem\"\ntls_key = \"key.pem\"\n\
         [admin]\naddress = \"127.0.0.1:0\"\n\
         [hot]\ncapacity = \"8MiB\"\n\
         [server]\nworkers = 1\n\
         [limits]\nconnections_max = 20\n\
         [tracing]\nendpoint = \"http://{NOWHERE}\"\nsample = 1.0\n\
         [access_log]\nsyslog = \"unix:{folder}/no-daemon\"\n\
         [[origin]]\nname = \"half\"\nservers = [\"http://{}\", \"http://{NOWHERE}\"]\n\
         health_path = \"/o/1?size=1\"\nhealth_interval = \"1s\"\n\
         [[origin]]\nname = \"dead\"\nurl = \"http://{NOWHERE}\"\n\
         [[site]]\nhosts = [\"*\"]\norigin = \"half\"\n\
         [[site.rule]]\npath = \"/dead/*\"\norigin = \"dead\"\n\
         [[negative]]\npath = \"/o/{{id}}\"\nfilter = \"http://{NOWHERE}/sets/r\"\npublic_key = \"{}\"\n\
         max_staleness = \"2s\"\n",
        origin.addr("/listen"),
        String::from_utf8_lossy(&key.stdout).trim(),
        folder = folder.display(),
    );
    let file = folder.join("edge.toml");
    fs::write(&file, config).expect("the file is written");
    Server::start(&[
        "serve",
        "--json",
        "--log=off",
        "--config",
        &file.display().to_string(),
    ])
}

fn certificate_for_two_days(folder: &Path) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name");
    params.not_after = (SystemTime::now() + Duration::from_secs(2 * 86_400)).into();
    let certificate = params.self_signed(&key).expect("a certificate");
    fs::write(folder.join("cert.pem"), certificate.pem()).expect("the file is written");
    fs::write(folder.join("key.pem"), key.serialize_pem()).expect("the file is written");
}

/// An edge whose watchdog soon notices a stuck worker.
fn stuck_edge(origin: &Server) -> Server {
    Server::start(&serve(origin, &["--set=watchdog.deadline=500ms"]))
}

/// An edge that may not open any of its 600 descriptors without overload.
fn overloaded_edge(origin: &Server) -> Server {
    let args = serve(origin, &["--set=overload.descriptors_free_min=595"]);
    Server::from_command(with_limits(600, 600, &args))
}

fn serve<'a>(origin: &Server, more: &[&'a str]) -> Vec<&'a str> {
    let origin: &'a str = format!("--origin=http://{}", origin.addr("/listen")).leak();
    let fixed = [
        "serve",
        "--json",
        "--log=off",
        "--listen=127.0.0.1:0",
        "--admin=127.0.0.1:0",
        "--workers=1",
        "--hot=8MiB",
    ];
    fixed
        .into_iter()
        .chain([origin])
        .chain(more.iter().copied())
        .collect()
}

fn link_without_gateway(folder: &Path) -> Server {
    let path = |name: &str| folder.join(name).display().to_string();
    let keygen = output(&["link", "keygen", "--out", &path("keys")]);
    assert!(keygen.status.success(), "{keygen:?}");
    let (keys, store) = (path("keys/edge"), path("store"));
    let args = [
        "link",
        "forward",
        "--json",
        "--listen=127.0.0.1:0",
        "--to=127.0.0.1:1",
        "--admin=127.0.0.1:0",
    ];
    let gateway = format!("--gateway={NOWHERE}");
    let more = [
        "--keys",
        &keys,
        "--store",
        &store,
        "--store-size=64MiB",
        &gateway,
    ];
    Server::start(&[&args[..], &more].concat())
}

/// Starts a Prometheus that scrapes these targets, and one that is down, twice a second.
fn prometheus(program: &Path, targets: &[String]) -> ServerProcess {
    let rules: String = generated(&["alerts"])
        .lines()
        .filter(|line| !line.starts_with("        for: "))
        .map(|line| format!("{line}\n"))
        .collect();
    let config = format!(
        "global:\n  scrape_interval: 500ms\n  scrape_timeout: 500ms\n  evaluation_interval: 500ms\nrule_files: [alerts.yml]\n\
         scrape_configs:\n  - job_name: edgeward\n    static_configs:\n      - targets: [\"{NOWHERE}\", \"{}\"]\n",
        targets.join("\", \"")
    );
    let started = ServerProcess::start(program, |folder, addr| {
        fs::write(folder.join("alerts.yml"), &rules).expect("the file is written");
        fs::write(folder.join("prometheus.yml"), &config).expect("the file is written");
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}/prometheus.yml", folder.display()))
            .arg(format!("--storage.tsdb.path={}/data", folder.display()))
            .arg(format!("--web.listen-address={addr}"))
            .arg("--enable-feature=exemplar-storage")
            .arg("--log.level=error");
        command
    });
    started.expect("Prometheus starts")
}

/// Causes the faults that need an event. Returns connections that use up the limit.
fn provoke(edge: &Server, stuck: &Server, folder: &Path) -> Vec<TcpStream> {
    for fault in ["panic-request", "block-60000"] {
        let mut client = Client::connect(stuck.addr("/listening/0"));
        client.send_head("GET", "/x", &[("edgeward-debug-fault", fault)]);
        if fault == "panic-request" {
            assert!(client.try_head().is_none(), "the edge has answered");
        }
    }
    fs::write(folder.join("edge.toml"), "no = \"key\"\n").expect("the file is written");
    edge.signal(Signal::HUP);
    let addr = edge.addr("/listening/0");
    let connect = |_| TcpStream::connect(addr).expect("the edge listens");
    (0..19).map(connect).collect()
}

/// Returns the annotations of the alerts that fire, by name.
fn firing(addr: SocketAddr) -> BTreeMap<String, Vec<String>> {
    let alerts = api(addr, "/api/v1/alerts").expect("Prometheus is ready");
    let alerts = alerts["alerts"].as_array().expect("alerts").iter();
    let firing = alerts
        .filter(|alert| alert["state"] == "firing")
        .map(|alert| {
            let name = alert["labels"]["alertname"].as_str().expect("a name");
            let annotations = alert["annotations"].as_object().expect("annotations");
            let texts = annotations
                .values()
                .map(|text| text.as_str().unwrap_or_default().to_owned());
            (name.to_owned(), texts.collect())
        });
    firing.collect()
}

/// Returns the names of the rules that were evaluated without an error.
fn evaluated_rules(addr: SocketAddr) -> Vec<String> {
    let answer = api(addr, "/api/v1/rules").expect("Prometheus is ready");
    let groups = answer["groups"].as_array().expect("groups").iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().expect("rules"));
    let rules = rules.map(|rule| {
        assert_eq!(rule["health"], "ok", "{rule}");
        rule["name"].as_str().expect("a name").to_owned()
    });
    rules.collect()
}

/// Returns the data of an answer of Prometheus. `None` while it is starting.
fn api(addr: SocketAddr, path: &str) -> Option<Value> {
    let answer = Client::connect(addr).get(path, &[]);
    let mut answer: Value = serde_json::from_slice(&answer.body).ok()?;
    Some(answer["data"].take())
}
