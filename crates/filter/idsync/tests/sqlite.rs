//! Scans and polls real SQLite files.
#![cfg(feature = "sqlite")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use edgeward_filter::IdForm;
use edgeward_idsync::{
    ChangesConfig, ChangesPoller, Ledger, Options, Scan, ScanConfig, Source, SourceError, open,
};
use rusqlite::Connection;

fn database(folder: &Path, sql: &str) -> String {
    let path = folder.join("ids.db");
    let connection = Connection::open(&path).expect("the database is created");
    connection.execute_batch(sql).expect("the SQL is valid");
    format!("sqlite://{}", path.display())
}

fn source(address: &str, query: &str, ordered: bool) -> Arc<dyn Source> {
    let options = Options {
        ordered,
        ..Options::new(query)
    };
    open(address, options).expect("the address is valid")
}

/// Begins a scan. `ledger` has the progress of an earlier scan; an empty ledger begins with the first id.
fn begin(source: Arc<dyn Source>, ledger: Ledger) -> Result<Scan, SourceError> {
    let config = ScanConfig {
        batch_ids: 100,
        batches_ahead: 1,
        ..ScanConfig::default()
    };
    Scan::begin(source, ledger, config)
}

fn read_rest(scan: &mut Scan, ids: &mut BTreeSet<String>) -> Result<(), SourceError> {
    while let Some(batch) = scan.next_batch()? {
        ids.extend(
            batch
                .ids()
                .map(|id| String::from_utf8_lossy(id).into_owned()),
        );
    }
    Ok(())
}

/// Returns the error of an unordered scan of this query.
fn scan_error(address: &str, query: &str) -> SourceError {
    let mut ids = BTreeSet::new();
    begin(source(address, query, false), Ledger::default())
        .and_then(|mut scan| read_rest(&mut scan, &mut ids))
        .expect_err("the source is not readable")
}

const THOUSAND_ROWS: &str = "CREATE TABLE resource (id INTEGER PRIMARY KEY);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
    INSERT INTO resource SELECT i * 3 FROM n;";

/// An ordered or unordered scan reads every id, also if the query ends with a comment and a semicolon.
#[test]
fn every_id_is_read_with_the_form_of_its_column() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let address = database(folder.path(), THOUSAND_ROWS);
    let expected: BTreeSet<_> = (1..=1000).map(|n| (n * 3).to_string()).collect();
    for ordered in [false, true] {
        for query in [
            "SELECT id FROM resource",
            "SELECT id FROM resource -- all;\n ; ",
        ] {
            let mut scan = begin(source(&address, query, ordered), Ledger::default())
                .expect("the scan begins");
            assert_eq!(scan.source_info().form, IdForm::Integer);
            assert_eq!(scan.source_info().rows_estimated, Some(1000));
            let mut ids = BTreeSet::new();
            read_rest(&mut scan, &mut ids).expect("the scan ends");
            assert_eq!(ids, expected, "{query}");
        }
    }
}

