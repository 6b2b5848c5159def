//! Tests `edgeward analyze` as a user runs it.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use edgeward_trace::Compression;
use edgeward_trace::raw::Encoder;

/// Returns a log in the combined format in which URL `n` is requested `40 / n` times, and the number of requests per
/// URL.
fn log() -> (String, HashMap<String, u64>) {
    let (mut lines, mut counts) = (Vec::new(), HashMap::new());
    for n in 1..=40u64 {
        for time in 0..40 / n {
            let url = format!("/{n}.css?v={}", n % 3);
            lines.push(format!(
                "192.0.2.{n} - - [17/May/2015:{:02}:05:{:02} +0000] \"GET {url} HTTP/1.1\" 200 {} \"-\" \"x\"\n",
                time % 20,
                n % 60,
                n * 100
            ));
            *counts.entry(url).or_default() += 1;
        }
    }
    (lines.concat(), counts)
}

#[test]
fn counts_are_exact_for_every_compression_with_and_without_the_flag_counts() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let (text, counts) = log();
    let requests: u64 = counts.values().sum();
    let once = counts.values().filter(|count| **count == 1).count() as u64;
    for ending in ["log", "log.gz", "log.zst", "log.bz2"] {
        let path = folder.path().join(format!("access.{ending}"));
        compress(&path, text.as_bytes());
        for flags in [&["--counts"][..], &[]] {
            let report = json(&[&["--json", name(&path)], flags].concat());
            assert_eq!(report["complete"], true);
            assert_eq!(report["requests"], requests, "{ending} {flags:?}");
            assert_eq!(report["urls"], counts.len() as u64);
            assert_eq!(report["once"], once);
            assert_eq!(report["requests_per_url"][0]["urls"], once);
            assert_eq!(report["top"][0]["requests"], 40);
        }
    }
}

#[test]
fn one_report_covers_the_logs_of_several_machines() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let (text, counts) = log();
    for machine in ["edge-1", "edge-2"] {
        fs::create_dir(folder.path().join(machine)).expect("the folder is created");
        fs::write(folder.path().join(machine).join("access.log"), &text)
            .expect("the file is written");
    }
    let report = json(&["--json", name(folder.path())]);
    let requests: u64 = counts.values().sum();
    assert_eq!(report["requests"], 2 * requests);
    assert_eq!(report["once"], 0, "each URL was requested on both machines");
    assert_eq!(report["machines"]["top"][1]["name"], "edge-2");
    assert_eq!(report["machines"]["top"][1]["requests"], requests);
    assert_eq!(report["top"][0]["url"], "/1.css?v=1");
    assert_eq!(report["top"][0]["size"], 100);
    assert_eq!(report["types"]["top"][0]["name"], ".css");
    assert_eq!(report["statuses"][0]["name"], "200");
    assert_eq!(report["from"], "2015-05-17T00:05:01Z");
    assert_eq!(report["hours"][0]["from"], "2015-05-17T00:00:00Z");
    assert_eq!(
        report["hours"][0]["requests"],
        2 * 41,
        "40 first requests, and a second request for the first URL"
    );
    assert_eq!(
        report["cache"],
        Value::Null,
        "a combined log has no cache status"
    );
    let bytes: u64 = (1..=40u64).map(|n| n * 100).sum();
    assert_eq!(report["storable"]["bytes"], bytes);
    assert_eq!(report["storable"]["writes_avoided"], 0.0);

    let cut = json(&["--json", "--cut-query", name(folder.path())]);
    assert_eq!(cut["top"][0]["url"], "/1.css");

    let table = edgeward(&[name(folder.path())], b"");
    assert!(table.status.success());
    let text = String::from_utf8_lossy(&table.stdout);
    for part in [
        "0.00 % of the 40 URLs",
        "Requests per URL",
        "edge-2",
        "/1.css?v=1",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Method: compare the counts with the output of awk, sort and uniq.
#[test]
fn the_counts_of_a_real_log_equal_those_of_awk() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let path = root.join("shared/traces/logs/semicomplete-2015.combined.log.gz");
    if !path.exists() {
        eprintln!("skipped: no {}", path.display());
        return;
    }
    let script = "gzip -dc \"$0\" | awk '{print $7}' | sort | uniq -c | \
                  awk '{r += $1; u++; if ($1 == 1) o++} END {print r, u, o}'";
    let awk = Command::new("sh")
        .args(["-c", script, name(&path)])
        .output();
    let awk = String::from_utf8(awk.expect("the shell runs").stdout).expect("the output is UTF-8");
    for flags in [&["--counts"][..], &[]] {
        let report = json(&[&["--json", name(&path)], flags].concat());
        let counted = format!(
            "{} {} {}\n",
            report["requests"], report["urls"], report["once"]
        );
        assert_eq!(counted, awk);
        assert_eq!(report["lines_malformed"], 0);
    }
}

