//! Tests `edgeward filter` as a user runs it.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use edgeward_testkit::client::exchange;
use serde_json::Value;

fn run(folder: &Path, arguments: &[&str], stdin: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_edgeward"))
        .arg("filter")
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    // A write error is ignored: a command that rejects its arguments ends before it reads stdin.
    _ = child
        .stdin
        .take()
        .expect("the stream is piped")
        .write_all(stdin.as_bytes());
    child.wait_with_output().expect("the process ends")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("the text is JSON")
}

fn error_output(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn ids(count: u32) -> String {
    (0..count).map(|n| format!("{n}\n")).collect()
}

/// Builds a filter of each construction from ids on stdin and queries it. Inserted ids are found; most other ids are
/// absent.
#[test]
fn a_filter_finds_the_ids_of_its_source() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    for (name, extra) in [
        ("static", &[][..]),
        ("updatable", &["--updatable"]),
        ("capacity", &["--updatable", "--capacity", "5000"]),
        ("guava", &["--guava", "utf8"]),
    ] {
        let mut arguments = vec!["build", "-s", "-", "--ids", "integer", "-o", name, "--json"];
        arguments.extend_from_slice(extra);
        // The input has every id twice; the second copy adds no id to the filter. Some constructions do not count an
        // id that is a false positive before its insertion. They may report up to 1 % fewer ids.
        let report = json(&run(folder.path(), &arguments, &ids(4000).repeat(2)));
        assert_eq!(report["ids_read"], 8000, "{name}");
        let distinct = report["ids"].as_u64().expect("the count is a number");
        assert!((3960..=4000).contains(&distinct), "{name}: {report}");

        let mut query = vec!["query", name];
        if name == "guava" {
            query.extend_from_slice(&["--guava", "utf8", "--form", "integer"]);
        }
        let present = run(folder.path(), &query, &ids(4000));
        assert!(present.status.success());
        let text = String::from_utf8_lossy(&present.stdout);
        assert_eq!(
            text.lines()
                .filter(|line| line.starts_with("maybe\t"))
                .count(),
            4000
        );
        let absent: String = (10_000..20_000).map(|n| format!("{n}\n")).collect();
        let text = run(folder.path(), &query, &absent).stdout;
        let text = String::from_utf8_lossy(&text);
        let false_positives = text
            .lines()
            .filter(|line| line.starts_with("maybe\t"))
            .count();
        assert!(
            false_positives < 200,
            "{name}: {false_positives} of 10,000 at 1 %"
        );
    }
    // 007 is another spelling of the id 7.
    assert_eq!(
        run(folder.path(), &["query", "static", "007"], "")
            .status
            .code(),
        Some(0)
    );
    // With a false-positive rate of 1 %, ten false positives in ten queries are practically impossible.
    let absent = (1_000_000..1_000_010).map(|n| format!("{n}\n"));
    let codes = absent.map(|id| run(folder.path(), &["query", "static"], &id).status.code());
    assert!(codes.into_iter().any(|code| code == Some(1)));
}

#[test]
fn ids_are_read_from_the_named_column() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let csv = "name,id\n\"a, \"\"b\"\"\nc\",550E8400-E29B-41D4-A716-446655440000\nd,\n";
    std::fs::write(folder.path().join("ids.csv"), csv).expect("the file is written");
    let build = [
        "build", "-s", "ids.csv", "--ids", "uuid", "-o", "f", "--json",
    ];
    let printed = error_output(&run(folder.path(), &build, ""));
    assert!(
        printed.contains("--column with one of: name, id"),
        "{printed}"
    );
    let mut named = build.to_vec();
    named.extend_from_slice(&["--column", "id"]);
    assert_eq!(json(&run(folder.path(), &named, ""))["ids"], 1);
    let id = "550e8400e29b41d4a716446655440000";
    assert!(run(folder.path(), &["query", "f", id], "").status.success());
}

