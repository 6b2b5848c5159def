//! Scans and polls a real Cassandra node. The test runs only in `make test-cassandra`, which needs a JDK,
//! Maven, 2 GB of memory and several minutes. Otherwise the test is skipped.
#![cfg(feature = "cassandra")]

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use edgeward_filter::{FilterParams, IdForm, IdHash, IdHasher, Rate, StaticBuilder};
use edgeward_idsync::{
    Batch, ChangesConfig, ChangesPoller, Ledger, Options, Retry, Scan, ScanConfig, Source,
    SourceError, open,
};
use futures_util::{TryStreamExt as _, stream};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::frame::response::result::ColumnType;
use scylla::serialize::SerializationError;
use scylla::serialize::value::SerializeValue;
use scylla::serialize::writers::{CellWriter, WrittenCellProof};
use scylla::statement::batch::{Batch as Statements, BatchType};

/// A Cassandra node for the test. The node stops when this value is dropped.
struct Node {
    folder: tempfile::TempDir,
    port: u16,
    /// A file with lines that are appended to the node's settings (`cassandra.yaml`).
    settings: Option<PathBuf>,
}

impl Node {
    fn start() -> Self {
        Self::start_in(tempfile::tempdir().expect("the folder is created"), None)
    }

    fn start_in(folder: tempfile::TempDir, settings: Option<PathBuf>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("the listener is bound").port();
        drop(listener);
        let node = Self {
            folder,
            port,
            settings,
        };
        node.run();
        node
    }

    fn run(&self) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/start-cassandra");
        let port = self.port.to_string();
        let mut command = Command::new(script);
        command.arg(self.folder.path()).arg(port);
        if let Some(settings) = &self.settings {
            command.env("CASSANDRA_SETTINGS", settings);
        }
        let started = command.status();
        assert!(started.expect("bash runs").success());
    }

    fn pid(&self) -> Option<String> {
        fs::read_to_string(self.folder.path().join("pid")).ok()
    }

    fn kill(&self) {
        if let Some(pid) = self.pid() {
            let killed = Command::new("kill").args(["-KILL", pid.trim()]).status();
            assert!(killed.expect("kill runs").success());
            // This path exists as long as the process has open files.
            let open_file = PathBuf::from("/proc").join(pid.trim()).join("fd/0");
            let until = Instant::now() + Duration::from_secs(60);
            while open_file.exists() && Instant::now() < until {
                std::thread::yield_now();
            }
        }
    }

    fn address(&self, settings: &str) -> String {
        format!("cassandra://127.0.0.1:{}/edgeward{settings}", self.port)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            _ = Command::new("kill").args(["-KILL", pid.trim()]).status();
        }
    }
}

fn id(n: u64) -> String {
    format!("{n:08x}-e29b-41d4-a716-446655440000")
}

async fn load(node: &Node, ids: u64) -> Session {
    let session = SessionBuilder::new()
        .known_node(format!("127.0.0.1:{}", node.port))
        .build()
        .await
        .expect("the node answers");
    for cql in [
        "CREATE KEYSPACE edgeward WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE edgeward.resource (id uuid PRIMARY KEY)",
        "CREATE TABLE edgeward.event (\"Tenant\" int, key text, seq bigint, at timestamp, price double, PRIMARY KEY ((\"Tenant\", key)))",
    ] {
        session
            .query_unpaged(cql, ())
            .await
            .expect("the CQL is valid");
    }
    let insert = session
        .prepare("INSERT INTO edgeward.resource (id) VALUES (?)")
        .await
        .expect("the CQL is valid");
    stream::iter((0..ids).step_by(50).map(Ok))
        .try_for_each_concurrent(32, |first| {
            let (session, insert) = (&session, &insert);
            async move {
                let mut statements = Statements::new(BatchType::Unlogged);
                let mut values = Vec::new();
                for n in first..(first + 50).min(ids) {
                    statements.append_statement(insert.clone());
                    values.push((Uuid(n),));
                }
                session.batch(&statements, values).await.map(|_| ())
            }
        })
        .await
        .expect("the row is inserted");
    session
}