/// Method: for several types of ids and collations, take each position of a scan, and begin another scan at
/// this position. Together with the ids before the position, this scan must read all ids.
#[test]
fn an_ordered_scan_can_be_resumed() {
    let folder = tempfile::tempdir().expect("the folder is created");
    for (n, (column, value)) in [
        ("INTEGER", "i - 500"),
        ("TEXT", "'key ' || i"),
        ("BLOB", "CAST('b' || i AS BLOB)"),
        (
            "",
            "CASE i % 3 WHEN 0 THEN i WHEN 1 THEN 't' || i ELSE CAST('b' || i AS BLOB) END",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let sql = format!(
            "CREATE TABLE t{n} (id {column});
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
             INSERT INTO t{n} SELECT {value} FROM n;"
        );
        let address = database(folder.path(), &sql);
        let query = format!("SELECT id FROM t{n}");
        let form = (column != "INTEGER").then_some(IdForm::Text);
        let config = ScanConfig {
            form,
            batch_ids: 90,
            ..ScanConfig::default()
        };
        let all_ids = scan_from(&address, &query, form, None);
        assert_eq!(all_ids.len(), 1000, "{column}");
        let mut whole_scan = Scan::begin(source(&address, &query, true), Ledger::default(), config)
            .expect("the scan begins");
        let mut ids_before = BTreeSet::new();
        while let Some(batch) = whole_scan.next_batch().expect("the scan delivers rows") {
            ids_before.extend(batch.ids().map(<[u8]>::to_vec));
            let Some(position) = batch.progress.position else {
                continue;
            };
            let rest = scan_from(&address, &query, form, Some(position));
            let union: BTreeSet<_> = ids_before.union(&rest).cloned().collect();
            assert_eq!(union, all_ids, "{column}");
            assert!(rest.len() < all_ids.len());
        }
    }
}

/// Returns the ids that a scan from a position reads.
fn scan_from(
    address: &str,
    query: &str,
    form: Option<IdForm>,
    position: Option<Vec<u8>>,
) -> BTreeSet<Vec<u8>> {
    let config = ScanConfig {
        form,
        ..ScanConfig::default()
    };
    // A span is a part of a scan. A query to SQLite has only one, which contains all ids.
    let unread = Ledger::with_spans([Vec::new()]);
    let ledger = match position {
        Some(position) => unread.with_position(0, position),
        None => unread,
    };
    let mut scan =
        Scan::begin(source(address, query, true), ledger, config).expect("the scan begins");
    let mut ids = BTreeSet::new();
    while let Some(batch) = scan.next_batch().expect("the scan delivers rows") {
        ids.extend(batch.ids().map(<[u8]>::to_vec));
    }
    ids
}

#[test]
fn errors_name_the_cause() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let address = database(
        folder.path(),
        "CREATE TABLE resource (id TEXT, price REAL);
         INSERT INTO resource VALUES ('550e8400-e29b-41d4-a716-446655440000', 1.5), (NULL, 2);",
    );
    let missing = format!("sqlite://{}/none.db", folder.path().display());
    assert!(matches!(
        scan_error(&missing, "SELECT 1"),
        SourceError::Connect { .. }
    ));
    for query in [
        "SELECT nothing FROM resource",
        "DELETE FROM resource",
        "SELECT",
    ] {
        let error = scan_error(&address, query);
        assert!(matches!(error, SourceError::Query { .. }), "{error:?}");
    }
    let two_columns = scan_error(&address, "SELECT id, price FROM resource");
    assert!(
        matches!(two_columns, SourceError::Columns { found: 2, .. }),
        "{two_columns:?}"
    );
    let real = scan_error(&address, "SELECT price FROM resource");
    assert_eq!(
        real.to_string(),
        "column `price` has the unsupported type REAL"
    );
    let null = scan_error(&address, "SELECT id FROM resource");
    assert_eq!(null.to_string(), "row 2, column `id`: NULL is not an id");
    let text = folder.path().join("text");
    std::fs::write(
        &text,
        "this is not a database but a text of sufficient length",
    )
    .expect("the file is written");
    let error = scan_error(&format!("sqlite://{}", text.display()), "SELECT 1");
    assert!(matches!(error, SourceError::Connect { .. }), "{error:?}");
}

#[test]
fn a_query_that_never_ends_can_be_cancelled() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let address = database(folder.path(), THOUSAND_ROWS);
    // The query returns one row and then counts forever.
    let query = "SELECT 1 UNION ALL SELECT * FROM (
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
        SELECT count(*) FROM n)";
    let mut scan =
        begin(source(&address, query, false), Ledger::default()).expect("the scan begins");
    scan.handle().cancel();
    let error = read_rest(&mut scan, &mut BTreeSet::new()).expect_err("the operation is cancelled");
    assert!(matches!(error, SourceError::Cancelled), "{error:?}");
}

/// `skip_to_head` reads the present rows without delivering them. The polls after it deliver only later rows.
#[test]
fn each_change_after_skip_to_head_is_delivered_once() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let address = database(
        folder.path(),
        "CREATE TABLE resource (seq INTEGER PRIMARY KEY, id UUID);
         INSERT INTO resource (id) VALUES ('550e8400-e29b-41d4-a716-446655440000');",
    );
    let add = |id: &str| {
        let connection = Connection::open(folder.path().join("ids.db")).expect("the file opens");
        let sql = "INSERT INTO resource (id) VALUES (?1)";
        connection.execute(sql, [id]).expect("the row is inserted");
    };
    let query = "SELECT id, seq FROM resource WHERE seq > ?1 ORDER BY seq";
    let poller_from = |cursor| {
        let source = source(&address, "SELECT id FROM resource", false);
        ChangesPoller::new(source, ChangesConfig::new(query), cursor)
            .expect("the runtime is created")
    };
    let poll = |changes: &mut ChangesPoller| {
        let mut ids = Vec::new();
        let mut each = |batch: edgeward_idsync::Batch| {
            ids.extend(
                batch
                    .ids()
                    .map(|id| String::from_utf8_lossy(id).into_owned()),
            );
        };
        changes.poll(&mut each).map(|polled| (polled.cursor, ids))
    };
    let mut poller = poller_from(i64::MIN);
    assert_eq!(poller.skip_to_head().expect("the poll succeeds").cursor, 1);
    assert_eq!(poll(&mut poller).expect("the poll succeeds"), (1, vec![]));
    add("550E8400E29B41D4A716446655440001");
    let expected = "550e8400-e29b-41d4-a716-446655440001".to_owned();
    assert_eq!(
        poll(&mut poller).expect("the poll succeeds"),
        (2, vec![expected])
    );
    assert_eq!(poll(&mut poller).expect("the poll succeeds"), (2, vec![]));
}