/// Also tests the errors for a missing query, and for more ids than `--ids-max` or `--capacity` allows.
#[test]
fn a_malformed_id_is_reported_with_its_line() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let build = ["build", "-s", "-", "--ids", "integer", "-o", "f"];
    let printed = error_output(&run(folder.path(), &build, "1\n2\nid\n"));
    assert!(
        printed.contains("`id` is not a valid integer") && printed.contains("in stdin, line 3"),
        "{printed}"
    );
    assert!(!folder.path().join("f").exists());
    let mut skipping_build = build.to_vec();
    skipping_build.extend_from_slice(&["--skip-malformed", "--json"]);
    assert_eq!(
        json(&run(folder.path(), &skipping_build, "1\n2\nid\n"))["ids_malformed"],
        1
    );

    let printed = error_output(&run(
        folder.path(),
        &["build", "-s", "postgres://db", "-o", "f"],
        "",
    ));
    assert!(printed.contains("--query is missing"), "{printed}");
    let few = ["build", "-s", "-", "-o", "g", "--ids-max", "2"];
    assert!(error_output(&run(folder.path(), &few, "1\n2\n3\n")).contains("more than 2 ids"));
    let full = [
        "build",
        "-s",
        "-",
        "-o",
        "g",
        "--updatable",
        "--capacity",
        "2",
    ];
    assert!(error_output(&run(folder.path(), &full, &ids(50))).contains("it holds the 2 ids"));
}

#[test]
fn inspect_and_diff_report_the_contents_of_filters() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    for (name, count) in [("a", 1000), ("b", 1200)] {
        let build = [
            "build", "-s", "-", "-o", name, "--epoch", "3", "--fpr", "0.1%",
        ];
        assert!(run(folder.path(), &build, &ids(count)).status.success());
    }
    let report = json(&run(folder.path(), &["inspect", "a", "--json"], ""));
    assert_eq!(
        (&report["ids"], &report["epoch"]),
        (&1000.into(), &3.into())
    );
    assert!(
        report["expected_rate"]
            .as_f64()
            .is_some_and(|rate| rate <= 0.001)
    );
    assert_eq!(
        run(folder.path(), &["diff", "a", "a"], "").status.code(),
        Some(0)
    );
    let diff = run(
        folder.path(),
        &["diff", "a", "b", "-s", "-", "--json"],
        &ids(1200),
    );
    assert_eq!(diff.status.code(), Some(1));
    let diff: Value = serde_json::from_slice(&diff.stdout).expect("the text is JSON");
    assert_eq!(diff["answers"]["only_first"]["ids"], 0);
    assert!(
        diff["answers"]["only_second"]["ids"]
            .as_u64()
            .is_some_and(|ids| ids > 190)
    );

    let mut corrupt = std::fs::read(folder.path().join("a")).expect("the filter is readable");
    corrupt[300] ^= 1;
    std::fs::write(folder.path().join("broken"), corrupt).expect("the file is written");
    let printed = error_output(&run(folder.path(), &["inspect", "broken"], ""));
    assert!(
        printed.contains("payload is corrupt") && printed.contains("in broken"),
        "{printed}"
    );
}

