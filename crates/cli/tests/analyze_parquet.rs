//! Tests `edgeward analyze --to-parquet` without an SQL engine. `make test-analyze-sql` runs queries in three
//! engines.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn edgeward(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_edgeward"))
        .args(["--quiet", "analyze", "access.log", "--to-parquet", "out"])
        .args(args)
        .current_dir(folder)
        .output()
        .expect("the process runs")
}

fn write_log(folder: &Path) {
    let line =
        |day: u32| format!("c - - [{day}/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 5\n");
    let text = [17, 18, 17].map(line).concat();
    fs::write(folder.join("access.log"), text).expect("the file is written");
}

#[cfg(not(feature = "parquet"))]
#[test]
fn a_build_without_parquet_reports_the_missing_feature() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    write_log(folder.path());
    let out = edgeward(folder.path(), &[]);
    let printed = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2));
    assert!(printed.contains("--features parquet"), "{printed}");
}

#[cfg(feature = "parquet")]
#[test]
fn each_day_is_a_folder_and_an_incomplete_result_is_marked() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    write_log(folder.path());
    let out = edgeward(folder.path(), &[]);
    let printed = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{printed}");
    assert!(printed.contains("3 requests in 2 files"), "{printed}");
    for day in ["day=2015-05-17", "day=2015-05-18"] {
        let mut files = folder
            .path()
            .join("out")
            .join(day)
            .read_dir()
            .expect("the day has a folder");
        let file = files
            .next()
            .expect("the day has a file")
            .expect("the folder is readable");
        let bytes = fs::read(file.path()).expect("the file is readable");
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
        assert!(files.next().is_none());
    }
    let again = edgeward(folder.path(), &[]);
    let printed = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(printed.contains("not empty"), "{printed}");

    // `junk.bin` is no access log, so the run fails and its result is incomplete.
    fs::remove_dir_all(folder.path().join("out")).expect("the folder is removed");
    fs::write(folder.path().join("junk.bin"), [0, 1, 2, 3]).expect("the file is written");
    let out = edgeward(folder.path(), &["junk.bin"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(folder.path().join("out/INCOMPLETE").exists());
}
