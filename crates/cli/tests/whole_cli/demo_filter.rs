//! Tests `demo-filter` on a small scale: absent ids are skipped, the present id is found, and the false-positive rate
//! is as requested.

use serde_json::Value;

use super::run::{edgeward, text};

#[test]
fn nearly_all_absent_lookups_are_skipped_and_the_present_one_is_found() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let mut demo = edgeward(&[
        "demo-filter",
        "--json",
        "--ids=20000",
        "--lookups=4000",
        "--latency=1ms",
        "--connections=8",
        "--fpr=5%",
    ]);
    let out = demo
        .env("TMPDIR", folder.path())
        .output()
        .expect("the binary runs");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let report: Value = serde_json::from_slice(&out.stdout).expect("the text is JSON");
    let rows = report["rows"].as_array().expect("the rows are a list");
    // The rows: without a filter, with a filter in the edge, and with a filter in the clients.
    assert_eq!(rows.len(), 3);
    for row in rows {
        let number = |name: &str| row[name].as_u64().expect("the value is a number");
        assert_eq!((number("found"), number("wrong")), (1, 0), "{row}");
        // 4,000 lookups of absent ids, and one of the present id.
        assert_eq!(
            number("skipped") + number("service_requests"),
            4001,
            "{row}"
        );
        if row["skipping"] == "without" {
            assert_eq!(number("skipped"), 0);
        } else {
            // At a rate of 5 %, 200 of 4,000 lookups are expected to be false positives. The bounds are seven standard
            // deviations away.
            assert!((100..300).contains(&number("false_positives")), "{row}");
            assert!(row["filter_bytes"].as_u64().expect("the value is a number") < 20_000);
        }
    }
    let remaining_files = std::fs::read_dir(folder.path())
        .expect("the folder is readable")
        .count();
    assert_eq!(remaining_files, 0, "the demo has not removed its folder");
}
