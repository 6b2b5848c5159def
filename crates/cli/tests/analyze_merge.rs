//! Tests partial results, interrupted analyses and full disks of `edgeward analyze`.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A log of `requests` requests. The number of URLs is at most a third of `requests`; a line has about 100 bytes.
fn log(requests: u64, seed: u64) -> String {
    let mut text = String::new();
    for n in 0..requests {
        let random = (n + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        // Some URLs are requested more often, so that the ranking of the URLs does not depend on chance.
        let url = random % (1 + (random >> 12) % (requests / 3));
        let (minute, second) = (n / 60 % 60, n % 60);
        text += &format!(
            "192.0.2.{} - - [17/May/2015:10:{minute:02}:{second:02} +0000] \"GET /{url:x}.js HTTP/1.1\" 200 {} \"-\" \
             \"agent\"\n",
            n % 250,
            url % 5000
        );
    }
    text
}

fn write_logs_of_machines(folder: &Path) {
    for (n, machine) in ["edge-1", "edge-2", "edge-3"].iter().enumerate() {
        let folder = folder.join(machine);
        fs::create_dir_all(&folder).expect("the folder is created");
        let text = log(2000 + 500 * n as u64, 7 * n as u64) + "junk\n";
        fs::write(folder.join("access.log"), text).expect("the file is written");
    }
}

/// Method: analyze the logs of each machine alone and merge the results. The table and the JSON of the merged
/// result must equal the output of one analysis of all logs.
#[test]
fn partial_results_merge_into_the_report_of_all_logs() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    write_logs_of_machines(&folder.path().join("logs"));
    for depth_args in [&[][..], &["--counts"]] {
        let names = ["edge-2", "edge-1", "edge-3"];
        for name in names {
            let (logs, part) = (format!("logs/{name}"), format!("{name}.part"));
            let args = [&["--partial", &part, "--machine", name, &logs], depth_args].concat();
            let out = edgeward(folder.path(), &args);
            let printed = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(out.status.success() && out.stdout.is_empty(), "{printed}");
            assert!(
                printed.contains("requests for") && printed.contains("malformed"),
                "{printed}"
            );
        }
        let merge_two = [
            "merge",
            "edge-2.part",
            "edge-1.part",
            "--partial",
            "two.part",
        ];
        assert!(edgeward(folder.path(), &merge_two).status.success());
        let whole = [&["logs"][..], depth_args].concat();
        let whole_json = json(folder.path(), &whole);
        let whole_table = edgeward(folder.path(), &whole).stdout;
        for parts in [
            &names.map(|name| format!("{name}.part"))[..],
            &["two.part".into(), "edge-3.part".into()],
        ] {
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            let merge = [&["merge"][..], &parts].concat();
            let merged = json(folder.path(), &merge);
            assert_eq!(merged["requests"], 7500);
            assert_eq!(merged["prediction"].is_object(), depth_args.is_empty());
            assert_eq!(merged, whole_json);
            let table = edgeward(folder.path(), &merge).stdout;
            assert_eq!(
                String::from_utf8_lossy(&table),
                String::from_utf8_lossy(&whole_table)
            );
        }
    }
}

#[test]
fn an_invalid_partial_result_is_rejected_by_name() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    write_logs_of_machines(&folder.path().join("logs"));
    let partial = edgeward(folder.path(), &["logs", "--partial", "a.part"]);
    assert!(partial.status.success());
    let bytes = fs::read(folder.path().join("a.part")).expect("the file is readable");
    let merge_error = |bytes: &[u8]| {
        fs::write(folder.path().join("b.part"), bytes).expect("the file is written");
        let out = edgeward(folder.path(), &["merge", "b.part"]);
        assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0));
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let printed = merge_error(&bytes[..bytes.len() - 1]);
    assert!(printed.contains("b.part ends in the middle"), "{printed}");
    for offset in [20, bytes.len() / 2, bytes.len() - 100] {
        let mut damaged = bytes.clone();
        damaged[offset] ^= 4;
        let printed = merge_error(&damaged);
        assert!(printed.contains("b.part is corrupt"), "{printed}");
        assert!(printed.contains("copy the file again"), "{printed}");
    }
    let mut newer = bytes;
    newer[8] = 9;
    let printed = merge_error(&newer);
    assert!(printed.contains("format 9"), "{printed}");
    let printed = merge_error(b"hello");
    assert!(printed.contains("not a partial result"), "{printed}");
}