/// Method: analyze the log of a generated trace, pass the suggested configuration to `check-config`, and read
/// the page.
#[test]
fn the_suggested_configuration_is_valid_and_is_shown_on_the_page() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let log = folder.path().join("access.log.zst");
    let out = Command::new(env!("CARGO_BIN_EXE_edgeward"))
        .args([
            "--quiet",
            "trace",
            "generate",
            "--preset",
            "web",
            "--requests",
            "20000",
        ])
        .args(["--one-hit-share", "70%", "--output", name(&log)])
        .output()
        .expect("the process runs");
    assert!(out.status.success());
    let page = folder.path().join("report.html");
    let report = json(&["--json", name(&log), "--report", name(&page)]);
    assert_eq!(report["requests"], 20_000);
    let once = report["once_share"]
        .as_f64()
        .expect("the share is a number");
    assert!((once - 0.7).abs() < 1e-4, "{once}");
    let prediction = &report["prediction"];
    assert_eq!(prediction["sample_rate"], 1.0);
    let caches = prediction["caches"]
        .as_array()
        .expect("the caches are a list");
    assert_eq!(caches.len(), 6, "{caches:?}");
    let written = |index: usize| {
        caches[index]["disk_written_bytes"]
            .as_u64()
            .expect("the cache has a disk")
    };
    assert!(written(5) < written(4), "second-hit writes less");
    assert_eq!(
        (&caches[3]["policy"], &caches[4]["policy"]),
        (&"density".into(), &"density".into()),
        "the policy with the highest hit ratio is used with the disk: {caches:?}"
    );

    let settings = prediction["config"]
        .as_str()
        .expect("the configuration is a string");
    assert!(settings.contains("policy = \"density\""), "{settings}");
    let config = folder.path().join("edgeward.toml");
    let front = "[[listener]]\naddress = \"127.0.0.1:0\"\n[origin]\nurl = \"http://127.0.0.1:9\"\n";
    fs::write(&config, format!("{front}{settings}")).expect("the file is written");
    let check = Command::new(env!("CARGO_BIN_EXE_edgeward"))
        .args(["check-config", name(&config)])
        .output()
        .expect("the process runs");
    let printed = String::from_utf8_lossy(&check.stderr);
    assert!(check.status.success(), "{settings}\n{printed}");

    let html = fs::read_to_string(&page).expect("the page is written");
    assert!(html.starts_with("<!doctype html>") && html.contains("70.00 %"));
    let first = settings
        .lines()
        .nth(1)
        .expect("the configuration has a second line")
        .replace('"', "&quot;");
    assert!(html.contains(&first) || html.contains(settings), "{first}");
}

#[test]
fn a_truncated_log_is_counted_up_to_the_error_and_marked_incomplete() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let path = folder.path().join("access.log.gz");
    let (text, counts) = log();
    compress(&path, text.as_bytes());
    let compressed = fs::read(&path).expect("the file is readable");
    fs::write(&path, &compressed[..compressed.len() * 2 / 3]).expect("the file is written");
    let good = folder.path().join("good.log");
    fs::write(&good, &text).expect("the file is written");

    let out = edgeward(&["--json", name(&path), name(&good)], b"");
    assert_eq!(out.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&out.stdout).expect("the text is JSON");
    assert_eq!(report["complete"], false);
    let requests: u64 = counts.values().sum();
    let read = report["requests"].as_u64().expect("the value is a number");
    assert!((requests + 1..2 * requests).contains(&read), "{read}");
    let problem = report["files"][0]["problem"]
        .as_str()
        .expect("the log has an error");
    assert!(
        problem.contains("the gzip stream is truncated"),
        "{problem}"
    );
    assert_eq!(report["files"][1]["problem"], Value::Null);
    let printed = String::from_utf8_lossy(&out.stderr);
    assert!(
        printed.contains("error: the result is incomplete: 1 of 2 logs"),
        "{printed}"
    );

    let table = edgeward(&[name(&path)], b"");
    assert!(String::from_utf8_lossy(&table.stdout).starts_with("INCOMPLETE"));
}

