//! Scans and polls a real PostgreSQL server. Each test starts a server in a temporary folder and stops it at
//! the end. If PostgreSQL is not installed, the tests are skipped, or fail with `EDGEWARD_REQUIRE_TOOLS=1`.
#![cfg(feature = "postgres")]

mod server;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use edgeward_filter::IdForm;
use edgeward_idsync::{
    Batch, ChangesConfig, ChangesPoller, Ledger, Options, Retry, Scan, ScanConfig, Source,
    SourceError, open,
};

use server::Server;

/// Returns the source of the query's ids. An `ordered` scan reads them in their order and can continue at a position.
fn source(address: &str, query: &str, ordered: bool) -> Arc<dyn Source> {
    let options = Options {
        ordered,
        ..Options::new(query)
    };
    open(address, options).expect("the address is valid")
}

fn config() -> ScanConfig {
    ScanConfig {
        batch_ids: 100,
        batches_ahead: 1,
        retry: Retry {
            first: Duration::from_millis(10),
            longest: Duration::from_millis(100),
            give_up_after: Duration::from_secs(60),
        },
        ..ScanConfig::default()
    }
}

fn read_rest(scan: &mut Scan) -> Result<Vec<String>, SourceError> {
    let mut ids = Vec::new();
    while let Some(batch) = scan.next_batch()? {
        ids.extend(texts(&batch));
    }
    Ok(ids)
}

fn texts(batch: &Batch) -> Vec<String> {
    let text = |id| String::from_utf8_lossy(id).into_owned();
    batch.ids().map(text).collect()
}

/// Runs a whole scan: an empty ledger has no progress of an earlier scan. Returns the form of the ids, and the ids.
fn scan(address: &str, query: &str, ordered: bool) -> Result<(IdForm, Vec<String>), SourceError> {
    let mut scan = Scan::begin(source(address, query, ordered), Ledger::default(), config())?;
    Ok((scan.source_info().form, read_rest(&mut scan)?))
}

#[test]
fn ids_of_every_type_are_read_in_canonical_form() {
    let Some(server) = Server::start() else {
        return;
    };
    server.sql("CREATE DOMAIN key AS uuid; CREATE TYPE size AS ENUM ('small', 'large')");
    let uuid = "550e8400-e29b-41d4-a716-446655440000";
    let address = server.address();
    for (value, form, id) in [
        ("7::int2", IdForm::Integer, "7"),
        ("-70000::int4", IdForm::Integer, "-70000"),
        (
            "9223372036854775807::int8",
            IdForm::Integer,
            "9223372036854775807",
        ),
        ("'né'::text", IdForm::Text, "né"),
        ("'a'::varchar(9)", IdForm::Text, "a"),
        (
            "'550E8400E29B41D4A716446655440000'::uuid",
            IdForm::Uuid,
            uuid,
        ),
        (
            "'550E8400E29B41D4A716446655440000'::key",
            IdForm::Uuid,
            uuid,
        ),
        ("'large'::size", IdForm::Text, "large"),
        ("'\\x6162'::bytea", IdForm::Text, "ab"),
    ] {
        for ordered in [false, true] {
            // An ordered scan puts the query into parentheses. The comment must not hide the closing one.
            let query = format!("SELECT {value} -- a comment");
            let scanned = scan(&address, &query, ordered).expect("the column has ids");
            assert_eq!(scanned, (form, vec![id.to_owned()]), "{query}");
        }
    }
}

/// PostgreSQL ignores the padding of `char(n)`, so a scan removes it.
#[test]
fn padding_is_no_part_of_an_id() {
    let Some(server) = Server::start() else {
        return;
    };
    server.sql("CREATE TABLE c (id char(10)); INSERT INTO c SELECT 'k' || n FROM generate_series(1, 250) n");
    let expected: BTreeSet<_> = (1..=250).map(|n| format!("k{n}")).collect();
    for ordered in [false, true] {
        let query = "SELECT id FROM c";
        let (form, ids) = scan(&server.address(), query, ordered).expect("the column has ids");
        assert_eq!(form, IdForm::Text);
        assert_eq!(ids.into_iter().collect::<BTreeSet<_>>(), expected);
    }
}