/// The UUID whose text [`id`] returns.
struct Uuid(u64);

impl SerializeValue for Uuid {
    fn serialize<'b>(
        &self,
        _: &ColumnType<'_>,
        writer: CellWriter<'b>,
    ) -> Result<WrittenCellProof<'b>, SerializationError> {
        let digits = id(self.0).replace('-', "");
        let number = u128::from_str_radix(&digits, 16).expect("the text is hexadecimal");
        let written = writer.set_value(&number.to_be_bytes());
        Ok(written.expect("16 bytes fit"))
    }
}

fn source(address: &str, query: &str) -> Arc<dyn Source> {
    open(address, Options::new(query)).expect("the address is valid")
}

fn config() -> ScanConfig {
    ScanConfig {
        retry: Retry {
            first: Duration::from_millis(100),
            longest: Duration::from_secs(1),
            give_up_after: Duration::from_secs(300),
        },
        ..ScanConfig::default()
    }
}

fn texts(batch: &Batch) -> Vec<String> {
    let text = |id| String::from_utf8_lossy(id).into_owned();
    batch.ids().map(text).collect()
}

fn scan(address: &str, query: &str) -> Result<(IdForm, BTreeSet<String>), SourceError> {
    let mut scan = Scan::begin(source(address, query), Ledger::default(), config())?;
    let mut ids = BTreeSet::new();
    while let Some(batch) = scan.next_batch()? {
        ids.extend(texts(&batch));
    }
    Ok((scan.source_info().form, ids))
}

/// All checks but the last one use the same node, because a node takes long to start: full scans into a filter, other
/// types of ids, errors, changes, and a scan during which the node is killed. The last check starts a node with TLS.
#[test]
fn ids_are_read_from_a_real_node() {
    let Ok(ids) = env::var("EDGEWARD_CASSANDRA_IDS") else {
        eprintln!(
            "skipped: run `make test-cassandra`, which starts a Cassandra node for this test"
        );
        return;
    };
    let ids: u64 = ids.parse().expect("EDGEWARD_CASSANDRA_IDS is a number");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the runtime is created");
    let node = Node::start();
    let session = runtime.block_on(load(&node, ids));

    full_scans(&node, ids);
    other_ids_and_errors(&node, &runtime, &session);
    changes(&node, &runtime, &session);
    drop(session);
    a_scan_survives_a_restart_of_the_node(&node, ids);
    drop(node);
    tls_verifies_both_peers();
}

