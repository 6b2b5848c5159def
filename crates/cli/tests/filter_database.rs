//! Tests `edgeward filter build` from a database, as a user runs it.

use std::path::Path;
use std::process::{Command, Output};

use rusqlite::Connection;
use serde_json::Value;

const IDS: u32 = 50_000;

fn database(folder: &Path) -> String {
    let path = folder.join("shop.db");
    let connection = Connection::open(&path).expect("the database file is created");
    let sql = format!(
        "CREATE TABLE resource (id UUID PRIMARY KEY, name TEXT);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {IDS})
         INSERT INTO resource
         SELECT printf('550E8400-E29B-41D4-A716-%012d', i), 'name ' || i FROM n"
    );
    connection.execute_batch(&sql).expect("the SQL is valid");
    format!("sqlite://{}", path.display())
}

fn id(n: u32) -> String {
    format!("550e8400-e29b-41d4-a716-{n:012}")
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_edgeward"))
        .arg("filter")
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the binary runs")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("the text is JSON")
}

fn error_output(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Tests static, updatable and Guava filters of a database, and builds with a checkpoint. The filter answers "maybe"
/// for ids of the table in lower and in upper case, and "absent" for at least one of three other ids.
#[test]
fn a_filter_of_a_database_finds_its_ids() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let address = database(folder.path());
    for extra in [
        &[][..],
        &["--updatable"],
        &["--guava", "utf8"],
        &["--resume", "scan"],
        &["--resume", "scan", "--guava", "utf8"],
    ] {
        let query = "SELECT id FROM resource;";
        let mut arguments = vec![
            "build", "-s", &address, "--query", query, "-o", "f", "--json",
        ];
        arguments.extend_from_slice(extra);
        let report = json(&run(folder.path(), &arguments));
        assert_eq!(report["ids_read"], IDS, "{extra:?}");
        assert!(
            !folder.path().join("scan").exists(),
            "the checkpoint is removed"
        );
        let mut query_args = vec!["query", "f"];
        if extra.contains(&"--guava") {
            query_args.splice(1..1, ["--guava", "utf8", "--form", "uuid"]);
        }
        let (first, last, absent) = (id(1), id(IDS).to_uppercase(), id(IDS + 7));
        let answers = run(folder.path(), &[&query_args[..], &[&first, &last]].concat());
        let printed = String::from_utf8_lossy(&answers.stdout).into_owned();
        assert_eq!(printed.matches("maybe").count(), 2, "{extra:?}: {printed}");
        // An absent id is a false positive with a probability of 1 %. Three false positives in three queries are
        // practically impossible.
        let others = [absent, id(IDS + 8), id(IDS + 9)];
        let others: Vec<_> = others.iter().map(String::as_str).collect();
        let answers = run(folder.path(), &[&query_args[..], &others].concat());
        let printed = String::from_utf8_lossy(&answers.stdout).into_owned();
        assert!(printed.contains("absent"), "{extra:?}: {printed}");
    }
}

/// A build that fails leaves its checkpoint, and the same command continues from this checkpoint. An invalid
/// row stops the first run. The test deletes this row before the second run.
#[test]
fn a_build_continues_where_an_earlier_run_stopped() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let address = database(folder.path());
    let change = |sql: &str| {
        let connection =
            Connection::open(folder.path().join("shop.db")).expect("the database is opened");
        connection.execute_batch(sql).expect("the SQL is valid");
    };
    change("INSERT INTO resource VALUES ('x is no uuid', '')");
    let query = "SELECT id FROM resource";
    let arguments = [
        "build", "-s", &address, "--query", query, "-o", "f", "--json", "--resume", "scan",
    ];
    let printed = error_output(&run(folder.path(), &arguments));
    assert!(
        printed.contains("row 50001, column `id`: `x is no uuid` is not a valid uuid"),
        "{printed}"
    );
    assert!(!folder.path().join("f").exists());
    let other = ["--ids", "text"];
    let printed = error_output(&run(folder.path(), &[&arguments[..], &other].concat()));
    assert!(
        printed.contains("another scan") && printed.contains("hint"),
        "{printed}"
    );
    change("DELETE FROM resource WHERE id LIKE 'x%'");
    let report = json(&run(folder.path(), &arguments));
    let before = report["ids_read_before"]
        .as_u64()
        .expect("the count is a number");
    // The checkpoint may lack the last batch of the first run.
    assert!(before > 40_000, "{report}");
    let read = report["ids_read"].as_u64().expect("the count is a number");
    // The scan continues with the last saved row, so this row is read twice.
    assert!(read <= u64::from(IDS) + 1, "{report}");
    assert_eq!(report["ids"], IDS);
    for n in [1, 2, IDS / 2, IDS] {
        assert!(run(folder.path(), &["query", "f", &id(n)]).status.success());
    }
}

#[test]
fn invalid_sources_and_queries_get_an_error_with_a_hint() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let address = database(folder.path());
    let build = |source: &str, extra: &[&str]| {
        let arguments = [&["build", "-o", "f", "-s", source], extra].concat();
        error_output(&run(folder.path(), &arguments))
    };
    for (source, extra, expected) in [
        (&address[..], &[][..], "--query is missing"),
        (
            &address,
            &["--query", "SELECT id, name FROM resource"],
            "2 columns",
        ),
        (&address, &["--query", "SELECT 1.5 AS price"], "type REAL"),
        ("ids.txt", &["--query", "SELECT 1"], "is a file"),
        ("mysql://db", &["--query", "SELECT 1"], "mysql://"),
        (
            &address,
            &["--query", "SELECT id FROM resource", "--ids-max", "100"],
            "more than 100 ids",
        ),
    ] {
        let printed = build(source, extra);
        assert!(
            printed.contains(expected) && printed.contains("hint"),
            "{printed}"
        );
    }
    let printed = build(&address, &["--query", "SELECT id FROM missing"]);
    assert!(
        printed.contains("refused the query: no such table"),
        "{printed}"
    );
    let printed = build("sqlite://none.db", &["--query", "SELECT 1"]);
    assert!(
        printed.contains("cannot connect to sqlite://none.db"),
        "{printed}"
    );
    assert!(
        !folder.path().join("none.db").exists(),
        "no database is created"
    );
}
