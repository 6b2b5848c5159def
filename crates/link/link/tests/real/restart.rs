//! Tests of endpoints that restart with their chunk stores and their knowledge files.

use std::time::Duration;

use edgeward_link::{Client, Gateway, LinkState};

use crate::bodies::Random;
use crate::faults::wait_for_lock;
use crate::test_bed::{EDGE, Echo, GATEWAY, TestBed, echo, tcp, within};

/// Sends a body to the target, which echoes it, and compares the echo.
async fn exchange(client: &Client, target: &Echo, body: &[u8]) {
    within(client.up()).await;
    let stream = client.open(tcp(target.addr)).expect("the link is up");
    let back = within(echo(stream, body))
        .await
        .expect("the target echoes the body");
    assert!(back == body);
}

/// A restarted gateway sends references to chunks that it sent or received before, whether it was shut down cleanly
/// or crashed. After a crash it does not reference chunks that its store has lost.
#[tokio::test]
async fn a_restarted_gateway_knows_the_chunks_of_its_peers() {
    for is_shut_down in [true, false] {
        let target = Echo::start().await;
        let mut test_bed = TestBed::new(true);
        let gateway = test_bed.gateway(target.addr).await;
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
            let has_saved_file = || {
                let files = std::fs::read_dir(test_bed.knowledge_path(GATEWAY)).ok();
                let mut sizes = files.into_iter().flatten().flatten().map(|file| {
                    let name = file.file_name().to_string_lossy().into_owned();
                    let bytes = file.metadata().map_or(0, |facts| facts.len());
                    if name.ends_with(".new") { 0 } else { bytes }
                });
                // The file has 36 bytes, and at least 15 more for each container.
                sizes.any(|bytes| bytes > 60)
            };
            within(async {
                while !has_saved_file() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
            .await;
            drop(gateway);
            wait_for_lock(&test_bed, GATEWAY).await;
        }
        // Waits until the client has noticed that the gateway is gone. Otherwise `client.up()` below could return for
        // the connection to the first gateway.
        within(async {
            while matches!(client.state(), LinkState::Up(_)) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        let mut config = test_bed.gateway_config(target.addr);
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
    let target = Echo::start().await;
    let mut test_bed = TestBed::new(true);
    let gateway = test_bed.gateway(target.addr).await;
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
        let target = Echo::start().await;
        let mut test_bed = TestBed::new(false);
        let body = Random(13).noise(1_000_000);
        let mut wire_bytes = Vec::new();
        for _ in 0..2 {
            let gateway = test_bed.gateway(target.addr).await;
            let client = test_bed.client(gateway.local_addr());
            exchange(&client, &target, &body).await;
            wire_bytes.push(client.status().await.sent.wire);
            within(client.shutdown(Duration::from_secs(5)))
                .await
                .expect("the store is flushed");
            within(gateway.shutdown(Duration::from_secs(5)))
                .await
                .expect("the store is flushed");
            std::fs::remove_file(test_bed.store_path(lost_store)).expect("the file can be removed");
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
        let target = Echo::start().await;
        let mut test_bed = TestBed::new(encrypted);
        let mut handshakes = 0;
        for yields in 0.. {
            assert!(yields < 10_000, "the handshake is never complete");
            let gateway = test_bed.gateway(target.addr).await;
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