/// The client and the node verify each other's certificates.
///
/// Method: start a node that requires client certificates. The certificate of the node is valid for a name, not
/// for the node's address.
fn tls_verifies_both_peers() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let path = |name: &str| folder.path().join(name);
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority
        .distinguished_name
        .push(DnType::CommonName, "authority of a test");
    let key = KeyPair::generate().expect("the key is created");
    let authority =
        CertifiedIssuer::self_signed(authority, key).expect("the certificate is created");
    let signed = |name: &str| {
        let key = KeyPair::generate().expect("the key is created");
        let params = CertificateParams::new([name.to_owned()]).expect("the name is valid");
        let signed = params
            .signed_by(&key, &authority)
            .expect("the certificate is created");
        (signed.pem(), key.serialize_pem())
    };
    let (server, server_key) = signed("db.example");
    let (client, client_key) = signed("reader.example");
    let other = CertifiedIssuer::self_signed(
        CertificateParams::new(["other".to_owned()]).expect("the name is valid"),
        KeyPair::generate().expect("the key is created"),
    )
    .expect("the certificate is created");
    for (name, pem) in [
        ("ca.pem", authority.pem()),
        ("other.pem", other.pem()),
        ("client.pem", client),
        ("client.key", client_key),
    ] {
        fs::write(path(name), pem).expect("the file is written");
    }
    let block = |pem: &str| {
        let lines = pem.lines().map(|line| format!("        {line}\n"));
        lines.collect::<String>()
    };
    let settings = format!(
        "client_encryption_options:\n  enabled: true\n  optional: false\n  require_client_auth: true\n  \
         ssl_context_factory:\n    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory\n    \
         parameters:\n      private_key: |\n{}{}      trusted_certificates: |\n{}",
        block(&server_key),
        block(&server),
        block(&authority.pem()),
    );
    let file = path("settings.yaml");
    fs::write(&file, settings).expect("the file is written");
    let path_text = |name: &str| path(name).display().to_string();
    let (ca, other, cert, key) = (
        path_text("ca.pem"),
        path_text("other.pem"),
        path_text("client.pem"),
        path_text("client.key"),
    );
    let node = Node::start_in(
        tempfile::tempdir().expect("the folder is created"),
        Some(file),
    );
    let query = "SELECT cluster_name FROM system.local";
    let address = |settings: &str| format!("cassandra://127.0.0.1:{}/system?{settings}", node.port);
    let credentials = format!("ca={ca}&cert={cert}&key={key}");
    for settings in [
        format!("{credentials}&tls_name=db.example&consistency=one"),
        format!("{credentials}&tls=ca&consistency=one"),
    ] {
        let (_, names) = scan(&address(&settings), query).expect(&settings);
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["edgeward"]);
    }
    for settings in [
        // The certificate contains a name, but the node is known by address.
        credentials.clone(),
        format!("{credentials}&tls_name=other.example"),
        // Another authority.
        format!("ca={other}&cert={cert}&key={key}&tls=ca"),
        // No client certificate.
        format!("ca={ca}&tls=ca"),
        "tls=off".to_owned(),
    ] {
        let error = scan(&address(&settings), query).expect_err(&settings);
        assert!(matches!(error, SourceError::Connect { .. }), "{error:?}");
    }
}

fn full_scans(node: &Node, ids: u64) {
    let hasher = IdHasher {
        form: IdForm::Uuid,
        seed: 0,
    };
    for (settings, parallel) in [
        ("", 8),
        ("", 8),
        ("", 4),
        ("?page=5000", 4),
        ("?ranges=1", 1),
    ] {
        let options = Options {
            parallel: parallel.try_into().expect("the number is not zero"),
            ..Options::new("SELECT id FROM resource")
        };
        let began = Instant::now();
        let from = open(&node.address(settings), options).expect("the address is valid");
        let mut scan = Scan::begin(from, Ledger::default(), config()).expect("the scan begins");
        assert_eq!(scan.source_info().form, IdForm::Uuid);
        let rate: Rate = "1%".parse().expect("the rate is valid");
        let mut builder = StaticBuilder::new(FilterParams::with_rate(rate));
        while let Some(batch) = scan.next_batch().expect("the scan delivers rows") {
            for id in batch.ids() {
                builder
                    .insert(hasher.hash_canonical(id))
                    .expect("the id fits in the buffer");
            }
        }
        let scanned = began.elapsed();
        let progress = scan.progress();
        assert_eq!((progress.rows, progress.interruptions), (ids, 0));
        let filter = builder.finish().expect("the filter is built");
        let built = began.elapsed() - scanned;
        eprintln!(
            "{ids} ids, {settings:>12} {parallel} concurrent ranges: scan {scanned:.2?}, build {built:.2?}"
        );
        assert_eq!(filter.info().ids, ids);
        for n in 0..ids {
            let hash: IdHash = hasher
                .hash_spelling(id(n).as_bytes())
                .expect("the id is a UUID");
            assert!(filter.contains(hash), "{n}");
        }
    }
}