/// A malformed row does not stop the changes after it.
///
/// Method: insert three malformed rows between valid rows. In the first, `id` is not a UUID. In the second, `id` is a
/// REAL. In the third, `seq` is text, although `id` is valid. Every valid id is delivered once, and the cursor passes
/// the malformed rows.
#[test]
fn a_malformed_row_does_not_stop_the_changes_after_it() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let id = |n: u32| format!("550e8400-e29b-41d4-a716-{n:012}");
    let address = database(folder.path(), "CREATE TABLE resource (seq, id);");
    let connection = Connection::open(folder.path().join("ids.db")).expect("the file opens");
    let add = |sql: &str| connection.execute(sql, []).expect("the row is inserted");
    let query = "SELECT id, seq FROM resource WHERE seq > ?1 ORDER BY seq";
    let config = ChangesConfig {
        form: Some(IdForm::Uuid),
        ..ChangesConfig::new(query)
    };
    let source = source(&address, "SELECT id FROM resource", false);
    let mut poller = ChangesPoller::new(source, config, i64::MIN).expect("the runtime is created");
    let mut poll = || {
        let mut ids = Vec::new();
        let mut each = |batch: edgeward_idsync::Batch| {
            let texts = batch
                .ids()
                .map(|id| String::from_utf8_lossy(id).into_owned());
            ids.extend(texts);
        };
        let polled = poller.poll(&mut each).expect("the poll succeeds");
        (polled.cursor, polled.malformed, ids)
    };
    add("INSERT INTO resource VALUES (1, 'not a uuid')");
    add(&format!("INSERT INTO resource VALUES (2, '{}')", id(2)));
    assert_eq!(poll(), (2, 1, vec![id(2)]));
    add("INSERT INTO resource VALUES (3, 1.5)");
    add(&format!(
        "INSERT INTO resource VALUES ('four', '{}')",
        id(4)
    ));
    add(&format!("INSERT INTO resource VALUES (5, '{}')", id(5)));
    // SQLite orders text after numbers, so the row with `seq` 'four' comes last.
    assert_eq!(poll(), (5, 2, vec![id(5), id(4)]));
    // All rows are within the look-back, so this poll reads them again. They are not delivered or counted again.
    assert_eq!(poll(), (5, 0, vec![]));
}

/// SQLite's collations NOCASE and RTRIM equate different texts. A filter of the form `text` would answer "absent" for
/// the other spelling, so the scan is refused, also if the table has no rows.
#[test]
fn a_column_that_equates_different_texts_is_refused_as_text() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let address = database(
        folder.path(),
        "CREATE TABLE t (plain TEXT, folded TEXT COLLATE NOCASE, trimmed TEXT COLLATE RTRIM, number INTEGER);
         CREATE VIEW v AS SELECT folded AS id FROM t;",
    );
    for (query, accepted) in [
        ("SELECT plain FROM t", true),
        ("SELECT lower(folded) FROM t", true),
        ("SELECT number FROM t", true),
        ("SELECT folded FROM t", false),
        (
            "SELECT folded FROM t WHERE folded > 'a' -- a comment",
            false,
        ),
        ("SELECT trimmed FROM t;", false),
        ("SELECT id FROM v", false),
        ("SELECT plain COLLATE NOCASE FROM t", false),
    ] {
        match begin(source(&address, query, false), Ledger::default()) {
            Ok(_) => assert!(accepted, "{query}"),
            Err(SourceError::EquatesTexts { .. }) => assert!(!accepted, "{query}"),
            Err(error) => panic!("{query}: {error:?}"),
        }
    }
    let texts = ScanConfig {
        form: Some(IdForm::Text),
        ..ScanConfig::default()
    };
    let query = "SELECT number FROM t";
    let error = Scan::begin(source(&address, query, false), Ledger::default(), texts)
        .expect_err("an integer has several spellings");
    assert!(matches!(error, SourceError::TextForm { .. }), "{error:?}");
}