/// A collation that equates different texts is refused with the form `text`, also without rows, and accepted with the
/// form `uuid`, which has no case. Other collations are accepted.
#[test]
fn a_column_that_equates_different_texts_is_refused_as_text() {
    let Some(server) = Server::start() else {
        return;
    };
    server.sql(
        "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    );
    server.sql(
        "CREATE DOMAIN dci AS text COLLATE ci; \
         CREATE TABLE t (plain text, folded text COLLATE ci, domain dci, number int)",
    );
    let address = server.address();
    for (column, accepted) in [
        ("plain", true),
        ("plain COLLATE \"C\"", true),
        ("lower(folded) COLLATE \"C\"", true),
        ("number", true),
        ("folded", false),
        ("lower(folded)", false),
        ("domain", false),
    ] {
        let query = format!("SELECT {column} FROM t -- a comment");
        match scan(&address, &query, false) {
            Ok(_) => assert!(accepted, "{column}"),
            Err(SourceError::EquatesTexts { .. }) => assert!(!accepted, "{column}"),
            Err(error) => panic!("{column}: {error:?}"),
        }
        let uuids = ScanConfig {
            form: Some(IdForm::Uuid),
            ..config()
        };
        Scan::begin(source(&address, &query, false), Ledger::default(), uuids)
            .expect("a UUID has no case");
        let texts = ScanConfig {
            form: Some(IdForm::Text),
            ..config()
        };
        let begun = Scan::begin(source(&address, &query, false), Ledger::default(), texts);
        assert_eq!(
            begun.is_ok(),
            accepted && column != "number",
            "{column} as text"
        );
    }
}

#[test]
fn errors_name_the_cause() {
    let Some(server) = Server::start() else {
        return;
    };
    let address = server.address();
    let error = |query| scan(&address, query, false).expect_err("the source is not readable");
    for query in [
        "SELECT nothing",
        "SELECT 1; DROP TABLE x",
        "SELECT $1::int",
        "SELEC",
    ] {
        let error = error(query);
        assert!(matches!(error, SourceError::Query { .. }), "{error:?}");
    }
    let two = error("SELECT 1, 2");
    assert!(
        matches!(two, SourceError::Columns { found: 2, .. }),
        "{two:?}"
    );
    assert_eq!(
        error("SELECT 1.5::float8 AS price").to_string(),
        "column `price` has the unsupported type float8"
    );
    let null =
        error("SELECT CASE i WHEN 3 THEN NULL ELSE i END AS id FROM generate_series(1, 5) i");
    assert_eq!(null.to_string(), "row 3, column `id`: NULL is not an id");
    // An error during the query is permanent, unless the server is down.
    let division_error = error("SELECT 10 / (50000 - i) FROM generate_series(1, 60000) i");
    assert!(
        matches!(division_error, SourceError::Query { .. }),
        "{division_error:?}"
    );
    let unknown_user = address.replace("edgeward@", "stranger@");
    let refused = scan(&unknown_user, "SELECT 1", false).expect_err("the user does not exist");
    let SourceError::Connect {
        transient: false, ..
    } = refused
    else {
        panic!("{refused:?}");
    };
    drop(server);
    let stopped_server = scan(&address, "SELECT 1", false).expect_err("no server is running");
    let SourceError::Connect {
        transient: true, ..
    } = stopped_server
    else {
        panic!("{stopped_server:?}");
    };
}

/// The server crashes during a scan and restarts.
///
/// An ordered scan continues at its position and reads each row once, except the row at the position. An
/// unordered scan starts again.
#[test]
fn a_scan_survives_a_restart_of_the_server() {
    let Some(mut server) = Server::start() else {
        return;
    };
    server.sql(
        "CREATE TABLE resource (id uuid PRIMARY KEY);
         INSERT INTO resource SELECT md5(i::text)::uuid FROM generate_series(1, 100000) i;
         ANALYZE resource",
    );
    let address = server.address();
    for ordered in [true, false] {
        let source = source(&address, "SELECT id FROM resource", ordered);
        let mut scan = Scan::begin(source, Ledger::default(), config()).expect("the scan begins");
        assert_eq!(scan.source_info().rows_estimated, Some(100_000));
        let mut ids = Vec::new();
        for _ in 0..50 {
            let batch = scan
                .next_batch()
                .expect("the scan delivers rows")
                .expect("more rows follow");
            ids.extend(texts(&batch));
        }
        server.crash();
        server.restart();
        ids.extend(read_rest(&mut scan).expect("the scan continues"));
        let progress = scan.progress();
        assert!(
            progress.interruptions >= 1,
            "the scan was interrupted, because the socket cannot hold the remaining rows"
        );
        if ordered {
            assert!(ids.len() < 100_000 + 10, "{} read", ids.len());
            assert_eq!(progress.rows, ids.len() as u64);
        }
        let distinct: BTreeSet<_> = ids.into_iter().collect();
        assert_eq!(distinct.len(), 100_000, "ordered: {ordered}");
    }
}

/// Method: for each type of column, begin a scan at a position of an earlier scan. Together with the ids before the
/// position, the scan must read all ids.
#[test]
fn an_ordered_scan_can_begin_anywhere() {
    let Some(server) = Server::start() else {
        return;
    };
    for value in [
        "i",
        "-i::int8",
        "md5(i::text)::uuid",
        "'it''s \\' || i",
        "decode(md5(i::text), 'hex')",
    ] {
        let query = format!("SELECT {value} AS id FROM generate_series(1, 999) i");
        let begin_at = |ledger| {
            let source = source(&server.address(), &query, true);
            Scan::begin(source, ledger, config()).expect("the scan begins")
        };
        let mut scan = begin_at(Ledger::default());
        let mut all_ids = BTreeSet::new();
        let mut prefixes = Vec::new();
        while let Some(batch) = scan.next_batch().expect("the scan delivers rows") {
            all_ids.extend(batch.ids().map(<[u8]>::to_vec));
            if let Some(position) = batch.progress.position {
                prefixes.push((all_ids.clone(), position));
            }
        }
        // Ten batches of at most 100 ids: the last one ends the scan and has no position.
        assert_eq!((all_ids.len(), prefixes.len()), (999, 9), "{value}");
        // The ledger is the record of a scan. Here the scan has one span, the whole table, read up to `position`.
        for (mut ids, position) in prefixes.into_iter().step_by(4) {
            let mut scan = begin_at(Ledger::with_spans([Vec::new()]).with_position(0, position));
            let mut read = 0;
            while let Some(batch) = scan.next_batch().expect("the scan delivers rows") {
                read += batch.len();
                ids.extend(batch.ids().map(<[u8]>::to_vec));
            }
            assert!(read < 999 && ids == all_ids, "{value}: {read}");
        }
    }
}

/// A transaction gets its number first, but commits only after a poll has read a higher number. A later poll still
/// delivers the row of this transaction.
#[test]
fn changes_are_found_if_commits_are_out_of_order() {
    let Some(server) = Server::start() else {
        return;
    };
    server.sql(
        "CREATE TABLE resource (id uuid, seq bigserial, at timestamptz DEFAULT clock_timestamp());
         INSERT INTO resource SELECT md5(i::text)::uuid FROM generate_series(1, 5000) i",
    );
    for column in ["seq", "at"] {
        let query =
            format!("SELECT id, {column} FROM resource WHERE {column} > $1 ORDER BY {column}");
        let config = ChangesConfig {
            look_back: 10,
            look_back_time: Duration::from_secs(60),
            ..ChangesConfig::new(query)
        };
        let from = source(&server.address(), "SELECT id FROM resource", false);
        // `i64::MIN` is the start position: the first poll reads all rows.
        let mut changes =
            ChangesPoller::new(from, config, i64::MIN).expect("the runtime is created");
        let mut poll = || {
            let mut ids = Vec::new();
            let polled = changes.poll(&mut |batch| ids.extend(texts(&batch)));
            polled.map(|_| ids)
        };
        assert!(poll().expect("the poll succeeds").len() >= 5000);
        assert_eq!(poll().expect("the poll succeeds"), Vec::<String>::new());
        let insert = |id: u32| {
            format!("INSERT INTO resource (id) VALUES ('00000000-0000-0000-0000-{id:012}');")
        };
        let open_transaction = server.session(&format!("BEGIN; {}", insert(1)));
        server.sql(&insert(2));
        let id = |id| format!("00000000-0000-0000-0000-{id:012}");
        assert_eq!(poll().expect("the poll succeeds"), [id(2)]);
        open_transaction.commit();
        assert_eq!(poll().expect("the poll succeeds"), [id(1)], "by {column}");
        assert_eq!(poll().expect("the poll succeeds"), Vec::<String>::new());
    }
}

#[test]
fn changes_continue_after_a_restart_of_the_server() {
    let Some(mut server) = Server::start() else {
        return;
    };
    server.sql("CREATE TABLE resource (id int, seq bigserial)");
    let query = "SELECT id, seq FROM resource WHERE seq > $1 ORDER BY seq";
    let from = source(&server.address(), "SELECT id FROM resource", false);
    let mut changes =
        ChangesPoller::new(from, ChangesConfig::new(query), 0).expect("the runtime is created");
    let mut ids = Vec::new();
    let mut poll = || {
        let polled = changes.poll(&mut |batch| ids.extend(texts(&batch)));
        polled.map(|polled| polled.cursor)
    };
    server.sql("INSERT INTO resource VALUES (7)");
    assert_eq!(poll().expect("the poll succeeds"), 1);
    server.crash();
    let error = poll().expect_err("no server is running");
    assert!(error.is_transient(), "{error:?}");
    server.restart();
    server.sql("INSERT INTO resource VALUES (8)");
    assert!(poll().expect("the poll succeeds") > 1);
    assert_eq!(ids, ["7", "8"]);
}

/// The client accepts the server only if its certificate is trusted and valid for the server's name.
#[test]
fn tls_verifies_the_name_of_the_server() {
    let Some(server) = Server::start_with_tls() else {
        return;
    };
    let roots = server.certificate();
    let address = |host: &str, settings: &str| {
        format!(
            "postgres://edgeward@{host}:{}/postgres?{settings}",
            server.port()
        )
    };
    let query = "SELECT ssl::int FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let trusted = format!("sslmode=verify-full&sslrootcert={roots}");
    for (address, encrypted) in [
        (address("localhost", &trusted), "1"),
        (address("localhost", ""), "0"),
    ] {
        let scanned = scan(&address, query, false).expect("the client connects");
        assert_eq!(scanned.1, [encrypted], "{address}");
    }
    for address in [
        address("127.0.0.1", &trusted),
        address("localhost", "sslmode=require"),
    ] {
        let error = scan(&address, query, false).expect_err("the certificate is not trusted");
        assert!(matches!(error, SourceError::Connect { .. }), "{error:?}");
    }
}