/// Starts a publisher with a key, a token and a file of ids, and posts one more id. Tests the responses and the newest
/// journal number in the manifest, not the contents of the filter.
#[test]
fn a_publisher_serves_the_ids_of_a_file_and_posted_ids() {
    use std::io::{BufRead as _, BufReader};

    let folder = tempfile::tempdir().expect("the temporary folder is created");
    std::fs::write(folder.path().join("ids.txt"), ids(1000)).expect("the file is written");
    std::fs::write(folder.path().join("token"), "sixteen-or-more-characters\n")
        .expect("the file is written");
    let keygen = run(folder.path(), &["keygen", "-o", "key"], "");
    let public = String::from_utf8(keygen.stdout).expect("the output is UTF-8");
    let again = run(folder.path(), &["keygen", "--public", "key"], "");
    assert_eq!(
        String::from_utf8(again.stdout).expect("the output is UTF-8"),
        public
    );
    let refused = error_output(&run(folder.path(), &["keygen", "-o", "key"], ""));
    assert!(refused.contains("the key file exists already"), "{refused}");

    let arguments = "filter serve --json -s ids.txt --ids integer --set resource --state state \
                     --listen 127.0.0.1:0 --key key --token token --covered-by posts";
    let mut child = Command::new(env!("CARGO_BIN_EXE_edgeward"))
        .args(arguments.split_whitespace())
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("the stream is piped"));
    out.read_line(&mut line)
        .expect("the publisher prints its first line");
    let start_line: Value = serde_json::from_str(&line).expect("the text is JSON");
    assert_eq!(start_line["public_key"], public.trim());
    let url = start_line["listening"]
        .as_str()
        .expect("the URL is a string");
    let addr = url["http://".len()..]
        .split('/')
        .next()
        .expect("the URL has an address");
    let addr: SocketAddr = addr.parse().expect("the URL has an address");
    let send = |request: String| String::from_utf8_lossy(&exchange(addr, request)).into_owned();
    // With `wait`, the publisher responds as soon as it has a manifest, after 20 s at the latest.
    let manifest = || {
        let path = "/sets/resource?wait=20000";
        send(format!(
            "GET {path} HTTP/1.1\r\nhost: p\r\nconnection: close\r\n\r\n"
        ))
    };
    let first = manifest();
    assert!(first.starts_with("HTTP/1.1 200"), "{first}");
    let post = "POST /sets/resource/ids HTTP/1.1\r\nhost: p\r\nconnection: close\r\n\
                authorization: Bearer sixteen-or-more-characters\r\ncontent-length: 5\r\n\r\n10001";
    let posted = send(post.to_owned());
    assert!(posted.starts_with("HTTP/1.1 200"), "{posted}");
    // `head` is the number of the newest entry of the journal, here the posted id.
    assert!(manifest().contains("\"head\":1"));
    let pid = rustix::process::Pid::from_child(&child);
    use rustix::process::{Signal, kill_process};
    // The first three signals do not stop a server.
    for signal in [Signal::HUP, Signal::USR1, Signal::USR2, Signal::TERM] {
        kill_process(pid, signal).expect("the process runs");
    }
    assert!(child.wait().expect("the process ends").success());
}

#[test]
fn a_publisher_reports_missing_options() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    for (arguments, expected) in [
        ("--source - --unsigned", "scans its source repeatedly"),
        (
            "--source ids.txt --unsigned --covered-by posts",
            "needs a token for writers",
        ),
        (
            "--source ids.txt --unsigned --least-share 2",
            "not between 0 and 1",
        ),
        ("--source ids.txt --key none", "cannot read none"),
    ] {
        let arguments = format!("serve --set s --state state {arguments}");
        let arguments: Vec<_> = arguments.split_whitespace().collect();
        let printed = error_output(&run(folder.path(), &arguments, ""));
        assert!(printed.contains(expected), "{printed}");
    }
}