#[test]
fn malformed_lines_are_counted_and_reported_with_examples() {
    let (text, counts) = log();
    let requests: u64 = counts.values().sum();
    let mut damaged = b"hello\n\n# a comment\n".to_vec();
    damaged.extend_from_slice(text.as_bytes());
    damaged.extend(std::iter::repeat_n(b'x', 1 << 21));
    damaged.extend_from_slice(
        b"\n\x00\x01\x02\n192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"-\" 408 0\n",
    );
    damaged
        .extend_from_slice(b"192.0.2.1 - - [16/May/2015:10:05:03 +0000] \"GET /z HTTP/1.1\" 200 7");
    let out = edgeward(&["--json", "-"], &damaged);
    assert!(out.status.success());
    let report: Value = serde_json::from_slice(&out.stdout).expect("the text is JSON");
    assert_eq!(report["requests"], requests + 1);
    assert_eq!(
        report["lines_malformed"], 3,
        "hello, 2 MiB of x, and control bytes"
    );
    assert_eq!(
        report["lines_passed_over"], 3,
        "a blank, a comment, and a 408"
    );
    let file = &report["files"][0];
    assert_eq!(file["malformed"][0]["line"], 1);
    assert_eq!(file["malformed"][0]["text"], "hello");
    let long = file["malformed"][1]["what"]
        .as_str()
        .expect("the line has a reason");
    assert!(long.contains("longer than 1048576 bytes"), "{long}");
    assert!(
        file["lines_backwards"]
            .as_u64()
            .is_some_and(|lines| lines > 0)
    );
    assert!(
        file["backwards_seconds_max"]
            .as_f64()
            .is_some_and(|secs| secs > 86_400.0)
    );
}

#[test]
fn a_file_that_is_not_a_log_is_rejected_by_name() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let path = folder.path().join("junk.bin");
    let mut junk = b"\x7fELF".to_vec();
    junk.extend((0..100_000u32).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()));
    fs::write(&path, junk).expect("the file is written");
    let error_output = |args: &[&str]| {
        let out = edgeward(args, b"");
        assert_eq!(
            (out.status.code(), out.stdout.len()),
            (Some(2), 0),
            "{args:?}"
        );
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let printed = error_output(&[name(&path)]);
    assert!(
        printed.contains("not text") && printed.contains("junk.bin"),
        "{printed}"
    );
    let printed = error_output(&["/nonexistent/access.log"]);
    assert!(printed.contains("/nonexistent/access.log"), "{printed}");
    let printed = error_output(&[name(&path), "--memory", "1MiB"]);
    assert!(printed.contains("--memory"), "{printed}");
    fs::write(&path, "").expect("the file is written");
    let printed = error_output(&[name(&path)]);
    assert!(printed.contains("no requests"), "{printed}");
}

/// Servers write both logs into one folder. Alone, the error log is an error.
#[test]
fn an_error_log_beside_an_access_log_is_no_error() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let (text, counts) = log();
    fs::write(folder.path().join("access.log"), &text).expect("the file is written");
    let error_log = folder.path().join("error.log");
    let line = "2015/05/17 10:05:03 [error] 7#7: *1 open() failed, request: \"GET /x HTTP/1.1\"\n";
    fs::write(&error_log, line).expect("the file is written");
    let report = json(&["--json", name(folder.path())]);
    assert_eq!(report["complete"], true);
    assert_eq!(report["requests"], counts.values().sum::<u64>());
    assert_eq!(report["files"][1]["format"], "error-log");
    assert_eq!(report["files"][1]["problem"], Value::Null);

    let alone = edgeward(&[name(&error_log)], b"");
    assert_eq!(alone.status.code(), Some(2));
    let printed = String::from_utf8_lossy(&alone.stderr);
    assert!(printed.contains("error log"), "{printed}");
}

/// Zeros of `copytruncate` before the first line, more than the bytes from which the format is detected, and zeros
/// after a gzip stream.
#[test]
fn zeros_around_a_log_do_not_belong_to_it() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let (text, counts) = log();
    let requests: u64 = counts.values().sum();
    let sparse = folder.path().join("sparse.log");
    let zeros = vec![0; 3 << 20];
    fs::write(&sparse, [&zeros, text.as_bytes()].concat()).expect("the file is written");
    let padded = folder.path().join("padded.log.gz");
    compress(&padded, text.as_bytes());
    let compressed = fs::read(&padded).expect("the file is readable");
    fs::write(&padded, [&compressed[..], &zeros[..777]].concat()).expect("the file is written");
    for path in [&sparse, &padded] {
        let report = json(&["--json", name(path)]);
        assert_eq!(
            (&report["complete"], &report["requests"]),
            (&true.into(), &requests.into())
        );
        assert_eq!(report["lines_malformed"], 0);
    }
}

