//! Tests `demo` on a small scale: predictions match measurements, and all child processes end.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::run::{edgeward, output, text, until, wait};

#[test]
fn the_demo_s_measurements_match_its_predictions_and_a_page_is_written() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let path = folder.path().to_str().expect("the path is UTF-8");
    let out = output(&[
        "demo",
        "--json",
        "--requests=4000",
        "--hot=4MiB",
        "--window-requests=1000",
        "--origin-latency=0ms",
        "--connections=1",
        "--report",
        path,
    ]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let outcome: Value = serde_json::from_slice(&out.stdout).expect("the text is JSON");
    let edges = outcome["edges"].as_array().expect("the edges are a list");
    let policies: Vec<&str> = edges
        .iter()
        .filter_map(|edge| edge["policy"].as_str())
        .collect();
    assert_eq!(policies, ["lru", "adaptsize", "gdsf", "density"]);
    for edge in edges {
        let ratio = |result: &str| {
            edge[result]["object_hit_ratio"]
                .as_f64()
                .expect("the value is a number")
        };
        let (predicted, measured) = (ratio("predicted"), ratio("measured"));
        assert!(
            (predicted - measured).abs() < 0.02 && measured > 0.1,
            "{}: {predicted} predicted, {measured} measured",
            edge["policy"]
        );
        assert_eq!(edge["measured"]["errors_total"], 0);
        assert!(
            edge["origin_requests"]
                .as_u64()
                .expect("the value is a number")
                > 0
        );
        assert!(edge["measured"]["target"]["cpu_seconds"].as_f64().is_some());
        let pid = edge["measured"]["target"]["pid"]
            .as_u64()
            .expect("the value is a number");
        assert!(!is_edgeward(pid), "the edge {pid} is left behind");
    }
    let page = folder.path().join("edgeward-demo.html");
    assert_eq!(outcome["report"], page.to_str().expect("the path is UTF-8"));
    let page = fs::read_to_string(page).expect("the page is written");
    assert!(page.starts_with("<!doctype html>") && page.contains("adaptsize, predicted"));
    // The headline names the first of several equal policies; `max_by` returns the last.
    let best = edges
        .iter()
        .rev()
        .max_by(|a, b| measured(a).total_cmp(&measured(b)))
        .and_then(|edge| edge["policy"].as_str())
        .expect("the edge has a policy");
    assert!(
        page.contains(&format!("<h1>{best} hits most in a cache of 4 MiB</h1>")),
        "the headline names {best}"
    );
}

fn measured(edge: &Value) -> f64 {
    edge["measured"]["object_hit_ratio"]
        .as_f64()
        .expect("the value is a number")
}

#[test]
fn an_interrupted_demo_stops_its_children() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let mut child = edgeward(&["demo", "--requests=200000", "--report"])
        .arg(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let pid = child.id();
    // The demo has two child processes: the origin, and the edge that is measured.
    let children = until("the demo has started its child processes", || {
        let children = children(pid);
        (children.len() >= 2).then_some(children)
    });
    kill_process(Pid::from_child(&child), Signal::INT).expect("the process runs");
    let status = wait(&mut child);
    let out = child
        .wait_with_output()
        .expect("the output of the demo is read");
    assert_eq!(status.code(), Some(2));
    assert!(
        text(&out.stderr).contains("error: interrupted"),
        "{}",
        text(&out.stderr)
    );
    for child in children {
        assert!(!is_edgeward(child), "{child} is left behind");
    }
}

#[test]
fn an_unwritable_report_is_an_error_before_anything_runs() {
    let out = output(&["demo", "--report", "/nowhere/at/all.html"]);
    assert_eq!(out.status.code(), Some(2));
    let printed = text(&out.stderr);
    assert!(
        printed.starts_with("error: cannot write /nowhere/at/all.html"),
        "{printed}"
    );
}

/// The child processes of `pid`, started by any of its threads.
fn children(pid: u32) -> Vec<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<u64>>()
        })
        .collect()
}

/// Returns true if the process exists and runs the binary under test. The check of the binary is necessary
/// because the system reuses process ids.
fn is_edgeward(pid: u64) -> bool {
    fs::read_link(format!("/proc/{pid}/exe"))
        .is_ok_and(|exe| exe == Path::new(env!("CARGO_BIN_EXE_edgeward")))
}
