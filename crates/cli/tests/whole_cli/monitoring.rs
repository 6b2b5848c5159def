//! The alerts and the dashboard that `edgeward generate` prints: their metrics, their syntax, and each alert firing.

mod live; // a real Prometheus scrapes real edges
mod promql; // the metrics and labels of an expression
mod series; // the series that make each alert fire

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use edgeward_metrics::{Definition, Kind};
use edgeward_testkit::programs;
use serde_json::Value;

use super::metrics::servers;
use super::run::{output, text};
use series::CASES;

/// A rule of the generated file.
struct Rule {
    name: String,
    expr: String,
}

fn generated(args: &[&str]) -> String {
    let output = output(&[&["generate"], args].concat());
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

/// Reads the rules of the generated YAML, whose form is known.
fn rules() -> Vec<Rule> {
    let yaml = generated(&["alerts"]);
    let mut rules: Vec<Rule> = Vec::new();
    let mut lines = yaml.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = line.trim_start().strip_prefix("- alert: ") {
            let name = name.to_owned();
            assert_eq!(lines.next(), Some("        expr: |-"));
            let expr = lines
                .by_ref()
                .take_while(|line| !line.starts_with("        for: "));
            let expr = expr
                .map(|line| line.trim_start().to_owned() + "\n")
                .collect();
            rules.push(Rule { name, expr });
        }
    }
    rules
}

/// Returns the titles and the queries of all panels.
fn panels() -> Vec<Rule> {
    let dashboard: Value = serde_json::from_str(&generated(&["dashboard"])).expect("JSON");
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push(Rule {
                name: panel["title"].as_str().expect("a title").to_owned(),
                expr: target["expr"].as_str().expect("a query").to_owned(),
            });
        }
    }
    queries
}

/// All metrics, and the one that Prometheus itself adds to each target.
fn definitions() -> Vec<Definition> {
    let mut definitions = vec![Definition {
        name: "up",
        kind: Kind::Gauge,
        labels: Vec::new(),
        values: Vec::new(),
        help: "1 if the last scrape succeeded.",
    }];
    definitions.extend(servers().into_iter().flat_map(|(_, _, metrics)| metrics));
    definitions
}

#[test]
fn the_committed_alerts_and_dashboard_are_the_generated_ones() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (args, path) in [
        (&["alerts"][..], "packaging/monitoring/alerts.yml"),
        (&["dashboard"], "packaging/monitoring/dashboard.json"),
        (&["alerts", "--reference"], "docs/reference/alerts.md"),
    ] {
        let committed = fs::read_to_string(root.join(path)).unwrap_or_default();
        let is_current = committed == generated(args);
        assert!(
            is_current,
            "{path} is out of date; write it with `make reference`"
        );
    }
}

#[test]
fn every_metric_and_label_of_an_alert_or_panel_is_in_a_table_of_metrics() {
    let (rules, panels, definitions) = (rules(), panels(), definitions());
    assert!(
        rules.len() > 30 && panels.len() > 40,
        "the files were not read"
    );
    for rule in rules.iter().chain(&panels) {
        let faults = promql::faults(&rule.expr, &definitions);
        assert!(
            faults.is_empty(),
            "{}: {faults:?} in {}",
            rule.name,
            rule.expr
        );
    }
}

/// The check above fails for each kind of mistake.
#[test]
fn an_expression_with_an_unknown_metric_label_or_value_is_refused() {
    let definitions = definitions();
    for (expr, expected) in [
        ("edgeward_origin_up == 0", None),
        ("edgeward_origin_upp == 0", Some("edgeward_origin_upp")),
        (
            "rate(edgward_requests_total[5m]) > 1",
            Some("edgward_requests_total"),
        ),
        ("sum by (host) (edgeward_origin_up)", Some("host")),
        (r#"edgeward_origin_up{server="a"}"#, Some("server")),
        (r#"edgeward_requests_total{outcome="hits"}"#, Some("hits")),
        (
            r#"edgeward_requests_total{outcome=~"hit|stale-hit"}"#,
            Some("stale-hit"),
        ),
        (
            r#"edgeward_requests_total{outcome=~"hit|stale",job="x"}"#,
            None,
        ),
        ("edgeward_request_duration_seconds_bucket", None),
        (
            "edgeward_request_duration_seconds",
            Some("edgeward_request_duration_seconds"),
        ),
        (
            "edgeward_origin_up_bucket",
            Some("edgeward_origin_up_bucket"),
        ),
    ] {
        let faults = promql::faults(expr, &definitions);
        match expected {
            None => assert!(faults.is_empty(), "{expr}: {faults:?}"),
            Some(word) => assert!(
                faults.iter().any(|fault| fault.contains(word)),
                "{expr}: {faults:?}"
            ),
        }
    }
}

/// Grafana is not a package of Debian. Prometheus parses its queries instead, with values for Grafana's variables.
#[test]
fn promtool_accepts_the_alerts_and_the_queries_of_the_dashboard() {
    let Some(promtool) = programs::find_or_skip("promtool") else {
        return;
    };
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let alerts = write(folder.path(), "alerts.yml", &generated(&["alerts"]));
    let mut queries = String::from("groups:\n  - name: panels\n    rules:\n");
    for (n, panel) in panels().iter().enumerate() {
        let expr = panel.expr.replace("$__rate_interval", "5m");
        _ = writeln!(
            queries,
            "      - record: panel:{n}\n        expr: |-\n          {expr}"
        );
    }
    let queries = write(folder.path(), "panels.yml", &queries);
    succeeds(
        Command::new(promtool)
            .args(["check", "rules"])
            .args([alerts, queries]),
    );
}

/// Method: for each alert one test with series that make it fire, and one with series just on the other side. At the
/// end of a test exactly the expected alerts fire, and no alert waits.
#[test]
fn promtool_makes_each_alert_fire() {
    let names: Vec<String> = rules().into_iter().map(|rule| rule.name).collect();
    let tested: Vec<String> = CASES
        .iter()
        .map(|case| format!("Edgeward{}", case.alert))
        .collect();
    assert_eq!(
        tested, names,
        "each alert has a case in `series.rs`, in the order of the rules"
    );
    let Some(promtool) = programs::find_or_skip("promtool") else {
        return;
    };
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    write(folder.path(), "alerts.yml", &generated(&["alerts"]));
    let mut tests = String::from("rule_files: [alerts.yml]\nevaluation_interval: 5m\ntests:\n");
    for case in CASES {
        case.write_test(true, &mut tests);
        case.write_test(false, &mut tests);
    }
    let tests = write(folder.path(), "tests.yml", &tests);
    succeeds(Command::new(promtool).args(["test", "rules"]).arg(tests));
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("the file is written");
    path
}

fn succeeds(command: &mut Command) {
    let output = command.output().expect("the program starts");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}:\n{out}{err}");
}