/// Method: kill the analysis with SIGKILL while it reads the second of two logs. A run with another option and a run
/// after the first log has grown must fail. Then overwrite the first log with junk of the original size and
/// modification time, so that a second reading of this log would change the result.
#[test]
fn a_killed_analysis_continues_from_its_checkpoint() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let first = folder.path().join("a.log");
    fs::write(&first, log(30_000, 1)).expect("the file is written");
    fs::write(folder.path().join("b.log"), log(29_000, 2)).expect("the file is written");
    let uninterrupted = json(folder.path(), &["a.log", "b.log"]);
    let args = [
        "a.log",
        "b.log",
        "--threads",
        "1",
        "--checkpoint",
        "kept",
        "--checkpoint-every",
        "1KiB",
    ];
    let mut child = command(folder.path(), &args)
        .spawn()
        .expect("the process starts");
    // The analysis writes a checkpoint every 1024 lines, because they have more than 1 KiB. The first log has 30,000
    // lines and about 29 checkpoints, so the 40th is written while the second log is read.
    let checkpoint = folder.path().join("kept/000040.partial");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !checkpoint.exists() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    child.kill().expect("the process runs");
    let killed = child.wait_with_output().expect("the process ends");
    assert!(
        !killed.status.success() && checkpoint.exists(),
        "{killed:?}"
    );

    let other = edgeward(folder.path(), &[&args[..], &["--cut-query"]].concat());
    let printed = String::from_utf8_lossy(&other.stderr).into_owned();
    assert_eq!(other.status.code(), Some(2));
    assert!(printed.contains("other options"), "{printed}");

    let metadata = first.metadata().expect("the log exists");
    fs::write(&first, log(30_000, 1) + "\n").expect("the file is written");
    let changed = edgeward(folder.path(), &args);
    let printed = String::from_utf8_lossy(&changed.stderr).into_owned();
    assert_eq!(changed.status.code(), Some(2));
    assert!(printed.contains("a.log has changed"), "{printed}");

    fs::write(&first, "x".repeat(metadata.len() as usize)).expect("the file is written");
    let file = File::options()
        .write(true)
        .open(&first)
        .expect("the log is opened");
    file.set_modified(
        metadata
            .modified()
            .expect("the log has a modification time"),
    )
    .expect("the modification time is set");
    assert_eq!(json(folder.path(), &args), uninterrupted);
    assert!(!folder.path().join("kept").exists());
}

/// Method: mount a tmpfs of one mebibyte in a mount namespace that only the test uses.
#[test]
fn a_full_temporary_folder_ends_the_reading_and_keeps_the_counts() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let temp = folder.path().join("temp");
    fs::create_dir(&temp).expect("the folder is created");
    fs::write(folder.path().join("a.log"), log(400_000, 5)).expect("the file is written");
    let script = "mount -t tmpfs -o size=1m none \"$0\" && exec \"$@\"";
    let run_with_small_tmpfs = |program: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script]);
        command.arg(&temp).args(program).current_dir(folder.path());
        command.output()
    };
    if !run_with_small_tmpfs(&["true"]).is_ok_and(|out| out.status.success()) {
        eprintln!("skipped: no mount namespaces here");
        return;
    }
    let out = run_with_small_tmpfs(&[
        env!("CARGO_BIN_EXE_edgeward"),
        "--quiet",
        "analyze",
        "a.log",
        "--json",
        "--memory",
        "16MiB",
        "--threads",
        "1",
        "--temp",
        "temp",
        "--temp-max",
        "1GiB",
    ]);
    let out = out.expect("the process runs");
    let printed = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{printed}");
    assert!(printed.contains("No space left on device"), "{printed}");
    assert!(printed.contains("--temp"), "{printed}");
    let report: Value = serde_json::from_slice(&out.stdout).expect("the text is JSON");
    assert_eq!(report["complete"], false);
    let requests = report["requests"].as_u64().expect("the value is a number");
    assert!((60_000..400_000).contains(&requests), "{requests}");
    assert_eq!(
        report["lines"], requests,
        "the lines before the error are counted"
    );
    assert_eq!(
        report["files"][0]["problem"],
        "space ran out before the rest of it was read"
    );
}

/// Runs an analysis with these arguments and returns its JSON document. The field `temp_bytes` is cleared, because it
/// differs between runs with the same result.
fn json(folder: &Path, args: &[&str]) -> Value {
    let out = edgeward(folder, &[args, &["--json"]].concat());
    let printed = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{args:?}: {printed}");
    let mut document: Value = serde_json::from_slice(&out.stdout).expect("the text is JSON");
    document["temp_bytes"] = Value::Null;
    document
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_edgeward"));
    command.args(["--quiet", "analyze"]).args(args);
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn edgeward(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().expect("the process runs")
}
