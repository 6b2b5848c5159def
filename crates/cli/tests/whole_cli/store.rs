//! Tests `edgeward store`: the contents, corrupt records, and stores that cannot be opened.

use std::path::Path;

use edgeward_store::disk::{DiskCache, DiskSettings, FILE_NAME};
use edgeward_types::{ByteSize, KeyHash};
use serde_json::Value;

use super::run::{output, text};

fn open(folder: &Path) -> DiskCache {
    let settings = DiskSettings {
        segment_bytes: Some(ByteSize::mib(1)),
        ..DiskSettings::new(folder, ByteSize::mib(8))
    };
    DiskCache::open(settings).expect("the store opens").0
}

/// Stores three objects, and purges the second. The third object is so long that it is stored in three pieces.
fn fill(folder: &Path) {
    let cache = open(folder);
    for (key, bytes) in [(1, 1000), (2, 1000), (3, 700_000)] {
        let started = cache.begin(KeyHash(key), &[1], "head".into(), Some(bytes));
        let mut write = started.expect("the write begins");
        write
            .push(vec![0xab; bytes as usize].into())
            .expect("the queue has space");
        write.finish().expect("the body is complete");
    }
    // The write is synced before the purge. Otherwise the purge would only cancel the pending write.
    cache.sync().expect("the store syncs");
    cache.purge(KeyHash(2), &[1]);
    cache.close().expect("the store closes");
}

fn json(args: &[&str]) -> (Option<i32>, Value) {
    let out = output(args);
    let value = serde_json::from_slice(&out.stdout);
    (
        out.status.code(),
        value.unwrap_or_else(|_| panic!("{}", text(&out.stderr))),
    )
}

#[test]
fn inspect_reports_the_contents_of_a_store() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    fill(folder.path());
    let path = folder.path().to_str().expect("the path is UTF-8");
    let (code, stores) = json(&["store", "inspect", path, "--json"]);
    assert_eq!(code, Some(0));
    assert_eq!(stores[0]["format_version"], 1);
    // `objects` counts the objects with a single record. The purged object is one of them: its record is still in the
    // segment. `objects_in_pieces` counts the third object, which is not in `objects`.
    assert_eq!(stores[0]["objects"], 2);
    assert_eq!(stores[0]["objects_in_pieces"], 1);
    assert_eq!(stores[0]["pieces"], 3);
    assert_eq!(stores[0]["purges"], 1);
    let printed = output(&["store", "inspect", path, "--segments"]);
    let printed = text(&printed.stdout);
    assert!(
        printed.contains("2 in one record, 1 in 3 pieces"),
        "{printed}"
    );
    assert!(printed.contains("sealed"), "{printed}");
}

#[test]
fn a_corrupt_record_is_reported_and_the_exit_code_is_1() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    fill(folder.path());
    let path = folder.path().to_str().expect("the path is UTF-8");
    let (code, stores) = json(&["store", "verify", path, "--json"]);
    assert_eq!(
        (code, &stores[0]["verification"]["problems"]),
        (Some(0), &Value::from(0))
    );

    let file = folder.path().join(FILE_NAME);
    let mut bytes = std::fs::read(&file).expect("the file is readable");
    let body = bytes
        .windows(600)
        .position(|window| window == [0xab; 600])
        .expect("the store file contains the body");
    bytes[body + 5] ^= 1;
    std::fs::write(&file, bytes).expect("the file is written");
    let out = output(&["store", "verify", path]);
    assert_eq!(out.status.code(), Some(1));
    let printed = text(&out.stdout);
    assert!(printed.contains("does not match its checksum"), "{printed}");
}

#[test]
fn errors_of_unreadable_stores_state_their_cause() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let path = folder.path().to_str().expect("the path is UTF-8");
    let stderr = || {
        let out = output(&["store", "inspect", path]);
        assert_eq!(out.status.code(), Some(2));
        text(&out.stderr)
    };
    assert!(stderr().contains(path), "the error names the path");
    let cache = open(folder.path());
    let printed = stderr();
    assert!(
        printed.contains("another process has locked it"),
        "{printed}"
    );
    drop(cache);
    std::fs::write(folder.path().join(FILE_NAME), [7; 10_000]).expect("the file is written");
    let printed = stderr();
    assert!(printed.contains("not an edgeward store"), "{printed}");
}
