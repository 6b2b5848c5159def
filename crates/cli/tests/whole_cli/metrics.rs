//! The metrics of the edge, the gateway and the publisher: their names, their reference page, and a scrape of each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use edgeward_metrics::{Definition, Kind, common_definitions};

use super::run::{Server, get, output};

/// The sections of the reference page, each with heading, introduction and metrics. The first section has the metrics
/// that all servers share.
pub(crate) fn servers() -> [(&'static str, &'static str, Vec<Definition>); 4] {
    [
        (
            "Every server",
            "These metrics describe the process. On systems without `/proc` only `edgeward_build_info` exists.",
            common_definitions(),
        ),
        (
            "Edge",
            "`edgeward serve`. Metrics of the disk cache, of id filters and of AdaptSize exist if these are \
             configured.",
            edgeward_proxy::metric_definitions(),
        ),
        (
            "Link",
            "`edgeward gateway`, `edgeward link forward`, and an edge whose origin is behind a link.",
            edgeward_link::metric_definitions(),
        ),
        (
            "Publisher",
            "`edgeward filter serve`.",
            edgeward_publish::metric_definitions(),
        ),
    ]
}

/// Units other than the base units of Prometheus, and words for the type of a metric.
const FORBIDDEN_WORDS: [&str; 20] = [
    "ms",
    "millis",
    "milliseconds",
    "us",
    "micros",
    "microseconds",
    "ns",
    "nanoseconds",
    "minutes",
    "hours",
    "kib",
    "mib",
    "kb",
    "mb",
    "kilobytes",
    "megabytes",
    "percent",
    "count",
    "counter",
    "gauge",
];

/// Returns the rules that a metric breaks.
fn broken_rules(metric: &Definition) -> Vec<&'static str> {
    let is_snake_case = |name: &str| {
        name.split('_').all(|word| {
            !word.is_empty()
                && word
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        })
    };
    let mut words = metric.name.split('_');
    let rules = [
        (is_snake_case(metric.name), "the name is not snake_case"),
        (
            metric.labels.iter().all(|label| is_snake_case(label)),
            "a label is not snake_case",
        ),
        (
            metric.name.starts_with("edgeward_") || metric.name.starts_with("process_"),
            "the name has no known prefix",
        ),
        (
            !words.any(|word| FORBIDDEN_WORDS.contains(&word)),
            "the name has a unit other than a base unit, or a word for its type",
        ),
        (
            metric.name.ends_with("_total") == (metric.kind == Kind::Counter),
            "`_total` is for counters, and all counters have it",
        ),
        (
            metric.help.ends_with('.'),
            "the help text does not end with a full stop",
        ),
        (
            !metric.help.contains(". "),
            "the help text has more than one sentence",
        ),
    ];
    let broken = rules.into_iter().filter(|(holds, _)| !holds);
    broken.map(|(_, rule)| rule).collect()
}

#[test]
fn all_metrics_follow_the_conventions_of_prometheus() {
    let mut names = BTreeSet::new();
    for (server, _, metrics) in servers() {
        for metric in metrics {
            let broken = broken_rules(&metric);
            assert!(broken.is_empty(), "{server}: {metric:?}: {broken:?}");
            assert!(
                names.insert(metric.name),
                "{} is declared twice",
                metric.name
            );
        }
    }
}

#[test]
fn a_metric_that_breaks_a_convention_is_found() {
    let valid = Definition {
        name: "edgeward_jobs_total",
        kind: Kind::Counter,
        labels: vec!["result"],
        values: Vec::new(),
        help: "Jobs that ended.",
    };
    assert_eq!(broken_rules(&valid), [""; 0]);
    let broken = [
        Definition {
            name: "edgeward_jobs",
            ..valid.clone()
        },
        Definition {
            kind: Kind::Gauge,
            ..valid.clone()
        },
        Definition {
            name: "edgeward_lag_milliseconds_total",
            ..valid.clone()
        },
        Definition {
            name: "edgeward_job_count_total",
            ..valid.clone()
        },
        Definition {
            name: "edgeward_Jobs_total",
            ..valid.clone()
        },
        Definition {
            labels: vec!["Result"],
            ..valid.clone()
        },
        Definition {
            help: "Jobs that ended",
            ..valid.clone()
        },
        Definition {
            help: "Jobs. They ended.",
            ..valid
        },
    ];
    for metric in broken {
        assert_eq!(broken_rules(&metric).len(), 1, "{metric:?}");
    }
}

#[test]
fn the_reference_of_metrics_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let page = reference();
    if std::env::var_os("EDGEWARD_WRITE_REFERENCE").is_some() {
        fs::write(&path, &page).expect("the page is written");
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == page,
        "docs/reference/metrics.md is out of date; write it with\n  \
         EDGEWARD_WRITE_REFERENCE=1 cargo test -p edgeward-cli --test whole_cli the_reference_of_metrics"
    );
}

fn reference() -> String {
    let mut page = String::from(INTRODUCTION);
    for (server, about, metrics) in servers() {
        _ = write!(
            page,
            "\n## {server}\n\n{about}\n\n| metric | type | labels | help |\n|---|---|---|---|\n"
        );
        for metric in metrics {
            let labels: Vec<_> = metric
                .labels
                .iter()
                .map(|label| format!("`{label}`"))
                .collect();
            let (name, kind, labels) = (metric.name, metric.kind.name(), labels.join(", "));
            _ = writeln!(page, "| `{name}` | {kind} | {labels} | {} |", metric.help);
        }
    }
    page
}

const INTRODUCTION: &str = "# Metrics

<!-- Generated by crates/cli/tests/whole_cli/metrics.rs from the `metric_definitions` of the crates. Change those. -->

