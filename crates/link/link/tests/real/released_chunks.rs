//! A test of lost chunks. A sender frees the memory of a sent chunk if the sender's store has the chunk. If the
//! receiver then reports that the receiver's store has lost the chunk, the sender must read the chunk from the
//! sender's store.

use std::os::unix::fs::FileExt;

use edgeward_testkit::TcpServer;

use crate::bodies::Random;
use crate::test_bed::{EDGE, GATEWAY, TestBed, echo, tcp, within};

/// Overwrites bytes in all containers of a store while its endpoint uses it.
fn corrupt_store(test_bed: &TestBed, endpoint: usize) {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(test_bed.store_path(endpoint))
        .expect("the store opens");
    let bytes = file.metadata().expect("the file exists").len();
    for at in (8192..bytes).step_by(2048) {
        file.write_all_at(&[0x55], at)
            .expect("the file can be written");
    }
}

/// An endpoint with a corrupt store receives the missing chunks from the store of its peer. If both stores are
/// corrupt, the stream fails. After at most two failed streams, the chunks are sent as bytes again.
#[tokio::test]
async fn missing_chunks_are_sent_from_the_store() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    test_bed.keep_sent = true;
    let gateway = test_bed.gateway(target.addr()).await;
    let client = test_bed.client(gateway.local_addr());
    // The body is much longer than the bytes that can be unacknowledged, so the sender releases most chunks.
    let body = Random(31).noise(12_000_000);
    let exchange = async || {
        within(client.up()).await;
        let stream = client.open(tcp(target.addr())).expect("the link is up");
        let back = within(echo(stream, &body)).await?;
        assert!(back == body);
        std::io::Result::Ok(())
    };
    let counters = async || {
        [
            client.status().await.sent,
            gateway.status().await.peers[0].sent,
        ]
    };
    exchange().await.expect("the body is echoed");
    exchange().await.expect("the body is echoed");
    let [up, down] = counters().await;
    // Only the first upload sends the chunks as bytes. Its echo, the second upload and the second echo are references.
    assert!(up.referenced > 10_000_000 && down.referenced > 20_000_000);
    assert_eq!((up.naks, down.naks), (0, 0));

    corrupt_store(&test_bed, EDGE);
    exchange()
        .await
        .expect("the gateway sends the chunks from its store");
    let [up, down] = counters().await;
    assert!(down.naks > 0 && down.resent > 5_000_000, "{down:?}");
    assert_eq!((up.lost, down.lost), (0, 0));

    corrupt_store(&test_bed, GATEWAY);
    corrupt_store(&test_bed, EDGE);
    exchange()
        .await
        .expect_err("both stores have lost the chunks");
    let lost = |[up, down]: [edgeward_dedup::sender::SenderCounters; 2]| up.lost + down.lost;
    let before = lost(counters().await);
    assert!(before > 0);
    // The first exchange may have failed before the lost chunks of the other direction were found. The second
    // exchange may fail because of them.
    _ = exchange().await;
    exchange().await.expect("the chunks are sent as bytes");
    assert!(lost(counters().await) <= before + 1);
}