/// A file is decoded, or the build fails. No existing id may be answered "absent".
#[test]
fn an_id_of_a_file_in_any_encoding_is_never_absent() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let text: String = (1..=100).map(|n| format!("k{n}\n")).collect();
    let utf16 = |encode: fn(u16) -> [u8; 2]| -> Vec<u8> {
        format!("\u{feff}{text}")
            .encode_utf16()
            .flat_map(encode)
            .collect()
    };
    let gzip = {
        std::fs::write(folder.path().join("ids"), &text).expect("the file is written");
        let output = Command::new("gzip")
            .arg("-kc")
            .arg(folder.path().join("ids"))
            .output();
        output.expect("gzip runs").stdout
    };
    let padded: String = (1..=100).map(|n| format!(" k{n:<9}\r\n")).collect();
    for (name, bytes) in [
        ("plain", text.clone().into_bytes()),
        ("gzip", gzip),
        ("mark", format!("\u{feff}{text}").into_bytes()),
        ("little", utf16(u16::to_le_bytes)),
        ("big", utf16(u16::to_be_bytes)),
        ("padded", padded.into_bytes()),
    ] {
        std::fs::write(folder.path().join(name), bytes).expect("the file is written");
        let build = ["build", "-s", name, "-o", "f", "--json"];
        let report = json(&run(folder.path(), &build, ""));
        assert_eq!(report["ids"], 100, "{name}");
        let answers = run(folder.path(), &["query", "f"], &text).stdout;
        assert!(
            !String::from_utf8_lossy(&answers).contains("absent"),
            "{name}"
        );
    }
    for (name, bytes, expected) in [
        ("latin1", &b"caf\xe9\n"[..], "not text in UTF-8"),
        ("columns", b"k1\tname\n", "U+0009"),
        ("no-mark", b"k\x00001\x00\n\x00", "U+0000"),
        ("utf32", b"\xff\xfe\0\0k\0\0\0", "UTF-32"),
        ("zip", b"PK\x03\x04", "zip"),
        ("quoted", b"\"k1\"\n", "in quotes"),
        ("table.csv", b"id;name\nk1;a\n", "no comma"),
    ] {
        std::fs::write(folder.path().join(name), bytes).expect("the file is written");
        let printed = error_output(&run(folder.path(), &["build", "-s", name, "-o", "g"], ""));
        assert!(printed.contains(expected), "{name}: {printed}");
    }
    assert!(!folder.path().join("g").exists());
}

/// Text that an origin may read as an existing id is not answered "absent".
#[test]
fn text_that_is_no_id_is_not_absent() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    for (form, id, queries) in [
        ("integer", "7", &[" 7", "7.0"][..]),
        (
            "uuid",
            "550e8400-e29b-41d4-a716-446655440000",
            &["(550e8400-e29b-41d4-a716-446655440000)"],
        ),
        ("text", "k2", &["k2;jsessionid=1", "k2 ", "k2/"]),
    ] {
        for extra in [&[][..], &["--guava", "utf8"]] {
            let mut build = vec!["build", "-s", "-", "--ids", form, "-o", "f"];
            build.extend_from_slice(extra);
            assert!(run(folder.path(), &build, id).status.success());
            let mut query = vec!["query", "f"];
            if !extra.is_empty() {
                query.extend_from_slice(&["--guava", "utf8", "--form", form]);
            }
            query.push("--");
            query.extend_from_slice(queries);
            let printed = run(folder.path(), &query, "").stdout;
            let printed = String::from_utf8_lossy(&printed);
            assert!(!printed.contains("absent"), "{form}: {printed}");
            std::fs::remove_file(folder.path().join("f")).expect("the filter exists");
        }
    }
}

/// A source that lost at least half of the ids of the replaced filter is refused, and so is an empty one.
#[test]
fn an_empty_or_much_smaller_source_is_refused() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    for extra in [&[][..], &["--guava", "utf8"]] {
        let build = |count: u32, flags: &[&str]| {
            let mut arguments = vec!["build", "-s", "-", "-o", "f"];
            arguments.extend_from_slice(extra);
            arguments.extend_from_slice(flags);
            run(folder.path(), &arguments, &ids(count))
        };
        assert!(error_output(&build(0, &[])).contains("the source has no ids"));
        assert!(build(1000, &[]).status.success());
        assert!(error_output(&build(0, &[])).contains("the source has no ids"));
        assert!(error_output(&build(490, &[])).contains("has only 490 ids"));
        assert!(build(510, &[]).status.success());
        assert!(build(10, &["--least-share", "0"]).status.success());
        assert!(build(0, &["--least-share", "0"]).status.success());
        assert!(error_output(&build(9, &["--least-share", "2"])).contains("not between 0 and 1"));
        std::fs::remove_file(folder.path().join("f")).expect("the filter exists");
    }
}
