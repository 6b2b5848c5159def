//! Tests `edgeward trace` as a user runs it.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

#[test]
fn info_summarises_one_trace_or_several_traces_together() {
    let info = json(&["trace", "info", "--json", &fixture("eight.txt.gz")]);
    assert_eq!(info["complete"], true);
    assert_eq!(info["requests"], 8);
    assert_eq!(info["objects"], 5);
    assert_eq!(info["one_hit_objects"], 3);
    assert_eq!(info["span_seconds"], 3600.0);
    assert_eq!(info["object_size"]["max"], u32::MAX);
    assert_eq!(info["files"][0]["compression"], "gzip");

    let twice = json(&[
        "trace",
        "info",
        "--json",
        &fixture("eight.csv"),
        &fixture("eight.lrb"),
    ]);
    assert_eq!(
        (&twice["requests"], &twice["objects"]),
        (&16.into(), &5.into())
    );
    assert_eq!(twice["files"][1]["format"], "lrb");

    let table = edgeward(&["trace", "info", &fixture("access.log")], b"");
    assert!(table.status.success());
    let text = String::from_utf8_lossy(&table.stdout);
    assert!(text.contains("lines ignored"), "{text}");
}

#[test]
fn the_summary_of_a_truncated_trace_is_printed_before_the_error() {
    let bytes = std::fs::read(fixture("eight.txt.gz")).expect("the fixture is readable");
    let out = edgeward(&["trace", "info", "--json", "-"], &bytes[..90]);
    assert_eq!(out.status.code(), Some(2));
    let info: Value = serde_json::from_slice(&out.stdout).expect("the text is JSON");
    assert_eq!(info["complete"], false);
    assert!(
        info["requests"]
            .as_u64()
            .is_some_and(|n| (1..8).contains(&n)),
        "{info}"
    );
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(
        stderr.contains("error: the gzip stream is truncated"),
        "{stderr}"
    );
    assert!(
        stderr.contains("  in stdin, byte ") && stderr.contains("  hint: "),
        "{stderr}"
    );
}

