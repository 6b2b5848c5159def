//! Tests `lab` with the plan of a benchmark: servers, loads that are scripts, rounds, counters, goals and results.

use std::fs;

use serde_json::Value;

use super::run::{output, text};

/// The measured servers are edges before one origin. The load of `requests` sends 20 requests with `curl`; the second
/// edge reports half of the figure. The edge `often ends` is killed by its load and started again.
const PLAN: &str = r#"
title = "Which edge is faster?"
rounds = 3
show = ["figure"]

[set]
count = 20
edge = "serve --origin http://127.0.0.1:@origin.port@ --listen 127.0.0.1:@port@ --admin 127.0.0.1:@admin@ --hot 8MiB --workers 1"

[[server]]
name = "origin"
run = "@edgeward@ origin --listen 127.0.0.1:@port@"
measured = false

[[server]]
name = "one"
run = "@edgeward@ @edge@"
ready = "/o/first?size=1"
set = { figure = 10 }

[[server.counter]]
name = "edge_requests"
url = "http://127.0.0.1:@admin@/metrics"
metric = "edgeward_requests_total"

[[server]]
name = "two"
run = "@edgeward@ @edge@"
fresh = true
prepare = "touch first"
set = { figure = 5 }

[[server]]
name = "often ends"
run = "@edgeward@ @edge@"
restarts = true

[[load]]
name = "requests"
servers = ["one", "two"]
before = ["test -d @server.dir@"]
run = ["sh", "-c", "curl -sf -o /dev/null 'http://127.0.0.1:@port@/o/[1-@count@]?size=100' && echo '{\"requests\": @count@, \"figure\": @figure@, \"round\": @round@}'"]

[[load]]
name = "kill"
servers = ["often ends"]
time_max = "1min"
run = ["sh", "-c", "kill -9 @pid@; until curl -sf -o /dev/null http://127.0.0.1:@port@/o/1?size=1; do :; done; echo '{}'"]

[[check]]
measure = "restarts"
loads = ["kill"]
at_least = 1

[[check]]
measure = "edge_requests / requests"
of = ["one"]
at_least = 1
at_most = 1

[[goal]]
says = "twice the figure"
measure = "figure"
of = ["one"]
to = ["two"]
at_least = 2
at_most = 2
"#;

#[test]
fn a_benchmark_runs_its_loads_in_rounds_and_compares_within_a_round() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let plan = folder.path().join("plan.toml");
    let out = folder.path().join("out");
    let run = |text_of_plan: &str, further: &[&str]| {
        fs::write(&plan, text_of_plan).expect("the plan is written");
        let path = |path: &std::path::Path| path.to_str().expect("the path is UTF-8").to_owned();
        let (plan, out, dir) = (path(&plan), path(&out), path(folder.path()));
        let mut arguments = vec!["lab", &plan, "--json", "--out", &out, "--dir", &dir];
        arguments.extend(further);
        output(&arguments)
    };
    let plan_text = PLAN.replace("@server.dir@", "@one.dir@");
    let done = run(&plan_text, &[]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let outcome: Value = serde_json::from_slice(&done.stdout).expect("the text is JSON");
    let runs = outcome["runs"].as_array().expect("the value is a list");
    assert_eq!(runs.len(), 9);
    let order: Vec<String> = runs
        .iter()
        .filter(|run| run["load"] == "requests")
        .map(|run| {
            format!(
                "{}{}",
                run["server"].as_str().expect("the value is text"),
                run["round"]
            )
        })
        .collect();
    assert_eq!(order, ["one0", "two0", "two1", "one1", "one2", "two2"]);
    for run in runs {
        let measures = &run["measures"];
        assert_eq!(run["problem"], Value::Null, "{run}");
        assert!(measures["memory_bytes_max"].as_f64() > Some(1e6), "{run}");
        if run["server"] == "one" {
            assert_eq!(measures["edge_requests"], 20.0, "{run}");
            assert_eq!(measures["round"], run["round"].as_f64().expect("a number"));
        }
    }
    let verdict = &outcome["verdicts"][0];
    assert_eq!(verdict["median"], 2.0);
    assert_eq!(verdict["rounds"], 3);
    let summary = fs::read_to_string(out.join("summary.md")).expect("the summary is written");
    assert!(
        summary.contains("| requests | 10 (10 to 10) | 5 (5 to 5) |"),
        "{summary}"
    );
    assert!(
        summary.contains("twice the figure") && summary.contains("| met |"),
        "{summary}"
    );
    assert!(out.join("data.json").is_file());

    // A missed goal, a violated check and a load that fails each make the exit code 1.
    for (given, instead, expected) in [
        (
            "says = \"twice the figure\"\nmeasure = \"figure\"",
            "measure = \"requests\"",
            "**missed**",
        ),
        (
            "loads = [\"kill\"]",
            "loads = [\"requests\"]",
            "restarts = 0, which is less than 1",
        ),
        (
            "\\\"figure\\\": @figure@",
            "\\\"figure\\\": 1",
            "**missed**",
        ),
        ("echo '{}'", "exit 7", "exit status: 7"),
        (
            "echo '{}'",
            "echo hello",
            "no measures in the output: hello",
        ),
    ] {
        let wrong = plan_text.replacen(given, instead, 1);
        assert_ne!(wrong, plan_text, "{given}");
        let done = run(&wrong, &["--rounds", "1"]);
        assert_eq!(
            done.status.code(),
            Some(1),
            "{instead}: {}",
            text(&done.stderr)
        );
        let summary = fs::read_to_string(out.join("summary.md")).expect("the summary is written");
        assert!(summary.contains(expected), "{instead}: {summary}");
    }
    // A server that ends, and a program that is missing, are errors.
    for (given, instead, expected) in [
        (
            "restarts = true",
            "",
            "often ends ended during the benchmark",
        ),
        (
            "@edgeward@ origin --listen",
            "no-such-program --listen",
            "no-such-program is not installed",
        ),
        ("--workers 1", "--workers many", "did not start"),
        ("test -d", "test -f", "failed: exit status: 1"),
    ] {
        let done = run(&plan_text.replacen(given, instead, 1), &["--rounds", "1"]);
        let errors = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{instead}: {errors}");
        assert!(errors.contains(expected), "{instead}: {errors}");
    }
    let done = run(
        &plan_text,
        &["--only", "kill", "--rounds", "1", "--set", "count=3"],
    );
    let outcome: Value = serde_json::from_slice(&done.stdout).expect("the text is JSON");
    assert_eq!(outcome["runs"].as_array().map(Vec::len), Some(1));
    assert_eq!(outcome["set"]["count"], "3");
}
