//! Tests `edgeward simulate` as a user runs it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// The bounds are printed for each capacity, and no simulated policy exceeds them.
#[test]
fn bounds_are_at_least_the_hit_ratios_of_all_policies() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let trace = folder.path().join("web.tr");
    let generate = [
        "trace",
        "generate",
        "--preset=web",
        "--requests=20000",
        "--output",
    ];
    let generated = edgeward(&generate, &trace);
    assert!(generated.status.success(), "{generated:?}");

    let simulate = ["simulate", "--capacity", "1MiB,1%", "--bounds"];
    let table = edgeward(&simulate, &trace);
    let text = String::from_utf8_lossy(&table.stdout);
    assert_eq!(text.matches("upper bound").count(), 2, "{text}");

    let output = edgeward(&[&simulate[..], &["--json"]].concat(), &trace);
    let json: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
    let bounds = json["bounds"].as_array().expect("bounds are an array");
    let runs = json["runs"].as_array().expect("runs are an array");
    assert_eq!((bounds.len(), runs.len()), (2, 8));
    for run in runs {
        let bound = bounds
            .iter()
            .find(|bound| bound["capacity_bytes"] == run["capacity_bytes"])
            .expect("each capacity has a bound");
        for ratio in ["object_hit_ratio", "byte_hit_ratio"] {
            let (reached, most) = (&run[ratio], &bound[format!("{ratio}_max")]);
            assert!(
                reached.as_f64() <= most.as_f64(),
                "{run}: {ratio} above {most}"
            );
        }
    }
}

#[test]
fn bounds_are_refused_for_two_tiers() {
    let output = edgeward(
        &[
            "simulate",
            "--capacity",
            "1MiB",
            "--disk",
            "1GiB",
            "--bounds",
        ],
        Path::new("no.tr"),
    );
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("--bounds") && message.contains("--disk"),
        "{message}"
    );
}

/// The number of threads changes the speed and no result. The trace has four batches for the three jobs.
#[test]
fn the_results_are_equal_for_any_number_of_threads() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let trace = folder.path().join("mixed.tr");
    let generate = ["trace", "generate", "--requests=80000", "--output"];
    assert!(edgeward(&generate, &trace).status.success());
    let results = |threads: &str| {
        let arguments = [
            "simulate",
            "--policy=density",
            "--capacity=4MiB,1%",
            "--bounds",
            "--json",
            "--threads",
            threads,
        ];
        let output = edgeward(&arguments, &trace);
        let mut json: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
        for run in json["runs"].as_array_mut().expect("runs are an array") {
            run["requests_per_second"] = Value::Null;
        }
        json
    };
    let one = results("1");
    assert_eq!(one["runs"].as_array().map(Vec::len), Some(2));
    for threads in ["2", "16"] {
        assert!(one == results(threads), "{threads} threads");
    }
}

fn edgeward(arguments: &[&str], trace: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_edgeward"))
        .args(arguments)
        .arg(trace)
        .output()
        .expect("edgeward starts")
}
