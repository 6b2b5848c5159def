//! Tests `lab` on a small scale: a plan from end to end, invalid plans, and an interruption.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::run::{edgeward, output, text, until, wait};

/// Two edges, and nginx if it is installed. The second edge changes its rule of admission half-way. `source` is a
/// published figure, which the report shows beside the measured one.
const PLAN: &str = r#"
title = "Two rules and a peer"

[trace]
preset = "small"
requests = 4000
one_hit_share = "70%"

[load]
connections = 4
warmup = 1000

[origin]
round_trip = "1ms"

[compare]
subject = "second-hit"
with = ["always", "peers"]

[[contender]]
name = "always"
server = "edgeward"
memory = "1MiB"
disk = "32MiB"
[contender.config.disk]
admission = "always"
flush_interval = "10ms"

[[contender]]
name = "second-hit"
server = "edgeward"
memory = "1MiB"
disk = "32MiB"
[contender.config.disk]
admission = "always"
flush_interval = "10ms"
[contender.switch]
at = "50%"
[contender.switch.config.disk]
admission = "second-hit"

[[contender]]
name = "nginx"
group = "peers"
server = "nginx"
memory = "1MiB"

[[source]]
figure = "disk-bytes-written"
as = "times-fewer"
before = "always"
after = "second-hit"
says = "4 times fewer"
from = "a vendor"
"#;

#[test]
fn a_plan_is_run_compared_and_reported() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let plan = folder.path().join("plan.toml");
    fs::write(&plan, PLAN).expect("the plan is written");
    let (out, caches) = (folder.path().join("out"), folder.path().join("caches"));
    fs::create_dir(&caches).expect("the folder is created");
    let run = output(&[
        "lab",
        plan.to_str().expect("the path is UTF-8"),
        "--json",
        "--out",
        out.to_str().expect("the path is UTF-8"),
        "--dir",
        caches.to_str().expect("the path is UTF-8"),
    ]);
    let printed = text(&run.stderr);
    assert_eq!(run.status.code(), Some(0), "{printed}");
    let outcome: Value = serde_json::from_slice(&run.stdout).expect("the text is JSON");
    assert_eq!(outcome["unfinished"], Value::Null);
    assert_eq!(outcome["trace"]["requests"], 4000);
    let contenders = outcome["contenders"]
        .as_array()
        .expect("the value is a list");
    assert_eq!(contenders.len(), 3);
    for contender in contenders {
        if contender["end"]["how"] == "missing" {
            assert_eq!(contender["name"], "nginx");
            eprintln!("nginx is not installed: left out");
            continue;
        }
        assert_eq!(contender["end"]["how"], "whole", "{contender:#}");
        let totals = &contender["totals"];
        assert_eq!(totals["requests"], 3000);
        assert_eq!(totals["errors"], 0, "{contender:#}");
        let number = |key: &str| {
            totals[key]
                .as_f64()
                .unwrap_or_else(|| panic!("{key}: {totals:#}"))
        };
        assert!(number("hit_ratio") > 0.1, "{totals:#}");
        // `spared_ratio` is the hit ratio as the origin counts it. It differs a little from `hit_ratio`, because the
        // origin's count begins at the first sample after the warm-up, not at the end of the warm-up.
        let more = number("spared_ratio") - number("hit_ratio");
        // A late sample misses requests of the origin's count.
        assert!((-0.06..0.4).contains(&more), "{totals:#}");
        assert!(number("cpu_seconds") > 0.0 && number("memory_bytes_max") > 1e6);
        assert!(number("latency_p50_ms") > 0.0);
        let series = contender["series"].as_array().expect("the value is a list");
        assert!(series.len() >= 3);
        assert_eq!(
            series.last().expect("the series has samples")["requests"],
            4000
        );
    }
    let written = |n: usize| {
        contenders[n]["totals"]["disk_write_bytes"]
            .as_u64()
            .expect("the bytes are counted")
    };
    assert!(
        written(0) > 0,
        "the first contender admits objects to its disk"
    );
    assert!(
        contenders[1]["switched_seconds"]
            .as_f64()
            .is_some_and(|at| at > 0.0)
    );
    let page = fs::read_to_string(out.join("report.html")).expect("the page is written");
    for text in [
        "Two rules and a peer",
        "4 times fewer",
        "second-hit: switched",
        "</html>",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(out.join("outcome.json").is_file() && out.join("1-always.csv").is_file());
    assert_eq!(
        fs::read_dir(&caches)
            .expect("the folder is readable")
            .count(),
        0,
        "folders are removed"
    );
}