This page lists all metrics of edgeward, for operators who build dashboards and alerts. Each server exposes the metrics
of its own sections and of \"Every server\", in the text format of Prometheus at `/metrics` of its admin address
(`--admin`).

A counter only grows while the process runs. A histogram has a series `_bucket` for each bound `le`, `_sum` and
`_count`; it has no series for labels that no request had. A gauge with a `state` label has one series for each state: 1
for the current state, 0 for the others.
";

/// Method: start the three servers and read their metrics pages. Each page must have one metric that only this server
/// has. Type and help of every metric on the page must be those of its definition.
#[test]
fn each_server_exposes_its_own_metrics_and_the_process_metrics() {
    let dir = tempfile::tempdir().expect("the temporary folder is created");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let keygen = output(&["link", "keygen", "--out", &path("keys")]);
    assert!(keygen.status.success(), "{keygen:?}");
    fs::write(path("ids"), "1\n2\n").expect("the file is written");
    let (keys, store, device) = (path("keys/gateway"), path("store"), path("disk"));
    let (ids, state) = (path("ids"), path("state"));
    fs::create_dir(&device).expect("the folder is created");
    let common = ["--json", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0"];
    let device = format!("--disk={device}");
    let serve = [
        "serve",
        "--origin=http://127.0.0.1:9",
        "--hot=8MiB",
        "--policy=adaptsize",
        "--disk-size=64MiB",
        &device,
    ];
    let gateway = [
        "gateway",
        "--origin=http://127.0.0.1:9",
        "--store-size=64MiB",
        "--keys",
        &keys,
        "--store",
        &store,
    ];
    let publish = [
        "filter",
        "serve",
        "--set=r",
        "--ids=integer",
        "--unsigned",
        "--source",
        &ids,
        "--state",
        &state,
    ];
    let [
        common_metrics,
        edge_metrics,
        link_metrics,
        publisher_metrics,
    ] = servers().map(|(_, _, metrics)| metrics);
    for (args, server_metrics, name) in [
        (&serve[..], edge_metrics, "edgeward_disk_state"),
        (&gateway[..], link_metrics, "edgeward_link_store_chunks"),
        (
            &publish[..],
            publisher_metrics,
            "edgeward_publish_scans_total",
        ),
    ] {
        let server = Server::start(&[args, &common[..]].concat());
        let page = scrape(server.addr("/admin"));
        let defined: BTreeMap<_, _> = common_metrics
            .iter()
            .chain(&server_metrics)
            .map(|metric| (metric.name, (metric.kind.name(), metric.help)))
            .collect();
        let metrics_by_name = metrics_by_name(&page);
        assert!(metrics_by_name.contains_key(name), "no {name} in {page}");
        for (name, metric) in metrics_by_name {
            assert_eq!(defined.get(name), Some(&metric), "{name} in {args:?}");
        }
        check_process_metrics(&server, &page);
    }
}

/// Returns the type and the help text of each metric on a page, by name.
fn metrics_by_name(page: &str) -> BTreeMap<&str, (&str, &str)> {
    let lines: Vec<&str> = page.lines().collect();
    let pairs = lines.windows(2).filter_map(|pair| {
        let (name, help) = pair[0].strip_prefix("# HELP ")?.split_once(' ')?;
        let (type_name, kind) = pair[1].strip_prefix("# TYPE ")?.split_once(' ')?;
        assert_eq!(name, type_name);
        Some((name, (kind, help)))
    });
    pairs.collect()
}

/// Compares the open files and their limit with the values in `/proc`, and checks that start time, CPU time, memory
/// and version are plausible.
fn check_process_metrics(server: &Server, page: &str) {
    let value = |series: &str| -> f64 {
        let line = page.lines().find_map(|line| line.strip_prefix(series));
        let text = line.unwrap_or_else(|| panic!("no {series} in {page}"));
        text.trim().parse().expect("the value is a number")
    };
    let proc = format!("/proc/{}", server.process_id());
    let open_files = fs::read_dir(format!("{proc}/fd"))
        .expect("the process runs")
        .count() as f64;
    // The server may open and close files between the scrape and this count, so a small difference is allowed.
    let reported = value("process_open_fds ");
    assert!(
        (reported - open_files).abs() <= 8.0,
        "{reported} descriptors, {open_files} are open"
    );
    let limits = fs::read_to_string(format!("{proc}/limits")).expect("the process runs");
    let limit = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let limit: f64 = limit
        .and_then(|line| line.split_whitespace().next()?.parse().ok())
        .expect("the value is a number");
    assert_eq!(value("process_max_fds "), limit);
    let now = std::time::UNIX_EPOCH
        .elapsed()
        .expect("the clock is after 1970")
        .as_secs_f64();
    let age = now - value("process_start_time_seconds ");
    assert!((-1.0..120.0).contains(&age), "{age} s old");
    let cpu = value("process_cpu_seconds_total ");
    assert!(cpu > 0.0 && cpu < 60.0, "{cpu} s of CPU time");
    let resident = value("process_resident_memory_bytes ");
    assert!((1e6..1e9).contains(&resident), "{resident} bytes");
    let build = format!(
        "edgeward_build_info{{version=\"{}\",",
        env!("CARGO_PKG_VERSION")
    );
    let line = page.lines().find(|line| line.starts_with(&build));
    assert!(line.is_some_and(|line| line.ends_with("} 1")), "{line:?}");
}

fn scrape(addr: SocketAddr) -> String {
    let response = get(addr, "/metrics");
    let (head, body) = response
        .split_once("\r\n\r\n")
        .expect("the response has a head");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_owned()
}