/// Method: 3,000 requests of a log whose lines have no sizes, and of a log with a size in every line.
#[test]
fn a_log_without_sizes_gets_no_settings() {
    let lines = |bytes: &str| -> String {
        (0..3000)
            .map(|n| {
                format!(
                    "h - - [17/May/2015:10:05:03 +0000] \"GET /{} HTTP/1.1\" 200 {bytes}\n",
                    n % 100
                )
            })
            .collect()
    };
    for (bytes, sizes) in [("-", 0), ("512", 3000)] {
        let out = edgeward(&["--json", "-"], lines(bytes).as_bytes());
        let report: Value = serde_json::from_slice(&out.stdout).expect("the text is JSON");
        assert_eq!(report["known"]["sizes"], sizes);
        assert_eq!(report["known"]["times"], 3000);
        assert_eq!(report["prediction"].is_null(), sizes == 0);
        assert_eq!(report["prediction_absent"].is_null(), sizes > 0);
        let table = edgeward(&["-"], lines(bytes).as_bytes());
        let text = String::from_utf8_lossy(&table.stdout).into_owned();
        assert_eq!(text.contains("capacity = "), sizes > 0, "{text}");
        assert_eq!(text.contains("0 of 3,000 requests"), sizes == 0, "{text}");
    }
}

#[test]
fn a_format_is_selected_by_its_name() {
    let line = "1505241510.370      7 192.0.2.10 TCP_HIT/200 2904 GET http://a.example/f - HIER_NONE/- text/html\n";
    for name in ["squid", "SQUID"] {
        let out = edgeward(&["--json", "--format", name, "-"], line.as_bytes());
        let report: Value = serde_json::from_slice(&out.stdout).expect("the text is JSON");
        assert_eq!(report["files"][0]["format"], "squid");
        assert_eq!(report["cache"]["hits"], 1);
    }
    let out = edgeward(&["--format", "nonsense", "-"], line.as_bytes());
    let printed = String::from_utf8_lossy(&out.stderr);
    assert!(printed.contains("haproxy, s3, alb"), "{printed}");
    let json_log = "{\"address\":\"/a\",\"code\":200}\n";
    let out = edgeward(&["-"], json_log.as_bytes());
    let printed = String::from_utf8_lossy(&out.stderr);
    assert!(printed.contains("--fields url=NAME"), "{printed}");
}

#[test]
fn the_limit_of_the_temporary_file_ends_the_reading_and_keeps_the_counts() {
    // The buffers have a quarter of the memory: 4 MiB. 400,000 rows of 16 bytes exceed the buffers, so rows are
    // written to the temporary file, until it reaches its limit of 1 MiB.
    let mut text = String::new();
    for n in 0..400_000u64 {
        let url = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        text += &format!("- - - [17/May/2015:10:05:03 +0000] \"GET /{url:x} HTTP/1.1\" 200 5\n");
    }
    let limits = ["--memory", "16MiB", "--temp-max", "1MiB", "--threads", "1"];
    let out = edgeward(&[&["--json", "-"], &limits[..]].concat(), text.as_bytes());
    assert_eq!(out.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&out.stdout).expect("the text is JSON");
    assert_eq!(report["complete"], false);
    let requests = report["requests"].as_u64().expect("the value is a number");
    assert!((65_536..400_000).contains(&requests), "{requests}");
    assert_eq!(
        report["urls"], requests,
        "every request is for a URL of its own"
    );
    assert_eq!(report["temp_bytes"], 1 << 20);
    let printed = String::from_utf8_lossy(&out.stderr);
    assert!(
        printed.contains("reached its limit") && printed.contains("--temp-max"),
        "{printed}"
    );
}

/// Writes the text to a file, compressed in the format that the extension of the file names.
fn compress(path: &Path, text: &[u8]) {
    let file = fs::File::create(path).expect("the file is created");
    let compression = match path.extension().and_then(|ending| ending.to_str()) {
        Some("gz") => Compression::Gzip,
        Some("zst") => Compression::Zstd,
        Some("bz2") => Compression::Bzip2,
        _ => Compression::None,
    };
    let mut sink = Encoder::new(file, compression).expect("the encoder starts");
    sink.write_all(text).expect("the text is written");
    sink.finish().expect("the file is complete");
}

fn json(args: &[&str]) -> Value {
    let out = edgeward(args, b"");
    let printed = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{args:?}: {printed}");
    serde_json::from_slice(&out.stdout).expect("the text is JSON")
}

fn edgeward(args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_edgeward"));
    run_with_stdin(command.arg("analyze").args(args), input)
}

fn run_with_stdin(command: &mut Command, input: &[u8]) -> Output {
    let piped = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    std::thread::scope(|scope| {
        // The result is ignored: the write fails if the program closes the pipe because it needs no more input.
        scope.spawn(move || _ = stdin.write_all(input));
        child.wait_with_output().expect("the process ends")
    })
}

fn name(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}
