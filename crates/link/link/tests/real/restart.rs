//! Tests of endpoints that restart with their chunk stores and their knowledge files.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use edgeward_link::{Client, Gateway, LinkState};
use edgeward_testkit::TcpServer;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::bodies::Random;
use crate::faults::wait_for_lock;
use crate::test_bed::{EDGE, GATEWAY, TestBed, echo, tcp, until, within};

/// Sends a body to the target, which echoes it, and compares the echo.
async fn exchange(client: &Client, target: &TcpServer, body: &[u8]) {
    within(client.up()).await;
    let stream = client.open(tcp(target.addr())).expect("the link is up");
    let back = within(echo(stream, body))
        .await
        .expect("the target echoes the body");
    assert!(back == body);
}

/// Returns the records of known chunks that the gateway has saved.
fn records(test_bed: &TestBed) -> Vec<PathBuf> {
    let files = fs::read_dir(test_bed.knowledge_path(GATEWAY));
    let paths = files.into_iter().flatten().flatten();
    let paths = paths.map(|file| file.path());
    paths
        .filter(|path| path.extension().is_none_or(|suffix| suffix != "new"))
        .collect()
}

/// A restarted gateway sends references to chunks that it sent or received before, whether it was shut down cleanly
/// or crashed. After a crash it does not reference chunks that its store has lost.
#[tokio::test]
async fn a_restarted_gateway_knows_the_chunks_of_its_peers() {
    for is_shut_down in [true, false] {
        let target = TcpServer::echo();
        let mut test_bed = TestBed::new(true);
        let gateway = test_bed.gateway(target.addr()).await;
        let addr = gateway.local_addr();
        let client = test_bed.client(addr);
        let body = Random(11).noise(3_000_000);
        exchange(&client, &target, &body).await;
        if is_shut_down {
            let ended = within(gateway.shutdown(Duration::from_secs(5))).await;
            ended.expect("the store is flushed");
        } else {
            // Waits until a knowledge file with the chunks of the first two containers is saved. The third container
            // is not written yet, so the crash loses its chunks.
            until(async || {
                // The file has 36 bytes, and at least 15 more for each container.
                let bytes = |path| fs::metadata(path).map_or(0, |facts| facts.len());
                records(&test_bed).into_iter().any(|path| bytes(path) > 60)
            })
            .await;
            drop(gateway);
            wait_for_lock(&test_bed, GATEWAY).await;
        }
        // Waits until the client has noticed that the gateway is gone. Otherwise `client.up()` below could return for
        // the connection to the first gateway.
        until(async || !matches!(client.state(), LinkState::Up(_))).await;
        let mut config = test_bed.gateway_config(target.addr());
        config.listen = addr;
        let gateway = Gateway::bind(config)
            .await
            .expect("the listener can be bound");
        let before = client.status().await;
        exchange(&client, &target, &body).await;
        let peer = &gateway.status().await.peers[0];
        let referenced_min = if is_shut_down { 2_500_000 } else { 900_000 };
        assert!(
            peer.sent.referenced > referenced_min,
            "{is_shut_down}: {:?}",
            peer.sent
        );
        assert!(
            peer.received.from_store > referenced_min,
            "{:?}",
            peer.received
        );
        // `foreign` counts the refused references to chunks that the two endpoints never exchanged.
        assert_eq!(peer.received.foreign, 0, "{is_shut_down}");
        let wire = client.status().await.sent.wire - before.sent.wire;
        let wire_max = if is_shut_down { 300_000 } else { 2_300_000 };
        assert!(wire < wire_max, "{is_shut_down}: {wire} bytes");
    }
}

/// A restarted edge sends references to chunks that it sent before.
#[tokio::test]
async fn a_restarted_edge_knows_the_chunks_of_the_gateway() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let gateway = test_bed.gateway(target.addr()).await;
    let body = Random(12).noise(3_000_000);
    for nth in 0..2 {
        let client = test_bed.client(gateway.local_addr());
        exchange(&client, &target, &body).await;
        let sent = client.status().await.sent;
        // The first client sends all bytes, and saves its knowledge at its shutdown. The second client loads this
        // knowledge and sends references.
        assert_eq!(sent.wire < 300_000, nth == 1, "{sent:?}");
        let ended = within(client.shutdown(Duration::from_secs(5))).await;
        ended.expect("the store is flushed");
    }
}

/// If either endpoint has another store, the persisted knowledge is not used.
#[tokio::test]
async fn knowledge_of_another_store_is_not_used() {
    for lost_store in [GATEWAY, EDGE] {
        let target = TcpServer::echo();
        let mut test_bed = TestBed::new(false);
        let body = Random(13).noise(1_000_000);
        let mut wire_bytes = Vec::new();
        for _ in 0..2 {
            let gateway = test_bed.gateway(target.addr()).await;
            let client = test_bed.client(gateway.local_addr());
            exchange(&client, &target, &body).await;
            wire_bytes.push(client.status().await.sent.wire);
            within(client.shutdown(Duration::from_secs(5)))
                .await
                .expect("the store is flushed");
            within(gateway.shutdown(Duration::from_secs(5)))
                .await
                .expect("the store is flushed");
            fs::remove_file(test_bed.store_path(lost_store)).expect("the file can be removed");
        }
        assert!(
            wire_bytes.iter().all(|bytes| *bytes > 1_000_000),
            "{wire_bytes:?}"
        );
    }
}