#[test]
fn a_malformed_line_is_an_error_unless_such_lines_are_skipped() {
    let text = b"1 2 3\n1 2 x\n2 2 3\n";
    let out = edgeward(&["trace", "info", "-"], text);
    assert_eq!(out.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(
        stderr.contains("size is `x`") && stderr.contains("in stdin, line 2"),
        "{stderr}"
    );

    let out = edgeward(&["trace", "info", "--json", "--skip-malformed", "-"], text);
    let info: Value = serde_json::from_slice(&out.stdout).expect("the text is JSON");
    assert_eq!(
        (&info["requests"], &info["files"][0]["lines_malformed"]),
        (&2.into(), &1.into())
    );
}

#[test]
fn a_trace_converted_there_and_back_is_the_same() {
    let dir = tempfile::tempdir().expect("the temporary folder is created");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let original = std::fs::read(fixture("eight.txt")).expect("the fixture is readable");
    let mut input = fixture("eight.txt");
    // The extensions select each format and compression.
    for name in ["a.oracleGeneral.zst", "b.csv.gz", "c.lrb", "d.txt"] {
        let out = edgeward(&["trace", "convert", &input, &path(name)], b"");
        assert!(
            out.status.success(),
            "{name}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        input = path(name);
    }
    assert_eq!(
        std::fs::read(path("d.txt")).expect("the trace is written"),
        original
    );
    let magic = std::fs::read(path("a.oracleGeneral.zst")).expect("the trace is written");
    assert_eq!(magic[..4], [0x28, 0xb5, 0x2f, 0xfd]);
}

#[test]
fn convert_renumbers_keys_and_rebases_times_through_pipes() {
    let out = edgeward(
        &[
            "trace", "convert", "--dense", "--rebase", "--to", "csv", "-", "-",
        ],
        b"100 /a 5\n100.5 900 6\n101 /a 5\n",
    );
    assert!(out.status.success());
    assert_eq!(
        String::from_utf8_lossy(&out.stdout),
        "time,key,size\n0,0,5\n0.500,1,6\n1,0,5\n"
    );
}

/// Method: write a trace whose times decrease in every format. Simulate each file without stating its format.
#[test]
fn a_converted_trace_is_readable_whatever_the_order_of_its_times() {
    let dir = tempfile::tempdir().expect("the temporary folder is created");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let text: String = (0..2000u32)
        .map(|n| format!("{} {} 500\n", 9000 - n, n * n % 70))
        .collect();
    let mut hits = Vec::new();
    for name in ["a.oracleGeneral", "b.csv", "c.lrb", "d.txt.gz"] {
        let out = edgeward(&["trace", "convert", "-", &path(name)], text.as_bytes());
        assert!(
            out.status.success(),
            "{name}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        let report = json(&[
            "simulate",
            &path(name),
            "--capacity",
            "5KB",
            "--policy",
            "lru",
            "--json",
        ]);
        assert_eq!(report["trace"]["requests"], 2000, "{name}");
        hits.push(report["runs"][0]["hits"].clone());
    }
    assert!(hits.iter().all(|other| *other == hits[0]), "{hits:?}");
}

#[test]
fn the_access_log_in_json_is_a_trace() {
    let log: String = (0..50)
        .map(|n| {
            format!(
                "{{\"time\":\"2015-05-17T10:05:{:02}.250Z\",\"client\":\"192.0.2.7\",\"method\":\"GET\",\"scheme\":\"http\",\
                 \"host\":\"example.org\",\"target\":\"/{}\",\"protocol\":\"HTTP/1.1\",\"status\":200,\"bytes\":500,\
                 \"duration_us\":56,\"cache\":\"hit\"}}\n",
                n,
                n % 10
            )
        })
        .collect();
    let dir = tempfile::tempdir().expect("the temporary folder is created");
    let path = dir.path().join("access.json").display().to_string();
    std::fs::write(&path, log).expect("the file is written");
    let info = json(&["trace", "info", "--json", &path]);
    assert_eq!(
        (&info["requests"], &info["objects"]),
        (&50.into(), &10.into())
    );
    assert_eq!(info["files"][0]["format"], "json");
    let report = json(&[
        "simulate",
        &path,
        "--capacity",
        "1MiB",
        "--policy",
        "lru",
        "--json",
    ]);
    assert_eq!(report["runs"][0]["hits"], 40);
}

#[test]
fn a_trace_without_most_sizes_is_not_simulated() {
    let trace = |sized: u32| -> String {
        let size = |n| if n < sized { 500 } else { 0 };
        (0..100)
            .map(|n| format!("{n} k{n} {}\n", size(n)))
            .collect()
    };
    let dir = tempfile::tempdir().expect("the temporary folder is created");
    let path = dir.path().join("t.txt").display().to_string();
    for (sized, is_simulated) in [(49, false), (50, true)] {
        std::fs::write(&path, trace(sized)).expect("the file is written");
        let info = json(&["trace", "info", "--json", &path]);
        assert_eq!(info["sized_requests"], sized);
        let out = edgeward(&["simulate", &path, "--capacity", "1MiB", "--json"], b"");
        assert_eq!(out.status.success(), is_simulated, "{sized}");
        let printed = String::from_utf8_lossy(&out.stderr);
        assert!(
            is_simulated || printed.contains("in 49 of 100 requests"),
            "{printed}"
        );
    }
}

#[test]
fn convert_does_not_overwrite_its_input() {
    let dir = tempfile::tempdir().expect("the temporary folder is created");
    let file = dir.path().join("t.txt");
    std::fs::write(&file, "1 2 3\n").expect("the file is written");
    let name = file.display().to_string();
    let out = edgeward(&["trace", "convert", &name, &name], b"");
    assert_eq!(out.status.code(), Some(2));
    assert_eq!(
        std::fs::read(&file).expect("the input still exists"),
        b"1 2 3\n"
    );
}

#[test]
fn a_generated_trace_has_the_requested_shape_and_depends_only_on_its_seed() {
    let generate = |seed: &str| {
        let out = edgeward(
            &[
                "trace",
                "generate",
                "--preset",
                "web",
                "--requests",
                "20000",
                "--objects",
                "3000",
                "--one-hit-share",
                "75%",
                "--seed",
                seed,
            ],
            b"",
        );
        assert!(out.status.success());
        out.stdout
    };
    let trace = generate("7");
    assert_eq!(trace, generate("7"));
    assert_ne!(trace, generate("8"));
    let out = edgeward(&["trace", "info", "--json", "-"], &trace);
    let info: Value = serde_json::from_slice(&out.stdout).expect("the text is JSON");
    assert_eq!(
        (&info["requests"], &info["objects"]),
        (&20_000.into(), &3000.into())
    );
    assert_eq!(info["one_hit_share"], 0.75);
}

/// `edgeward trace generate | head -1` succeeds.
#[test]
fn a_reader_that_closes_the_pipe_early_causes_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_edgeward"))
        .args(["trace", "generate", "--requests", "200000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdout = child.stdout.take().expect("the stream is piped");
    stdout
        .read_exact(&mut [0; 10])
        .expect("the trace has ten bytes");
    drop(stdout);
    assert!(child.wait().expect("the process ends").success());
}

#[test]
fn errors_state_their_cause() {
    for (args, expected) in [
        (
            &["trace", "info", "/no/such/trace"][..],
            "cannot open /no/such/trace",
        ),
        (&["trace", "info", "-", "-"], "stdin is given twice"),
        (
            &["trace", "generate", "--requests", "5", "--objects", "9"],
            "too few",
        ),
        (
            &["trace", "generate", "--one-hit-share", "2"],
            "not between 0 and 1",
        ),
        (
            &["trace", "generate", "--preset", "nope"],
            "web, video, mixed, switch, small, chunks, scan or recurring",
        ),
        (
            &["trace", "info", "--format", "parquet", "-"],
            "not a trace format",
        ),
    ] {
        let out = edgeward(args, b"");
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
}

fn json(args: &[&str]) -> Value {
    let out = edgeward(args, b"");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    serde_json::from_slice(&out.stdout).expect("the text is JSON")
}

/// Runs the command to its end, with these bytes on stdin.
fn edgeward(args: &[&str], stdin: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_edgeward"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut pipe = child.stdin.take().expect("the stream is piped");
    let bytes = stdin.to_vec();
    // Another thread writes, because the trace may exceed the buffer of the pipe. An error is ignored: a
    // command that ends early closes the pipe.
    let feeder = std::thread::spawn(move || _ = pipe.write_all(&bytes));
    let out = child.wait_with_output().expect("the process ends");
    feeder.join().expect("the feeder ends");
    out
}

fn fixture(name: &str) -> String {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../insight/trace/fixtures");
    root.join(name).display().to_string()
}