#[test]
fn an_invalid_plan_is_rejected_with_line_key_and_hint_before_anything_starts() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    for (line, instead, expected) in [
        (
            "server = \"nginx\"",
            "server = \"ngnix\"",
            "contender[2].server = \"ngnix\" is not a known value",
        ),
        (
            "connections = 4",
            "conections = 4",
            "there is no key load.conections",
        ),
        (
            "admission = \"always\"",
            "admission = \"allways\"",
            "disk.admission",
        ),
        (
            "admission = \"always\"",
            "admision = \"always\"",
            "disk.admision",
        ),
    ] {
        let wrong = PLAN.replacen(line, instead, 1);
        let plan = folder.path().join("wrong.toml");
        fs::write(&plan, &wrong).expect("the plan is written");
        let run = output(&["lab", plan.to_str().expect("the path is UTF-8")]);
        let printed = text(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{printed}");
        assert!(printed.contains(expected), "{printed}");
        let number = 1 + wrong
            .lines()
            .position(|line| line == instead)
            .expect("the plan has the wrong line");
        assert!(
            printed.contains(&format!("wrong.toml, line {number}\n")),
            "{printed}"
        );
        assert!(printed.contains("  hint: "), "{printed}");
    }
    // The error for an unknown plan lists the built-in plans, for example `second-hit`.
    let run = output(&["lab", "no-such-plan"]);
    assert_eq!(run.status.code(), Some(2));
    assert!(
        text(&run.stderr).contains("second-hit"),
        "{}",
        text(&run.stderr)
    );
}

#[test]
fn an_interrupted_run_keeps_its_results_and_stops_its_children() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let plan = folder.path().join("plan.toml");
    // At 20 requests per second, the experiment does not end before the signal.
    let slow = PLAN.replace("connections = 4", "connections = 4\nrate = 20");
    fs::write(&plan, slow).expect("the plan is written");
    let (page, caches) = (
        folder.path().join("page.html"),
        folder.path().join("caches"),
    );
    fs::create_dir(&caches).expect("the folder is created");
    let mut child = edgeward(&["lab", "--report"])
        .arg(&page)
        .arg("--dir")
        .arg(&caches)
        .arg(&plan)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // The first edge creates its store at its start, so the store shows that the edge runs.
    let lab_folder = until("the edge has its store", || {
        let lab_folder = fs::read_dir(&caches).ok()?.next()?.ok()?.path();
        let store = lab_folder.join("store/edgeward.store");
        store.exists().then_some(lab_folder)
    });
    kill_process(Pid::from_child(&child), Signal::INT).expect("the process runs");
    let status = wait(&mut child);
    let out = child
        .wait_with_output()
        .expect("the output of the lab is read");
    assert_eq!(status.code(), Some(1), "{}", text(&out.stderr));
    let printed = text(&out.stdout);
    assert!(
        printed.starts_with("The plan is incomplete: 1 of 3 contenders"),
        "{printed}"
    );
    let page = fs::read_to_string(page).expect("the page is written");
    assert!(page.contains("interrupted") && page.contains("The plan is incomplete"));
    assert!(!lab_folder.exists(), "{lab_folder:?} is left behind");
    let leftover = fs::read_dir("/proc")
        .expect("/proc is readable")
        .flatten()
        .find(|entry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains("serve")
                && line.contains(Path::new(&lab_folder).to_str().expect("the path is UTF-8"))
        });
    assert!(leftover.is_none(), "{leftover:?} is left behind");
}