/// Dropping a gateway leaves no task behind, even if a peer has just sent its HELLO. The test checks this by the lock
/// on the gateway's store: no task holds the lock any more.
///
/// Method: start a client on the same runtime, yield 0, 1, 2 and so on times, and drop the gateway. Repeat this
/// until the handshake was complete in two of the runs.
#[tokio::test]
async fn a_gateway_dropped_during_a_handshake_leaves_nothing_behind() {
    for encrypted in [false, true] {
        let target = TcpServer::echo();
        let mut test_bed = TestBed::new(encrypted);
        let mut handshakes = 0;
        for yields in 0.. {
            assert!(yields < 10_000, "the handshake is never complete");
            let gateway = test_bed.gateway(target.addr()).await;
            let client = test_bed.client(gateway.local_addr());
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            handshakes += u32::from(matches!(client.state(), LinkState::Up(_)));
            drop(gateway);
            wait_for_lock(&test_bed, GATEWAY).await;
            drop(client);
            wait_for_lock(&test_bed, EDGE).await;
            if handshakes > 1 {
                break;
            }
        }
    }
}

/// If a gateway has too many records, it removes those of the edges whose last connection is the oldest. It keeps the
/// record of a connected edge, although the record has not changed for a long time.
#[tokio::test]
async fn the_record_of_a_connected_edge_is_kept() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let mut config = test_bed.gateway_config(target.addr());
    config.peers_max = 2;
    let gateway = Gateway::bind(config).await;
    let gateway = gateway.expect("the listener can be bound");
    let client = test_bed.client(gateway.local_addr());
    within(client.up()).await;
    until(async || !records(&test_bed).is_empty()).await;
    let record = records(&test_bed).remove(0);
    let hour = |n: u32| SystemTime::UNIX_EPOCH + n * Duration::from_secs(3600);
    let set_time = |path: &Path, time: SystemTime| {
        let file = File::options().append(true).open(path);
        let set = file.and_then(|file| file.set_modified(time));
        set.expect("the time can be set");
    };
    set_time(&record, hour(0));
    until(async || {
        let facts = fs::metadata(&record);
        facts.is_ok_and(|facts| facts.modified().is_ok_and(|time| time > hour(3)))
    })
    .await;
    let others = [1, 2].map(|n| {
        let path = test_bed.folder.join(n.to_string());
        fs::write(&path, "a record").expect("the file can be written");
        set_time(&path, hour(n));
        let moved = record.with_file_name(n.to_string());
        fs::rename(path, &moved).expect("the file can be renamed");
        moved
    });
    until(async || records(&test_bed).len() <= 2).await;
    assert_eq!(
        [&record, &others[0], &others[1]].map(|path| path.exists()),
        [true, false, true]
    );
}

/// New connections displace no edge that waits for the read of its record, as all edges do after a restart of their
/// gateway.
///
/// Method: the record is a pipe, whose read ends when the test has written to it. Meanwhile connect more silent hosts
/// than may be in their handshake.
#[tokio::test]
async fn an_edge_that_waits_for_its_record_is_not_displaced() {
    const LONG: Duration = Duration::from_secs(3600);
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let gateway = test_bed.gateway(target.addr()).await;
    let client = test_bed.client(gateway.local_addr());
    within(client.up()).await;
    let ended = within(client.shutdown(Duration::ZERO)).await;
    ended.expect("the store is flushed");
    let ended = within(gateway.shutdown(Duration::ZERO)).await;
    ended.expect("the store is flushed");
    let record = records(&test_bed).remove(0);
    let content = fs::read(&record).expect("the file can be read");
    fs::remove_file(&record).expect("the file can be removed");
    let made = mknodat(CWD, &record, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0);
    made.expect("the pipe can be created");

    let mut config = test_bed.gateway_config(target.addr());
    (config.link.times.first_byte, config.link.times.handshake) = (LONG, LONG);
    // One connection in its handshake for each address.
    config.pending_max = 2;
    let gateway = Gateway::bind(config).await;
    let gateway = gateway.expect("the listener can be bound");
    let mut config = test_bed.config(EDGE);
    (config.connections, config.times.handshake) = (1, LONG);
    let client = Client::start(config, &gateway.local_addr().to_string());
    let client = client.expect("the client starts");
    // The pipe can be opened when the gateway has begun to read it.
    let mut pipe = None;
    until(async || {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK;
        pipe = rustix::fs::open(&record, flags, Mode::empty()).ok();
        pipe.is_some()
    })
    .await;
    let mut pipe = pipe.map(File::from).expect("the pipe is open");
    let mut silent = Vec::new();
    for _ in 0..3 {
        let connected = TcpStream::connect(gateway.local_addr()).await;
        silent.push(connected.expect("the port is open"));
    }
    for displaced in &mut silent[..2] {
        let read = within(displaced.read(&mut [0])).await;
        assert!(matches!(read, Ok(0) | Err(_)));
    }
    let written = pipe.write_all(&content);
    written.expect("the content is shorter than the pipe's buffer");
    drop(pipe);
    assert!(matches!(within(client.settled()).await, LinkState::Up(_)));
    let counters = gateway.status().await.counters;
    assert_eq!((counters.connections, counters.displaced), (4, 2));
}