fn a_scan_survives_a_restart_of_the_node(node: &Node, ids: u64) {
    let config = ScanConfig {
        batch_ids: 1000,
        batches_ahead: 1,
        ..config()
    };
    let from = source(&node.address(""), "SELECT id FROM resource");
    let mut scan = Scan::begin(from, Ledger::default(), config).expect("the scan begins");
    let mut read = BTreeSet::new();
    for _ in 0..50 {
        let batch = scan
            .next_batch()
            .expect("the scan delivers rows")
            .expect("more rows follow");
        read.extend(texts(&batch));
    }
    node.kill();
    node.run();
    while let Some(batch) = scan.next_batch().expect("the scan continues") {
        read.extend(texts(&batch));
    }
    let progress = scan.progress();
    eprintln!("after a restart of the node: {progress:?}");
    assert_eq!(read.len() as u64, ids);
    assert!(progress.interruptions > 0);
    assert!(
        progress.rows < 2 * ids,
        "completed spans are not read again"
    );
}

fn other_ids_and_errors(node: &Node, runtime: &tokio::runtime::Runtime, session: &Session) {
    let insert =
        "INSERT INTO edgeward.event (\"Tenant\", key, seq, at, price) VALUES (?, ?, ?, ?, 1.5)";
    runtime.block_on(async {
        for n in 0..300i32 {
            let at = scylla::value::CqlTimestamp(i64::from(n) * 1000);
            let values = (n % 3, format!("key {n}"), i64::from(n), at);
            session
                .query_unpaged(insert, values)
                .await
                .expect("the row is inserted");
        }
    });
    let address = node.address("?consistency=local_one&page=7");
    let (form, keys) = scan(&address, "SELECT key FROM event").expect("the scan succeeds");
    assert_eq!((form, keys.len()), (IdForm::Text, 300));
    let (form, some) = scan(
        &address,
        "SELECT seq FROM edgeward.event WHERE price = 1.5 AND seq > 99 ALLOW FILTERING;",
    )
    .expect("the scan succeeds");
    assert_eq!((form, some.len()), (IdForm::Integer, 200));

    let error = |query| scan(&address, query).expect_err("the source is not readable");
    for query in [
        "SELECT nothing FROM event",
        "SELECT key FROM none",
        "SELEC",
        "SELECT key FROM event LIMIT 3",
    ] {
        let error = error(query);
        assert!(matches!(error, SourceError::Query { .. }), "{error:?}");
    }
    let double = error("SELECT price FROM event");
    assert!(
        matches!(double, SourceError::ColumnType { .. }),
        "{double:?}"
    );
    let two = error("SELECT key, seq FROM event");
    assert!(
        matches!(two, SourceError::Columns { found: 2, .. }),
        "{two:?}"
    );
    let unreachable = scan("cassandra://127.0.0.1:1/edgeward", "SELECT key FROM event");
    assert!(
        matches!(unreachable, Err(SourceError::Connect { .. })),
        "{unreachable:?}"
    );
}

fn changes(node: &Node, runtime: &tokio::runtime::Runtime, session: &Session) {
    for (column, expected_cursor) in [("seq", 400), ("at", 400_000)] {
        let query = format!("SELECT key, {column} FROM event WHERE {column} > ? ALLOW FILTERING");
        let config = ChangesConfig {
            look_back: 10_000,
            look_back_time: Duration::from_secs(10),
            ..ChangesConfig::new(query)
        };
        let from = source(&node.address(""), "SELECT key FROM event");
        // The poller starts at -1, below the values of all rows.
        let mut changes = ChangesPoller::new(from, config, -1).expect("the runtime is created");
        let mut poll = || {
            let mut keys = Vec::new();
            let polled = changes.poll(&mut |batch| keys.extend(texts(&batch)));
            (polled.expect("the poll succeeds").cursor, keys)
        };
        assert!(poll().1.len() >= 300, "by {column}");
        let insert = format!(
            "INSERT INTO edgeward.event (\"Tenant\", key, seq, at) VALUES (9, 'late by {column}', 400, 400000)"
        );
        runtime
            .block_on(session.query_unpaged(insert, ()))
            .expect("the row is inserted");
        let (cursor, keys) = poll();
        assert_eq!(
            (cursor, &keys[..]),
            (expected_cursor, &[format!("late by {column}")][..])
        );
        assert_eq!(poll().1, Vec::<String>::new());
    }
}
